//! One request and its answer: decide, connect, and move bytes both ways until both are over.
//!
//! The client's side and the endpoint's side are owned by one task, with no channel between them;
//! [`Pump`] moves the bytes. The client's side is a [`Client`], so HTTP/1.1 and HTTP/2 clients get
//! the same decisions, retries and deadlines.
//!
//! What is sent again, and when. Nothing of a request reached an endpoint that could not be
//! connected to: any method goes to one other endpoint, once, within the retry budget. A kept
//! connection that turns out dead before the first byte of an answer is replaced by a fresh one to
//! the same endpoint, if nothing was sent or the request may be done twice and is still at hand;
//! that does not use up the retry. Everything else, a deadline above all, is the client's to repeat.

use std::future::poll_fn;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, SystemTime};

use tokio::time::Instant;
use usher_core::catalog::{BalancerIx, EndpointIx};
use usher_core::decision::{Attempt, Attempts, Decision, Response};
use usher_core::request::{Request, Scheme};

use super::body::{Incoming, Outgoing};
use super::buffer::BufferPool;
use super::client::{Asked, Client, ClientFault, RequestFields};
use super::connection::ConnInfo;
use super::deadline::Deadline;
use super::forward::{Forwarded, RequestId, Visitor, is_replaced};
use super::h2::flow;
use super::plane::View;
use super::pump::{Answering, Ended, INTERNAL, Pump, Sending};
use super::record::Record;
use super::refusal::Failure;
use super::settings::{Settings, Timeouts};
use super::tunnel;
use super::upstream::{
    self, ConnectFailure, Connection, Http1, Http2, Kept, Opened, Target, Terms, Upstream,
};
use super::websocket::Handshake;
use super::worker::Worker;
use crate::http1::{
    self, BodyLength, EncodeFault, HeadLimits, Method, ResponseHead, end_head, write_field,
    write_framing, write_request_line,
};

/// The protocol of the log and of [`Asked::protocol`].
const HTTP2: &str = "HTTP/2";

/// How often a request goes out again over HTTP/2.
const REPEATS_MAX: u32 = 2;

/// A request is kept to be sent again while it is no longer than this.
const REPEATED_MAX: usize = 64 * 1024;

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
    /// It was a tunnel, and both ends have said all.
    Tunnelled,
    /// The client has left, or a tunnel broke.
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

/// What the codec must know of a request to read its answer.
fn asked<F>(asked: &Asked<'_, F>) -> http1::Asked {
    http1::Asked {
        method: asked.method,
        websocket: asked.websocket,
    }
}

/// Whether a field of the request goes on to the endpoint.
fn passes<F>(asked: &Asked<'_, F>, trusted: bool, name: &[u8], own_key: bool) -> bool {
    let stale = !asked.expects && name.eq_ignore_ascii_case(b"expect");
    let key = own_key && name.eq_ignore_ascii_case(b"sec-websocket-key");
    !stale && !key && !is_replaced(name, trusted)
}

/// Whether a field of a request says that its sender takes trailers.
fn takes_trailers((name, value): (&[u8], &[u8])) -> bool {
    let mut items = value.split(|&byte| byte == b',');
    name.eq_ignore_ascii_case(b"te")
        && items.any(|item| item.trim_ascii().eq_ignore_ascii_case(b"trailers"))
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

/// What it takes to move the bytes once the request's head is queued.
struct Exchanged<'a, C> {
    client: &'a mut C,
    report: &'a mut Report,
    deadline: &'a mut Deadline,
    timeouts: &'a Timeouts,
    buffers: &'a BufferPool,
    expects: bool,
    since: Instant,
}

