//! What is looked at in a message, found without making values of the rest.
//!
//! A command is a stranger's text, and what is judged must be what the browser will do. So all of
//! it is held to the grammar of JSON (browsers take comments, and who knows what else, between
//! its parts), a field that is looked at may stand there once and may not be spelled with escapes,
//! and no zero byte may stand anywhere, for that ends a message in the browser's pipe.
//!
//! What the browser says is written by the browser: its number or method stands first, its part
//! last. Only these two ends are read, whatever lies between.

use std::ops::Range;

use memchr::{memchr, memchr2};

/// How deep a command may be. Browsers stop at 300 too.
const DEPTH_MAX: usize = 300;

/// Bytes of a method or the name of a part.
const NAME_MAX: usize = 128;

/// Numbers of commands: what JavaScript counts without gaps.
const ID_MAX: i64 = (1 << 53) - 1;

/// Why a command cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum CommandFault {
    /// Not JSON, or too deep.
    #[error("JSON: no such text at byte {0}")]
    Json(usize),
    /// Not an object.
    #[error("Message must be an object")]
    Object,
    /// No number, or one that is none.
    #[error("Message must have integer 'id' property")]
    Id,
    /// No method, or one that is none.
    #[error("Message must have string 'method' property")]
    Method,
    /// A part that is none.
    #[error("Message may have string 'sessionId' property")]
    Session,
    /// A field that is looked at stands there twice, or a name is spelled with escapes.
    #[error("Message must have each property once, in plain letters")]
    Twice,
}

impl CommandFault {
    /// The number of the fault in an answer.
    #[must_use]
    pub fn code(&self) -> i32 {
        match self {
            CommandFault::Json(_) => -32700,
            _ => -32600,
        }
    }
}

/// A command, as far as it is looked at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Command<'a> {
    /// Its number, within ±(2⁵³ − 1).
    pub id: i64,
    /// Where the number stands.
    pub id_at: Range<usize>,
    /// What is to be done.
    pub method: &'a str,
    /// To which part of the browser; `None`: what the connection is for.
    pub session: Option<&'a str>,
    /// Where its parameters stand.
    pub params_at: Option<Range<usize>>,
    /// Where the first field begins.
    pub fields_at: usize,
}

impl<'a> Command<'a> {
    /// Reads a command.
    ///
    /// # Errors
    /// It is none, or could be read in more than one way.
    pub fn read(text: &'a str) -> Result<Command<'a>, CommandFault> {
        let bytes = text.as_bytes();
        if let Some(at) = memchr(0, bytes) {
            return Err(CommandFault::Json(at));
        }
        let mut reader = Reader { bytes, at: 0 };
        reader.space();
        if reader.peek() != Some(b'{') {
            // What is no value at all has another fault than a value of another kind.
            reader.value(0)?;
            return Err(CommandFault::Object);
        }
        reader.at += 1;
        let fields_at = reader.at;
        let mut found: [Option<Range<usize>>; 4] = Default::default();
        reader.members(b'}', |reader| {
            let key = reader.key()?;
            let value = reader.value_at(1)?;
            let name = &bytes[key];
            if memchr(b'\\', name).is_some() {
                return Err(CommandFault::Twice);
            }
            let place = [&b"id"[..], b"method", b"sessionId", b"params"];
            let place = place.iter().position(|&known| known == name);
            if let Some(place) = place
                && found[place].replace(value).is_some()
            {
                return Err(CommandFault::Twice);
            }
            Ok(())
        })?;
        reader.space();
        if reader.at != bytes.len() {
            return Err(CommandFault::Json(reader.at));
        }
        let [id_at, method, session, params_at] = found;
        let id_at = id_at.ok_or(CommandFault::Id)?;
        let id = text[id_at.clone()].parse().ok();
        let id = id.filter(|id: &i64| id.unsigned_abs() <= ID_MAX as u64);
        let method = method.and_then(|at| name(&text[at]));
        let session = session.map(|at| name(&text[at]).ok_or(CommandFault::Session));
        Ok(Command {
            id: id.ok_or(CommandFault::Id)?,
            id_at,
            method: method.ok_or(CommandFault::Method)?,
            session: session.transpose()?,
            params_at,
            fields_at,
        })
    }
}

impl Command<'_> {
    /// The command, which is part of `text`, with other parameters, which are JSON. It must have
    /// some already.
    #[must_use]
    pub fn with_params(&self, text: &str, params: &str) -> String {
        let at = self.params_at.clone().unwrap_or_default();
        [&text[..at.start], params, &text[at.end..]].concat()
    }
}

