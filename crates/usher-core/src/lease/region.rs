//! The pool of one region: its browsers, its sessions, its nodes.
//!
//! Rows in memory, changed one operation at a time. It says what every store must do: stores that
//! keep the same rows in tables are run beside it in their tests, and the simulator runs it while
//! everybody around it dies. Nothing here trusts a clock but the one that comes with each call, and
//! that one may jump.
//!
//! Source: browser specification 11.2 to 11.7.

mod reap;

use std::collections::BTreeMap;
use std::time::Duration;

use super::beat::Group;
use super::browser::{Effect, Event, Holder, Lease, Phase, State};
use super::close::CloseReason;
use super::line::Class;
use super::{Boot, BrowserId, Epoch, NodeId, RequestId, SessionId, Stock, pick};
use crate::id::Id;
use crate::time::Wall;

pub use reap::{GAP, REAP_EVERY, Reaped};

/// A node that was not heard of for longer gives no browsers.
pub const NODE_SUSPECT: Duration = Duration::from_secs(15);
/// A node that was not heard of for longer is dead, and its browsers with it. A heartbeat is written
/// up to a second after it was sent, and its absence noticed up to a second late: so its end is told
/// within 30 s of the last one, also where a machine is slow.
pub const NODE_DEAD: Duration = Duration::from_secs(25);
/// How much later than its node a session's idle end is noticed here; a second opinion.
pub const IDLE_MARGIN: Duration = Duration::from_secs(15);

/// A browser's row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Browser {
    /// Where it runs.
    pub node: NodeId,
    /// What it is.
    pub stock: Stock,
    /// Whose it is.
    pub lease: Lease,
    /// Since when it is in its state.
    pub since: Wall,
    /// The number of the newest thing that its node said of it.
    pub seq: u64,
    /// Memory, in KiB.
    pub mem_kib: u32,
    /// When its row was made.
    pub started: Wall,
}

/// A session's row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SessionRow {
    /// Whose.
    pub account: Id,
    /// In which browser.
    pub browser: BrowserId,
    /// By which lease.
    pub epoch: Epoch,
    /// Whose wish it fulfils: the request, and the number of the try.
    pub wish: (RequestId, u8),
    /// What for. Only a [`Class::Session`] is one to its account: all others hold a browser, and are
    /// neither shown nor counted.
    pub class: Class,
    /// How long it may be idle.
    pub keep_alive: Duration,
    /// When it began.
    pub started: Wall,
    /// When it was last known to be in use.
    pub commanded: Wall,
    /// When it ended, and why.
    pub ended: Option<(Wall, CloseReason)>,
}

/// A node's row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Node {
    /// The newest start of its agent.
    pub boot: Boot,
    /// Browsers that it has room for.
    pub slots: u32,
    /// When it was last heard of.
    pub heard: Wall,
    /// How far it is, from the brokers.
    pub distance: Duration,
    /// Gives no browsers any more: an operator said so.
    pub draining: bool,
    /// Gives no browsers, because it could not end one.
    pub quarantined: bool,
    /// Was taken for dead; what its agent says counts for nothing until it begins anew.
    pub lost: bool,
}

/// What somebody wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wish {
    /// The request, the same for every repeat of it.
    pub request: RequestId,
    /// Which browser of that request: 0, and one more for each that could not be handed over.
    pub attempt: u8,
    /// The name for the session, if there is to be one.
    pub session: SessionId,
    /// For whom.
    pub account: Id,
    /// Of what.
    pub stock: Stock,
    /// What for.
    pub class: Class,
    /// How long it may be idle.
    pub keep_alive: Duration,
}

/// A browser that was promised.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Picked {
    /// Which.
    pub browser: BrowserId,
    /// Where.
    pub node: NodeId,
    /// By which lease.
    pub epoch: Epoch,
    /// To which session; of a repeat, the first one's.
    pub session: SessionId,
}

/// A session that ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ended {
    /// Which.
    pub session: SessionId,
    /// Whose.
    pub account: Id,
    /// What it was for.
    pub class: Class,
    /// Why.
    pub reason: CloseReason,
    /// The time that counts for the account. Zero but for a [`Class::Session`]: what a quick action
    /// costs is known to whoever leads it, because one that ran out of time costs nothing.
    pub billed: Duration,
}

/// What a node must end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Kill {
    /// Where.
    pub node: NodeId,
    /// Which.
    pub browser: BrowserId,
    /// In the name of this lease.
    pub epoch: Epoch,
}

