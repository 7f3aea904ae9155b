//! The one way out of a browser's network.
//!
//! A browser's network namespace has a loopback and no route. All that can be reached in it is one
//! listener, which the host makes there and hands out: a socket stays in the namespace that it was
//! made in, whoever accepts from it. So the egress proxy serves browsers without a relay between,
//! and knows whose connection it is by the listener that it came from.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::net::TcpListener;
use usher_core::lease::{BrowserId, SessionId};

/// Where browsers expect the proxy in their own network.
pub const PROXY_PORT: u16 = 3128;

/// What serves the way out.
pub trait Exit: Send + Sync {
    /// A browser is there; what it connects to `listener` for is to be served until the way is
    /// dropped.
    fn open(&self, browser: BrowserId, listener: TcpListener) -> Box<dyn Way>;

    /// Where this installation itself listens, from now on: no browser gets there.
    fn own(&self, _listeners: Vec<SocketAddr>) {}

    /// What did not leave or come back, by the word of its cause, since it was made.
    fn refused(&self) -> BTreeMap<String, u64> {
        BTreeMap::new()
    }
}

/// One browser's way out. Dropping it cuts all of its connections.
pub trait Way: Send {
    /// The browser is lent: what `guardrails` (a JSON object, see [`usher_egress::Policy::read`])
    /// forbid is out of reach from here on. Before that everything is.
    ///
    /// # Errors
    /// What of the guardrails cannot be understood; the browser is not lent then.
    fn lend(&mut self, session: SessionId, guardrails: &str) -> Result<(), String>;

    /// Why `host` could not be reached, if it was tried within the last `within`: the browser itself
    /// only knows that its proxy refused.
    fn cause(&self, host: &str, within: Duration) -> Option<String>;

    /// Bytes that went out, and that came in.
    fn traffic(&self) -> (u64, u64) {
        (0, 0)
    }
}

/// No way out at all: every page fails at once, as if its proxy were down.
#[derive(Debug, Clone, Copy, Default)]
pub struct Nowhere;

impl Exit for Nowhere {
    fn open(&self, _: BrowserId, _: TcpListener) -> Box<dyn Way> {
        Box::new(Nowhere)
    }
}

impl Way for Nowhere {
    fn lend(&mut self, _: SessionId, _: &str) -> Result<(), String> {
        Ok(())
    }

    fn cause(&self, _: &str, _: Duration) -> Option<String> {
        None
    }
}
