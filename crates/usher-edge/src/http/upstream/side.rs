//! The endpoint's side of an exchange, as the pump sees it: a connection or stream that takes a
//! request, and gives an answer. HTTP/1.1 and HTTP/2 each have one.

use std::task::{Context, Poll, ready};

use tokio::net::TcpStream;

use crate::http::body::{Incoming, Next, Outgoing, ReadFault};
use crate::http::buffer::{Buffer, BufferPool};
use crate::http::client::Answer;
use crate::http::refusal::Failure;
use crate::http::splice::Source;
use crate::http::stream::Stream;
use crate::http::tunnel;
use crate::http::websocket::Handshake;
use crate::http1::{
    self, BodyFault, EncodeFault, FieldName, HeadLimits, Parsed, ResponseHead, ResponseKind,
    parse_response,
};

/// The endpoint takes no more of the request; it may still answer.
#[derive(Debug)]
pub(crate) struct Deaf;

/// Why there is no head of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unanswered {
    /// The endpoint closed the connection before the first byte of an answer.
    Silent,
    /// It said that it did nothing with the request, which may be sent again whatever it is.
    Untouched,
    /// What it said is no answer.
    Failed(Failure),
}

/// The endpoint's side of one exchange. Its request head is queued already.
pub(crate) trait Upstream {
    /// What is underneath, for a tunnel.
    type Io: tunnel::Side;

    /// Takes bytes of the request's body: how many, at least one. `piece` is not empty.
    fn poll_send(&mut self, cx: &mut Context<'_>, piece: &[u8]) -> Poll<Result<usize, Deaf>>;

    /// Queues the end of the body.
    fn finish<'a>(
        &mut self,
        trailers: impl Iterator<Item = (&'a [u8], &'a [u8])>,
    ) -> Result<(), EncodeFault>;

    /// Waits until all that is queued is out.
    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Deaf>>;

    /// Bytes that the endpoint's connection took.
    fn sent(&self) -> u64;

    /// Waits for the head of an answer, or of an interim one.
    fn poll_head(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Unanswered>>;

    /// The head at hand.
    fn answer(&self) -> Answer<'_>;

    /// The head at hand is passed on.
    fn advance_head(&mut self);

    /// Waits for a piece of the answer's body, or its end; or the word for what broke it.
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Result<Next, &'static str>>;

    /// The piece at hand.
    fn piece(&self) -> &[u8];

    /// So many bytes of the piece are handed on.
    fn advance(&mut self, count: usize);

    /// Trailers of the answer, once its body is over.
    fn trailers(&self) -> impl Iterator<Item = (&[u8], &[u8])>;

    /// Whether the connection takes another request once all of this one was sent.
    fn is_reusable(&self) -> bool;

    /// Where the rest of the answer's body may be taken from by the kernel: what is taken is told
    /// to [`Upstream::took`].
    fn source(&self) -> Option<Source<'_>> {
        None
    }

    /// So many bytes were taken from the source. 0: it has ended. Or the word for what is wrong.
    fn took(&mut self, _count: usize) -> Result<(), &'static str> {
        Err("internal")
    }

    /// Where bytes of the request's body may be given to by the kernel: what is given is told to
    /// [`Upstream::gave`].
    fn sink(&self) -> Option<&TcpStream> {
        None
    }

    /// So many bytes were given to the sink.
    fn gave(&mut self, _count: usize) -> Result<(), EncodeFault> {
        Err(EncodeFault::TooLong)
    }

    /// What is underneath, for a tunnel, and what was read of it already.
    fn raw(&mut self, buffers: &BufferPool) -> (&mut Self::Io, Buffer);
}

/// A connection of HTTP/1.1, which is this exchange's alone.
pub(crate) struct Http1<'a> {
    pub(crate) io: &'a mut Stream,
    pub(crate) out: &'a mut Outgoing,
    pub(crate) head: &'a mut ResponseHead,
    /// What was read of the answer.
    pub(crate) buffer: Buffer,
    pub(crate) incoming: &'a mut Incoming,
    pub(crate) asked: http1::Asked,
    pub(crate) limits: HeadLimits,
    /// The start of a WebSocket, where it is not the client that checks how it is answered.
    pub(crate) handshake: Option<&'a Handshake>,
}

