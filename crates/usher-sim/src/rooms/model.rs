//! A second, simpler telling of a waiting room: lists that are walked, nothing indexed or bounded.

use std::collections::BTreeMap;
use usher_core::admission::{
    Answer, Entry, Method, Pacing, Person, Renewal, Room, Settings, State, Visitor,
};

/// What the model expects an answer to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Told {
    /// Let in, with a seat that ends for its holder then.
    In(Entry, u64),
    /// A ticket and a position.
    Line(u64, u64),
    /// Turned away, told that the line is full, or not the room's.
    Other(Answer),
}

impl Told {
    /// What an answer of the room says.
    #[must_use]
    pub fn of(answer: &Answer) -> Told {
        match answer {
            Answer::Forward(seat) => Told::In(seat.how, seat.lease_until),
            Answer::Wait(place) => Told::Line(place.ticket, place.position),
            other => Told::Other(*other),
        }
    }
}

/// The model's own account of everybody.
#[derive(Debug, Default)]
pub struct Model {
    people: BTreeMap<Visitor, Person>,
    admissions: Vec<u64>,
    last_ticket: u64,
    ghosts: (u64, u64),
    per_minute: Vec<(u64, u64)>,
}

impl Model {
    /// After a crash: what is left is what the room says.
    pub fn adopt(&mut self, room: &Room, visitors: &[Visitor], now: u64, ghosts_until: u64) {
        self.people = (visitors.iter())
            .filter_map(|visitor| Some((*visitor, room.find(*visitor)?)))
            .collect();
        let counts = room.counts();
        self.ghosts = (counts.ghosts, ghosts_until);
        self.last_ticket = self.last_ticket.max(now * 1000);
    }

    /// Admissions that the room counts and the model has not seen.
    pub fn count(&mut self, at: u64, admissions: u64) {
        for _ in 0..admissions {
            self.admissions.push(at);
        }
    }

    /// Present visitors for whom no seat is reserved, by ticket.
    fn present(&self) -> Vec<(u64, Visitor)> {
        let mut present: Vec<(u64, Visitor)> = (self.people.values())
            .filter(|person| person.state == State::Present)
            .map(|person| (person.ticket, person.visitor))
            .collect();
        present.sort_unstable();
        present
    }

    fn count_of(&self, state: State) -> u64 {
        self.people
            .values()
            .filter(|person| person.state == state)
            .count() as u64
    }

    fn window(&self, now: u64) -> u64 {
        let second = now / 1000;
        (self.admissions.iter())
            .filter(|at| *at / 1000 + 61 > second)
            .count() as u64
    }

    fn waits(&self, visitor: Visitor) -> bool {
        (self.people.get(&visitor)).is_some_and(|person| person.state == State::Present)
    }

    /// Seats that may be given or reserved now.
    fn slots(&self, settings: &Settings, now: u64) -> u64 {
        assert_eq!(settings.pacing, Pacing::Burst, "the model knows no other");
        let called = self.count_of(State::Called);
        let taken = self.count_of(State::Seated) + called + self.ghosts.0;
        let seats = settings.total.saturating_sub(taken);
        let flow = settings
            .per_minute
            .saturating_sub(self.window(now) + called);
        if settings.queue_all || settings.suspended {
            0
        } else {
            seats.min(flow)
        }
    }

    /// Time passes: all that is over ends.
    pub fn tidy(&mut self, settings: &Settings, now: u64) {
        if self.per_minute.last().map_or(0, |(_, limit)| *limit) != settings.per_minute {
            self.per_minute.push((now, settings.per_minute));
        }
        if self.ghosts.1 <= now {
            self.ghosts.0 = 0;
        }
        self.people
            .retain(|_, person| person.state != State::Seated || now < person.until);
        for person in self.people.values_mut() {
            let silence = now.saturating_sub(person.seen);
            if person.state == State::Called && now >= person.until {
                person.state = State::Away;
            }
            if person.state == State::Called && settings.queue_all {
                person.state = State::Present;
                person.seen = now;
                continue;
            }
            if person.state == State::Present && silence > settings.present_ms {
                person.state = State::Away;
            }
        }
        let hold = settings.hold_ms;
        self.people.retain(|_, person| {
            person.state != State::Away || now.saturating_sub(person.seen) <= hold
        });
    }

    /// Seats are reserved for the first in line; of a draw, for those whom the room drew.
    pub fn call(&mut self, settings: &Settings, now: u64, drawn: &[Visitor]) {
        let mut drawn = drawn.iter().copied();
        while self.slots(settings, now) > 0 {
            let next = match settings.method {
                Method::Fifo => self.present().first().map(|(_, visitor)| *visitor),
                Method::Random => drawn.find(|visitor| self.waits(*visitor)),
                Method::Passthrough | Method::Reject => None,
            };
            let Some(person) = next.and_then(|visitor| self.people.get_mut(&visitor)) else {
                break;
            };
            person.state = State::Called;
            person.until = now + settings.claim_ms;
        }
    }

    /// One visitor asks.
    pub fn ask(
        &mut self,
        settings: &Settings,
        now: u64,
        visitor: Visitor,
        drawn: &[Visitor],
    ) -> Told {
        self.tidy(settings, now);
        let told = self.answer(settings, now, visitor, drawn);
        self.call(settings, now, drawn);
        told
    }

