//! How many browsers to keep warm.
//!
//! Enough for what is picked while a new one starts, with three standard deviations of a random
//! arrival on top. What is picked is judged by the busiest of three memories: the last minute, the
//! busiest ten seconds of the last ten minutes, and the same quarter-hour of the last seven days.
//! It grows at once and shrinks slowly, because a browser too many costs memory and one too few
//! costs somebody's time.
//!
//! Source: browser specification 11.8.

use std::collections::VecDeque;
use std::time::Duration;

use crate::time::Wall;

/// How often a pool is sized.
pub const EVERY: Duration = Duration::from_secs(5);
/// A ready browser older than this is replaced.
pub const READY_AGE_MAX: Duration = Duration::from_secs(30 * 60);
/// What a start takes before one has been seen.
const START_UNKNOWN: Duration = Duration::from_secs(3);
/// Starts that are remembered.
const STARTS: usize = 64;

const SECONDS: usize = 600;
const BUSY_SPAN: usize = 10;
const QUARTER_SECS: i64 = 900;
const QUARTERS: usize = 96;
const DAYS: usize = 7;

/// What was picked, by region and stock.
#[derive(Debug, Clone)]
pub struct Demand {
    /// The second that is being counted, since 1970.
    second: i64,
    /// Picks of the last seconds, the one that is being counted last.
    seconds: VecDeque<u32>,
    /// Picks a second, over a minute.
    smooth: f64,
    /// Picks of each quarter-hour of the last days, with the number of the quarter-hour since 1970
    /// that they were counted in.
    quarters: Vec<(i64, u32)>,
}

impl Demand {
    /// Nothing was ever picked.
    #[must_use]
    pub fn new(now: Wall) -> Demand {
        Demand {
            second: now.as_millis().div_euclid(1_000),
            seconds: VecDeque::from([0]),
            smooth: 0.0,
            quarters: vec![(i64::MIN, 0); DAYS * QUARTERS],
        }
    }

    /// Somebody took one, or would have.
    pub fn picked(&mut self, now: Wall) {
        self.pass(now);
        if let Some(last) = self.seconds.back_mut() {
            *last = last.saturating_add(1);
        }
        let quarter = self.second.div_euclid(QUARTER_SECS);
        let kept = &mut self.quarters[quarter.rem_euclid((DAYS * QUARTERS) as i64) as usize];
        if kept.0 != quarter {
            *kept = (quarter, 0);
        }
        kept.1 = kept.1.saturating_add(1);
    }

    /// Begins new seconds. A clock that goes back goes on counting in the second that it had.
    fn pass(&mut self, now: Wall) {
        // What a second adds to the average of a minute: 1 - e^(-1/60).
        const PART: f64 = 0.016_528_546_2;
        let second = now.as_millis().div_euclid(1_000);
        let passed = second.saturating_sub(self.second);
        if passed <= 0 {
            return;
        }
        self.second = second;
        let counted = f64::from(self.seconds.back().copied().unwrap_or(0));
        self.smooth += (counted - self.smooth) * PART;
        let idle = i32::try_from(passed - 1).unwrap_or(i32::MAX);
        self.smooth *= (1.0 - PART).powi(idle);
        for _ in 0..passed.min(SECONDS as i64) {
            self.seconds.push_back(0);
        }
        let over = self.seconds.len().saturating_sub(SECONDS);
        self.seconds.drain(..over);
    }

    /// Picks a second to be ready for.
    pub fn rate(&mut self, now: Wall) -> f64 {
        self.pass(now);
        let mut sum = 0_u64;
        let mut busiest = 0;
        for (at, &count) in self.seconds.iter().enumerate() {
            sum += u64::from(count);
            if at >= BUSY_SPAN {
                sum -= u64::from(self.seconds[at - BUSY_SPAN]);
            }
            busiest = busiest.max(sum);
        }
        let quarter = self.second.div_euclid(QUARTER_SECS);
        let then = (1..=DAYS as i64).map(|days| {
            let quarter = quarter - days * QUARTERS as i64;
            let kept = self.quarters[quarter.rem_euclid((DAYS * QUARTERS) as i64) as usize];
            if kept.0 == quarter { kept.1 } else { 0 }
        });
        let then = f64::from(then.max().unwrap_or(0)) / QUARTER_SECS as f64;
        (1.5 * self.smooth)
            .max(busiest as f64 / BUSY_SPAN as f64)
            .max(1.1 * then)
    }
}

