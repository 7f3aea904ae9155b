//! What rules may ask about one request, borrowed from the front that read it.
//!
//! Only what the front has at hand anyway is filled in. Arguments, cookies and the whole URI are
//! made out of it by the expression that reads them, so a request pays for what its rules use.

use std::net::IpAddr;
use std::ops::ControlFlow;

pub use crate::request::Headers;
use crate::request::{Location, Request, Scheme};
use crate::time::Wall;

/// One request, as far as a rule can depend on it.
#[derive(Clone, Copy)]
pub struct Facts<'a> {
    /// Name of the load balancer.
    pub balancer: &'a str,
    /// Code of this node.
    pub node: &'a str,
    /// Region code of this node, if it has one.
    pub region: Option<&'a str>,
    /// The visitor's address. DNS: that of the client subnet option, else of the resolver.
    pub client: IpAddr,
    /// The visitor's country, two upper case letters; `None` when unknown.
    pub country: Option<&'a str>,
    /// What only one of the fronts knows.
    pub front: Front<'a>,
}

/// What only one of the fronts knows. Fields of the other one are missing.
#[derive(Clone, Copy)]
pub enum Front<'a> {
    /// An HTTP request.
    Http(Http<'a>),
    /// A DNS query.
    Dns(Dns<'a>),
}

/// An HTTP request.
#[derive(Clone, Copy)]
pub struct Http<'a> {
    /// How the visitor reached us.
    pub scheme: Scheme,
    /// Method, upper case.
    pub method: &'a str,
    /// Host in lower case, without port and without a final dot.
    pub host: &'a str,
    /// Path and query as received.
    pub uri: &'a str,
    /// `HTTP/1.1`, `HTTP/2`, ...
    pub version: &'a str,
    /// The header lines, in order.
    pub headers: &'a dyn Headers,
    /// When the request came.
    pub time: Wall,
}

/// A DNS query.
#[derive(Clone, Copy)]
pub struct Dns<'a> {
    /// The name asked for, with a final dot.
    pub name: &'a str,
    /// The type asked for.
    pub kind: u16,
    /// The bit that asks for a unicast response.
    pub unicast: bool,
    /// The address of the client subnet option, if the query carries one.
    pub client_subnet: Option<IpAddr>,
}

impl<'a> Facts<'a> {
    /// Those of an HTTP request, for the load balancer of that name; empty where there is none yet.
    /// Place and time stand beside the request, because explanations may assume others.
    #[must_use]
    pub fn of(
        balancer: &'a str,
        request: &Request<'a>,
        location: &'a Location<'a>,
        time: Wall,
    ) -> Facts<'a> {
        Facts {
            balancer,
            node: location.node,
            region: location.region.map(|region| region.code()),
            client: request.client,
            country: location.country.as_ref().map(|country| country.as_str()),
            front: Front::Http(Http {
                scheme: request.scheme,
                method: request.method,
                host: request.host,
                uri: request.uri,
                version: request.version,
                headers: request.headers,
                time,
            }),
        }
    }
}

impl<'a> Http<'a> {
    /// The value of the first line with this name, which is given in lower case.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&'a [u8]> {
        let mut first = None;
        self.headers.visit(&mut |found, value| {
            if found.eq_ignore_ascii_case(name.as_bytes()) {
                first = Some(value);
                return ControlFlow::Break(());
            }
            ControlFlow::Continue(())
        });
        first
    }

    /// The path, as received.
    #[must_use]
    pub fn path(&self) -> &'a str {
        &self.uri[..self.path_len()]
    }

    /// The query without `?`, as received; empty when there is none.
    #[must_use]
    pub fn query(&self) -> &'a str {
        self.uri.get(self.path_len() + 1..).unwrap_or_default()
    }

    fn path_len(&self) -> usize {
        memchr::memchr(b'?', self.uri.as_bytes()).unwrap_or(self.uri.len())
    }
}
