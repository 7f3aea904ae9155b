//! Heads of requests.

use std::ops::Range;

use memchr::{memchr, memrchr};

use super::field::{is_token, list_items, only};
use super::framing::{Announced, announced};
use super::scan::{EMPTY_LINES_MAX, Scan, Step, tokenise};
use super::target::{authority, target};
use super::{
    BodyLength, FieldName, Fields, HeadFault, HeadLimits, Parsed, RequestFault, Span, Version,
};

/// Longest method taken; the longest registered one has 17 letters.
const METHOD_LEN_MAX: usize = 32;

/// A method, as far as it matters here. Methods are case-sensitive.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[allow(missing_docs)] // each is the method of that name
pub enum Method {
    #[default]
    Get,
    Head,
    Post,
    Put,
    Patch,
    Delete,
    Options,
    /// Recognised so that the front can refuse it.
    Connect,
    /// Recognised so that the front can refuse it.
    Trace,
    /// Any other token; its spelling is in [`RequestHead::method_name`].
    Other,
}

impl Method {
    /// The method that `name` spells.
    pub fn of(name: &[u8]) -> Method {
        match name {
            b"GET" => Method::Get,
            b"HEAD" => Method::Head,
            b"POST" => Method::Post,
            b"PUT" => Method::Put,
            b"PATCH" => Method::Patch,
            b"DELETE" => Method::Delete,
            b"OPTIONS" => Method::Options,
            b"CONNECT" => Method::Connect,
            b"TRACE" => Method::Trace,
            _ => Method::Other,
        }
    }

    /// Whether doing it twice is doing it once (RFC 9110 9.2.2). Unknown methods are not.
    pub fn is_idempotent(self) -> bool {
        match self {
            Method::Get
            | Method::Head
            | Method::Put
            | Method::Delete
            | Method::Options
            | Method::Trace => true,
            Method::Post | Method::Patch | Method::Connect | Method::Other => false,
        }
    }
}

/// The form of a target (RFC 9112 3.2).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Form {
    /// `/path?query`.
    #[default]
    Origin,
    /// `http://example.com/path`.
    Absolute,
    /// `example.com:443`, with `CONNECT` only.
    Authority,
    /// `*`, with `OPTIONS` only.
    Asterisk,
}

/// The head of a request. Make one a connection and parse every request into it: it keeps its
/// memory, and between two calls that answered [`Parsed::Partial`] how far it has read.
#[derive(Debug, Clone, Default)]
pub struct RequestHead {
    scan: Scan,
    /// Bytes of the head, empty lines before it included.
    pub len: usize,
    /// Which method.
    pub method: Method,
    /// Its spelling.
    pub method_name: Span,
    /// The target as received.
    pub target: Span,
    /// The form of the target.
    pub form: Form,
    path: Span,
    /// The version.
    pub version: Version,
    /// Every field.
    pub fields: Fields,
    /// Whom the request is for, as received and with its port: from `Host`, which agrees with the
    /// target where both name it. Empty only in HTTP/1.0.
    pub authority: Span,
    /// The host in it, as received, without port; an IPv6 address keeps its brackets.
    pub host: Span,
    /// The port in it.
    pub port: Option<u16>,
    /// How the body ends. Never [`BodyLength::UntilClose`].
    pub body: BodyLength,
    /// Whether the client will take another answer on this connection.
    pub keep_alive: bool,
    /// `Expect: 100-continue`. Never in HTTP/1.0.
    pub expect_continue: bool,
    /// The value of `Upgrade` when `Connection` asks for it too; HTTP/1.1 only.
    pub upgrade: Option<Span>,
    /// Whether this is the start of a WebSocket: a `GET` without body whose `Upgrade` lists
    /// `websocket`. Only then does the front write `Upgrade` and `Connection: upgrade` again.
    pub websocket: bool,
}

impl RequestHead {
    /// An empty one.
    pub fn new() -> RequestHead {
        RequestHead::default()
    }

    /// Forgets a head that was read in part.
    pub fn reset(&mut self) {
        let mut fields = std::mem::take(&mut self.fields);
        fields.clear();
        *self = RequestHead {
            fields,
            ..RequestHead::default()
        };
    }

    /// Path and query as an endpoint is asked for them: the origin form of the target, or `*`.
    /// `buf` as for [`Span::of`].
    pub fn path<'a>(&self, buf: &'a [u8]) -> &'a [u8] {
        match self.path.of(buf) {
            // RFC 9112 3.2.4: the last proxy turns an absolute target without path into `*`.
            b"" if self.method == Method::Options => b"*",
            b"" => b"/",
            path => path,
        }
    }
}

/// Reads the head of a request from `buf`, which starts where the request does.
///
/// On [`Parsed::Partial`] call it again with the same `head` and a `buf` that has grown; what was
/// scanned is not scanned again. Anything else starts `head` anew with the next call. A fault is
/// found as early as its line is there, and size limits before.
pub fn parse_request(
    buf: &[u8],
    limits: &HeadLimits,
    head: &mut RequestHead,
) -> Result<Parsed, RequestFault> {
    if head.len != 0 {
        head.reset();
    }
    let parsed = parse(buf, limits, head);
    if parsed.is_err() {
        head.reset();
    }
    parsed
}

