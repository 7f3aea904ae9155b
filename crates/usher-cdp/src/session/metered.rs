//! A client's stream, and what moves on it.
//!
//! A WebSocket tells of whole messages only. Whether a client is still there, whether it takes what
//! it is sent, and how much of a message has come that is not whole yet, is seen below it.
//!
//! What is long goes past it. A WebSocket copies each message into a buffer of its own, which stays
//! as large as the longest one for as long as the connection lasts: with a picture of some megabytes
//! each, that would be most of the memory of many quiet clients. So a long message is handed over
//! here, and written as a frame from where it lies whenever the WebSocket stands between two frames
//! of its own.

use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};

use bytes::{Buf, BufMut, Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::room::{Hold, SMALL_MAX, Share};

/// Messages of this many bytes and more go past the WebSocket.
pub(super) const LONG_MIN: usize = 16 << 10;

/// A frame that is being written.
#[derive(Debug)]
struct Frame {
    head: Bytes,
    body: Bytes,
}

/// What a frame holds.
#[derive(Debug, Clone, Copy)]
pub(super) enum Kind {
    Text = 1,
    Binary = 2,
}

impl Frame {
    /// A whole message in one frame, as a server writes it.
    fn new(kind: Kind, body: Bytes) -> Frame {
        const WHOLE: u8 = 0x80;
        let mut head = BytesMut::with_capacity(10);
        head.put_u8(WHOLE | kind as u8);
        match (u8::try_from(body.len()), u16::try_from(body.len())) {
            (Ok(len @ ..=125), _) => head.put_u8(len),
            (_, Ok(len)) => {
                head.put_u8(126);
                head.put_u16(len);
            }
            _ => {
                head.put_u8(127);
                head.put_u64(body.len() as u64);
            }
        }
        Frame {
            head: head.freeze(),
            body,
        }
    }
}

/// What moved.
#[derive(Debug)]
pub(super) struct Moved {
    read: AtomicU64,
    written: AtomicU64,
    /// What `read` was when the message under way began.
    message_from: AtomicU64,
    /// There was no room for a message.
    full: AtomicBool,
    hold: Mutex<Hold>,
    /// What goes past the WebSocket when it is flushed.
    long: Mutex<Option<Frame>>,
}

impl Moved {
    pub(super) fn new(share: &Share) -> Arc<Moved> {
        Arc::new(Moved {
            read: AtomicU64::new(0),
            written: AtomicU64::new(0),
            message_from: AtomicU64::new(0),
            full: AtomicBool::new(false),
            hold: Mutex::new(share.hold()),
            long: Mutex::new(None),
        })
    }

    /// Hands a long message over, to be written by the next flush. One at a time.
    pub(super) fn long(&self, kind: Kind, body: Bytes) {
        let mut long = self.long.lock().unwrap_or_else(PoisonError::into_inner);
        *long = Some(Frame::new(kind, body));
    }

    pub(super) fn read(&self) -> u64 {
        self.read.load(Ordering::Relaxed)
    }

    pub(super) fn written(&self) -> u64 {
        self.written.load(Ordering::Relaxed)
    }

    pub(super) fn is_full(&self) -> bool {
        self.full.load(Ordering::Relaxed)
    }

    /// What came so far is done with.
    pub(super) fn message_ends(&self) {
        let read = self.read();
        let from = self.message_from.swap(read, Ordering::Relaxed);
        if read - from > SMALL_MAX as u64 {
            self.hold
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .let_go();
        }
    }

    fn reads(&self, count: usize) -> io::Result<()> {
        let read = self.read.fetch_add(count as u64, Ordering::Relaxed) + count as u64;
        let message = read - self.message_from.load(Ordering::Relaxed);
        if message <= SMALL_MAX as u64 {
            return Ok(());
        }
        let bytes = usize::try_from(message).unwrap_or(usize::MAX);
        let mut hold = self.hold.lock().unwrap_or_else(PoisonError::into_inner);
        if hold.reach(bytes) {
            return Ok(());
        }
        self.full.store(true, Ordering::Relaxed);
        Err(io::ErrorKind::OutOfMemory.into())
    }
}

/// A stream whose bytes are counted.
#[derive(Debug)]
pub(super) struct Metered<S> {
    stream: S,
    moved: Arc<Moved>,
    /// The WebSocket is amid a frame of its own.
    amid: bool,
}

impl<S> Metered<S> {
    pub(super) fn new(stream: S, moved: Arc<Moved>) -> Metered<S> {
        Metered {
            stream,
            moved,
            amid: false,
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Metered<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(context, buffer))?;
        Poll::Ready(self.moved.reads(buffer.filled().len() - before))
    }
}

impl<S: AsyncWrite + Unpin> Metered<S> {
    fn wrote(&self, written: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        if let Poll::Ready(Ok(count)) = written {
            let written = &self.moved.written;
            written.fetch_add(count as u64, Ordering::Relaxed);
        }
        written
    }

    /// Writes what goes past the WebSocket, to its end.
    fn poll_long(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let moved = Arc::clone(&self.moved);
        let mut long = moved.long.lock().unwrap_or_else(PoisonError::into_inner);
        while let Some(Frame { head, body }) = long.as_mut() {
            let parts = [io::IoSlice::new(head), io::IoSlice::new(body)];
            let written = Pin::new(&mut self.stream).poll_write_vectored(context, &parts);
            let count = ready!(self.wrote(written))?;
            if count == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            let of_head = count.min(head.len());
            head.advance(of_head);
            body.advance(count - of_head);
            if head.is_empty() && body.is_empty() {
                *long = None;
            }
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Metered<S> {
    /// The WebSocket writes all that it has, so less is taken only amid a frame of it.
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        if !self.amid {
            ready!(self.poll_long(context))?;
        }
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        let count = ready!(self.wrote(written))?;
        self.amid = count < bytes.len();
        Poll::Ready(Ok(count))
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if !self.amid {
            ready!(self.poll_long(context))?;
        }
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
