//! What a load balancer asks for, with references resolved, and what of it holds for one request.
//!
//! Pool sets and rules replace parts of it request by request. Nothing is copied for that: a
//! [`Plan`] points into the part that holds.

use crate::catalog::{AffinityAttributes, AffinityMode, Balancer, PoolIx, PoolSet, Reference};
use crate::id::Id;
use crate::region::{CountryCode, Region};
use crate::request::Location;
use crate::rules::{Laid, Overrides, PoolMap, Rule, Rules};
use crate::steering::{PoolSteering, Weight};
use std::time::Duration;

/// A load balancer with its references resolved.
#[derive(Debug)]
pub(crate) struct Route {
    pub(crate) id: Id,
    pub(crate) base: Choice,
    pub(crate) areas: Areas,
    pub(crate) sets: Box<[Set]>,
    /// Maps sorted by code and weights by pool, so that they can be searched.
    pub(crate) rules: Rules<PoolIx>,
    pub(crate) https_only: bool,
    /// Place of the zone in the draft.
    pub(crate) zone: usize,
}

/// Pools, and how one of them is chosen.
#[derive(Debug)]
pub(crate) struct Choice {
    pub(crate) pools: Box<[PoolIx]>,
    pub(crate) fallback: PoolIx,
    pub(crate) steering: PoolSteering,
    weight_default: f64,
    weights: Vec<(PoolIx, f64)>,
}

/// The maps of geo steering.
#[derive(Debug)]
pub(crate) struct Areas {
    pops: PoolMap<PoolIx>,
    countries: PoolMap<PoolIx>,
    regions: PoolMap<PoolIx>,
}

/// A pool set.
#[derive(Debug)]
pub(crate) struct Set {
    /// Place in the list as it was written.
    pub(crate) place: u16,
    places: Option<SetPlaces>,
    /// `None`: a fixed response.
    pub(crate) choice: Option<Choice>,
}

#[derive(Debug)]
struct SetPlaces {
    pops: Box<[String]>,
    countries: Box<[CountryCode]>,
    regions: Box<[Region]>,
}

/// What holds for one request.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Plan<'r> {
    pub(crate) pools: &'r [PoolIx],
    pops: &'r [(String, Vec<PoolIx>)],
    countries: &'r [(String, Vec<PoolIx>)],
    regions: &'r [(String, Vec<PoolIx>)],
    pub(crate) fallback: PoolIx,
    /// Never [`PoolSteering::Auto`].
    pub(crate) steering: PoolSteering,
    weight_default: f64,
    weights: &'r [(PoolIx, f64)],
    pub(crate) affinity: AffinityMode,
    pub(crate) ttl: Duration,
    /// Whether a rule named `ttl`.
    pub(crate) ttl_renews: bool,
    pub(crate) attributes: &'r AffinityAttributes,
    pub(crate) across_pools: bool,
}

/// Which list of pools geo steering found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Area {
    Pop,
    Country,
    Region,
    Default,
}

impl Route {
    pub(crate) fn new(
        balancer: &Balancer,
        found: impl Fn(&Reference) -> PoolIx,
        https_only: bool,
        zone: usize,
    ) -> Route {
        let base = Choice {
            pools: balancer.pools.iter().map(&found).collect(),
            fallback: found(&balancer.fallback),
            steering: balancer.steering,
            weight_default: balancer.weight_default,
            weights: sorted_weights(resolved(&balancer.weights, &found)),
        };
        let map = |map: &PoolMap<Reference>| {
            let all = map.iter().map(|(code, pools)| {
                let pools = pools.iter().map(&found).collect();
                (code.clone(), pools)
            });
            sorted_map(all.collect())
        };
        let areas = Areas {
            pops: map(&balancer.areas.pops),
            countries: map(&balancer.areas.countries),
            regions: map(&balancer.areas.regions),
        };
        let sets = (0..)
            .zip(&balancer.pool_sets)
            .filter(|(_, set)| !set.disabled);
        let sets = sets.map(|(place, set)| Set::new(place, set, base.fallback, &found));
        let rules = balancer.rules.as_written().iter().map(|rule| Rule {
            name: rule.name.clone(),
            condition: rule.condition.clone(),
            disabled: rule.disabled,
            priority: rule.priority,
            terminates: rule.terminates,
            fixed_response: rule.fixed_response.clone(),
            overrides: searchable(rule.overrides.map_pools(&mut |pool| found(pool))),
            transform: rule.transform.clone(),
        });
        Route {
            id: balancer.id,
            sets: sets.collect(),
            rules: Rules::new(rules.collect()),
            base,
            areas,
            https_only,
            zone,
        }
    }
}

