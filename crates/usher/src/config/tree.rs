//! A YAML document as a tree that knows where everything stands.
//!
//! Built from the parser's events and not by a deserializer: a message needs the line and column
//! of a value that was found wrong much later, by somebody who only knows its JSON pointer.
//! Whatever the text, time and memory stay within the bounds below.

use std::collections::HashMap;

use saphyr_parser::{Event, Marker, Parser, ScalarStyle, ScanError, Span, Tag};
use serde_json::{Map, Number, Value};

/// Keys and values in a document, those that aliases repeat included.
const NODES_MAX: usize = 4_000_000;
/// Bytes of all keys and values, those that aliases repeat included.
const TEXT_BYTES_MAX: usize = 32 << 20;
/// Lists and objects inside each other.
const DEPTH_MAX: usize = 64;

/// A place in the text, counted from 1; columns count characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Position {
    pub(super) line: u32,
    pub(super) column: u32,
}

impl Position {
    pub(super) const START: Position = Position { line: 1, column: 1 };

    fn of(marker: &Marker) -> Position {
        let narrow = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
        Position {
            line: narrow(marker.line().max(1)),
            column: narrow(marker.col() + 1),
        }
    }
}

/// What is wrong with the text itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Flaw {
    pub(super) at: Position,
    pub(super) message: String,
}

/// A value and where it stands.
#[derive(Debug, Clone)]
pub(super) struct Node {
    pub(super) at: Position,
    kind: NodeKind,
}

#[derive(Debug, Clone)]
enum NodeKind {
    /// What the text means.
    Scalar {
        text: String,
        style: Style,
    },
    /// A scalar whose text could not be made out; the flaw has been told.
    Unclear,
    List(Vec<Node>),
    Object(Vec<Entry>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Style {
    /// Written without quotes: `5` is a number and `true` a truth.
    Plain,
    /// Text whatever it looks like.
    Quoted,
    /// Made with what the environment holds: whatever its reader needs.
    Expanded,
}

#[derive(Debug, Clone)]
struct Entry {
    key: String,
    at: Position,
    value: Node,
}

/// Parses `text`; `expand` replaces references to the environment in one scalar.
///
/// # Errors
/// The place where the text stops being YAML, or passes one of the bounds.
///
/// Flaws that leave the rest readable (a key that stands twice, a missing variable) are added to
/// `flaws` instead.
pub(super) fn parse(
    text: &str,
    expand: &dyn Fn(&str) -> Result<String, String>,
    flaws: &mut Vec<Flaw>,
) -> Result<Node, Flaw> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut builder = Builder {
        expand,
        flaws,
        open: Vec::new(),
        root: None,
        anchors: HashMap::new(),
        spent: Cost::default(),
    };
    for event in Parser::new_from_str(text) {
        let (event, span) = event.map_err(|error| not_yaml(text, &error))?;
        builder.take(event, span)?;
    }
    let empty = || Node {
        at: Position::START,
        kind: NodeKind::Object(Vec::new()),
    };
    // An empty document asks for nothing; it is not a fault of its own.
    Ok(builder
        .root
        .filter(|node| !node.is_empty())
        .unwrap_or_else(empty))
}

/// A tab in the indentation is what people see last and what stops the parser with many different
/// words, some of them lines above it.
fn not_yaml(text: &str, error: &ScanError) -> Flaw {
    let at = Position::of(error.marker());
    let near = text
        .lines()
        .zip(1..)
        .skip(at.line.saturating_sub(1) as usize)
        .take(2);
    let indented = |(line, number): (&str, u32)| {
        let indent = line.len() - line.trim_start().len();
        let column = line[..indent].chars().position(|c| c == '\t')?;
        Some(Position {
            line: number,
            column: u32::try_from(column + 1).unwrap_or(u32::MAX),
        })
    };
    match near.filter_map(indented).next() {
        Some(at) => Flaw {
            at,
            message: "a tab cannot indent: use spaces".to_owned(),
        },
        None => Flaw {
            at,
            message: format!("not valid YAML: {}", error.info()),
        },
    }
}

#[derive(Debug, Clone, Copy, Default)]
struct Cost {
    nodes: usize,
    text_bytes: usize,
}

struct Builder<'e> {
    expand: &'e dyn Fn(&str) -> Result<String, String>,
    flaws: &'e mut Vec<Flaw>,
    open: Vec<Open>,
    root: Option<Node>,
    anchors: HashMap<usize, Anchored>,
    spent: Cost,
}

