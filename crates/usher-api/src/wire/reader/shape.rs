//! Which keys an object may have, and what becomes of each.
//!
//! Usher also lists the keys that it knows and does not serve: such a key is refused by name,
//! because a setting that is silently ignored is worse than an error.

use serde_json::Value;

/// The keys that an object may have.
#[derive(Debug)]
pub struct Shape {
    /// What the object is, for the reference.
    pub name: &'static str,
    /// Every known key.
    pub keys: &'static [Key],
}

/// One key of a [`Shape`].
#[derive(Debug)]
pub struct Key {
    /// As it is written.
    pub name: &'static str,
    /// What Usher does with it.
    pub status: Status,
}

/// What Usher does with a known key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Status {
    /// Reads it.
    Built,
    /// Sets it itself.
    ReadOnly,
    /// Refuses it by name, unless it holds nothing but nulls, empty values and these words.
    Unbuilt(&'static [&'static str]),
}

/// A key that is read.
#[must_use]
pub const fn built(name: &'static str) -> Key {
    Key {
        name,
        status: Status::Built,
    }
}

/// A key that Usher sets itself.
#[must_use]
pub const fn read_only(name: &'static str) -> Key {
    Key {
        name,
        status: Status::ReadOnly,
    }
}

/// A key that is known and not served; `neutral` are the values that ask for nothing.
#[must_use]
pub const fn unbuilt(name: &'static str, neutral: &'static [&'static str]) -> Key {
    Key {
        name,
        status: Status::Unbuilt(neutral),
    }
}

/// Whether the value of an unbuilt key leaves everything as it is.
pub(super) fn asks_nothing(value: &Value, neutral: &[&str]) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(flag) => neutral.contains(&if *flag { "true" } else { "false" }),
        Value::Number(number) => neutral.contains(&number.to_string().as_str()),
        Value::String(text) => text.is_empty() || neutral.contains(&text.as_str()),
        Value::Array(items) => items.iter().all(|item| asks_nothing(item, neutral)),
        Value::Object(map) => map.values().all(|value| asks_nothing(value, neutral)),
    }
}

/// The one of `names` that `text` was probably meant to be.
#[must_use]
pub fn nearest<'n>(text: &str, names: impl Iterator<Item = &'n str>) -> Option<&'n str> {
    let distance = |name: &'n str| (strsim::damerau_levenshtein(text, name), name);
    let (edits, name) = names.map(distance).min_by_key(|(edits, _)| *edits)?;
    (edits <= 1 + text.chars().count() / 3).then_some(name)
}
