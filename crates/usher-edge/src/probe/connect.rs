//! From an address or a name to a connection.

use std::net::IpAddr;
use std::sync::Arc;

use tokio::net::TcpStream;
use tokio::time::{Instant, timeout, timeout_at};
use usher_core::catalog::Address;
use usher_core::health::FailureReason;

use super::{Prober, failure};

/// A connection, and when the attempt that led to it began.
#[derive(Debug)]
pub(super) struct Connected {
    pub(super) stream: TcpStream,
    pub(super) started: Instant,
}

/// Tries the addresses in order, once each, until one accepts. Each gets an even share of the time
/// that is left, so that a silent first address does not hide a working second one. The last
/// address says why it failed.
pub(super) async fn connect(
    prober: &Prober,
    address: &Address,
    port: u16,
    deadline: Instant,
) -> Result<Connected, FailureReason> {
    let candidates = addresses(prober, address, deadline).await?;
    let mut reason = FailureReason::DnsUnknownHost;
    for (tried, &ip) in candidates.iter().enumerate() {
        let untried = u32::try_from(candidates.len() - tried).unwrap_or(u32::MAX);
        let share = deadline.saturating_duration_since(Instant::now()) / untried;
        let started = Instant::now();
        reason = match timeout(share, TcpStream::connect((ip, port))).await {
            // The kernel can pick the very port that it connects to; then we would be talking to
            // ourselves, and the endpoint is not there.
            Ok(Ok(stream)) if stream.local_addr().ok() == stream.peer_addr().ok() => {
                FailureReason::TcpConnection
            }
            Ok(Ok(stream)) => {
                // Probes send one small request; a failure to set this costs latency only.
                let _ = stream.set_nodelay(true);
                return Ok(Connected { stream, started });
            }
            Ok(Err(error)) => failure::of_connect(&error),
            Err(_elapsed) => FailureReason::TcpTimeout,
        };
    }
    Err(reason)
}

async fn addresses(
    prober: &Prober,
    address: &Address,
    deadline: Instant,
) -> Result<Arc<[IpAddr]>, FailureReason> {
    match address {
        Address::Ip(ip) => Ok(Arc::new([*ip])),
        Address::Host(host) => match prober.addresses.of(host) {
            Some(known) => Ok(known),
            None => match timeout_at(deadline, prober.lookup.addresses(host)).await {
                Ok(Ok(found)) => Ok(found),
                Ok(Err(_)) | Err(_) => Err(FailureReason::DnsUnknownHost),
            },
        },
    }
}
