//! The bytes of one session: a browser's pipe on one side, the WebSockets of its clients on the
//! other.
//!
//! One task reads and writes the pipe, so that nothing which the browser says overtakes anything
//! else. It never waits to write while it does not read: browsers do not read while nobody reads
//! them. Each client has a task of its own for its WebSocket, both directions apart from each other
//! for the same reason. What is under way to a client is bounded in bytes; a client that does not
//! take it for [`STALLED`] is cut off, for the others wait behind it, and so is one that answers no
//! ping. What is large shares a [`Room`].

use std::collections::HashMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use futures_util::stream::SplitSink;
use futures_util::{SinkExt, StreamExt};
use memchr::memchr;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};
use tokio::time::{Instant, MissedTickBehavior, interval_at, timeout};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::error::{CapacityError, Error};
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::protocol::{CloseFrame, Role, WebSocketConfig};
use tokio_tungstenite::tungstenite::{Message, Utf8Bytes};

use crate::chunks::{Assembler, ChunkFault, PING, cut};
use crate::gate::Gate;
use crate::message::{Command, CommandFault};
use crate::oversize::shortened;
use crate::relay::{ClientId, Delivery, Part, Reach, Relay, Step};
use metered::{Kind, LONG_MIN, Metered, Moved};
use room::{Hold, Share};

mod metered;
mod room;

pub use room::{LARGE_MAX, Room};

/// The longest message of a browser, in bytes. A longer one is left out.
pub const MESSAGE_MAX: usize = 256 << 20;
/// Bytes under way to one client. A longer message goes alone.
pub const OUTBOX_MAX: usize = 8 << 20;
/// Bytes under way from all clients of a session to its browser. A longer command goes alone.
pub const COMMANDS_MAX: usize = 16 << 20;
/// How long a client may take nothing of what is under way to it.
pub const STALLED: Duration = Duration::from_secs(30);
/// Between two pings to a client.
pub const PING_EVERY: Duration = Duration::from_secs(15);
/// Pings in a row without an answer after which nobody is there.
const PINGS_LOST_MAX: u32 = 2;
/// Questions to a browser that have no answer yet; further ones wait.
const QUESTIONS_MAX: usize = 16;
/// For the end of a WebSocket to be said and heard.
const FAREWELL: Duration = Duration::from_secs(2);

/// What is read at once while little comes, and while much does.
const READ_MIN: usize = 4 << 10;
const READ_MAX: usize = 1 << 20;
/// Bytes written to the browser's pipe that make clients wait.
const PENDING_MAX: usize = 1 << 20;

/// How a client frames messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Framing {
    /// One text message each.
    Text,
    /// Cut into binary pieces, for older clients.
    Chunks,
}

/// Why a session ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// A client closed the browser.
    Closed,
    /// The browser closed its pipe.
    Browser,
    /// Whoever runs it has let go of it.
    Dropped,
}

/// The end of a WebSocket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Close {
    /// The code.
    pub code: u16,
    /// The reason, at most 123 bytes.
    pub reason: String,
}

impl Close {
    fn new(code: u16, reason: &str) -> Close {
        Close {
            code,
            reason: reason.to_owned(),
        }
    }
}

/// A command of the domain that is not the browser's.
#[derive(Debug)]
pub struct Asked {
    /// What.
    pub method: String,
    /// Of which part; `None`: what the client is connected to.
    pub session: Option<String>,
    /// The parameters, a JSON text.
    pub params: String,
}

/// The member `"result"` or `"error"` of an answer, with its value.
pub type Body = Pin<Box<dyn Future<Output = String> + Send>>;

/// Answers commands that are not the browser's.
pub type Service = Arc<dyn Fn(Asked) -> Body + Send + Sync>;

/// What a session is carried with.
#[derive(Clone)]
pub struct Terms {
    /// Answers commands that are not the browser's.
    pub service: Service,
    /// The hosts that its pages may reach; `None`: all.
    pub reach: Option<Reach>,
    /// For what is large.
    pub room: Room,
}

