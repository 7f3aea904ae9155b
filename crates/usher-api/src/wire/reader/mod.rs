//! Reads JSON against declared shapes and keeps every fault instead of stopping at the first.
//!
//! A [`Shape`] lists the keys of an object; the lists are data so that the reference can be held
//! against them.
//!
//! The order of calls: make a [`Report`], take a [`Cursor`] to the root, walk down with
//! [`Cursor::object`], [`Cursor::list`] and [`Cursor::entries`], then ask the report.

mod report;
mod shape;

pub use report::{Fault, Mode, Report};
pub use shape::{Key, Shape, Status, built, nearest, read_only, unbuilt};

use std::borrow::Cow;

use serde_json::{Map, Value};
use usher_core::catalog::Reference;
use usher_core::id::{Id, IdFault, Kind};

use shape::asks_nothing;

/// A word of a closed list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Word<T> {
    /// It means this.
    Means(T),
    /// It is known and not served.
    Unbuilt,
}

/// A value, where it stands, and whom to tell about it.
#[derive(Debug, Clone)]
pub struct Cursor<'a> {
    report: &'a Report,
    value: &'a Value,
    pointer: String,
    place: String,
    field: String,
}

impl<'a> Cursor<'a> {
    /// The whole of `value`.
    #[must_use]
    pub fn root(report: &'a Report, value: &'a Value) -> Cursor<'a> {
        let (pointer, place, field) = Default::default();
        Cursor {
            report,
            value,
            pointer,
            place,
            field,
        }
    }

    /// The same value as a resource of its own: messages about it begin with `what`.
    #[must_use]
    pub fn as_resource(mut self, what: &str) -> Cursor<'a> {
        self.place = format!("{}{what}: ", self.place);
        self.field.clear();
        self
    }

    /// Who wrote the value.
    #[must_use]
    pub fn mode(&self) -> Mode {
        self.report.mode()
    }

    /// JSON pointer of the value.
    #[must_use]
    pub fn pointer(&self) -> &str {
        &self.pointer
    }

    /// The resource that the value belongs to, as messages begin with it.
    #[must_use]
    pub fn place(&self) -> &str {
        &self.place
    }

    /// The value itself.
    #[must_use]
    pub fn value(&self) -> &'a Value {
        self.value
    }

    /// Says that the value is wrong: `<field> <what>`.
    pub fn fault(&self, what: impl std::fmt::Display) {
        self.report.fault(self.finding(false, what));
    }

    /// Says that the key of the value is wrong: `<field> <what>`.
    pub fn fault_at_key(&self, what: impl std::fmt::Display) {
        self.report.fault(self.finding(true, what));
    }

    /// Says that the text is wrong behind its first `skip` characters: `<field> <what>`.
    pub fn fault_inside(&self, skip: usize, what: impl std::fmt::Display) {
        self.report.fault(Fault {
            inside: skip,
            ..self.finding(false, what)
        });
    }

    /// Says that the value is odd: `<field> <what>`.
    pub fn note(&self, what: impl std::fmt::Display) {
        self.report.note(self.finding(false, what));
    }

    fn finding(&self, at_key: bool, what: impl std::fmt::Display) -> Fault {
        let (place, message) = match self.field.is_empty() {
            // The resource itself: "pool eu must be ...".
            true => (
                String::new(),
                format!("{} {what}", self.place.trim_end_matches(": ")),
            ),
            false => (self.place.clone(), format!("{} {what}", self.field)),
        };
        let message = message.trim_start().to_owned();
        Fault {
            pointer: self.pointer.clone(),
            at_key,
            inside: 0,
            place,
            message,
        }
    }

    fn wrong(&self, wanted: &str) {
        self.fault(format_args!(
            "must be {wanted}, not {}",
            describe(self.value)
        ));
    }

    fn child(&self, token: &str, field: String, value: &'a Value) -> Cursor<'a> {
        let token = token.replace('~', "~0").replace('/', "~1");
        Cursor {
            report: self.report,
            value,
            pointer: format!("{}/{token}", self.pointer),
            place: self.place.clone(),
            field,
        }
    }

    fn field_below(&self, key: &str) -> String {
        match self.field.is_empty() {
            true => key.to_owned(),
            false => format!("{}.{key}", self.field),
        }
    }

    /// An object with the keys of `shape`. Anything else, and every key that cannot stay, is a
    /// fault; the object is read all the same.
    #[must_use]
    pub fn object(&self, shape: &'static Shape) -> Option<Object<'a>> {
        let Some(map) = self.value.as_object() else {
            self.wrong("an object");
            return None;
        };
        let object = Object {
            cursor: self.clone(),
            map,
            shape,
        };
        for (key, value) in map {
            let child = self.child(key, self.field_below(key), value);
            match shape
                .keys
                .iter()
                .find(|known| known.name == key)
                .map(|known| known.status)
            {
                None => self.unknown(key, &child.pointer, shape),
                Some(Status::ReadOnly) if self.mode() == Mode::File => {
                    child.fault_at_key("is set by usher: remove it");
                }
                Some(Status::Unbuilt(neutral)) if !asks_nothing(value, neutral) => {
                    child.unbuilt();
                }
                Some(Status::Built | Status::ReadOnly | Status::Unbuilt(_)) => {}
            }
        }
        Some(object)
    }

    /// As [`Cursor::object`], for an object that has been looked at already: says nothing.
    #[must_use]
    pub fn quiet_object(&self, shape: &'static Shape) -> Option<Object<'a>> {
        let map = self.value.as_object()?;
        Some(Object {
            cursor: self.clone(),
            map,
            shape,
        })
    }

    fn unbuilt(&self) {
        // A word says which part of the field is meant: "session_affinity cookie".
        match self.value.as_str().filter(|word| is_word(word)) {
            Some(word) => self.fault(format_args!("{word} is not built yet")),
            None => self.fault_at_key("is not built yet"),
        }
    }

    fn unknown(&self, key: &str, pointer: &str, shape: &Shape) {
        let place = match self.field.is_empty() {
            true => self.place.clone(),
            false => format!("{}{}: ", self.place, self.field),
        };
        let names = shape
            .keys
            .iter()
            .filter(|known| known.status != Status::ReadOnly);
        let message = match nearest(key, names.map(|known| known.name)) {
            Some(near) => format!("unknown key {key:?}; the nearest known key is {near:?}"),
            None => format!("unknown key {key:?}"),
        };
        let fault = Fault {
            pointer: pointer.to_owned(),
            at_key: true,
            inside: 0,
            place,
            message,
        };
        match self.mode() {
            Mode::File => self.report.fault(fault),
            Mode::Api => self.report.note(fault),
        }
    }

    /// An object whose keys are names that the writer chose.
    #[must_use]
    pub fn entries(&self) -> Vec<(&'a str, Cursor<'a>)> {
        let Some(map) = self.value.as_object() else {
            self.wrong("an object");
            return Vec::new();
        };
        let entry = |(key, value): (&'a String, &'a Value)| {
            (key.as_str(), self.child(key, self.field_below(key), value))
        };
        map.iter().map(entry).collect()
    }

    /// The items of a list.
    #[must_use]
    pub fn list(&self) -> Vec<Cursor<'a>> {
        let Some(items) = self.value.as_array() else {
            self.wrong("a list");
            return Vec::new();
        };
        let item = |(index, value): (usize, &'a Value)| {
            self.child(
                &index.to_string(),
                format!("{}[{index}]", self.field),
                value,
            )
        };
        items.iter().enumerate().map(item).collect()
    }

    /// Text.
    #[must_use]
    pub fn text(&self) -> Option<&'a str> {
        let text = self.value.as_str();
        if text.is_none() {
            // What YAML takes for a number or a truth may have been meant as text.
            let quotes = match (self.mode(), self.value) {
                (Mode::File, Value::Number(_) | Value::Bool(_)) => "text in quotes",
                _ => "text",
            };
            self.wrong(quotes);
        }
        text
    }

    /// The value, which is not to be text.
    fn scalar(&self) -> Cow<'a, Value> {
        let loose = self
            .value
            .as_str()
            .filter(|_| self.report.loose.contains(&self.pointer));
        let meant = loose.and_then(|text| serde_json::from_str(text).ok());
        meant.map_or(Cow::Borrowed(self.value), Cow::Owned)
    }

    /// `true` or `false`.
    #[must_use]
    pub fn flag(&self) -> Option<bool> {
        let flag = self.scalar().as_bool();
        if flag.is_none() {
            self.wrong("true or false");
        }
        flag
    }

    /// Any number.
    #[must_use]
    pub fn number(&self) -> Option<f64> {
        let number = self.scalar().as_f64();
        if number.is_none() {
            self.wrong("a number");
        }
        number
    }

    /// A number from `min` to `max`.
    #[must_use]
    pub fn number_in(&self, min: f64, max: f64) -> Option<f64> {
        let number = self.number()?;
        let inside = (min..=max).contains(&number);
        if !inside {
            self.fault(format_args!("{number} is outside {min}..{max}"));
        }
        inside.then_some(number)
    }

    /// A whole number from `min` to `max`.
    #[must_use]
    pub fn whole(&self, min: u32, max: u32) -> Option<u32> {
        let whole = self.count(min, max)?;
        let inside = (min..=max).contains(&whole);
        if !inside {
            self.fault(format_args!("{whole} is outside {min}..{max}"));
        }
        inside.then_some(whole)
    }

    /// A whole number whose limits somebody else checks; `min` and `max` are what is said about
    /// one that is below zero or beyond any limit.
    #[must_use]
    pub fn count(&self, min: u32, max: u32) -> Option<u32> {
        let value = self.scalar();
        let Value::Number(number) = value.as_ref() else {
            self.wrong("a whole number");
            return None;
        };
        let float = number.as_f64().unwrap_or(f64::NAN);
        if float.fract() != 0.0 {
            self.fault(format_args!("{number} is not a whole number"));
            return None;
        }
        // Some writers of JSON spell 5 as 5.0, so the float decides.
        let whole = (0.0..=f64::from(u32::MAX))
            .contains(&float)
            .then_some(float as u32);
        match whole {
            Some(_) => {}
            None if max == u32::MAX && float < 0.0 => {
                self.fault(format_args!("{number} is below {min}"));
            }
            None => self.fault(format_args!("{number} is outside {min}..{max}")),
        }
        whole
    }

    /// One of `words`.
    #[must_use]
    pub fn word<T: Clone>(&self, words: &[(&'static str, Word<T>)]) -> Option<T> {
        let text = self.text()?;
        match words.iter().find(|(word, _)| *word == text) {
            Some((_, Word::Means(meaning))) => Some(meaning.clone()),
            Some((word, Word::Unbuilt)) => {
                self.fault(format_args!("{word} is not built yet"));
                None
            }
            None => {
                let built = words.iter().filter(|(word, meaning)| {
                    matches!(meaning, Word::Means(_)) && !word.is_empty()
                });
                let known: Vec<_> = built.map(|(word, _)| *word).collect();
                self.fault(format_args!("{text:?} is not one of {}", known.join(", ")));
                None
            }
        }
    }

    /// The value as the name of another resource of `kind`: its key in the file, its id in the
    /// API.
    #[must_use]
    pub fn reference(&self, kind: Kind) -> Option<Reference> {
        self.names(kind, self.text()?)
    }

    /// `text`, which belongs to the value, as the name of another resource of `kind`.
    #[must_use]
    pub fn names(&self, kind: Kind, text: &str) -> Option<Reference> {
        let id = match self.mode() {
            Mode::File => declared(kind, text),
            Mode::Api => match text.parse() {
                Ok(id) => id,
                Err(IdFault(text)) => {
                    self.fault(format_args!(
                        "{text:?} is not 32 lowercase hexadecimal digits"
                    ));
                    return None;
                }
            },
        };
        Some(Reference {
            id,
            text: text.to_owned(),
        })
    }
}

/// The only account there is so far.
pub const ACCOUNT: &str = "default";

/// The id of a resource that a file declares under `key`.
#[must_use]
pub fn declared(kind: Kind, key: &str) -> Id {
    Id::derive(ACCOUNT, kind, key)
}

/// An object that is being read. A key with the value null counts as absent.
#[derive(Debug, Clone)]
pub struct Object<'a> {
    cursor: Cursor<'a>,
    map: &'a Map<String, Value>,
    shape: &'static Shape,
}

