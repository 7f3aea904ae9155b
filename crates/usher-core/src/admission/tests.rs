//! Stories of a room, and what must hold whatever the story.

use super::door::{Door, Kind, decide};
use super::*;
use crate::chance::Chance;
use std::collections::HashMap;

const START: u64 = 1_796_000_000_000;

fn visitor(number: u64) -> Visitor {
    Visitor::from_u128((u128::from(number) << 64) | u128::from(number.wrapping_mul(77)))
}

/// A room that is driven, and beside it the one that a journal would make.
struct Story {
    room: Room,
    replayed: Room,
    settings: Settings,
    now: u64,
    draws: Chance,
    effects: Vec<Effect>,
}

impl Story {
    fn new(settings: Settings) -> Story {
        Story {
            room: Room::default(),
            replayed: Room::default(),
            settings,
            now: START,
            draws: Chance::new(1),
            effects: Vec::new(),
        }
    }

    fn step(&mut self, command: Command<'_>) -> Answer {
        let draw = self.draws.draw();
        let before = self.effects.len();
        let answer = (self.room).step(&self.settings, self.now, draw, command, &mut self.effects);
        for effect in &self.effects[before..] {
            self.replayed.apply(effect);
        }
        answer
    }

    fn later(&mut self, millis: u64) {
        self.now += millis;
    }

    fn asks(&mut self, number: u64) -> Answer {
        self.step(Command::Ask {
            visitor: visitor(number),
            claims: None,
        })
    }

    fn asks_with(&mut self, claims: &Claims) -> Answer {
        self.step(Command::Ask {
            visitor: claims.visitor,
            claims: Some(claims),
        })
    }

    fn leaves(&mut self, number: u64) {
        self.step(Command::End {
            visitor: visitor(number),
            cause: End::Left,
        });
    }

    fn enters(&mut self, number: u64) -> Seat {
        match self.asks(number) {
            Answer::Forward(seat) => seat,
            other => panic!("{number} does not enter: {other:?}"),
        }
    }

    fn waits(&mut self, number: u64) -> Place {
        match self.asks(number) {
            Answer::Wait(place) => place,
            other => panic!("{number} does not wait: {other:?}"),
        }
    }

    fn state(&self, number: u64) -> Option<State> {
        self.room.find(visitor(number)).map(|person| person.state)
    }

    /// Check-ins of these every 20 s, and ticks between, for so long.
    fn pass(&mut self, millis: u64, polling: &[u64]) {
        let visitors: Vec<Visitor> = polling.iter().map(|number| visitor(*number)).collect();
        for _ in 0..millis / 20_000 {
            self.later(20_000);
            self.step(Command::CheckIn(&visitors));
            while self.step(Command::Tick) == (Answer::Done { more: true }) {}
        }
        self.later(millis % 20_000);
        while self.step(Command::Tick) == (Answer::Done { more: true }) {}
    }
}

impl Drop for Story {
    /// Whatever the story was: the journal makes the same room, and so does a snapshot.
    fn drop(&mut self) {
        if std::thread::panicking() {
            return;
        }
        assert!(self.room == self.replayed, "a replay differs");
        let mut restored = Room::default();
        for record in self.room.records() {
            restored.apply(&record);
        }
        assert!(self.room == restored, "a snapshot differs");
    }
}

fn seats(total: u64) -> Story {
    Story::new(Settings::new(total, u64::from(u32::MAX)).session(30_000))
}

#[test]
fn a_freed_seat_goes_to_the_lowest_ticket() {
    let mut story = seats(1);
    assert_eq!(story.enters(1).how, Entry::Direct);
    let second = story.waits(2);
    let third = story.waits(3);
    assert!(second.ticket < third.ticket);
    assert_eq!((second.position, third.position), (1, 2));
    story.leaves(1);
    assert_eq!(story.state(2), Some(State::Called));
    assert_eq!(story.waits(3).position, 1);
    assert_eq!(story.waits(4).position, 2, "nobody overtakes");
    let seat = story.enters(2);
    assert_eq!((seat.how, seat.ticket), (Entry::Called, second.ticket));
}