impl std::fmt::Debug for Terms {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Terms")
            .field("reach", &self.reach)
            .field("room", &self.room)
            .finish_non_exhaustive()
    }
}

/// How a client parted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Parted {
    /// What it was told last; `None`: it went by itself.
    pub told: Option<Close>,
    /// Whether it ever said anything, if only that it leaves.
    pub spoke: bool,
}

/// Why a client is not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum JoinFault {
    /// It has as many as may be.
    #[error(transparent)]
    Full(#[from] crate::relay::Full),
    /// The browser has no such page.
    #[error("no such target")]
    Target,
    /// The session has ended.
    #[error("the session has ended")]
    Ended,
}

/// What a session did, for whoever decides when it is idle.
#[derive(Debug)]
struct Activity {
    base: Instant,
    /// Milliseconds after `base`, plus one; 0: nothing yet.
    last: AtomicU64,
    open: AtomicUsize,
    clients: AtomicUsize,
    left_out: AtomicU64,
}

/// A session that is carried somewhere. Clones are the same session; when the last is dropped it
/// takes no more clients, and goes on for those that it has.
#[derive(Debug, Clone)]
pub struct Session {
    wishes: mpsc::Sender<Wish>,
    questions: Arc<Semaphore>,
    activity: Arc<Activity>,
    ending: Arc<OnceLock<Close>>,
}

#[derive(Debug)]
enum Wish {
    Join(Join),
    Ask {
        method: &'static str,
        params: serde_json::Value,
        reply: oneshot::Sender<Bytes>,
    },
}

#[derive(Debug)]
struct Join {
    part: Part,
    gate: Gate,
    limit: usize,
    reply: oneshot::Sender<Result<Line, JoinFault>>,
}

/// One client's connection with its session.
#[derive(Debug)]
pub struct Line {
    id: ClientId,
    limit: usize,
    said: mpsc::Sender<Said>,
    room: Arc<Semaphore>,
    inbox: mpsc::UnboundedReceiver<Packet>,
    share: Share,
    ending: Arc<OnceLock<Close>>,
}

#[derive(Debug)]
struct Packet {
    text: Bytes,
    _room: Option<OwnedSemaphorePermit>,
    _hold: Option<Hold>,
}

#[derive(Debug)]
enum Said {
    Command(ClientId, Utf8Bytes, OwnedSemaphorePermit),
    Left(ClientId),
    Answered(ClientId, String, OwnedSemaphorePermit),
}

struct Outbox {
    packets: mpsc::UnboundedSender<Packet>,
    room: Arc<Semaphore>,
}

/// Permits of a semaphore that counts `max` bytes in KiB.
fn permits(len: usize, max: usize) -> u32 {
    let kib = (len / 1024 + 1).min(max / 1024);
    u32::try_from(kib).unwrap_or(u32::MAX)
}

