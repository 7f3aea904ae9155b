//! Which endpoint a request comes to, and with what chance.

use std::collections::BTreeMap;

use super::*;
use crate::affinity::NoPins;
use crate::assume::Assumption;
use crate::chance::Chance;
use crate::sample::{Sample, request};
use crate::snapshot::NoCounts;
use crate::steering::PoolSteering::{self, Off, Random};
use crate::trace::Trace;

const HOST: &str = "shop.example.com";

fn explain(snapshot: &Snapshot, draw: u64) -> (Decision, Trace) {
    snapshot.explain(&request(HOST, draw), &NoCounts, &NoPins, Mono::ZERO)
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
        let decision = snapshot.decide(
            &request(HOST, chance.draw()),
            &NoCounts,
            &NoPins,
            Mono::ZERO,
        );
        let Decision::Forward(Forward { attempts, .. }) = decision else {
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
        snapshot.decide(&request(HOST, 1 << 63), &NoCounts, &NoPins, Mono::ZERO)
    );
    assert!(!trace.steps.is_empty());
    match decision {
        Decision::Forward(Forward {
            attempts: Attempts { first, .. },
            ..
        }) => {
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
        let snapshot = Snapshot::presumed(pools.balancer(HOST, Random, weights, "p1").catalog());
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
        let decision = snapshot.decide(
            &request(HOST, chance.draw()),
            &NoCounts,
            &NoPins,
            Mono::ZERO,
        );
        let Decision::Forward(Forward {
            attempts:
                Attempts {
                    first,
                    retry: Some(retry),
                },
            ..
        }) = decision
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
    let decision = alone.decide(&request(HOST, 0), &NoCounts, &NoPins, Mono::ZERO);
    assert!(matches!(
        decision,
        Decision::Forward(Forward {
            attempts: Attempts { retry: None, .. },
            ..
        })
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
        match snapshot.decide(&request(host, 0), &NoCounts, &NoPins, Mono::ZERO) {
            Decision::Forward(Forward { balancer, .. }) => name(balancer),
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
    let decision = snapshot.decide(&plain, &NoCounts, &NoPins, Mono::ZERO);
    assert!(matches!(
        decision,
        Decision::Respond {
            with: Response::RedirectToHttps,
            ..
        }
    ));
    let decision = snapshot.decide(&request(HOST, 0), &NoCounts, &NoPins, Mono::ZERO);
    assert!(matches!(decision, Decision::Forward(_)));
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
        ["a false critical assumed", "b true healthy presumed"]
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
