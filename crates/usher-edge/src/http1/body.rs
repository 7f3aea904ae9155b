//! Reading bodies, piece by piece as they come. Data is pointed at, not copied; a chunk size or a
//! trailer section that arrives in parts is remembered here, so that all of the input is consumed.

use std::ops::Range;

use super::scan::{Scan, Step, tokenise};
use super::{BodyFault, BodyLength, Fields, HeadFault, HeadLimits};

/// What the decoder found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BodyEvent {
    /// All input is used up.
    NeedMore,
    /// Body bytes: a range of the input, within what was consumed. Never empty.
    Data(Range<usize>),
    /// The body is over; what follows in the input belongs to the next message. Trailers are in
    /// [`BodyDecoder::trailers`].
    End,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// So many bytes of data are left, and then the body is over.
    Data(u64),
    UntilClose,
    Framing(Framing),
    /// So many bytes of the chunk are left.
    ChunkData(u64),
    Trailers,
    Done,
}

/// Where in the bytes between two chunks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Framing {
    /// The size of a chunk, before and after its first digit.
    Size {
        size: u64,
        digits: u8,
    },
    /// White space behind the size: only an extension may follow.
    Space {
        size: u64,
    },
    Extension {
        size: u64,
    },
    /// CR of the size line was read.
    SizeReturn {
        size: u64,
    },
    /// The data of a chunk was read.
    DataEnd,
    /// And the CR behind it.
    DataReturn,
}

const FIRST_SIZE: State = State::Framing(Framing::Size { size: 0, digits: 0 });

/// Finds the end of a body.
#[derive(Debug, Clone)]
pub struct BodyDecoder {
    state: State,
    /// Bytes of the size line so far.
    line: usize,
    /// Framing beyond what the data seen pays for.
    overhead: usize,
    limits: HeadLimits,
    /// The trailer section; no memory is taken where there is none.
    section: Vec<u8>,
    scan: Scan,
    fields: Fields,
}

/// Bytes of a size line, extensions included.
const LINE_MAX: usize = 1024;

/// Framing that may come without data. Each chunk may cost 16 bytes and the size of its data;
/// what goes beyond adds up to this.
const OVERHEAD_MAX: usize = 16 * 1024;

impl BodyDecoder {
    /// For a body of that length. Trailers are held to `limits`.
    pub fn new(length: BodyLength, limits: &HeadLimits) -> BodyDecoder {
        let state = match length {
            BodyLength::Empty | BodyLength::Exactly(0) => State::Done,
            BodyLength::Exactly(bytes) => State::Data(bytes),
            BodyLength::Chunked => FIRST_SIZE,
            BodyLength::UntilClose => State::UntilClose,
        };
        BodyDecoder {
            state,
            line: 0,
            overhead: 0,
            limits: *limits,
            section: Vec::new(),
            scan: Scan::trailers(),
            fields: Fields::default(),
        }
    }

    /// Whether nothing is left to read. False to the last for [`BodyLength::UntilClose`].
    pub fn is_done(&self) -> bool {
        self.state == State::Done
    }

    /// How many bytes are body, whatever they are: those may be taken past this decoder, and told
    /// to [`BodyDecoder::skip`]. `u64::MAX` until the connection closes; none while framing is due.
    pub fn unframed(&self) -> Option<u64> {
        match self.state {
            State::Data(left) => Some(left),
            State::UntilClose => Some(u64::MAX),
            State::Framing(_) | State::ChunkData(_) | State::Trailers | State::Done => None,
        }
    }

    /// `count` bytes of body, no more than [`BodyDecoder::unframed`], were taken past this decoder.
    pub fn skip(&mut self, count: u64) {
        if let State::Data(left) = self.state {
            debug_assert!(count <= left);
            self.state = match left.saturating_sub(count) {
                0 => State::Done,
                left => State::Data(left),
            };
        }
    }

    /// The connection ended. Whether the body did too.
    pub fn eof(&self) -> Result<(), BodyFault> {
        match self.state {
            State::Done | State::UntilClose => Ok(()),
            State::Data(_) | State::Framing(_) | State::ChunkData(_) | State::Trailers => {
                Err(BodyFault::Truncated)
            }
        }
    }

