//! Judges a room by its log, event by event, against the invariants of the specification.
//!
//! It knows what each event is said to mean and nothing of how the room decides: the sets here are
//! plain, so that a mistake of the room's is not made once more. What the log does not hold, who was
//! there at which time, the visitors tell ([`super::witness`]).

use std::collections::BTreeMap;
use std::fmt;

use usher_core::admission::{Change, Effect, End, Entry, Visitor};
use usher_rooms::owner::Event;

/// A change of limits may act so much later than it was asked for, ms.
const CHANGE_MS: u64 = 2_000;
const MINUTE_MS: u64 = 60_000;
/// Waiting visitors are forgiven so much down time, ms.
const DOWN_MAX_MS: u64 = 600_000;

/// What an operator said.
#[derive(Debug, Clone)]
pub struct Rules {
    /// Limits, and from when each may be in force, oldest first.
    pub limits: Vec<(u64, Limits)>,
    /// Whether the lowest ticket comes first.
    pub fifo: bool,
    /// Silence after which nobody is called, ms.
    pub present_ms: u64,
    /// Silence after which a ticket is void, ms.
    pub hold_ms: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    pub total: u64,
    pub per_minute: u64,
}

impl Rules {
    pub fn of(total: u64, per_minute: u64) -> Rules {
        Rules {
            limits: vec![(0, Limits { total, per_minute })],
            fifo: true,
            present_ms: 45_000,
            hold_ms: 300_000,
        }
    }

    /// The greatest of a limit that may have been in force at any time from `from` to `to`.
    pub fn most(&self, from: u64, to: u64, of: impl Fn(&Limits) -> u64) -> u64 {
        let from = from.saturating_sub(CHANGE_MS);
        let ends = self.limits.iter().skip(1).map(|(at, _)| *at);
        (self.limits.iter())
            .zip(ends.chain([u64::MAX]))
            .filter(|((began, _), ended)| *began <= to && *ended >= from)
            .map(|((_, limits), _)| of(limits))
            .max()
            .expect("limits from the beginning on")
    }
}

/// The invariants.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Invariant {
    /// S: never more seats than the limit.
    Seats,
    /// R: never more admissions in any minute than the limit.
    Rate,
    /// F: whoever came first, and stayed, is called first.
    Order,
    /// U: one seat and one ticket for a visitor, one holder for each.
    Uniqueness,
    /// L: nobody loses what it was told it has.
    Loss,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Breach {
    pub of: Invariant,
    /// When, ms since the Unix epoch.
    pub at: u64,
    pub text: String,
}

impl fmt::Display for Breach {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} at {}: {}", self.of, self.at, self.text)
    }
}

/// A seat as the log has it.
#[derive(Debug, Clone, Copy)]
pub struct Held {
    pub from: u64,
    /// `u64::MAX` while it is held.
    pub to: u64,
}

/// What the log says, for those who compare it with what they saw.
#[derive(Debug, Default)]
pub struct Account {
    pub breaches: Vec<Breach>,
    pub admissions: Vec<u64>,
    pub seats: BTreeMap<Visitor, Vec<Held>>,
    /// All tickets, and whose they are.
    pub tickets: BTreeMap<u64, Visitor>,
    pub calls: Vec<(u64, Visitor)>,
    /// Calls that nobody followed.
    pub late: Vec<u64>,
    /// When the room came back from a crash, and with how many ghosts.
    pub recoveries: Vec<(u64, u64)>,
    pub remembered: usize,
    /// Most seats at once, reserved ones and ghosts among them.
    pub seats_max: u64,
    /// Most admissions of one minute.
    pub minute_max: u64,
    /// Most who waited at once.
    pub line_max: u64,
}

struct Call {
    ticket: u64,
    until: u64,
    total: u64,
}

struct Seat {
    until: u64,
}

struct Judge<'a> {
    rules: &'a Rules,
    present: &'a dyn Fn(Visitor, u64) -> bool,
    now: u64,
    seats: BTreeMap<Visitor, Seat>,
    calls: BTreeMap<Visitor, Call>,
    line: BTreeMap<u64, Visitor>,
    ticket_of: BTreeMap<Visitor, u64>,
    last_ticket: u64,
    admitted: u64,
    allowed: u64,
    closed: bool,
    ghosts: u64,
    ghosts_until: u64,
    account: Account,
}

