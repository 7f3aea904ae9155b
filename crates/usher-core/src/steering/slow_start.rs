//! Slow start: the weight of an endpoint that came into service rises to its full value.
//!
//! A server that has just started has cold caches, and its full share at once is what brings it
//! down again. The rise begins at a tenth, so that it gets some traffic from the first moment.

use std::time::Duration;

use super::Weight;
use crate::time::Mono;

/// The part of its weight that an endpoint has in the first moment, as one of so many.
const BEGIN: u64 = 10;

/// The rise of the endpoints of one pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ramp {
    pub(crate) length: Duration,
}

impl Ramp {
    /// The shares of an endpoint of `weight` that came into service at `since`.
    pub(crate) fn shares(self, weight: Weight, since: Mono, now: Mono) -> u64 {
        let (full, passed) = (weight.shares(), now.since(since).as_nanos());
        let length = self.length.as_nanos().max(1);
        if passed >= length {
            return full;
        }
        // Below `full`, since `passed` is below `length`.
        let risen = (u128::from(full) * passed / length) as u64;
        risen.max(full / BEGIN)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_weight_rises_from_a_tenth_to_its_full_value() {
        let ramp = Ramp {
            length: Duration::from_secs(100),
        };
        let since = Mono::from_nanos(7);
        let at = |seconds: f64| {
            let now = since.after(Duration::from_secs_f64(seconds));
            ramp.shares(Weight::ONE, since, now) as f64 / Weight::ONE.shares() as f64
        };
        for (seconds, part) in [
            (0.0, 0.1),
            (5.0, 0.1),
            (10.0, 0.1),
            (11.0, 0.11),
            (50.0, 0.5),
            (99.0, 0.99),
            (100.0, 1.0),
            (1e6, 1.0),
        ] {
            assert!(
                (at(seconds) - part).abs() < 1e-6,
                "{seconds}: {}",
                at(seconds)
            );
        }
        assert_eq!(ramp.shares(Weight::ZERO, since, since), 0);
    }
}