#[test]
fn a_repeated_question_has_the_same_answer() {
    let mut story = seats(1);
    story.enters(1);
    let first = story.waits(2);
    assert_eq!(story.waits(2).ticket, first.ticket);
    assert_eq!(story.enters(1).how, Entry::Held);
    assert_eq!(story.room.counts().admitted, 1);
    story.leaves(9);
    story.leaves(2);
    story.leaves(2);
    assert_eq!(story.room.counts().present, 0);
}

#[test]
fn a_seat_is_over_at_its_end_and_free_a_second_later() {
    let mut story = seats(1);
    let seat = story.enters(1);
    assert_eq!(seat.renew_from, START + 3_000);
    assert_eq!(seat.lease_until, START + 33_000);
    story.waits(2);
    story.pass(33_999, &[2]);
    assert_eq!(story.state(1), Some(State::Seated));
    story.later(1);
    story.step(Command::Tick);
    assert_eq!(story.state(1), None);
    assert_eq!(story.state(2), Some(State::Called));
    assert_eq!(story.waits(1).position, 1, "it is new now");
}

#[test]
fn a_renewal_moves_the_end() {
    let mut story = seats(1);
    story.enters(1);
    story.later(20_000);
    let answer = story.step(Command::Renew {
        visitor: visitor(1),
        claims: None,
    });
    let Answer::Forward(seat) = answer else {
        panic!("{answer:?}")
    };
    assert_eq!(seat.lease_until, START + 53_000);
    assert_eq!(seat.generation, 1);
    story.later(34_000);
    let late = story.step(Command::Renew {
        visitor: visitor(1),
        claims: None,
    });
    assert_eq!(late, Answer::Ended);
}

#[test]
fn a_seat_without_renewal_ends_when_it_was_said() {
    let mut story = seats(1);
    story.settings.renewal = Renewal::Never;
    let seat = story.enters(1);
    assert_eq!(
        (seat.lease_until, seat.renew_from),
        (START + 30_000, START + 30_000)
    );
    story.later(29_999);
    assert_eq!(story.enters(1).lease_until, START + 30_000);
    story.later(1);
    assert_eq!(story.enters(1).how, Entry::Direct, "and is admitted anew");
    assert_eq!(story.room.counts().admitted, 2);
}

#[test]
fn the_silent_are_passed_over_and_come_back_first() {
    let mut story = seats(1);
    story.enters(1);
    let second = story.waits(2);
    story.waits(3);
    // 1 renews, 3 asks, 2 is silent for more than 45 s.
    for _ in 0..3 {
        story.later(20_000);
        story.enters(1);
        story.waits(3);
    }
    assert_eq!(story.state(2), Some(State::Away));
    assert_eq!(story.waits(3).ahead_away, 1);
    assert_eq!(
        story.waits(2),
        Place {
            position: 1,
            ..story.waits(2)
        }
    );
    assert_eq!(story.waits(2).ticket, second.ticket);
    story.leaves(1);
    assert_eq!(story.state(2), Some(State::Called));
}

#[test]
fn a_late_call_frees_the_seat_and_keeps_the_ticket() {
    let mut story = seats(1);
    story.enters(1);
    let second = story.waits(2);
    story.waits(3);
    story.leaves(1);
    story.pass(44_999, &[3]);
    assert_eq!(story.state(2), Some(State::Called));
    story.later(1);
    story.step(Command::Tick);
    assert_eq!(story.state(2), Some(State::Away));
    assert_eq!(story.state(3), Some(State::Called));
    assert_eq!(story.waits(2).ticket, second.ticket);
    story.leaves(3);
    assert_eq!(story.enters(2).how, Entry::Called);
}

#[test]
fn a_ticket_is_void_after_the_hold() {
    let mut story = seats(1);
    story.enters(1);
    let first = story.waits(2);
    story.settings.total = 0;
    story.later(300_000);
    assert_eq!(
        story.waits(2).ticket,
        first.ticket,
        "not a moment too early"
    );
    let claims = Claims::waiting(visitor(2), &first, None, story.now);
    story.later(300_001);
    // The room has forgotten it; the cookie tells.
    let Answer::Wait(place) = story.asks_with(&claims) else {
        panic!("no place")
    };
    assert!(place.expired && place.ticket > first.ticket);
}

#[test]
fn a_thousand_at_one_instant_fill_a_hundred_seats() {
    let mut story = seats(100);
    let entered = (0..1000).filter(|number| matches!(story.asks(*number), Answer::Forward(_)));
    let entered: Vec<u64> = entered.collect();
    assert_eq!(entered, (0..100).collect::<Vec<u64>>());
    assert_eq!(story.room.counts().present, 900);
}

