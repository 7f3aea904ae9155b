//! After a crash: what may have been lost, and how the room gets it back.
//!
//! A journal allows for admissions before they happen, so that none has to wait for the disk. After
//! a crash the ones allowed for and not found are ghosts: seats that somebody may hold. A cookie
//! from the lost stretch of history takes one over; the others are kept free for as long as such a
//! cookie could be good. Where the end of the journal was damaged, ghosts do not count what is lost:
//! then each such cookie is a seat, also one too many, and newcomers wait until there is room again.
//! Presence is not in the journal at all: whoever was in line then is taken
//! for heard of at the end of the down time.

use super::room::{ALIVE_EVERY_MS, Room, Step};
use super::{
    Answer, Change, Claims, Effect, Entry, Method, Person, Stamp, Standing, State, Visitor,
};

/// A new epoch counts on from here: no lost answer can have had a greater sequence.
const SEQUENCES_LOST_MAX: u64 = 1 << 32;
/// Stretches of lost history that are remembered.
const LOST_MAX: usize = 8;
/// Waiting visitors are forgiven so much silence, ms.
const DOWN_MAX_MS: u64 = 600_000;

/// A stretch of history that a crash took.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Lost {
    after: Stamp,
    until: u64,
}

impl Lost {
    fn covers(&self, stamp: Stamp) -> bool {
        stamp.epoch == self.after.epoch
            && (self.after.sequence + 1..self.until).contains(&stamp.sequence)
    }
}

impl Room {
    /// Effects that make this room from an empty one, as a snapshot for the journal. The last is
    /// [`Change::Counters`]. Estimates begin anew.
    pub fn records(&self) -> impl Iterator<Item = Effect> + '_ {
        let people = &self.people;
        let line = self.line.iter(people);
        let calls = self.calls.iter().map(|(_, slot)| slot);
        let seats = self.seats.iter().map(|(_, slot)| slot);
        let persons = (line.chain(calls).chain(seats)).map(|slot| Change::Person(*people.at(slot)));
        let admissions =
            (self.window.seconds()).map(|(second, count)| Change::Admissions { second, count });
        let lost = (self.lost.iter()).map(|lost| Change::Lost {
            after: lost.after,
            until: lost.until,
        });
        let left = (self.left.iter())
            .filter(|(_, until)| self.clock < **until)
            .map(|(&visitor, &until)| Change::Left { visitor, until });
        let counters = Change::Counters {
            stamp: self.stamp,
            last_ticket: self.last_ticket,
            admitted: self.admitted,
            ghosts: self.ghosts,
            ghosts_until: self.ghosts_until,
            per_minute: self.per_minute,
            per_minute_before: self.per_minute_before,
        };
        persons
            .chain(admissions)
            .chain(lost)
            .chain(left)
            .chain(std::iter::once(counters))
            .map(|change| Effect {
                at: self.clock,
                change,
            })
    }

    /// Recovery, and what stands only in snapshots.
    pub(super) fn apply_stored(&mut self, effect: &Effect) {
        match effect.change {
            Change::Recovered {
                ghosts,
                until,
                seats_until_min,
                down_ms,
                last_ticket,
            } => {
                self.forgive(effect.at, down_ms, seats_until_min);
                self.last_ticket = self.last_ticket.max(last_ticket);
                if until > 0 {
                    self.remember_loss();
                    self.admitted += ghosts;
                    self.window.add(self.clock, ghosts);
                    self.ghosts += ghosts;
                    self.ghosts_until = self.ghosts_until.max(until);
                }
            }
            Change::Person(person) if self.people.find(person.visitor).is_none() => {
                self.put(person);
            }
            Change::Admissions { second, count } => self.window.put(second, count),
            Change::Lost { after, until } => self.lost.push(Lost { after, until }),
            Change::Left { visitor, until } => {
                self.left.insert(visitor, until);
            }
            Change::Counters {
                stamp,
                last_ticket,
                admitted,
                ghosts,
                ghosts_until,
                per_minute,
                per_minute_before,
            } => {
                self.stamp = stamp;
                self.last_ticket = last_ticket;
                self.admitted = admitted;
                self.ghosts = ghosts;
                self.ghosts_until = ghosts_until;
                self.per_minute = per_minute;
                self.per_minute_before = per_minute_before;
            }
            _ => {}
        }
    }

    fn remember_loss(&mut self) {
        let until = self.stamp.sequence.saturating_add(SEQUENCES_LOST_MAX);
        if self.lost.len() == LOST_MAX {
            self.lost.remove(0);
        }
        // The sequence was already raised for the record of the recovery itself.
        let after = Stamp {
            epoch: self.stamp.epoch,
            sequence: self.stamp.sequence - 1,
        };
        self.lost.push(Lost { after, until });
        self.stamp = Stamp {
            epoch: self.stamp.epoch + 1,
            sequence: until,
        };
    }

    /// Whoever waits was heard of at `now`, or as much earlier as the down time was too long; and
    /// no seat ends before `seats_until_min`. Once in the life of a process, so it may take its time.
    fn forgive(&mut self, now: u64, down_ms: u64, seats_until_min: u64) {
        let seen = now.saturating_sub(down_ms.saturating_sub(DOWN_MAX_MS));
        let forgiven = down_ms.min(DOWN_MAX_MS);
        let calls = self.calls.iter().map(|(_, slot)| slot);
        let early = (self.seats.iter()).take_while(|(until, _)| *until < seats_until_min);
        let all: Vec<u32> = (self.line.iter(&self.people))
            .chain(calls)
            .chain(early.map(|(_, slot)| slot))
            .collect();
        for slot in all {
            self.detach(slot);
            let person = self.people.at_mut(slot);
            match person.state {
                // That somebody fell silent may be in the journal, and its return never is.
                State::Present | State::Away => {
                    person.state = State::Present;
                    person.seen = seen;
                }
                State::Called => {
                    person.seen = seen;
                    person.until = person.until.saturating_add(forgiven);
                }
                State::Seated => person.until = seats_until_min,
            }
            self.attach(slot);
        }
    }

    /// Whether this cookie was sealed in a stretch of history that is lost.
    fn has_lost(&self, claims: &Claims) -> bool {
        self.lost.iter().any(|lost| lost.covers(claims.stamp))
    }

    /// Whether it was sealed in one of which nobody knows how many were let in, and its seat was not
    /// ended since.
    fn has_torn(&self, claims: &Claims) -> bool {
        self.torn == Some(claims.stamp.epoch) && !self.left.contains_key(&claims.visitor)
    }

    /// Whether this cookie proves that a seat had ended before the history that is left says so.
    pub(super) fn disproves(&self, claims: &Claims) -> bool {
        claims.standing == Standing::Waiting && self.has_lost(claims)
    }
}