/// Judges all of a log. `present` says of a visitor whether it was certainly heard of lately at a
/// time, so that it may not be passed over.
pub fn judge(rules: &Rules, events: &[Event], present: &dyn Fn(Visitor, u64) -> bool) -> Account {
    let mut judge = Judge {
        rules,
        present,
        now: 0,
        seats: BTreeMap::new(),
        calls: BTreeMap::new(),
        line: BTreeMap::new(),
        ticket_of: BTreeMap::new(),
        last_ticket: 0,
        admitted: 0,
        allowed: 0,
        closed: false,
        ghosts: 0,
        ghosts_until: 0,
        account: Account::default(),
    };
    for event in events {
        judge.hear(event);
    }
    judge.minutes();
    judge.account
}

impl Judge<'_> {
    fn breach(&mut self, of: Invariant, text: String) {
        let at = self.now;
        self.account.breaches.push(Breach { of, at, text });
    }

    fn hear(&mut self, event: &Event) {
        match event {
            Event::Changed(effect) => self.change(effect),
            Event::Allowed { admitted_max } => {
                self.closed = false;
                self.allowed = *admitted_max;
            }
            Event::Closed => self.closed = true,
        }
    }

    fn change(&mut self, effect: &Effect) {
        if effect.at < self.now {
            let back = self.now - effect.at;
            self.breach(Invariant::Order, format!("time goes back by {back} ms"));
        }
        self.now = self.now.max(effect.at);
        match effect.change {
            Change::Seated {
                visitor,
                how,
                until,
                ..
            } => self.seated(visitor, how, until),
            Change::Renewed { visitor, until } => match self.seats.get_mut(&visitor) {
                Some(seat) => seat.until = seat.until.max(until),
                None => self.breach(
                    Invariant::Uniqueness,
                    format!("{visitor:?} has no seat, and renews it"),
                ),
            },
            Change::Ended { visitor, cause } => self.ended(visitor, cause),
            Change::Queued { visitor, ticket } => self.queued(visitor, ticket),
            Change::Gone { visitor, .. } => self.gone(visitor),
            Change::Called { visitor, until } => self.called(visitor, until),
            Change::Uncalled { visitor, late } => self.uncalled(visitor, late),
            Change::PerMinute { limit } => {
                let most = self
                    .rules
                    .most(self.now, self.now, |limits| limits.per_minute);
                if limit > most {
                    self.breach(Invariant::Rate, format!("{limit} a minute, of {most}"));
                }
            }
            Change::GhostsEnded => {
                if self.now < self.ghosts_until {
                    let (ghosts, until) = (self.ghosts, self.ghosts_until);
                    self.breach(
                        Invariant::Seats,
                        format!("{ghosts} ghosts end before {until}"),
                    );
                }
                self.ghosts = 0;
            }
            Change::Recovered {
                ghosts,
                until,
                seats_until_min,
                down_ms,
                last_ticket,
            } => {
                self.recovered(ghosts, until, seats_until_min, down_ms);
                self.last_ticket = self.last_ticket.max(last_ticket);
            }
            Change::Present { .. } | Change::Away { .. } | Change::Alive => {}
            Change::Person(_)
            | Change::Admissions { .. }
            | Change::Lost { .. }
            | Change::Left { .. }
            | Change::Counters { .. } => {
                self.breach(
                    Invariant::Loss,
                    "a snapshot's record stands in a log".to_owned(),
                );
            }
        }
    }

    /// Seats that are held, reserved or kept free.
    fn taken(&self) -> u64 {
        (self.seats.len() + self.calls.len()) as u64 + self.ghosts
    }

    fn total(&self) -> u64 {
        self.rules.most(self.now, self.now, |limits| limits.total)
    }

    fn seated(&mut self, visitor: Visitor, how: Entry, until: u64) {
        if self.seats.contains_key(&visitor) {
            self.breach(
                Invariant::Uniqueness,
                format!("{visitor:?} gets a second seat"),
            );
        }
        let call = self.calls.remove(&visitor);
        let ticket = self.ticket_of.remove(&visitor);
        if let Some(ticket) = ticket {
            self.line.remove(&ticket);
        }
        self.seats.insert(visitor, Seat { until });
        self.account.seats.entry(visitor).or_default().push(Held {
            from: self.now,
            to: u64::MAX,
        });
        match how {
            Entry::Direct => {
                if let Some((first, _)) = self.passed_over(u64::MAX) {
                    self.breach(
                        Invariant::Order,
                        format!("{visitor:?} enters at once, and ticket {first} waits"),
                    );
                }
                if ticket.is_some() {
                    self.breach(
                        Invariant::Order,
                        format!("{visitor:?} waits, and enters without a call"),
                    );
                }
                self.bound(self.total(), "by a direct admission");
            }
            Entry::Called => match call {
                Some(call) if self.now >= call.until => self.breach(
                    Invariant::Seats,
                    format!("{visitor:?} claims what was reserved until {}", call.until),
                ),
                Some(call) => self.claimed(self.total().max(call.total)),
                None => self.breach(
                    Invariant::Order,
                    format!("{visitor:?} claims a seat and was not called"),
                ),
            },
            Entry::Remembered => {
                self.account.remembered += 1;
                if self.ghosts == 0 {
                    self.breach(
                        Invariant::Seats,
                        format!("{visitor:?} has a seat back, and none is missing"),
                    );
                }
                self.ghosts = self.ghosts.saturating_sub(1);
            }
            Entry::Passthrough => {}
            Entry::Held => self.breach(
                Invariant::Uniqueness,
                format!("{visitor:?} is seated in what it holds"),
            ),
        }
        if how != Entry::Remembered {
            self.admitted += 1;
            if how != Entry::Passthrough {
                self.account.admissions.push(self.now);
            }
        }
    }

    fn bound(&mut self, total: u64, by: &str) {
        let taken = self.taken();
        self.account.seats_max = self.account.seats_max.max(taken);
        if taken > total {
            self.breach(
                Invariant::Seats,
                format!("{taken} seats of {total} are taken {by}"),
            );
        }
    }

    /// What was reserved is held now: nothing more is taken. A reserved seat outlives a lowered limit,
    /// and a crash, after which it may be that of a ghost as well.
    fn claimed(&mut self, total: u64) {
        let held = self.seats.len() as u64;
        if held > total {
            self.breach(
                Invariant::Seats,
                format!("{held} seats of {total} are held"),
            );
        }
    }

    /// The first in line with a lower ticket who was certainly there.
    fn passed_over(&self, ticket: u64) -> Option<(u64, Visitor)> {
        if !self.rules.fifo {
            return None;
        }
        let mut lower = self.line.range(..ticket);
        let found = lower.find(|(_, visitor)| (self.present)(**visitor, self.now));
        found.map(|(ticket, visitor)| (*ticket, *visitor))
    }

    fn ended(&mut self, visitor: Visitor, cause: End) {
        let Some(seat) = self.seats.remove(&visitor) else {
            return self.breach(
                Invariant::Uniqueness,
                format!("{visitor:?} has no seat, and it ends"),
            );
        };
        if matches!(cause, End::Idle | End::Fixed) && self.now < seat.until {
            self.breach(
                Invariant::Loss,
                format!("the seat of {visitor:?} ends before {}", seat.until),
            );
        }
        let held = self
            .account
            .seats
            .get_mut(&visitor)
            .and_then(|all| all.last_mut());
        held.expect("it was noted").to = self.now;
    }

    fn queued(&mut self, visitor: Visitor, ticket: u64) {
        if self.seats.contains_key(&visitor) || self.ticket_of.contains_key(&visitor) {
            self.breach(
                Invariant::Uniqueness,
                format!("{visitor:?} is in the room, and gets ticket {ticket}"),
            );
        }
        match self.account.tickets.get(&ticket) {
            Some(owner) if *owner != visitor => self.breach(
                Invariant::Uniqueness,
                format!("ticket {ticket} is that of {owner:?} and of {visitor:?}"),
            ),
            Some(_) => {}
            // One that a crash took out of the log comes back with its number.
            None if ticket <= self.last_ticket && self.account.recoveries.is_empty() => {
                let last = self.last_ticket;
                self.breach(
                    Invariant::Order,
                    format!("ticket {ticket} is given after {last}"),
                );
            }
            None => {}
        }
        self.last_ticket = self.last_ticket.max(ticket);
        self.account.tickets.insert(ticket, visitor);
        self.line.insert(ticket, visitor);
        self.account.line_max = self.account.line_max.max(self.line.len() as u64);
        self.ticket_of.insert(visitor, ticket);
    }

    fn gone(&mut self, visitor: Visitor) {
        self.calls.remove(&visitor);
        match self.ticket_of.remove(&visitor) {
            Some(ticket) => {
                self.line.remove(&ticket);
            }
            None => self.breach(
                Invariant::Uniqueness,
                format!("{visitor:?} has no ticket, and it is void"),
            ),
        }
    }

    fn called(&mut self, visitor: Visitor, until: u64) {
        let Some(&ticket) = self.ticket_of.get(&visitor) else {
            return self.breach(
                Invariant::Order,
                format!("{visitor:?} has no ticket, and is called"),
            );
        };
        if self.line.remove(&ticket).is_none() {
            self.breach(
                Invariant::Uniqueness,
                format!("{visitor:?} is called twice"),
            );
        }
        if let Some((first, who)) = self.passed_over(ticket) {
            self.breach(
                Invariant::Order,
                format!("ticket {ticket} is called, and {first} of {who:?} waits"),
            );
        }
        let total = self.total();
        self.calls.insert(
            visitor,
            Call {
                ticket,
                until,
                total,
            },
        );
        self.account.calls.push((self.now, visitor));
        self.bound(total, "by a call");
    }

    fn uncalled(&mut self, visitor: Visitor, late: bool) {
        let Some(call) = self.calls.remove(&visitor) else {
            return self.breach(
                Invariant::Uniqueness,
                format!("{visitor:?} is not called, and no longer is"),
            );
        };
        if late {
            self.account.late.push(self.now);
            if self.now < call.until {
                self.breach(
                    Invariant::Loss,
                    format!("the call of {visitor:?} ends before {}", call.until),
                );
            }
        }
        self.line.insert(call.ticket, visitor);
    }

    fn recovered(&mut self, ghosts: u64, until: u64, seats_until_min: u64, down_ms: u64) {
        let missing = if self.closed {
            0
        } else {
            self.allowed.saturating_sub(self.admitted)
        };
        if ghosts < missing {
            self.breach(
                Invariant::Seats,
                format!("{missing} admissions may be missing, and {ghosts} are counted"),
            );
        }
        self.ghosts += ghosts;
        self.ghosts_until = self.ghosts_until.max(until);
        self.admitted += ghosts;
        for seat in self.seats.values_mut() {
            seat.until = seat.until.max(seats_until_min);
        }
        for call in self.calls.values_mut() {
            call.until += down_ms.min(DOWN_MAX_MS);
        }
        self.account.recoveries.push((self.now, ghosts));
    }

    /// R: any minute is at its fullest when somebody has just entered.
    fn minutes(&mut self) {
        let times = std::mem::take(&mut self.account.admissions);
        let mut first = 0;
        for (place, &at) in times.iter().enumerate() {
            while times[first] + MINUTE_MS <= at {
                first += 1;
            }
            let count = (place + 1 - first) as u64;
            self.account.minute_max = self.account.minute_max.max(count);
            let from = at.saturating_sub(MINUTE_MS);
            let most = self.rules.most(from, at, |limits| limits.per_minute);
            if count > most {
                self.now = at;
                self.breach(
                    Invariant::Rate,
                    format!("{count} admissions in a minute, of {most}"),
                );
            }
        }
        self.account.admissions = times;
    }
}

