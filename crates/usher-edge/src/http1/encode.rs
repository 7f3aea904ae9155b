//! Writing messages. Everything is checked again on its way out, whoever it came from: what
//! reaches an endpoint is well formed even where a rule, a configuration or HTTP/2 supplied it.

use super::field::{is_token, is_value};
use super::{BodyLength, FieldName};

/// Why something was not written. Nothing of it is in the output then.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum EncodeFault {
    /// Not a token.
    #[error("method is malformed")]
    Method,
    /// Empty, or bytes outside visible ASCII.
    #[error("request target is malformed")]
    Target,
    /// Outside 100..=599, or a reason with control characters.
    #[error("status line is malformed")]
    StatusLine,
    /// Not a token.
    #[error("field name is malformed")]
    FieldName,
    /// A control character.
    #[error("field value holds a control character")]
    FieldValue,
    /// More data than `Content-Length` announced.
    #[error("body is longer than announced")]
    TooLong,
    /// The body ended before what `Content-Length` announced.
    #[error("body is shorter than announced")]
    TooShort,
}

/// Appends `METHOD target HTTP/1.1` and CRLF.
pub fn write_request_line(
    out: &mut Vec<u8>,
    method: &[u8],
    target: &[u8],
) -> Result<(), EncodeFault> {
    if !is_token(method) {
        return Err(EncodeFault::Method);
    }
    if target.is_empty() || !target.iter().all(u8::is_ascii_graphic) {
        return Err(EncodeFault::Target);
    }
    out.reserve(method.len() + target.len() + 12);
    out.extend_from_slice(method);
    out.push(b' ');
    out.extend_from_slice(target);
    out.extend_from_slice(b" HTTP/1.1\r\n");
    Ok(())
}

/// Appends `HTTP/1.1 status reason` and CRLF. An empty `reason` stands for the usual one.
pub fn write_status_line(out: &mut Vec<u8>, status: u16, reason: &[u8]) -> Result<(), EncodeFault> {
    if let Some(line) = usual_line(status)
        && (reason.is_empty() || reason == reason_of(status).as_bytes())
    {
        out.extend_from_slice(line.as_bytes());
        return Ok(());
    }
    if !(100..=599).contains(&status) || !is_value(reason) {
        return Err(EncodeFault::StatusLine);
    }
    let digit = |place: u16| b'0' + (status / place % 10) as u8;
    out.reserve(15 + reason.len());
    out.extend_from_slice(b"HTTP/1.1 ");
    out.extend_from_slice(&[digit(100), digit(10), digit(1), b' ']);
    out.extend_from_slice(reason);
    out.extend_from_slice(b"\r\n");
    Ok(())
}

/// Appends `name: value` and CRLF.
pub fn write_field(out: &mut Vec<u8>, name: &[u8], value: &[u8]) -> Result<(), EncodeFault> {
    if !is_token(name) {
        return Err(EncodeFault::FieldName);
    }
    if !is_value(value) {
        return Err(EncodeFault::FieldValue);
    }
    out.reserve(name.len() + value.len() + 4);
    out.extend_from_slice(name);
    out.extend_from_slice(b": ");
    out.extend_from_slice(value);
    out.extend_from_slice(b"\r\n");
    Ok(())
}

/// Appends the field that announces a body of this length; none for [`BodyLength::Empty`] and
/// [`BodyLength::UntilClose`].
pub fn write_framing(out: &mut Vec<u8>, length: BodyLength) {
    match length {
        BodyLength::Empty | BodyLength::UntilClose => {}
        BodyLength::Chunked => out.extend_from_slice(b"transfer-encoding: chunked\r\n"),
        BodyLength::Exactly(bytes) => {
            out.extend_from_slice(b"content-length: ");
            out.extend_from_slice(itoa::Buffer::new().format(bytes).as_bytes());
            out.extend_from_slice(b"\r\n");
        }
    }
}

/// Appends the empty line behind the fields.
pub fn end_head(out: &mut Vec<u8>) {
    out.extend_from_slice(b"\r\n");
}

