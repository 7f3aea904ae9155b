//! A client's connection that speaks HTTP/1: requests in order, one at a time.
//!
//! Between requests the connection is parked: a task, a socket and a timer. With the first byte of
//! a request it takes a [`Desk`] from its core, with everything that parsing and answering need,
//! and gives it back with the last byte of the answer, so a request allocates nothing.
//!
//! Requests that were sent ahead wait in the buffer, which is bounded, and then in the socket.
//! After a fault the place where the next request starts is no longer known: the fault is answered,
//! and the connection closed only when the client had a chance to read that answer.

use std::cell::RefCell;
use std::future::poll_fn;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::{Duration, SystemTime};

use tokio::io::AsyncWrite as _;
use tokio::net::TcpStream;
use tokio::time::Instant;
use usher_core::decision::PinOutcome;

use super::body::{Incoming, Next, Outgoing, ReadFault, WriteFault};
use super::buffer::{Buffer, BufferPool};
use super::changes::Changes;
use super::client::{Answer, Asked, Client, ClientFault, RequestFields, forwarded};
use super::connection::ConnInfo;
use super::deadline::Deadline;
use super::drain::Drain;
use super::exchange::{self, Bench, End};
use super::forward::RequestId;
use super::h2;
use super::record::{Record, path_of};
use super::refusal::Failure;
use super::splice::Source;
use super::stream::{Prefixed, Stream};
use super::worker::Worker;
use crate::http1::{
    BodyLength, EncodeFault, HeadFault, Method, Parsed, RequestFault, RequestHead, ResponseKind,
    Version, end_head, glimpse, parse_request, write_field, write_framing, write_status_line,
};

/// Request body that is read and thrown away after the answer, to keep the connection.
const DISCARDED_MAX: u64 = 256 * 1024;

/// How long that may take, and how long a closed connection is read so that the client sees the
/// last answer and not a reset.
const LINGER: Duration = Duration::from_secs(5);

/// How much of it is read for that: more than lies in the buffers of both ends, and no more, or a
/// client that never stops would have a worker's attention for nothing.
const LINGER_BYTES_MAX: usize = 32 * 1024 * 1024;

/// Desks that a core keeps when nobody uses them.
const DESKS_MAX: usize = 256;

/// What one request is parsed into and answered from.
#[derive(Debug)]
pub(crate) struct Desk {
    /// The head as it came; spans point into it.
    bytes: Vec<u8>,
    head: RequestHead,
    /// The host: lower case, without port and final dot.
    host: String,
    incoming: Incoming,
    out: Outgoing,
    bench: Bench,
}

/// The free desks of a core.
#[derive(Debug, Default)]
#[expect(
    clippy::vec_box,
    reason = "desks are lent and come back, and are too large to move"
)]
pub(crate) struct Desks(RefCell<Vec<Box<Desk>>>);

impl Desks {
    fn take(&self) -> Box<Desk> {
        self.0.borrow_mut().pop().unwrap_or_else(|| {
            Box::new(Desk {
                bytes: Vec::new(),
                head: RequestHead::new(),
                host: String::new(),
                incoming: Incoming::none(),
                out: Outgoing::new(),
                bench: Bench::new(),
            })
        })
    }

    fn give_back(&self, mut desk: Box<Desk>) {
        let mut desks = self.0.borrow_mut();
        if desks.len() < DESKS_MAX {
            desk.head.reset();
            desk.bytes.clear();
            desk.bytes.shrink_to(super::buffer::BUFFER_SIZE);
            desk.out.shrink();
            desk.bench.shrink();
            desks.push(desk);
        }
    }
}

/// What becomes of the connection after a request.
#[derive(Debug, PartialEq, Eq)]
enum After {
    /// The next request.
    Next,
    /// Closed; the client has read all it needs.
    Close,
    /// Closed, but the client may be writing still.
    Linger,
    /// Closed in a way that nobody takes for the end of a body.
    Reset,
    /// It speaks HTTP/2.
    Http2,
}