#[test]
fn a_minute_never_takes_more_than_its_limit() {
    let mut story = Story::new(Settings::new(1_000, 10));
    for number in 0..10 {
        story.enters(number);
    }
    for number in 10..30 {
        story.waits(number);
    }
    let all: Vec<u64> = (10..30).collect();
    story.pass(59_000, &all);
    assert_eq!(story.room.counts().called, 0);
    story.later(2_000);
    story.step(Command::Tick);
    assert_eq!(story.room.counts().called, 10);
    for number in 10..20 {
        story.enters(number);
    }
    story.waits(20);
}

#[test]
fn a_lowered_rate_bounds_claims_a_minute_later() {
    let mut story = Story::new(Settings::new(100, 10));
    for number in 0..20 {
        story.asks(number);
    }
    story.pass(61_000, &(10..20).collect::<Vec<u64>>());
    assert_eq!(story.room.counts().called, 10);
    story.settings.per_minute = 1;
    for number in 10..20 {
        story.enters(number);
    }
    story.waits(30);
    assert_eq!(story.room.counts().window, 10);
}

#[test]
fn a_lowered_total_evicts_nobody_and_a_reserved_seat_survives() {
    let mut story = seats(3);
    for number in 1..=3 {
        story.enters(number);
    }
    story.waits(4);
    story.waits(5);
    story.leaves(1);
    assert_eq!(story.state(4), Some(State::Called));
    story.settings.total = 0;
    story.enters(2);
    story.enters(4);
    story.waits(5);
    story.leaves(2);
    story.waits(5);
    story.settings.total = 3;
    story.enters(5);
}

#[test]
fn nobody_enters_at_a_limit_of_nothing() {
    for settings in [
        Settings::new(0, 60),
        Settings::new(60, 0),
        Settings::new(0, 0),
    ] {
        let mut story = Story::new(settings);
        story.waits(1);
        story.pass(120_000, &[1]);
        story.waits(1);
        let summary = story.room.summary(&story.settings, story.now);
        assert_eq!(summary.estimate(u64::MAX, Method::Fifo), None);
        assert_eq!(story.room.counts().admitted, 0);
    }
}

#[test]
fn queue_all_takes_calls_back_and_lets_seats_be() {
    let mut story = seats(2);
    story.enters(1);
    story.enters(2);
    let third = story.waits(3);
    story.leaves(1);
    assert_eq!(story.state(3), Some(State::Called));
    story.settings.queue_all = true;
    assert_eq!(story.waits(3).ticket, third.ticket);
    assert_eq!(story.state(3), Some(State::Present));
    assert_eq!(story.enters(2).how, Entry::Held);
    story.waits(4);
    for method in Method::ALL {
        story.settings.method = method;
        story.waits(4);
    }
    story.settings.method = Method::Fifo;
    story.settings.queue_all = false;
    story.enters(3);
}

#[test]
fn methods_are_read_at_each_decision() {
    let mut story = seats(1);
    story.enters(1);
    let ticket = story.waits(2).ticket;
    story.settings.method = Method::Reject;
    assert_eq!(story.asks(2), Answer::Reject);
    assert_eq!(story.asks(5), Answer::Reject);
    assert_eq!(story.enters(1).how, Entry::Held);
    story.settings.method = Method::Random;
    assert_eq!(story.waits(2).ticket, ticket);
    story.settings.suspended = true;
    assert_eq!(story.asks(2), Answer::Suspended);
    assert_eq!(story.asks(6), Answer::Suspended);
    story.settings.suspended = false;
    assert_eq!(story.waits(2).ticket, ticket);
    story.settings.method = Method::Passthrough;
    assert_eq!(story.enters(2).how, Entry::Passthrough);
    assert_eq!(story.enters(3).how, Entry::Passthrough);
    assert_eq!(story.room.counts().seated, 3);
    assert_eq!(story.room.counts().window, 3);
}

