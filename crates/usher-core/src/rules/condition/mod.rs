//! The rules language: one expression, checked once, asked for each request.
//!
//! Written by hand rather than taken, because the language is the hosted service's own, with its
//! own types and its own idea of what is missing. [`Condition::parse`] does all that can fail and
//! gives a value that cannot be wrong; [`Condition::matches`] cannot fail. Its cost is bounded by
//! the text's length times that of the request: searches are linear in what they search, walks are
//! not nested, and functions have a budget.
//!
//! A value can be missing: a key that a map does not have, a place beyond an array, a field of the
//! other front. Every comparison with a missing value is false, `ne` too; `not` of it is true.

mod call;
mod check;
mod decode;
mod fault;
mod field;
mod function;
mod json;
mod lex;
mod literal;
mod node;
mod parse;
#[cfg(test)]
mod print;
mod set;
mod show;
mod source;
#[cfg(test)]
mod tests;
mod tree;
mod wildcard;

pub use call::JSON_STEPS_MAX;
pub use check::REGEX_SIZE_MAX;
pub use fault::{ExpressionFault, Span};
pub use field::{Field, FrontKind, Kind};
pub use function::Function;
pub use parse::NESTING_MAX;

use std::sync::Arc;

use fault::At;
use node::{Node, Program};

use super::facts::Facts;

/// Characters of an expression.
pub const EXPRESSION_LEN_MAX: usize = 4096;

/// An expression that holds for a request or does not. Cheap to clone; two are equal when their
/// texts are.
#[derive(Clone)]
pub struct Condition(Arc<Inner>);

struct Inner {
    text: String,
    program: Program,
    reads: Vec<ReadAt>,
    warnings: Vec<At>,
}

/// A part of a request that an expression reads.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Read {
    /// The field.
    pub field: Field,
    /// The key, where the field is a map and only that key is read.
    pub key: Option<Vec<u8>>,
}

#[derive(Debug, Clone)]
struct ReadAt {
    read: Read,
    at: Span,
}

impl Condition {
    /// Checks an expression. Text of blanks alone is always true, as a rule without a condition.
    ///
    /// # Errors
    /// The first mistake in the form; or else every mistake in names, types and literals, in the
    /// order of the text.
    pub fn parse(text: &str) -> Result<Condition, Vec<ExpressionFault>> {
        let faults = |faults: Vec<At>| -> Vec<ExpressionFault> {
            faults
                .into_iter()
                .map(|fault| fault.in_text(text))
                .collect()
        };
        let len = text.chars().count();
        if len > EXPRESSION_LEN_MAX {
            let whole = Span {
                start: 0,
                end: text.len(),
            };
            let message =
                format!("expression has {len} characters, more than {EXPRESSION_LEN_MAX}");
            return Err(faults(vec![At::new(whole, message)]));
        }
        if text.trim().is_empty() {
            return Ok(Condition(Arc::new(Inner {
                text: text.to_owned(),
                program: Program {
                    node: Node::Constant(true),
                    once: Box::default(),
                },
                reads: Vec::new(),
                warnings: Vec::new(),
            })));
        }
        let tree = parse::parse(text).map_err(|fault| faults(vec![fault]))?;
        let checked = check::check(&tree).map_err(faults)?;
        Ok(Condition(Arc::new(Inner {
            text: text.to_owned(),
            program: checked.program,
            reads: checked.reads,
            warnings: checked.warnings,
        })))
    }

    /// Whether it holds for this request. Needs no memory of its own unless a function changes a
    /// value.
    #[must_use]
    pub fn matches(&self, facts: &Facts<'_>) -> bool {
        self.0.program.holds(facts)
    }

    /// The text, exactly as it was given.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.0.text
    }

    /// What it reads of a request, each part once, in order.
    #[must_use]
    pub fn reads(&self) -> Vec<Read> {
        let mut reads: Vec<Read> = self.0.reads.iter().map(|read| read.read.clone()).collect();
        reads.sort();
        reads.dedup();
        reads
    }

    /// What is allowed but surely not meant, when the expression stands in a load balancer of this
    /// front: fields that only the other front has, empty sets, names of headers in upper case.
    #[must_use]
    pub fn warnings(&self, front: FrontKind) -> Vec<ExpressionFault> {
        let inner = &*self.0;
        let foreign = inner.reads.iter().filter_map(|ReadAt { read, at }| {
            let only = read.field.front().filter(|&only| only != front)?;
            let only = match only {
                FrontKind::Http => "proxied",
                FrontKind::Dns => "unproxied",
            };
            let name = read.field.name();
            let message = format!(
                "{name} exists only on {only} load balancers: comparisons with it are false"
            );
            Some(At::new(*at, message))
        });
        let mut all: Vec<At> = foreign.chain(inner.warnings.iter().cloned()).collect();
        all.sort_by_key(|warning| warning.span);
        all.into_iter()
            .map(|warning| warning.in_text(&inner.text))
            .collect()
    }
}

impl std::fmt::Debug for Condition {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Condition").field(&self.0.text).finish()
    }
}

impl std::fmt::Display for Condition {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0.text)
    }
}

impl PartialEq for Condition {
    fn eq(&self, other: &Condition) -> bool {
        self.0.text == other.0.text
    }
}

impl Eq for Condition {}
