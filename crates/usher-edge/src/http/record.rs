//! What is known of a request when it is over, for the log and the metrics.

use std::net::IpAddr;
use std::time::{Duration, SystemTime};

use usher_core::catalog::{BalancerIx, EndpointIx, PoolIx};
use usher_core::decision::PinOutcome;

use super::rooms::RoomSeen;

/// One finished exchange. Borrowed from the exchange; nothing of it is kept.
#[derive(Debug, Clone)]
pub struct Record<'a> {
    /// When its first byte came.
    pub started: SystemTime,
    /// From its first byte until the last byte of the answer was handed over.
    pub duration: Duration,
    /// Its id.
    pub request_id: &'a str,
    /// The visitor.
    pub client: IpAddr,
    /// Method as received; empty when none was understood.
    pub method: &'a [u8],
    /// Host in lower case, without port; empty when none was understood.
    pub host: &'a str,
    /// Path as received, with the query if the log wants it; empty when none was understood.
    pub path: &'a [u8],
    /// Status that the client got; 499 when it left before there was one, 0 when we cut it off
    /// before.
    pub status: u16,
    /// Bytes of the request body.
    pub bytes_in: u64,
    /// Bytes of the response body that were handed over.
    pub bytes_out: u64,
    /// The load balancer that matched.
    pub balancer: Option<BalancerIx>,
    /// The pool that was chosen.
    pub pool: Option<PoolIx>,
    /// The endpoint that answered, or was tried last.
    pub endpoint: Option<EndpointIx>,
    /// From the choice of the endpoint to the head of its answer.
    pub upstream: Option<Duration>,
    /// Endpoints that were tried.
    pub attempts: u8,
    /// What became of the visitor's pin.
    pub session: PinOutcome,
    /// What a waiting room made of it.
    pub room: Option<RoomSeen>,
    /// The reason word, if something went wrong.
    pub error: Option<&'static str>,
    /// `TLSv1.3`, `TLSv1.2`; `None` in the clear.
    pub tls: Option<&'static str>,
    /// `HTTP/1.0`, `HTTP/1.1` or `HTTP/2`.
    pub protocol: &'static str,
}

/// The reason word for what was cut off because its listener went away.
pub(crate) const CUT: &str = "cut-by-stop";

/// What of a request's path and query is recorded: the query only when the operator asked for it.
pub(crate) fn path_of(uri: &[u8], query_strings: bool) -> &[u8] {
    match memchr::memchr(b'?', uri) {
        Some(query) if !query_strings => &uri[..query],
        _ => uri,
    }
}
