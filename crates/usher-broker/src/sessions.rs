//! The browsers that are talked to through this process.
//!
//! A session belongs to its node and to the pool, and outlives this process. What is here is the
//! connection to the browser's pipe, which clients share: it is made when the first of them comes,
//! and kept until the session ends.

use std::collections::HashMap;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use arc_swap::ArcSwap;
use futures_util::task::AtomicWaker;
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::UnixStream;
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::{OnceCell, broadcast, watch};
use tokio::time::timeout;
use usher_browsers::host::wire::Took;
use usher_cdp::session::{Asked, Body, Close, JoinFault, Line, Room};
use usher_cdp::{Ended, Gate, Part, Reach, Session, Terms};
use usher_core::id::Id;
use usher_core::lease::close::CloseReason;
use usher_core::lease::line::Class;
use usher_core::lease::region::{Ended as Over, Picked};
use usher_core::lease::{BrowserId, Epoch, NodeId, SessionId};
use usher_egress::{Guardrails, Policy};
use usher_pool::{ConnectionId, News, Pool, PoolError, SessionView};

use crate::chance;
use crate::hosts::Hosts;

/// How long a host may take to say why a browser ended whose pipe is closed.
const CAUSE_MAX: Duration = Duration::from_secs(3);

/// How long a browser may take to take on a client, or to answer what is asked of itself. Pages have
/// no part in either, however they hang.
const ANSWER_MAX: Duration = Duration::from_secs(30);