    fn answer(
        &mut self,
        settings: &Settings,
        now: u64,
        visitor: Visitor,
        drawn: &[Visitor],
    ) -> Told {
        if settings.suspended {
            return Told::Other(Answer::Suspended);
        }
        let known = self.people.get(&visitor).copied();
        if let Some(person) = known.filter(|person| person.state == State::Seated) {
            // One that cannot be renewed ends a second before the room gives it away.
            if !person.fixed || now + 1000 < person.until {
                return self.renew(settings, now, visitor);
            }
            self.people.remove(&visitor);
        }
        let known = self.people.get(&visitor).copied();
        if !settings.queue_all {
            match settings.method {
                Method::Reject => return Told::Other(Answer::Reject),
                Method::Passthrough => {
                    return self.seat(settings, now, visitor, Entry::Passthrough);
                }
                Method::Fifo | Method::Random => {}
            }
        }
        if let Some(person) = self.people.get_mut(&visitor) {
            if person.state != State::Called {
                person.state = State::Present;
                person.seen = now;
            }
            self.call(settings, now, drawn);
            let called = self.people[&visitor].state == State::Called;
            if called && !settings.queue_all && self.window(now) < self.claims_max(now) {
                return self.seat(settings, now, visitor, Entry::Called);
            }
            return self.place(visitor);
        }
        debug_assert!(known.is_none());
        self.call(settings, now, drawn);
        if self.slots(settings, now) > 0 && self.present().is_empty() {
            return self.seat(settings, now, visitor, Entry::Direct);
        }
        let waiting = self.count_of(State::Present) + self.count_of(State::Away);
        if settings.queue_len_max > 0 && waiting >= settings.queue_len_max {
            return Told::Other(Answer::Full);
        }
        self.last_ticket = (self.last_ticket + 1).max(now * 1000);
        self.people.insert(
            visitor,
            Person {
                visitor,
                state: State::Present,
                ticket: self.last_ticket,
                seen: now,
                until: 0,
                generation: 0,
                fixed: false,
                confirmed: false,
            },
        );
        self.place(visitor)
    }

    /// The greatest limit of the last minute.
    fn claims_max(&self, now: u64) -> u64 {
        let last = self.per_minute.len().saturating_sub(1);
        let before = last.checked_sub(1).map(|at| self.per_minute[at].1);
        let (since, limit) = self.per_minute.get(last).copied().unwrap_or((0, 0));
        match before {
            Some(before) if now < since + 60_000 => limit.max(before),
            _ => limit,
        }
    }

    fn place(&self, visitor: Visitor) -> Told {
        let ticket = self.people[&visitor].ticket;
        let lower = self
            .present()
            .iter()
            .filter(|(other, _)| *other < ticket)
            .count();
        Told::Line(ticket, lower as u64 + 1)
    }

    fn seat(&mut self, settings: &Settings, now: u64, visitor: Visitor, how: Entry) -> Told {
        self.admissions.push(now);
        let ticket = self.people.get(&visitor).map_or(0, |person| person.ticket);
        let until = now + settings.lease_ms() + 1000;
        self.people.insert(
            visitor,
            Person {
                visitor,
                state: State::Seated,
                ticket,
                seen: now,
                until,
                generation: 0,
                fixed: settings.renewal == Renewal::Never,
                confirmed: false,
            },
        );
        Told::In(how, until - 1000)
    }

    fn renew(&mut self, settings: &Settings, now: u64, visitor: Visitor) -> Told {
        let person = self.people.get_mut(&visitor).expect("it was found");
        if !person.fixed && settings.renewal != Renewal::Never {
            person.seen = now;
            person.until = person.until.max(now + settings.lease_ms() + 1000);
        }
        Told::In(Entry::Held, person.until - 1000)
    }

    /// A renewal beside a request; whether there was a seat.
    pub fn renew_beside(&mut self, settings: &Settings, now: u64, visitor: Visitor) -> Told {
        self.tidy(settings, now);
        match self.people.get(&visitor) {
            Some(person) if person.state == State::Seated => self.renew(settings, now, visitor),
            _ => Told::Other(Answer::Ended),
        }
    }

    /// Waiting visitors were heard of.
    pub fn check_in(
        &mut self,
        settings: &Settings,
        now: u64,
        visitors: &[Visitor],
        drawn: &[Visitor],
    ) {
        for visitor in visitors {
            let Some(person) = self.people.get_mut(visitor) else {
                continue;
            };
            let silence = now.saturating_sub(person.seen);
            if matches!(person.state, State::Present | State::Away) {
                if silence > settings.hold_ms {
                    self.people.remove(visitor);
                } else {
                    person.state = State::Present;
                    person.seen = now;
                }
            }
        }
        self.tick(settings, now, drawn);
    }

    /// A seat or a ticket is given up.
    pub fn end(&mut self, settings: &Settings, now: u64, visitor: Visitor, drawn: &[Visitor]) {
        self.people.remove(&visitor);
        self.tick(settings, now, drawn);
    }

    /// Time passes.
    pub fn tick(&mut self, settings: &Settings, now: u64, drawn: &[Visitor]) {
        self.tidy(settings, now);
        self.call(settings, now, drawn);
    }
}
