//! How one of several candidates is chosen: a rule gives each its chance, one draw picks.
//!
//! Each rule is a function that returns [`Weights`]. Traffic draws from them and an explanation
//! prints them, so the two cannot differ.

mod first;
mod hash;
mod least;
mod nearest;
mod random;
mod slow_start;
mod weights;

pub(crate) use hash::rendezvous;
pub(crate) use nearest::Point;
pub(crate) use slow_start::Ramp;
pub use weights::{CANDIDATES_MAX, Weight, Weights};

/// How a pool is chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum PoolSteering {
    /// Geo when there is a map of places, else off.
    #[default]
    Auto,
    /// The first usable pool of the ordered list.
    Off,
    /// The first usable pool of the list of the place.
    Geo,
    /// A draw by the weights of the usable pools.
    Random,
    /// The usable pool whose probes are answered fastest.
    DynamicLatency,
    /// The usable pool that is nearest.
    Proximity,
    /// A draw by weight and by requests under way.
    LeastOutstandingRequests,
    /// A draw by weight and by open connections.
    LeastConnections,
}

/// What [`PoolSteering`] comes down to once the list of pools is settled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Among {
    /// The first in order.
    Ordered,
    /// The one with the least figure: of its probes or of its way.
    Fastest,
    Nearest,
    /// A draw.
    Drawn(EndpointSteering),
}

impl PoolSteering {
    /// Every method.
    pub const ALL: [PoolSteering; 8] = [
        PoolSteering::Auto,
        PoolSteering::Off,
        PoolSteering::Geo,
        PoolSteering::Random,
        PoolSteering::DynamicLatency,
        PoolSteering::Proximity,
        PoolSteering::LeastOutstandingRequests,
        PoolSteering::LeastConnections,
    ];

    /// The name, as the API spells it; empty for [`PoolSteering::Auto`].
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            PoolSteering::Auto => "",
            PoolSteering::Off => "off",
            PoolSteering::Geo => "geo",
            PoolSteering::Random => "random",
            PoolSteering::DynamicLatency => "dynamic_latency",
            PoolSteering::Proximity => "proximity",
            PoolSteering::LeastOutstandingRequests => "least_outstanding_requests",
            PoolSteering::LeastConnections => "least_connections",
        }
    }

    /// Whether it is a draw, and so one that weights of pools have a part in.
    #[must_use]
    pub const fn draws(self) -> bool {
        matches!(self.among(), Among::Drawn(_))
    }

    pub(crate) const fn among(self) -> Among {
        match self {
            PoolSteering::Auto | PoolSteering::Off | PoolSteering::Geo => Among::Ordered,
            PoolSteering::DynamicLatency => Among::Fastest,
            PoolSteering::Proximity => Among::Nearest,
            PoolSteering::Random => Among::Drawn(EndpointSteering::Random),
            PoolSteering::LeastOutstandingRequests => {
                Among::Drawn(EndpointSteering::LeastOutstandingRequests)
            }
            PoolSteering::LeastConnections => Among::Drawn(EndpointSteering::LeastConnections),
        }
    }
}

/// How an endpoint is chosen inside its pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum EndpointSteering {
    /// A draw by the weights of the candidates.
    #[default]
    Random,
    /// By the visitor's address, which comes to the same endpoint while that is a candidate.
    Hash,
    /// A draw by weight and by requests under way.
    LeastOutstandingRequests,
    /// A draw by weight and by open connections.
    LeastConnections,
}

impl EndpointSteering {
    /// Every method.
    pub const ALL: [EndpointSteering; 4] = [
        EndpointSteering::Random,
        EndpointSteering::Hash,
        EndpointSteering::LeastOutstandingRequests,
        EndpointSteering::LeastConnections,
    ];

    /// The name, as the API spells it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            EndpointSteering::Random => "random",
            EndpointSteering::Hash => "hash",
            EndpointSteering::LeastOutstandingRequests => "least_outstanding_requests",
            EndpointSteering::LeastConnections => "least_connections",
        }
    }
}

pub(crate) use first::first;
pub(crate) use least::by_load;
pub(crate) use nearest::least;
pub(crate) use random::by_weight;
