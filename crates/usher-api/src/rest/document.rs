//! What a resource looks like in answers: its fields, their order, their defaults.
//!
//! One table serves the echo of what a client sent and the description of the API, so the two
//! cannot drift apart. A document is brought into this form once, when it is accepted, and kept
//! byte for byte: every later answer repeats it.

use serde_json::{Map, Value};

/// One settable field.
#[derive(Debug)]
pub(crate) struct Field {
    pub(crate) name: &'static str,
    pub(crate) kind: Kind,
    /// What is answered when it was not set, as JSON; empty: the field is absent then.
    pub(crate) default: &'static str,
    pub(crate) required: bool,
}

/// What a field holds.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Kind {
    Text,
    Number,
    Whole,
    Flag,
    /// An object with these fields.
    Object(&'static [Field]),
    /// A list of objects with these fields.
    Objects(&'static [Field]),
    /// A list of texts.
    Texts,
    /// An object whose keys the writer chose; what it holds is described in words only.
    Map,
}

/// A field that must be there.
pub(crate) const fn required(name: &'static str, kind: Kind) -> Field {
    Field {
        name,
        kind,
        default: "",
        required: true,
    }
}

/// A field that may be left out.
pub(crate) const fn optional(name: &'static str, kind: Kind, default: &'static str) -> Field {
    Field {
        name,
        kind,
        default,
        required: false,
    }
}

/// `value`, which passed every check, with its fields in their order, defaults filled in, and
/// nothing else.
pub(crate) fn canonical(value: &Map<String, Value>, fields: &[Field]) -> Map<String, Value> {
    let mut whole = Map::new();
    for field in fields {
        let given = value.get(field.name).filter(|given| !given.is_null());
        let kept = match given {
            Some(given) => Some(inside(given, field.kind)),
            None if field.default.is_empty() => None,
            None => Some(default(field)),
        };
        if let Some(kept) = kept {
            whole.insert(field.name.to_owned(), kept);
        }
    }
    whole
}

/// A canonical document without what it would have anyway.
pub(crate) fn lean(whole: &Map<String, Value>, fields: &[Field]) -> Map<String, Value> {
    let mut map = Map::new();
    for field in fields {
        let Some(value) = whole.get(field.name) else {
            continue;
        };
        if !field.default.is_empty() && *value == default(field) {
            continue;
        }
        let kept = match (field.kind, value) {
            (Kind::Object(fields), Value::Object(map)) => lean(map, fields).into(),
            (Kind::Objects(fields), Value::Array(items)) => {
                let items = items.iter().map(|item| match item {
                    Value::Object(map) => lean(map, fields).into(),
                    other => other.clone(),
                });
                items.collect()
            }
            _ => value.clone(),
        };
        map.insert(field.name.to_owned(), kept);
    }
    map
}

fn default(field: &Field) -> Value {
    let value = serde_json::from_str(field.default).expect("a default is JSON");
    inside(&value, field.kind)
}

fn inside(value: &Value, kind: Kind) -> Value {
    match (kind, value) {
        (Kind::Object(fields), Value::Object(map)) => canonical(map, fields).into(),
        (Kind::Objects(fields), Value::Array(items)) => {
            let items = items.iter().map(|item| match item {
                Value::Object(map) => canonical(map, fields).into(),
                other => other.clone(),
            });
            items.collect()
        }
        // What an environment says is text, whatever is meant.
        (Kind::Number | Kind::Whole | Kind::Flag, Value::String(text)) => {
            serde_json::from_str(text).unwrap_or_else(|_| value.clone())
        }
        _ => value.clone(),
    }
}

/// The values in `given` whose type is not that of their field: where, and what they must be.
///
/// A reader looks at what it uses, and many a field is only kept and shown; this looks at all of
/// them.
pub(crate) fn misfits(given: &Map<String, Value>, fields: &[Field]) -> Vec<(String, &'static str)> {
    let mut found = Vec::new();
    misfits_in(given, fields, "", &mut found);
    found
}

fn misfits_in(
    given: &Map<String, Value>,
    fields: &[Field],
    place: &str,
    found: &mut Vec<(String, &'static str)>,
) {
    for field in fields {
        let value = match given.get(field.name) {
            None | Some(Value::Null) => continue,
            Some(value) => value,
        };
        let pointer = format!("{place}/{}", field.name);
        let (fits, wanted) = match (field.kind, value) {
            (Kind::Text, value) => (value.is_string(), "text"),
            (Kind::Number, value) => (value.is_number(), "a number"),
            (Kind::Whole, value) => {
                let whole = value.as_f64().is_some_and(|number| number.fract() == 0.0);
                (whole, "a whole number")
            }
            (Kind::Flag, value) => (value.is_boolean(), "true or false"),
            (Kind::Map, value) => (value.is_object(), "an object"),
            (Kind::Object(inner), Value::Object(map)) => {
                misfits_in(map, inner, &pointer, found);
                continue;
            }
            (Kind::Object(_), _) => (false, "an object"),
            (Kind::Objects(inner), Value::Array(items)) => {
                for (index, item) in items.iter().enumerate() {
                    let pointer = format!("{pointer}/{index}");
                    match item {
                        Value::Object(map) => misfits_in(map, inner, &pointer, found),
                        _ => found.push((pointer, "an object")),
                    }
                }
                continue;
            }
            (Kind::Objects(_), _) => (false, "a list of objects"),
            (Kind::Texts, Value::Array(items)) => {
                let texts = items.iter().all(Value::is_string);
                (texts, "a list of texts")
            }
            (Kind::Texts, _) => (false, "a list of texts"),
        };
        if !fits {
            found.push((pointer, wanted));
        }
    }
}

/// `kept` with the top-level fields of `patch` in place of its own; null takes one away.
///
/// `pool_sets` is the one field that null leaves as it was.
pub(crate) fn patched(kept: &Map<String, Value>, patch: &Map<String, Value>) -> Map<String, Value> {
    let mut whole = kept.clone();
    for (key, value) in patch {
        match value {
            Value::Null if key == "pool_sets" => {}
            // Stays as null, so that a field that must be there is missed.
            value => {
                whole.insert(key.clone(), value.clone());
            }
        }
    }
    whole
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const INNER: &[Field] = &[
        required("name", Kind::Text),
        optional("weight", Kind::Number, "1"),
    ];
    const OUTER: &[Field] = &[
        required("name", Kind::Text),
        optional("port", Kind::Whole, "0"),
        optional("ttl", Kind::Whole, ""),
        optional("items", Kind::Objects(INNER), "[]"),
        optional("one", Kind::Object(INNER), "{}"),
        optional("map", Kind::Map, "{}"),
    ];

    fn canon(value: &Value) -> String {
        Value::from(canonical(value.as_object().expect("an object"), OUTER)).to_string()
    }

    #[test]
    fn fields_have_an_order_and_defaults_and_nothing_else_stays() {
        let value = json!({"other": 1, "items": [{"weight": 0.5, "name": "a", "x": 1}, {"name": "b"}], "name": "n",
                           "port": null, "map": {"z": 1, "a": 2}});
        let text = canon(&value);
        assert_eq!(
            text,
            r#"{"name":"n","port":0,"items":[{"name":"a","weight":0.5},{"name":"b","weight":1}],"one":{"weight":1},"map":{"z":1,"a":2}}"#
        );
        let again: Value = serde_json::from_str(&text).expect("JSON");
        assert_eq!(canon(&again), text);
    }

    #[test]
    fn what_is_lean_means_the_same() {
        let value = json!({"name": "n", "port": 0, "ttl": 5, "items": [{"name": "a", "weight": 1}, {"name": "b", "weight": 2}]});
        let whole = canonical(value.as_object().expect("an object"), OUTER);
        let lean = lean(&whole, OUTER);
        assert_eq!(
            Value::from(lean.clone()).to_string(),
            r#"{"name":"n","ttl":5,"items":[{"name":"a"},{"name":"b","weight":2}]}"#
        );
        assert_eq!(canonical(&lean, OUTER), whole);
    }

    #[test]
    fn a_patch_replaces_whole_fields() {
        let kept = json!({"name": "n", "items": [1], "pool_sets": [2]});
        let patch = json!({"items": [], "pool_sets": null, "name": null});
        let (kept, patch) = (kept.as_object(), patch.as_object());
        let whole = patched(kept.expect("an object"), patch.expect("an object"));
        assert_eq!(
            Value::from(whole),
            json!({"name": null, "items": [], "pool_sets": [2]})
        );
    }
}
