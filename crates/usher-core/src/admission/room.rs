//! The room: one decision at a time.

use std::collections::BTreeMap;

use super::line::Line;
use super::people::{PEOPLE_MAX, People};
use super::ranked::Ranked;
use super::rates::Rates;
use super::recover::Lost;
use super::settings::{CLOCK_ERROR_MS, Copies, Method, Pacing, Renewal, Settings};
use super::window::Window;
use super::{
    Answer, Change, Claims, Command, Effect, End, Entry, Person, Place, Seat, Stamp, Standing,
    State, Visitor,
};
use crate::chance::Chance;

/// Seats, reservations and tickets that a step may tidy or hand out besides its own work.
const WORK: u32 = 64;
/// And a tick, which nobody waits for.
const WORK_OF_TICK: u32 = 4096;
/// Seats that were ended before their time and are still remembered. One more is not ended: it is
/// free when its holder has been idle for long enough.
const LEFT_MAX: usize = 65_536;
/// A cookie so many renewals behind the seat is an old copy,
const COPY_BEHIND: u32 = 2;
/// if it is as old as this, ms: requests that were on their way together are not.
const COPY_AGE_MS: u64 = 60_000;
const MINUTE_MS: u64 = 60_000;
/// A journal is never silent for longer while anybody is in the room, but for a tick, ms.
pub(super) const ALIVE_EVERY_MS: u64 = 1_000;

/// The live state of one waiting room. See the module for how it is driven.
#[derive(Debug, Clone, Default)]
pub struct Room {
    pub(super) people: People,
    pub(super) line: Line,
    /// Reservations by their end.
    pub(super) calls: Ranked,
    /// Seats by their end.
    pub(super) seats: Ranked,
    /// Of them, those that cannot be renewed.
    pub(super) seats_fixed: u64,
    pub(super) window: Window,
    /// Calls and direct admissions of the present second, for [`Pacing::Smooth`].
    paced: (u64, u64),
    pub(super) clock: u64,
    /// Of the last durable effect, ms.
    durable_at: u64,
    pub(super) stamp: Stamp,
    pub(super) last_ticket: u64,
    pub(super) admitted: u64,
    pub(super) ghosts: u64,
    pub(super) ghosts_until: u64,
    pub(super) per_minute: u64,
    pub(super) per_minute_before: (u64, u64),
    pub(super) lost: Vec<Lost>,
    /// Whose seats were ended before their time, and until when their cookies look good, ms.
    pub(super) left: BTreeMap<Visitor, u64>,
    /// The epoch whose end a damaged journal has lost. Known to the process that found it so.
    pub(super) torn: Option<u64>,
    /// Only for estimates: not part of the state that a replay restores.
    pub(super) rates: Rates,
}

/// How full a room is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    /// Seats held.
    pub seated: u64,
    /// Seats reserved.
    pub called: u64,
    /// Seats kept free after a crash.
    pub ghosts: u64,
    /// Waiting and heard of lately.
    pub present: u64,
    /// Waiting and silent.
    pub away: u64,
    /// Admissions that count against this minute.
    pub window: u64,
    /// Admissions ever.
    pub admitted: u64,
}

impl Room {
    /// One decision. `now` is in ms since the Unix epoch, `draw` 64 random bits; what happened is
    /// appended to `effects`.
    ///
    /// Takes O(log n) time for n people, and tidies at most 64 others (4,096 in a tick); a table
    /// that has to grow is the exception.
    pub fn step(
        &mut self,
        settings: &Settings,
        now: u64,
        draw: u64,
        command: Command<'_>,
        effects: &mut Vec<Effect>,
    ) -> Answer {
        let mut step = Step {
            now: now.max(self.clock),
            settings,
            chance: Chance::new(draw),
            work: WORK,
            effects,
            room: self,
        };
        step.room.window.advance(step.now);
        match command {
            Command::Ask { visitor, claims } => step.ask(visitor, claims),
            Command::Renew { visitor, claims } => step.renew_beside(visitor, claims),
            Command::CheckIn(visitors) => step.check_in(visitors),
            Command::End { visitor, cause } => step.end(visitor, cause),
            Command::Tick => step.tick(),
            Command::Recover {
                admitted_max,
                tail_ms,
                torn,
            } => step.recover(admitted_max, tail_ms, torn),
        }
    }

