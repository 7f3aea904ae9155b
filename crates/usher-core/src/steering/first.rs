//! Failover: the first usable candidate of the list gets everything. Off, and geo within its list.
//!
//! Nothing is remembered, so traffic returns by itself when an earlier pool is usable again.

use super::Weights;

/// Of candidates in order of preference, given as whether each is usable.
pub(crate) fn first(mut usable: impl Iterator<Item = bool>) -> Weights {
    usable
        .position(|usable| usable)
        .map_or_else(Weights::none, Weights::certain)
}
