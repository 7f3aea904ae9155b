//! Where the hosts of nodes are found, how far they are, and what they said of browsers that end.
//!
//! A host may stand still without being gone: connections to it are made, and nothing comes back.
//! So every question has a deadline, and whoever speaks for a node says when its host has fallen
//! silent: until it is found again nothing is picked there.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::net::UnixStream;
use tokio::sync::watch;
use tokio::time::{Instant, timeout};
use usher_browsers::host::wire::{Ask, Figures, Held, Took};
use usher_browsers::host::{Caller, CallerFault};
use usher_core::lease::close::CloseReason;
use usher_core::lease::pick::RoundTrip;
use usher_core::lease::region::Picked;
use usher_core::lease::{BrowserId, Epoch, NodeId};

use crate::ask::{Node, Work};

/// How long a host may take for an answer. It gives it from memory: one that takes longer stands
/// still.
pub(crate) const ANSWER_MAX: Duration = Duration::from_secs(5);

/// How long a host is waited for that nobody has found yet: sessions outlive the process in front
/// of them, and its first clients may come before it has spoken to the hosts.
const FOUND_MAX: Duration = Duration::from_secs(5);

/// How long a host may take to say what a browser took whose session has ended.
const TOOK_WAIT: Duration = Duration::from_secs(20);

/// Browsers that are gone of which it is remembered what they took: nobody asks for long.
const TOOK_MAX: usize = 256;

/// A host, as far as it is known.
#[derive(Debug, Clone, Default)]
struct Known {
    socket: PathBuf,
    way: RoundTrip,
    /// It answers.
    there: bool,
}

/// What a host counted, and when it said so.
#[derive(Debug, Clone)]
pub struct Heard {
    /// What it said.
    pub figures: Figures,
    at: Instant,
}

impl Heard {
    /// Since a browser showed that it works; `None`: none ever did.
    #[must_use]
    pub fn drew(&self) -> Option<Duration> {
        let then = Duration::from_millis(self.figures.drew_ms_ago?);
        Some(then + self.at.elapsed())
    }
}

/// The hosts that agents of this process speak to.
#[derive(Debug, Default)]
pub struct Hosts {
    known: watch::Sender<BTreeMap<(u16, NodeId), Known>>,
    /// What the host of a region last said that it counted.
    heard: Mutex<BTreeMap<u16, Heard>>,
    /// When a browser of a region last came to be ready, which takes a page that was drawn.
    drew: Mutex<BTreeMap<u16, Instant>>,
    /// What the last browsers that are gone took, oldest first.
    took: watch::Sender<VecDeque<(BrowserId, Took)>>,
    /// Browsers whose end somebody wants to hear of, and where they are.
    endings: Mutex<HashMap<BrowserId, Ending>>,
}

#[derive(Debug)]
struct Ending {
    region: u16,
    cause: watch::Sender<Option<CloseReason>>,
}

impl Ending {
    /// The first word is the cause; what follows is the end itself.
    fn tell(&self, reason: CloseReason) {
        self.cause.send_if_modified(|known| {
            let first = known.is_none();
            known.get_or_insert(reason);
            first
        });
    }
}

/// Whatever is inside is whole after each statement.
fn whole<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Asks a host something that it answers from memory.
pub(crate) async fn asked<T: DeserializeOwned>(
    caller: &mut Caller,
    ask: &Ask,
) -> Result<T, CallerFault> {
    let answered = timeout(ANSWER_MAX, caller.ask(ask)).await;
    answered.unwrap_or_else(|_| Err(silent()))
}

fn silent() -> CallerFault {
    let text = format!("it has said nothing for {} s", ANSWER_MAX.as_secs());
    io::Error::new(io::ErrorKind::TimedOut, text).into()
}

impl Hosts {
    /// The host of a node is reached here from now on, and answers as fast as that.
    pub(crate) fn found(&self, region: u16, node: NodeId, socket: &Path, way: Duration) {
        self.known.send_modify(|known| {
            let host = known.entry((region, node)).or_default();
            host.socket = socket.to_owned();
            host.there = true;
            host.way.heard(way);
        });
    }

    /// It has answered as fast as that.
    pub(crate) fn measured(&self, region: u16, node: NodeId, way: Duration) {
        self.known.send_modify(|known| {
            if let Some(host) = known.get_mut(&(region, node)) {
                host.way.heard(way);
            }
        });
    }

    /// The host of a node cannot be spoken to, for now or for good.
    pub(crate) fn lost(&self, region: u16, node: NodeId) {
        self.known.send_modify(|known| {
            if let Some(host) = known.get_mut(&(region, node)) {
                host.there = false;
            }
        });
    }

