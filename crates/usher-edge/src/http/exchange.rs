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
//! that does not use up the retry. Over HTTP/2 the endpoint may say that it did nothing with a
//! request, which then goes out again likewise. Everything else, a deadline above all, is the
//! client's to repeat.

mod attempt;
mod beside;
mod room;

use std::future::poll_fn;
use std::ops::ControlFlow;
use std::rc::Rc;
use std::task::Poll;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::time::Instant;
use usher_core::catalog::{BalancerIx, EndpointIx};
use usher_core::decision::{Attempt, Attempts, Decision, Refusal, Response, Served};
use usher_core::request::{Headers, Request, Scheme};
use usher_core::rules::FixedResponse;
use usher_core::time::Wall;

use super::affinity_cookie;
use super::body::{Incoming, Outgoing};
use super::changes::UNCHANGED;
use super::client::{Asked, Client, ClientFault, RequestFields};
use super::connection::ConnInfo;
use super::deadline::Deadline;
use super::forward::{Forwarded, RequestId, Visitor, is_replaced};
use super::h2::flow;
use super::pinning::{Carried, is_cookie};
use super::plane::View;
use super::pump::{Answering, Ended, Pump, Sending};
use super::record::{CUT, Record, path_of};
use super::refusal::Failure;
use super::rooms::RoomSeen;
use super::rooms::visit::Visit;
use super::settings::Settings;
use super::tunnel;
use super::upstream::Upstream;
use super::websocket::Handshake;
use super::worker::{Retry, Worker};
use crate::http1::{
    BodyLength, EncodeFault, HeadLimits, Method, ResponseHead, end_head, write_field,
    write_framing, write_request_line,
};

use beside::Beside;

/// The protocol of the log and of [`Asked::protocol`].
const HTTP2: &str = "HTTP/2";

/// A request is kept to be sent again while it is no longer than this.
const REPEATED_MAX: usize = 64 * 1024;

/// Room for the fields of an ordinary request.
const LINES_USUAL: usize = 1024;

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
    let _in_flight = worker.in_flight();
    let mut exchange = Exchange {
        worker,
        view: &view,
        conn,
        asked,
        client,
        deadline,
        visitor,
        request_id,
        beside: None,
        visit: None,
        retry: None,
        report: Report::default(),
    };
    let end = exchange.decide(bench).await;
    exchange.report.ended = true;
    end
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
    room: Option<RoomSeen>,
    tunnel: tunnel::Passed,
}

/// What is done with a request.
enum Next {
    Forward(BalancerIx, Attempts),
    Respond(BalancerIx, Response),
    Refuse(Refusal),
}

struct Exchange<'a, C: Client, F: RequestFields> {
    worker: &'a Rc<Worker>,
    view: &'a Rc<View>,
    conn: &'a ConnInfo,
    asked: &'a Asked<'a, F>,
    client: &'a mut C,
    deadline: &'a mut Deadline,
    visitor: Visitor,
    request_id: RequestId,
    /// Boxed, as most requests have nothing there and it would set the size of every connection.
    beside: Option<Box<Beside<'a>>>,
    /// Likewise: what a waiting room has to do with the answer.
    visit: Option<Box<Visit<'a>>>,
    /// Taken from the budget until the second attempt is answered: how long a body, or a WebSocket,
    /// then lasts is no matter of trying again.
    retry: Option<Retry>,
    report: Report,
}

