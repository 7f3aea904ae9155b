//! Which room owns a request.
//!
//! Paths are compared in one normal form, or `/shop/../shop`, `//shop` and `/%73hop` would be ways
//! around the room at `/shop`. The endpoint gets the path as it was sent.
//!
//! Servers do not agree what `%2F`, `%5C`, `\` and `;` mean in a path: to some `/shop%2Fa` is
//! `/shop/a`, to others it is another path. Which one stands behind a room nobody knows here, so a
//! path with these has several [`Readings`], and a room owns what any of them puts below it.

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
    ///
    /// # Errors
    /// Its path can be read in two ways that belong to different rooms.
    pub fn owner_of(&self, host: &str, uri: &str) -> Result<Option<&R>, Ambiguous>
    where
        R: PartialEq,
    {
        if self.of(host).is_empty() {
            return Ok(None);
        }
        self.owner_of_readings(host, &Readings::of(path_of(uri)))
    }

    /// The same of a path whose readings are known.
    ///
    /// # Errors
    /// Two of them belong to different rooms.
    pub fn owner_of_readings(
        &self,
        host: &str,
        readings: &Readings<'_>,
    ) -> Result<Option<&R>, Ambiguous>
    where
        R: PartialEq,
    {
        let mut owner = self.owner_of_path(host, readings.normal());
        for path in readings.others() {
            let other = self.owner_of_path(host, &path);
            match (owner, other) {
                (Some(owner), Some(other)) if owner != other => return Err(Ambiguous),
                (None, Some(_)) => owner = other,
                _ => {}
            }
        }
        Ok(owner)
    }

    /// Of a path in normal form.
    fn owner_of_path(&self, host: &str, path: &str) -> Option<&R> {
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

/// A path that can be read in two ways, which belong to different rooms: one of them would be a way
/// around the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("its path can be read in two ways that belong to different waiting rooms")]
pub struct Ambiguous;

impl Ambiguous {
    /// The word for it in logs, metrics and JSON.
    pub const WORD: &'static str = "ambiguous-path";
}

/// What a path may mean to a server.
#[derive(Debug)]
pub struct Readings<'p> {
    path: &'p str,
    normal: Cow<'p, str>,
}

impl<'p> Readings<'p> {
    /// Those of `path`, as received. Does not allocate for one that is normal already.
    #[must_use]
    pub fn of(path: &'p str) -> Readings<'p> {
        let normal = normal(path);
        Readings { path, normal }
    }

    /// The [`normal`] form, by which nearly every server goes.
    #[must_use]
    pub fn normal(&self) -> &str {
        &self.normal
    }

    /// What it is to servers that decode slashes, take `\` for one, or cut parameters. Nothing for
    /// a path that has none of these; one reading may come several times.
    pub fn others(&self) -> impl Iterator<Item = String> {
        let bytes = self.path.as_bytes();
        let has = |escape: &[u8; 3]| {
            let mut escapes = bytes.windows(3);
            escapes.any(|found| found.eq_ignore_ascii_case(escape))
        };
        let escaped = memchr::memchr(b'%', bytes).is_some();
        let slashes = escaped && has(b"%2f");
        let backslashes = memchr::memchr(b'\\', bytes).is_some() || (escaped && has(b"%5c"));
        let parameters = memchr::memchr(b';', bytes).is_some();
        let ways = if slashes || backslashes || parameters {
            Way::OTHERS
        } else {
            &[]
        };
        let ways = ways.iter().filter(move |way| {
            (slashes || !way.slashes)
                && (backslashes || !way.backslashes)
                && (parameters || way.parameters == Parameters::Kept)
        });
        ways.map(|way| resolved(&way.decoded(self.path)))
    }
}

/// How a server reads a path.
#[derive(Debug, Clone, Copy)]
struct Way {
    /// `%2F` is a slash.
    slashes: bool,
    /// `\` and `%5C` are slashes.
    backslashes: bool,
    parameters: Parameters,
}

/// What becomes of `;` and what follows it in its segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Parameters {
    /// A part of the segment.
    Kept,
    /// Cut off, where segments end at slashes as received.
    CutFirst,
    /// Cut off, where segments end at decoded slashes too.
    CutLast,
}

impl Way {
    const NORMAL: Way = Way::new(false, false, Parameters::Kept);

    /// The others, those first that do the most.
    const OTHERS: &'static [Way] = &[
        Way::new(true, true, Parameters::CutLast),
        Way::new(true, true, Parameters::CutFirst),
        Way::new(true, true, Parameters::Kept),
        Way::new(true, false, Parameters::CutLast),
        Way::new(true, false, Parameters::CutFirst),
        Way::new(true, false, Parameters::Kept),
        Way::new(false, true, Parameters::CutLast),
        Way::new(false, true, Parameters::CutFirst),
        Way::new(false, true, Parameters::Kept),
        Way::new(false, false, Parameters::CutLast),
    ];

    const fn new(slashes: bool, backslashes: bool, parameters: Parameters) -> Way {
        Way {
            slashes,
            backslashes,
            parameters,
        }
    }

    fn decoded(self, path: &str) -> String {
        let mut out = String::with_capacity(path.len());
        let mut rest = path;
        let mut in_parameters = false;
        while let Some(next) = rest.chars().next() {
            let escaped = (next == '%').then(|| escaped(&rest[1..])).flatten();
            let (meant, len) = match escaped {
                Some(byte) => (self.meant(byte), 3),
                None if next == '\\' && self.backslashes => (Some('/'), 1),
                None => (Some(next), next.len_utf8()),
            };
            let (raw, after) = rest.split_at(len);
            rest = after;
            let ends = match self.parameters {
                Parameters::CutLast => meant == Some('/'),
                Parameters::Kept | Parameters::CutFirst => raw == "/",
            };
            in_parameters &= !ends;
            in_parameters |= raw == ";" && self.parameters != Parameters::Kept;
            match meant {
                _ if in_parameters => {}
                Some(meant) => out.push(meant),
                None => out.push_str(raw),
            }
        }
        out
    }

    /// What an escaped byte is, where it is not left as it is.
    fn meant(self, byte: u8) -> Option<char> {
        match byte {
            b'/' if self.slashes => Some('/'),
            b'\\' if self.backslashes => Some('/'),
            b'-' | b'.' | b'_' | b'~' => Some(char::from(byte)),
            byte => byte.is_ascii_alphanumeric().then(|| char::from(byte)),
        }
    }
}

