//! The pool of a region, told in stories.

use super::*;
use crate::id::Kind;
use crate::lease::beat::Heartbeat;

const NODE: NodeId = NodeId(1);

fn at(secs: i64) -> Wall {
    Wall::from_millis(1_790_000_000_000 + secs * 1_000)
}

fn wish(number: u128) -> Wish {
    Wish {
        request: RequestId(number),
        attempt: 0,
        session: SessionId(number),
        account: Id::derive("default", Kind::Account, "default"),
        stock: Stock::default(),
        class: Class::Session,
        keep_alive: Duration::from_secs(60),
    }
}

fn beat(browser: u128, seq: u64, phase: Phase, epoch: u32) -> Heartbeat {
    Heartbeat {
        browser: BrowserId(browser),
        seq,
        phase,
        epoch: Epoch(epoch),
        mem_kib: 100,
        quiet: Duration::ZERO,
        reason: CloseReason::NormalClosure,
    }
}

fn group(boot: Boot, beats: Vec<Heartbeat>) -> Group {
    Group {
        node: NODE,
        boot,
        beats,
    }
}

/// A region with one node whose browsers 1..=`count` are ready.
fn region(count: u128) -> (Region, Boot) {
    let mut region = Region::default();
    let (boot, _) = region.register(NODE, 10, at(0));
    for id in 1..=count {
        region
            .launch((NODE, boot), BrowserId(id), Stock::default(), 1, at(0))
            .unwrap();
    }
    let beats = (1..=count).map(|id| beat(id, 2, Phase::Ready, 0)).collect();
    region.heartbeats(&group(boot, beats), at(1)).unwrap();
    region.reap(at(1));
    (region, boot)
}

fn phase(region: &Region, id: u128) -> Phase {
    let (_, row) = region
        .browsers()
        .find(|&(known, _)| known == BrowserId(id))
        .unwrap();
    row.lease.state.phase()
}

/// Looks everything over every five seconds; nodes are heard of as long as `alive`.
fn wait(region: &mut Region, boot: Boot, from: i64, to: i64, alive: bool) -> Vec<Reaped> {
    let mut all = Vec::new();
    for secs in (from..=to).filter(|secs| secs % 5 == 0) {
        if alive {
            region.heartbeats(&group(boot, vec![]), at(secs)).unwrap();
        }
        all.push(region.reap(at(secs)));
        region.check().unwrap();
    }
    all
}

#[test]
fn no_browser_is_given_twice() {
    let (mut region, _) = region(5);
    let mut given: Vec<BrowserId> = (1..=9)
        .filter_map(|number| region.pick(wish(number), at(2), number as u64))
        .map(|picked| picked.browser)
        .collect();
    given.sort_unstable();
    assert_eq!(given, [1, 2, 3, 4, 5].map(BrowserId));
    region.check().unwrap();
}

#[test]
fn a_repeated_wish_gets_what_it_got() {
    let (mut region, _) = region(3);
    let first = region.pick(wish(7), at(2), 1);
    let repeat = Wish {
        session: SessionId(8),
        ..wish(7)
    };
    assert_eq!(region.pick(repeat, at(3), 99), first);
    assert_eq!(region.sessions().count(), 1);
    // A name that is taken is not given to a second session.
    let stolen = Wish {
        request: RequestId(9),
        ..wish(7)
    };
    assert_eq!(region.pick(stolen, at(3), 1), None);
}

#[test]
fn a_broker_that_slept_is_refused() {
    let (mut region, boot) = region(1);
    let picked = region.pick(wish(1), at(2), 0).unwrap();
    let reaped = wait(&mut region, boot, 5, 10, true);
    let ended: Vec<_> = reaped.iter().flat_map(|reaped| &reaped.ended).collect();
    assert_eq!((ended.len(), ended[0].billed), (1, Duration::ZERO));
    let denied = Denied::NotHeld(picked.browser);
    assert_eq!(
        region.acknowledge(picked.browser, picked.epoch, at(11)),
        Err(denied)
    );
    let close = region.close(
        picked.browser,
        picked.epoch,
        CloseReason::NormalClosure,
        at(11),
    );
    assert_eq!(close, Err(denied));
}

#[test]
fn a_session_begins_lives_and_is_billed() {
    let (mut region, boot) = region(1);
    let picked = region.pick(wish(1), at(2), 0).unwrap();
    region
        .acknowledge(picked.browser, picked.epoch, at(3))
        .unwrap();
    region
        .acknowledge(picked.browser, picked.epoch, at(3))
        .unwrap();
    let (alive, _) = region
        .heartbeats(&group(boot, vec![beat(1, 3, Phase::InUse, 1)]), at(5))
        .unwrap();
    assert_eq!(alive.len(), 1);
    let ended = region
        .close(
            picked.browser,
            picked.epoch,
            CloseReason::NormalClosure,
            at(12),
        )
        .unwrap()
        .unwrap();
    assert_eq!(ended.billed, Duration::from_secs(10));
    let again = region.close(
        picked.browser,
        picked.epoch,
        CloseReason::NormalClosure,
        at(13),
    );
    assert_eq!(again, Ok(None));
    region
        .heartbeats(&group(boot, vec![beat(1, 4, Phase::Dead, 1)]), at(14))
        .unwrap();
    assert_eq!(phase(&region, 1), Phase::Dead);
    assert_eq!(region.taken(NODE), 0);
}

