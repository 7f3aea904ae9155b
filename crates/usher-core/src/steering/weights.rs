//! Chances as integers, so that equal weights are exactly equal and sums never drift.

use crate::chance::part_of;

/// The most candidates of one choice: endpoints of a pool, pools of a load balancer.
pub const CANDIDATES_MAX: usize = 256;

/// A weight in steps of 0.01, as a fixed-point number. Range 0..=1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Weight(u32);

impl Weight {
    /// No new traffic.
    pub const ZERO: Weight = Weight(0);
    /// The default.
    pub const ONE: Weight = Weight(100);

    /// The nearest weight to `value`, which is brought into 0..=1.
    #[must_use]
    pub fn from_f64(value: f64) -> Weight {
        // `as` saturates and takes NaN to 0: both are what is wanted here.
        Weight((value.clamp(0.0, 1.0) * 100.0).round() as u32)
    }

    /// As the operator wrote it.
    #[must_use]
    pub fn as_f64(self) -> f64 {
        f64::from(self.0) / 100.0
    }

    /// Whether it is 0.
    #[must_use]
    pub const fn is_zero(self) -> bool {
        self.0 == 0
    }
}

/// The chance of each candidate, by its place in the list that was weighed.
///
/// On the stack and of fixed size, so that a decision allocates nothing.
#[derive(Debug, Clone)]
pub struct Weights {
    each: [u32; CANDIDATES_MAX],
    len: usize,
    total: u64,
}

impl Weights {
    /// No candidate at all.
    #[must_use]
    pub fn none() -> Weights {
        Weights {
            each: [0; CANDIDATES_MAX],
            len: 0,
            total: 0,
        }
    }

    /// Exactly one.
    #[must_use]
    pub fn certain(candidate: usize) -> Weights {
        let mut weights = Weights::none();
        if let Some(each) = weights.each.get_mut(candidate) {
            *each = Weight::ONE.0;
            weights.len = candidate + 1;
            weights.total = u64::from(Weight::ONE.0);
        }
        weights
    }

    /// In proportion to `candidates`; those past [`CANDIDATES_MAX`], which no checked catalog has,
    /// are left out.
    #[must_use]
    pub fn of(candidates: impl Iterator<Item = Weight>) -> Weights {
        let mut weights = Weights::none();
        for (each, weight) in weights.each.iter_mut().zip(candidates) {
            *each = weight.0;
            weights.len += 1;
            weights.total += u64::from(weight.0);
        }
        weights
    }

    /// Whether nothing can be drawn.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.total == 0
    }

    /// The chance of one candidate: 0..=1, exact.
    #[must_use]
    pub fn probability(&self, candidate: usize) -> f64 {
        let each = self.each[..self.len].get(candidate).copied().unwrap_or(0);
        if each == 0 {
            0.0
        } else {
            f64::from(each) / self.total as f64
        }
    }

    /// The candidate that `draw`, 64 random bits, falls on; `None` when there is none.
    #[must_use]
    pub fn draw(&self, draw: u64) -> Option<usize> {
        if self.is_empty() {
            return None;
        }
        let mut left = part_of(self.total, draw);
        for (candidate, &each) in self.each[..self.len].iter().enumerate() {
            match left.checked_sub(u64::from(each)) {
                Some(rest) => left = rest,
                None => return Some(candidate),
            }
        }
        None
    }

    /// The same chances without one candidate.
    #[must_use]
    pub fn without(mut self, candidate: usize) -> Weights {
        if let Some(each) = self.each.get_mut(candidate) {
            self.total -= u64::from(std::mem::take(each));
        }
        self
    }
}
