//! Keeps who has which browser: the pool of one region, its sessions, and what accounts may have.
//!
//! Read [`Pool`] first; it is the promise, and [`sqlite`] the engine that needs nothing else. What a
//! row may do is decided by `usher_core::lease`; an engine keeps rows, and sees to it that choosing
//! and marking are one step, that what it acknowledged outlives it, and that each question is
//! answered or refused in bounded time.
//!
//! Order of calls. A node's agent: [`Pool::register`], then [`Pool::launch`] for each browser,
//! [`Pool::beats`] every five seconds, [`Pool::reconcile`] every thirty. A broker:
//! [`Pool::admit`], [`Pool::pick`], and when the node has prepared the browser,
//! [`Pool::acknowledge`]; at last [`Pool::close`]. Somebody in the region: [`Pool::reap`] every
//! five seconds. Whoever wants to know what came of it listens to [`Pool::news`].
//!
//! It never talks to a node or a client, and never decides where a request goes.

mod fault;
mod pool;
mod settings;
pub mod sqlite;
mod view;

pub use fault::{Fault, PoolError};
pub use pool::{Answer, News, Pool};
pub use settings::{Clock, Figures, JOBS_MAX, NEWS_MAX, Retention, Settings};
pub use view::{
    AccountView, BrowserView, Connection, ConnectionId, Count, HISTORY_PAGE_MAX, NodeView,
    Reconciled, SessionView,
};
