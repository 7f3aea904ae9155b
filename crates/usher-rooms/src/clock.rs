//! The time that rooms and doors go by.
//!
//! Read once from the system and then carried on by the clock that nobody sets: a jump of the system
//! clock ends no seat and voids no ticket, and a door never disagrees with the room behind it. After
//! a restart it goes on from the system's time, or from what the journals say if that is later.

use std::time::{SystemTime, UNIX_EPOCH};

use tokio::time::Instant;

/// Milliseconds since the Unix epoch, never going back while the process lives.
#[derive(Debug, Clone, Copy)]
pub struct Clock {
    began: Instant,
    at: u64,
}

impl Clock {
    /// A clock that shows the system's time now, or `at_least` where that is later.
    #[must_use]
    pub fn start(at_least: u64) -> Clock {
        let system = (SystemTime::now().duration_since(UNIX_EPOCH))
            .map_or(0, |since| u64::try_from(since.as_millis()).unwrap_or(0));
        Clock {
            began: Instant::now(),
            at: system.max(at_least),
        }
    }

    /// What it shows.
    #[must_use]
    pub fn now(&self) -> u64 {
        let since = u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.at.saturating_add(since)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn it_goes_on_from_the_later_of_both() {
        let clock = Clock::start(0);
        let began = clock.now();
        assert!(began > 1_700_000_000_000);
        tokio::time::advance(Duration::from_millis(1500)).await;
        assert_eq!(clock.now(), began + 1500);
        let ahead = Clock::start(began + 1_000_000_000);
        assert_eq!(ahead.now(), began + 1_000_000_000);
    }
}
