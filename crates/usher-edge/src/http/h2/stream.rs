//! One stream: a request over HTTP/2 as the client's side of an exchange.

use std::cell::RefCell;
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use h2::server::SendResponse;
use h2::{Reason, RecvStream, SendStream};
use http::{HeaderMap, Request, Response, StatusCode};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Instant;
use usher_core::decision::PinOutcome;

use super::flow;
use super::request::{Head, Malformed};
use crate::http::body::Next;
use crate::http::buffer::{Buffer, BufferPool};
use crate::http::changes::Changes;
use crate::http::client::{Answer, Asked, Client, ClientFault};
use crate::http::connection::ConnInfo;
use crate::http::deadline::Deadline;
use crate::http::exchange::{self, Bench, End};
use crate::http::forward::RequestId;
use crate::http::record::{Record, path_of};
use crate::http::refusal::Failure;
use crate::http::tunnel;
use crate::http::worker::Worker;
use crate::http1::{BodyLength, EncodeFault, Method, ResponseKind};

/// What an exchange needs beside its stream. A stream is short, and making these is not free.
#[derive(Debug)]
pub(crate) struct Kit {
    bench: Bench,
    deadline: Deadline,
}

/// The free kits of a core.
#[derive(Debug, Default)]
#[expect(
    clippy::vec_box,
    reason = "they are lent and come back, and are too large to move"
)]
pub(crate) struct Kits(RefCell<Vec<Box<Kit>>>);

/// How many a core keeps when nobody uses them.
const KITS_MAX: usize = 256;

/// A first deadline, which each exchange replaces by its own.
const NEVER: Duration = Duration::from_secs(3600);

impl Kits {
    fn take(&self) -> Box<Kit> {
        self.0.borrow_mut().pop().unwrap_or_else(|| {
            Box::new(Kit {
                bench: Bench::new(),
                deadline: Deadline::new(NEVER),
            })
        })
    }

    fn give_back(&self, mut kit: Box<Kit>) {
        let mut kits = self.0.borrow_mut();
        if kits.len() < KITS_MAX {
            kit.bench.shrink();
            kits.push(kit);
        }
    }
}

/// Serves one request. False: the client abandoned it.
pub(super) async fn serve(
    worker: &Rc<Worker>,
    conn: &ConnInfo,
    request: Request<RecvStream>,
    respond: SendResponse<Bytes>,
) -> bool {
    let started = Instant::now();
    let view = worker.view();
    let limits = exchange::limits(&view.settings);
    let ends = request.body().is_end_stream();
    let mut kit = worker.kits().take();
    let Kit { bench, deadline } = &mut *kit;
    let (parts, receive) = request.into_parts();
    let head = Head::read(parts, ends, &limits);
    let mut client = H2 {
        method: head
            .as_ref()
            .map_or(Method::Get, |head| head.checked.method),
        websocket: head.as_ref().is_ok_and(|head| head.checked.websocket),
        receive,
        piece: Bytes::new(),
        received: 0,
        trailers: None,
        respond,
        send: None,
        waiting: Bytes::new(),
        sent: 0,
        left: None,
    };
    let head = match head {
        Ok(head) => head,
        Err(malformed) => {
            deadline.set_after(view.settings.timeouts.body_idle);
            refuse(worker, conn, &mut client, deadline, &malformed, started).await;
            worker.kits().give_back(kit);
            return true;
        }
    };
    drop(view);
    let asked = Asked {
        method: head.checked.method,
        method_name: head.method_name(),
        uri: head.uri(),
        authority: head.authority(),
        host: &head.checked.host,
        fields: &head.fields,
        body: head.checked.body,
        expects: head.checked.expects,
        websocket: head.checked.websocket,
        protocol: "HTTP/2",
        started,
    };
    let end = exchange::run(worker, conn, &asked, &mut client, bench, deadline).await;
    worker.kits().give_back(kit);
    match end {
        End::Answered | End::Refused | End::Tunnelled => {}
        End::Cut => {
            // A reset takes back what is queued; the connection first gets its turn to send it.
            tokio::task::yield_now().await;
            client.reset(Reason::INTERNAL_ERROR);
        }
        End::Over => client.reset(Reason::CANCEL),
    }
    end != End::Over
}

