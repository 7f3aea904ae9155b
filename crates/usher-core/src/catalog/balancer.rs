//! Load balancers, and the zones that they stand in.

use super::{EndpointTls, Reference};
use crate::id::Id;
use crate::steering::PoolSteering;

/// A hostname, the pools behind it, and how one of them is chosen.
#[derive(Debug, Clone, PartialEq)]
pub struct Balancer {
    /// Identity.
    pub id: Id,
    /// The hostname as it was written, in lower case.
    pub name: String,
    /// The hosts that it answers for.
    pub host: HostPattern,
    /// The zone it stands in, by name.
    pub zone: String,
    /// Free text.
    pub description: String,
    /// False: as if absent. Default true.
    pub enabled: bool,
    /// At least one, in order of preference.
    pub pools: Vec<Reference>,
    /// Used when no other pool is usable; its own health is not considered.
    pub fallback: Reference,
    /// How a pool is chosen.
    pub steering: PoolSteering,
    /// Weight of a pool that `weights` does not name. Range 0..=1, default 1.
    pub weight_default: f64,
    /// Weights of pools, 0..=1. A pool that is not in `pools` is ignored.
    pub weights: Vec<(Reference, f64)>,
}

/// Which hosts a load balancer answers for. An exact name beats a wildcard.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum HostPattern {
    /// `shop.example.com`
    Exact(String),
    /// `*.example.com`: holds `example.com`; any name below it matches, itself does not.
    Below(String),
}

impl HostPattern {
    /// From a name in lower case: one that starts with `*.` is a wildcard. Whether the rest is a
    /// hostname is for [`super::Catalog::check`] to say.
    #[must_use]
    pub fn parse(name: &str) -> HostPattern {
        match name.strip_prefix("*.") {
            Some(base) => HostPattern::Below(base.to_owned()),
            None => HostPattern::Exact(name.to_owned()),
        }
    }
}

impl std::fmt::Display for HostPattern {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            HostPattern::Exact(name) => f.write_str(name),
            HostPattern::Below(base) => write!(f, "*.{base}"),
        }
    }
}

/// A domain of the operator, and what holds for every load balancer in it.
#[derive(Debug, Clone, PartialEq)]
pub struct Zone {
    /// Identity.
    pub id: Id,
    /// Domain name, lower case.
    pub name: String,
    /// TLS towards endpoints. Default flexible.
    pub ssl: Ssl,
    /// Answer plain HTTP with a redirect to HTTPS. Default false.
    pub always_use_https: bool,
    /// Trust and client certificate towards endpoints; `mode` is not used here.
    pub tls: EndpointTls,
}

/// The zone setting `ssl`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Ssl {
    /// In the clear, except to endpoints on port 443.
    #[default]
    Flexible,
    /// TLS, certificate not checked.
    Full,
    /// TLS, certificate checked.
    Strict,
}
