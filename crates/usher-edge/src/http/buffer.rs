//! Read buffers, lent by a core to the connections that have something to read.
//!
//! A parked connection holds none: it takes one when its socket wakes it and gives it back when the
//! socket had nothing. So idle connections cost a task and a socket, and memory follows the number
//! of exchanges under way. A buffer never grows by what a peer sends, except for a head that is
//! longer than one buffer, which is bounded by `limits.header_bytes`.

use std::cell::RefCell;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, ReadBuf};

/// Size of an ordinary buffer: a head, or a piece of a small body.
pub(crate) const SMALL: usize = 16 * 1024;

/// Size of a buffer for a body that is known to be long: fewer system calls for the same bytes.
pub(crate) const LARGE: usize = 64 * 1024;

/// Buffers of each size that a core keeps when nobody uses them.
const KEPT_MAX: usize = 256;

/// The buffers of one core.
#[derive(Debug, Default)]
pub struct BufferPool {
    small: RefCell<Vec<Box<[u8]>>>,
    large: RefCell<Vec<Box<[u8]>>>,
}

impl BufferPool {
    /// An empty pool.
    #[must_use]
    pub fn new() -> Rc<BufferPool> {
        Rc::default()
    }

    /// Lends a buffer of [`SMALL`] bytes.
    pub(crate) fn small(self: &Rc<Self>) -> Buffer {
        self.lend(SMALL)
    }

    fn lend(self: &Rc<Self>, size: usize) -> Buffer {
        let kept = self.shelf(size).and_then(|shelf| shelf.borrow_mut().pop());
        let bytes = kept.unwrap_or_else(|| vec![0; size].into_boxed_slice());
        Buffer {
            pool: Rc::clone(self),
            bytes,
            start: 0,
            end: 0,
        }
    }

    fn shelf(&self, size: usize) -> Option<&RefCell<Vec<Box<[u8]>>>> {
        match size {
            SMALL => Some(&self.small),
            LARGE => Some(&self.large),
            _ => None,
        }
    }
}

/// A lent buffer with the bytes that were read and not yet consumed. Goes back when dropped.
#[derive(Debug)]
pub(crate) struct Buffer {
    pool: Rc<BufferPool>,
    bytes: Box<[u8]>,
    start: usize,
    end: usize,
}

impl Buffer {
    /// What was read and not consumed.
    pub(crate) fn data(&self) -> &[u8] {
        &self.bytes[self.start..self.end]
    }

    /// Whether nothing is left to consume.
    pub(crate) fn is_empty(&self) -> bool {
        self.start == self.end
    }

    /// Drops `count` bytes from the front.
    pub(crate) fn consume(&mut self, count: usize) {
        debug_assert!(count <= self.end - self.start);
        self.start += count;
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        }
    }

    /// Whether a read would have room.
    pub(crate) fn has_room(&self) -> bool {
        self.end < self.bytes.len() || self.start > 0
    }

    /// Bytes it can hold.
    pub(crate) fn capacity(&self) -> usize {
        self.bytes.len()
    }

    /// Makes it hold `size` bytes, if it holds fewer.
    pub(crate) fn grow(&mut self, size: usize) {
        if size <= self.bytes.len() {
            return;
        }
        let mut larger = self.pool.lend(size);
        larger.append(self.data());
        *self = larger;
    }

    /// Adds bytes that were read elsewhere. The caller has made room.
    pub(crate) fn append(&mut self, bytes: &[u8]) {
        self.bytes[self.end..self.end + bytes.len()].copy_from_slice(bytes);
        self.end += bytes.len();
    }

    /// Reads once into the room that is left. `0` is the end of the stream; with no room left the
    /// answer is [`io::ErrorKind::OutOfMemory`], which callers avoid by asking [`Self::has_room`].
    pub(crate) fn poll_fill<S>(
        &mut self,
        io: &mut S,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<usize>>
    where
        S: AsyncRead + Unpin,
    {
        // Moving a tail is a copy, so only when it is short or when there is no other room.
        if self.start > 0 && (self.end == self.bytes.len() || self.end - self.start <= 256) {
            self.bytes.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.start = 0;
        }
        if self.end == self.bytes.len() {
            return Poll::Ready(Err(io::ErrorKind::OutOfMemory.into()));
        }
        let mut room = ReadBuf::new(&mut self.bytes[self.end..]);
        ready!(Pin::new(io).poll_read(cx, &mut room))?;
        let count = room.filled().len();
        self.end += count;
        Poll::Ready(Ok(count))
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        let bytes = std::mem::take(&mut self.bytes);
        if let Some(shelf) = self.pool.shelf(bytes.len()) {
            let mut shelf = shelf.borrow_mut();
            if shelf.len() < KEPT_MAX {
                shelf.push(bytes);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use super::*;

    fn fill(buffer: &mut Buffer, mut bytes: &[u8]) -> usize {
        match buffer.poll_fill(&mut bytes, &mut Context::from_waker(Waker::noop())) {
            Poll::Ready(Ok(count)) => count,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_dropped_buffer_is_lent_again_and_empty() {
        let pool = BufferPool::new();
        let mut first = pool.small();
        fill(&mut first, b"GET / HTTP/1.1");
        let place = first.bytes.as_ptr();
        drop(first);
        let second = pool.small();
        assert_eq!(second.bytes.as_ptr(), place);
        assert!(second.is_empty());
    }

    #[test]
    fn consumed_room_is_used_again() {
        let pool = BufferPool::new();
        let mut buffer = pool.small();
        assert_eq!(fill(&mut buffer, &[1; SMALL + 5]), SMALL);
        assert!(!buffer.has_room());
        buffer.consume(10);
        assert_eq!(fill(&mut buffer, &[2; 20]), 10);
        assert_eq!(buffer.data().len(), SMALL);
        assert_eq!(buffer.data()[SMALL - 10..], [2; 10]);
    }

    #[test]
    fn growing_keeps_what_was_read() {
        let pool = BufferPool::new();
        let mut buffer = pool.small();
        fill(&mut buffer, &[7; SMALL]);
        buffer.consume(1);
        buffer.grow(LARGE);
        assert_eq!(buffer.data(), [7; SMALL - 1]);
        assert_eq!(buffer.capacity(), LARGE);
        assert_eq!(pool.small.borrow().len(), 1);
    }
}