/// Answers a request that was not understood.
async fn refuse(
    worker: &Worker,
    conn: &ConnInfo,
    client: &mut H2,
    deadline: &mut Deadline,
    Malformed { fault, method, uri }: &Malformed,
    started: Instant,
) {
    let failure = Failure::new(fault.status().unwrap_or(400), fault.as_str());
    let request_id = RequestId::new(worker.draw());
    let page = failure.page(std::iter::empty(), &request_id);
    if client
        .answer(page.status(), page.fields(), &page.body, false)
        .is_ok()
    {
        // When it does not take the page, there is nobody to tell.
        let _ = poll_fn(|cx| match client.poll_flush(cx) {
            Poll::Pending => deadline.poll(cx).map(|()| Err(ClientFault::Gone)),
            flushed => flushed,
        })
        .await;
    }
    let duration = started.elapsed();
    let view = worker.view();
    let uri = uri.path_and_query().map_or("", |uri| uri.as_str());
    worker.record(
        &view,
        &Record {
            started: SystemTime::now() - duration,
            duration,
            request_id: request_id.as_str(),
            client: conn.peer.ip(),
            method: method.as_str().as_bytes(),
            host: "",
            path: path_of(uri.as_bytes(), view.settings.query_strings),
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
            tls: conn.tls_version(),
            protocol: "HTTP/2",
        },
    );
}

/// The client's side of one exchange.
struct H2 {
    method: Method,
    /// The request is the start of a WebSocket.
    websocket: bool,
    receive: RecvStream,
    piece: Bytes,
    received: u64,
    trailers: Option<HeaderMap>,
    respond: SendResponse<Bytes>,
    /// Once the head of the answer is out.
    send: Option<SendStream<Bytes>>,
    /// The body of an answer of our own, as far as it is not taken yet.
    waiting: Bytes,
    sent: u64,
    /// What is left of a body behind which nothing comes: its last frame ends the stream, and no
    /// empty one has to.
    left: Option<u64>,
}

impl H2 {
    fn reset(&mut self, reason: Reason) {
        match &mut self.send {
            Some(send) => send.send_reset(reason),
            None => self.respond.send_reset(reason),
        }
    }

    /// Sends the head of an answer. A stream that is gone is noticed where its body is sent.
    fn send_head(&mut self, response: Response<()>, ends: bool) {
        self.send = self.respond.send_response(response, ends).ok();
    }

    fn send_data(&mut self, data: Bytes, ends: bool) -> Result<(), ClientFault> {
        let send = self.send.as_mut().ok_or(ClientFault::Gone)?;
        send.send_data(data, ends).map_err(|_| ClientFault::Gone)
    }
}

impl Client for H2 {
    type Io = H2;

    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Result<Next, ClientFault>> {
        if self.websocket {
            // What follows is not the request's body, but the tunnel's.
            return Poll::Ready(Ok(Next::End));
        }
        let had = self.piece.len();
        match ready!(flow::poll_piece(&mut self.receive, &mut self.piece, cx)) {
            Ok(true) => {
                self.received += (self.piece.len() - had) as u64;
                Poll::Ready(Ok(Next::Piece))
            }
            Ok(false) => match ready!(self.receive.poll_trailers(cx)) {
                Ok(trailers) => {
                    self.trailers = trailers;
                    Poll::Ready(Ok(Next::End))
                }
                Err(_) => Poll::Ready(Err(ClientFault::Gone)),
            },
            Err(_) => Poll::Ready(Err(ClientFault::Gone)),
        }
    }

    fn piece(&self) -> &[u8] {
        &self.piece
    }

    fn advance(&mut self, count: usize) {
        flow::advance(&mut self.receive, &mut self.piece, count);
    }

    fn received(&self) -> u64 {
        self.received
    }

    fn trailers(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.trailers.iter().flat_map(flow::fields)
    }

    fn poll_gone(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let reset = match &mut self.send {
            Some(send) => send.poll_reset(cx),
            None => self.respond.poll_reset(cx),
        };
        reset.map(|_| ())
    }

    fn interim(&mut self, answer: &Answer<'_>) -> Result<(), EncodeFault> {
        let response = response(answer.head.status, flow::forwarded(answer)?)?;
        // A stream that is gone is noticed elsewhere.
        let _ = self.respond.send_informational(response);
        Ok(())
    }