/// A list or object whose end has not come yet.
struct Open {
    at: Position,
    anchor: usize,
    items: Items,
}

enum Items {
    List(Vec<Node>),
    Object {
        entries: Vec<Entry>,
        lines: HashMap<String, u32>,
        key: Option<(String, Position)>,
    },
}

struct Anchored {
    node: Node,
    cost: Cost,
    depth: usize,
}

impl Builder<'_> {
    fn take(&mut self, event: Event<'_>, span: Span) -> Result<(), Flaw> {
        let at = Position::of(&span.start);
        match event {
            Event::Nothing | Event::StreamStart | Event::StreamEnd | Event::DocumentEnd => Ok(()),
            Event::DocumentStart(_) if self.root.is_some() => flaw(
                at,
                "a second document begins here; a configuration is one document",
            ),
            Event::DocumentStart(_) => Ok(()),
            Event::Alias(anchor) => self.repeat(anchor, at),
            Event::Scalar(text, style, anchor, tag) => {
                let plain = style == ScalarStyle::Plain && !is_text(tag.as_deref(), at)?;
                let style = if plain { Style::Plain } else { Style::Quoted };
                let kind = match text.contains("${").then(|| (self.expand)(&text)) {
                    None => NodeKind::Scalar {
                        text: text.into_owned(),
                        style,
                    },
                    // As if nothing had been written.
                    Some(Ok(text)) if text.is_empty() => NodeKind::Scalar { text, style },
                    Some(Ok(text)) => NodeKind::Scalar {
                        text,
                        style: Style::Expanded,
                    },
                    Some(Err(message)) => {
                        self.flaws.push(Flaw { at, message });
                        NodeKind::Unclear
                    }
                };
                self.finish(Node { at, kind }, anchor)
            }
            Event::SequenceStart(anchor, tag) => {
                is_text(tag.as_deref(), at)?;
                self.begin(Open {
                    at,
                    anchor,
                    items: Items::List(Vec::new()),
                })
            }
            Event::MappingStart(anchor, tag) => {
                is_text(tag.as_deref(), at)?;
                let items = Items::Object {
                    entries: Vec::new(),
                    lines: HashMap::new(),
                    key: None,
                };
                self.begin(Open { at, anchor, items })
            }
            Event::SequenceEnd | Event::MappingEnd => {
                let Some(Open { at, anchor, items }) = self.open.pop() else {
                    return Ok(());
                };
                let kind = match items {
                    Items::List(items) => NodeKind::List(items),
                    Items::Object { entries, .. } => NodeKind::Object(entries),
                };
                self.finish(Node { at, kind }, anchor)
            }
        }
    }

    fn begin(&mut self, open: Open) -> Result<(), Flaw> {
        self.check_depth(open.at, 1)?;
        self.open.push(open);
        Ok(())
    }

    fn check_depth(&self, at: Position, more: usize) -> Result<(), Flaw> {
        if self.open.len() + more > DEPTH_MAX {
            return flaw(
                at,
                &format!("lists and objects nest deeper than {DEPTH_MAX}"),
            );
        }
        Ok(())
    }

    fn spend(&mut self, cost: Cost, at: Position) -> Result<(), Flaw> {
        self.spent.nodes += cost.nodes;
        self.spent.text_bytes += cost.text_bytes;
        if self.spent.nodes > NODES_MAX || self.spent.text_bytes > TEXT_BYTES_MAX {
            let (nodes, mib) = (NODES_MAX, TEXT_BYTES_MAX >> 20);
            return flaw(
                at,
                &format!("more than {nodes} values or {mib} MiB, aliases repeated"),
            );
        }
        Ok(())
    }

    /// Puts a node that is complete where it belongs.
    fn finish(&mut self, node: Node, anchor: usize) -> Result<(), Flaw> {
        self.spend(node.own_cost(), node.at)?;
        // Anchors are numbered from 1.
        if anchor > 0 {
            let (cost, depth) = node.measure();
            self.spend(cost, node.at)?;
            self.anchors.insert(
                anchor,
                Anchored {
                    node: node.clone(),
                    cost,
                    depth,
                },
            );
        }
        self.place(node)
    }

    fn repeat(&mut self, anchor: usize, at: Position) -> Result<(), Flaw> {
        let Some(anchored) = self.anchors.get(&anchor) else {
            return flaw(at, "this alias stands inside what it repeats");
        };
        let (cost, depth) = (anchored.cost, anchored.depth);
        self.check_depth(at, depth)?;
        self.spend(cost, at)?;
        let node = self.anchors[&anchor].node.clone();
        self.place(node)
    }

    fn place(&mut self, node: Node) -> Result<(), Flaw> {
        let Some(open) = self.open.last_mut() else {
            self.root = Some(node);
            return Ok(());
        };
        match &mut open.items {
            Items::List(items) => items.push(node),
            Items::Object {
                key: key @ None, ..
            } => {
                *key = Some((key_text(&node)?, node.at));
            }
            Items::Object {
                entries,
                lines,
                key,
            } => {
                let Some((key, at)) = key.take() else {
                    return Ok(());
                };
                if let Some(first) = lines.get(&key) {
                    let message = format!("key {key:?} stands twice; the first is on line {first}");
                    self.flaws.push(Flaw { at, message });
                    return Ok(());
                }
                lines.insert(key.clone(), at.line);
                // Nothing stands behind the colon: the key is where to look.
                let value = if node.is_empty() {
                    Node { at, ..node }
                } else {
                    node
                };
                entries.push(Entry { key, at, value });
            }
        }
        Ok(())
    }
}

