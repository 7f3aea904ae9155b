//! Failover: the first usable pool of the list gets everything.
//!
//! Nothing is remembered, so traffic returns by itself when an earlier pool is usable again.

use super::{Weight, Weights};

pub(super) fn weigh(mut candidates: impl Iterator<Item = Option<Weight>>) -> Weights {
    candidates
        .position(|candidate| candidate.is_some())
        .map_or_else(Weights::none, Weights::certain)
}
