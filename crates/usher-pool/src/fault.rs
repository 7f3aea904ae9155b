//! Why the pool did not do what was asked.
//!
//! Nothing was changed where one of these is the answer, with one exception that no engine can
//! avoid: when a commit fails at the last moment, what it wrote may be there after a restart, whole
//! or not at all. Every question may be asked again; a repeat is answered as the first one was.

use std::sync::Arc;

/// What went wrong, and with which pool.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("browser pool {place}: {fault}")]
pub struct PoolError {
    /// Where the pool is: a path, or an address without its password.
    pub place: Arc<str>,
    /// What went wrong.
    pub fault: Fault,
}

/// What went wrong.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// Another process owns it.
    #[error("is in use by {}; stop that one first, or name another pool", holder(*.pid))]
    Held {
        /// The process, if it said who it is.
        pid: Option<u32>,
    },
    /// Another program keeps it locked for longer than anybody was to wait.
    #[error("stays locked by another program; end that one (a backup, an open shell)")]
    Busy,
    /// More is asked than can be answered in time.
    #[error("has {0} questions waiting, which is as many as may")]
    Overloaded(usize),
    /// A newer build wrote it.
    #[error(
        "has schema version {found}, newer than {known}, the newest that this build knows; run a \
         build that knows it, or remove it while no browser is lent"
    )]
    Newer {
        /// The version it has.
        found: i64,
        /// The newest version that this build knows.
        known: i64,
    },
    /// Something else is there.
    #[error("is not a browser pool of usher ({0}); name another path")]
    Foreign(String),
    /// What is in it cannot be.
    #[error("is damaged ({0}); put it aside, a new one is made and the nodes fill it")]
    Damaged(String),
    /// Nothing can be written.
    #[error("is read-only ({0}); allow this process to write the file and its folder")]
    ReadOnly(String),
    /// No space is left.
    #[error("cannot grow, no space is left; free some or move it")]
    Full,
    /// The system refuses.
    #[error("{0}")]
    Io(String),
    /// It was closed.
    #[error("is closed; this process is stopping or has handed it over")]
    Closed,
    /// A fault of ours.
    #[error("internal error: {0}")]
    Internal(String),
}

fn holder(pid: Option<u32>) -> String {
    pid.map_or_else(
        || "another process".to_owned(),
        |pid| format!("process {pid}"),
    )
}

impl Fault {
    /// With the pool that it is of.
    pub(crate) fn of(self, place: &Arc<str>) -> PoolError {
        PoolError {
            place: Arc::clone(place),
            fault: self,
        }
    }
}
