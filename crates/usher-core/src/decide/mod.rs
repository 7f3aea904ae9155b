//! The way of one request through a load balancer, written once for traffic and explanation.
//!
//! Source: load-balancing specification 1.1. Find the load balancer, redirect plain HTTP where the
//! zone says so, lay pool set and rules over its settings, look for a pin, choose a pool or fall
//! back, choose an endpoint and a second one for the single retry.

mod endpoint;
mod pins;
mod pool;
mod tell;

use crate::affinity::{HashKey, Pins};
use crate::catalog::{AffinityMode, EndpointIx, PoolIx};
use crate::chance::{STEP, scatter};
use crate::decision::{
    Affinity, Attempt, Attempts, Decision, FixedSource, Forward, Refusal, Response,
};
use crate::request::{Location, Request, Scheme};
use crate::route::{Area, Plan, Route};
use crate::rules::{Facts, Transforms};
use crate::snapshot::{Assumed, Counts, Snapshot};
use crate::time::{Mono, Wall};
use crate::trace::{StepKind, Tracer};
use pins::Tie;
use pool::Passed;

/// What the draw is used for. One request draws several times from 64 bits, so each use mixes them
/// with a constant of its own and no choice tells anything about another.
#[derive(Clone, Copy)]
enum Purpose {
    Pool = 1,
    Endpoint = 2,
    Retry = 3,
    RetryPool = 4,
    RetryEndpoint = 5,
    Shed = 6,
}

/// Room for as many uses of one purpose as there are pools.
const USES: u64 = 1 << 32;

fn mix(draw: u64, purpose: Purpose, which: u64) -> u64 {
    let step = (purpose as u64) * USES + which;
    scatter(draw.wrapping_add(step.wrapping_mul(STEP)))
}

/// Everything that holds while one request is decided.
struct Case<'s, C> {
    snapshot: &'s Snapshot,
    assumed: Option<&'s Assumed>,
    request: &'s Request<'s>,
    counts: &'s C,
    now: Mono,
    time: Wall,
    location: Location<'s>,
    route: &'s Route,
    plan: Plan<'s>,
    /// The pools that are steered among, and which list they are.
    pools: &'s [PoolIx],
    area: Area,
    hash_key: HashKey,
}

pub(crate) fn decide<T: Tracer>(
    snapshot: &Snapshot,
    request: &Request<'_>,
    counts: &impl Counts,
    pins: &impl Pins,
    now: Mono,
    tracer: &mut T,
) -> Decision {
    let topology = snapshot.topology();
    let Some(balancer) = topology.balancer_for(request.host) else {
        return refuse_host(snapshot, request, tracer);
    };
    let route = topology.route(balancer);
    let named = snapshot.catalog().balancer(balancer);
    tracer.balancer(&named.name);
    tracer.step(StepKind::Host, || {
        format!("host {:?} is load balancer {:?}", request.host, named.name)
    });
    if route.https_only && request.scheme == Scheme::Http {
        tracer.step(StepKind::Https, || {
            format!("zone {:?} has always_use_https on: redirect", named.zone)
        });
        return Decision::Respond {
            balancer,
            with: Response::RedirectToHttps,
        };
    }
    let assumed = snapshot.assumed();
    let location = assumed.map_or(request.location, |assumed| {
        assumed.location(&request.location)
    });
    let time = assumed
        .and_then(|assumed| assumed.time)
        .unwrap_or(request.time);

    let set = route.sets.iter().find(|set| set.matches(&location));
    if !route.sets.is_empty() {
        tracer.step(StepKind::PoolSet, || tell::pool_set(named, set));
    }
    let choice = set.and_then(|set| set.choice.as_ref());
    if let (Some(set), None) = (set, choice) {
        return Decision::Respond {
            balancer,
            with: Response::Fixed(FixedSource::PoolSet(set.place)),
        };
    }
    let mut plan = Plan::new(route, choice, named);
    let mut transforms = Transforms::default();
    if !route.rules.is_empty() {
        let facts = Facts::of(&named.name, request, &location, time);
        let outcome = route.rules.apply_and_tell(&facts, &mut |place, holds| {
            tracer.step(StepKind::Rules, || tell::rule(named, place, holds, &facts));
        });
        if outcome.response.is_some() {
            let place = outcome.last.unwrap_or_default() as u16;
            return Decision::Respond {
                balancer,
                with: Response::Fixed(FixedSource::Rule(place)),
            };
        }
        transforms = outcome.transforms;
        if outcome.last.is_some() {
            plan = plan.with(&outcome.overrides);
        }
    }

    let (pools, area) = plan.candidates(&location);
    let case = Case {
        snapshot,
        assumed,
        request,
        counts,
        now,
        time,
        location,
        route,
        plan,
        pools,
        area,
        hash_key: snapshot.catalog().draft().hash_key,
    };
    match case.forward(pins, tracer) {
        Some((attempts, affinity)) => Decision::Forward(Forward {
            balancer,
            attempts,
            affinity,
            transforms,
        }),
        None => Decision::Refuse {
            balancer: Some(balancer),
            reason: Refusal::NoEndpoint,
        },
    }
}