fn resolved(
    weights: &[(Reference, f64)],
    found: &impl Fn(&Reference) -> PoolIx,
) -> Vec<(PoolIx, f64)> {
    weights
        .iter()
        .map(|(pool, weight)| (found(pool), *weight))
        .collect()
}

fn sorted_weights(mut weights: Vec<(PoolIx, f64)>) -> Vec<(PoolIx, f64)> {
    weights.sort_by_key(|&(pool, _)| pool);
    weights
}

fn sorted_map(mut map: PoolMap<PoolIx>) -> PoolMap<PoolIx> {
    map.iter_mut()
        .for_each(|(code, _)| code.make_ascii_uppercase());
    map.sort_by(|(one, _), (other, _)| one.cmp(other));
    map
}

fn searchable(overrides: Overrides<PoolIx>) -> Overrides<PoolIx> {
    Overrides {
        region_pools: overrides.region_pools.map(sorted_map),
        country_pools: overrides.country_pools.map(sorted_map),
        pop_pools: overrides.pop_pools.map(sorted_map),
        weights: overrides.weights.map(sorted_weights),
        ..overrides
    }
}

fn list<'r>(map: &'r [(String, Vec<PoolIx>)], code: &str) -> Option<&'r [PoolIx]> {
    let place = map
        .binary_search_by(|(known, _)| known.as_str().cmp(code))
        .ok()?;
    Some(&map[place].1)
}

impl Set {
    fn new(
        place: u16,
        set: &PoolSet,
        fallback: PoolIx,
        found: &impl Fn(&Reference) -> PoolIx,
    ) -> Set {
        let places = set
            .matching
            .as_ref()
            .and_then(|matching| matching.places.as_ref());
        let places = places.map(|places| SetPlaces {
            pops: places
                .pops
                .iter()
                .map(|code| code.to_ascii_uppercase())
                .collect(),
            countries: (places.countries.iter())
                .filter_map(|code| CountryCode::parse(code))
                .collect(),
            regions: places
                .regions
                .iter()
                .filter_map(|code| Region::parse(code))
                .collect(),
        });
        let choice = set.fixed_response.is_none().then(|| Choice {
            pools: set.pools.iter().map(found).collect(),
            fallback: set.fallback.as_ref().map_or(fallback, found),
            steering: set.steering,
            weight_default: set.weight_default.unwrap_or(1.0),
            weights: sorted_weights(resolved(&set.weights, found)),
        });
        Set {
            place,
            places,
            choice,
        }
    }

    /// Whether a request from there is one of its own: every list that has entries must have the
    /// place among them.
    pub(crate) fn matches(&self, location: &Location<'_>) -> bool {
        let Some(places) = &self.places else {
            return true;
        };
        let pop = places.pops.is_empty() || places.pops.iter().any(|code| code == location.node);
        let country = places.countries.is_empty()
            || location
                .country
                .is_some_and(|country| places.countries.contains(&country));
        let region = places.regions.is_empty()
            || location
                .region
                .is_some_and(|region| places.regions.contains(&region));
        pop && country && region
    }
}

