//! Why the store did not do what was asked.
//!
//! Each says what somebody can do about it. Nothing was changed where one of these is the answer,
//! with one exception that no store can avoid: when a commit fails at the last moment, what it
//! wrote may be there after a restart. It is there whole or not at all, and repeats of the request
//! are told of it.

use std::sync::Arc;

/// What went wrong, and with which store.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("store {place}: {fault}")]
pub struct StoreError {
    /// Where the store is: a path, or an address without its password.
    pub place: Arc<str>,
    /// What went wrong.
    pub fault: Fault,
}

/// What went wrong.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// Another process owns it.
    #[error("is in use by {}; stop that one first, or name another store", holder(*.pid))]
    Held {
        /// The process, if it said who it is.
        pid: Option<u32>,
    },
    /// Another program keeps it locked.
    #[error("stays locked by another program; end that one (a backup, an open shell)")]
    Busy,
    /// A newer build wrote it.
    #[error(
        "has schema version {found}, newer than {known}, the newest that this build knows; run a \
         build that knows it, or restore a copy from before the upgrade"
    )]
    Newer {
        /// The version it has.
        found: i64,
        /// The newest version that this build knows.
        known: i64,
    },
    /// Something else is there.
    #[error("is not a store of usher ({0}); name another path")]
    Foreign(String),
    /// What is in it cannot be.
    #[error("is damaged ({0}); put it aside and restore a copy")]
    Damaged(String),
    /// Nothing can be written.
    #[error("is read-only ({0}); allow this process to write the file and its folder")]
    ReadOnly(String),
    /// No space is left.
    #[error("cannot grow, no space is left; free some or move it")]
    Full,
    /// Everybody may read the keys and digests in it.
    #[error("may be used by everybody on this machine (mode {mode:o}); chmod it to 600")]
    Exposed {
        /// Its mode.
        mode: u32,
    },
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
    /// With the store that it is of.
    pub(crate) fn of(self, place: &Arc<str>) -> StoreError {
        StoreError {
            place: Arc::clone(place),
            fault: self,
        }
    }
}
