//! What a room has done since its owner began, for those who watch it.
//!
//! Counted from the effects, so that whatever the room does is counted, whoever caused it. A replay
//! counts nothing: the numbers are those of this process.

use std::time::Duration;

use usher_core::admission::{Change, End, Entry, Seat};

/// Upper bounds of the classes of waits, ms; the last class has none.
pub const WAITS_MS: [u64; 10] = [
    1_000, 5_000, 15_000, 30_000, 60_000, 120_000, 300_000, 900_000, 1_800_000, 3_600_000,
];

/// Counts since an owner began.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Tally {
    /// Visitors without a seat who got one.
    pub admitted: u64,
    /// Visitors who got a ticket.
    pub queued: u64,
    /// Seats that ended, by cause: in the order of [`End::ALL`].
    pub ended: [u64; End::ALL.len()],
    /// Tickets that were given up, by silence or by word.
    pub abandoned: u64,
    /// Seats that were reserved for somebody who did not come in time.
    pub missed: u64,
    /// How long those waited who were let in from the line: by class, the last one without a bound.
    pub waits: [u64; WAITS_MS.len() + 1],
    /// The sum of these waits, ms.
    pub waited_ms: u64,
    /// What the journal did.
    pub disk: DiskTally,
}

/// Commits of a journal.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DiskTally {
    /// Commits that came to their end.
    pub commits: u64,
    /// Of them, those that failed.
    pub failed: u64,
    /// How long they took, together.
    pub took: Duration,
}

impl Tally {
    pub(super) fn count(&mut self, change: &Change) {
        match *change {
            Change::Seated { how, .. } => self.admitted += u64::from(how != Entry::Remembered),
            Change::Queued { .. } => self.queued += 1,
            Change::Ended { cause, .. } => self.ended[cause as usize] += 1,
            Change::Gone { .. } => self.abandoned += 1,
            Change::Uncalled { late, .. } => self.missed += u64::from(late),
            Change::Renewed { .. }
            | Change::Present { .. }
            | Change::Away { .. }
            | Change::Called { .. }
            | Change::PerMinute { .. }
            | Change::Alive
            | Change::GhostsEnded
            | Change::Recovered { .. }
            | Change::Person(_)
            | Change::Admissions { .. }
            | Change::Lost { .. }
            | Change::Left { .. }
            | Change::Counters { .. } => {}
        }
    }

    /// A seat was told of at `now`, ms.
    pub(super) fn let_in(&mut self, seat: &Seat, now: u64) {
        if seat.how == Entry::Called {
            // A ticket is the moment of the arrival, in thousandths of a millisecond.
            let waited = now.saturating_sub(seat.ticket / 1000);
            self.waits[WAITS_MS.partition_point(|&bound| bound < waited)] += 1;
            self.waited_ms += waited;
        }
    }
}

impl DiskTally {
    pub(super) fn committed(&mut self, took: Duration, well: bool) {
        self.commits += 1;
        self.failed += u64::from(!well);
        self.took += took;
    }
}

#[cfg(test)]
mod tests {
    use usher_core::admission::{Stamp, Visitor};

    use super::*;

    #[test]
    fn causes_stand_in_their_order() {
        for (place, cause) in End::ALL.into_iter().enumerate() {
            assert_eq!(cause as usize, place);
        }
    }

    #[test]
    fn waits_are_counted_from_the_ticket() {
        let mut tally = Tally::default();
        let seat = |how, ticket| Seat {
            how,
            ticket,
            lease_until: 0,
            renew_from: 0,
            generation: 0,
            copy_seen: false,
            stamp: Stamp::default(),
        };
        tally.let_in(&seat(Entry::Called, 10_000_000), 11_000);
        tally.let_in(&seat(Entry::Called, 10_000_000), 11_001);
        tally.let_in(&seat(Entry::Called, 0), u64::from(u32::MAX));
        tally.let_in(&seat(Entry::Direct, 0), 11_001);
        assert_eq!(tally.waits[0], 1);
        assert_eq!(tally.waits[1], 1);
        assert_eq!(tally.waits[WAITS_MS.len()], 1);
        assert_eq!(tally.waits.iter().sum::<u64>(), 3);
        assert_eq!(tally.waited_ms, 2_001 + u64::from(u32::MAX));
    }

    #[test]
    fn a_place_that_is_given_up_is_no_seat_that_ended() {
        let mut tally = Tally::default();
        let visitor = Visitor::from_u128(1);
        for change in [
            Change::Queued { visitor, ticket: 1 },
            Change::Gone {
                visitor,
                cause: End::Left,
            },
            Change::Ended {
                visitor,
                cause: End::Revoked,
            },
        ] {
            tally.count(&change);
        }
        assert_eq!((tally.queued, tally.abandoned), (1, 1));
        assert_eq!(tally.ended, [0, 0, 1, 0, 0]);
    }
}