impl Session {
    /// A session over `pipe`, on which nothing is under way, and the future that carries it.
    pub fn new<P>(pipe: P, terms: Terms) -> (Session, impl Future<Output = Ended> + Send)
    where
        P: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let (wishes, wanted) = mpsc::channel(1);
        let activity = Arc::new(Activity {
            base: Instant::now(),
            last: AtomicU64::new(0),
            open: AtomicUsize::new(0),
            clients: AtomicUsize::new(0),
            left_out: AtomicU64::new(0),
        });
        let session = Session {
            wishes,
            questions: Arc::new(Semaphore::new(QUESTIONS_MAX)),
            activity: Arc::clone(&activity),
            ending: Arc::default(),
        };
        let (said, heard) = mpsc::channel(crate::relay::CLIENTS_MAX);
        let carrier = Carrier {
            relay: Relay::new(terms.reach),
            boxes: HashMap::new(),
            waiting: HashMap::new(),
            questions: HashMap::new(),
            pending: BytesMut::new(),
            room: Arc::new(Semaphore::new(COMMANDS_MAX / 1024)),
            said,
            activity,
            ending: Arc::clone(&session.ending),
            service: terms.service,
            share: terms.room.of_session(),
            told_left_out: 0,
        };
        (session, carrier.carry(pipe, wanted, heard))
    }

    /// Connects a client that takes messages of at most `limit` bytes.
    ///
    /// # Errors
    /// There is no room for it, nothing to connect it to, or no session any more.
    pub async fn join(&self, part: Part, gate: Gate, limit: usize) -> Result<Line, JoinFault> {
        let (reply, answer) = oneshot::channel();
        let join = Join {
            part,
            gate,
            limit,
            reply,
        };
        let join = Wish::Join(join);
        self.wishes.send(join).await.map_err(|_| JoinFault::Ended)?;
        answer.await.map_err(|_| JoinFault::Ended)?
    }

    /// Asks the browser something of itself, beside all clients. Its answer, a JSON text; `None`
    /// when the session has ended.
    pub async fn ask(&self, method: &'static str, params: serde_json::Value) -> Option<Bytes> {
        let _one_of = self.questions.acquire().await.ok()?;
        let (reply, answer) = oneshot::channel();
        let ask = Wish::Ask {
            method,
            params,
            reply,
        };
        self.wishes.send(ask).await.ok()?;
        answer.await.ok()
    }

    /// How clients are told of the end, if it comes from outside. The first word counts; without
    /// one it is 1011.
    pub fn end_with(&self, close: Close) {
        let _ = self.ending.set(close);
    }

    /// When a client last said something or was answered.
    #[must_use]
    pub fn last_command(&self) -> Option<Instant> {
        let last = self.activity.last.load(Ordering::Relaxed);
        let millis = Duration::from_millis(last.checked_sub(1)?);
        Some(self.activity.base + millis)
    }

    /// Commands that the browser has not answered, of clients that are still there.
    #[must_use]
    pub fn open_commands(&self) -> usize {
        self.activity.open.load(Ordering::Relaxed)
    }

    /// Clients.
    #[must_use]
    pub fn clients(&self) -> usize {
        self.activity.clients.load(Ordering::Relaxed)
    }

    /// Messages that were too long for a client, or for anybody, and were left out.
    #[must_use]
    pub fn left_out(&self) -> u64 {
        self.activity.left_out.load(Ordering::Relaxed)
    }
}

/// The settings for a WebSocket of a client that takes messages of `limit` bytes. Its buffers are
/// small, for many clients say nothing for a long time.
#[must_use]
pub fn websocket(limit: usize) -> WebSocketConfig {
    WebSocketConfig::default()
        .read_buffer_size(4 << 10)
        .write_buffer_size(0)
        .max_message_size(Some(limit))
        .max_frame_size(Some(limit))
}

struct Carrier {
    relay: Relay,
    boxes: HashMap<ClientId, Outbox>,
    /// Clients that have no part yet.
    waiting: HashMap<ClientId, (usize, oneshot::Sender<Result<Line, JoinFault>>)>,
    questions: HashMap<i32, oneshot::Sender<Bytes>>,
    /// What is to be written to the browser.
    pending: BytesMut,
    room: Arc<Semaphore>,
    said: mpsc::Sender<Said>,
    activity: Arc<Activity>,
    ending: Arc<OnceLock<Close>>,
    service: Service,
    share: Share,
    /// What the relay had left out when it was last asked.
    told_left_out: u64,
}

