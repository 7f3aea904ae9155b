//! What a front answers waiting visitors from, without the room.
//!
//! Cut from the room twice a second, and at once when somebody is called. Ranks and seats are given
//! by 256 marks each, so a front tells a position to within 1/256 of the line, exactly while the
//! line is no longer than that, and the wait behind each mark is worked out once for all.

use super::estimate::{Estimate, Outflow, Percentiles, WAIT_MAX_MS};
use super::ranked::Ranked;
use super::rates::arrived;
use super::settings::{CLOCK_ERROR_MS, Method, Settings};
use super::trust::Foretold;
use super::{Counts, Place, Renewal, Room, Stamp, Visitor};

const MARKS: usize = 256;
/// Time that a freed seat may take to be called: two ticks.
const TICKS_MS: u64 = 500;
/// An admission counts for so long; on average half a second less.
const MINUTE_MS: u64 = 61_000;
/// Tickets of which is foretold when the room comes to them.
const FORETOLD: usize = 6;

/// A room at one moment, as the fronts know it.
#[derive(Debug, Clone)]
pub struct Summary {
    /// When, ms.
    pub at: u64,
    /// The room's history.
    pub stamp: Stamp,
    /// How full it is.
    pub counts: Counts,
    /// No newcomer gets a ticket: the line is at its greatest length, or the wait at its end is
    /// more than a day.
    pub full: bool,
    /// How long the last in line waits; `None` when it is unknown or nobody waits.
    pub longest: Option<Estimate>,
    /// Of a random draw.
    pub percentiles: Option<Percentiles>,
    /// The line is to be told of waits at all.
    known: bool,
    /// Seats that a newcomer could have had.
    slots: u64,
    /// Those for whom a seat is reserved, sorted, and until when, ms.
    called: Box<[(Visitor, u64)]>,
    /// Those whose seats were ended before their cookies are, sorted.
    left: Box<[Visitor]>,
    /// The lowest ticket that is present and not called.
    frontier: u64,
    /// The last ticket that was issued. Of one that came after, nothing is certain: others may have
    /// entered meanwhile.
    newest: u64,
    present: Box<[Mark]>,
    away: Box<[Mark]>,
    /// Ends of seats that cannot be renewed, in order; empty when some can.
    ends: Box<[Mark]>,
    outflow: Outflow,
    guarantee: Guarantee,
}

/// A key of an ordered set, and how many are below it.
#[derive(Debug, Clone, Copy)]
struct Mark {
    key: u64,
    rank: u64,
    /// Of those below, how many will not have given up when their turn comes.
    staying: f64,
}

#[derive(Debug, Clone, Copy)]
struct Guarantee {
    per_minute: u64,
    /// Of the minute's limit, one that is reserved is free again so much later at the latest.
    minute_ms: u64,
    /// Of the minute's limit, spent already.
    spent: u64,
    free: u64,
    seats: u64,
    /// A seat that is called for now is free again so much later at the latest.
    round_ms: u64,
    /// From a call to the visitor's own request.
    slack_ms: u64,
}

impl Room {
    /// The room at `now`.
    #[must_use]
    pub fn summary(&self, settings: &Settings, now: u64) -> Summary {
        let now = now.max(self.clock);
        let counts = self.counts();
        let taken = counts.seated + counts.called + counts.ghosts;
        let free = settings.total.saturating_sub(taken);
        let outflow = self.outflow(settings, now, taken);
        let mut called: Box<[(Visitor, u64)]> = (self.calls.iter())
            .map(|(until, slot)| (self.people.at(slot).visitor, until))
            .collect();
        called.sort_unstable();
        let present = self.line.present();
        let fixed = settings.renewal == Renewal::Never && self.seats_fixed == counts.seated;
        let mut summary = Summary {
            at: now,
            stamp: self.stamp,
            counts,
            full: false,
            longest: None,
            percentiles: None,
            known: !settings.queue_all && !settings.suspended && settings.total > 0,
            slots: self.slots(settings, now),
            called,
            left: self.left.keys().copied().collect(),
            newest: self.last_ticket,
            frontier: present.first().map_or(u64::MAX, |(ticket, _)| ticket),
            present: marks(present),
            away: marks(self.line.away()),
            ends: if fixed {
                marks(&self.seats)
            } else {
                Box::default()
            },
            outflow,
            guarantee: Guarantee {
                per_minute: settings.per_minute,
                minute_ms: settings.claim_ms + MINUTE_MS + TICKS_MS,
                spent: counts.window + counts.called,
                free,
                seats: settings.total,
                round_ms: settings.claim_ms.saturating_add(settings.keep_ms()),
                slack_ms: settings.refresh_ms + CLOCK_ERROR_MS + TICKS_MS,
            },
        };
        summary.foresee();
        match settings.method {
            Method::Fifo => {
                if counts.present > 0 {
                    summary.longest = summary.estimate(u64::MAX, settings.method);
                }
            }
            Method::Random => {
                summary.percentiles = (summary.known && counts.present > 0)
                    .then(|| outflow.percentiles(counts.present as f64))
                    .flatten();
            }
            Method::Passthrough | Method::Reject => {}
        }
        let day = |estimate: Estimate| estimate.mid_ms > WAIT_MAX_MS;
        let len_max = settings.queue_len_max;
        summary.full = (len_max > 0 && self.line.counted() as u64 >= len_max)
            || summary.longest.is_some_and(day);
        summary
    }
}

