//! What a decision is made from: one request, borrowed from the front that read it.

use std::net::IpAddr;

/// How the visitor reached the front.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Scheme {
    /// Plain HTTP.
    Http,
    /// HTTP over TLS.
    Https,
}

impl Scheme {
    /// The name in a URL.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Scheme::Http => "http",
            Scheme::Https => "https",
        }
    }

    /// The port that a URL of this scheme means when it names none.
    #[must_use]
    pub const fn port(self) -> u16 {
        match self {
            Scheme::Http => 80,
            Scheme::Https => 443,
        }
    }
}

/// One request, as far as a decision depends on it.
#[derive(Debug, Clone, Copy)]
pub struct Request<'a> {
    /// Host in lower case, without port and without a final dot.
    pub host: &'a str,
    /// Method, upper case.
    pub method: &'a str,
    /// Path and query as received.
    pub uri: &'a str,
    /// How the visitor reached us (behind a trusted proxy: what that proxy said).
    pub scheme: Scheme,
    /// The visitor's address: the peer, or what a trusted proxy said.
    pub client: IpAddr,
    /// 64 random bits; the only chance in a decision.
    pub draw: u64,
}
