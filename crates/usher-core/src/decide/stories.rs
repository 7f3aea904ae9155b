//! Steering, pins, shedding, pool sets and rules, as the specification tells them.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::time::Duration;

use crate::affinity::{NoPins, Pin, PinKey, Pins};
use crate::assume::Assumption;
use crate::catalog::{
    AffinityMode, Draft, EndpointIx, PinFailover, PoolSet, PoolSetMatch, Reference,
};
use crate::chance::Chance;
use crate::decision::{Decision, FixedSource, Forward, PinOrder, PinOutcome, Response, Served};
use crate::id::Id;
use crate::region::{CountryCode, Region};
use crate::request::{Location, Request};
use crate::rules::{Condition, FixedResponse, Overrides, Rule, Rules, Transform};
use crate::sample::{Sample, TIME, request};
use crate::snapshot::{Counts, NoCounts, Snapshot};
use crate::steering::{EndpointSteering, PoolSteering};
use crate::time::{Mono, Wall};
use crate::trace::Trace;

const HOST: &str = "shop.example.com";

/// Pools `a`, `b`, `c`, `d` and `rest` of two endpoints each, all monitored; `rest` is the fallback.
fn pools(steering: PoolSteering, listed: &str) -> Sample {
    ["a", "b", "c", "d", "rest"]
        .into_iter()
        .fold(Sample::new().monitor("m"), |sample, name| {
            sample.pool(name, "m", &format!("{name}1 {name}2"))
        })
        .balancer(HOST, steering, listed, "rest")
}

fn snapshot(sample: Sample, assumptions: &str) -> Snapshot {
    let assumptions: Vec<Assumption> = (assumptions.split(", "))
        .filter(|text| !text.is_empty())
        .map(|text| text.parse().unwrap())
        .collect();
    Snapshot::presumed(sample.catalog())
        .assume(&assumptions)
        .unwrap()
}

fn explain(snapshot: &Snapshot, request: &Request<'_>, pins: &impl Pins) -> (Decision, Trace) {
    let (decision, trace) = snapshot.explain(request, &NoCounts, pins, Mono::ZERO);
    assert_eq!(
        decision,
        snapshot.decide(request, &NoCounts, pins, Mono::ZERO)
    );
    (decision, trace)
}

/// `a .8000, b .2000, rest .0000`
fn shares(snapshot: &Snapshot) -> String {
    let (_, trace) = explain(snapshot, &request(HOST, 7), &NoPins);
    let each = trace
        .pools
        .iter()
        .map(|pool| format!("{} {:.4}", pool.name, pool.probability));
    let each: Vec<String> = each.collect();
    each.join(", ").replace(" 0.", " .")
}

fn forward(decision: Decision) -> Forward {
    match decision {
        Decision::Forward(forward) => forward,
        other => panic!("{other:?}"),
    }
}

/// The endpoint of the first attempt, with ` fallback` behind it in that role, and the retry.
fn attempts(snapshot: &Snapshot, request: &Request<'_>, pins: &impl Pins) -> (String, String) {
    let attempts = forward(explain(snapshot, request, pins).0).attempts;
    let name = |attempt: crate::decision::Attempt| {
        let role = if attempt.fallback { " fallback" } else { "" };
        format!("{}{role}", snapshot.endpoint(attempt.endpoint).name)
    };
    (
        name(attempts.first),
        attempts.retry.map_or("-".to_owned(), name),
    )
}

fn reference(draft: &Draft, name: &str) -> Reference {
    let pool = draft.pools.iter().find(|pool| pool.name == name).unwrap();
    Reference {
        id: pool.id,
        text: name.to_owned(),
    }
}

fn references(draft: &Draft, names: &str) -> Vec<Reference> {
    names
        .split(' ')
        .map(|name| reference(draft, name))
        .collect()
}

fn shed(sample: Sample, each: &str) -> Sample {
    sample.with(|draft| {
        for (name, percent) in each.split(' ').map(|each| each.split_once('=').unwrap()) {
            let pool = draft
                .pools
                .iter_mut()
                .find(|pool| pool.name == name)
                .unwrap();
            pool.shedding.default_percent = percent.parse().unwrap();
        }
    })
}

/// How often each pool is drawn.
fn drawn(snapshot: &Snapshot, draws: u32) -> BTreeMap<String, f64> {
    let mut chance = Chance::new(3);
    let mut counts: BTreeMap<String, f64> = BTreeMap::new();
    for _ in 0..draws {
        let request = request(HOST, chance.draw());
        let decision = snapshot.decide(&request, &NoCounts, &NoPins, Mono::ZERO);
        let pool = snapshot.pool(forward(decision).attempts.first.pool).name;
        *counts.entry(pool.to_owned()).or_default() += 1.0 / f64::from(draws);
    }
    counts
}