impl<'a> Object<'a> {
    /// The object itself.
    #[must_use]
    pub fn cursor(&self) -> &Cursor<'a> {
        &self.cursor
    }

    /// The value of `key`, if there is one.
    #[must_use]
    pub fn get(&self, key: &'static str) -> Option<Cursor<'a>> {
        let known = self.shape.keys.iter().any(|known| known.name == key);
        debug_assert!(known, "{key} is not a key of {}", self.shape.name);
        let value = self.map.get(key).filter(|value| !value.is_null())?;
        Some(self.cursor.child(key, self.cursor.field_below(key), value))
    }

    /// The value of `key`; without one that is a fault.
    #[must_use]
    pub fn need(&self, key: &'static str) -> Option<Cursor<'a>> {
        let value = self.get(key);
        if value.is_none() {
            self.absent(key).fault_at_key("is missing");
        }
        value
    }

    /// The text of `key`, if there is one.
    #[must_use]
    pub fn text(&self, key: &'static str) -> Option<String> {
        self.get(key)
            .and_then(|value| value.text())
            .map(str::to_owned)
    }

    /// The text of `key`.
    #[must_use]
    pub fn text_or(&self, key: &'static str, default: &str) -> String {
        self.text(key).unwrap_or_else(|| default.to_owned())
    }

    /// The text of `key`, which must be there; empty after a fault.
    #[must_use]
    pub fn need_text(&self, key: &'static str) -> String {
        self.need(key)
            .and_then(|value| value.text())
            .unwrap_or_default()
            .to_owned()
    }

    /// The truth of `key`.
    #[must_use]
    pub fn flag_or(&self, key: &'static str, default: bool) -> bool {
        self.get(key)
            .and_then(|value| value.flag())
            .unwrap_or(default)
    }

    /// The number of `key`, as [`Cursor::count`] reads it.
    #[must_use]
    pub fn count_or(&self, key: &'static str, (min, max): (u32, u32), default: u32) -> u32 {
        self.get(key)
            .and_then(|value| value.count(min, max))
            .unwrap_or(default)
    }

    /// The port in the key `port`; 0 and nothing leave it to the protocol.
    #[must_use]
    pub fn port(&self) -> Option<u16> {
        let port = self.get("port")?.whole(0, u16::MAX.into())?;
        u16::try_from(port).ok().filter(|port| *port > 0)
    }

    /// Refuses a `key` that says something else than `name`, by which a file calls the object.
    pub fn same_as_key(&self, key: &'static str, name: &str) {
        let Some(value) = self.get(key) else { return };
        if let Some(text) = value.text().filter(|text| *text != name) {
            value.fault(format_args!(
                "{text:?} is not the key {name:?}, which names it here"
            ));
        }
    }

    /// Where the value of `key` would be, to say something about its absence.
    #[must_use]
    pub fn absent(&self, key: &'static str) -> Cursor<'a> {
        self.cursor
            .child(key, self.cursor.field_below(key), &Value::Null)
    }
}

fn is_word(text: &str) -> bool {
    text.len() <= 32
        && text
            .bytes()
            .all(|byte| byte.is_ascii_lowercase() || byte == b'_')
}

fn describe(value: &Value) -> &'static str {
    // Never the value itself: it may be a secret.
    match value {
        Value::Null => "nothing",
        Value::Bool(_) => "true or false",
        Value::Number(_) => "a number",
        Value::String(_) => "text",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    static INNER: Shape = Shape {
        name: "inner",
        keys: &[built("deep")],
    };
    static OUTER: Shape = Shape {
        name: "outer",
        keys: &[
            built("weight"),
            built("list"),
            built("inner"),
            read_only("id"),
            unbuilt("later", &["none", "0", "false"]),
        ],
    };

    fn faults(mode: Mode, value: &Value, read: impl Fn(&Object<'_>)) -> Vec<String> {
        let report = Report::new(mode);
        if let Some(object) = Cursor::root(&report, value)
            .as_resource("thing x")
            .object(&OUTER)
        {
            read(&object);
        }
        let (faults, _) = report.into_parts();
        faults
            .iter()
            .map(|fault| format!("{} {fault}", fault.pointer))
            .collect()
    }

    #[test]
    fn a_key_that_cannot_stay_is_named() {
        let value = json!({"wieght": 1, "id": "x", "later": {"a": [1]}, "zzzzzzzz": 1});
        assert_eq!(
            faults(Mode::File, &value, |_| ()),
            [
                "/wieght thing x: unknown key \"wieght\"; the nearest known key is \"weight\"",
                "/id thing x: id is set by usher: remove it",
                "/later thing x: later is not built yet",
                "/zzzzzzzz thing x: unknown key \"zzzzzzzz\"",
            ]
        );
        assert_eq!(
            faults(Mode::Api, &value, |_| ()),
            ["/later thing x: later is not built yet"]
        );
    }

    #[test]
    fn an_unbuilt_key_that_asks_for_nothing_is_let_through() {
        for later in [
            json!(null),
            json!(""),
            json!([]),
            json!({}),
            json!("none"),
            json!({"a": 0, "b": false}),
        ] {
            assert_eq!(
                faults(Mode::File, &json!({"later": later}), |_| ()),
                [""; 0]
            );
        }
        for later in [
            json!("some"),
            json!(1),
            json!(true),
            json!(["x"]),
            json!({"a": {"b": 1}}),
        ] {
            assert_eq!(
                faults(Mode::File, &json!({"later": later}), |_| ()).len(),
                1,
                "{later}"
            );
        }
    }

    #[test]
    fn a_fault_names_the_field_and_the_limit() {
        let value =
            json!({"weight": 1.4, "list": [1, "x", -1, 2.5, 1e99, 5.0], "inner": {"deep": 7}});
        let read = |object: &Object<'_>| {
            let _ = object
                .need("weight")
                .and_then(|weight| weight.number_in(0.0, 1.0));
            for item in object.need("list").iter().flat_map(Cursor::list) {
                let _ = item.whole(1, 10);
            }
            let inner = object.need("inner").and_then(|inner| inner.object(&INNER));
            let _ = inner
                .and_then(|inner| inner.need("deep"))
                .and_then(|deep| deep.text());
        };
        assert_eq!(
            faults(Mode::File, &value, read),
            [
                "/weight thing x: weight 1.4 is outside 0..1",
                "/list/1 thing x: list[1] must be a whole number, not text",
                "/list/2 thing x: list[2] -1 is outside 1..10",
                "/list/3 thing x: list[3] 2.5 is not a whole number",
                "/list/4 thing x: list[4] 1e+99 is outside 1..10",
                "/inner/deep thing x: inner.deep must be text in quotes, not a number",
            ]
        );
    }

    #[test]
    fn what_the_environment_says_is_read_as_it_is_needed() {
        let value = json!({"weight": "0.5", "list": ["7", "true", "x", "5"]});
        let mut report = Report::new(Mode::File);
        report.loosen(
            ["/weight", "/list/0", "/list/1", "/list/2"]
                .map(str::to_owned)
                .to_vec(),
        );
        let object = Cursor::root(&report, &value)
            .object(&OUTER)
            .expect("an object");
        assert_eq!(
            object.get("weight").and_then(|weight| weight.number()),
            Some(0.5)
        );
        assert_eq!(object.text("weight").as_deref(), Some("0.5"));
        let items = object.get("list").expect("there").list();
        assert_eq!(
            (items[0].whole(1, 9), items[1].flag()),
            (Some(7), Some(true))
        );
        assert_eq!((items[2].whole(1, 9), items[3].whole(1, 9)), (None, None));
    }

    #[test]
    fn what_is_missing_is_named_once() {
        let read = |object: &Object<'_>| {
            assert!(object.need("weight").is_none());
            assert!(object.get("list").is_none());
        };
        assert_eq!(
            faults(Mode::File, &json!({"weight": null}), read),
            ["/weight thing x: weight is missing"]
        );
        assert_eq!(
            faults(Mode::File, &json!("x"), |_| ()),
            [" thing x must be an object, not text"]
        );
    }

    #[test]
    fn pointers_escape_their_tokens() {
        let value = json!({"a/b~c": 1});
        let report = Report::new(Mode::File);
        let entries = Cursor::root(&report, &value).entries();
        assert_eq!(entries[0].1.pointer(), "/a~1b~0c");
    }
}