/// Why an operation was not done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Denied {
    /// The agent has to begin anew: it was taken for dead, or another start of it is newer.
    #[error("node {0:?} has to register")]
    StaleBoot(NodeId),
    /// The node has as many browsers as it has room for.
    #[error("node {node:?} has no room: {slots} slots are taken")]
    NoRoom {
        /// The node.
        node: NodeId,
        /// Its slots.
        slots: u32,
    },
    /// There is none, or it is not the caller's (any more).
    #[error("browser {0:?} is not held by this lease")]
    NotHeld(BrowserId),
}

/// The pool of one region.
#[derive(Debug, Clone, Default)]
pub struct Region {
    browsers: BTreeMap<BrowserId, Browser>,
    sessions: BTreeMap<SessionId, SessionRow>,
    wishes: BTreeMap<(RequestId, u8), SessionId>,
    nodes: BTreeMap<NodeId, Node>,
    reaped: Option<Wall>,
}

impl Region {
    /// A node's agent has started and has ended everything that it found. What an earlier start of
    /// it had is dead.
    pub fn register(&mut self, node: NodeId, slots: u32, now: Wall) -> (Boot, Vec<Ended>) {
        let ended = self.bury(node, CloseReason::ConnectionError, now);
        let known = self.nodes.get(&node).copied();
        let boot = Boot(known.map_or(0, |known| known.boot.0).saturating_add(1));
        let row = Node {
            boot,
            slots,
            heard: now,
            distance: known.map_or(Duration::ZERO, |known| known.distance),
            draining: known.is_some_and(|known| known.draining),
            quarantined: false,
            lost: false,
        };
        self.nodes.insert(node, row);
        (boot, ended)
    }

    /// Everything of a node is gone.
    fn bury(&mut self, node: NodeId, reason: CloseReason, now: Wall) -> Vec<Ended> {
        let of_node = |(&id, browser): (&BrowserId, &Browser)| (browser.node == node).then_some(id);
        let ids: Vec<BrowserId> = self.browsers.iter().filter_map(of_node).collect();
        let buried = ids.into_iter();
        buried
            .filter_map(|id| self.happen(id, Event::Gone, reason, now).1)
            .collect()
    }

    fn known(&self, node: NodeId, boot: Boot) -> Result<&Node, Denied> {
        let known = self.nodes.get(&node);
        known
            .filter(|known| known.boot == boot && !known.lost)
            .ok_or(Denied::StaleBoot(node))
    }

    /// A browser is about to be launched. A repeat changes nothing.
    ///
    /// # Errors
    /// [`Denied::StaleBoot`], [`Denied::NoRoom`].
    pub fn launch(
        &mut self,
        (node, boot): (NodeId, Boot),
        id: BrowserId,
        stock: Stock,
        seq: u64,
        now: Wall,
    ) -> Result<(), Denied> {
        let slots = self.known(node, boot)?.slots;
        if self.browsers.contains_key(&id) {
            return Ok(());
        }
        if self.taken(node) >= slots {
            return Err(Denied::NoRoom { node, slots });
        }
        let row = Browser {
            node,
            stock,
            lease: Lease::NEW,
            since: now,
            seq,
            mem_kib: 0,
            started: now,
        };
        self.browsers.insert(id, row);
        Ok(())
    }

    /// Slots of a node that something takes, ready, starting and closing browsers included.
    #[must_use]
    pub fn taken(&self, node: NodeId) -> u32 {
        let takes =
            |browser: &&Browser| browser.node == node && browser.lease.state.phase() != Phase::Dead;
        self.browsers.values().filter(takes).count() as u32
    }

    /// The browsers that could be given away now, with their distance.
    pub fn ready(&self, stock: Stock, now: Wall) -> impl Iterator<Item = (BrowserId, Duration)> {
        self.browsers.iter().filter_map(move |(&id, browser)| {
            let node = self.nodes.get(&browser.node)?;
            let gives = !node.draining
                && !node.quarantined
                && !node.lost
                && now.since(node.heard) <= NODE_SUSPECT;
            let fits = browser.stock == stock && browser.lease.state == State::Ready;
            (gives && fits).then_some((id, node.distance))
        })
    }