#[test]
fn the_numbers_of_least_outstanding_requests_and_least_connections() {
    for (steering, word) in [
        (PoolSteering::LeastOutstandingRequests, "open"),
        (PoolSteering::LeastConnections, "connections"),
    ] {
        let idle = snapshot(pools(steering, "a=0.4 b=0.6"), "");
        assert_eq!(shares(&idle), "a .4000, b .6000, rest .0000");
        let busy = format!("{word} a/a1=2, {word} a/a2=1");
        let busy = snapshot(pools(steering, "a=0.4 b=0.6"), &busy);
        assert_eq!(shares(&busy), "a .1429, b .8571, rest .0000");
        let drawn = drawn(&busy, 200_000);
        assert!((drawn["a"] - 0.142_857).abs() < 0.01, "{drawn:?}");
    }
    // The same formula inside a pool; each method looks at its own figure.
    let inside = |steering, assumptions| {
        let sample = pools(PoolSteering::Off, "a").with(|draft| draft.pools[0].steering = steering);
        let (_, trace) = explain(&snapshot(sample, assumptions), &request(HOST, 1), &NoPins);
        trace
            .endpoints
            .iter()
            .map(|one| (one.probability * 1e4).round())
            .collect::<Vec<_>>()
    };
    let weights = "weight a/a1=0.4, weight a/a2=0.6, open a/a1=3, connections a/a2=1";
    assert_eq!(
        inside(EndpointSteering::LeastOutstandingRequests, weights),
        [1429.0, 8571.0]
    );
    assert_eq!(
        inside(EndpointSteering::LeastConnections, weights),
        [5714.0, 4286.0]
    );
    assert_eq!(inside(EndpointSteering::Random, weights), [4000.0, 6000.0]);
}

#[test]
fn live_counts_are_read_where_nothing_is_assumed() {
    struct Live;
    impl Counts for Live {
        fn open_requests(&self, endpoint: EndpointIx) -> u32 {
            [3, 0, 0, 0][endpoint.at().min(3)]
        }
        fn open_connections(&self, _: EndpointIx) -> u32 {
            0
        }
    }
    let sample = pools(PoolSteering::LeastOutstandingRequests, "a=0.4 b=0.6");
    let (_, trace) = snapshot(sample, "").explain(&request(HOST, 1), &Live, &NoPins, Mono::ZERO);
    assert!((trace.pools[0].probability - 1.0 / 7.0).abs() < 1e-9);
    assert_eq!(trace.pools[0].open, Some(3));
}

#[test]
fn the_numbers_of_load_shedding() {
    let off = |each| snapshot(shed(pools(PoolSteering::Off, "a b"), each), "");
    assert_eq!(shares(&off("a=20")), "a .8000, b .2000, rest .0000");
    let half = off("a=50 b=50");
    assert_eq!(shares(&half), "a .5000, b .2500, rest .2500");
    let drawn_shares = drawn(&half, 200_000);
    for (pool, share) in [("a", 0.5), ("b", 0.25), ("rest", 0.25)] {
        assert!(
            (drawn_shares[pool] - share).abs() < 0.01,
            "{drawn_shares:?}"
        );
    }
    assert_eq!(shares(&off("a=100")), "a .0000, b 1.0000, rest .0000");
    assert_eq!(shares(&off("a=100 b=100")), "a .0000, b .0000, rest 1.0000");
    assert_eq!(shares(&off("rest=100")), "a 1.0000, b .0000, rest .0000");
    // A draw that is shed is made again among the others: a goes to b and b to a.
    let random = snapshot(shed(pools(PoolSteering::Random, "a b c"), "a=50 b=50"), "");
    assert_eq!(shares(&random), "a .2083, b .2083, c .5833, rest .0000");
    let drawn_shares = drawn(&random, 200_000);
    assert!(
        (drawn_shares["c"] - 0.583_333).abs() < 0.01,
        "{drawn_shares:?}"
    );
    assert_eq!(
        shares(&snapshot(pools(PoolSteering::Off, "a b"), "shed a=20")),
        "a .8000, b .2000, rest .0000"
    );
}

