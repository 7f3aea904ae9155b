//! Catalogs that an operator might have, and the changes that one might make.
//!
//! Each monitor has a path or a port of its own, so that the world can tell from a probe whose it
//! is. Addresses are drawn from few, so that pools share targets.

use std::time::Duration;

use usher_core::catalog::{
    Address, Affinity, AffinityAttributes, AffinityMode, Areas, Balancer, CodeSet, Draft, Endpoint,
    EndpointTls, HostPattern, HttpCheck, Member, Monitor, MonitorGroup, MonitorKind, Monitoring,
    Node, PinFailover, Places, Pool, PoolSet, PoolSetMatch, Reference, ShedPolicy, Shedding, Ssl,
    Zone,
};
use usher_core::id::{Id, Kind};
use usher_core::rules::{Condition, FixedResponse, Overrides, PoolMap, Rule, Rules, Transform};
use usher_core::steering::{EndpointSteering, PoolSteering};

use crate::rng::Rng;
use crate::visits::{COUNTRIES, NODES, REGIONS};

/// Ports of tcp monitors begin here; no endpoint has such a port.
pub(crate) const TCP_PORTS: u16 = 10_000;

fn reference(kind: Kind, name: &str) -> Reference {
    Reference {
        id: Id::derive("default", kind, name),
        text: name.to_owned(),
    }
}

fn kind(rng: &mut Rng, place: usize) -> (MonitorKind, Option<u16>) {
    if rng.percent(25) {
        return (MonitorKind::Tcp, Some(TCP_PORTS + place as u16));
    }
    let check = HttpCheck {
        method: "GET".to_owned(),
        path: format!("/m{place}/{}", rng.below(1000)),
        headers: Vec::new(),
        expected_codes: CodeSet::parse("2xx").expect("valid"),
        expected_body: String::new(),
        follow_redirects: false,
    };
    (MonitorKind::Http(check), None)
}

fn timing(rng: &mut Rng, monitor: &mut Monitor) {
    monitor.timeout = Duration::from_secs(rng.within(1, 3) as u64);
    monitor.retries = rng.below(3) as u32;
    let least = monitor.timeout.as_secs() as usize * (monitor.retries as usize + 1) + 1;
    monitor.interval = Duration::from_secs(rng.within(least, least + 20) as u64);
    monitor.consecutive_down = rng.below(4) as u32;
    monitor.consecutive_up = rng.below(4) as u32;
}

fn weight(rng: &mut Rng) -> f64 {
    match rng.below(6) {
        0 => 0.0,
        1 | 2 => 1.0,
        _ => rng.within(1, 100) as f64 / 100.0,
    }
}

fn endpoint(rng: &mut Rng, pool: &str) -> Endpoint {
    let port = rng.percent(50).then(|| 9000 + rng.below(3) as u16);
    let address = match rng.percent(15) {
        true => Address::Host(format!("h{}.example.net", rng.below(4))),
        false => Address::Ip([192, 0, 2, rng.within(1, 250) as u8].into()),
    };
    let text = format!("{address}:{}", port.unwrap_or(0));
    Endpoint {
        id: Id::derive("default", Kind::Endpoint, &format!("{pool}/{text}")),
        name: text,
        address,
        port,
        enabled: !rng.percent(10),
        weight: weight(rng),
        host_header: None,
        disabled_at: None,
    }
}

fn add_endpoint(rng: &mut Rng, pool: &mut Pool) {
    let new = endpoint(rng, &pool.name);
    if pool.endpoints.iter().all(|known| known.name != new.name) {
        pool.endpoints.push(new);
    }
}

/// Some pools in some order, each once.
fn some_pools(rng: &mut Rng, pools: &[Pool]) -> Vec<Reference> {
    let mut chosen: Vec<&Pool> = pools.iter().collect();
    for ix in (1..chosen.len()).rev() {
        chosen.swap(ix, rng.below(ix + 1));
    }
    chosen.truncate(rng.within(1, pools.len()));
    let to = |pool: &Pool| reference(Kind::Pool, &pool.name);
    chosen.into_iter().map(to).collect()
}

fn map(rng: &mut Rng, codes: &[&str], pools: &[Pool]) -> PoolMap<Reference> {
    let mut map = Vec::new();
    for code in codes {
        if rng.percent(30) {
            map.push(((*code).to_owned(), some_pools(rng, pools)));
        }
    }
    map
}

fn affinity(rng: &mut Rng) -> Affinity {
    let mode = *rng.pick(&AffinityMode::ALL);
    let (min, max) = mode.ttl_range();
    let failovers = [
        PinFailover::None,
        PinFailover::Temporary,
        PinFailover::Sticky,
    ];
    let kinds = if mode == AffinityMode::Header { 2 } else { 3 };
    Affinity {
        mode,
        ttl: rng.percent(50).then(|| *rng.pick(&[min, max])),
        attributes: AffinityAttributes {
            drain: Duration::from_secs(if rng.percent(50) {
                rng.below(200) as u64
            } else {
                0
            }),
            failover: failovers[rng.below(kinds)],
            headers: match mode {
                AffinityMode::Header => vec!["x-visitor".to_owned()],
                _ => Vec::new(),
            },
            ..AffinityAttributes::default()
        },
    }
}

