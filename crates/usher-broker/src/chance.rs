//! Names that nobody can guess, and draws.

/// 128 random bits.
pub(crate) fn name() -> u128 {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).expect("the system has random bits once it runs");
    u128::from_ne_bytes(bytes)
}

/// 64 random bits.
pub(crate) fn draw() -> u64 {
    name() as u64
}
