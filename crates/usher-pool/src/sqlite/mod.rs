//! The engine that needs nothing else: one SQLite database in one file for each region.
//!
//! One thread owns the only connection that writes, so that fifty brokers who ask at once wait for
//! each other's moment and never for a lock of the database. It is a thread and not a task because
//! a write here takes microseconds, less than it takes to hand a statement to another thread.
//!
//! What is only looked up is read through connections of their own.

mod accounts;
mod beats;
mod desk;
mod fault;
mod inbox;
mod lend;
mod lock;
mod nodes;
mod open;
mod read;
mod reap;
mod schema;
mod writer;

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use tokio::sync::{Semaphore, SemaphorePermit, broadcast, oneshot};
use tokio::time::timeout;
use usher_core::id::Id;
use usher_core::lease::beat::Heartbeat;
use usher_core::lease::browser::Phase;
use usher_core::lease::close::CloseReason;
use usher_core::lease::limits::Limits;
use usher_core::lease::refusal::Refusal;
use usher_core::lease::region::{Denied, Ended, Picked, Reaped, Wish};
use usher_core::lease::{Boot, BrowserId, Epoch, NodeId, SessionId, Stock};

use crate::fault::{Fault, PoolError};
use crate::pool::{Answer, News, Pool};
use crate::settings::{Clock, Figures, JOBS_MAX, NEWS_MAX, Settings};
use crate::view::{
    AccountView, BrowserView, ConnectionId, Count, NodeView, Reconciled, SessionView,
};
use desk::{Desk, Keys};
use inbox::{Inbox, Job, Reply, Task};
use open::Database;
use read::Readers;
use writer::Writer;

/// A pool in a file.
pub struct Sqlite {
    place: Arc<str>,
    inbox: Arc<Inbox>,
    /// Places for questions.
    seats: Semaphore,
    readers: Arc<Readers>,
    clock: Clock,
    patience: Duration,
    news: broadcast::Sender<News>,
}

/// Whether a question is still done when whoever asked has left before it was begun.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Left {
    /// It is: it gives something back, or tells what has happened.
    Matters,
    /// It is not: it would take something for nobody.
    Drops,
}

impl Sqlite {
    /// Opens the pool in the file at `path`, which is made if it is not there; so is its folder.
    /// Waits for up to `patience` when another process still owns it.
    ///
    /// # Errors
    /// It cannot be opened, and is as it was.
    pub async fn open(
        path: &Path,
        settings: Settings,
        clock: Clock,
        patience: Duration,
    ) -> Result<Sqlite, PoolError> {
        let place: Arc<str> = path.display().to_string().into();
        let owned = path.to_owned();
        let opened = tokio::task::spawn_blocking(move || {
            let (database, connection) = Database::take(&owned, patience)?;
            let keys = Keys::load(&connection)?;
            Ok((database, connection, keys))
        });
        let opened = opened
            .await
            .unwrap_or_else(|error| Err(Fault::Internal(error.to_string())));
        let (database, connection, keys) = opened.map_err(|fault| fault.of(&place))?;
        let readers = Readers::new(database.path().to_owned());
        let inbox = Arc::new(Inbox::new(settings.beats));
        let news = broadcast::Sender::new(NEWS_MAX);
        let writer = Writer {
            place: Arc::clone(&place),
            database,
            connection: Some(connection),
            keys,
            inbox: Arc::clone(&inbox),
            clock: clock.clone(),
            settings,
            news: news.clone(),
            failing: false,
        };
        let thread = thread::Builder::new().name("usher-pool".to_owned());
        if let Err(error) = thread.spawn(move || writer.run()) {
            return Err(Fault::Io(format!("no thread can be started: {error}")).of(&place));
        }
        Ok(Sqlite {
            place,
            inbox,
            seats: Semaphore::new(JOBS_MAX),
            readers,
            clock,
            patience: settings.patience,
            news,
        })
    }

