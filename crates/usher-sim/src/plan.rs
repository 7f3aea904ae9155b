//! The second telling of how one request is steered: every step spelled out, everything copied.

use std::collections::BTreeMap;
use std::time::Duration;

use usher_core::affinity::Pin;
use usher_core::catalog::{
    AffinityAttributes, AffinityMode, Areas, Balancer, Pool, Reference, ShedPolicy,
};
use usher_core::health::EndpointState;
use usher_core::id::Id;
use usher_core::snapshot::Snapshot;
use usher_core::steering::{EndpointSteering, PoolSteering};
use usher_core::time::Mono;

use crate::model::Model;
use crate::visits::Visit;

/// What holds for one request.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    pub(crate) pools: Vec<Reference>,
    areas: Areas,
    pub(crate) fallback: Reference,
    steering: PoolSteering,
    weight_default: f64,
    weights: Vec<(Reference, f64)>,
    pub(crate) affinity: AffinityMode,
    pub(crate) ttl: Duration,
    pub(crate) renews: bool,
    pub(crate) attributes: AffinityAttributes,
    pub(crate) across: bool,
}

/// Where one request may go: pools and endpoints by name, with their chances.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Shares {
    pub(crate) pools: BTreeMap<String, f64>,
    /// Chance of the fallback pool in that role.
    pub(crate) fallback: f64,
}

/// Whether a pin holds, and if not, whether the visitor is told as moved.
#[derive(Debug, PartialEq)]
pub(crate) enum Hold {
    /// It is kept.
    Yes,
    /// It is not, and was not there to begin with.
    Never,
    /// It does not hold any more.
    Broken,
    /// Its pool sheds it.
    Shed(Id),
}

impl Plan {
    /// `None`: a fixed response.
    pub(crate) fn of(balancer: &Balancer, visit: &Visit) -> Option<Plan> {
        let affinity = &balancer.affinity;
        let mut plan = Plan {
            pools: balancer.pools.clone(),
            areas: balancer.areas.clone(),
            fallback: balancer.fallback.clone(),
            steering: balancer.steering,
            weight_default: balancer.weight_default,
            weights: balancer.weights.clone(),
            affinity: affinity.mode,
            ttl: affinity.ttl.unwrap_or(affinity.mode.ttl_default()),
            renews: false,
            attributes: affinity.attributes.clone(),
            across: balancer.failover_across_pools,
        };
        for set in balancer.pool_sets.iter().filter(|set| !set.disabled) {
            let places = set
                .matching
                .as_ref()
                .and_then(|matching| matching.places.clone());
            let places = places.unwrap_or_default();
            let country = visit.country.map(|country| country.to_string());
            let region = visit.region.map(|region| region.to_string());
            let listed = |list: &Vec<String>, own: Option<String>| {
                list.is_empty() || own.is_some_and(|own| list.contains(&own))
            };
            if listed(&places.pops, Some(visit.node.to_owned()))
                && listed(&places.countries, country)
                && listed(&places.regions, region)
            {
                plan.pools = set.pools.clone();
                plan.areas = Areas::default();
                plan.fallback = set.fallback.clone().unwrap_or(plan.fallback);
                plan.steering = set.steering;
                plan.weight_default = set.weight_default.unwrap_or(1.0);
                plan.weights = set.weights.clone();
                break;
            }
        }
        let mut rules: Vec<_> = balancer.rules.as_written().iter().collect();
        rules.retain(|rule| !rule.disabled);
        rules.sort_by_key(|rule| rule.priority.unwrap_or(0));
        for rule in rules {
            if rule.condition.text() != "" && visit.method != "POST" {
                continue;
            }
            if rule.fixed_response.is_some() {
                return None;
            }
            let over = &rule.overrides;
            plan.pools = over.default_pools.clone().unwrap_or(plan.pools);
            plan.fallback = over.fallback.clone().unwrap_or(plan.fallback);
            plan.steering = over.steering.unwrap_or(plan.steering);
            plan.weight_default = over.weight_default.unwrap_or(plan.weight_default);
            plan.ttl = over.affinity_ttl.unwrap_or(plan.ttl);
            plan.renews |= over.affinity_ttl.is_some();
            plan.across = over.failover_across_pools.unwrap_or(plan.across);
            if rule.terminates {
                break;
            }
        }
        if plan.steering == PoolSteering::Auto {
            plan.steering = match plan.areas.is_empty() {
                true => PoolSteering::Off,
                false => PoolSteering::Geo,
            };
        }
        Some(plan)
    }

    /// The list that is steered among.
    pub(crate) fn list(&self, visit: &Visit) -> Vec<Id> {
        let mut found = None;
        if self.steering == PoolSteering::Geo {
            let country = visit.country.map(|country| country.to_string());
            let region = visit.region.map(|region| region.to_string());
            for (map, own) in [
                (&self.areas.pops, Some(visit.node.to_owned())),
                (&self.areas.countries, country),
                (&self.areas.regions, region),
            ] {
                let of = map.iter().find(|(code, _)| Some(code) == own.as_ref());
                found = found.or(of.map(|(_, pools)| pools));
            }
        }
        found
            .unwrap_or(&self.pools)
            .iter()
            .map(|pool| pool.id)
            .collect()
    }