    fn respond(&mut self, answer: &Answer<'_>, changes: Changes<'_>) -> Result<(), EncodeFault> {
        let head = answer.head;
        let mut fields = flow::forwarded(answer)?;
        changes.apply_to(&mut fields)?;
        if head.kind == ResponseKind::Switching {
            // RFC 8441: it is 200 here, and the proof of HTTP/1.1 has no place.
            let mut response = response(200, fields)?;
            response.headers_mut().remove("sec-websocket-accept");
            self.send_head(response, false);
            return Ok(());
        }
        let mut response = response(head.status, fields)?;
        if let Some(length) = head.content_length.filter(|_| head.status != 204) {
            response
                .headers_mut()
                .insert(http::header::CONTENT_LENGTH, length.into());
        }
        self.left = match head.body {
            BodyLength::Exactly(length) if !answer.may_trail => Some(length),
            _ => None,
        };
        let ends = matches!(head.body, BodyLength::Empty | BodyLength::Exactly(0));
        self.send_head(response, ends);
        Ok(())
    }

    fn answer<'f>(
        &mut self,
        status: u16,
        fields: impl Iterator<Item = (&'static str, &'f str)>,
        body: &[u8],
        _closes: bool,
    ) -> Result<(), EncodeFault> {
        let fields = fields.map(|(name, value)| (name.as_bytes(), value.as_bytes()));
        let mut response = response(status, flow::headers(fields)?)?;
        let bare = matches!(status, 204 | 304);
        if !bare {
            response
                .headers_mut()
                .insert(http::header::CONTENT_LENGTH, body.len().into());
        }
        let ends = self.method == Method::Head || bare || body.is_empty();
        if !ends {
            self.waiting = Bytes::copy_from_slice(body);
        }
        self.send_head(response, ends);
        Ok(())
    }

    fn begin<'f>(
        &mut self,
        status: u16,
        fields: impl Iterator<Item = (&'static str, &'f str)>,
    ) -> Result<(), EncodeFault> {
        let fields = fields.map(|(name, value)| (name.as_bytes(), value.as_bytes()));
        let response = response(status, flow::headers(fields)?)?;
        self.left = None;
        self.send_head(response, false);
        Ok(())
    }

    fn poll_send(
        &mut self,
        cx: &mut Context<'_>,
        piece: &[u8],
    ) -> Poll<Result<usize, ClientFault>> {
        let send = self.send.as_mut().ok_or(ClientFault::Gone)?;
        let sent = ready!(flow::poll_send(send, cx, piece, self.left));
        let count = sent.map_err(|_| ClientFault::Gone)?.len();
        self.sent += count as u64;
        self.left = self.left.map(|left| left.saturating_sub(count as u64));
        Poll::Ready(Ok(count))
    }

    fn finish<'a>(
        &mut self,
        trailers: impl Iterator<Item = (&'a [u8], &'a [u8])>,
    ) -> Result<(), EncodeFault> {
        let trailers = flow::headers(trailers)?;
        if let Some(send) = self.send.as_mut().filter(|_| !trailers.is_empty()) {
            // Fails for a stream that has ended, with its head or by the client.
            let _ = send.send_trailers(trailers);
        } else {
            let _ = self.send_data(Bytes::new(), true);
        }
        Ok(())
    }

    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), ClientFault>> {
        while !self.waiting.is_empty() {
            let send = self.send.as_mut().ok_or(ClientFault::Gone)?;
            let room = ready!(flow::poll_room(send, cx, self.waiting.len()));
            let room = room.map_err(|_| ClientFault::Gone)?;
            let data = self.waiting.split_to(room);
            self.sent += room as u64;
            self.send_data(data, self.waiting.is_empty())?;
        }
        Poll::Ready(Ok(()))
    }

    fn sent(&self) -> u64 {
        self.sent
    }

    fn raw(&mut self, buffers: &BufferPool) -> (&mut H2, Buffer) {
        (self, buffers.buffer())
    }
}

/// The stream as one side of a tunnel.
impl tunnel::Side for H2 {}

impl AsyncRead for H2 {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        flow::poll_read(&mut this.receive, &mut this.piece, cx, buf)
    }
}

impl AsyncWrite for H2 {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        flow::poll_write(self.get_mut().send.as_mut(), cx, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(flow::shutdown(self.get_mut().send.as_mut()))
    }
}

fn response(status: u16, headers: HeaderMap) -> Result<Response<()>, EncodeFault> {
    let mut response = Response::new(());
    *response.status_mut() = StatusCode::from_u16(status).map_err(|_| EncodeFault::StatusLine)?;
    *response.headers_mut() = headers;
    Ok(response)
}
