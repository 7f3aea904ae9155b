//! The fields of a body, taken out one by one, each fault with its place.
//!
//! Nothing ends at the first fault: whoever wrote a body wants to know all that is wrong with it. What
//! nobody takes is not understood, and is named.

use std::fmt::Display;
use std::ops::RangeInclusive;

use serde_json::{Map, Value};

/// Faults that are told; a body may have as many as it has fields.
const FAULTS_MAX: usize = 64;
/// Names that are told as not understood.
const UNKNOWN_MAX: usize = 16;
/// Entries of a list.
pub(super) const LIST_MAX: usize = 1_000;

/// Something that is wrong with a body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Problem {
    /// Where, as `cookies.0.name`.
    pub(super) path: String,
    pub(super) message: String,
    pub(super) code: Option<u16>,
}

/// An object, as far as it was not looked at yet.
#[derive(Debug, Default)]
pub(super) struct Fields {
    path: String,
    left: Map<String, Value>,
    problems: Vec<Problem>,
    unknown: Vec<String>,
}

impl Fields {
    pub(super) fn new(object: Map<String, Value>) -> Fields {
        Fields {
            left: object,
            ..Fields::default()
        }
    }

    fn place(&self, name: impl Display) -> String {
        match self.path.as_str() {
            "" => name.to_string(),
            path => format!("{path}.{name}"),
        }
    }

    /// Notes a fault of the field `name`.
    pub(super) fn fault(&mut self, name: impl Display, message: impl Into<String>) {
        self.coded(name, message, None);
    }

    /// The same, with a number that programs know.
    pub(super) fn coded(
        &mut self,
        name: impl Display,
        message: impl Into<String>,
        code: Option<u16>,
    ) {
        if self.problems.len() < FAULTS_MAX {
            self.problems.push(Problem {
                path: self.place(name),
                message: message.into(),
                code,
            });
        }
    }

    /// A field's value; `null` counts as not given.
    pub(super) fn take(&mut self, name: &str) -> Option<Value> {
        self.left
            .shift_remove(name)
            .filter(|value| !value.is_null())
    }

    /// Whether it is given and was not taken.
    pub(super) fn has(&self, name: &str) -> bool {
        self.left.get(name).is_some_and(|value| !value.is_null())
    }

    /// The same value under the first of two names.
    pub(super) fn rename(&mut self, from: &str, to: &str) {
        if let Some(value) = self.left.shift_remove(from) {
            self.left.entry(to.to_owned()).or_insert(value);
        }
    }

    pub(super) fn flag(&mut self, name: &str) -> Option<bool> {
        match self.take(name)? {
            Value::Bool(flag) => Some(flag),
            other => self.wrong(name, &other, "true or false"),
        }
    }

    pub(super) fn text(&mut self, name: &str) -> Option<String> {
        match self.take(name)? {
            Value::String(text) => Some(text),
            other => self.wrong(name, &other, "a text"),
        }
    }

    /// A text that has to be there.
    pub(super) fn needed(&mut self, name: &str) -> String {
        if !self.has(name) {
            self.fault(name, format!("{name} is needed"));
            return String::new();
        }
        self.text(name).unwrap_or_default()
    }

    /// A whole number.
    pub(super) fn whole(&mut self, name: &str, range: RangeInclusive<u64>) -> Option<u64> {
        let value = self.take(name)?;
        // Programs write whole numbers as they like: 5, 5.0, 5e0.
        let number = value.as_f64().filter(|number| number.fract() == 0.0);
        let within = |number: &f64| (*range.start() as f64..=*range.end() as f64).contains(number);
        match number.filter(within) {
            Some(number) => Some(number as u64),
            None => {
                let what = format!("a whole number from {} to {}", range.start(), range.end());
                self.wrong(name, &value, &what)
            }
        }
    }

    pub(super) fn number(&mut self, name: &str, range: RangeInclusive<f64>) -> Option<f64> {
        let value = self.take(name)?;
        match value.as_f64().filter(|number| range.contains(number)) {
            Some(number) => Some(number),
            None => {
                let what = format!("a number from {} to {}", range.start(), range.end());
                self.wrong(name, &value, &what)
            }
        }
    }

    /// One of these words.
    pub(super) fn word<T: Copy>(&mut self, name: &str, words: &[(&str, T)]) -> Option<T> {
        let value = self.take(name)?;
        self.word_of(name, &value, words)
    }

    /// What one of these words stands for.
    pub(super) fn word_of<T: Copy>(
        &mut self,
        name: impl Display,
        value: &Value,
        words: &[(&str, T)],
    ) -> Option<T> {
        let text = value.as_str();
        let known = words.iter().find(|(word, _)| text == Some(*word));
        match known {
            Some(&(_, meant)) => Some(meant),
            None => {
                let words: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
                self.wrong(name, value, &format!("one of {}", words.join(", ")))
            }
        }
    }