#[test]
fn shedding_by_hash_is_the_same_for_an_address() {
    let sample = shed(pools(PoolSteering::Off, "a b"), "a=30").with(|draft| {
        draft.pools[0].shedding.default_policy = crate::catalog::ShedPolicy::Hash;
    });
    let snapshot = snapshot(sample, "");
    let mut at_a = 0;
    for client in 0..4_000_u32 {
        let one = |draw| {
            let client = client.to_be_bytes().into();
            let request = Request {
                client,
                ..request(HOST, draw)
            };
            let (decision, trace) = explain(&snapshot, &request, &NoPins);
            let pool = forward(decision).attempts.first.pool;
            assert_eq!(trace.pools[pool.at()].probability, 1.0);
            pool
        };
        assert_eq!(one(1), one(2));
        at_a += u32::from(one(1).0 == 0);
    }
    assert!((2_650..2_950).contains(&at_a), "{at_a} of 4000");
}

#[test]
fn chances_with_many_shedding_pools_are_told_to_be_approximate() {
    let many = |count: usize| {
        let names: Vec<String> = (0..count).map(|place| format!("p{place}")).collect();
        let sample = names
            .iter()
            .fold(Sample::new().pool("rest", "", "r"), |sample, name| {
                sample.pool(name, "", "x")
            });
        let sample = sample.balancer(HOST, PoolSteering::Random, &names.join(" "), "rest");
        let sample = sample.with(|draft| {
            for pool in &mut draft.pools[1..] {
                pool.shedding.default_percent = 50.0;
            }
        });
        let (_, trace) = explain(&snapshot(sample, ""), &request(HOST, 1), &NoPins);
        let rest = trace.pools.last().unwrap().probability;
        let sum: f64 = trace.pools.iter().map(|pool| pool.probability).sum();
        assert!((sum - 1.0).abs() < 1e-9, "{sum}");
        (trace.approximate, rest)
    };
    let (approximate, rest) = many(12);
    assert!(!approximate && (rest - 0.5f64.powi(12)).abs() < 1e-12);
    assert!(many(17).0);
}

#[test]
fn a_dead_area_falls_back_although_the_default_pools_are_healthy() {
    let sample = pools(PoolSteering::Auto, "a").with(|draft| {
        let pops = references(draft, "b c");
        let countries = references(draft, "c");
        let regions = references(draft, "d");
        let areas = &mut draft.balancers[0].areas;
        areas.pops = vec![("ams".to_owned(), pops)];
        areas.countries = vec![("KR".to_owned(), countries)];
        areas.regions = vec![("NEAS".to_owned(), regions)];
    });
    let at = |assumptions: &str, node, country, region| {
        let request = Request {
            location: Location {
                node,
                country: CountryCode::parse(country),
                region: Region::parse(region),
                coordinates: None,
            },
            ..request(HOST, 1 << 63)
        };
        attempts(&snapshot(sample.clone(), assumptions), &request, &NoPins).0
    };
    assert!(at("", "AMS", "KR", "NEAS").starts_with('b'));
    assert!(at("pool b=critical", "AMS", "KR", "NEAS").starts_with('c'));
    assert!(at("", "SJC", "KR", "NEAS").starts_with('c'));
    assert!(at("", "SJC", "JP", "NEAS").starts_with('d'));
    assert!(at("", "SJC", "JP", "WNAM").starts_with('a'));
    assert!(at("", "SJC", "", "").starts_with('a'));
    for (assumptions, node) in [
        ("pool c=critical", "SJC"),
        ("pool b=critical, pool c=critical", "AMS"),
    ] {
        assert!(
            at(assumptions, node, "KR", "NEAS").ends_with("fallback"),
            "{node}"
        );
    }
    assert!(at("country=KR, region=NEAS", "SJC", "", "").starts_with('c'));
    assert!(at("node=ams", "SJC", "", "").starts_with('b'));
}

#[test]
fn dynamic_latency_takes_the_fastest_and_what_is_unknown_last() {
    let chosen = |assumptions: &str| {
        let snapshot = snapshot(pools(PoolSteering::DynamicLatency, "a b c"), assumptions);
        attempts(&snapshot, &request(HOST, 0), &NoPins).0[..1].to_owned()
    };
    assert_eq!(chosen(""), "a", "no data: the order of the list");
    assert_eq!(chosen("rtt a=50ms, rtt b=20ms, rtt c=30ms"), "b");
    assert_eq!(
        chosen("rtt a=50ms, rtt b=20ms, rtt c=30ms, pool b=critical"),
        "c"
    );
    assert_eq!(chosen("rtt c=900ms"), "c");
    assert_eq!(chosen("rtt b=20ms, rtt c=20ms"), "b");
}

