//! The texts and figures of an explanation. Nothing here is called for traffic.

use super::Case;
use super::pool::Passed;
use crate::catalog::{Balancer, PoolIx};
use crate::decision::Attempt;
use crate::route::{Area, Set};
use crate::rules::Facts;
use crate::snapshot::Counts;
use crate::steering::{Among, EndpointSteering, Point, Weights};
use crate::trace::{EndpointTrace, PoolTrace};

pub(super) fn pool_set(balancer: &Balancer, set: Option<&Set>) -> String {
    let Some(set) = set else {
        return "no pool set matches: the standard pools".to_owned();
    };
    let place = usize::from(set.place);
    let name = &balancer.pool_sets[place].name;
    match &set.choice {
        Some(choice) => format!(
            "pool set {} ({name}) matches: {} pools, steering {}",
            place + 1,
            choice.pools.len(),
            choice.steering.name()
        ),
        None => format!("pool set {} ({name}) matches: fixed response", place + 1),
    }
}

pub(super) fn rule(balancer: &Balancer, place: usize, holds: bool, facts: &Facts<'_>) -> String {
    let rule = &balancer.rules.as_written()[place];
    let (number, name) = (place + 1, &rule.name);
    let found = rule.condition.found(facts);
    let because = match found.is_empty() {
        true => String::new(),
        false => format!("; {}", found.join(", ")),
    };
    if !holds {
        return format!("rule {number} ({name}) is false{because}");
    }
    let overrides = &rule.overrides;
    let mut what = Vec::new();
    let list = |pools: &Vec<crate::catalog::Reference>| {
        let names: Vec<&str> = pools.iter().map(|pool| pool.text.as_str()).collect();
        format!("[{}]", names.join(", "))
    };
    if rule.fixed_response.is_some() {
        what.push("fixed response".to_owned());
    }
    for (word, pools) in [
        ("pools", &overrides.pools),
        ("default_pools", &overrides.default_pools),
    ] {
        what.extend(
            pools
                .as_ref()
                .map(|pools| format!("{word} {}", list(pools))),
        );
    }
    for (word, map) in [
        ("pop_pools", &overrides.pop_pools),
        ("country_pools", &overrides.country_pools),
        ("region_pools", &overrides.region_pools),
    ] {
        what.extend(map.as_ref().map(|_| word.to_owned()));
    }
    what.extend(
        overrides
            .fallback
            .as_ref()
            .map(|pool| format!("fallback_pool {}", pool.text)),
    );
    what.extend(
        overrides
            .steering
            .map(|steering| format!("steering_policy {:?}", steering.name())),
    );
    if overrides.weights.is_some() || overrides.weight_default.is_some() {
        what.push("random_steering".to_owned());
    }
    what.extend(
        overrides
            .affinity
            .map(|mode| format!("session_affinity {}", mode.name())),
    );
    let ttl = overrides.affinity_ttl.map(|ttl| ttl.as_secs());
    what.extend(ttl.map(|ttl| format!("session_affinity_ttl {ttl}")));
    if overrides.affinity_attributes.is_some() {
        what.push("session_affinity_attributes".to_owned());
    }
    let across = overrides.failover_across_pools;
    what.extend(across.map(|across| format!("failover_across_pools {across}")));
    if !rule.transform.is_empty() {
        what.push("changes the request".to_owned());
    }
    if rule.terminates && rule.fixed_response.is_none() {
        what.push("the last".to_owned());
    }
    let what = if what.is_empty() {
        "nothing changes".to_owned()
    } else {
        what.join(", ")
    };
    format!("rule {number} ({name}) is true: {what}{because}")
}

