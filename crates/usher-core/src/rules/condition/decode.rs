//! `url_decode`: what a URL hides.

use std::borrow::Cow;

/// Rounds of `"r"`. Each is a walk over the whole value, and nobody honest encodes so often.
pub(super) const ROUNDS_MAX: usize = 8;

/// What to decode beside `%XX` and `+`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Options {
    /// Decode what decoding brought to light, at most [`ROUNDS_MAX`] times.
    pub(super) recursive: bool,
    /// Decode `%uXXXX` too, to UTF-8.
    pub(super) unicode: bool,
}

impl Options {
    /// From the letters of the second argument; otherwise the letter that is none.
    pub(super) fn parse(letters: &str) -> Result<Options, char> {
        let mut options = Options::default();
        for letter in letters.chars() {
            match letter {
                'r' => options.recursive = true,
                'u' => options.unicode = true,
                other => return Err(other),
            }
        }
        Ok(options)
    }
}

pub(super) fn url_decode(text: Cow<'_, [u8]>, options: Options) -> Cow<'_, [u8]> {
    let rounds = if options.recursive { ROUNDS_MAX } else { 1 };
    let mut text = text;
    for _ in 0..rounds {
        match once(&text, options.unicode) {
            Some(decoded) => text = Cow::Owned(decoded),
            None => break,
        }
    }
    text
}

/// `None` when there is nothing to decode. What is no valid escape stays as it is.
fn once(text: &[u8], unicode: bool) -> Option<Vec<u8>> {
    let first = text.iter().position(|&byte| byte == b'%' || byte == b'+')?;
    let mut decoded = Vec::with_capacity(text.len());
    decoded.extend_from_slice(&text[..first]);
    let mut changed = false;
    let mut rest = &text[first..];
    while let Some((&byte, behind)) = rest.split_first() {
        rest = behind;
        match byte {
            b'+' => decoded.push(b' '),
            b'%' => {
                if let Some(byte) = hex(behind, 2).and_then(|value| u8::try_from(value).ok()) {
                    decoded.push(byte);
                    rest = &behind[2..];
                } else if let Some(found) = wide(behind).filter(|_| unicode) {
                    decoded.extend_from_slice(found.encode_utf8(&mut [0; 4]).as_bytes());
                    rest = &behind[5..];
                } else {
                    decoded.push(b'%');
                    continue;
                }
            }
            other => {
                decoded.push(other);
                continue;
            }
        }
        changed = true;
    }
    changed.then_some(decoded)
}

fn hex(text: &[u8], digits: usize) -> Option<u32> {
    text.get(..digits)?.iter().try_fold(0, |value, &digit| {
        Some(value * 16 + char::from(digit).to_digit(16)?)
    })
}

fn wide(text: &[u8]) -> Option<char> {
    let (&letter, digits) = text.split_first()?;
    (letter == b'u' || letter == b'U').then_some(())?;
    char::from_u32(hex(digits, 4)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decoded() {
        let cases = [
            ("", "a%20b+c", "a b c"),
            ("", "plain", "plain"),
            ("", "%", "%"),
            ("", "%4", "%4"),
            ("", "%zz%41", "%zzA"),
            ("", "%2541", "%41"),
            ("", "%u0041", "%u0041"),
            ("r", "%252541", "A"),
            ("u", "%u00e9%U0041", "\u{e9}A"),
            ("u", "%ud800", "%ud800"),
            ("ru", "%2575%25u0041", "uA"),
            ("r", "%2%35%2541", "%A"),
        ];
        for (letters, text, expected) in cases {
            let options = Options::parse(letters).unwrap();
            let found = url_decode(Cow::Borrowed(text.as_bytes()), options);
            assert_eq!(
                String::from_utf8_lossy(&found),
                expected,
                "{text} {letters}"
            );
        }
        assert_eq!(Options::parse("rx"), Err('x'));
        let plain = url_decode(Cow::Borrowed(b"%zz"), Options::default());
        assert!(matches!(plain, Cow::Borrowed(_)));
    }

    #[test]
    fn rounds_end() {
        let mut text = "%41".to_owned();
        for _ in 0..20 {
            text = text.replacen('%', "%25", 1);
        }
        let recursive = Options::parse("r").unwrap();
        let found = url_decode(Cow::Borrowed(text.as_bytes()), recursive);
        assert!(found.starts_with(b"%25"));
    }
}
