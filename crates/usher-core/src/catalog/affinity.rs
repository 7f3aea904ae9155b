//! How visitors stay at one endpoint: what a load balancer, or a rule of it, asks for.

use std::time::Duration;

use super::CookieMarks;

/// The names that the session key of [`AffinityMode::Header`] is made of; at most so many.
pub const AFFINITY_HEADERS_MAX: usize = 5;

/// Session affinity of a load balancer. Source: load-balancing API, `session_affinity*`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Affinity {
    /// Whether visitors are pinned, and by what they are known again. Default none.
    pub mode: AffinityMode,
    /// How long a pin holds; `None`: the default of the mode, see [`AffinityMode::ttl_default`].
    pub ttl: Option<Duration>,
    /// Everything else about it.
    pub attributes: AffinityAttributes,
}

/// By what a visitor is known again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum AffinityMode {
    /// By nothing: every request is steered anew.
    #[default]
    None,
    /// By a cookie that Usher sets.
    Cookie,
    /// By the cookie; without one the address chooses the endpoint, so that a visitor who drops
    /// cookies still comes to the same.
    IpCookie,
    /// By headers of the request; the table of pins is the node's.
    Header,
}

impl AffinityMode {
    /// Every mode.
    pub const ALL: [AffinityMode; 4] = [
        AffinityMode::None,
        AffinityMode::Cookie,
        AffinityMode::IpCookie,
        AffinityMode::Header,
    ];

    /// The name, as the API spells it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            AffinityMode::None => "none",
            AffinityMode::Cookie => "cookie",
            AffinityMode::IpCookie => "ip_cookie",
            AffinityMode::Header => "header",
        }
    }

    /// How long a pin holds when nothing else is set: 23 hours from its creation, or half an hour
    /// from the last request for headers.
    #[must_use]
    pub const fn ttl_default(self) -> Duration {
        match self {
            AffinityMode::None | AffinityMode::Cookie | AffinityMode::IpCookie => {
                Duration::from_secs(82_800)
            }
            AffinityMode::Header => Duration::from_secs(1_800),
        }
    }

    /// The least and the greatest time that a pin may hold.
    #[must_use]
    pub const fn ttl_range(self) -> (Duration, Duration) {
        match self {
            AffinityMode::None | AffinityMode::Cookie | AffinityMode::IpCookie => {
                (Duration::from_secs(1_800), Duration::from_secs(604_800))
            }
            AffinityMode::Header => (Duration::from_secs(30), Duration::from_secs(3_600)),
        }
    }
}

/// The fine print of affinity. Source: load-balancing API, `session_affinity_attributes`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AffinityAttributes {
    /// How the cookie is marked for browsers.
    pub marks: CookieMarks,
    /// How long the pins of a disabled endpoint still hold. Default 0: not at all.
    pub drain: Duration,
    /// What becomes of a pinned request whose endpoint cannot be connected to. Default none.
    pub failover: PinFailover,
    /// What [`AffinityMode::Header`] makes its key of: names of headers, `cookie` for all cookies
    /// or `cookie:a,b` for those. At most [`AFFINITY_HEADERS_MAX`].
    pub headers: Vec<String>,
    /// Whether a request must carry all of them to have a key. Default false: one is enough.
    pub require_all_headers: bool,
}

/// What becomes of a pinned request whose endpoint cannot be connected to. Requests without a pin,
/// and the first one of a new pin, always go to another endpoint once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum PinFailover {
    /// The visitor gets the error.
    #[default]
    None,
    /// Another endpoint serves this request; the pin stays.
    Temporary,
    /// Another endpoint serves it and gets the pin. Not with [`AffinityMode::Header`].
    Sticky,
}

impl PinFailover {
    /// The name, as the API spells it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            PinFailover::None => "none",
            PinFailover::Temporary => "temporary",
            PinFailover::Sticky => "sticky",
        }
    }
}
