//! What every engine promises, told in stories. `support::Kept::open` says which engine it is.

mod support;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use support::{Kept, account, beat, begun, node, pick, picked, wish};
use usher_core::lease::account::SLOT_UNCONFIRMED;
use usher_core::lease::browser::Phase;
use usher_core::lease::close::CloseReason;
use usher_core::lease::limits::{AccountKind, Limits};
use usher_core::lease::line::Class;
use usher_core::lease::refusal::Refusal;
use usher_core::lease::region::{Denied, Kill, Wish};
use usher_core::lease::{BrowserId, Epoch, NodeId, RequestId, SessionId, Stock};
use usher_pool::{ConnectionId, Count, Fault, News, Retention, Settings};

const NORMAL: CloseReason = CloseReason::NormalClosure;

#[tokio::test]
async fn a_browser_is_lent_begun_with_and_given_back() {
    let kept = Kept::new();
    let pool = kept.open().await;
    let mut news = pool.news();
    let (here, boot) = node(&pool, "one", 4, 1..3).await;
    let ready = News::Ready {
        stock: Stock::default(),
        count: 2,
    };
    assert_eq!(news.try_recv(), Ok(ready));
    let picked = picked(&pool, 7).await;
    assert_eq!((picked.node, picked.epoch), (here, Epoch(1)));
    assert_eq!(picked.session, SessionId(7));
    let acknowledged = pool.acknowledge(picked.browser, picked.epoch).await;
    assert_eq!(acknowledged.expect("asked"), Ok(()));
    kept.hand.pass_secs(10);
    let closed = pool.close(picked.browser, picked.epoch, NORMAL).await;
    let ended = closed.expect("asked").expect("held").expect("ended");
    assert_eq!(ended.session, SessionId(7));
    assert_eq!(ended.billed, Duration::from_secs(10));
    assert_eq!(news.try_recv(), Ok(News::Ended(ended)));
    // Once is enough, and said so again.
    let again = pool.close(picked.browser, picked.epoch, NORMAL).await;
    assert_eq!(again.expect("asked"), Ok(None));
    pool.beats(
        (here, boot),
        &[beat(picked.browser.0, 9, Phase::Dead, picked.epoch.0)],
    );
    pool.flush().await.expect("written");
    let counts = pool.counts().await.expect("asked");
    let ready = Count {
        node: here,
        stock: Stock::default(),
        phase: Phase::Ready,
        count: 1,
    };
    assert_eq!(counts, [ready]);
    let session = pool.session(SessionId(7)).await.expect("asked");
    let session = session.expect("remembered");
    assert_eq!(session.ended, Some((kept.hand.now(), NORMAL)));
    assert_eq!(session.keep_alive, Duration::from_secs(60));
}

#[tokio::test]
async fn a_repeated_wish_gets_what_it_got_after_a_restart_too() {
    let kept = Kept::new();
    let pool = kept.open().await;
    node(&pool, "one", 4, 1..4).await;
    let first = picked(&pool, 7).await;
    pool.stop().await.expect("stops");
    let pool = kept.open().await;
    let repeat = Wish {
        session: SessionId(8),
        ..wish(7)
    };
    let again = pool.pick(repeat, 99).await.expect("asked");
    assert_eq!(again, Some(first));
    // The next try of the same request is another wish, but not by a name that is taken.
    let next = Wish {
        attempt: 1,
        ..wish(7)
    };
    assert_eq!(pool.pick(next, 1).await.expect("asked"), None);
    let next = Wish {
        attempt: 1,
        session: SessionId(9),
        ..wish(7)
    };
    let second = pool.pick(next, 1).await.expect("asked").expect("ready");
    assert_ne!(second.browser, first.browser);
}

