//! Notices what `h2` does not show: a request head that takes its time, and frames without use.
//!
//! `h2` shows a request when its head is complete and says nothing before, so a client could send a
//! head one byte a minute. This looks at the frame headers as they come by: a head has begun when
//! a HEADERS frame has, and is over with the frame that says so.
//!
//! Frames that ask for nothing (PING, SETTINGS, WINDOW_UPDATE, PRIORITY, empty DATA) cost a client
//! nothing and us some work each. They come with requests, bodies and answers, so each of those
//! buys some; a client that sends many more is noise.
//!
//! It is also the place to mend how `h2` ends a connection. It sends two GOAWAY frames, as RFC 9113
//! asks (section 6.8), and the second, after which requests are passed over, the moment its PING is
//! answered. Clients answer a PING ahead of everything else, requests that they began before
//! included, and those would be lost. So the answer is kept back for a while, and what the client
//! sends meanwhile is served.

use std::cell::Cell;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Instant;

use crate::http::coalesced::Coalesced;
use crate::http::stream::Prefixed;

/// Bytes of the connection preface, and of a frame header.
const PREFACE: usize = 24;
const FRAME_HEADER: usize = 9;

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const PING: u8 = 6;
const CONTINUATION: u8 = 9;
const ACK: u8 = 1;
const END_HEADERS: u8 = 4;

/// The answer to the PING between the two GOAWAY frames of `h2`.
const ANSWER: [u8; 17] = *b"\0\0\x08\x06\x01\0\0\0\0\x0b\x7b\xa2\xf0\x8b\x9b\xfe\x54";

/// Frames without use, not bought by others, that a client may send within [`NOISE_WITHIN`].
const NOISE_MAX: u32 = 2_000;
const NOISE_WITHIN: Duration = Duration::from_secs(60);

/// How many of them a frame with use buys, and how many bytes that we send buy one.
const BOUGHT_BY_FRAME: u32 = 16;
const BYTES_FOR_ONE: u32 = 512;

/// What was seen.
#[derive(Debug)]
pub(super) struct Sight {
    since: Cell<Option<Instant>>,
    noise: Cell<u32>,
    /// Since when `noise` is counted.
    counted_since: Cell<Instant>,
    /// Bytes sent that have bought nothing yet.
    sent: Cell<u32>,
    answer: Cell<Answer>,
}

/// The answer to the PING that goes with the first GOAWAY.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Answer {
    /// There is none to keep back.
    Free,
    /// It is to be kept back when it comes.
    Awaited,
    /// It came.
    Kept(Instant),
    /// It is given out again, from this byte on.
    Given(usize),
}

impl Sight {
    fn new() -> Sight {
        Sight {
            since: Cell::new(None),
            noise: Cell::new(0),
            counted_since: Cell::new(Instant::now()),
            sent: Cell::new(0),
            answer: Cell::new(Answer::Free),
        }
    }

    /// Since when a request head is on its way.
    pub(super) fn since(&self) -> Option<Instant> {
        self.since.get()
    }

    /// Keeps the answer to the PING of a first GOAWAY back.
    pub(super) fn keep_answer(&self) {
        self.answer.set(Answer::Awaited);
    }

    /// Since when an answer is kept.
    pub(super) fn kept_since(&self) -> Option<Instant> {
        match self.answer.get() {
            Answer::Kept(since) => Some(since),
            _ => None,
        }
    }

    /// Gives the answer out when the connection is read from next.
    pub(super) fn give_answer(&self) {
        self.answer.set(Answer::Given(0));
    }

    /// The bytes of the answer that are to be read now; at most `len`.
    fn given(&self, len: usize, between_frames: bool) -> Option<&'static [u8]> {
        let Answer::Given(from) = self.answer.get() else {
            return None;
        };
        if from == 0 && !between_frames {
            return None;
        }
        let end = ANSWER.len().min(from + len);
        self.answer.set(if end == ANSWER.len() {
            Answer::Free
        } else {
            Answer::Given(end)
        });
        Some(&ANSWER[from..end])
    }

    /// Whether the client sends little else than frames without use.
    pub(super) fn is_noisy(&self) -> bool {
        if self.noise.get() <= NOISE_MAX {
            return false;
        }
        let counted_since = self.counted_since.replace(Instant::now());
        self.noise.set(0);
        counted_since.elapsed() < NOISE_WITHIN
    }

    fn frames(&self, useful: u32, useless: u32) {
        let noise = self.noise.get() + useless;
        self.noise
            .set(noise.saturating_sub(useful * BOUGHT_BY_FRAME));
    }

    fn wrote(&self, written: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        if let Poll::Ready(Ok(bytes)) = written {
            let sent = self.sent.get() + bytes as u32;
            self.sent.set(sent % BYTES_FOR_ONE);
            let bought = sent / BYTES_FOR_ONE;
            self.noise.set(self.noise.get().saturating_sub(bought));
        }
        written
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
    /// Frames with and without use since they were counted.
    useful: u32,
    useless: u32,
    /// The bytes to skip are those of an answer to a PING.
    in_answer: bool,
}

impl Frames {
    const fn new() -> Frames {
        Frames {
            skip: PREFACE,
            header: [0; FRAME_HEADER],
            have: 0,
            in_head: false,
            in_head_next: false,
            useful: 0,
            useless: 0,
            in_answer: false,
        }
    }

    /// Whether the next byte begins a frame.
    const fn between(&self) -> bool {
        self.skip == 0 && self.have == 0
    }