/// How long starts take, canary included.
#[derive(Debug, Clone, Default)]
pub struct Starts {
    last: VecDeque<Duration>,
}

impl Starts {
    /// One took this long.
    pub fn took(&mut self, time: Duration) {
        self.last.push_back(time);
        if self.last.len() > STARTS {
            self.last.pop_front();
        }
    }

    /// What 95 % of the last ones stay under.
    #[must_use]
    pub fn p95(&self) -> Duration {
        let mut sorted: Vec<Duration> = self.last.iter().copied().collect();
        sorted.sort_unstable();
        let at = (sorted.len() * 95).div_ceil(100).saturating_sub(1);
        sorted.get(at).copied().unwrap_or(START_UNKNOWN)
    }
}

/// The fewest and the most that are kept ready.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// At least.
    pub ready_min: u32,
    /// At most; below `ready_min` it acts as that.
    pub ready_max: u32,
}

/// How many to keep ready for `rate` picks a second and starts that take `start`.
#[must_use]
pub fn want(rate: f64, start: Duration, bounds: Bounds) -> u32 {
    let meanwhile = rate.max(0.0) * (start + EVERY).as_secs_f64();
    // A float that is no count becomes 0 or the largest number.
    let wanted = (meanwhile + 3.0 * meanwhile.sqrt()).ceil() as u32;
    wanted.clamp(bounds.ready_min, bounds.ready_max.max(bounds.ready_min))
}

/// What a pool has when it is sized.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stand {
    /// Ready.
    pub ready: u32,
    /// Of these, too old or of an older build.
    pub stale: u32,
    /// Starting.
    pub starting: u32,
    /// Places on nodes that nothing takes.
    pub free: u32,
    /// Starts that the nodes may begin now.
    pub launches: u32,
}

/// What to do.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Order {
    /// Start so many.
    pub launch: u32,
    /// Close so many that are ready: stale ones first, then the oldest.
    pub retire: u32,
}

/// Turns wanted numbers into orders, and keeps shrinking slow.
#[derive(Debug, Clone, Copy, Default)]
pub struct Sizer {
    /// Browsers that may be let go, from the tenth a minute; less than what a minute allows.
    allowance: f64,
}

