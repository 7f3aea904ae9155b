//! The language: mustache, without what would let a page run away.
//!
//! Every value is a scalar, so a section holds or does not, and repeats nothing: no list, no
//! lambda, no partial. That makes the output no longer than the template and what it prints, and
//! rendering one walk over a flat list of steps, without a stack and without recursion.
//!
//! Written here, because what the crates that we could take refuse they refuse without a place,
//! and none of them has bounds.

use std::collections::HashMap;

use super::fault::{Fault, Flaw};

/// Sections within sections.
pub const NEST_MAX: usize = 16;

/// A step of rendering; a range is one of the template's text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Step {
    /// Text as it stands.
    Text(std::ops::Range<usize>),
    /// The value of a name, escaped unless `raw`.
    Value { name: usize, raw: bool },
    /// Goes on behind `end` when the value of the name does not hold (when it holds: `inverted`).
    Section {
        name: usize,
        inverted: bool,
        end: usize,
    },
}

/// What a template says: steps, and the names that they speak of with the place of the first use.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Program {
    pub(super) steps: Vec<Step>,
    pub(super) names: Vec<(String, usize)>,
}

/// Reads a template.
pub(super) fn parse(text: &str) -> Result<Program, Fault> {
    Parser {
        text,
        open: "{{",
        close: "}}",
        sections: Vec::new(),
        numbers: HashMap::new(),
        program: Program::default(),
    }
    .run()
    .map_err(|(at, flaw)| Fault::at(text, at, flaw))
}

type Flawed<T> = Result<T, (usize, Flaw)>;

struct Parser<'a> {
    text: &'a str,
    open: &'a str,
    close: &'a str,
    sections: Vec<OpenSection<'a>>,
    numbers: HashMap<&'a str, usize>,
    program: Program,
}

struct OpenSection<'a> {
    name: &'a str,
    at: usize,
    step: usize,
}

/// A tag without its delimiters.
struct Tag<'a> {
    at: usize,
    end: usize,
    sigil: Option<char>,
    body: &'a str,
}

impl<'a> Parser<'a> {
    fn run(mut self) -> Flawed<Program> {
        let mut from = 0;
        while let Some(tag) = self.next_tag(from)? {
            let (before, after) = self.extent(&tag);
            // A line of its own may begin in front of `from` only by what an earlier tag took.
            self.push_text(from..before.max(from));
            self.take(&tag)?;
            from = after;
        }
        self.push_text(from..self.text.len());
        match self.sections.pop() {
            Some(open) => Err((open.at, Flaw::NeverClosed(open.name.to_owned()))),
            None => Ok(self.program),
        }
    }

    fn next_tag(&self, from: usize) -> Flawed<Option<Tag<'a>>> {
        let text = self.text;
        let Some(at) = text[from..].find(self.open).map(|found| from + found) else {
            return Ok(None);
        };
        let inside = at + self.open.len();
        let sigil = text[inside..].chars().next();
        let sigil = sigil
            .filter(|c| matches!(c, '#' | '^' | '/' | '!' | '&' | '{' | '=' | '>' | '<' | '$'));
        let begin = inside + usize::from(sigil.is_some());
        // What ends the tag besides the delimiter.
        let last = match sigil {
            Some('{') => "}",
            Some('=') => "=",
            _ => "",
        };
        let wanted = [last, self.close].concat();
        let Some(found) = text[begin..].find(&wanted) else {
            return Err((at, Flaw::TagNeverEnds));
        };
        let stop = begin + found;
        Ok(Some(Tag {
            at,
            end: stop + wanted.len(),
            sigil,
            body: &text[begin..stop],
        }))
    }

    /// Where the text before a tag ends and the text behind it begins: a tag that prints nothing
    /// takes the line with it that it stands on alone.
    fn extent(&self, tag: &Tag<'_>) -> (usize, usize) {
        let as_is = (tag.at, tag.end);
        if !matches!(tag.sigil, Some('#' | '^' | '/' | '!' | '=')) {
            return as_is;
        }
        let line = self.text[..tag.at].trim_end_matches([' ', '\t']);
        if !line.is_empty() && !line.ends_with('\n') {
            return as_is;
        }
        let behind = &self.text[tag.end..];
        let rest = behind.trim_start_matches([' ', '\t']);
        let skipped = behind.len() - rest.len();
        let newline = match rest {
            "" => 0,
            _ if rest.starts_with("\r\n") => 2,
            _ if rest.starts_with('\n') => 1,
            _ => return as_is,
        };
        (line.len(), tag.end + skipped + newline)
    }

    fn push_text(&mut self, range: std::ops::Range<usize>) {
        if !range.is_empty() {
            self.program.steps.push(Step::Text(range));
        }
    }

    fn take(&mut self, tag: &Tag<'a>) -> Flawed<()> {
        let flaw = |flaw| Err((tag.at, flaw));
        match tag.sigil {
            Some('!') => {}
            Some('=') => {
                let mut words = tag.body.split_whitespace();
                match (words.next(), words.next(), words.next()) {
                    (Some(open), Some(close), None)
                        if !open.contains('=') && !close.contains('=') =>
                    {
                        (self.open, self.close) = (open, close);
                    }
                    _ => return flaw(Flaw::Delimiters),
                }
            }
            Some('>') => return flaw(Flaw::Partial),
            Some('<' | '$') => return flaw(Flaw::Inheritance),
            Some(sigil @ ('#' | '^')) => {
                let word = word(tag)?;
                if self.sections.len() == NEST_MAX {
                    return flaw(Flaw::TooDeep);
                }
                let name = self.name(word, tag.at);
                self.sections.push(OpenSection {
                    name: word,
                    at: tag.at,
                    step: self.program.steps.len(),
                });
                self.program.steps.push(Step::Section {
                    name,
                    inverted: sigil == '^',
                    end: 0,
                });
            }
            Some('/') => {
                let word = word(tag)?;
                let Some(section) = self.sections.pop() else {
                    return flaw(Flaw::NeverOpened(word.to_owned()));
                };
                if section.name != word {
                    return flaw(Flaw::OtherOpen {
                        open: section.name.to_owned(),
                        closed: word.to_owned(),
                    });
                }
                let here = self.program.steps.len();
                if let Step::Section { end, .. } = &mut self.program.steps[section.step] {
                    *end = here;
                }
            }
            sigil => {
                let word = word(tag)?;
                let name = self.name(word, tag.at);
                let raw = sigil.is_some();
                self.program.steps.push(Step::Value { name, raw });
            }
        }
        Ok(())
    }

    /// The name's number. `.` is what the section around it asks for.
    fn name(&mut self, word: &'a str, at: usize) -> usize {
        let word = match self.sections.last() {
            Some(section) if word == "." => section.name,
            _ => word,
        };
        let names = &mut self.program.names;
        *self.numbers.entry(word).or_insert_with(|| {
            names.push((word.to_owned(), at));
            names.len() - 1
        })
    }
}

/// The one word of a tag.
fn word<'a>(tag: &Tag<'a>) -> Flawed<&'a str> {
    let word = tag.body.trim();
    if word.is_empty() {
        return Err((tag.at, Flaw::NoName));
    }
    if word.contains(char::is_whitespace) {
        return Err((tag.at, Flaw::Name(word.to_owned())));
    }
    Ok(word)
}
