//! Small catalogs for tests, written in one line each.

use std::sync::Arc;
use std::time::Duration;

use crate::catalog::{
    Address, Affinity, Areas, Balancer, Catalog, CodeSet, Draft, Endpoint, EndpointTls,
    HostPattern, HttpCheck, Member, Monitor, MonitorGroup, MonitorKind, Monitoring, Node, Pool,
    Reference, Shedding, Ssl, Zone,
};
use crate::id::{Id, Kind};
use crate::request::{Location, NoHeaders, Request, Scheme};
use crate::steering::{EndpointSteering, PoolSteering};
use crate::time::Wall;

/// A draft in the making, with the zone `example.com`.
#[derive(Debug, Clone)]
pub(crate) struct Sample(pub(crate) Draft);

fn id(kind: Kind, key: &str) -> Id {
    Id::derive("default", kind, key)
}

fn reference(kind: Kind, text: &str) -> Reference {
    Reference {
        id: id(kind, text),
        text: text.to_owned(),
    }
}

/// `a=0.5 b` as name and value.
fn words(text: &str) -> impl Iterator<Item = (&str, Option<&str>)> {
    text.split_whitespace().map(|word| {
        word.split_once('=')
            .map_or((word, None), |(name, value)| (name, Some(value)))
    })
}

impl Sample {
    pub(crate) fn new() -> Sample {
        let node = Node {
            name: "n1".to_owned(),
            code: "N1".to_owned(),
            region: None,
            country: None,
            city: None,
            coordinates: None,
        };
        let zone = Zone {
            id: id(Kind::Zone, "example.com"),
            name: "example.com".to_owned(),
            ssl: Ssl::Flexible,
            always_use_https: false,
            tls: EndpointTls::default(),
        };
        Sample(Draft {
            zones: vec![zone],
            interval_min: Duration::from_secs(1),
            ..Draft::new(node)
        })
    }

    /// An HTTP monitor: every 60 s, 5 s for an attempt, 2 retries.
    pub(crate) fn monitor(mut self, name: &str) -> Sample {
        let check = HttpCheck {
            method: "GET".to_owned(),
            path: "/".to_owned(),
            headers: Vec::new(),
            expected_codes: CodeSet::parse("200").expect("valid"),
            expected_body: String::new(),
            follow_redirects: false,
        };
        self.0.monitors.push(Monitor {
            id: id(Kind::Monitor, name),
            name: name.to_owned(),
            description: String::new(),
            kind: MonitorKind::Http(check),
            port: None,
            interval: Duration::from_secs(60),
            timeout: Duration::from_secs(5),
            retries: 2,
            consecutive_down: 0,
            consecutive_up: 0,
        });
        self
    }

    /// A group; a member is `name`, `name=must`, `name=only` or `name=off`.
    pub(crate) fn group(mut self, name: &str, members: &str) -> Sample {
        let member = |(name, role): (&str, Option<&str>)| Member {
            monitor: reference(Kind::Monitor, name),
            enabled: role != Some("off"),
            monitoring_only: role == Some("only"),
            must_be_healthy: role == Some("must"),
        };
        self.0.monitor_groups.push(MonitorGroup {
            id: id(Kind::MonitorGroup, name),
            name: name.to_owned(),
            description: String::new(),
            members: words(members).map(member).collect(),
        });
        self
    }

    /// A pool judged by the monitor or group `judge` (`""`: nobody). An endpoint is `name`,
    /// `name=WEIGHT` or `name=off`; one with a dot in its name has it for its hostname, others get
    /// an address by their place.
    pub(crate) fn pool(mut self, name: &str, judge: &str, endpoints: &str) -> Sample {
        let pool_place = self.0.pools.len() as u8;
        let endpoints = words(endpoints)
            .zip(1..)
            .map(|((endpoint, value), place)| Endpoint {
                id: id(Kind::Endpoint, &format!("{name}/{endpoint}")),
                name: endpoint.to_owned(),
                address: match endpoint.contains('.') {
                    true => Address::Host(endpoint.to_owned()),
                    false => Address::Ip([192, 0, 2 + pool_place, place].into()),
                },
                port: None,
                enabled: value != Some("off"),
                weight: value.and_then(|value| value.parse().ok()).unwrap_or(1.0),
                host_header: None,
                disabled_at: None,
            });
        let endpoints = endpoints.collect();
        let is_group = self
            .0
            .monitor_groups
            .iter()
            .any(|group| group.name == judge);
        self.0.pools.push(Pool {
            id: id(Kind::Pool, name),
            name: name.to_owned(),
            description: String::new(),
            enabled: true,
            endpoints,
            steering: EndpointSteering::Random,
            endpoints_min: 1,
            monitoring: match judge {
                "" => Monitoring::None,
                _ if is_group => Monitoring::Group(reference(Kind::MonitorGroup, judge)),
                _ => Monitoring::Monitor(reference(Kind::Monitor, judge)),
            },
            tls: EndpointTls::default(),
            coordinates: None,
            shedding: Shedding::default(),
            slow_start: None,
        });
        self
    }

    /// A load balancer; a pool is `name` or `name=WEIGHT`.
    pub(crate) fn balancer(
        mut self,
        host: &str,
        steering: PoolSteering,
        pools: &str,
        fallback: &str,
    ) -> Sample {
        let weight = |(name, weight): (&str, Option<&str>)| {
            weight.map(|weight| {
                (
                    reference(Kind::Pool, name),
                    weight.parse().expect("a weight"),
                )
            })
        };
        self.0.balancers.push(Balancer {
            id: id(Kind::Balancer, host),
            name: host.to_owned(),
            host: HostPattern::parse(host),
            zone: "example.com".to_owned(),
            description: String::new(),
            enabled: true,
            pools: words(pools)
                .map(|(name, _)| reference(Kind::Pool, name))
                .collect(),
            fallback: reference(Kind::Pool, fallback),
            steering,
            weight_default: 1.0,
            weights: words(pools).filter_map(weight).collect(),
            areas: Areas::default(),
            location: Default::default(),
            affinity: Affinity::default(),
            failover_across_pools: false,
            endpoint_header: None,
            pool_sets: Vec::new(),
            rules: Default::default(),
        });
        self
    }

    /// With something changed by hand.
    pub(crate) fn with(mut self, change: impl FnOnce(&mut Draft)) -> Sample {
        change(&mut self.0);
        self
    }

    /// The catalog, which has to be valid.
    pub(crate) fn catalog(self) -> Arc<Catalog> {
        Arc::new(Catalog::check(self.0).expect("a valid sample"))
    }
}

/// When requests of tests come.
pub(crate) const TIME: Wall = Wall::from_millis(1_790_000_000_000);

/// A request for `host` over HTTPS.
pub(crate) fn request(host: &str, draw: u64) -> Request<'_> {
    Request {
        host,
        method: "GET",
        uri: "/",
        scheme: Scheme::Https,
        client: [198, 51, 100, 1].into(),
        version: "HTTP/1.1",
        headers: &NoHeaders,
        location: Location::default(),
        time: TIME,
        draw,
    }
}
