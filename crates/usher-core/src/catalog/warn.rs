//! What is allowed and probably not meant: said, and served all the same.

use super::{Catalog, Field, Subject};

/// One thing that deserves a second look.
#[derive(Debug, Clone, PartialEq)]
pub struct Warning {
    /// The resource, by its place in the draft.
    pub subject: Subject,
    /// The field of that resource.
    pub field: Field,
    /// What will happen, in one sentence.
    pub text: String,
}

pub(super) fn warnings(catalog: &Catalog) -> Vec<Warning> {
    let _ = catalog;
    Vec::new()
}
