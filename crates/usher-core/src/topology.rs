//! A catalog made ready for look-ups: computed once, shared by every snapshot of that catalog.

use std::collections::HashMap;
use std::hash::BuildHasherDefault;
use std::sync::Arc;
use std::time::Duration;

use siphasher::sip::SipHasher13;

use crate::catalog::{
    Address, AffinityMode, BalancerIx, Catalog, EndpointIx, HostPattern, PoolIx, Reference, Ssl,
    TlsMode,
};
use crate::id::Id;
use crate::region::{CountryCode, Region};
use crate::request::Location;
use crate::route::Route;
use crate::steering::Point;

/// One endpoint, as traffic needs it.
#[derive(Debug, Clone, PartialEq)]
pub struct EndpointView {
    /// Identity: pool, address and port.
    pub id: Id,
    /// Its pool.
    pub pool: PoolIx,
    /// Name, for reports.
    pub name: String,
    /// Where it is.
    pub address: Address,
    /// Port; `None`: the default of what is spoken, see [`Transport::port`].
    pub port: Option<u16>,
    /// Replaces the client's `Host` towards this endpoint.
    pub host_header: Option<String>,
}

/// How to speak to an endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Transport<'a> {
    /// The port to connect to.
    pub port: u16,
    /// TLS; `None`: in the clear.
    pub tls: Option<TlsProfile<'a>>,
    /// HTTP/2: over TLS where the endpoint chooses it, in the clear without asking.
    pub http2: bool,
}

/// TLS towards an endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct TlsProfile<'a> {
    /// Whether the certificate is checked, against `sni` or what stands for it.
    pub verify: bool,
    /// Name to ask for. `None`: the `Host` that is sent to the endpoint.
    pub sni: Option<&'a str>,
    /// PEM file with the authorities to trust instead of the system's.
    pub ca: Option<&'a str>,
    /// PEM files with the certificate to show and its key.
    pub client_cert: Option<(&'a str, &'a str)>,
}

/// Keys are fixed because nobody but the operator puts names into these maps.
type HostMap = HashMap<Box<str>, BalancerIx, BuildHasherDefault<SipHasher13>>;

/// The hosts of some load balancers.
#[derive(Debug, Default)]
struct Hosts {
    exact: HostMap,
    below: HostMap,
    any: Option<BalancerIx>,
    /// The most labels of any name in `below`; a host of a thousand dots is not worth a thousand
    /// look-ups.
    below_labels_max: usize,
}

impl Hosts {
    fn insert(&mut self, host: &HostPattern, balancer: BalancerIx) {
        match host {
            HostPattern::Exact(name) => {
                self.exact.insert(name.as_str().into(), balancer);
            }
            HostPattern::Below(name) => {
                self.below_labels_max = self.below_labels_max.max(labels(name));
                self.below.insert(name.as_str().into(), balancer);
            }
            HostPattern::Any => self.any = Some(balancer),
        }
    }

    fn find(&self, host: &str) -> Option<BalancerIx> {
        self.named(host).or(self.any)
    }

    fn named(&self, host: &str) -> Option<BalancerIx> {
        if let Some(&balancer) = self.exact.get(host) {
            return Some(balancer);
        }
        if self.below.is_empty() {
            return None;
        }
        let mut labels = labels(host);
        let mut rest = host;
        while let Some((_, parent)) = rest.split_once('.') {
            (labels, rest) = (labels - 1, parent);
            if labels <= self.below_labels_max
                && let Some(&balancer) = self.below.get(parent)
            {
                return Some(balancer);
            }
        }
        None
    }
}

fn labels(host: &str) -> usize {
    host.bytes().filter(|&byte| byte == b'.').count() + 1
}

/// A catalog with every name and reference resolved.
#[derive(Debug)]
pub(crate) struct Topology {
    catalog: Arc<Catalog>,
    enabled: Hosts,
    disabled: Hosts,
    endpoints: Box<[EndpointView]>,
    /// First endpoint of each pool, and behind the last pool the end of the table.
    starts: Box<[u32]>,
    routes: Box<[Route]>,
    /// Places of endpoints by id, for pins.
    by_id: HashMap<Id, EndpointIx, BuildHasherDefault<SipHasher13>>,
    /// Where each pool is.
    points: Box<[Option<Point>]>,
    /// For how long the pins of a disabled endpoint may hold at most, pool by pool: the longest time
    /// of the load balancers that use the pool.
    drains: Box<[Duration]>,
    region: Option<Region>,
    country: Option<CountryCode>,
}