#[cfg(test)]
mod tests {
    use usher_core::admission::{Command, Method, Room, Settings};

    use super::*;

    const START: u64 = 1_796_119_200_000;

    fn who(number: u128) -> Visitor {
        Visitor::from_u128(number)
    }

    fn at(after: u64, change: Change) -> Event {
        Event::Changed(Effect {
            at: START + after,
            change,
        })
    }

    fn seated(after: u64, number: u128, how: Entry) -> Event {
        at(
            after,
            Change::Seated {
                visitor: who(number),
                how,
                until: START + after + 60_000,
                fixed: false,
            },
        )
    }

    fn queued(after: u64, number: u128, ticket: u64) -> Event {
        at(
            after,
            Change::Queued {
                visitor: who(number),
                ticket,
            },
        )
    }

    fn called(after: u64, number: u128) -> Event {
        at(
            after,
            Change::Called {
                visitor: who(number),
                until: START + after + 45_000,
            },
        )
    }

    fn ended(after: u64, number: u128, cause: End) -> Event {
        at(
            after,
            Change::Ended {
                visitor: who(number),
                cause,
            },
        )
    }

    fn recovered(after: u64, ghosts: u64) -> Event {
        at(
            after,
            Change::Recovered {
                ghosts,
                until: START + after + 60_000,
                seats_until_min: 0,
                down_ms: 0,
                last_ticket: 0,
            },
        )
    }

