//! One change: what it writes, for whom, and when it does not fit the state it meets.

use std::fmt;

use usher_core::id::Id;

use crate::resource::{Kind, Private, Revision, Scope};
use crate::token::Digest;

/// Resources that one change may write.
pub const CHANGE_LEN_MAX: usize = 10_000;

/// Name and document of one resource together, in bytes: twice the largest body that the API
/// takes, so that defaults that are filled in always fit.
pub const DOCUMENT_BYTES_MAX: usize = 8 * 1024 * 1024;

/// Names and documents of all resources together, in bytes. They are all in memory.
pub const STATE_BYTES_MAX: usize = 1024 * 1024 * 1024;

/// Who asks for a change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Actor {
    /// The token, where it is one that this store keeps.
    pub token: Option<Id>,
    /// What people know them by: the name of the token.
    pub name: String,
}

/// What a check decided to write. All of it is kept, or nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// In this order. Each resource at most once, at most [`CHANGE_LEN_MAX`]. Empty: the change
    /// succeeds, and leaves neither a revision nor an audit row.
    pub ops: Vec<Op>,
    /// What the caller is told; also what a repeat of this request is told.
    pub answer: String,
}

/// One write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Op {
    /// A resource that is not there yet.
    Create(Put),
    /// A resource that is there. What it does not name stays: id, order in lists, `created_on`.
    Replace {
        /// What it becomes.
        put: Put,
        /// The revision it must still have. `None`: any.
        expected: Option<Revision>,
    },
    /// A resource that is there, and then is not.
    Delete {
        /// Its kind.
        kind: Kind,
        /// Its id.
        id: Id,
        /// The revision it must still have. `None`: any.
        expected: Option<Revision>,
    },
}

impl Op {
    /// Which resource it writes.
    #[must_use]
    pub const fn target(&self) -> (Kind, Id) {
        match self {
            Op::Create(put) | Op::Replace { put, .. } => (put.kind, put.id),
            Op::Delete { kind, id, .. } => (*kind, *id),
        }
    }
}

/// A resource as it shall be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Put {
    /// What it is.
    pub kind: Kind,
    /// Unique among its kind.
    pub id: Id,
    /// What it belongs to.
    pub scope: Scope,
    /// What people call it.
    pub name: String,
    /// Kept byte for byte. With the name at most [`DOCUMENT_BYTES_MAX`].
    pub document: String,
    /// What is not shown. `None` leaves none, also where there was one.
    pub private: Option<Private>,
}

/// Why a change does not fit the state it met. Nothing of it was written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Conflict {
    /// There is one already.
    #[error("{kind} {id} exists already")]
    Exists {
        /// Its kind.
        kind: Kind,
        /// Its id.
        id: Id,
    },
    /// There is none.
    #[error("{kind} {id} does not exist")]
    Missing {
        /// Its kind.
        kind: Kind,
        /// Its id.
        id: Id,
    },
    /// Somebody else changed it.
    #[error("{kind} {id} has revision {found}, no longer {expected}")]
    Stale {
        /// Its kind.
        kind: Kind,
        /// Its id.
        id: Id,
        /// The one that the change was made for.
        expected: Revision,
        /// The one it has.
        found: Revision,
    },
    /// One change writes one resource twice.
    #[error("{kind} {id} is written twice by one change")]
    Twice {
        /// Its kind.
        kind: Kind,
        /// Its id.
        id: Id,
    },
    /// Two tokens would be recognised by the same text.
    #[error("token {id} is the same as another one")]
    SameToken {
        /// The later one.
        id: Id,
    },
    /// More resources than one change may write.
    #[error("a change of {found} resources is larger than {CHANGE_LEN_MAX}")]
    Many {
        /// How many it writes.
        found: usize,
    },
    /// A document that is too long.
    #[error("{kind} {id} has {found} bytes, more than {DOCUMENT_BYTES_MAX}")]
    Long {
        /// Its kind.
        kind: Kind,
        /// Its id.
        id: Id,
        /// Bytes of name and document.
        found: usize,
    },
    /// The store is as large as it may be.
    #[error("all resources together have {found} bytes, more than {STATE_BYTES_MAX}")]
    Crowded {
        /// Bytes that there would be.
        found: usize,
    },
}

/// A request that a client may send twice because it did not see the first answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Repeat {
    /// What makes two requests the same.
    pub key: RepeatKey,
    /// Whether the client says that it sends it again. Only then the answer to an equal one of the
    /// last [`Repeat::WINDOW`] is given again; a first request is always carried out.
    pub again: bool,
}

impl Repeat {
    /// How long an answer is kept for a repeat.
    pub const WINDOW: std::time::Duration = std::time::Duration::from_secs(60);
}

/// Token, path and body of a request, as one digest.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct RepeatKey(Digest);

impl RepeatKey {
    /// Of a request by the holder of `token`.
    #[must_use]
    pub fn new(token: &str, path: &str, body: &[u8]) -> RepeatKey {
        let parts = [token.as_bytes(), path.as_bytes(), body];
        RepeatKey(Digest::of_lengths_and_parts(&parts))
    }

    pub(crate) const fn as_bytes(&self) -> &[u8; Digest::LEN] {
        self.0.as_bytes()
    }
}

impl fmt::Debug for RepeatKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RepeatKey(...)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_a_repeat_do_not_run_into_each_other() {
        let key = RepeatKey::new("token", "/pools", b"{}");
        assert_eq!(key, RepeatKey::new("token", "/pools", b"{}"));
        for other in [
            RepeatKey::new("token/", "pools", b"{}"),
            RepeatKey::new("token", "/pools{", b"}"),
            RepeatKey::new("token", "/pools", b"{} "),
        ] {
            assert_ne!(key, other);
        }
    }
}
