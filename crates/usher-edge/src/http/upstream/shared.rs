//! HTTP/2 connections to endpoints: of one core, shared by its requests.
//!
//! A request takes a place on a connection that has one ([`Lease`]). When there is none it waits
//! for a connection that is being made, or has one made; the making is a task of its own, because
//! more than the request that began it waits for it. A connection counts as made when the endpoint
//! has answered a PING: only then it is known to speak HTTP/2, how many streams it takes, and
//! whether it knows WebSockets, and until then nothing of a request was sent.
//!
//! Nobody notices by itself that an endpoint vanished without a word while streams wait, and the
//! requests to come would wait there too. So a connection that is silent with streams open is
//! asked with a PING, and closed when that is not answered.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::future::{Future, poll_fn};
use std::net::IpAddr;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use bytes::Bytes;
use h2::client::{Builder, ResponseFuture, SendRequest};
use h2::{Ping, PingPong, SendStream};
use http::Request;
use tokio::sync::Notify;
use tokio::task::spawn_local;
use tokio::time::{Instant, timeout};
use tracing::debug;
use usher_core::catalog::Address;

use super::{ConnectFailure, Connection, Identity, Pool, Target};
use crate::http::book::Connected;
use crate::http::buffer::BufferPool;
use crate::http::coalesced::Coalesced;
use crate::http::deadline::Deadline;
use crate::http::stream::Stream;
use crate::resolve::Addresses;

/// Streams at once on one connection, however many the endpoint would take.
const STREAMS_MAX: usize = 100;

/// Bytes of an answer that an endpoint may send ahead of its client, on one stream. The window of
/// the connection holds that for every stream, so that clients which do not read cannot stop the
/// others.
const STREAM_WINDOW: u32 = 128 * 1024;
const CONNECTION_WINDOW: u32 = STREAM_WINDOW * STREAMS_MAX as u32;

/// Bytes of a request's body that wait in memory.
const SEND_BUFFER_MAX: usize = 64 * 1024;

/// Silence after which an endpoint is asked whether it is still there: the first time, the second,
/// and all others. gRPC servers end a connection at the third PING within five minutes in which
/// they sent nothing else.
const SILENCE: [Duration; 3] = [
    Duration::from_secs(15),
    Duration::from_secs(60),
    Duration::from_secs(310),
];

/// How long its answer may take.
const PONG_WITHIN: Duration = Duration::from_secs(10);

/// How long a connection that is to end may take for its last frames.
const GOODBYE: Duration = Duration::from_secs(1);

/// For how long it is remembered that an endpoint chose HTTP/1.1.
const HTTP1_FOR: Duration = Duration::from_secs(300);

/// Targets that are remembered. A client can make up names that TLS asks for.
const PLACES_MAX: usize = 4096;

/// Connections that a request waits for in vain before it gives up.
const WAITS_MAX: u32 = 8;

/// A new connection, when it is known what the endpoint speaks.
pub(crate) enum Dialled {
    /// HTTP/1.1, chosen under TLS.
    Http1(Connection),
    /// HTTP/2.
    Http2(Box<Greeted>),
}

impl Dialled {
    /// The same, counted by `counted` for as long as it lives.
    pub(crate) fn counted(self, counted: Connected) -> Dialled {
        match self {
            Dialled::Http1(connection) => Dialled::Http1(connection.counted(counted)),
            Dialled::Http2(mut greeted) => {
                greeted.counted = Some(counted);
                Dialled::Http2(greeted)
            }
        }
    }
}

/// A connection on which the endpoint proved that it speaks HTTP/2.
pub(crate) struct Greeted {
    ip: IpAddr,
    send: SendRequest<Bytes>,
    connection: h2::client::Connection<Coalesced<Stream>, Bytes>,
    wire: Coalesced<Stream>,
    pings: PingPong,
    counted: Option<Connected>,
}

