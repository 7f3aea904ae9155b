//! Read buffers, lent by a core to the connections that have something to read.
//!
//! A [`Buffer`] holds memory only while it holds bytes: it takes some from its core when the socket
//! may have data and gives it back when there was none. So idle connections, and exchanges that
//! wait for their endpoint, cost a task and a socket, and memory follows the bytes under way. A
//! buffer never grows by what a peer sends, except for a head that is longer than one buffer, which
//! is bounded by `limits.header_bytes`.

use std::cell::RefCell;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, ReadBuf};

/// Bytes of an ordinary buffer: a head, or a piece of a small body.
pub(crate) const BUFFER_SIZE: usize = 16 * 1024;

/// Bytes of a buffer for a body that proved long: fewer system calls for the same bytes.
pub(crate) const LARGE: usize = 64 * 1024;

/// Buffers of each size that a core keeps when nobody uses them.
const KEPT_MAX: usize = 256;

/// The buffers of one core.
#[derive(Debug, Clone, Default)]
pub struct BufferPool(Rc<Shelves>);

#[derive(Debug, Default)]
struct Shelves {
    small: RefCell<Vec<Box<[u8]>>>,
    large: RefCell<Vec<Box<[u8]>>>,
}

impl Shelves {
    fn of(&self, size: usize) -> Option<&RefCell<Vec<Box<[u8]>>>> {
        match size {
            BUFFER_SIZE => Some(&self.small),
            LARGE => Some(&self.large),
            _ => None,
        }
    }

    /// Memory stays initialised when it comes back, so lending it costs no clearing.
    fn lend(&self, size: usize) -> Box<[u8]> {
        let kept = self.of(size).and_then(|shelf| shelf.borrow_mut().pop());
        kept.unwrap_or_else(|| vec![0; size].into_boxed_slice())
    }

    fn take_back(&self, bytes: Box<[u8]>) {
        // Other sizes are the exception of one large head, and not worth keeping.
        if let Some(shelf) = self.of(bytes.len()) {
            let mut shelf = shelf.borrow_mut();
            if shelf.len() < KEPT_MAX {
                shelf.push(bytes);
            }
        }
    }
}

impl BufferPool {
    /// A buffer of `BUFFER_SIZE` bytes, which takes its memory when it is first filled.
    #[must_use]
    pub fn buffer(&self) -> Buffer {
        Buffer {
            shelves: Rc::clone(&self.0),
            bytes: Box::default(),
            start: 0,
            end: 0,
            size: BUFFER_SIZE,
        }
    }
}

/// Bytes that were read and not yet consumed.
#[derive(Debug)]
pub struct Buffer {
    shelves: Rc<Shelves>,
    /// Empty while there is nothing to hold.
    bytes: Box<[u8]>,
    start: usize,
    end: usize,
    /// What it takes from its core.
    size: usize,
}

impl Buffer {
    /// What was read and not consumed.
    #[must_use]
    pub fn data(&self) -> &[u8] {
        &self.bytes[self.start..self.end]
    }

