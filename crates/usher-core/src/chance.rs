//! Chance that can be replayed: splitmix64, whose whole state is one number.
//!
//! Good enough for steering and jitter, and nothing here is a secret.

/// Spreads the bits of `value` over the whole word; a permutation.
pub(crate) fn scatter(value: u64) -> u64 {
    let mut bits = value;
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}

/// The odd constant of splitmix64: steps by it never meet.
pub(crate) const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// The part of `total` that `draw`, 64 random bits, falls on: 0..total, with a bias below
/// `total` / 2^64. 0 when `total` is 0.
pub(crate) fn part_of(total: u64, draw: u64) -> u64 {
    // The high half of the product of two 64-bit numbers fits into 64 bits.
    ((u128::from(draw) * u128::from(total)) >> 64) as u64
}

/// A sequence of draws.
#[derive(Debug, Clone)]
pub(crate) struct Chance(u64);

impl Chance {
    pub(crate) fn new(seed: u64) -> Chance {
        Chance(scatter(seed.wrapping_add(STEP)))
    }

    pub(crate) fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(STEP);
        scatter(self.0)
    }

    pub(crate) fn below(&mut self, total: u64) -> u64 {
        part_of(total, self.draw())
    }
}
