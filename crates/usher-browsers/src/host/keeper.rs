//! The one task that a browser belongs to, from its launch until nothing is left of it.
//!
//! Whoever wants something of the browser sends an order here. While it is ready or prepared, the
//! task speaks to it itself; once it is lent, bytes go between the broker's connection and the pipe,
//! and the task watches the clock. A browser never leaves this task: when it ends, so does the
//! browser.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, MissedTickBehavior};
use usher_core::lease::close::CloseReason;
use usher_core::lease::{BrowserId, SessionId};

use super::pipe::{Answers, Commands, amid};
use super::wire::{Answer, Took};
use crate::browser::{Body, Browser, Launcher};
use crate::canary;
use crate::client::{ClientFault, within};
use crate::page::{self, PageFault, Screenshot};

/// How often memory is looked at.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// How often a browser that is ready is asked whether it still is.
const CHECK_EVERY: Duration = Duration::from_secs(60);
/// How long a browser that is promised may take to say a word. Whoever asked for it waits five seconds
/// at most.
const WORD_MAX: Duration = Duration::from_secs(2);
/// How long a command without an answer holds a session.
pub const HELD_MAX: Duration = Duration::from_secs(20 * 60);
/// How long to wait before what does not go away is tried again.
const AGAIN_MAX: Duration = Duration::from_secs(60);
/// How long a process may outlive its pipe.
const LAST_WORD_MAX: Duration = Duration::from_secs(2);
const CHUNK: usize = 64 << 10;

/// What a keeper is told.
#[derive(Debug)]
pub(super) enum Order {
    /// The browser is a session's.
    Prepare {
        session: SessionId,
        keep_alive: Duration,
        guardrails: String,
        done: oneshot::Sender<Result<(), String>>,
    },
    /// The browser's pipe goes on over this connection, once `Ok` was written to it.
    Lend(UnixStream),
    /// A command came by another way.
    Touch,
    /// Draw one page.
    Draw {
        order: Box<Screenshot>,
        done: oneshot::Sender<Result<Vec<u8>, PageFault>>,
    },
    /// It ends.
    Close,
}

/// What a keeper tells.
#[derive(Debug)]
pub(super) enum Told {
    /// It draws.
    Ready(BrowserId),
    /// It is this session's; who asked is to be answered.
    Prepared(BrowserId, SessionId, oneshot::Sender<Answer>),
    /// It wants to end, because of this.
    Ends(BrowserId, CloseReason),
    /// It still does.
    Drew,
    /// It did not start; why.
    Failed(BrowserId, String),
    /// Nothing is left of it.
    Gone(BrowserId),
}

/// What is known of a browser from outside its task.
#[derive(Debug)]
pub(super) struct Facts {
    mem_kib: AtomicU32,
    peak_kib: AtomicU32,
    cpu_ms: AtomicU64,
    commands: AtomicU64,
    sent: AtomicU64,
    received: AtomicU64,
    /// Milliseconds since `began`; [`HELD`] while a command is under way.
    quiet_from: AtomicU64,
    draws: AtomicBool,
    began: Instant,
}

const HELD: u64 = u64::MAX;

impl Facts {
    fn new() -> Facts {
        Facts {
            mem_kib: AtomicU32::new(0),
            peak_kib: AtomicU32::new(0),
            cpu_ms: AtomicU64::new(0),
            commands: AtomicU64::new(0),
            sent: AtomicU64::new(0),
            received: AtomicU64::new(0),
            quiet_from: AtomicU64::new(0),
            draws: AtomicBool::new(false),
            began: Instant::now(),
        }
    }

    pub(super) fn mem_kib(&self) -> u32 {
        self.mem_kib.load(Ordering::Relaxed)
    }

    /// Whether it draws a page for somebody.
    pub(super) fn draws(&self) -> bool {
        self.draws.load(Ordering::Relaxed)
    }

