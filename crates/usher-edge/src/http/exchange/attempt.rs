//! One endpoint: over which protocol and connection a request goes there, and when it goes again.

use std::fmt;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;

use tokio::time::Instant;
use tracing::warn;
use usher_core::catalog::{BalancerIx, EndpointIx};
use usher_core::time::Mono;

use super::{Bench, End, Exchange, HTTP2, REPEATED_MAX, limits};
use crate::http::client::{Client, RequestFields};
use crate::http::plane::View;
use crate::http::pump::{Ended, INTERNAL};
use crate::http::refusal::Failure;
use crate::http::upstream::{
    self, ConnectFailure, Connection, Http1, Http2, Kept, Opened, Target, Terms,
};
use crate::http::websocket::Handshake;
use crate::http1::BodyLength;

/// How often a request goes out again over HTTP/2 that may have been done.
const REPEATS_MAX: u32 = 2;

/// How often one goes out again that the endpoint said it left alone. Some end a connection after
/// so many requests, and then a burst meets the end of one after the other: each takes as many as
/// it still wants, so every turn gets further.
const UNTOUCHED_REPEATS_MAX: u32 = 16;

/// A reason is cut off after this.
const COMPLAINT_CHARS_MAX: usize = 300;

impl<C: Client, F: RequestFields> Exchange<'_, C, F> {
    /// One endpoint.
    pub(super) async fn attempt(
        &mut self,
        bench: &mut Bench,
        balancer: BalancerIx,
        endpoint: EndpointIx,
    ) -> Result<End, ConnectFailure> {
        let (view, worker) = (self.view, self.worker);
        let _open = worker.open(view, endpoint);
        let since = Instant::now();
        if self.wants_http2(balancer, endpoint) {
            // Boxed: it is large, and would set the size of every connection.
            let over_http2 = Box::pin(self.over_http2(bench, balancer, endpoint, since));
            if let Some(end) = over_http2.await? {
                return Ok(end);
            }
        }
        self.over_http1(bench, balancer, endpoint, since).await
    }

    /// A WebSocket of an HTTP/1.1 client stays one of HTTP/1.1: nothing is gained by translating.
    fn wants_http2(&self, balancer: BalancerIx, endpoint: EndpointIx) -> bool {
        let http2 = self.view.snapshot.transport(balancer, endpoint).http2;
        http2 && !(self.asked.websocket && self.asked.protocol != HTTP2)
    }

    /// Over a kept connection or a new one.
    async fn over_http1(
        &mut self,
        bench: &mut Bench,
        balancer: BalancerIx,
        endpoint: EndpointIx,
        since: Instant,
    ) -> Result<End, ConnectFailure> {
        let worker = self.worker;
        let mut connection = self.connection(balancer, endpoint).await?;
        // Over HTTP/2 a client has no part in the handshake of HTTP/1.1.
        let handshake = (self.asked.websocket && self.asked.protocol == HTTP2)
            .then(|| Box::new(Handshake::new(worker.draw(), worker.draw())));
        let written = self.write_request(
            &mut bench.out,
            endpoint,
            connection.reused,
            handshake.as_deref(),
        );
        if written.is_err() {
            return Ok(self.refuse(INTERNAL).await);
        }
        let mut finished = false;
        let ended = loop {
            bench.head.reset();
            let mut upstream = Http1 {
                io: &mut connection.io,
                out: &mut bench.out,
                head: &mut bench.head,
                buffer: worker.buffers().buffer(),
                incoming: &mut bench.incoming,
                asked: self.asked.to_codec(),
                limits: limits(&self.view.settings),
                handshake: handshake.as_deref(),
            };
            let ended = self.pump(&mut upstream, &mut finished, since).await;
            drop(upstream);
            let again = connection.reused && bench.out.can_rewind();
            if !(again && matches!(ended, Ended::Silent { .. })) {
                break ended;
            }
            bench.out.rewind();
            connection = Box::pin(self.connect(balancer, endpoint)).await?;
        };
        if let Ended::Answered { reusable: true } = ended {
            let keep = self.view.settings.timeouts.upstream_keep_alive;
            worker.upstream().put(connection, keep);
        } else {
            // The endpoint has no part in what the client still gets.
            drop(connection);
        }
        Ok(self.conclude(ended).await)
    }

    /// Over a stream of a shared connection. `None`: the endpoint wants HTTP/1.1 for this, and
    /// nothing was sent.
    async fn over_http2(
        &mut self,
        bench: &mut Bench,
        balancer: BalancerIx,
        endpoint: EndpointIx,
        since: Instant,
    ) -> Result<Option<End>, ConnectFailure> {
        let terms = Terms {
            asked: self.asked.to_codec(),
            limits: limits(&self.view.settings),
            kept_max: REPEATED_MAX,
        };
        // A WebSocket's stream goes on as a tunnel.
        let ends = matches!(self.asked.body, BodyLength::Empty | BodyLength::Exactly(0))
            && !self.asked.websocket;
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
            let reused = lease.is_reused();
            let head = &mut bench.head;
            let began = Http2::begin(lease, request, ends, finished, &mut kept, head, terms);
            let ended = match began {
                Ok(mut upstream) => self.pump(&mut upstream, &mut finished, since).await,
                Err(_) => Ended::Silent { untouched: true },
            };
            let repeats_max = match ended {
                Ended::Silent { untouched: true } => UNTOUCHED_REPEATS_MAX,
                Ended::Silent { untouched: false }
                    if reused && self.asked.method.is_idempotent() =>
                {
                    REPEATS_MAX
                }
                _ => 0,
            };
            if kept.is_whole() && repeats < repeats_max {
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
            // From now on, so that many who connect at one time see each other.
            let counted = view.book.connecting(endpoint, self.worker.index());
            async move {
                let target = target_of(&view, balancer, endpoint, &sni);
                let (settings, addresses, clients) =
                    (&view.settings, plane.addresses(), &view.clients);
                let told = |ip, why: &dyn fmt::Display| {
                    let at = SocketAddr::new(ip, target.transport.port);
                    complain(&view, plane.now(), endpoint, at, why);
                };
                let dialled =
                    upstream::dial(&target, settings, addresses, clients, &buffers, told).await;
                dialled.map(|dialled| dialled.counted(counted))
            }
        };
        let addresses = self.worker.plane().addresses();
        let pool = self.worker.upstream();
        pool.open(&target, addresses, keep, dial).await
    }

    fn target(&self, balancer: BalancerIx, endpoint: EndpointIx) -> Target<'_> {
        target_of(self.view, balancer, endpoint, self.asked.host)
    }

    /// A kept one or a new one.
    async fn connection(
        &self,
        balancer: BalancerIx,
        endpoint: EndpointIx,
    ) -> Result<Connection, ConnectFailure> {
        let target = self.target(balancer, endpoint);
        let addresses = self.worker.plane().addresses();
        match self.worker.upstream().take(&target, addresses) {
            Some(connection) => Ok(connection),
            // Boxed: connecting is rare and large, and would set the size of every connection.
            None => Box::pin(self.connect(balancer, endpoint)).await,
        }
    }

    async fn connect(
        &self,
        balancer: BalancerIx,
        endpoint: EndpointIx,
    ) -> Result<Connection, ConnectFailure> {
        let (view, worker) = (self.view, self.worker);
        let target = self.target(balancer, endpoint);
        let (timeouts, clients) = (&view.settings.timeouts, &view.clients);
        let addresses = worker.plane().addresses();
        let told = |ip, why: &dyn fmt::Display| {
            let at = SocketAddr::new(ip, target.transport.port);
            complain(view, worker.now(), endpoint, at, why);
        };
        // From now on, so that many who connect at one time see each other.
        let counted = view.book.connecting(endpoint, worker.index());
        let connected = upstream::connect(&target, timeouts, addresses, clients, told).await;
        connected.map(|connection| connection.counted(counted))
    }
}

