//! How far estimates have been from waits, and so how wide an interval has to be.
//!
//! What can be said of the spread beforehand is too much where seats come free evenly, as they do
//! when ten thousand are held for much the same time, and too little after the operator has changed
//! something. So the room foretells, now and then, when it will come to some of the tickets in line,
//! and looks at the moment when it does: the squares of the misses, in units of what was expected,
//! are what the expected variance is multiplied by. Apart by how far ahead was foretold, since chance
//! evens out over a long wait.

use std::collections::VecDeque;

use super::rates::Fading;

/// Half-life of what is known of misses, ms.
const HALF_LIFE_MS: f64 = 900_000.0;
/// Between two moments at which is foretold, ms, at least.
const EVERY_MS: u64 = 10_000;
/// Tickets whose turn is awaited.
const AWAITED_MAX: usize = 512;
/// What was expected counts as much as so many misses that were seen.
const EXPECTED: f64 = 6.0;
/// Horizons, each twice as far as the one before; the first is a minute.
const HORIZONS: usize = 8;
/// One miss says no more than this.
const MISS_MAX: f64 = 100.0;
/// A turn cannot be seen to come more exactly than by a tick or two, ms².
const VARIANCE_MIN: f64 = 40_000.0;

/// What the variance of a wait is to be multiplied by, by horizon.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Scales([f64; HORIZONS]);

impl Default for Scales {
    fn default() -> Scales {
        Scales([1.0; HORIZONS])
    }
}

impl Scales {
    pub(super) fn of(&self, mean_ms: f64) -> f64 {
        self.0[horizon(mean_ms)]
    }
}

/// When the room said it would come to a ticket.
#[derive(Debug, Clone, Copy)]
pub(super) struct Foretold {
    pub(super) ticket: u64,
    pub(super) mean_ms: f64,
    /// As it was expected without looking at misses, ms².
    pub(super) variance: f64,
}

/// Misses so far.
#[derive(Debug, Clone, Default)]
pub(super) struct Trust {
    awaited: VecDeque<(u64, Foretold)>,
    due: u64,
    squares: [Fading; HORIZONS],
    counts: [Fading; HORIZONS],
}

impl Trust {
    pub(super) fn is_due(&self, now: u64) -> bool {
        now >= self.due
    }

    pub(super) fn foretell(&mut self, now: u64, foretold: impl Iterator<Item = Foretold>) {
        let mut furthest = 0.0_f64;
        for one in foretold.filter(|one| one.variance.is_finite() && one.mean_ms.is_finite()) {
            furthest = furthest.max(one.mean_ms);
            if self.awaited.len() < AWAITED_MAX {
                self.awaited.push_back((now, one));
            }
        }
        // As dense as the horizon allows for.
        let every = EVERY_MS.max((furthest / 64.0) as u64);
        self.due = now.saturating_add(every);
    }

    /// The room has come to all tickets below `first`.
    pub(super) fn settle(&mut self, now: u64, first: u64) {
        let (squares, counts) = (&mut self.squares, &mut self.counts);
        self.awaited.retain(|(at, one)| {
            if one.ticket >= first {
                return true;
            }
            let miss = (now.saturating_sub(*at)) as f64 - one.mean_ms;
            let square = (miss * miss / one.variance.max(VARIANCE_MIN)).min(MISS_MAX);
            let horizon = horizon(one.mean_ms);
            squares[horizon].add(now, square, HALF_LIFE_MS);
            counts[horizon].add(now, 1.0, HALF_LIFE_MS);
            false
        });
    }

    pub(super) fn scales(&self, now: u64) -> Scales {
        let mut scales = Scales::default();
        for (at, scale) in scales.0.iter_mut().enumerate() {
            let squares = self.squares[at].at(now, HALF_LIFE_MS);
            let counts = self.counts[at].at(now, HALF_LIFE_MS);
            *scale = (EXPECTED + squares) / (EXPECTED + counts);
        }
        scales
    }
}

fn horizon(mean_ms: f64) -> usize {
    let minutes = (mean_ms / 60_000.0).max(1.0);
    (minutes.log2().ceil() as usize).min(HORIZONS - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn foretold(ticket: u64) -> Foretold {
        Foretold {
            ticket,
            mean_ms: 100_000.0,
            variance: 1e8,
        }
    }

    #[test]
    fn misses_scale_what_was_expected() {
        let scale = |miss: u64| {
            let mut trust = Trust::default();
            for ticket in 0..50 {
                trust.foretell(1, std::iter::once(foretold(ticket)));
            }
            trust.settle(100_001 + miss, 40);
            assert_eq!(trust.awaited.len(), 10, "the others are not there yet");
            trust.scales(100_001 + miss)
        };
        let exact = scale(0);
        assert!(exact.of(100_000.0) < 0.2, "{exact:?}");
        let expected = scale(10_000);
        assert!((expected.of(100_000.0) - 1.0).abs() < 0.01, "{expected:?}");
        let far = scale(40_000);
        assert!(far.of(100_000.0) > 10.0, "{far:?}");
        // Of other horizons nothing was learned.
        assert_eq!((far.of(10_000.0), far.of(1e9)), (1.0, 1.0));
    }

    #[test]
    fn what_is_awaited_is_bounded() {
        let mut trust = Trust::default();
        for ticket in 0..10_000 {
            trust.foretell(1, std::iter::once(foretold(ticket)));
        }
        assert_eq!(trust.awaited.len(), AWAITED_MAX);
        assert!(!trust.is_due(2) && trust.is_due(1 + EVERY_MS));
        for wild in [f64::NAN, f64::INFINITY] {
            let one = Foretold {
                mean_ms: wild,
                ..foretold(1)
            };
            trust.foretell(1, std::iter::once(one));
        }
        trust.settle(u64::MAX, u64::MAX);
        assert!(trust.awaited.is_empty());
    }
}
