//! Sees a request that tells its length in two ways, so that it can be refused.
//!
//! The server below takes `Transfer-Encoding` for the truth and may drop `Content-Length` before
//! anybody else sees it. A proxy on the way that did the opposite would disagree with us on where
//! the next request starts. So the heads are looked at as they come by.
//!
//! Where a chunked body ends is not followed: a connection ends with the answer to such a request.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Longest name that matters.
const NAME_MAX: usize = "transfer-encoding".len();

/// Which requests of one connection are refused.
#[derive(Debug)]
pub(crate) struct Refused {
    /// The number of the first, from 0.
    from: AtomicU64,
    asked: AtomicU64,
    /// There is no other request.
    over: AtomicBool,
}

impl Refused {
    /// Whether the next request is. To be asked once for each.
    pub(crate) fn next(&self) -> bool {
        let number = self.asked.fetch_add(1, Ordering::Relaxed);
        number >= self.from.load(Ordering::Relaxed)
    }

    /// What comes from now on are no requests.
    pub(crate) fn no_more(&self) {
        self.over.store(true, Ordering::Relaxed);
    }
}

/// A connection whose request heads are looked at.
#[derive(Debug)]
pub(crate) struct Lengths<S> {
    io: S,
    place: Place,
    line: Line,
    head: Head,
    /// Heads that are complete.
    heads: u64,
    refused: Arc<Refused>,
}

/// Where in the requests the client is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    Head,
    /// So many bytes of a body are still to come.
    Body(u64),
    /// Behind what cannot be followed; there is no next request.
    Blind,
}

/// What is known of the head so far.
#[derive(Debug, Default)]
struct Head {
    begun: bool,
    length: Option<u64>,
    encoding: bool,
}

/// What is known of a line so far.
#[derive(Debug, Default)]
struct Line {
    name: [u8; NAME_MAX],
    /// Bytes before the colon, and all of a line without one; a CR does not count.
    len: usize,
    colon: bool,
    /// The digits behind the colon.
    number: u64,
}

impl<S> Lengths<S> {
    pub(crate) fn new(io: S) -> (Lengths<S>, Arc<Refused>) {
        let refused = Arc::new(Refused {
            from: AtomicU64::new(u64::MAX),
            asked: AtomicU64::new(0),
            over: AtomicBool::new(false),
        });
        let lengths = Lengths {
            io,
            place: Place::Head,
            line: Line::default(),
            head: Head::default(),
            heads: 0,
            refused: Arc::clone(&refused),
        };
        (lengths, refused)
    }

    fn see(&mut self, mut bytes: &[u8]) {
        if self.refused.over.load(Ordering::Relaxed) {
            return;
        }
        while let Some((&byte, rest)) = bytes.split_first() {
            match self.place {
                Place::Blind => return,
                Place::Body(left) => {
                    let skipped = bytes.len().min(usize::try_from(left).unwrap_or(usize::MAX));
                    bytes = &bytes[skipped..];
                    self.place = match left - skipped as u64 {
                        0 => Place::Head,
                        left => Place::Body(left),
                    };
                }
                Place::Head => {
                    bytes = rest;
                    if byte != b'\n' {
                        self.line.see(byte);
                        continue;
                    }
                    match std::mem::take(&mut self.line) {
                        // Empty lines before a request do not count.
                        line if line.is_empty() && self.head.begun => self.end_head(),
                        line if line.is_empty() => {}
                        line => self.head.see(&line),
                    }
                }
            }
        }
    }

    fn end_head(&mut self) {
        let Head {
            length, encoding, ..
        } = std::mem::take(&mut self.head);
        if encoding && length.is_some() {
            self.refused.from.store(self.heads, Ordering::Relaxed);
        }
        self.heads += 1;
        self.place = match length {
            _ if encoding => Place::Blind,
            None | Some(0) => Place::Head,
            Some(length) => Place::Body(length),
        };
    }
}

impl Line {
    fn see(&mut self, byte: u8) {
        match byte {
            b':' if !self.colon => self.colon = true,
            b'0'..=b'9' if self.colon => {
                let digit = u64::from(byte - b'0');
                self.number = self.number.saturating_mul(10).saturating_add(digit);
            }
            b'\r' => {}
            _ if self.colon => {}
            _ => {
                if let Some(place) = self.name.get_mut(self.len) {
                    *place = byte;
                }
                self.len += 1;
            }
        }
    }

    const fn is_empty(&self) -> bool {
        self.len == 0 && !self.colon
    }

    fn names(&self, name: &str) -> bool {
        let own = self.name.get(..self.len);
        own.is_some_and(|own| own.eq_ignore_ascii_case(name.as_bytes()))
    }
}

impl Head {
    fn see(&mut self, line: &Line) {
        if !std::mem::replace(&mut self.begun, true) {
            return; // the request line
        }
        if line.names("content-length") {
            self.length = Some(line.number);
        } else if line.names("transfer-encoding") {
            self.encoding = true;
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Lengths<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.io).poll_read(cx, buffer))?;
        self.see(&buffer.filled()[before..]);
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Lengths<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write_vectored(cx, pieces)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// For each request, whether it is refused; in whatever pieces the bytes come.
    fn refused(bytes: &str, requests: usize) -> Vec<bool> {
        let in_pieces = |size: usize| {
            let (mut lengths, refused) = Lengths::new(());
            bytes
                .as_bytes()
                .chunks(size)
                .for_each(|piece| lengths.see(piece));
            (0..requests).map(|_| refused.next()).collect::<Vec<_>>()
        };
        let whole = in_pieces(bytes.len());
        assert_eq!(whole, in_pieces(1), "{bytes:?}");
        assert_eq!(whole, in_pieces(3), "{bytes:?}");
        whole
    }

    #[test]
    fn two_lengths_are_refused_in_either_order_and_from_any_request_on() {
        for head in [
            "Content-Length: 4\r\nTransfer-Encoding: chunked\r\n",
            "TRANSFER-ENCODING:chunked\r\nHost: a\r\ncontent-length:4\r\n",
            "transfer-encoding: identity\ncontent-length: 4\n",
        ] {
            let bytes = format!("POST / HTTP/1.1\r\n{head}\r\n0\r\n\r\n");
            assert_eq!(refused(&bytes, 1), [true]);
            let one = "\r\nPOST / HTTP/1.1\r\nContent-Length: 21\r\n\r\nTransfer-Encoding: x\n";
            assert_eq!(refused(&format!("{one}{bytes}"), 3), [false, true, true]);
        }
    }

    #[test]
    fn one_length_is_not() {
        for head in [
            "",
            "Content-Length: 0\r\n",
            "Content-Length: 12\r\n",
            "Transfer-Encoding: chunked\r\n",
            "X-Content-Length: 1\r\nTransfer-Encoding: chunked\r\n",
            "Transfer-Encodings: chunked\r\nContent-Length: 0\r\n",
        ] {
            let bytes = format!("POST / HTTP/1.1\r\nHost: a\r\n{head}\r\nTransfer-Encoding: x\r\n");
            assert_eq!(refused(&bytes, 1), [false], "{head}");
        }
    }
}