/// Fifty brokers ask for 200 browsers, each of them until it hears that there are no more; every
/// third question is asked twice.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fifty_brokers_and_no_browser_given_twice() {
    let kept = Kept::new();
    let pool = kept.open().await;
    for (name, ids) in [("one", 0..100), ("two", 100..200)] {
        node(&pool, name, 100, ids).await;
    }
    let brokers = (0..50_u128).map(|broker| {
        let pool = Arc::clone(&pool);
        tokio::spawn(async move {
            let mut given = Vec::new();
            for number in 0.. {
                let wish = wish(broker << 64 | number);
                let draw = (broker as u64) << 32 | number as u64;
                let (first, repeat) = tokio::join!(
                    pool.pick(wish, draw),
                    // The same again, under way at the same time.
                    async {
                        match number % 3 {
                            0 => Some(pool.pick(wish, !draw).await.expect("asked")),
                            _ => None,
                        }
                    }
                );
                let first = first.expect("asked");
                if let (Some(repeat), Some(_)) = (repeat, first) {
                    assert_eq!(repeat, first);
                }
                let Some(picked) = first else { break };
                let begun = pool.acknowledge(picked.browser, picked.epoch).await;
                assert_eq!(begun.expect("asked"), Ok(()));
                given.push(picked.browser);
            }
            given
        })
    });
    let mut given = Vec::new();
    for broker in brokers.collect::<Vec<_>>() {
        given.extend(broker.await.expect("no panic"));
    }
    let different: BTreeSet<_> = given.iter().collect();
    assert_eq!((given.len(), different.len()), (200, 200));
    let sessions = pool.sessions(account("default")).await.expect("asked");
    assert_eq!(sessions.len(), 200);
    let live = pool.live(1_000).await.expect("asked");
    assert_eq!(live, sessions, "of all accounts, newest first");
    assert_eq!(pool.live(7).await.expect("asked"), sessions[..7]);
}

#[tokio::test]
async fn whoever_comes_with_an_old_lease_is_refused() {
    let kept = Kept::new();
    let pool = kept.open().await;
    node(&pool, "one", 4, 1..2).await;
    let slept = picked(&pool, 1).await;
    let evicted = pool.evict(slept.browser, CloseReason::SessionEvicted).await;
    assert!(evicted.expect("asked").is_some());
    let denied = Denied::NotHeld(slept.browser);
    let late = pool.acknowledge(slept.browser, slept.epoch).await;
    assert_eq!(late.expect("asked"), Err(denied));
    let late = pool.close(slept.browser, slept.epoch, NORMAL).await;
    assert_eq!(late.expect("asked"), Err(denied));
    let nobody = BrowserId(99);
    let unknown = pool.close(nobody, Epoch(0), NORMAL).await;
    assert_eq!(unknown.expect("asked"), Err(Denied::NotHeld(nobody)));
}