/// Serves a connection to its end.
pub(crate) async fn serve(worker: Rc<Worker>, io: Stream, conn: ConnInfo) {
    let within = worker.view().settings.timeouts.client_header;
    let mut session = Session {
        buffer: worker.buffers().buffer(),
        deadline: Deadline::new(within),
        fresh: true,
        worker,
        io,
        conn,
    };
    let after = loop {
        if !session.parked().await {
            break After::Close;
        }
        let mut desk = session.worker.desks().take();
        let after = session.request(&mut desk).await;
        session.worker.desks().give_back(desk);
        session.fresh = false;
        if after != After::Next {
            break after;
        }
    };
    match after {
        After::Next | After::Close => session.close().await,
        After::Linger => session.linger().await,
        After::Reset => drop(session.io.socket().set_zero_linger()),
        After::Http2 => Box::pin(session.hand_over()).await,
    }
}

struct Session {
    worker: Rc<Worker>,
    io: Stream,
    conn: ConnInfo,
    /// What the client sent and nobody has looked at.
    buffer: Buffer,
    deadline: Deadline,
    /// No request was read yet.
    fresh: bool,
}

impl Session {
    /// Waits for the first byte of a request. False: there will be none.
    async fn parked(&mut self) -> bool {
        if !self.buffer.is_empty() {
            return true;
        }
        if !self.fresh {
            let keep_alive = self.worker.view().settings.timeouts.keep_alive;
            self.deadline.set_after(keep_alive);
        }
        let filled = poll_fn(|cx| match self.buffer.poll_fill(&mut self.io, cx) {
            Poll::Ready(filled) => Poll::Ready(filled.unwrap_or(0)),
            Poll::Pending => self.deadline.poll(cx).map(|()| 0),
        });
        filled.await > 0
    }

    /// Reads one request and has it carried out.
    async fn request(&mut self, desk: &mut Desk) -> After {
        let started = Instant::now();
        match self.head(desk, started).await {
            Ok(()) => {}
            Err(Stop::Left) => return After::Close,
            Err(Stop::Fault(RequestFault::Http2Preface))
                if self.fresh && self.conn.tls.is_none() =>
            {
                return After::Http2;
            }
            Err(Stop::Fault(fault)) => {
                let Some(status) = fault.status() else {
                    self.worker.count_error(fault.as_str());
                    return After::Close;
                };
                return self
                    .refuse(desk, Failure::new(status, fault.as_str()), started)
                    .await;
            }
            Err(Stop::Slow) => {
                return self.refuse(desk, Failure::HEADER_TIMEOUT, started).await;
            }
        }
        let Desk {
            bytes,
            head,
            host,
            incoming,
            out,
            bench,
        } = desk;
        bytes.clear();
        bytes.extend_from_slice(&self.buffer.data()[..head.len]);
        self.buffer.consume(head.len);
        // ASCII, as the parser saw to; so are the method and the path.
        let name = std::str::from_utf8(head.host.of(bytes)).unwrap_or_default();
        host.clear();
        host.push_str(name.strip_suffix('.').unwrap_or(name));
        host.make_ascii_lowercase();
        let fields = Received { head, bytes };
        let asked = Asked {
            method: head.method,
            method_name: std::str::from_utf8(head.method_name.of(bytes)).unwrap_or_default(),
            uri: std::str::from_utf8(head.path(bytes)).unwrap_or_default(),
            authority: head.authority.of(bytes),
            host,
            fields: &fields,
            body: head.body,
            expects: head.expect_continue,
            websocket: head.websocket,
            protocol: match head.version {
                Version::Http10 => "HTTP/1.0",
                Version::Http11 => "HTTP/1.1",
            },
            started,
        };
        let limits = exchange::limits(&self.worker.view().settings);
        out.begin(BodyLength::Empty, 0);
        *incoming = Incoming::new(head.body, &limits);
        let mut client = H1 {
            io: &mut self.io,
            buffer: &mut self.buffer,
            drain: &self.conn.drain,
            incoming,
            out,
            method: head.method,
            version: head.version,
            expects: head.expect_continue,
            closes: !head.keep_alive,
            until_close: false,
            half_closed: false,
            sent: 0,
        };
        let end = exchange::run(
            &self.worker,
            &self.conn,
            &asked,
            &mut client,
            bench,
            &mut self.deadline,
        )
        .await;
        match end {
            End::Over | End::Tunnelled => After::Close,
            End::Cut if client.until_close => After::Reset,
            End::Cut => After::Close,
            End::Refused => After::Linger,
            End::Answered if !client.incoming.is_over() => {
                if client.closes || !client.discard(&mut self.deadline).await {
                    return After::Linger;
                }
                After::Next
            }
            // What it sent ahead is not read any more, and closing over it would reset.
            End::Answered if client.closes && !client.buffer.is_empty() => After::Linger,
            End::Answered if client.closes => After::Close,
            End::Answered => After::Next,
        }
    }

