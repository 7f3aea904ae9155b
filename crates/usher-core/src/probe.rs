//! Probes as values: what the edge is told to do, and what it says back.
//!
//! An order is one attempt. Retries are further orders, so that the edge has no rule of its own
//! about when a failure is final.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::catalog::{Address, MonitorKind};
use crate::health::FailureReason;

/// One attempt that was ordered. Never used twice in the life of an engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ProbeId(pub u64);

/// What to do, complete: nothing has to be looked up to carry it out.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Probe {
    /// What to send and what counts as a pass.
    pub kind: MonitorKind,
    /// Where to.
    pub address: Address,
    /// The port to connect to.
    pub port: u16,
    /// Limit for the whole attempt, name lookup and redirects included. Range 1..=10 s.
    pub timeout: Duration,
    /// Value of the `Host` header: the endpoint's own, else the monitor's, else the address.
    /// The monitor's headers still hold their `Host`; this one replaces it.
    pub host: String,
    /// Name to ask for and to check the certificate against. `None`: ask for none, check against
    /// the address.
    pub sni: Option<String>,
    /// PEM file with the authorities to trust instead of the system's.
    pub ca: Option<String>,
    /// PEM files with the certificate to show and its key.
    pub client_cert: Option<(String, String)>,
    /// Value of the `User-Agent` header. Fixed by Usher.
    pub user_agent: String,
}

/// One attempt to make.
#[derive(Debug, Clone, PartialEq)]
pub struct ProbeOrder {
    /// To be named in the result.
    pub id: ProbeId,
    /// What to do.
    pub probe: Arc<Probe>,
}

/// How an attempt went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProbeResult {
    /// The endpoint did what the monitor asks for.
    Pass {
        /// Status of the HTTP response; `None` for a probe that is not HTTP.
        status: Option<u16>,
        /// From the start of the connection to the first byte of the response, or to the end of the
        /// handshake where there is no response.
        rtt: Duration,
    },
    /// It did not.
    Fail {
        /// Why.
        reason: FailureReason,
        /// Status of the HTTP response, if one came.
        status: Option<u16>,
        /// As for a pass, if it came that far.
        rtt: Option<Duration>,
    },
}

impl ProbeResult {
    /// Whether it passed.
    #[must_use]
    pub const fn passed(&self) -> bool {
        matches!(self, ProbeResult::Pass { .. })
    }

    /// Why it failed, or [`FailureReason::None`].
    #[must_use]
    pub const fn reason(&self) -> FailureReason {
        match self {
            ProbeResult::Pass { .. } => FailureReason::None,
            ProbeResult::Fail { reason, .. } => *reason,
        }
    }

    /// Status of the HTTP response, if there was one.
    #[must_use]
    pub const fn status(&self) -> Option<u16> {
        match self {
            ProbeResult::Pass { status, .. } | ProbeResult::Fail { status, .. } => *status,
        }
    }

    /// Round trip, if it was measured.
    #[must_use]
    pub const fn rtt(&self) -> Option<Duration> {
        match self {
            ProbeResult::Pass { rtt, .. } => Some(*rtt),
            ProbeResult::Fail { rtt, .. } => *rtt,
        }
    }
}

impl fmt::Display for ProbeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "probe {}", self.0)
    }
}
