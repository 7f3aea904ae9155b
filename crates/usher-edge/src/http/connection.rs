//! What is known of a client's connection before its first request, and holds for all of them.

use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;

use usher_core::request::Scheme;

use super::drain::Drain;

/// One client connection.
#[derive(Debug, Clone)]
pub struct ConnInfo {
    /// Who connected; an IPv4-mapped address is reduced to IPv4.
    pub peer: SocketAddr,
    /// The listener's address.
    pub local: SocketAddr,
    /// The TLS session, if there is one.
    pub tls: Option<TlsInfo>,
    /// Whether the peer is a trusted proxy, whose forwarded headers are believed.
    pub trusted: bool,
    /// Whether the listener is going away: the next answer is then the last.
    pub drain: Rc<Drain>,
}

impl ConnInfo {
    /// How the peer reached us.
    #[must_use]
    pub fn scheme(&self) -> Scheme {
        if self.tls.is_some() {
            Scheme::Https
        } else {
            Scheme::Http
        }
    }

    /// The protocol version of the TLS session, for the access log.
    #[must_use]
    pub fn tls_version(&self) -> Option<&'static str> {
        self.tls.as_ref().map(|tls| tls.version)
    }
}

/// What a TLS handshake settled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsInfo {
    /// `TLSv1.2` or `TLSv1.3`.
    pub version: &'static str,
    /// The name that the client asked for, in lower case.
    pub sni: Option<Box<str>>,
    /// Whether HTTP/2 was agreed on.
    pub h2: bool,
}

/// An IPv4 address that came through an IPv6 socket, as the IPv4 address that it is.
#[must_use]
pub fn canonical(address: SocketAddr) -> SocketAddr {
    match address.ip() {
        IpAddr::V6(ip) => SocketAddr::new(IpAddr::V6(ip).to_canonical(), address.port()),
        IpAddr::V4(_) => address,
    }
}
