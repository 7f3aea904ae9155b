//! Keeps what operators ask for, and what happened: desired state, audit, events, tokens, keys.
//!
//! Read [`Store`] and [`State`] first. A [`State`] is everything that is wanted, at one revision,
//! in memory and never changed: whoever reads takes one and asks it. Whoever writes hands
//! [`change`](trait.Store.html#method.change) a check; the store runs it on the newest state, one
//! change after the other, and keeps what it answers in one transaction with its audit row. The
//! next state is published only after that is durable.
//!
//! Documents are text here. The store compares no field and knows no word of the wire; what a
//! document means, what refers to what and which names must be unique is the check's to say.
//!
//! What is declared in the configuration file is not kept here, and no front opens a store.

mod audit;
mod change;
mod event;
mod fault;
mod page;
mod place;
mod resource;
mod secret;
pub mod sqlite;
mod stamp;
mod state;
mod store;
pub mod token;

pub use audit::{AuditItem, AuditQuery, AuditRow};
pub use change::{
    Actor, CHANGE_LEN_MAX, Change, Conflict, DOCUMENT_BYTES_MAX, Op, Put, Repeat, RepeatKey,
    STATE_BYTES_MAX,
};
pub use event::{Event, EventKind, EventPart, EventQuery, Recorded};
pub use fault::{Fault, StoreError};
pub use page::{PAGE_BYTES_MAX, PAGE_LEN_MAX, Page};
pub use place::{Place, PlaceFault};
pub use resource::{Kind, Private, Resource, Revision, Scope};
pub use secret::Secret;
pub use stamp::Stamp;
pub use state::{Delta, State, TOMBSTONES_MAX, Tombstone};
pub use store::{Answer, ChangeError, Check, Intent, Order, Outcome, Retention, Store, Written};
