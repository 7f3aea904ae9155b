//! One request and its answer: decide, connect, and move bytes both ways until both are over.
//!
//! The client's side and the endpoint's side are polled by the same task, with no channel between
//! them: [`Pump`] lends what one side read to the other side's writer, and a side that takes no
//! more stops the other. The client's side is a [`Client`], so HTTP/1.1 and HTTP/2 clients get the
//! same decisions, retries and deadlines.
//!
//! What is sent again, and when. Nothing of a request reached an endpoint that could not be
//! connected to: any method goes to one other endpoint, once, within the retry budget. A kept
//! connection that turns out dead before the first byte of an answer is replaced by a fresh one to
//! the same endpoint, if nothing was sent or the request may be done twice and is still at hand;
//! that does not use up the retry. Everything else, a deadline above all, is the client's to repeat.

use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::{Duration, SystemTime};

use tokio::time::Instant;
use usher_core::catalog::{BalancerIx, EndpointIx};
use usher_core::decision::{Attempt, Attempts, Decision, Response};
use usher_core::request::{Request, Scheme};

use super::body::{Incoming, Next, Outgoing, ReadFault};
use super::buffer::Buffer;
use super::connection::ConnInfo;
use super::deadline::Deadline;
use super::forward::{Forwarded, RequestId, Visitor, is_replaced};
use super::plane::View;
use super::record::Record;
use super::refusal::Failure;
use super::settings::{Settings, Timeouts};
use super::stream::Stream;
use super::tunnel;
use super::upstream::{self, ConnectFailure, Connection, Target};
use super::worker::Worker;
use crate::http1::{
    self, BodyLength, EncodeFault, Fields, HeadLimits, Method, Parsed, ResponseHead, ResponseKind,
    end_head, parse_response, write_field, write_framing, write_request_line,
};

/// A request is kept to be sent again while it is no longer than this.
const REPEATED_MAX: usize = 64 * 1024;

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
    /// The start of a WebSocket; [`Client::raw`] is there then.
    pub(crate) websocket: bool,
    /// `HTTP/1.0`, `HTTP/1.1` or `HTTP/2`.
    pub(crate) protocol: &'static str,
    /// When its first byte came.
    pub(crate) started: Instant,
}

/// The head of an endpoint's answer on its way to the client.
#[derive(Debug)]
pub(crate) struct Answer<'a> {
    pub(crate) head: &'a ResponseHead,
    /// What the spans in `head` point into.
    pub(crate) bytes: &'a [u8],
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

    /// Queues the head of the answer.
    fn respond(&mut self, answer: &Answer<'_>) -> Result<(), EncodeFault>;

    /// Queues a whole answer of our own. `closes`: it is the last one on this connection.
    fn answer<'f>(
        &mut self,
        status: u16,
        fields: impl Iterator<Item = (&'static str, &'f str)>,
        body: &[u8],
        closes: bool,
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

    /// The connection underneath, for a tunnel: HTTP/1.1 only.
    fn raw(&mut self) -> Option<(&mut Stream, &mut Buffer)>;
}

/// Bodies longer or shorter than announced, and the like: what must not happen.
const INTERNAL: Failure = Failure::new(500, "internal");

impl From<ConnectFailure> for Failure {
    fn from(failure: ConnectFailure) -> Failure {
        Failure::new(failure.status(), failure.as_str())
    }
}

/// Whether the client's connection ends with this answer: after these nobody knows where its next
/// request starts, or whether it is worth reading.
pub(crate) fn closes(status: u16) -> bool {
    matches!(
        status,
        400 | 405 | 408 | 413 | 414 | 417 | 431 | 500 | 501 | 505
    )
}

/// How an exchange left the client's side.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    /// The answer is out, whole. Of the request body something may be left.
    Answered,
    /// The answer is out and the connection is no longer to be trusted: close it in an orderly way.
    Refused,
    /// The answer broke off: the client must notice.
    Cut,
    /// The client has left, or the connection was a tunnel and is over.
    Over,
}

/// What an exchange works with towards the endpoint. Kept for the next one.
#[derive(Debug)]
pub(crate) struct Bench {
    out: Outgoing,
    head: ResponseHead,
    incoming: Incoming,
}

