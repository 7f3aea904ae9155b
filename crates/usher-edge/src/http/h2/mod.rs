//! HTTP/2 from clients: the connection, its limits, and a task for each of its streams.
//!
//! Frames, flow control and header compression are the `h2` crate's; what a request means is the
//! same exchange as for HTTP/1.1. Streams are tasks of their own on the worker's thread, because
//! the connection must go on writing for one while another waits for its endpoint.
//!
//! A connection costs a client little and us much, so everything that it can ask for is bounded:
//! streams at once, header bytes, bytes in flight, streams that it opens only to abandon them, and
//! the time in which nothing happens.

pub(crate) mod flow;
mod request;
mod sight;
mod stream;

use std::cell::{Cell, RefCell};
use std::future::{Future as _, poll_fn};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use h2::server::{Builder, Connection, SendResponse};
use h2::{Reason, RecvStream};
use http::Request;
use tokio::task::spawn_local;
use tokio::time::{Instant, timeout};
use tracing::debug;

use self::sight::{Sight, Watched};
pub(crate) use self::stream::Kits;
use super::coalesced::Coalesced;
use super::connection::ConnInfo;
use super::deadline::Deadline;
use super::drain::Wait;
use super::settings::Settings;
use super::stream::Prefixed;
use super::worker::Worker;

/// Streams at once on one connection.
const STREAMS_MAX: u32 = 128;

/// Bytes of request body that a client may send ahead, on one stream and on all.
const STREAM_WINDOW: u32 = 256 * 1024;
const CONNECTION_WINDOW: u32 = 1024 * 1024;

/// Bytes of answers that wait in memory for one stream's client.
const SEND_BUFFER_MAX: usize = 32 * 1024;

/// Streams that a client resets before we have seen them, at one time.
const RESETS_PENDING_MAX: usize = 32;

/// Streams that a client may abandon more than it lets end. Opening and resetting streams costs it
/// nothing, and us a decision and a connection each.
const ABANDONED_MAX: u32 = 200;

/// How long after it was told to go a client's requests are still taken: it may have begun them
/// before.
const FAREWELL: Duration = Duration::from_secs(1);

/// How long a connection that is to end may take for its last frames.
const GOODBYE: Duration = Duration::from_secs(1);

/// Serves a connection to its end.
pub(crate) async fn serve(worker: Rc<Worker>, io: Prefixed, conn: ConnInfo) {
    // Boxed, so that a connection that never speaks HTTP/2 does not pay for its size.
    Box::pin(run(worker, io, conn)).await;
}

async fn run(worker: Rc<Worker>, io: Prefixed, conn: ConnInfo) {
    let view = worker.view();
    let within = view.settings.timeouts.client_header;
    let wire = Coalesced::new(io, worker.buffers());
    let (io, sight) = Watched::new(wire.clone());
    let mut handshake = builder(&view.settings).handshake(io);
    let handshake = poll_fn(|cx| {
        let shaken = Pin::new(&mut handshake).poll(cx);
        // What cannot be sent now goes with the first frames.
        let _ = wire.poll_send(cx);
        shaken
    });
    let shaken = timeout(within, handshake).await;
    let connection: Connection<Watched, Bytes> = match shaken {
        Ok(Ok(connection)) => connection,
        Ok(Err(error)) => {
            worker.count_error("h2-preface");
            debug!(%error, "an HTTP/2 connection did not begin");
            return;
        }
        Err(_) => {
            worker.count_error("client-header-timeout");
            return;
        }
    };
    drop(view);
    let drain = conn.drain.wait();
    let driver = Driver {
        streams: Rc::new(Streams::new(conn)),
        worker,
        connection,
        wire,
        sight,
        drain: Some(drain),
        deadline: Deadline::new(within),
        fresh: true,
        ending: false,
    };
    driver.run().await;
}

fn builder(settings: &Settings) -> Builder {
    let mut builder = Builder::new();
    let header_bytes = u32::try_from(settings.limits.header_bytes).unwrap_or(u32::MAX);
    builder
        .enable_connect_protocol()
        .max_concurrent_streams(STREAMS_MAX)
        .max_header_list_size(header_bytes)
        .initial_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_send_buffer_size(SEND_BUFFER_MAX)
        .max_pending_accept_reset_streams(RESETS_PENDING_MAX);
    builder
}

/// What the streams of one connection share.
#[derive(Debug)]
struct Streams {
    conn: ConnInfo,
    active: Cell<usize>,
    /// When the last one ended.
    idle_since: Cell<Instant>,
    /// Abandoned ones, less those that ended well.
    abandoned: Cell<u32>,
    /// The connection's task, which looks at the above.
    waker: RefCell<Option<Waker>>,
}

impl Streams {
    fn new(conn: ConnInfo) -> Streams {
        Streams {
            conn,
            active: Cell::new(0),
            idle_since: Cell::new(Instant::now()),
            abandoned: Cell::new(0),
            waker: RefCell::default(),
        }
    }
}

/// One stream; it has ended when this is dropped.
struct Active {
    streams: Rc<Streams>,
    worker: Rc<Worker>,
    /// The client let it end.
    ended_well: bool,
}

impl Active {
    fn begin(streams: &Rc<Streams>, worker: &Rc<Worker>) -> Active {
        streams.active.set(streams.active.get() + 1);
        Active {
            streams: Rc::clone(streams),
            worker: Rc::clone(worker),
            ended_well: false,
        }
    }

    fn end(mut self, well: bool) {
        self.ended_well = well;
    }
}

