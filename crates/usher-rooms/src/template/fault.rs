//! What is wrong with a template, and where.

use std::fmt;

/// What makes a text no template, with its place.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}, column {column}: {flaw}")]
pub struct Fault {
    /// Line of the tag, from 1.
    pub line: usize,
    /// Column of the tag, in characters, from 1.
    pub column: usize,
    /// What is wrong.
    pub flaw: Flaw,
}

impl Fault {
    pub(super) fn at(text: &str, offset: usize, flaw: Flaw) -> Fault {
        let (line, column) = place(text, offset);
        Fault { line, column, flaw }
    }
}

/// Line and column of an offset, both from 1, the column in characters.
pub(super) fn place(text: &str, offset: usize) -> (usize, usize) {
    let before = &text[..offset];
    let line = before.matches('\n').count() + 1;
    let start = before.rfind('\n').map_or(0, |newline| newline + 1);
    (line, before[start..].chars().count() + 1)
}

/// What may be wrong with a template.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Flaw {
    /// A tag that nothing ends.
    TagNeverEnds,
    /// A tag without a name.
    NoName,
    /// A name with blanks in it.
    Name(String),
    /// A delimiter change that names no two delimiters.
    Delimiters,
    /// A section that nothing closes.
    NeverClosed(String),
    /// A closing tag that closes nothing.
    NeverOpened(String),
    /// A closing tag of another section than the innermost one.
    OtherOpen {
        /// The innermost section.
        open: String,
        /// What the tag closes.
        closed: String,
    },
    /// More sections within each other than are allowed.
    TooDeep,
    /// A partial: there is nothing to include.
    Partial,
    /// A parent or a block: there is nothing to inherit from.
    Inheritance,
}

impl fmt::Display for Flaw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Flaw::TagNeverEnds => f.write_str("the tag does not end"),
            Flaw::NoName => f.write_str("the tag has no name"),
            Flaw::Name(name) => write!(f, "`{name}` is no name: it has blanks in it"),
            Flaw::Delimiters => f.write_str(
                "a change of delimiters takes two, without blanks or `=` in them, such as `{{=<% %>=}}`",
            ),
            Flaw::NeverClosed(name) => write!(f, "section `{name}` is not closed"),
            Flaw::NeverOpened(name) => write!(f, "section `{name}` is closed and was not opened"),
            Flaw::OtherOpen { open, closed } => write!(
                f,
                "section `{closed}` is closed while section `{open}` is open"
            ),
            Flaw::TooDeep => write!(
                f,
                "more than {} sections within each other",
                super::NEST_MAX
            ),
            Flaw::Partial => f.write_str("partials are not supported"),
            Flaw::Inheritance => f.write_str("parents and blocks are not supported"),
        }
    }
}