/// Begins HTTP/2 on `io`, which leads to `ip`.
pub(super) async fn greet(
    io: Stream,
    ip: IpAddr,
    buffers: &BufferPool,
    header_bytes: usize,
    within: Duration,
) -> Result<Greeted, ConnectFailure> {
    let mut builder = Builder::new();
    builder
        .enable_push(false)
        .initial_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_send_buffer_size(SEND_BUFFER_MAX)
        .max_header_list_size(u32::try_from(header_bytes).unwrap_or(u32::MAX));
    let greeting = async {
        let wire = Coalesced::new(io, buffers);
        let (send, mut connection) = builder.handshake(wire.clone()).await?;
        let mut pings = connection.ping_pong().expect("it was not taken yet");
        pings.send_ping(Ping::opaque())?;
        poll_fn(|cx| {
            if let Poll::Ready(ended) = Pin::new(&mut connection).poll(cx) {
                let closed = h2::Error::from(h2::Reason::PROTOCOL_ERROR);
                return Poll::Ready(Err(ended.err().unwrap_or(closed)));
            }
            if let Poll::Ready(Err(_)) = wire.poll_send(cx) {
                return Poll::Ready(Err(h2::Reason::CONNECT_ERROR.into()));
            }
            pings.poll_pong(cx).map_ok(drop)
        })
        .await?;
        Ok(Greeted {
            ip,
            send,
            connection,
            wire,
            pings,
            counted: None,
        })
    };
    match timeout(within, greeting).await {
        // Without a single stream it is of no use.
        Ok(Ok(greeted)) if greeted.send.current_max_send_streams() == 0 => {
            Err(ConnectFailure::Http2)
        }
        Ok(Ok(greeted)) => Ok(greeted),
        Ok(Err(error)) => {
            let error: h2::Error = error;
            debug!(%error, "an endpoint does not speak HTTP/2");
            Err(ConnectFailure::Http2)
        }
        Err(_) => Err(ConnectFailure::Timeout),
    }
}

/// What a request gets.
pub(crate) enum Opened {
    /// A place on a shared connection.
    Stream(Lease),
    /// The endpoint speaks HTTP/1.1 only.
    Http1,
}

/// One connection, as its streams see it.
#[derive(Debug)]
struct Multiplexed {
    ip: IpAddr,
    /// `None`: it takes no new streams.
    send: RefCell<Option<SendRequest<Bytes>>>,
    streams: Cell<usize>,
    /// It had a stream before, so the endpoint may have closed it meanwhile.
    reused: Cell<bool>,
    idle_since: Cell<Instant>,
    /// The endpoint said something on a stream since this was looked at last.
    heard: Cell<bool>,
}

impl Multiplexed {
    fn lease(self: &Rc<Self>) -> Option<Lease> {
        let mut kept = self.send.borrow_mut();
        let mut send = kept.as_ref()?.clone();
        let mut cx = Context::from_waker(Waker::noop());
        if let Poll::Ready(Err(_)) = send.poll_ready(&mut cx) {
            // It was closed, or a GOAWAY came.
            *kept = None;
            return None;
        }
        let streams = self.streams.get();
        if streams >= send.current_max_send_streams().min(STREAMS_MAX) {
            return None;
        }
        if streams == 0 {
            // The silence so far was ours.
            self.heard.set(true);
        }
        self.streams.set(streams + 1);
        Some(Lease {
            connection: Rc::clone(self),
            reused: self.reused.replace(true),
            send,
        })
    }
}

/// A place for one stream on a shared connection.
pub(crate) struct Lease {
    connection: Rc<Multiplexed>,
    reused: bool,
    send: SendRequest<Bytes>,
}

impl Lease {
    /// Opens the stream.
    pub(super) fn send(
        &mut self,
        request: Request<()>,
        ends: bool,
    ) -> Result<(ResponseFuture, SendStream<Bytes>), h2::Error> {
        self.send.send_request(request, ends)
    }

    /// Whether the connection had a stream before.
    pub(crate) fn is_reused(&self) -> bool {
        self.reused
    }

    /// Whether the endpoint knows WebSockets over HTTP/2 (RFC 8441).
    pub(crate) fn knows_websockets(&self) -> bool {
        self.send.is_extended_connect_protocol_enabled()
    }

    /// The endpoint said something.
    pub(super) fn heard(&self) {
        self.connection.heard.set(true);
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        let left = self.connection.streams.get() - 1;
        self.connection.streams.set(left);
        if left == 0 {
            self.connection.idle_since.set(Instant::now());
        }
    }
}

