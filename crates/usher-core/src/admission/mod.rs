//! Waiting rooms: who may pass, who waits, and in which order.
//!
//! A [`Room`] is a plain value that changes only by [`Room::step`]: it is told the settings, the
//! time and 64 random bits, and answers one visitor. All that it did stands in the [`Effect`]s,
//! and a step changes the state by nothing but applying them: so a journal of effects, replayed by
//! [`Room::apply`], cannot end in another state than the steps did.
//!
//! Four questions change who may pass and need the room: a first visit, a claim of a called
//! visitor, a renewal that is due, an end. Everything else is answered without it, from the sealed
//! cookie ([`Claims`]) and the [`Summary`] that the room's owner publishes: [`door`] says which is
//! which, so that a million waiting visitors cost the room a presence batch a second.
//!
//! Settings come with each step, so a change of settings is no event, and an event of the calendar
//! that overrides them for an hour is only a function from the time to [`Settings`].
//!
//! Read [`Room`] and [`door::decide`] first. Times are milliseconds since the Unix epoch, by a clock
//! that the owner keeps from going back; the room also refuses to go back by itself.

pub mod door;
mod estimate;
mod line;
mod pace;
mod people;
mod ranked;
mod rates;
mod recover;
mod room;
mod settings;
mod summary;
#[cfg(test)]
mod tests;
mod trust;
mod window;

pub use estimate::{Estimate, Percentiles, Reason, Shown};
pub use pace::Pace;
pub use room::{Counts, Room};
pub use settings::{Copies, Method, Pacing, Renewal, Settings};
pub use summary::Summary;

/// The random identity of one cookie in one room. 128 bits, never 0 by any likelihood that counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Visitor([u64; 2]);

impl Visitor {
    /// The visitor with this number.
    #[must_use]
    pub const fn from_u128(id: u128) -> Visitor {
        Visitor([(id >> 64) as u64, id as u64])
    }

    /// Its number.
    #[must_use]
    pub const fn as_u128(self) -> u128 {
        ((self.0[0] as u128) << 64) | self.0[1] as u128
    }

    /// Half of the number: as random as the whole.
    const fn half(self) -> u64 {
        self.0[1]
    }
}

/// What a cookie says a visitor is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// Holds a ticket.
    Waiting,
    /// Holds a seat.
    Active,
    /// Failed a challenge: sees the waiting page and is never let in.
    Decoy,
}

/// Where in the room's history an answer was given. An answer that is ahead of the room's own
/// history proves that the room has lost some of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Stamp {
    /// How often the room was recovered after a loss.
    pub epoch: u64,
    /// Durable effects so far.
    pub sequence: u64,
}

/// What a sealed cookie says. The front seals and opens it; whoever holds such a value may trust
/// each field to be one that this program wrote.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Claims {
    /// Who it is.
    pub visitor: Visitor,
    /// Seat or ticket.
    pub standing: Standing,
    /// The ticket; of a seat, the one it was called by, 0 when it never waited.
    pub ticket: u64,
    /// When the visitor first came, ms.
    pub arrived: u64,
    /// The last check-in that counted, ms.
    pub last_check_in: u64,
    /// A seat is over from this moment on, ms. 0 while waiting.
    pub lease_until: u64,
    /// From this moment on a seat is to be renewed, ms. 0 while waiting.
    pub renew_from: u64,
    /// The room's history when this was sealed.
    pub stamp: Stamp,
    /// Renewals of the seat so far: an old copy of a cookie shows by it.
    pub generation: u32,
    /// The wait that the page last showed.
    pub shown: Option<Shown>,
}

impl Claims {
    /// The cookie of a visitor who was given `seat` at `now`. `before` is what it came with.
    #[must_use]
    pub fn seated(visitor: Visitor, seat: &Seat, before: Option<&Claims>, now: u64) -> Claims {
        Claims {
            visitor,
            standing: Standing::Active,
            ticket: seat.ticket,
            arrived: before.map_or(now, |claims| claims.arrived),
            last_check_in: now,
            lease_until: seat.lease_until,
            renew_from: seat.renew_from,
            stamp: seat.stamp,
            generation: seat.generation,
            shown: None,
        }
    }

    /// The cookie of a visitor who was given, or keeps, `place` at `now`.
    #[must_use]
    pub fn waiting(visitor: Visitor, place: &Place, before: Option<&Claims>, now: u64) -> Claims {
        let before = before.filter(|claims| claims.ticket == place.ticket);
        Claims {
            visitor,
            standing: Standing::Waiting,
            ticket: place.ticket,
            arrived: before.map_or(now, |claims| claims.arrived),
            last_check_in: now,
            lease_until: 0,
            renew_from: 0,
            stamp: place.stamp,
            generation: 0,
            shown: before.and_then(|claims| claims.shown),
        }
    }
}

