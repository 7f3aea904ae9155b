//! What was found while reading, and where.

use std::cell::RefCell;
use std::collections::HashSet;

/// Who wrote the value; a few rules differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// The configuration file: resources are named by their keys, unknown keys are faults.
    File,
    /// The API: resources are named by their ids, unknown keys are named in `messages`, read-only
    /// keys are ignored.
    Api,
}

/// One thing that is wrong, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// JSON pointer from the root. What it names need not exist: a missing key is named too.
    pub pointer: String,
    /// Whether the key is at fault and not its value.
    pub at_key: bool,
    /// Characters of the text before the place in it that is at fault; 0: all of the value is.
    pub inside: usize,
    /// The resource, for people: `pool eu: endpoint a: `, or nothing.
    pub place: String,
    /// What is wrong: lower case, no full stop.
    pub message: String,
}

impl Fault {
    /// Whether it is right as such, and only not served.
    #[must_use]
    pub fn is_unbuilt(&self) -> bool {
        // The words that every refusal of a known and unbuilt part has, in this crate.
        self.message.contains("not built yet")
    }
}

impl std::fmt::Display for Fault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}{}", self.place, self.message)
    }
}

/// Everything that is wrong with one value, and everything odd about it.
#[derive(Debug)]
pub struct Report {
    mode: Mode,
    faults: RefCell<Vec<Fault>>,
    /// Apart from `faults`, so that they only give way to those.
    consequences: RefCell<Vec<Fault>>,
    notes: RefCell<Vec<Fault>>,
    settled: Vec<String>,
    pub(super) loose: HashSet<String>,
}

impl Report {
    /// An empty report on a value written by `mode`.
    #[must_use]
    pub fn new(mode: Mode) -> Report {
        Report {
            mode,
            faults: RefCell::default(),
            consequences: RefCell::default(),
            notes: RefCell::default(),
            settled: Vec::new(),
            loose: HashSet::new(),
        }
    }

    /// Says nothing more about the values at `pointers`: their faults have been told elsewhere.
    pub fn settle(&mut self, pointers: Vec<String>) {
        self.settled.extend(pointers);
    }

    /// Takes the texts at `pointers` for numbers or truths where such are wanted: they come from
    /// an environment, which knows only text.
    pub fn loosen(&mut self, pointers: Vec<String>) {
        self.loose.extend(pointers);
    }

    /// Who wrote the value.
    #[must_use]
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// Adds a fault.
    pub fn fault(&self, fault: Fault) {
        if !self.settled.contains(&fault.pointer) {
            self.faults.borrow_mut().push(fault);
        }
    }

    /// Adds a fault that was found by looking at values that had been read, unless its own value,
    /// what that stands in, or one of the values `of` has a fault already: it would be about a
    /// default that nobody wrote.
    pub fn consequence(&self, fault: Fault, of: &[String]) {
        let faults = self.faults.borrow();
        let mut told = faults
            .iter()
            .map(|fault| &fault.pointer)
            .chain(&self.settled);
        let shadow = told.any(|told| {
            within(&fault.pointer, told) || of.iter().any(|pointer| within(pointer, told))
        });
        if !shadow {
            self.consequences.borrow_mut().push(fault);
        }
    }

    /// Adds something that is odd and does no harm.
    pub fn note(&self, note: Fault) {
        self.notes.borrow_mut().push(note);
    }

    /// Whether nothing is wrong so far.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        [&self.faults, &self.consequences]
            .iter()
            .all(|found| found.borrow().is_empty())
            && self.settled.is_empty()
    }

    /// The faults, then the notes, in the order in which they were found.
    #[must_use]
    pub fn into_parts(self) -> (Vec<Fault>, Vec<Fault>) {
        let mut faults = self.faults.into_inner();
        faults.append(&mut self.consequences.into_inner());
        (faults, self.notes.into_inner())
    }
}

/// Whether `inner` is `outer` or below it.
fn within(inner: &str, outer: &str) -> bool {
    inner
        .strip_prefix(outer)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fault(pointer: &str) -> Fault {
        let (place, message) = (String::new(), String::new());
        Fault {
            pointer: pointer.into(),
            at_key: false,
            inside: 0,
            place,
            message,
        }
    }

    #[test]
    fn a_consequence_is_not_told_twice() {
        let mut report = Report::new(Mode::File);
        report.settle(vec!["/b/c".into()]);
        report.fault(fault("/a"));
        report.fault(fault("/b/c"));
        for (pointer, of, told) in [
            ("/a", "/x", false),
            ("/a/b", "/x", false),
            ("/ab", "/x", true),
            ("/b", "/x", true),
            ("/b/c", "/x", false),
            ("/b/d", "/x", true),
            ("/e", "/a/f", false),
        ] {
            let before = report.consequences.borrow().len();
            report.consequence(fault(pointer), &[of.to_owned()]);
            assert_eq!(
                report.consequences.borrow().len() > before,
                told,
                "{pointer}"
            );
        }
    }
}