impl Sizer {
    /// The order for a pool that should have `wanted` ready, `passed` after the last one.
    pub fn order(&mut self, wanted: u32, stand: Stand, passed: Duration) -> Order {
        let coming = stand.ready.saturating_add(stand.starting);
        let minute = f64::from(stand.ready) * 0.1;
        let gained = minute * passed.as_secs_f64() / 60.0;
        self.allowance = (self.allowance + gained).min(minute.max(1.0));
        if coming > wanted {
            let over = (coming - wanted).min(stand.ready);
            let retire = over.min(self.allowance as u32);
            self.allowance -= f64::from(retire);
            return Order { launch: 0, retire };
        }
        let launch = |wanted: u32| (wanted - coming).min(stand.free).min(stand.launches);
        if coming < wanted {
            self.allowance = 0.0;
            return Order {
                launch: launch(wanted),
                retire: 0,
            };
        }
        // As many as wanted, but some are stale: each makes room for a fresh one, and comes first
        // where there is a place for both.
        let launch = stand.stale.min(stand.free).min(stand.launches);
        let retire = if launch == 0 && stand.starting == 0 && stand.free == 0 {
            stand.stale.min(1)
        } else {
            0
        };
        Order { launch, retire }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOUNDS: Bounds = Bounds {
        ready_min: 2,
        ready_max: 50,
    };

    fn at(secs: i64) -> Wall {
        Wall::from_millis(1_790_000_000_000 + secs * 1_000)
    }

    #[test]
    fn enough_for_what_is_picked_while_one_starts() {
        for (rate, start, wanted) in [
            (0.0, 3, 2),
            // 8 in 8 s, and three times the root of that.
            (1.0, 3, 17),
            (2.0, 3, 28),
            (100.0, 3, 50),
            (f64::NAN, 3, 2),
            (f64::INFINITY, 3, 50),
        ] {
            assert_eq!(
                want(rate, Duration::from_secs(start), BOUNDS),
                wanted,
                "{rate}"
            );
        }
    }

    #[test]
    fn demand_is_the_busiest_of_three_memories() {
        let mut demand = Demand::new(at(0));
        for second in 0..600 {
            demand.picked(at(second));
        }
        let rate = demand.rate(at(600));
        assert!(
            (1.49..=1.5).contains(&rate),
            "an even pace, half on top: {rate}"
        );
        for _ in 0..40 {
            demand.picked(at(600));
        }
        let rate = demand.rate(at(601));
        assert!((4.8..=4.95).contains(&rate), "ten busy seconds: {rate}");
        // Ten quiet minutes later only the days remember.
        assert!(demand.rate(at(1_500)) < 0.001);
        // 1,790,000,000 lies 800 s into its quarter-hour, which has counted 100 picks; the next
        // one has counted the rest.
        let rate = demand.rate(at(86_400 + 200));
        assert!(
            (rate - 1.1 * 540.0 / 900.0).abs() < 0.001,
            "yesterday: {rate}"
        );
        assert!(demand.rate(at(8 * 86_400 + 200)) < 0.001, "eight days ago");
    }

    #[test]
    fn a_clock_that_goes_back_forgets_nothing() {
        let mut demand = Demand::new(at(1_000));
        demand.picked(at(1_000));
        demand.picked(at(0));
        assert!(demand.rate(at(0)) > 0.19);
    }

    #[test]
    fn starts_are_judged_by_the_slow_ones() {
        let mut starts = Starts::default();
        assert_eq!(starts.p95(), START_UNKNOWN);
        for millis in (1..=200).rev() {
            starts.took(Duration::from_millis(millis));
        }
        assert_eq!(starts.p95(), Duration::from_millis(61), "of the last 64");
    }

    #[test]
    fn it_grows_at_once_and_shrinks_by_a_tenth_a_minute() {
        let mut sizer = Sizer::default();
        let stand = Stand {
            ready: 40,
            stale: 0,
            starting: 0,
            free: 100,
            launches: 8,
        };
        let order = sizer.order(50, stand, EVERY);
        assert_eq!(
            order,
            Order {
                launch: 8,
                retire: 0
            }
        );
        let mut ready = 40;
        for _ in 0..12 {
            let order = sizer.order(10, Stand { ready, ..stand }, EVERY);
            ready -= order.retire;
        }
        assert!((36..=37).contains(&ready), "{ready}");
        for _ in 0..12 * 60 {
            let order = sizer.order(10, Stand { ready, ..stand }, EVERY);
            ready -= order.retire;
        }
        assert_eq!(ready, 10, "also the last few go, if slowly");
    }

    #[test]
    fn a_stale_browser_is_replaced_before_it_goes() {
        let mut sizer = Sizer::default();
        let full = Stand {
            ready: 4,
            stale: 2,
            starting: 0,
            free: 1,
            launches: 4,
        };
        let order = sizer.order(4, full, EVERY);
        assert_eq!(
            order,
            Order {
                launch: 1,
                retire: 0
            }
        );
        let order = sizer.order(4, Stand { free: 0, ..full }, EVERY);
        assert_eq!(
            order,
            Order {
                launch: 0,
                retire: 1
            },
            "no place for both"
        );
        for _ in 0..120 {
            let more = Stand {
                ready: 5,
                free: 0,
                ..full
            };
            if sizer.order(4, more, EVERY).retire == 1 {
                return;
            }
        }
        panic!("the replaced one stayed");
    }
}