impl Topology {
    pub(crate) fn new(catalog: Arc<Catalog>) -> Topology {
        let draft = catalog.draft();
        let (mut enabled, mut disabled) = (Hosts::default(), Hosts::default());
        for (ix, balancer) in catalog.balancers() {
            let hosts = if balancer.enabled {
                &mut enabled
            } else {
                &mut disabled
            };
            hosts.insert(&balancer.host, ix);
        }
        let mut endpoints = Vec::new();
        let mut starts = vec![0];
        for (ix, pool) in catalog.pools() {
            endpoints.extend(pool.endpoints.iter().map(|endpoint| EndpointView {
                id: endpoint.id,
                pool: ix,
                name: endpoint.name.clone(),
                address: endpoint.address.clone(),
                port: endpoint.port,
                host_header: endpoint.host_header.clone(),
            }));
            // The check bounds the number of endpoints far below `u32::MAX`.
            starts.push(endpoints.len() as u32);
        }
        let routes = draft.balancers.iter().map(|balancer| {
            let found = |pool: &Reference| {
                catalog
                    .pool_by_id(pool.id)
                    .expect("the check found every pool")
            };
            let zone = draft
                .zones
                .iter()
                .position(|zone| zone.name == balancer.zone);
            let zone = zone.expect("the check found every zone");
            Route::new(balancer, found, draft.zones[zone].always_use_https, zone)
        });
        let routes = routes.collect();
        let by_id = (0..).zip(&endpoints);
        let by_id = by_id
            .map(|(ix, endpoint)| (endpoint.id, EndpointIx(ix)))
            .collect();
        let points = draft
            .pools
            .iter()
            .map(|pool| pool.coordinates.map(Point::new));
        let points = points.collect();
        let drains = drains(&catalog);
        let code = |country: &String| CountryCode::parse(country);
        Topology {
            region: draft.node.region.as_deref().and_then(Region::parse),
            country: draft.node.country.as_ref().and_then(code),
            by_id,
            points,
            drains,
            catalog,
            enabled,
            disabled,
            endpoints: endpoints.into(),
            starts: starts.into(),
            routes,
        }
    }

    pub(crate) fn catalog(&self) -> &Arc<Catalog> {
        &self.catalog
    }

    /// The enabled load balancer for `host`: an exact name first, then the longest wildcard.
    pub(crate) fn balancer_for(&self, host: &str) -> Option<BalancerIx> {
        self.enabled.find(host)
    }

    pub(crate) fn disabled_balancer_for(&self, host: &str) -> Option<BalancerIx> {
        self.disabled.find(host)
    }

    pub(crate) fn route(&self, balancer: BalancerIx) -> &Route {
        &self.routes[balancer.at()]
    }

    pub(crate) fn endpoint(&self, endpoint: EndpointIx) -> &EndpointView {
        &self.endpoints[endpoint.at()]
    }

    pub(crate) fn endpoints(&self) -> &[EndpointView] {
        &self.endpoints
    }

    /// The endpoint at `place` inside `pool`.
    pub(crate) fn endpoint_of(&self, pool: PoolIx, place: usize) -> EndpointIx {
        EndpointIx(self.starts[pool.at()] + place as u32)
    }

    /// The place of `endpoint` inside its pool.
    pub(crate) fn place_of(&self, endpoint: EndpointIx) -> (PoolIx, usize) {
        let pool = self.endpoint(endpoint).pool;
        (pool, (endpoint.0 - self.starts[pool.at()]) as usize)
    }

    /// The endpoint with this id.
    pub(crate) fn endpoint_by_id(&self, id: Id) -> Option<EndpointIx> {
        self.by_id.get(&id).copied()
    }

    /// Where `pool` is, if somebody said so.
    pub(crate) fn point(&self, pool: PoolIx) -> Option<Point> {
        self.points[pool.at()]
    }

    /// For how long the pins of a disabled endpoint of `pool` may hold at most.
    pub(crate) fn drain_max(&self, pool: PoolIx) -> Duration {
        self.drains[pool.at()]
    }

    /// Where this node is.
    pub(crate) fn location(&self) -> Location<'_> {
        let node = &self.catalog.draft().node;
        Location {
            node: &node.code,
            region: self.region,
            country: self.country,
            coordinates: node.coordinates,
        }
    }

    pub(crate) fn transport(&self, balancer: BalancerIx, endpoint: EndpointIx) -> Transport<'_> {
        let draft = self.catalog.draft();
        let zone = &draft.zones[self.route(balancer).zone];
        let view = self.endpoint(endpoint);
        let own = &draft.pools[view.pool.at()].tls;
        let verify = match (own.mode, zone.ssl) {
            (Some(TlsMode::Off), _) => None,
            (Some(TlsMode::Full), _) | (None, Ssl::Full) => Some(false),
            (Some(TlsMode::Strict), _) | (None, Ssl::Strict) => Some(true),
            (None, Ssl::Flexible) => (view.port == Some(443)).then_some(false),
        };
        let tls = verify.map(|verify| {
            let with_key = [own, &zone.tls]
                .into_iter()
                .find(|tls| tls.client_cert.is_some());
            TlsProfile {
                verify,
                sni: own
                    .sni
                    .as_deref()
                    .or(view.host_header.as_deref())
                    .or(zone.tls.sni.as_deref()),
                ca: own.ca.as_deref().or(zone.tls.ca.as_deref()),
                client_cert: with_key
                    .and_then(|tls| tls.client_cert.as_deref().zip(tls.client_key.as_deref())),
            }
        });
        Transport {
            port: view.port.unwrap_or(if tls.is_some() { 443 } else { 80 }),
            tls,
            http2: own.http2,
        }
    }
}