#[test]
fn proximity_takes_the_nearest() {
    let sample = pools(PoolSteering::Proximity, "a b c d").with(|draft| {
        draft.pools[1].coordinates = Some((37.6, 126.8));
        draft.pools[2].coordinates = Some((50.1, 8.7));
        draft.pools[3].coordinates = Some((50.1, 8.7));
    });
    let chosen = |assumptions: &str, coordinates| {
        let location = Location {
            coordinates,
            ..Location::default()
        };
        let request = Request {
            location,
            ..request(HOST, 0)
        };
        attempts(&snapshot(sample.clone(), assumptions), &request, &NoPins).0[..1].to_owned()
    };
    let (amsterdam, tokyo) = (Some((52.31, 4.76)), Some((35.7, 139.7)));
    assert_eq!(chosen("", amsterdam), "c", "of equals the first");
    assert_eq!(chosen("pool c=critical", amsterdam), "d");
    assert_eq!(chosen("", tokyo), "b");
    assert_eq!(
        chosen("pool b=critical, pool c=critical, pool d=critical", tokyo),
        "a"
    );
    assert_eq!(
        chosen("", None),
        "a",
        "nobody knows where the request is: the order of the list"
    );
}

#[test]
fn an_address_stays_with_its_endpoint_and_only_the_visitors_of_a_lost_one_move() {
    let sample = pools(PoolSteering::Off, "a")
        .with(|draft| draft.pools[0].steering = EndpointSteering::Hash);
    let with = |assumptions: &str| {
        let snapshot = snapshot(sample.clone(), assumptions);
        move |client: u32| {
            let client = client.to_be_bytes().into();
            let of = |draw| Request {
                client,
                ..request(HOST, draw)
            };
            let found = attempts(&snapshot, &of(1), &NoPins);
            assert_eq!(found, attempts(&snapshot, &of(2), &NoPins));
            found
        }
    };
    let (all, left) = (with(""), with("endpoint a/a2=down"));
    let mut moved = 0;
    for client in 0..2_000 {
        let ((first, retry), after) = (all(client), left(client).0);
        assert!(after == "a1" && [first.as_str(), &retry].contains(&"a1") && first != retry);
        moved += u32::from(first == "a2");
    }
    assert!((900..1_100).contains(&moved), "{moved}");
}

#[test]
fn an_endpoint_that_came_into_service_gets_its_share_step_by_step() {
    let sample = pools(PoolSteering::Off, "a").with(|draft| {
        draft.pools[0].slow_start = Some(Duration::from_secs(100));
    });
    let snapshot = snapshot(sample, "");
    // Both came at the same moment, so their shares are equal at any time.
    for seconds in [0, 50, 1000] {
        let now = Mono::ZERO.after(Duration::from_secs(seconds));
        let (_, trace) = snapshot.explain(&request(HOST, 1), &NoCounts, &NoPins, now);
        assert_eq!(trace.endpoints[0].probability, 0.5, "{seconds}");
    }
}

/// A front that keeps one visitor's pin.
#[derive(Default)]
struct Front {
    cookie: Cell<Option<Pin>>,
    table: Cell<Option<(PinKey, Pin)>>,
}

impl Pins for Front {
    fn in_cookie(&self, _: Id) -> Option<Pin> {
        self.cookie.get()
    }
    fn under_key(&self, key: PinKey) -> Option<Pin> {
        self.table
            .get()
            .filter(|(known, _)| *known == key)
            .map(|(_, pin)| pin)
    }
}

impl Front {
    /// Asks once; the endpoint and what became of the pin.
    fn ask(&self, snapshot: &Snapshot, request: &Request<'_>, served: Served) -> String {
        let (decision, trace) = explain(snapshot, request, self);
        let Decision::Forward(forward) = decision else {
            return format!("{decision:?}");
        };
        let attempt = match served {
            Served::First => Some(forward.attempts.first),
            Served::Retry => forward.attempts.retry,
        };
        let Some(attempt) = attempt else {
            return "the error".to_owned();
        };
        let change = forward.affinity.of(served);
        if served == Served::First && trace.pin.is_some() {
            let kept = trace.pin.as_ref().map(|pin| pin.kept);
            assert_eq!(kept, Some(change.outcome == PinOutcome::Kept));
        }
        let mut set = "";
        if let Some(action) = change.action {
            match snapshot.pin(forward.balancer, &action) {
                PinOrder::SetCookie { pin, .. } => {
                    set = " set";
                    self.cookie.set(Some(pin));
                }
                PinOrder::Remember(key, pin) => {
                    set = " remembered";
                    self.table.set(Some((key, pin)));
                }
            }
        }
        let name = &snapshot.endpoint(attempt.endpoint).name;
        format!("{name} {}{set}", change.outcome.as_str())
    }
}

