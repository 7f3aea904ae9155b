//! What a rule may change for one request.
//!
//! An [`Overrides`] is what one rule names, a [`Laid`] what all rules that held name together. The
//! latter only points into the former, so laying rules on a request copies nothing.

use std::time::Duration;

use crate::catalog::{AffinityAttributes, AffinityMode};
use crate::steering::PoolSteering;

/// Codes (of countries, regions or nodes) and the pools for each, in order of preference.
pub type PoolMap<P> = Vec<(String, Vec<P>)>;

/// What one rule changes. Absent: unchanged.
#[derive(Debug, Clone, PartialEq)]
pub struct Overrides<P> {
    /// The whole topology: these pools instead of `default_pools` and of all three maps. Goes before
    /// the other four in the same rule.
    pub pools: Option<Vec<P>>,
    /// Pools in order of preference.
    pub default_pools: Option<Vec<P>>,
    /// Pools by region code.
    pub region_pools: Option<PoolMap<P>>,
    /// Pools by country code.
    pub country_pools: Option<PoolMap<P>>,
    /// Pools by node code.
    pub pop_pools: Option<PoolMap<P>>,
    /// The fallback pool.
    pub fallback: Option<P>,
    /// How a pool is chosen.
    pub steering: Option<PoolSteering>,
    /// Weight of pools that `weights` does not name. Range 0..=1 in steps of 0.01.
    pub weight_default: Option<f64>,
    /// Weights of pools.
    pub weights: Option<Vec<(P, f64)>>,
    /// From what the visitor's location is told.
    pub location: Option<Location>,
    /// TTL of DNS answers in seconds, 1..=86400.
    pub ttl_secs: Option<u32>,
    /// Whether a failed request may go on to another pool.
    pub failover_across_pools: Option<bool>,
    /// Whether visitors are pinned, and by what they are known again.
    pub affinity: Option<AffinityMode>,
    /// How long a pin holds. A pin in a cookie is given anew with it.
    pub affinity_ttl: Option<Duration>,
    /// Everything else about affinity.
    pub affinity_attributes: Option<AffinityAttributes>,
}

/// From what the location of a DNS visitor is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Location {
    /// Without a client subnet.
    pub mode: LocationMode,
    /// When a client subnet is used.
    pub prefer_ecs: Ecs,
}

/// What stands for the visitor when there is no client subnet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum LocationMode {
    /// This node.
    #[default]
    Pop,
    /// The resolver's address.
    ResolverIp,
}

/// When the client subnet of a query is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Ecs {
    /// Always.
    Always,
    /// Never.
    Never,
    /// For proximity steering.
    #[default]
    Proximity,
    /// For geo steering.
    Geo,
}

impl<P> Default for Overrides<P> {
    fn default() -> Overrides<P> {
        Overrides {
            pools: None,
            default_pools: None,
            region_pools: None,
            country_pools: None,
            pop_pools: None,
            fallback: None,
            steering: None,
            weight_default: None,
            weights: None,
            location: None,
            ttl_secs: None,
            failover_across_pools: None,
            affinity: None,
            affinity_ttl: None,
            affinity_attributes: None,
        }
    }
}

impl<P> Overrides<P> {
    /// The same with pools named in another way.
    #[must_use]
    pub fn map_pools<Q>(&self, pool: &mut impl FnMut(&P) -> Q) -> Overrides<Q> {
        let mut list = |pools: &Vec<P>| pools.iter().map(&mut *pool).collect::<Vec<Q>>();
        let (pools, default_pools) = (
            self.pools.as_ref().map(&mut list),
            self.default_pools.as_ref().map(&mut list),
        );
        let mut map = |map: &PoolMap<P>| -> PoolMap<Q> {
            map.iter()
                .map(|(code, pools)| (code.clone(), list(pools)))
                .collect()
        };
        Overrides {
            pools,
            default_pools,
            region_pools: self.region_pools.as_ref().map(&mut map),
            country_pools: self.country_pools.as_ref().map(&mut map),
            pop_pools: self.pop_pools.as_ref().map(&mut map),
            fallback: self.fallback.as_ref().map(&mut *pool),
            steering: self.steering,
            weight_default: self.weight_default,
            weights: self.weights.as_ref().map(|weights| {
                let weights = weights.iter();
                weights.map(|(of, weight)| (pool(of), *weight)).collect()
            }),
            location: self.location,
            ttl_secs: self.ttl_secs,
            failover_across_pools: self.failover_across_pools,
            affinity: self.affinity,
            affinity_ttl: self.affinity_ttl,
            affinity_attributes: self.affinity_attributes.clone(),
        }
    }
}

