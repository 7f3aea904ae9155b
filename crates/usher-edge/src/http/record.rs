//! What is known of a request when it is over, for the log and the metrics.

use std::net::IpAddr;
use std::time::{Duration, SystemTime};

use usher_core::catalog::{BalancerIx, EndpointIx, PoolIx};

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
    /// Method as received; empty when it was not understood.
    pub method: &'a [u8],
    /// Host in lower case, without port; empty when it was not understood.
    pub host: &'a str,
    /// Path as received, without the query; empty when it was not understood.
    pub path: &'a [u8],
    /// Status that the client got; 499 when it left before there was one.
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
    /// The reason word, if something went wrong.
    pub error: Option<&'static str>,
    /// `TLSv1.3`, `TLSv1.2`; `None` in the clear.
    pub tls: Option<&'static str>,
    /// `HTTP/1.0`, `HTTP/1.1` or `HTTP/2`.
    pub protocol: &'static str,
}