    pub(crate) fn names(&self, pool: Id) -> bool {
        let in_list = |list: &Vec<Reference>| list.iter().any(|listed| listed.id == pool);
        let maps = [&self.areas.pops, &self.areas.countries, &self.areas.regions];
        let in_maps = maps
            .iter()
            .any(|map| map.iter().any(|(_, list)| in_list(list)));
        in_list(&self.pools)
            || self.fallback.id == pool
            || (self.steering == PoolSteering::Geo && in_maps)
    }

    fn weight(&self, pool: Id) -> f64 {
        let own = self.weights.iter().find(|(of, _)| of.id == pool);
        own.map_or(self.weight_default, |(_, weight)| *weight)
    }
}

/// One request before one snapshot.
pub(crate) struct Ask<'a> {
    pub(crate) model: &'a Model,
    pub(crate) snapshot: &'a Snapshot,
    pub(crate) plan: &'a Plan,
    pub(crate) visit: &'a Visit,
    pub(crate) now: Mono,
}

impl Ask<'_> {
    fn pool(&self, id: Id) -> &Pool {
        let mut pools = self.model.draft.pools.iter();
        pools.find(|pool| pool.id == id).expect("checked")
    }

    /// The winner of weighted rendezvous hashing.
    fn hashed(&self, weights: &[(Id, f64)]) -> Option<Id> {
        let key = self.model.draft.hash_key;
        let score = |&(id, weight): &(Id, f64)| {
            let hash = key.of_client(self.visit.client, id);
            -weight / ((hash as f64 + 0.5) / 2f64.powi(64)).ln()
        };
        let usable = weights.iter().filter(|(_, weight)| *weight > 0.0);
        usable
            .max_by(|one, other| score(one).total_cmp(&score(other)))
            .map(|(id, _)| *id)
    }

    fn latency(&self, pool: Id) -> Option<f64> {
        let ix = self.snapshot.catalog().pool_by_id(pool).expect("checked");
        let healthy = self
            .snapshot
            .pool(ix)
            .endpoints()
            .filter(|(_, view, health)| {
                let resolves = health.lookup == usher_core::snapshot::Lookup::Resolves;
                view.pool == ix && health.state == EndpointState::Healthy && resolves
            });
        let known: Vec<f64> = healthy
            .filter_map(|(_, _, health)| Some(health.latency?.as_nanos() as f64))
            .collect();
        (!known.is_empty()).then(|| (known.iter().sum::<f64>() / known.len() as f64).floor())
    }

    fn distance(&self, pool: Id) -> Option<f64> {
        let here = self.visit.coordinates?;
        let there = self.pool(pool).coordinates?;
        let [a, b, c, d] = [here.0, here.1, there.0, there.1].map(f64::to_radians);
        let hav = |angle: f64| (angle / 2.0).sin().powi(2);
        let h = hav(c - a) + a.cos() * c.cos() * hav(d - b);
        Some(2.0 * 6371.0 * h.sqrt().asin())
    }

    /// The chances of the pools of a list to be the next that is tried.
    fn next(&self, left: &[Id]) -> Vec<(Id, f64)> {
        let plan = self.plan;
        let usable = left
            .iter()
            .filter(|&&id| !self.model.candidates(self.pool(id)).is_empty());
        let usable: Vec<Id> = usable.copied().collect();
        let certain = |pool: Option<Id>| pool.into_iter().map(|pool| (pool, 1.0)).collect();
        let least = |figure: &dyn Fn(Id) -> Option<f64>| {
            let mut best: Option<(f64, Id)> = None;
            for &pool in &usable {
                let figure = figure(pool).unwrap_or(f64::INFINITY);
                if best.is_none_or(|(least, _)| figure < least) {
                    best = Some((figure, pool));
                }
            }
            best.map(|(_, pool)| pool)
        };
        match plan.steering {
            PoolSteering::Auto | PoolSteering::Off | PoolSteering::Geo => {
                certain(usable.first().copied())
            }
            PoolSteering::DynamicLatency => certain(least(&|pool| self.latency(pool))),
            PoolSteering::Proximity => certain(least(&|pool| self.distance(pool))),
            // Nothing is under way in this world, so all draws are by weight.
            PoolSteering::Random
            | PoolSteering::LeastOutstandingRequests
            | PoolSteering::LeastConnections => {
                let weights: Vec<(Id, f64)> = usable
                    .iter()
                    .map(|&pool| (pool, plan.weight(pool)))
                    .collect();
                if plan.affinity == AffinityMode::IpCookie {
                    return certain(self.hashed(&weights));
                }
                let sum: f64 = weights.iter().map(|(_, weight)| weight).sum();
                let some = weights.into_iter().filter(|(_, weight)| *weight > 0.0);
                some.map(|(pool, weight)| (pool, weight / sum)).collect()
            }
        }
    }

    fn shed_hash(&self, pool: Id, percent: f64) -> bool {
        let hash = self
            .model
            .draft
            .hash_key
            .of_shedding(self.visit.client, pool);
        ((hash % 10_000) as f64) < percent * 100.0
    }

    fn spread(&self, left: &[Id], mass: f64, shares: &mut Shares) {
        let next = self.next(left);
        if next.is_empty() {
            shares.fallback += mass;
        }
        for (id, chance) in next {
            let pool = self.pool(id);
            let percent = pool.shedding.default_percent;
            let shed = match pool.shedding.default_policy {
                ShedPolicy::Random => percent / 100.0,
                ShedPolicy::Hash => f64::from(u8::from(self.shed_hash(id, percent))),
            };
            *shares.pools.entry(pool.name.clone()).or_default() += mass * chance * (1.0 - shed);
            if shed > 0.0 {
                let rest: Vec<Id> = left.iter().copied().filter(|&other| other != id).collect();
                self.spread(&rest, mass * chance * shed, shares);
            }
        }
    }

    /// Where the request may go when nothing is pinned; `shed`: a pool that pushed it on before.
    pub(crate) fn shares(&self, shed: Option<Id>) -> Shares {
        let mut shares = Shares::default();
        let list = self.plan.list(self.visit);
        let left: Vec<Id> = list
            .into_iter()
            .filter(|&pool| Some(pool) != shed)
            .collect();
        self.spread(&left, 1.0, &mut shares);
        let fallback = self.pool(self.plan.fallback.id);
        if !self.model.last_resort(fallback).is_empty() {
            *shares.pools.entry(fallback.name.clone()).or_default() += shares.fallback;
        }
        shares
    }

    /// The chances inside a pool, by name of the endpoint.
    pub(crate) fn inside(&self, pool: &Pool, fallback: bool) -> BTreeMap<String, f64> {
        let weights = match fallback {
            true => self.model.last_resort(pool),
            false => self.model.candidates(pool),
        };
        let id_of = |name: &str| {
            let mut endpoints = pool.endpoints.iter();
            endpoints
                .find(|endpoint| endpoint.name == name)
                .expect("its own")
                .id
        };
        let by_address = self.plan.affinity == AffinityMode::IpCookie;
        if by_address || pool.steering == EndpointSteering::Hash {
            let weights: Vec<(Id, f64)> = weights
                .iter()
                .map(|&(name, weight)| (id_of(name), weight))
                .collect();
            let winner = self.hashed(&weights);
            let won = pool
                .endpoints
                .iter()
                .filter(|endpoint| Some(endpoint.id) == winner);
            return won.map(|endpoint| (endpoint.name.clone(), 1.0)).collect();
        }
        // In the first moments after an endpoint came into service it weighs less.
        let serving = !pool
            .endpoints
            .iter()
            .all(|endpoint| !self.model.works(pool, endpoint));
        let risen = |name: &str| {
            let ix = self
                .snapshot
                .catalog()
                .pool_by_id(pool.id)
                .expect("checked");
            let mut endpoints = self.snapshot.pool(ix).endpoints();
            let (_, _, health) = endpoints
                .find(|(_, view, _)| view.name == name)
                .expect("its own");
            let passed = self.now.since(health.since).as_secs_f64();
            match pool.slow_start.filter(|_| serving) {
                Some(length) => (passed / length.as_secs_f64()).clamp(0.1, 1.0),
                None => 1.0,
            }
        };
        let weights: Vec<(&str, f64)> = weights
            .iter()
            .map(|&(name, weight)| (name, weight * risen(name)))
            .collect();
        let sum: f64 = weights.iter().map(|(_, weight)| weight).sum();
        let some = weights.into_iter().filter(|(_, weight)| *weight > 0.0);
        some.map(|(name, weight)| (name.to_owned(), weight / sum))
            .collect()
    }

    /// Whether `pin` holds for this request.
    pub(crate) fn hold(&self, balancer: &Balancer, pin: Option<&Pin>) -> Hold {
        let Some(pin) = pin else { return Hold::Never };
        if pin.balancer != balancer.id || self.visit.time >= pin.since.after(pin.ttl) {
            return Hold::Never;
        }
        let pools = &self.model.draft.pools;
        let Some(pool) = pools.iter().find(|pool| pool.id == pin.pool) else {
            return Hold::Broken;
        };
        let mut endpoints = pool.endpoints.iter();
        let Some(endpoint) = endpoints.find(|endpoint| endpoint.id == pin.endpoint) else {
            return Hold::Broken;
        };
        let off = !endpoint.enabled && {
            let drain = self.plan.attributes.drain;
            let began = self.model.off_since.get(&endpoint.id).copied().flatten();
            drain.is_zero() || began.is_none_or(|began| self.visit.time >= began.after(drain))
        };
        let carries = self.model.carries(pool);
        if off
            || !carries
            || !self.plan.names(pool.id)
            || !self.model.resolves(endpoint)
            || !self.model.passes(pool, endpoint)
        {
            return Hold::Broken;
        }
        let listed = self.plan.list(self.visit).contains(&pool.id);
        if listed && self.shed_hash(pool.id, pool.shedding.session_percent) {
            return Hold::Shed(pool.id);
        }
        Hold::Yes
    }
}