#[tokio::test]
async fn the_nearest_node_gives_first_and_equals_share() {
    let kept = Kept::new();
    let pool = kept.open().await;
    let (far, _) = node(&pool, "far", 40, 0..40).await;
    let (near, _) = node(&pool, "near", 40, 100..140).await;
    let (other, _) = node(&pool, "other", 40, 200..240).await;
    for (node, millis) in [(far, 50), (near, 1), (other, 1)] {
        let distance = Duration::from_millis(millis);
        pool.measure(node, distance).await.expect("asked");
    }
    let mut given: BTreeMap<NodeId, usize> = BTreeMap::new();
    for number in 0..40 {
        let wish = wish(1_000 + number);
        // Draws are 64 random bits.
        let draw = (number as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let picked = pool.pick(wish, draw).await.expect("asked").expect("ready");
        *given.entry(picked.node).or_default() += 1;
    }
    assert_eq!(given.get(&far), None, "{given:?}");
    assert_eq!(given.len(), 2, "{given:?}");
    // What is drained or silent gives nothing.
    pool.drain(near, true).await.expect("asked");
    pool.drain(other, true).await.expect("asked");
    assert_eq!(picked(&pool, 5_000).await.node, far);
    kept.hand.pass_secs(16);
    assert_eq!(pick(&pool, 5_001).await, None);
}

#[tokio::test]
async fn heartbeats_move_forward_whatever_comes_when() {
    let kept = Kept::new();
    let pool = kept.open().await;
    let (here, boot) = node(&pool, "one", 4, 1..3).await;
    let one = begun(&pool, 1).await;
    let id = one.browser.0;
    let phase = async || {
        pool.flush().await.expect("written");
        let browsers = pool.browsers(here, 0).await.expect("asked");
        let row = browsers.into_iter().find(|row| row.browser == one.browser);
        row.expect("there").phase
    };
    for (seq, told, epoch, stands) in [
        (10, Phase::Ready, 0, Phase::InUse),
        (12, Phase::InUse, 1, Phase::InUse),
        (11, Phase::Dead, 1, Phase::InUse),
        (12, Phase::Dead, 1, Phase::InUse),
        (13, Phase::Closing, 1, Phase::Closing),
        (14, Phase::InUse, 1, Phase::Closing),
        (15, Phase::Dead, 1, Phase::Dead),
        (16, Phase::Ready, 1, Phase::Dead),
    ] {
        pool.beats((here, boot), &[beat(id, seq, told, epoch)]);
        assert_eq!(phase().await, stands, "{seq} {told:?}");
    }
    // Of a start that is past, nothing counts.
    let mut news = pool.news();
    let (_, newer, _) = pool.register("one", 4).await.expect("asked");
    pool.beats((here, boot), &[beat(id, 17, Phase::Dead, 1)]);
    pool.beats((here, boot), &[]);
    pool.flush().await.expect("written");
    let disowned = News::Disowned { node: here, boot };
    assert_eq!(news.try_recv(), Ok(disowned));
    assert!(newer > boot);
    let figures = pool.figures();
    assert_eq!(figures.received, 11);
    assert_eq!(figures.counted + figures.outdated, 11);
    assert_eq!((figures.waiting, figures.degraded), (0, false));
    assert_eq!((figures.dropped_full, figures.dropped_failed), (0, 0));
}

#[tokio::test]
async fn a_node_that_goes_silent_takes_its_sessions_along() {
    let kept = Kept::new();
    let pool = kept.open().await;
    let (here, boot) = node(&pool, "one", 4, 1..4).await;
    let begun = begun(&pool, 1).await;
    let mut lost = Vec::new();
    for secs in [5, 10, 15, 20, 25, 30] {
        kept.hand.pass_secs(5);
        let reaped = pool.reap().await.expect("asked");
        assert!(!reaped.gap, "{secs}");
        if !reaped.lost.is_empty() {
            assert_eq!(secs, 30);
            assert_eq!(reaped.ended[0].session, begun.session);
            assert_eq!(reaped.ended[0].reason, CloseReason::ConnectionError);
            lost = reaped.lost;
        }
    }
    assert_eq!(lost, [here]);
    assert_eq!(pool.counts().await.expect("asked"), []);
    let stale = Denied::StaleBoot(here);
    let of = (here, boot);
    let launch = pool.launch(of, BrowserId(50), Stock::default(), 1).await;
    assert_eq!(launch.expect("asked"), Err(stale));
    let list = pool.reconcile(of, 1, BTreeMap::new()).await;
    assert_eq!(list.expect("asked"), Err(stale));
    let (same, newer, ended) = pool.register("one", 4).await.expect("asked");
    assert_eq!((same, newer.0, ended), (here, boot.0 + 1, vec![]));
}

#[tokio::test]
async fn a_promise_nobody_keeps_is_taken_back_and_its_claim_runs_out() {
    let kept = Kept::new();
    let pool = kept.open().await;
    let (here, boot) = node(&pool, "one", 4, 1..3).await;
    let (who, limits) = (account("default"), Limits::of(AccountKind::Free));
    let admitted = pool.admit(who, limits, SessionId(1)).await;
    assert_eq!(admitted.expect("asked"), Ok(()));
    let promised = picked(&pool, 1).await;
    let mut reaped = Vec::new();
    for _ in 0..2 {
        kept.hand.pass_secs(5);
        pool.beats((here, boot), &[]);
        reaped.push(pool.reap().await.expect("asked"));
    }
    assert_eq!(reaped[0].ended, []);
    assert_eq!(reaped[1].ended[0].session, SessionId(1));
    let kill = Kill {
        node: here,
        browser: promised.browser,
        epoch: Epoch(2),
    };
    assert_eq!(reaped[1].kills, [kill]);
    let counts = async || pool.account(who, limits).await.expect("asked").sessions;
    assert_eq!(counts().await, [SessionId(1)]);
    kept.hand.pass(SLOT_UNCONFIRMED.as_millis() as i64 - 10_001);
    assert_eq!(counts().await, [SessionId(1)]);
    kept.hand.pass(1);
    assert_eq!(counts().await, []);
}

#[tokio::test]
async fn a_session_that_its_node_forgot_to_end_is_ended() {
    let kept = Kept::new();
    let pool = kept.open().await;
    let (here, boot) = node(&pool, "one", 4, 1..3).await;
    let begun = begun(&pool, 1).await;
    let mut idle = Vec::new();
    for secs in (5..=80).step_by(5) {
        kept.hand.pass_secs(5);
        pool.beats((here, boot), &[]);
        let reaped = pool.reap().await.expect("asked");
        if !reaped.ended.is_empty() {
            idle.push((secs, reaped.ended[0].reason, reaped.kills.len()));
        }
    }
    // 60 s and the margin of 15 s.
    assert_eq!(idle, [(80, CloseReason::BrowserIdle, 1)]);
    let session = pool.session(begun.session).await.expect("asked");
    assert_eq!(
        session.expect("remembered").ended.map(|(_, reason)| reason),
        Some(CloseReason::BrowserIdle)
    );
}

#[tokio::test]
async fn a_clock_that_jumps_ends_nobody() {
    let kept = Kept::new();
    let pool = kept.open().await;
    node(&pool, "one", 4, 1..4).await;
    begun(&pool, 1).await;
    pool.reap().await.expect("asked");
    for jump in [3_600, -7_200, 86_400] {
        kept.hand.pass_secs(jump);
        let reaped = pool.reap().await.expect("asked");
        assert!(reaped.gap);
        assert!(reaped.ended.is_empty() && reaped.lost.is_empty(), "{jump}");
    }
    assert_eq!(
        pool.sessions(account("default"))
            .await
            .expect("asked")
            .len(),
        1
    );
}

#[tokio::test]
async fn what_a_node_has_is_compared_both_ways() {
    let kept = Kept::new();
    let pool = kept.open().await;
    let of = node(&pool, "one", 8, 1..5).await;
    let begun = begun(&pool, 1).await;
    // Of four, two are there, and one that nobody knows.
    let mut has: BTreeMap<BrowserId, (Phase, Epoch)> = BTreeMap::new();
    let ready: Vec<u128> = (1..5)
        .filter(|&id| BrowserId(id) != begun.browser)
        .collect();
    has.insert(begun.browser, (Phase::InUse, Epoch(1)));
    has.insert(BrowserId(ready[0]), (Phase::Ready, Epoch(0)));
    has.insert(BrowserId(77), (Phase::Ready, Epoch(0)));
    let told = pool
        .reconcile(of, 100, has)
        .await
        .expect("asked")
        .expect("known");
    let kill = Kill {
        node: of.0,
        browser: BrowserId(77),
        epoch: Epoch(0),
    };
    assert_eq!((told.kills, told.ended), (vec![kill], vec![]));
    let counts = pool.counts().await.expect("asked");
    let counts: Vec<_> = counts
        .iter()
        .map(|count| (count.phase, count.count))
        .collect();
    assert_eq!(counts, [(Phase::Ready, 1), (Phase::InUse, 1)]);
    // A session whose browser is not there any more has ended.
    let told = pool
        .reconcile(of, 101, BTreeMap::new())
        .await
        .expect("asked")
        .expect("known");
    assert_eq!(told.ended[0].reason, CloseReason::ChromiumCrashed);
}

#[tokio::test]
async fn limits_are_judged_in_order_and_cost_nothing_when_they_refuse() {
    let kept = Kept::new();
    let pool = kept.open().await;
    let (who, limits) = (account("free"), Limits::of(AccountKind::Free));
    let ask = async |session| {
        let asked = pool.admit(who, limits, SessionId(session)).await;
        asked.expect("asked").map_err(|refusal| refusal.to_string())
    };
    assert_eq!(ask(1).await, Ok(()));
    assert_eq!(ask(1).await, Ok(()), "a repeat");
    let rate = "Rate limit exceeded".to_owned();
    for _ in 0..20 {
        assert_eq!(ask(2).await, Err(rate.clone()));
    }
    kept.hand.pass_secs(20);
    assert_eq!(ask(2).await, Ok(()));
    assert_eq!(ask(3).await, Err(rate));
    // Got no browser: pays nothing.
    pool.refund(who, limits, SessionId(2)).await.expect("asked");
    assert_eq!(ask(3).await, Ok(()));
    pool.spend(who, Duration::from_secs(600))
        .await
        .expect("asked");
    assert_eq!(
        ask(4).await,
        Err("Browser time limit exceeded for today".to_owned())
    );
    let quick = pool.admit_quick_action(who, limits).await.expect("asked");
    let Err(Refusal::DailyTime { wait }) = quick else {
        panic!("{quick:?}");
    };
    let shown = pool.account(who, limits).await.expect("asked");
    assert_eq!(shown.used, Duration::from_secs(600));
    assert_eq!(shown.sessions, [SessionId(1), SessionId(3)]);
    // No token helps before the next day.
    assert_eq!(shown.wait, wait);
}

#[tokio::test]
async fn a_quick_action_takes_a_browser_and_no_place() {
    let kept = Kept::new();
    let pool = kept.open().await;
    node(&pool, "one", 4, 1..4).await;
    let (who, limits) = (account("default"), Limits::of(AccountKind::Free));
    let admitted = pool.admit_quick_action(who, limits).await.expect("asked");
    assert_eq!(admitted, Ok(()));
    let again = pool.admit_quick_action(who, limits).await.expect("asked");
    assert!(matches!(again, Err(Refusal::Rate { .. })), "{again:?}");
    pool.refund_quick_action(who, limits).await.expect("asked");
    let again = pool.admit_quick_action(who, limits).await.expect("asked");
    assert_eq!(again, Ok(()));
    let quick = Wish {
        class: Class::QuickAction,
        ..wish(1)
    };
    let given = pool.pick(quick, 1).await.expect("asked").expect("ready");
    let begun = pool.acknowledge(given.browser, given.epoch).await;
    assert_eq!(begun.expect("asked"), Ok(()));
    let account = async || pool.account(who, limits).await.expect("asked");
    assert_eq!(pool.sessions(who).await.expect("asked"), []);
    assert_eq!(account().await.sessions, []);
    assert_eq!(account().await.others, 1);
    // As many sessions as there may be, beside it.
    for number in 2..4 {
        kept.hand.pass_secs(20);
        let admitted = pool.admit(who, limits, SessionId(number)).await;
        assert_eq!(admitted.expect("asked"), Ok(()), "{number}");
    }
    // It ends without a bill: whoever leads it says what it costs.
    let mut news = pool.news();
    let closed = pool.close(given.browser, given.epoch, NORMAL).await;
    let ended = closed.expect("asked").expect("held").expect("ended");
    assert_eq!((ended.class, ended.billed), (quick.class, Duration::ZERO));
    assert_eq!(news.try_recv(), Ok(News::Ended(ended)));
    assert_eq!(pool.history(who, 0, 10).await.expect("asked"), []);
    assert_eq!(account().await.used, Duration::ZERO);
    pool.spend(who, Duration::from_secs(3))
        .await
        .expect("asked");
    assert_eq!(account().await.used, Duration::from_secs(3));
    // An hour later nothing is left of it.
    let row = async || pool.session(SessionId(1)).await.expect("asked");
    assert_eq!(row().await.expect("remembered").class, quick.class);
    pool.reap().await.expect("asked");
    kept.hand.pass_secs(3_601);
    pool.reap().await.expect("asked");
    assert_eq!(row().await, None);
}

/// Two brokers cannot both spend the last token, and fifty can not either.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fifty_brokers_do_not_get_more_than_one_may() {
    let kept = Kept::new();
    let pool = kept.open().await;
    let (who, limits) = (account("paid"), Limits::of(AccountKind::Paygo));
    let brokers = (0..50_u128).map(|broker| {
        let pool = Arc::clone(&pool);
        tokio::spawn(async move {
            let asked = pool.admit(who, limits, SessionId(broker)).await;
            asked.expect("asked").is_ok()
        })
    });
    let mut admitted = 0;
    for broker in brokers.collect::<Vec<_>>() {
        admitted += usize::from(broker.await.expect("no panic"));
    }
    assert_eq!(admitted, 5, "the burst, and no more");
}