    /// Replays one effect. An effect that has no sense in this state, which a journal that was
    /// written by [`Room::step`] cannot hold, changes nothing but the sequence.
    pub fn apply(&mut self, effect: &Effect) {
        self.clock = self.clock.max(effect.at);
        self.window.advance(self.clock);
        let now = self.clock;
        if effect.is_durable() {
            self.stamp.sequence += 1;
            self.durable_at = now;
        }
        match effect.change {
            Change::Seated {
                visitor,
                how,
                until,
                fixed,
            } => {
                if matches!(how, Entry::Remembered) && self.ghosts > 0 {
                    self.ghosts -= 1;
                } else {
                    self.admitted += 1;
                    self.window.add(now, 1);
                }
                if matches!(how, Entry::Direct) {
                    self.pace(now);
                }
                self.left.remove(&visitor);
                let before = self.people.find(visitor).map(|slot| self.take(slot));
                if let Some(waited) = before {
                    self.rates.entered(now, &waited);
                }
                self.put(Person {
                    visitor,
                    state: State::Seated,
                    ticket: before.map_or(0, |person| person.ticket),
                    seen: now,
                    until,
                    generation: 0,
                    fixed,
                    confirmed: before.is_some(),
                });
            }
            Change::Renewed { visitor, until } => self.alter(visitor, |person| {
                if person.state == State::Seated {
                    person.seen = now;
                    person.until = until;
                    person.generation = person.generation.wrapping_add(1);
                    person.confirmed = true;
                }
            }),
            Change::Ended { visitor, .. } => {
                if let Some(slot) = self.people.find(visitor) {
                    let person = self.take(slot);
                    self.rates.released(now);
                    if now < person.until {
                        self.left.insert(visitor, person.until);
                    }
                }
            }
            Change::Queued { visitor, ticket } => {
                if self.people.find(visitor).is_none() {
                    self.last_ticket = self.last_ticket.max(ticket);
                    self.rates.queued(now);
                    self.put(Person {
                        visitor,
                        state: State::Present,
                        ticket,
                        seen: now,
                        until: 0,
                        generation: 0,
                        fixed: false,
                        confirmed: false,
                    });
                }
            }
            Change::Present { visitor } => {
                if let Some(slot) = self.people.find(visitor) {
                    self.heard_of(slot, now);
                }
            }
            Change::Away { visitor } => {
                let mut gone = None;
                self.alter(visitor, |person| {
                    if person.state == State::Present {
                        person.state = State::Away;
                        gone = Some(*person);
                    }
                });
                if let Some(person) = gone {
                    self.rates.fell_silent(now, &person);
                }
            }
            Change::Gone { visitor, .. } => {
                if let Some(slot) = self.people.find(visitor) {
                    self.take(slot);
                }
            }
            Change::Called { visitor, until } => {
                self.pace(now);
                self.alter(visitor, |person| {
                    if person.state != State::Seated {
                        person.state = State::Called;
                        person.until = until;
                    }
                });
            }
            Change::Uncalled { visitor, late } => {
                let mut gone = None;
                self.alter(visitor, |person| {
                    if person.state == State::Called {
                        person.until = 0;
                        person.state = if late { State::Away } else { State::Present };
                        // Whoever was called in vain is not to lose by it.
                        person.seen = if late { person.seen } else { now };
                        gone = late.then_some(*person);
                    }
                });
                if let Some(person) = gone {
                    self.rates.fell_silent(now, &person);
                }
            }
            Change::PerMinute { limit } => {
                self.per_minute_before = (self.per_minute, now.saturating_add(MINUTE_MS));
                self.per_minute = limit;
            }
            Change::Alive => {}
            Change::GhostsEnded => self.ghosts = 0,
            Change::Recovered { .. }
            | Change::Person(_)
            | Change::Admissions { .. }
            | Change::Lost { .. }
            | Change::Left { .. }
            | Change::Counters { .. } => self.apply_stored(effect),
        }
    }