impl Http1<'_> {
    /// Whether there was an interim answer already.
    fn has_spoken(&self) -> bool {
        self.head.len != 0
    }

    /// Whether the endpoint proved that it understood the start of a WebSocket.
    fn accepts(&self) -> bool {
        let Some(Handshake { accept, .. }) = self.handshake else {
            return true;
        };
        let bytes = self.buffer.data();
        let mut said = self.head.fields.iter().filter(|field| {
            field.id == FieldName::Other
                && field
                    .name
                    .of(bytes)
                    .eq_ignore_ascii_case(b"sec-websocket-accept")
        });
        let first = said.next().map(|field| field.value.of(bytes));
        first == Some(accept.as_bytes()) && said.next().is_none()
    }
}

impl Upstream for Http1<'_> {
    type Io = Stream;

    fn poll_send(&mut self, cx: &mut Context<'_>, piece: &[u8]) -> Poll<Result<usize, Deaf>> {
        self.out.poll_send(self.io, cx, piece).map_err(|_| Deaf)
    }

    fn finish<'a>(
        &mut self,
        trailers: impl Iterator<Item = (&'a [u8], &'a [u8])>,
    ) -> Result<(), EncodeFault> {
        self.out.finish(trailers)
    }

    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Deaf>> {
        self.out.poll_flush(self.io, cx).map_err(|_| Deaf)
    }

    fn sent(&self) -> u64 {
        self.out.sent
    }

    fn poll_head(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Unanswered>> {
        let invalid = |word| Poll::Ready(Err(Unanswered::Failed(Failure::new(520, word))));
        loop {
            if !self.buffer.is_empty() {
                match parse_response(self.buffer.data(), &self.limits, self.asked, self.head) {
                    Ok(Parsed::Complete) => break,
                    Ok(Parsed::Partial) => {
                        if !self.buffer.has_room()
                            && !self.buffer.double(self.limits.head_bytes + 1024)
                        {
                            return invalid("head-too-large");
                        }
                    }
                    Err(fault) => return invalid(fault.as_str()),
                }
            }
            match ready!(self.buffer.poll_fill(self.io, cx)) {
                Ok(0) | Err(_) if self.buffer.is_empty() && !self.has_spoken() => {
                    return Poll::Ready(Err(Unanswered::Silent));
                }
                Ok(0) | Err(_) => return invalid("truncated-head"),
                Ok(_) => {}
            }
        }
        if self.head.kind == ResponseKind::Switching && !self.accepts() {
            return invalid("websocket-accept");
        }
        self.out.forget();
        Poll::Ready(Ok(()))
    }

    fn answer(&self) -> Answer<'_> {
        Answer {
            head: self.head,
            bytes: self.buffer.data(),
            may_trail: false,
        }
    }

    fn advance_head(&mut self) {
        self.buffer.consume(self.head.len);
        *self.incoming = Incoming::new(self.head.body, &self.limits);
    }

    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Result<Next, &'static str>> {
        let next = self.incoming.poll_next(&mut self.buffer, self.io, cx);
        next.map_err(|fault| match fault {
            ReadFault::Body(fault) => fault.as_str(),
            ReadFault::Io(_) => "truncated",
        })
    }

    fn piece(&self) -> &[u8] {
        self.incoming.piece(&self.buffer)
    }

    fn advance(&mut self, count: usize) {
        self.incoming.advance(&mut self.buffer, count);
    }

    fn trailers(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.incoming.trailers()
    }

    fn is_reusable(&self) -> bool {
        self.head.keep_alive && self.buffer.is_empty()
    }

    fn source(&self) -> Option<Source<'_>> {
        self.incoming.source(&self.buffer, self.io)
    }

    fn took(&mut self, count: usize) -> Result<(), &'static str> {
        self.incoming.took(count).map_err(BodyFault::as_str)
    }

    fn sink(&self) -> Option<&TcpStream> {
        self.out.sink(self.io)
    }

    fn gave(&mut self, count: usize) -> Result<(), EncodeFault> {
        self.out.gave(count)
    }

    fn raw(&mut self, _: &BufferPool) -> (&mut Stream, Buffer) {
        (self.io, self.buffer.take())
    }
}
