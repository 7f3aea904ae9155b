//! What is said about an expression: where, and what was expected there.

/// A range of bytes of the expression's text; `end` is just behind the last.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Span {
    /// First byte.
    pub start: usize,
    /// The byte after the last.
    pub end: usize,
}

impl Span {
    /// From the start of this one to the end of `other`.
    pub(super) fn to(self, other: Span) -> Span {
        Span {
            start: self.start,
            end: other.end.max(self.start),
        }
    }

    /// The place as people count it: characters from the start of the text, from 1.
    #[must_use]
    pub fn column(self, text: &str) -> usize {
        let before = text.char_indices().take_while(|&(at, _)| at < self.start);
        before.count() + 1
    }
}

/// One thing that is wrong with an expression, or (from [`super::Condition::warnings`]) odd about
/// it. Displays as `column 12: expected a string in quotes, found 5`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("column {column}: {message}")]
pub struct ExpressionFault {
    /// Where.
    pub span: Span,
    /// [`Span::column`] of it.
    pub column: usize,
    /// What, in lower case and without a full stop.
    pub message: String,
}

/// A fault before its column is known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct At {
    pub(super) span: Span,
    pub(super) message: String,
}

impl At {
    pub(super) fn new(span: Span, message: impl Into<String>) -> At {
        At {
            span,
            message: message.into(),
        }
    }

    pub(super) fn in_text(self, text: &str) -> ExpressionFault {
        ExpressionFault {
            span: self.span,
            column: self.span.column(text),
            message: self.message,
        }
    }
}
