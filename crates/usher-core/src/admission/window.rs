//! Admissions in the last minute, never fewer than there were.
//!
//! Sixty-one buckets of a second, the partial ones at both ends among them: a minute that begins
//! within a second still counts that whole second. That costs at most 1/61 of the flow. A token
//! bucket is no substitute: it lets twice the limit through in one minute.

const SECONDS: usize = 61;

/// Counts by second.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Window {
    counts: [u32; SECONDS],
    /// The newest second that is counted, since the Unix epoch.
    newest: u64,
    sum: u64,
}

impl Default for Window {
    fn default() -> Window {
        Window {
            counts: [0; SECONDS],
            newest: 0,
            sum: 0,
        }
    }
}

impl Window {
    /// Forgets what is more than a minute before `now`, ms.
    pub(super) fn advance(&mut self, now: u64) {
        let second = now / 1000;
        if second <= self.newest {
            return;
        }
        // After a gap as long as the ring each bucket is stale; before, only those passed over.
        if second - self.newest >= SECONDS as u64 {
            self.counts = [0; SECONDS];
            self.sum = 0;
        } else {
            for passed in self.newest + 1..=second {
                let bucket = &mut self.counts[(passed % SECONDS as u64) as usize];
                self.sum -= u64::from(*bucket);
                *bucket = 0;
            }
        }
        self.newest = second;
    }

    /// `count` more, at `now`.
    pub(super) fn add(&mut self, now: u64, count: u64) {
        self.advance(now);
        self.put(self.newest, count);
    }

    /// `count` more in `second`, if that is in the window.
    pub(super) fn put(&mut self, second: u64, count: u64) {
        self.advance(second.saturating_mul(1000));
        if self.newest - second < SECONDS as u64 {
            let count = u32::try_from(count).unwrap_or(u32::MAX);
            let bucket = &mut self.counts[(second % SECONDS as u64) as usize];
            let added = count.min(u32::MAX - *bucket);
            *bucket += added;
            self.sum += u64::from(added);
        }
    }

    /// Admissions in the last minute, as of the last [`Window::advance`].
    pub(super) fn sum(&self) -> u64 {
        self.sum
    }

    /// Seconds with admissions, oldest first.
    pub(super) fn seconds(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        let oldest = self.newest.saturating_sub(SECONDS as u64 - 1);
        (oldest..=self.newest)
            .map(|second| {
                let count = self.counts[(second % SECONDS as u64) as usize];
                (second, u64::from(count))
            })
            .filter(|(_, count)| *count > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Against a list of all admissions: never fewer than in (now - 60 s, now], never any that
        /// are 61 s old; with idle gaps of any length.
        #[test]
        fn a_minute_is_never_undercounted(
            start in 0_u64..200_000,
            steps in proptest::collection::vec(
                (prop_oneof![0_u64..900, 900_u64..3_000, 55_000_u64..130_000], 0_u64..4),
                1..200,
            )
        ) {
            let mut window = Window::default();
            let mut all: Vec<(u64, u64)> = Vec::new();
            let mut now = start;
            for (gap, count) in steps {
                now += gap;
                window.advance(now);
                window.add(now, count);
                all.push((now, count));
                let within = |span: u64| -> u64 {
                    all.iter().filter(|(at, _)| at + span > now).map(|(_, count)| count).sum()
                };
                prop_assert!(window.sum() >= within(60_000), "at {now}");
                prop_assert!(window.sum() <= within(61_000), "at {now}");
                let listed: u64 = window.seconds().map(|(_, count)| count).sum();
                prop_assert_eq!(listed, window.sum());
            }
        }
    }

    #[test]
    fn a_filled_window_stays_filled_for_its_minute() {
        let mut window = Window::default();
        window.add(10_999, 7);
        window.advance(70_999);
        assert_eq!(window.sum(), 7, "60 s later the second still counts");
        window.advance(71_000);
        assert_eq!(window.sum(), 0);
    }
}