    /// Two seats; 1 and 2 enter, 3 and 4 wait, 1 leaves, 3 is called and enters.
    fn sound() -> Vec<Event> {
        vec![
            Event::Allowed { admitted_max: 3 },
            seated(0, 1, Entry::Direct),
            seated(1, 2, Entry::Direct),
            queued(2, 3, 10),
            queued(3, 4, 11),
            ended(100, 1, End::Left),
            called(100, 3),
            seated(200, 3, Entry::Called),
        ]
    }

    fn found(rules: &Rules, events: &[Event]) -> Vec<Invariant> {
        let account = judge(rules, events, &|_, _| true);
        let mut found: Vec<Invariant> = account.breaches.iter().map(|one| one.of).collect();
        found.dedup();
        found
    }

    #[test]
    fn a_sound_log_is_without_a_breach() {
        assert_eq!(found(&Rules::of(2, 3), &sound()), []);
        let account = judge(&Rules::of(2, 3), &sound(), &|_, _| true);
        assert_eq!((account.seats_max, account.minute_max), (2, 3));
    }

    #[test]
    fn each_kind_of_breach_is_found() {
        use Invariant::{Loss, Order, Rate, Seats, Uniqueness};
        let with = |more: &[Event]| [&sound()[..], more].concat();
        let without = |place: usize| {
            let mut events = sound();
            events.remove(place);
            events
        };
        let rows: Vec<(&str, Vec<Event>, &[Invariant])> = vec![
            ("the seat was not free", without(5), &[Seats]),
            ("a seat that was not reserved", without(6), &[Order]),
            ("a call of one who has no ticket", without(3), &[Order]),
            ("nobody waits for 4", with(&[called(300, 5)]), &[Order]),
            (
                "4 is called before its turn",
                vec![queued(0, 3, 10), queued(1, 4, 11), called(2, 4)],
                &[Order],
            ),
            (
                "one enters past those who wait",
                vec![queued(0, 3, 10), seated(1, 4, Entry::Direct)],
                &[Order],
            ),
            (
                "tickets fall",
                vec![queued(0, 3, 10), queued(1, 4, 9)],
                &[Order],
            ),
            (
                "time goes back",
                vec![queued(5, 3, 10), queued(4, 4, 11)],
                &[Order],
            ),
            (
                "a ticket is given twice",
                vec![queued(0, 3, 10), queued(1, 4, 10)],
                &[Uniqueness],
            ),
            (
                "two tickets for one",
                vec![queued(0, 3, 10), queued(1, 3, 11)],
                &[Uniqueness],
            ),
            (
                "two seats for one",
                vec![seated(0, 1, Entry::Direct), seated(1, 1, Entry::Direct)],
                &[Uniqueness],
            ),
            (
                "a seat that is not there ends",
                vec![ended(0, 1, End::Left)],
                &[Uniqueness],
            ),
            (
                "a seat is taken too early",
                vec![seated(0, 1, Entry::Direct), ended(59_999, 1, End::Idle)],
                &[Loss],
            ),
            (
                "a call is taken back too early",
                vec![
                    queued(0, 3, 10),
                    called(1, 3),
                    at(
                        45_000,
                        Change::Uncalled {
                            visitor: who(3),
                            late: true,
                        },
                    ),
                ],
                &[Loss],
            ),
            (
                "a crash that forgets what was allowed for",
                with(&[Event::Allowed { admitted_max: 4 }, recovered(300, 0)]),
                &[Seats],
            ),
            (
                "a seat given while a ghost has it",
                vec![
                    Event::Allowed { admitted_max: 1 },
                    recovered(0, 1),
                    seated(1, 1, Entry::Direct),
                    seated(2, 2, Entry::Direct),
                ],
                &[Seats],
            ),
            (
                "a seat remembered that was never given",
                vec![seated(0, 1, Entry::Remembered)],
                &[Seats],
            ),
            (
                "ghosts that end early",
                vec![
                    Event::Allowed { admitted_max: 1 },
                    recovered(0, 1),
                    at(59_999, Change::GhostsEnded),
                ],
                &[Seats],
            ),
            (
                "a fourth within the minute",
                with(&[
                    ended(300, 2, End::Left),
                    called(20_000, 4),
                    seated(59_999, 4, Entry::Called),
                ]),
                &[Rate],
            ),
            (
                "a fourth when the minute is over",
                with(&[
                    ended(300, 2, End::Left),
                    called(20_000, 4),
                    seated(60_000, 4, Entry::Called),
                ]),
                &[],
            ),
            (
                "a claim that comes too late",
                with(&[
                    ended(300, 2, End::Left),
                    called(300, 4),
                    seated(45_300, 4, Entry::Called),
                ]),
                &[Seats, Rate],
            ),
        ];
        for (name, events, expected) in rows {
            assert_eq!(found(&Rules::of(2, 3), &events), expected, "{name}");
        }
    }