/// One attempt to make a connection, and who waits for it.
#[derive(Debug, Default)]
struct Dial {
    waiting: Cell<usize>,
    /// Once it is over.
    failure: Cell<Option<Option<ConnectFailure>>>,
    done: Notify,
}

/// What is known of one target.
#[derive(Debug)]
struct Place {
    identity: Rc<Identity>,
    connections: RefCell<Vec<Rc<Multiplexed>>>,
    dials: RefCell<Vec<Rc<Dial>>>,
    /// Streams that the endpoint took at once on its last connection.
    streams_max: Cell<usize>,
    /// It chose HTTP/1.1.
    http1_until: Cell<Option<Instant>>,
}

impl Place {
    fn speaks_http1(&self) -> bool {
        self.http1_until
            .get()
            .is_some_and(|until| until > Instant::now())
    }

    fn is_of_use(&self) -> bool {
        self.speaks_http1()
            || !self.dials.borrow().is_empty()
            || !self.connections.borrow().is_empty()
    }

    fn lease(&self, current: Option<&[IpAddr]>) -> Option<Lease> {
        let connections = self.connections.borrow();
        let mut at_home = connections
            .iter()
            .filter(|connection| current.is_none_or(|all| all.contains(&connection.ip)));
        at_home.find_map(Multiplexed::lease)
    }
}

/// The shared connections of one core.
#[derive(Debug, Default)]
pub(super) struct Shared {
    places: RefCell<HashMap<u64, Vec<Rc<Place>>>>,
    count: Cell<usize>,
}

impl Shared {
    fn place(&self, target: &Target<'_>) -> Rc<Place> {
        let mut places = self.places.borrow_mut();
        if places.len() >= PLACES_MAX {
            places.retain(|_, places| {
                places.retain(|place| place.is_of_use());
                !places.is_empty()
            });
        }
        if places.len() >= PLACES_MAX {
            // Those that are in use hold themselves.
            places.clear();
        }
        let same = places.entry(target.hash()).or_default();
        if let Some(place) = same.iter().find(|place| target.is(&place.identity)) {
            return Rc::clone(place);
        }
        let place = Rc::new(Place {
            identity: Rc::new(target.identity()),
            connections: RefCell::default(),
            dials: RefCell::default(),
            streams_max: Cell::new(STREAMS_MAX),
            http1_until: Cell::default(),
        });
        same.push(Rc::clone(&place));
        place
    }
}

impl Pool {
    /// A place for one stream to `target`, on a connection that `dial` makes if there is none. A
    /// connection is kept for `keep` without a stream.
    pub(crate) async fn open<F>(
        self: &Rc<Self>,
        target: &Target<'_>,
        addresses: &Addresses,
        keep: Duration,
        dial: impl Fn() -> F,
    ) -> Result<Opened, ConnectFailure>
    where
        F: Future<Output = Result<Dialled, ConnectFailure>> + 'static,
    {
        let place = self.shared.place(target);
        for _ in 0..WAITS_MAX {
            if place.speaks_http1() {
                return Ok(Opened::Http1);
            }
            let leased = match &target.endpoint.address {
                Address::Ip(_) => place.lease(None),
                Address::Host(host) => addresses.of(host).and_then(|all| place.lease(Some(&all))),
            };
            if let Some(lease) = leased {
                return Ok(Opened::Stream(lease));
            }
            let dial = self.dial(&place, keep, &dial);
            let done = dial.done.notified();
            if dial.failure.get().is_none() {
                done.await;
            }
            if let Some(Some(failure)) = dial.failure.get() {
                return Err(failure);
            }
        }
        Err(ConnectFailure::Timeout)
    }

