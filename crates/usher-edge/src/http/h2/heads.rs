//! Notices a request head that takes its time.
//!
//! `h2` shows a request when its head is complete and says nothing before, so a client could send a
//! head one byte a minute. This looks at the frame headers as they come by: a head has begun when
//! a HEADERS frame has, and is over with the frame that says so.

use std::cell::Cell;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Instant;

use crate::http::stream::Prefixed;

/// Bytes of the connection preface, and of a frame header.
const PREFACE: usize = 24;
const FRAME_HEADER: usize = 9;

const HEADERS: u8 = 1;
const CONTINUATION: u8 = 9;
const END_HEADERS: u8 = 4;

/// Since when a request head is on its way.
#[derive(Debug, Default)]
pub(super) struct HeadClock(Cell<Option<Instant>>);

impl HeadClock {
    pub(super) fn since(&self) -> Option<Instant> {
        self.0.get()
    }
}

/// Where in the frames the client is.
#[derive(Debug)]
struct Frames {
    /// Bytes until the next frame header.
    skip: usize,
    header: [u8; FRAME_HEADER],
    /// Bytes of `header` that are there.
    have: usize,
    in_head: bool,
    /// `in_head` after the bytes to skip.
    in_head_next: bool,
}

impl Frames {
    const fn new() -> Frames {
        Frames {
            skip: PREFACE,
            header: [0; FRAME_HEADER],
            have: 0,
            in_head: false,
            in_head_next: false,
        }
    }

    fn see(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            if self.skip > 0 {
                let skipped = self.skip.min(bytes.len());
                bytes = &bytes[skipped..];
                self.skip -= skipped;
                if self.skip == 0 {
                    self.in_head = self.in_head_next;
                }
                continue;
            }
            let missing = &mut self.header[self.have..];
            let taken = missing.len().min(bytes.len());
            missing[..taken].copy_from_slice(&bytes[..taken]);
            bytes = &bytes[taken..];
            self.have += taken;
            if self.have == FRAME_HEADER {
                self.have = 0;
                self.begin();
            }
        }
    }

    fn begin(&mut self) {
        let [a, b, c, kind, flags, ..] = self.header;
        self.skip = u32::from_be_bytes([0, a, b, c]) as usize;
        if kind == HEADERS || kind == CONTINUATION {
            self.in_head_next = flags & END_HEADERS == 0;
            // An empty one is over at once.
            self.in_head = self.skip > 0 || self.in_head_next;
        }
    }
}

/// A stream that is watched for slow heads.
#[derive(Debug)]
pub(super) struct Watched {
    stream: Prefixed,
    frames: Frames,
    clock: Rc<HeadClock>,
}

impl Watched {
    pub(super) fn new(stream: Prefixed) -> (Watched, Rc<HeadClock>) {
        let clock = Rc::<HeadClock>::default();
        (
            Watched {
                stream,
                frames: Frames::new(),
                clock: Rc::clone(&clock),
            },
            clock,
        )
    }
}

impl AsyncRead for Watched {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = buf.filled().len();
        ready!(Pin::new(&mut this.stream).poll_read(cx, buf))?;
        this.frames.see(&buf.filled()[before..]);
        let clock = &this.clock.0;
        if !this.frames.in_head {
            clock.set(None);
        } else if clock.get().is_none() {
            clock.set(Some(Instant::now()));
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Watched {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().stream).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().stream).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(kind: u8, flags: u8, payload: &[u8]) -> Vec<u8> {
        let len = (payload.len() as u32).to_be_bytes();
        [&len[1..], &[kind, flags, 0, 0, 0, 1], payload].concat()
    }

    /// The preface and `frames`, seen byte by byte: after how many a head was on its way.
    fn in_head(frames: &[Vec<u8>]) -> Vec<usize> {
        let bytes = [vec![b'P'; PREFACE], frames.concat()].concat();
        let mut watch = Frames::new();
        let seen = bytes.chunks(1).map(|byte| {
            watch.see(byte);
            watch.in_head
        });
        seen.enumerate()
            .filter(|(_, head)| *head)
            .map(|(at, _)| at - PREFACE)
            .collect()
    }

    #[test]
    fn a_head_is_on_its_way_from_its_first_frame_to_the_one_that_ends_it() {
        assert_eq!(in_head(&[frame(4, 0, b"settings")]), []);
        let whole = [
            frame(0, 0, b"data"),
            frame(HEADERS, END_HEADERS, b"abc"),
            frame(0, 0, b"x"),
        ];
        // Frame header at 13..22, payload 22..25: known at its last header byte, over with the last.
        assert_eq!(in_head(&whole), [21, 22, 23]);
        let parts = [
            frame(HEADERS, 0, b"a"),
            frame(CONTINUATION, END_HEADERS, b"b"),
            frame(6, 0, b"ping"),
        ];
        assert_eq!(in_head(&parts), (8..19).collect::<Vec<_>>());
        let empty = [
            frame(HEADERS, 0, b""),
            frame(CONTINUATION, END_HEADERS, b""),
        ];
        assert_eq!(in_head(&empty), (8..17).collect::<Vec<_>>());
    }
}
