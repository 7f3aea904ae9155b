//! Where the hosts of nodes are found, and what they said of browsers that end.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde_json::Value;
use tokio::sync::watch;
use tokio::time::timeout;
use usher_browsers::host::wire::{Ask, Held};
use usher_browsers::host::{Caller, CallerFault};
use usher_core::lease::close::CloseReason;
use usher_core::lease::region::Picked;
use usher_core::lease::{BrowserId, Epoch, NodeId};

use crate::ask::{Node, Work};

/// How long a host is waited for that no agent has found yet.
const FOUND_MAX: Duration = Duration::from_secs(5);

/// The hosts that agents of this process speak to.
#[derive(Debug, Default)]
pub struct Hosts {
    sockets: watch::Sender<BTreeMap<(u16, NodeId), PathBuf>>,
    /// Browsers whose end somebody wants to hear of.
    endings: Mutex<HashMap<BrowserId, watch::Sender<Option<CloseReason>>>>,
}

/// Whatever is inside is whole after each statement.
fn whole<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Hosts {
    /// The host of a node is reached here from now on.
    pub(crate) fn found(&self, region: u16, node: NodeId, socket: &Path) {
        self.sockets.send_if_modified(|sockets| {
            let before = sockets.insert((region, node), socket.to_owned());
            before.is_none_or(|before| before != socket)
        });
    }

    /// A connection to the host of a node. One that no agent has found yet is waited for: a process
    /// that has just started is asked for sessions that are older than itself.
    ///
    /// # Errors
    /// It is not known, or not there.
    pub(crate) async fn call(&self, region: u16, node: NodeId) -> Result<Caller, CallerFault> {
        let mut sockets = self.sockets.subscribe();
        let known = sockets.wait_for(|sockets| sockets.contains_key(&(region, node)));
        let socket = match timeout(FOUND_MAX, known).await {
            Ok(Ok(sockets)) => sockets.get(&(region, node)).cloned(),
            Ok(Err(_)) | Err(_) => None,
        };
        let socket = socket.ok_or_else(|| std::io::Error::from(std::io::ErrorKind::NotFound))?;
        Ok(Caller::connect(&socket).await?)
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
        self.call(region, node).await?.ask(&ask).await
    }

    /// Why a browser ends, once its host says so. To be given up with [`Hosts::forget`].
    pub(crate) fn ending(&self, browser: BrowserId) -> watch::Receiver<Option<CloseReason>> {
        let mut endings = whole(&self.endings);
        endings.entry(browser).or_default().subscribe()
    }

    /// A host says that a browser ends.
    pub(crate) fn ends(&self, browser: BrowserId, reason: CloseReason) {
        if let Some(ending) = whole(&self.endings).get(&browser) {
            // The first word is the cause; what follows is the end itself.
            ending.send_if_modified(|known| {
                let first = known.is_none();
                known.get_or_insert(reason);
                first
            });
        }
    }

    pub(crate) fn forget(&self, browser: BrowserId) {
        whole(&self.endings).remove(&browser);
    }
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
