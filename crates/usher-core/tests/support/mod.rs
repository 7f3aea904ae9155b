//! Large catalogs, shared by the benches and the allocation test.

use std::sync::Arc;
use std::time::Duration;

use usher_core::affinity::{Pin, PinKey, Pins};
use usher_core::catalog::{
    Address, Affinity, AffinityMode, Areas, Balancer, Catalog, CodeSet, Draft, Endpoint,
    EndpointTls, HostPattern, HttpCheck, Monitor, MonitorKind, Monitoring, Node, Pool, Reference,
    Shedding, Ssl, Zone,
};
use usher_core::id::{Id, Kind};
use usher_core::region::CountryCode;
use usher_core::request::{Location, NoHeaders, Request, Scheme};
use usher_core::rules::{Condition, Overrides, Rule, Rules, Transform};
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
    let draft = draft(balancers, pools, endpoints, steering);
    Arc::new(Catalog::check(draft).expect("valid"))
}

/// The same with all that a request may go through: maps of places, ten rules of which the last two
/// hold, and sessions in cookies.
#[allow(dead_code, reason = "not every user of this file asks")]
pub(crate) fn eventful(balancers: usize, pools: usize, endpoints: usize) -> Arc<Catalog> {
    let mut draft = draft(balancers, pools, endpoints, PoolSteering::Geo);
    for balancer in &mut draft.balancers {
        let pool = |place: usize| balancer.pools[place % pools].clone();
        let map = |codes: &[&str]| {
            let all = codes.iter().enumerate();
            all.map(|(place, code)| ((*code).to_owned(), vec![pool(place), pool(place + 1)]))
                .collect()
        };
        balancer.areas = Areas {
            pops: map(&["AMS", "NRT", "SJC"]),
            countries: map(&["BR", "DE", "FR", "JP", "KR", "NL", "US"]),
            regions: map(&["EEU", "ENAM", "NEAS", "WEU", "WNAM"]),
        };
        balancer.affinity.mode = AffinityMode::Cookie;
        let conditions = [
            r#"http.request.method eq "POST""#,
            r#"http.request.uri.path contains "/blog""#,
            r#"ip.src in {192.0.2.0/24 203.0.113.0/24}"#,
            r#"http.host wildcard "*.example.org""#,
            r#"any(http.request.headers["x-beta"][*] eq "1")"#,
            r#"http.cookie contains "debug=1""#,
            r#"starts_with(http.request.uri.path, "/api/") and ip.geoip.country in {"US" "CA"}"#,
            r#"http.user_agent matches "(?i)bot|crawler""#,
            r#"ip.geoip.country eq "KR""#,
            "ssl or http.request.uri.query eq \"\"",
        ];
        let rules = conditions.iter().map(|condition| Rule {
            name: (*condition).to_owned(),
            condition: Condition::parse(condition).expect("valid"),
            disabled: false,
            priority: None,
            terminates: false,
            fixed_response: None,
            overrides: Overrides {
                fallback: Some(pool(1)),
                ..Overrides::default()
            },
            transform: Transform::default(),
        });
        balancer.rules = Rules::new(rules.collect());
    }
    Arc::new(Catalog::check(draft).expect("valid"))
}

/// A visitor who came back: its request with what browsers send, and the pin in its cookie.
#[allow(dead_code, reason = "not every user of this file asks")]
pub(crate) struct Visitor {
    headers: Vec<(&'static str, String)>,
    pin: [u8; Pin::LEN],
}

#[allow(dead_code, reason = "not every user of this file asks")]
impl Visitor {
    /// Pinned to an endpoint of the load balancer at this place.
    pub(crate) fn new(catalog: &Catalog, balancer: usize) -> Visitor {
        let balancer = &catalog.draft().balancers[balancer];
        let pools = &catalog.draft().pools;
        let pool = pools.iter().find(|pool| pool.id == balancer.pools[0].id);
        let pool = pool.expect("it is there");
        let pin = Pin {
            balancer: balancer.id,
            pool: pool.id,
            endpoint: pool.endpoints[pool.endpoints.len() / 2].id,
            since: Wall::from_millis(1_790_000_000_000),
            ttl: Duration::from_secs(82_800),
        };
        let headers = [
            ("host", balancer.name.clone()),
            (
                "user-agent",
                "Mozilla/5.0 (X11; Linux x86_64) Gecko/20100101 Firefox/140.0".into(),
            ),
            (
                "accept",
                "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8".into(),
            ),
            ("accept-language", "ko,en;q=0.5".into()),
            ("accept-encoding", "gzip, deflate, br".into()),
            ("cookie", format!("theme=dark; __cflb={}", "x".repeat(144))),
            ("referer", format!("https://{}/", balancer.name)),
        ];
        Visitor {
            headers: headers.into(),
            pin: pin.encode(),
        }
    }

    /// Its request, from Korea.
    pub(crate) fn request(&self, draw: u64) -> Request<'_> {
        let location = Location {
            node: "N1",
            country: CountryCode::parse("KR"),
            ..Location::default()
        };
        Request {
            headers: &self.headers,
            location,
            uri: "/cart/items",
            ..request(&self.headers[0].1, draw)
        }
    }
}

impl Pins for Visitor {
    fn in_cookie(&self, _: Id) -> Option<Pin> {
        Pin::decode(&self.pin)
    }

    fn under_key(&self, _: PinKey) -> Option<Pin> {
        None
    }
}

fn draft(balancers: usize, pools: usize, endpoints: usize, steering: PoolSteering) -> Draft {
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
        zones: vec![zone],
        monitors: vec![monitor],
        interval_min: Duration::from_secs(1),
        ..Draft::new(node)
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
    draft
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