    /// The host of a region has ended, and its browsers with it: who waits to hear why a browser
    /// ended need not wait for its word.
    pub fn gone(&self, region: u16) {
        let endings = whole(&self.endings);
        let there = endings.values().filter(|ending| ending.region == region);
        there.for_each(|ending| ending.tell(CloseReason::ConnectionError));
    }

    /// Whether a host of the region says nothing.
    pub(crate) fn is_one_lost(&self, region: u16) -> bool {
        let known = self.known.borrow();
        let mut there = known.iter().filter(|((of, _), _)| *of == region);
        there.any(|(_, host)| !host.there)
    }

    /// How far the nearest host of a region is, in whole milliseconds: less is the mood of the
    /// machine. `None` while none answers.
    pub(crate) fn distance(&self, region: u16) -> Option<Duration> {
        let known = self.known.borrow();
        let there = known.iter().filter(|((of, _), _)| *of == region);
        let ways = there.filter(|(_, host)| host.there);
        ways.map(|(_, host)| whole_millis(host.way.value())).min()
    }

    /// A connection to the host of a node, which is waited for if nobody has found it yet.
    ///
    /// # Errors
    /// It is not known, or not there.
    pub(crate) async fn call(&self, region: u16, node: NodeId) -> Result<Caller, CallerFault> {
        let mut known = self.known.subscribe();
        let found = known.wait_for(|known| known.contains_key(&(region, node)));
        let socket = match timeout(FOUND_MAX, found).await {
            Ok(Ok(known)) => known.get(&(region, node)).map(|host| host.socket.clone()),
            Ok(Err(_)) | Err(_) => None,
        };
        let socket = socket.ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))?;
        Ok(Caller::connect(&socket).await?)
    }

    /// The pipe of a browser, and what its pages may reach.
    ///
    /// # Errors
    /// The host is not there, stands still, or does not know the lease.
    pub(crate) async fn pipe(
        &self,
        region: u16,
        picked: &Picked,
    ) -> Result<(UnixStream, Value), CallerFault> {
        let caller = self.call(region, picked.node).await?;
        let pipe = timeout(ANSWER_MAX, caller.pipe(held(picked))).await;
        pipe.unwrap_or_else(|_| Err(silent()))
    }

    /// Has a host end a browser. Whether it does is watched by others.
    pub(crate) async fn close(
        &self,
        region: u16,
        node: NodeId,
        (browser, epoch): (BrowserId, Epoch),
        reason: CloseReason,
    ) -> Result<(), CallerFault> {
        let ask = Ask::Close {
            browser: browser.0,
            epoch: epoch.0,
            reason: reason.as_str().to_owned(),
        };
        asked(&mut self.call(region, node).await?, &ask).await
    }

    /// Why a browser ends, once its host says so. To be given up with [`Hosts::forget`].
    pub(crate) fn ending(
        &self,
        region: u16,
        browser: BrowserId,
    ) -> watch::Receiver<Option<CloseReason>> {
        let mut endings = whole(&self.endings);
        let ending = endings.entry(browser).or_insert_with(|| Ending {
            region,
            cause: watch::Sender::default(),
        });
        ending.cause.subscribe()
    }

    /// What the host of a region last said that it counted; `None`: nothing yet.
    #[must_use]
    pub fn heard(&self, region: u16) -> Option<Heard> {
        whole(&self.heard).get(&region).cloned()
    }

    /// Since a browser of the region showed that it works; `None`: none ever did. What hosts count
    /// is asked every few seconds, and the first browser is not to wait for that.
    #[must_use]
    pub fn drew(&self, region: u16) -> Option<Duration> {
        let counted = whole(&self.heard).get(&region).and_then(Heard::drew);
        let told = whole(&self.drew).get(&region).map(Instant::elapsed);
        [counted, told].into_iter().flatten().min()
    }

    /// A browser of the region has drawn its first page.
    pub(crate) fn became_ready(&self, region: u16) {
        whole(&self.drew).insert(region, Instant::now());
    }

    /// A host says what it counted.
    pub(crate) fn counted(&self, region: u16, figures: Figures) {
        let heard = Heard {
            figures,
            at: Instant::now(),
        };
        whole(&self.heard).insert(region, heard);
    }

    /// A host says what a browser took that is gone.
    pub(crate) fn told_of(&self, browser: BrowserId, took: Took) {
        self.took.send_modify(|known| {
            known.push_back((browser, took));
            if known.len() > TOOK_MAX {
                known.pop_front();
            }
        });
    }

    /// What a browser took, once it is gone and its host has said so.
    pub(crate) async fn took(&self, browser: BrowserId) -> Option<Took> {
        let find = |known: &VecDeque<(BrowserId, Took)>| {
            let found = known.iter().find(|(of, _)| *of == browser);
            found.map(|(_, took)| *took)
        };
        let mut told = self.took.subscribe();
        let told = told.wait_for(|known| find(known).is_some());
        let told = timeout(TOOK_WAIT, told).await.ok()?.ok()?;
        find(&told)
    }

    /// A host says that a browser ends.
    pub(crate) fn ends(&self, browser: BrowserId, reason: CloseReason) {
        if let Some(ending) = whole(&self.endings).get(&browser) {
            ending.tell(reason);
        }
    }

    pub(crate) fn forget(&self, browser: BrowserId) {
        whole(&self.endings).remove(&browser);
    }
}

