//! A waiting page of the operator's own.
//!
//! A [`Template`] is parsed when it is saved, where a fault can be told to a person with its line
//! and column; rendering can then only fail by growing too long. Names that are unknown print
//! nothing, as mustache has it; [`Template::warnings`] says so when the template is saved.

mod fault;
mod syntax;
mod variable;
mod warn;

pub use fault::{Fault, Flaw};
pub use syntax::NEST_MAX;
pub use variable::Variable;
pub use warn::{Cover, Warning};

use syntax::{Program, Step};
use variable::Value;

use crate::view::View;
use crate::words::Language;

/// Bytes that a rendered page may have.
pub const OUTPUT_MAX: usize = 4 << 20;

/// A page of the operator's own, ready to be rendered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Template {
    text: String,
    program: Program,
    /// What each name of the program means; `None` means nothing and prints nothing.
    variables: Vec<Option<Variable>>,
}

/// What a template may print beside the [`View`].
#[derive(Debug, Clone, Copy)]
pub struct Facts<'a> {
    /// Name of the room.
    pub room_name: &'a str,
    /// Language of the page.
    pub language: Language,
    /// What a script or style needs to be run under the page's policy.
    pub csp_nonce: &'a str,
}

/// The rendered page would be longer than [`OUTPUT_MAX`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the rendered page is longer than {OUTPUT_MAX} bytes")]
pub struct TooLong;

impl Template {
    /// Reads a template.
    ///
    /// # Errors
    ///
    /// What keeps the text from being a template, with line and column.
    pub fn parse(text: &str) -> Result<Template, Fault> {
        let program = syntax::parse(text)?;
        let variables = program.names.iter();
        let variables = variables.map(|(name, _)| Variable::of(name)).collect();
        Ok(Template {
            text: text.to_owned(),
            program,
            variables,
        })
    }

    /// The text as it was written.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Writes the page behind what `out` holds.
    ///
    /// # Errors
    ///
    /// [`TooLong`]; then `out` holds a part of the page, which must not be sent.
    pub fn render(
        &self,
        view: &View<'_>,
        facts: &Facts<'_>,
        out: &mut Vec<u8>,
    ) -> Result<(), TooLong> {
        run(&self.text, &self.program, out, |name| {
            self.variables[name].map_or(Value::Nothing, |variable| variable.value(view, facts))
        })
    }
}

fn run<'a>(
    text: &str,
    program: &Program,
    out: &mut Vec<u8>,
    value: impl Fn(usize) -> Value<'a>,
) -> Result<(), TooLong> {
    let start = out.len();
    let mut at = 0;
    while let Some(step) = program.steps.get(at) {
        at += 1;
        match step {
            Step::Text(range) => out.extend_from_slice(&text.as_bytes()[range.clone()]),
            Step::Value { name, raw } => value(*name).print(*raw, out),
            Step::Section {
                name,
                inverted,
                end,
            } => {
                if value(*name).holds() == *inverted {
                    at = *end;
                }
            }
        }
        if out.len() - start > OUTPUT_MAX {
            return Err(TooLong);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
