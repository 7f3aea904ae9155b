//! Who changed what, when, and what it was before.

use usher_core::id::Id;

use crate::change::Actor;
use crate::resource::{Kind, Revision, Scope};
use crate::stamp::Stamp;

/// One change, as the audit log tells it. What is private does not appear.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditRow {
    /// The revision that it made.
    pub revision: Revision,
    /// When it was asked for.
    pub at: Stamp,
    /// Who asked.
    pub actor: Actor,
    /// What was asked, such as the method and path of the request.
    pub what: String,
    /// Every resource that it wrote, in its order.
    pub items: Vec<AuditItem>,
}

/// One resource in one change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditItem {
    /// Its kind.
    pub kind: Kind,
    /// Its id.
    pub id: Id,
    /// What it belongs to.
    pub scope: Scope,
    /// What it was called, or is called since.
    pub name: String,
    /// Its document before. `None`: it was not there.
    pub before: Option<String>,
    /// Its document since. `None`: it is no longer there.
    pub after: Option<String>,
}

/// Which rows of the audit log. The default is the newest hundred.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditQuery {
    /// Not before this moment.
    pub since: Option<Stamp>,
    /// Before this moment.
    pub until: Option<Stamp>,
    /// Changes of one resource.
    pub resource: Option<(Kind, Id)>,
    /// Changes by who is called so.
    pub actor: Option<String>,
    /// Older than this revision: the `next` of the page before.
    pub before: Option<u64>,
    /// Rows to leave out from the newest on.
    pub skip: u32,
    /// Rows at most; 1 to [`PAGE_LEN_MAX`](crate::PAGE_LEN_MAX), what lies outside is brought in.
    pub limit: u32,
}

impl Default for AuditQuery {
    fn default() -> AuditQuery {
        AuditQuery {
            since: None,
            until: None,
            resource: None,
            actor: None,
            before: None,
            skip: 0,
            limit: 100,
        }
    }
}
