//! Patterns of addresses, as callers write them: regular expressions of JavaScript.
//!
//! Those look ahead and back and refer to what they found, so they need an engine that goes back over
//! its steps, and such an engine can be kept busy for ever. So steps are counted, and a pattern that
//! takes too many says neither yes nor no: the request that it was asked about is refused.
//!
//! Source: browser specification 6.1, R32.

use fancy_regex::{Regex, RegexBuilder};

/// Steps back that one pattern may take for one address.
pub const STEPS_MAX: usize = 10_000;
/// Bytes of a pattern.
pub const PATTERN_MAX: usize = 2_048;
/// Memory for the compiled parts of one, in bytes.
const COMPILED_MAX: usize = 256 << 10;

/// One of them.
#[derive(Debug, Clone)]
pub struct Pattern {
    regex: Regex,
}

/// Why a text is no pattern.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PatternFault {
    /// It is too long.
    #[error("pattern of {0} bytes: at most {PATTERN_MAX}")]
    Long(usize),
    /// It is no regular expression.
    #[error("not a regular expression: {0}")]
    Regex(String),
}

impl Pattern {
    /// Reads `/text/flags`, `/text` or `text`. Of the flags `i`, `m` and `s` mean something where a
    /// whole address is looked at.
    ///
    /// # Errors
    /// See [`PatternFault`].
    pub fn parse(text: &str) -> Result<Pattern, PatternFault> {
        if text.len() > PATTERN_MAX {
            return Err(PatternFault::Long(text.len()));
        }
        let (body, flags) = parts(text);
        let flags: String = flags.chars().filter(|flag| "ims".contains(*flag)).collect();
        // The one class of JavaScript that the engine does not know: anything.
        let body = body.replace("[^]", r"[\s\S]");
        let whole = match flags.as_str() {
            "" => body,
            flags => format!("(?{flags}){body}"),
        };
        let regex = RegexBuilder::new(&whole)
            .backtrack_limit(STEPS_MAX)
            .delegate_size_limit(COMPILED_MAX)
            .build();
        let fault = |fault: fancy_regex::Error| {
            let text = fault.to_string();
            // Some draw the place over several lines.
            let text = text.lines().last().unwrap_or_default();
            PatternFault::Regex(text.trim().to_owned())
        };
        Ok(Pattern {
            regex: regex.map_err(fault)?,
        })
    }

    /// Whether it is found in `address`; `None` when that takes too many steps.
    #[must_use]
    pub fn finds(&self, address: &str) -> Option<bool> {
        self.regex.is_match(address).ok()
    }
}

/// The expression and its flags.
fn parts(text: &str) -> (&str, &str) {
    let Some(rest) = text.strip_prefix('/') else {
        return (text, "");
    };
    let is_flags = |end: &str| {
        let mut letters = end.bytes();
        letters.all(|letter| b"dgimsuvy".contains(&letter))
    };
    match rest.rsplit_once('/') {
        Some((body, flags)) if is_flags(flags) => (body, flags),
        _ => (rest, ""),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_are_read_as_people_write_them() {
        for (text, address, found) in [
            (r"/^.*\.(css)", "https://example.com/a.css", true),
            (r"/^.*\.(css)/", "https://example.com/a.css?x", true),
            (r"/\.CSS$/i", "https://example.com/a.css", true),
            (r"/\.CSS$/", "https://example.com/a.css", false),
            (r"\/api\/v\d+\/", "https://example.com/api/v1/x", true),
            // A slash that no flags follow is part of the expression.
            (r"/a/b", "https://example.com/a/b", true),
            (r"/a/b", "https://example.com/b", false),
            (
                r"/^(?!https:\/\/example\.com)/",
                "https://cdn.example/x",
                true,
            ),
            (
                r"/^(?!https:\/\/example\.com)/",
                "https://example.com/x",
                false,
            ),
            (r"/(?<=\/)(\w+)\/\1$/", "https://example.com/ab/ab", true),
            (r"/a[^]*z/", "https://example.com/a-z", true),
            ("", "https://example.com/", true),
        ] {
            let pattern = Pattern::parse(text).expect(text);
            assert_eq!(pattern.finds(address), Some(found), "{text} in {address}");
        }
    }

    #[test]
    fn what_is_no_pattern_says_why_in_one_line() {
        for text in ["/(/", "[", r"/(?<n>a)(?<n>b)\k<m>/"] {
            let fault = Pattern::parse(text).expect_err(text).to_string();
            assert!(fault.starts_with("not a regular expression: "), "{fault}");
            assert!(!fault.contains('\n'), "{fault}");
        }
        let long = "a".repeat(PATTERN_MAX + 1);
        assert_eq!(
            Pattern::parse(&long).expect_err("long"),
            PatternFault::Long(PATTERN_MAX + 1)
        );
    }

    #[test]
    fn a_pattern_that_never_ends_gives_up() {
        let pattern = Pattern::parse(r"/^(?:(a|aa)+)+\1b/").expect("a pattern");
        let address = format!("{}!", "a".repeat(4_000));
        assert_eq!(pattern.finds(&address), None);
    }
}
