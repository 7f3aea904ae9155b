//! One message on an HTTP/1.1 connection, either side: bytes of its body in, bytes of it out.
//!
//! [`Incoming`] reads and unframes, [`Outgoing`] frames and writes. Neither waits: they are polled
//! by the one task that owns both sides of an exchange, so what is read is lent straight to the
//! writer and a side that cannot take more stops the side that has more. Nothing is queued between
//! them, which is why a slow reader does not cost memory.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::AsyncWrite;
use tokio::net::TcpStream;

use super::buffer::{BUFFER_SIZE, Buffer, LARGE};
use super::splice::Source;
use super::stream::Stream;
use crate::http1::{BodyDecoder, BodyEncoder, BodyFault, BodyLength, EncodeFault, HeadLimits};

/// A piece up to this long is copied behind what waits to be written: one system call for a head
/// and a short body costs less than two slices, and far less than two calls.
const COPIED_MAX: usize = 4 * 1024;

/// With so many copied bytes waiting, they are written before more are taken.
const WAITING_MAX: usize = 16 * 1024;

/// A body announced longer than this is read with a large buffer: what the first read of an
/// ordinary one leaves would take more than one further read.
const LARGE_FROM: u64 = 2 * BUFFER_SIZE as u64;

/// Why a body could not be read to its end.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ReadFault {
    /// The framing is wrong, or the connection ended within the body.
    #[error(transparent)]
    Body(#[from] BodyFault),
    /// The connection failed.
    #[error("read body")]
    Io(#[from] io::Error),
}

/// What comes next of a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Next {
    /// [`Incoming::piece`] is not empty.
    Piece,
    /// The body is over.
    End,
}

/// The body of a message that is being received.
#[derive(Debug)]
pub(crate) struct Incoming {
    decoder: BodyDecoder,
    /// Bytes at the front of the buffer that are body and not handed on yet.
    piece: usize,
    ended: bool,
    /// It is worth a large buffer: it was announced so, or turned out so.
    large: bool,
    /// Bytes of body seen so far.
    pub(crate) seen: u64,
}

impl Incoming {
    pub(crate) fn new(length: BodyLength, limits: &HeadLimits) -> Incoming {
        let decoder = BodyDecoder::new(length, limits);
        Incoming {
            ended: decoder.is_done(),
            large: matches!(length, BodyLength::Exactly(bytes) if bytes > LARGE_FROM),
            decoder,
            piece: 0,
            seen: 0,
        }
    }

    /// One that has no message.
    pub(crate) fn none() -> Incoming {
        Incoming::new(BodyLength::Empty, &HeadLimits::default())
    }

    /// Whether all of it was received and handed on.
    pub(crate) fn is_over(&self) -> bool {
        self.ended && self.piece == 0
    }

