//! What a pool shows of its rows.

use std::fmt;
use std::time::Duration;

use usher_core::id::Id;
use usher_core::lease::browser::{Holder, Phase};
use usher_core::lease::close::CloseReason;
use usher_core::lease::line::Class;
use usher_core::lease::region::{Ended, Kill, Node};
use usher_core::lease::{BrowserId, Epoch, NodeId, SessionId, Stock};
use usher_core::time::Wall;

/// Entries of a history, or browsers of a node, in one answer.
pub const HISTORY_PAGE_MAX: u32 = 1_000;

/// One client's connection to a session. Drawn for each, never used again.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnectionId(pub u128);

impl fmt::Debug for ConnectionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:x}", self.0)
    }
}

/// The newest connection of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Connection {
    /// Which.
    pub id: ConnectionId,
    /// When it began.
    pub started: Wall,
    /// When it ended; `None` while there is one.
    pub ended: Option<Wall>,
}

/// A session, alive or in the history.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SessionView {
    /// Which.
    pub session: SessionId,
    /// Whose.
    pub account: Id,
    /// In which browser.
    pub browser: BrowserId,
    /// Where that runs, or ran.
    pub node: NodeId,
    /// By which lease.
    pub epoch: Epoch,
    /// What for; lists have sessions alone.
    pub class: Class,
    /// How long it may be idle.
    pub keep_alive: Duration,
    /// When it began.
    pub started: Wall,
    /// When it was last known to be in use.
    pub commanded: Wall,
    /// Its newest connection, if there ever was one.
    pub connection: Option<Connection>,
    /// When it ended, and why.
    pub ended: Option<(Wall, CloseReason)>,
}

/// What came of a node's list of what it has.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Reconciled {
    /// What it must end.
    pub kills: Vec<Kill>,
    /// Sessions of which it knows nothing any more.
    pub ended: Vec<Ended>,
}

/// What an account has and may have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AccountView {
    /// The sessions that count, by id.
    pub sessions: Vec<SessionId>,
    /// Browsers of this pool that it has for something else, quick actions.
    pub others: u32,
    /// How long until rate and time of the day let another one in; zero when they do.
    pub wait: Duration,
    /// Browser time of this UTC day.
    pub used: Duration,
}

/// A node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeView {
    /// Its number in this pool.
    pub id: NodeId,
    /// Its name.
    pub name: String,
    /// What is known of it.
    pub node: Node,
}

/// A browser.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BrowserView {
    /// Which.
    pub browser: BrowserId,
    /// Where.
    pub node: NodeId,
    /// What it is.
    pub stock: Stock,
    /// Where it stands.
    pub phase: Phase,
    /// How often it was promised or taken away.
    pub epoch: Epoch,
    /// Whose it is, or was.
    pub holder: Option<Holder>,
    /// Since when it is in its phase.
    pub since: Wall,
    /// When its row was made.
    pub started: Wall,
    /// The number of the newest thing that its node said of it.
    pub seq: u64,
    /// Memory, in KiB.
    pub mem_kib: u32,
}

/// How many browsers of one kind stand where, dead ones left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Count {
    /// On this node.
    pub node: NodeId,
    /// Of this stock.
    pub stock: Stock,
    /// In this phase.
    pub phase: Phase,
    /// So many.
    pub count: u32,
}