/// The text of a string that needs no unescaping.
fn name(string: &str) -> Option<&str> {
    let name = string.strip_prefix('"')?.strip_suffix('"')?;
    let plain = |byte: u8| byte.is_ascii_graphic() && byte != b'\\' && byte != b'"';
    (!name.is_empty() && name.len() <= NAME_MAX && name.bytes().all(plain)).then_some(name)
}

struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Reader<'_> {
    fn fault(&self) -> CommandFault {
        CommandFault::Json(self.at)
    }

    fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    fn space(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
    }

    /// Members behind an opening bracket, to the closing one.
    fn members(
        &mut self,
        close: u8,
        mut member: impl FnMut(&mut Self) -> Result<(), CommandFault>,
    ) -> Result<(), CommandFault> {
        self.space();
        if self.peek() == Some(close) {
            self.at += 1;
            return Ok(());
        }
        loop {
            self.space();
            member(self)?;
            self.space();
            match self.peek() {
                Some(b',') => self.at += 1,
                Some(byte) if byte == close => {
                    self.at += 1;
                    return Ok(());
                }
                _ => return Err(self.fault()),
            }
        }
    }

    /// A key and its colon. Where its text stands.
    fn key(&mut self) -> Result<Range<usize>, CommandFault> {
        let start = self.at;
        self.string()?;
        let key = start + 1..self.at - 1;
        self.space();
        if self.peek() != Some(b':') {
            return Err(self.fault());
        }
        self.at += 1;
        Ok(key)
    }

    fn value_at(&mut self, depth: usize) -> Result<Range<usize>, CommandFault> {
        self.space();
        let start = self.at;
        self.value(depth)?;
        Ok(start..self.at)
    }

    fn value(&mut self, depth: usize) -> Result<(), CommandFault> {
        if depth > DEPTH_MAX {
            return Err(self.fault());
        }
        match self.peek() {
            Some(b'{') => {
                self.at += 1;
                self.members(b'}', |reader| {
                    reader.key()?;
                    reader.space();
                    reader.value(depth + 1)
                })
            }
            Some(b'[') => {
                self.at += 1;
                self.members(b']', |reader| reader.value(depth + 1))
            }
            Some(b'"') => self.string(),
            Some(b'-' | b'0'..=b'9') => self.number(),
            Some(b't') => self.word(b"true"),
            Some(b'f') => self.word(b"false"),
            Some(b'n') => self.word(b"null"),
            _ => Err(self.fault()),
        }
    }

    fn word(&mut self, word: &[u8]) -> Result<(), CommandFault> {
        if !self.bytes[self.at..].starts_with(word) {
            return Err(self.fault());
        }
        self.at += word.len();
        Ok(())
    }

    fn string(&mut self) -> Result<(), CommandFault> {
        if self.peek() != Some(b'"') {
            return Err(self.fault());
        }
        self.at += 1;
        loop {
            let Some(found) = memchr2(b'"', b'\\', &self.bytes[self.at..]) else {
                self.at = self.bytes.len();
                return Err(self.fault());
            };
            self.at += found + 1;
            if self.bytes[self.at - 1] == b'"' {
                return Ok(());
            }
            match self.peek() {
                Some(b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => self.at += 1,
                Some(b'u') => {
                    let digits = self.bytes.get(self.at + 1..self.at + 5);
                    if !digits.is_some_and(|four| four.iter().all(u8::is_ascii_hexdigit)) {
                        return Err(self.fault());
                    }
                    self.at += 5;
                }
                _ => return Err(self.fault()),
            }
        }
    }

    fn digits(&mut self) -> Result<(), CommandFault> {
        let start = self.at;
        while matches!(self.peek(), Some(b'0'..=b'9')) {
            self.at += 1;
        }
        if self.at == start {
            return Err(self.fault());
        }
        Ok(())
    }

    fn number(&mut self) -> Result<(), CommandFault> {
        if self.peek() == Some(b'-') {
            self.at += 1;
        }
        match self.peek() {
            Some(b'0') => self.at += 1,
            _ => self.digits()?,
        }
        if self.peek() == Some(b'.') {
            self.at += 1;
            self.digits()?;
        }
        if matches!(self.peek(), Some(b'e' | b'E')) {
            self.at += 1;
            if matches!(self.peek(), Some(b'+' | b'-')) {
                self.at += 1;
            }
            self.digits()?;
        }
        Ok(())
    }
}

/// What the browser says first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Front<'a> {
    /// The answer to the command of this number, which stands there.
    Answer(i32, Range<usize>),
    /// Something happened.
    Event(&'a str),
    /// Neither: the browser could not read what it was sent.
    Other,
}