impl Room {
    fn outflow(&self, settings: &Settings, now: u64, taken: u64) -> Outflow {
        let flow = self.rates.flow(now, settings.total);
        let beyond = taken.saturating_sub(settings.total);
        let refresh_ms = settings.refresh_ms as f64;
        // What is reserved counts against the minute before it counts as an admission.
        let reserved_ms = flow.reserved_ms.unwrap_or(refresh_ms / 2.0);
        let minute_ms = MINUTE_MS as f64 - 500.0 + reserved_ms;
        Outflow {
            flow,
            ceiling: settings.per_minute as f64 / minute_ms,
            free: settings.total.saturating_sub(taken) as f64,
            behind_ms: if beyond == 0 {
                0.0
            } else {
                beyond as f64 / (flow.hazard * (taken + settings.total) as f64 / 2.0)
            },
            refresh_ms,
        }
    }

    /// Says when the room will come to some of the tickets in line, to see later how true it was.
    pub(super) fn foretell(&mut self, settings: &Settings, now: u64) {
        let summary = self.summary(settings, now);
        let marks = &summary.present;
        let evenly = (1..=FORETOLD).filter_map(|part| {
            let last = marks.len().checked_sub(1)?;
            marks.get(last * part / FORETOLD)
        });
        let foretold = evenly.filter_map(|mark| {
            let ahead = mark.rank as f64 + 1.0;
            let (mean_ms, variance) = summary.outflow.turn(ahead, mark.staying + 1.0)?;
            Some(Foretold {
                ticket: mark.key,
                mean_ms,
                variance,
            })
        });
        self.rates.trust.foretell(now, foretold);
    }
}

impl Summary {
    /// Whether a seat may be reserved for this ticket, or it has fallen out of those present: only
    /// the room can tell.
    #[must_use]
    pub fn concerns(&self, visitor: Visitor, ticket: u64) -> bool {
        ticket < self.frontier || self.called_until(visitor).is_some()
    }

    /// Whether `visitor` had a seat that was ended, though its cookie may say otherwise.
    #[must_use]
    pub fn has_left(&self, visitor: Visitor) -> bool {
        self.left.binary_search(&visitor).is_ok()
    }

    /// Until when a seat is reserved for `visitor`, ms.
    #[must_use]
    pub fn called_until(&self, visitor: Visitor) -> Option<u64> {
        let place = (self.called).binary_search_by_key(&visitor, |(visitor, _)| *visitor);
        Some(self.called[place.ok()?].1)
    }

    /// Whether a newcomer would have to wait.
    #[must_use]
    pub fn queues(&self) -> bool {
        self.counts.present > 0 || self.slots == 0
    }

    /// The place of this ticket.
    #[must_use]
    pub fn place(&self, ticket: u64) -> Place {
        Place {
            ticket,
            position: below(&self.present, ticket).0.round() as u64 + 1,
            ahead_away: below(&self.away, ticket).0.round() as u64,
            expired: false,
            stamp: self.stamp,
        }
    }

    /// How long this ticket waits, from the moment of the summary. Of a random draw there is no
    /// estimate of one ticket: see [`Summary::percentiles`].
    #[must_use]
    pub fn estimate(&self, ticket: u64, method: Method) -> Option<Estimate> {
        if !self.known || method != Method::Fifo {
            return None;
        }
        let (ahead, staying) = below(&self.present, ticket);
        let (away, _) = below(&self.away, ticket);
        let itself = 1.0;
        self.outflow
            .estimate(ahead + itself, staying + itself, away)
    }