/// Without what is below a millisecond.
pub(crate) fn whole_millis(way: Duration) -> Duration {
    Duration::from_millis(u64::try_from(way.as_millis()).unwrap_or(u64::MAX))
}

/// The nodes, for one wish: what its browser is to be prepared with.
#[derive(Debug)]
pub(crate) struct Prepared {
    pub(crate) hosts: Arc<Hosts>,
    pub(crate) keep_alive: Duration,
    /// What its pages may reach, in the words of the egress proxy.
    pub(crate) policy: Value,
}

pub(crate) fn held(picked: &Picked) -> Held {
    Held {
        browser: picked.browser.0,
        epoch: picked.epoch.0,
        session: picked.session.0,
    }
}

impl Node for Prepared {
    fn distance(&self, region: u16) -> Option<Duration> {
        self.hosts.distance(region)
    }

    fn prepare(&self, region: u16, picked: Picked) -> Work<'_, bool> {
        Box::pin(async move {
            let ask = Ask::Prepare {
                held: held(&picked),
                keep_alive_ms: u64::try_from(self.keep_alive.as_millis()).unwrap_or(u64::MAX),
                guardrails: Some(self.policy.clone()),
            };
            let prepared: Result<(), CallerFault> = match self.hosts.call(region, picked.node).await
            {
                Ok(mut host) => host.ask(&ask).await,
                Err(fault) => Err(fault),
            };
            if let Err(fault) = &prepared {
                tracing::warn!(%fault, browser = ?picked.browser, "a browser was not prepared");
            }
            prepared.is_ok()
        })
    }

    fn close(&self, region: u16, picked: Picked, reason: CloseReason) -> Work<'_, ()> {
        Box::pin(async move {
            let of = (picked.browser, picked.epoch);
            if let Err(fault) = self.hosts.close(region, picked.node, of, reason).await {
                tracing::debug!(%fault, browser = ?picked.browser, "a browser was not ended at its node");
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_host_that_answers_is_as_far_as_its_region() {
        let hosts = Hosts::default();
        let far = |millis, micros| Duration::from_millis(millis) + Duration::from_micros(micros);
        assert_eq!(hosts.distance(0), None);
        hosts.found(0, NodeId(1), Path::new("/a"), far(9, 400));
        hosts.found(0, NodeId(2), Path::new("/b"), far(1, 900));
        hosts.found(1, NodeId(1), Path::new("/c"), far(0, 300));
        assert_eq!(hosts.distance(0), Some(far(1, 0)));
        assert_eq!(hosts.distance(1), Some(Duration::ZERO));
        hosts.lost(0, NodeId(2));
        assert_eq!(hosts.distance(0), Some(far(9, 0)));
        assert!(hosts.is_one_lost(0) && !hosts.is_one_lost(1));
        hosts.lost(0, NodeId(1));
        assert_eq!(hosts.distance(0), None);
        hosts.found(0, NodeId(1), Path::new("/a"), far(9, 400));
        assert_eq!(hosts.distance(0), Some(far(9, 0)));
    }

    #[test]
    fn a_browser_that_is_ready_has_drawn_before_anybody_counts() {
        let hosts = Hosts::default();
        hosts.counted(0, Figures::default());
        assert_eq!(hosts.drew(0), None);
        hosts.became_ready(0);
        assert!(hosts.drew(0).is_some());
        assert_eq!(hosts.drew(1), None);
    }

    #[test]
    fn a_host_that_is_gone_is_why_its_browsers_ended() {
        let hosts = Hosts::default();
        let of = |region, browser| hosts.ending(region, BrowserId(browser));
        let (crashed, lost, other) = (of(0, 1), of(0, 2), of(1, 3));
        hosts.ends(BrowserId(1), CloseReason::ChromiumCrashed);
        hosts.gone(0);
        assert_eq!(*crashed.borrow(), Some(CloseReason::ChromiumCrashed));
        assert_eq!(*lost.borrow(), Some(CloseReason::ConnectionError));
        assert_eq!(*other.borrow(), None);
    }
}