fn at(seconds: u64, draw: u64) -> Request<'static> {
    Request {
        time: TIME.after(Duration::from_secs(seconds)),
        ..request(HOST, draw)
    }
}

fn pinned(mode: AffinityMode, change: impl FnOnce(&mut Draft)) -> Sample {
    let sample = pools(PoolSteering::Off, "a b").with(|draft| {
        let affinity = &mut draft.balancers[0].affinity;
        affinity.mode = mode;
        if mode == AffinityMode::Header {
            affinity.attributes.headers = vec!["x-visitor".to_owned()];
        }
    });
    sample.with(change)
}

#[test]
fn a_cookie_is_set_once_and_not_extended_by_activity() {
    let snapshot = snapshot(pinned(AffinityMode::Cookie, |_| {}), "");
    let front = Front::default();
    let first = front.ask(&snapshot, &at(0, 1), Served::First);
    assert!(first.ends_with(" new set"), "{first}");
    let home = first[..2].to_owned();
    for seconds in [1, 1_800, 41_400, 82_799] {
        for draw in 0..20 {
            let again = front.ask(&snapshot, &at(seconds, draw << 58), Served::First);
            assert_eq!(again, format!("{home} kept"));
        }
    }
    assert!(
        front
            .ask(&snapshot, &at(82_800, 1), Served::First)
            .ends_with(" new set")
    );
}

#[test]
fn a_header_session_is_extended_by_activity() {
    let snapshot = snapshot(pinned(AffinityMode::Header, |_| {}), "");
    let front = Front::default();
    let headers = [("X-Visitor", "v1")];
    let with = |seconds| Request {
        headers: &headers,
        ..at(seconds, seconds << 50)
    };
    assert!(
        front
            .ask(&snapshot, &with(0), Served::First)
            .ends_with("new remembered")
    );
    for seconds in [1_700, 3_400, 5_100] {
        assert!(
            front
                .ask(&snapshot, &with(seconds), Served::First)
                .ends_with("kept remembered")
        );
    }
    assert!(
        front
            .ask(&snapshot, &with(5_100 + 1_800), Served::First)
            .ends_with("new remembered")
    );
    let without = front.ask(&snapshot, &at(5_200, 1), Served::First);
    assert!(without.ends_with(" none"), "{without}");
}

#[test]
fn a_session_breaks_for_a_reason_and_for_no_other() {
    let base = |change: &dyn Fn(&mut Draft)| {
        pinned(AffinityMode::Cookie, |draft| {
            draft.balancers[0].affinity.attributes.drain = Duration::from_secs(60);
            change(draft);
        })
    };
    let front = Front::default();
    let home = front.ask(&snapshot(base(&|_| {}), ""), &at(0, 1), Served::First)[..2].to_owned();
    let pin = front.cookie.get();
    let other = if home == "a1" { "a2" } else { "a1" };
    let ask = |change: &dyn Fn(&mut Draft), assumptions: &str, seconds| {
        front.cookie.set(pin);
        front.ask(
            &snapshot(base(change), assumptions),
            &at(seconds, 1),
            Served::First,
        )
    };
    let kept = format!("{home} kept");
    let moved = format!("{other} moved set");
    let nothing: &dyn Fn(&mut Draft) = &|_| {};
    assert_eq!(ask(nothing, "", 5), kept);
    assert_eq!(ask(nothing, &format!("weight a/{home}=0"), 5), kept);
    assert_eq!(ask(nothing, "weight a/a1=0, weight a/a2=0", 5), kept);
    assert_eq!(ask(nothing, &format!("endpoint a/{home}=down"), 5), moved);
    assert_eq!(
        ask(nothing, &format!("endpoint a/{home}=pending"), 5),
        moved
    );
    assert_eq!(
        ask(nothing, &format!("endpoint a/{home}=disabled"), 5),
        moved
    );
    assert_eq!(
        ask(nothing, &format!("endpoint a/{home}=draining"), 5),
        kept
    );
    assert!(ask(nothing, "pool a=critical", 5).starts_with('b'));
    assert!(ask(nothing, "pool a=disabled", 5).ends_with("moved set"));
    // Another order, another mode and other pools beside it change nothing.
    assert_eq!(
        ask(&|draft| draft.pools[0].endpoints.reverse(), "", 5),
        kept
    );
    assert_eq!(ask(&|draft| draft.pools.swap(0, 3), "", 5), kept);
    assert_eq!(
        ask(
            &|draft| draft.balancers[0].affinity.mode = AffinityMode::IpCookie,
            "",
            5
        ),
        kept
    );
    assert_eq!(
        ask(&|draft| draft.balancers[0].pools.reverse(), "", 5),
        kept
    );
    // Its pool is not one of this request's any more, or is in the role of the fallback.
    let only_b: &dyn Fn(&mut Draft) = &|draft| drop(draft.balancers[0].pools.remove(0));
    assert!(ask(only_b, "", 5).starts_with('b'));
    let as_fallback: &dyn Fn(&mut Draft) = &|draft| {
        draft.balancers[0].fallback = draft.balancers[0].pools.remove(0);
    };
    assert_eq!(ask(as_fallback, "", 5), kept);
    // A cookie of another load balancer is none.
    front.cookie.set(pin.map(|pin| Pin {
        balancer: pin.pool,
        ..pin
    }));
    let foreign = front.ask(&snapshot(base(nothing), ""), &at(5, 1), Served::First);
    assert!(foreign.ends_with("new set"));
    // A removed endpoint.
    front.cookie.set(pin.map(|pin| Pin {
        endpoint: pin.pool,
        ..pin
    }));
    let gone = front.ask(&snapshot(base(nothing), ""), &at(5, 1), Served::First);
    assert!(gone.ends_with("moved set"));
}