    /// The moment, ms, by which this ticket enters at the latest, if its holder keeps asking and
    /// the limits stay. Known while no seat can be renewed.
    #[must_use]
    pub fn guaranteed_by(&self, ticket: u64, method: Method) -> Option<u64> {
        let guarantee = &self.guarantee;
        let certain = self.known
            && ticket <= self.newest
            && method == Method::Fifo
            && guarantee.per_minute > 0
            && self.counts.ghosts == 0
            && self.counts.seated + self.counts.called <= guarantee.seats
            && self.ends.last().map_or(0, |last| last.rank + 1) == self.counts.seated;
        if !certain {
            return None;
        }
        // Marks tell ranks from below; a bound needs them from above.
        let ahead = above(&self.present, ticket) + above(&self.away, ticket) + 1;
        let minutes =
            (guarantee.spent.saturating_add(ahead)).saturating_sub(1) / guarantee.per_minute;
        let by_rate = self
            .at
            .saturating_add(minutes.saturating_mul(guarantee.minute_ms));
        let by_seats = if ahead <= guarantee.free {
            self.at
        } else {
            self.end_of(ahead - guarantee.free)?
        };
        // A wait for the rate may begin when the seat is there.
        let late = by_rate - self.at;
        Some(
            by_seats
                .saturating_add(late)
                .saturating_add(guarantee.slack_ms),
        )
    }

    /// When so many seats will have come free at the latest.
    fn end_of(&self, seats: u64) -> Option<u64> {
        let guarantee = &self.guarantee;
        // Seats that are called for, and those free now, come round again too.
        let round = guarantee.seats;
        let rounds = (seats - 1) / round;
        let within = (seats - 1) % round;
        let first = if within < self.counts.seated {
            let place = self.ends.partition_point(|mark| mark.rank < within);
            self.ends.get(place)?.key
        } else {
            self.at.saturating_add(guarantee.round_ms)
        };
        Some(first.saturating_add(rounds.saturating_mul(guarantee.round_ms)))
    }

    /// Works out, mark by mark, how many of those ahead will still be there at their turn.
    fn foresee(&mut self) {
        let mut staying = 0.0;
        let mut before: Option<Mark> = None;
        for at in 0..self.present.len() {
            let mark = self.present[at];
            if let Some(before) = before {
                let age = self.at.saturating_sub(arrived(before.key)) as f64;
                let turn = self.outflow.served_at(staying);
                let people = (mark.rank - before.rank) as f64;
                staying += people * self.outflow.flow.staying(age, turn);
            }
            self.present[at].staying = staying;
            before = Some(mark);
        }
    }
}

/// The first and the last key, and others evenly between.
fn marks(set: &Ranked) -> Box<[Mark]> {
    let len = set.len();
    let count = len.min(MARKS + 1);
    (0..count)
        .map(|at| {
            if count == len {
                at
            } else {
                at * (len - 1) / MARKS
            }
        })
        .filter_map(|rank| {
            let (key, _) = set.select(rank)?;
            Some(Mark {
                key,
                rank: rank as u64,
                staying: rank as f64,
            })
        })
        .collect()
}

/// How many keys are below `key`, and how many of them stay: exact at a mark, in proportion between
/// two.
fn below(marks: &[Mark], key: u64) -> (f64, f64) {
    let place = marks.partition_point(|mark| mark.key < key);
    let Some(low) = place.checked_sub(1).map(|low| marks[low]) else {
        return (0.0, 0.0);
    };
    let one_more = |staying: f64| (low.rank as f64 + 1.0, staying + 1.0);
    let Some(high) = marks.get(place) else {
        return one_more(low.staying);
    };
    let between = high.rank - low.rank;
    if between <= 1 {
        return (high.rank as f64, high.staying);
    }
    let part = (key - low.key) as f64 / (high.key - low.key) as f64;
    (
        low.rank as f64 + part * between as f64,
        low.staying + part * (high.staying - low.staying),
    )
}

/// No fewer keys are below `key` than there are.
fn above(marks: &[Mark], key: u64) -> u64 {
    let place = marks.partition_point(|mark| mark.key < key);
    match marks.get(place) {
        Some(mark) => mark.rank,
        None => marks.last().map_or(0, |last| last.rank + 1),
    }
}
