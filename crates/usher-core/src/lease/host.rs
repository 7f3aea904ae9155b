//! What a node's agent knows of the browsers that it runs.
//!
//! The processes are the node's, so the node has the last word: whoever comes with an older lease
//! than it has heard of is refused, whatever they believe to hold. It watches its own deadlines too,
//! because the store may be gone: a start that takes too long, a promise that is not followed up,
//! and a session that nobody has confirmed for a minute all end here.
//!
//! How a browser is started and ended is not said here: what is told to end is named by
//! [`Host::ending`] until [`Host::gone`] says that nothing is left.
//!
//! Source: browser specification 11.2 (I3, I7, I9), 11.5, 11.6.

use std::collections::BTreeMap;
use std::time::Duration;

use super::beat::Heartbeat;
use super::browser::{Phase, STARTING_MAX};
use super::close::CloseReason;
use super::{Boot, BrowserId, Epoch, SessionId};
use crate::time::Mono;

/// How long a session goes on that no store has confirmed.
pub const UNCONFIRMED_MAX: Duration = Duration::from_secs(60);
/// How long a browser is being prepared for a session. Longer than the broker waits, which then
/// gives it up itself.
pub const PREPARING_MAX: Duration = Duration::from_secs(10);
/// How often a node's list is compared with the store's.
pub const RECONCILE_EVERY: Duration = Duration::from_secs(30);

/// What a browser does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Doing {
    Starting,
    Ready,
    Preparing(SessionId),
    Serving(SessionId),
    Ending(CloseReason),
}

impl Doing {
    const fn session(self) -> Option<SessionId> {
        match self {
            Doing::Preparing(session) | Doing::Serving(session) => Some(session),
            Doing::Starting | Doing::Ready | Doing::Ending(_) => None,
        }
    }

    const fn phase(self) -> Phase {
        match self {
            Doing::Starting => Phase::Starting,
            Doing::Ready => Phase::Ready,
            Doing::Preparing(_) => Phase::Picked,
            Doing::Serving(_) => Phase::InUse,
            Doing::Ending(_) => Phase::Closing,
        }
    }
}

#[derive(Debug, Clone, Copy)]
struct Hosted {
    doing: Doing,
    /// The newest lease that was heard of.
    epoch: Epoch,
    since: Mono,
    /// When the store last knew of it.
    confirmed: Mono,
}

/// Why a node does not do what it is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Denied {
    /// It runs no such browser.
    #[error("browser {0:?} does not run here")]
    Unknown(BrowserId),
    /// Somebody came with a newer lease before.
    #[error("lease {found:?} of browser {browser:?} is older than {known:?}")]
    Old {
        /// The browser.
        browser: BrowserId,
        /// What the caller has.
        found: Epoch,
        /// What the node has heard of.
        known: Epoch,
    },
    /// It is not in a state for that.
    #[error("browser {browser:?} is {}", phase.as_str())]
    NotFree {
        /// The browser.
        browser: BrowserId,
        /// Its state.
        phase: Phase,
    },
}

/// The browsers of one node.
#[derive(Debug, Clone)]
pub struct Host {
    slots: u32,
    launches_max: u32,
    boot: Option<Boot>,
    seq: u64,
    browsers: BTreeMap<BrowserId, Hosted>,
}

impl Host {
    /// A node that has room for `slots` browsers and starts at most `launches_max` together. It has
    /// none: whatever an earlier agent left behind was ended.
    #[must_use]
    pub const fn new(slots: u32, launches_max: u32) -> Host {
        Host {
            slots,
            launches_max,
            boot: None,
            seq: 0,
            browsers: BTreeMap::new(),
        }
    }

    /// Whether the store has to be asked for a number. Only with nothing running: the store takes it
    /// as the word that all it knew of this node is gone.
    #[must_use]
    pub fn wants_registering(&self) -> bool {
        self.boot.is_none() && self.browsers.is_empty()
    }