    /// Reads and parses one head.
    async fn head(&mut self, desk: &mut Desk, started: Instant) -> Result<(), Stop> {
        let (limits, within) = {
            let view = self.worker.view();
            (
                exchange::limits(&view.settings),
                view.settings.timeouts.client_header,
            )
        };
        if !self.fresh {
            self.deadline.set(started + within);
        }
        loop {
            match parse_request(self.buffer.data(), &limits, &mut desk.head)? {
                Parsed::Complete => return Ok(()),
                Parsed::Partial => {}
            }
            if !self.buffer.has_room() && !self.buffer.double(limits.head_bytes + 1024) {
                return Err(Stop::Fault(RequestFault::Head(HeadFault::TooLarge)));
            }
            let filled = poll_fn(|cx| match self.buffer.poll_fill(&mut self.io, cx) {
                Poll::Ready(Ok(0) | Err(_)) => Poll::Ready(Err(Stop::Left)),
                Poll::Ready(Ok(_)) => Poll::Ready(Ok(())),
                Poll::Pending => self.deadline.poll(cx).map(|()| Err(Stop::Slow)),
            });
            filled.await?;
        }
    }

    /// Answers a request that could not be read.
    async fn refuse(&mut self, desk: &mut Desk, failure: Failure, started: Instant) -> After {
        let view = self.worker.view();
        let (method, uri) = glimpse(self.buffer.data(), &exchange::limits(&view.settings));
        // Owned, because reading may go on while the answer is sent.
        let (method, uri) = (method.to_owned(), uri.to_owned());
        let request_id = RequestId::new(self.worker.draw());
        let page = failure.page(std::iter::empty(), &request_id);
        desk.out.begin(BodyLength::Empty, 0);
        desk.incoming = Incoming::none();
        let mut client = H1 {
            io: &mut self.io,
            buffer: &mut self.buffer,
            drain: &self.conn.drain,
            incoming: &mut desk.incoming,
            out: &mut desk.out,
            method: Method::Get,
            version: Version::Http11,
            expects: false,
            closes: true,
            until_close: false,
            half_closed: false,
            sent: 0,
        };
        let queued = client
            .answer(page.status(), page.fields(), &page.body, true)
            .is_ok();
        self.deadline.set_after(LINGER);
        let flushed = poll_fn(|cx| match client.poll_flush(cx) {
            Poll::Ready(flushed) => Poll::Ready(flushed.is_ok()),
            Poll::Pending => self.deadline.poll(cx).map(|()| false),
        });
        let flushed = queued && flushed.await;
        let duration = started.elapsed();
        self.worker.record(
            &view,
            &Record {
                started: SystemTime::now() - duration,
                duration,
                request_id: request_id.as_str(),
                client: self.conn.peer.ip(),
                method: &method,
                host: "",
                path: path_of(&uri, view.settings.query_strings),
                status: failure.status(),
                bytes_in: 0,
                bytes_out: client.sent,
                balancer: None,
                pool: None,
                endpoint: None,
                upstream: None,
                attempts: 0,
                session: PinOutcome::None,
                room: None,
                error: Some(failure.as_str()),
                tls: self.conn.tls_version(),
                protocol: "HTTP/1.1",
            },
        );
        if flushed { After::Linger } else { After::Close }
    }

