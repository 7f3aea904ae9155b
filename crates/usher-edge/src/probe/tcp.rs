//! The `tcp` monitor: a handshake, and nothing more.

use tokio::time::Instant;
use usher_core::probe::{Probe, ProbeResult};

use super::{Prober, connect, fail};

pub(super) async fn probe(prober: &Prober, probe: &Probe, deadline: Instant) -> ProbeResult {
    match connect::connect(prober, &probe.address, probe.port, deadline).await {
        Ok(connected) => ProbeResult::Pass {
            status: None,
            rtt: connected.started.elapsed(),
        },
        Err(reason) => fail(reason, None, None),
    }
}