    /// The store has counted this start.
    pub fn registered(&mut self, boot: Boot) {
        if self.wants_registering() {
            self.boot = Some(boot);
        }
    }

    /// The store does not know this start any more: everything ends, then it begins anew.
    pub fn disowned(&mut self, boot: Boot, now: Mono) {
        if self.boot == Some(boot) {
            self.boot = None;
            self.end_all(CloseReason::ConnectionError, now);
        }
    }

    /// Everything ends.
    pub fn end_all(&mut self, reason: CloseReason, now: Mono) {
        for hosted in self.browsers.values_mut() {
            end(hosted, reason, now);
        }
    }

    /// Takes a slot for a browser that is to be launched; false when there is no room, too many are
    /// starting, or the store does not know the node.
    pub fn launch(&mut self, id: BrowserId, now: Mono) -> bool {
        let room = (self.browsers.len() as u32) < self.slots
            && self.in_phase(Phase::Starting) < self.launches_max;
        let known = self.browsers.contains_key(&id);
        let may = room && !known && self.boot.is_some();
        if may {
            let hosted = Hosted {
                doing: Doing::Starting,
                epoch: Epoch(0),
                since: now,
                confirmed: now,
            };
            self.browsers.insert(id, hosted);
        }
        may
    }

    /// Its canary was seen: a page was drawn.
    pub fn ready(&mut self, id: BrowserId, now: Mono) {
        if let Some(hosted) = self.browsers.get_mut(&id)
            && hosted.doing == Doing::Starting
        {
            (hosted.doing, hosted.since) = (Doing::Ready, now);
        }
    }

    /// The browser is to be prepared for a session. A repeat is granted, as is the same after it has
    /// been prepared.
    ///
    /// # Errors
    /// Why not. When a newer lease is refused because the browser is another session's, two parties
    /// believe to hold it, and it ends.
    pub fn prepare(
        &mut self,
        id: BrowserId,
        epoch: Epoch,
        session: SessionId,
        now: Mono,
    ) -> Result<(), Denied> {
        let hosted = self.heard(id, epoch)?;
        let phase = hosted.doing.phase();
        let newer = epoch > hosted.epoch;
        hosted.epoch = epoch;
        match hosted.doing {
            Doing::Ready if newer => {
                hosted.doing = Doing::Preparing(session);
                (hosted.since, hosted.confirmed) = (now, now);
                Ok(())
            }
            Doing::Preparing(of) | Doing::Serving(of) if of == session && !newer => Ok(()),
            Doing::Preparing(_) | Doing::Serving(_) if newer => {
                end(hosted, CloseReason::ConnectionError, now);
                Err(Denied::NotFree { browser: id, phase })
            }
            _ => Err(Denied::NotFree { browser: id, phase }),
        }
    }

    /// The browser is prepared; false when it was ended meanwhile.
    pub fn prepared(&mut self, id: BrowserId, session: SessionId, now: Mono) -> bool {
        let Some(hosted) = self.browsers.get_mut(&id) else {
            return false;
        };
        if hosted.doing == Doing::Preparing(session) {
            (hosted.doing, hosted.since) = (Doing::Serving(session), now);
        }
        hosted.doing == Doing::Serving(session)
    }

    /// Whether who holds this lease may talk to the browser.
    #[must_use]
    pub fn may_connect(&self, id: BrowserId, epoch: Epoch, session: SessionId) -> bool {
        let hosted = self.browsers.get(&id);
        hosted
            .is_some_and(|hosted| hosted.epoch == epoch && hosted.doing == Doing::Serving(session))
    }

    /// The holder, or somebody in charge with a newer lease, wants it to end. A repeat is granted.
    ///
    /// # Errors
    /// [`Denied::Unknown`], [`Denied::Old`].
    pub fn close(
        &mut self,
        id: BrowserId,
        epoch: Epoch,
        reason: CloseReason,
        now: Mono,
    ) -> Result<(), Denied> {
        let hosted = self.heard(id, epoch)?;
        hosted.epoch = epoch;
        end(hosted, reason, now);
        Ok(())
    }