    /// An attempt that has a stream to spare for one more, begun if need be.
    fn dial<F>(self: &Rc<Self>, place: &Rc<Place>, keep: Duration, dial: impl Fn() -> F) -> Rc<Dial>
    where
        F: Future<Output = Result<Dialled, ConnectFailure>> + 'static,
    {
        let mut dials = place.dials.borrow_mut();
        let room = |dial: &&Rc<Dial>| dial.waiting.get() < place.streams_max.get();
        if let Some(dial) = dials.iter().find(room) {
            dial.waiting.set(dial.waiting.get() + 1);
            return Rc::clone(dial);
        }
        let attempt = Rc::new(Dial::default());
        attempt.waiting.set(1);
        dials.push(Rc::clone(&attempt));
        let (pool, place, own) = (Rc::clone(self), Rc::clone(place), Rc::clone(&attempt));
        let dialled = dial();
        spawn_local(async move {
            let failure = match dialled.await {
                Ok(Dialled::Http1(connection)) => {
                    place.http1_until.set(Some(Instant::now() + HTTP1_FOR));
                    pool.put(connection, keep);
                    None
                }
                Ok(Dialled::Http2(greeted)) => {
                    place.http1_until.set(None);
                    pool.share(&place, *greeted, keep);
                    None
                }
                Err(failure) => Some(failure),
            };
            place
                .dials
                .borrow_mut()
                .retain(|dial| !Rc::ptr_eq(dial, &own));
            own.failure.set(Some(failure));
            own.done.notify_waiters();
        });
        attempt
    }

    /// Lets requests use a new connection, and sees to it until it ends.
    fn share(self: &Rc<Self>, place: &Rc<Place>, greeted: Greeted, keep: Duration) {
        let streams_max = greeted.send.current_max_send_streams().min(STREAMS_MAX);
        place.streams_max.set(streams_max);
        let now = Instant::now();
        let shared = Rc::new(Multiplexed {
            ip: greeted.ip,
            send: RefCell::new(Some(greeted.send)),
            streams: Cell::new(0),
            reused: Cell::new(false),
            idle_since: Cell::new(now),
            heard: Cell::new(true),
        });
        place.connections.borrow_mut().push(Rc::clone(&shared));
        let count = &self.shared.count;
        count.set(count.get() + 1);
        let keep = if count.get() > super::IDLE_MAX {
            Duration::ZERO
        } else {
            keep
        };
        let counted = greeted.counted;
        let mut driver = Driver {
            connection: greeted.connection,
            wire: greeted.wire,
            pings: greeted.pings,
            shared,
            deadline: Deadline::new(keep),
            keep,
            state: State::Serving,
            silent_since: now,
            asked: 0,
        };
        let (pool, place) = (Rc::clone(self), Rc::clone(place));
        spawn_local(async move {
            poll_fn(|cx| driver.poll(cx)).await;
            drop(counted);
            let mut connections = place.connections.borrow_mut();
            connections.retain(|other| !Rc::ptr_eq(other, &driver.shared));
            pool.shared.count.set(pool.shared.count.get() - 1);
        });
    }
}

#[derive(Debug, Clone, Copy)]
enum State {
    Serving,
    /// A PING is out, since then.
    Asking(Instant),
    /// It is to end, by then.
    Leaving(Instant),
}

/// The task of one connection.
struct Driver {
    connection: h2::client::Connection<Coalesced<Stream>, Bytes>,
    wire: Coalesced<Stream>,
    pings: PingPong,
    shared: Rc<Multiplexed>,
    deadline: Deadline,
    keep: Duration,
    state: State,
    silent_since: Instant,
    /// PINGs since something else was heard.
    asked: usize,
}