/// Reads the beginning of what a browser said.
#[must_use]
pub fn front(message: &[u8]) -> Front<'_> {
    let read = || {
        if let Some(rest) = message.strip_prefix(b"{\"id\":") {
            let end = memchr2(b',', b'}', &rest[..rest.len().min(16)])?;
            let id = std::str::from_utf8(&rest[..end]).ok()?.parse().ok()?;
            return Some(Front::Answer(id, 6..6 + end));
        }
        let rest = message.strip_prefix(b"{\"method\":\"")?;
        let end = memchr(b'"', &rest[..rest.len().min(NAME_MAX)])?;
        std::str::from_utf8(&rest[..end]).ok().map(Front::Event)
    };
    read().unwrap_or(Front::Other)
}

/// The part of the browser that speaks, and where its field begins, with the comma before it.
///
/// Reads backwards from the end of the object. That the four quotes found are those of a key and
/// its value follows from the text being JSON: the last of them is followed by the closing brace
/// of the whole, so it ends a string; between it and the third stands neither quote nor backslash,
/// so the third begins that string, and behind a colon; so the first two are a key of the whole.
#[must_use]
pub fn session(message: &[u8]) -> Option<(&str, usize)> {
    const KEY: &[u8] = b",\"sessionId\":\"";
    let body = message.strip_suffix(b"\"}")?;
    let window = body.len().saturating_sub(NAME_MAX);
    let start = memchr::memrchr(b'"', &body[window..])? + window + 1;
    let name = &body[start..];
    if name.is_empty() || !name.iter().all(u8::is_ascii_alphanumeric) {
        return None;
    }
    let before = body[..start].strip_suffix(KEY)?;
    Some((std::str::from_utf8(name).ok()?, before.len()))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::Value;

    use super::*;

    #[test]
    fn a_command_is_found_wherever_its_fields_stand() {
        for (text, id, method, session) in [
            (
                r#"{"method":"Browser.getVersion","id":1}"#,
                1,
                "Browser.getVersion",
                None,
            ),
            (
                r#"{"id":-9999,"method":"Browser.close","params":{}}"#,
                -9999,
                "Browser.close",
                None,
            ),
            (
                "\t{ \"params\" : {\"id\":5,\"method\":\"x\\\"}\"} ,\"sessionId\":\"AB\", \"id\": 9007199254740991 , \"method\":\"A.b\" }\n",
                9_007_199_254_740_991,
                "A.b",
                Some("AB"),
            ),
        ] {
            let command = Command::read(text).expect(text);
            assert_eq!(
                (command.id, command.method, command.session),
                (id, method, session)
            );
            assert_eq!(text[command.id_at.clone()].parse(), Ok(id));
            assert!(text[..command.fields_at].ends_with('{'));
        }
        let command = Command::read(r#"{"id":1,"method":"a","params":{"b":[1]}}"#).expect("one");
        assert_eq!(command.params_at, Some(30..39));
    }

    #[test]
    fn what_could_be_read_in_two_ways_is_no_command() {
        use CommandFault::*;
        for (text, fault) in [
            ("", Json(0)),
            ("[]", Object),
            ("7", Object),
            ("{", Json(1)),
            ("{}", Id),
            (r#"{"id":1}"#, Method),
            (r#"{"id":"1","method":"a"}"#, Id),
            (r#"{"id":1.0,"method":"a"}"#, Id),
            (r#"{"id":1e3,"method":"a"}"#, Id),
            (r#"{"id":9007199254740992,"method":"a"}"#, Id),
            (r#"{"id":1,"method":7}"#, Method),
            (r#"{"id":1,"method":""}"#, Method),
            (r#"{"id":1,"method":"Page.\u006eavigate"}"#, Method),
            (r#"{"id":1,"method":"a","sessionId":7}"#, Session),
            (r#"{"id":1,"method":"a","method":"b"}"#, Twice),
            (r#"{"id":1,"id":2,"method":"a"}"#, Twice),
            (r#"{"id":1,"method":"a","params":{},"params":{}}"#, Twice),
            (
                r#"{"id":1,"method":"a","sessionId":"a","sessionId":"b"}"#,
                Twice,
            ),
            (r#"{"id":1,"\u006dethod":"b","method":"a"}"#, Twice),
            (r#"{"id":1,"method":"a"}{"id":2,"method":"b"}"#, Json(21)),
            (r#"{"id":1,"method":"a",}"#, Json(21)),
            (r#"{"id":1,/**/"method":"a"}"#, Json(8)),
            (
                "{\"id\":1,\"method\":\"a\"}\0{\"id\":2,\"method\":\"b\"}",
                Json(21),
            ),
            (
                "{\"id\":1,\"method\":\"a\",\"params\":{\"x\":\"\0\"}}",
                Json(36),
            ),
            (r#"{"id":01,"method":"a"}"#, Json(7)),
            (r#"{"id":+1,"method":"a"}"#, Json(6)),
            (r#"{'id':1,"method":"a"}"#, Json(1)),
            (r#"{"id":1,"method":"a","x":NaN}"#, Json(25)),
            (r#"{"id":1,"method":"a","x":"\x"}"#, Json(27)),
            ("\u{feff}{\"id\":1,\"method\":\"a\"}", Json(0)),
        ] {
            assert_eq!(Command::read(text), Err(fault), "{text}");
        }
        let deep = |depth: usize| {
            format!(
                r#"{{"id":1,"method":"a","params":{}{}}}"#,
                "[".repeat(depth),
                "]".repeat(depth)
            )
        };
        assert!(Command::read(&deep(DEPTH_MAX)).is_ok());
        assert!(matches!(Command::read(&deep(DEPTH_MAX + 1)), Err(Json(_))));
        assert!(matches!(Command::read(&deep(1_000_000)), Err(Json(_))));
    }

    #[test]
    fn the_ends_of_what_a_browser_says_are_found() {
        let answer = br#"{"id":-7,"result":{"sessionId":"C"},"sessionId":"5AB"}"#;
        assert_eq!(front(answer), Front::Answer(-7, 6..8));
        assert_eq!(session(answer), Some(("5AB", 35)));
        let event = br#"{"method":"Page.loadEventFired","params":{"sessionId":"C"}}"#;
        assert_eq!(front(event), Front::Event("Page.loadEventFired"));
        assert_eq!(session(event), None);
        // A page may write what it likes into a string: its quotes are escaped.
        let forged = br#"{"method":"A.b","params":{"x":"\",\"sessionId\":\"C"}}"#;
        assert_eq!(session(forged), None);
        let forged = br#"{"method":"A.b","params":"\",\"sessionId\":\"C"}"#;
        assert_eq!(session(forged), None);
        for broken in [
            &b""[..],
            b"{",
            b"{}",
            b"\"}",
            br#"{"id":x}"#,
            br#"{"id":99999999999}"#,
        ] {
            assert_eq!((front(broken), session(broken)), (Front::Other, None));
        }
    }

    /// Each file of the fuzz target's corpus, by the folder that says how it ends.
    #[test]
    fn the_corpus_ends_as_its_folders_say() {
        let corpus = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/cdp");
        let mut seen = 0;
        for end in ["command", "refused"] {
            for file in std::fs::read_dir(corpus.join(end)).unwrap() {
                let path = file.unwrap().path();
                let text = std::fs::read_to_string(&path).unwrap();
                let read = Command::read(&text);
                assert_eq!(
                    read.is_ok(),
                    end == "command",
                    "{}: {read:?}",
                    path.display()
                );
                seen += 1;
            }
        }
        assert!(seen >= 15);
    }

    fn value() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i32>().prop_map(Value::from),
            any::<f64>().prop_map(Value::from),
            "(\\PC|[\"\\\\,:{}]){0,12}".prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 24, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                prop::collection::vec(("(id|method|sessionId|\\PC{0,5})", inner), 0..4)
                    .prop_map(|members| Value::Object(members.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn any_command_is_read_as_a_parser_reads_it(params in value(), id in -ID_MAX..=ID_MAX, pretty: bool) {
            let whole = serde_json::json!({"id": id, "params": params, "method": "A.b", "sessionId": "S"});
            let text = if pretty { serde_json::to_string_pretty(&whole) } else { serde_json::to_string(&whole) };
            let text = text.expect("JSON");
            let command = Command::read(&text).expect("a command");
            prop_assert_eq!((command.id, command.method, command.session), (id, "A.b", Some("S")));
            let params_at = command.params_at.expect("parameters");
            let again: Value = serde_json::from_str(&text[params_at]).expect("JSON");
            prop_assert_eq!(&again, &serde_json::from_str::<Value>(&text).expect("JSON")["params"]);
        }

        #[test]
        fn what_a_parser_refuses_is_refused(text in "[\\[\\]{}\",:0-9a-z\\\\ .eE+-]{0,40}") {
            let text = format!(r#"{{"id":1,"method":"a","params":{text}}}"#);
            if Command::read(&text).is_ok() {
                prop_assert!(serde_json::from_str::<serde::de::IgnoredAny>(&text).is_ok(), "{}", text);
            }
        }

        #[test]
        fn the_end_of_any_message_is_read_as_a_parser_reads_it(params in value(), named: bool) {
            let mut whole = serde_json::json!({"method": "A.b", "params": params});
            if named {
                whole["sessionId"] = "5AB".into();
            }
            let text = serde_json::to_string(&whole).expect("JSON");
            let found = session(text.as_bytes()).map(|(name, _)| name);
            prop_assert_eq!(found, named.then_some("5AB"));
            prop_assert_eq!(front(text.as_bytes()), Front::Event("A.b"));
        }
    }
}