#[tokio::test]
async fn a_live_session_counts_until_it_ends_and_not_after() {
    let kept = Kept::new();
    let pool = kept.open().await;
    let of = node(&pool, "one", 4, 1..3).await;
    let (who, limits) = (account("default"), Limits::of(AccountKind::Paygo));
    let admitted = pool.admit(who, limits, SessionId(1)).await;
    assert_eq!(admitted.expect("asked"), Ok(()));
    let begun = begun(&pool, 1).await;
    // Far longer than a claim, with nobody confirming anything but that the node lives.
    for seq in 10..60 {
        kept.hand.pass_secs(5);
        pool.beats(of, &[beat(begun.browser.0, seq, Phase::InUse, 1)]);
        pool.flush().await.expect("written");
        pool.reap().await.expect("asked");
    }
    let counts = async || pool.account(who, limits).await.expect("asked");
    assert_eq!(counts().await.sessions, [SessionId(1)]);
    let closed = pool.close(begun.browser, begun.epoch, NORMAL).await;
    assert!(closed.expect("asked").is_ok());
    let after = counts().await;
    assert_eq!(
        (after.sessions, after.used),
        (vec![], Duration::from_secs(250))
    );
}

#[tokio::test]
async fn the_history_is_newest_first_and_bounded() {
    let kept = Kept::new();
    let settings = Settings {
        retention: Retention {
            age: Duration::from_secs(10 * 3_600),
            len: 5,
        },
        ..Settings::default()
    };
    let pool = kept.open_with(settings).await;
    let of = node(&pool, "one", 20, 1..13).await;
    let who = account("default");
    let (mut seq, mut last) = (10, None);
    for number in 1..=12 {
        let begun = begun(&pool, number).await;
        kept.hand.pass_secs(1);
        if number < 12 {
            let reason = CloseReason::of_number((number % 6) as u8);
            let closed = pool.close(begun.browser, begun.epoch, reason).await;
            assert!(closed.expect("asked").is_ok());
            seq += 1;
            pool.beats(of, &[beat(begun.browser.0, seq, Phase::Dead, 1)]);
            pool.flush().await.expect("written");
        }
        last = Some(begun.browser.0);
    }
    let last = last.expect("twelve");
    let history = async |offset, limit| {
        let page = pool.history(who, offset, limit).await.expect("asked");
        let told = page.into_iter().map(|view| {
            let reason = view.ended.map(|(_, reason)| reason.as_str());
            (view.session.0, reason)
        });
        told.collect::<Vec<_>>()
    };
    assert_eq!(
        history(0, 3).await,
        [
            (12, None),
            (11, Some("SessionEvicted")),
            (10, Some("ConnectionError"))
        ]
    );
    assert_eq!(
        history(10, 9).await,
        [(2, Some("BrowserIdle")), (1, Some("NormalClosure"))]
    );
    assert_eq!(pool.sessions(who).await.expect("asked").len(), 1);
    // An hour later the rows that only answer repeats are gone, and what is over the bound.
    let until = kept.hand.now().after(Duration::from_secs(3_700));
    pool.reap().await.expect("asked");
    while kept.hand.now() < until {
        kept.hand.pass_secs(10);
        seq += 1;
        pool.beats(of, &[beat(last, seq, Phase::InUse, 1)]);
        pool.flush().await.expect("written");
        pool.reap().await.expect("asked");
    }
    let left: Vec<u128> = history(0, 100)
        .await
        .into_iter()
        .map(|(id, _)| id)
        .collect();
    assert_eq!(left, [12, 11, 10, 9, 8]);
    assert_eq!(pool.browsers(of.0, 0).await.expect("asked").len(), 1);
    kept.hand.pass_secs(10 * 3_600);
    pool.reap().await.expect("asked");
    // What lives has no age.
    assert_eq!(history(0, 100).await, [(12, None)]);
}

