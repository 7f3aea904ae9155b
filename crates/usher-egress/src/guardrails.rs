//! Which hosts a session may reach at all. Set when it begins, and the same until it ends.
//!
//! A policy that cannot be read allows nothing and makes no session, so everything here is checked
//! before anything runs. A policy without an entry is one that lets nothing out.

use std::fmt;

/// Patterns that a session may bring.
pub const DOMAINS_MAX: usize = 50;
/// Sets that a session may name.
pub const SETS_MAX: usize = 4;
/// Bytes of a pattern: the longest host.
pub const PATTERN_LEN_MAX: usize = 253;
/// Patterns that a list from elsewhere may hold.
pub const LIST_MAX: usize = 10_000;

/// The set `common-cdns`. Only ever added to: sessions rely on it by name.
pub const COMMON_CDNS: &str = include_str!("common_cdns.txt");

/// Why a pattern is none.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PatternFault {
    /// Nothing there.
    #[error("a host pattern is empty")]
    Empty,
    /// Beyond [`PATTERN_LEN_MAX`].
    #[error("host pattern {pattern:?}... has {len} bytes, more than {PATTERN_LEN_MAX}")]
    Length {
        /// Its first 64 characters.
        pattern: String,
        /// Its bytes.
        len: usize,
    },
    /// More than one `*`.
    #[error("host pattern {0:?} has more than one *")]
    Stars(String),
    /// A scheme, a port, a path, white space; or letters beyond ASCII.
    #[error(
        "host pattern {pattern:?} holds {found:?}: only a host is meant, international names as xn--"
    )]
    Character {
        /// The pattern.
        pattern: String,
        /// The first such character.
        found: char,
    },
    /// Too many of them.
    #[error("{found} host patterns, more than {limit}")]
    TooMany {
        /// How many.
        found: usize,
        /// How many may be.
        limit: usize,
    },
}

/// Hosts, by a name that may hold one `*`: any run of characters, dots included.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pattern {
    before: Box<str>,
    /// What stands behind the `*`, if there is one.
    after: Option<Box<str>>,
}

impl Pattern {
    /// Reads one: a bare host, in any case.
    ///
    /// # Errors
    /// It is not one.
    pub fn parse(text: &str) -> Result<Pattern, PatternFault> {
        if text.is_empty() {
            return Err(PatternFault::Empty);
        }
        if text.len() > PATTERN_LEN_MAX {
            return Err(PatternFault::Length {
                pattern: text.chars().take(64).collect(),
                len: text.len(),
            });
        }
        let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_' | '*');
        if let Some(found) = text.chars().find(|&c| !allowed(c)) {
            return Err(PatternFault::Character {
                pattern: text.to_owned(),
                found,
            });
        }
        let text = text.to_ascii_lowercase();
        let text = text.strip_suffix('.').unwrap_or(&text);
        let (before, after) = match text.split_once('*') {
            Some((before, after)) => (before, Some(after)),
            None => (text, None),
        };
        if after.is_some_and(|after| after.contains('*')) {
            return Err(PatternFault::Stars(text.to_owned()));
        }
        if before.is_empty() && after.is_none() {
            return Err(PatternFault::Empty);
        }
        Ok(Pattern {
            before: before.into(),
            after: after.map(Into::into),
        })
    }

    /// Whether it means `host`, which is in lower case and has no dot at its end.
    #[must_use]
    pub fn matches(&self, host: &str) -> bool {
        match &self.after {
            None => *self.before == *host,
            Some(after) => host
                .strip_prefix(&*self.before)
                .is_some_and(|rest| rest.ends_with(&**after) && rest.len() >= after.len()),
        }
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.before)?;
        self.after
            .as_ref()
            .map_or(Ok(()), |after| write!(f, "*{after}"))
    }
}

/// The hosts of one session. Without an entry: none.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Guardrails {
    patterns: Vec<Pattern>,
}

impl Guardrails {
    /// What a session brought itself, at most [`DOMAINS_MAX`] patterns.
    ///
    /// # Errors
    /// One of them is none, or there are too many.
    pub fn new<'a>(domains: impl IntoIterator<Item = &'a str>) -> Result<Guardrails, PatternFault> {
        let patterns: Result<Vec<_>, _> = domains.into_iter().map(Pattern::parse).collect();
        let patterns = bounded(patterns?, DOMAINS_MAX)?;
        Ok(Guardrails { patterns })
    }

    /// A list: one pattern a line, empty lines and lines that start with `#` left out. At most
    /// [`LIST_MAX`] patterns. One bad line spoils the list, for half of a list is another policy.
    ///
    /// # Errors
    /// One of the lines is no pattern, or there are too many.
    pub fn of_list(text: &str) -> Result<Guardrails, PatternFault> {
        let lines = text.lines().map(str::trim);
        let lines = lines.filter(|line| !line.is_empty() && !line.starts_with('#'));
        let patterns: Result<Vec<_>, _> = lines.take(LIST_MAX + 1).map(Pattern::parse).collect();
        let patterns = bounded(patterns?, LIST_MAX)?;
        Ok(Guardrails { patterns })
    }

    /// These patterns, however many.
    #[must_use]
    pub fn of_patterns(patterns: Vec<Pattern>) -> Guardrails {
        Guardrails { patterns }
    }

    /// All of them.
    #[must_use]
    pub fn patterns(&self) -> &[Pattern] {
        &self.patterns
    }

    /// These hosts and those of `other`.
    #[must_use]
    pub fn and(mut self, other: Guardrails) -> Guardrails {
        self.patterns.extend(other.patterns);
        self
    }

    /// Whether `host` is among them: in lower case, without a dot at its end.
    #[must_use]
    pub fn allow(&self, host: &str) -> bool {
        self.patterns.iter().any(|pattern| pattern.matches(host))
    }
}

