//! Writes of one turn, gathered: frames of many streams leave in one system call and, under TLS,
//! in full records.
//!
//! `h2` writes and flushes frame by frame. This takes the frames into a borrowed buffer, ignores
//! those flushes, and leaves it to the connection's task to say when its turn is over. What does
//! not fit is written at once, so a peer that does not read is felt as before.

use std::cell::RefCell;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::buffer::{Buffer, BufferPool, LARGE};

/// A stream whose writes wait for [`Coalesced::poll_send`]. Clones are the same stream.
#[derive(Debug)]
pub(crate) struct Coalesced<S>(Rc<RefCell<Gathered<S>>>);

impl<S> Clone for Coalesced<S> {
    fn clone(&self) -> Coalesced<S> {
        Coalesced(Rc::clone(&self.0))
    }
}

#[derive(Debug)]
struct Gathered<S> {
    stream: S,
    waiting: Buffer,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Coalesced<S> {
    pub(crate) fn new(stream: S, buffers: &BufferPool) -> Coalesced<S> {
        let waiting = buffers.buffer();
        Coalesced(Rc::new(RefCell::new(Gathered { stream, waiting })))
    }

    /// Sends what waits: the turn is over.
    pub(crate) fn poll_send(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.0.borrow_mut().poll_send(cx)
    }
}

impl<S: AsyncWrite + Unpin> Gathered<S> {
    fn poll_send(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.waiting.is_empty() {
            return Poll::Ready(Ok(()));
        }
        while !self.waiting.is_empty() {
            let count = ready!(Pin::new(&mut self.stream).poll_write(cx, self.waiting.data()))?;
            if count == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.waiting.consume(count);
        }
        self.waiting.release();
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_take(
        &mut self,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        loop {
            let mut taken = 0;
            for slice in slices {
                let count = self.waiting.put(slice);
                taken += count;
                if count < slice.len() {
                    break;
                }
            }
            if taken > 0 || slices.iter().all(|slice| slice.is_empty()) {
                return Poll::Ready(Ok(taken));
            }
            if !self.waiting.double(LARGE) {
                ready!(self.poll_send(cx))?;
            }
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Coalesced<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0.borrow_mut().stream).poll_read(cx, buf)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Coalesced<S> {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.0.borrow_mut().poll_take(cx, &[IoSlice::new(bytes)])
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.0.borrow_mut().poll_take(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut gathered = self.0.borrow_mut();
        ready!(gathered.poll_send(cx))?;
        Pin::new(&mut gathered.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use super::super::buffer::BUFFER_SIZE;
    use super::*;

    /// Takes `room` bytes and then no more; counts the calls that gave it some.
    struct Narrow {
        room: usize,
        taken: Vec<u8>,
        calls: usize,
    }

    impl AsyncRead for Narrow {
        fn poll_read(
            self: Pin<&mut Self>,
            _: &mut Context<'_>,
            _: &mut ReadBuf<'_>,
        ) -> Poll<io::Result<()>> {
            Poll::Pending
        }
    }

    impl AsyncWrite for Narrow {
        fn poll_write(
            self: Pin<&mut Self>,
            _: &mut Context<'_>,
            bytes: &[u8],
        ) -> Poll<io::Result<usize>> {
            let this = self.get_mut();
            let count = bytes.len().min(this.room - this.taken.len());
            if count == 0 {
                return Poll::Pending;
            }
            this.calls += 1;
            this.taken.extend_from_slice(&bytes[..count]);
            Poll::Ready(Ok(count))
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }

        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }

    #[test]
    fn frames_of_one_turn_leave_together_and_a_full_peer_is_felt() {
        let narrow = Narrow {
            room: LARGE + 100,
            taken: Vec::new(),
            calls: 0,
        };
        let mut stream = Coalesced::new(narrow, &BufferPool::default());
        let mut cx = Context::from_waker(Waker::noop());
        let mut write = |bytes: &[u8]| match Pin::new(&mut stream).poll_write(&mut cx, bytes) {
            Poll::Ready(count) => Some(count.expect("written")),
            Poll::Pending => None,
        };
        assert_eq!(write(b"one"), Some(3));
        assert_eq!(write(&[2; 50]), Some(50));
        assert_eq!(write(&[3; BUFFER_SIZE]), Some(BUFFER_SIZE - 53));
        assert_eq!(write(&[3; 53]), Some(53), "it grows before it is sent");
        let other = stream.clone();
        assert_eq!(other.0.borrow().stream.calls, 0);
        let mut cx = Context::from_waker(Waker::noop());
        assert!(other.poll_send(&mut cx).is_ready());
        assert_eq!(other.0.borrow().stream.calls, 1);
        assert!(other.0.borrow().waiting.is_empty());
        let mut write = |bytes: &[u8]| match Pin::new(&mut stream).poll_write(&mut cx, bytes) {
            Poll::Ready(count) => Some(count.expect("written")),
            Poll::Pending => None,
        };
        // All of it waits; the peer takes a part, and what is left must go before more is taken.
        let mut left = LARGE;
        while left > 0 {
            let count = write(&vec![4; left]).expect("room");
            left -= count;
        }
        assert_eq!(write(b"x"), None);
        assert_eq!(other.0.borrow().stream.taken.len(), LARGE + 100);
    }
}