/// The byte that these digits behind `%` stand for.
fn escaped(digits: &str) -> Option<u8> {
    let digits = digits.get(..2)?;
    let hex = digits.bytes().all(|digit| digit.is_ascii_hexdigit());
    u8::from_str_radix(digits, 16).ok().filter(|_| hex)
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
    if memchr::memchr(b'%', path.as_bytes()).is_none() {
        return Cow::Owned(resolved(path));
    }
    Cow::Owned(resolved(&Way::NORMAL.decoded(path)))
}

/// `.` and `..` resolved, and slashes single.
fn resolved(decoded: &str) -> String {
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
    out
}

fn is_normal(path: &[u8]) -> bool {
    path.first() == Some(&b'/')
        && memchr::memchr(b'%', path).is_none()
        && path
            .windows(2)
            .all(|pair| pair[0] != b'/' || !matches!(pair[1], b'/' | b'.'))
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
            let found = routes.owner_of(host, uri);
            assert_eq!(found, Ok(expected.as_ref()), "{host}{uri}");
        }
        let raw = super::tests::routes(PrefixMatch::Raw);
        let found = raw.owner_of("shop.example.com", "/shopping");
        assert_eq!(found, Ok(Some(&2)));
        assert_eq!(Routes::<u32>::new().owner_of("example.com", "/"), Ok(None));
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
            let found = routes.owner_of("shop.example.com", uri);
            assert_eq!(found, Ok(Some(&2)), "{uri}");
        }
        // These are other paths, to any server.
        for uri in [
            "/shop%252Fa",
            "/%",
            "/%7",
            "/%zz",
            "/s%68%oop",
            "*",
            "",
            "/shop/..",
        ] {
            let found = routes.owner_of("shop.example.com", uri);
            assert_eq!(found, Ok(Some(&1)), "{uri}");
        }
    }

    #[test]
    fn a_room_owns_what_some_server_takes_for_its_path() {
        let mut routes = Routes::new();
        routes.add("example.com", "/zero", PrefixMatch::Segments, 1);
        for uri in [
            "/zero%2Fa",
            "/%2Fzero/a",
            "/x/..%2fzero/a",
            "/x%2f..%2fzero/a",
            "/x%2F%2e%2E%2Fzero",
            "/zero;x=1",
            "/;x=1/zero",
            "/x/..;/zero",
            "/x/..;y=1/zero?a=b",
            "/zero%5Ca",
            "/zero\\a",
            "\\zero",
            "/x\\..\\zero",
            "/x/%2e%2e%5czero",
            // In the room as received.
            "/zero/..%2f..%2fx",
            "/zero/..;/x",
            // Decoded, but with parameters kept.
            "/q%2f..%2fzero/;x%2f..%2fa",
            // Parameters cut before anything is decoded.
            "/zero;%2f..%2f../a",
            // Some of the slashes only.
            "/q\\%2f..%2fzero/a",
        ] {
            assert_eq!(routes.owner_of("example.com", uri), Ok(Some(&1)), "{uri}");
        }
        for uri in [
            "/x%2Fzero",
            "/x;/zero",
            "/zero%20a",
            "/zero%3Bx",
            "/x\\zero",
            "/zerox;a",
        ] {
            assert_eq!(routes.owner_of("example.com", uri), Ok(None), "{uri}");
        }
    }

    #[test]
    fn a_path_of_two_rooms_is_nobodys() {
        let mut routes = Routes::new();
        routes.add("example.com", "/zero", PrefixMatch::Segments, 1);
        routes.add("example.com", "/one", PrefixMatch::Segments, 2);
        routes.add("example.com", "/zero/more", PrefixMatch::Segments, 1);
        for uri in ["/one/..%2fzero", "/zero/..;/one", "/zero\\..\\one/..;/zero"] {
            assert_eq!(routes.owner_of("example.com", uri), Err(Ambiguous), "{uri}");
        }
        // Both readings are the same room's.
        let uri = "/zero/more%2f..%2fa";
        assert_eq!(routes.owner_of("example.com", uri), Ok(Some(&1)));
    }

    #[test]
    fn an_ordinary_path_is_read_in_one_way() {
        for path in ["/", "/shop/a", "/%73hop/../x", "/a%20b", "//", "/a%252Fb"] {
            assert_eq!(Readings::of(path).others().count(), 0, "{path}");
        }
        for path in ["/", "/shop/a.b", "/shop/"] {
            assert!(matches!(normal(path), Cow::Borrowed(_)), "{path}");
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

        #[test]
        fn every_reading_is_normal(path in "(/|\\.\\.|%2e|%2F|%5c|\\\\|;|%|a|é){0,16}") {
            for read in Readings::of(&path).others() {
                prop_assert_eq!(resolved(&read), read);
            }
        }
    }
}
