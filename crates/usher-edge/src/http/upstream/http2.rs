//! One stream of a shared connection, as the endpoint's side of an exchange.
//!
//! What an endpoint says over HTTP/2 is written down as if it came over HTTP/1.1 (spans into
//! bytes), so clients of either version are answered by the same code. The request is kept while
//! it is short, because HTTP/2 has two ways to say "I did nothing with it", after which it goes
//! out again whatever it is.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use h2::client::ResponseFuture;
use h2::{Reason, RecvStream, SendStream};
use http::{HeaderMap, Request};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::shared::Lease;
use super::side::{Deaf, Unanswered, Upstream};
use crate::http::body::Next;
use crate::http::buffer::{Buffer, BufferPool};
use crate::http::client::Answer;
use crate::http::h2::flow;
use crate::http::refusal::Failure;
use crate::http::tunnel;
use crate::http1::{self, EncodeFault, HeadLimits, ResponseFault, ResponseHead};

/// What was sent of a request's body, to be sent again.
#[derive(Debug, Default)]
pub(crate) struct Kept {
    pieces: Vec<Bytes>,
    bytes: usize,
    trailers: HeaderMap,
    /// It grew too long, or an answer has begun.
    lost: bool,
}

impl Kept {
    /// Whether all that was sent is still there.
    pub(crate) fn is_whole(&self) -> bool {
        !self.lost
    }

    fn keep(&mut self, piece: Bytes, max: usize) {
        self.bytes += piece.len();
        if self.bytes > max {
            self.forget();
        }
        if !self.lost {
            self.pieces.push(piece);
        }
    }

    fn forget(&mut self) {
        self.lost = true;
        self.pieces = Vec::new();
    }
}

/// How to read what the endpoint says.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Terms {
    pub(crate) asked: http1::Asked,
    pub(crate) limits: HeadLimits,
    /// The request is kept while it is no longer than so many bytes.
    pub(crate) kept_max: usize,
}

/// The endpoint's side of one exchange. Dropped before both sides are done, it resets the stream,
/// so that the endpoint stops working for nobody.
pub(crate) struct Http2<'a> {
    // Before the lease: the stream has ended when its place is free again.
    /// Until the answer has begun.
    response: Option<ResponseFuture>,
    send: SendStream<Bytes>,
    /// Once the answer has begun.
    receive: Option<RecvStream>,
    lease: Lease,
    terms: Terms,
    head: &'a mut ResponseHead,
    /// What the spans in `head` point into.
    bytes: Vec<u8>,
    piece: Bytes,
    trailers: Option<HeaderMap>,
    kept: &'a mut Kept,
    /// Place in `kept`, and bytes of it, up to which this stream has sent.
    resent: (usize, usize),
    /// All of the request is at hand.
    finished: bool,
    /// Its end is queued.
    ended: bool,
    sent: u64,
}

impl<'a> Http2<'a> {
    /// Opens the stream. `ends`: the request has no body. `finished`: its body is in `kept`, to
    /// the end.
    ///
    /// # Errors
    /// The connection takes no more streams; nothing was sent.
    pub(crate) fn begin(
        mut lease: Lease,
        request: Request<()>,
        ends: bool,
        finished: bool,
        kept: &'a mut Kept,
        head: &'a mut ResponseHead,
        terms: Terms,
    ) -> Result<Http2<'a>, h2::Error> {
        let (response, send) = lease.send(request, ends)?;
        head.reset();
        Ok(Http2 {
            response: Some(response),
            send,
            receive: None,
            lease,
            terms,
            head,
            bytes: Vec::new(),
            piece: Bytes::new(),
            trailers: None,
            kept,
            resent: (0, 0),
            finished: finished || ends,
            ended: ends,
            sent: 0,
        })
    }

    /// Sends once more what an earlier stream sent.
    fn poll_resend(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Deaf>> {
        let (mut place, mut done) = self.resent;
        while let Some(piece) = self.kept.pieces.get(place) {
            if done < piece.len() {
                let room = ready!(flow::poll_room(&mut self.send, cx, piece.len() - done));
                let room = room.map_err(|_| Deaf)?;
                let part = piece.slice(done..done + room);
                self.send.send_data(part, false).map_err(|_| Deaf)?;
                done += room;
                self.sent += room as u64;
            }
            if done == piece.len() {
                (place, done) = (place + 1, 0);
            }
            self.resent = (place, done);
        }
        Poll::Ready(Ok(()))
    }

    fn end(&mut self) -> Result<(), Deaf> {
        self.ended = true;
        let ended = if self.kept.trailers.is_empty() {
            self.send.send_data(Bytes::new(), true)
        } else {
            self.send.send_trailers(self.kept.trailers.clone())
        };
        ended.map_err(|_| Deaf)
    }

    /// Why there is no answer.
    fn unanswered(&self, error: &h2::Error) -> Unanswered {
        let spoken = self.head.len != 0;
        let remote = error.is_remote();
        if remote && !spoken {
            let refused = error.is_reset() && error.reason() == Some(Reason::REFUSED_STREAM);
            // A stream hears of a GOAWAY only when it is beyond what the endpoint looked at.
            if refused || error.is_go_away() {
                return Unanswered::Untouched;
            }
        }
        let word = match () {
            () if error.is_io() && !spoken => return Unanswered::Silent,
            () if error.is_io() => "truncated-head",
            () if remote && error.is_reset() => "stream-reset",
            () if remote => return Unanswered::Silent,
            () => "h2-protocol",
        };
        Unanswered::Failed(Failure::new(520, word))
    }

    fn receive_head(
        &mut self,
        status: u16,
        headers: &HeaderMap,
        ends: bool,
    ) -> Result<(), ResponseFault> {
        self.lease.heard();
        let Terms { asked, limits, .. } = self.terms;
        let fields = flow::fields(headers);
        self.head
            .receive(status, fields, ends, asked, &limits, &mut self.bytes)
    }
}