fn rule(rng: &mut Rng, pools: &[Pool]) -> Rule<Reference> {
    let condition = *rng.pick(&["", "http.request.method eq \"POST\""]);
    let steerings: Vec<PoolSteering> = PoolSteering::ALL.to_vec();
    Rule {
        name: String::new(),
        condition: Condition::parse(condition).expect("valid"),
        disabled: rng.percent(10),
        priority: rng.percent(50).then(|| rng.below(3) as u64),
        terminates: rng.percent(20),
        fixed_response: rng.percent(5).then(|| FixedResponse {
            status: 503,
            content_type: None,
            location: None,
            body: String::new(),
        }),
        overrides: Overrides {
            default_pools: rng.percent(30).then(|| some_pools(rng, pools)),
            fallback: rng
                .percent(20)
                .then(|| reference(Kind::Pool, &rng.pick(pools).name)),
            steering: rng.percent(30).then(|| *rng.pick(&steerings)),
            weight_default: rng.percent(20).then(|| weight(rng)),
            affinity_ttl: rng.percent(20).then(|| Duration::from_secs(3_600)),
            failover_across_pools: rng.percent(20).then_some(true),
            ..Overrides::default()
        },
        transform: Transform::default(),
    }
}

fn pool_set(rng: &mut Rng, pools: &[Pool]) -> PoolSet {
    let codes = |rng: &mut Rng, codes: &[&str]| match rng.percent(40) {
        true => vec![(*rng.pick(codes)).to_owned()],
        false => Vec::new(),
    };
    let regions = REGIONS.map(|region| region.code());
    let places = Places {
        pops: codes(rng, &NODES),
        countries: codes(rng, &COUNTRIES),
        regions: codes(rng, &regions),
    };
    let empty = places == Places::default();
    let steerings = [
        PoolSteering::Off,
        PoolSteering::Random,
        PoolSteering::Proximity,
    ];
    PoolSet {
        disabled: rng.percent(10),
        matching: Some(PoolSetMatch {
            default: empty,
            places: (!empty).then_some(places),
        }),
        pools: some_pools(rng, pools),
        weight_default: rng.percent(50).then(|| weight(rng)),
        fallback: rng
            .percent(50)
            .then(|| reference(Kind::Pool, &rng.pick(pools).name)),
        steering: *rng.pick(&steerings),
        ..PoolSet::default()
    }
}

fn shedding(rng: &mut Rng) -> Shedding {
    let percent = |rng: &mut Rng| match rng.below(8) {
        0 => 100.0,
        1 | 2 => rng.below(100) as f64,
        _ => 0.0,
    };
    Shedding {
        default_percent: percent(rng),
        default_policy: *rng.pick(&[ShedPolicy::Random, ShedPolicy::Hash]),
        session_percent: percent(rng),
    }
}

fn balancer(rng: &mut Rng, place: usize, pools: &[Pool]) -> Balancer {
    let chosen = some_pools(rng, pools);
    let mut weights = Vec::new();
    for pool in &chosen {
        if rng.percent(60) {
            weights.push((pool.clone(), weight(rng)));
        }
    }
    let sets = if rng.percent(25) { rng.within(1, 2) } else { 0 };
    let rules = if rng.percent(40) { rng.within(1, 3) } else { 0 };
    let name = format!("lb{place}.example.com");
    Balancer {
        id: Id::derive("default", Kind::Balancer, &name),
        host: HostPattern::parse(&name),
        name,
        zone: "example.com".to_owned(),
        description: String::new(),
        enabled: !rng.percent(5),
        pools: chosen,
        fallback: reference(Kind::Pool, &rng.pick(pools).name),
        steering: *rng.pick(&PoolSteering::ALL),
        weight_default: weight(rng),
        weights,
        areas: Areas {
            pops: map(rng, &NODES, pools),
            countries: map(rng, &COUNTRIES, pools),
            regions: map(rng, &REGIONS.map(|region| region.code()), pools),
        },
        location: Default::default(),
        affinity: affinity(rng),
        failover_across_pools: rng.percent(40),
        endpoint_header: None,
        pool_sets: (0..sets).map(|_| pool_set(rng, pools)).collect(),
        rules: Rules::new((0..rules).map(|_| rule(rng, pools)).collect()),
    }
}