impl<C: Counts> Case<'_, C> {
    pub(super) fn pools_text(&self) -> String {
        let usable = |&&pool: &&PoolIx| self.snapshot.pool_health(pool).usable;
        let usable = self.pools.iter().filter(usable).count();
        let text = format!("{usable} of {} pools usable", self.pools.len());
        if self.plan.steering != crate::steering::PoolSteering::Geo {
            return text;
        }
        let location = &self.location;
        let of = match self.area {
            Area::Pop => format!("node {}", location.node),
            Area::Country => format!("country {}", shown(location.country)),
            Area::Region => format!("region {}", shown(location.region)),
            Area::Default => format!(
                "default_pools, since no map has node {}, country {} or region {}",
                location.node,
                shown(location.country),
                shown(location.region)
            ),
        };
        format!("list of {of}: {text}")
    }

    pub(super) fn steering_text(&self, pool: PoolIx) -> String {
        let by = match (self.plan.steering.among(), self.by_address()) {
            (Among::Drawn(_), true) => " by the visitor's address",
            _ => "",
        };
        format!(
            "steering {}{by} chooses pool {:?}",
            self.steering_name(),
            self.pool_name(pool)
        )
    }

    pub(super) fn fallback_text(&self) -> String {
        let name = self.pool_name(self.plan.fallback);
        format!("no pool can be chosen: fallback pool {name:?}")
    }

    pub(super) fn no_endpoint_text(&self, pool: PoolIx) -> String {
        let state = self.snapshot.pool_health(pool).state;
        format!("no endpoint can be chosen: pool is {state}")
    }

    pub(super) fn endpoint_text(&self, attempt: Attempt) -> String {
        let name = self.endpoint_name(attempt.endpoint);
        let steering = self.endpoint_steering(attempt.pool);
        match self.by_address() && steering != EndpointSteering::Hash {
            true => format!("the visitor's address chooses endpoint {name:?}"),
            false => format!("steering {} chooses endpoint {name:?}", steering.name()),
        }
    }

    pub(super) fn retry_text(&self, first: Attempt, retry: Option<Attempt>) -> String {
        let Some(retry) = retry else {
            return "if it cannot be connected to: no other endpoint".to_owned();
        };
        let name = self.endpoint_name(retry.endpoint);
        match retry.pool == first.pool {
            true => format!("if it cannot be connected to: endpoint {name:?}"),
            false => format!(
                "if it cannot be connected to: endpoint {name:?} of pool {:?}",
                self.pool_name(retry.pool)
            ),
        }
    }

    /// Every pool that steering looks at, when those of `passed` are out or the visitor is pinned.
    pub(super) fn pools_traced(
        &self,
        passed: &Passed,
        pinned: Option<PoolIx>,
    ) -> (Vec<PoolTrace>, bool) {
        let chances = self.pool_chances(passed);
        let approximate = chances.approximate && pinned.is_none();
        let chance = |pool: PoolIx, chance: f64| match pinned {
            Some(pinned) => f64::from(u8::from(pinned == pool)),
            None => chance,
        };
        let each = self.pools.iter().zip(&chances.each);
        let mut pools: Vec<PoolTrace> = each
            .map(|(&pool, &share)| {
                self.pool_traced(pool, self.weight_shown(pool), chance(pool, share))
            })
            .collect();
        let mut also =
            |pool: PoolIx, share: f64| match pools.iter_mut().find(|traced| traced.pool == pool) {
                Some(traced) => traced.probability += share,
                None => pools.push(self.pool_traced(pool, 1.0, share)),
            };
        if let Some(pinned) = pinned.filter(|pool| !self.pools.contains(pool)) {
            also(pinned, 1.0);
        }
        // Where even the fallback pool has nothing, nothing can be chosen.
        let last_resort = || {
            !self
                .weigh_endpoints(self.plan.fallback, true, None)
                .is_empty()
        };
        let share = match pinned.is_none() && last_resort() {
            true => chances.fallback,
            false => 0.0,
        };
        also(self.plan.fallback, share);
        (pools, approximate)
    }

    fn pool_traced(&self, pool: PoolIx, weight: f64, probability: f64) -> PoolTrace {
        let view = self.snapshot.pool(pool);
        let health = self.snapshot.pool_health(pool);
        let steering = self.plan.steering;
        let (here, there) = (
            self.location.coordinates,
            self.snapshot.topology().point(pool),
        );
        let way = here.map(Point::new).zip(there);
        let shed = self.pools.contains(&pool).then(|| self.shed_chance(pool));
        PoolTrace {
            pool,
            name: view.name.to_owned(),
            usable: view.usable,
            state: view.state,
            reason: view.reason.to_string(),
            weight,
            probability,
            open: match steering.among() {
                Among::Drawn(EndpointSteering::Random) => None,
                Among::Drawn(method) => Some(self.pool_load(pool, method)),
                Among::Ordered | Among::Fastest | Among::Nearest => None,
            },
            latency_ms: self.latency(pool, health).map(|nanos| nanos / 1e6),
            distance_km: way.map(|(here, there)| here.to(there).kilometres()),
            shed: shed.filter(|&shed| shed > 0.0),
        }
    }

    pub(super) fn endpoints_traced(
        &self,
        pool: PoolIx,
        fallback: bool,
        weights: &Weights,
    ) -> Vec<EndpointTrace> {
        let candidates = self.candidates(pool, fallback);
        let steering = self.endpoint_steering(pool);
        let counted = !matches!(steering, EndpointSteering::Random | EndpointSteering::Hash);
        let all = self.snapshot.pool(pool).endpoints().enumerate();
        let traced = all.map(|(place, (ix, view, health))| EndpointTrace {
            endpoint: ix,
            name: view.name.clone(),
            address: view.address.to_string(),
            port: view.port,
            usable: !candidates[place].is_zero(),
            state: health.state,
            reason: health.reason_shown().to_string(),
            weight: health.weight.as_f64(),
            probability: weights.probability(place),
            open: counted.then(|| self.load(ix, steering)),
        });
        traced.collect()
    }
}

fn shown(code: Option<impl std::fmt::Display>) -> String {
    code.map_or_else(|| "unknown".to_owned(), |code| code.to_string())
}