    /// The node itself wants it to end: its process died, its session is idle, it is too old.
    pub fn end(&mut self, id: BrowserId, reason: CloseReason, now: Mono) {
        if let Some(hosted) = self.browsers.get_mut(&id) {
            end(hosted, reason, now);
        }
    }

    fn heard(&mut self, id: BrowserId, epoch: Epoch) -> Result<&mut Hosted, Denied> {
        let hosted = self.browsers.get_mut(&id).ok_or(Denied::Unknown(id))?;
        let known = hosted.epoch;
        if epoch < known {
            return Err(Denied::Old {
                browser: id,
                found: epoch,
                known,
            });
        }
        Ok(hosted)
    }

    /// Nothing is left of it: no process, no folder, no group. The last thing to be said of it.
    pub fn gone(&mut self, id: BrowserId) -> Option<Heartbeat> {
        let hosted = self.browsers.remove(&id)?;
        let reason = match hosted.doing {
            Doing::Ending(reason) => reason,
            _ => CloseReason::ChromiumCrashed,
        };
        Some(Heartbeat {
            browser: id,
            seq: self.next_seq(),
            phase: Phase::Dead,
            epoch: hosted.epoch,
            mem_kib: 0,
            quiet: Duration::ZERO,
            reason,
        })
    }

    /// The store has answered to a list that was made at `made`: what was on it is known there.
    pub fn confirmed(&mut self, boot: Boot, made: Mono) {
        if self.boot != Some(boot) {
            return;
        }
        for hosted in self.browsers.values_mut() {
            // A list from before it was prepared says nothing about its session.
            if hosted.since <= made {
                hosted.confirmed = hosted.confirmed.max(made);
            }
        }
    }

    /// Ends what has taken too long or was not confirmed.
    pub fn pass(&mut self, now: Mono) {
        for hosted in self.browsers.values_mut() {
            let over = match hosted.doing {
                Doing::Starting => now.since(hosted.since) >= STARTING_MAX,
                Doing::Preparing(_) => now.since(hosted.since) >= PREPARING_MAX,
                Doing::Serving(_) => now.since(hosted.confirmed) >= UNCONFIRMED_MAX,
                Doing::Ready | Doing::Ending(_) => false,
            };
            if over {
                end(hosted, CloseReason::ConnectionError, now);
            }
        }
    }

