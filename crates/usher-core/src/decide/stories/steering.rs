//! Which pool, and which endpoint inside it.

use super::*;

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
