//! Chance of the simulated world; apart from the core's own, which is under test.

/// xorshift64*.
#[derive(Debug, Clone)]
pub(crate) struct Rng(u64);

impl Rng {
    pub(crate) fn new(seed: u64) -> Rng {
        let mut rng = Rng(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        for _ in 0..4 {
            rng.draw();
        }
        rng
    }

    pub(crate) fn draw(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// 0..n
    pub(crate) fn below(&mut self, n: usize) -> usize {
        ((self.draw() >> 11) % n as u64) as usize
    }

    /// low..=high
    pub(crate) fn within(&mut self, low: usize, high: usize) -> usize {
        low + self.below(high - low + 1)
    }

    /// True in `percent` of a hundred cases.
    pub(crate) fn percent(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }

    /// Above 0, at most 1.
    fn unit(&mut self) -> f64 {
        ((self.draw() >> 11) as f64 + 1.0) / (1_u64 << 53) as f64
    }

    /// A waiting time of this mean.
    pub(crate) fn exponential(&mut self, mean: f64) -> f64 {
        -self.unit().ln() * mean
    }

    /// How often something happened that happens so often on average; for means of a few hundred.
    pub(crate) fn poisson(&mut self, mean: f64) -> usize {
        let least = (-mean).exp();
        let (mut count, mut product) = (0, self.unit());
        while product > least {
            count += 1;
            product *= self.unit();
        }
        count
    }

    pub(crate) fn pick<'a, T>(&mut self, of: &'a [T]) -> &'a T {
        &of[self.below(of.len())]
    }
}