    /// Reads on. Returns how many bytes of `input` are consumed and what they were; call it again
    /// with the rest until [`BodyEvent::NeedMore`] or [`BodyEvent::End`].
    pub fn decode(&mut self, input: &[u8]) -> Result<(usize, BodyEvent), BodyFault> {
        let mut at = 0;
        loop {
            match self.state {
                State::Done => return Ok((at, BodyEvent::End)),
                State::UntilClose => {
                    let event = if input.is_empty() {
                        BodyEvent::NeedMore
                    } else {
                        BodyEvent::Data(0..input.len())
                    };
                    return Ok((input.len(), event));
                }
                State::Data(left) | State::ChunkData(left) => {
                    let len = usize::try_from(left)
                        .unwrap_or(usize::MAX)
                        .min(input.len() - at);
                    if len == 0 {
                        return Ok((at, BodyEvent::NeedMore));
                    }
                    let left = left - len as u64;
                    self.state = match (self.state, left) {
                        (State::Data(_), 0) => State::Done,
                        (State::Data(_), _) => State::Data(left),
                        (_, 0) => State::Framing(Framing::DataEnd),
                        (_, _) => State::ChunkData(left),
                    };
                    return Ok((at + len, BodyEvent::Data(at..at + len)));
                }
                State::Trailers => {
                    let (used, ended) = self
                        .trailer_bytes(&input[at..])
                        .map_err(BodyFault::Trailer)?;
                    at += used;
                    if !ended {
                        return Ok((at, BodyEvent::NeedMore));
                    }
                    self.state = State::Done;
                }
                State::Framing(framing) => {
                    let Some(&byte) = input.get(at) else {
                        return Ok((at, BodyEvent::NeedMore));
                    };
                    at += 1;
                    self.state = self.framing_byte(framing, byte)?;
                }
            }
        }
    }

    /// The trailers that may be passed on. Framing, routing, authentication and hop-by-hop fields
    /// are not among them.
    pub fn trailers(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.fields
            .iter()
            .filter(|field| field.is_trailer())
            .map(|field| (field.name.of(&self.section), field.value.of(&self.section)))
    }

    fn framing_byte(&mut self, framing: Framing, byte: u8) -> Result<State, BodyFault> {
        use Framing::*;
        self.line += 1;
        let framing = match (framing, byte) {
            (Size { digits: 16, .. }, b'0'..=b'9' | b'a'..=b'f' | b'A'..=b'F') => {
                return Err(BodyFault::ChunkSizeOverflow);
            }
            (Size { size, digits }, b'0'..=b'9' | b'a'..=b'f' | b'A'..=b'F') => {
                let digit = (byte as char).to_digit(16).map_or(0, u64::from);
                Size {
                    size: size << 4 | digit,
                    digits: digits + 1,
                }
            }
            (Size { digits: 0, .. }, _) => return Err(BodyFault::ChunkSize),
            (Size { size, .. } | Space { size }, b';') => Extension { size },
            (Size { size, .. } | Space { size }, b' ' | b'\t') if self.line < LINE_MAX => {
                Space { size }
            }
            (Extension { size }, b'\t' | b' '..=b'~' | 0x80..) if self.line < LINE_MAX => {
                Extension { size }
            }
            (Size { size, .. } | Extension { size }, b'\r') => SizeReturn { size },
            (SizeReturn { size }, b'\n') => return self.chunk_starts(size),
            (Size { .. } | Space { .. } | SizeReturn { .. }, _) => {
                return Err(BodyFault::ChunkSize);
            }
            (Extension { .. }, _) => return Err(BodyFault::ChunkExtension),
            (DataEnd, b'\r') => DataReturn,
            (DataReturn, b'\n') => {
                self.line = 0;
                return Ok(FIRST_SIZE);
            }
            (DataEnd | DataReturn, _) => return Err(BodyFault::ChunkEnd),
        };
        Ok(State::Framing(framing))
    }

    fn chunk_starts(&mut self, size: u64) -> Result<State, BodyFault> {
        if size == 0 {
            return Ok(State::Trailers);
        }
        let paid = usize::try_from(size)
            .unwrap_or(usize::MAX)
            .saturating_add(16);
        self.overhead = (self.overhead + self.line).saturating_sub(paid);
        if self.overhead > OVERHEAD_MAX {
            return Err(BodyFault::ChunkOverhead);
        }
        Ok(State::ChunkData(size))
    }

