//! The client's side of an exchange, as the exchange sees it: a request that was read, and a
//! connection or stream that takes its answer. HTTP/1.1 and HTTP/2 each have one.

use std::task::{Context, Poll};

use tokio::net::TcpStream;
use tokio::time::Instant;

use super::body::Next;
use super::buffer::{Buffer, BufferPool};
use super::changes::Changes;
use super::splice::Source;
use super::tunnel;
use crate::http1::{self, BodyLength, EncodeFault, Fields, Method, ResponseHead};

/// The fields of a request, wherever they are kept. Names and values are checked already.
pub(crate) trait RequestFields {
    /// All of them, as received.
    fn all(&self) -> impl Iterator<Item = (&[u8], &[u8])>;

    /// Those that go on to the endpoint: none that is for this hop only, no framing, no `Host`.
    fn forwarded(&self) -> impl Iterator<Item = (&[u8], &[u8])>;
}

/// A request, as far as its head says.
#[derive(Debug)]
pub(crate) struct Asked<'a, F> {
    pub(crate) method: Method,
    pub(crate) method_name: &'a str,
    /// Path and query, or `*`.
    pub(crate) uri: &'a str,
    /// `Host` as received.
    pub(crate) authority: &'a [u8],
    /// The host in it: lower case, without port and final dot.
    pub(crate) host: &'a str,
    pub(crate) fields: &'a F,
    /// How the body is announced to the endpoint.
    pub(crate) body: BodyLength,
    /// The client waits for a word from the endpoint before it sends the body.
    pub(crate) expects: bool,
    /// The start of a WebSocket.
    pub(crate) websocket: bool,
    /// `HTTP/1.0`, `HTTP/1.1` or `HTTP/2`.
    pub(crate) protocol: &'static str,
    /// When its first byte came.
    pub(crate) started: Instant,
}

impl<F> Asked<'_, F> {
    /// What the codec must know of a request to read its answer.
    pub(crate) fn to_codec(&self) -> http1::Asked {
        http1::Asked {
            method: self.method,
            websocket: self.websocket,
        }
    }
}

/// The head of an endpoint's answer on its way to the client.
#[derive(Debug)]
pub(crate) struct Answer<'a> {
    pub(crate) head: &'a ResponseHead,
    /// What the spans in `head` point into.
    pub(crate) bytes: &'a [u8],
    /// Trailers may follow its body even where a length was announced.
    pub(crate) may_trail: bool,
}

impl<'a> Answer<'a> {
    /// The fields that go on to the client.
    pub(crate) fn forwarded(&self) -> impl Iterator<Item = (&'a [u8], &'a [u8])> + use<'a> {
        forwarded(&self.head.fields, self.bytes)
    }
}

/// The fields of a parsed head that go on to the other side.
pub(crate) fn forwarded<'a>(
    fields: &'a Fields,
    bytes: &'a [u8],
) -> impl Iterator<Item = (&'a [u8], &'a [u8])> {
    fields
        .iter()
        .filter(|field| field.forwarded)
        .map(|field| (field.name.of(bytes), field.value.of(bytes)))
}

/// What went wrong on the client's side.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ClientFault {
    /// Its request body is malformed: the word for it.
    Malformed(&'static str),
    /// It closed or reset the connection or stream.
    Gone,
}

/// The client's side of one exchange.
pub(crate) trait Client {
    /// What is underneath, for a tunnel.
    type Io: tunnel::Side;

    /// Waits for a piece of the request body, or its end.
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Result<Next, ClientFault>>;

    /// The piece at hand.
    fn piece(&self) -> &[u8];

    /// So many bytes of the piece are handed on.
    fn advance(&mut self, count: usize);

    /// Bytes of request body received so far.
    fn received(&self) -> u64;

    /// Trailers of the request, once its body is over.
    fn trailers(&self) -> impl Iterator<Item = (&[u8], &[u8])>;

    /// Ready when the client has left, while nothing is expected from it.
    fn poll_gone(&mut self, cx: &mut Context<'_>) -> Poll<()>;

    /// Queues an interim answer. Not called again before it is flushed.
    fn interim(&mut self, answer: &Answer<'_>) -> Result<(), EncodeFault>;

    /// Queues the head of the answer, changed.
    fn respond(&mut self, answer: &Answer<'_>, changes: Changes<'_>) -> Result<(), EncodeFault>;

    /// Queues a whole answer of our own. `closes`: it is the last one on this connection.
    fn answer<'f>(
        &mut self,
        status: u16,
        fields: impl Iterator<Item = (&'static str, &'f str)>,
        body: &[u8],
        closes: bool,
    ) -> Result<(), EncodeFault>;

    /// Queues the head of an answer of our own whose body follows piece by piece, for as long as
    /// it likes: [`Client::poll_send`], then [`Client::finish`].
    fn begin<'f>(
        &mut self,
        status: u16,
        fields: impl Iterator<Item = (&'static str, &'f str)>,
    ) -> Result<(), EncodeFault>;

    /// Takes bytes of the answer's body: how many, at least one. `piece` is not empty.
    fn poll_send(&mut self, cx: &mut Context<'_>, piece: &[u8])
    -> Poll<Result<usize, ClientFault>>;

    /// Queues the end of the body.
    fn finish<'a>(
        &mut self,
        trailers: impl Iterator<Item = (&'a [u8], &'a [u8])>,
    ) -> Result<(), EncodeFault>;

    /// Waits until all that is queued is out.
    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), ClientFault>>;

    /// Bytes of answer body taken so far.
    fn sent(&self) -> u64;

    /// Where the rest of the request body may be taken from by the kernel: what is taken is told to
    /// [`Client::took`].
    fn source(&self) -> Option<Source<'_>> {
        None
    }

    /// So many bytes were taken from the source. 0: it has ended.
    fn took(&mut self, _count: usize) -> Result<(), ClientFault> {
        Err(ClientFault::Gone)
    }

    /// Where body bytes of the answer may be given to by the kernel: what is given is told to
    /// [`Client::gave`].
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
