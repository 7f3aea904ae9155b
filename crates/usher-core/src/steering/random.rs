//! Random: every request is drawn anew, in proportion to the weights.
//!
//! What is not usable is not in the sum, so its share spreads over the others in proportion.

use super::{Weight, Weights};

/// Of candidates that lie in one piece; those of weight 0 cannot be chosen.
pub(crate) fn by_weight(candidates: &[Weight]) -> Weights {
    Weights::of_slice(candidates)
}
