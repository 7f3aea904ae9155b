//! What happened by itself: endpoints that fail and recover, pools that are turned on and off.

use usher_core::id::Id;

use crate::stamp::Stamp;

/// What sort of thing happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum EventKind {
    /// The health of a pool's endpoint, or of the pool, changed.
    Health,
    /// A pool was enabled or disabled.
    Enablement,
}

impl EventKind {
    /// Every kind.
    pub const ALL: [EventKind; 2] = [EventKind::Health, EventKind::Enablement];

    /// Its word, in the store. Never changes.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            EventKind::Health => "health",
            EventKind::Enablement => "enablement",
        }
    }

    /// The kind that [`EventKind::name`] calls so.
    #[must_use]
    pub fn parse(name: &str) -> Option<EventKind> {
        EventKind::ALL.into_iter().find(|kind| kind.name() == name)
    }
}

/// Something that happened. What can be asked for stands in fields; the rest is the document's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// When.
    pub at: Stamp,
    /// What sort.
    pub kind: EventKind,
    /// The account it belongs to.
    pub account: Id,
    /// To whom: the pool.
    pub subject: Id,
    /// What the pool was called then.
    pub subject_name: String,
    /// Whether it is healthy since.
    pub healthy: Option<bool>,
    /// Its endpoints, to be asked for.
    pub parts: Vec<EventPart>,
    /// The whole of it, as the API shows it, less the id.
    pub document: String,
}

/// An endpoint in an event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventPart {
    /// What it is called.
    pub name: String,
    /// Whether it is healthy since.
    pub healthy: Option<bool>,
}

/// An event that is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recorded {
    /// Counts events of this store from 1, in the order in which they were told.
    pub id: u64,
    /// When it happened.
    pub at: Stamp,
    /// What sort.
    pub kind: EventKind,
    /// To whom: the pool.
    pub subject: Id,
    /// The whole of it, as it was told.
    pub document: String,
}

/// Which events. The default is the newest hundred.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventQuery {
    /// Of one sort.
    pub kind: Option<EventKind>,
    /// Of one account.
    pub account: Option<Id>,
    /// Not before this moment.
    pub since: Option<Stamp>,
    /// Before this moment.
    pub until: Option<Stamp>,
    /// Of one pool.
    pub subject: Option<Id>,
    /// Of pools that were called so then.
    pub subject_name: Option<String>,
    /// Of pools that are, or are not, healthy since.
    pub healthy: Option<bool>,
    /// With an endpoint that is called so; together with `part_healthy`, the same endpoint.
    pub part: Option<String>,
    /// With an endpoint that is, or is not, healthy since.
    pub part_healthy: Option<bool>,
    /// Older than the event with this id: the `next` of the page before.
    pub before: Option<u64>,
    /// Events to leave out from the newest on.
    pub skip: u32,
    /// Events at most; 1 to [`PAGE_LEN_MAX`](crate::PAGE_LEN_MAX), what lies outside is brought in.
    pub limit: u32,
}

impl Default for EventQuery {
    fn default() -> EventQuery {
        EventQuery {
            kind: None,
            account: None,
            since: None,
            until: None,
            subject: None,
            subject_name: None,
            healthy: None,
            part: None,
            part_healthy: None,
            before: None,
            skip: 0,
            limit: 100,
        }
    }
}
