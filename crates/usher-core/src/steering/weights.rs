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

    /// Its part in a draw: so many to the hundredth that it can be divided without much being lost,
    /// and so few that all candidates together fit into 64 bits.
    pub(crate) const fn shares(self) -> u64 {
        (self.0 as u64) << 32
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
pub struct Weights(Kind);

#[allow(
    clippy::large_enum_variant,
    reason = "it lives on the stack and is never stored"
)]
#[derive(Debug, Clone)]
enum Kind {
    None,
    /// The commonest case by far, and then nothing has to be summed.
    Certain(usize),
    Drawn {
        each: [u64; CANDIDATES_MAX],
        len: usize,
        total: u64,
    },
}

impl Weights {
    /// No candidate at all.
    #[must_use]
    pub const fn none() -> Weights {
        Weights(Kind::None)
    }

    /// Exactly one.
    #[must_use]
    pub const fn certain(candidate: usize) -> Weights {
        Weights(if candidate < CANDIDATES_MAX {
            Kind::Certain(candidate)
        } else {
            Kind::None
        })
    }

    /// In proportion to `shares`, each at most those of weight 1; those past [`CANDIDATES_MAX`],
    /// which no checked catalog has, are left out.
    #[must_use]
    pub fn of(shares: impl Iterator<Item = u64>) -> Weights {
        let (mut each, mut len, mut total) = ([0; CANDIDATES_MAX], 0, 0);
        for (each, shares) in each.iter_mut().zip(shares) {
            *each = shares;
            len += 1;
            total += shares;
        }
        Weights(Kind::Drawn { each, len, total })
    }

    /// In proportion to weights that lie in one piece.
    #[must_use]
    pub fn of_slice(candidates: &[Weight]) -> Weights {
        let mut each = [0; CANDIDATES_MAX];
        let len = candidates.len().min(CANDIDATES_MAX);
        for (each, weight) in each[..len].iter_mut().zip(candidates) {
            *each = u64::from(weight.0);
        }
        let total = each[..len].iter().sum();
        Weights(Kind::Drawn { each, len, total })
    }

    /// Whether nothing can be drawn.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        match self.0 {
            Kind::None => true,
            Kind::Certain(_) => false,
            Kind::Drawn { total, .. } => total == 0,
        }
    }

    /// The shares of one candidate; comparable within one `Weights` only.
    pub(crate) fn shares(&self, candidate: usize) -> u64 {
        match &self.0 {
            Kind::None => 0,
            Kind::Certain(certain) => u64::from(*certain == candidate),
            Kind::Drawn { each, len, .. } => each[..*len].get(candidate).copied().unwrap_or(0),
        }
    }

    /// The chance of one candidate: 0..=1, exact.
    #[must_use]
    pub fn probability(&self, candidate: usize) -> f64 {
        match (self.shares(candidate), &self.0) {
            (0, _) => 0.0,
            (_, Kind::None | Kind::Certain(_)) => 1.0,
            (shares, Kind::Drawn { total, .. }) => shares as f64 / *total as f64,
        }
    }

    /// The candidate that `draw`, 64 random bits, falls on; `None` when there is none.
    #[must_use]
    pub fn draw(&self, draw: u64) -> Option<usize> {
        match &self.0 {
            Kind::None => None,
            Kind::Certain(candidate) => Some(*candidate),
            Kind::Drawn { each, len, total } => find(&each[..*len], part_of(*total, draw)),
        }
    }

    /// The same as if the chance of `candidate` were 0.
    #[must_use]
    pub fn draw_other(&self, candidate: usize, draw: u64) -> Option<usize> {
        match &self.0 {
            Kind::None => None,
            Kind::Certain(certain) => Some(*certain).filter(|&certain| certain != candidate),
            Kind::Drawn { each, len, total } => {
                let each = &each[..*len];
                let before: u64 = each[..candidate].iter().sum();
                let place = part_of(*total - each[candidate], draw);
                let skipped = if place < before { 0 } else { each[candidate] };
                find(each, place + skipped)
            }
        }
    }
}

/// The candidate whose part of the total holds `place`.
fn find(each: &[u64], place: u64) -> Option<usize> {
    // Whole blocks are summed at once, which is several times faster than one by one.
    const BLOCK: usize = 16;
    let mut left = place;
    for (block, each) in each.chunks(BLOCK).enumerate() {
        let sum: u64 = each.iter().sum();
        if left >= sum {
            left -= sum;
            continue;
        }
        for (candidate, &each) in each.iter().enumerate() {
            match left.checked_sub(each) {
                Some(rest) => left = rest,
                None => return Some(block * BLOCK + candidate),
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn weights(hundredths: &[u32]) -> Weights {
        Weights::of(hundredths.iter().map(|&each| u64::from(each)))
    }

    /// The draw that falls on `place` of `total`.
    fn draw_at(place: u32, total: u32) -> u64 {
        ((u128::from(place) << 64) / u128::from(total)) as u64 + 1
    }

    #[test]
    fn every_place_belongs_to_the_candidate_that_its_sum_says() {
        let hundredths: Vec<u32> = (0..40).map(|place| place % 4).collect();
        let expected = || (0..40usize).flat_map(|place| std::iter::repeat_n(place, place % 4));
        let all = weights(&hundredths);
        let total = hundredths.iter().sum();
        for (place, candidate) in (0..).zip(expected()) {
            assert_eq!(all.draw(draw_at(place, total)), Some(candidate));
        }
        for without in [1, 2, 3, 15, 17, 39] {
            let left = total - hundredths[without];
            for (place, candidate) in
                (0..).zip(expected().filter(|&candidate| candidate != without))
            {
                assert_eq!(
                    all.draw_other(without, draw_at(place, left)),
                    Some(candidate),
                    "{place} {without}"
                );
            }
        }
    }

    #[test]
    fn the_ends_of_a_draw() {
        let two = weights(&[1, 0, 99, 0]);
        assert_eq!((two.draw(0), two.draw(u64::MAX)), (Some(0), Some(2)));
        assert_eq!(
            (two.draw_other(0, 0), two.draw_other(2, u64::MAX)),
            (Some(2), Some(0))
        );
        let one = weights(&[0, 5]);
        assert_eq!(
            (one.draw(0), one.draw(u64::MAX), one.draw_other(1, 7)),
            (Some(1), Some(1), None)
        );
        assert_eq!(
            (Weights::none().draw(0), weights(&[0, 0]).draw(u64::MAX)),
            (None, None)
        );
        assert_eq!(Weights::certain(255).draw(9), Some(255));
        assert_eq!(Weights::certain(256).draw(9), None);
    }

    #[test]
    fn as_many_candidates_as_there_may_be() {
        let full = weights(&[100; CANDIDATES_MAX]);
        assert_eq!(
            (full.draw(0), full.draw(u64::MAX)),
            (Some(0), Some(CANDIDATES_MAX - 1))
        );
        assert_eq!(full.probability(7), 1.0 / 256.0);
    }

    #[test]
    fn weights_are_hundredths() {
        for hundredths in 0..=100u32 {
            assert_eq!(
                Weight::from_f64(f64::from(hundredths) / 100.0),
                Weight(hundredths)
            );
        }
        assert_eq!(
            [f64::NAN, -1.0, 2.0].map(Weight::from_f64),
            [Weight(0), Weight(0), Weight(100)]
        );
    }
}