impl Bench {
    pub(crate) fn new() -> Bench {
        Bench {
            out: Outgoing::new(),
            head: ResponseHead::new(),
            incoming: Incoming::none(),
        }
    }

    /// Gives back memory that one long head took.
    pub(crate) fn shrink(&mut self) {
        self.out.shrink();
    }
}

/// Carries out one request and records it.
pub(crate) async fn run<C: Client, F: RequestFields>(
    worker: &Rc<Worker>,
    conn: &ConnInfo,
    asked: &Asked<'_, F>,
    client: &mut C,
    bench: &mut Bench,
    deadline: &mut Deadline,
) -> End {
    let view = worker.view();
    let peer = conn.peer.ip();
    let visitor = Visitor::read(
        peer,
        conn.scheme(),
        conn.trusted,
        &view.settings.trusted_proxies,
        asked.fields.all(),
    );
    let request_id = RequestId::of(conn.trusted, asked.fields.all(), worker.draw());
    let mut exchange = Exchange {
        worker,
        view: &view,
        conn,
        asked,
        client,
        bench,
        deadline,
        visitor,
        request_id,
        limits: limits(&view.settings),
        report: Report::default(),
    };
    let _in_flight = worker.in_flight();
    let end = exchange.decide().await;
    exchange.record();
    end
}

/// The limits of `settings`, as the codec wants them.
pub(crate) fn limits(settings: &Settings) -> HeadLimits {
    HeadLimits {
        head_bytes: settings.limits.header_bytes,
        fields: settings.limits.headers,
        target_bytes: settings.limits.uri_bytes,
    }
}

/// What the record will say.
#[derive(Debug, Default)]
struct Report {
    status: u16,
    error: Option<&'static str>,
    balancer: Option<BalancerIx>,
    attempt: Option<Attempt>,
    attempts: u8,
    upstream: Option<Duration>,
    /// Bytes through a tunnel.
    received: u64,
    sent: u64,
}

struct Exchange<'a, C, F> {
    worker: &'a Rc<Worker>,
    view: &'a Rc<View>,
    conn: &'a ConnInfo,
    asked: &'a Asked<'a, F>,
    client: &'a mut C,
    bench: &'a mut Bench,
    deadline: &'a mut Deadline,
    visitor: Visitor,
    request_id: RequestId,
    limits: HeadLimits,
    report: Report,
}