impl Carrier {
    async fn carry<P>(
        mut self,
        pipe: P,
        mut wanted: mpsc::Receiver<Wish>,
        mut heard: mpsc::Receiver<Said>,
    ) -> Ended
    where
        P: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let (mut reader, mut writer) = tokio::io::split(pipe);
        let mut splitter = Splitter::new(self.share.hold());
        let mut taking = true;
        for text in self.relay.begin() {
            self.write(&text);
        }
        loop {
            self.tell();
            let free = self.pending.len() < PENDING_MAX;
            splitter.make_room();
            tokio::select! {
                count = reader.read_buf(&mut splitter.bytes) => match count {
                    Ok(1..) => {
                        while let Some(message) = splitter.next() {
                            self.deliver(message).await;
                        }
                    }
                    Ok(0) | Err(_) => return self.end(Ended::Browser, Close::new(1011, "ChromiumCrashed")),
                },
                count = writer.write(&self.pending), if !self.pending.is_empty() => match count {
                    Ok(count @ 1..) => {
                        self.pending.advance(count);
                        if self.pending.is_empty() && self.pending.capacity() > READ_MAX {
                            self.pending = BytesMut::new();
                        }
                    }
                    Ok(0) | Err(_) => return self.end(Ended::Browser, Close::new(1011, "ChromiumCrashed")),
                },
                Some(said) = heard.recv(), if free => {
                    if self.hear(said) {
                        return self.end(Ended::Closed, Close::new(1000, ""));
                    }
                }
                wish = wanted.recv(), if free && taking => match wish {
                    Some(Wish::Join(join)) => self.join(join),
                    Some(Wish::Ask { method, params, reply }) => {
                        self.touch();
                        // Whoever gave up waits for no answer.
                        self.questions.retain(|_, reply| !reply.is_closed());
                        let (number, text) = self.relay.question(method, &params);
                        self.questions.insert(number, reply);
                        self.write(&text);
                    }
                    None if self.relay.clients() == 0 => {
                        return self.end(Ended::Dropped, Close::new(1011, ""));
                    }
                    None => taking = false,
                },
            }
            if !taking && self.relay.clients() == 0 {
                return self.end(Ended::Dropped, Close::new(1011, ""));
            }
        }
    }

    fn end(mut self, ended: Ended, close: Close) -> Ended {
        let why = self.ending.get_or_init(|| close).reason.clone();
        for (id, text) in self.relay.refuse_open(&why) {
            // There is an end to these, and nothing comes after them.
            self.post(id, text.into(), None, None);
        }
        ended
    }

    fn tell(&self) {
        let activity = &self.activity;
        activity.open.store(self.relay.open(), Ordering::Relaxed);
        activity
            .clients
            .store(self.relay.clients(), Ordering::Relaxed);
    }

    fn touch(&self) {
        let millis = self.activity.base.elapsed().as_millis();
        let millis = u64::try_from(millis).unwrap_or(u64::MAX - 1);
        self.activity.last.store(millis + 1, Ordering::Relaxed);
    }

    fn write(&mut self, text: &str) {
        self.pending.extend_from_slice(text.as_bytes());
        self.pending.extend_from_slice(b"\0");
    }

    fn join(&mut self, join: Join) {
        match self.relay.join(&join.part, join.gate, join.limit) {
            Ok((id, text)) => {
                self.waiting.insert(id, (join.limit, join.reply));
                self.write(&text);
            }
            Err(full) => {
                let _ = join.reply.send(Err(full.into()));
            }
        }
    }

    /// Whether the session is closed by this.
    fn hear(&mut self, said: Said) -> bool {
        match said {
            Said::Left(id) => self.leave(id),
            Said::Answered(id, text, room) => self.post(id, text.into(), room, None),
            // What is answered here is as short as what asked for it, and has its room until the
            // client takes it.
            Said::Command(id, text, room) => {
                self.touch();
                match self.relay.command(id, &text) {
                    Step::Browser(text) => self.write(&text),
                    Step::Client(text) => self.post(id, text.into(), room, None),
                    Step::Close(text) => {
                        self.post(id, text.into(), room, None);
                        return true;
                    }
                    Step::Service {
                        id: number,
                        method,
                        session,
                        params,
                    } => {
                        let answer = (self.service)(Asked {
                            method,
                            session: session.clone(),
                            params,
                        });
                        let said = self.said.clone();
                        tokio::spawn(async move {
                            let text = Relay::answer(number, session.as_deref(), &answer.await);
                            let _ = said.send(Said::Answered(id, text, room)).await;
                        });
                    }
                }
            }
        }
        false
    }

    async fn deliver(&mut self, message: BytesMut) {
        let before = self.relay.open();
        let delivery = self.relay.deliver(message);
        if self.relay.open() != before {
            self.touch();
        }
        match delivery {
            Delivery::Client(id, text) => {
                let Some(outbox) = self.boxes.get(&id) else {
                    return;
                };
                let mut hold = self.share.hold();
                let text = match hold.reach(text.len()) {
                    true => text,
                    false => match shortened(&text, room::SMALL_MAX) {
                        Some(short) => short.into(),
                        None => return self.left_out(1),
                    },
                };
                let wanted = permits(text.len(), OUTBOX_MAX);
                let room = Arc::clone(&outbox.room).acquire_many_owned(wanted);
                match timeout(STALLED, room).await {
                    Ok(Ok(room)) => self.post(id, text, room, Some(hold)),
                    // It takes nothing: without it the others go on.
                    Ok(Err(_)) | Err(_) => self.leave(id),
                }
            }
            Delivery::Told(number, text) => {
                if let Some(reply) = self.questions.remove(&number) {
                    let _ = reply.send(text);
                }
            }
            Delivery::Joined(id) => self.joined(id),
            Delivery::Refused(id) => {
                if let Some((_, reply)) = self.waiting.remove(&id) {
                    let _ = reply.send(Err(JoinFault::Target));
                }
                self.leave(id);
            }
            Delivery::Gone(id) => self.leave(id),
            Delivery::Browser(text) => self.write(&text),
            Delivery::Nothing => {
                let left_out = self.relay.left_out();
                self.left_out(left_out.saturating_sub(self.told_left_out));
                self.told_left_out = left_out;
            }
        }
    }

    fn left_out(&self, more: u64) {
        let left_out = &self.activity.left_out;
        left_out.fetch_add(more, Ordering::Relaxed);
    }

    fn joined(&mut self, id: ClientId) {
        let Some((limit, reply)) = self.waiting.remove(&id) else {
            return self.leave(id);
        };
        let (packets, inbox) = mpsc::unbounded_channel();
        let room = Arc::new(Semaphore::new(OUTBOX_MAX / 1024));
        self.boxes.insert(id, Outbox { packets, room });
        let line = Line {
            id,
            limit,
            said: self.said.clone(),
            room: Arc::clone(&self.room),
            inbox,
            share: self.share.clone(),
            ending: Arc::clone(&self.ending),
        };
        if reply.send(Ok(line)).is_err() {
            self.leave(id);
        }
    }

    fn post(
        &mut self,
        id: ClientId,
        text: Bytes,
        room: impl Into<Option<OwnedSemaphorePermit>>,
        hold: Option<Hold>,
    ) {
        if let Some(outbox) = self.boxes.get(&id) {
            let _ = outbox.packets.send(Packet {
                text,
                _room: room.into(),
                _hold: hold,
            });
        }
    }

    fn leave(&mut self, id: ClientId) {
        self.boxes.remove(&id);
        self.waiting.remove(&id);
        if let Some(text) = self.relay.leave(id) {
            self.write(&text);
        }
    }
}