    /// Says goodbye where the protocol below has a word for it.
    async fn close(&mut self) {
        if let Stream::Tls(_) = self.io {
            self.deadline.set_after(LINGER);
            let (io, deadline) = (&mut self.io, &mut self.deadline);
            poll_fn(|cx| match Pin::new(&mut *io).poll_shutdown(cx) {
                Poll::Ready(_) => Poll::Ready(()),
                Poll::Pending => deadline.poll(cx),
            })
            .await;
        }
    }

    /// Ends our side and reads what the client still sends: closing at once would reset the
    /// connection, and the reset could overtake the answer.
    async fn linger(&mut self) {
        self.deadline.set_after(LINGER);
        let (io, buffer, deadline) = (&mut self.io, &mut self.buffer, &mut self.deadline);
        let mut shut = false;
        let mut left = LINGER_BYTES_MAX;
        poll_fn(|cx| {
            if !shut {
                shut = match Pin::new(&mut *io).poll_shutdown(cx) {
                    Poll::Ready(Ok(())) => true,
                    Poll::Ready(Err(_)) => return Poll::Ready(()),
                    Poll::Pending => false,
                };
            }
            loop {
                buffer.consume(buffer.data().len());
                match buffer.poll_fill(io, cx) {
                    Poll::Ready(Ok(0) | Err(_)) => return Poll::Ready(()),
                    // Polled each time, for a client that never stops.
                    Poll::Ready(Ok(read)) => {
                        left = left.saturating_sub(read);
                        if left == 0 || deadline.poll(cx).is_ready() {
                            return Poll::Ready(());
                        }
                    }
                    Poll::Pending => return deadline.poll(cx),
                }
            }
        })
        .await;
    }

    /// The client began with the preface of HTTP/2.
    async fn hand_over(self) {
        let Session {
            worker,
            io,
            conn,
            buffer,
            ..
        } = self;
        let read = bytes::Bytes::copy_from_slice(buffer.data());
        drop(buffer);
        h2::serve(worker, Prefixed::new(read, io), conn).await;
    }
}

/// Why there is no request.
#[derive(Debug)]
enum Stop {
    /// The client has left.
    Left,
    /// The head took too long.
    Slow,
    /// It is malformed.
    Fault(RequestFault),
}

impl From<RequestFault> for Stop {
    fn from(fault: RequestFault) -> Stop {
        Stop::Fault(fault)
    }
}

/// The fields of a parsed head.
#[derive(Debug)]
struct Received<'a> {
    head: &'a RequestHead,
    bytes: &'a [u8],
}

impl RequestFields for Received<'_> {
    fn all(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.head
            .fields
            .iter()
            .map(|field| (field.name.of(self.bytes), field.value.of(self.bytes)))
    }

    fn forwarded(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        forwarded(&self.head.fields, self.bytes)
    }
}

/// The client's side of one exchange.
struct H1<'a> {
    io: &'a mut Stream,
    buffer: &'a mut Buffer,
    drain: &'a Drain,
    incoming: &'a mut Incoming,
    out: &'a mut Outgoing,
    method: Method,
    version: Version,
    /// It waits for a word before it sends the body.
    expects: bool,
    /// The connection ends with this answer.
    closes: bool,
    /// The end of the connection is the end of the body.
    until_close: bool,
    /// It will send nothing more.
    half_closed: bool,
    /// Bytes of answer body.
    sent: u64,
}