impl<C: Client, F: RequestFields> Exchange<'_, C, F> {
    async fn decide(&mut self) -> End {
        let asked = self.asked;
        if let Method::Connect | Method::Trace = asked.method {
            return self.refuse(Failure::METHOD).await;
        }
        if self.conn.tls.is_some() {
            let sni = self.conn.tls.as_ref().and_then(|tls| tls.sni.as_deref());
            if self.view.certificates.crosses(sni, asked.host) {
                return self.refuse(Failure::MISDIRECTED).await;
            }
        }
        let request = Request {
            host: asked.host,
            method: asked.method_name,
            uri: asked.uri,
            scheme: self.visitor.scheme,
            client: self.visitor.address,
            draw: self.worker.draw(),
        };
        let view = self.view;
        match view
            .snapshot
            .decide(&request, &*view.book, self.worker.now())
        {
            Decision::Forward { balancer, attempts } => {
                self.report.balancer = Some(balancer);
                self.forward(balancer, attempts).await
            }
            Decision::Respond {
                balancer,
                with: Response::RedirectToHttps,
            } => {
                self.report.balancer = Some(balancer);
                self.redirect().await
            }
            Decision::Refuse { balancer, reason } => {
                self.report.balancer = balancer;
                self.refuse(reason.into()).await
            }
        }
    }

    /// First attempt, and the one retry after a failure to connect.
    async fn forward(&mut self, balancer: BalancerIx, attempts: Attempts) -> End {
        let (worker, view) = (self.worker, self.view);
        let _active = worker.active(view, balancer);
        let mut retry = None;
        let mut attempt = attempts.first;
        loop {
            self.report.attempt = Some(attempt);
            self.report.attempts += 1;
            let failure = match self.attempt(balancer, attempt.endpoint).await {
                Ok(end) => return end,
                Err(failure) => failure,
            };
            let Some(other) = attempts
                .retry
                .filter(|_| retry.is_none() && self.client.received() == 0)
            else {
                return self.refuse(failure.into()).await;
            };
            retry = worker.retry(view, balancer);
            if retry.is_none() {
                return self.refuse(failure.into()).await;
            }
            attempt = other;
        }
    }

    /// One endpoint, over a kept connection or a new one.
    async fn attempt(
        &mut self,
        balancer: BalancerIx,
        endpoint: EndpointIx,
    ) -> Result<End, ConnectFailure> {
        let (view, worker) = (self.view, self.worker);
        let _open = worker.open(view, endpoint);
        let since = Instant::now();
        let addresses = worker.plane().addresses();
        let kept = worker
            .upstream()
            .take(&self.target(balancer, endpoint), addresses);
        let mut connection = match kept {
            Some(connection) => connection,
            // Boxed: connecting is rare and large, and would set the size of every connection.
            None => Box::pin(self.connect(balancer, endpoint)).await?,
        };
        if self.write_request(endpoint, connection.reused).is_err() {
            return Ok(self.refuse(INTERNAL).await);
        }
        let mut finished = false;
        loop {
            let ended = self.pump(&mut connection, &mut finished, since).await;
            let again = connection.reused && self.bench.out.can_rewind();
            if !(again && matches!(ended, Ended::Silent)) {
                return Ok(self.conclude(connection, ended).await);
            }
            self.bench.out.rewind();
            connection = Box::pin(self.connect(balancer, endpoint)).await?;
        }
    }

    fn target(&self, balancer: BalancerIx, endpoint: EndpointIx) -> Target<'_> {
        let snapshot = &self.view.snapshot;
        let transport = snapshot.transport(balancer, endpoint);
        let sni = transport.tls.and_then(|profile| profile.sni);
        Target {
            endpoint: snapshot.endpoint(endpoint),
            transport,
            sni: sni.unwrap_or(self.asked.host),
        }
    }

    async fn connect(
        &self,
        balancer: BalancerIx,
        endpoint: EndpointIx,
    ) -> Result<Connection, ConnectFailure> {
        let target = self.target(balancer, endpoint);
        let timeouts = &self.view.settings.timeouts;
        let addresses = self.worker.plane().addresses();
        upstream::connect(&target, timeouts, addresses, &self.view.clients).await
    }

    /// Queues the head of the request.
    fn write_request(&mut self, endpoint: EndpointIx, reused: bool) -> Result<(), EncodeFault> {
        let asked = self.asked;
        let replaced = self.view.snapshot.endpoint(endpoint).host_header.as_deref();
        let host = replaced.map_or(asked.authority, str::as_bytes);
        let kept_max = if reused && asked.method.is_idempotent() {
            REPEATED_MAX
        } else {
            0
        };
        let out = self.bench.out.begin(asked.body, kept_max);
        write_request_line(out, asked.method_name.as_bytes(), asked.uri.as_bytes())?;
        write_field(out, b"host", host)?;
        for (name, value) in asked.fields.forwarded() {
            let stale = !asked.expects && name.eq_ignore_ascii_case(b"expect");
            if !stale && !is_replaced(name, self.conn.trusted) {
                write_field(out, name, value)?;
            }
        }
        let forwarded = Forwarded {
            peer: self.conn.peer.ip(),
            trusted: self.conn.trusted,
            visitor: self.visitor,
            host: asked.authority,
            request_id: &self.request_id,
        };
        forwarded.write(asked.fields.all(), out);
        if asked.websocket {
            out.extend_from_slice(b"connection: upgrade\r\nupgrade: websocket\r\n");
        }
        write_framing(out, asked.body);
        end_head(out);
        Ok(())
    }

    /// Moves the bytes, from where the request is: `finished` when all of it is queued.
    async fn pump(
        &mut self,
        connection: &mut Connection,
        finished: &mut bool,
        since: Instant,
    ) -> Ended {
        let mut pump = Pump {
            client: &mut *self.client,
            io: &mut connection.io,
            out: &mut self.bench.out,
            head: &mut self.bench.head,
            buffer: self.worker.buffers().buffer(),
            incoming: &mut self.bench.incoming,
            asked: http1::Asked {
                method: self.asked.method,
                websocket: self.asked.websocket,
            },
            limits: &self.limits,
            timeouts: &self.view.settings.timeouts,
            deadline: &mut *self.deadline,
            sending: if *finished {
                Sending::Flushing
            } else {
                Sending::Body
            },
            finished,
            answering: Answering::Head,
            expects: self.asked.expects,
            waits_for_client: false,
            moved: true,
            since,
            answered: None,
        };
        pump.head.reset();
        let ended = poll_fn(|cx| pump.poll(cx)).await;
        let leftover = pump.buffer;
        if let Some(answered) = pump.answered {
            self.report.upstream = Some(answered - since);
            self.report.status = self.bench.head.status;
        }
        match ended {
            Ended::Switched => {
                self.report.error = self.tunnel(connection, leftover).await;
                Ended::Tunnelled
            }
            ended => ended,
        }
    }

    /// Both ways until both ends have closed. The word for what broke it, if something did.
    async fn tunnel(
        &mut self,
        connection: &mut Connection,
        leftover: Buffer,
    ) -> Option<&'static str> {
        let idle = self.view.settings.timeouts.body_idle;
        let (client, buffer) = self.client.raw()?;
        // Boxed, as connecting is.
        let tunnel = tunnel::run(
            client,
            buffer.take(),
            &mut connection.io,
            leftover,
            self.deadline,
            idle,
        );
        let passed = Box::pin(tunnel).await;
        (self.report.received, self.report.sent) = (passed.received, passed.sent);
        passed.error
    }

    /// After the bytes: what the client still gets, and what becomes of the endpoint's connection.
    async fn conclude(&mut self, connection: Connection, ended: Ended) -> End {
        match ended {
            Ended::Answered { reusable } => {
                if reusable {
                    let keep = self.view.settings.timeouts.upstream_keep_alive;
                    self.worker.upstream().put(connection, keep);
                }
                End::Answered
            }
            Ended::Silent => self.refuse(Failure::NO_ANSWER).await,
            Ended::Failed(fault) => self.refuse(fault).await,
            Ended::Cut(word) => {
                self.report.error = Some(word);
                // What came before the break is the client's.
                self.flush(Ok(())).await;
                End::Cut
            }
            Ended::Gone => {
                if self.report.status == 0 {
                    self.report.status = 499;
                }
                self.report.error = Some("client-gone");
                End::Over
            }
            Ended::Switched | Ended::Tunnelled => End::Over,
        }
    }

    /// Answers with the page for `failure`.
    async fn refuse(&mut self, failure: Failure) -> End {
        self.report.status = failure.status();
        self.report.error = Some(failure.as_str());
        let closes = closes(failure.status());
        let queued = self.queue(failure, closes);
        match self.flush(queued).await {
            End::Answered if closes => End::Refused,
            end => end,
        }
    }

    fn queue(&mut self, failure: Failure, closes: bool) -> Result<(), EncodeFault> {
        let accept = self
            .asked
            .fields
            .all()
            .filter(|(name, _)| name.eq_ignore_ascii_case(b"accept"));
        let page = failure.page(accept.map(|(_, value)| value), &self.request_id);
        self.client
            .answer(page.status(), page.fields(), &page.body, closes)
    }

    async fn redirect(&mut self) -> End {
        self.report.status = 301;
        // Without the port: it belongs to the plain listener.
        let location = format!(
            "{}://{}{}",
            Scheme::Https.as_str(),
            self.asked.host,
            self.asked.uri
        );
        let queued = self
            .client
            .answer(301, [("location", &*location)].into_iter(), b"", false);
        self.flush(queued).await
    }

    /// Sees an answer of our own out.
    async fn flush(&mut self, queued: Result<(), EncodeFault>) -> End {
        if queued.is_err() {
            return End::Cut;
        }
        self.deadline
            .set_after(self.view.settings.timeouts.body_idle);
        let flushed = poll_fn(|cx| match self.client.poll_flush(cx) {
            Poll::Pending => self.deadline.poll(cx).map(|()| Err(ClientFault::Gone)),
            flushed => flushed,
        });
        flushed.await.map_or(End::Over, |()| End::Answered)
    }

    fn record(&self) {
        let asked = self.asked;
        let path = asked
            .uri
            .split_once('?')
            .map_or(asked.uri, |(path, _)| path);
        let duration = asked.started.elapsed();
        self.worker.record(
            self.view,
            &Record {
                started: SystemTime::now() - duration,
                duration,
                request_id: self.request_id.as_str(),
                client: self.visitor.address,
                method: asked.method_name.as_bytes(),
                host: asked.host,
                path: path.as_bytes(),
                status: self.report.status,
                bytes_in: self.report.received + self.client.received(),
                bytes_out: self.report.sent + self.client.sent(),
                balancer: self.report.balancer,
                pool: self.report.attempt.map(|attempt| attempt.pool),
                endpoint: self.report.attempt.map(|attempt| attempt.endpoint),
                upstream: self.report.upstream,
                attempts: self.report.attempts,
                error: self.report.error,
                tls: self.conn.tls_version(),
                protocol: asked.protocol,
            },
        );
    }
}

