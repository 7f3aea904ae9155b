//! The operators `wildcard` and `strict wildcard`.
//!
//! A pattern is the texts between its stars. The first must stand at the start, the last at the
//! end, each other at its first place behind the one before, which is always right when the only
//! wild thing is "any run". A text in the middle is looked for with its own table of restarts
//! (Knuth, Morris, Pratt), so a visitor cannot make a search cost more than its length.

/// A pattern for a whole value.
#[derive(Debug, Clone)]
pub(super) struct Wildcard {
    strict: bool,
    /// One more than there are stars.
    pieces: Box<[Piece]>,
}

#[derive(Debug, Clone)]
struct Piece {
    /// In lower case unless strict.
    text: Box<[u8]>,
    /// For each prefix of `text`: how much of it is still matched when the next byte is not.
    restarts: Box<[u16]>,
}

impl Wildcard {
    /// `\*` and `\\` stand for `*` and `\`. Otherwise what is wrong.
    pub(super) fn new(pattern: &[u8], strict: bool) -> Result<Wildcard, &'static str> {
        let mut pieces = vec![Vec::new()];
        let mut bytes = pattern.iter().copied().peekable();
        while let Some(byte) = bytes.next() {
            let literal = match byte {
                b'*' if bytes.peek() == Some(&b'*') => return Err("\"**\" is the same as \"*\""),
                b'*' => {
                    pieces.push(Vec::new());
                    continue;
                }
                b'\\' => match bytes.next() {
                    Some(escaped @ (b'*' | b'\\')) => escaped,
                    Some(_) | None => return Err("\"\\\" must stand before \"*\" or \"\\\""),
                },
                other => other,
            };
            if let Some(piece) = pieces.last_mut() {
                piece.push(if strict {
                    literal
                } else {
                    literal.to_ascii_lowercase()
                });
            }
        }
        let pieces = pieces.into_iter().map(Piece::new).collect();
        Ok(Wildcard { strict, pieces })
    }

    pub(super) fn matches(&self, value: &[u8]) -> bool {
        match &*self.pieces {
            [] => false,
            [only] => only.text.len() == value.len() && self.starts(value, &only.text),
            [first, middle @ .., last] => {
                let ends = first.text.len() + last.text.len();
                if value.len() < ends || !self.starts(value, &first.text) {
                    return false;
                }
                let (mut rest, end) = value.split_at(value.len() - last.text.len());
                rest = &rest[first.text.len()..];
                self.starts(end, &last.text)
                    && middle.iter().all(|piece| match self.behind(rest, piece) {
                        Some(behind) => {
                            rest = &rest[behind..];
                            true
                        }
                        None => false,
                    })
            }
        }
    }

    fn fold(&self, byte: u8) -> u8 {
        if self.strict {
            byte
        } else {
            byte.to_ascii_lowercase()
        }
    }

    fn starts(&self, value: &[u8], text: &[u8]) -> bool {
        value.len() >= text.len()
            && value
                .iter()
                .zip(text)
                .all(|(&byte, &wanted)| self.fold(byte) == wanted)
    }

    /// The place behind the first occurrence of `piece`.
    fn behind(&self, value: &[u8], piece: &Piece) -> Option<usize> {
        if piece.text.is_empty() {
            return Some(0);
        }
        let mut matched = 0;
        for (at, &byte) in value.iter().enumerate() {
            let byte = self.fold(byte);
            while matched > 0 && piece.text[matched] != byte {
                matched = usize::from(piece.restarts[matched - 1]);
            }
            if piece.text[matched] == byte {
                matched += 1;
            }
            if matched == piece.text.len() {
                return Some(at + 1);
            }
        }
        None
    }
}

impl Piece {
    fn new(text: Vec<u8>) -> Piece {
        let mut restarts = vec![0_u16; text.len()];
        let mut matched = 0;
        for at in 1..text.len() {
            while matched > 0 && text[matched] != text[at] {
                matched = usize::from(restarts[matched - 1]);
            }
            if text[matched] == text[at] {
                matched += 1;
            }
            // A pattern is a piece of an expression, whose length fits many times.
            restarts[at] = u16::try_from(matched).unwrap_or(0);
        }
        Piece {
            text: text.into(),
            restarts: restarts.into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matches(pattern: &str, strict: bool, value: &str) -> bool {
        let wildcard = Wildcard::new(pattern.as_bytes(), strict).unwrap();
        wildcard.matches(value.as_bytes())
    }

    #[test]
    fn whole_values() {
        let cases = [
            ("", "", true),
            ("", "a", false),
            ("*", "", true),
            ("*", "anything", true),
            ("a", "a", true),
            ("a", "ab", false),
            ("a*", "a", true),
            ("a*", "ba", false),
            ("*a", "ba", true),
            ("*a", "ab", false),
            ("a*a", "a", false),
            ("a*a", "aa", true),
            ("ab*ba", "aba", false),
            ("*.example.com", "www.example.com", true),
            ("*.example.com", "example.com", false),
            ("*/blog/*", "/a/blog/b", true),
            ("*/blog/*", "/a/blog", false),
            ("a*bc*bcd*e", "aXbcXbcXbcdXe", true),
            ("a*bcd*bc*e", "aXbcXbcXbcdXe", false),
            ("*aab*", "aaab", true),
            ("*abab*c", "abaabababc", true),
            (r"a\*b", "a*b", true),
            (r"a\*b", "axb", false),
            (r"\\*", r"\anything", true),
            ("a*b*c*d", "abcd", true),
            ("a*b*c*d", "acbd", false),
        ];
        for (pattern, value, expected) in cases {
            assert_eq!(matches(pattern, true, value), expected, "{pattern} {value}");
            assert_eq!(
                matches(pattern, false, value),
                expected,
                "{pattern} {value}"
            );
        }
        for pattern in ["A*c", "a*C", "*B*", "aBc"] {
            assert!(matches(pattern, false, "AbC"), "{pattern}");
            assert!(!matches(pattern, true, "AbC"), "{pattern}");
        }
    }

    #[test]
    fn what_is_no_pattern() {
        for pattern in ["**", "a**b", r"\***", r"\a", r"a\", r"\\**"] {
            assert!(
                Wildcard::new(pattern.as_bytes(), true).is_err(),
                "{pattern}"
            );
        }
        assert!(Wildcard::new(br"\**", true).is_ok());
    }

    #[test]
    fn a_long_value_costs_its_length_once() {
        let pattern = format!("*{}b*", "a".repeat(2000));
        let wildcard = Wildcard::new(pattern.as_bytes(), false).unwrap();
        assert!(!wildcard.matches(&[b'a'; 64 * 1024]));
        let value = format!("{}b", "a".repeat(64 * 1024));
        assert!(wildcard.matches(value.as_bytes()));
    }
}