/// What is written around one piece of body, so that the piece itself is not copied: `before`, the
/// piece, `after`.
#[derive(Debug, Clone, Copy)]
pub struct Frame {
    before: [u8; 18],
    before_len: u8,
    after: &'static [u8],
}

impl Frame {
    const NONE: Frame = Frame {
        before: [0; 18],
        before_len: 0,
        after: b"",
    };

    /// At most 18 bytes.
    pub fn before(&self) -> &[u8] {
        &self.before[..usize::from(self.before_len)]
    }

    /// CRLF behind a chunk. It goes out together with its chunk: there are clients that hand on
    /// no byte of a chunk before they saw it.
    pub fn after(&self) -> &'static [u8] {
        self.after
    }
}

/// Keeps a body to the length that was announced for it.
#[derive(Debug, Clone)]
pub struct BodyEncoder {
    length: BodyLength,
    /// What may still come of [`BodyLength::Exactly`].
    left: u64,
}

impl BodyEncoder {
    /// For a body of that length.
    pub fn new(length: BodyLength) -> BodyEncoder {
        let left = match length {
            BodyLength::Exactly(bytes) => bytes,
            BodyLength::Empty | BodyLength::Chunked | BodyLength::UntilClose => 0,
        };
        BodyEncoder { length, left }
    }

    /// Whether nothing is ever written around a piece.
    pub fn is_bare(&self) -> bool {
        matches!(self.length, BodyLength::Exactly(_) | BodyLength::UntilClose)
    }

    /// What to write around the next `len` bytes of body. A `len` of 0 writes nothing: an empty
    /// chunk would end the body.
    pub fn frame(&mut self, len: usize) -> Result<Frame, EncodeFault> {
        if len == 0 {
            return Ok(Frame::NONE);
        }
        match self.length {
            BodyLength::UntilClose => Ok(Frame::NONE),
            BodyLength::Empty => Err(EncodeFault::TooLong),
            BodyLength::Exactly(_) => {
                self.left = self
                    .left
                    .checked_sub(len as u64)
                    .ok_or(EncodeFault::TooLong)?;
                Ok(Frame::NONE)
            }
            BodyLength::Chunked => Ok(chunk(len)),
        }
    }

    /// Ends the body: appends the last chunk and `trailers`, without those that must not stand
    /// there; only chunked bodies can carry any. Fails when announced bytes are missing: then
    /// the connection is closed.
    pub fn finish<'a>(
        self,
        trailers: impl IntoIterator<Item = (&'a [u8], &'a [u8])>,
        out: &mut Vec<u8>,
    ) -> Result<(), EncodeFault> {
        if self.left > 0 {
            return Err(EncodeFault::TooShort);
        }
        if self.length == BodyLength::Chunked {
            let start = out.len();
            out.extend_from_slice(b"0\r\n");
            for (name, value) in trailers {
                if !FieldName::allowed_in_trailers(name) {
                    continue;
                }
                if let Err(fault) = write_field(out, name, value) {
                    out.truncate(start);
                    return Err(fault);
                }
            }
            out.extend_from_slice(b"\r\n");
        }
        Ok(())
    }
}

fn chunk(len: usize) -> Frame {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digits = (usize::BITS - len.leading_zeros()).div_ceil(4) as usize;
    let mut before = [0; 18];
    for (place, byte) in before[..digits].iter_mut().rev().enumerate() {
        *byte = DIGITS[len >> (4 * place) & 0xf];
    }
    before[digits..digits + 2].copy_from_slice(b"\r\n");
    Frame {
        before,
        before_len: digits as u8 + 2,
        after: b"\r\n",
    }
}

macro_rules! statuses {
    ($($status:literal $reason:literal)*) => {
        /// The usual reason phrase; empty for a status without one.
        pub fn reason_of(status: u16) -> &'static str {
            match status {
                $($status => $reason,)*
                _ => "",
            }
        }

        /// The whole status line with the usual reason.
        fn usual_line(status: u16) -> Option<&'static str> {
            match status {
                $($status => Some(concat!("HTTP/1.1 ", $status, " ", $reason, "\r\n")),)*
                _ => None,
            }
        }
    };
}

