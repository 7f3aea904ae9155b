//! Look-ups in JSON that a visitor sent.
//!
//! The document is walked, not built: no allocation but for a string with escapes, and depth is
//! counted in a bit map instead of the stack. A document that is damaged anywhere has no values at
//! all, so a look-up cannot be answered from half of one. Of a repeated key the last one counts,
//! as it does for most programs behind us.

use std::borrow::Cow;

/// Objects and arrays inside of each other.
const DEPTH_MAX: usize = 128;

/// One step from a value to one inside of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Step {
    /// The member of an object.
    Key(Box<[u8]>),
    /// The element of an array, from 0.
    Nth(u32),
}

/// The string at `path`.
pub(super) fn string<'d>(document: &'d [u8], path: &[Step]) -> Option<Cow<'d, [u8]>> {
    match find(document, path)? {
        [b'"', inner @ .., b'"'] => Some(unescape(inner)),
        _ => None,
    }
}

/// The integer at `path`.
pub(super) fn integer(document: &[u8], path: &[Step]) -> Option<i64> {
    let text = find(document, path)?;
    // Only the letters of a number, as text without a sign or a fraction can be read.
    std::str::from_utf8(text).ok()?.parse().ok()
}

/// The text of the value at `path`.
fn find<'d>(document: &'d [u8], path: &[Step]) -> Option<&'d [u8]> {
    let mut walk = Walk {
        text: document,
        at: 0,
    };
    let whole = walk.value()?;
    walk.blanks();
    if walk.at != document.len() {
        return None;
    }
    path.iter()
        .try_fold(whole, |value, step| inside(value, step))
}

/// `value` is well formed.
fn inside<'d>(value: &'d [u8], step: &Step) -> Option<&'d [u8]> {
    let mut walk = Walk { text: value, at: 1 };
    let mut found = None;
    match (value.first()?, step) {
        (b'{', Step::Key(key)) => loop {
            walk.blanks();
            if walk.take(b'}') {
                return found;
            }
            let name = walk.value()?;
            let matches = *unescape(name.get(1..name.len() - 1)?) == **key;
            walk.blanks();
            walk.take(b':');
            let member = walk.value()?;
            if matches {
                found = Some(member);
            }
            walk.blanks();
            walk.take(b',');
        },
        (b'[', Step::Nth(nth)) => {
            for place in 0..=*nth {
                walk.blanks();
                if walk.take(b']') {
                    return None;
                }
                let element = walk.value()?;
                if place == *nth {
                    found = Some(element);
                }
                walk.blanks();
                walk.take(b',');
            }
            found
        }
        _ => None,
    }
}

struct Walk<'d> {
    text: &'d [u8],
    at: usize,
}

impl<'d> Walk<'d> {
    fn peek(&self) -> Option<u8> {
        self.text.get(self.at).copied()
    }

    fn take(&mut self, byte: u8) -> bool {
        let there = self.peek() == Some(byte);
        self.at += usize::from(there);
        there
    }

    fn blanks(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
    }

    /// The next value whole; `None` when it is damaged.
    fn value(&mut self) -> Option<&'d [u8]> {
        self.blanks();
        let start = self.at;
        // One bit for each open bracket: whether it is an object.
        let (mut open, mut depth) = (0_u128, 0);
        loop {
            self.blanks();
            match self.peek()? {
                bracket @ (b'{' | b'[') => {
                    if depth == DEPTH_MAX {
                        return None;
                    }
                    self.at += 1;
                    let is_object = bracket == b'{';
                    self.blanks();
                    let close = if is_object { b'}' } else { b']' };
                    if !self.take(close) {
                        open = open << 1 | u128::from(is_object);
                        depth += 1;
                        if is_object {
                            self.key()?;
                        }
                        continue;
                    }
                }
                b'"' => self.string()?,
                b't' => self.word(b"true")?,
                b'f' => self.word(b"false")?,
                b'n' => self.word(b"null")?,
                _ => self.number()?,
            }
            // A value has ended: go on behind it, or close what it was the last of.
            loop {
                if depth == 0 {
                    return self.text.get(start..self.at);
                }
                self.blanks();
                let is_object = open & 1 == 1;
                if self.take(b',') {
                    if is_object {
                        self.key()?;
                    }
                    break;
                }
                if !self.take(if is_object { b'}' } else { b']' }) {
                    return None;
                }
                open >>= 1;
                depth -= 1;
            }
        }
    }

    fn key(&mut self) -> Option<()> {
        self.blanks();
        self.string()?;
        self.blanks();
        self.take(b':').then_some(())
    }

    fn word(&mut self, word: &[u8]) -> Option<()> {
        self.text[self.at..].starts_with(word).then_some(())?;
        self.at += word.len();
        Some(())
    }

    fn string(&mut self) -> Option<()> {
        self.take(b'"').then_some(())?;
        loop {
            match self.peek()? {
                b'"' => break,
                b'\\' => {
                    self.at += 1;
                    match self.peek()? {
                        b'u' => {
                            let digits = self.text.get(self.at + 1..self.at + 5)?;
                            digits.iter().all(u8::is_ascii_hexdigit).then_some(())?;
                            self.at += 5;
                        }
                        b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't' => self.at += 1,
                        _ => return None,
                    }
                }
                0..=0x1f => return None,
                _ => self.at += 1,
            }
        }
        self.at += 1;
        Some(())
    }

    fn number(&mut self) -> Option<()> {
        self.take(b'-');
        if !self.take(b'0') {
            self.digits()?;
        }
        if self.take(b'.') {
            self.digits()?;
        }
        if self.take(b'e') || self.take(b'E') {
            let _ = self.take(b'+') || self.take(b'-');
            self.digits()?;
        }
        Some(())
    }

    fn digits(&mut self) -> Option<()> {
        let start = self.at;
        while matches!(self.peek(), Some(b'0'..=b'9')) {
            self.at += 1;
        }
        (self.at > start).then_some(())
    }
}