    /// Asks the writer, and waits for its answer.
    async fn ask<T, F>(&self, left: Left, op: F) -> Result<T, PoolError>
    where
        T: Send + 'static,
        F: FnOnce(&mut Desk<'_>) -> Result<T, Fault> + Send + 'static,
    {
        self.asked(left, op)
            .await
            .map_err(|fault| fault.of(&self.place))
    }

    async fn asked<T, F>(&self, left: Left, op: F) -> Result<T, Fault>
    where
        T: Send + 'static,
        F: FnOnce(&mut Desk<'_>) -> Result<T, Fault> + Send + 'static,
    {
        let since = Instant::now();
        let _seat = self.seat().await?;
        let (reply, answer) = oneshot::channel();
        let question = Question {
            since,
            left,
            op: Some(op),
            done: None,
            reply,
        };
        match self.inbox.put(Job::Task(Box::new(question))) {
            Ok(()) => answer.await.unwrap_or(Err(Fault::Closed)),
            Err(_) => Err(Fault::Closed),
        }
    }

    async fn seat(&self) -> Result<SemaphorePermit<'_>, Fault> {
        match timeout(self.patience, self.seats.acquire()).await {
            Ok(Ok(seat)) => Ok(seat),
            Ok(Err(_)) => Err(Fault::Closed),
            Err(_) => Err(Fault::Overloaded(JOBS_MAX)),
        }
    }

    async fn read<T: Send + 'static>(
        &self,
        read: impl FnOnce(&rusqlite::Connection) -> Result<T, Fault> + Send + 'static,
    ) -> Result<T, PoolError> {
        let answer = self.readers.ask(read).await;
        answer.map_err(|fault| fault.of(&self.place))
    }

    /// Something that only the writer does itself.
    async fn job(&self, job: impl FnOnce(Reply<()>) -> Job) -> Result<(), PoolError> {
        let (reply, answer) = oneshot::channel();
        let done = match self.inbox.put(job(reply)) {
            Ok(()) => answer.await.unwrap_or(Err(Fault::Closed)),
            Err(_) => Err(Fault::Closed),
        };
        done.map_err(|fault| fault.of(&self.place))
    }

    async fn reap_all(&self) -> Result<Reaped, PoolError> {
        let mut reaped = self.ask(Left::Matters, |desk| desk.reap_nodes()).await?;
        for phase in reap::HURRIED {
            let mut cursor = None;
            loop {
                let step = move |desk: &mut Desk<'_>| {
                    let mut found = Reaped {
                        gap: reaped.gap,
                        ..Reaped::default()
                    };
                    let next = desk.reap_phase(phase, &mut found, cursor)?;
                    Ok((found, next))
                };
                let (found, next) = self.ask(Left::Matters, step).await?;
                add(&mut reaped, found);
                cursor = next;
                if cursor.is_none() {
                    break;
                }
            }
        }
        let now = self.clock.now();
        let suspects = self
            .read(move |connection| reap::idle(connection, now))
            .await?;
        for suspects in suspects.chunks(reap::STEP) {
            let suspects = suspects.to_vec();
            let step = move |desk: &mut Desk<'_>| {
                let mut found = Reaped::default();
                desk.reap_idle(&suspects, &mut found)?;
                Ok(found)
            };
            let found = self.ask(Left::Matters, step).await?;
            add(&mut reaped, found);
        }
        while self.ask(Left::Matters, |desk| desk.forget()).await? {}
        Ok(reaped)
    }
}

fn add(reaped: &mut Reaped, found: Reaped) {
    reaped.ended.extend(found.ended);
    reaped.kills.extend(found.kills);
    reaped.quarantined.extend(found.quarantined);
}

/// One question and what became of it.
struct Question<T, F> {
    since: Instant,
    left: Left,
    op: Option<F>,
    done: Option<T>,
    reply: Reply<T>,
}

