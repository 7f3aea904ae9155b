//! How one of several candidates is chosen: a rule gives each its chance, one draw picks.
//!
//! Each rule is a function that returns [`Weights`]. Traffic draws from them and an explanation
//! prints them, so the two cannot differ.

mod off;
mod random;
mod weights;

pub use weights::{CANDIDATES_MAX, Weight, Weights};

/// How a pool is chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum PoolSteering {
    /// The first usable pool of the ordered list.
    #[default]
    Off,
    /// A draw by the weights of the usable pools.
    Random,
}

impl PoolSteering {
    /// Every method.
    pub const ALL: [PoolSteering; 2] = [PoolSteering::Off, PoolSteering::Random];

    /// The name, as the API spells it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            PoolSteering::Off => "off",
            PoolSteering::Random => "random",
        }
    }

    /// The chance of each candidate, given in order of preference; a `None` is not usable.
    #[must_use]
    pub fn weigh(self, candidates: impl Iterator<Item = Option<Weight>>) -> Weights {
        match self {
            PoolSteering::Off => off::weigh(candidates),
            PoolSteering::Random => {
                random::weigh(candidates.map(|candidate| candidate.unwrap_or(Weight::ZERO)))
            }
        }
    }
}

/// How an endpoint is chosen inside its pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum EndpointSteering {
    /// A draw by the weights of the candidates.
    #[default]
    Random,
}

impl EndpointSteering {
    /// Every method.
    pub const ALL: [EndpointSteering; 1] = [EndpointSteering::Random];

    /// The name, as the API spells it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            EndpointSteering::Random => "random",
        }
    }

    /// The chance of each candidate, in proportion to its weight; one of weight 0 is not usable.
    #[must_use]
    pub fn weigh(self, candidates: &[Weight]) -> Weights {
        match self {
            EndpointSteering::Random => random::weigh_slice(candidates),
        }
    }
}
