//! Why somebody gets no browser: their limit (429) or our capacity (503), never mixed up.
//!
//! The texts are part of the contract: a Worker sees nothing else, and people match them with
//! regular expressions. Source: browser specification 9.3.

use std::fmt;
use std::time::Duration;

use crate::chance::part_of;

/// How long somebody over the number of sessions is told to wait.
const CONCURRENT_RETRY: u64 = 5;
/// How long somebody without a browser is told to wait, at least and at most: apart, so that they
/// do not all come back together.
const CAPACITY_RETRY: (u64, u64) = (5, 30);

/// Why there is no browser. Its `Display` is the text that clients get.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// The account has used up its time.
    DailyTime {
        /// Until the next day in UTC.
        wait: Duration,
    },
    /// The account has as many sessions as it may have.
    Concurrent {
        /// So many.
        limit: u32,
    },
    /// The account asks too often.
    Rate {
        /// Until it may ask again.
        wait: Duration,
    },
    /// All browsers are taken.
    Capacity {
        /// 64 random bits, which spread the next tries.
        draw: u64,
    },
}

impl Refusal {
    /// The HTTP status.
    #[must_use]
    pub const fn status(self) -> u16 {
        match self {
            Refusal::DailyTime { .. } | Refusal::Concurrent { .. } | Refusal::Rate { .. } => 429,
            Refusal::Capacity { .. } => 503,
        }
    }

    /// The value of `Retry-After`, in seconds, at least 1.
    #[must_use]
    pub fn retry_after_secs(self) -> u64 {
        let ceil = |wait: Duration| wait.as_secs() + u64::from(wait.subsec_nanos() > 0);
        match self {
            Refusal::DailyTime { wait } | Refusal::Rate { wait } => ceil(wait).max(1),
            Refusal::Concurrent { .. } => CONCURRENT_RETRY,
            Refusal::Capacity { draw } => {
                let (least, most) = CAPACITY_RETRY;
                least + part_of(most - least + 1, draw)
            }
        }
    }

    /// The word for it in metrics.
    #[must_use]
    pub const fn cause(self) -> &'static str {
        match self {
            Refusal::DailyTime { .. } => "daily_time",
            Refusal::Concurrent { .. } => "concurrent",
            Refusal::Rate { .. } => "rate",
            Refusal::Capacity { .. } => "capacity",
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refusal::DailyTime { .. } => f.write_str("Browser time limit exceeded for today"),
            Refusal::Concurrent { limit } => {
                write!(f, "Too many concurrent browsers: limit is {limit}")
            }
            Refusal::Rate { .. } => f.write_str("Rate limit exceeded"),
            Refusal::Capacity { .. } => {
                f.write_str("No browser available. Please try again in a few minutes.")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_is_told_in_whole_seconds_and_never_too_short() {
        let rate = |millis| Refusal::Rate {
            wait: Duration::from_millis(millis),
        };
        for (millis, seconds) in [(0, 1), (1, 1), (1_000, 1), (1_001, 2)] {
            assert_eq!(rate(millis).retry_after_secs(), seconds, "{millis}");
        }
        for (draw, seconds) in [(0, 5), (u64::MAX, 30)] {
            assert_eq!(Refusal::Capacity { draw }.retry_after_secs(), seconds);
        }
    }
}