fn bounded(patterns: Vec<Pattern>, limit: usize) -> Result<Vec<Pattern>, PatternFault> {
    match patterns.len() {
        found if found > limit => Err(PatternFault::TooMany { found, limit }),
        _ => Ok(patterns),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn patterns_mean_whole_hosts() {
        for (pattern, host, matches) in [
            ("example.com", "example.com", true),
            ("EXAMPLE.com", "example.com", true),
            ("example.com.", "example.com", true),
            ("example.com", "www.example.com", false),
            ("example.com", "example.com.evil.example", false),
            ("*.example.com", "a.example.com", true),
            ("*.example.com", "a.b.example.com", true),
            ("*.example.com", "example.com", false),
            ("*.example.com", "evilexample.com", false),
            ("*example.com", "evilexample.com", true),
            ("*example.com", "example.com", true),
            ("*example.com", "example.net", false),
            ("api.*.example.com", "api.v1.example.com", true),
            ("api.*.example.com", "api.example.com", false),
            ("api.*", "api.example.com", true),
            ("ab*ba", "aba", false),
            ("ab*ba", "abba", true),
            ("*", "anything.example", true),
            ("192.0.2.1", "192.0.2.1", true),
        ] {
            let read = Pattern::parse(pattern).expect(pattern);
            assert_eq!(read.matches(host), matches, "{pattern} {host}");
        }
    }

    #[test]
    fn what_is_not_a_host_is_refused_with_its_place() {
        for (text, says) in [
            ("", "a host pattern is empty"),
            (".", "a host pattern is empty"),
            (
                "*.*.example.com",
                "host pattern \"*.*.example.com\" has more than one *",
            ),
            ("https://example.com", "holds ':'"),
            ("example.com/", "holds '/'"),
            ("example.com:443", "holds ':'"),
            ("bücher.example", "holds 'ü'"),
            ("a b", "holds ' '"),
        ] {
            let fault = Pattern::parse(text).expect_err(text).to_string();
            assert!(fault.contains(says), "{fault}");
        }
        assert!(Pattern::parse(&"a".repeat(253)).is_ok());
        assert!(Pattern::parse(&"a".repeat(254)).is_err());
        assert!(Guardrails::new(["a.example"; 50]).is_ok());
        let fault = Guardrails::new(["a.example"; 51]).expect_err("too many");
        assert_eq!(fault.to_string(), "51 host patterns, more than 50");
        assert!(Guardrails::of_list(&"a.example\n".repeat(LIST_MAX)).is_ok());
        assert!(Guardrails::of_list(&"a.example\n".repeat(LIST_MAX + 1)).is_err());
    }

    #[test]
    fn an_empty_policy_allows_nothing_and_sets_add_up() {
        assert!(!Guardrails::new([]).expect("none").allow("example.com"));
        let cdns = Guardrails::of_list(COMMON_CDNS).expect("our own list");
        let both = Guardrails::new(["example.com"]).expect("one").and(cdns);
        for host in [
            "example.com",
            "unpkg.com",
            "cdn.jsdelivr.net",
            "a.b.jsdelivr.net",
        ] {
            assert!(both.allow(host), "{host}");
        }
        for host in ["example.net", "jsdelivr.net", "evil-unpkg.com"] {
            assert!(!both.allow(host), "{host}");
        }
        let spoilt = Guardrails::of_list("# a list\n\n example.com \nhttp://a\n");
        assert!(spoilt.is_err());
    }

    proptest! {
        #[test]
        fn a_pattern_agrees_with_a_regular_reading(pattern in "[a-c.]{0,4}\\*?[a-c.]{0,4}", host in "[a-c.]{0,8}") {
            let Ok(read) = Pattern::parse(&pattern) else { return Ok(()) };
            // The second reading tries every run that the star may stand for.
            let text = pattern.strip_suffix('.').unwrap_or(&pattern);
            let wanted = match text.split_once('*') {
                None => text == host,
                Some((before, after)) => (0..=host.len()).any(|from| (from..=host.len()).any(|to| {
                    &host[..from] == before && &host[to..] == after
                })),
            };
            prop_assert_eq!(read.matches(&host), wanted);
        }
    }
}