/// What a room is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Command<'a> {
    /// A request by `visitor` needs an answer: a first visit, a claim, a renewal that may not be
    /// put off, a return after silence. What its cookie says is evidence, needed only where the
    /// room has lost something.
    Ask {
        /// Who asks; the front makes the number of a visitor that has none.
        visitor: Visitor,
        /// What it came with.
        claims: Option<&'a Claims>,
    },
    /// A seat holder's renewal, sent beside its request, which is on its way already.
    Renew {
        /// Who renews.
        visitor: Visitor,
        /// What it came with.
        claims: Option<&'a Claims>,
    },
    /// These waiting visitors were seen since the last batch.
    CheckIn(&'a [Visitor]),
    /// A seat or a ticket is given up.
    End {
        /// Whose.
        visitor: Visitor,
        /// Why; [`End::Revoked`] or [`End::Left`].
        cause: End,
    },
    /// Time has passed. Due at least every 250 ms; when the answer says `more`, again at once.
    Tick,
    /// The journal has been replayed, after anything but an orderly end.
    Recover {
        /// How many admissions the journal had allowed for before it stopped: the watermark.
        admitted_max: u64,
        /// For how long before the stop records may be missing, ms. 0 when only the process died
        /// and the records are known to be whole: then no seat is kept beyond its time.
        tail_ms: u64,
        /// The end of the journal does not read, so records may be missing that somebody was told
        /// of: the watermark does not bound them.
        torn: bool,
    },
}

/// What a room answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    /// To the endpoint, with this seat.
    Forward(Seat),
    /// The waiting page.
    Wait(Place),
    /// The reject page: the room takes no newcomers.
    Reject,
    /// A page that says so: the line is at its greatest length.
    Full,
    /// The room is off: to the endpoint, with no seat.
    Suspended,
    /// There is no such seat: the next request has to ask.
    Ended,
    /// The cookie is an old copy, and the room is set to take its bearer for somebody new.
    Copied,
    /// Nothing to say to a visitor.
    Done {
        /// Work is left that a [`Command::Tick`] at once would do.
        more: bool,
    },
}

/// A seat as its holder is told of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Seat {
    /// How it was had.
    pub how: Entry,
    /// The ticket it was called by; 0 when it never waited.
    pub ticket: u64,
    /// When it is over without a renewal, ms.
    pub lease_until: u64,
    /// From when a renewal is due, ms; `lease_until` when it cannot be renewed.
    pub renew_from: u64,
    /// Renewals so far.
    pub generation: u32,
    /// The cookie looked like an old copy of another.
    pub copy_seen: bool,
    /// The room's history at this answer.
    pub stamp: Stamp,
}

/// How a request came to a seat.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Entry {
    /// Admitted at its first request.
    Direct,
    /// Admitted after waiting.
    Called,
    /// Admitted because the room lets everybody pass.
    Passthrough,
    /// A seat that the room had forgotten; not admitted again.
    Remembered,
    /// Held already.
    Held,
}

/// A place in the line as its holder is told of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// The ticket.
    pub ticket: u64,
    /// Present visitors with a lower ticket, plus one.
    pub position: u64,
    /// Visitors with a lower ticket who are silent for now.
    pub ahead_away: u64,
    /// An older place was lost by silence.
    pub expired: bool,
    /// The room's history at this answer.
    pub stamp: Stamp,
}

/// Why a seat or a ticket ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum End {
    /// No renewal for a session's length; of a ticket, silence.
    Idle,
    /// A seat without renewal came to its end.
    Fixed,
    /// The endpoint said so.
    Revoked,
    /// The visitor said so.
    Left,
    /// A cookie that the room's history had lost proves that it had ended before.
    Disproved,
}

impl End {
    /// Every one, in the order of their discriminants.
    pub const ALL: [End; 5] = [
        End::Idle,
        End::Fixed,
        End::Revoked,
        End::Left,
        End::Disproved,
    ];

    /// The word for programs.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            End::Idle => "idle",
            End::Fixed => "fixed",
            End::Revoked => "revoked",
            End::Left => "left",
            End::Disproved => "disproved",
        }
    }
}

/// One change of a room, for the journal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Effect {
    /// When, ms.
    pub at: u64,
    /// What.
    pub change: Change,
}

