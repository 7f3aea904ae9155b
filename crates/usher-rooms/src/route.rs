//! Which room owns a request.
//!
//! Paths are compared in one normal form, or `/shop/../shop`, `//shop` and `/%73hop` would be ways
//! around the room at `/shop`. The endpoint gets the path as it was sent.

use std::borrow::Cow;
use std::collections::HashMap;

/// Routes of rooms, with what each leads to.
#[derive(Debug)]
pub struct Routes<R> {
    by_host: HashMap<Box<str>, Vec<Route<R>>>,
    any_host: Vec<Route<R>>,
}

#[derive(Debug)]
struct Route<R> {
    path: Box<str>,
    raw: bool,
    room: R,
}

/// How a path says that it is below a route.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum PrefixMatch {
    /// `/shop` is the path itself and what follows it behind a slash.
    #[default]
    Segments,
    /// `/shop` is also the beginning of `/shopping`.
    Raw,
}

impl<R> Routes<R> {
    /// No routes.
    #[must_use]
    pub fn new() -> Routes<R> {
        Routes {
            by_host: HashMap::new(),
            any_host: Vec::new(),
        }
    }

    /// Adds a route. `host` is in lower case without a port, or `*` for every host that no other
    /// route names; `path` begins with a slash. A route that is there already stays first.
    pub fn add(&mut self, host: &str, path: &str, prefix: PrefixMatch, room: R) {
        let routes = match host {
            "*" => &mut self.any_host,
            host => self.by_host.entry(host.into()).or_default(),
        };
        routes.push(Route {
            path: normal(path).into(),
            raw: prefix == PrefixMatch::Raw,
            room,
        });
        // The longest first; a stable sort, so of equals the first stays first.
        routes.sort_by_key(|route| std::cmp::Reverse(route.path.len()));
    }

    /// Whose request it is: of the host's routes that match, the longest. `host` is in lower case
    /// without a port and a final dot; `uri` is path and query as received.
    #[must_use]
    pub fn owner_of(&self, host: &str, uri: &str) -> Option<&R> {
        if self.is_empty() {
            return None;
        }
        self.owner_of_path(host, &normal(path_of(uri)))
    }

    /// The same of a path that is [`normal`].
    #[must_use]
    pub fn owner_of_path(&self, host: &str, path: &str) -> Option<&R> {
        let mut routes = self.of(host).iter();
        routes
            .find(|route| route.matches(path))
            .map(|route| &route.room)
    }

    /// Whose paths there are on `host`; a room of several comes several times.
    pub fn rooms_of(&self, host: &str) -> impl Iterator<Item = &R> {
        self.of(host).iter().map(|route| &route.room)
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.by_host.is_empty() && self.any_host.is_empty()
    }

    fn of(&self, host: &str) -> &[Route<R>] {
        self.by_host.get(host).unwrap_or(&self.any_host)
    }
}

impl<R> Default for Routes<R> {
    fn default() -> Routes<R> {
        Routes::new()
    }
}

impl<R> Route<R> {
    fn matches(&self, path: &str) -> bool {
        let Some(rest) = path.strip_prefix(&*self.path) else {
            return false;
        };
        self.raw || rest.is_empty() || rest.starts_with('/') || self.path.ends_with('/')
    }
}

/// The path of `uri`, as received.
#[must_use]
pub fn path_of(uri: &str) -> &str {
    uri.split(['?', '#']).next().unwrap_or_default()
}

/// `path` with unreserved characters decoded, `.` and `..` resolved, and slashes single. Does not
/// allocate for a path that is normal already.
#[must_use]
pub fn normal(path: &str) -> Cow<'_, str> {
    if is_normal(path.as_bytes()) {
        return Cow::Borrowed(path);
    }
    let decoded = decode_unreserved(path);
    let mut out = String::with_capacity(decoded.len() + 1);
    let mut segments = decoded.split('/').peekable();
    while let Some(segment) = segments.next() {
        let last = segments.peek().is_none();
        match segment {
            "" | "." => {}
            ".." => out.truncate(out.rfind('/').unwrap_or(0)),
            segment => {
                out.push('/');
                out.push_str(segment);
            }
        }
        // A final slash stays, and so does the one before a final dot.
        if last && matches!(segment, "" | "." | "..") {
            out.push('/');
        }
    }
    Cow::Owned(out)
}

