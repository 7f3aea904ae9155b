//! What changes: takes everything that happens, keeps health, orders probes, publishes snapshots.
//!
//! No method waits or looks at a clock. The order of calls: [`Engine::handle`] when something
//! happened or [`Engine::handle_timeout`] when [`Engine::poll_timeout`] is due; then
//! [`Engine::poll_output`] until `None`; then wait until [`Engine::poll_timeout`].

use std::sync::Arc;
use std::time::Duration;

use crate::catalog::{Address, Catalog};
use crate::health::{EndpointReason, EndpointState, PoolReason, PoolState};
use crate::probe::{ProbeId, ProbeOrder, ProbeResult};
use crate::snapshot::Snapshot;
use crate::time::Mono;

/// How long [`Output::Ready`] waits for first verdicts when nothing else is set.
pub const READY_TIMEOUT: Duration = Duration::from_secs(10);

/// The most attempts that are under way at one moment.
pub const PROBES_IN_FLIGHT_MAX: usize = 64;

/// The least time between two published snapshots; the first one goes out at once.
pub const PUBLISH_GAP: Duration = Duration::from_millis(50);

/// How long after its own timeout an attempt that nobody answered for is given up and counted as a
/// timeout.
pub const PROBE_LOST_AFTER: Duration = Duration::from_secs(1);

/// Something that happened.
#[derive(Debug, Clone)]
pub enum Input {
    /// This is wanted from now on.
    Catalog(Arc<Catalog>),
    /// An attempt ended.
    Probed {
        /// Which.
        probe: ProbeId,
        /// How.
        result: ProbeResult,
    },
    /// A hostname of [`Output::Resolve`] was looked up.
    Resolved {
        /// The hostname, as it was asked for.
        host: String,
        /// Whether it has an address now.
        resolvable: bool,
    },
}

/// Something to do.
#[derive(Debug, Clone)]
pub enum Output {
    /// Make this attempt and answer with [`Input::Probed`].
    Probe(ProbeOrder),
    /// The answer to this attempt is not needed any more.
    Cancel(ProbeId),
    /// Decide with this from now on.
    Publish(Arc<Snapshot>),
    /// Keep these hostnames looked up, and no others; say with [`Input::Resolved`] once whether each
    /// has an address, and again when that changes.
    Resolve(Vec<String>),
    /// A state changed: for the log.
    Event(StateChange),
    /// Traffic can be taken: first verdicts are in, or have been waited for long enough. Said once,
    /// after the snapshot that holds them.
    Ready,
}

/// A change of state.
#[derive(Debug, Clone, PartialEq)]
pub enum StateChange {
    /// Of an endpoint.
    Endpoint {
        /// Name of its pool.
        pool: String,
        /// Its name.
        endpoint: String,
        /// Its address.
        address: Address,
        /// Its state before.
        was: EndpointState,
        /// Its state now.
        now: EndpointState,
        /// Why.
        reason: EndpointReason,
    },
    /// Of a pool.
    Pool {
        /// Its name.
        pool: String,
        /// Its state before.
        was: PoolState,
        /// Its state now.
        now: PoolState,
        /// Why.
        reason: PoolReason,
    },
}

/// Keeps health and says what to do.
#[derive(Debug)]
pub struct Engine {
    seed: u64,
    ready_timeout: Duration,
}

impl Engine {
    /// An engine without a catalog, whose only chance is `seed`.
    #[must_use]
    pub fn new(seed: u64) -> Engine {
        Engine {
            seed,
            ready_timeout: READY_TIMEOUT,
        }
    }

    /// Waits this long for first verdicts instead of [`READY_TIMEOUT`].
    #[must_use]
    pub fn with_ready_timeout(self, ready_timeout: Duration) -> Engine {
        Engine {
            ready_timeout,
            ..self
        }
    }

    /// Takes in what happened.
    pub fn handle(&mut self, _input: Input, _now: Mono) {
        let _ = self.seed;
    }

    /// Does what is due by now.
    pub fn handle_timeout(&mut self, _now: Mono) {
        let _ = self.ready_timeout;
    }

    /// The next thing to do; drain until `None`.
    pub fn poll_output(&mut self) -> Option<Output> {
        None
    }

    /// When [`Engine::handle_timeout`] is due next; `None` while nothing is.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Mono> {
        None
    }
}
