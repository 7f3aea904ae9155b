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
            Ok(Ok(stream)) if leads_back(&stream) => FailureReason::TcpConnection,
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

/// Whether both ends are one socket. To reach a port of this machine where nobody listens, the kernel
/// can pick that very port to connect from, and the two handshakes meet.
fn leads_back(stream: &TcpStream) -> bool {
    matches!((stream.local_addr(), stream.peer_addr()), (Ok(local), Ok(peer)) if local == peer)
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

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use socket2::{Domain, Socket, Type};

    use super::*;

    #[tokio::test]
    async fn a_connection_to_itself_is_told_from_one_to_an_endpoint() {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        socket.bind(&any.into()).expect("a free port");
        let own = socket.local_addr().expect("bound");
        socket.connect(&own).expect("nobody else listens there");
        socket.set_nonblocking(true).expect("a socket");
        let alone = TcpStream::from_std(socket.into()).expect("in a runtime");
        assert!(leads_back(&alone));

        let listener = std::net::TcpListener::bind(any).expect("a free port");
        let address = listener.local_addr().expect("bound");
        assert!(!leads_back(
            &TcpStream::connect(address).await.expect("accepted")
        ));
    }
}
