//! The way of one request through a load balancer, written once for traffic and explanation.
//!
//! Source: load-balancing specification 1.1, as far as it is built: find the load balancer, redirect
//! plain HTTP where the zone says so, choose a pool or fall back, choose an endpoint and a second
//! one for the single retry.

use crate::catalog::PoolIx;
use crate::chance::{STEP, scatter};
use crate::decision::{Attempt, Attempts, Decision, Refusal, Response};
use crate::request::{Request, Scheme};
use crate::snapshot::{Counts, PoolHealth, Snapshot};
use crate::steering::Weights;
use crate::time::Mono;
use crate::topology::Route;
use crate::trace::{EndpointTrace, PoolTrace, StepKind, Tracer};

/// What the draw is used for. One request draws several times from 64 bits, so each use mixes them
/// with a constant of its own and no choice tells anything about another.
#[derive(Clone, Copy)]
enum Purpose {
    Pool = 1,
    Endpoint = 2,
    Retry = 3,
}

fn mix(draw: u64, purpose: Purpose) -> u64 {
    scatter(draw.wrapping_add((purpose as u64).wrapping_mul(STEP)))
}

pub(crate) fn decide<T: Tracer>(
    snapshot: &Snapshot,
    request: &Request<'_>,
    _counts: &impl Counts,
    _now: Mono,
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

    let weights = weigh_pools(snapshot, route);
    tracer.step(StepKind::Pools, || pools_text(snapshot, route));
    let chosen = weights.draw(mix(request.draw, Purpose::Pool));
    tracer.pools(|| pools_traced(snapshot, route, &weights));
    let (pool, fallback) = match chosen {
        Some(place) => (route.pools[place].0, false),
        None => (route.fallback, true),
    };
    let name = || &snapshot.catalog().pool(pool).name;
    if fallback {
        tracer.step(StepKind::Fallback, || {
            format!("no pool can be chosen: fallback pool {:?}", name())
        });
    } else {
        tracer.step(StepKind::Steering, || {
            format!(
                "steering {} chooses pool {:?}",
                route.steering.name(),
                name()
            )
        });
    }
    match choose_endpoint(snapshot, pool, fallback, request.draw, tracer) {
        Some(attempts) => Decision::Forward { balancer, attempts },
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

/// The chance of each pool of `route`; empty when the fallback pool is next.
pub(crate) fn weigh_pools(snapshot: &Snapshot, route: &Route) -> Weights {
    let usable =
        |&(pool, weight): &(PoolIx, _)| snapshot.pool_health(pool).usable.then_some(weight);
    route.steering.weigh(route.pools.iter().map(usable))
}

fn choose_endpoint(
    snapshot: &Snapshot,
    pool: PoolIx,
    fallback: bool,
    draw: u64,
    tracer: &mut impl Tracer,
) -> Option<Attempts> {
    let health = snapshot.pool_health(pool);
    let steering = snapshot.catalog().pool(pool).steering;
    let candidates = if fallback {
        &health.last_resort
    } else {
        &health.candidates
    };
    let weights = steering.weigh(candidates.iter().copied());
    tracer.endpoints(|| endpoints_traced(snapshot, pool, fallback, &weights));
    let name = |place: usize| &snapshot.catalog().pool(pool).endpoints[place].name;
    let Some(first) = weights.draw(mix(draw, Purpose::Endpoint)) else {
        tracer.step(StepKind::Endpoint, || no_endpoint_text(health));
        return None;
    };
    tracer.step(StepKind::Endpoint, || {
        format!(
            "steering {} chooses endpoint {:?}",
            steering.name(),
            name(first)
        )
    });
    let second = weights.without(first).draw(mix(draw, Purpose::Retry));
    tracer.step(StepKind::Retry, || match second {
        Some(place) => format!("if it cannot be connected to: endpoint {:?}", name(place)),
        None => "if it cannot be connected to: no other endpoint".to_owned(),
    });
    let attempt = |place| Attempt {
        pool,
        endpoint: snapshot.topology().endpoint_of(pool, place),
        fallback,
    };
    Some(Attempts {
        first: attempt(first),
        retry: second.map(attempt),
    })
}

fn pools_text(snapshot: &Snapshot, route: &Route) -> String {
    let usable = route
        .pools
        .iter()
        .filter(|(pool, _)| snapshot.pool_health(*pool).usable)
        .count();
    format!("{usable} of {} pools usable", route.pools.len())
}

fn no_endpoint_text(health: &PoolHealth) -> String {
    format!("no endpoint can be chosen: pool is {}", health.state)
}

fn pools_traced(snapshot: &Snapshot, route: &Route, weights: &Weights) -> Vec<PoolTrace> {
    let traced = |pool: PoolIx, weight: f64, probability: f64| {
        let view = snapshot.pool(pool);
        PoolTrace {
            pool,
            name: view.name.to_owned(),
            usable: view.usable,
            state: view.state,
            reason: view.reason.to_string(),
            weight,
            probability,
        }
    };
    let mut pools: Vec<PoolTrace> = (route.pools.iter().enumerate())
        .map(|(place, &(pool, weight))| traced(pool, weight.as_f64(), weights.probability(place)))
        .collect();
    let chance = if weights.is_empty() { 1.0 } else { 0.0 };
    match pools
        .iter_mut()
        .find(|traced| traced.pool == route.fallback)
    {
        Some(fallback) => fallback.probability += chance,
        None => pools.push(traced(route.fallback, 1.0, chance)),
    }
    pools
}

fn endpoints_traced(
    snapshot: &Snapshot,
    pool: PoolIx,
    fallback: bool,
    weights: &Weights,
) -> Vec<EndpointTrace> {
    let health = snapshot.pool_health(pool);
    let candidates = if fallback {
        &health.last_resort
    } else {
        &health.candidates
    };
    let traced = |(place, (ix, view, health)): (
        usize,
        (
            _,
            &crate::topology::EndpointView,
            &crate::snapshot::EndpointHealth,
        ),
    )| EndpointTrace {
        endpoint: ix,
        name: view.name.clone(),
        address: view.address.to_string(),
        port: view.port,
        usable: candidates[place].is_some(),
        state: health.state,
        reason: health.reason_shown().to_string(),
        weight: health.weight.as_f64(),
        probability: weights.probability(place),
    };
    snapshot
        .pool(pool)
        .endpoints()
        .enumerate()
        .map(traced)
        .collect()
}