    /// All of it until now.
    pub(super) fn took(&self) -> Took {
        Took {
            peak_kib: self.peak_kib.load(Ordering::Relaxed),
            cpu_ms: self.cpu_ms.load(Ordering::Relaxed),
            commands: self.commands.load(Ordering::Relaxed),
            sent: self.sent.load(Ordering::Relaxed),
            received: self.received.load(Ordering::Relaxed),
        }
    }

    pub(super) fn quiet(&self) -> Duration {
        match self.quiet_from.load(Ordering::Relaxed) {
            HELD => Duration::ZERO,
            from => self
                .began
                .elapsed()
                .saturating_sub(Duration::from_millis(from)),
        }
    }

    fn quiet_since(&self, moment: Option<Instant>) {
        let millis = moment.map_or(HELD, |moment| {
            u64::try_from(moment.duration_since(self.began).as_millis()).unwrap_or(HELD - 1)
        });
        self.quiet_from.store(millis, Ordering::Relaxed);
    }
}

/// Starts a browser in a task of its own.
pub(super) fn keep(
    launcher: Arc<Launcher>,
    id: BrowserId,
    told: mpsc::UnboundedSender<Told>,
) -> (mpsc::Sender<Order>, Arc<Facts>) {
    let (orders, mine) = mpsc::channel(16);
    let facts = Arc::new(Facts::new());
    let task = Keeper {
        id,
        orders: mine,
        told,
        facts: facts.clone(),
        idle: None,
    };
    tokio::spawn(task.run(launcher));
    (orders, facts)
}

struct Keeper {
    id: BrowserId,
    orders: mpsc::Receiver<Order>,
    told: mpsc::UnboundedSender<Told>,
    facts: Arc<Facts>,
    idle: Option<Idle>,
}

/// How long a session has been idle.
#[derive(Debug, Clone, Copy)]
struct Idle {
    keep_alive: Duration,
    last: Instant,
    under_way: u32,
}

impl Idle {
    /// When the session is over unless something happens.
    fn deadline(&self) -> Instant {
        let patience = if self.under_way > 0 {
            HELD_MAX
        } else {
            self.keep_alive
        };
        self.last + patience
    }
}

/// What has the browser's ear next.
enum Next {
    Lent(UnixStream),
    Over(Option<CloseReason>),
}