impl Step<'_> {
    /// Before anything is tidied: nobody could check in.
    pub(super) fn recover(&mut self, admitted_max: u64, tail_ms: u64, torn: bool) -> Answer {
        let stopped = self.room.clock;
        let ghosts = admitted_max.saturating_sub(self.room.admitted);
        let loss = ghosts > 0 || tail_ms > 0;
        // The latest moment of which a record may be missing.
        let tail = stopped.saturating_add(tail_ms + 2 * ALIVE_EVERY_MS);
        self.room.torn = (torn && loss).then_some(self.room.stamp.epoch);
        self.emit(Change::Recovered {
            ghosts,
            until: if loss {
                self.now.saturating_add(self.settings.keep_ms())
            } else {
                0
            },
            seats_until_min: if tail_ms > 0 {
                tail.min(self.now).saturating_add(self.settings.keep_ms())
            } else {
                0
            },
            down_ms: self.now - stopped,
            last_ticket: tail.saturating_mul(1000),
        });
        Answer::Done { more: true }
    }

    /// A visitor whom the room does not know, with a cookie from a lost stretch of its history:
    /// what it had, as far as the room can tell.
    pub(super) fn remember(&mut self, visitor: Visitor, claims: Option<&Claims>) -> Option<Answer> {
        let claims = claims.filter(|claims| self.room.has_lost(claims))?;
        match claims.standing {
            Standing::Active
                if (self.room.ghosts > 0 || self.room.has_torn(claims))
                    && self.now < claims.lease_until =>
            {
                Some(self.seat(visitor, Entry::Remembered))
            }
            Standing::Waiting
                if matches!(self.settings.method, Method::Fifo | Method::Random)
                    && claims.ticket <= self.room.last_ticket
                    && self.now.saturating_sub(claims.last_check_in)
                        <= self.settings.hold_ms + DOWN_MAX_MS =>
            {
                Some(self.requeue(visitor, claims.ticket))
            }
            _ => None,
        }
    }
}

/// The state without what identifies slots, for comparisons.
impl PartialEq for Room {
    fn eq(&self, other: &Room) -> bool {
        let canonical = |room: &Room| {
            let mut records: Vec<Effect> = room.records().collect();
            let key = |effect: &Effect| match effect.change {
                Change::Person(Person {
                    state: State::Called | State::Seated,
                    until,
                    visitor,
                    ..
                }) => (1, until, Some(visitor)),
                Change::Person(_) => (0, 0, None),
                _ => (2, 0, None),
            };
            records.sort_by_key(key);
            records
        };
        canonical(self) == canonical(other)
    }
}