#[test]
fn a_draw_is_even_among_those_present() {
    let mut wins = HashMap::new();
    for seed in 0..4_000 {
        let mut story = seats(1);
        story.settings.method = Method::Random;
        story.draws = Chance::new(seed);
        story.enters(0);
        for number in 1..=4 {
            story.waits(number);
        }
        story.leaves(0);
        let winner = (1..=4).find(|number| story.state(*number) == Some(State::Called));
        *wins.entry(winner.expect("one is called")).or_insert(0) += 1;
    }
    for number in 1..=4 {
        assert!((850..1150).contains(&wins[&number]), "{wins:?}");
    }
}

#[test]
fn a_full_line_takes_nobody() {
    let mut story = seats(1);
    story.settings.queue_len_max = 2;
    story.enters(1);
    story.waits(2);
    story.waits(3);
    assert_eq!(story.asks(4), Answer::Full);
    assert!(story.room.summary(&story.settings, story.now).full);
    story.leaves(2);
    story.waits(4);
}

#[test]
fn a_smooth_minute_is_spent_by_the_second() {
    let mut story = Story::new(Settings::new(1_000, 120));
    story.settings.pacing = Pacing::Smooth;
    story.now = START / 1000 * 1000;
    let entered = (0..50).filter(|number| matches!(story.asks(*number), Answer::Forward(_)));
    assert_eq!(entered.count(), 3);
    story.later(1_000);
    story.step(Command::Tick);
    assert_eq!(story.room.counts().called, 3);
}

#[test]
fn an_old_copy_of_a_cookie_is_noticed() {
    let mut story = seats(1);
    let seat = story.enters(1);
    let old = Claims::seated(visitor(1), &seat, None, story.now);
    for _ in 0..5 {
        story.later(20_000);
        story.enters(1);
    }
    let Answer::Forward(seat) = story.asks_with(&old) else {
        panic!("the same visitor")
    };
    assert!(seat.copy_seen);
    story.settings.copies = Copies::Fork;
    assert_eq!(story.asks_with(&old), Answer::Copied);
}

/// A room with two seats, of which the journal lost what came after the first visitor.
fn crash(tail_ms: u64) -> (Story, Claims, Claims) {
    crash_of(2, tail_ms, false)
}

/// The same with a journal that had allowed for so many admissions, and whose end may be damaged.
fn crash_of(admitted_max: u64, tail_ms: u64, torn: bool) -> (Story, Claims, Claims) {
    let mut story = seats(2);
    story.enters(1);
    let kept = story.effects.len();
    let seat = story.enters(2);
    let second = Claims::seated(visitor(2), &seat, None, story.now);
    let place = story.waits(3);
    let third = Claims::waiting(visitor(3), &place, None, story.now);
    let mut after = seats(2);
    after.now = story.now;
    for effect in &story.effects[..kept] {
        after.room.apply(effect);
        after.replayed.apply(effect);
    }
    after.later(5_000);
    after.step(Command::Recover {
        admitted_max,
        tail_ms,
        torn,
    });
    (after, second, third)
}

#[test]
fn a_lost_admission_is_a_ghost_until_its_cookie_comes() {
    let (mut story, second, third) = crash(1_000);
    assert_eq!(story.room.stamp().epoch, 1);
    assert_eq!(story.room.counts().ghosts, 1);
    assert_eq!(story.room.counts().window, 2);
    story.waits(4);
    let Answer::Wait(place) = story.asks_with(&third) else {
        panic!("no place")
    };
    assert_eq!(place.ticket, third.ticket, "put back at its number");
    assert_eq!(place.position, 1);
    let Answer::Forward(seat) = story.asks_with(&second) else {
        panic!("its seat was free for nobody else")
    };
    assert_eq!(seat.how, Entry::Remembered);
    assert_eq!(story.room.counts().ghosts, 0);
    assert_eq!(story.room.counts().admitted, 2);
    // Only what history lost is believed.
    let mut forged = second;
    forged.visitor = visitor(9);
    assert!(
        matches!(story.asks_with(&forged), Answer::Wait(_)),
        "no ghost is left"
    );
}

