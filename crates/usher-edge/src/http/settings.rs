//! What an operator may turn on the HTTP front: deadlines, limits and whom to believe.
//!
//! Plain data, swapped as a whole on reload; a connection reads it anew for each request.

use std::time::Duration;

use ipnet::IpNet;

/// Settings of the HTTP front.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Settings {
    /// Deadlines.
    pub timeouts: Timeouts,
    /// Bounds.
    pub limits: Limits,
    /// Peers whose `X-Forwarded-*` is believed. Default: none.
    pub trusted_proxies: Vec<IpNet>,
    /// Whether the access log keeps query strings. Default false: they may hold secrets.
    pub query_strings: bool,
}

/// The file's `timeouts:`. Each is 1 ms..=24 h.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Timeouts {
    /// For the whole request head, on fresh and on reused connections. Default 30 s; then 408.
    pub client_header: Duration,
    /// Between two pieces of a request body. Default 30 s; then 408.
    pub client_body_idle: Duration,
    /// Between two requests on one connection. Default 75 s; then the connection is closed.
    pub keep_alive: Duration,
    /// For a TLS handshake with a client or an endpoint. Default 10 s; then closed, or 525.
    pub tls_handshake: Duration,
    /// For one TCP connect to an endpoint. Default 5 s; then 522.
    pub connect: Duration,
    /// From the end of the request to the head of the response. Default 100 s; then 524.
    pub response_header: Duration,
    /// Between two pieces of a response body, and for a client that does not read. Default 100 s;
    /// then the response is cut.
    pub body_idle: Duration,
    /// How long an idle connection to an endpoint is kept. Default 900 s.
    pub upstream_keep_alive: Duration,
}

impl Default for Timeouts {
    fn default() -> Timeouts {
        Timeouts {
            client_header: Duration::from_secs(30),
            client_body_idle: Duration::from_secs(30),
            keep_alive: Duration::from_secs(75),
            tls_handshake: Duration::from_secs(10),
            connect: Duration::from_secs(5),
            response_header: Duration::from_secs(100),
            body_idle: Duration::from_secs(100),
            upstream_keep_alive: Duration::from_secs(900),
        }
    }
}

/// The file's `limits:`, as far as the front is concerned.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of a request or response head. Range 1 KiB..=1 MiB, default 64 KiB; over it 431, or
    /// 520 for a response.
    pub header_bytes: usize,
    /// Header fields. Range 1..=1024, default 128; over it 431, or 520.
    pub headers: usize,
    /// Bytes of the request target. Range 64..=64 KiB, default 16 KiB; over it 414.
    pub uri_bytes: usize,
    /// Client connections at once on this node. Range 1..=1,000,000, default 50,000; over it new
    /// ones wait in the listen queue.
    pub connections: usize,
    /// Client connections at once from one address. Default 0: no bound; over it new ones are
    /// closed.
    pub connections_per_client: usize,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            header_bytes: 64 * 1024,
            headers: 128,
            uri_bytes: 16 * 1024,
            connections: 50_000,
            connections_per_client: 0,
        }
    }
}