    /// Gives a browser away: choosing and marking are one step. A repeat of a wish gets what it got
    /// before. `None` when nothing is ready.
    pub fn pick(&mut self, wish: Wish, now: Wall, draw: u64) -> Option<Picked> {
        let key = (wish.request, wish.attempt);
        if let Some(&session) = self.wishes.get(&key) {
            let row = self.sessions.get(&session)?;
            let node = self.browsers.get(&row.browser)?.node;
            return Some(Picked {
                browser: row.browser,
                node,
                epoch: row.epoch,
                session,
            });
        }
        if self.sessions.contains_key(&wish.session) {
            return None;
        }
        let browser = pick::choose(self.ready(wish.stock, now), draw)?;
        let holder = Holder {
            session: wish.session,
            account: wish.account,
        };
        let (effect, _) = self.happen(browser, Event::Pick(holder), CloseReason::Unknown, now);
        let row = self
            .browsers
            .get(&browser)
            .filter(|_| effect == Effect::Moved)?;
        let (node, epoch) = (row.node, row.lease.epoch);
        let session = SessionRow {
            account: wish.account,
            browser,
            epoch,
            wish: key,
            class: wish.class,
            keep_alive: wish.keep_alive,
            started: now,
            commanded: now,
            ended: None,
        };
        self.sessions.insert(wish.session, session);
        self.wishes.insert(key, wish.session);
        Some(Picked {
            browser,
            node,
            epoch,
            session: wish.session,
        })
    }

    /// The node has prepared the browser: its session begins.
    ///
    /// # Errors
    /// [`Denied::NotHeld`] when it was taken away meanwhile.
    pub fn acknowledge(&mut self, id: BrowserId, epoch: Epoch, now: Wall) -> Result<(), Denied> {
        match self
            .happen(id, Event::Acknowledged { epoch }, CloseReason::Unknown, now)
            .0
        {
            Effect::Refused => Err(Denied::NotHeld(id)),
            Effect::Nothing | Effect::Moved | Effect::Ended(_) => Ok(()),
        }
    }

    /// The holder gives the browser up. The session that ended with it, unless it had already.
    ///
    /// # Errors
    /// [`Denied::NotHeld`] when it is not the holder.
    pub fn close(
        &mut self,
        id: BrowserId,
        epoch: Epoch,
        reason: CloseReason,
        now: Wall,
    ) -> Result<Option<Ended>, Denied> {
        match self.happen(id, Event::Close { epoch }, reason, now) {
            (Effect::Refused, _) => Err(Denied::NotHeld(id)),
            (_, ended) => Ok(ended),
        }
    }

    /// Takes a browser away from whoever has it.
    pub fn evict(&mut self, id: BrowserId, reason: CloseReason, now: Wall) -> Option<Ended> {
        self.happen(id, Event::Force, reason, now).1
    }

    /// A node gives no browsers any more, or does again. Sessions stay.
    pub fn drain(&mut self, node: NodeId, draining: bool) {
        if let Some(node) = self.nodes.get_mut(&node) {
            node.draining = draining;
        }
    }

    /// Browsers say where they stand. Sessions that live are in the first list, for their slots; what
    /// has none is not.
    ///
    /// # Errors
    /// [`Denied::StaleBoot`]: nothing of it counts.
    pub fn heartbeats(
        &mut self,
        group: &Group,
        now: Wall,
    ) -> Result<(Vec<Holder>, Vec<Ended>), Denied> {
        self.known(group.node, group.boot)?;
        self.hear(group.node, now);
        let (mut alive, mut ended) = (Vec::new(), Vec::new());
        for beat in &group.beats {
            let Some(row) = self.browsers.get_mut(&beat.browser) else {
                continue;
            };
            if row.node != group.node || beat.seq <= row.seq {
                continue;
            }
            (row.seq, row.mem_kib) = (beat.seq, beat.mem_kib);
            let event = Event::Reported {
                phase: beat.phase,
                epoch: beat.epoch,
            };
            let (_, end) = self.happen(beat.browser, event, beat.reason, now);
            ended.extend(end);
            let state = self.browsers[&beat.browser].lease.state;
            if let State::InUse(holder) = state
                && let Some(session) = self.sessions.get_mut(&holder.session)
            {
                if session.class == Class::Session {
                    alive.push(holder);
                }
                let quiet = i64::try_from(beat.quiet.as_millis()).unwrap_or(i64::MAX);
                let commanded = Wall::from_millis(now.as_millis().saturating_sub(quiet));
                session.commanded = session.commanded.max(commanded);
            }
        }
        Ok((alive, ended))
    }

    fn hear(&mut self, node: NodeId, now: Wall) {
        if let Some(node) = self.nodes.get_mut(&node) {
            node.heard = now;
        }
    }

