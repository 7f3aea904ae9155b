//! What a request over HTTP/2 says, held to the same rules as one over HTTP/1.1.

use h2::ext::Protocol;
use http::HeaderMap;
use http::request::Parts;
use http::uri::PathAndQuery;

use crate::http::client::RequestFields;
use crate::http1::{
    self, BodyLength, FieldName, FramingFault, HeadFault, HeadLimits, Method, RequestFault,
};

/// A request head that is refused, and what it asked for as far as that is known.
#[derive(Debug)]
pub(super) struct Malformed {
    pub(super) fault: RequestFault,
    pub(super) method: http::Method,
    pub(super) uri: http::Uri,
}

/// A request head that was checked.
#[derive(Debug)]
pub(super) struct Head {
    parts: Parts,
    pub(super) fields: Received,
    pub(super) checked: Checked,
}

impl Head {
    /// Checks `parts`; `ends` when no body follows.
    pub(super) fn read(
        mut parts: Parts,
        ends: bool,
        limits: &HeadLimits,
    ) -> Result<Head, Box<Malformed>> {
        let fields = Received::new(std::mem::take(&mut parts.headers));
        match Checked::of(&parts, &fields.map, ends, limits) {
            Ok(checked) => Ok(Head {
                parts,
                fields,
                checked,
            }),
            Err(fault) => Err(Box::new(Malformed {
                fault,
                method: parts.method,
                uri: parts.uri,
            })),
        }
    }
    /// As the endpoint and the log are told.
    pub(super) fn method_name(&self) -> &str {
        if self.checked.websocket {
            "GET"
        } else {
            self.parts.method.as_str()
        }
    }

    /// Path and query, or `*`.
    pub(super) fn uri(&self) -> &str {
        let path = self.parts.uri.path_and_query();
        path.map_or("*", PathAndQuery::as_str)
    }

    /// Whom the request is for, as the client said it.
    pub(super) fn authority(&self) -> &[u8] {
        authority(&self.parts.uri, &self.fields.map).unwrap_or_default()
    }
}

/// What a request head says, once it was checked.
#[derive(Debug)]
pub(super) struct Checked {
    pub(super) method: Method,
    /// Lower case, without port and final dot.
    pub(super) host: String,
    pub(super) body: BodyLength,
    pub(super) expects: bool,
    /// An extended CONNECT (RFC 8441). Everywhere else it is the GET that it is over HTTP/1.1.
    pub(super) websocket: bool,
}

impl Checked {
    fn of(
        parts: &Parts,
        map: &HeaderMap,
        ends: bool,
        limits: &HeadLimits,
    ) -> Result<Checked, RequestFault> {
        if map.len() > limits.fields {
            return Err(HeadFault::TooManyFields.into());
        }
        let websocket = match parts.extensions.get::<Protocol>() {
            Some(protocol) if protocol.as_str().eq_ignore_ascii_case("websocket") => true,
            Some(_) => return Err(RequestFault::Target),
            None => false,
        };
        let method = match websocket {
            true => Method::Get,
            false => Method::of(parts.method.as_str().as_bytes()),
        };
        let authority = authority(&parts.uri, map)?;
        let host = http1::host_of(authority).ok_or(RequestFault::HostMalformed)?;
        // ASCII, as the check saw to.
        let host = std::str::from_utf8(host).unwrap_or_default();
        let host = host.strip_suffix('.').unwrap_or(host).to_ascii_lowercase();
        let uri = match parts.uri.path_and_query().map(PathAndQuery::as_str) {
            // Refused by its method, whatever it asks for.
            None if method == Method::Connect => "*",
            None | Some("") => return Err(RequestFault::Target),
            Some(uri) => uri,
        };
        if uri.len() > limits.target_bytes {
            return Err(RequestFault::TargetTooLong);
        }
        // The same as in a request line; `h2` takes more than we would pass on.
        let visible = uri
            .bytes()
            .all(|byte| (0x21..=0x7e).contains(&byte) && byte != b'#');
        let form = uri.starts_with('/')
            || (uri == "*" && matches!(method, Method::Options | Method::Connect));
        if !visible || !form {
            return Err(RequestFault::Target);
        }
        let expects = match map
            .get("expect")
            .map(|value| value.as_bytes().eq_ignore_ascii_case(b"100-continue"))
        {
            Some(false) => return Err(RequestFault::Expectation),
            expects => expects.is_some(),
        };
        let body = if websocket {
            BodyLength::Empty
        } else {
            body(map, ends)?
        };
        Ok(Checked {
            method,
            host,
            body,
            expects,
            websocket,
        })
    }
}

