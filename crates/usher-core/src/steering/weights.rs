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
    /// At most 256 x 100: small numbers, so that sums are done several at a time.
    total: u32,
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
            weights.total = Weight::ONE.0;
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
            weights.total += weight.0;
        }
        weights
    }

    /// The same for weights that lie in one piece.
    #[must_use]
    pub fn of_slice(candidates: &[Weight]) -> Weights {
        let mut weights = Weights::none();
        weights.len = candidates.len().min(CANDIDATES_MAX);
        for (each, weight) in weights.each[..weights.len].iter_mut().zip(candidates) {
            *each = weight.0;
        }
        weights.total = weights.each[..weights.len].iter().sum();
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
            f64::from(each) / f64::from(self.total)
        }
    }

    /// The candidate that `draw`, 64 random bits, falls on; `None` when there is none.
    #[must_use]
    pub fn draw(&self, draw: u64) -> Option<usize> {
        self.find(place(self.total, draw))
    }

    /// The same as if the chance of `candidate` were 0.
    #[must_use]
    pub fn draw_other(&self, candidate: usize, draw: u64) -> Option<usize> {
        let before: u32 = self.each[..candidate].iter().sum();
        let own = self.each[candidate];
        let place = place(self.total - own, draw);
        self.find(if place < before { place } else { place + own })
    }

    /// The candidate whose part of the total holds `place`.
    fn find(&self, place: u32) -> Option<usize> {
        // Whole blocks are summed at once, which is several times faster than one by one.
        const BLOCK: usize = 16;
        let mut left = place;
        for (block, each) in self.each[..self.len].chunks(BLOCK).enumerate() {
            let sum: u32 = each.iter().sum();
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
}

/// Where `draw` falls in `total`.
fn place(total: u32, draw: u64) -> u32 {
    // Less than `total`, so it fits.
    part_of(u64::from(total), draw) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    fn weights(hundredths: &[u32]) -> Weights {
        Weights::of(hundredths.iter().map(|&each| Weight(each)))
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
        for (place, candidate) in (0..).zip(expected()) {
            assert_eq!(all.draw(draw_at(place, all.total)), Some(candidate));
        }
        for without in [1, 2, 3, 15, 17, 39] {
            let left = all.total - hundredths[without];
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