/// Finds the ends of messages in what a browser says.
#[derive(Debug)]
struct Splitter {
    bytes: BytesMut,
    /// Bytes that hold no end.
    searched: usize,
    /// A message that is too long is under way.
    skipping: bool,
    read: usize,
    hold: Hold,
}

impl Splitter {
    fn new(hold: Hold) -> Splitter {
        Splitter {
            bytes: BytesMut::new(),
            searched: 0,
            skipping: false,
            read: READ_MIN,
            hold,
        }
    }

    /// Room to read into, as much as the last read suggests.
    fn make_room(&mut self) {
        if self.bytes.is_empty() && self.bytes.capacity() > READ_MIN && self.read == READ_MIN {
            self.bytes = BytesMut::new();
        }
        let spare = self.bytes.capacity() - self.bytes.len();
        if spare < self.read / 2 {
            self.bytes.reserve(self.read);
        }
    }

    fn next(&mut self) -> Option<BytesMut> {
        loop {
            let fresh = self.bytes.len() - self.searched;
            let Some(found) = memchr(0, &self.bytes[self.searched..]) else {
                // Half of the room used: more is on its way.
                self.read = match fresh {
                    _ if fresh * 2 >= self.read => (self.read * 2).min(READ_MAX),
                    _ => (self.read / 2).max(READ_MIN),
                };
                self.searched = self.bytes.len();
                if self.searched > MESSAGE_MAX || !self.hold.reach(self.searched) {
                    self.skipping = true;
                }
                if self.skipping {
                    self.bytes.clear();
                    self.searched = 0;
                }
                return None;
            };
            let message = self.bytes.split_to(self.searched + found);
            if message.len() > room::SMALL_MAX {
                self.hold.let_go();
            }
            self.bytes.advance(1);
            self.searched = 0;
            if !std::mem::take(&mut self.skipping) {
                return Some(message);
            }
        }
    }
}