/// Whom the request is for. `:authority` and `Host` may both be there, and then agree.
fn authority<'a>(uri: &'a http::Uri, map: &'a HeaderMap) -> Result<&'a [u8], RequestFault> {
    let mut hosts = map.get_all("host").iter();
    let host = hosts.next().map(http::HeaderValue::as_bytes);
    if hosts.next().is_some() {
        return Err(RequestFault::HostRepeated);
    }
    let authority = uri
        .authority()
        .map(|authority| authority.as_str().as_bytes());
    match (authority, host) {
        (None, None) => Err(RequestFault::HostMissing),
        (Some(authority), Some(host)) if !authority.eq_ignore_ascii_case(host) => {
            Err(RequestFault::HostContradicts)
        }
        (Some(found), _) | (None, Some(found)) => Ok(found),
    }
}

/// How the body is announced to an endpoint that speaks HTTP/1.1.
fn body(map: &HeaderMap, ends: bool) -> Result<BodyLength, RequestFault> {
    let mut lengths = map.get_all("content-length").iter();
    let length = lengths.next().map(http::HeaderValue::as_bytes);
    if lengths.next().is_some() {
        return Err(FramingFault::ClRepeated.into());
    }
    match length {
        None if ends => Ok(BodyLength::Empty),
        None => Ok(BodyLength::Chunked),
        Some(digits) if !digits.is_empty() && digits.iter().all(u8::is_ascii_digit) => {
            let number = std::str::from_utf8(digits)
                .ok()
                .and_then(|digits| digits.parse().ok());
            number
                .map(BodyLength::Exactly)
                .ok_or_else(|| FramingFault::ClMalformed.into())
        }
        Some(_) => Err(FramingFault::ClMalformed.into()),
    }
}

/// The fields of a request.
#[derive(Debug)]
pub(super) struct Received {
    map: HeaderMap,
    /// The cookies in one line, when they came in several: HTTP/1.1 allows one.
    cookie: Option<Vec<u8>>,
}

impl Received {
    fn new(map: HeaderMap) -> Received {
        let mut lines = map.get_all("cookie").iter();
        let several = lines.next().and(lines.next()).is_some();
        let cookie = several.then(|| {
            let lines = map.get_all("cookie").iter();
            let lines: Vec<&[u8]> = lines.map(http::HeaderValue::as_bytes).collect();
            lines.join(&b"; "[..])
        });
        Received { map, cookie }
    }
}

impl RequestFields for Received {
    fn all(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.map
            .iter()
            .map(|(name, value)| (name.as_str().as_bytes(), value.as_bytes()))
    }

