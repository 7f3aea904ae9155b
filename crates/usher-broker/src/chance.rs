//! Names that nobody can guess, and draws.

/// 122 random bits, in the shape of a UUID of version 4: clients see them written as one.
pub(crate) fn name() -> u128 {
    let shapeless = bits() & !(0xf << 76) & !(0b11 << 62);
    shapeless | 4 << 76 | 0b10 << 62
}

/// 64 random bits.
pub(crate) fn draw() -> u64 {
    bits() as u64
}

fn bits() -> u128 {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).expect("the system has random bits once it runs");
    u128::from_ne_bytes(bytes)
}