impl<C: Client, F: RequestFields> Exchange<'_, C, F> {
    async fn decide(&mut self, bench: &mut Bench) -> End {
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
        if let Some(end) = self.rooms().await {
            return end;
        }
        let view = self.view;
        match self.ask() {
            Next::Forward(balancer, attempts) => self.forward(bench, balancer, attempts).await,
            Next::Respond(_, Response::RedirectToHttps) => self.redirect().await,
            Next::Respond(balancer, Response::Fixed(source)) => {
                self.respond(view.snapshot.fixed_response(balancer, source))
                    .await
            }
            Next::Refuse(reason) => self.refuse(reason.into()).await,
        }
    }

    /// Asks the core. By itself, so that what is decided with is gone before anything waits: it
    /// would set the size of every connection.
    fn ask(&mut self) -> Next {
        let (asked, view) = (self.asked, self.view);
        let lines = Lines(asked.fields);
        let request = self.as_decided(&lines);
        let (keys, table) = (view.keys.as_deref(), self.worker.plane().pins());
        let pins = Carried::new(asked.fields, keys, table);
        let now = self.worker.now();
        let decision = view.snapshot.decide(&request, &*view.book, &pins, now);
        let (balancer, next) = match decision {
            Decision::Forward(forward) => {
                self.beside = Beside::of(view, &forward, pins.found());
                let next = Next::Forward(forward.balancer, forward.attempts);
                (Some(forward.balancer), next)
            }
            Decision::Respond { balancer, with } => (Some(balancer), Next::Respond(balancer, with)),
            Decision::Refuse { balancer, reason } => (balancer, Next::Refuse(reason)),
        };
        self.report.balancer = balancer;
        next
    }

    /// The request as decisions see it.
    fn as_decided<'r>(&'r self, headers: &'r Lines<'r, F>) -> Request<'r> {
        let asked = self.asked;
        Request {
            host: asked.host,
            method: asked.method_name,
            uri: asked.uri,
            scheme: self.visitor.scheme,
            client: self.visitor.address,
            version: asked.protocol,
            headers,
            location: self.view.location(self.visitor.address),
            time: now(),
            draw: self.worker.draw(),
        }
    }

    /// First attempt, and the one retry after a failure to connect.
    async fn forward(
        &mut self,
        bench: &mut Bench,
        balancer: BalancerIx,
        attempts: Attempts,
    ) -> End {
        let (worker, view) = (self.worker, self.view);
        let _active = worker.active(view, balancer);
        let (mut attempt, mut served) = (attempts.first, Served::First);
        loop {
            self.report.attempt = Some(attempt);
            self.report.attempts += 1;
            self.prepare(attempt, served);
            let failure = match self.attempt(bench, balancer, attempt.endpoint).await {
                Ok(end) => return end,
                Err(failure) => failure,
            };
            let Some(other) = attempts
                .retry
                .filter(|_| served == Served::First && self.client.received() == 0)
            else {
                return self.refuse(failure.into()).await;
            };
            self.retry = worker.retry(view, balancer);
            if self.retry.is_none() {
                return self.refuse(failure.into()).await;
            }
            (attempt, served) = (other, Served::Retry);
        }
    }

    /// Queues the head of the request in `out`. `handshake`: its side of a WebSocket is ours.
    fn write_request(
        &self,
        out: &mut Outgoing,
        endpoint: EndpointIx,
        reused: bool,
        handshake: Option<&Handshake>,
    ) -> Result<(), EncodeFault> {
        let asked = self.asked;
        let kept_max = if reused && asked.method.is_idempotent() {
            REPEATED_MAX
        } else {
            0
        };
        let out = out.begin(asked.body, kept_max);
        write_request_line(out, asked.method_name.as_bytes(), self.uri().as_bytes())?;
        write_field(out, b"host", self.host_for(endpoint))?;
        self.write_fields(out, handshake.is_some())?;
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
        let tls = self.view.snapshot.transport(balancer, endpoint).tls;
        let scheme = if tls.is_some() {
            Scheme::Https
        } else {
            Scheme::Http
        };
        let uri = http::Uri::builder()
            .scheme(scheme.as_str())
            .authority(self.host_for(endpoint))
            .path_and_query(self.uri())
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
        let mut lines = Vec::with_capacity(LINES_USUAL);
        self.write_fields(&mut lines, asked.websocket)?;
        // It speaks for this hop, but here both hops can carry trailers; gRPC insists on it.
        if asked.protocol == HTTP2 && asked.fields.all().any(takes_trailers) {
            write_field(&mut lines, b"te", b"trailers")?;
        }
        if let BodyLength::Exactly(_) = asked.body {
            write_framing(&mut lines, asked.body);
        }
        *request.headers_mut() = flow::headers_of(lines)?;
        Ok(request)
    }

    /// Path and query, as the endpoint is told.
    fn uri(&self) -> &str {
        let changed = self
            .beside
            .as_ref()
            .and_then(|it| it.request.uri.as_deref());
        changed.unwrap_or(self.asked.uri)
    }

    /// `Host`, as the endpoint is told.
    fn host_for(&self, endpoint: EndpointIx) -> &[u8] {
        let replaced = self.view.snapshot.endpoint(endpoint).host_header.as_deref();
        replaced.map_or(self.asked.authority, str::as_bytes)
    }

    /// Writes the fields of the request that go on, whichever protocol carries them, and what
    /// the endpoint is told about it. `own_key`: the client's key of a WebSocket does not go on.
    fn write_fields(&self, out: &mut Vec<u8>, own_key: bool) -> Result<(), EncodeFault> {
        let (asked, trusted) = (self.asked, self.conn.trusted);
        let from = out.len();
        for (name, value) in asked.fields.forwarded() {
            let stale = !asked.expects && name.eq_ignore_ascii_case(b"expect");
            let key = own_key && name.eq_ignore_ascii_case(b"sec-websocket-key");
            if is_cookie(name) {
                affinity_cookie::write_others(out, name, value)?;
            } else if !stale && !key && !is_replaced(name, trusted) {
                write_field(out, name, value)?;
            }
        }
        let forwarded = Forwarded {
            peer: self.conn.peer.ip(),
            trusted,
            visitor: self.visitor,
            host: asked.authority,
            request_id: &self.request_id,
        };
        forwarded.write(asked.fields.all(), out);
        if let Some(beside) = &self.beside {
            beside.request.edits.apply_to_lines(out, from);
        }
        Ok(())
    }

    /// Moves the bytes, from where the request is: `finished` when all of it is queued.
    async fn pump<U: Upstream>(
        &mut self,
        upstream: &mut U,
        finished: &mut bool,
        since: Instant,
    ) -> Ended {
        let mut pump = Pump {
            client: &mut *self.client,
            upstream: &mut *upstream,
            pipes: self.worker.pipes(),
            request_pipe: None,
            answer_pipe: None,
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
            changes: (self.beside.as_ref()).map_or(&UNCHANGED, |beside| &beside.answer),
            visit: self.visit.as_deref_mut(),
        };
        let (report, retry) = (&mut self.report, &mut self.retry);
        let ended = poll_fn(|cx| {
            let ended = pump.poll(cx);
            // At once, because the exchange may be cut before the end.
            if let Some((at, status)) = pump.answered {
                report.upstream = Some(at - since);
                report.status = status;
                *retry = None;
            }
            ended
        })
        .await;
        match ended {
            Ended::Switched => {
                self.report.error = self.tunnel(upstream).await;
                Ended::Tunnelled
            }
            ended => ended,
        }
    }

    /// Both ways until both ends have closed. The word for what broke it, if something did.
    async fn tunnel<U: Upstream>(&mut self, upstream: &mut U) -> Option<&'static str> {
        let idle = self.view.settings.timeouts.body_idle;
        let buffers = self.worker.buffers();
        // Boxed, as connecting is.
        let tunnel = tunnel::run(
            self.client.raw(buffers),
            upstream.raw(buffers),
            self.worker.pipes(),
            self.deadline,
            idle,
            &mut self.report.tunnel,
        );
        Box::pin(tunnel).await
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
        // Whoever was let in keeps the seat, whatever became of the request.
        let cookie = self.visit.as_mut().and_then(|visit| visit.refused());
        let cookie = cookie.as_deref().map(|value| ("set-cookie", value));
        let fields = page.fields().chain(cookie);
        self.client
            .answer(page.status(), fields, &page.body, closes)
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
        let cookie = self.visit.as_mut().and_then(|visit| visit.refused());
        let date = httpdate::fmt_http_date(SystemTime::now());
        let fields = [
            ("content-type", with.content_type.as_deref()),
            ("location", with.location.as_deref()),
            ("date", Some(&*date)),
            (
                "cache-control",
                cookie.as_ref().map(|_| "private, no-store"),
            ),
            ("set-cookie", cookie.as_deref()),
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
                session: self.session(),
                room: self.report.room.map(|seen| RoomSeen {
                    copy: self.visit.as_ref().is_some_and(|visit| visit.copy_seen()),
                    ..seen
                }),
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
        if let Some(visit) = &self.visit {
            visit.over();
        }
        self.count_cookie();
        self.record();
    }
}