impl Keeper {
    async fn run(mut self, launcher: Arc<Launcher>) {
        let started = launcher.start(self.id).await;
        drop(launcher);
        let Browser {
            mut body,
            mut client,
        } = match started {
            Ok(browser) => browser,
            Err(fault) => {
                let fault: &(dyn std::error::Error + 'static) = &fault;
                let cause = fault.source().map(ToString::to_string).unwrap_or_default();
                let why = format!("{fault}: {cause}");
                tracing::warn!(browser = ?self.id, "{why}");
                self.tell(Told::Failed(self.id, why));
                return;
            }
        };
        self.measure(&body);
        self.tell(Told::Ready(self.id));
        let reason = match self.hold(&mut body, &mut client).await {
            Next::Lent(connection) => {
                let (pipe, amid) = client.into_pipe();
                self.relay(&mut body, pipe, amid, connection).await
            }
            Next::Over(reason) => {
                drop(client);
                reason
            }
        };
        if let Some(reason) = reason {
            tracing::debug!(browser = ?self.id, ?reason, said = body.said(), "ends by itself");
            self.tell(Told::Ends(self.id, reason));
        }
        self.account(&mut body);
        let mut pause = Duration::from_secs(1);
        while let Err(error) = body.close().await {
            tracing::error!(browser = ?self.id, %error, "a browser does not go away");
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(AGAIN_MAX);
        }
        self.tell(Told::Gone(self.id));
    }

    fn tell(&self, told: Told) {
        // Nobody to tell: the host is ending, and so does this.
        let _ = self.told.send(told);
    }

    /// Memory, as others see it; whether it is too much.
    fn measure(&self, body: &Body) -> bool {
        let memory = body.memory();
        let kib = u32::try_from(memory / 1024).unwrap_or(u32::MAX);
        self.facts.mem_kib.store(kib, Ordering::Relaxed);
        self.facts.peak_kib.fetch_max(kib, Ordering::Relaxed);
        body.is_out_of_memory(memory)
    }

    /// What it took, while there is something left of it to be asked.
    fn account(&self, body: &mut Body) {
        let cpu_ms = u64::try_from(body.cpu().as_millis()).unwrap_or(u64::MAX);
        self.facts.cpu_ms.store(cpu_ms, Ordering::Relaxed);
        let (sent, received) = body.way().map_or((0, 0), |way| way.traffic());
        self.facts.sent.store(sent, Ordering::Relaxed);
        self.facts.received.store(received, Ordering::Relaxed);
    }

    /// While the browser is ours to talk to.
    async fn hold(&mut self, body: &mut Body, client: &mut crate::client::Client) -> Next {
        let mut looks = ticks(LOOK_EVERY);
        let mut checks = ticks(CHECK_EVERY);
        loop {
            let idle = self.idle;
            let order = tokio::select! {
                order = self.orders.recv() => order,
                _ = body.ended() => return Next::Over(Some(CloseReason::ChromiumCrashed)),
                () = until(idle) => return Next::Over(Some(CloseReason::BrowserIdle)),
                _ = looks.tick() => {
                    if self.measure(body) {
                        return Next::Over(Some(CloseReason::ChromiumCrashed));
                    }
                    continue;
                }
                _ = checks.tick(), if idle.is_none() => {
                    match canary::check(client).await {
                        Ok(()) => {
                            self.tell(Told::Drew);
                            continue;
                        }
                        Err(fault) => {
                            tracing::warn!(browser = ?self.id, %fault, "a ready browser does not answer");
                            return Next::Over(Some(CloseReason::ChromiumCrashed));
                        }
                    }
                }
            };
            match order {
                None | Some(Order::Close) => return Next::Over(None),
                Some(Order::Prepare {
                    session,
                    keep_alive,
                    guardrails,
                    done,
                }) => {
                    // It was well when it was last looked at, which may be a minute ago.
                    let word = within(WORD_MAX);
                    let asked = client.ask("", "Browser.getVersion", json!({}), word);
                    if let Err(fault) = asked.await {
                        tracing::warn!(browser = ?self.id, %fault, "a ready browser does not answer");
                        return Next::Over(Some(CloseReason::ChromiumCrashed));
                    }
                    let lent = body
                        .way()
                        .map_or(Ok(()), |way| way.lend(session, &guardrails));
                    if lent.is_ok() {
                        self.idle = Some(Idle {
                            keep_alive,
                            last: Instant::now(),
                            under_way: 0,
                        });
                        self.facts.quiet_since(Some(Instant::now()));
                    }
                    let _ = done.send(lent);
                }
                Some(Order::Touch) => self.commanded(0),
                Some(Order::Lend(connection)) => return Next::Lent(connection),
                Some(Order::Draw { order, done }) => {
                    self.facts.draws.store(true, Ordering::Relaxed);
                    let next = self.draw(body, client, &order, done).await;
                    self.facts.draws.store(false, Ordering::Relaxed);
                    return next;
                }
            }
        }
    }

    async fn draw(
        &mut self,
        body: &mut Body,
        client: &mut crate::client::Client,
        order: &Screenshot,
        mut done: oneshot::Sender<Result<Vec<u8>, PageFault>>,
    ) -> Next {
        self.facts.quiet_since(None);
        let began = Instant::now();
        let mut looks = ticks(LOOK_EVERY);
        let drawing = page::screenshot(client, order);
        tokio::pin!(drawing);
        loop {
            tokio::select! {
                drawn = &mut drawing => {
                    let _ = done.send(drawn.map_err(|fault| true_cause(body, fault, began)));
                    return Next::Over(Some(CloseReason::NormalClosure));
                }
                _ = body.ended() => {
                    let _ = done.send(Err(PageFault::Browser(ClientFault::Closed)));
                    return Next::Over(Some(CloseReason::ChromiumCrashed));
                }
                // Who asked is gone: nobody waits for the picture.
                () = done.closed() => return Next::Over(Some(CloseReason::NormalClosure)),
                order = self.orders.recv() => {
                    if matches!(order, None | Some(Order::Close)) {
                        return Next::Over(None);
                    }
                }
                _ = looks.tick() => {
                    if self.measure(body) {
                        let _ = done.send(Err(PageFault::Memory));
                        return Next::Over(Some(CloseReason::ChromiumCrashed));
                    }
                }
            }
        }
    }

    /// While somebody else talks to it. Why it is over, unless that was ordered.
    async fn relay(
        &mut self,
        body: &mut Body,
        pipe: UnixStream,
        mut browser_amid: bool,
        connection: UnixStream,
    ) -> Option<CloseReason> {
        let (mut from_browser, mut to_browser) = pipe.into_split();
        let mut broker = Some(connection.into_split());
        // A connection that comes amid a message gets what follows it.
        let mut skips = browser_amid;
        let mut answers = Answers::new(browser_amid);
        let mut commands = Commands::new();
        let mut broker_amid = false;
        let (mut up, mut down) = (Chunk::new(), Chunk::new());
        let mut looks = ticks(LOOK_EVERY);
        loop {
            let idle = self.idle;
            let (from_broker, to_broker) = match &mut broker {
                Some((from, to)) => (Some(from), Some(to)),
                None => (None, None),
            };
            let mut lost = false;
            tokio::select! {
                step = up.step(Some(&mut from_browser), to_broker) => match step {
                    Step::Read => {
                        let count = answers.count(up.bytes());
                        self.answered(count);
                        browser_amid = amid(up.bytes(), browser_amid);
                        if skips {
                            up.skip_message(&mut skips);
                        }
                        if broker.is_none() {
                            up.clear();
                        }
                    }
                    Step::Wrote => {}
                    // Its end of the pipe goes a moment before the process does.
                    Step::NoMore => return Some(last_word(body).await),
                    Step::NotTaken => lost = true,
                },
                step = down.step(from_broker, Some(&mut to_browser)) => match step {
                    Step::Read => {
                        if let Some(count) = commands.count(down.bytes()) {
                            self.commanded(count);
                        }
                        broker_amid = amid(down.bytes(), broker_amid);
                    }
                    Step::Wrote => {}
                    Step::NoMore => lost = true,
                    Step::NotTaken => return Some(last_word(body).await),
                },
                order = self.orders.recv() => match order {
                    None | Some(Order::Close) => return None,
                    Some(Order::Lend(connection)) => {
                        // The newest connection of a session is the one that is meant.
                        self.parted(&mut down, &mut broker_amid);
                        commands = Commands::new();
                        up.clear();
                        skips = browser_amid;
                        broker = Some(connection.into_split());
                    }
                    Some(Order::Touch) => self.commanded(0),
                    Some(Order::Prepare { done, .. }) => { let _ = done.send(Ok(())); }
                    Some(Order::Draw { done, .. }) => {
                        let lent = PageFault::Capture("the browser is lent".to_owned());
                        let _ = done.send(Err(lent));
                    }
                },
                clean = body.ended() => return Some(reason(clean)),
                () = until(idle) => return Some(CloseReason::BrowserIdle),
                _ = looks.tick() => {
                    if self.measure(body) {
                        return Some(CloseReason::ChromiumCrashed);
                    }
                }
            }
            if lost {
                self.parted(&mut down, &mut broker_amid);
                commands = Commands::new();
                up.clear();
                broker = None;
            }
        }
    }

    /// `count` commands came.
    fn commanded(&mut self, count: u32) {
        self.facts
            .commands
            .fetch_add(u64::from(count), Ordering::Relaxed);
        if let Some(idle) = &mut self.idle {
            idle.last = Instant::now();
            idle.under_way = idle.under_way.saturating_add(count);
            self.facts
                .quiet_since((idle.under_way == 0).then_some(idle.last));
        }
    }

    /// `count` commands were answered.
    fn answered(&mut self, count: u32) {
        if count > 0
            && let Some(idle) = &mut self.idle
        {
            idle.last = Instant::now();
            idle.under_way = idle.under_way.saturating_sub(count);
            self.facts
                .quiet_since((idle.under_way == 0).then_some(idle.last));
        }
    }

    /// The connection is gone: what it began to say ends here, and what it asked holds nothing.
    fn parted(&mut self, down: &mut Chunk, broker_amid: &mut bool) {
        if std::mem::take(broker_amid) {
            down.push_end();
        }
        if let Some(idle) = &mut self.idle {
            (idle.last, idle.under_way) = (Instant::now(), 0);
            self.facts.quiet_since(Some(idle.last));
        }
    }
}

/// A browser knows only that its proxy let nothing through; the proxy knows why.
fn true_cause(body: &mut Body, fault: PageFault, began: Instant) -> PageFault {
    let PageFault::Net { error, host } = fault else {
        return fault;
    };
    let asked = host.as_deref().filter(|_| page::is_of_proxy(&error));
    let cause = asked.and_then(|host| body.way()?.cause(host, began.elapsed()));
    PageFault::Net {
        error: cause.unwrap_or(error),
        host,
    }
}

/// Why a browser that has closed its pipe is over.
async fn last_word(body: &mut Body) -> CloseReason {
    let ended = tokio::time::timeout(LAST_WORD_MAX, body.ended()).await;
    reason(ended.unwrap_or(false))
}

/// A browser that was told to close ends cleanly; one that crashes does not.
const fn reason(clean: bool) -> CloseReason {
    if clean {
        CloseReason::NormalClosure
    } else {
        CloseReason::ChromiumCrashed
    }
}

async fn until(idle: Option<Idle>) {
    match idle {
        Some(idle) => tokio::time::sleep_until(idle.deadline()).await,
        None => std::future::pending().await,
    }
}

fn ticks(every: Duration) -> tokio::time::Interval {
    let mut ticks = tokio::time::interval_at(Instant::now() + every, every);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    ticks
}

/// Bytes on their way in one direction.
struct Chunk {
    bytes: Vec<u8>,
    written: usize,
}

impl Chunk {
    fn new() -> Chunk {
        Chunk {
            bytes: Vec::new(),
            written: 0,
        }
    }

