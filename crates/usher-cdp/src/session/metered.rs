//! A client's stream, and what moves on it.
//!
//! A WebSocket tells of whole messages only. Whether a client is still there, whether it takes what
//! it is sent, and how much of a message has come that is not whole yet, is seen below it.

use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::room::{Hold, SMALL_MAX, Share};

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
}

impl Moved {
    pub(super) fn new(share: &Share) -> Arc<Moved> {
        Arc::new(Moved {
            read: AtomicU64::new(0),
            written: AtomicU64::new(0),
            message_from: AtomicU64::new(0),
            full: AtomicBool::new(false),
            hold: Mutex::new(share.hold()),
        })
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
    pub(super) stream: S,
    pub(super) moved: Arc<Moved>,
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
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Metered<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.wrote(written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(context, bytes);
        self.wrote(written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