#[test]
fn a_quick_action_holds_a_browser_and_is_no_session() {
    let (mut region, boot) = region(1);
    let quick = Wish {
        class: Class::QuickAction,
        ..wish(1)
    };
    let picked = region.pick(quick, at(2), 0).unwrap();
    region
        .acknowledge(picked.browser, picked.epoch, at(3))
        .unwrap();
    let (alive, _) = region
        .heartbeats(&group(boot, vec![beat(1, 3, Phase::InUse, 1)]), at(5))
        .unwrap();
    assert!(alive.is_empty(), "no slot is held for it");
    assert_eq!(region.session(picked.session).unwrap().commanded, at(5));
    let reason = CloseReason::NormalClosure;
    let ended = region.close(picked.browser, picked.epoch, reason, at(12));
    let ended = ended.unwrap().unwrap();
    assert_eq!(ended.class, Class::QuickAction);
    assert_eq!(ended.billed, Duration::ZERO);
    region.check().unwrap();
}

#[test]
fn old_news_move_nothing() {
    let (mut region, boot) = region(1);
    let picked = region.pick(wish(1), at(2), 0).unwrap();
    let mut say = |beat| region.heartbeats(&group(boot, vec![beat]), at(3)).unwrap();
    say(beat(1, 2, Phase::Dead, 1));
    say(beat(1, 3, Phase::Ready, 0));
    say(beat(1, 4, Phase::Closing, 0));
    assert_eq!(phase(&region, 1), Phase::Picked);
    region
        .acknowledge(picked.browser, picked.epoch, at(4))
        .unwrap();
    let other = Group {
        node: NodeId(2),
        ..group(boot, vec![beat(1, 9, Phase::Dead, 1)])
    };
    assert_eq!(
        region.heartbeats(&other, at(5)),
        Err(Denied::StaleBoot(NodeId(2)))
    );
    assert_eq!(phase(&region, 1), Phase::InUse);
}

#[test]
fn a_node_that_falls_silent_is_suspect_then_dead() {
    let (mut region, boot) = region(3);
    let picked = region.pick(wish(1), at(2), 0).unwrap();
    region
        .acknowledge(picked.browser, picked.epoch, at(3))
        .unwrap();
    assert_eq!(region.ready(Stock::default(), at(16)).count(), 2);
    assert_eq!(region.ready(Stock::default(), at(17)).count(), 0);
    let reaped = wait(&mut region, boot, 5, 30, false);
    let last = reaped.last().unwrap();
    assert_eq!(last.lost, [NODE]);
    assert_eq!(last.ended[0].reason, CloseReason::ConnectionError);
    assert_eq!(region.taken(NODE), 0);
    let stale = Err(Denied::StaleBoot(NODE));
    assert_eq!(
        region.heartbeats(&group(boot, vec![]), at(31)).map(|_| ()),
        stale
    );
    let (again, _) = region.register(NODE, 10, at(32));
    assert!(again > boot);
    assert_eq!(
        region.heartbeats(&group(boot, vec![]), at(33)).map(|_| ()),
        stale
    );
    assert!(region.heartbeats(&group(again, vec![]), at(33)).is_ok());
}

#[test]
fn nobody_is_judged_by_time_that_was_lost() {
    let (mut region, boot) = region(2);
    let picked = region.pick(wish(1), at(2), 0).unwrap();
    region
        .acknowledge(picked.browser, picked.epoch, at(3))
        .unwrap();
    let waiting = region.pick(wish(2), at(5), 0).unwrap();
    // The clock jumps by an hour.
    let reaped = region.reap(at(3_600));
    assert!(reaped.gap && reaped.lost.is_empty());
    assert_eq!(phase(&region, picked.browser.0), Phase::InUse);
    // The promise is as old as it looks, more than its longer time: it goes.
    assert_eq!(phase(&region, waiting.browser.0), Phase::Closing);
    // And back.
    let reaped = region.reap(at(0));
    assert!(reaped.gap && reaped.ended.is_empty());
    let reaped = wait(&mut region, boot, 5, 95, false);
    assert!(
        reaped.iter().any(|reaped| reaped.lost == [NODE]),
        "time goes on"
    );
}