fn parse(buf: &[u8], limits: &HeadLimits, head: &mut RequestHead) -> Result<Parsed, RequestFault> {
    let len = loop {
        let step = head.scan.step(buf, limits, EMPTY_LINES_MAX);
        if let (Ok(Step::Partial) | Err(_), Some(start)) = (&step, head.scan.start(buf)) {
            // Half of the CRLF is not part of the line.
            check_start(start.strip_suffix(b"\r").unwrap_or(start), limits)?;
            if step == Err(HeadFault::TooLarge) {
                return Err(RequestFault::TargetTooLong);
            }
        }
        match step? {
            Step::Start(line) => request_line(buf, line, limits, head)?,
            Step::Field => {}
            Step::End { len } => break len,
            Step::Partial => return Ok(Parsed::Partial),
        }
    };
    head.len = len;
    tokenise(
        buf,
        head.scan.section()..len,
        head.scan.fields(),
        &mut head.fields,
    )?;
    host(buf, head)?;
    connection(buf, head)?;
    head.body = match announced(&head.fields, buf, head.version)? {
        Announced::Nothing => BodyLength::Empty,
        Announced::Length(length) => BodyLength::Exactly(length),
        Announced::Chunked => BodyLength::Chunked,
    };
    head.websocket = head.method == Method::Get
        && matches!(head.body, BodyLength::Empty | BodyLength::Exactly(0))
        && head.upgrade.is_some_and(|upgrade| {
            list_items(upgrade.of(buf)).any(|protocol| protocol.eq_ignore_ascii_case(b"websocket"))
        });
    Ok(Parsed::Complete)
}

/// What can be said of a request line before its end is there, so that a target without end, or
/// something that is not HTTP at all, does not wait for a deadline. Returns the method's length.
fn check_start(line: &[u8], limits: &HeadLimits) -> Result<usize, RequestFault> {
    let name = &line[..line.len().min(METHOD_LEN_MAX + 1)];
    let method_len = memchr(b' ', name).unwrap_or(name.len());
    if method_len > METHOD_LEN_MAX || !(line.is_empty() || is_token(&name[..method_len])) {
        return Err(RequestFault::Method);
    }
    if line.len() > method_len + 1 + limits.target_bytes + " HTTP/1.1".len() {
        return Err(RequestFault::TargetTooLong);
    }
    Ok(method_len)
}

fn request_line(
    buf: &[u8],
    line: Range<usize>,
    limits: &HeadLimits,
    head: &mut RequestHead,
) -> Result<(), RequestFault> {
    let start = line.start;
    let line = &buf[line];
    let method_len = check_start(line, limits)?;
    head.method = Method::of(&line[..method_len]);
    head.method_name = Span::new(start, start + method_len);

    let rest = line
        .get(method_len + 1..)
        .ok_or(RequestFault::RequestLine)?;
    let Some(target_len) = memrchr(b' ', rest) else {
        let simple = head.method == Method::Get && !rest.is_empty();
        return Err(if simple {
            RequestFault::Http09
        } else {
            RequestFault::RequestLine
        });
    };
    let (wanted, version) = (&rest[..target_len], &rest[target_len + 1..]);
    head.version = match version {
        b"HTTP/1.1" => Version::Http11,
        b"HTTP/1.0" => Version::Http10,
        b"HTTP/2.0" if line == b"PRI * HTTP/2.0" => return Err(RequestFault::Http2Preface),
        [b'H', b'T', b'T', b'P', b'/', major, b'.', minor]
            if major.is_ascii_digit() && minor.is_ascii_digit() =>
        {
            return Err(RequestFault::Version);
        }
        _ => return Err(RequestFault::RequestLine),
    };
    if target_len > limits.target_bytes {
        return Err(RequestFault::TargetTooLong);
    }
    let target = target(wanted, head.method)?;
    let at = start + method_len + 1;
    head.target = Span::new(at, at + target_len);
    head.form = target.form;
    head.path = Span::new(at + target.path, at + target_len);
    Ok(())
}

/// One `Host`, well formed, that agrees with the target.
fn host(buf: &[u8], head: &mut RequestHead) -> Result<(), RequestFault> {
    let mut hosts = head.fields.all(FieldName::Host);
    let named = hosts.next();
    if hosts.next().is_some() {
        return Err(RequestFault::HostRepeated);
    }
    if let Some(field) = named {
        let found = authority(field.value.of(buf)).ok_or(RequestFault::HostMalformed)?;
        head.authority = field.value;
        head.host = field.value.prefix(found.host_len);
        head.port = found.port;
    } else if head.version == Version::Http11 {
        return Err(RequestFault::HostMissing);
    }
    if matches!(head.form, Form::Origin | Form::Asterisk) {
        return Ok(());
    }
    // RFC 9112 3.2.2 lets the target win over a Host that differs. Whoever reads the Host
    // alone would then serve another site, so the two must agree.
    let whole = head.target.of(buf);
    let wanted = target(whole, head.method)?;
    let (start, end) = wanted.authority;
    let found = authority(&whole[start..end]).ok_or(RequestFault::Target)?;
    let host = &whole[start..start + found.host_len];
    if named.is_none() {
        let at = head.target.start as usize + start;
        head.authority = Span::new(at, at + end - start);
        head.host = head.authority.prefix(found.host_len);
        head.port = found.port;
    } else if !host.eq_ignore_ascii_case(head.host.of(buf))
        || found.port.unwrap_or(wanted.port) != head.port.unwrap_or(wanted.port)
    {
        return Err(RequestFault::HostContradicts);
    }
    Ok(())
}

