//! Random: every request is drawn anew, in proportion to the weights.
//!
//! What is not usable is not in the sum, so its share spreads over the others in proportion.

use super::{Weight, Weights};

pub(super) fn weigh(candidates: impl Iterator<Item = Weight>) -> Weights {
    Weights::of(candidates)
}

pub(super) fn weigh_slice(candidates: &[Weight]) -> Weights {
    Weights::of_slice(candidates)
}
