//! The paths that are ours: `/cdn-cgi/waitingroom/...`, also below the path of a room.
//!
//! A page asks for its visitor's state below the path of the room's cookie, because a browser sends
//! the cookie nowhere else; whoever carries the cookie by itself may ask at the root. What lies
//! there is never an endpoint's, so no path leads around a room.

use std::sync::Arc;

use usher_core::id::Id;
use usher_rooms::route::{Ambiguous, Readings, path_of};
use usher_rooms::words::Language;

use super::{Room, Rooms};

/// Where our own paths begin.
pub(crate) const OWN: &str = "/cdn-cgi/waitingroom/";

/// Whose a request is.
#[derive(Debug)]
pub(crate) enum Found<'a> {
    /// No room's.
    Nobody,
    /// This room's.
    Room(&'a Arc<Room>),
    /// Ours.
    Own(Own<'a>),
    /// One room's or another's, by how its path is read.
    Ambiguous,
}

/// A request to one of our paths.
#[derive(Debug)]
pub(crate) struct Own<'a> {
    /// The room that it names, if that is one of this host.
    pub(crate) room: Option<&'a Arc<Room>>,
    /// What is asked for.
    pub(crate) call: Call,
    /// It comes from a page in this language.
    pub(crate) page: Option<Language>,
    /// Whoever asks without a cookie asks for a place.
    pub(crate) newcomer: bool,
}

/// What is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Call {
    /// The visitor's state.
    Status,
    /// The same, for as long as it waits.
    Stream,
    /// To give up what the visitor has.
    Leave,
    /// To report a challenge.
    Challenge,
    /// Something that is not there.
    Unknown,
}

impl Call {
    /// The methods that it takes, as `Allow` names them.
    pub(crate) const fn allow(self) -> &'static str {
        match self {
            Call::Status => "GET, HEAD",
            Call::Stream | Call::Unknown => "GET",
            Call::Leave | Call::Challenge => "POST",
        }
    }

    /// Whether it takes `method`.
    pub(crate) fn takes(self, method: &str) -> bool {
        self.allow().split(", ").any(|known| known == method)
    }
}

impl Rooms {
    /// Whose the request to `uri` on `host` is.
    pub(crate) fn find(&self, host: &str, uri: &str) -> Found<'_> {
        let readings = Readings::of(path_of(uri));
        let path = readings.normal();
        if let Some(at) = memchr::memmem::find(path.as_bytes(), OWN.as_bytes()) {
            let (below, word) = (&path[..at], &path[at + OWN.len()..]);
            return Found::Own(self.own(host, below, word, uri));
        }
        match self.routes.owner_of_readings(host, &readings) {
            Ok(owner) => owner.map_or(Found::Nobody, Found::Room),
            Err(Ambiguous) => Found::Ambiguous,
        }
    }

    fn own(&self, host: &str, below: &str, word: &str, uri: &str) -> Own<'_> {
        let mut own = Own {
            room: None,
            call: match word {
                "status" => Call::Status,
                "stream" => Call::Stream,
                "leave" => Call::Leave,
                "challenge" => Call::Challenge,
                _ => Call::Unknown,
            },
            page: None,
            newcomer: false,
        };
        let query = uri.split_once('?').map_or("", |(_, query)| query);
        for pair in query.split('&') {
            match pair.split_once('=').unwrap_or((pair, "")) {
                ("room", id) => own.room = id.parse().ok().and_then(|id| self.on(host, below, id)),
                ("language", tag) => own.page = Language::parse(tag),
                ("new", _) => own.newcomer = true,
                _ => {}
            }
        }
        own
    }

    /// The room with this id, if it has paths on `host` and `below` is where it is asked.
    fn on(&self, host: &str, below: &str, id: Id) -> Option<&Arc<Room>> {
        let room = self.by_id(id)?;
        let here = || {
            self.routes
                .rooms_of(host)
                .any(|known| Arc::ptr_eq(known, room))
        };
        (below.is_empty() || below == room.base())
            .then_some(room)
            .filter(|_| here())
    }
}

impl Room {
    /// What stands before [`OWN`] where its page asks.
    pub(crate) fn base(&self) -> &str {
        self.door.jar.path().trim_end_matches('/')
    }
}
