//! The listeners of the front: which are wanted, which are there.
//!
//! A listener is known by the address that was asked for, so that one with port 0 keeps the port it
//! got when the file is read again.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use usher_core::request::Scheme;
use usher_edge::http::{self, Front, ListenError, ListenerId};

use crate::settings::Listen;

/// A listener that accepts connections. Its `Display` is the start-up line's text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Listening {
    /// What it speaks.
    pub part: Part,
    /// Where it really is.
    pub address: SocketAddr,
}

/// What a listener is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// HTTP in the clear.
    Http,
    /// HTTP over TLS.
    Https,
    /// The control API.
    Api,
}

impl fmt::Display for Listening {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let part = match self.part {
            Part::Http => "http",
            Part::Https => "https",
            Part::Api => "api",
        };
        write!(f, "{part} {}", self.address)
    }
}

#[derive(Debug, Clone, Copy)]
struct Open {
    wanted: (Scheme, SocketAddr),
    id: ListenerId,
    address: SocketAddr,
}

/// The open listeners of the front.
#[derive(Debug, Default)]
pub(crate) struct Listeners(Vec<Open>);

/// Listeners that were opened for a configuration that is not in force yet.
#[derive(Debug)]
pub(crate) struct Prepared {
    keep: Vec<Open>,
    opened: Vec<Open>,
    close: Vec<Open>,
}

fn wanted(listen: &Listen) -> impl Iterator<Item = (Scheme, SocketAddr)> {
    let http = listen.http.iter().map(|&address| (Scheme::Http, address));
    http.chain(listen.https.iter().map(|&address| (Scheme::Https, address)))
}

impl Listeners {
    /// Opens what `listen` wants beyond what is there. On an error nothing has changed.
    pub(crate) fn prepare(
        &self,
        front: &Arc<Front>,
        listen: &Listen,
    ) -> Result<Prepared, ListenError> {
        let mut close = self.0.clone();
        let mut prepared = Prepared {
            keep: Vec::new(),
            opened: Vec::new(),
            close: Vec::new(),
        };
        for (scheme, address) in wanted(listen) {
            if let Some(place) = close
                .iter()
                .position(|open| open.wanted == (scheme, address))
            {
                prepared.keep.push(close.remove(place));
                continue;
            }
            match front.listen(address, scheme) {
                Ok(http::Listening {
                    id, address: real, ..
                }) => {
                    let open = Open {
                        wanted: (scheme, address),
                        id,
                        address: real,
                    };
                    prepared.opened.push(open);
                }
                Err(error) => {
                    prepared.discard(front);
                    return Err(error);
                }
            }
        }
        prepared.close = close;
        Ok(prepared)
    }

    /// Makes it so, and closes what is not wanted any more; its connections have `grace` to end.
    pub(crate) fn commit(&mut self, front: &Arc<Front>, prepared: Prepared, grace: Duration) {
        for open in &prepared.close {
            unlisten(front, open.id, grace);
        }
        self.0 = prepared.keep;
        self.0.extend(prepared.opened);
    }

    pub(crate) fn listening(&self) -> impl Iterator<Item = Listening> {
        self.0.iter().map(|open| Listening {
            part: match open.wanted.0 {
                Scheme::Http => Part::Http,
                Scheme::Https => Part::Https,
            },
            address: open.address,
        })
    }
}

impl Prepared {
    /// Closes what was opened in vain.
    pub(crate) fn discard(self, front: &Arc<Front>) {
        for open in self.opened {
            unlisten(front, open.id, Duration::ZERO);
        }
    }
}

/// Closes a listener without waiting for its connections to end.
fn unlisten(front: &Arc<Front>, id: ListenerId, grace: Duration) {
    let front = Arc::clone(front);
    tokio::spawn(async move { front.unlisten(id, grace).await });
}