/// `host` is asked for and checked under TLS, unless something else is configured.
fn target_of<'a>(
    view: &'a View,
    balancer: BalancerIx,
    endpoint: EndpointIx,
    host: &'a str,
) -> Target<'a> {
    let transport = view.snapshot.transport(balancer, endpoint);
    let sni = transport.tls.and_then(|profile| profile.sni);
    Target {
        endpoint: view.snapshot.endpoint(endpoint),
        transport,
        sni: sni.unwrap_or(host),
    }
}

/// Says why TLS with an endpoint fails, which no status can tell; seldom, as it may be every
/// request that finds it out.
fn complain(view: &View, now: Mono, endpoint: EndpointIx, at: SocketAddr, why: &dyn fmt::Display) {
    let why = why.to_string();
    if !view.book.complaints(endpoint).may_say(&why, now) {
        return;
    }
    let endpoint = view.snapshot.endpoint(endpoint);
    let (pool, name) = (view.snapshot.pool(endpoint.pool).name, &endpoint.name);
    // The endpoint's certificate has a say in the text.
    let why: String = (why.chars().filter(|char| !char.is_control()))
        .take(COMPLAINT_CHARS_MAX)
        .collect();
    warn!("endpoint {pool}/{name} at {at}: TLS: {why}");
}