fn flaw<T>(at: Position, message: &str) -> Result<T, Flaw> {
    Err(Flaw {
        at,
        message: message.to_owned(),
    })
}

/// Whether the tag says that the scalar is text whatever it looks like.
fn is_text(tag: Option<&Tag>, at: Position) -> Result<bool, Flaw> {
    match tag {
        None => Ok(false),
        Some(tag) if tag.is_yaml_core_schema() && tag.suffix == "str" => Ok(true),
        Some(tag) if tag.is_yaml_core_schema() && ["map", "seq"].contains(&tag.suffix.as_str()) => {
            Ok(false)
        }
        Some(tag) => flaw(at, &format!("tag {tag} has no meaning here")),
    }
}

fn key_text(node: &Node) -> Result<String, Flaw> {
    match &node.kind {
        NodeKind::Scalar { text, .. } => Ok(text.clone()),
        // Its flaw has been told; any name that nobody can have meant will do.
        NodeKind::Unclear => Ok(String::new()),
        NodeKind::List(_) | NodeKind::Object(_) => flaw(node.at, "a key must be text"),
    }
}

impl Node {
    /// Nothing at all, as behind a key without a value.
    fn is_empty(&self) -> bool {
        matches!(&self.kind, NodeKind::Scalar { text, style: Style::Plain } if text.is_empty())
    }

    fn own_cost(&self) -> Cost {
        let text_bytes = match &self.kind {
            NodeKind::Scalar { text, .. } => text.len(),
            NodeKind::Unclear | NodeKind::List(_) | NodeKind::Object(_) => 0,
        };
        Cost {
            nodes: 1,
            text_bytes,
        }
    }

    /// What the node costs with everything below it, and how deep it goes.
    fn measure(&self) -> (Cost, usize) {
        let (mut cost, mut depth) = (self.own_cost(), 0);
        let mut add = |below: &Node, key_bytes: usize| {
            let (more, below) = below.measure();
            cost.nodes += more.nodes;
            cost.text_bytes += more.text_bytes + key_bytes;
            depth = depth.max(below);
        };
        match &self.kind {
            NodeKind::Scalar { .. } | NodeKind::Unclear => return (cost, 0),
            NodeKind::List(items) => items.iter().for_each(|item| add(item, 0)),
            NodeKind::Object(entries) => {
                entries
                    .iter()
                    .for_each(|entry| add(&entry.value, entry.key.len()));
            }
        }
        (cost, depth + 1)
    }

