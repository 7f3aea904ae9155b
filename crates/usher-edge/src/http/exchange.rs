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

use std::fmt;
use std::future::poll_fn;
use std::net::SocketAddr;
use std::ops::ControlFlow;
use std::rc::Rc;
use std::task::Poll;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::time::Instant;
use tracing::warn;
use usher_core::affinity::NoPins;
use usher_core::catalog::{BalancerIx, EndpointIx};
use usher_core::decision::{Attempt, Attempts, Decision, Forward, Response};
use usher_core::request::{Headers, Request, Scheme};
use usher_core::rules::FixedResponse;
use usher_core::time::Wall;

use super::body::{Incoming, Outgoing};
use super::buffer::Buffer;
use super::client::{Asked, Client, ClientFault, RequestFields};
use super::connection::ConnInfo;
use super::deadline::Deadline;
use super::forward::{Forwarded, RequestId, Visitor, is_replaced};
use super::plane::View;
use super::pump::{Answering, Ended, INTERNAL, Pump, Sending};
use super::record::{CUT, Record, path_of};
use super::refusal::Failure;
use super::settings::Settings;
use super::tunnel;
use super::upstream::{self, ConnectFailure, Connection, Target};
use super::worker::Worker;
use crate::http1::{
    self, EncodeFault, HeadLimits, Method, ResponseHead, end_head, write_field, write_framing,
    write_request_line,
};

/// A request is kept to be sent again while it is no longer than this.
const REPEATED_MAX: usize = 64 * 1024;

/// A reason is cut off after this.
const COMPLAINT_CHARS_MAX: usize = 300;

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
    let _in_flight = worker.in_flight();
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
    let end = exchange.decide().await;
    exchange.report.ended = true;
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

/// The fields of a request, as a decision reads them.
struct Lines<'a, F>(&'a F);

impl<F: RequestFields> Headers for Lines<'_, F> {
    fn visit<'s>(&'s self, each: &mut dyn FnMut(&'s [u8], &'s [u8]) -> ControlFlow<()>) {
        for (name, value) in self.0.all() {
            if each(name, value).is_break() {
                return;
            }
        }
    }
}

fn now() -> Wall {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    Wall::from_millis(since.map_or(0, |since| since.as_millis() as i64))
}

/// What the record will say.
#[derive(Debug, Default)]
struct Report {
    /// False while it is under way; one that is dropped then was cut.
    ended: bool,
    status: u16,
    error: Option<&'static str>,
    balancer: Option<BalancerIx>,
    attempt: Option<Attempt>,
    attempts: u8,
    upstream: Option<Duration>,
    tunnel: tunnel::Passed,
}

struct Exchange<'a, C: Client, F: RequestFields> {
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
            version: asked.protocol,
            headers: &Lines(asked.fields),
            location: self.view.location(self.visitor.address),
            time: now(),
            draw: self.worker.draw(),
        };
        let view = self.view;
        match view
            .snapshot
            .decide(&request, &*view.book, &NoPins, self.worker.now())
        {
            Decision::Forward(Forward {
                balancer, attempts, ..
            }) => {
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
            Decision::Respond {
                balancer,
                with: Response::Fixed(source),
            } => {
                self.report.balancer = Some(balancer);
                self.respond(view.snapshot.fixed_response(balancer, source))
                    .await
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
        let told = |ip, why: &dyn fmt::Display| {
            let port = target.transport.port;
            self.complain(endpoint, SocketAddr::new(ip, port), why);
        };
        // From now on, so that many who connect at one time see each other.
        let counted = self.view.book.connecting(endpoint, self.worker.index());
        let clients = &self.view.clients;
        let connected = upstream::connect(&target, timeouts, addresses, clients, told).await;
        connected.map(|connection| connection.counted(counted))
    }

    /// Says why TLS with an endpoint fails, which no status can tell; seldom, as it may be every
    /// request that finds it out.
    fn complain(&self, endpoint: EndpointIx, at: SocketAddr, why: &dyn fmt::Display) {
        let why = why.to_string();
        let now = self.worker.now();
        if !self.view.book.complaints(endpoint).may_say(&why, now) {
            return;
        }
        let snapshot = &self.view.snapshot;
        let view = snapshot.endpoint(endpoint);
        let (pool, name) = (snapshot.pool(view.pool).name, &view.name);
        // The endpoint's certificate has a say in the text.
        let why: String = (why.chars().filter(|char| !char.is_control()))
            .take(COMPLAINT_CHARS_MAX)
            .collect();
        warn!("endpoint {pool}/{name} at {at}: TLS: {why}");
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
            pipes: self.worker.pipes(),
            request_pipe: None,
            answer_pipe: None,
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
        let report = &mut self.report;
        let ended = poll_fn(|cx| {
            let ended = pump.poll(cx);
            // At once, because the exchange may be cut before the end.
            if let Some(answered) = pump.answered {
                report.upstream = Some(answered - since);
                report.status = pump.head.status;
            }
            ended
        })
        .await;
        let leftover = pump.buffer;
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
            (client, buffer.take()),
            (&mut connection.io, leftover),
            self.worker.pipes(),
            self.deadline,
            idle,
            &mut self.report.tunnel,
        );
        Box::pin(tunnel).await
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
            // Its connection was cut; this is one stream of it.
            Ended::Gone if self.conn.drain.is_cut() => {
                self.report.error = Some(CUT);
                End::Over
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
        let asked = self.asked;
        let path = if asked.uri == "*" { "/" } else { asked.uri };
        // Without the port: it belongs to the plain listener.
        let location = format!("{}://{}{path}", Scheme::Https.as_str(), asked.host);
        let date = httpdate::fmt_http_date(SystemTime::now());
        let fields = [("location", &*location), ("date", &*date)];
        let queued = self.client.answer(301, fields.into_iter(), b"", false);
        self.flush(queued).await
    }

    /// Answers as the configuration says.
    async fn respond(&mut self, with: &FixedResponse) -> End {
        self.report.status = with.status;
        let date = httpdate::fmt_http_date(SystemTime::now());
        let fields = [
            ("content-type", with.content_type.as_deref()),
            ("location", with.location.as_deref()),
            ("date", Some(&*date)),
        ];
        let fields = fields
            .into_iter()
            .filter_map(|(name, value)| Some((name, value?)));
        let queued = self
            .client
            .answer(with.status, fields, with.body.as_bytes(), false);
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
        let path = path_of(asked.uri.as_bytes(), self.view.settings.query_strings);
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
                path,
                status: self.report.status,
                bytes_in: self.report.tunnel.received + self.client.received(),
                bytes_out: self.report.tunnel.sent + self.client.sent(),
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

/// An exchange is recorded when it is dropped, and so in every case, the stop that cuts it included.
impl<C: Client, F: RequestFields> Drop for Exchange<'_, C, F> {
    fn drop(&mut self) {
        // A defect is counted elsewhere, and what it left behind is not to be looked at.
        if std::thread::panicking() {
            return;
        }
        if !self.report.ended {
            self.report.error = Some(CUT);
        }
        self.record();
    }
}