impl Line {
    /// Carries the client's WebSocket, whose handshake is over, until one side ends it.
    pub async fn serve<S>(mut self, stream: S, framing: Framing) -> Parted
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let moved = Moved::new(&self.share);
        let metered = Metered::new(stream, Arc::clone(&moved));
        let settings = Some(websocket(self.limit));
        let socket = WebSocketStream::from_raw_socket(metered, Role::Server, settings).await;
        let (mut sink, mut stream) = socket.split();
        let spoke = AtomicBool::new(false);
        // It is we who do not read.
        let held_up = AtomicBool::new(false);
        let close = {
            let up = async {
                let mut assembler = Assembler::new(self.limit);
                loop {
                    if !assembler.is_amid() {
                        moved.message_ends();
                    }
                    let message = stream.next().await;
                    if matches!(message, Some(Ok(_))) {
                        spoke.store(true, Ordering::Relaxed);
                    }
                    let text = match message {
                        Some(Ok(Message::Text(text)))
                            if framing == Framing::Chunks && *text == *PING =>
                        {
                            continue;
                        }
                        Some(Ok(Message::Text(text))) => text,
                        Some(Ok(Message::Binary(piece))) if framing == Framing::Chunks => {
                            match assembled(&mut assembler, &piece) {
                                Ok(Some(text)) => text,
                                Ok(None) => continue,
                                Err(close) => return Some(close),
                            }
                        }
                        Some(Ok(Message::Binary(_))) => {
                            return Some(Close::new(1003, "text messages only"));
                        }
                        Some(Ok(Message::Ping(_) | Message::Pong(_) | Message::Frame(_))) => {
                            continue;
                        }
                        Some(Err(Error::Capacity(CapacityError::MessageTooLong { .. }))) => {
                            return Some(Close::new(1009, "message too big"));
                        }
                        Some(Err(_)) if moved.is_full() => {
                            return Some(Close::new(1013, "no room for a message of this size"));
                        }
                        Some(Ok(Message::Close(_)) | Err(_)) | None => return None,
                    };
                    held_up.store(true, Ordering::Relaxed);
                    let wanted = permits(text.len(), COMMANDS_MAX);
                    let Ok(room) = Arc::clone(&self.room).acquire_many_owned(wanted).await else {
                        return None;
                    };
                    let said = Said::Command(self.id, text, room);
                    if self.said.send(said).await.is_err() {
                        // Its end is told from the other direction.
                        return std::future::pending().await;
                    }
                    held_up.store(false, Ordering::Relaxed);
                }
            };
            let down = async {
                let mut ping = interval_at(Instant::now() + PING_EVERY, PING_EVERY);
                ping.set_missed_tick_behavior(MissedTickBehavior::Delay);
                let (mut read, mut lost) = (moved.read(), 0);
                loop {
                    let packet = tokio::select! {
                        packet = self.inbox.recv() => packet,
                        _ = ping.tick() => {
                            let heard = moved.read() != read || held_up.load(Ordering::Relaxed);
                            lost = if heard { 0 } else { lost + 1 };
                            if lost > PINGS_LOST_MAX {
                                return None;
                            }
                            read = moved.read();
                            let ping = Message::Ping(Bytes::new());
                            taken(&moved, sink.send(ping)).await?.ok()?;
                            continue;
                        }
                    };
                    let Some(packet) = packet else {
                        let ending = self.ending.get().cloned();
                        return Some(ending.unwrap_or_else(|| Close::new(1011, "")));
                    };
                    match framing {
                        Framing::Text => {
                            // Browsers write nothing else.
                            let Ok(text) = Utf8Bytes::try_from(packet.text) else {
                                continue;
                            };
                            let sent = send(&mut sink, &moved, Message::Text(text));
                            taken(&moved, sent).await?.ok()?;
                        }
                        Framing::Chunks => {
                            for piece in cut(packet.text) {
                                let sent = send(&mut sink, &moved, Message::Binary(piece));
                                taken(&moved, sent).await?.ok()?;
                            }
                        }
                    }
                }
            };
            tokio::select! {
                close = up => close,
                close = down => close,
            }
        };
        let _ = self.said.send(Said::Left(self.id)).await;
        if let Some(close) = &close {
            let frame = CloseFrame {
                code: CloseCode::from(close.code),
                reason: close.reason.clone().into(),
            };
            let farewell = async {
                sink.send(Message::Close(Some(frame))).await?;
                while let Some(Ok(_)) = stream.next().await {}
                Ok::<(), Error>(())
            };
            let _ = timeout(FAREWELL, farewell).await;
        }
        Parted {
            told: close,
            spoke: spoke.into_inner(),
        }
    }
}