#[test]
fn a_draining_endpoint_is_kept_only_where_the_load_balancer_gives_time() {
    let sample = pinned(AffinityMode::Cookie, |_| {});
    let front = Front::default();
    let home = front.ask(&snapshot(sample.clone(), ""), &at(0, 1), Served::First)[..2].to_owned();
    let draining = format!("endpoint a/{home}=draining");
    let found = front.ask(&snapshot(sample, &draining), &at(5, 1), Served::First);
    assert!(found.ends_with("moved set"), "{found}");
}

#[test]
fn what_a_pinned_request_does_when_its_endpoint_cannot_be_reached() {
    let case = |mode, failover| {
        let sample = pinned(mode, |draft| {
            draft.balancers[0].affinity.attributes.failover = failover;
        });
        let snapshot = snapshot(sample, "");
        let front = Front::default();
        let headers = [("x-visitor", "v")];
        let with = |seconds| Request {
            headers: &headers,
            ..at(seconds, 1)
        };
        let new = front.ask(&snapshot, &with(0), Served::First);
        let kept = front.ask(&snapshot, &with(1), Served::Retry);
        let next = front.ask(&snapshot, &with(2), Served::First);
        let relative = |text: &str| match text.split_once(' ') {
            Some((name, rest)) if name == &new[..2] => format!("home {rest}"),
            Some((_, rest)) if text != "the error" => format!("other {rest}"),
            _ => text.to_owned(),
        };
        [relative(&kept), relative(&next)]
    };
    use AffinityMode::{Cookie, Header};
    assert_eq!(case(Cookie, PinFailover::None), ["the error", "home kept"]);
    assert_eq!(
        case(Cookie, PinFailover::Temporary),
        ["other kept", "home kept"]
    );
    assert_eq!(
        case(Cookie, PinFailover::Sticky),
        ["other moved set", "other kept"]
    );
    assert_eq!(
        case(Header, PinFailover::Temporary),
        ["other kept remembered", "home kept remembered"]
    );
    // The first request of a pin is always retried, and the pin is where it was served.
    let snapshot = snapshot(pinned(Cookie, |_| {}), "");
    let front = Front::default();
    let served = front.ask(&snapshot, &at(0, 1), Served::Retry);
    assert!(served.ends_with("new set"));
    assert_eq!(
        front.ask(&snapshot, &at(1, 9), Served::First)[..2],
        served[..2]
    );
}

#[test]
fn the_retry_goes_to_the_next_pool_only_where_that_is_asked_for() {
    let retry = |across: bool, steering, assumptions: &str| {
        let sample = pools(steering, "a b").with(|draft| {
            draft.balancers[0].failover_across_pools = across;
        });
        attempts(&snapshot(sample, assumptions), &request(HOST, 1), &NoPins).1
    };
    let off = PoolSteering::Off;
    assert!(
        retry(true, off, "").starts_with('a'),
        "another endpoint of the pool comes first"
    );
    assert_eq!(retry(false, off, "endpoint a/a1=down"), "-");
    assert!(retry(true, off, "endpoint a/a1=down").starts_with('b'));
    let alone = "endpoint a/a1=down, pool b=critical";
    assert!(retry(true, off, alone).ends_with(" fallback"));
    assert_eq!(
        retry(
            true,
            off,
            "pool a=critical, pool b=critical, endpoint rest/rest1=down"
        ),
        "-"
    );
    // A pool that sheds everything is not the next one.
    assert!(retry(true, off, "endpoint a/a1=down, shed b=100").ends_with(" fallback"));
}