    pub(super) fn list(&mut self, name: &str) -> Vec<Value> {
        match self.take(name) {
            None => Vec::new(),
            Some(Value::Array(list)) if list.len() > LIST_MAX => {
                let text = format!("{name}: {} entries, at most {LIST_MAX}", list.len());
                self.fault(name, text);
                Vec::new()
            }
            Some(Value::Array(list)) => list,
            Some(other) => {
                self.wrong::<()>(name, &other, "a list");
                Vec::new()
            }
        }
    }

    /// A list of texts.
    pub(super) fn texts(&mut self, name: &str) -> Vec<String> {
        let list = self.list(name).into_iter().enumerate();
        list.filter_map(|(at, value)| match value {
            Value::String(text) => Some(text),
            other => self.wrong(format!("{name}.{at}"), &other, "a text"),
        })
        .collect()
    }

    /// What `read` takes of an object.
    pub(super) fn inside<T>(
        &mut self,
        name: &str,
        read: impl FnOnce(&mut Fields) -> T,
    ) -> Option<T> {
        let value = self.take(name)?;
        self.object(name, value, read)
    }

    /// What `read` takes of each object of a list.
    pub(super) fn each<T>(&mut self, name: &str, read: impl Fn(&mut Fields) -> T) -> Vec<T> {
        let list = self.list(name).into_iter().enumerate();
        list.filter_map(|(at, value)| self.object(&format!("{name}.{at}"), value, &read))
            .collect()
    }

    fn object<T>(
        &mut self,
        name: &str,
        value: Value,
        read: impl FnOnce(&mut Fields) -> T,
    ) -> Option<T> {
        let object = match value {
            Value::Object(object) => object,
            other => return self.wrong(name, &other, "an object"),
        };
        let mut fields = Fields {
            path: self.place(name),
            left: object,
            ..Fields::default()
        };
        let taken = read(&mut fields);
        let (problems, unknown) = fields.rest();
        let room = FAULTS_MAX.saturating_sub(self.problems.len());
        self.problems.extend(problems.into_iter().take(room));
        let room = UNKNOWN_MAX.saturating_sub(self.unknown.len());
        self.unknown.extend(unknown.into_iter().take(room));
        Some(taken)
    }

    fn wrong<T>(&mut self, name: impl Display, value: &Value, wanted: &str) -> Option<T> {
        let found = match value {
            Value::String(text) if text.len() > 60 => "a long text".to_owned(),
            Value::Array(_) => "a list".to_owned(),
            Value::Object(_) => "an object".to_owned(),
            other => other.to_string(),
        };
        let text = format!("{} is {found}: {wanted}", self.place(&name));
        self.fault(name, text);
        None
    }

    /// What is wrong, and what nobody took.
    pub(super) fn rest(mut self) -> (Vec<Problem>, Vec<String>) {
        let left = std::mem::take(&mut self.left);
        for name in left.keys() {
            if self.unknown.len() < UNKNOWN_MAX {
                let place = self.place(name);
                self.unknown.push(place);
            }
        }
        (self.problems, self.unknown)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn fields(value: Value) -> Fields {
        match value {
            Value::Object(object) => Fields::new(object),
            other => panic!("{other}"),
        }
    }

    #[test]
    fn every_fault_is_told_with_its_place() {
        let mut body = fields(json!({
            "flag": 1, "text": false, "whole": 2.5, "number": "x", "word": "z", "list": {},
            "none": null, "five": 5.0, "other": {"a": 1, "b": true},
            "each": [{"name": "x"}, 7, {}],
        }));
        assert_eq!(body.flag("flag"), None);
        assert_eq!(body.text("text"), None);
        assert_eq!(body.whole("whole", 0..=9), None);
        assert_eq!(body.whole("five", 0..=5), Some(5));
        assert_eq!(body.number("number", 0.0..=1.0), None);
        assert_eq!(body.word("word", &[("x", 1), ("y", 2)]), None);
        assert!(body.list("list").is_empty());
        assert_eq!(body.text("none"), None);
        let inner = body.inside("other", |other| other.whole("a", 2..=3));
        assert_eq!(inner, Some(None));
        let names = body.each("each", |one| one.needed("name"));
        assert_eq!(names, ["x", ""]);
        let (problems, unknown) = body.rest();
        let told: Vec<_> = problems
            .iter()
            .map(|problem| (problem.path.as_str(), problem.message.as_str()))
            .collect();
        assert_eq!(
            told,
            [
                ("flag", "flag is 1: true or false"),
                ("text", "text is false: a text"),
                ("whole", "whole is 2.5: a whole number from 0 to 9"),
                ("number", "number is \"x\": a number from 0 to 1"),
                ("word", "word is \"z\": one of x, y"),
                ("list", "list is an object: a list"),
                ("other.a", "other.a is 1: a whole number from 2 to 3"),
                ("each.1", "each.1 is 7: an object"),
                ("each.2.name", "name is needed"),
            ]
        );
        assert_eq!(unknown, ["other.b"]);
    }
}