impl Drop for Active {
    fn drop(&mut self) {
        let Streams {
            active,
            idle_since,
            abandoned,
            waker,
            ..
        } = &*self.streams;
        active.set(active.get() - 1);
        if std::thread::panicking() {
            self.worker.plane().ledger().panicked();
        }
        let count = abandoned.get();
        abandoned.set(if self.ended_well {
            count.saturating_sub(1)
        } else {
            count + 1
        });
        if active.get() == 0 {
            idle_since.set(Instant::now());
        }
        if let Some(waker) = waker.take() {
            waker.wake();
        }
    }
}

/// What happens next on a connection.
#[expect(
    clippy::large_enum_variant,
    reason = "it is taken apart at once, and a box would be one for each request"
)]
enum Event {
    Request(Request<RecvStream>, SendResponse<Bytes>),
    /// All is said, or the client broke a rule that ends the connection.
    Over(Option<h2::Error>),
    /// The listener is going away.
    Drain,
    /// What the client had begun when it was told to go has come.
    Farewell,
    /// Nothing happened for too long.
    Idle,
    /// A request head took too long.
    Slow,
    /// The client makes work that serves nobody: the word for it.
    Abuse(&'static str),
}

struct Driver {
    worker: Rc<Worker>,
    streams: Rc<Streams>,
    connection: Connection<Watched, Bytes>,
    wire: Coalesced<Prefixed>,
    sight: Rc<Sight>,
    /// `None` once it has started.
    drain: Option<Wait>,
    deadline: Deadline,
    /// No request was read yet.
    fresh: bool,
    /// It is to end, by `deadline` at the latest once no stream is left.
    ending: bool,
}

impl Driver {
    async fn run(mut self) {
        loop {
            match poll_fn(|cx| self.poll(cx)).await {
                Event::Request(request, respond) => {
                    self.fresh = false;
                    self.begin(request, respond);
                }
                Event::Drain => {
                    self.connection.graceful_shutdown();
                    self.sight.keep_answer();
                }
                Event::Farewell => self.sight.give_answer(),
                Event::Idle | Event::Slow if self.ending => return,
                Event::Idle => self.end(),
                Event::Slow => {
                    self.worker.count_error("client-header-timeout");
                    self.connection.abrupt_shutdown(Reason::ENHANCE_YOUR_CALM);
                    self.end();
                }
                Event::Abuse(word) => {
                    self.worker.count_error(word);
                    self.connection.abrupt_shutdown(Reason::ENHANCE_YOUR_CALM);
                    self.end();
                }
                Event::Over(None) => return,
                Event::Over(Some(error)) => {
                    // A connection that just broke off is no rule broken.
                    if !error.is_io() {
                        self.worker.count_error("h2-protocol");
                        debug!(%error, "an HTTP/2 connection broke a rule");
                    }
                    return;
                }
            }
        }
    }

    /// Says goodbye; what is left has [`GOODBYE`] to go out.
    fn end(&mut self) {
        if !self.ending {
            self.ending = true;
            self.connection.graceful_shutdown();
            self.deadline.set_after(GOODBYE);
        }
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Event> {
        if self.streams.abandoned.get() > ABANDONED_MAX && !self.ending {
            return Poll::Ready(Event::Abuse("h2-abandoned-streams"));
        }
        if !self.ending && self.sight.is_noisy() {
            return Poll::Ready(Event::Abuse("h2-noise"));
        }
        match self.connection.poll_accept(cx) {
            Poll::Ready(Some(Ok(accepted))) => {
                return Poll::Ready(Event::Request(accepted.0, accepted.1));
            }
            Poll::Ready(Some(Err(error))) => return Poll::Ready(Event::Over(Some(error))),
            Poll::Ready(None) => return Poll::Ready(Event::Over(None)),
            Poll::Pending => {}
        }
        if let Poll::Ready(Err(_)) = self.wire.poll_send(cx) {
            return Poll::Ready(Event::Over(None));
        }
        if let Some(drain) = &mut self.drain
            && Pin::new(drain).poll(cx).is_ready()
        {
            self.drain = None;
            return Poll::Ready(Event::Drain);
        }
        self.streams.waker.replace(Some(cx.waker().clone()));
        let (due, event) = self.patience();
        if let Some(due) = due {
            self.deadline.set(due);
        }
        match self.deadline.poll(cx) {
            Poll::Ready(()) => Poll::Ready(event),
            Poll::Pending => Poll::Pending,
        }
    }

    /// Until when something must happen, and what it means when it does not. `None`: as it was.
    fn patience(&self) -> (Option<Instant>, Event) {
        if self.ending {
            return (None, Event::Idle);
        }
        let timeouts = &self.worker.view().settings.timeouts;
        let head = self.sight.since();
        let head = head.map(|since| since + timeouts.client_header);
        let farewell = self.sight.kept_since().map(|since| since + FAREWELL);
        if let Some(due) = farewell.filter(|&due| head.is_none_or(|head| due < head)) {
            return (Some(due), Event::Farewell);
        }
        if let Some(due) = head {
            return (Some(due), Event::Slow);
        }
        if self.streams.active.get() > 0 {
            // Each has deadlines of its own; this one only has to be out of the way.
            return (Some(Instant::now() + timeouts.keep_alive), Event::Idle);
        }
        let patience = if self.fresh {
            timeouts.client_header
        } else {
            timeouts.keep_alive
        };
        (Some(self.streams.idle_since.get() + patience), Event::Idle)
    }

    fn begin(&self, request: Request<RecvStream>, respond: SendResponse<Bytes>) {
        let active = Active::begin(&self.streams, &self.worker);
        spawn_local(async move {
            let well = stream::serve(&active.worker, &active.streams.conn, request, respond).await;
            active.end(well);
        });
    }
}
