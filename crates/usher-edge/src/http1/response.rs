//! Heads of responses.

use std::ops::Range;

use super::field::only;
use super::framing::{Announced, announced};
use super::scan::{Scan, Step, tokenise};
use super::{
    BodyLength, Field, FieldName, Fields, HeadFault, HeadLimits, Method, Parsed, ResponseFault,
    Span, Version,
};

/// What every status line starts with.
const VERSION_START: &[u8] = b"HTTP/";

/// What was asked: an answer cannot be read without it.
#[derive(Debug, Clone, Copy)]
pub struct Asked {
    /// The method; the answer to `HEAD` has no body.
    pub method: Method,
    /// Whether a WebSocket was asked for, so that 101 is an answer.
    pub websocket: bool,
}

/// What follows a head.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ResponseKind {
    /// 1xx: passed on to a client of 1.1; another head follows.
    Interim,
    /// 101 to a WebSocket: the connection is a tunnel from here.
    Switching,
    /// The answer.
    #[default]
    Final,
}

/// The head of a response. Make one a connection, as with [`super::RequestHead`].
#[derive(Debug, Clone, Default)]
pub struct ResponseHead {
    scan: Scan,
    /// Bytes of the head.
    pub len: usize,
    /// 100..=599.
    pub status: u16,
    /// The reason phrase, often empty.
    pub reason: Span,
    /// The version.
    pub version: Version,
    /// What follows.
    pub kind: ResponseKind,
    /// Every field.
    pub fields: Fields,
    /// How the body ends, method and status considered.
    pub body: BodyLength,
    /// `Content-Length` as announced: what an answer to `HEAD` or a 304 passes on though it has
    /// no body.
    pub content_length: Option<u64>,
    /// Whether the endpoint takes another request once the body has ended.
    pub keep_alive: bool,
    /// `Upgrade` of a [`ResponseKind::Switching`]; in all others it means nothing.
    pub upgrade: Option<Span>,
}

impl ResponseHead {
    /// An empty one.
    pub fn new() -> ResponseHead {
        ResponseHead::default()
    }

    /// Takes the head of an answer over HTTP/2, and writes its fields to `buf` for the spans to
    /// point into: what a client's side is given is the same whichever version the endpoint
    /// speaks. `ends`: no body follows.
    ///
    /// # Errors
    /// As for a head over HTTP/1.1: what may not stand in one must not be passed on.
    pub(crate) fn receive<'a>(
        &mut self,
        status: u16,
        fields: impl Iterator<Item = (&'a [u8], &'a [u8])>,
        ends: bool,
        asked: Asked,
        limits: &HeadLimits,
        buf: &mut Vec<u8>,
    ) -> Result<(), ResponseFault> {
        self.reset();
        buf.clear();
        for (name, value) in fields {
            let start = buf.len();
            if start + name.len() + value.len() > limits.head_bytes {
                return Err(HeadFault::TooLarge.into());
            }
            buf.extend_from_slice(name);
            let middle = buf.len();
            buf.extend_from_slice(value);
            let (name_span, value_span) = (Span::new(start, middle), Span::new(middle, buf.len()));
            let field = Field::new(name_span, value_span, FieldName::of(name), name);
            self.fields.push(field);
        }
        if self.fields.iter().len() > limits.fields {
            return Err(HeadFault::TooManyFields.into());
        }
        if !(100..=599).contains(&status) {
            return Err(ResponseFault::Status);
        }
        // Other framing cannot stand in a head over HTTP/2.
        let announced = announced(&self.fields, buf, Version::Http11)?;
        if let Announced::Length(length) = announced {
            self.content_length = Some(length);
        }
        (self.status, self.len, self.keep_alive) = (status, buf.len(), true);
        if asked.websocket && (200..300).contains(&status) {
            // The answer to an extended CONNECT (RFC 8441) is 200 where HTTP/1.1 has 101.
            (self.kind, self.status) = (ResponseKind::Switching, 101);
        } else if status == 101 {
            return Err(ResponseFault::Switching);
        } else if status < 200 {
            self.kind = ResponseKind::Interim;
        } else {
            self.body = match announced {
                _ if asked.method == Method::Head || matches!(status, 204 | 304) => {
                    BodyLength::Empty
                }
                // Over HTTP/1.1 this must be announced.
                _ if ends => BodyLength::Exactly(0),
                Announced::Length(length) => BodyLength::Exactly(length),
                Announced::Chunked | Announced::Nothing => BodyLength::Chunked,
            };
        }
        Ok(())
    }

    /// Forgets a head that was read in part.
    pub fn reset(&mut self) {
        let mut fields = std::mem::take(&mut self.fields);
        fields.clear();
        *self = ResponseHead {
            fields,
            ..ResponseHead::default()
        };
    }
}