impl H1<'_> {
    /// Decides, with the head of the final answer, whether another request can follow.
    fn settle(&mut self) {
        // A client that was never told to go on may send its body, or the next request: nobody
        // can tell which.
        let untold = self.expects && !self.incoming.is_over() && self.incoming.seen == 0;
        self.closes |= untold || self.drain.started();
    }

    /// How a body goes out whose length nobody announced.
    fn unannounced(&mut self) -> BodyLength {
        match self.version {
            Version::Http11 => BodyLength::Chunked,
            Version::Http10 => {
                self.until_close = true;
                self.closes = true;
                BodyLength::UntilClose
            }
        }
    }

    /// The field that says whether another request can follow.
    fn connection(&self) -> &'static [u8] {
        match self.version {
            _ if self.closes => b"connection: close\r\n",
            Version::Http10 => b"connection: keep-alive\r\n",
            Version::Http11 => b"",
        }
    }

    /// Reads the rest of the request body. False when that is too much, or takes too long.
    async fn discard(&mut self, deadline: &mut Deadline) -> bool {
        let limit = self.incoming.seen + DISCARDED_MAX;
        deadline.set_after(LINGER);
        poll_fn(|cx| {
            loop {
                match self.poll_next(cx) {
                    Poll::Ready(Ok(Next::Piece)) => {
                        let count = self.piece().len();
                        self.advance(count);
                    }
                    Poll::Ready(Ok(Next::End)) => return Poll::Ready(true),
                    Poll::Ready(Err(_)) => return Poll::Ready(false),
                    Poll::Pending => return deadline.poll(cx).map(|()| false),
                }
                if self.incoming.seen > limit {
                    return Poll::Ready(false);
                }
            }
        })
        .await
    }
}