/// A catalog of a few pools, or in some worlds of many endpoints.
pub(crate) fn draw(rng: &mut Rng) -> Draft {
    let node = Node {
        name: "sim".to_owned(),
        code: "SIM".to_owned(),
        region: None,
        country: None,
        city: None,
        coordinates: None,
    };
    let zone = Zone {
        id: Id::derive("default", Kind::Zone, "example.com"),
        name: "example.com".to_owned(),
        ssl: Ssl::Flexible,
        always_use_https: false,
        tls: EndpointTls::default(),
    };
    let monitors: Vec<Monitor> = (0..rng.within(1, 4))
        .map(|place| {
            let name = format!("m{place}");
            let (kind, port) = kind(rng, place);
            let mut monitor = Monitor {
                id: Id::derive("default", Kind::Monitor, &name),
                name,
                description: String::new(),
                kind,
                port,
                interval: Duration::ZERO,
                timeout: Duration::ZERO,
                retries: 0,
                consecutive_down: 0,
                consecutive_up: 0,
            };
            timing(rng, &mut monitor);
            monitor
        })
        .collect();
    let members = monitors.iter().map(|monitor| {
        let monitoring_only = rng.percent(20);
        Member {
            monitor: reference(Kind::Monitor, &monitor.name),
            enabled: !rng.percent(15),
            monitoring_only,
            must_be_healthy: !monitoring_only && rng.percent(25),
        }
    });
    let group = MonitorGroup {
        id: Id::derive("default", Kind::MonitorGroup, "g"),
        name: "g".to_owned(),
        description: String::new(),
        members: members.collect(),
    };
    let many = rng.percent(10);
    let sheds = rng.percent(30);
    let pools: Vec<Pool> = (0..rng.within(1, 5))
        .map(|place| {
            let name = format!("p{place}");
            let monitoring = match rng.below(10) {
                0 => Monitoring::None,
                1..=3 => Monitoring::Group(reference(Kind::MonitorGroup, "g")),
                _ => Monitoring::Monitor(reference(Kind::Monitor, &rng.pick(&monitors).name)),
            };
            let mut pool = Pool {
                id: Id::derive("default", Kind::Pool, &name),
                description: String::new(),
                enabled: !rng.percent(8),
                endpoints: Vec::new(),
                steering: *rng.pick(&EndpointSteering::ALL),
                endpoints_min: rng.below(4) as u32,
                monitoring,
                tls: EndpointTls::default(),
                name,
                coordinates: rng
                    .percent(70)
                    .then(|| (rng.below(90) as f64, rng.below(180) as f64)),
                shedding: if sheds {
                    shedding(rng)
                } else {
                    Shedding::default()
                },
                slow_start: rng
                    .percent(25)
                    .then(|| Duration::from_secs(rng.within(1, 60) as u64)),
            };
            for _ in 0..if many { 60 } else { rng.within(1, 5) } {
                add_endpoint(rng, &mut pool);
            }
            pool
        })
        .collect();
    let balancers = (0..rng.within(1, 4))
        .map(|place| balancer(rng, place, &pools))
        .collect();
    Draft {
        node,
        zones: vec![zone],
        monitors,
        monitor_groups: vec![group],
        pools,
        balancers,
        rooms: Vec::new(),
        room_profile: Default::default(),
        interval_min: Duration::from_secs(1),
        hash_key: Default::default(),
    }
}

/// Some changes of an operator, made together.
pub(crate) fn change(rng: &mut Rng, draft: &mut Draft) {
    for _ in 0..rng.within(1, 3) {
        change_one(rng, draft);
    }
    // At most one member, since the model does not know of a monitor that takes the place of
    // another: the verdict would pass on.
    if rng.percent(20) {
        let place = rng.below(draft.monitor_groups[0].members.len());
        let member = &mut draft.monitor_groups[0].members[place];
        member.enabled = !member.enabled;
    }
}

fn change_one(rng: &mut Rng, draft: &mut Draft) {
    let pool = rng.below(draft.pools.len());
    let pool = &mut draft.pools[pool];
    let endpoint = rng.below(pool.endpoints.len());
    match rng.below(11) {
        0 => pool.enabled = !pool.enabled,
        1 => pool.endpoints[endpoint].enabled = !pool.endpoints[endpoint].enabled,
        2 => pool.endpoints[endpoint].weight = weight(rng),
        3 => add_endpoint(rng, pool),
        4 if pool.endpoints.len() > 1 => drop(pool.endpoints.remove(endpoint)),
        5 => pool.endpoints.rotate_left(endpoint),
        6 => pool.endpoints_min = rng.below(4) as u32,
        7 => {
            let place = rng.below(draft.monitors.len());
            (draft.monitors[place].kind, draft.monitors[place].port) = kind(rng, place);
        }
        8 => {
            let place = rng.below(draft.monitors.len());
            timing(rng, &mut draft.monitors[place]);
        }
        // The same again: a reload that changes nothing.
        9 => {}
        _ => {
            let place = rng.below(draft.balancers.len());
            draft.balancers[place] = balancer(rng, place, &draft.pools);
        }
    }
}
