//! The listeners of the front: which are wanted, which are there.
//!
//! A listener is known by the address that was asked for, so that one with port 0 keeps the port it
//! got when the file is read again.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use usher_core::request::Scheme;
use usher_edge::http::{self, Front, ListenError, ListenerId};

use crate::handover::Bequest;
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
    /// Browsers, for Workers.
    Binding,
}

impl Part {
    const ALL: [Part; 4] = [Part::Http, Part::Https, Part::Api, Part::Binding];

    /// The word for it in the start-up lines, and towards another process.
    pub(crate) const fn word(self) -> &'static str {
        match self {
            Part::Http => "http",
            Part::Https => "https",
            Part::Api => "api",
            Part::Binding => "binding",
        }
    }

    pub(crate) fn of_word(word: &str) -> Option<Part> {
        Part::ALL.into_iter().find(|part| part.word() == word)
    }

    const fn of_scheme(scheme: Scheme) -> Part {
        match scheme {
            Scheme::Http => Part::Http,
            Scheme::Https => Part::Https,
        }
    }

    const fn scheme(self) -> Option<Scheme> {
        match self {
            Part::Http => Some(Scheme::Http),
            Part::Https => Some(Scheme::Https),
            Part::Api | Part::Binding => None,
        }
    }
}

impl fmt::Display for Listening {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.part.word(), self.address)
    }
}

/// What the configuration asks for.
type Wanted = (Scheme, SocketAddr);

#[derive(Debug, Clone, Copy)]
struct Open {
    wanted: Wanted,
    id: ListenerId,
    address: SocketAddr,
}

/// The open listeners of the front.
#[derive(Debug, Default)]
pub(crate) struct Listeners(Vec<Open>);

/// Listeners that were opened for a configuration that is not in force yet.
#[derive(Debug)]
pub(crate) struct Prepared {
    /// Those that are there already; some may have to speak something else.
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
        let mut prepared = Prepared {
            keep: Vec::new(),
            opened: Vec::new(),
            close: self.0.clone(),
        };
        let missing: Vec<_> = wanted(listen)
            .filter(|&want| !prepared.keep(want, |open| open == want))
            .collect();
        for (scheme, address) in missing {
            // A port that goes from HTTP to HTTPS keeps its socket: nobody else could have it.
            if prepared.keep((scheme, address), |open| open.1 == address) {
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
        Ok(prepared)
    }

    /// Makes it so, and closes what is not wanted any more; its connections have `grace` to end.
    pub(crate) fn commit(&mut self, front: &Arc<Front>, prepared: Prepared, grace: Duration) {
        for open in &prepared.close {
            unlisten(front, open.id, grace);
        }
        for open in &prepared.keep {
            front.speak(open.id, open.wanted.0);
        }
        self.0 = prepared.keep;
        self.0.extend(prepared.opened);
    }

    pub(crate) fn listening(&self) -> impl Iterator<Item = Listening> {
        self.0.iter().map(|open| Listening {
            part: Part::of_scheme(open.wanted.0),
            address: open.address,
        })
    }

    /// All of them, for another process; their numbers are their places here.
    pub(crate) fn bequeath(&self, front: &Front) -> io::Result<Vec<Bequest>> {
        let bequests = self.0.iter().enumerate().map(|(number, open)| {
            let (scheme, wanted) = open.wanted;
            Ok(Bequest {
                number,
                part: Part::of_scheme(scheme),
                wanted,
                sockets: front.sockets(open.id)?,
            })
        });
        bequests.collect()
    }

    /// Those with these numbers.
    pub(crate) fn numbered(&self, taken: impl Fn(usize) -> bool) -> Vec<ListenerId> {
        let numbered = self.0.iter().enumerate();
        let taken = numbered.filter(|(number, _)| taken(*number));
        taken.map(|(_, open)| open.id).collect()
    }

    /// Takes over those of the front among `bequests`, and says which number each id has.
    pub(crate) fn inherit(
        &mut self,
        front: &Front,
        bequests: Vec<Bequest>,
    ) -> Result<Vec<(ListenerId, usize)>, ListenError> {
        let mut numbers = Vec::new();
        for bequest in bequests {
            let Some(scheme) = bequest.part.scheme() else {
                continue;
            };
            let wanted = (scheme, bequest.wanted);
            let adopted = front.adopt(bequest.sockets, bequest.wanted, scheme)?;
            numbers.push((adopted.id, bequest.number));
            self.0.push(Open {
                wanted,
                id: adopted.id,
                address: adopted.address,
            });
        }
        Ok(numbers)
    }

    /// Whether it is one of these.
    pub(crate) fn has(&self, id: ListenerId) -> bool {
        self.0.iter().any(|open| open.id == id)
    }
}

impl Prepared {
    /// Keeps one of the listeners that would be closed for `want`, if one fits.
    fn keep(&mut self, want: Wanted, fits: impl Fn(Wanted) -> bool) -> bool {
        let place = self.close.iter().position(|open| fits(open.wanted));
        let kept = place.map(|place| Open {
            wanted: want,
            ..self.close.remove(place)
        });
        self.keep.extend(kept);
        kept.is_some()
    }

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
