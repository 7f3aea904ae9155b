//! The cookie `__cflb`: found among a visitor's cookies, hidden from endpoints, given to visitors.
//!
//! Its value is opaque here; [`crate::seal`] makes and opens it. Cookies of others are not ours to
//! tidy: what an endpoint gets is what the visitor sent, byte for byte, without ours. Pure functions,
//! and none but [`set_cookie`] allocates.

use std::fmt::Write as _;
use std::time::{Duration, UNIX_EPOCH};

use httpdate::HttpDate;
use memchr::memmem;
use usher_core::catalog::SameSite;
use usher_core::time::Wall;

use crate::http1::{EncodeFault, write_field};

/// Its name.
pub const NAME: &str = "__cflb";

/// Cookies of this name that are looked at in one request. A browser sends several when parent paths
/// have their own, or when somebody planted one; whoever sends more is no browser.
pub const VALUES_MAX: usize = 4;

/// The values of the cookie in the `Cookie` lines of a request, in the order sent, without quotes;
/// the first [`VALUES_MAX`] of them. The caller takes the first one that opens.
pub fn values<'a>(lines: impl Iterator<Item = &'a [u8]>) -> impl Iterator<Item = &'a [u8]> {
    lines
        .filter(|line| is_in(line))
        .flat_map(|line| line.split(|&byte| byte == b';'))
        .filter_map(value)
        .take(VALUES_MAX)
}

/// What is left of a `Cookie` line without ours: pieces that follow each other. None of them: the
/// line is not sent at all.
pub fn others(line: &[u8]) -> impl Iterator<Item = &[u8]> {
    let (whole, searched) = if is_in(line) {
        (None, Some(line))
    } else {
        (Some(line), None)
    };
    let searched = searched.map(|line| Others {
        line,
        at: 0,
        begun: false,
    });
    whole
        .into_iter()
        .filter(|line| !line.is_empty())
        .chain(searched.into_iter().flatten())
}

/// Appends `line`, the value of a field with this `name`, in HTTP/1 form and without ours; nothing
/// when no other cookie is in it.
///
/// # Errors
/// Name or value are not those of a field.
pub(crate) fn write_others(out: &mut Vec<u8>, name: &[u8], line: &[u8]) -> Result<(), EncodeFault> {
    let mut pieces = others(line);
    let Some(first) = pieces.next() else {
        return Ok(());
    };
    write_field(out, name, first)?;
    for piece in pieces {
        // In place of the end of the line.
        out.truncate(out.len() - 2);
        out.extend_from_slice(piece);
        out.extend_from_slice(b"\r\n");
    }
    Ok(())
}

struct Others<'a> {
    line: &'a [u8],
    /// Where the next cookie starts.
    at: usize,
    /// Whether a cookie was left before it.
    begun: bool,
}

impl<'a> Iterator for Others<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        while self.at <= self.line.len() {
            let start = self.at;
            let rest = &self.line[start..];
            let len = memchr::memchr(b';', rest).unwrap_or(rest.len());
            self.at = start + len + 1;
            let cookie = &rest[..len];
            if value(cookie).is_some() {
                continue;
            }
            if self.begun {
                // With the separator before it, as it was sent.
                return Some(&self.line[start - 1..start + len]);
            }
            // Ours stood before it, and the space between them goes with ours.
            let first = if start == 0 {
                cookie
            } else {
                cookie.trim_ascii_start()
            };
            if !first.is_empty() {
                self.begun = true;
                return Some(first);
            }
        }
        None
    }
}

fn is_in(line: &[u8]) -> bool {
    // A quick look first: most visitors of most sites have no such cookie.
    memmem::find(line, NAME.as_bytes()).is_some()
        && line
            .split(|&byte| byte == b';')
            .any(|cookie| value(cookie).is_some())
}

/// The value of `cookie`, a name and a value, if it is ours.
fn value(cookie: &[u8]) -> Option<&[u8]> {
    let rest = cookie.trim_ascii_start().strip_prefix(NAME.as_bytes())?;
    let value = rest.trim_ascii_start().strip_prefix(b"=")?.trim_ascii();
    let unquoted = value
        .strip_prefix(b"\"")
        .and_then(|value| value.strip_suffix(b"\""));
    Some(unquoted.unwrap_or(value))
}