    /// How full the room is.
    #[must_use]
    pub fn counts(&self) -> Counts {
        Counts {
            seated: self.seats.len() as u64,
            called: self.calls.len() as u64,
            ghosts: self.ghosts,
            present: self.line.present().len() as u64,
            away: self.line.away().len() as u64,
            window: self.window.sum(),
            admitted: self.admitted,
        }
    }

    /// The room's history so far.
    #[must_use]
    pub fn stamp(&self) -> Stamp {
        self.stamp
    }

    /// What is known of `visitor`.
    #[must_use]
    pub fn find(&self, visitor: Visitor) -> Option<Person> {
        self.people.find(visitor).map(|slot| *self.people.at(slot))
    }

    /// Whoever stands in `slot`, out of every order and out of the room.
    fn take(&mut self, slot: u32) -> Person {
        let person = *self.people.at(slot);
        self.detach(slot);
        self.people.remove(slot);
        person
    }

    pub(super) fn put(&mut self, person: Person) {
        let slot = self.people.add(person);
        self.attach(slot);
    }

    fn alter(&mut self, visitor: Visitor, change: impl FnOnce(&mut Person)) {
        if let Some(slot) = self.people.find(visitor) {
            self.detach(slot);
            change(self.people.at_mut(slot));
            self.attach(slot);
        }
    }

    /// The commonest change of all: whoever was in line keeps its place there, and only comes last
    /// among those who will fall silent.
    fn heard_of(&mut self, slot: u32, now: u64) {
        let person = *self.people.at(slot);
        match person.state {
            State::Present => {
                self.line.heard_again(&mut self.people, slot);
                let person = self.people.at_mut(slot);
                person.seen = now;
                person.confirmed = true;
            }
            State::Away => {
                self.detach(slot);
                let back = self.people.at_mut(slot);
                back.state = State::Present;
                back.seen = now;
                back.confirmed = true;
                self.attach(slot);
                self.rates.came_back(now, &person);
            }
            State::Called | State::Seated => {}
        }
    }

    pub(super) fn attach(&mut self, slot: u32) {
        self.line.insert(&mut self.people, slot);
        let person = self.people.at(slot);
        match person.state {
            State::Called => self.calls.insert(person.until, slot),
            State::Seated => {
                self.seats_fixed += u64::from(person.fixed);
                self.seats.insert(person.until, slot);
            }
            State::Present | State::Away => {}
        }
    }

    pub(super) fn detach(&mut self, slot: u32) {
        self.line.remove(&mut self.people, slot);
        let person = self.people.at(slot);
        match person.state {
            State::Called => {
                self.calls.remove(person.until, slot);
            }
            State::Seated => {
                self.seats_fixed -= u64::from(person.fixed);
                self.seats.remove(person.until, slot);
            }
            State::Present | State::Away => {}
        }
    }

    fn pace(&mut self, now: u64) {
        let second = now / 1000;
        if self.paced.0 != second {
            self.paced = (second, 0);
        }
        self.paced.1 += 1;
    }

    /// Seats that may be reserved or given now, as of the last [`Window::advance`].
    pub(super) fn slots(&self, settings: &Settings, now: u64) -> u64 {
        if settings.queue_all || settings.suspended {
            return 0;
        }
        let called = self.calls.len() as u64;
        let taken = self.seats.len() as u64 + called + self.ghosts;
        let seats = settings.total.saturating_sub(taken);
        let flow = (settings.per_minute).saturating_sub(self.window.sum().saturating_add(called));
        let pace = match settings.pacing {
            Pacing::Burst => u64::MAX,
            Pacing::Smooth => {
                let spent = if self.paced.0 == now / 1000 {
                    self.paced.1
                } else {
                    0
                };
                (settings.per_minute.div_ceil(60) + 1).saturating_sub(spent)
            }
        };
        seats.min(flow).min(pace)
    }

    /// Admissions a minute that bound the claim of a reserved seat: a limit that was lowered bounds
    /// it a minute later.
    fn claims_max(&self, settings: &Settings, now: u64) -> u64 {
        match self.per_minute_before {
            (before, until) if now < until => settings.per_minute.max(before),
            _ => settings.per_minute,
        }
    }
}

/// One step of a room on its way.
pub(super) struct Step<'a> {
    pub(super) room: &'a mut Room,
    pub(super) settings: &'a Settings,
    pub(super) now: u64,
    chance: Chance,
    work: u32,
    effects: &'a mut Vec<Effect>,
}

