//! What is allowed in a template and yet surely not meant.

use std::fmt;

use super::{Template, Variable, fault, syntax::Step};

/// What the room does, as far as a template can contradict it.
#[derive(Debug, Clone, Copy)]
pub struct Cover<'a> {
    /// Host and path prefix of each of the room's routes.
    pub routes: &'a [(&'a str, &'a str)],
    /// True when visitors are to solve a challenge.
    pub challenge: bool,
}

/// What is surely not meant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Warning {
    /// The room wants a challenge and the page does not print it raw: nobody can solve it.
    NoChallenge,
    /// A name that means nothing, so it prints nothing.
    Unknown {
        /// The name.
        name: String,
        /// Line of its first use, from 1.
        line: usize,
        /// Column of its first use, in characters, from 1.
        column: usize,
    },
    /// Something the page loads is itself behind the room, so a waiting visitor does not get it.
    Covered {
        /// What is loaded.
        url: String,
        /// Line, from 1.
        line: usize,
        /// Column, in characters, from 1.
        column: usize,
    },
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Warning::NoChallenge => f.write_str(
                "the challenge never appears: the page does not print `{{{turnstile}}}`",
            ),
            Warning::Unknown { name, line, column } => write!(
                f,
                "line {line}, column {column}: `{name}` is no variable and prints nothing"
            ),
            Warning::Covered { url, line, column } => write!(
                f,
                "line {line}, column {column}: `{url}` is behind the room itself and does not \
                 load: inline it or add a bypass rule"
            ),
        }
    }
}

impl Template {
    /// What is allowed and surely not meant, by the order of the text.
    #[must_use]
    pub fn warnings(&self, cover: &Cover<'_>) -> Vec<Warning> {
        let mut warnings = Vec::new();
        if cover.challenge && !self.prints_raw(Variable::Turnstile) {
            warnings.push(Warning::NoChallenge);
        }
        for (variable, (name, at)) in self.variables.iter().zip(&self.program.names) {
            if variable.is_none() {
                let (line, column) = fault::place(&self.text, *at);
                let name = name.clone();
                warnings.push(Warning::Unknown { name, line, column });
            }
        }
        for (at, url) in loaded(&self.text) {
            if covered(url, cover.routes) {
                let (line, column) = fault::place(&self.text, at);
                let url = url.to_owned();
                warnings.push(Warning::Covered { url, line, column });
            }
            if warnings.len() >= WARNINGS_MAX {
                break;
            }
        }
        warnings.truncate(WARNINGS_MAX);
        warnings
    }

    fn prints_raw(&self, variable: Variable) -> bool {
        self.program.steps.iter().any(|step| match step {
            Step::Value { name, raw: true } => self.variables[*name] == Some(variable),
            _ => false,
        })
    }
}

/// Warnings that one template is given; more help nobody.
const WARNINGS_MAX: usize = 32;

/// Bytes around a mark that are looked at, so that a hostile text is still read in one walk.
const LOOK_MAX: usize = 2048;

/// What HTML and CSS in `text` make a browser load, with its place. Links that a person follows are
/// not among it.
fn loaded(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let marks = text.match_indices(['=', '(']);
    marks.filter_map(|(at, mark)| {
        let before = text[..at].trim_end();
        let loads = if mark == "(" {
            ends_with(before, "url")
        } else {
            ["src", "poster", "data"]
                .iter()
                .any(|name| ends_with(before, name))
                || (ends_with(before, "href") && in_link(before))
        };
        loads.then(|| value(text, at + 1)).flatten()
    })
}

fn ends_with(text: &str, word: &str) -> bool {
    let start = text.len().checked_sub(word.len());
    let tail = start.and_then(|start| text.get(start..));
    tail.is_some_and(|tail| tail.eq_ignore_ascii_case(word))
}

/// True when the text ends inside of a tag `<link`. A tag longer than [`LOOK_MAX`] is not seen.
fn in_link(text: &str) -> bool {
    let near = &text[text.ceil_char_boundary(text.len().saturating_sub(LOOK_MAX))..];
    near.rfind('<').is_some_and(|open| {
        let tag = near[open + 1..].get(..4);
        tag.is_some_and(|name| name.eq_ignore_ascii_case("link"))
    })
}

/// The URL that begins at or behind `from`, without quotes.
fn value(text: &str, from: usize) -> Option<(usize, &str)> {
    let rest = &text[from..text.floor_char_boundary(from.saturating_add(LOOK_MAX))];
    let trimmed = rest.trim_start();
    let mut at = from + rest.len() - trimmed.len();
    let url = match trimmed.chars().next()? {
        quote @ ('"' | '\'') => {
            at += 1;
            trimmed[1..].split(quote).next()?
        }
        _ => trimmed.split([' ', '\n', '\t', '>', ')']).next()?,
    };
    let trimmed = url.trim();
    (!trimmed.is_empty()).then_some((at, trimmed))
}

/// True when the room stands in front of the URL.
fn covered(url: &str, routes: &[(&str, &str)]) -> bool {
    let lower = url.get(..8).unwrap_or(url).to_ascii_lowercase();
    let absolute = match lower.as_str() {
        start if start.starts_with("https://") => Some(&url[8..]),
        start if start.starts_with("http://") => Some(&url[7..]),
        start if start.starts_with("//") => Some(&url[2..]),
        _ => None,
    };
    let (host, path) = match absolute {
        Some(rest) => {
            let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
            let host = rest[..end].split(':').next().unwrap_or_default();
            (Some(host), &rest[end..])
        }
        // `data:`, `blob:` and the like load nothing; a tag of ours is not known here.
        None if url.starts_with('#') || url.contains("{{") || scheme(url) => return false,
        None => (None, url),
    };
    if path.starts_with("/cdn-cgi/") {
        return false;
    }
    routes.iter().any(|(room_host, prefix)| {
        host.is_none_or(|host| host.eq_ignore_ascii_case(room_host))
            // A path that is relative to the page lies, as far as anyone can tell, under the room.
            && (!path.starts_with('/') || under(path, prefix))
    })
}

fn scheme(url: &str) -> bool {
    let end = url.find([':', '/', '?']).unwrap_or(url.len());
    url[end..].starts_with(':')
}

fn under(path: &str, prefix: &str) -> bool {
    let prefix = prefix.trim_end_matches('/');
    let path = path.split(['?', '#']).next().unwrap_or_default();
    path.strip_prefix(prefix)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}