#[test]
fn behind_a_torn_end_every_cookie_is_a_seat() {
    // The watermark is lost with the rest, so there is no ghost.
    let (mut story, second, _) = crash_of(1, 1_000, false);
    assert_eq!(story.room.counts().ghosts, 0);
    assert!(matches!(story.asks_with(&second), Answer::Forward(seat) if seat.how == Entry::Direct));
    for beside in [false, true] {
        let (mut story, second, third) = crash_of(1, 1_000, true);
        story.enters(4);
        let told = if beside {
            story.step(Command::Renew {
                visitor: second.visitor,
                claims: Some(&second),
            })
        } else {
            story.asks_with(&second)
        };
        let Answer::Forward(seat) = told else {
            panic!("{told:?} is no seat")
        };
        assert_eq!(seat.how, Entry::Remembered);
        let counts = story.room.counts();
        assert_eq!((counts.seated, counts.admitted, counts.window), (3, 3, 3));
        // It is one seat, however often it comes, and one too many is nobody's to have.
        story.enters(2);
        let Answer::Wait(place) = story.asks_with(&third) else {
            panic!("no place")
        };
        assert_eq!(place.ticket, third.ticket);
        story.leaves(4);
        story.waits(5);
        assert_eq!(story.room.counts().seated, 2);
        // A cookie of another history is worth nothing.
        let mut forged = second;
        forged.visitor = visitor(9);
        forged.stamp.epoch = 1;
        assert!(matches!(story.asks_with(&forged), Answer::Wait(_)));
    }
}

#[test]
fn a_ghost_nobody_claims_is_given_up() {
    let (mut story, ..) = crash(1_000);
    story.waits(4);
    // The seat of 1 is kept for as long as a lost renewal could have made it.
    story.pass(28_000, &[4]);
    assert_eq!(
        (story.room.counts().seated, story.room.counts().ghosts),
        (1, 1)
    );
    story.pass(8_000, &[4]);
    assert_eq!(
        (story.room.counts().seated, story.room.counts().ghosts),
        (0, 0)
    );
    story.enters(4);
}

#[test]
fn what_history_knows_no_cookie_can_undo() {
    let (mut story, _, mut third) = crash(0);
    third.stamp.sequence = 1;
    let Answer::Wait(place) = story.asks_with(&third) else {
        panic!("no place")
    };
    assert!(place.ticket > third.ticket && place.expired);
    // A waiting cookie that is newer than what is left disproves a seat.
    let (mut story, ..) = crash(0);
    let mut first = third;
    first.visitor = visitor(1);
    first.stamp = Stamp {
        epoch: 0,
        sequence: 50,
    };
    first.ticket = START * 1000;
    assert!(matches!(
        story.asks_with(&first),
        Answer::Forward(Seat {
            how: Entry::Called,
            ..
        })
    ));
    assert_eq!(story.room.counts().admitted, 3);
}

#[test]
fn a_restart_forgives_the_silence() {
    let mut story = seats(1);
    story.enters(1);
    let tickets: Vec<u64> = (2..10).map(|number| story.waits(number).ticket).collect();
    // Presence is not in the journal: 20 minutes of check-ins leave no trace there.
    story.settings.total = 0;
    story.pass(1_200_000, &(2..10).collect::<Vec<u64>>());
    let mut after = seats(0);
    for effect in story.effects.iter().filter(|effect| effect.is_durable()) {
        after.room.apply(effect);
        after.replayed.apply(effect);
    }
    after.now = story.now + 240_000;
    let admitted_max = after.room.counts().admitted;
    after.step(Command::Recover {
        admitted_max,
        tail_ms: 0,
        torn: false,
    });
    assert_eq!(after.room.stamp().epoch, 0, "nothing was lost");
    let again: Vec<u64> = (2..10).map(|number| after.waits(number).ticket).collect();
    assert_eq!(again, tickets);
}

#[test]
fn who_came_back_just_before_a_crash_is_there_after_it() {
    let mut story = seats(1);
    story.enters(1);
    let ticket = story.waits(2).ticket;
    story.waits(3);
    story.leaves(1);
    story.pass(45_000, &[3]);
    assert_eq!(
        story.state(2),
        Some(State::Away),
        "called, and did not come"
    );
    assert_eq!(story.waits(2).ticket, ticket);
    let mut after = seats(1);
    for effect in story.effects.iter().filter(|effect| effect.is_durable()) {
        after.room.apply(effect);
        after.replayed.apply(effect);
    }
    assert_eq!(
        after.state(2),
        Some(State::Away),
        "its return left no trace"
    );
    after.now = story.now + 1_000;
    let admitted_max = after.room.counts().admitted;
    after.step(Command::Recover {
        admitted_max,
        tail_ms: 0,
        torn: false,
    });
    after.leaves(3);
    after.step(Command::Tick);
    assert_eq!(after.state(2), Some(State::Called));
}

