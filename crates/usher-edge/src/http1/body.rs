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
    /// The size of a chunk, before and after its first digit.
    Size {
        size: u64,
        digits: u8,
    },
    /// White space behind the size: only an extension may follow.
    SizeSpace {
        size: u64,
    },
    Extension {
        size: u64,
    },
    /// LF of the size line.
    SizeFeed {
        size: u64,
    },
    ChunkData(u64),
    ChunkReturn,
    ChunkFeed,
    Trailers,
    Done,
}

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

/// Bytes that a size line may have besides its digits.
const EXTENSION_MAX: usize = 1024;

/// Framing that may come without data. Each chunk may cost 16 bytes and the size of its data;
/// what goes beyond adds up to this.
const OVERHEAD_MAX: usize = 16 * 1024;

impl BodyDecoder {
    /// For a body of that length. Trailers are held to `limits`.
    pub fn new(length: BodyLength, limits: &HeadLimits) -> BodyDecoder {
        let state = match length {
            BodyLength::Empty | BodyLength::Exactly(0) => State::Done,
            BodyLength::Exactly(bytes) => State::Data(bytes),
            BodyLength::Chunked => State::Size { size: 0, digits: 0 },
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

    /// The connection ended. Whether the body did too.
    pub fn eof(&self) -> Result<(), BodyFault> {
        match self.state {
            State::Done | State::UntilClose => Ok(()),
            _ => Err(BodyFault::Truncated),
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
                        (_, 0) => State::ChunkReturn,
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
                _ => {
                    let Some(&byte) = input.get(at) else {
                        return Ok((at, BodyEvent::NeedMore));
                    };
                    at += 1;
                    self.state = self.framing_byte(byte)?;
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

    fn framing_byte(&mut self, byte: u8) -> Result<State, BodyFault> {
        self.line += 1;
        match (self.state, byte) {
            (State::Size { size, digits }, b'0'..=b'9' | b'a'..=b'f' | b'A'..=b'F') => {
                if digits == 16 {
                    return Err(BodyFault::ChunkSizeOverflow);
                }
                let digit = (byte as char).to_digit(16).map_or(0, u64::from);
                Ok(State::Size {
                    size: size << 4 | digit,
                    digits: digits + 1,
                })
            }
            (State::Size { digits: 0, .. }, _) => Err(BodyFault::ChunkSize),
            (State::Size { size, .. } | State::Extension { size }, b'\r') => {
                Ok(State::SizeFeed { size })
            }
            (State::Size { size, .. } | State::SizeSpace { size }, b';') => {
                Ok(State::Extension { size })
            }
            (State::Size { size, .. } | State::SizeSpace { size }, b' ' | b'\t')
                if self.line < EXTENSION_MAX =>
            {
                Ok(State::SizeSpace { size })
            }
            (State::Extension { size }, b'\t' | b' '..=b'~' | 0x80..)
                if self.line < EXTENSION_MAX =>
            {
                Ok(State::Extension { size })
            }
            (State::Extension { .. }, _) => Err(BodyFault::ChunkExtension),
            (State::SizeFeed { size }, b'\n') => self.chunk_starts(size),
            (State::ChunkReturn, b'\r') => Ok(State::ChunkFeed),
            (State::ChunkFeed, b'\n') => {
                self.line = 0;
                Ok(State::Size { size: 0, digits: 0 })
            }
            (State::ChunkReturn | State::ChunkFeed, _) => Err(BodyFault::ChunkEnd),
            _ => Err(BodyFault::ChunkSize),
        }
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
        let known = self.section.len();
        let room = self.limits.head_bytes.min(HeadLimits::HEAD_BYTES_MAX) - known;
        self.section
            .extend_from_slice(&input[..input.len().min(room)]);
        loop {
            match self.scan.step(&self.section, &self.limits, 0)? {
                Step::Start(_) | Step::Field => {}
                Step::Partial { .. } => return Ok((input.len(), false)),
                Step::End { len } => {
                    self.section.truncate(len);
                    tokenise(&self.section, 0..len, self.scan.fields(), &mut self.fields)?;
                    return Ok((len - known, true));
                }
            }
        }
    }
}