fn drains(catalog: &Catalog) -> Box<[Duration]> {
    let mut drains = vec![Duration::ZERO; catalog.draft().pools.len()];
    for balancer in &catalog.draft().balancers {
        let rules = balancer.rules.as_written();
        let modes = rules.iter().filter_map(|rule| rule.overrides.affinity);
        let pinned = [balancer.affinity.mode].into_iter().chain(modes);
        if !pinned.into_iter().any(|mode| mode != AffinityMode::None) {
            continue;
        }
        let attributes =
            (rules.iter()).filter_map(|rule| rule.overrides.affinity_attributes.as_ref());
        let drain = attributes.chain([&balancer.affinity.attributes]);
        let drain = drain
            .map(|attributes| attributes.drain)
            .max()
            .unwrap_or_default();
        balancer.for_each_pool(&mut |pool| {
            let ix = catalog
                .pool_by_id(pool.id)
                .expect("the check found every pool");
            drains[ix.at()] = drains[ix.at()].max(drain);
        });
    }
    drains.into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::Sample;
    use crate::snapshot::Snapshot;
    use crate::steering::PoolSteering::Off;

    #[test]
    fn how_an_endpoint_is_spoken_to() {
        // Zone's ssl, pool's mode, endpoint's port: port, and whether the certificate is checked.
        let cases = [
            (Ssl::Flexible, None, None, 80, None),
            (Ssl::Flexible, None, Some(8443), 8443, None),
            (Ssl::Flexible, None, Some(443), 443, Some(false)),
            (Ssl::Full, None, None, 443, Some(false)),
            (Ssl::Strict, None, Some(8443), 8443, Some(true)),
            (Ssl::Strict, Some(TlsMode::Off), None, 80, None),
            (Ssl::Strict, Some(TlsMode::Off), Some(443), 443, None),
            (Ssl::Strict, Some(TlsMode::Full), None, 443, Some(false)),
            (
                Ssl::Flexible,
                Some(TlsMode::Strict),
                Some(9000),
                9000,
                Some(true),
            ),
        ];
        for (ssl, mode, port, expected_port, verify) in cases {
            let sample =
                Sample::new()
                    .pool("p", "", "a")
                    .balancer("shop.example.com", Off, "p", "p");
            let sample = sample.with(|draft| {
                draft.zones[0].ssl = ssl;
                draft.pools[0].tls.mode = mode;
                draft.pools[0].endpoints[0].port = port;
            });
            let snapshot = Snapshot::presumed(sample.catalog());
            let transport = snapshot.transport(BalancerIx(0), EndpointIx(0));
            let found = (transport.port, transport.tls.map(|tls| tls.verify));
            assert_eq!(found, (expected_port, verify), "{ssl:?} {mode:?} {port:?}");
        }
    }

    #[test]
    fn the_pool_says_more_than_its_zone() {
        let some = |text: &str| Some(text.to_owned());
        let sample = Sample::new()
            .pool("p", "", "a b")
            .balancer("shop.example.com", Off, "p", "p");
        let sample = sample.with(|draft| {
            draft.zones[0].ssl = Ssl::Strict;
            draft.zones[0].tls.ca = some("zone-ca.pem");
            draft.zones[0].tls.client_cert = some("zone.pem");
            draft.zones[0].tls.client_key = some("zone.key");
            draft.pools[0].endpoints[1].host_header = some("b.example.com");
        });
        let transport = |sample: &Sample, endpoint| {
            let snapshot = Snapshot::presumed(sample.clone().catalog());
            let tls = snapshot
                .transport(BalancerIx(0), EndpointIx(endpoint))
                .tls
                .expect("TLS");
            let owned = |text: &str| text.to_owned();
            (
                tls.sni.map(owned),
                tls.ca.map(owned),
                tls.client_cert.map(|(cert, _)| owned(cert)),
            )
        };
        assert_eq!(
            transport(&sample, 0),
            (None, some("zone-ca.pem"), some("zone.pem"))
        );
        assert_eq!(
            transport(&sample, 1),
            (some("b.example.com"), some("zone-ca.pem"), some("zone.pem"))
        );
        let sample = sample.with(|draft| {
            draft.pools[0].tls.sni = some("pool.example.com");
            draft.pools[0].tls.ca = some("pool-ca.pem");
            draft.pools[0].tls.client_cert = some("pool.pem");
            draft.pools[0].tls.client_key = some("pool.key");
        });
        assert_eq!(
            transport(&sample, 1),
            (
                some("pool.example.com"),
                some("pool-ca.pem"),
                some("pool.pem")
            )
        );
    }
}
