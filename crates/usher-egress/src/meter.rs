//! How much went through, and when something last did.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::{Instant, sleep};

use crate::cause::Cause;

/// What a browser sent and got, over all its connections. What stands between browser and proxy
/// (requests refused, answers of our own) is not in it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Usage {
    /// Bytes sent to servers.
    pub sent: u64,
    /// Bytes received from servers and passed on.
    pub received: u64,
    /// Connections made.
    pub connections: u64,
    /// Connections open now.
    pub open: u64,
}

/// Counts one browser's bytes.
#[derive(Debug, Default)]
pub(crate) struct Meter {
    pub(crate) sent: AtomicU64,
    pub(crate) received: AtomicU64,
    pub(crate) connections: AtomicU64,
    total: AtomicU64,
}

/// Which way bytes go.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Way {
    Out,
    In,
}

impl Meter {
    /// Takes `count` bytes before they are passed on: no byte beyond `max` passes.
    pub(crate) fn take(&self, way: Way, count: usize, max: Option<u64>) -> Result<(), Cause> {
        let count = count as u64;
        let before = self.total.fetch_add(count, Ordering::Relaxed);
        if max.is_some_and(|max| before.saturating_add(count) > max) {
            self.total.fetch_sub(count, Ordering::Relaxed);
            return Err(Cause::Traffic);
        }
        let counter = match way {
            Way::Out => &self.sent,
            Way::In => &self.received,
        };
        counter.fetch_add(count, Ordering::Relaxed);
        Ok(())
    }

    /// Whether not one byte more may pass.
    pub(crate) fn is_spent(&self, max: Option<u64>) -> bool {
        max.is_some_and(|max| self.total.load(Ordering::Relaxed) >= max)
    }
}

/// When a connection last moved.
#[derive(Debug)]
pub(crate) struct Pulse {
    base: Instant,
    last_millis: AtomicU64,
}

impl Pulse {
    pub(crate) fn new() -> Pulse {
        Pulse {
            base: Instant::now(),
            last_millis: AtomicU64::new(0),
        }
    }

    pub(crate) fn beat(&self) {
        let millis = self.base.elapsed().as_millis();
        let millis = u64::try_from(millis).unwrap_or(u64::MAX);
        self.last_millis.store(millis, Ordering::Relaxed);
    }

    /// Returns when nothing moved for `idle`, or `lifetime` after the beginning.
    pub(crate) async fn stops(&self, idle: Duration, lifetime: Duration) {
        loop {
            let last = Duration::from_millis(self.last_millis.load(Ordering::Relaxed));
            let until = (last.saturating_add(idle)).min(lifetime);
            let left = until.saturating_sub(self.base.elapsed());
            if left.is_zero() {
                return;
            }
            sleep(left).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn not_one_byte_beyond_the_limit_passes() {
        let meter = Meter::default();
        assert_eq!(meter.take(Way::Out, 60, Some(100)), Ok(()));
        assert_eq!(meter.take(Way::In, 41, Some(100)), Err(Cause::Traffic));
        assert!(!meter.is_spent(Some(100)));
        assert_eq!(meter.take(Way::In, 40, Some(100)), Ok(()));
        assert_eq!(meter.take(Way::In, 1, Some(100)), Err(Cause::Traffic));
        assert!(meter.is_spent(Some(100)) && !meter.is_spent(None));
        assert_eq!(meter.take(Way::In, 1, None), Ok(()));
        let counted = [&meter.sent, &meter.received].map(|count| count.load(Ordering::Relaxed));
        assert_eq!(counted, [60, 41]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_pulse_stops_after_silence_or_after_its_life() {
        let second = Duration::from_secs(1);
        let pulse = Pulse::new();
        let began = Instant::now();
        let beats = async {
            for _ in 0..5 {
                sleep(second).await;
                pulse.beat();
            }
        };
        tokio::join!(beats, pulse.stops(second * 2, second * 100));
        assert_eq!(began.elapsed().as_secs(), 7);
        let pulse = Pulse::new();
        let began = Instant::now();
        pulse.stops(second * 100, second * 3).await;
        assert_eq!(began.elapsed().as_secs(), 3);
    }
}