impl Step<'_> {
    /// The only way to change the room.
    pub(super) fn emit(&mut self, change: Change) {
        let effect = Effect {
            at: self.now,
            change,
        };
        self.room.apply(&effect);
        self.effects.push(effect);
    }

    fn ask(&mut self, visitor: Visitor, claims: Option<&Claims>) -> Answer {
        self.tidy();
        let answer = if self.settings.suspended {
            Answer::Suspended
        } else {
            self.answer(visitor, claims)
        };
        self.call();
        answer
    }

    fn answer(&mut self, visitor: Visitor, claims: Option<&Claims>) -> Answer {
        let claims = claims.filter(|claims| claims.visitor == visitor);
        let Some(slot) = self.room.people.find(visitor) else {
            return match self.remember(visitor, claims) {
                Some(answer) => answer,
                None => {
                    let expired = claims.is_some_and(|claims| {
                        claims.standing == Standing::Waiting && claims.ticket != 0
                    });
                    self.arrive(visitor, expired)
                }
            };
        };
        let person = *self.room.people.at(slot);
        match person.state {
            State::Seated => self.return_to_seat(&person, claims),
            State::Present | State::Away if self.silence(&person) > self.settings.hold_ms => {
                self.emit(Change::Gone {
                    visitor,
                    cause: End::Idle,
                });
                self.arrive(visitor, true)
            }
            State::Present | State::Away | State::Called => {
                // A seat that it was told of, and that the history which is left knows nothing of:
                // there the visitor still waits.
                let seat = claims.filter(|claims| claims.standing == Standing::Active);
                seat.and_then(|claims| self.remember(visitor, Some(claims)))
                    .unwrap_or_else(|| self.return_to_line(&person))
            }
        }
    }

    fn return_to_seat(&mut self, person: &Person, claims: Option<&Claims>) -> Answer {
        let visitor = person.visitor;
        // A seat that cannot be renewed is over when its holder was told that it would be.
        let over = if person.fixed {
            person.until.saturating_sub(CLOCK_ERROR_MS)
        } else {
            person.until
        };
        if self.now >= over {
            self.emit(Change::Ended {
                visitor,
                cause: if person.fixed { End::Fixed } else { End::Idle },
            });
            return self.arrive(visitor, false);
        }
        let disproof = claims.filter(|claims| self.room.disproves(claims));
        if let Some(claims) = disproof {
            self.emit(Change::Ended {
                visitor,
                cause: End::Disproved,
            });
            return match self.remember(visitor, Some(claims)) {
                Some(answer) => answer,
                None => self.arrive(visitor, false),
            };
        }
        self.renew(person, claims)
    }

    fn return_to_line(&mut self, person: &Person) -> Answer {
        let visitor = person.visitor;
        if !self.settings.queue_all {
            match self.settings.method {
                Method::Reject => return Answer::Reject,
                Method::Passthrough => return self.seat(visitor, Entry::Passthrough),
                Method::Fifo | Method::Random => {}
            }
        }
        if person.state == State::Called && self.now >= person.until {
            self.emit(Change::Uncalled {
                visitor,
                late: true,
            });
        }
        self.emit_present(visitor);
        self.call();
        self.claim(visitor)
    }

    /// Presence of one who is called is worth nothing: it is about to enter.
    fn emit_present(&mut self, visitor: Visitor) {
        let waiting = (self.room.find(visitor))
            .is_some_and(|person| matches!(person.state, State::Present | State::Away));
        if waiting {
            self.emit(Change::Present { visitor });
        }
    }

    /// A waiting visitor enters if a seat is reserved for it.
    fn claim(&mut self, visitor: Visitor) -> Answer {
        let called = (self.room.find(visitor)).is_some_and(|person| person.state == State::Called);
        let flow = self.room.claims_max(self.settings, self.now);
        if called && !self.settings.queue_all && self.room.window.sum() < flow {
            self.seat(visitor, Entry::Called)
        } else {
            Answer::Wait(self.place(visitor, false))
        }
    }

    fn arrive(&mut self, visitor: Visitor, expired: bool) -> Answer {
        if !self.settings.queue_all {
            match self.settings.method {
                Method::Reject => return Answer::Reject,
                Method::Passthrough => return self.seat(visitor, Entry::Passthrough),
                Method::Fifo | Method::Random => {}
            }
        }
        // Those who are there already come first.
        self.call();
        let slots = self.room.slots(self.settings, self.now);
        if slots > 0 && self.room.line.present().len() == 0 {
            return self.seat(visitor, Entry::Direct);
        }
        let len = self.room.line.counted() as u64;
        let len_max = self.settings.queue_len_max;
        if (len_max > 0 && len >= len_max) || self.room.people.len() >= PEOPLE_MAX {
            return Answer::Full;
        }
        let ticket = (self.room.last_ticket + 1).max(self.now.saturating_mul(1000));
        self.emit(Change::Queued { visitor, ticket });
        Answer::Wait(self.place(visitor, expired))
    }

    pub(super) fn requeue(&mut self, visitor: Visitor, ticket: u64) -> Answer {
        self.emit(Change::Queued { visitor, ticket });
        self.call();
        self.claim(visitor)
    }

    pub(super) fn seat(&mut self, visitor: Visitor, how: Entry) -> Answer {
        let fixed = self.settings.renewal == Renewal::Never;
        self.emit(Change::Seated {
            visitor,
            how,
            until: self.now.saturating_add(self.settings.keep_ms()),
            fixed,
        });
        self.forward(visitor, how, false)
    }

    fn renew_beside(&mut self, visitor: Visitor, claims: Option<&Claims>) -> Answer {
        self.tidy();
        match self.room.find(visitor) {
            Some(person) if person.state == State::Seated && self.now < person.until => {
                self.renew(&person, claims)
            }
            Some(_) => Answer::Ended,
            None => match claims.filter(|claims| claims.standing == Standing::Active) {
                Some(claims) => (self.remember(visitor, Some(claims))).unwrap_or(Answer::Ended),
                None => Answer::Ended,
            },
        }
    }

    fn renew(&mut self, person: &Person, claims: Option<&Claims>) -> Answer {
        let copy = claims.is_some_and(|claims| {
            claims.standing == Standing::Active
                && claims.generation.saturating_add(COPY_BEHIND) < person.generation
                && self.now.saturating_sub(claims.last_check_in) > COPY_AGE_MS
        });
        if copy && self.settings.copies == Copies::Fork {
            return Answer::Copied;
        }
        if !person.fixed && self.settings.renewal != Renewal::Never {
            // Never shorter than what another copy of the cookie may say.
            let until = self.now.saturating_add(self.settings.keep_ms());
            self.emit(Change::Renewed {
                visitor: person.visitor,
                until: until.max(person.until),
            });
        }
        self.forward(person.visitor, Entry::Held, copy)
    }

    fn forward(&self, visitor: Visitor, how: Entry, copy_seen: bool) -> Answer {
        let Some(person) = self.room.find(visitor) else {
            return Answer::Ended;
        };
        let lease_until = person.until.saturating_sub(CLOCK_ERROR_MS);
        Answer::Forward(Seat {
            how,
            ticket: person.ticket,
            lease_until,
            renew_from: match self.settings.renewal {
                Renewal::After { quantum_ms } if !person.fixed => {
                    person.seen.saturating_add(quantum_ms).min(lease_until)
                }
                _ => lease_until,
            },
            generation: person.generation,
            copy_seen,
            stamp: self.room.stamp,
        })
    }

    fn place(&self, visitor: Visitor, expired: bool) -> Place {
        let ticket = self.room.find(visitor).map_or(0, |person| person.ticket);
        Place {
            ticket,
            position: self.room.line.present().rank(ticket) as u64 + 1,
            ahead_away: self.room.line.away().rank(ticket) as u64,
            expired,
            stamp: self.room.stamp,
        }
    }

    fn check_in(&mut self, visitors: &[Visitor]) -> Answer {
        // All are looked up before any is moved: the memory of a great room is far away, and what is
        // asked for together comes together.
        let find = |visitor: &Visitor| Some((*visitor, self.room.people.find(*visitor)?));
        let known: Vec<(Visitor, u32)> = visitors.iter().filter_map(find).collect();
        for (visitor, slot) in known {
            let person = self.room.people.at(slot);
            let waits = matches!(person.state, State::Present | State::Away);
            if person.visitor != visitor || !waits {
                continue;
            }
            if self.silence(person) > self.settings.hold_ms {
                self.emit(Change::Gone {
                    visitor,
                    cause: End::Idle,
                });
            } else {
                self.emit(Change::Present { visitor });
            }
        }
        self.tick_within(WORK)
    }

    fn end(&mut self, visitor: Visitor, cause: End) -> Answer {
        if let Some(person) = self.room.find(visitor) {
            match person.state {
                State::Seated if self.room.left.len() >= LEFT_MAX => {}
                State::Seated => self.emit(Change::Ended { visitor, cause }),
                State::Present | State::Away | State::Called => {
                    self.emit(Change::Gone { visitor, cause });
                }
            }
        }
        self.tick_within(WORK)
    }

    fn tick(&mut self) -> Answer {
        let counts = self.room.counts();
        let present = self.room.line.present();
        self.room.rates.observe(self.now, &counts, present);
        let known = self.settings.method == Method::Fifo && !self.settings.queue_all;
        if known && self.room.rates.trust.is_due(self.now) {
            self.room.foretell(self.settings, self.now);
        }
        let clock = self.room.clock;
        self.room.left.retain(|_, until| clock < *until);
        let silent_ms = self.now.saturating_sub(self.room.durable_at);
        if self.room.people.len() > 0 && silent_ms >= ALIVE_EVERY_MS {
            self.emit(Change::Alive);
        }
        self.tick_within(WORK_OF_TICK)
    }

    fn tick_within(&mut self, work: u32) -> Answer {
        self.work = work;
        self.tidy();
        self.call();
        Answer::Done {
            more: self.work == 0,
        }
    }

    fn silence(&self, person: &Person) -> u64 {
        self.now.saturating_sub(person.seen)
    }

    /// Ends what time has ended, within the work of this step. What is left over only makes the
    /// room stricter: a seat not yet free, a silent visitor still in line.
    fn tidy(&mut self) {
        if self.settings.per_minute != self.room.per_minute {
            self.emit(Change::PerMinute {
                limit: self.settings.per_minute,
            });
        }
        if self.room.ghosts > 0 && self.room.ghosts_until <= self.now {
            self.emit(Change::GhostsEnded);
        }
        while self.work > 0 {
            let Some(change) = self.overdue() else { break };
            self.work -= 1;
            self.emit(change);
        }
    }

    fn overdue(&self) -> Option<Change> {
        let (room, settings) = (&*self.room, self.settings);
        let due = |(until, slot): (u64, u32)| (until <= self.now).then(|| room.people.at(slot));
        if let Some(person) = room.seats.first().and_then(due) {
            return Some(Change::Ended {
                visitor: person.visitor,
                cause: if person.fixed { End::Fixed } else { End::Idle },
            });
        }
        if let Some((until, slot)) = room.calls.first() {
            let late = until <= self.now;
            if late || settings.queue_all {
                let visitor = room.people.at(slot).visitor;
                return Some(Change::Uncalled { visitor, late });
            }
        }
        let silent = |slot: Option<u32>, longer_than: u64| {
            let person = room.people.at(slot?);
            (self.silence(person) > longer_than).then_some(person.visitor)
        };
        if let Some(visitor) = silent(room.line.least_heard(), settings.present_ms) {
            return Some(Change::Away { visitor });
        }
        let cause = End::Idle;
        silent(room.line.most_silent(), settings.hold_ms)
            .map(|visitor| Change::Gone { visitor, cause })
    }

    /// Reserves seats for those whose turn it is.
    fn call(&mut self) {
        while self.work > 0 && self.room.slots(self.settings, self.now) > 0 {
            let draw = self.chance.draw();
            let Some(slot) = self.room.line.next(self.settings.method, draw) else {
                break;
            };
            self.work -= 1;
            let person = *self.room.people.at(slot);
            let visitor = person.visitor;
            if self.silence(&person) > self.settings.present_ms {
                self.emit(Change::Away { visitor });
            } else {
                self.emit(Change::Called {
                    visitor,
                    until: self.now.saturating_add(self.settings.claim_ms),
                });
            }
        }
    }
}