impl Client for H1<'_> {
    type Io = Stream;

    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Result<Next, ClientFault>> {
        let next = ready!(self.incoming.poll_next(self.buffer, self.io, cx));
        Poll::Ready(next.map_err(|fault| match fault {
            ReadFault::Body(crate::http1::BodyFault::Truncated) | ReadFault::Io(_) => {
                ClientFault::Gone
            }
            ReadFault::Body(fault) => ClientFault::Malformed(fault.as_str()),
        }))
    }

    fn piece(&self) -> &[u8] {
        self.incoming.piece(self.buffer)
    }

    fn advance(&mut self, count: usize) {
        self.incoming.advance(self.buffer, count);
    }

    fn received(&self) -> u64 {
        self.incoming.seen
    }

    fn trailers(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.incoming.trailers()
    }

    fn poll_gone(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        while !self.half_closed && self.buffer.has_room() {
            match ready!(self.buffer.poll_fill(self.io, cx)) {
                // It may have sent its last requests ahead and be waiting for the answers.
                Ok(0) if !self.buffer.is_empty() => self.half_closed = true,
                Ok(0) | Err(_) => return Poll::Ready(()),
                Ok(_) => {}
            }
        }
        Poll::Pending
    }

    fn interim(&mut self, answer: &Answer<'_>) -> Result<(), EncodeFault> {
        if self.version == Version::Http10 {
            return Ok(());
        }
        let out = self.out.follow(BodyLength::Empty);
        write_status_line(out, answer.head.status, answer.head.reason.of(answer.bytes))?;
        for (name, value) in answer.forwarded() {
            write_field(out, name, value)?;
        }
        end_head(out);
        self.expects = false;
        Ok(())
    }

    fn respond(&mut self, answer: &Answer<'_>, changes: Changes<'_>) -> Result<(), EncodeFault> {
        let head = answer.head;
        self.settle();
        let length = match head.body {
            BodyLength::Chunked | BodyLength::UntilClose => self.unannounced(),
            length => length,
        };
        let connection = self.connection();
        let out = self.out.follow(length);
        write_status_line(out, head.status, head.reason.of(answer.bytes))?;
        for (name, value) in changes.over(answer) {
            write_field(out, name, value)?;
        }
        if head.kind == ResponseKind::Switching {
            out.extend_from_slice(b"connection: upgrade\r\nupgrade: websocket\r\n");
        } else {
            match (length, head.content_length) {
                // What the body would have been: HEAD and 304.
                (BodyLength::Empty, Some(bytes)) if head.status != 204 => {
                    write_framing(out, BodyLength::Exactly(bytes));
                }
                _ => write_framing(out, length),
            }
            out.extend_from_slice(connection);
        }
        end_head(out);
        Ok(())
    }

    fn answer<'f>(
        &mut self,
        status: u16,
        fields: impl Iterator<Item = (&'static str, &'f str)>,
        body: &[u8],
        closes: bool,
    ) -> Result<(), EncodeFault> {
        self.closes |= closes;
        self.settle();
        let connection = self.connection();
        let out = self.out.follow(BodyLength::Empty);
        write_status_line(out, status, b"")?;
        for (name, value) in fields {
            write_field(out, name.as_bytes(), value.as_bytes())?;
        }
        let bare = matches!(status, 204 | 304);
        let length = BodyLength::Exactly(body.len() as u64);
        write_framing(out, if bare { BodyLength::Empty } else { length });
        out.extend_from_slice(connection);
        end_head(out);
        if self.method != Method::Head && !bare {
            out.extend_from_slice(body);
            self.sent += body.len() as u64;
        }
        Ok(())
    }

    fn begin<'f>(
        &mut self,
        status: u16,
        fields: impl Iterator<Item = (&'static str, &'f str)>,
    ) -> Result<(), EncodeFault> {
        self.settle();
        let length = self.unannounced();
        let connection = self.connection();
        let out = self.out.follow(length);
        write_status_line(out, status, b"")?;
        for (name, value) in fields {
            write_field(out, name.as_bytes(), value.as_bytes())?;
        }
        write_framing(out, length);
        out.extend_from_slice(connection);
        end_head(out);
        Ok(())
    }

    fn poll_send(
        &mut self,
        cx: &mut Context<'_>,
        piece: &[u8],
    ) -> Poll<Result<usize, ClientFault>> {
        let sent = ready!(self.out.poll_send(self.io, cx, piece));
        Poll::Ready(match sent {
            Ok(count) => {
                self.sent += count as u64;
                Ok(count)
            }
            Err(WriteFault::Io(_) | WriteFault::Encode(_)) => Err(ClientFault::Gone),
        })
    }

    fn finish<'a>(
        &mut self,
        trailers: impl Iterator<Item = (&'a [u8], &'a [u8])>,
    ) -> Result<(), EncodeFault> {
        self.out.finish(trailers)
    }

    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), ClientFault>> {
        self.out
            .poll_flush(self.io, cx)
            .map_err(|_| ClientFault::Gone)
    }

    fn sent(&self) -> u64 {
        self.sent
    }

    fn source(&self) -> Option<Source<'_>> {
        self.incoming.source(self.buffer, self.io)
    }

    fn took(&mut self, count: usize) -> Result<(), ClientFault> {
        self.incoming.took(count).map_err(|_| ClientFault::Gone)
    }

    fn sink(&self) -> Option<&TcpStream> {
        self.out.sink(self.io)
    }

    fn gave(&mut self, count: usize) -> Result<(), EncodeFault> {
        self.sent += count as u64;
        self.out.gave(count)
    }

    fn raw(&mut self, _: &BufferPool) -> (&mut Stream, Buffer) {
        (self.io, self.buffer.take())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn size_of_future<A, B, C, F>(_: impl FnOnce(A, B, C) -> F) -> usize {
        size_of::<F>()
    }

    #[test]
    fn a_parked_connection_is_small() {
        let size = size_of_future(serve);
        assert!(size <= 2048, "{size} bytes");
    }
}