/// The value of the field `Set-Cookie` that gives `value` to a visitor, from `created` on for `ttl`.
///
/// There is no `Domain`: the cookie is for this host only.
#[must_use]
pub fn set_cookie(
    value: &str,
    secure: bool,
    same_site: SameSite,
    created: Wall,
    ttl: Duration,
) -> String {
    // The last second that the format can say.
    const LAST: u64 = 253_402_300_799;
    debug_assert_ne!(same_site, SameSite::Auto);
    let created = Duration::from_millis(u64::try_from(created.as_millis()).unwrap_or(0));
    let expires = created.saturating_add(ttl).min(Duration::from_secs(LAST));
    let mut text = String::with_capacity(value.len() + 128);
    let written = write!(
        text,
        "{NAME}={value}; Path=/; Expires={}; Max-Age={}; HttpOnly; SameSite={}",
        HttpDate::from(UNIX_EPOCH + expires),
        ttl.as_secs(),
        same_site.name(),
    );
    written.expect("a String takes any text");
    if secure {
        text.push_str("; Secure");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_cookie_is_found_among_others() {
        let rows: &[(&[&str], &[&str])] = &[
            (&["__cflb=abc"], &["abc"]),
            (&["a=b; __cflb=abc; c=d"], &["abc"]),
            (&["a=b;__cflb=abc"], &["abc"]),
            (&["a=b", "c=d; __cflb=abc"], &["abc"]),
            (&["__cflb=\"abc\""], &["abc"]),
            (&[" __cflb = abc \t; a=b"], &["abc"]),
            (
                &["__cflb=one; a=b; __cflb=two", "__cflb=three"],
                &["one", "two", "three"],
            ),
            (&["__cflb=; __cflb=a=b"], &["", "a=b"]),
            (
                &["__cflb=1;__cflb=2;__cflb=3;__cflb=4;__cflb=5"],
                &["1", "2", "3", "4"],
            ),
            (&["__cflb=\""], &["\""]),
            (&[], &[]),
            (&["", ";", "; ;"], &[]),
            (
                &[
                    "a=__cflb=abc",
                    "x__cflb=abc",
                    "__cflbx=abc",
                    "__CFLB=abc",
                    "__cflb",
                    "a=b; __cflb",
                ],
                &[],
            ),
        ];
        for (lines, expected) in rows {
            let lines = lines.iter().map(|line| line.as_bytes());
            let found: Vec<_> = values(lines).map(text).collect();
            assert_eq!(found, *expected);
        }
    }

    #[test]
    fn the_other_cookies_are_left_as_they_were() {
        let rows = [
            ("a=b", "a=b"),
            ("__cflb=abc", ""),
            ("__cflb=abc; a=b", "a=b"),
            ("a=b; __cflb=abc", "a=b"),
            ("a=b; __cflb=abc; c=d", "a=b; c=d"),
            ("a=b;__cflb=abc;c=d", "a=b;c=d"),
            ("a=b;  __cflb=abc;c=d ;e", "a=b;c=d ;e"),
            ("__cflb=1; __cflb=2; a=b; __cflb=3", "a=b"),
            ("__cflb=1; __cflb=2", ""),
            ("__cflb=1;", ""),
            ("__cflb=1; ;; a=b;", "a=b;"),
            ("__cflb__cflb=1;;", "__cflb__cflb=1;;"),
            (" a=b; __cflb=1", " a=b"),
            ("a=__cflb=1; b=c", "a=__cflb=1; b=c"),
            ("__cflbx=1; x__cflb=2; __cflb=3", "__cflbx=1; x__cflb=2"),
            ("a=\"x\"; __cflb=\"1\"; b=", "a=\"x\"; b="),
            ("", ""),
            (";", ";"),
        ];
        for (line, expected) in rows {
            assert_eq!(left(line.as_bytes()), expected.as_bytes(), "{line}");
        }
    }

    #[test]
    fn a_line_without_ours_is_one_piece() {
        let line = b"a=b; c=d; e=f";
        let pieces: Vec<_> = others(line).collect();
        assert_eq!(pieces, [line]);
        assert!(std::ptr::eq(pieces[0], &line[..]));
    }

    #[test]
    fn a_visitor_gets_the_cookie_for_this_host_and_this_long() {
        let created = Wall::from_millis(1_790_000_000_500);
        let ttl = Duration::from_secs(82_800);
        assert_eq!(
            set_cookie("abc", false, SameSite::Lax, created, ttl),
            "__cflb=abc; Path=/; Expires=Tue, 22 Sep 2026 13:13:20 GMT; Max-Age=82800; HttpOnly; SameSite=Lax"
        );
        assert_eq!(
            set_cookie(
                "abc",
                true,
                SameSite::None,
                created,
                Duration::from_secs(1800)
            ),
            "__cflb=abc; Path=/; Expires=Mon, 21 Sep 2026 14:43:20 GMT; Max-Age=1800; HttpOnly; SameSite=None; Secure"
        );
        let strict = set_cookie("abc", false, SameSite::Strict, created, Duration::ZERO);
        assert!(strict.ends_with("; SameSite=Strict"));
    }

    #[test]
    fn a_clock_that_is_wrong_makes_a_date_all_the_same() {
        for millis in [i64::MIN, -1, i64::MAX] {
            let created = Wall::from_millis(millis);
            let text = set_cookie("abc", false, SameSite::Lax, created, Duration::MAX);
            assert!(
                text.contains("; Expires=Fri, 31 Dec 9999 23:59:59 GMT; "),
                "{text}"
            );
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        /// Ours is gone, the others are there in their order, and doing it again changes nothing.
        #[test]
        fn of_any_line_the_others_are_left(line in "(__cflb|a|=|;|; | |\"|x){0,24}") {
            let line = line.as_bytes();
            let rest = left(line);
            prop_assert_eq!(values(std::iter::once(&rest[..])).count(), 0);
            prop_assert_eq!(left(&rest), rest.clone());
            let cookies = |line: &[u8]| -> Vec<Vec<u8>> {
                let all = line.split(|&byte| byte == b';').filter(|one| value(one).is_none());
                all.map(|one| one.trim_ascii().to_vec()).filter(|one| !one.is_empty()).collect()
            };
            prop_assert_eq!(cookies(line), cookies(&rest));
        }

        #[test]
        fn bytes_of_any_kind_do_no_harm(line in prop::collection::vec(any::<u8>(), 0..256)) {
            let line = [&line, &b"; __cflb=x;"[..], &line].concat();
            prop_assert!(left(&line).len() < line.len());
            prop_assert!(values(std::iter::once(&line[..])).count() >= 1);
        }
    }

    fn left(line: &[u8]) -> Vec<u8> {
        others(line).collect::<Vec<_>>().concat()
    }

    fn text(bytes: &[u8]) -> &str {
        std::str::from_utf8(bytes).expect("text")
    }
}
