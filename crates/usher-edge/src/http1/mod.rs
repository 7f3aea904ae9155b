//! HTTP/1.1 without IO: bytes in, heads and body events out, and the way back.
//!
//! Both sides of the proxy run on it, so a request is read and written by the same rules and
//! cannot mean one thing to us and another to an endpoint. Fields are tokenised by `httparse`;
//! lines, framing, targets, hosts and connection options are ours, because that is where
//! smuggling lives and where a general parser is polite. Where the RFCs leave a choice the
//! strict answer is taken: a message that two readers could understand differently is refused.
//!
//! Read [`RequestHead`] and [`BodyDecoder`] first. The order of calls for one message:
//!
//! 1. [`parse_request`] or [`parse_response`] on everything received so far, again whenever more
//!    came, until it answers [`Parsed::Complete`]; then drop `head.len` bytes from the buffer.
//! 2. [`BodyDecoder::decode`] until [`BodyEvent::End`], dropping what it consumed.
//! 3. Writing: a start line, fields through [`write_field`], [`write_framing`], the empty line
//!    ([`end_head`]), then each piece of body between the two halves of a [`BodyEncoder::frame`],
//!    then [`BodyEncoder::finish`].
//!
//! What it never does: read a socket or a clock, allocate per message once warm, buffer a body,
//! guess. After any fault the connection it came from is closed.

mod body;
mod encode;
mod fault;
mod field;
mod framing;
mod request;
mod response;
mod scan;
mod target;

pub use body::{BodyDecoder, BodyEvent};
pub use encode::{
    BodyEncoder, EncodeFault, Frame, end_head, reason_of, write_field, write_framing,
    write_request_line, write_status_line,
};
pub use fault::{BodyFault, FramingFault, HeadFault, RequestFault, ResponseFault};
pub use field::{Field, FieldName, Fields};
pub(crate) use request::glimpse;
pub use request::{Form, Method, RequestHead, parse_request};
pub use response::{Asked, ResponseHead, ResponseKind, parse_response};

/// The host in an authority, without port, if the authority is well formed. The rule for every
/// version of HTTP.
pub(crate) fn host_of(authority: &[u8]) -> Option<&[u8]> {
    target::authority(authority).map(|found| &authority[..found.host_len])
}

/// Whether a field of this name goes on to the other side, as [`Field::forwarded`] says.
pub(crate) fn is_forwarded(name: &[u8]) -> bool {
    Field::new(Span::default(), Span::default(), FieldName::of(name), name).forwarded
}

/// Whether a field of this name may stand in a trailer section that is passed on.
pub(crate) fn is_trailer(name: &[u8]) -> bool {
    FieldName::allowed_in_trailers(name)
}

/// A piece of the buffer that was parsed, as two offsets: heads outlive no buffer and own none.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Span {
    start: u32,
    end: u32,
}

impl Span {
    /// Offsets fit because no head is longer than [`HeadLimits::HEAD_BYTES_MAX`].
    fn new(start: usize, end: usize) -> Span {
        debug_assert!(start <= end && end <= HeadLimits::HEAD_BYTES_MAX);
        Span {
            start: start as u32,
            end: end as u32,
        }
    }

    /// The bytes meant. `buf` starts where the slice given to the parser started; it may have
    /// grown or moved since. Panics on a shorter buffer, which no peer can cause.
    pub fn of(self, buf: &[u8]) -> &[u8] {
        &buf[self.start as usize..self.end as usize]
    }

    fn prefix(self, len: usize) -> Span {
        Span::new(self.start as usize, self.start as usize + len)
    }

    /// Bytes in it.
    pub fn len(self) -> usize {
        (self.end - self.start) as usize
    }

    /// Whether it holds nothing.
    pub fn is_empty(self) -> bool {
        self.start == self.end
    }
}

/// How much of a head is read before it is refused. Trailer sections are held to the same limits.
#[derive(Debug, Clone, Copy)]
pub struct HeadLimits {
    /// Bytes from the first to the final empty line. Default 64 KiB; beyond it 431.
    /// At most [`HeadLimits::HEAD_BYTES_MAX`], larger values count as that.
    pub head_bytes: usize,
    /// Fields. Default 128; beyond it 431. At most [`HeadLimits::FIELDS_MAX`].
    pub fields: usize,
    /// Bytes of a request target. Default 16 KiB; beyond it 414.
    pub target_bytes: usize,
}

impl HeadLimits {
    /// The most that `head_bytes` may say: 1 MiB.
    pub const HEAD_BYTES_MAX: usize = 1 << 20;
    /// The most that `fields` may say: what fits a worker's stack while a head is tokenised.
    pub const FIELDS_MAX: usize = 1024;
}

impl Default for HeadLimits {
    fn default() -> HeadLimits {
        HeadLimits {
            head_bytes: 64 * 1024,
            fields: 128,
            target_bytes: 16 * 1024,
        }
    }
}

/// What a parser made of the bytes so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Parsed {
    /// No fault yet, and no end. Call again with the same bytes and more behind them.
    Partial,
    /// The head is filled in; `head.len` bytes belong to it.
    Complete,
}

/// The two versions served. Others are faults.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Version {
    /// HTTP/1.0: closes unless asked not to, knows no chunks and no interim answers.
    Http10,
    /// HTTP/1.1.
    #[default]
    Http11,
}

/// How the end of a body is found.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum BodyLength {
    /// There is none.
    #[default]
    Empty,
    /// `Content-Length`. `Exactly(0)` is an announced empty body.
    Exactly(u64),
    /// `Transfer-Encoding: chunked`.
    Chunked,
    /// The end of the connection is the end of the body. Responses only; never reusable.
    UntilClose,
}
