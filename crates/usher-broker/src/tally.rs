//! What a broker counts: atomics that are added to where something happens, and read by whoever asks.
//!
//! No lock is taken for it, and nothing is ever counted down.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use usher_core::lease::close::CloseReason;
use usher_core::lease::line::Class;
use usher_core::lease::refusal::Refusal;

/// Bounds of the classes of waits for a browser, in milliseconds.
pub const ACQUIRE_MS: [u64; 12] = [1, 2, 5, 10, 20, 50, 100, 250, 1_000, 3_000, 10_000, 30_000];

/// Words of what a request can be refused for, with their statuses.
pub const REFUSALS: [(&str, u16); 4] = [
    ("daily_time", 429),
    ("concurrent", 429),
    ("rate", 429),
    ("capacity", 503),
];

/// How requests and sessions fared since this began.
#[derive(Debug)]
pub struct Tally {
    began: Instant,
    regions: Vec<Region>,
    refused: [AtomicU64; REFUSALS.len()],
}

/// What happened in one region.
#[derive(Debug, Default)]
struct Region {
    ready: Classes,
    cold: Classes,
    picks: AtomicU64,
    empty: AtomicU64,
    ended: [AtomicU64; CloseReason::ALL.len()],
    quick: [AtomicU64; CloseReason::ALL.len()],
    /// When the last browser was given away, in milliseconds after the beginning, plus one.
    given: AtomicU64,
}

/// How long something took, each time.
#[derive(Debug, Default)]
struct Classes {
    counts: [AtomicU64; ACQUIRE_MS.len() + 1],
    micros: AtomicU64,
}

/// What was counted in one region.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Counted {
    /// Browsers that were ready when they were asked for, and offered.
    pub ready: Times,
    /// Browsers that somebody stood in line for.
    pub cold: Times,
    /// Browsers that were picked.
    pub picks: u64,
    /// Looks for one that found none.
    pub empty: u64,
    /// Sessions that ended, by [`CloseReason`].
    pub ended: [u64; CloseReason::ALL.len()],
    /// Browsers of quick actions that ended, by [`CloseReason`].
    pub quick: [u64; CloseReason::ALL.len()],
    /// Since a browser was given away here; `None`: never.
    pub given: Option<Duration>,
}

/// How long something took.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Times {
    /// How often it took up to each of [`ACQUIRE_MS`], and more.
    pub counts: [u64; ACQUIRE_MS.len() + 1],
    /// All together.
    pub sum: Duration,
}

fn one(count: &AtomicU64) {
    count.fetch_add(1, Ordering::Relaxed);
}

fn all<const N: usize>(counts: &[AtomicU64; N]) -> [u64; N] {
    std::array::from_fn(|at| counts[at].load(Ordering::Relaxed))
}

impl Tally {
    /// For so many regions: there are no more than are named.
    pub(crate) fn new(regions: usize) -> Tally {
        Tally {
            began: Instant::now(),
            regions: (0..regions).map(|_| Region::default()).collect(),
            refused: Default::default(),
        }
    }

    fn region(&self, region: u16) -> Option<&Region> {
        self.regions.get(usize::from(region))
    }

    /// A browser is offered, so long after it was asked for. `waited`: who asked stood in line.
    pub(crate) fn acquired(&self, region: u16, waited: bool, took: Duration) {
        let Some(of) = self.region(region) else {
            return;
        };
        let classes = if waited { &of.cold } else { &of.ready };
        let millis = took.as_millis();
        let class = ACQUIRE_MS.iter().take_while(|&&it| u128::from(it) < millis);
        one(&classes.counts[class.count()]);
        let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        classes.micros.fetch_add(micros, Ordering::Relaxed);
        let now = u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX - 1);
        of.given.fetch_max(now + 1, Ordering::Relaxed);
    }

    /// A pool was asked for a browser; whether it had one.
    pub(crate) fn picked(&self, region: u16, found: bool) {
        if let Some(of) = self.region(region) {
            one(if found { &of.picks } else { &of.empty });
        }
    }

    /// Somebody was told why there is none.
    pub(crate) fn refused(&self, refusal: &Refusal) {
        let found = REFUSALS
            .iter()
            .position(|(cause, _)| *cause == refusal.cause());
        if let Some(at) = found {
            one(&self.refused[at]);
        }
    }

    /// A session ended, or the browser of a quick action.
    pub(crate) fn ended(&self, region: u16, class: Class, reason: CloseReason) {
        if let Some(of) = self.region(region) {
            let ended = match class {
                Class::Session => &of.ended,
                Class::QuickAction | Class::Crawl => &of.quick,
            };
            one(&ended[usize::from(reason.number())]);
        }
    }

    /// Each region, in the order of the broker.
    #[must_use]
    pub fn counted(&self) -> Vec<Counted> {
        let now = self.began.elapsed();
        let counted = |of: &Region| {
            let given = of.given.load(Ordering::Relaxed).checked_sub(1);
            Counted {
                ready: of.ready.times(),
                cold: of.cold.times(),
                picks: of.picks.load(Ordering::Relaxed),
                empty: of.empty.load(Ordering::Relaxed),
                ended: all(&of.ended),
                quick: all(&of.quick),
                given: given.map(|at| now.saturating_sub(Duration::from_millis(at))),
            }
        };
        self.regions.iter().map(counted).collect()
    }

    /// Requests that were refused, in the order of [`REFUSALS`].
    #[must_use]
    pub fn refusals(&self) -> [u64; REFUSALS.len()] {
        all(&self.refused)
    }
}

impl Classes {
    fn times(&self) -> Times {
        Times {
            counts: all(&self.counts),
            sum: Duration::from_micros(self.micros.load(Ordering::Relaxed)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_happens_is_counted_where_it_belongs() {
        let tally = Tally::new(2);
        tally.acquired(1, false, Duration::from_millis(3));
        tally.acquired(1, true, Duration::from_secs(60));
        tally.acquired(7, false, Duration::ZERO);
        tally.picked(1, true);
        tally.picked(1, false);
        tally.ended(0, Class::Session, CloseReason::BrowserIdle);
        tally.ended(0, Class::QuickAction, CloseReason::NormalClosure);
        let counted = tally.counted();
        assert_eq!((counted[1].picks, counted[1].empty), (1, 1));
        assert_eq!(counted[1].ready.counts[2], 1, "up to 5 ms");
        assert_eq!(counted[1].ready.sum, Duration::from_millis(3));
        assert_eq!(counted[1].cold.counts.last(), Some(&1));
        assert!(counted[1].given.is_some());
        assert_eq!((counted[0].ended[2], counted[0].ended[1]), (1, 0));
        assert_eq!(counted[0].quick[1], 1);
        assert_eq!(counted[0].given, None);
    }

    #[test]
    fn every_refusal_has_its_count() {
        let wait = Duration::from_secs(1);
        let refusals = [
            Refusal::DailyTime { wait },
            Refusal::Concurrent { limit: 3 },
            Refusal::Rate { wait },
            Refusal::Capacity { draw: 0 },
        ];
        let tally = Tally::new(0);
        for (refusal, (_, status)) in refusals.iter().zip(REFUSALS) {
            tally.refused(refusal);
            assert_eq!(refusal.status(), status);
        }
        assert_eq!(tally.refusals(), [1; 4]);
    }
}
