//! Probes: one attempt to see whether an endpoint does what its monitor asks for.
//!
//! The core decides when, how often and what a result means; this module only makes the attempt
//! and says how it went. A probe shares no connection, no session and no DNS cache with another
//! one, because it has to see what a new visitor would see. Whatever an endpoint sends, a probe
//! ends with its timeout and holds a bounded amount of memory ([`HEAD_BYTES_MAX`],
//! [`SEARCHED_MAX`]).
//!
//! A monitor type is a file here and an arm in [`Prober::probe`].

mod connect;
mod failure;
mod http;
mod redirect;
mod tcp;
#[cfg(test)]
mod tests;
mod text;

pub use http::{FIELDS_MAX, HEAD_BYTES_MAX, REDIRECTS_MAX, trust_profiles};
pub use text::SEARCHED_MAX;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tracing::trace;
use usher_core::catalog::MonitorKind;
use usher_core::health::FailureReason;
use usher_core::probe::{Probe, ProbeId, ProbeOrder, ProbeResult};

use crate::resolve::{Addresses, Lookup};
use crate::tls::ClientConfigs;

/// Attempts under way at one time: as many as the core orders, which counts an attempt from its
/// order. With fewer here an order could wait until the core takes it for lost.
pub const PROBES_MAX: usize = usher_core::engine::PROBES_IN_FLIGHT_MAX;

/// What every probe needs.
pub struct Prober {
    lookup: Lookup,
    addresses: Arc<Addresses>,
    clients: Box<dyn Fn() -> Arc<ClientConfigs> + Send + Sync>,
}

impl fmt::Debug for Prober {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Prober")
            .field("lookup", &self.lookup)
            .finish_non_exhaustive()
    }
}

impl Prober {
    /// Names are taken from `addresses`, and looked up where it has none yet. `clients` is asked
    /// before each attempt over TLS, so that a reload holds from the next attempt on.
    pub fn new(
        lookup: Lookup,
        addresses: Arc<Addresses>,
        clients: impl Fn() -> Arc<ClientConfigs> + Send + Sync + 'static,
    ) -> Prober {
        Prober {
            lookup,
            addresses,
            clients: Box::new(clients),
        }
    }

    /// Makes one attempt. Takes at most `probe.timeout`, and stops at once when dropped.
    pub async fn probe(&self, probe: &Probe) -> ProbeResult {
        let deadline = Instant::now() + probe.timeout;
        match &probe.kind {
            MonitorKind::Tcp => tcp::probe(self, probe, deadline).await,
            MonitorKind::Http(check) => {
                http::probe(self, probe, check, false, true, deadline).await
            }
            MonitorKind::Https {
                check,
                allow_insecure,
            } => http::probe(self, probe, check, true, !allow_insecure, deadline).await,
        }
    }
}

/// Carries out `orders`, at most [`PROBES_MAX`] at a time, and sends each result as soon as it is
/// there. Returns when the sender of `orders` is gone and the last result is sent, or when the
/// receiver of `results` is gone.
pub async fn run(
    prober: Arc<Prober>,
    mut orders: mpsc::Receiver<ProbeOrder>,
    results: mpsc::Sender<(ProbeId, ProbeResult)>,
) {
    let mut attempts = JoinSet::new();
    loop {
        tokio::select! {
            order = orders.recv(), if attempts.len() < PROBES_MAX => {
                let Some(order) = order else { break };
                let prober = Arc::clone(&prober);
                attempts.spawn(async move {
                    let result = prober.probe(&order.probe).await;
                    trace!(id = order.id.0, ?result, "probed");
                    (order.id, result)
                });
            }
            Some(done) = attempts.join_next() => {
                if !report(&results, done).await {
                    return;
                }
            }
        }
    }
    while let Some(done) = attempts.join_next().await {
        if !report(&results, done).await {
            return;
        }
    }
}

async fn report(
    results: &mpsc::Sender<(ProbeId, ProbeResult)>,
    done: Result<(ProbeId, ProbeResult), tokio::task::JoinError>,
) -> bool {
    match done {
        Ok(result) => results.send(result).await.is_ok(),
        // A panic is a bug of ours. It costs one result, which the core does not wait for forever.
        Err(error) => {
            tracing::error!(%error, "probe lost");
            true
        }
    }
}

/// A failure on the way, with what was seen until then.
fn fail(reason: FailureReason, status: Option<u16>, rtt: Option<Duration>) -> ProbeResult {
    ProbeResult::Fail {
        reason,
        status,
        rtt,
    }
}