statuses! {
    100 "Continue"
    101 "Switching Protocols"
    102 "Processing"
    103 "Early Hints"
    200 "OK"
    201 "Created"
    202 "Accepted"
    203 "Non-Authoritative Information"
    204 "No Content"
    205 "Reset Content"
    206 "Partial Content"
    300 "Multiple Choices"
    301 "Moved Permanently"
    302 "Found"
    303 "See Other"
    304 "Not Modified"
    307 "Temporary Redirect"
    308 "Permanent Redirect"
    400 "Bad Request"
    401 "Unauthorized"
    403 "Forbidden"
    404 "Not Found"
    405 "Method Not Allowed"
    406 "Not Acceptable"
    408 "Request Timeout"
    409 "Conflict"
    410 "Gone"
    411 "Length Required"
    412 "Precondition Failed"
    413 "Content Too Large"
    414 "URI Too Long"
    415 "Unsupported Media Type"
    416 "Range Not Satisfiable"
    417 "Expectation Failed"
    421 "Misdirected Request"
    422 "Unprocessable Content"
    425 "Too Early"
    426 "Upgrade Required"
    428 "Precondition Required"
    429 "Too Many Requests"
    431 "Request Header Fields Too Large"
    451 "Unavailable For Legal Reasons"
    500 "Internal Server Error"
    501 "Not Implemented"
    502 "Bad Gateway"
    503 "Service Unavailable"
    504 "Gateway Timeout"
    505 "HTTP Version Not Supported"
    520 "Web Server Returned an Unknown Error"
    521 "Web Server Is Down"
    522 "Connection Timed Out"
    523 "Origin Is Unreachable"
    524 "A Timeout Occurred"
    525 "SSL Handshake Failed"
    526 "Invalid SSL Certificate"
    530 "No Usable Endpoint"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn start_lines_are_checked() {
        let request = |method: &str, target: &str| {
            let mut out = Vec::new();
            write_request_line(&mut out, method.as_bytes(), target.as_bytes())
                .map(|()| String::from_utf8(out).unwrap())
        };
        assert_eq!(
            request("GET", "/a?b"),
            Ok("GET /a?b HTTP/1.1\r\n".to_owned())
        );
        for (method, target, fault) in [
            ("", "/", EncodeFault::Method),
            ("G T", "/", EncodeFault::Method),
            ("GET\r\n", "/", EncodeFault::Method),
            ("GET", "", EncodeFault::Target),
            ("GET", "/a b", EncodeFault::Target),
            ("GET", "/\r\nX: y", EncodeFault::Target),
            ("GET", "/\u{e9}", EncodeFault::Target),
        ] {
            assert_eq!(request(method, target), Err(fault));
        }
        let status = |status, reason: &str| {
            let mut out = Vec::new();
            write_status_line(&mut out, status, reason.as_bytes())
                .map(|()| String::from_utf8(out).unwrap())
        };
        assert_eq!(status(200, ""), Ok("HTTP/1.1 200 OK\r\n".to_owned()));
        assert_eq!(status(200, "OK"), Ok("HTTP/1.1 200 OK\r\n".to_owned()));
        assert_eq!(status(200, "Fine"), Ok("HTTP/1.1 200 Fine\r\n".to_owned()));
        assert_eq!(status(299, ""), Ok("HTTP/1.1 299 \r\n".to_owned()));
        assert_eq!(status(99, ""), Err(EncodeFault::StatusLine));
        assert_eq!(status(600, ""), Err(EncodeFault::StatusLine));
        assert_eq!(status(200, "a\r\nb"), Err(EncodeFault::StatusLine));
    }

    #[test]
    fn fields_are_checked() {
        let field = |name: &str, value: &str| {
            let mut out = b"x".to_vec();
            let written = write_field(&mut out, name.as_bytes(), value.as_bytes());
            assert!(
                written.is_ok() || out == b"x",
                "nothing of a refused field is written"
            );
            written.map(|()| String::from_utf8(out).unwrap())
        };
        assert_eq!(
            field("a", "b c\t\u{e9}"),
            Ok("xa: b c\t\u{e9}\r\n".to_owned())
        );
        assert_eq!(field("a", ""), Ok("xa: \r\n".to_owned()));
        for name in ["", "a b", "a:", "a\r\n", "a\0", "\u{e9}"] {
            assert_eq!(field(name, ""), Err(EncodeFault::FieldName));
        }
        for value in ["\r", "\n", "\0", "a\r\nb: c", "\x7f", "\x1b"] {
            assert_eq!(field("a", value), Err(EncodeFault::FieldValue));
        }
    }

    #[test]
    fn framing_is_announced() {
        let announced = |length| {
            let mut out = Vec::new();
            write_framing(&mut out, length);
            String::from_utf8(out).unwrap()
        };
        assert_eq!(announced(BodyLength::Empty), "");
        assert_eq!(announced(BodyLength::UntilClose), "");
        assert_eq!(announced(BodyLength::Exactly(0)), "content-length: 0\r\n");
        assert_eq!(
            announced(BodyLength::Exactly(u64::MAX)),
            "content-length: 18446744073709551615\r\n"
        );
        assert_eq!(
            announced(BodyLength::Chunked),
            "transfer-encoding: chunked\r\n"
        );
    }

    #[test]
    fn an_announced_length_is_kept() {
        let mut encoder = BodyEncoder::new(BodyLength::Exactly(3));
        assert!(encoder.frame(2).unwrap().before().is_empty());
        assert_eq!(encoder.frame(2).err(), Some(EncodeFault::TooLong));
        assert_eq!(
            encoder.clone().finish([], &mut Vec::new()),
            Err(EncodeFault::TooShort)
        );
        encoder.frame(1).unwrap();
        assert_eq!(encoder.frame(1).err(), Some(EncodeFault::TooLong));
        assert_eq!(encoder.finish([], &mut Vec::new()), Ok(()));
        assert_eq!(
            BodyEncoder::new(BodyLength::Empty).frame(1).err(),
            Some(EncodeFault::TooLong)
        );
        assert_eq!(
            BodyEncoder::new(BodyLength::Empty).finish([], &mut Vec::new()),
            Ok(())
        );
        let mut encoder = BodyEncoder::new(BodyLength::UntilClose);
        assert!(encoder.frame(usize::MAX).unwrap().after().is_empty());
    }

    #[test]
    fn chunks_are_framed() {
        let mut encoder = BodyEncoder::new(BodyLength::Chunked);
        for (len, before) in [
            (1, "1\r\n"),
            (15, "f\r\n"),
            (16, "10\r\n"),
            (0x8000, "8000\r\n"),
            (usize::MAX, "ffffffffffffffff\r\n"),
        ] {
            let frame = encoder.frame(len).unwrap();
            assert_eq!(
                (frame.before(), frame.after()),
                (before.as_bytes(), &b"\r\n"[..])
            );
        }
        let frame = encoder.frame(0).unwrap();
        assert!(
            frame.before().is_empty() && frame.after().is_empty(),
            "an empty chunk would end the body"
        );
        let mut out = Vec::new();
        let trailers = [
            (&b"X-Sum"[..], &b"1"[..]),
            (b"Content-Length", b"9"),
            (b"TE", b"x"),
        ];
        assert_eq!(encoder.clone().finish(trailers, &mut out), Ok(()));
        assert_eq!(out, b"0\r\nX-Sum: 1\r\n\r\n");
        out.clear();
        assert_eq!(
            encoder.finish([(&b"a"[..], &b"\r\n"[..])], &mut out),
            Err(EncodeFault::FieldValue)
        );
        assert!(out.is_empty());
    }
}