    fn forwarded(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        let joined = self.cookie.is_some();
        let kept = move |name: &[u8]| !(joined && FieldName::of(name) == FieldName::Cookie);
        let fields = self
            .all()
            .filter(move |(name, _)| http1::is_forwarded(name) && kept(name));
        fields.chain(
            self.cookie
                .iter()
                .map(|cookie| (&b"cookie"[..], cookie.as_slice())),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(uri: &str, fields: &[(&str, &str)], ends: bool) -> Result<Head, RequestFault> {
        let mut builder = http::Request::builder().uri(uri);
        for (name, value) in fields {
            builder = builder.header(*name, *value);
        }
        let limits = HeadLimits {
            head_bytes: 1024,
            fields: 5,
            target_bytes: 30,
        };
        Head::read(
            builder.body(()).expect("a request").into_parts().0,
            ends,
            &limits,
        )
        .map_err(|malformed| malformed.fault)
    }

    #[test]
    fn whom_it_is_for() {
        let head = read("https://Shop.Example.com.:8443/a?b", &[], true).expect("fine");
        assert_eq!(
            (&*head.checked.host, head.uri()),
            ("shop.example.com", "/a?b")
        );
        assert_eq!(head.authority(), b"Shop.Example.com.:8443");
        let head = read("/a", &[("host", "example.com")], true).expect("fine");
        assert_eq!(head.checked.host, "example.com");
        assert!(read("https://a.example/", &[("host", "A.example")], true).is_ok());
        let faults = [
            (read("/a", &[], true), RequestFault::HostMissing),
            (
                read("/a", &[("host", "a"), ("host", "a")], true),
                RequestFault::HostRepeated,
            ),
            (
                read("https://a.example/", &[("host", "b.example")], true),
                RequestFault::HostContradicts,
            ),
            (
                read("https://user@a.example/", &[], true),
                RequestFault::HostMalformed,
            ),
            (
                read("/", &[("host", "user@a.example")], true),
                RequestFault::HostMalformed,
            ),
        ];
        for (found, expected) in faults {
            assert_eq!(found.expect_err("refused"), expected);
        }
    }

    #[test]
    fn limits_and_targets() {
        let host = ("host", "a");
        let many = [host, ("a", ""), ("b", ""), ("c", ""), ("d", ""), ("e", "")];
        let long = format!("/{}", "x".repeat(30));
        let faults = [
            (
                read("/", &many, true),
                RequestFault::Head(HeadFault::TooManyFields),
            ),
            (read(&long, &[host], true), RequestFault::TargetTooLong),
            (read("*", &[host], true), RequestFault::Target),
            (
                read("/", &[host, ("expect", "a-miracle")], true),
                RequestFault::Expectation,
            ),
        ];
        for (found, expected) in faults {
            assert_eq!(found.expect_err("refused"), expected);
        }
        assert!(read("/", &many[..5], true).is_ok());
        assert!(read(&long[..30], &[host], true).is_ok());
    }

    #[test]
    fn how_the_body_is_announced() {
        let host = ("host", "a");
        let of = |fields: &[_], ends| {
            read("/", &[&[host], fields].concat(), ends).map(|head| head.checked.body)
        };
        assert_eq!(of(&[], true), Ok(BodyLength::Empty));
        assert_eq!(of(&[], false), Ok(BodyLength::Chunked));
        assert_eq!(
            of(&[("content-length", "7")], false),
            Ok(BodyLength::Exactly(7))
        );
        for bad in ["", "+7", "7 ", "0x7", "99999999999999999999"] {
            let fault = of(&[("content-length", bad)], false).expect_err("refused");
            assert_eq!(
                fault,
                RequestFault::Framing(FramingFault::ClMalformed),
                "{bad}"
            );
        }
        let twice = [("content-length", "7"), ("content-length", "7")];
        assert_eq!(
            of(&twice, false),
            Err(RequestFault::Framing(FramingFault::ClRepeated))
        );
    }

    #[test]
    fn what_goes_on_to_the_endpoint() {
        let fields = [
            ("host", "a"),
            ("te", "trailers"),
            ("cookie", "a=1"),
            ("x", "y"),
            ("cookie", "b=2"),
        ];
        let head = read("/", &fields, true).expect("fine");
        let forwarded: Vec<_> = head.fields.forwarded().collect();
        assert_eq!(
            forwarded,
            [(&b"x"[..], &b"y"[..]), (b"cookie", b"a=1; b=2")]
        );
    }
}