#[test]
fn time_that_goes_back_changes_nothing() {
    let mut story = seats(1);
    story.enters(1);
    let ticket = story.waits(2).ticket;
    story.now = 0;
    assert_eq!(story.waits(2).ticket, ticket);
    assert!(story.waits(3).ticket > ticket);
    story.now = u64::MAX;
    story.step(Command::Tick);
    story.asks(4);
}

#[test]
fn the_door_asks_the_room_only_what_the_room_knows() {
    let mut story = seats(1);
    let seat = story.enters(1);
    let place = story.waits(2);
    let active = Claims::seated(visitor(1), &seat, None, story.now);
    let waiting = Claims::waiting(visitor(2), &place, None, story.now);
    let summary = story.room.summary(&story.settings, story.now);
    let settings = story.settings;
    let door = |settings: &Settings, claims: Option<&Claims>, kind, later| {
        decide(settings, &summary, claims, kind, START + later)
    };
    let page = Kind::Navigation;
    for (claims, kind, later, wanted) in [
        (None, page, 0, Door::Ask),
        (None, Kind::Subrequest, 0, Door::WaitOutside),
        (None, Kind::Head, 0, Door::WaitOutside),
        (None, Kind::Preflight, 0, Door::Bypass),
        (Some(&active), page, 2_999, Door::Pass { renew: false }),
        (Some(&active), page, 3_000, Door::Pass { renew: true }),
        (Some(&active), page, 5_999, Door::Pass { renew: true }),
        (Some(&active), page, 6_000, Door::Ask),
        (Some(&active), page, 33_000, Door::Ask),
        (
            Some(&waiting),
            page,
            20_000,
            Door::Wait(summary.place(place.ticket)),
        ),
        (Some(&waiting), page, 45_001, Door::Ask),
    ] {
        assert_eq!(
            door(&settings, claims, kind, later),
            wanted,
            "{kind:?} {later}"
        );
    }
    let rejects = Settings {
        method: Method::Reject,
        ..settings
    };
    assert_eq!(door(&rejects, None, page, 0), Door::Reject);
    assert_eq!(door(&rejects, Some(&waiting), page, 0), Door::Reject);
    assert_eq!(
        door(&rejects, Some(&active), page, 0),
        Door::Pass { renew: false }
    );
    let off = Settings {
        suspended: true,
        ..settings
    };
    assert_eq!(door(&off, Some(&waiting), page, 0), Door::Bypass);
    let strict = Settings {
        subrequests_strict: true,
        ..settings
    };
    assert_eq!(door(&strict, None, Kind::Subrequest, 0), Door::Ask);
    // Called, and the newest summary says so.
    story.leaves(1);
    let called = story.room.summary(&story.settings, story.now);
    assert_eq!(
        decide(&settings, &called, Some(&waiting), page, story.now),
        Door::Ask
    );
    // A decoy stays one; another epoch has to be told.
    let decoy = Claims {
        standing: Standing::Decoy,
        ..waiting
    };
    assert_eq!(door(&settings, Some(&decoy), page, 0), Door::Decoy);
    let epoch = Claims {
        stamp: Stamp {
            epoch: 7,
            sequence: 0,
        },
        ..active
    };
    assert_eq!(
        door(&settings, Some(&epoch), page, 0),
        Door::Pass { renew: true }
    );
    let epoch = Claims {
        stamp: epoch.stamp,
        ..waiting
    };
    assert_eq!(door(&settings, Some(&epoch), page, 0), Door::Ask);
}

#[test]
fn positions_come_from_the_summary() {
    for waiting in [1_u64, 100, 257, 20_000] {
        let mut story = seats(1);
        story.settings.present_ms = 600_000;
        story.enters(0);
        let mut tickets = Vec::new();
        for number in 1..=waiting {
            // Arrivals of uneven density.
            story.later(number % 7);
            tickets.push(story.waits(number).ticket);
        }
        let summary = story.room.summary(&story.settings, story.now);
        let error_max = if waiting <= 257 { 0 } else { waiting / 256 };
        for (ahead, ticket) in tickets.iter().enumerate() {
            let position = summary.place(*ticket).position;
            let error = position.abs_diff(ahead as u64 + 1);
            assert!(error <= error_max, "{waiting}: {position} for {ahead}");
        }
    }
}

