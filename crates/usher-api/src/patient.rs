//! A client of the API that does not read its answers must not hold a place for ever.
//!
//! The server below knows deadlines for what it reads and none for what it writes; this adds the
//! one that is missing. A connection that has become a WebSocket is whoever's who speaks there: a client
//! that looks at a page for a while is not to be cut off.

use std::future::Future as _;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};

/// How long a client may take no byte of an answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// A connection whose writes fail when nothing moves for [`PATIENCE`].
#[derive(Debug)]
pub(crate) struct Patient<S> {
    io: S,
    /// Runs while the client takes nothing.
    stalled: Option<Pin<Box<Sleep>>>,
    /// It is no HTTP any more.
    switched: Arc<AtomicBool>,
}

impl<S> Patient<S> {
    pub(crate) fn new(io: S, switched: Arc<AtomicBool>) -> Patient<S> {
        Patient {
            io,
            stalled: None,
            switched,
        }
    }

    fn within_patience<T>(
        &mut self,
        cx: &mut Context<'_>,
        wrote: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if wrote.is_ready() || self.switched.load(Ordering::Relaxed) {
            self.stalled = None;
            return wrote;
        }
        let stalled = self
            .stalled
            .get_or_insert_with(|| Box::pin(sleep(PATIENCE)));
        stalled
            .as_mut()
            .poll(cx)
            .map(|()| Err(io::ErrorKind::TimedOut.into()))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Patient<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_read(cx, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Patient<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let wrote = Pin::new(&mut self.io).poll_write(cx, bytes);
        self.within_patience(cx, wrote)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.io).poll_flush(cx);
        self.within_patience(cx, flushed)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let wrote = Pin::new(&mut self.io).poll_write_vectored(cx, pieces);
        self.within_patience(cx, wrote)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn who_takes_nothing_is_let_go() {
        let (ours, _theirs) = tokio::io::duplex(8);
        let mut patient = Patient::new(ours, Arc::default());
        let start = tokio::time::Instant::now();
        let error = patient.write_all(&[0; 16]).await.expect_err("nobody reads");
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert_eq!(start.elapsed(), PATIENCE);
    }

    #[tokio::test(start_paused = true)]
    async fn who_speaks_something_else_may_take_their_time() {
        let (ours, mut theirs) = tokio::io::duplex(8);
        let mut patient = Patient::new(ours, Arc::new(AtomicBool::new(true)));
        let read = async {
            sleep(PATIENCE * 3).await;
            theirs.read_exact(&mut [0; 16]).await
        };
        let (wrote, read) = tokio::join!(patient.write_all(&[0; 16]), read);
        assert!(wrote.is_ok() && read.is_ok());
    }
}
