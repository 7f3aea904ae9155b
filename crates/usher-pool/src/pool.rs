//! What every engine promises.
//!
//! Questions may be asked by fifty brokers at once and again by each that heard no answer. Whoever
//! stops waiting for a pick or an admission before it was begun gets none.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use tokio::sync::broadcast;
use usher_core::id::Id;
use usher_core::lease::beat::Heartbeat;
use usher_core::lease::browser::Phase;
use usher_core::lease::close::CloseReason;
use usher_core::lease::limits::Limits;
use usher_core::lease::refusal::Refusal;
use usher_core::lease::region::{Denied, Ended, Picked, Reaped, Wish};
use usher_core::lease::{Boot, BrowserId, Epoch, NodeId, SessionId, Stock};

use crate::fault::PoolError;
use crate::settings::Figures;
use crate::view::{
    AccountView, BrowserView, ConnectionId, Count, NodeView, Reconciled, SessionView,
};

/// What a pool answers, some time later.
pub type Answer<'a, T> = Pin<Box<dyn Future<Output = Result<T, PoolError>> + Send + 'a>>;

/// What happened, for whoever did not ask. Told after it is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum News {
    /// A session ended, whoever ended it.
    Ended(Ended),
    /// So many browsers have become ready.
    Ready {
        /// Of this stock.
        stock: Stock,
        /// So many.
        count: u32,
    },
    /// What this start of a node's agent said counts for nothing: it must begin anew.
    Disowned {
        /// The node.
        node: NodeId,
        /// The start.
        boot: Boot,
    },
}

/// The pool of one region, and the home of the accounts that are admitted by it.
///
/// A session counts for its account from [`Pool::admit`]: as a claim that runs out by itself, and
/// as long as it lives in this pool. Where an account's home and the region are two pools, whoever
/// leads the session carries [`Pool::confirm`] and [`Pool::release`] to its home.
pub trait Pool: Send + Sync {
    /// Where it is, for people.
    fn place(&self) -> &str;

    // The limits of accounts.

    /// Charges one new session to its account. A repeat costs nothing. The limits are those of now.
    fn admit(
        &self,
        account: Id,
        limits: Limits,
        session: SessionId,
    ) -> Answer<'_, Result<(), Refusal>>;

    /// Charges one quick action.
    fn admit_quick_action(&self, account: Id, limits: Limits) -> Answer<'_, Result<(), Refusal>>;

    /// A quick action that was admitted got no browser: it is paid back. Nothing tells a repeat from
    /// another one, so it is asked for once.
    fn refund_quick_action(&self, account: Id, limits: Limits) -> Answer<'_, ()>;

    /// A session that was admitted got no browser: it is paid back.
    fn refund(&self, account: Id, limits: Limits, session: SessionId) -> Answer<'_, ()>;

    /// The browser of `failed` never came to be handed over; `next` takes the place that was paid.
    fn hand_on(
        &self,
        account: Id,
        limits: Limits,
        failed: SessionId,
        next: SessionId,
    ) -> Answer<'_, ()>;

    /// A session in another pool lives. At most every 30 s, and at least every 60 s.
    fn confirm(&self, account: Id, limits: Limits, session: SessionId) -> Answer<'_, ()>;

    /// A session in another pool ended, or one that was admitted will not be; `billed` counts.
    fn release(&self, account: Id, session: SessionId, billed: Duration) -> Answer<'_, ()>;

    /// Counts time of a quick action.
    fn spend(&self, account: Id, time: Duration) -> Answer<'_, ()>;

    /// What an account has.
    fn account(&self, account: Id, limits: Limits) -> Answer<'_, AccountView>;

    // Browsers lent out.

    /// Gives a browser away; `None` when nothing is ready. A repeat of a wish gets what it got
    /// before. `draw` is 64 random bits, which spread heat over nodes.
    fn pick(&self, wish: Wish, draw: u64) -> Answer<'_, Option<Picked>>;

    /// The node has prepared the browser: its session begins.
    fn acknowledge(&self, browser: BrowserId, epoch: Epoch) -> Answer<'_, Result<(), Denied>>;

