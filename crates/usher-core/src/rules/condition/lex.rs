//! From text to tokens, one at a time.
//!
//! The lexer has no state but the text: the parser says where to read and in which way, because
//! quoted text means something else behind `matches`, where a backslash belongs to the regular
//! expression. Numbers, addresses, ranges and names are all words here; which of them a word is
//! depends on the type that its place asks for, so the checker decides it.

use super::fault::{At, Span};

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Token<'a> {
    /// A name, number, address or range.
    Word(&'a str),
    /// Quoted or raw text, without its quotes and escapes.
    Text(Vec<u8>),
    /// An operator or bracket.
    Sign(&'static str),
    /// Nothing more.
    End,
}

impl std::fmt::Display for Token<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Token::Word(word) => f.write_str(word),
            Token::Text(_) => f.write_str("a string"),
            Token::Sign(sign) => write!(f, "{sign:?}"),
            Token::End => f.write_str("the end"),
        }
    }
}

/// Longer signs stand before those that they begin with.
const SIGNS: [&str; 20] = [
    "==", "!=", "<=", ">=", "&&", "||", "^^", "<", ">", "~", "!", "(", ")", "{", "}", "[", "]",
    ",", "*", "$",
];

/// The token at or behind `at`, and where it is.
pub(super) fn token(text: &str, at: usize) -> Result<(Token<'_>, Span), At> {
    let start = skip_blanks(text, at);
    let rest = &text[start..];
    let spanned = |len: usize| Span {
        start,
        end: start + len,
    };
    let Some(first) = rest.chars().next() else {
        return Ok((Token::End, spanned(0)));
    };
    if first == '"' {
        return quoted(text, start);
    }
    let word_len = rest.bytes().take_while(|&byte| is_word(byte)).count();
    if word_len > 0 {
        let word = &rest[..word_len];
        if word == "r" && rest[word_len..].starts_with(['"', '#']) {
            return raw(text, start);
        }
        return Ok((Token::Word(word), spanned(word_len)));
    }
    match SIGNS.into_iter().find(|sign| rest.starts_with(sign)) {
        Some(sign) => Ok((Token::Sign(sign), spanned(sign.len()))),
        None => Err(At::new(spanned(first.len_utf8()), odd_character(first))),
    }
}

fn odd_character(found: char) -> String {
    let hint = match found {
        '&' => ": \"and\" is written \"&&\", and bitwise operators are not supported",
        '|' => ": \"or\" is written \"||\"",
        '^' => ": \"xor\" is written \"^^\"",
        '=' => ": \"eq\" is written \"==\"",
        '\'' | '\u{2018}'..='\u{201f}' => ": strings stand in double quotes (\")",
        _ => "",
    };
    format!("unexpected character {found:?}{hint}")
}

/// A regular expression at or behind `at`, as it is written: in quotes only `\"` means something to
/// us, and a quote inside of `[...]` ends nothing.
pub(super) fn regex(text: &str, at: usize) -> Result<(String, Span), At> {
    let start = skip_blanks(text, at);
    let expected = |found: &dyn std::fmt::Display, span| {
        let message = format!("expected a regular expression in quotes, found {found}");
        Err(At::new(span, message))
    };
    if !text[start..].starts_with('"') {
        return match token(text, start)? {
            // Raw text is a piece of the expression, so it is UTF-8.
            (Token::Text(raw), span) => Ok((String::from_utf8_lossy(&raw).into_owned(), span)),
            (other, span) => expected(&other, span),
        };
    }
    let mut pattern = String::new();
    let mut in_class = false;
    let mut chars = text[start + 1..].char_indices();
    while let Some((place, found)) = chars.next() {
        match found {
            '\\' => {
                let Some((_, escaped)) = chars.next() else {
                    break;
                };
                if in_class || escaped != '"' {
                    pattern.push('\\');
                }
                pattern.push(escaped);
                continue;
            }
            '"' if !in_class => {
                let end = start + 1 + place + 1;
                return Ok((pattern, Span { start, end }));
            }
            '[' => in_class = true,
            ']' => in_class = false,
            _ => {}
        }
        pattern.push(found);
    }
    let end = text.len();
    Err(At::new(
        Span { start, end },
        "regular expression has no closing quote (\")",
    ))
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"_.:/-".contains(&byte)
}

fn skip_blanks(text: &str, at: usize) -> usize {
    let blanks = text[at..].bytes();
    at + blanks
        .take_while(|byte| matches!(byte, b' ' | b'\t' | b'\r' | b'\n'))
        .count()
}

/// `"text"`, with `\"`, `\\`, `\xHH` and `\OOO` for a byte in hexadecimal and octal.
fn quoted(text: &str, start: usize) -> Result<(Token<'_>, Span), At> {
    let bytes = text.as_bytes();
    let mut found = Vec::new();
    let mut at = start + 1;
    let escape = |at: usize, len: usize, message: &str| {
        let end = (at + len).min(text.len());
        let end = (end..=text.len()).find(|&end| text.is_char_boundary(end));
        let span = Span {
            start: at,
            end: end.unwrap_or(text.len()),
        };
        Err(At::new(span, message))
    };
    while let Some(&byte) = bytes.get(at) {
        match byte {
            b'"' => return Ok((Token::Text(found), Span { start, end: at + 1 })),
            b'\\' => match bytes.get(at + 1).copied() {
                None => break,
                Some(byte @ (b'"' | b'\\')) => {
                    found.push(byte);
                    at += 2;
                }
                Some(b'x') => {
                    let Some(byte) = digits(bytes, at + 2, 2, 16) else {
                        return escape(at, 4, "expected two hexadecimal digits after \\x");
                    };
                    found.push(byte);
                    at += 4;
                }
                Some(b'0'..=b'7') => {
                    let Some(byte) = digits(bytes, at + 1, 3, 8) else {
                        let message = "expected three octal digits, at most 377, after \\";
                        return escape(at, 4, message);
                    };
                    found.push(byte);
                    at += 4;
                }
                Some(_) => {
                    let message = "expected \\\", \\\\, \\xHH or \\OOO: other backslashes need \
                                   a raw string, r\"...\"";
                    return escape(at, 2, message);
                }
            },
            byte => {
                found.push(byte);
                at += 1;
            }
        }
    }
    let end = text.len();
    Err(At::new(
        Span { start, end },
        "string has no closing quote (\")",
    ))
}

fn digits(bytes: &[u8], at: usize, count: usize, radix: u32) -> Option<u8> {
    let digits = bytes.get(at..at + count)?;
    let value = digits.iter().try_fold(0, |value, &digit| {
        Some(value * radix + char::from(digit).to_digit(radix)?)
    })?;
    u8::try_from(value).ok()
}

/// `r"text"`, or with any number of `#` on both sides.
fn raw(text: &str, start: usize) -> Result<(Token<'_>, Span), At> {
    let marks = text[start + 1..].bytes().take_while(|&byte| byte == b'#');
    let marks = marks.count();
    let open = start + 1 + marks;
    let unclosed = |end| {
        Err(At::new(
            Span { start, end },
            "raw string has no closing quote",
        ))
    };
    if !text[open..].starts_with('"') {
        return unclosed(open);
    }
    let close = format!("\"{}", "#".repeat(marks));
    let body = &text[open + 1..];
    match body.find(&close) {
        Some(len) => {
            let end = open + 1 + len + close.len();
            let found = body.as_bytes()[..len].to_vec();
            Ok((Token::Text(found), Span { start, end }))
        }
        None => unclosed(text.len()),
    }
}
