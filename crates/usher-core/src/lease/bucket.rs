//! Tokens in millionths, so that no rate loses a remainder.
//!
//! One browser per 20 s is 50 millionths a millisecond, 1 per second is 1,000: whole numbers,
//! however often somebody asks. In thousandths the slow rate would never fill under a client that
//! asks every 10 ms.

use std::time::Duration;

use crate::time::Wall;

/// Millionths of a token in one.
pub const TOKEN: u64 = 1_000_000;

/// How fast a bucket fills and how much it holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Rate {
    /// Millionths of a token a millisecond. 0 fills never.
    pub micro_per_ms: u64,
    /// The most that it holds, in tokens; at least 1.
    pub burst: u32,
}

impl Rate {
    /// One token every `every`, at most `burst` at once.
    #[must_use]
    pub const fn one_per(every: Duration, burst: u32) -> Rate {
        let millis = match every.as_millis() as u64 {
            0 => 1,
            millis => millis,
        };
        Rate {
            micro_per_ms: TOKEN / millis,
            burst,
        }
    }

    /// `count` tokens a second, at most `burst` at once. Counts below a thousandth are 0.
    #[must_use]
    pub fn per_second(count: f64, burst: u32) -> Rate {
        // A float that is no count becomes 0 or the largest number.
        let micro_per_ms = (count * 1_000.0).round() as u64;
        Rate {
            micro_per_ms: micro_per_ms.min(1_000_000_000),
            burst,
        }
    }

    const fn full(self) -> u64 {
        let burst = if self.burst == 0 { 1 } else { self.burst };
        burst as u64 * TOKEN
    }
}

/// Tokens of one account for one surface.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bucket {
    micro: u64,
    filled: Wall,
}

impl Bucket {
    /// A full one.
    #[must_use]
    pub const fn full(rate: Rate, now: Wall) -> Bucket {
        Bucket {
            micro: rate.full(),
            filled: now,
        }
    }

    /// What is in it and since when, as a store keeps it.
    #[must_use]
    pub const fn kept(self) -> (u64, Wall) {
        (self.micro, self.filled)
    }

    /// The bucket that [`Bucket::kept`] told of.
    #[must_use]
    pub const fn of_kept(micro: u64, filled: Wall) -> Bucket {
        Bucket { micro, filled }
    }

    /// Fills it up to `now`. A clock that went back costs what would have been filled meanwhile, no
    /// more.
    pub fn fill(&mut self, rate: Rate, now: Wall) {
        let passed = now.since(self.filled).as_millis() as u64;
        let gained = passed.saturating_mul(rate.micro_per_ms);
        self.micro = self.micro.saturating_add(gained).min(rate.full());
        self.filled = now;
    }

    /// How long until there is a token; zero when there is one. A rate of 0 is a wait of a day.
    #[must_use]
    pub fn wait(&self, rate: Rate) -> Duration {
        match TOKEN.saturating_sub(self.micro) {
            0 => Duration::ZERO,
            _ if rate.micro_per_ms == 0 => Duration::from_secs(86_400),
            lack => Duration::from_millis(lack.div_ceil(rate.micro_per_ms)),
        }
    }

    /// Takes a token, if there is one.
    pub fn take(&mut self) -> bool {
        let left = self.micro.checked_sub(TOKEN);
        self.micro = left.unwrap_or(self.micro);
        left.is_some()
    }

    /// Gives a token back that bought nothing.
    pub fn refund(&mut self, rate: Rate) {
        self.micro = self.micro.saturating_add(TOKEN).min(rate.full());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const fn at(millis: i64) -> Wall {
        Wall::from_millis(millis)
    }

    #[test]
    fn asking_often_loses_nothing() {
        let rate = Rate::one_per(Duration::from_secs(20), 1);
        let mut bucket = Bucket::full(rate, at(0));
        let mut taken = 0;
        for millis in (0..200_000).step_by(7) {
            bucket.fill(rate, at(millis));
            taken += i32::from(bucket.take());
        }
        assert_eq!(taken, 10);
    }

    #[test]
    fn a_wait_is_told_to_the_millisecond() {
        let rate = Rate::per_second(1.0, 5);
        let mut bucket = Bucket::full(rate, at(0));
        for _ in 0..5 {
            assert!(bucket.take());
        }
        bucket.fill(rate, at(400));
        assert!(!bucket.take());
        assert_eq!(bucket.wait(rate), Duration::from_millis(600));
        bucket.fill(rate, at(999));
        assert!(!bucket.take());
        bucket.fill(rate, at(1_000));
        assert!(bucket.take());
    }

    #[test]
    fn a_clock_that_goes_back_neither_fills_nor_sticks() {
        let rate = Rate::per_second(1.0, 1);
        let mut bucket = Bucket::full(rate, at(1_000_000));
        assert!(bucket.take());
        bucket.fill(rate, at(0));
        assert!(!bucket.take());
        bucket.fill(rate, at(1_000));
        assert!(bucket.take());
    }

    #[test]
    fn odd_rates_are_rates() {
        for count in [f64::NAN, -1.0, 0.0] {
            assert_eq!(Rate::per_second(count, 1).micro_per_ms, 0);
        }
        assert!(Rate::per_second(f64::INFINITY, 1).micro_per_ms > 0);
        assert_eq!(
            Rate::per_second(0.05, 1),
            Rate::one_per(Duration::from_secs(20), 1)
        );
    }

    proptest! {
        #[test]
        fn never_more_than_burst_and_rate(
            steps in proptest::collection::vec((0_i64..3_000, 1_u8..4), 1..200),
            burst in 1_u32..6,
        ) {
            let rate = Rate::per_second(2.0, burst);
            let mut bucket = Bucket::full(rate, at(0));
            let mut now = 0;
            let mut taken = 0;
            for (pause, tries) in steps {
                now += pause;
                bucket.fill(rate, at(now));
                for _ in 0..tries {
                    taken += i64::from(bucket.take());
                }
                prop_assert!(taken <= i64::from(burst) + now * 2 / 1_000);
            }
        }
    }
}
