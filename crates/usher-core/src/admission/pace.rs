//! How long a line takes whose members hold nothing: each takes the next thing that comes free, and
//! that is all.
//!
//! A room knows its seats and who sits on them; a line for browsers knows only when one came free.
//! So the rate is what was seen of late, and all that a room says of an estimate, of its spread and
//! of when there is nothing honest to say, holds here too.

use super::estimate::{Estimate, Outflow};
use super::rates::{Flow, Rates};

/// What was seen of a line's pace. Times are milliseconds by a clock that does not go back.
#[derive(Debug, Clone, Default)]
pub struct Pace(Rates);

impl Pace {
    /// Something came free that a member of the line may have.
    pub fn came_free(&mut self, now: u64) {
        self.0.released(now);
    }

    /// How long it takes until `people` of the line have been served, while nothing is free. `None`
    /// while too little was seen.
    #[must_use]
    pub fn estimate(&self, now: u64, people: usize) -> Option<Estimate> {
        let people = people as f64;
        let flow = Flow {
            releases: self.0.pace(now),
            ..self.0.flow(now, 0)
        };
        let outflow = Outflow {
            flow,
            ceiling: f64::INFINITY,
            free: 0.0,
            behind_ms: 0.0,
            refresh_ms: 0.0,
        };
        outflow.estimate(people, people, 0.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One came free every 2 s for 10 minutes: the fifth in line waits for about 10 s.
    #[test]
    fn a_line_moves_as_it_has_moved() {
        let mut pace = Pace::default();
        assert_eq!(pace.estimate(0, 1), None);
        for count in 1..=300 {
            pace.came_free(count * 2_000);
        }
        let now = 600_000;
        let fifth = pace.estimate(now, 5).expect("much was seen");
        assert!((9_000..=11_500).contains(&fifth.mid_ms), "{fifth:?}");
        assert!(fifth.low_ms < fifth.mid_ms && fifth.mid_ms < fifth.high_ms);
        let tenth = pace.estimate(now, 10).expect("much was seen");
        assert!(tenth.mid_ms.abs_diff(2 * fifth.mid_ms) <= 2, "{tenth:?}");
        // An hour later that is no news.
        assert_eq!(pace.estimate(now + 3_600_000, 5), None);
    }
}