    /// Whether nothing is left to consume.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.start == self.end
    }

    /// Whether a read would have room.
    #[must_use]
    pub fn has_room(&self) -> bool {
        self.end - self.start < self.size
    }

    /// Drops `count` bytes from the front.
    pub fn consume(&mut self, count: usize) {
        debug_assert!(count <= self.end - self.start);
        self.start += count;
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        }
    }

    /// Holds up to `size` bytes from now on, if it held fewer.
    pub fn grow(&mut self, size: usize) {
        if size <= self.size {
            return;
        }
        self.size = size;
        if !self.is_empty() {
            let mut larger = self.shelves.lend(size);
            let held = self.end - self.start;
            larger[..held].copy_from_slice(self.data());
            self.shelves
                .take_back(std::mem::replace(&mut self.bytes, larger));
            (self.start, self.end) = (0, held);
        }
    }

    /// Twice as large, up to `limit`. False when it is that large already.
    pub fn double(&mut self, limit: usize) -> bool {
        let before = self.size;
        self.grow((before * 2).min(limit));
        self.size > before
    }

    /// Moves what it holds into a buffer of its own.
    #[must_use]
    pub fn take(&mut self) -> Buffer {
        let empty = Buffer {
            shelves: Rc::clone(&self.shelves),
            bytes: Box::default(),
            start: 0,
            end: 0,
            size: BUFFER_SIZE,
        };
        std::mem::replace(self, empty)
    }

    /// Reads once into the room that is left, which the caller has seen to. `0` is the end of the
    /// stream.
    ///
    /// # Errors
    /// Those of the stream; [`io::ErrorKind::OutOfMemory`] without room.
    pub fn poll_fill<S>(&mut self, io: &mut S, cx: &mut Context<'_>) -> Poll<io::Result<usize>>
    where
        S: AsyncRead + Unpin,
    {
        if !self.has_room() {
            return Poll::Ready(Err(io::ErrorKind::OutOfMemory.into()));
        }
        if self.bytes.len() < self.size && self.is_empty() {
            self.release();
            self.bytes = self.shelves.lend(self.size);
        }
        // Moving a tail is a copy, so only when it is short or when there is no other room.
        if self.start > 0 && (self.end == self.bytes.len() || self.end - self.start <= 256) {
            self.bytes.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.start = 0;
        }
        let mut room = ReadBuf::new(&mut self.bytes[self.end..]);
        let read = Pin::new(io).poll_read(cx, &mut room);
        let count = room.filled().len();
        self.end += count;
        if self.is_empty() {
            self.release();
        }
        read.map_ok(|()| count)
    }

    /// Copies as much of `bytes` as there is room for: how much.
    pub(crate) fn put(&mut self, bytes: &[u8]) -> usize {
        if self.bytes.len() < self.size && self.is_empty() {
            self.release();
            self.bytes = self.shelves.lend(self.size);
        }
        let count = bytes.len().min(self.bytes.len() - self.end);
        self.bytes[self.end..self.end + count].copy_from_slice(&bytes[..count]);
        self.end += count;
        count
    }

    /// Gives the memory back. Only while empty.
    pub(crate) fn release(&mut self) {
        if !self.bytes.is_empty() {
            self.shelves.take_back(std::mem::take(&mut self.bytes));
        }
        if self.shelves.of(self.size).is_none() {
            self.size = BUFFER_SIZE;
        }
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        self.release();
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
    fn memory_is_held_only_with_bytes_and_lent_again() {
        let pool = BufferPool::default();
        let mut first = pool.buffer();
        assert_eq!(first.bytes.len(), 0);
        fill(&mut first, b"GET / HTTP/1.1");
        let place = first.bytes.as_ptr();
        first.consume(14);
        fill(&mut first, b"");
        assert_eq!((first.bytes.len(), pool.0.small.borrow().len()), (0, 1));
        let mut second = pool.buffer();
        fill(&mut second, b"x");
        assert_eq!(second.bytes.as_ptr(), place);
        assert_eq!(second.data(), b"x");
    }

    #[test]
    fn consumed_room_is_used_again() {
        let mut buffer = BufferPool::default().buffer();
        assert_eq!(fill(&mut buffer, &[1; BUFFER_SIZE + 5]), BUFFER_SIZE);
        assert!(!buffer.has_room());
        buffer.consume(10);
        assert_eq!(fill(&mut buffer, &[2; 20]), 10);
        assert_eq!(buffer.data().len(), BUFFER_SIZE);
        assert_eq!(buffer.data()[BUFFER_SIZE - 10..], [2; 10]);
    }

    #[test]
    fn growing_keeps_what_was_read_and_ends_at_the_limit() {
        let pool = BufferPool::default();
        let mut buffer = pool.buffer();
        fill(&mut buffer, &[7; BUFFER_SIZE]);
        buffer.consume(1);
        assert!(buffer.double(BUFFER_SIZE + 10));
        assert_eq!(buffer.data(), [7; BUFFER_SIZE - 1]);
        assert_eq!(fill(&mut buffer, &[8; 99]), 11);
        assert!(!buffer.double(BUFFER_SIZE + 10));
        assert_eq!(pool.0.small.borrow().len(), 1);
        drop(buffer);
        assert_eq!(pool.0.large.borrow().len(), 0);
    }

    #[test]
    fn a_core_keeps_a_bounded_number() {
        let pool = BufferPool::default();
        let lent: Vec<_> = (0..KEPT_MAX + 9)
            .map(|_| {
                let mut buffer = pool.buffer();
                fill(&mut buffer, b"x");
                buffer
            })
            .collect();
        drop(lent);
        assert_eq!(pool.0.small.borrow().len(), KEPT_MAX);
    }
}
