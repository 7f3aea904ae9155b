//! What a decision says, so exact that the front has nothing left to choose.

use crate::catalog::{BalancerIx, EndpointIx, PoolIx};

/// The outcome for one request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decision {
    /// Send it on.
    Forward {
        /// The load balancer that matched.
        balancer: BalancerIx,
        /// The endpoints to try, in order.
        attempts: Attempts,
    },
    /// Answer without an endpoint.
    Respond {
        /// The load balancer that matched.
        balancer: BalancerIx,
        /// The answer.
        with: Response,
    },
    /// There is no place for this request. An answer, not an error: deciding cannot fail.
    Refuse {
        /// The load balancer that matched, if one did.
        balancer: Option<BalancerIx>,
        /// Why.
        reason: Refusal,
    },
}

/// One endpoint, and one for the single retry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attempts {
    /// The endpoint to connect to.
    pub first: Attempt,
    /// Where to go once if the first cannot be connected to (521, 522, 523, 525, 526).
    pub retry: Option<Attempt>,
}

/// One endpoint in the pool through which it was chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attempt {
    /// The pool that steering chose.
    pub pool: PoolIx,
    /// The endpoint inside it.
    pub endpoint: EndpointIx,
    /// Whether the pool was chosen as the fallback pool.
    pub fallback: bool,
}

/// An answer that comes from the configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Response {
    /// 301 to the same URL over HTTPS: the zone has `always_use_https` on.
    RedirectToHttps,
}

/// Why a request has no place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Refusal {
    /// No load balancer has this host: 404.
    UnknownHost,
    /// The load balancer is disabled, which is as if it were absent: 404.
    Disabled,
    /// No usable endpoint, the fallback pool's included: 530 with error 1016.
    NoEndpoint,
}

impl Refusal {
    /// Every refusal.
    pub const ALL: [Refusal; 3] = [Refusal::UnknownHost, Refusal::Disabled, Refusal::NoEndpoint];

    /// The status that the visitor gets.
    #[must_use]
    pub const fn status(self) -> u16 {
        match self {
            Refusal::UnknownHost | Refusal::Disabled => 404,
            Refusal::NoEndpoint => 530,
        }
    }

    /// One stable word for logs and metrics.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Refusal::UnknownHost => "unknown-host",
            Refusal::Disabled => "disabled",
            Refusal::NoEndpoint => "no-endpoint",
        }
    }
}