    /// Waits until there is a piece, or the end. Reads only when the buffer is used up.
    pub(crate) fn poll_next(
        &mut self,
        buffer: &mut Buffer,
        io: &mut Stream,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Next, ReadFault>> {
        loop {
            if self.piece > 0 {
                return Poll::Ready(Ok(Next::Piece));
            }
            if self.ended {
                return Poll::Ready(Ok(Next::End));
            }
            let (used, event) = self.decoder.decode(buffer.data())?;
            match event {
                crate::http1::BodyEvent::Data(range) => {
                    buffer.consume(range.start);
                    self.piece = range.len();
                    self.seen += range.len() as u64;
                    self.ended = self.decoder.is_done();
                }
                crate::http1::BodyEvent::End => {
                    buffer.consume(used);
                    self.ended = true;
                }
                crate::http1::BodyEvent::NeedMore => {
                    buffer.consume(used);
                    self.large |= self.seen >= LARGE as u64;
                    if self.large {
                        buffer.grow(LARGE);
                    }
                    if ready!(buffer.poll_fill(io, cx))? == 0 {
                        self.decoder.eof()?;
                        self.ended = true;
                    }
                }
            }
        }
    }

    /// The body bytes at hand.
    pub(crate) fn piece<'a>(&self, buffer: &'a Buffer) -> &'a [u8] {
        &buffer.data()[..self.piece]
    }

    /// So many bytes of the piece are handed on.
    pub(crate) fn advance(&mut self, buffer: &mut Buffer, count: usize) {
        buffer.consume(count);
        self.piece -= count;
    }

    /// Where bytes of body may be taken from past this reader, and told to [`Self::took`]: the
    /// socket, for what is left of a body without framing once `buffer` is used up.
    pub(crate) fn source<'a>(&self, buffer: &Buffer, io: &'a Stream) -> Option<Source<'a>> {
        if self.ended || self.piece > 0 || !buffer.is_empty() {
            return None;
        }
        let left = self.decoder.unframed()?;
        Some(Source {
            socket: io.plain()?,
            left,
            // Nobody knows how much will come until the end: as much as came already, say.
            expected: if left == u64::MAX { self.seen } else { left },
        })
    }

    /// So many bytes of body were taken from the connection. 0: it has ended.
    pub(crate) fn took(&mut self, count: usize) -> Result<(), BodyFault> {
        if count == 0 {
            self.decoder.eof()?;
            self.ended = true;
        } else {
            self.decoder.skip(count as u64);
            self.seen += count as u64;
            self.ended = self.decoder.is_done();
        }
        Ok(())
    }

    /// The trailers that may be passed on, once the body is over.
    pub(crate) fn trailers(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.decoder.trailers()
    }
}

/// Why a body could not be written to its end.
#[derive(Debug, thiserror::Error)]
pub(crate) enum WriteFault {
    /// It is longer or shorter than what was announced for it.
    #[error(transparent)]
    Encode(#[from] EncodeFault),
    /// The connection failed.
    #[error("write body")]
    Io(#[from] io::Error),
}

/// A message that is being sent.
#[derive(Debug)]
pub(crate) struct Outgoing {
    /// Head, framing and short pieces that wait to be written.
    waiting: Vec<u8>,
    /// How much of `waiting` is written.
    written: usize,
    encoder: BodyEncoder,
    /// What is left of the piece under way: its framing is written or waits already.
    left: usize,
    /// What stands behind that piece.
    after: &'static [u8],
    /// `waiting` is kept whole up to so many bytes, so that the message can be sent once more.
    kept_max: usize,
    /// Bytes that the connection took.
    pub(crate) sent: u64,
}

impl Outgoing {
    /// One that has no message.
    pub(crate) fn new() -> Outgoing {
        Outgoing {
            waiting: Vec::new(),
            written: 0,
            encoder: BodyEncoder::new(BodyLength::Empty),
            left: 0,
            after: b"",
            kept_max: 0,
            sent: 0,
        }
    }

    /// Begins a message: returns the place to write its head to. With `kept_max` above zero
    /// [`Self::rewind`] works until more than that was sent.
    pub(crate) fn begin(&mut self, length: BodyLength, kept_max: usize) -> &mut Vec<u8> {
        self.waiting.clear();
        self.restart(length);
        self.kept_max = kept_max;
        &mut self.waiting
    }

    /// Begins a message behind what waits already (interim answers).
    pub(crate) fn follow(&mut self, length: BodyLength) -> &mut Vec<u8> {
        self.encoder = BodyEncoder::new(length);
        (self.left, self.after) = (0, b"");
        &mut self.waiting
    }

    fn restart(&mut self, length: BodyLength) {
        self.encoder = BodyEncoder::new(length);
        (self.written, self.left, self.after, self.sent) = (0, 0, b"", 0);
    }

    /// Whether everything so far can be sent again from the start.
    pub(crate) fn can_rewind(&self) -> bool {
        self.kept_max > 0 || self.sent == 0
    }

    /// Sends everything again from the start, on another connection, and for the last time.
    pub(crate) fn rewind(&mut self) {
        debug_assert!(self.can_rewind());
        (self.written, self.kept_max, self.sent) = (0, 0, 0);
    }

    /// It will not be needed again.
    pub(crate) fn forget(&mut self) {
        self.kept_max = 0;
    }

    /// Takes body bytes: returns how many, at least one. They are written or wait to be.
    pub(crate) fn poll_send(
        &mut self,
        io: &mut Stream,
        cx: &mut Context<'_>,
        piece: &[u8],
    ) -> Poll<Result<usize, WriteFault>> {
        if self.left == 0 {
            let frame = self.encoder.frame(piece.len())?;
            self.waiting.extend_from_slice(frame.before());
            (self.left, self.after) = (piece.len(), frame.after());
        }
        let piece = &piece[..piece.len().min(self.left)];
        if self.kept_max > 0 && self.waiting.len() + piece.len() > self.kept_max {
            self.forget();
        }
        if piece.len() <= COPIED_MAX || self.kept_max > 0 {
            if self.waiting.len() - self.written >= WAITING_MAX {
                ready!(self.poll_flush(io, cx))?;
            }
            self.waiting.extend_from_slice(piece);
            self.took(piece.len());
            return Poll::Ready(Ok(piece.len()));
        }
        loop {
            let before = self.waiting.len() - self.written;
            let whole = piece.len() == self.left;
            let after = if whole { self.after } else { b"" };
            let slices = [
                IoSlice::new(&self.waiting[self.written..]),
                IoSlice::new(piece),
                IoSlice::new(after),
            ];
            let slices = if before == 0 {
                &slices[1..]
            } else {
                &slices[..]
            };
            let mut count = ready!(Pin::new(&mut *io).poll_write_vectored(cx, slices))?;
            if count == 0 {
                return Poll::Ready(Err(WriteFault::Io(io::ErrorKind::WriteZero.into())));
            }
            self.sent += count as u64;
            if count < before {
                self.written += count;
                continue;
            }
            count -= before;
            self.waiting.clear();
            self.written = 0;
            if count == 0 {
                continue;
            }
            let body = count.min(piece.len());
            self.took(body);
            // `took` queued all of `after`; what went out of it already is skipped.
            self.written = count - body;
            return Poll::Ready(Ok(body));
        }
    }

    /// Where body bytes may be given to past this writer, and told to [`Self::gave`]: the socket,
    /// while nothing waits and nothing stands between them.
    pub(crate) fn sink<'a>(&self, io: &'a Stream) -> Option<&'a TcpStream> {
        let bare = self.left == 0
            && self.kept_max == 0
            && self.written == self.waiting.len()
            && self.encoder.is_bare();
        io.plain().filter(|_| bare)
    }