impl<'r> Plan<'r> {
    /// The standard fields of a load balancer, or a pool set instead of them.
    pub(crate) fn new(
        route: &'r Route,
        set: Option<&'r Choice>,
        balancer: &'r Balancer,
    ) -> Plan<'r> {
        let none: &[(String, Vec<PoolIx>)] = &[];
        let (choice, areas) = match set {
            Some(choice) => (choice, None),
            None => (&route.base, Some(&route.areas)),
        };
        let affinity = &balancer.affinity;
        Plan {
            pools: &choice.pools,
            pops: areas.map_or(none, |areas| &areas.pops),
            countries: areas.map_or(none, |areas| &areas.countries),
            regions: areas.map_or(none, |areas| &areas.regions),
            fallback: choice.fallback,
            steering: choice.steering,
            weight_default: choice.weight_default,
            weights: &choice.weights,
            affinity: affinity.mode,
            ttl: affinity.ttl.unwrap_or(affinity.mode.ttl_default()),
            ttl_renews: false,
            attributes: &affinity.attributes,
            across_pools: balancer.failover_across_pools,
        }
        .settled()
    }

    /// The same with the overrides of the rules that held laid over it.
    pub(crate) fn with(self, laid: &Laid<'r, PoolIx>) -> Plan<'r> {
        let affinity = laid.affinity.unwrap_or(self.affinity);
        // The time of one mode is not that of another.
        let ttl = match affinity == self.affinity {
            true => self.ttl,
            false => affinity.ttl_default(),
        };
        Plan {
            pools: laid.default_pools.unwrap_or(self.pools),
            pops: laid.pop_pools.unwrap_or(self.pops),
            countries: laid.country_pools.unwrap_or(self.countries),
            regions: laid.region_pools.unwrap_or(self.regions),
            fallback: laid.fallback.copied().unwrap_or(self.fallback),
            steering: laid.steering.unwrap_or(self.steering),
            weight_default: laid.weight_default.unwrap_or(self.weight_default),
            weights: laid.weights.unwrap_or(self.weights),
            affinity,
            ttl: laid.affinity_ttl.unwrap_or(ttl),
            ttl_renews: laid.affinity_ttl.is_some(),
            attributes: laid.affinity_attributes.unwrap_or(self.attributes),
            across_pools: laid.failover_across_pools.unwrap_or(self.across_pools),
        }
        .settled()
    }

    fn settled(mut self) -> Plan<'r> {
        if self.steering == PoolSteering::Auto {
            let maps = [self.pops, self.countries, self.regions];
            self.steering = match maps.iter().all(|map| map.is_empty()) {
                true => PoolSteering::Off,
                false => PoolSteering::Geo,
            };
        }
        self
    }

    /// The pools that are steered among.
    pub(crate) fn candidates(&self, location: &Location<'_>) -> (&'r [PoolIx], Area) {
        if self.steering != PoolSteering::Geo {
            return (self.pools, Area::Default);
        }
        let pop = || list(self.pops, location.node).map(|pools| (pools, Area::Pop));
        let country = || {
            let pools = list(self.countries, location.country?.as_str())?;
            Some((pools, Area::Country))
        };
        let region = || {
            let pools = list(self.regions, location.region?.code())?;
            Some((pools, Area::Region))
        };
        pop()
            .or_else(country)
            .or_else(region)
            .unwrap_or((self.pools, Area::Default))
    }

    /// Whether a pin to `pool` may hold: the pool is named by what holds for this request, be it for
    /// another place than that of the visitor.
    pub(crate) fn names(&self, pool: PoolIx) -> bool {
        let in_map = |map: &[(String, Vec<PoolIx>)]| map.iter().any(|(_, all)| all.contains(&pool));
        self.fallback == pool
            || self.pools.contains(&pool)
            || (self.steering == PoolSteering::Geo
                && [self.pops, self.countries, self.regions]
                    .into_iter()
                    .any(in_map))
    }

    /// Every pool that it may steer to, the fallback pool left out; some more than once.
    pub(crate) fn all_pools(&self) -> impl Iterator<Item = PoolIx> {
        let maps = match self.steering {
            PoolSteering::Geo => [self.pops, self.countries, self.regions],
            _ => [&[][..]; 3],
        };
        let in_maps = maps.into_iter().flatten().flat_map(|(_, pools)| pools);
        self.pools.iter().chain(in_maps).copied()
    }

    /// The weight of a pool among the others.
    pub(crate) fn weight(&self, pool: PoolIx) -> Weight {
        let own = self.weights.binary_search_by_key(&pool, |&(pool, _)| pool);
        Weight::from_f64(own.map_or(self.weight_default, |place| self.weights[place].1))
    }
}