    fn is_empty(&self) -> bool {
        self.written == self.bytes.len()
    }

    fn bytes(&self) -> &[u8] {
        &self.bytes[self.written..]
    }

    fn clear(&mut self) {
        self.bytes.clear();
        self.written = 0;
    }

    /// Drops what is left of a message that the reader has not seen the beginning of.
    fn skip_message(&mut self, skips: &mut bool) {
        match memchr::memchr(0, self.bytes()) {
            Some(end) => {
                self.written += end + 1;
                *skips = false;
            }
            None => self.written = self.bytes.len(),
        }
    }

    fn push_end(&mut self) {
        if self.is_empty() {
            self.clear();
        }
        self.bytes.push(0);
    }

    /// Reads when there is nothing to write, and writes what there is. What is not there is waited
    /// for.
    async fn step<R, W>(&mut self, from: Option<&mut R>, to: Option<&mut W>) -> Step
    where
        R: AsyncReadExt + Unpin,
        W: AsyncWriteExt + Unpin,
    {
        if self.is_empty() {
            let Some(from) = from else {
                return std::future::pending().await;
            };
            self.clear();
            self.bytes.reserve(CHUNK);
            return match from.read_buf(&mut self.bytes).await {
                Ok(1..) => Step::Read,
                _ => Step::NoMore,
            };
        }
        let Some(to) = to else {
            return std::future::pending().await;
        };
        match to.write(self.bytes()).await {
            Ok(len @ 1..) => {
                self.written += len;
                Step::Wrote
            }
            _ => Step::NotTaken,
        }
    }
}

/// What became of one step of a [`Chunk`].
enum Step {
    Read,
    Wrote,
    /// Whoever is read from has closed.
    NoMore,
    /// Whoever is written to has closed.
    NotTaken,
}