#[test]
fn what_a_node_does_not_list_is_dead_and_what_we_do_not_know_is_ended() {
    let (mut region, boot) = region(3);
    let picked = region.pick(wish(1), at(2), 0).unwrap();
    region
        .acknowledge(picked.browser, picked.epoch, at(3))
        .unwrap();
    let listed = |ids: &[u128], epoch| {
        ids.iter()
            .map(|&id| (BrowserId(id), (Phase::Ready, Epoch(epoch))))
            .collect::<BTreeMap<_, _>>()
    };
    // A list from before what was last said changes nothing.
    let (kills, ended) = region
        .reconcile((NODE, boot), 2, &listed(&[], 0), at(4))
        .unwrap();
    assert!(kills.is_empty() && ended.is_empty());
    // One that has not heard of the lease does not end it.
    let (kills, ended) = region
        .reconcile((NODE, boot), 3, &listed(&[1, 2, 3, 77], 0), at(4))
        .unwrap();
    let stray = Kill {
        node: NODE,
        browser: BrowserId(77),
        epoch: Epoch(0),
    };
    assert_eq!((kills, ended.len()), (vec![stray], 0));
    let (_, ended) = region
        .reconcile((NODE, boot), 4, &listed(&[], 0), at(5))
        .unwrap();
    assert_eq!(ended.len(), 1);
    assert_eq!(region.taken(NODE), 0);
    let (kills, _) = region
        .reconcile((NODE, boot), 5, &listed(&[1], 0), at(6))
        .unwrap();
    assert_eq!(kills.len(), 1, "the dead do not come back");
}

#[test]
fn a_store_that_forgot_a_lease_gives_that_browser_to_nobody() {
    let (mut region, boot) = region(1);
    region
        .heartbeats(&group(boot, vec![beat(1, 3, Phase::InUse, 1)]), at(3))
        .unwrap();
    assert_eq!(phase(&region, 1), Phase::Closing);
    assert_eq!(region.pick(wish(1), at(4), 0), None);
    let list = [(BrowserId(1), (Phase::InUse, Epoch(1)))].into();
    let (kills, _) = region.reconcile((NODE, boot), 4, &list, at(5)).unwrap();
    assert_eq!(kills[0].epoch, Epoch(2), "above what the node knows");
}

#[test]
fn there_is_no_more_than_there_is_room_for() {
    let mut region = Region::default();
    let (boot, _) = region.register(NODE, 2, at(0));
    let mut launch = |id| region.launch((NODE, boot), BrowserId(id), Stock::default(), 1, at(0));
    assert_eq!(launch(1), Ok(()));
    assert_eq!(launch(2), Ok(()));
    assert_eq!(launch(2), Ok(()), "a repeat");
    let full = Denied::NoRoom {
        node: NODE,
        slots: 2,
    };
    assert_eq!(launch(3), Err(full));
    region.evict(BrowserId(1), CloseReason::SessionEvicted, at(1));
    let closing = region.launch((NODE, boot), BrowserId(3), Stock::default(), 2, at(1));
    assert_eq!(closing, Err(full), "what closes takes its slot");
}

#[test]
fn a_teardown_that_does_not_end_takes_the_node_out_of_service() {
    let (mut region, boot) = region(2);
    region.evict(BrowserId(1), CloseReason::SessionEvicted, at(2));
    let reaped = wait(&mut region, boot, 5, 30, true);
    assert!(reaped.iter().all(|reaped| reaped.kills.is_empty()));
    let reaped = wait(&mut region, boot, 35, 60, true);
    assert!(reaped.iter().all(|reaped| reaped.kills.len() == 1));
    let reaped = wait(&mut region, boot, 65, 70, true);
    assert_eq!(reaped[0].quarantined, [NODE]);
    assert!(reaped[1].quarantined.is_empty());
    assert_eq!(region.pick(wish(1), at(70), 0), None);
}

#[test]
fn a_session_that_its_node_forgot_to_end_ends() {
    let (mut region, boot) = region(1);
    let picked = region.pick(wish(1), at(2), 0).unwrap();
    region
        .acknowledge(picked.browser, picked.epoch, at(3))
        .unwrap();
    let reaped = wait(&mut region, boot, 5, 75, true);
    assert!(reaped.iter().all(|reaped| reaped.ended.is_empty()));
    let reaped = wait(&mut region, boot, 80, 80, true);
    assert_eq!(reaped[0].ended[0].reason, CloseReason::BrowserIdle);
    assert_eq!(reaped[0].ended[0].billed, Duration::from_secs(78));
    // An hour later nothing is left of it but what the history keeps elsewhere.
    region
        .heartbeats(&group(boot, vec![beat(1, 9, Phase::Dead, 2)]), at(81))
        .unwrap();
    wait(&mut region, boot, 85, 81 + 3_600 + 5, true);
    assert_eq!(
        (region.sessions().count(), region.browsers().count()),
        (0, 0)
    );
    assert!(region.wishes.is_empty());
}