impl Upstream for Http2<'_> {
    type Io = Self;

    fn poll_send(&mut self, cx: &mut Context<'_>, piece: &[u8]) -> Poll<Result<usize, Deaf>> {
        ready!(self.poll_resend(cx))?;
        let sent = ready!(flow::poll_send(&mut self.send, cx, piece, None)).map_err(|_| Deaf)?;
        let count = sent.len();
        self.sent += count as u64;
        self.kept.keep(sent, self.terms.kept_max);
        self.resent = (self.kept.pieces.len(), 0);
        Poll::Ready(Ok(count))
    }

    fn finish<'f>(
        &mut self,
        trailers: impl Iterator<Item = (&'f [u8], &'f [u8])>,
    ) -> Result<(), EncodeFault> {
        self.kept.trailers = flow::headers(trailers.filter(|(name, _)| http1::is_trailer(name)))?;
        self.finished = true;
        Ok(())
    }

    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Deaf>> {
        ready!(self.poll_resend(cx))?;
        // A WebSocket's stream goes on as a tunnel.
        if self.finished && !self.ended && !self.terms.asked.websocket {
            self.end()?;
        }
        Poll::Ready(Ok(()))
    }

    fn sent(&self) -> u64 {
        self.sent
    }

    fn poll_head(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Unanswered>> {
        let Some(response) = &mut self.response else {
            return Poll::Ready(Err(Unanswered::Silent));
        };
        let received = match response.poll_informational(cx) {
            Poll::Ready(Some(Ok(interim))) => {
                self.receive_head(interim.status().as_u16(), interim.headers(), false)
            }
            Poll::Ready(Some(Err(error))) => return Poll::Ready(Err(self.unanswered(&error))),
            Poll::Ready(None) | Poll::Pending => match ready!(Pin::new(response).poll(cx)) {
                Ok(answer) => {
                    let (parts, receive) = answer.into_parts();
                    let ends = receive.is_end_stream();
                    self.response = None;
                    self.receive = Some(receive);
                    self.receive_head(parts.status.as_u16(), &parts.headers, ends)
                }
                Err(error) => return Poll::Ready(Err(self.unanswered(&error))),
            },
        };
        self.kept.forget();
        Poll::Ready(received.map_err(|fault| Unanswered::Failed(Failure::new(520, fault.as_str()))))
    }

    fn answer(&self) -> Answer<'_> {
        Answer {
            head: self.head,
            bytes: &self.bytes,
            may_trail: true,
        }
    }

    fn advance_head(&mut self) {}

    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Result<Next, &'static str>> {
        let Some(receive) = &mut self.receive else {
            return Poll::Ready(Ok(Next::End));
        };
        match ready!(flow::poll_piece(receive, &mut self.piece, cx)) {
            Ok(true) => {
                self.lease.heard();
                Poll::Ready(Ok(Next::Piece))
            }
            Ok(false) => match ready!(receive.poll_trailers(cx)) {
                Ok(trailers) => {
                    self.trailers = trailers;
                    Poll::Ready(Ok(Next::End))
                }
                Err(_) => Poll::Ready(Err("truncated")),
            },
            // RFC 9113, 8.1: the whole answer was sent, and the rest of the request is not wanted.
            Err(error) if error.reason() == Some(Reason::NO_ERROR) => Poll::Ready(Ok(Next::End)),
            Err(error) if error.is_reset() && error.is_remote() => Poll::Ready(Err("stream-reset")),
            Err(_) => Poll::Ready(Err("truncated")),
        }
    }

    fn piece(&self) -> &[u8] {
        &self.piece
    }

    fn advance(&mut self, count: usize) {
        if let Some(receive) = &mut self.receive {
            flow::advance(receive, &mut self.piece, count);
        }
    }

    fn trailers(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        let fields = self.trailers.iter().flat_map(flow::fields);
        fields.filter(|(name, _)| http1::is_trailer(name))
    }

    /// The connection is shared: it does not depend on this exchange.
    fn is_reusable(&self) -> bool {
        true
    }

    fn raw(&mut self, buffers: &BufferPool) -> (&mut Self, Buffer) {
        (self, buffers.buffer())
    }
}

impl tunnel::Side for Http2<'_> {}

impl AsyncRead for Http2<'_> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let Some(receive) = &mut this.receive else {
            return Poll::Ready(Ok(()));
        };
        let read = ready!(flow::poll_read(receive, &mut this.piece, cx, buf));
        this.lease.heard();
        Poll::Ready(read)
    }
}

impl AsyncWrite for Http2<'_> {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        flow::poll_write(Some(&mut self.get_mut().send), cx, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(flow::shutdown(Some(&mut self.get_mut().send)))
    }
}