#[test]
fn a_guarantee_holds_while_no_seat_is_renewed() {
    let mut story = seats(10);
    story.settings.renewal = Renewal::Never;
    story.settings.per_minute = 12;
    let mut promised: HashMap<u64, u64> = HashMap::new();
    let mut waiting: Vec<u64> = Vec::new();
    let mut entered = 0;
    for number in 0..200 {
        story.later(500);
        match story.asks(number) {
            Answer::Forward(_) => entered += 1,
            Answer::Wait(_) => waiting.push(number),
            other => panic!("{other:?}"),
        }
    }
    let mut next_poll = story.now + 20_000;
    while !waiting.is_empty() {
        story.later(250);
        story.step(Command::Tick);
        let summary = story.room.summary(&story.settings, story.now);
        for number in &waiting {
            let ticket = story
                .room
                .find(visitor(*number))
                .map_or(0, |person| person.ticket);
            if story.state(*number) == Some(State::Present)
                && let Some(by) = summary.guaranteed_by(ticket, Method::Fifo)
            {
                let promise = promised.entry(*number).or_insert(by);
                *promise = by.min(*promise);
            }
        }
        if story.now >= next_poll {
            next_poll += 20_000;
            let mut left = Vec::new();
            for number in std::mem::take(&mut waiting) {
                match story.asks(number) {
                    Answer::Forward(_) => {
                        entered += 1;
                        let by = promised.get(&number).copied();
                        assert!(by.is_none_or(|by| story.now <= by), "{number} {by:?}");
                    }
                    _ => left.push(number),
                }
            }
            waiting = left;
        }
    }
    assert_eq!(entered, 200);
    assert!(promised.len() > 150, "{}", promised.len());
}

#[test]
fn a_cookie_whose_seat_was_ended_is_a_matter_for_the_room() {
    let mut story = seats(1);
    let seat = story.enters(1);
    let copy = Claims::seated(visitor(1), &seat, None, story.now);
    let way = |story: &Story, room: &Room| {
        let summary = room.summary(&story.settings, story.now);
        decide(
            &story.settings,
            &summary,
            Some(&copy),
            Kind::Navigation,
            story.now,
        )
    };
    assert_eq!(way(&story, &story.room), Door::Pass { renew: false });
    story.leaves(1);
    story.enters(2);
    assert_eq!(way(&story, &story.room), Door::Ask);
    // After a restart too, from the log or from a snapshot of it.
    assert_eq!(way(&story, &story.replayed), Door::Ask);
    let mut restored = Room::default();
    for record in story.room.records() {
        restored.apply(&record);
    }
    assert_eq!(way(&story, &restored), Door::Ask);
    // What the room says then: it has no seat, and there is none.
    assert!(matches!(story.asks_with(&copy), Answer::Wait(_)));
    story.leaves(2);
    assert!(matches!(story.asks_with(&copy), Answer::Forward(_)));
    assert_eq!(way(&story, &story.room), Door::Pass { renew: false });
}

#[test]
fn nobody_is_remembered_for_longer_than_a_cookie_is_good() {
    let mut story = seats(2);
    story.enters(1);
    story.enters(2);
    story.leaves(1);
    assert_eq!(story.room.left.len(), 1);
    story.pass(40_000, &[]);
    story.enters(3);
    story.step(Command::Tick);
    assert_eq!(story.room.left.len(), 0);
}

#[test]
fn a_flood_that_never_comes_back_does_not_fill_the_line() {
    let mut story = seats(1);
    story.settings = story.settings.session(3_600_000);
    story.settings.queue_len_max = 3;
    story.enters(1);
    story.waits(2);
    story.later(10_000);
    story.waits(2);
    for number in 10..12 {
        story.waits(number);
    }
    assert_eq!(story.asks(3), Answer::Full);
    story.pass(60_000, &[2]);
    assert_eq!(story.room.counts().away, 2);
    assert!(!story.room.summary(&story.settings, story.now).full);
    story.waits(3);
    // A ticket that came back once keeps its place in the count, however silent it is now.
    story.waits(3);
    story.pass(60_000, &[2]);
    assert_eq!(story.state(3), Some(State::Away));
    story.waits(4);
    assert_eq!(story.asks(5), Answer::Full);
}
