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
    let weights = steering.weigh(candidates);
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
    let second = weights.draw_other(first, mix(draw, Purpose::Retry));
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
    let fallback = snapshot.catalog().pool(route.fallback);
    let last_resort = || {
        let endpoints = &snapshot.pool_health(route.fallback).last_resort;
        !fallback.steering.weigh(endpoints).is_empty()
    };
    let chance = if weights.is_empty() && last_resort() {
        1.0
    } else {
        0.0
    };
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
        usable: !candidates[place].is_zero(),
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

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::assume::Assumption;
    use crate::chance::Chance;
    use crate::sample::{Sample, request};
    use crate::snapshot::NoCounts;
    use crate::steering::PoolSteering::{self, Off, Random};
    use crate::trace::Trace;

    const HOST: &str = "shop.example.com";

    fn explain(snapshot: &Snapshot, draw: u64) -> (Decision, Trace) {
        snapshot.explain(&request(HOST, draw), &NoCounts, Mono::ZERO)
    }

    fn assume(sample: Sample, assumptions: &str) -> Snapshot {
        let assumptions: Vec<Assumption> = assumptions
            .split(',')
            .filter(|text| !text.is_empty())
            .map(|text| text.trim().parse().unwrap())
            .collect();
        Snapshot::presumed(sample.catalog())
            .assume(&assumptions)
            .unwrap()
    }

    /// `eu .4000, us .6000` for the pools, or the endpoints of the chosen pool.
    fn shares<'a>(each: impl Iterator<Item = (&'a String, f64)>) -> String {
        let each: Vec<String> = each
            .map(|(name, share)| format!("{name} {share:.4}"))
            .collect();
        each.join(", ").replace("0.", ".")
    }

    fn pool_shares(trace: &Trace) -> String {
        shares(
            trace
                .pools
                .iter()
                .map(|pool| (&pool.name, pool.probability)),
        )
    }

    fn endpoint_shares(trace: &Trace) -> String {
        shares(
            trace
                .endpoints
                .iter()
                .map(|endpoint| (&endpoint.name, endpoint.probability)),
        )
    }

    /// Pools and endpoints as `pool` or `pool/endpoint`, with how often each was chosen.
    fn drawn(snapshot: &Snapshot, draws: u32) -> BTreeMap<String, f64> {
        let mut chance = Chance::new(7);
        let mut counts: BTreeMap<String, f64> = BTreeMap::new();
        for _ in 0..draws {
            let decision = snapshot.decide(&request(HOST, chance.draw()), &NoCounts, Mono::ZERO);
            let Decision::Forward { attempts, .. } = decision else {
                panic!("{decision:?}")
            };
            let pool = snapshot.pool(attempts.first.pool).name;
            let endpoint = &snapshot.endpoint(attempts.first.endpoint).name;
            *counts.entry(pool.to_owned()).or_default() += 1.0 / f64::from(draws);
            *counts.entry(format!("{pool}/{endpoint}")).or_default() += 1.0 / f64::from(draws);
        }
        counts
    }

    /// `pool/endpoint`, with ` fallback` behind it when it was; or the refusal.
    fn outcome(snapshot: &Snapshot) -> String {
        let (decision, trace) = explain(snapshot, 1 << 63);
        assert_eq!(
            decision,
            snapshot.decide(&request(HOST, 1 << 63), &NoCounts, Mono::ZERO)
        );
        assert!(!trace.steps.is_empty());
        match decision {
            Decision::Forward {
                attempts: Attempts { first, .. },
                ..
            } => {
                let role = if first.fallback { " fallback" } else { "" };
                format!(
                    "{}/{}{role}",
                    snapshot.pool(first.pool).name,
                    snapshot.endpoint(first.endpoint).name
                )
            }
            Decision::Refuse { reason, .. } => reason.as_str().to_owned(),
            Decision::Respond { .. } => "respond".to_owned(),
        }
    }

    /// The worked numbers of load-balancing specification 4.2.
    #[test]
    fn worked_shares_of_pools() {
        let cases = [
            ("p1=1 p2=1 p3=1", "p1 .3333, p2 .3333, p3 .3333"),
            ("p1=0.1 p2=0.1 p3=0.1", "p1 .3333, p2 .3333, p3 .3333"),
            ("p1=0.7 p2=0.7 p3=0.7", "p1 .3333, p2 .3333, p3 .3333"),
            ("p1=0.4 p2=0.5 p3=0.6", "p1 .2667, p2 .3333, p3 .4000"),
            ("p1=0.8 p2=0.5 p3=0.6", "p1 .4211, p2 .2632, p3 .3158"),
        ];
        for (weights, expected) in cases {
            let pools = Sample::new()
                .pool("p1", "", "a")
                .pool("p2", "", "a")
                .pool("p3", "", "a");
            let snapshot =
                Snapshot::presumed(pools.balancer(HOST, Random, weights, "p1").catalog());
            let (_, trace) = explain(&snapshot, 0);
            assert_eq!(pool_shares(&trace), expected, "{weights}");
            let drawn = drawn(&snapshot, 200_000);
            for pool in &trace.pools {
                let found = drawn[&pool.name];
                assert!(
                    (found - pool.probability).abs() < 0.01,
                    "{weights}: {} {found}",
                    pool.name
                );
            }
        }
    }

    #[test]
    fn worked_shares_of_endpoints() {
        let cases = [
            ("", "a .2500, b .2500, c .5000"),
            ("endpoint p/c=down", "a .5000, b .5000, c .0000"),
            ("endpoint p/c=disabled", "a .5000, b .5000, c .0000"),
            ("weight p/a=0", "a .0000, b .3333, c .6667"),
            (
                "endpoint p/a=down, endpoint p/b=down",
                "a .0000, b .0000, c 1.0000",
            ),
        ];
        for (assumptions, expected) in cases {
            let sample = Sample::new()
                .monitor("m")
                .pool("p", "m", "a=0.25 b=0.25 c=0.5");
            let snapshot = assume(sample.balancer(HOST, Off, "p", "p"), assumptions);
            let (_, trace) = explain(&snapshot, 0);
            assert_eq!(endpoint_shares(&trace), expected, "{assumptions}");
            let drawn = drawn(&snapshot, 200_000);
            for endpoint in &trace.endpoints {
                let found = drawn
                    .get(&format!("p/{}", endpoint.name))
                    .copied()
                    .unwrap_or(0.0);
                assert!(
                    (found - endpoint.probability).abs() < 0.01,
                    "{assumptions}: {} {found}",
                    endpoint.name
                );
            }
        }
    }

    fn two_pools(steering: PoolSteering) -> Sample {
        Sample::new()
            .monitor("m")
            .pool("eu", "m", "a b")
            .pool("us", "m", "c d")
            .pool("rest", "m", "e f")
            .balancer(HOST, steering, "eu us", "rest")
    }

    /// Load-balancing specification 4.3, 4.4, 4.10.
    #[test]
    fn which_pool_and_endpoint() {
        let down = "endpoint eu/a=down, endpoint eu/b=down";
        let none = "pool eu=critical, pool us=critical";
        let cases = [
            ("".to_owned(), "eu/b"),
            ("endpoint eu/b=down".to_owned(), "eu/a"),
            ("weight eu/b=0".to_owned(), "eu/a"),
            (down.to_owned(), "us/d"),
            ("pool eu=disabled".to_owned(), "us/d"),
            ("pool eu=critical".to_owned(), "us/d"),
            ("weight eu/a=0, weight eu/b=0".to_owned(), "us/d"),
            (
                "endpoint eu/a=pending, endpoint eu/b=pending".to_owned(),
                "us/d",
            ),
            (none.to_owned(), "rest/f fallback"),
            (format!("{none}, endpoint rest/f=down"), "rest/e fallback"),
            (
                format!("{none}, endpoint rest/f=disabled"),
                "rest/e fallback",
            ),
            (format!("{none}, weight rest/f=0"), "rest/e fallback"),
            (
                format!("{none}, weight rest/f=0, weight rest/e=0"),
                "rest/f fallback",
            ),
            (
                format!("{none}, weight rest/f=0, endpoint rest/e=down"),
                "rest/f fallback",
            ),
            (format!("{none}, pool rest=critical"), "rest/f fallback"),
            (
                format!("{none}, pool rest=critical, endpoint rest/f=disabled"),
                "rest/e fallback",
            ),
            (format!("{none}, pool rest=disabled"), "no-endpoint"),
            (
                format!("{none}, endpoint rest/e=disabled, endpoint rest/f=disabled"),
                "no-endpoint",
            ),
        ];
        for (assumptions, expected) in cases {
            assert_eq!(
                outcome(&assume(two_pools(Off), &assumptions)),
                expected,
                "{assumptions}"
            );
        }
    }

    #[test]
    fn a_pool_weight_of_0_gets_nothing() {
        let pools = || {
            Sample::new()
                .pool("eu", "", "a")
                .pool("us", "", "b")
                .pool("rest", "", "c")
        };
        let random =
            |weights| Snapshot::presumed(pools().balancer(HOST, Random, weights, "rest").catalog());
        let (_, trace) = explain(&random("eu=0 us=0.01"), 0);
        assert_eq!(pool_shares(&trace), "eu .0000, us 1.0000, rest .0000");
        let (_, trace) = explain(&random("eu=0 us=0"), 0);
        assert_eq!(pool_shares(&trace), "eu .0000, us .0000, rest 1.0000");
        assert_eq!(outcome(&random("eu=0 us=0")), "rest/c fallback");
        let off = Snapshot::presumed(pools().balancer(HOST, Off, "eu=0 us", "rest").catalog());
        assert_eq!(outcome(&off), "eu/a", "off does not read weights");
    }

    #[test]
    fn the_share_of_a_lost_pool_spreads_in_proportion() {
        let sample = two_pools(Random).pool("asia", "m", "x");
        let sample = sample.with(|draft| {
            let asia = draft.pools[3].id;
            let reference = crate::catalog::Reference {
                id: asia,
                text: "asia".to_owned(),
            };
            draft.balancers[0].pools.push(reference.clone());
            draft.balancers[0].weights.push((reference, 0.5));
        });
        let (_, trace) = explain(&assume(sample, "pool eu=critical"), 0);
        assert_eq!(
            pool_shares(&trace),
            "eu .0000, us .6667, asia .3333, rest .0000"
        );
    }

    #[test]
    fn a_usable_fallback_pool_in_the_list_is_no_fallback() {
        let sample = Sample::new()
            .monitor("m")
            .pool("eu", "m", "a")
            .pool("us", "m", "b");
        let sample = sample.balancer(HOST, Off, "eu us", "us");
        assert_eq!(outcome(&assume(sample.clone(), "pool eu=critical")), "us/b");
        let snapshot = assume(sample, "pool eu=critical, pool us=critical");
        assert_eq!(outcome(&snapshot), "us/b fallback");
        assert_eq!(pool_shares(&explain(&snapshot, 0).1), "eu .0000, us 1.0000");
    }

    #[test]
    fn no_pool_has_a_chance_when_nothing_can_be_chosen() {
        let sample = Sample::new()
            .monitor("m")
            .pool("eu", "m", "a")
            .pool("us", "m", "b");
        let sample = sample.balancer(HOST, Off, "eu", "us");
        let snapshot = assume(sample, "pool eu=critical, pool us=disabled");
        assert_eq!(outcome(&snapshot), "no-endpoint");
        assert_eq!(pool_shares(&explain(&snapshot, 0).1), "eu .0000, us .0000");
    }

    #[test]
    fn the_retry_is_another_candidate_of_the_same_pool() {
        let snapshot = assume(
            Sample::new()
                .monitor("m")
                .pool("p", "m", "a b c d=0 e")
                .balancer(HOST, Off, "p", "p"),
            "endpoint p/e=down",
        );
        let mut chance = Chance::new(3);
        let mut pairs = BTreeMap::new();
        for _ in 0..60_000 {
            let decision = snapshot.decide(&request(HOST, chance.draw()), &NoCounts, Mono::ZERO);
            let Decision::Forward {
                attempts:
                    Attempts {
                        first,
                        retry: Some(retry),
                    },
                ..
            } = decision
            else {
                panic!("{decision:?}")
            };
            let name = |attempt: Attempt| snapshot.endpoint(attempt.endpoint).name.clone();
            *pairs.entry((name(first), name(retry))).or_insert(0) += 1;
        }
        assert_eq!(
            pairs.len(),
            6,
            "each of a, b, c with each of the others: {pairs:?}"
        );
        assert!(
            pairs
                .values()
                .all(|&count| (9_500..10_500).contains(&count)),
            "{pairs:?}"
        );
        assert!(pairs.keys().all(|(first, retry)| first != retry));

        let alone = Snapshot::presumed(
            Sample::new()
                .pool("p", "", "a b=0")
                .balancer(HOST, Off, "p", "p")
                .catalog(),
        );
        let decision = alone.decide(&request(HOST, 0), &NoCounts, Mono::ZERO);
        assert!(matches!(
            decision,
            Decision::Forward {
                attempts: Attempts { retry: None, .. },
                ..
            }
        ));
    }

    #[test]
    fn hosts() {
        let sample = Sample::new()
            .pool("p", "", "a")
            .balancer(HOST, Off, "p", "p")
            .balancer("*.example.com", Off, "p", "p")
            .balancer("*.deep.example.com", Off, "p", "p")
            .balancer("off.example.com", Off, "p", "p")
            .balancer("gone.deep.example.com", Off, "p", "p")
            .with(|draft| draft.balancers[3].enabled = false);
        let found = |sample: &Sample, host: &str| {
            let snapshot = Snapshot::presumed(sample.clone().catalog());
            let name = |ix| snapshot.catalog().balancer(ix).name.clone();
            match snapshot.decide(&request(host, 0), &NoCounts, Mono::ZERO) {
                Decision::Forward { balancer, .. } => name(balancer),
                Decision::Refuse {
                    balancer: Some(balancer),
                    reason: Refusal::Disabled,
                } => {
                    format!("{} is disabled", name(balancer))
                }
                Decision::Refuse {
                    balancer: None,
                    reason: Refusal::UnknownHost,
                } => "404".to_owned(),
                other @ (Decision::Respond { .. } | Decision::Refuse { .. }) => panic!("{other:?}"),
            }
        };
        let many = format!("{}example.com", "a.".repeat(100));
        let cases = [
            (HOST, HOST),
            ("any.example.com", "*.example.com"),
            ("a.b.example.com", "*.example.com"),
            (&many, "*.example.com"),
            ("x.deep.example.com", "*.deep.example.com"),
            ("deep.example.com", "*.example.com"),
            ("off.example.com", "*.example.com"),
            ("example.com", "404"),
            ("notexample.com", "404"),
            ("", "404"),
            (".", "404"),
        ];
        for (host, expected) in cases {
            assert_eq!(found(&sample, host), expected, "{host}");
        }
        let all_off = sample.with(|draft| {
            draft
                .balancers
                .iter_mut()
                .for_each(|balancer| balancer.enabled = false)
        });
        assert_eq!(found(&all_off, HOST), "shop.example.com is disabled");
    }

    #[test]
    fn plain_http_is_redirected_where_the_zone_says_so() {
        let sample = Sample::new()
            .pool("p", "", "a")
            .balancer(HOST, Off, "p", "p");
        let snapshot = Snapshot::presumed(
            sample
                .with(|draft| draft.zones[0].always_use_https = true)
                .catalog(),
        );
        let plain = Request {
            scheme: Scheme::Http,
            ..request(HOST, 0)
        };
        let decision = snapshot.decide(&plain, &NoCounts, Mono::ZERO);
        assert!(matches!(
            decision,
            Decision::Respond {
                with: Response::RedirectToHttps,
                ..
            }
        ));
        let decision = snapshot.decide(&request(HOST, 0), &NoCounts, Mono::ZERO);
        assert!(matches!(decision, Decision::Forward { .. }));
    }

    #[test]
    fn a_trace_says_what_happened() {
        let snapshot = assume(two_pools(Random), "endpoint eu/a=down, pool us=critical");
        let (_, trace) = explain(&snapshot, 9);
        let steps: Vec<String> = trace
            .steps
            .iter()
            .map(|step| format!("{}: {}", step.kind.as_str(), step.text))
            .collect();
        assert_eq!(
            steps,
            [
                "host: host \"shop.example.com\" is load balancer \"shop.example.com\"",
                "pools: 1 of 2 pools usable",
                "steering: steering random chooses pool \"eu\"",
                "endpoint: steering random chooses endpoint \"b\"",
                "retry: if it cannot be connected to: no other endpoint",
            ]
        );
        let pools: Vec<String> = (trace.pools.iter())
            .map(|pool| {
                format!(
                    "{} {} {} ({}) {}",
                    pool.name, pool.usable, pool.state, pool.reason, pool.probability
                )
            })
            .collect();
        assert_eq!(
            pools,
            [
                "eu true degraded (1 of 2 endpoints healthy, minimum 1) 1",
                "us false critical (assumed) 0",
                "rest true healthy (2 of 2 endpoints healthy, minimum 1) 0",
            ]
        );
        let endpoints: Vec<String> = (trace.endpoints.iter())
            .map(|endpoint| {
                format!(
                    "{} {} {} {}",
                    endpoint.name, endpoint.usable, endpoint.state, endpoint.reason
                )
            })
            .collect();
        assert_eq!(
            endpoints,
            ["a false critical assumed", "b true healthy assumed"]
        );
    }

    #[test]
    fn an_assumption_about_nothing_is_refused() {
        let snapshot = Snapshot::presumed(two_pools(Off).catalog());
        let fault = |text: &str| {
            snapshot
                .assume(&[text.parse().unwrap()])
                .unwrap_err()
                .to_string()
        };
        assert_eq!(fault("pool asia=critical"), "pool \"asia\" does not exist");
        assert_eq!(
            fault("endpoint eu/x=down"),
            "pool \"eu\" has no endpoint \"x\""
        );
    }
}