fn refuse_host(snapshot: &Snapshot, request: &Request<'_>, tracer: &mut impl Tracer) -> Decision {
    let disabled = snapshot.topology().disabled_balancer_for(request.host);
    let Some(balancer) = disabled else {
        tracer.step(StepKind::Host, || {
            format!("no load balancer has host {:?}", request.host)
        });
        return Decision::Refuse {
            balancer: None,
            reason: Refusal::UnknownHost,
        };
    };
    let named = snapshot.catalog().balancer(balancer);
    tracer.balancer(&named.name);
    tracer.step(StepKind::Host, || {
        format!(
            "load balancer {:?} is disabled, which is as if absent",
            named.name
        )
    });
    Decision::Refuse {
        balancer: Some(balancer),
        reason: Refusal::Disabled,
    }
}

impl<C: Counts> Case<'_, C> {
    fn forward(&self, pins: &impl Pins, tracer: &mut impl Tracer) -> Option<(Attempts, Affinity)> {
        let tie = self.tie(pins, tracer);
        if let Tie::Kept { to, .. } = tie {
            let attempts = self.pinned(to, tracer);
            return Some((attempts, self.affinity(&tie, attempts)));
        }
        tracer.step(StepKind::Pools, || self.pools_text());
        let mut passed = Passed::default();
        if let Tie::Broken {
            shed: Some(pool), ..
        } = tie
        {
            self.pass(&mut passed, pool);
        }
        let before = passed.clone();
        let chosen = self.choose_pool(&mut passed, Purpose::Pool, tracer);
        tracer.pools(|| self.pools_traced(&before, None));
        let (pool, fallback) = match chosen {
            Some(pool) => {
                tracer.step(StepKind::Steering, || self.steering_text(pool));
                (pool, false)
            }
            None => {
                tracer.step(StepKind::Fallback, || self.fallback_text());
                (self.plan.fallback, true)
            }
        };
        let attempts = self.choose_endpoint(pool, fallback, &mut passed, tracer)?;
        Some((attempts, self.affinity(&tie, attempts)))
    }

    fn attempt(&self, pool: PoolIx, place: usize, fallback: bool) -> Attempt {
        Attempt {
            pool,
            endpoint: self.snapshot.topology().endpoint_of(pool, place),
            fallback,
        }
    }

    fn draw(&self, purpose: Purpose, which: u64) -> u64 {
        mix(self.request.draw, purpose, which)
    }

    /// Whether the visitor's address stands for chance.
    fn by_address(&self) -> bool {
        self.plan.affinity == AffinityMode::IpCookie
    }

    fn pool_name(&self, pool: PoolIx) -> &str {
        &self.snapshot.catalog().pool(pool).name
    }

    fn endpoint_name(&self, endpoint: EndpointIx) -> &str {
        &self.snapshot.endpoint(endpoint).name
    }
}

#[cfg(test)]
mod stories;
#[cfg(test)]
mod tests;
