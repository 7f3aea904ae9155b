//! Least outstanding requests and least connections: a draw by weight, less likely the more is
//! under way.
//!
//! A draw and not the minimum: many nodes that all see the same minimum would rush to it together.
//! With nothing under way anywhere this is random.

use super::Weights;

/// `t = w / (n + 1)` for each candidate, given as its shares and what is under way there.
pub(crate) fn by_load(candidates: impl Iterator<Item = (u64, u32)>) -> Weights {
    Weights::of(candidates.map(|(shares, open)| shares / (u64::from(open) + 1)))
}