/// How the bytes of an exchange came to an end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ended {
    /// All of the answer is out.
    Answered {
        /// The endpoint's connection can serve another request.
        reusable: bool,
    },
    /// 101 is out.
    Switched,
    /// A tunnel was there and is over.
    Tunnelled,
    /// The endpoint closed the connection before the first byte of an answer.
    Silent,
    /// No head of an answer reached the client: it gets a page.
    Failed(Failure),
    /// The head is out already, the rest will not come.
    Cut(&'static str),
    /// The client has left.
    Gone,
}

impl From<ClientFault> for Ended {
    fn from(fault: ClientFault) -> Ended {
        match fault {
            ClientFault::Malformed(word) => Ended::Failed(Failure::new(400, word)),
            ClientFault::Gone => Ended::Gone,
        }
    }
}

/// Where the request is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sending {
    /// Its body is on the way.
    Body,
    /// All of it is queued.
    Flushing,
    /// All of it is out.
    Done,
    /// The endpoint takes no more; it may still answer.
    Abandoned,
}

/// Where the answer is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Answering {
    Head,
    /// An interim answer is queued.
    Interim,
    /// A 101 is queued.
    Switching,
    Body,
    /// All of it is queued.
    Flushing,
}

/// Moves the bytes of one exchange, as far as either side is ready, each time it is polled.
struct Pump<'a, C> {
    client: &'a mut C,
    io: &'a mut Stream,
    out: &'a mut Outgoing,
    head: &'a mut ResponseHead,
    /// What was read of the answer.
    buffer: Buffer,
    incoming: &'a mut Incoming,
    asked: http1::Asked,
    limits: &'a HeadLimits,
    timeouts: &'a Timeouts,
    deadline: &'a mut Deadline,
    sending: Sending,
    /// Whether all of the request is queued.
    finished: &'a mut bool,
    answering: Answering,
    expects: bool,
    /// It is the client's turn: to send more of the request, or to take more of the answer.
    waits_for_client: bool,
    /// Something moved since the clock was read last.
    moved: bool,
    /// When something moved last.
    since: Instant,
    /// When the head of the answer came.
    answered: Option<Instant>,
}

