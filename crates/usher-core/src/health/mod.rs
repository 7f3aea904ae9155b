//! From probe results to the states that steering reads.
//!
//! Three levels, each a pure function of the one below: a [`Standing`] per probed target and
//! monitor, an [`EndpointState`] by the vote of its monitors, a [`PoolState`] by counting.

mod pool;
mod reason;
mod standing;
mod vote;

pub use pool::{PoolReason, PoolState, pool_state};
pub use reason::FailureReason;
pub use standing::{Effect, Event, Standing, Streaks};
pub use vote::{Ballot, Outcome, vote};

use std::fmt;

/// What is known of an endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum EndpointState {
    /// Its monitors say that it works.
    Healthy,
    /// Its monitors say that it does not.
    Critical,
    /// No monitor (counts as healthy), or no result yet (counts as down).
    Unknown,
    /// Turned off, by itself or with its pool.
    Disabled,
    /// Turned off, while pins to it still hold.
    Draining,
}

impl EndpointState {
    /// Every state.
    pub const ALL: [EndpointState; 5] = [
        EndpointState::Healthy,
        EndpointState::Critical,
        EndpointState::Unknown,
        EndpointState::Disabled,
        EndpointState::Draining,
    ];

    /// The word for it in reports.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            EndpointState::Healthy => "healthy",
            EndpointState::Critical => "critical",
            EndpointState::Unknown => "unknown",
            EndpointState::Disabled => "disabled",
            EndpointState::Draining => "draining",
        }
    }
}

impl fmt::Display for EndpointState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Why an endpoint is in its state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum EndpointReason {
    /// Nobody judges it.
    NoMonitor,
    /// Its monitors have not answered yet.
    Pending,
    /// What its monitors say: [`FailureReason::None`] when they pass.
    Probe(FailureReason),
    /// It is turned off.
    Disabled,
    /// It is turned off, and pins to it hold until its time is over.
    Draining,
    /// It is turned off, and the time of its pins is over.
    Drained,
    /// Its pool is turned off.
    PoolDisabled,
    /// Its hostname has not been looked up yet.
    Unresolved,
    /// Its hostname does not resolve.
    UnknownHost,
    /// Nobody was asked: without a running node what is monitored counts as healthy.
    Presumed,
    /// Somebody asked what would be if.
    Assumed,
}

impl EndpointReason {
    /// The words for it in reports.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            EndpointReason::NoMonitor => "no monitor",
            EndpointReason::Pending => "no result yet",
            EndpointReason::Probe(reason) => reason.as_str(),
            EndpointReason::Disabled => "disabled",
            EndpointReason::Draining => "disabled, sessions stay",
            EndpointReason::Drained => "drained",
            EndpointReason::PoolDisabled => "pool is disabled",
            EndpointReason::Unresolved => "hostname is not resolved yet",
            EndpointReason::UnknownHost => FailureReason::DnsUnknownHost.as_str(),
            EndpointReason::Presumed => "presumed",
            EndpointReason::Assumed => "assumed",
        }
    }
}

impl fmt::Display for EndpointReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What is known of a load balancer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum BalancerState {
    /// All its pools are healthy.
    Healthy,
    /// At least one pool is not healthy, but traffic does not go to the fallback pool.
    Degraded,
    /// No usable pool: traffic goes to the fallback pool.
    Critical,
    /// No pool is known to be unhealthy, but not all are monitored or have results.
    Unknown,
    /// Turned off.
    Disabled,
}

impl BalancerState {
    /// Every state.
    pub const ALL: [BalancerState; 5] = [
        BalancerState::Healthy,
        BalancerState::Degraded,
        BalancerState::Critical,
        BalancerState::Unknown,
        BalancerState::Disabled,
    ];

    /// The word for it in reports.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            BalancerState::Healthy => "healthy",
            BalancerState::Degraded => "degraded",
            BalancerState::Critical => "critical",
            BalancerState::Unknown => "unknown",
            BalancerState::Disabled => "disabled",
        }
    }
}

impl fmt::Display for BalancerState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