/// The inside of a well formed string. Half of a surrogate pair becomes U+FFFD.
fn unescape(text: &[u8]) -> Cow<'_, [u8]> {
    if !text.contains(&b'\\') {
        return Cow::Borrowed(text);
    }
    let mut plain = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((&byte, behind)) = rest.split_first() {
        rest = behind;
        if byte != b'\\' {
            plain.push(byte);
            continue;
        }
        let Some((&letter, behind)) = rest.split_first() else {
            break;
        };
        rest = behind;
        plain.push(match letter {
            b'b' => 8,
            b'f' => 12,
            b'n' => b'\n',
            b'r' => b'\r',
            b't' => b'\t',
            b'u' => {
                let (found, len) = escaped_char(rest);
                rest = rest.get(len..).unwrap_or_default();
                plain.extend_from_slice(found.encode_utf8(&mut [0; 4]).as_bytes());
                continue;
            }
            other => other,
        });
    }
    Cow::Owned(plain)
}

/// The character of the digits behind `\u`, and how long they are.
fn escaped_char(digits: &[u8]) -> (char, usize) {
    let unit = |at: usize| {
        let digits = std::str::from_utf8(digits.get(at..at + 4)?).ok()?;
        u32::from_str_radix(digits, 16).ok()
    };
    let high = unit(0).unwrap_or(0xfffd);
    if (0xd800..0xdc00).contains(&high)
        && digits.get(4..6) == Some(b"\\u".as_slice())
        && let Some(low @ 0xdc00..0xe000) = unit(6)
    {
        let pair = 0x1_0000 + ((high - 0xd800) << 10) + (low - 0xdc00);
        return (char::from_u32(pair).unwrap_or('\u{fffd}'), 10);
    }
    (char::from_u32(high).unwrap_or('\u{fffd}'), 4)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(steps: &str) -> Vec<Step> {
        let step = |step: &str| match step.parse() {
            Ok(nth) => Step::Nth(nth),
            Err(_) => Step::Key(step.as_bytes().into()),
        };
        steps.split_whitespace().map(step).collect()
    }

    #[test]
    fn strings() {
        let cases = [
            (r#"{"a":"b"}"#, "a", Some("b")),
            (r#" { "a" : { "b" : [ 1 , "x" ] } } "#, "a b 1", Some("x")),
            (r#"{"a":"1","a":"2"}"#, "a", Some("2")),
            (r#"{"\u0061":"1"}"#, "a", Some("1")),
            (
                r#"["x\n\u00e9\ud83d\ude00\ud83d"]"#,
                "0",
                Some("x\n\u{e9}\u{1f600}\u{fffd}"),
            ),
            (r#""whole""#, "", Some("whole")),
            (r#"{"a":{},"b":[],"c":[[],{}],"d":"x"}"#, "d", Some("x")),
            (r#"{"a":5}"#, "a", None),
            (r#"{"a":null}"#, "a", None),
            (r#"{"a":"b"}"#, "b", None),
            (r#"{"a":"b"}"#, "0", None),
            (r#"["a"]"#, "1", None),
            (r#"["a"]"#, "a", None),
            (r#"{"a":"b"} x"#, "a", None),
            (r#"{"a":"b""#, "a", None),
            (r#"{"a":"b",}"#, "a", None),
            (r#"{"a":"b" "c":1}"#, "a", None),
            (r#"{"a":"b\x"}"#, "a", None),
            (r#"["a",]"#, "0", None),
            (r#"["a"}"#, "0", None),
            ("{\"a\":\"\n\"}", "a", None),
            ("", "", None),
            ("nul", "", None),
        ];
        for (document, steps, expected) in cases {
            let found = string(document.as_bytes(), &path(steps));
            let found = found.as_deref().map(String::from_utf8_lossy);
            assert_eq!(found.as_deref(), expected, "{document} at {steps}");
        }
    }

    #[test]
    fn integers() {
        let cases = [
            (r#"{"a":5}"#, Some(5)),
            (r#"{"a":-9223372036854775808}"#, Some(i64::MIN)),
            (r#"{"a":9223372036854775808}"#, None),
            (r#"{"a":5.0}"#, None),
            (r#"{"a":5e0}"#, None),
            (r#"{"a":"5"}"#, None),
            (r#"{"a":05}"#, None),
            (r#"{"a":+5}"#, None),
            (r#"{"a":true}"#, None),
        ];
        for (document, expected) in cases {
            assert_eq!(
                integer(document.as_bytes(), &path("a")),
                expected,
                "{document}"
            );
        }
    }

    #[test]
    fn depth_is_bounded_and_needs_no_stack() {
        let nested = |depth: usize| format!("{}1{}", "[".repeat(depth), "]".repeat(depth));
        let first = vec![Step::Nth(0); DEPTH_MAX];
        assert_eq!(integer(nested(DEPTH_MAX).as_bytes(), &first), Some(1));
        assert_eq!(integer(nested(DEPTH_MAX + 1).as_bytes(), &first), None);
        assert_eq!(integer("[".repeat(64 * 1024).as_bytes(), &first), None);
    }
}
