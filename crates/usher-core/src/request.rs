//! What a decision is made from: one request, borrowed from the front that read it.

use std::net::IpAddr;
use std::ops::ControlFlow;

use crate::region::{CountryCode, Region};
use crate::time::Wall;

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
    /// `HTTP/1.1`, `HTTP/2`, ...
    pub version: &'a str,
    /// The header lines, in order.
    pub headers: &'a dyn Headers,
    /// How the visitor reached us (behind a trusted proxy: what that proxy said).
    pub scheme: Scheme,
    /// The visitor's address: the peer, or what a trusted proxy said.
    pub client: IpAddr,
    /// Where the request is taken to be; [`crate::snapshot::Snapshot::location`] is the node's own.
    pub location: Location<'a>,
    /// When it came.
    pub time: Wall,
    /// 64 random bits; the only chance in a decision.
    pub draw: u64,
}

/// Where a request is taken to be. Source: load-balancing specification 4.6.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Location<'a> {
    /// Code of the node that serves it, upper case.
    pub node: &'a str,
    /// Region of that node.
    pub region: Option<Region>,
    /// Country of the visitor, if a database knows it, else of the node.
    pub country: Option<CountryCode>,
    /// Degrees of the node: latitude -90..=90 and longitude -180..=180.
    pub coordinates: Option<(f64, f64)>,
}

/// Header lines, however a front keeps them.
pub trait Headers {
    /// Calls `each` with name and value of every line, in order, until it breaks. Names may be in
    /// any case. A line of several values is one line.
    fn visit<'s>(&'s self, each: &mut dyn FnMut(&'s [u8], &'s [u8]) -> ControlFlow<()>);
}

impl<N: AsRef<[u8]>, V: AsRef<[u8]>> Headers for [(N, V)] {
    fn visit<'s>(&'s self, each: &mut dyn FnMut(&'s [u8], &'s [u8]) -> ControlFlow<()>) {
        for (name, value) in self {
            if each(name.as_ref(), value.as_ref()).is_break() {
                return;
            }
        }
    }
}

impl<N: AsRef<[u8]>, V: AsRef<[u8]>, const LEN: usize> Headers for [(N, V); LEN] {
    fn visit<'s>(&'s self, each: &mut dyn FnMut(&'s [u8], &'s [u8]) -> ControlFlow<()>) {
        self.as_slice().visit(each);
    }
}

impl<N: AsRef<[u8]>, V: AsRef<[u8]>> Headers for Vec<(N, V)> {
    fn visit<'s>(&'s self, each: &mut dyn FnMut(&'s [u8], &'s [u8]) -> ControlFlow<()>) {
        self.as_slice().visit(each);
    }
}

/// A request without header lines.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoHeaders;

impl Headers for NoHeaders {
    fn visit<'s>(&'s self, _: &mut dyn FnMut(&'s [u8], &'s [u8]) -> ControlFlow<()>) {}
}

impl std::fmt::Debug for dyn Headers + '_ {
    /// Names only: values are the visitor's.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut list = f.debug_list();
        self.visit(&mut |name, _| {
            list.entry(&String::from_utf8_lossy(name));
            ControlFlow::Continue(())
        });
        list.finish()
    }
}
