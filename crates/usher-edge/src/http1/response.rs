//! Heads of responses.

use std::ops::Range;

use super::field::only;
use super::framing::{Announced, announced};
use super::scan::{Scan, Step, tokenise};
use super::{
    BodyLength, FieldName, Fields, HeadLimits, Method, Parsed, ResponseFault, Span, Version,
};

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
        match head.scan.step(buf, limits, 0)? {
            Step::Start(line) => status_line(buf, line, head)?,
            Step::Field => {}
            Step::End { len } => break len,
            Step::Partial { line, first } => {
                let start = &buf[line..];
                let known = start.len().min(b"HTTP/".len());
                if first && start[..known] != b"HTTP/"[..known] {
                    return Err(ResponseFault::StatusLine);
                }
                return Ok(Parsed::Partial);
            }
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