    /// When [`Host::pass`] has something to do.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Mono> {
        let deadlines = self
            .browsers
            .values()
            .filter_map(|hosted| match hosted.doing {
                Doing::Starting => Some(hosted.since.after(STARTING_MAX)),
                Doing::Preparing(_) => Some(hosted.since.after(PREPARING_MAX)),
                Doing::Serving(_) => Some(hosted.confirmed.after(UNCONFIRMED_MAX)),
                Doing::Ready | Doing::Ending(_) => None,
            });
        deadlines.min()
    }

    /// What is to end, and since when.
    pub fn ending(&self) -> impl Iterator<Item = (BrowserId, Mono)> {
        let ending = |hosted: &Hosted| matches!(hosted.doing, Doing::Ending(_));
        self.browsers
            .iter()
            .filter(move |(_, hosted)| ending(hosted))
            .map(|(&id, hosted)| (id, hosted.since))
    }

    /// What is ready, with its age, the oldest first.
    #[must_use]
    pub fn idle(&self, now: Mono) -> Vec<(BrowserId, Duration)> {
        let ready = |hosted: &Hosted| hosted.doing == Doing::Ready;
        let mut idle: Vec<(BrowserId, Duration)> = self
            .browsers
            .iter()
            .filter(|(_, hosted)| ready(hosted))
            .map(|(&id, hosted)| (id, now.since(hosted.since)))
            .collect();
        idle.sort_by_key(|&(id, age)| (std::cmp::Reverse(age), id));
        idle
    }

    /// Where every browser stands, for the queue; `facts` tells memory in KiB and how long the
    /// session has been quiet.
    pub fn beats(
        &mut self,
        facts: impl Fn(BrowserId, Option<SessionId>) -> (u32, Duration),
    ) -> Vec<Heartbeat> {
        let seq = self.next_seq();
        let beat = |(&id, hosted): (&BrowserId, &Hosted)| {
            let (mem_kib, quiet) = facts(id, hosted.doing.session());
            Heartbeat {
                browser: id,
                seq,
                phase: hosted.doing.phase(),
                epoch: hosted.epoch,
                mem_kib,
                quiet,
                reason: match hosted.doing {
                    Doing::Ending(reason) => reason,
                    _ => CloseReason::Unknown,
                },
            }
        };
        self.browsers.iter().map(beat).collect()
    }

    /// All that it has, for comparing, and the number of that list.
    pub fn list(&mut self) -> (u64, BTreeMap<BrowserId, (Phase, Epoch)>) {
        let seq = self.next_seq();
        let stands =
            |(&id, hosted): (&BrowserId, &Hosted)| (id, (hosted.doing.phase(), hosted.epoch));
        (seq, self.browsers.iter().map(stands).collect())
    }

    /// Whether it is wanted: known, and not told to end.
    #[must_use]
    pub fn wants(&self, id: BrowserId) -> bool {
        let hosted = self.browsers.get(&id);
        hosted.is_some_and(|hosted| !matches!(hosted.doing, Doing::Ending(_)))
    }

    /// Whether it is known, also when it is about to end.
    #[must_use]
    pub fn knows(&self, id: BrowserId) -> bool {
        self.browsers.contains_key(&id)
    }

    /// The next number of what it says.
    pub fn next_seq(&mut self) -> u64 {
        self.seq += 1;
        self.seq
    }

    /// How many are in `phase`.
    #[must_use]
    pub fn in_phase(&self, phase: Phase) -> u32 {
        let there = |hosted: &&Hosted| hosted.doing.phase() == phase;
        self.browsers.values().filter(there).count() as u32
    }

    /// The number of this start, while the store knows it.
    #[must_use]
    pub const fn boot(&self) -> Option<Boot> {
        self.boot
    }

    /// Browsers, whatever they do.
    #[must_use]
    pub fn len(&self) -> usize {
        self.browsers.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.browsers.is_empty()
    }
}