    /// A node says all that it has, `seq` being the number of that list. What it must end is the
    /// answer; what it does not have is dead here.
    ///
    /// # Errors
    /// [`Denied::StaleBoot`]: it must end everything and begin anew.
    pub fn reconcile(
        &mut self,
        (node, boot): (NodeId, Boot),
        seq: u64,
        has: &BTreeMap<BrowserId, (Phase, Epoch)>,
        now: Wall,
    ) -> Result<(Vec<Kill>, Vec<Ended>), Denied> {
        self.known(node, boot)?;
        self.hear(node, now);
        let missing = |(&id, browser): (&BrowserId, &Browser)| {
            // What was said of it after the list was made says more than the list.
            let gone = browser.node == node && browser.seq < seq && !has.contains_key(&id);
            gone.then_some(id)
        };
        let missing: Vec<BrowserId> = self.browsers.iter().filter_map(missing).collect();
        let ended = missing
            .into_iter()
            .filter_map(|id| {
                self.happen(id, Event::Gone, CloseReason::ChromiumCrashed, now)
                    .1
            })
            .collect();
        let kill = |(&browser, &(phase, epoch)): (&BrowserId, &(Phase, Epoch))| {
            let row = self.browsers.get(&browser).filter(|row| row.node == node);
            let lease = row.map(|row| row.lease);
            // A lease that the list knows nothing of is younger than the list, not a reason.
            let wanted = lease.is_some_and(|lease| lease.state.phase() < Phase::Closing);
            let kill = Kill {
                node,
                browser,
                epoch: lease.map_or(epoch, |lease| lease.epoch.max(epoch)),
            };
            (!wanted && phase < Phase::Closing).then_some(kill)
        };
        let kills = has.iter().filter_map(kill).collect();
        Ok((kills, ended))
    }

    /// The one place where a row moves; the session that ended with it.
    fn happen(
        &mut self,
        id: BrowserId,
        event: Event,
        reason: CloseReason,
        now: Wall,
    ) -> (Effect, Option<Ended>) {
        let Some(row) = self.browsers.get_mut(&id) else {
            return (Effect::Refused, None);
        };
        let (lease, effect) = row.lease.next(event);
        if lease.state.phase() != row.lease.state.phase() {
            row.since = now;
        }
        row.lease = lease;
        let Effect::Ended(Holder { session, account }) = effect else {
            return (effect, None);
        };
        let Some(row) = self.sessions.get_mut(&session) else {
            return (effect, None);
        };
        row.ended = Some((now, reason));
        let time = now.since(row.started);
        let ended = Ended {
            session,
            account,
            class: row.class,
            reason,
            billed: if reason.is_billed() && row.class == Class::Session {
                time
            } else {
                Duration::ZERO
            },
        };
        (effect, Some(ended))
    }

    /// Every browser, by id.
    pub fn browsers(&self) -> impl Iterator<Item = (BrowserId, &Browser)> {
        self.browsers.iter().map(|(&id, row)| (id, row))
    }

    /// Every session that is kept, by id.
    pub fn sessions(&self) -> impl Iterator<Item = (SessionId, &SessionRow)> {
        self.sessions.iter().map(|(&id, row)| (id, row))
    }

    /// One session.
    #[must_use]
    pub fn session(&self, id: SessionId) -> Option<&SessionRow> {
        self.sessions.get(&id)
    }

    /// One node.
    #[must_use]
    pub fn node(&self, id: NodeId) -> Option<&Node> {
        self.nodes.get(&id)
    }

    /// How far a node is from the brokers; what probes say.
    pub fn measure(&mut self, node: NodeId, distance: Duration) {
        if let Some(node) = self.nodes.get_mut(&node) {
            node.distance = distance;
        }
    }

    /// What must hold between the rows at any moment; the first thing that does not.
    ///
    /// # Errors
    /// The sentence that says so.
    pub fn check(&self) -> Result<(), String> {
        for (id, browser) in &self.browsers {
            let Some(Holder { session, account }) = browser.lease.state.holder() else {
                continue;
            };
            // The row of a session that ended long ago may have been dropped first.
            let Some(row) = self.sessions.get(&session) else {
                if browser.lease.state.live().is_some() {
                    return Err(format!("{id:?} is lent to {session:?}, which is not there"));
                }
                continue;
            };
            if row.browser != *id || row.account != account {
                return Err(format!("{id:?} and {row:?} disagree"));
            }
            if row.ended.is_some() == browser.lease.state.live().is_some() {
                return Err(format!("{:?} with {row:?}", browser.lease));
            }
        }
        for (id, row) in &self.sessions {
            let lives = row.ended.is_none();
            let browser = self.browsers.get(&row.browser);
            let lent = browser.and_then(|browser| browser.lease.state.live());
            if lives && lent.is_none_or(|holder| holder.session != *id) {
                return Err(format!(
                    "session {id:?} lives in a browser that is not its: {browser:?}"
                ));
            }
        }
        for (&id, node) in &self.nodes {
            let taken = self.taken(id);
            if taken > node.slots {
                return Err(format!(
                    "{id:?} has {taken} browsers, and room for {}",
                    node.slots
                ));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