impl<T, F> Task for Question<T, F>
where
    T: Send,
    F: FnOnce(&mut Desk<'_>) -> Result<T, Fault> + Send,
{
    fn run(&mut self, desk: &mut Desk<'_>) -> Result<(), Fault> {
        if let Some(op) = self.op.take() {
            self.done = Some(op(desk)?);
        }
        Ok(())
    }

    fn settle(self: Box<Self>, kept: Result<(), Fault>) {
        let lost = || Fault::Internal("a question was not answered".to_owned());
        let Question { done, reply, .. } = *self;
        let _ = reply.send(kept.and_then(|()| done.ok_or_else(lost)));
    }

    fn since(&self) -> Instant {
        self.since
    }

    fn is_left(&self) -> bool {
        self.left == Left::Drops && self.reply.is_closed()
    }
}

impl Pool for Sqlite {
    fn place(&self) -> &str {
        &self.place
    }

    fn admit(
        &self,
        account: Id,
        limits: Limits,
        session: SessionId,
    ) -> Answer<'_, Result<(), Refusal>> {
        Box::pin(self.ask(Left::Drops, move |desk| {
            desk.admit(account, limits, session)
        }))
    }

    fn admit_quick_action(&self, account: Id, limits: Limits) -> Answer<'_, Result<(), Refusal>> {
        Box::pin(self.ask(Left::Drops, move |desk| {
            desk.admit_quick_action(account, limits)
        }))
    }

    fn refund_quick_action(&self, account: Id, limits: Limits) -> Answer<'_, ()> {
        Box::pin(self.ask(Left::Matters, move |desk| {
            desk.refund_quick_action(account, limits)
        }))
    }

    fn refund(&self, account: Id, limits: Limits, session: SessionId) -> Answer<'_, ()> {
        Box::pin(self.ask(Left::Matters, move |desk| {
            desk.refund(account, limits, session)
        }))
    }

    fn hand_on(
        &self,
        account: Id,
        limits: Limits,
        failed: SessionId,
        next: SessionId,
    ) -> Answer<'_, ()> {
        Box::pin(self.ask(Left::Matters, move |desk| {
            desk.hand_on(account, limits, failed, next)
        }))
    }

    fn confirm(&self, account: Id, limits: Limits, session: SessionId) -> Answer<'_, ()> {
        Box::pin(self.ask(Left::Matters, move |desk| {
            desk.confirm(account, limits, session)
        }))
    }

    fn release(&self, account: Id, session: SessionId, billed: Duration) -> Answer<'_, ()> {
        Box::pin(self.ask(Left::Matters, move |desk| {
            desk.release(account, session, billed)
        }))
    }

    fn spend(&self, account: Id, time: Duration) -> Answer<'_, ()> {
        Box::pin(self.ask(Left::Matters, move |desk| desk.spend(account, time)))
    }

    fn account(&self, account: Id, limits: Limits) -> Answer<'_, AccountView> {
        let now = self.clock.now();
        Box::pin(self.read(move |connection| accounts::view(connection, account, limits, now)))
    }

    fn pick(&self, wish: Wish, draw: u64) -> Answer<'_, Option<Picked>> {
        Box::pin(self.ask(Left::Drops, move |desk| desk.pick(wish, draw)))
    }

    fn acknowledge(&self, browser: BrowserId, epoch: Epoch) -> Answer<'_, Result<(), Denied>> {
        Box::pin(self.ask(Left::Matters, move |desk| desk.acknowledge(browser, epoch)))
    }

    fn close(
        &self,
        browser: BrowserId,
        epoch: Epoch,
        reason: CloseReason,
    ) -> Answer<'_, Result<Option<Ended>, Denied>> {
        Box::pin(self.ask(Left::Matters, move |desk| {
            desk.close(browser, epoch, reason)
        }))
    }

    fn evict(&self, browser: BrowserId, reason: CloseReason) -> Answer<'_, Option<Ended>> {
        Box::pin(self.ask(Left::Matters, move |desk| desk.evict(browser, reason)))
    }

    fn connected(&self, session: SessionId, connection: Option<ConnectionId>) -> Answer<'_, bool> {
        Box::pin(self.ask(Left::Matters, move |desk| {
            desk.connected(session, connection)
        }))
    }

    fn register(&self, name: &str, slots: u32) -> Answer<'_, (NodeId, Boot, Vec<Ended>)> {
        let name = name.to_owned();
        Box::pin(self.ask(Left::Matters, move |desk| desk.register(&name, slots)))
    }

    fn launch(
        &self,
        of: (NodeId, Boot),
        browser: BrowserId,
        stock: Stock,
        seq: u64,
    ) -> Answer<'_, Result<(), Denied>> {
        Box::pin(self.ask(Left::Matters, move |desk| {
            desk.launch(of, browser, stock, seq)
        }))
    }

    fn beats(&self, of: (NodeId, Boot), beats: &[Heartbeat]) {
        if !beats.is_empty() {
            return self.inbox.put_beats(of, beats);
        }
        let (reply, _) = oneshot::channel();
        let question = Question {
            since: Instant::now(),
            left: Left::Matters,
            op: Some(move |desk: &mut Desk<'_>| desk.hear_or_disown(of)),
            done: None,
            reply,
        };
        // As with all heartbeats, one that is lost is one that comes again.
        let _ = self.inbox.put(Job::Task(Box::new(question)));
    }

    fn flush(&self) -> Answer<'_, ()> {
        Box::pin(self.job(Job::Flush))
    }

    fn reconcile(
        &self,
        of: (NodeId, Boot),
        seq: u64,
        has: BTreeMap<BrowserId, (Phase, Epoch)>,
    ) -> Answer<'_, Result<Reconciled, Denied>> {
        Box::pin(self.ask(Left::Matters, move |desk| desk.reconcile(of, seq, &has)))
    }

    fn drain(&self, node: NodeId, draining: bool) -> Answer<'_, ()> {
        Box::pin(self.ask(Left::Matters, move |desk| desk.drain(node, draining)))
    }

    fn measure(&self, node: NodeId, distance: Duration) -> Answer<'_, ()> {
        Box::pin(self.ask(Left::Matters, move |desk| desk.measure(node, distance)))
    }

    fn reap(&self) -> Answer<'_, Reaped> {
        Box::pin(self.reap_all())
    }

    fn sessions(&self, account: Id) -> Answer<'_, Vec<SessionView>> {
        Box::pin(self.read(move |connection| read::live(connection, account)))
    }

    fn live(&self, limit: u32) -> Answer<'_, Vec<SessionView>> {
        Box::pin(self.read(move |connection| read::live_of_all(connection, limit)))
    }

    fn history(&self, account: Id, offset: u32, limit: u32) -> Answer<'_, Vec<SessionView>> {
        Box::pin(self.read(move |connection| read::history(connection, account, offset, limit)))
    }

    fn session(&self, session: SessionId) -> Answer<'_, Option<SessionView>> {
        Box::pin(self.read(move |connection| read::one(connection, session)))
    }

    fn nodes(&self) -> Answer<'_, Vec<NodeView>> {
        Box::pin(self.read(read::nodes))
    }

    fn browsers(&self, node: NodeId, offset: u32) -> Answer<'_, Vec<BrowserView>> {
        Box::pin(self.read(move |connection| read::browsers(connection, node, offset)))
    }

    fn counts(&self) -> Answer<'_, Vec<Count>> {
        Box::pin(self.read(read::counts))
    }

    fn figures(&self) -> Figures {
        self.inbox.figures()
    }

    fn news(&self) -> broadcast::Receiver<News> {
        self.news.subscribe()
    }

    fn stop(&self) -> Answer<'_, ()> {
        Box::pin(async move {
            self.readers.close();
            match self.job(Job::Stop).await {
                Err(error) if error.fault == Fault::Closed => Ok(()),
                stopped => stopped,
            }
        })
    }
}

impl Drop for Sqlite {
    /// Whoever forgot to stop it leaves no thread behind.
    fn drop(&mut self) {
        let (reply, _) = oneshot::channel();
        let _ = self.inbox.put(Job::Stop(reply));
    }
}

impl fmt::Debug for Sqlite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sqlite")
            .field("place", &self.place)
            .finish_non_exhaustive()
    }
}