#[test]
fn a_shed_session_gets_another_elsewhere() {
    let sample = pinned(AffinityMode::Cookie, |draft| {
        draft.pools[0].shedding.session_percent = 50.0;
    });
    let snapshot = snapshot(sample, "");
    let mut moved = 0;
    for client in 0..1_000_u32 {
        let front = Front::default();
        let with = |seconds, draw| Request {
            client: client.to_be_bytes().into(),
            ..at(seconds, draw)
        };
        let first = front.ask(&snapshot, &with(0, 1), Served::First);
        let second = front.ask(&snapshot, &with(1, 1), Served::First);
        let third = front.ask(&snapshot, &with(2, 5), Served::First);
        assert!(first.starts_with('a'));
        if second.starts_with('b') {
            moved += 1;
            assert!(second.ends_with("moved set"));
        } else {
            assert_eq!(second[..2], first[..2]);
        }
        assert_eq!(third, format!("{} kept", &second[..2]));
    }
    assert!((440..560).contains(&moved), "{moved}");
}

#[test]
fn without_cookies_ip_cookie_comes_to_the_same_endpoint() {
    let sample = pools(PoolSteering::Random, "a b c").with(|draft| {
        draft.balancers[0].affinity.mode = AffinityMode::IpCookie;
    });
    let snapshot = snapshot(sample, "");
    let mut counts = BTreeMap::new();
    for client in 0..3_000_u32 {
        let of = |draw| Request {
            client: client.to_be_bytes().into(),
            ..request(HOST, draw)
        };
        let found = attempts(&snapshot, &of(1), &NoPins);
        assert_eq!(found, attempts(&snapshot, &of(99), &NoPins));
        assert_ne!(found.0, found.1);
        *counts.entry(found.0).or_insert(0) += 1;
    }
    assert_eq!(counts.len(), 6);
    assert!(
        counts.values().all(|count| (400..600).contains(count)),
        "{counts:?}"
    );
}

fn rule(condition: &str, overrides: Overrides<Reference>) -> Rule<Reference> {
    Rule {
        name: "r".to_owned(),
        condition: Condition::parse(condition).unwrap(),
        disabled: false,
        priority: None,
        terminates: false,
        fixed_response: None,
        overrides,
        transform: Transform::default(),
    }
}

#[test]
fn rules_replace_pools_answer_and_renew_sessions() {
    let sample = pinned(AffinityMode::Cookie, |draft| {
        let write = Overrides {
            pools: Some(references(draft, "c")),
            ..Overrides::default()
        };
        let checkout = Overrides {
            affinity_ttl: Some(Duration::from_secs(604_800)),
            ..Overrides::default()
        };
        let mut teapot = rule("http.request.uri.path eq \"/tea\"", Overrides::default());
        teapot.fixed_response = Some(FixedResponse {
            status: 418,
            content_type: None,
            location: None,
            body: "short and stout".to_owned(),
        });
        draft.balancers[0].rules = Rules::new(vec![
            rule("http.request.method eq \"POST\"", write),
            rule(
                "starts_with(http.request.uri.path, \"/checkout\")",
                checkout,
            ),
            teapot,
        ]);
    });
    let snapshot = snapshot(sample, "");
    let front = Front::default();
    let get = front.ask(&snapshot, &at(0, 1), Served::First);
    let post = Request {
        method: "POST",
        ..at(1, 1)
    };
    // The pool of the session is not one of this request's: it moves, as told.
    assert!(front.ask(&snapshot, &post, Served::First).starts_with('c'));
    assert!(
        front
            .ask(&snapshot, &at(2, 1), Served::First)
            .ends_with("moved set"),
        "{get}"
    );
    let checkout = Request {
        uri: "/checkout/pay",
        ..at(3, 1)
    };
    let renewed = front.ask(&snapshot, &checkout, Served::First);
    assert!(renewed.ends_with("kept set"), "{renewed}");
    assert_eq!(front.cookie.get().unwrap().ends(), at(3 + 604_800, 0).time);
    // The longer time holds on other paths too.
    assert!(
        front
            .ask(&snapshot, &at(500_000, 1), Served::First)
            .ends_with(" kept")
    );
    let tea = Request {
        uri: "/tea?milk",
        ..at(4, 1)
    };
    let (decision, trace) = explain(&snapshot, &tea, &front);
    let Decision::Respond {
        balancer,
        with: Response::Fixed(source),
    } = decision
    else {
        panic!("{decision:?}")
    };
    assert_eq!(source, FixedSource::Rule(2));
    assert_eq!(snapshot.fixed_response(balancer, source).status, 418);
    let texts: Vec<&str> = trace.steps.iter().map(|step| step.text.as_str()).collect();
    let told = |text: &str| texts.iter().any(|told| told.starts_with(text));
    let third = "rule 3 (r) is true: fixed response; http.request.uri.path is \"/tea\"";
    assert!(told(third), "{texts:?}");
    let first = "rule 1 (r) is false; http.request.method is \"GET\"";
    assert!(told(first), "{texts:?}");
}

