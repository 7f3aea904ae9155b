//! Large catalogs, shared by the benches and the allocation test.

use std::sync::Arc;
use std::time::Duration;

use usher_core::catalog::{
    Address, Affinity, Areas, Balancer, Catalog, CodeSet, Draft, Endpoint, EndpointTls,
    HostPattern, HttpCheck, Monitor, MonitorKind, Monitoring, Node, Pool, Reference, Shedding, Ssl,
    Zone,
};
use usher_core::id::{Id, Kind};
use usher_core::request::{Location, NoHeaders, Request, Scheme};
use usher_core::steering::{EndpointSteering, PoolSteering};
use usher_core::time::Wall;

fn reference(kind: Kind, name: &str) -> Reference {
    Reference {
        id: Id::derive("default", kind, name),
        text: name.to_owned(),
    }
}

/// So many load balancers, each with pools of its own.
pub(crate) fn catalog(
    balancers: usize,
    pools: usize,
    endpoints: usize,
    steering: PoolSteering,
) -> Arc<Catalog> {
    let node = Node {
        name: "n1".to_owned(),
        code: "N1".to_owned(),
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
    let check = HttpCheck {
        method: "GET".to_owned(),
        path: "/".to_owned(),
        headers: Vec::new(),
        expected_codes: CodeSet::parse("200").expect("valid"),
        expected_body: String::new(),
        follow_redirects: false,
    };
    let monitor = Monitor {
        id: Id::derive("default", Kind::Monitor, "m"),
        name: "m".to_owned(),
        description: String::new(),
        kind: MonitorKind::Http(check),
        port: None,
        interval: Duration::from_secs(60),
        timeout: Duration::from_secs(5),
        retries: 2,
        consecutive_down: 0,
        consecutive_up: 0,
    };
    let pool_name = |balancer: usize, pool: usize| format!("p{balancer}-{pool}");
    let mut draft = Draft {
        node,
        zones: vec![zone],
        monitors: vec![monitor],
        monitor_groups: Vec::new(),
        pools: Vec::new(),
        balancers: Vec::new(),
        interval_min: Duration::from_secs(1),
        hash_key: Default::default(),
    };
    for lb in 0..balancers {
        for pool in 0..pools {
            let name = pool_name(lb, pool);
            let endpoint = |place: usize| Endpoint {
                id: Id::derive("default", Kind::Endpoint, &format!("{name}/{place}")),
                name: format!("e{place}"),
                address: Address::Ip([10, 0, (place / 250) as u8, (place % 250) as u8 + 1].into()),
                port: Some((lb * pools + pool) as u16 + 1),
                enabled: true,
                weight: (place % 7 + 1) as f64 / 10.0,
                host_header: None,
                disabled_at: None,
            };
            draft.pools.push(Pool {
                id: Id::derive("default", Kind::Pool, &name),
                description: String::new(),
                enabled: true,
                endpoints: (0..endpoints).map(endpoint).collect(),
                steering: EndpointSteering::Random,
                endpoints_min: 1,
                monitoring: Monitoring::Monitor(reference(Kind::Monitor, "m")),
                tls: EndpointTls::default(),
                name,
                coordinates: None,
                shedding: Shedding::default(),
                slow_start: None,
            });
        }
        let name = format!("lb{lb}.example.com");
        draft.balancers.push(Balancer {
            id: Id::derive("default", Kind::Balancer, &name),
            host: HostPattern::parse(&name),
            name,
            zone: "example.com".to_owned(),
            description: String::new(),
            enabled: true,
            pools: (0..pools)
                .map(|pool| reference(Kind::Pool, &pool_name(lb, pool)))
                .collect(),
            fallback: reference(Kind::Pool, &pool_name(lb, 0)),
            steering,
            weight_default: 0.5,
            weights: Vec::new(),
            areas: Areas::default(),
            location: Default::default(),
            affinity: Affinity::default(),
            failover_across_pools: false,
            endpoint_header: None,
            pool_sets: Vec::new(),
            rules: Default::default(),
        });
    }
    Arc::new(Catalog::check(draft).expect("valid"))
}

/// A request for a load balancer of [`catalog`].
#[allow(dead_code, reason = "not every user of this file asks")]
pub(crate) fn request(host: &str, draw: u64) -> Request<'_> {
    Request {
        host,
        method: "GET",
        uri: "/",
        scheme: Scheme::Http,
        client: [198, 51, 100, 1].into(),
        version: "HTTP/1.1",
        headers: &NoHeaders,
        location: Location::default(),
        time: Wall::from_millis(1_790_000_000_000),
        draw,
    }
}