    /// The value as JSON, with pointers to what needs care.
    pub(super) fn to_json(&self) -> Json {
        let mut json = Json::default();
        json.value = self.value_at(&mut String::new(), &mut json);
        json
    }

    fn value_at(&self, pointer: &mut String, json: &mut Json) -> Value {
        let length = pointer.len();
        match &self.kind {
            NodeKind::Scalar {
                text,
                style: Style::Plain,
            } => typed(text),
            NodeKind::Scalar {
                text,
                style: Style::Quoted,
            } => Value::String(text.clone()),
            NodeKind::Scalar {
                text,
                style: Style::Expanded,
            } => {
                json.expanded.push(pointer.clone());
                Value::String(text.clone())
            }
            NodeKind::Unclear => {
                json.unclear.push(pointer.clone());
                Value::Null
            }
            NodeKind::List(items) => {
                let item = |(index, node): (usize, &Node)| {
                    pointer.push_str(&format!("/{index}"));
                    let value = node.value_at(pointer, json);
                    pointer.truncate(length);
                    value
                };
                Value::Array(items.iter().enumerate().map(item).collect())
            }
            NodeKind::Object(entries) => {
                let mut map = Map::new();
                for entry in entries {
                    pointer.push('/');
                    pointer.push_str(&entry.key.replace('~', "~0").replace('/', "~1"));
                    map.insert(entry.key.clone(), entry.value.value_at(pointer, json));
                    pointer.truncate(length);
                }
                Value::Object(map)
            }
        }
    }

    /// Where the value that `pointer` names stands, or its key; for something that is missing, the
    /// key of what it is missing from.
    pub(super) fn locate(&self, pointer: &str, at_key: bool) -> Position {
        let (mut node, mut key_at) = (self, None);
        for token in pointer.split('/').skip(1) {
            let Some(below) = node.below(token) else {
                return key_at.unwrap_or(node.at);
            };
            (node, key_at) = below;
        }
        if at_key {
            key_at.unwrap_or(node.at)
        } else {
            node.at
        }
    }

    /// The text that `pointer` names, as it is meant.
    pub(super) fn text(&self, pointer: &str) -> Option<&str> {
        let mut tokens = pointer.split('/').skip(1);
        let node = tokens.try_fold(self, |node, token| Some(node.below(token)?.0))?;
        match &node.kind {
            NodeKind::Scalar { text, .. } => Some(text),
            NodeKind::Unclear | NodeKind::List(_) | NodeKind::Object(_) => None,
        }
    }

    /// The value below that one token of a pointer names, and where its key stands if it has one.
    fn below(&self, token: &str) -> Option<(&Node, Option<Position>)> {
        match &self.kind {
            NodeKind::Scalar { .. } | NodeKind::Unclear => None,
            NodeKind::List(items) => {
                let item = items.get(token.parse::<usize>().ok()?)?;
                Some((item, None))
            }
            NodeKind::Object(entries) => {
                let token = token.replace("~1", "/").replace("~0", "~");
                let entry = entries.iter().find(|entry| entry.key == token)?;
                Some((&entry.value, Some(entry.at)))
            }
        }
    }
}

/// A tree without places.
#[derive(Debug, Default)]
pub(super) struct Json {
    pub(super) value: Value,
    /// Pointers of texts that the environment filled in.
    pub(super) expanded: Vec<String>,
    /// Pointers of values that could not be made out, whose flaw has been told; they are null.
    pub(super) unclear: Vec<String>,
}

/// A plain scalar by the core schema of YAML 1.2.
fn typed(text: &str) -> Value {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => return Value::Null,
        "true" | "True" | "TRUE" => return Value::Bool(true),
        "false" | "False" | "FALSE" => return Value::Bool(false),
        _ => {}
    }
    number(text).map_or_else(|| Value::String(text.to_owned()), Value::Number)
}