/// Waits until a message is sent; `None` if nothing of it was taken for [`STALLED`].
async fn taken<T>(moved: &Moved, sending: impl Future<Output = T>) -> Option<T> {
    let mut sending = std::pin::pin!(sending);
    loop {
        let before = moved.written();
        match timeout(STALLED, &mut sending).await {
            Ok(sent) => return Some(sent),
            Err(_) if moved.written() == before => return None,
            Err(_) => {}
        }
    }
}

/// Sends a message; a long one past the buffer of the WebSocket.
async fn send<S>(
    sink: &mut SplitSink<WebSocketStream<Metered<S>>, Message>,
    moved: &Moved,
    message: Message,
) -> Result<(), Error>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let (kind, body) = match message {
        Message::Text(text) if text.len() >= LONG_MIN => (Kind::Text, text.into()),
        Message::Binary(piece) if piece.len() >= LONG_MIN => (Kind::Binary, piece),
        short => return sink.send(short).await,
    };
    moved.long(kind, body);
    sink.flush().await
}

fn assembled(assembler: &mut Assembler, piece: &[u8]) -> Result<Option<Utf8Bytes>, Close> {
    let of = |fault: ChunkFault| {
        let (code, reason) = fault.close();
        Close::new(code, reason)
    };
    let Some(text) = assembler.piece(piece).map_err(of)? else {
        return Ok(None);
    };
    // Half of one message and the beginning of another have a length that fits, and no sense.
    if let Err(CommandFault::Json(_)) = Command::read(&text) {
        return Err(of(ChunkFault::NotText));
    }
    Ok(Some(text.into()))
}

#[cfg(test)]
mod tests;