impl<C: Client> Pump<'_, C> {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Ended> {
        self.waits_for_client = false;
        if let Err(ended) = self.poll_request(cx) {
            return Poll::Ready(self.before_or_after(ended));
        }
        match self.poll_answer(cx) {
            Ok(Poll::Ready(ended)) => return Poll::Ready(ended),
            Ok(Poll::Pending) => {}
            Err(ended) => return Poll::Ready(ended),
        }
        if std::mem::take(&mut self.moved) {
            self.since = Instant::now();
        }
        let (within, expired) = self.patience();
        self.deadline.set(self.since + within);
        ready!(self.deadline.poll(cx));
        Poll::Ready(expired)
    }

    /// A fault of the request is answered only while no other answer has begun.
    fn before_or_after(&self, ended: Ended) -> Ended {
        match (ended, self.answering) {
            (
                Ended::Failed(fault),
                Answering::Body | Answering::Flushing | Answering::Switching,
            ) => Ended::Cut(fault.as_str()),
            (ended, _) => ended,
        }
    }

    /// How long nothing may move, and what it means when nothing did.
    fn patience(&self) -> (Duration, Ended) {
        match (self.answering, self.sending) {
            (Answering::Head | Answering::Interim, Sending::Body)
                if self.waits_for_client && !(self.expects && self.client.received() == 0) =>
            {
                (
                    self.timeouts.client_body_idle,
                    Ended::Failed(Failure::BODY_TIMEOUT),
                )
            }
            (Answering::Head | Answering::Interim, _) => (
                self.timeouts.response_header,
                Ended::Failed(Failure::RESPONSE_TIMEOUT),
            ),
            (Answering::Switching | Answering::Body | Answering::Flushing, _) => {
                let word = if self.waits_for_client {
                    "client-timeout"
                } else {
                    "body-timeout"
                };
                (self.timeouts.body_idle, Ended::Cut(word))
            }
        }
    }

    /// Request: from the client to the endpoint.
    fn poll_request(&mut self, cx: &mut Context<'_>) -> Result<(), Ended> {
        loop {
            match self.sending {
                Sending::Body => match self.client.poll_next(cx) {
                    Poll::Ready(Ok(Next::Piece)) => {
                        match self.out.poll_send(self.io, cx, self.client.piece()) {
                            Poll::Ready(Ok(count)) => {
                                self.client.advance(count);
                                self.moved = true;
                            }
                            Poll::Ready(Err(_)) => self.sending = Sending::Abandoned,
                            Poll::Pending => return Ok(()),
                        }
                    }
                    Poll::Ready(Ok(Next::End)) => {
                        self.moved = true;
                        *self.finished = true;
                        self.sending = match self.out.finish(self.client.trailers()) {
                            Ok(()) => Sending::Flushing,
                            Err(_) => return Err(Ended::Failed(INTERNAL)),
                        };
                    }
                    Poll::Ready(Err(fault)) => return Err(fault.into()),
                    Poll::Pending => {
                        match self.poll_flush_request(cx) {
                            Poll::Ready(true) => self.waits_for_client = true,
                            Poll::Ready(false) => self.sending = Sending::Abandoned,
                            Poll::Pending => {}
                        }
                        return Ok(());
                    }
                },
                Sending::Flushing => match self.poll_flush_request(cx) {
                    Poll::Ready(true) => self.sending = Sending::Done,
                    Poll::Ready(false) => self.sending = Sending::Abandoned,
                    Poll::Pending => return Ok(()),
                },
                Sending::Done => {
                    return match self.client.poll_gone(cx) {
                        Poll::Ready(()) => Err(Ended::Gone),
                        Poll::Pending => Ok(()),
                    };
                }
                Sending::Abandoned => return Ok(()),
            }
        }
    }

    /// Whether all that waited for the endpoint is out; false when it takes no more.
    fn poll_flush_request(&mut self, cx: &mut Context<'_>) -> Poll<bool> {
        let before = self.out.sent;
        let flushed = self.out.poll_flush(self.io, cx);
        self.moved |= self.out.sent > before;
        flushed.map(|flushed| flushed.is_ok())
    }

    /// Answer: from the endpoint to the client.
    fn poll_answer(&mut self, cx: &mut Context<'_>) -> Result<Poll<Ended>, Ended> {
        loop {
            match self.answering {
                Answering::Head => {
                    if self.poll_head(cx)?.is_pending() {
                        return Ok(Poll::Pending);
                    }
                }
                Answering::Interim => match self.client.poll_flush(cx)? {
                    Poll::Ready(()) => self.answering = Answering::Head,
                    Poll::Pending => return self.client_is_slow(),
                },
                Answering::Switching => match self.client.poll_flush(cx)? {
                    Poll::Ready(()) => return Ok(Poll::Ready(Ended::Switched)),
                    Poll::Pending => return self.client_is_slow(),
                },
                Answering::Body => {
                    if self.poll_body(cx)?.is_pending() {
                        return Ok(Poll::Pending);
                    }
                }
                Answering::Flushing => match self.client.poll_flush(cx)? {
                    Poll::Ready(()) => {
                        let reusable = self.sending == Sending::Done
                            && self.head.keep_alive
                            && self.buffer.is_empty();
                        return Ok(Poll::Ready(Ended::Answered { reusable }));
                    }
                    Poll::Pending => return self.client_is_slow(),
                },
            }
        }
    }

    fn client_is_slow(&mut self) -> Result<Poll<Ended>, Ended> {
        self.waits_for_client = true;
        Ok(Poll::Pending)
    }

    /// Reads until a head is there, and passes it on.
    fn poll_head(&mut self, cx: &mut Context<'_>) -> Result<Poll<()>, Ended> {
        let invalid = |word| Ended::Failed(Failure::new(520, word));
        loop {
            if !self.buffer.is_empty() {
                let parsed = parse_response(self.buffer.data(), self.limits, self.asked, self.head);
                match parsed.map_err(|fault| invalid(fault.as_str()))? {
                    Parsed::Complete => break,
                    Parsed::Partial => {
                        if !self.buffer.has_room()
                            && !self.buffer.double(self.limits.head_bytes + 1024)
                        {
                            return Err(invalid("head-too-large"));
                        }
                    }
                }
            }
            match self.buffer.poll_fill(self.io, cx) {
                Poll::Pending => return Ok(Poll::Pending),
                Poll::Ready(Ok(0) | Err(_)) if self.buffer.is_empty() && !self.has_spoken() => {
                    return Err(Ended::Silent);
                }
                Poll::Ready(Ok(0) | Err(_)) => {
                    return Err(Ended::Failed(Failure::new(520, "truncated-head")));
                }
                Poll::Ready(Ok(_)) => {}
            }
        }
        self.out.forget();
        let answer = Answer {
            head: self.head,
            bytes: self.buffer.data(),
        };
        let (queued, next) = match self.head.kind {
            ResponseKind::Interim => (self.client.interim(&answer), Answering::Interim),
            ResponseKind::Switching => (self.client.respond(&answer), Answering::Switching),
            ResponseKind::Final => (self.client.respond(&answer), Answering::Body),
        };
        queued.map_err(|_| Ended::Failed(INTERNAL))?;
        self.buffer.consume(self.head.len);
        self.answering = next;
        if next != Answering::Interim {
            self.moved = true;
            self.answered = Some(Instant::now());
            *self.incoming = Incoming::new(self.head.body, self.limits);
        }
        Ok(Poll::Ready(()))
    }

    /// Whether there was an interim answer already.
    fn has_spoken(&self) -> bool {
        self.head.len != 0
    }

    fn poll_body(&mut self, cx: &mut Context<'_>) -> Result<Poll<()>, Ended> {
        let incoming = &mut *self.incoming;
        loop {
            match incoming.poll_next(&mut self.buffer, self.io, cx) {
                Poll::Ready(Ok(Next::Piece)) => {
                    match self.client.poll_send(cx, incoming.piece(&self.buffer))? {
                        Poll::Ready(count) => {
                            incoming.advance(&mut self.buffer, count);
                            self.moved = true;
                        }
                        Poll::Pending => {
                            self.waits_for_client = true;
                            return Ok(Poll::Pending);
                        }
                    }
                }
                Poll::Ready(Ok(Next::End)) => {
                    let ended = self.client.finish(incoming.trailers());
                    ended.map_err(|_| Ended::Cut("internal"))?;
                    self.answering = Answering::Flushing;
                    return Ok(Poll::Ready(()));
                }
                Poll::Ready(Err(ReadFault::Body(fault))) => return Err(Ended::Cut(fault.as_str())),
                Poll::Ready(Err(ReadFault::Io(_))) => return Err(Ended::Cut("truncated")),
                Poll::Pending => {
                    // What is there goes out before waiting for more.
                    self.waits_for_client = self.client.poll_flush(cx)?.is_pending();
                    return Ok(Poll::Pending);
                }
            }
        }
    }
}
