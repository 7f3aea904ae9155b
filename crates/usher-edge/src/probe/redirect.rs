//! Where a `Location` leads.

use http::Uri;
use http::uri::PathAndQuery;

/// A place that can be asked for over HTTP.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Place {
    /// Over TLS or in the clear.
    pub(super) https: bool,
    /// Host, lower case, an IPv6 address without brackets.
    pub(super) host: String,
    /// The port, if it was written.
    pub(super) port: Option<u16>,
    /// Path and query.
    pub(super) path: PathAndQuery,
}

impl Place {
    /// Reads `authority` (`host`, `host:port`, `[address]:port`); no userinfo, no empty host.
    pub(super) fn new(https: bool, authority: &str, path: PathAndQuery) -> Option<Place> {
        let authority: http::uri::Authority = authority.parse().ok()?;
        let host = authority
            .host()
            .trim_start_matches('[')
            .trim_end_matches(']');
        let port = match authority
            .as_str()
            .rsplit_once(']')
            .map_or(authority.as_str(), |rest| rest.1)
        {
            text if text.contains(':') => Some(authority.port_u16()?),
            _ => None,
        };
        let sound = !host.is_empty() && !authority.as_str().contains('@');
        sound.then(|| Place {
            https,
            host: host.to_ascii_lowercase(),
            port,
            path,
        })
    }

    /// The text for a `Host` header.
    pub(super) fn authority(&self) -> String {
        let host = match self.host.contains(':') {
            true => format!("[{}]", self.host),
            false => self.host.clone(),
        };
        match self.port {
            Some(port) => format!("{host}:{port}"),
            None => host,
        }
    }

    /// The place that `location` means in a response from here (RFC 3986, 5.2). `None`: it is not
    /// a valid reference, or not one to HTTP.
    pub(super) fn follow(&self, location: &str) -> Option<Place> {
        let reference = location.split('#').next().unwrap_or_default();
        if let Some(rest) = reference.strip_prefix("//") {
            return absolute(self.https, rest);
        }
        if let Some((scheme, rest)) = split_scheme(reference) {
            let https = scheme.eq_ignore_ascii_case("https");
            let http = scheme.eq_ignore_ascii_case("http");
            return absolute(https, rest.strip_prefix("//").filter(|_| http || https)?);
        }
        let here = self.path.path();
        let (path, query) = match reference.split_once('?') {
            Some((path, query)) => (path, Some(query)),
            None => (reference, None),
        };
        let (path, query) = match path {
            "" => (here.to_owned(), query.or(self.path.query())),
            _ if path.starts_with('/') => (without_dots(path), query),
            _ => {
                let folder = here.rfind('/').map_or("/", |end| &here[..=end]);
                (without_dots(&format!("{folder}{path}")), query)
            }
        };
        let path = match query {
            Some(query) => format!("{path}?{query}").parse().ok()?,
            None => path.parse().ok()?,
        };
        Some(Place {
            path,
            ..self.clone()
        })
    }
}

/// Reads what stands behind `http://`.
fn absolute(https: bool, rest: &str) -> Option<Place> {
    let uri: Uri = format!("http://{rest}").parse().ok()?;
    let parts = uri.into_parts();
    let path = parts.path_and_query?;
    let resolved = without_dots(path.path());
    let path = match path.query() {
        Some(query) => format!("{resolved}?{query}").parse().ok()?,
        None => resolved.parse().ok()?,
    };
    Place::new(https, parts.authority?.as_str(), path)
}

fn split_scheme(reference: &str) -> Option<(&str, &str)> {
    let (scheme, rest) = reference.split_once(':')?;
    let mut letters = scheme.bytes();
    let first = letters.next()?.is_ascii_alphabetic();
    let others = letters.all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte));
    (first && others).then_some((scheme, rest))
}

/// Takes `.` and `..` out of a path that begins with `/`.
fn without_dots(path: &str) -> String {
    let mut kept = Vec::new();
    let mut segments = path.split('/').skip(1).peekable();
    while let Some(segment) = segments.next() {
        let last = segments.peek().is_none();
        match segment {
            "." | ".." => {
                if segment == ".." {
                    kept.pop();
                }
                if last {
                    kept.push("");
                }
            }
            _ => kept.push(segment),
        }
    }
    format!("/{}", kept.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references() {
        let cases = [
            ("/x", "http shop.example.com:81/x"),
            ("/x?y=/../z", "http shop.example.com:81/x?y=/../z"),
            ("?y", "http shop.example.com:81/a/b?y"),
            ("", "http shop.example.com:81/a/b?q"),
            ("#top", "http shop.example.com:81/a/b?q"),
            ("c", "http shop.example.com:81/a/c"),
            ("./c/", "http shop.example.com:81/a/c/"),
            ("../c", "http shop.example.com:81/c"),
            ("../../../c", "http shop.example.com:81/c"),
            ("..", "http shop.example.com:81/"),
            ("c:d", ""),
            ("//www.example.com/x", "http www.example.com/x"),
            ("HTTPS://WWW.example.com", "https www.example.com/"),
            ("https://www.example.com?x", "https www.example.com/?x"),
            (
                "https://www.example.com:8443/a/../b#c",
                "https www.example.com:8443/b",
            ),
            ("http://[2001:db8::1]:8080/", "http [2001:db8::1]:8080/"),
            ("ftp://www.example.com/", ""),
            ("https:/www.example.com/", ""),
            ("https:///x", ""),
            ("https://user@www.example.com/", ""),
            ("https://www.example.com:99999/", ""),
            ("https://www.example.com:/", ""),
            ("/with space", ""),
            ("/tab\there", ""),
        ];
        let here = place("shop.example.com:81", "/a/b?q");
        for (location, expected) in cases {
            let found = here.follow(location).map_or(String::new(), |place| {
                let scheme = if place.https { "https" } else { "http" };
                format!("{scheme} {}{}", place.authority(), place.path)
            });
            assert_eq!(found, expected, "{location:?}");
        }
    }

    #[test]
    fn hosts() {
        let shop = place("Shop.example.com", "/");
        assert_eq!((shop.host.as_str(), shop.port), ("shop.example.com", None));
        let six = place("[::1]:8080", "/");
        assert_eq!((six.host.as_str(), six.port), ("::1", Some(8080)));
        assert_eq!(place("[::1]", "/").authority(), "[::1]");
        for authority in [
            "",
            "a b",
            "user@shop.example.com",
            "shop.example.com:x",
            ":80",
        ] {
            let path = PathAndQuery::from_static("/");
            assert_eq!(Place::new(false, authority, path), None, "{authority}");
        }
    }

    fn place(authority: &str, path: &'static str) -> Place {
        Place::new(false, authority, PathAndQuery::from_static(path)).expect("a place")
    }
}
