//! Waiting rooms in the front: whose room a request is, and what the room makes of it.
//!
//! The node makes a [`Room`] of what the operator says and of the way to the room's owner, and gives
//! all of them to the [`Plane`](super::Plane) as [`Rooms`], which are replaced as a whole. A
//! front without rooms looks at one flag.
//!
//! What is decided, and by whom, is [`usher_rooms::door`]'s matter. Here it is put into HTTP.

pub(crate) mod answer;
pub(crate) mod path;
mod seen;
pub(crate) mod visit;

use std::collections::HashMap;
use std::sync::Arc;

use usher_core::id::Id;
use usher_rooms::door::Door;
use usher_rooms::route::{Ambiguous, PrefixMatch, Routes};
use usher_rooms::template::Template;
use usher_rooms::words::Language;

pub use seen::{RoomSeen, RoomWord};

/// A waiting room, as the front serves it.
#[derive(Debug)]
pub struct Room {
    /// Its name, in templates and metrics.
    pub name: String,
    /// Who decides. Its [`Jar`](usher_rooms::cookie::Jar) has the path below which the page asks
    /// for its visitor's state, since browsers send the cookie nowhere else.
    pub door: Door,
    /// What a waiting visitor sees.
    pub page: WaitingPage,
    /// Language of the page.
    pub language: Language,
    /// Whether `Accept-Language` chooses another.
    pub negotiate_language: bool,
    /// Status of a waiting answer: 200, 202 or 429.
    pub status: u16,
    /// Whether JSON carries what Usher knows beyond the documented fields.
    pub json_extensions: bool,
    /// Whether visitors may keep a stream of their state open.
    pub status_stream: bool,
}

/// A room is the one of its id.
impl PartialEq for Room {
    fn eq(&self, other: &Room) -> bool {
        self.door.room == other.door.room
    }
}

impl Eq for Room {}

/// What a waiting visitor sees.
#[derive(Debug)]
pub enum WaitingPage {
    /// The page that comes with Usher.
    BuiltIn,
    /// One of the operator's.
    Own {
        /// The page.
        template: Template,
        /// Whether it is brought up to date by the header `Refresh`, and not by a script of its own.
        refresh: bool,
    },
}

/// All rooms of a front.
#[derive(Debug, Default)]
pub struct Rooms {
    routes: Routes<Arc<Room>>,
    by_id: HashMap<Id, Arc<Room>>,
    /// There were rooms once, and pages of theirs may still be open.
    past: bool,
}

impl Rooms {
    /// None.
    #[must_use]
    pub fn new() -> Rooms {
        Rooms::default()
    }

    /// Adds `room` with what it owns: pairs of a host (lower case, without port; `*` for every host
    /// that no other room names) and a path.
    pub fn add<'r>(
        &mut self,
        room: Arc<Room>,
        routes: impl IntoIterator<Item = (&'r str, &'r str)>,
        prefix: PrefixMatch,
    ) {
        for (host, path) in routes {
            self.routes.add(host, path, prefix, Arc::clone(&room));
        }
        self.by_id.insert(room.door.room, room);
    }

    /// Whose request it is: [`Routes::owner_of`].
    ///
    /// # Errors
    /// As there.
    pub fn owner_of(&self, host: &str, uri: &str) -> Result<Option<&Arc<Room>>, Ambiguous> {
        self.routes.owner_of(host, uri)
    }

    /// The room with this id.
    #[must_use]
    pub fn by_id(&self, id: Id) -> Option<&Arc<Room>> {
        self.by_id.get(&id)
    }

    /// All of them, in no order.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Room>> {
        self.by_id.values()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.by_id.is_empty()
    }

    /// Whether nothing of a request can be a room's matter.
    pub(crate) fn is_idle(&self) -> bool {
        self.is_empty() && !self.past
    }

    /// These come after `before`.
    pub(crate) fn follow(&mut self, before: &Rooms) {
        self.past = !before.is_idle();
    }
}
