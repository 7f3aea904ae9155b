//! What a person sees: tables, colours, and the one line that says what went wrong.
//!
//! Colours only on a terminal and never with `NO_COLOR`; a pipe gets plain text.

// The one module that may print.
#![allow(clippy::print_stdout, clippy::print_stderr)]

use std::borrow::Cow;
use std::fmt::Display;
use std::io::{self, IsTerminal, Write};

use anyhow::anyhow;

use crate::Ending;

/// Prints a line on the standard output.
///
/// # Errors
/// It cannot be written. A reader that went away is no error: it has seen enough.
pub(crate) fn say(line: impl Display) -> Result<(), Ending> {
    said(format_args!("{line}\n")).map(|_| ())
}

/// Prints text as it is on the standard output; how the command ends then.
pub(crate) fn say_text(text: &str) -> Ending {
    said(text).err().unwrap_or(Ending::Done)
}

/// Prints text; whether somebody still reads.
///
/// # Errors
/// As [`say`].
pub(crate) fn said(text: impl Display) -> Result<bool, Ending> {
    let mut out = io::stdout().lock();
    match write!(out, "{text}").and_then(|()| out.flush()) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(Ending::Environment(
            anyhow!(error).context("the standard output cannot be written to"),
        )),
    }
}

/// Prints a question on the standard error, which a pipe does not swallow.
pub(crate) fn ask(question: &str) {
    let mut err = io::stderr().lock();
    let _closed = write!(err, "{question}").and_then(|()| err.flush());
}

/// Prints lines on the standard output; how the command ends then.
pub(crate) fn say_all(lines: impl IntoIterator<Item = impl Display>) -> Ending {
    lines
        .into_iter()
        .try_for_each(say)
        .err()
        .unwrap_or(Ending::Done)
}

/// Prints a line on the standard error.
pub(crate) fn complain(line: &str) {
    let line: Vec<_> = line.split('\n').map(shown).collect();
    let _closed = writeln!(io::stderr().lock(), "usher: {}", line.join("\n"));
}

/// Text from elsewhere, with what would move a cursor, change a colour or turn the direction of
/// reading written out.
pub(crate) fn shown(text: &str) -> Cow<'_, str> {
    let turns = |c: char| matches!(c, '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    let acts = |c: char| c.is_control() || turns(c);
    if !text.contains(acts) {
        return Cow::Borrowed(text);
    }
    let write = |mut out: String, c: char| {
        if acts(c) {
            out.extend(c.escape_default());
        } else {
            out.push(c);
        }
        out
    };
    Cow::Owned(text.chars().fold(String::new(), write))
}

/// How a cell is shown on a terminal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tone {
    /// As it is.
    Plain,
    /// All is well.
    Good,
    /// Look at it.
    Warn,
    /// Act on it.
    Bad,
    /// Less important.
    Dim,
    /// A heading.
    Bold,
}

impl Tone {
    const fn code(self) -> &'static str {
        match self {
            Tone::Plain => "",
            Tone::Good => "\x1b[32m",
            Tone::Warn => "\x1b[33m",
            Tone::Bad => "\x1b[31m",
            Tone::Dim => "\x1b[2m",
            Tone::Bold => "\x1b[1m",
        }
    }

    /// The tone of a state's name.
    pub(crate) fn of_state(state: &str) -> Tone {
        match state {
            "healthy" => Tone::Good,
            "degraded" | "unknown" | "draining" => Tone::Warn,
            "critical" => Tone::Bad,
            _ => Tone::Dim,
        }
    }
}

/// Whether the standard output shows colours.
pub(crate) fn colourful() -> bool {
    io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

/// `text` in `tone`, if `colourful`.
pub(crate) fn paint(text: &str, tone: Tone, colourful: bool) -> String {
    if colourful && tone != Tone::Plain {
        format!("{}{text}\x1b[0m", tone.code())
    } else {
        text.to_owned()
    }
}

/// Rows of cells, printed with the columns aligned. The first row is the heading.
#[derive(Debug, Default)]
pub(crate) struct Table {
    rows: Vec<Vec<(String, Tone)>>,
}

impl Table {
    /// A table with this heading.
    pub(crate) fn new(heading: &[&str]) -> Table {
        let mut table = Table::default();
        table.row(heading.iter().map(|&cell| (cell, Tone::Dim)));
        table
    }

    /// Adds a row.
    pub(crate) fn row<S: Into<String>>(&mut self, cells: impl IntoIterator<Item = (S, Tone)>) {
        self.rows.push(
            cells
                .into_iter()
                .map(|(text, tone)| (text.into(), tone))
                .collect(),
        );
    }

    /// The lines, each behind `indent` spaces.
    pub(crate) fn lines(&self, indent: usize, colourful: bool) -> Vec<String> {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let widths: Vec<usize> = (0..columns)
            .map(|column| {
                let cells = self.rows.iter().filter_map(|row| row.get(column));
                cells
                    .map(|(text, _)| text.chars().count())
                    .max()
                    .unwrap_or(0)
            })
            .collect();
        let line = |row: &Vec<(String, Tone)>| {
            let mut line = " ".repeat(indent);
            for ((text, tone), width) in row.iter().zip(&widths) {
                line.push_str(&paint(text, *tone, colourful));
                line.push_str(&" ".repeat(width - text.chars().count() + 2));
            }
            line.trim_end().to_owned()
        };
        self.rows.iter().map(line).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned_and_nothing_trails() {
        let mut table = Table::new(&["name", "state"]);
        table.row([("eu-west", Tone::Plain), ("healthy", Tone::Good)]);
        let lines = table.lines(2, false);
        assert_eq!(lines, ["  name     state", "  eu-west  healthy"]);
    }

    #[test]
    fn what_acts_on_a_terminal_is_written_out() {
        assert_eq!(shown("shop: größer → 東京"), "shop: größer → 東京");
        assert_eq!(
            shown("a\u{1b}[2Jb\u{9b}1mc\r\nd\u{202e}e"),
            "a\\u{1b}[2Jb\\u{9b}1mc\\r\\nd\\u{202e}e"
        );
    }

    #[test]
    fn colours_do_not_count_as_width() {
        let mut table = Table::new(&["state", "reason"]);
        table.row([
            ("critical", Tone::Bad),
            ("No route to host error", Tone::Plain),
        ]);
        let lines = table.lines(0, true);
        assert_eq!(lines[1], "\x1b[31mcritical\x1b[0m  No route to host error");
    }
}