fn number(text: &str) -> Option<Number> {
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    if let Some(digits) = text.strip_prefix("0x") {
        return radix(digits, 16);
    }
    if let Some(digits) = text.strip_prefix("0o") {
        return radix(digits, 8);
    }
    let mut bytes = digits.bytes();
    let numeric = |byte| matches!(byte, b'0'..=b'9' | b'.' | b'e' | b'E' | b'+' | b'-');
    let starts = digits
        .strip_prefix('.')
        .unwrap_or(digits)
        .starts_with(|c: char| c.is_ascii_digit());
    if !starts || !bytes.all(numeric) {
        return None;
    }
    let plain = text.strip_prefix('+').unwrap_or(text);
    if let Ok(whole) = plain.parse::<u64>() {
        return Some(whole.into());
    }
    if let Ok(whole) = plain.parse::<i64>() {
        return Some(whole.into());
    }
    // Too large for a number of JSON: `from_f64` refuses infinity, and the text stays text.
    plain.parse::<f64>().ok().and_then(Number::from_f64)
}

fn radix(digits: &str, radix: u32) -> Option<Number> {
    let clean = digits.bytes().all(|byte| byte.is_ascii_alphanumeric());
    clean
        .then(|| u64::from_str_radix(digits, radix).ok().map(Number::from))
        .flatten()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn read(text: &str) -> (Result<Node, Flaw>, Vec<Flaw>) {
        let mut flaws = Vec::new();
        let expand = |text: &str| match text {
            "${FIVE}" => Ok("5".to_owned()),
            _ => Err("environment variable X is not set".to_owned()),
        };
        let node = parse(text, &expand, &mut flaws);
        (node, flaws)
    }

    fn value(text: &str) -> Value {
        let (node, flaws) = read(text);
        assert_eq!(flaws, []);
        node.expect("valid").to_json().value
    }

    fn stops(text: &str, line: u32, column: u32, message: &str) {
        let flaw = read(text).0.expect_err(text);
        assert_eq!(
            (flaw.at.line, flaw.at.column),
            (line, column),
            "{text}: {}",
            flaw.message
        );
        assert!(flaw.message.contains(message), "{text}: {}", flaw.message);
    }

    #[test]
    fn plain_scalars_follow_the_core_schema() {
        let text = "[1, -1, +1, 0x1f, 0o17, 1.5, .5, 1e3, 007, 1_000, 0x, ~, '', yes, on, true, \
                    'true', !!str 5, 1.2.3, -x, 12e, 99999999999999999999, .inf, 1e999, 0x+1]";
        let expected = json!([
            1,
            -1,
            1,
            31,
            15,
            1.5,
            0.5,
            1000.0,
            7,
            "1_000",
            "0x",
            null,
            "",
            "yes",
            "on",
            true,
            "true",
            "5",
            "1.2.3",
            "-x",
            "12e",
            99999999999999999999.0,
            ".inf",
            "1e999",
            "0x+1"
        ]);
        assert_eq!(value(text), expected);
    }

    #[test]
    fn json_is_yaml() {
        let text = r#"{"a": {"b": [1, 2.5, "x\u0041\n", null, true]}, "c/d": {}}"#;
        assert_eq!(
            value(text),
            serde_json::from_str::<Value>(text).expect("valid")
        );
    }

    #[test]
    fn an_empty_text_asks_for_nothing() {
        for text in ["", "# only a comment\n", "---\n", "null"] {
            let found = value(text);
            assert!(found == json!({}) || found.is_null(), "{text:?}: {found}");
        }
    }

    #[test]
    fn everything_knows_where_it_stands() {
        let text = "a:\n  b: [x, {c: y}]\n  \"d/e\":\n    - 1\nf:\ng: |\n  long\n";
        let node = read(text).0.expect("valid");
        for (pointer, value, key) in [
            ("", (1, 1), (1, 1)),
            ("/a", (2, 3), (1, 1)),
            ("/a/b", (2, 6), (2, 3)),
            ("/a/b/0", (2, 7), (2, 7)),
            ("/a/b/1/c", (2, 14), (2, 11)),
            ("/a/d~1e/0", (4, 7), (4, 7)),
            ("/f", (5, 1), (5, 1)),
            ("/g", (7, 3), (6, 1)),
            // What is missing is looked for where it should be.
            ("/a/missing", (1, 1), (1, 1)),
            ("/a/b/1/missing", (2, 10), (2, 10)),
            ("/missing/deep", (1, 1), (1, 1)),
        ] {
            let place = |at_key| {
                let at = node.locate(pointer, at_key);
                (at.line, at.column)
            };
            assert_eq!((place(false), place(true)), (value, key), "{pointer}");
        }
    }

    #[test]
    fn a_key_that_stands_twice_is_a_flaw_with_both_lines() {
        let (node, flaws) = read("a: 1\nb: 2\na: 3\n");
        assert_eq!(
            node.expect("readable").to_json().value,
            json!({"a": 1, "b": 2})
        );
        let at = Position { line: 3, column: 1 };
        let message = "key \"a\" stands twice; the first is on line 1".to_owned();
        assert_eq!(flaws, [Flaw { at, message }]);
    }

    #[test]
    fn a_variable_is_whatever_its_reader_needs() {
        let json = read("a: ${FIVE}\nb: \"${FIVE}\"\nc: 5\n")
            .0
            .expect("valid")
            .to_json();
        assert_eq!(json.value, json!({"a": "5", "b": "5", "c": 5}));
        assert_eq!(json.expanded, ["/a", "/b"]);
    }

    #[test]
    fn a_variable_that_is_missing_leaves_the_rest_readable() {
        let (node, flaws) = read("a:\n  - ${X}\n");
        let json = node.expect("readable").to_json();
        assert_eq!(
            (json.value, json.unclear),
            (json!({"a": [null]}), vec!["/a/0".to_owned()])
        );
        assert_eq!((flaws[0].at.line, flaws[0].at.column), (2, 5));
    }

    #[test]
    fn text_that_is_not_yaml_says_where() {
        stops("a: [1, 2\n", 2, 1, "not valid YAML");
        stops("a: b\n\tc: d\n", 2, 1, "a tab cannot indent");
        stops("a: 'x\n", 1, 4, "not valid YAML");
        stops("a: 1\n---\nb: 1\n", 2, 1, "a second document");
        stops("a: !color red\n", 1, 4, "tag !color");
        stops("[a]: 1\n", 1, 1, "a key must be text");
        stops("a: *nobody\n", 1, 4, "not valid YAML");
        stops("a: &x [*x]\n", 1, 8, "inside what it repeats");
    }

    #[test]
    fn aliases_repeat_what_they_name() {
        assert_eq!(
            value("a: &x {b: 1}\nc: *x\n"),
            json!({"a": {"b": 1}, "c": {"b": 1}})
        );
    }

    #[test]
    fn aliases_cannot_fill_the_memory() {
        let mut laughs = String::from("a0: &a0 [lol, lol, lol, lol, lol, lol, lol, lol]\n");
        for level in 1..30 {
            let below = level - 1;
            laughs.push_str(&format!(
                "a{level}: &a{level} [{}]\n",
                vec![format!("*a{below}"); 8].join(", ")
            ));
        }
        let flaw = read(&laughs).0.expect_err("too much");
        assert!(
            flaw.message.contains("aliases repeated"),
            "{}",
            flaw.message
        );
    }

    #[test]
    fn nesting_is_bounded_with_and_without_aliases() {
        let nested = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
        assert!(read(&nested(DEPTH_MAX)).0.is_ok());
        stops(&nested(DEPTH_MAX + 1), 1, 65, "deeper than 64");
        let chained = format!("a: &a {}\nb: &b [{}", nested(60), "[[[*a]]]]");
        assert!(
            read(&chained)
                .0
                .expect_err("too deep")
                .message
                .contains("deeper than 64")
        );
        let block: String = (0..70)
            .map(|level| format!("{}a:\n", " ".repeat(level)))
            .collect();
        assert!(read(&block).0.is_err());
    }
}