fn is_normal(path: &[u8]) -> bool {
    path.first() == Some(&b'/')
        && memchr::memchr(b'%', path).is_none()
        && path
            .windows(2)
            .all(|pair| pair[0] != b'/' || !matches!(pair[1], b'/' | b'.'))
}

fn decode_unreserved(path: &str) -> Cow<'_, str> {
    if !path.contains('%') {
        return Cow::Borrowed(path);
    }
    let mut out = String::with_capacity(path.len());
    let mut rest = path;
    while let Some((before, after)) = rest.split_once('%') {
        out.push_str(before);
        let byte = after
            .get(..2)
            .filter(|digits| digits.bytes().all(|digit| digit.is_ascii_hexdigit()))
            .and_then(|digits| u8::from_str_radix(digits, 16).ok())
            .filter(|&byte| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte));
        match byte {
            Some(byte) => {
                out.push(char::from(byte));
                rest = &after[2..];
            }
            None => {
                out.push('%');
                rest = after;
            }
        }
    }
    out.push_str(rest);
    Cow::Owned(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn routes(prefix: PrefixMatch) -> Routes<u32> {
        let mut routes = Routes::new();
        routes.add("shop.example.com", "/", prefix, 1);
        routes.add("shop.example.com", "/shop", prefix, 2);
        routes.add("shop.example.com", "/shop/sale/", prefix, 3);
        routes.add("example.com", "/only", prefix, 4);
        routes.add("*", "/", prefix, 5);
        routes
    }

    #[test]
    fn the_longest_route_of_the_host_owns_a_request() {
        let routes = routes(PrefixMatch::Segments);
        for (host, uri, expected) in [
            ("shop.example.com", "/", Some(1)),
            ("shop.example.com", "/shop", Some(2)),
            ("shop.example.com", "/shop?a=/../..", Some(2)),
            ("shop.example.com", "/shop/a", Some(2)),
            ("shop.example.com", "/shopping", Some(1)),
            ("shop.example.com", "/Shop", Some(1)),
            ("shop.example.com", "/shop/sale", Some(2)),
            ("shop.example.com", "/shop/sale/", Some(3)),
            ("shop.example.com", "/shop/sale/1", Some(3)),
            ("example.com", "/only", Some(4)),
            ("example.com", "/other", None),
            ("example.org", "/other", Some(5)),
        ] {
            assert_eq!(routes.owner_of(host, uri).copied(), expected, "{host}{uri}");
        }
        let raw = super::tests::routes(PrefixMatch::Raw);
        assert_eq!(raw.owner_of("shop.example.com", "/shopping"), Some(&2));
        assert_eq!(Routes::<u32>::new().owner_of("example.com", "/"), None);
    }

    #[test]
    fn there_is_no_way_around_a_route() {
        let routes = routes(PrefixMatch::Segments);
        for uri in [
            "/%73hop",
            "/%73%48%6Fp/../shop",
            "//shop",
            "/./shop",
            "/a/../shop",
            "/../shop",
            "/a/%2e%2E/shop",
            "/a/b/../../shop/",
            "/shop/.",
            "/shop/..//shop",
            "/shop#x",
        ] {
            assert_eq!(routes.owner_of("shop.example.com", uri), Some(&2), "{uri}");
        }
        // These are other paths, to any server.
        for uri in [
            "/shop%2Fa",
            "/%",
            "/%7",
            "/%zz",
            "/s%68%oop",
            "*",
            "",
            "/shop/..",
        ] {
            assert_eq!(routes.owner_of("shop.example.com", uri), Some(&1), "{uri}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn the_normal_form_is_normal(path in "(/|\\.|\\.\\.|%2e|%2F|%73|%|a|é){0,16}") {
            let once = normal(&path).into_owned();
            prop_assert_eq!(normal(&once), once.clone());
            prop_assert!(once.starts_with('/'), "{}", once);
        }
    }
}