/// Reads the head of a response from `buf`, which starts where the response does. Called again
/// with more bytes as [`super::parse_request`] is.
pub fn parse_response(
    buf: &[u8],
    limits: &HeadLimits,
    asked: Asked,
    head: &mut ResponseHead,
) -> Result<Parsed, ResponseFault> {
    if head.len != 0 {
        head.reset();
    }
    let parsed = parse(buf, limits, asked, head);
    if parsed.is_err() {
        head.reset();
    }
    parsed
}

fn parse(
    buf: &[u8],
    limits: &HeadLimits,
    asked: Asked,
    head: &mut ResponseHead,
) -> Result<Parsed, ResponseFault> {
    let len = loop {
        let step = head.scan.step(buf, limits, 0);
        if let (Ok(Step::Partial) | Err(_), Some(start)) = (&step, head.scan.start(buf)) {
            let known = start.len().min(VERSION_START.len());
            if start[..known] != VERSION_START[..known] {
                return Err(ResponseFault::StatusLine);
            }
        }
        match step? {
            Step::Start(line) => status_line(buf, line, head)?,
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

    let options = head.fields.connection(buf);
    if options.too_many {
        return Err(ResponseFault::Connection);
    }
    let modern = head.version == Version::Http11;
    head.keep_alive = !options.close && !options.malformed && (modern || options.keep_alive);

    let framing = announced(&head.fields, buf, head.version)?;
    if let Announced::Length(length) = framing {
        head.content_length = Some(length);
    }
    if head.status < 200 {
        if !modern || framing != Announced::Nothing {
            return Err(ResponseFault::Interim);
        }
        head.kind = ResponseKind::Interim;
        if head.status == 101 {
            let upgrade = only(head.fields.all(FieldName::Upgrade))
                .filter(|field| field.value.of(buf).eq_ignore_ascii_case(b"websocket"))
                .filter(|_| asked.websocket && options.upgrade)
                .ok_or(ResponseFault::Switching)?;
            head.kind = ResponseKind::Switching;
            head.upgrade = Some(upgrade.value);
        }
        return Ok(Parsed::Complete);
    }
    if head.status == 204 && !matches!(framing, Announced::Nothing | Announced::Length(0)) {
        // It has no body, but this endpoint may well send one: nothing behind it is trusted.
        head.keep_alive = false;
    }
    head.body = match framing {
        _ if asked.method == Method::Head || matches!(head.status, 204 | 304) => BodyLength::Empty,
        Announced::Chunked => BodyLength::Chunked,
        Announced::Length(length) => BodyLength::Exactly(length),
        Announced::Nothing => {
            head.keep_alive = false;
            BodyLength::UntilClose
        }
    };
    Ok(Parsed::Complete)
}

fn status_line(
    buf: &[u8],
    line: Range<usize>,
    head: &mut ResponseHead,
) -> Result<(), ResponseFault> {
    let start = line.start;
    let line = &buf[line];
    let (version, rest) = line.split_at_checked(8).ok_or(ResponseFault::StatusLine)?;
    head.version = match version {
        b"HTTP/1.1" => Version::Http11,
        b"HTTP/1.0" => Version::Http10,
        [b'H', b'T', b'T', b'P', b'/', major, b'.', minor]
            if major.is_ascii_digit() && minor.is_ascii_digit() =>
        {
            return Err(ResponseFault::Version);
        }
        _ => return Err(ResponseFault::StatusLine),
    };
    // The space behind the status is often left out together with the reason.
    let (digits, reason) = match rest {
        [b' ', a, b, c] => ([a, b, c], &[][..]),
        [b' ', a, b, c, b' ', reason @ ..] => ([a, b, c], reason),
        _ => return Err(ResponseFault::StatusLine),
    };
    if !digits.iter().all(|digit| digit.is_ascii_digit()) || !super::field::is_value(reason) {
        return Err(ResponseFault::StatusLine);
    }
    head.status = digits
        .iter()
        .fold(0, |status, &digit| status * 10 + u16::from(digit - b'0'));
    if !(100..=599).contains(&head.status) {
        return Err(ResponseFault::Status);
    }
    let end = start + line.len();
    head.reason = Span::new(end - reason.len(), end);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http1::{FramingFault, HeadFault};

    const GET: Asked = Asked {
        method: Method::Get,
        websocket: false,
    };
    const HEAD: Asked = Asked {
        method: Method::Head,
        websocket: false,
    };
    const WEBSOCKET: Asked = Asked {
        method: Method::Get,
        websocket: true,
    };

    #[test]
    fn a_plain_response_is_taken_apart() {
        let (buf, head) = accepted(
            "HTTP/1.1 404 Not Found\r\nContent-Length: 3\r\nServer: x\r\n\r\nabc",
            GET,
        );
        assert_eq!(
            (head.status, head.reason.of(&buf)),
            (404, &b"Not Found"[..])
        );
        assert_eq!(
            (head.kind, head.version, head.keep_alive),
            (ResponseKind::Final, Version::Http11, true)
        );
        assert_eq!(
            (head.body, head.content_length),
            (BodyLength::Exactly(3), Some(3))
        );
        assert_eq!(head.len, buf.len() - 3);
        for line in [
            "HTTP/1.1 200",
            "HTTP/1.1 200 ",
            "HTTP/1.1 200 caf\u{e9} \t(x)",
            "HTTP/1.0 599 x",
        ] {
            accepted(&format!("{line}\r\n\r\n"), GET);
        }
    }

    #[test]
    fn the_end_of_a_body_depends_on_what_was_asked() {
        use BodyLength::*;
        for (asked, text, body, keep_alive) in [
            (
                GET,
                "HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\n",
                Exactly(7),
                true,
            ),
            (
                GET,
                "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
                Chunked,
                true,
            ),
            (GET, "HTTP/1.1 200 OK\r\n\r\n", UntilClose, false),
            (
                GET,
                "HTTP/1.1 200 OK\r\nConnection: keep-alive\r\n\r\n",
                UntilClose,
                false,
            ),
            (HEAD, "HTTP/1.1 200 OK\r\n\r\n", Empty, true),
            (
                HEAD,
                "HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\n",
                Empty,
                true,
            ),
            (
                HEAD,
                "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
                Empty,
                true,
            ),
            (GET, "HTTP/1.1 204 No Content\r\n\r\n", Empty, true),
            (
                GET,
                "HTTP/1.1 204 No Content\r\nContent-Length: 0\r\n\r\n",
                Empty,
                true,
            ),
            (
                GET,
                "HTTP/1.1 204 No Content\r\nContent-Length: 7\r\n\r\n",
                Empty,
                false,
            ),
            (
                GET,
                "HTTP/1.1 204 No Content\r\nTransfer-Encoding: chunked\r\n\r\n",
                Empty,
                false,
            ),
            (
                GET,
                "HTTP/1.1 304 Not Modified\r\nContent-Length: 7\r\n\r\n",
                Empty,
                true,
            ),
            (GET, "HTTP/1.1 304 Not Modified\r\n\r\n", Empty, true),
            (
                GET,
                "HTTP/1.1 205 Reset Content\r\nContent-Length: 0\r\n\r\n",
                Exactly(0),
                true,
            ),
            (
                GET,
                "HTTP/1.0 200 OK\r\nContent-Length: 7\r\n\r\n",
                Exactly(7),
                false,
            ),
            (
                GET,
                "HTTP/1.0 200 OK\r\nContent-Length: 7\r\nConnection: Keep-Alive\r\n\r\n",
                Exactly(7),
                true,
            ),
            (GET, "HTTP/1.0 200 OK\r\n\r\n", UntilClose, false),
            (
                GET,
                "HTTP/1.1 200 OK\r\nContent-Length: 7\r\nConnection: close\r\n\r\n",
                Exactly(7),
                false,
            ),
            (
                GET,
                "HTTP/1.1 200 OK\r\nContent-Length: 7\r\nConnection: a b\r\n\r\n",
                Exactly(7),
                false,
            ),
        ] {
            let (_, head) = accepted(text, asked);
            assert_eq!((head.body, head.keep_alive), (body, keep_alive), "{text:?}");
        }
        let (_, head) = accepted("HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\n", HEAD);
        assert_eq!(head.content_length, Some(7));
    }

    #[test]
    fn framing_of_an_endpoint_is_read_in_one_way_only() {
        use FramingFault::*;
        for (fields, fault) in [
            (
                "Transfer-Encoding: chunked\r\nContent-Length: 3\r\n",
                TeWithCl,
            ),
            ("Transfer-Encoding: gzip\r\n", TeUnsupported),
            ("Transfer-Encoding: gzip, chunked\r\n", TeUnsupported),
            (
                "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
                TeUnsupported,
            ),
            ("Content-Length: 3\r\nContent-Length: 3\r\n", ClRepeated),
            ("Content-Length: 3\r\nContent-Length: 4\r\n", ClRepeated),
            ("Content-Length: 3,3\r\n", ClMalformed),
            ("Content-Length: abc\r\n", ClMalformed),
            ("Content-Length: -1\r\n", ClMalformed),
            ("Content-Length: 99999999999999999999\r\n", ClMalformed),
        ] {
            refused(
                &format!("HTTP/1.1 200 OK\r\n{fields}\r\n"),
                GET,
                fault.into(),
            );
            refused(
                &format!("HTTP/1.1 200 OK\r\n{fields}\r\n"),
                HEAD,
                fault.into(),
            );
        }
        refused(
            "HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
            GET,
            TeInHttp10.into(),
        );
    }

    #[test]
    fn interim_responses_are_heads_of_their_own() {
        for (line, status) in [
            ("100 Continue", 100),
            ("103 Early Hints", 103),
            ("199", 199),
        ] {
            let (_, head) = accepted(&format!("HTTP/1.1 {line}\r\nLink: x\r\n\r\n"), GET);
            assert_eq!(
                (head.kind, head.status, head.body),
                (ResponseKind::Interim, status, BodyLength::Empty)
            );
        }
        refused("HTTP/1.0 100 Continue\r\n\r\n", GET, ResponseFault::Interim);
        refused(
            "HTTP/1.1 100 Continue\r\nContent-Length: 0\r\n\r\n",
            GET,
            ResponseFault::Interim,
        );
        refused(
            "HTTP/1.1 103 Early\r\nTransfer-Encoding: chunked\r\n\r\n",
            GET,
            ResponseFault::Interim,
        );
    }

    #[test]
    fn only_what_was_asked_for_is_switched_to() {
        let switch =
            "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n";
        let (buf, head) = accepted(switch, WEBSOCKET);
        assert_eq!(
            (head.kind, head.upgrade.map(|value| value.of(&buf))),
            (ResponseKind::Switching, Some(&b"websocket"[..]))
        );
        refused(switch, GET, ResponseFault::Switching);
        for fields in [
            "",
            "Upgrade: websocket\r\n",
            "Connection: upgrade\r\n",
            "Connection: upgrade\r\nUpgrade: h2c\r\n",
        ] {
            refused(
                &format!("HTTP/1.1 101 x\r\n{fields}\r\n"),
                WEBSOCKET,
                ResponseFault::Switching,
            );
        }
        // An Upgrade anywhere else means nothing and goes no further.
        let (_, head) = accepted(
            "HTTP/1.1 200 OK\r\nUpgrade: h2c\r\nConnection: Upgrade\r\nContent-Length: 0\r\n\r\n",
            WEBSOCKET,
        );
        assert_eq!(
            (head.kind, head.upgrade, head.keep_alive),
            (ResponseKind::Final, None, true)
        );
        assert!(head.fields.iter().all(|field| !field.forwarded));
    }

    #[test]
    fn nominations_of_an_endpoint_take_what_is_its_own() {
        let (buf, head) = accepted(
            "HTTP/1.1 200 OK\r\nConnection: X-Hop, Set-Cookie\r\nX-Hop: 1\r\nSet-Cookie: a=b\r\nKeep-Alive: 5\r\n\
             Proxy-Authenticate: x\r\nX-End: 2\r\n\r\n",
            GET,
        );
        let kept: Vec<_> = head
            .fields
            .iter()
            .filter(|field| field.forwarded)
            .map(|field| field.name.of(&buf))
            .collect();
        assert_eq!(kept, [&b"Set-Cookie"[..], b"X-End"]);
    }

    #[test]
    fn what_is_no_response_is_refused() {
        use ResponseFault::*;
        for (text, fault) in [
            ("garbage\r\n\r\n", StatusLine),
            ("\r\nHTTP/1.1 200 OK\r\n\r\n", StatusLine),
            ("HTTP/1.1  200 OK\r\n\r\n", StatusLine),
            ("HTTP/1.1 20 OK\r\n\r\n", StatusLine),
            ("HTTP/1.1 2000 OK\r\n\r\n", StatusLine),
            ("HTTP/1.1 +20 OK\r\n\r\n", StatusLine),
            ("HTTP/1.1 200OK\r\n\r\n", StatusLine),
            ("HTTP/1.1 200\tOK\r\n\r\n", StatusLine),
            ("HTTP/1.1 200 O\x01K\r\n\r\n", StatusLine),
            ("HTTP/1.1 200 O\rK\r\n\r\n", StatusLine),
            ("HTTP/1.1\r\n\r\n", StatusLine),
            ("HTTP/\r\n\r\n", StatusLine),
            ("http/1.1 200 OK\r\n\r\n", StatusLine),
            ("ICY 200 OK\r\n\r\n", StatusLine),
            ("HTTP/2.0 200 OK\r\n\r\n", Version),
            ("HTTP/1.2 200 OK\r\n\r\n", Version),
            ("HTTP/1.1 099 x\r\n\r\n", Status),
            ("HTTP/1.1 600 x\r\n\r\n", Status),
            ("HTTP/1.1 200 OK\nA: b\r\n\r\n", Head(HeadFault::BareLf)),
            ("HTTP/1.1 200 OK\r\nA: b\n\n", Head(HeadFault::BareLf)),
            (
                "HTTP/1.1 200 OK\r\nA: b\r\n c\r\n\r\n",
                Head(HeadFault::ObsFold),
            ),
            (
                "HTTP/1.1 200 OK\r\nA : b\r\n\r\n",
                Head(HeadFault::FieldName),
            ),
            (
                "HTTP/1.1 200 OK\r\nA: \0\r\n\r\n",
                Head(HeadFault::FieldValue),
            ),
        ] {
            refused(text, GET, fault);
        }
        refused(
            &format!(
                "HTTP/1.1 200 OK\r\nConnection: {}\r\n\r\n",
                ["a"; 17].join(",")
            ),
            GET,
            Connection,
        );
        refused(
            &format!("HTTP/1.1 200 OK\r\nA: {}", "a".repeat(64 * 1024)),
            GET,
            Head(HeadFault::TooLarge),
        );
        refused(
            &format!("HTTP/1.1 200 OK\r\n{}", "A: b\r\n".repeat(129)),
            GET,
            Head(HeadFault::TooManyFields),
        );
        assert_eq!(Version.as_str(), "version");
    }

    fn accepted(text: &str, asked: Asked) -> (Vec<u8>, ResponseHead) {
        let (whole, trickled) = parsed_both_ways(text, asked);
        assert_eq!(whole.as_ref().map(|_| ()), Ok(()), "{text:?}");
        assert_eq!(format!("{whole:?}"), format!("{trickled:?}"), "{text:?}");
        (text.as_bytes().to_vec(), whole.unwrap())
    }

    fn refused(text: &str, asked: Asked, fault: ResponseFault) {
        let (whole, trickled) = parsed_both_ways(text, asked);
        assert_eq!(whole.map(|_| ()), Err(fault), "{text:?}");
        assert_eq!(trickled.map(|_| ()), Err(fault), "byte by byte: {text:?}");
    }

    type Outcome = Result<ResponseHead, ResponseFault>;

    fn parsed_both_ways(text: &str, asked: Asked) -> (Outcome, Outcome) {
        let limits = HeadLimits::default();
        let parse_in = |steps: std::ops::RangeInclusive<usize>| {
            let mut head = ResponseHead::new();
            for len in steps {
                if parse_response(&text.as_bytes()[..len], &limits, asked, &mut head)?
                    == Parsed::Complete
                {
                    return Ok(head);
                }
            }
            panic!("no end: {text:?}");
        };
        (parse_in(text.len()..=text.len()), parse_in(1..=text.len()))
    }
}