impl Effect {
    /// Whether a journal has to keep it. Presence need not be: a restart makes up for it by the
    /// time that the room was down.
    #[must_use]
    pub const fn is_durable(&self) -> bool {
        !matches!(self.change, Change::Present { .. } | Change::Away { .. })
    }
}

/// What may change in a room.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// A visitor without a seat got one.
    Seated {
        /// Who.
        visitor: Visitor,
        /// How.
        how: Entry,
        /// When the room gives the seat away, ms.
        until: u64,
        /// The seat cannot be renewed.
        fixed: bool,
    },
    /// A seat lasts longer.
    Renewed {
        /// Whose.
        visitor: Visitor,
        /// When the room gives the seat away, ms.
        until: u64,
    },
    /// A seat is free.
    Ended {
        /// Whose it was.
        visitor: Visitor,
        /// Why.
        cause: End,
    },
    /// A visitor got a ticket, or an old one back.
    Queued {
        /// Who.
        visitor: Visitor,
        /// The ticket.
        ticket: u64,
    },
    /// A waiting visitor checked in.
    Present {
        /// Who.
        visitor: Visitor,
    },
    /// A waiting visitor has been silent for so long that no seat is reserved for it.
    Away {
        /// Who.
        visitor: Visitor,
    },
    /// A ticket is void.
    Gone {
        /// Whose it was.
        visitor: Visitor,
        /// Why.
        cause: End,
    },
    /// A seat is reserved for a waiting visitor.
    Called {
        /// Who.
        visitor: Visitor,
        /// The reservation is over from this moment on, ms.
        until: u64,
    },
    /// A reservation is over; the ticket is kept.
    Uncalled {
        /// Whose it was.
        visitor: Visitor,
        /// It did not come in time, so it is away; otherwise nobody may enter now.
        late: bool,
    },
    /// Admissions a minute were changed. The greater of the old and the new bounds claims for a
    /// minute.
    PerMinute {
        /// The new limit.
        limit: u64,
    },
    /// Nothing but time has passed since the last durable change: so that a replay ends near the
    /// moment at which the journal did.
    Alive,
    /// Seats that were given away before a crash, and of which nothing is known, are no longer kept
    /// free.
    GhostsEnded,
    /// The room came back from a crash.
    Recovered {
        /// Seats given away of which nothing is known.
        ghosts: u64,
        /// They are kept free until then, ms; 0 when nothing was lost.
        until: u64,
        /// No seat is given away before, ms.
        seats_until_min: u64,
        /// For how long nobody could check in, ms.
        down_ms: u64,
        /// The next ticket is greater.
        last_ticket: u64,
    },
    /// Of a snapshot: somebody in the room.
    Person(Person),
    /// Of a snapshot: admissions in one second, numbered from the Unix epoch.
    Admissions {
        /// The second.
        second: u64,
        /// How many.
        count: u64,
    },
    /// Of a snapshot: a stretch of history that was lost.
    Lost {
        /// The last stamp that is known.
        after: Stamp,
        /// The first sequence of the next epoch.
        until: u64,
    },
    /// Of a snapshot: a visitor whose seat was ended, and until when a copy of its cookie might be
    /// taken for one, ms.
    Left {
        /// Who.
        visitor: Visitor,
        /// When nothing is left of it.
        until: u64,
    },
    /// Of a snapshot, last: the counters.
    Counters {
        /// The history so far.
        stamp: Stamp,
        /// The last ticket.
        last_ticket: u64,
        /// Admissions ever.
        admitted: u64,
        /// Ghost seats.
        ghosts: u64,
        /// Until when they are kept free, ms.
        ghosts_until: u64,
        /// Admissions a minute now.
        per_minute: u64,
        /// The greater limit of before a change, and until when it bounds claims, ms.
        per_minute_before: (u64, u64),
    },
}

/// Somebody in a room, for a snapshot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Person {
    /// Who.
    pub visitor: Visitor,
    /// What it is.
    pub state: State,
    /// Its ticket; 0 when it never had one.
    pub ticket: u64,
    /// The last check-in, or the last renewal, ms.
    pub seen: u64,
    /// End of the seat or of the reservation, ms; 0 for those who have neither.
    pub until: u64,
    /// Renewals.
    pub generation: u32,
    /// The seat cannot be renewed.
    pub fixed: bool,
    /// It has come back with its cookie at least once.
    pub confirmed: bool,
}

/// What somebody in a room is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum State {
    /// Waits and was heard of lately.
    Present,
    /// Waits and is silent.
    Away,
    /// A seat is reserved.
    Called,
    /// Holds a seat.
    Seated,
}
