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
    /// target where both name it. With `CONNECT`, which the front refuses, it need not.
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

/// Method and path, with the query, of a request that was refused: as far as its line can be read
/// all the same. For reports only; `buf` as for [`parse_request`].
pub(crate) fn glimpse<'a>(buf: &'a [u8], limits: &HeadLimits) -> (&'a [u8], &'a [u8]) {
    let start = buf.iter().position(|byte| !b"\r\n".contains(byte));
    let rest = &buf[start.unwrap_or(buf.len())..];
    let end = memchr(b'\n', rest);
    let line = &rest[..end.unwrap_or(rest.len())];
    let method = match memchr(b' ', &line[..line.len().min(METHOD_LEN_MAX + 1)]) {
        Some(len) if is_token(&line[..len]) => &line[..len],
        _ => return (b"", b""),
    };
    let wanted = &line[method.len() + 1..];
    let wanted = match (end, memchr(b' ', wanted)) {
        (Some(_), Some(len)) if len <= limits.target_bytes => &wanted[..len],
        _ => return (method, b""),
    };
    let path = target(wanted, Method::of(method)).map_or(0..0, |found| found.path..wanted.len());
    (method, &wanted[path])
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
    // In HTTP/1.0, too: no client leaves it out, and without it nobody knows whose site is meant.
    let named = hosts.next().ok_or(RequestFault::HostMissing)?;
    if hosts.next().is_some() {
        return Err(RequestFault::HostRepeated);
    }
    let found = authority(named.value.of(buf)).ok_or(RequestFault::HostMalformed)?;
    head.authority = named.value;
    head.host = named.value.prefix(found.host_len);
    head.port = found.port;
    if head.form != Form::Absolute {
        return Ok(());
    }
    // RFC 9112 3.2.2 lets the target win over a Host that differs. Whoever reads the Host
    // alone would then serve another site, so the two must agree.
    let whole = head.target.of(buf);
    let wanted = target(whole, head.method)?;
    let (start, end) = wanted.authority;
    let found = authority(&whole[start..end]).ok_or(RequestFault::Target)?;
    let host = &whole[start..start + found.host_len];
    if !host.eq_ignore_ascii_case(head.host.of(buf))
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
mod tests;