    /// The holder gives the browser up. Answers the session that ended with it, unless it had.
    fn close(
        &self,
        browser: BrowserId,
        epoch: Epoch,
        reason: CloseReason,
    ) -> Answer<'_, Result<Option<Ended>, Denied>>;

    /// Takes a browser away from whoever has it.
    fn evict(&self, browser: BrowserId, reason: CloseReason) -> Answer<'_, Option<Ended>>;

    /// A client has connected to a session, or the last one has gone (`None`). Says whether the
    /// session lives.
    fn connected(&self, session: SessionId, connection: Option<ConnectionId>) -> Answer<'_, bool>;

    // Nodes.

    /// A node's agent has started and has ended everything that it found. What an earlier start of
    /// it had is dead. A node that is new gets a number.
    fn register(&self, name: &str, slots: u32) -> Answer<'_, (NodeId, Boot, Vec<Ended>)>;

    /// A browser is about to be launched. A repeat changes nothing.
    fn launch(
        &self,
        of: (NodeId, Boot),
        browser: BrowserId,
        stock: Stock,
        seq: u64,
    ) -> Answer<'_, Result<(), Denied>>;

    /// Browsers say where they stand. Returns at once: they are gathered, and may be dropped; what
    /// comes of it is [`News`], and how it goes is in [`Pool::figures`]. A node without browsers
    /// says so by an empty list, or it is taken for dead.
    fn beats(&self, of: (NodeId, Boot), beats: &[Heartbeat]);

    /// All that was told by [`Pool::beats`] before is written.
    fn flush(&self) -> Answer<'_, ()>;

    /// A node says all that it has, `seq` being the number of that list. Answers what it must end.
    fn reconcile(
        &self,
        of: (NodeId, Boot),
        seq: u64,
        has: BTreeMap<BrowserId, (Phase, Epoch)>,
    ) -> Answer<'_, Result<Reconciled, Denied>>;

    /// A node gives no browsers any more, or does again. Sessions stay.
    fn drain(&self, node: NodeId, draining: bool) -> Answer<'_, ()>;

    /// How far a node is from the brokers; what probes say.
    fn measure(&self, node: NodeId, distance: Duration) -> Answer<'_, ()>;

    /// Looks everything over: ends what has said nothing for too long, forgets what is old. One at
    /// a time, every [`usher_core::lease::region::REAP_EVERY`].
    fn reap(&self) -> Answer<'_, Reaped>;

    // What is there.

    /// Live sessions of an account, newest first. Quick actions are none, here and in the history.
    fn sessions(&self, account: Id) -> Answer<'_, Vec<SessionView>>;

    /// Live sessions of all accounts, newest first: no more than `limit`.
    fn live(&self, limit: u32) -> Answer<'_, Vec<SessionView>>;

    /// Sessions of an account, live ones too, newest first: `limit` of them, after the first
    /// `offset`. No more than [`crate::HISTORY_PAGE_MAX`].
    fn history(&self, account: Id, offset: u32, limit: u32) -> Answer<'_, Vec<SessionView>>;

    /// One session or quick action, as long as it is remembered.
    fn session(&self, session: SessionId) -> Answer<'_, Option<SessionView>>;

    /// Every node, by number.
    fn nodes(&self) -> Answer<'_, Vec<NodeView>>;

    /// Browsers of a node, dead ones too, in the order of their launch: those after the first
    /// `offset`, no more than [`crate::HISTORY_PAGE_MAX`].
    fn browsers(&self, node: NodeId, offset: u32) -> Answer<'_, Vec<BrowserView>>;

    /// How many browsers stand where.
    fn counts(&self) -> Answer<'_, Vec<Count>>;

    /// How heartbeats fare.
    fn figures(&self) -> Figures;

    /// What happens from now on.
    fn news(&self) -> broadcast::Receiver<News>;

    /// Answers what was asked, writes what was told, and lets the next owner in. Stopping twice is
    /// stopping.
    fn stop(&self) -> Answer<'_, ()>;
}