    /// So many bytes of body were given to the connection.
    pub(crate) fn gave(&mut self, count: usize) -> Result<(), EncodeFault> {
        self.encoder.frame(count)?;
        self.sent += count as u64;
        Ok(())
    }

    /// `count` bytes of the piece under way are written or wait.
    fn took(&mut self, count: usize) {
        self.left -= count;
        if self.left == 0 {
            self.waiting.extend_from_slice(self.after);
        }
    }

    /// Ends the body. [`Self::poll_flush`] then writes the rest.
    pub(crate) fn finish<'a>(
        &mut self,
        trailers: impl Iterator<Item = (&'a [u8], &'a [u8])>,
    ) -> Result<(), EncodeFault> {
        let encoder = std::mem::replace(&mut self.encoder, BodyEncoder::new(BodyLength::Empty));
        encoder.finish(trailers, &mut self.waiting)
    }

    /// Writes what waits.
    pub(crate) fn poll_flush(
        &mut self,
        io: &mut Stream,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        while self.written < self.waiting.len() {
            let count = ready!(Pin::new(&mut *io).poll_write(cx, &self.waiting[self.written..]))?;
            if count == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.written += count;
            self.sent += count as u64;
        }
        if self.kept_max == 0 {
            self.waiting.clear();
            self.written = 0;
        }
        Pin::new(io).poll_flush(cx)
    }

    /// Gives back memory that one long head took.
    pub(crate) fn shrink(&mut self) {
        self.waiting.clear();
        self.written = 0;
        self.waiting.shrink_to(WAITING_MAX);
    }
}
