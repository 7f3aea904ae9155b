//! What a decision says, so exact that the front has nothing left to choose.

use std::time::Duration;

use crate::affinity::{Pin, PinKey};
use crate::catalog::{BalancerIx, CookieMarks, EndpointIx, PoolIx, SameSite};
use crate::rules::Transforms;
use crate::time::Wall;

/// The outcome for one request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(
    clippy::large_enum_variant,
    reason = "a box would be an allocation on every request; nobody keeps many decisions"
)]
pub enum Decision {
    /// Send it on.
    Forward(Forward),
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

/// Where a request goes, and what is to be done beside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Forward {
    /// The load balancer that matched.
    pub balancer: BalancerIx,
    /// The endpoints to try, in order.
    pub attempts: Attempts,
    /// How this request stands to the pins of its load balancer.
    pub affinity: Affinity,
    /// The changes to the request that its rules ask for; see
    /// [`crate::snapshot::Snapshot::transforms`].
    pub transforms: Transforms,
}

/// One endpoint, and one for the single retry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attempts {
    /// The endpoint to connect to.
    pub first: Attempt,
    /// Where to go once if the first cannot be connected to (521, 522, 523, 525, 526). It may be in
    /// another pool.
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

/// Which of the [`Attempts`] served the request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Served {
    /// The first.
    First,
    /// The retry.
    Retry,
}

/// How a request stands to pins, depending on which attempt serves it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Affinity {
    /// If the first attempt does.
    pub first: PinChange,
    /// If the retry does.
    pub retry: PinChange,
}

impl Affinity {
    /// No pins here.
    pub const NONE: Affinity = Affinity {
        first: PinChange::NONE,
        retry: PinChange::NONE,
    };

    /// The one for the attempt that served.
    #[must_use]
    pub const fn of(&self, served: Served) -> PinChange {
        match served {
            Served::First => self.first,
            Served::Retry => self.retry,
        }
    }
}

/// What became of a visitor's pin, and what is to be done about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PinChange {
    /// What became of it.
    pub outcome: PinOutcome,
    /// What to do once the endpoint has answered; see [`crate::snapshot::Snapshot::pin`].
    pub action: Option<PinAction>,
}

impl PinChange {
    /// No pins here.
    pub const NONE: PinChange = PinChange {
        outcome: PinOutcome::None,
        action: None,
    };
}

/// What became of a visitor's pin.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum PinOutcome {
    /// There is none: affinity is off, or the request lacks the headers.
    None,
    /// It has a pin now and had none before.
    New,
    /// It was used.
    Kept,
    /// It had one, which was broken, shed or failed over, and has another now.
    Moved,
}

impl PinOutcome {
    /// Every outcome.
    pub const ALL: [PinOutcome; 4] = [
        PinOutcome::None,
        PinOutcome::New,
        PinOutcome::Kept,
        PinOutcome::Moved,
    ];

    /// One stable word for logs and metrics.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            PinOutcome::None => "none",
            PinOutcome::New => "new",
            PinOutcome::Kept => "kept",
            PinOutcome::Moved => "moved",
        }
    }
}

/// What to do about a pin. [`crate::snapshot::Snapshot::pin`] makes the pin of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PinAction {
    /// The endpoint that the visitor is tied to.
    pub to: Attempt,
    /// When the pin was made: the moment of this request.
    pub since: Wall,
    /// How long it holds from then on; for a table, without another request.
    pub ttl: Duration,
    /// The key in the table of the node; `None`: it goes into a cookie.
    pub key: Option<PinKey>,
    /// How that cookie is marked, as far as the load balancer or a rule says.
    pub marks: CookieMarks,
}

/// A [`PinAction`] with the pin itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PinOrder {
    /// Seal it and send it as a cookie that lasts until it ends.
    SetCookie {
        /// The pin.
        pin: Pin,
        /// Whether the cookie is for TLS only.
        secure: bool,
        /// From where browsers send it. Never auto.
        same_site: SameSite,
    },
    /// Keep it under this key until it ends, in place of what is there.
    Remember(PinKey, Pin),
}

/// An answer that comes from the configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Response {
    /// 301 to the same URL over HTTPS: the zone has `always_use_https` on.
    RedirectToHttps,
    /// What [`crate::snapshot::Snapshot::fixed_response`] says.
    Fixed(FixedSource),
}

/// Where a fixed response stands, by its place in the load balancer's list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FixedSource {
    /// In a pool set.
    PoolSet(u16),
    /// In a rule.
    Rule(u16),
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