    #[test]
    fn only_who_was_there_may_not_be_passed_over() {
        let events = [queued(0, 3, 10), queued(1, 4, 11), called(2, 4)];
        let away = judge(&Rules::of(2, 3), &events, &|visitor, _| visitor == who(4));
        assert_eq!(away.breaches, []);
    }

    #[test]
    fn a_limit_that_was_lowered_evicts_nobody() {
        let limits = |total, per_minute| Limits { total, per_minute };
        let mut rules = Rules::of(2, 3);
        rules.limits = vec![(0, limits(3, 3)), (START + 10_000, limits(1, 3))];
        let all = [
            seated(0, 1, Entry::Direct),
            seated(1, 2, Entry::Direct),
            queued(2, 3, 10),
            called(3, 3),
            seated(20_000, 3, Entry::Called),
        ];
        assert_eq!(found(&rules, &all), []);
        let more = [&all[..], &[seated(70_000, 4, Entry::Direct)]].concat();
        assert_eq!(found(&rules, &more), [Invariant::Seats]);
    }

    /// A real room under a rush: by its own rules there is nothing to find, by stricter ones there is.
    #[test]
    fn a_room_breaks_rules_that_it_was_not_given() {
        let run = |method: Method| {
            let mut settings = Settings::new(5, 20).session(5_000);
            settings.method = method;
            let mut room = Room::default();
            let (mut effects, mut draw) = (Vec::new(), 7_u64);
            for tick in 0..2_000_u64 {
                let now = START + tick * 50;
                draw = draw.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                let visitor = who(u128::from(tick % 200 + 1));
                let claims = None;
                let ask = Command::Ask { visitor, claims };
                room.step(&settings, now, draw, ask, &mut effects);
            }
            let durable = effects.into_iter().filter(Effect::is_durable);
            durable.map(Event::Changed).collect::<Vec<Event>>()
        };
        let fifo = run(Method::Fifo);
        assert_eq!(found(&Rules::of(5, 20), &fifo), []);
        assert!(found(&Rules::of(4, 20), &fifo).contains(&Invariant::Seats));
        assert!(found(&Rules::of(5, 19), &fifo).contains(&Invariant::Rate));
        let random = run(Method::Random);
        assert!(found(&Rules::of(5, 20), &random).contains(&Invariant::Order));
        let mut rules = Rules::of(5, 20);
        rules.fifo = false;
        assert_eq!(found(&rules, &random), []);
    }
}
