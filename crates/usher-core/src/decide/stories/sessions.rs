//! What keeps a visitor, what moves it, and what is told of it.

use super::*;

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