/// `Connection`, and the fields that depend on it.
fn connection(buf: &[u8], head: &mut RequestHead) -> Result<(), RequestFault> {
    let options = head.fields.connection(buf);
    if options.malformed || options.too_many {
        return Err(RequestFault::Connection);
    }
    if options.nominates_protected {
        return Err(RequestFault::ConnectionNominates);
    }
    let modern = head.version == Version::Http11;
    head.keep_alive = !options.close && (modern || options.keep_alive);
    head.upgrade = only(head.fields.all(FieldName::Upgrade))
        .filter(|_| modern && options.upgrade)
        .map(|field| field.value);
    if !modern {
        // RFC 9110 10.1.1: a client of 1.0 cannot mean it, and what is sent on is 1.1.
        head.fields.withhold(FieldName::Expect);
        return Ok(());
    }
    let mut expectations = head.fields.all(FieldName::Expect);
    head.expect_continue = match (expectations.next(), expectations.next()) {
        (None, _) => false,
        (Some(field), None) if field.value.of(buf).eq_ignore_ascii_case(b"100-continue") => true,
        _ => return Err(RequestFault::Expectation),
    };
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http1::FramingFault;

    const HOST: &str = "Host: example.com\r\n";

    #[test]
    fn a_plain_request_is_taken_apart() {
        let (buf, head) = accepted(
            "GET /a?b=c HTTP/1.1\r\nHost: Example.com:8080\r\nX-Empty:\r\nX-A: \t b c \r\n\r\nrest",
        );
        assert_eq!(head.len, buf.len() - 4);
        assert_eq!(head.method, Method::Get);
        assert_eq!(head.method_name.of(&buf), b"GET");
        assert_eq!(head.target.of(&buf), b"/a?b=c");
        assert_eq!(head.path(&buf), b"/a?b=c");
        assert_eq!(head.version, Version::Http11);
        assert_eq!(head.authority.of(&buf), b"Example.com:8080");
        assert_eq!(head.host.of(&buf), b"Example.com");
        assert_eq!(head.port, Some(8080));
        assert_eq!(head.fields.value(&buf, b"x-empty"), Some(&b""[..]));
        assert_eq!(head.fields.value(&buf, b"x-a"), Some(&b"b c"[..]));
        assert_eq!(head.body, BodyLength::Empty);
        assert!(head.keep_alive);
        assert!(!head.websocket && !head.expect_continue && head.upgrade.is_none());
    }

    #[test]
    fn framing_is_read_in_one_way_only() {
        use FramingFault::*;
        let body = |fields: &str| {
            accepted(&format!("POST / HTTP/1.1\r\n{HOST}{fields}\r\n"))
                .1
                .body
        };
        assert_eq!(body("Content-Length: 5\r\n"), BodyLength::Exactly(5));
        assert_eq!(body("Content-Length: 0\r\n"), BodyLength::Exactly(0));
        assert_eq!(
            body("content-length:18446744073709551615\r\n"),
            BodyLength::Exactly(u64::MAX)
        );
        assert_eq!(body("Transfer-Encoding: chunked\r\n"), BodyLength::Chunked);
        assert_eq!(
            body("transfer-encoding:\tCHUNKED \r\n"),
            BodyLength::Chunked
        );
        // Another name, which is not passed on either.
        assert_eq!(body("Transfer_Encoding: chunked\r\n"), BodyLength::Empty);

        for (fields, fault) in [
            (
                "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n",
                TeWithCl,
            ),
            (
                "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n",
                TeWithCl,
            ),
            (
                "Transfer-Encoding: xchunked\r\nContent-Length: x\r\n",
                TeWithCl,
            ),
            ("Transfer-Encoding: chunked, identity\r\n", TeUnsupported),
            ("Transfer-Encoding: identity, chunked\r\n", TeUnsupported),
            ("Transfer-Encoding: gzip, chunked\r\n", TeUnsupported),
            ("Transfer-Encoding: chunked, chunked\r\n", TeUnsupported),
            (
                "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
                TeUnsupported,
            ),
            (
                "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n",
                TeUnsupported,
            ),
            (
                "Transfer-Encoding: \r\nTransfer-Encoding: chunked\r\n",
                TeUnsupported,
            ),
            ("Transfer-Encoding:\r\n", TeUnsupported),
            ("Transfer-Encoding: identity\r\n", TeUnsupported),
            ("Transfer-Encoding: xchunked\r\n", TeUnsupported),
            ("Transfer-Encoding: chunkedx\r\n", TeUnsupported),
            ("Transfer-Encoding: chunked;q=1\r\n", TeUnsupported),
            ("Transfer-Encoding: \"chunked\"\r\n", TeUnsupported),
            ("Transfer-Encoding: chunked,\r\n", TeUnsupported),
            ("Transfer-Encoding: ,chunked\r\n", TeUnsupported),
            ("Transfer-Encoding: \u{85}chunked\r\n", TeUnsupported),
            ("Content-Length: 5\r\nContent-Length: 5\r\n", ClRepeated),
            ("Content-Length: 5\r\nContent-Length: 6\r\n", ClRepeated),
            ("Content-Length: 5, 5\r\n", ClMalformed),
            ("Content-Length: +5\r\n", ClMalformed),
            ("Content-Length: -5\r\n", ClMalformed),
            ("Content-Length: 5 5\r\n", ClMalformed),
            ("Content-Length: 0x5\r\n", ClMalformed),
            ("Content-Length: 5.0\r\n", ClMalformed),
            ("Content-Length:\r\n", ClMalformed),
            ("Content-Length: five\r\n", ClMalformed),
            ("Content-Length: 18446744073709551616\r\n", ClMalformed),
            (
                "Content-Length: 99999999999999999999999999\r\n",
                ClMalformed,
            ),
        ] {
            refused(
                &format!("POST / HTTP/1.1\r\n{HOST}{fields}\r\n"),
                fault.into(),
            );
        }
        refused(
            "POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n",
            TeInHttp10.into(),
        );
        refused(
            &format!("POST / HTTP/1.1\r\n{HOST}Transfer-Encoding: chunked\x0b\r\n\r\n"),
            HeadFault::FieldValue.into(),
        );
    }

    #[test]
    fn a_host_is_one_and_well_formed() {
        for (field, host, port) in [
            ("example.com", "example.com", None),
            ("example.com.", "example.com.", None),
            ("example.com:", "example.com", None),
            ("example.com:443", "example.com", Some(443)),
            ("a_b.example", "a_b.example", None),
            ("192.0.2.1:80", "192.0.2.1", Some(80)),
            ("[2001:db8::1]", "[2001:db8::1]", None),
            ("[2001:db8::1]:8443", "[2001:db8::1]", Some(8443)),
        ] {
            let (buf, head) = accepted(&format!("GET / HTTP/1.1\r\nHost: {field}\r\n\r\n"));
            assert_eq!((head.host.of(&buf), head.port), (host.as_bytes(), port));
        }
        for field in [
            "",
            " ",
            "a b",
            "a,b",
            "a/b",
            "a@b",
            "user:pw@a",
            "a?b",
            "a#b",
            "a\\b",
            "a%41",
            "a:b",
            "a:80:80",
            "a:65536",
            "a:+80",
            "a: 80",
            ":80",
            "[::1",
            "[::1]x",
            "[::1]:x",
            "[fe80::1%25eth0]",
            "[]",
            "::1",
            "\u{e9}.example",
            &"a".repeat(256),
        ] {
            refused(
                &format!("GET / HTTP/1.1\r\nHost: {field}\r\n\r\n"),
                RequestFault::HostMalformed,
            );
        }
        refused("GET / HTTP/1.1\r\n\r\n", RequestFault::HostMissing);
        refused(
            "GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n",
            RequestFault::HostRepeated,
        );
        refused(
            "GET / HTTP/1.0\r\nHost: a\r\nhost: b\r\n\r\n",
            RequestFault::HostRepeated,
        );
        refused(
            "GET / HTTP/1.1\r\nHost : a\r\n\r\n",
            HeadFault::FieldName.into(),
        );
        assert!(accepted("GET / HTTP/1.0\r\n\r\n").1.host.is_empty());
    }

    #[test]
    fn a_target_has_a_form_that_its_method_allows() {
        for (line, form, path) in [
            ("GET / HTTP/1.1", Form::Origin, "/"),
            ("GET //a/../b?c?d HTTP/1.1", Form::Origin, "//a/../b?c?d"),
            ("GET http://example.com HTTP/1.1", Form::Absolute, "/"),
            (
                "GET HTTP://EXAMPLE.com/a?b HTTP/1.1",
                Form::Absolute,
                "/a?b",
            ),
            ("GET http://example.com:80/ HTTP/1.1", Form::Absolute, "/"),
            ("GET http://example.com:/ HTTP/1.1", Form::Absolute, "/"),
            ("OPTIONS http://example.com HTTP/1.1", Form::Absolute, "*"),
            ("OPTIONS http://example.com/ HTTP/1.1", Form::Absolute, "/"),
            ("OPTIONS * HTTP/1.1", Form::Asterisk, "*"),
            ("TRACE / HTTP/1.1", Form::Origin, "/"),
        ] {
            let (buf, head) = accepted(&format!("{line}\r\n{HOST}\r\n"));
            assert_eq!(
                (head.form, head.path(&buf)),
                (form, path.as_bytes()),
                "{line}"
            );
            assert_eq!(head.host.of(&buf), b"example.com");
        }
        for line in [
            "GET * HTTP/1.1",
            "GET a HTTP/1.1",
            "GET example.com HTTP/1.1",
            "GET ?a HTTP/1.1",
            "GET /a#b HTTP/1.1",
            "GET /a b HTTP/1.1",
            "GET /\u{7f} HTTP/1.1",
            "GET /\u{e9} HTTP/1.1",
            "GET /\0 HTTP/1.1",
            "GET /\t HTTP/1.1",
            "GET  / HTTP/1.1",
            "GET ftp://example.com/ HTTP/1.1",
            "GET http:// HTTP/1.1",
            "GET http:///a HTTP/1.1",
            "GET http://user@example.com/ HTTP/1.1",
            "GET http://example.com?a HTTP/1.1",
            "OPTIONS ** HTTP/1.1",
            "CONNECT / HTTP/1.1",
            "CONNECT example.com HTTP/1.1",
            "CONNECT http://example.com:443 HTTP/1.1",
        ] {
            refused(&format!("{line}\r\n{HOST}\r\n"), RequestFault::Target);
        }
        for line in [
            "GET http://example.org/ HTTP/1.1",
            "GET http://example.com:81/ HTTP/1.1",
            "GET https://example.com.evil.example/ HTTP/1.1",
            "CONNECT example.org:443 HTTP/1.1",
        ] {
            refused(
                &format!("{line}\r\n{HOST}\r\n"),
                RequestFault::HostContradicts,
            );
        }
        refused(
            "GET http://example.com/ HTTP/1.1\r\n\r\n",
            RequestFault::HostMissing,
        );
        refused(
            "GET https://example.com/ HTTP/1.1\r\nHost: example.com:80\r\n\r\n",
            RequestFault::HostContradicts,
        );

        let (buf, head) = accepted("GET http://example.com:81/ HTTP/1.0\r\n\r\n");
        assert_eq!(
            (head.authority.of(&buf), head.host.of(&buf), head.port),
            (&b"example.com:81"[..], &b"example.com"[..], Some(81))
        );
        let (buf, head) =
            accepted("CONNECT example.com:443 HTTP/1.1\r\nHost: example.com:443\r\n\r\n");
        assert_eq!(
            (head.method, head.form, head.target.of(&buf)),
            (Method::Connect, Form::Authority, &b"example.com:443"[..])
        );
    }

    #[test]
    fn a_request_line_has_three_parts() {
        use RequestFault::*;
        for (line, fault) in [
            ("GET /", Http09),
            ("GET /a", Http09),
            ("POST /", RequestLine),
            ("GET", RequestLine),
            ("GET ", RequestLine),
            ("GET / ", RequestLine),
            ("GET / HTTP/1.1 ", RequestLine),
            ("GET / http/1.1", RequestLine),
            ("GET / HTTP/1.10", RequestLine),
            ("GET / HTTP/01.1", RequestLine),
            ("GET / HTTP/1", RequestLine),
            ("GET / HTTP/1,1", RequestLine),
            ("GET / ICY/1.1", RequestLine),
            ("GET / HTTP/2.0", Version),
            ("GET / HTTP/3.0", Version),
            ("GET / HTTP/1.2", Version),
            ("GET / HTTP/0.9", Version),
            ("PRI * HTTP/2.0", Http2Preface),
            ("PRI /* HTTP/2.0", Version),
            (" GET / HTTP/1.1", Method),
            ("G(T / HTTP/1.1", Method),
            ("G\u{e9}T / HTTP/1.1", Method),
            ("\x16\x03\x01\x02", Method),
            ("\tGET / HTTP/1.1", Method),
            ("ABCDEFGHIJKLMNOPQRSTUVWXYZABCDEFG / HTTP/1.1", Method),
        ] {
            refused(&format!("{line}\r\n{HOST}\r\n"), fault);
        }
        let (buf, head) = accepted(&format!("M-SEARCH / HTTP/1.1\r\n{HOST}\r\n"));
        assert_eq!(
            (head.method, head.method_name.of(&buf)),
            (crate::http1::Method::Other, &b"M-SEARCH"[..])
        );
        assert_eq!(
            accepted(&format!("get / HTTP/1.1\r\n{HOST}\r\n")).1.method,
            crate::http1::Method::Other
        );
    }

    #[test]
    fn what_is_no_answer_waits_for_no_end() {
        // The faults show before a line, or the head, is whole.
        let limits = HeadLimits::default();
        for (start, fault) in [
            (b"\x16\x03".to_vec(), RequestFault::Method),
            (b"GET /\r\n".to_vec(), RequestFault::Http09),
            (b"PRI * HTTP/2.0\r\n".to_vec(), RequestFault::Http2Preface),
            (
                [&b"GET /"[..], &[b'a'; 16 * 1024 + 10]].concat(),
                RequestFault::TargetTooLong,
            ),
            (
                [&b"GET / HTTP/1.1\r\nA: "[..], &[b'a'; 64 * 1024]].concat(),
                HeadFault::TooLarge.into(),
            ),
            (
                [&b"GET / HTTP/1.1\r\n"[..], &b"A: b\r\n".repeat(129)].concat(),
                HeadFault::TooManyFields.into(),
            ),
            (
                b"GET / HTTP/1.1\r\nA: b\r\n ".to_vec(),
                HeadFault::ObsFold.into(),
            ),
        ] {
            assert_eq!(
                parse_request(&start, &limits, &mut RequestHead::new()),
                Err(fault)
            );
        }
    }

    #[test]
    fn limits_are_exact() {
        let limits = HeadLimits {
            head_bytes: 100,
            fields: 3,
            target_bytes: 20,
        };
        let of = |text: String| parse_request(text.as_bytes(), &limits, &mut RequestHead::new());
        let target = |len: usize| {
            of(format!(
                "GET /{} HTTP/1.1\r\n{HOST}\r\n",
                "a".repeat(len - 1)
            ))
        };
        assert_eq!(target(20), Ok(Parsed::Complete));
        assert_eq!(target(21), Err(RequestFault::TargetTooLong));
        let fields = |count: usize| {
            of(format!(
                "GET / HTTP/1.1\r\n{HOST}{}\r\n",
                "a:\r\n".repeat(count - 1)
            ))
        };
        assert_eq!(fields(3), Ok(Parsed::Complete));
        assert_eq!(fields(4), Err(HeadFault::TooManyFields.into()));
        let fixed = format!("GET / HTTP/1.1\r\n{HOST}a:\r\n\r\n").len();
        let bytes = |len: usize| {
            of(format!(
                "GET / HTTP/1.1\r\n{HOST}a:{}\r\n\r\n",
                "b".repeat(len - fixed)
            ))
        };
        assert_eq!(bytes(100), Ok(Parsed::Complete));
        assert_eq!(bytes(101), Err(HeadFault::TooLarge.into()));
        assert_eq!(HeadFault::TooLarge.as_str(), "head-too-large");
        assert_eq!(RequestFault::from(HeadFault::TooLarge).status(), Some(431));
        assert_eq!(RequestFault::TargetTooLong.status(), Some(414));

        let many = |count: usize| {
            let limits = HeadLimits {
                fields: 1024,
                ..HeadLimits::default()
            };
            let text = format!(
                "GET / HTTP/1.1\r\n{HOST}{}\r\n",
                "a: b\r\n".repeat(count - 1)
            );
            parse_request(text.as_bytes(), &limits, &mut RequestHead::new())
        };
        assert_eq!(many(33), Ok(Parsed::Complete));
        assert_eq!(many(1024), Ok(Parsed::Complete));
        assert_eq!(many(1025), Err(HeadFault::TooManyFields.into()));
    }

    #[test]
    fn lines_and_fields_have_one_shape() {
        use HeadFault::*;
        for (text, fault) in [
            ("GET / HTTP/1.1\nHost: a\r\n\r\n", BareLf),
            ("GET / HTTP/1.1\r\nHost: a\n\r\n", BareLf),
            ("GET / HTTP/1.1\r\nHost: a\r\n\n", BareLf),
            ("\nGET / HTTP/1.1\r\nHost: a\r\n\r\n", BareLf),
            ("GET / HTTP/1.1\r\nHost: a\r\nA: b\rc\r\n\r\n", FieldValue),
            ("GET / HTTP/1.1\r\nHost: a\r\nA: b\r\r\n\r\n", FieldValue),
            ("GET / HTTP/1.1\r\nHost: a\r\n\rA: b\r\n\r\n", BareCr),
            ("GET / HTTP/1.1\r\nHost: a\r\nA: b\0\r\n\r\n", FieldValue),
            ("GET / HTTP/1.1\r\nHost: a\r\nA: \x08\r\n\r\n", FieldValue),
            ("GET / HTTP/1.1\r\nHost: a\r\nA: \x7f\r\n\r\n", FieldValue),
            ("GET / HTTP/1.1\r\nHost: a\r\nA: b\r\n c\r\n\r\n", ObsFold),
            (
                "GET / HTTP/1.1\r\nHost: a\r\nA: b\r\n\tc: d\r\n\r\n",
                ObsFold,
            ),
            ("GET / HTTP/1.1\r\n Host: a\r\n\r\n", ObsFold),
            ("GET / HTTP/1.1\r\nHost: a\r\nA : b\r\n\r\n", FieldName),
            ("GET / HTTP/1.1\r\nHost: a\r\nA\t: b\r\n\r\n", FieldName),
            ("GET / HTTP/1.1\r\nHost: a\r\n: b\r\n\r\n", FieldName),
            ("GET / HTTP/1.1\r\nHost: a\r\nA\r\n\r\n", FieldName),
            ("GET / HTTP/1.1\r\nHost: a\r\nA B: c\r\n\r\n", FieldName),
            ("GET / HTTP/1.1\r\nHost: a\r\nA\0: c\r\n\r\n", FieldName),
            ("GET / HTTP/1.1\r\nHost: a\r\n\u{c4}: c\r\n\r\n", FieldName),
            ("GET / HTTP/1.1\r\nHost: a\r\n\"A\": c\r\n\r\n", FieldName),
            ("GET / HTTP/1.1\r\nHost: a\r\nA(b): c\r\n\r\n", FieldName),
        ] {
            refused(text, fault.into());
        }
        let (buf, head) = accepted(&format!("GET / HTTP/1.1\r\n{HOST}A: caf\u{e9}\tx\r\n\r\n"));
        assert_eq!(
            head.fields.value(&buf, b"a"),
            Some("caf\u{e9}\tx".as_bytes())
        );
    }

    #[test]
    fn a_few_empty_lines_before_a_request_are_taken() {
        let (buf, head) = accepted(&format!("\r\n\r\n\r\n\r\nGET / HTTP/1.1\r\n{HOST}\r\n"));
        assert_eq!((head.len, head.target.of(&buf)), (buf.len(), &b"/"[..]));
        refused(
            &format!("\r\n\r\n\r\n\r\n\r\nGET / HTTP/1.1\r\n{HOST}\r\n"),
            RequestFault::RequestLine,
        );
    }

    #[test]
    fn connections_are_kept_as_the_version_says() {
        let kept = |version: &str, options: &str| {
            accepted(&format!("GET / HTTP/{version}\r\n{HOST}{options}\r\n"))
                .1
                .keep_alive
        };
        assert!(kept("1.1", ""));
        assert!(kept("1.1", "Connection: keep-alive\r\n"));
        assert!(!kept("1.1", "Connection: close\r\n"));
        assert!(!kept("1.1", "Connection: Keep-Alive, CLOSE\r\n"));
        assert!(!kept(
            "1.1",
            "Connection: keep-alive\r\nConnection: close\r\n"
        ));
        assert!(kept("1.1", "Proxy-Connection: close\r\n"));
        assert!(!kept("1.0", ""));
        assert!(kept("1.0", "Connection: keep-alive\r\n"));
        assert!(!kept("1.0", "Connection: keep-alive, close\r\n"));
        assert!(!kept("1.0", "Keep-Alive: timeout=5\r\n"));
    }

    #[test]
    fn fields_of_this_hop_stay_here() {
        let (buf, head) = accepted(
            "GET / HTTP/1.1\r\nHost: a\r\nConnection: close, X-Secret, TE,, Upgrade\r\nX-Secret: 1\r\nx-secret: 2\r\n\
             TE: trailers\r\nKeep-Alive: 5\r\nProxy-Connection: close\r\nProxy-Authorization: x\r\nTrailer: a\r\n\
             Upgrade: h2c\r\nHTTP2-Settings: x\r\nContent-Length: 0\r\nContent_Length: 1\r\nX_Forwarded_For: 192.0.2.1\r\n\
             X-Forwarded-Port: 1\r\nAccept: */*\r\nCookie: a=b\r\nX-Secret-2: 3\r\nA_B: c\r\n\r\n",
        );
        let kept: Vec<_> = head
            .fields
            .iter()
            .filter(|field| field.forwarded)
            .map(|field| field.name.of(&buf))
            .collect();
        assert_eq!(
            kept,
            [
                &b"X-Forwarded-Port"[..],
                b"Accept",
                b"Cookie",
                b"X-Secret-2",
                b"A_B"
            ]
        );
        assert_eq!(head.upgrade.map(|value| value.of(&buf)), Some(&b"h2c"[..]));
        assert!(!head.websocket);
    }

    #[test]
    fn connection_cannot_take_what_is_meant_for_everyone() {
        for name in [
            "Host",
            "content-length",
            "Authorization",
            "Cookie",
            "X-Forwarded-For",
            "X-Forwarded-Proto",
            "X-Forwarded-Port",
            "Forwarded",
            "CF-Connecting-IP",
            "Cache-Control",
            "Content-Type",
            "Range",
        ] {
            refused(
                &format!("GET / HTTP/1.1\r\n{HOST}Connection: close, {name}\r\n\r\n"),
                RequestFault::ConnectionNominates,
            );
        }
        for options in ["a b", "close;x", "\"close\"", "close\u{85}"] {
            refused(
                &format!("GET / HTTP/1.1\r\n{HOST}Connection: {options}\r\n\r\n"),
                RequestFault::Connection,
            );
        }
        accepted(&format!(
            "GET / HTTP/1.1\r\n{HOST}Connection: {}\r\n\r\n",
            ["a"; 16].join(",")
        ));
        refused(
            &format!(
                "GET / HTTP/1.1\r\n{HOST}Connection: {}\r\n\r\n",
                ["a"; 17].join(",")
            ),
            RequestFault::Connection,
        );
    }

    #[test]
    fn a_websocket_is_asked_for_in_full() {
        let asks = |line: &str, fields: &str| {
            accepted(&format!("{line}\r\n{HOST}{fields}\r\n"))
                .1
                .websocket
        };
        let upgrade = "Connection: keep-alive, Upgrade\r\nUpgrade: WebSocket\r\n";
        assert!(asks("GET / HTTP/1.1", upgrade));
        assert!(asks(
            "GET / HTTP/1.1",
            "Connection: upgrade\r\nUpgrade: foo, websocket\r\n"
        ));
        assert!(!asks("POST / HTTP/1.1", upgrade));
        assert!(!asks("GET / HTTP/1.0", upgrade));
        assert!(!asks("GET / HTTP/1.1", "Upgrade: websocket\r\n"));
        assert!(!asks("GET / HTTP/1.1", "Connection: upgrade\r\n"));
        assert!(!asks(
            "GET / HTTP/1.1",
            "Connection: upgrade\r\nUpgrade: h2c\r\n"
        ));
        assert!(!asks(
            "GET / HTTP/1.1",
            "Connection: upgrade\r\nUpgrade: websocket\r\nUpgrade: h2c\r\n"
        ));
        assert!(!asks(
            "GET / HTTP/1.1",
            &format!("{upgrade}Content-Length: 1\r\n")
        ));
        assert!(!asks(
            "GET / HTTP/1.1",
            &format!("{upgrade}Transfer-Encoding: chunked\r\n")
        ));
    }

    #[test]
    fn only_one_expectation_is_known() {
        let expects = |version: &str, value: &str| {
            accepted(&format!(
                "POST / HTTP/{version}\r\n{HOST}Expect: {value}\r\n\r\n"
            ))
            .1
            .expect_continue
        };
        assert!(expects("1.1", "100-Continue"));
        assert!(!expects("1.0", "100-continue"));
        let (_, head) = accepted("POST / HTTP/1.0\r\nExpect: 200-ok\r\n\r\n");
        assert!(head.fields.iter().all(|field| !field.forwarded));
        refused(
            &format!("POST / HTTP/1.1\r\n{HOST}Expect: 200-ok\r\n\r\n"),
            RequestFault::Expectation,
        );
        refused(
            &format!("POST / HTTP/1.1\r\n{HOST}Expect: 100-continue\r\nExpect: x\r\n\r\n"),
            RequestFault::Expectation,
        );
        assert_eq!(RequestFault::Expectation.status(), Some(417));
    }

    #[test]
    fn no_byte_is_scanned_twice() {
        let text = format!(
            "GET / HTTP/1.1\r\n{HOST}{}",
            "X-Field: value\r\n".repeat(100)
        );
        let mut head = RequestHead::new();
        for len in 1..=text.len() {
            let start = &text.as_bytes()[..len];
            assert_eq!(
                parse_request(start, &HeadLimits::default(), &mut head),
                Ok(Parsed::Partial)
            );
            assert_eq!(head.scan.seen(), len);
            assert!(
                head.fields.is_empty(),
                "fields are tokenised once, at the end"
            );
        }
    }

    #[test]
    fn a_head_is_used_again_without_a_trace() {
        let limits = HeadLimits::default();
        let mut head = RequestHead::new();
        let first = format!(
            "POST http://example.com/a HTTP/1.0\r\n{HOST}Connection: keep-alive\r\nContent-Length: 3\r\n\r\n"
        );
        assert_eq!(
            parse_request(first.as_bytes(), &limits, &mut head),
            Ok(Parsed::Complete)
        );
        assert_eq!(
            parse_request(b"GET / HTTP/1.1\r\nBroken\r\n\r\n", &limits, &mut head),
            Err(HeadFault::FieldName.into())
        );
        assert_eq!(
            parse_request(b"GET / HT", &limits, &mut head),
            Ok(Parsed::Partial)
        );
        head.reset();
        let last = format!("GET / HTTP/1.1\r\n{HOST}\r\n");
        assert_eq!(
            parse_request(last.as_bytes(), &limits, &mut head),
            Ok(Parsed::Complete)
        );
        let (_, fresh) = accepted(&last);
        assert_eq!(format!("{head:?}"), format!("{fresh:?}"));
    }

    /// Parses `text` at once and byte by byte; both must take it in the same way.
    fn accepted(text: &str) -> (Vec<u8>, RequestHead) {
        let (whole, trickled) = parsed_both_ways(text);
        assert_eq!(whole.as_ref().map(|_| ()), Ok(()), "{text:?}");
        assert_eq!(format!("{whole:?}"), format!("{trickled:?}"), "{text:?}");
        (text.as_bytes().to_vec(), whole.unwrap())
    }

    fn refused(text: &str, fault: RequestFault) {
        let (whole, trickled) = parsed_both_ways(text);
        assert_eq!(whole.map(|_| ()), Err(fault), "{text:?}");
        assert_eq!(trickled.map(|_| ()), Err(fault), "byte by byte: {text:?}");
    }

    type Outcome = Result<RequestHead, RequestFault>;

    fn parsed_both_ways(text: &str) -> (Outcome, Outcome) {
        let limits = HeadLimits::default();
        let parse_in = |steps: std::ops::RangeInclusive<usize>| {
            let mut head = RequestHead::new();
            for len in steps {
                if parse_request(&text.as_bytes()[..len], &limits, &mut head)? == Parsed::Complete {
                    return Ok(head);
                }
            }
            panic!("no end: {text:?}");
        };
        (parse_in(text.len()..=text.len()), parse_in(1..=text.len()))
    }
}