impl<C: Client> Exchanged<'_, C> {
    /// Moves the bytes, from where the request is: `finished` when all of it is queued.
    async fn pump<U: Upstream>(self, upstream: &mut U, finished: &mut bool) -> Ended {
        let mut pump = Pump {
            client: &mut *self.client,
            upstream: &mut *upstream,
            timeouts: self.timeouts,
            deadline: &mut *self.deadline,
            sending: if *finished {
                Sending::Flushing
            } else {
                Sending::Body
            },
            finished,
            answering: Answering::Head,
            expects: self.expects,
            waits_for_client: false,
            moved: true,
            since: self.since,
            answered: None,
        };
        let ended = poll_fn(|cx| pump.poll(cx)).await;
        if let Some(answered) = pump.answered {
            self.report.upstream = Some(answered - self.since);
            self.report.status = upstream.answer().head.status;
        }
        if ended != Ended::Switched {
            return ended;
        }
        let (client, client_said) = self.client.raw(self.buffers);
        let (endpoint, endpoint_said) = upstream.raw(self.buffers);
        let idle = self.timeouts.body_idle;
        // Boxed, as connecting is.
        let passed = Box::pin(tunnel::run(
            client,
            client_said,
            endpoint,
            endpoint_said,
            self.deadline,
            idle,
        ))
        .await;
        (self.report.received, self.report.sent) = (passed.received, passed.sent);
        self.report.error = passed.error;
        Ended::Tunnelled
    }
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

    /// One endpoint.
    async fn attempt(
        &mut self,
        balancer: BalancerIx,
        endpoint: EndpointIx,
    ) -> Result<End, ConnectFailure> {
        let (view, worker) = (self.view, self.worker);
        let _open = worker.open(view, endpoint);
        let since = Instant::now();
        if self.wants_http2(balancer, endpoint) {
            // Boxed: it is large, and would set the size of every connection.
            let over_http2 = Box::pin(self.over_http2(balancer, endpoint, since));
            if let Some(end) = over_http2.await? {
                return Ok(end);
            }
        }
        self.over_http1(balancer, endpoint, since).await
    }

    /// A WebSocket of an HTTP/1.1 client stays one of HTTP/1.1: nothing is gained by translating.
    fn wants_http2(&self, balancer: BalancerIx, endpoint: EndpointIx) -> bool {
        let http2 = self.view.snapshot.transport(balancer, endpoint).http2;
        http2 && !(self.asked.websocket && self.asked.protocol != HTTP2)
    }

    /// Over a kept connection or a new one.
    async fn over_http1(
        &mut self,
        balancer: BalancerIx,
        endpoint: EndpointIx,
        since: Instant,
    ) -> Result<End, ConnectFailure> {
        let worker = self.worker;
        let addresses = worker.plane().addresses();
        let kept = worker
            .upstream()
            .take(&self.target(balancer, endpoint), addresses);
        let mut connection = match kept {
            Some(connection) => connection,
            // Boxed: connecting is rare and large, and would set the size of every connection.
            None => Box::pin(self.connect(balancer, endpoint)).await?,
        };
        let handshake = (self.asked.websocket && self.asked.protocol == HTTP2)
            .then(|| Handshake::new(worker.draw(), worker.draw()));
        let key = handshake.as_ref();
        if self
            .write_request(endpoint, connection.reused, key)
            .is_err()
        {
            return Ok(self.refuse(INTERNAL).await);
        }
        let mut finished = false;
        loop {
            let Bench {
                out,
                head,
                incoming,
                ..
            } = &mut *self.bench;
            head.reset();
            let mut upstream = Http1 {
                io: &mut connection.io,
                out,
                head,
                buffer: worker.buffers().buffer(),
                incoming,
                asked: asked(self.asked),
                limits: &self.limits,
                accept: key.map(|handshake| handshake.accept.as_str()),
            };
            let exchanged = Exchanged {
                client: &mut *self.client,
                report: &mut self.report,
                deadline: &mut *self.deadline,
                timeouts: &self.view.settings.timeouts,
                buffers: worker.buffers(),
                expects: self.asked.expects,
                since,
            };
            let ended = exchanged.pump(&mut upstream, &mut finished).await;
            drop(upstream);
            let again = connection.reused && self.bench.out.can_rewind();
            if again && matches!(ended, Ended::Silent { .. }) {
                self.bench.out.rewind();
                connection = Box::pin(self.connect(balancer, endpoint)).await?;
                continue;
            }
            if let Ended::Answered { reusable: true } = ended {
                let keep = self.view.settings.timeouts.upstream_keep_alive;
                worker.upstream().put(connection, keep);
            }
            return Ok(self.conclude(ended).await);
        }
    }

    /// Over a stream of a shared connection. `None`: the endpoint wants HTTP/1.1 for this, and
    /// nothing was sent.
    async fn over_http2(
        &mut self,
        balancer: BalancerIx,
        endpoint: EndpointIx,
        since: Instant,
    ) -> Result<Option<End>, ConnectFailure> {
        let worker = self.worker;
        let mut kept = Kept::default();
        let mut finished = false;
        let mut repeats = 0;
        loop {
            let lease = match self.open_stream(balancer, endpoint).await? {
                Opened::Stream(lease) if self.asked.websocket && !lease.knows_websockets() => {
                    return Ok(None);
                }
                Opened::Stream(lease) => lease,
                Opened::Http1 if repeats == 0 => return Ok(None),
                Opened::Http1 => return Ok(Some(self.refuse(Failure::NO_ANSWER).await)),
            };
            let Ok(request) = self.request(balancer, endpoint) else {
                return Ok(Some(self.refuse(INTERNAL).await));
            };
            let ends = matches!(self.asked.body, BodyLength::Empty | BodyLength::Exactly(0));
            let terms = Terms {
                asked: asked(self.asked),
                limits: &self.limits,
                kept_max: REPEATED_MAX,
            };
            let reused = lease.is_reused();
            let ends = ends && !self.asked.websocket;
            let head = &mut self.bench.head;
            let began = Http2::begin(lease, request, ends, finished, &mut kept, head, terms);
            let ended = match began {
                Ok(mut upstream) => {
                    let exchanged = Exchanged {
                        client: &mut *self.client,
                        report: &mut self.report,
                        deadline: &mut *self.deadline,
                        timeouts: &self.view.settings.timeouts,
                        buffers: worker.buffers(),
                        expects: self.asked.expects,
                        since,
                    };
                    exchanged.pump(&mut upstream, &mut finished).await
                }
                Err(_) => Ended::Silent { untouched: true },
            };
            let again = match ended {
                Ended::Silent { untouched: true } => true,
                Ended::Silent { untouched: false } => reused && self.asked.method.is_idempotent(),
                _ => false,
            };
            if again && kept.is_whole() && repeats < REPEATS_MAX {
                repeats += 1;
                continue;
            }
            return Ok(Some(self.conclude(ended).await));
        }
    }

    async fn open_stream(
        &self,
        balancer: BalancerIx,
        endpoint: EndpointIx,
    ) -> Result<Opened, ConnectFailure> {
        let target = self.target(balancer, endpoint);
        let keep = self.view.settings.timeouts.upstream_keep_alive;
        // The attempt may outlive this request.
        let dial = || {
            let (view, plane) = (Rc::clone(self.view), Arc::clone(self.worker.plane()));
            let (sni, buffers) = (target.sni.to_owned(), self.worker.buffers().clone());
            async move {
                let target = Target {
                    endpoint: view.snapshot.endpoint(endpoint),
                    transport: view.snapshot.transport(balancer, endpoint),
                    sni: &sni,
                };
                let (settings, clients) = (&view.settings, &view.clients);
                upstream::dial(&target, settings, plane.addresses(), clients, &buffers).await
            }
        };
        let addresses = self.worker.plane().addresses();
        let pool = self.worker.upstream();
        pool.open(&target, addresses, keep, dial).await
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

    /// Queues the head of the request. `handshake`: its side of a WebSocket is ours.
    fn write_request(
        &mut self,
        endpoint: EndpointIx,
        reused: bool,
        handshake: Option<&Handshake>,
    ) -> Result<(), EncodeFault> {
        let (asked, trusted) = (self.asked, self.conn.trusted);
        let kept_max = if reused && asked.method.is_idempotent() {
            REPEATED_MAX
        } else {
            0
        };
        let out = self.bench.out.begin(asked.body, kept_max);
        write_request_line(out, asked.method_name.as_bytes(), asked.uri.as_bytes())?;
        let replaced = self.view.snapshot.endpoint(endpoint).host_header.as_deref();
        let host = replaced.map_or(asked.authority, str::as_bytes);
        write_field(out, b"host", host)?;
        for (name, value) in asked.fields.forwarded() {
            if passes(asked, trusted, name, handshake.is_some()) {
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
        if let Some(handshake) = handshake {
            write_field(out, b"sec-websocket-key", handshake.key.as_bytes())?;
        }
        write_framing(out, asked.body);
        end_head(out);
        Ok(())
    }

    /// The head of the request for HTTP/2.
    fn request(
        &self,
        balancer: BalancerIx,
        endpoint: EndpointIx,
    ) -> Result<http::Request<()>, EncodeFault> {
        let asked = self.asked;
        let snapshot = &self.view.snapshot;
        let replaced = snapshot.endpoint(endpoint).host_header.as_deref();
        let host = replaced.map_or(asked.authority, str::as_bytes);
        let tls = snapshot.transport(balancer, endpoint).tls.is_some();
        let scheme = if tls { Scheme::Https } else { Scheme::Http };
        let uri = http::Uri::builder()
            .scheme(scheme.as_str())
            .authority(host)
            .path_and_query(asked.uri)
            .build()
            .map_err(|_| EncodeFault::Target)?;
        let mut request = http::Request::new(());
        *request.uri_mut() = uri;
        if asked.websocket {
            *request.method_mut() = http::Method::CONNECT;
            let protocol = h2::ext::Protocol::from_static("websocket");
            request.extensions_mut().insert(protocol);
        } else {
            *request.method_mut() = http::Method::from_bytes(asked.method_name.as_bytes())
                .map_err(|_| EncodeFault::Method)?;
        }
        let map = request.headers_mut();
        for (name, value) in asked.fields.forwarded() {
            if passes(asked, self.conn.trusted, name, asked.websocket) {
                flow::append(map, name, value)?;
            }
        }
        // It speaks for this hop, but here both hops can carry trailers; gRPC insists on it.
        if asked.protocol == HTTP2 && asked.fields.all().any(takes_trailers) {
            flow::append(map, b"te", b"trailers")?;
        }
        if let BodyLength::Exactly(length) = asked.body {
            map.insert(http::header::CONTENT_LENGTH, length.into());
        }
        let forwarded = Forwarded {
            peer: self.conn.peer.ip(),
            trusted: self.conn.trusted,
            visitor: self.visitor,
            host: asked.authority,
            request_id: &self.request_id,
        };
        let mut sink = flow::Sink::new(map);
        forwarded.write(asked.fields.all(), &mut sink);
        sink.finish()?;
        Ok(request)
    }

    /// After the bytes: what the client still gets.
    async fn conclude(&mut self, ended: Ended) -> End {
        match ended {
            Ended::Answered { .. } => End::Answered,
            Ended::Silent { .. } => self.refuse(Failure::NO_ANSWER).await,
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
            Ended::Tunnelled if self.report.error.is_none() => End::Tunnelled,
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
        let asked = self.asked;
        let path = if asked.uri == "*" { "/" } else { asked.uri };
        // Without the port: it belongs to the plain listener.
        let location = format!("{}://{}{path}", Scheme::Https.as_str(), asked.host);
        let date = httpdate::fmt_http_date(SystemTime::now());
        let fields = [("location", &*location), ("date", &*date)];
        let queued = self.client.answer(301, fields.into_iter(), b"", false);
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