#[test]
fn the_first_pool_set_that_matches_is_used_whole() {
    let set = |draft: &Draft, countries: &[&str], pools: &str| PoolSet {
        matching: (!countries.is_empty()).then(|| PoolSetMatch {
            default: false,
            places: Some(crate::catalog::Places {
                countries: countries.iter().map(|code| (*code).to_owned()).collect(),
                ..Default::default()
            }),
        }),
        pools: references(draft, pools),
        ..PoolSet::default()
    };
    let sample = pools(PoolSteering::Random, "a b").with(|draft| {
        let mut off = set(draft, &[], "d");
        off.disabled = true;
        let answer = PoolSet {
            pools: Vec::new(),
            fixed_response: Some(FixedResponse {
                status: 451,
                content_type: None,
                location: None,
                body: String::new(),
            }),
            ..set(draft, &["FR"], "a")
        };
        let sets = vec![off, set(draft, &["KR", "JP"], "c b"), answer];
        draft.balancers[0].pool_sets = sets;
    });
    let snapshot = snapshot(sample, "");
    let of = |country| Request {
        location: Location {
            country: CountryCode::parse(country),
            ..Location::default()
        },
        ..request(HOST, 1)
    };
    let (_, trace) = explain(&snapshot, &of("JP"), &NoPins);
    let shares: Vec<f64> = trace.pools.iter().map(|pool| pool.probability).collect();
    assert_eq!(
        (trace.pools[0].name.as_str(), shares),
        ("c", vec![1.0, 0.0, 0.0])
    );
    let (decision, _) = explain(&snapshot, &of("FR"), &NoPins);
    assert!(matches!(
        decision,
        Decision::Respond {
            with: Response::Fixed(FixedSource::PoolSet(2)),
            ..
        }
    ));
    assert_eq!(
        explain(&snapshot, &of("US"), &NoPins).1.pools[0].probability,
        0.5
    );
    assert_eq!(
        explain(&snapshot, &of(""), &NoPins).1.pools[0].probability,
        0.5
    );
}

#[test]
fn an_explanation_says_what_became_of_a_session() {
    let sample = pinned(AffinityMode::Cookie, |_| {});
    let told = |assumptions: &str| {
        let snapshot = snapshot(sample.clone(), assumptions);
        let pin = explain(&snapshot, &request(HOST, 1), &NoPins)
            .1
            .pin
            .unwrap();
        (pin.kept, pin.reason)
    };
    assert_eq!(told(""), (false, "there is no session yet".to_owned()));
    assert_eq!(
        told("session a/a2"),
        (true, "the session with a/a2 is kept".to_owned())
    );
    assert_eq!(
        told("session a/a2, endpoint a/a2=down"),
        (
            false,
            "the session's endpoint a/a2 does not work: assumed".to_owned()
        )
    );
    assert_eq!(
        told("session c/c1"),
        (
            false,
            "the session's pool \"c\" is not one of this request's".to_owned()
        )
    );
    let off = snapshot(pools(PoolSteering::Off, "a"), "session a/a1");
    let (_, trace) = explain(&off, &request(HOST, 1), &NoPins);
    assert!(trace.pin.is_none());
    assert!(
        trace
            .steps
            .iter()
            .any(|step| step.text.starts_with("session affinity is off"))
    );
}

#[test]
fn an_assumed_time_is_the_time_of_the_request() {
    let snapshot = Snapshot::presumed(pinned(AffinityMode::Cookie, |_| {}).catalog());
    let front = Front::default();
    front.ask(&snapshot, &at(0, 1), Served::First);
    let later = Assumption::Time(Wall::from_millis(TIME.as_millis() + 82_800_000));
    let later = snapshot.assume(&[later]).unwrap();
    assert!(
        front
            .ask(&later, &at(0, 1), Served::First)
            .ends_with("new set")
    );
}