/// Why there is no session to talk to.
#[derive(Debug, thiserror::Error)]
pub enum Missing {
    /// It never was, is another account's, or has ended.
    #[error("Session not found")]
    Unknown,
    /// A pool does not answer.
    #[error("the pool of browsers does not answer")]
    Pool(#[from] PoolError),
    /// There is no room for another client, or nothing to connect it to.
    #[error(transparent)]
    Join(#[from] JoinFault),
    /// An older client is connected, which wants to be alone.
    #[error("WebSocket already initialized")]
    Taken,
    /// The browser is there and does not answer.
    #[error("the browser does not answer")]
    Silent,
}

/// Sessions that this process carries, and all that it can find.
pub struct Sessions {
    pools: ArcSwap<Vec<Arc<dyn Pool>>>,
    hosts: Arc<Hosts>,
    carried: Mutex<HashMap<SessionId, Arc<Carried>>>,
    /// Clients that are connected.
    clients: watch::Sender<usize>,
    /// For large messages of all of them.
    room: Room,
    /// Bytes of all that are carried, and were.
    traffic: Arc<Traffic>,
    /// Messages that were left out of connections that are over.
    left_out: AtomicU64,
    /// Bytes of sessions whose end is not told yet.
    spent: Mutex<HashMap<SessionId, Arc<Traffic>>>,
    farewells: broadcast::Sender<Farewell>,
}

/// Bytes between clients and browsers.
#[derive(Debug, Default)]
struct Traffic {
    to_browser: AtomicU64,
    from_browser: AtomicU64,
}

impl Traffic {
    fn told(&self) -> (u64, u64) {
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        (read(&self.to_browser), read(&self.from_browser))
    }
}

/// Farewells that a slow listener may be behind.
const FAREWELLS_MAX: usize = 1_024;

/// A session that ended, with all that it took.
#[derive(Debug, Clone, Copy)]
pub struct Farewell {
    /// Where it was.
    pub region: u16,
    /// Which it was.
    pub session: SessionId,
    /// What its pool remembers; `None` when it does not answer.
    pub view: Option<SessionView>,
    /// Whose it was.
    pub account: Id,
    /// Why it ended.
    pub reason: CloseReason,
    /// What counts against the account's day.
    pub billed: Duration,
    /// Bytes to its browser and from there, through this process.
    pub carried: (u64, u64),
    /// What its browser took; `None` when the host could not say.
    pub took: Option<Took>,
}

impl Farewell {
    /// The session's name, as clients see it.
    #[must_use]
    pub fn name(&self) -> String {
        crate::wire::uuid(self.session.0)
    }
}

#[derive(Debug, Default)]
struct Carried {
    pipe: OnceCell<Session>,
    /// Cuts it.
    cut: Arc<Cut>,
    /// An older client is connected.
    alone: AtomicBool,
    clients: tokio::sync::Mutex<usize>,
}

/// Ends a pipe that its browser may never end: the pool has given it up.
#[derive(Debug, Default)]
struct Cut {
    is_cut: AtomicBool,
    reader: AtomicWaker,
}

impl Cut {
    fn cut(&self) {
        self.is_cut.store(true, Ordering::Release);
        self.reader.wake();
    }

    fn is_cut(&self, context: &Context<'_>) -> bool {
        self.reader.register(context.waker());
        self.is_cut.load(Ordering::Acquire)
    }
}

/// Where a session lives.
#[derive(Debug, Clone, Copy)]
struct Place {
    region: u16,
    node: NodeId,
    browser: BrowserId,
    epoch: Epoch,
    session: SessionId,
}

impl Place {
    fn of(region: u16, view: &SessionView) -> Place {
        Place {
            region,
            node: view.node,
            browser: view.browser,
            epoch: view.epoch,
            session: view.session,
        }
    }
}

/// A client's place at a session. To be given back with [`Sessions::left`].
#[derive(Debug)]
pub(crate) struct Joined {
    pub(crate) line: Line,
    place: Place,
    carried: Arc<Carried>,
    alone: bool,
    counted: Counted,
}

impl Joined {
    /// Of which.
    pub(crate) const fn session(&self) -> SessionId {
        self.place.session
    }

    /// The line, and what to give back when it is over.
    pub(crate) fn split(self) -> (Line, Left) {
        let left = Left {
            place: self.place,
            carried: self.carried,
            alone: self.alone,
            _counted: self.counted,
        };
        (self.line, left)
    }
}

/// What a client leaves behind.
#[derive(Debug)]
pub(crate) struct Left {
    place: Place,
    carried: Arc<Carried>,
    alone: bool,
    _counted: Counted,
}

/// One client, for as long as it lives.
#[derive(Debug)]
struct Counted(watch::Sender<usize>);

impl Counted {
    fn one(clients: &watch::Sender<usize>) -> Counted {
        clients.send_modify(|count| *count += 1);
        Counted(clients.clone())
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.send_modify(|count| *count -= 1);
    }
}

impl Sessions {
    /// The sessions in these pools, numbered as a broker numbers its regions. Its tasks run on the
    /// runtime that calls this.
    #[must_use]
    pub fn new(pools: Vec<Arc<dyn Pool>>, hosts: Arc<Hosts>) -> Arc<Sessions> {
        let sessions = Arc::new(Sessions {
            pools: ArcSwap::from_pointee(pools),
            hosts,
            carried: Mutex::default(),
            clients: watch::Sender::new(0),
            room: Room::default(),
            traffic: Arc::default(),
            left_out: AtomicU64::new(0),
            spent: Mutex::default(),
            farewells: broadcast::Sender::new(FAREWELLS_MAX),
        });
        for (pool, region) in sessions.pools.load().iter().zip(0..) {
            tokio::spawn(heed(Arc::downgrade(&sessions), region, Arc::clone(pool)));
        }
        sessions
    }

    /// The pool says that a session has ended. Its browser may say so itself, now or never: a host
    /// that stands still says nothing.
    fn ended(&self, session: SessionId, reason: CloseReason) {
        let carried = self.carried().get(&session).cloned();
        if let Some(carried) = carried {
            if let Some(pipe) = carried.pipe.get() {
                pipe.end_with(farewell(reason));
            }
            carried.cut.cut();
        }
    }

    /// Sessions that end from now on, each a moment after it did: its browser is to be gone first.
    #[must_use]
    pub fn farewells(&self) -> broadcast::Receiver<Farewell> {
        self.farewells.subscribe()
    }

    /// Gathers what a session took and tells who listens.
    async fn bid_farewell(self: Arc<Self>, region: u16, over: Over) {
        let view = self.pool(region).session(over.session).await;
        let view = view.ok().flatten();
        let took = match &view {
            Some(view) => self.hosts.took(view.browser).await,
            None => None,
        };
        let spent = self.spent().remove(&over.session);
        let farewell = Farewell {
            region,
            session: over.session,
            view,
            account: over.account,
            reason: over.reason,
            billed: over.billed,
            carried: spent.map_or((0, 0), |spent| spent.told()),
            took,
        };
        // Nobody may be listening.
        let _ = self.farewells.send(farewell);
    }

    fn spent(&self) -> MutexGuard<'_, HashMap<SessionId, Arc<Traffic>>> {
        self.spent.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Bytes to browsers and from them, since this began.
    #[must_use]
    pub fn traffic(&self) -> (u64, u64) {
        self.traffic.told()
    }

    /// Messages that were left out because their client takes none so long, of connections to
    /// browsers that are over.
    #[must_use]
    pub fn left_out(&self) -> u64 {
        self.left_out.load(Ordering::Relaxed)
    }

    /// Clients that are connected to a session through this process.
    #[must_use]
    pub fn clients_of(&self, session: SessionId) -> usize {
        let carried = self.carried();
        let pipe = carried.get(&session).and_then(|it| it.pipe.get());
        pipe.map_or(0, Session::clients)
    }

    /// Looks up what was missed.
    async fn look_again(&self, pool: &dyn Pool) {
        let carried: Vec<SessionId> = self.carried().keys().copied().collect();
        // Their ends were told to nobody.
        self.spent().retain(|session, _| carried.contains(session));
        for session in carried {
            // What cannot be looked up now ends by its browser, or with the next news.
            if let Ok(Some(view)) = pool.session(session).await
                && let Some((_, reason)) = view.ended
            {
                self.ended(session, reason);
            }
        }
    }

    /// Finds sessions in another pool, too. Has to be called on the runtime that its tasks run on.
    pub fn add(self: &Arc<Self>, pool: Arc<dyn Pool>) {
        let before = self.pools.rcu(|pools| {
            let mut pools = Vec::clone(pools);
            pools.push(Arc::clone(&pool));
            pools
        });
        let region = before.len() as u16;
        tokio::spawn(heed(Arc::downgrade(self), region, pool));
    }

    /// How many clients are connected here.
    #[must_use]
    pub fn clients(&self) -> usize {
        *self.clients.borrow()
    }

    /// Waits until no client is.
    pub async fn quiet(&self) {
        let mut clients = self.clients.subscribe();
        // The sender is ours.
        let _ended = clients.wait_for(|count| *count == 0).await;
    }

    /// Where hosts are found.
    pub(crate) fn hosts(&self) -> &Arc<Hosts> {
        &self.hosts
    }

    /// The pools, the home of accounts first.
    pub(crate) fn pools(&self) -> Arc<Vec<Arc<dyn Pool>>> {
        self.pools.load_full()
    }

    fn carried(&self) -> MutexGuard<'_, HashMap<SessionId, Arc<Carried>>> {
        self.carried.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A session of the account, alive or remembered.
    pub(crate) async fn find(
        &self,
        account: Id,
        session: SessionId,
    ) -> Result<(u16, SessionView), Missing> {
        let mut unanswered = None;
        for (pool, region) in self.pools().iter().zip(0..) {
            match pool.session(session).await {
                // A browser that draws one page is nobody's to talk to.
                Ok(Some(view)) if view.account == account && view.class == Class::Session => {
                    return Ok((region, view));
                }
                Ok(_) => {}
                Err(error) => unanswered = Some(error),
            }
        }
        Err(unanswered.map_or(Missing::Unknown, Missing::Pool))
    }

    /// Connects a client that takes messages of at most `limit` bytes. `alone`: it is an older one,
    /// of which a session has one at a time.
    pub(crate) async fn join(
        self: &Arc<Self>,
        account: Id,
        session: SessionId,
        part: Part,
        gate: Gate,
        limit: usize,
        alone: bool,
    ) -> Result<Joined, Missing> {
        let (place, carried, pipe) = self.open(account, session).await?;
        if alone && carried.alone.swap(true, Ordering::AcqRel) {
            return Err(Missing::Taken);
        }
        let joining = timeout(ANSWER_MAX, pipe.join(part, gate, limit)).await;
        let line = match joining {
            Ok(Ok(line)) => line,
            refused => {
                if alone {
                    carried.alone.store(false, Ordering::Release);
                }
                return Err(match refused {
                    Ok(Err(JoinFault::Ended)) => Missing::Unknown,
                    Ok(Err(fault)) => fault.into(),
                    Ok(Ok(_)) | Err(_) => Missing::Silent,
                });
            }
        };
        let counted = Counted::one(&self.clients);
        let mut clients = carried.clients.lock().await;
        *clients += 1;
        self.tell(place, Some(ConnectionId(chance::name()))).await;
        drop(clients);
        Ok(Joined {
            line,
            place,
            carried,
            alone,
            counted,
        })
    }

    /// Asks the browser one thing, beside all connections. Its answer, result or fault.
    pub(crate) async fn ask(
        self: &Arc<Self>,
        account: Id,
        session: SessionId,
        method: &'static str,
        params: Value,
    ) -> Result<Value, Missing> {
        let (_, _, pipe) = self.open(account, session).await?;
        let answer = timeout(ANSWER_MAX, pipe.ask(method, params)).await;
        let answer = answer.map_err(|_| Missing::Silent)?;
        let answer = answer.ok_or(Missing::Unknown)?;
        // Browsers write nothing else.
        serde_json::from_slice(&answer).map_err(|_| Missing::Silent)
    }

    /// The connection to the browser of a live session.
    async fn open(
        self: &Arc<Self>,
        account: Id,
        session: SessionId,
    ) -> Result<(Place, Arc<Carried>, Session), Missing> {
        let (region, view) = self.find(account, session).await?;
        if view.ended.is_some() {
            return Err(Missing::Unknown);
        }
        let place = Place::of(region, &view);
        let carried = Arc::clone(self.carried().entry(session).or_default());
        let carry = || self.carry(place, Arc::clone(&carried.cut));
        let pipe = carried.pipe.get_or_try_init(carry).await;
        match pipe.cloned() {
            Ok(pipe) => Ok((place, carried, pipe)),
            Err(missing) => {
                self.forget(session, &carried);
                Err(missing)
            }
        }
    }

    /// A client has gone.
    pub(crate) async fn left(&self, left: Left) {
        if left.alone {
            left.carried.alone.store(false, Ordering::Release);
        }
        let mut clients = left.carried.clients.lock().await;
        *clients -= 1;
        if *clients == 0 {
            self.tell(left.place, None).await;
        }
    }

    async fn tell(&self, place: Place, connection: Option<ConnectionId>) {
        let pool = self.pool(place.region);
        if let Err(error) = pool.connected(place.session, connection).await {
            // It is only shown: what keeps a session are its commands.
            tracing::debug!(%error, session = ?place.session, "a connection is not in the pool");
        }
    }

    fn pool(&self, region: u16) -> Arc<dyn Pool> {
        Arc::clone(&self.pools()[usize::from(region)])
    }

    /// Connects to the browser.
    async fn carry(self: &Arc<Self>, place: Place, cut: Arc<Cut>) -> Result<Session, Missing> {
        let mut ending = self.hosts.ending(place.region, place.browser);
        let picked = Picked {
            browser: place.browser,
            node: place.node,
            epoch: place.epoch,
            session: place.session,
        };
        let stream = self.hosts.pipe(place.region, &picked).await;
        let (stream, policy) = stream.map_err(|fault| {
            tracing::debug!(%fault, session = ?place.session, "a session cannot be connected to");
            self.hosts.forget(place.browser);
            Missing::Unknown
        })?;
        let session = Arc::new(std::sync::OnceLock::<Session>::new());
        let told = Arc::clone(&session);
        let cause = async move {
            let cause = timeout(CAUSE_MAX, ending.wait_for(Option::is_some)).await;
            let cause = cause.ok().and_then(Result::ok).and_then(|cause| *cause);
            if let Some(session) = told.get() {
                session.end_with(farewell(cause.unwrap_or(CloseReason::ConnectionError)));
            }
        };
        let traffic = Arc::new(Traffic::default());
        self.spent().insert(place.session, Arc::clone(&traffic));
        let pipe = Pipe {
            stream,
            traffic: [Arc::clone(&self.traffic), traffic],
            cut,
            cause: Some(Box::pin(cause)),
        };
        let terms = Terms {
            service: service(place.session),
            reach: reach(&policy),
            room: self.room.clone(),
        };
        let (carried, carrying) = Session::new(pipe, terms);
        let _ = session.set(carried.clone());
        let all = Arc::clone(self);
        let over = carried.clone();
        tokio::spawn(async move {
            let ended = carrying.await;
            all.left_out.fetch_add(over.left_out(), Ordering::Relaxed);
            drop(over);
            // Until it is known everywhere, whoever comes finds a session that has ended.
            if ended == Ended::Closed {
                all.end(place, CloseReason::NormalClosure).await;
            }
            all.carried().remove(&place.session);
            all.hosts.forget(place.browser);
        });
        Ok(carried)
    }

    fn forget(&self, session: SessionId, carried: &Arc<Carried>) {
        let mut all = self.carried();
        if all
            .get(&session)
            .is_some_and(|known| Arc::ptr_eq(known, carried))
        {
            all.remove(&session);
        }
    }

    /// Ends a session; whether that was still to be done.
    pub(crate) async fn close(&self, account: Id, session: SessionId) -> Result<bool, Missing> {
        let (region, view) = self.find(account, session).await?;
        if view.ended.is_some() {
            return Ok(false);
        }
        let carried = self.carried().get(&session).cloned();
        if let Some(pipe) = carried.as_ref().and_then(|carried| carried.pipe.get()) {
            pipe.end_with(farewell(CloseReason::NormalClosure));
        }
        self.end(Place::of(region, &view), CloseReason::NormalClosure)
            .await;
        Ok(true)
    }

    /// Ends a browser, in the pool first: nobody is to find it any more.
    async fn end(&self, place: Place, reason: CloseReason) {
        let pool = self.pool(place.region);
        if let Err(error) = pool.close(place.browser, place.epoch, reason).await {
            tracing::warn!(%error, session = ?place.session, "the end of a session is not in the pool");
        }
        let of = (place.browser, place.epoch);
        let closed = self.hosts.close(place.region, place.node, of, reason);
        if let Err(fault) = closed.await {
            tracing::debug!(%fault, session = ?place.session, "a browser was not ended at its node");
        }
    }
}

fn farewell(reason: CloseReason) -> Close {
    let text = match reason {
        CloseReason::NormalClosure => "",
        reason => reason.as_str(),
    };
    Close {
        code: reason.close_code(),
        reason: text.to_owned(),
    }
}

/// The hosts that a session with this policy may reach; `None`: all. The proxy holds it to them, and
/// what it cannot understand lets nobody out.
fn reach(policy: &Value) -> Option<Reach> {
    let guardrails = match policy {
        Value::Null => None,
        policy => match Policy::read(&policy.to_string()) {
            Ok(policy) => policy.guardrails,
            Err(_) => Some(Guardrails::default()),
        },
    };
    guardrails.map(|guardrails| Reach::new(move |host| guardrails.allow(host)))
}

/// Ends what the pool says has ended, for as long as there are sessions.
async fn heed(sessions: Weak<Sessions>, region: u16, pool: Arc<dyn Pool>) {
    let mut news = pool.news();
    loop {
        let told = news.recv().await;
        let Some(sessions) = sessions.upgrade() else {
            return;
        };
        match told {
            Ok(News::Ended(ended)) => {
                sessions.ended(ended.session, ended.reason);
                if ended.class == Class::Session {
                    tokio::spawn(sessions.bid_farewell(region, ended));
                }
            }
            Ok(News::Ready { .. } | News::Disowned { .. }) => {}
            Err(RecvError::Lagged(_)) => sessions.look_again(&*pool).await,
            Err(RecvError::Closed) => return,
        }
    }
}

/// Answers what is not the browser's to answer.
fn service(session: SessionId) -> usher_cdp::session::Service {
    Arc::new(move |asked: Asked| -> Body {
        let body = match asked.method.as_str() {
            "Cloudflare.getSessionId" => {
                let result = json!({"sessionId": crate::wire::uuid(session.0)});
                format!(r#""result":{result}"#)
            }
            method => {
                let error = json!({"code": -32601, "message": format!("'{method}' wasn't found")});
                format!(r#""error":{error}"#)
            }
        };
        Box::pin(async move { body })
    })
}

/// A browser's pipe, whose end waits for its cause: clients are told both together.
struct Pipe {
    stream: UnixStream,
    /// Of all, and its own.
    traffic: [Arc<Traffic>; 2],
    cut: Arc<Cut>,
    cause: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
}

impl AsyncRead for Pipe {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.cut.is_cut(context) {
            return Poll::Ready(Ok(()));
        }
        let before = buffer.filled().len();
        let read = ready!(Pin::new(&mut self.stream).poll_read(context, buffer));
        let len = buffer.filled().len() - before;
        if read.is_ok() && len > 0 {
            for traffic in &self.traffic {
                traffic
                    .from_browser
                    .fetch_add(len as u64, Ordering::Relaxed);
            }
            return Poll::Ready(read);
        }
        if let Some(cause) = &mut self.cause {
            ready!(cause.as_mut().poll(context));
            self.cause = None;
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Pipe {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match ready!(Pin::new(&mut self.stream).poll_write(context, bytes)) {
            // The end is told where it is read.
            Err(_) => Poll::Ready(Ok(bytes.len())),
            Ok(len) => {
                for traffic in &self.traffic {
                    traffic.to_browser.fetch_add(len as u64, Ordering::Relaxed);
                }
                Poll::Ready(Ok(len))
            }
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