    /// Takes bytes of the trailer section. Returns how many, and whether they were the last.
    fn trailer_bytes(&mut self, input: &[u8]) -> Result<(usize, bool), HeadFault> {
        // Nearly all are empty, and need no memory.
        if self.section.is_empty() && input.starts_with(b"\r\n") {
            return Ok((2, true));
        }
        let mut at = 0;
        loop {
            match self.scan.step(&self.section, &self.limits, 0)? {
                Step::Start(_) | Step::Field => {}
                Step::Partial if at == input.len() => return Ok((at, false)),
                Step::Partial => {
                    // Line by line: what follows the section is not ours to copy.
                    let rest = &input[at..];
                    let len = memchr::memchr(b'\n', rest).map_or(rest.len(), |feed| feed + 1);
                    let room =
                        self.limits.head_bytes.min(HeadLimits::HEAD_BYTES_MAX) - self.section.len();
                    self.section.extend_from_slice(&rest[..len.min(room)]);
                    at += len.min(room);
                }
                Step::End { len } => {
                    tokenise(&self.section, 0..len, self.scan.fields(), &mut self.fields)?;
                    return Ok((at, true));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_ends_where_its_length_says() {
        assert_eq!(read(BodyLength::Empty, "abc"), Ok(body("", 0)));
        assert_eq!(read(BodyLength::Exactly(0), "abc"), Ok(body("", 0)));
        assert_eq!(read(BodyLength::Exactly(2), "abc"), Ok(body("ab", 2)));
        assert_eq!(
            read(BodyLength::Exactly(4), "abc"),
            Err(BodyFault::Truncated)
        );
        assert_eq!(read(BodyLength::UntilClose, "abc"), Ok(body("abc", 3)));
        assert_eq!(read(BodyLength::UntilClose, ""), Ok(body("", 0)));
    }

    #[test]
    fn chunks_are_joined() {
        for (text, data) in [
            ("0\r\n\r\n", ""),
            ("0000\r\n\r\n", ""),
            ("3\r\nabc\r\n0\r\n\r\n", "abc"),
            ("3\r\nabc\r\n1\r\nd\r\n0\r\n\r\n", "abcd"),
            ("00000000000000a\r\n0123456789\r\n0\r\n\r\n", "0123456789"),
            ("A\r\n0123456789\r\n0;a\r\n\r\n", "0123456789"),
            ("3;a=b;c=\"d\"\r\nabc\r\n0\r\n\r\n", "abc"),
            ("3 \t;a\r\nabc\r\n0\r\n\r\n", "abc"),
            ("3\r\n\r\n0\r\n0\r\n\r\n", "\r\n0"),
        ] {
            assert_eq!(
                read(BodyLength::Chunked, text),
                Ok(body(data, text.len())),
                "{text:?}"
            );
            assert_eq!(
                read(BodyLength::Chunked, &format!("{text}GET /")),
                Ok(body(data, text.len())),
                "{text:?}"
            );
        }
    }

    #[test]
    fn chunks_have_one_shape() {
        use BodyFault::*;
        for (text, fault) in [
            ("\r\n", ChunkSize),
            ("g\r\n", ChunkSize),
            ("-1\r\n", ChunkSize),
            ("+1\r\n", ChunkSize),
            (" 1\r\n", ChunkSize),
            ("0x1\r\na\r\n0\r\n\r\n", ChunkSize),
            ("1_0\r\n", ChunkSize),
            ("1 \r\na\r\n0\r\n\r\n", ChunkSize),
            ("1 2\r\n", ChunkSize),
            ("1\na\r\n0\r\n\r\n", ChunkSize),
            ("1\r\r\na", ChunkSize),
            ("1\0\r\n", ChunkSize),
            (";a\r\n", ChunkSize),
            ("1;a\nb\r\n", ChunkExtension),
            ("1;\0\r\n", ChunkExtension),
            ("1;\x7f\r\n", ChunkExtension),
            ("1;a\rb\r\n", ChunkSize),
            ("1\r\nab\r\n", ChunkEnd),
            ("1\r\na\n0\r\n\r\n", ChunkEnd),
            ("1\r\na\rb", ChunkEnd),
            ("1\r\na0\r\n\r\n", ChunkEnd),
            ("10000000000000000\r\n", ChunkSizeOverflow),
            ("00000000000000001\r\n", ChunkSizeOverflow),
            ("ffffffffffffffff0\r\n", ChunkSizeOverflow),
            ("ffffffffffffffff\r\na", Truncated),
            ("1\r\na\r\n0\r\n", Truncated),
            ("1\r\na\r\n0\r\n\r", Truncated),
            ("1\r\na\r\n", Truncated),
            ("1", Truncated),
            ("", Truncated),
            ("0\r\nA: b\n\r\n", Trailer(HeadFault::BareLf)),
            ("0\r\n\n", Trailer(HeadFault::BareLf)),
            ("0\r\nA : b\r\n\r\n", Trailer(HeadFault::FieldName)),
            ("0\r\nA: b\r\n c\r\n\r\n", Trailer(HeadFault::ObsFold)),
            ("0\r\n A: b\r\n\r\n", Trailer(HeadFault::ObsFold)),
            ("0\r\nA: \0\r\n\r\n", Trailer(HeadFault::FieldValue)),
            ("0\r\nX", Truncated),
        ] {
            assert_eq!(read(BodyLength::Chunked, text), Err(fault), "{text:?}");
        }
    }

    #[test]
    fn framing_without_data_is_bounded() {
        let extension = |len: usize| format!("1;{}\r\na\r\n", "x".repeat(len));
        assert!(
            read(
                BodyLength::Chunked,
                &format!("{}0\r\n\r\n", extension(1020))
            )
            .is_ok()
        );
        assert_eq!(
            read(BodyLength::Chunked, &extension(1030)),
            Err(BodyFault::ChunkExtension)
        );
        assert_eq!(
            read(BodyLength::Chunked, &extension(900).repeat(20)),
            Err(BodyFault::ChunkOverhead)
        );
        let small = "1\r\na\r\n".repeat(100_000);
        let mut decoder = BodyDecoder::new(BodyLength::Chunked, &HeadLimits::default());
        assert_eq!(
            drain(&mut decoder, small.as_bytes()).map(|(data, _)| data.len()),
            Ok(100_000)
        );
    }

    #[test]
    fn trailers_are_held_to_the_limits_of_a_head() {
        let limits = HeadLimits {
            head_bytes: 40,
            fields: 2,
            ..HeadLimits::default()
        };
        let of = |text: &str| {
            drain(
                &mut BodyDecoder::new(BodyLength::Chunked, &limits),
                text.as_bytes(),
            )
            .map(|_| ())
        };
        assert_eq!(of("0\r\na: 1\r\nb: 2\r\n\r\n"), Ok(()));
        assert_eq!(
            of("0\r\na: 1\r\nb: 2\r\nc: 3\r\n"),
            Err(BodyFault::Trailer(HeadFault::TooManyFields))
        );
        assert_eq!(of(&format!("0\r\na:{}\r\n\r\n", "b".repeat(34))), Ok(()));
        assert_eq!(
            of(&format!("0\r\na:{}\r\n\r\n", "b".repeat(35))),
            Err(BodyFault::Trailer(HeadFault::TooLarge))
        );
        assert_eq!(BodyFault::Trailer(HeadFault::TooLarge).status(), 431);
    }

    #[test]
    fn trailers_bring_nothing_that_a_head_decides() {
        let text = "0\r\nX-Sum: 1\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\nHost: a\r\nAuthorization: a\r\n\
                    Cookie: a\r\nSet-Cookie: a\r\nConnection: close\r\nTrailer: a\r\nX-Forwarded-For: a\r\nTE: a\r\n\
                    content_length: 1\r\nServer-Timing: 2\r\n\r\n";
        let mut decoder = BodyDecoder::new(BodyLength::Chunked, &HeadLimits::default());
        drain(&mut decoder, text.as_bytes()).unwrap();
        let trailers: Vec<_> = decoder.trailers().collect();
        assert_eq!(
            trailers,
            [(&b"X-Sum"[..], &b"1"[..]), (b"Server-Timing", b"2")]
        );
    }

    fn body(data: &str, consumed: usize) -> (Vec<u8>, usize) {
        (data.as_bytes().to_vec(), consumed)
    }

    /// Data and bytes consumed, then the end of the connection; whole and byte by byte.
    fn read(length: BodyLength, text: &str) -> Result<(Vec<u8>, usize), BodyFault> {
        let input = text.as_bytes();
        let mut decoder = BodyDecoder::new(length, &HeadLimits::default());
        let whole = drain(&mut decoder, input).and_then(|done| decoder.eof().map(|()| done));

        let mut decoder = BodyDecoder::new(length, &HeadLimits::default());
        let mut data = Vec::new();
        let mut consumed = 0;
        let trickled = input
            .chunks(1)
            .try_for_each(|byte| {
                let (piece, used) = drain(&mut decoder, byte)?;
                data.extend(piece);
                consumed += used;
                Ok(())
            })
            .and_then(|()| decoder.eof())
            .map(|()| (data, consumed));
        assert_eq!(whole, trickled, "{text:?}");
        whole
    }

    fn drain(decoder: &mut BodyDecoder, input: &[u8]) -> Result<(Vec<u8>, usize), BodyFault> {
        let (mut data, mut at) = (Vec::new(), 0);
        loop {
            let rest = &input[at..];
            let (used, event) = decoder.decode(rest)?;
            at += used;
            match event {
                BodyEvent::Data(range) => data.extend_from_slice(&rest[range]),
                BodyEvent::NeedMore => {
                    assert_eq!(at, input.len());
                    return Ok((data, at));
                }
                BodyEvent::End => {
                    assert!(decoder.is_done());
                    return Ok((data, at));
                }
            }
        }
    }
}