/// What all rules that held change together. Absent: unchanged.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Laid<'r, P> {
    /// Pools in order of preference.
    pub default_pools: Option<&'r [P]>,
    /// Pools by region code.
    pub region_pools: Option<&'r [(String, Vec<P>)]>,
    /// Pools by country code.
    pub country_pools: Option<&'r [(String, Vec<P>)]>,
    /// Pools by node code.
    pub pop_pools: Option<&'r [(String, Vec<P>)]>,
    /// The fallback pool.
    pub fallback: Option<&'r P>,
    /// How a pool is chosen.
    pub steering: Option<PoolSteering>,
    /// Weight of pools that `weights` does not name.
    pub weight_default: Option<f64>,
    /// Weights of pools.
    pub weights: Option<&'r [(P, f64)]>,
    /// From what the visitor's location is told.
    pub location: Option<Location>,
    /// TTL of DNS answers in seconds.
    pub ttl_secs: Option<u32>,
    /// Whether a failed request may go on to another pool.
    pub failover_across_pools: Option<bool>,
    /// Whether visitors are pinned, and by what they are known again.
    pub affinity: Option<AffinityMode>,
    /// How long a pin holds.
    pub affinity_ttl: Option<Duration>,
    /// Everything else about affinity.
    pub affinity_attributes: Option<&'r AffinityAttributes>,
}

impl<P> Default for Laid<'_, P> {
    fn default() -> Self {
        Laid {
            default_pools: None,
            region_pools: None,
            country_pools: None,
            pop_pools: None,
            fallback: None,
            steering: None,
            weight_default: None,
            weights: None,
            location: None,
            ttl_secs: None,
            failover_across_pools: None,
            affinity: None,
            affinity_ttl: None,
            affinity_attributes: None,
        }
    }
}

impl<'r, P> Laid<'r, P> {
    /// Replaces what `over` names.
    pub(super) fn lay(&mut self, over: &'r Overrides<P>) {
        // Without `..`, so that a new override cannot be forgotten here.
        let Overrides {
            pools,
            default_pools,
            region_pools,
            country_pools,
            pop_pools,
            fallback,
            steering,
            weight_default,
            weights,
            location,
            ttl_secs,
            failover_across_pools,
            affinity,
            affinity_ttl,
            affinity_attributes,
        } = over;
        self.default_pools = default_pools.as_deref().or(self.default_pools);
        self.region_pools = region_pools.as_deref().or(self.region_pools);
        self.country_pools = country_pools.as_deref().or(self.country_pools);
        self.pop_pools = pop_pools.as_deref().or(self.pop_pools);
        if let Some(pools) = pools {
            self.default_pools = Some(pools);
            self.region_pools = Some(&[]);
            self.country_pools = Some(&[]);
            self.pop_pools = Some(&[]);
        }
        self.fallback = fallback.as_ref().or(self.fallback);
        self.steering = steering.or(self.steering);
        self.weight_default = weight_default.or(self.weight_default);
        self.weights = weights.as_deref().or(self.weights);
        self.location = location.or(self.location);
        self.ttl_secs = ttl_secs.or(self.ttl_secs);
        self.failover_across_pools = failover_across_pools.or(self.failover_across_pools);
        self.affinity = affinity.or(self.affinity);
        self.affinity_ttl = affinity_ttl.or(self.affinity_ttl);
        self.affinity_attributes = affinity_attributes.as_ref().or(self.affinity_attributes);
    }
}