impl Driver {
    /// Ready when the connection is over; dropping it then tells its streams.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        loop {
            if let Poll::Ready(ended) = Pin::new(&mut self.connection).poll(cx) {
                if let Err(error) = ended {
                    debug!(%error, "an HTTP/2 connection to an endpoint broke");
                }
                return Poll::Ready(());
            }
            if let Poll::Ready(Err(_)) = self.wire.poll_send(cx) {
                return Poll::Ready(());
            }
            if let State::Asking(_) = self.state
                && self.pings.poll_pong(cx).is_ready()
            {
                self.state = State::Serving;
                self.silent_since = Instant::now();
            }
            let idle = self.shared.streams.get() == 0;
            let due = match self.state {
                State::Serving if idle => self.shared.idle_since.get() + self.keep,
                State::Serving => self.silent_since + SILENCE[self.asked.min(SILENCE.len() - 1)],
                State::Asking(since) => since + PONG_WITHIN,
                State::Leaving(by) => by,
            };
            self.deadline.set(due);
            ready!(self.deadline.poll(cx));
            let now = Instant::now();
            match self.state {
                State::Serving if idle => {
                    // The connection ends itself when nobody can open a stream any more.
                    self.shared.send.replace(None);
                    self.state = State::Leaving(now + GOODBYE);
                }
                State::Serving if self.shared.heard.take() => {
                    (self.silent_since, self.asked) = (now, 0);
                }
                State::Serving => {
                    if self.pings.send_ping(Ping::opaque()).is_err() {
                        return Poll::Ready(());
                    }
                    self.asked += 1;
                    self.state = State::Asking(now);
                }
                State::Asking(_) => {
                    debug!("an endpoint left an HTTP/2 connection without a word");
                    return Poll::Ready(());
                }
                State::Leaving(_) => return Poll::Ready(()),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::{Ipv4Addr, TcpListener};

    use tokio::task::LocalSet;

    use super::*;

    const PING: u8 = 6;
    const ACK: u8 = 1;

    /// Greets, answers `pings` PINGs in all, and says nothing else until the connection ends.
    /// Returns how many PINGs came.
    fn quiet(listener: &TcpListener, pings: usize) -> usize {
        let (mut socket, _) = listener.accept().expect("accept");
        let mut preface = [0; 24];
        socket.read_exact(&mut preface).expect("preface");
        socket
            .write_all(&[0, 0, 0, 4, 0, 0, 0, 0, 0])
            .expect("settings");
        let mut came = 0;
        let mut header = [0; 9];
        while socket.read_exact(&mut header).is_ok() {
            let [a, b, c, kind, flags, ..] = header;
            let mut payload = vec![0; u32::from_be_bytes([0, a, b, c]) as usize];
            if socket.read_exact(&mut payload).is_err() {
                break;
            }
            if kind == PING && flags & ACK == 0 {
                came += 1;
                if came <= pings {
                    header[4] = ACK;
                    socket
                        .write_all(&[&header[..], &payload].concat())
                        .expect("pong");
                }
            }
        }
        came
    }

    /// How long one unanswered stream lasts, in seconds, and how many PINGs it took.
    fn patience(pings: usize) -> (u64, usize) {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("bind");
        let address = listener.local_addr().expect("address");
        let far = std::thread::spawn(move || quiet(&listener, pings));
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .expect("runtime");
        let lasted = LocalSet::new().block_on(&runtime, async {
            let socket = tokio::net::TcpStream::connect(address)
                .await
                .expect("connect");
            let buffers = BufferPool::default();
            let greeted = greet(
                Stream::Plain(socket),
                address.ip(),
                &buffers,
                64 * 1024,
                Duration::from_secs(60),
            );
            let greeted = greeted.await.expect("greeted");
            let pool = Pool::new();
            let place = Rc::new(Place {
                identity: Rc::new(Identity {
                    endpoint: 1,
                    port: address.port(),
                    tls: None,
                }),
                connections: RefCell::default(),
                dials: RefCell::default(),
                streams_max: Cell::new(STREAMS_MAX),
                http1_until: Cell::default(),
            });
            pool.share(&place, greeted, Duration::from_secs(900));
            let mut lease = place.lease(None).expect("a place");
            let request = Request::get("http://example.com/")
                .body(())
                .expect("a request");
            let (response, _send) = lease.send(request, true).expect("a stream");
            // From here on time passes as soon as everybody waits.
            tokio::time::pause();
            let start = Instant::now();
            assert!(response.await.is_err());
            assert!(place.connections.borrow().is_empty());
            start.elapsed().as_secs()
        });
        drop(runtime);
        (lasted, far.join().expect("the far end"))
    }

    #[test]
    fn an_endpoint_that_vanished_is_noticed() {
        // The greeting took the first.
        let (lasted, pings) = patience(1);
        // The silence counts from the start of the stream, which is looked at one silence later.
        let expected = SILENCE[0] * 2 + PONG_WITHIN;
        assert_eq!((lasted, pings), (expected.as_secs(), 2));
    }
}