#[tokio::test]
async fn a_session_shows_its_newest_connection() {
    let kept = Kept::new();
    let pool = kept.open().await;
    node(&pool, "one", 4, 1..3).await;
    let begun = begun(&pool, 1).await;
    let shown = async || {
        let session = pool.session(begun.session).await.expect("asked");
        session.expect("there").connection
    };
    assert_eq!(shown().await, None);
    for (pass, connection) in [(1, Some(5)), (1, Some(6)), (1, None), (1, None)] {
        kept.hand.pass_secs(pass);
        let id = connection.map(ConnectionId);
        assert!(pool.connected(begun.session, id).await.expect("asked"));
    }
    let connection = shown().await.expect("there was one");
    assert_eq!(connection.id, ConnectionId(6));
    let since = |wall| kept.hand.now().since(wall).as_secs();
    assert_eq!(since(connection.started), 2);
    assert_eq!(connection.ended.map(since), Some(1));
    let closed = pool.close(begun.browser, begun.epoch, NORMAL).await;
    assert!(closed.expect("asked").is_ok());
    let late = pool.connected(begun.session, Some(ConnectionId(7))).await;
    assert!(!late.expect("asked"));
}

#[tokio::test]
async fn whoever_has_left_is_given_nothing() {
    let kept = Kept::new();
    let pool = kept.open().await;
    node(&pool, "one", 4, 1..2).await;
    // Asked, and given up before the writer can have begun: a flush is being waited for by a
    // question that is in front of it.
    let abandoned = {
        let pool = Arc::clone(&pool);
        tokio::spawn(async move { pick(&pool, 1).await })
    };
    abandoned.abort();
    let outcome = abandoned.await;
    assert!(outcome.is_err_and(|error| error.is_cancelled()));
    // Whether it was begun or not: who asks by the same name gets the one there is.
    let again = picked(&pool, 1).await;
    assert_eq!(again.browser, BrowserId(1));
    let request = RequestId(2);
    let other = Wish { request, ..wish(3) };
    assert_eq!(pool.pick(other, 1).await.expect("asked"), None);
}

#[tokio::test]
async fn a_pool_that_has_stopped_says_so() {
    let kept = Kept::new();
    let pool = kept.open().await;
    let of = node(&pool, "one", 4, 1..2).await;
    pool.beats(of, &[beat(1, 9, Phase::Dead, 0)]);
    pool.stop().await.expect("stops");
    pool.stop().await.expect("twice");
    let error = pool.pick(wish(1), 1).await.expect_err("stopped");
    assert_eq!(error.fault, Fault::Closed);
    let error = pool.nodes().await.expect_err("stopped");
    assert_eq!(error.fault, Fault::Closed);
    pool.beats(of, &[beat(1, 10, Phase::Dead, 0)]);
    assert_eq!(pool.figures().dropped_failed, 1);
    // What was told before is written.
    let pool = kept.open().await;
    assert_eq!(pool.counts().await.expect("asked"), []);
}
