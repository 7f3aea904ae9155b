//! Load balancers, and the zones that they stand in.

use super::{Affinity, EndpointTls, PoolSet, Reference};
use crate::id::Id;
use crate::rules::{self, PoolMap, Rules};
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
    /// Pools by place, for geo steering.
    pub areas: Areas,
    /// Which place a request that comes by DNS is taken to be at.
    pub location: rules::Location,
    /// How visitors stay at one endpoint.
    pub affinity: Affinity,
    /// Whether the one retry may go to the next pool when the chosen one has no other endpoint.
    /// Default false.
    pub failover_across_pools: bool,
    /// A header of answers that names pool and endpoint, `eu/web-1`, in place of what the endpoint
    /// sent under that name. One that a transform may set; default none.
    pub endpoint_header: Option<String>,
    /// Replacements of all the above by place, in order; at most 1000.
    pub pool_sets: Vec<PoolSet>,
    /// What is different for some requests; at most 1000.
    pub rules: Rules<Reference>,
}

impl Balancer {
    /// Every pool that it names anywhere, as often as it does: in its lists and maps, in pool sets
    /// and in rules. All of them count, also those that its steering does not look at.
    pub fn for_each_pool<'a>(&'a self, each: &mut dyn FnMut(&'a Reference)) {
        let Balancer {
            pools,
            fallback,
            weights,
            areas,
            pool_sets,
            rules,
            ..
        } = self;
        pools.iter().chain([fallback]).for_each(&mut *each);
        weights.iter().for_each(|(pool, _)| each(pool));
        for map in [&areas.pops, &areas.countries, &areas.regions] {
            map.iter().flat_map(|(_, pools)| pools).for_each(&mut *each);
        }
        for set in pool_sets {
            set.pools.iter().chain(&set.fallback).for_each(&mut *each);
            set.weights.iter().for_each(|(pool, _)| each(pool));
        }
        for overrides in rules.as_written().iter().map(|rule| &rule.overrides) {
            let lists = [&overrides.pools, &overrides.default_pools]
                .into_iter()
                .flatten();
            lists
                .flatten()
                .chain(&overrides.fallback)
                .for_each(&mut *each);
            (overrides.weights.iter().flatten()).for_each(|(pool, _)| each(pool));
            let maps = [
                &overrides.pop_pools,
                &overrides.country_pools,
                &overrides.region_pools,
            ];
            let lists = maps.into_iter().flatten().flatten();
            lists.flat_map(|(_, pools)| pools).for_each(&mut *each);
        }
    }
}

/// The maps of geo steering. The most exact one that has the place of a request is used alone.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Areas {
    /// By code of a node.
    pub pops: PoolMap<Reference>,
    /// By ISO 3166-1 alpha-2 code of a country.
    pub countries: PoolMap<Reference>,
    /// By code of a region.
    pub regions: PoolMap<Reference>,
}

impl Areas {
    /// Whether no place has pools of its own.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.pops.is_empty() && self.countries.is_empty() && self.regions.is_empty()
    }
}

/// Which hosts a load balancer answers for. An exact name beats a wildcard, and both beat the one
/// that is for every host.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum HostPattern {
    /// `shop.example.com`
    Exact(String),
    /// `*.example.com`: holds `example.com`; any name below it matches, itself does not.
    Below(String),
    /// Every host. Nobody writes it: it is what stands before the one upstream of a command line.
    Any,
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
            HostPattern::Any => f.write_str("*"),
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