    /// Takes in what comes next. With `spoil`, answers to a PING are made answers to none. Whether
    /// one came to its end.
    fn see(&mut self, mut bytes: &mut [u8], spoil: bool) -> bool {
        let mut answered = false;
        while !bytes.is_empty() {
            if self.skip > 0 {
                let (skipped, rest) = bytes.split_at_mut(self.skip.min(bytes.len()));
                self.skip -= skipped.len();
                if self.in_answer && spoil {
                    skipped.fill(0);
                }
                bytes = rest;
                if self.skip == 0 {
                    self.in_head = self.in_head_next;
                    answered |= std::mem::take(&mut self.in_answer);
                }
                continue;
            }
            let missing = &mut self.header[self.have..];
            let taken = missing.len().min(bytes.len());
            missing[..taken].copy_from_slice(&bytes[..taken]);
            bytes = &mut bytes[taken..];
            self.have += taken;
            if self.have == FRAME_HEADER {
                self.have = 0;
                self.begin();
            }
        }
        answered
    }

    fn begin(&mut self) {
        let [a, b, c, kind, flags, ..] = self.header;
        self.skip = u32::from_be_bytes([0, a, b, c]) as usize;
        if self.skip > 0 && matches!(kind, DATA | HEADERS) {
            self.useful += 1;
        } else {
            self.useless += 1;
        }
        if kind == HEADERS || kind == CONTINUATION {
            self.in_head_next = flags & END_HEADERS == 0;
            // An empty one is over at once.
            self.in_head = self.skip > 0 || self.in_head_next;
        }
        self.in_answer = kind == PING && flags & ACK != 0 && self.skip > 0;
    }
}

/// A stream whose frames are looked at.
#[derive(Debug)]
pub(super) struct Watched {
    stream: Coalesced<Prefixed>,
    frames: Frames,
    sight: Rc<Sight>,
}

impl Watched {
    pub(super) fn new(stream: Coalesced<Prefixed>) -> (Watched, Rc<Sight>) {
        let sight = Rc::new(Sight::new());
        (
            Watched {
                stream,
                frames: Frames::new(),
                sight: Rc::clone(&sight),
            },
            sight,
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
        if let Some(answer) = this.sight.given(buf.remaining(), this.frames.between()) {
            buf.put_slice(answer);
            return Poll::Ready(Ok(()));
        }
        let before = buf.filled().len();
        ready!(Pin::new(&mut this.stream).poll_read(cx, buf))?;
        let awaited = this.sight.answer.get() == Answer::Awaited;
        let keep = awaited || this.sight.kept_since().is_some();
        if this.frames.see(&mut buf.filled_mut()[before..], keep) && awaited {
            this.sight.answer.set(Answer::Kept(Instant::now()));
        }
        let useful = std::mem::take(&mut this.frames.useful);
        this.sight
            .frames(useful, std::mem::take(&mut this.frames.useless));
        let clock = &this.sight.since;
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
        let this = self.get_mut();
        let written = Pin::new(&mut this.stream).poll_write(cx, buf);
        this.sight.wrote(written)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = Pin::new(&mut this.stream).poll_write_vectored(cx, bufs);
        this.sight.wrote(written)
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
        let mut bytes = [vec![b'P'; PREFACE], frames.concat()].concat();
        let mut watch = Frames::new();
        let seen = bytes.chunks_mut(1).map(|byte| {
            watch.see(byte, true);
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

    #[test]
    fn frames_without_use_are_bought_by_those_with_use_and_by_answers() {
        let sight = Sight::new();
        sight.frames(0, NOISE_MAX);
        assert!(!sight.is_noisy());
        sight.frames(2, 2 * BOUGHT_BY_FRAME + 1);
        assert!(sight.is_noisy());
        assert!(!sight.is_noisy(), "counted from the start again");
        sight.frames(0, NOISE_MAX + 3);
        for _ in 0..3 * BYTES_FOR_ONE / 256 {
            let _ = sight.wrote(Poll::Ready(Ok(256)));
        }
        assert!(!sight.is_noisy());
    }

    #[test]
    fn an_answer_to_a_ping_is_spoiled_and_nothing_else() {
        let other = frame(0, 0, &[1; 8]);
        let ping = frame(PING, 0, &ANSWER[FRAME_HEADER..]);
        let sent = [&[b'P'; PREFACE], &*other, &*ping, &ANSWER, &*other].concat();
        let mut spoiled = sent.clone();
        let end = sent.len() - other.len();
        spoiled[end - 8..end].fill(0);
        for size in [1, 7, sent.len()] {
            for (spoil, expected) in [(true, &spoiled), (false, &sent)] {
                let (mut frames, mut bytes) = (Frames::new(), sent.clone());
                let mut answers = 0;
                for part in bytes.chunks_mut(size) {
                    answers += usize::from(frames.see(part, spoil));
                }
                assert_eq!((answers, &bytes), (1, expected), "in parts of {size}");
                assert!(frames.between());
            }
        }
    }

    #[test]
    fn a_kept_answer_is_given_once_between_frames_in_any_parts() {
        let sight = Sight::new();
        sight.keep_answer();
        assert_eq!(sight.given(100, true), None);
        sight.give_answer();
        assert_eq!(sight.given(100, false), None);
        assert_eq!(sight.given(5, true), Some(&ANSWER[..5]));
        assert_eq!(sight.given(100, false), Some(&ANSWER[5..]));
        assert_eq!(sight.given(100, true), None);
    }
}