fn end(hosted: &mut Hosted, reason: CloseReason, now: Mono) {
    if !matches!(hosted.doing, Doing::Ending(_)) {
        (hosted.doing, hosted.since) = (Doing::Ending(reason), now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const B: BrowserId = BrowserId(1);

    fn at(secs: u64) -> Mono {
        Mono::ZERO.after(Duration::from_secs(secs))
    }

    /// A node with one ready browser.
    fn node() -> Host {
        let mut host = Host::new(2, 1);
        assert!(!host.launch(B, at(0)), "not registered");
        host.registered(Boot(1));
        assert!(host.launch(B, at(0)));
        host.ready(B, at(1));
        host
    }

    #[test]
    fn the_newest_lease_holds_the_browser() {
        let mut host = node();
        let (one, two) = (SessionId(1), SessionId(2));
        assert_eq!(host.prepare(B, Epoch(2), one, at(1)), Ok(()));
        assert_eq!(host.prepare(B, Epoch(2), one, at(1)), Ok(()), "a repeat");
        let old = Denied::Old {
            browser: B,
            found: Epoch(1),
            known: Epoch(2),
        };
        assert_eq!(host.prepare(B, Epoch(1), two, at(1)), Err(old));
        assert_eq!(
            host.close(B, Epoch(1), CloseReason::NormalClosure, at(1)),
            Err(old)
        );
        assert!(!host.may_connect(B, Epoch(2), one), "not prepared yet");
        assert!(host.prepared(B, one, at(2)));
        assert!(host.may_connect(B, Epoch(2), one));
        for (epoch, session) in [(1, one), (3, one), (2, two)] {
            assert!(!host.may_connect(B, Epoch(epoch), session));
        }
        // The store has forgotten a lease and gives the same number again.
        assert!(host.prepare(B, Epoch(2), two, at(3)).is_err());
        assert!(host.may_connect(B, Epoch(2), one));
        // A newer one means that two believe to hold it: nobody gets it.
        assert!(host.prepare(B, Epoch(3), two, at(3)).is_err());
        assert!(!host.may_connect(B, Epoch(2), one) && !host.may_connect(B, Epoch(3), two));
        assert_eq!(host.ending().count(), 1);
        let last = host.gone(B).expect("was there");
        assert_eq!((last.phase, last.epoch), (Phase::Dead, Epoch(3)));
        assert_eq!(
            host.prepare(B, Epoch(4), two, at(4)),
            Err(Denied::Unknown(B))
        );
    }

    #[test]
    fn room_is_what_was_declared() {
        let mut host = node();
        assert!(host.launch(BrowserId(2), at(1)));
        assert!(!host.launch(BrowserId(3), at(1)), "slots");
        host.end(BrowserId(2), CloseReason::Unknown, at(2));
        assert!(
            !host.launch(BrowserId(3), at(2)),
            "what ends takes its slot until it is gone"
        );
        host.gone(BrowserId(2));
        assert!(host.launch(BrowserId(3), at(2)));
        let mut host = Host::new(9, 1);
        host.registered(Boot(1));
        assert!(host.launch(B, at(0)));
        assert!(!host.launch(BrowserId(2), at(0)), "one start at a time");
    }

    #[test]
    fn what_nobody_confirms_ends() {
        let mut host = node();
        let session = SessionId(1);
        host.prepare(B, Epoch(1), session, at(10)).expect("ready");
        assert!(host.prepared(B, session, at(11)));
        host.confirmed(Boot(1), at(5));
        assert_eq!(host.poll_timeout(), Some(at(70)), "a list from before it");
        host.confirmed(Boot(1), at(40));
        host.confirmed(Boot(2), at(90));
        assert_eq!(host.poll_timeout(), Some(at(100)));
        host.pass(at(99));
        assert!(host.may_connect(B, Epoch(1), session));
        host.pass(at(100));
        assert_eq!(host.ending().count(), 1);
        assert!(!host.may_connect(B, Epoch(1), session));
    }

    #[test]
    fn a_start_that_takes_too_long_ends_and_so_does_a_promise() {
        let mut host = node();
        host.launch(BrowserId(2), at(5));
        host.prepare(B, Epoch(1), SessionId(1), at(5))
            .expect("ready");
        host.pass(at(14));
        assert_eq!(host.ending().count(), 0);
        host.pass(at(15));
        assert_eq!(host.ending().map(|(id, _)| id).collect::<Vec<_>>(), [B]);
        host.pass(at(25));
        assert_eq!(host.ending().count(), 2);
        host.ready(BrowserId(2), at(26));
        assert!(!host.prepared(B, SessionId(1), at(26)));
        assert!(host.idle(at(26)).is_empty());
    }

    #[test]
    fn who_is_disowned_begins_anew_with_nothing() {
        let mut host = node();
        host.disowned(Boot(0), at(1));
        assert_eq!(host.boot(), Some(Boot(1)));
        host.disowned(Boot(1), at(1));
        assert!(!host.wants_registering(), "something still runs");
        host.registered(Boot(2));
        assert_eq!(host.boot(), None);
        host.gone(B);
        assert!(host.wants_registering());
        host.registered(Boot(2));
        assert_eq!(host.boot(), Some(Boot(2)));
    }
}
