//! Drives the engine: carries what happened into it and what it wants done out of it.
//!
//! One task owns the engine, so it needs no lock, and nothing here decides anything. The order of
//! calls is the engine's: handle, drain the outputs, wait until the timeout or the next input.

use std::collections::{BTreeSet, HashMap};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::{JoinHandle, spawn_blocking};
use tokio::time::{Instant, MissedTickBehavior, interval};
use usher_api::{Desired, Happened};
use usher_core::catalog::{Address, Catalog};
use usher_core::engine::{Engine, Input, Known, Output, StateChange};
use usher_core::health::{EndpointState, PoolState};
use usher_core::id::Id;
use usher_core::probe::{ProbeId, ProbeOrder, ProbeResult};
use usher_core::snapshot::Snapshot;
use usher_core::time::Wall;
use usher_edge::http::Plane;
use usher_edge::resolve::Resolution;

use crate::events;
use crate::probes::Probes;
use crate::webhooks::HAPPENED_MAX;

/// Catalogs, probe results and resolutions that wait for the engine; senders wait beyond that.
pub(crate) const INPUTS_MAX: usize = 256;

/// How often the clock on the wall is looked at while something drains: it may be set.
const CLOCK: Duration = Duration::from_secs(1);

/// Sessions by endpoint.
type Counted = HashMap<Id, u64>;

/// A catalog on its way to the engine.
pub(crate) struct NewCatalog {
    pub(crate) catalog: Arc<Catalog>,
    /// Told when requests are decided by it.
    pub(crate) in_force: oneshot::Sender<()>,
}

/// The engine's surroundings.
pub(crate) struct Drive {
    pub(crate) engine: Engine,
    pub(crate) plane: Arc<Plane>,
    pub(crate) catalogs: mpsc::Receiver<NewCatalog>,
    /// Those who want to know all that the engine knows.
    pub(crate) questions: mpsc::Receiver<oneshot::Sender<Vec<Known>>>,
    /// The catalog that the engine has and traffic does not have yet: snapshots are published at
    /// a bounded rate.
    pub(crate) unpublished: Option<NewCatalog>,
    /// The last results, for those who ask.
    pub(crate) probes: Arc<Probes>,
    pub(crate) orders: mpsc::Sender<ProbeOrder>,
    pub(crate) results: mpsc::Receiver<(ProbeId, ProbeResult)>,
    pub(crate) hosts: watch::Sender<BTreeSet<String>>,
    pub(crate) resolutions: mpsc::Receiver<Resolution>,
    pub(crate) ready: watch::Sender<bool>,
    /// Where events are kept.
    pub(crate) desired: Arc<ArcSwap<Desired>>,
    /// Those who tell others what happened.
    pub(crate) happened: mpsc::Sender<Happened>,
    /// Whether an endpoint is draining, which ends at a time of day.
    pub(crate) drains: bool,
    /// When this process began: cookies of an earlier one are not counted.
    pub(crate) began: Wall,
    /// Endpoints that are draining and were said to have no session left.
    pub(crate) deserted: BTreeSet<Id>,
    /// Sessions by endpoint, while they are being counted.
    pub(crate) counting: Option<JoinHandle<Counted>>,
}

impl Drive {
    /// Carries out `first`, then runs until the sender of catalogs is gone.
    pub(crate) async fn run(mut self, first: Vec<Output>) {
        first.into_iter().for_each(|output| self.carry_out(output));
        let mut clock = interval(CLOCK);
        clock.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            while let Some(output) = self.engine.poll_output() {
                self.carry_out(output);
            }
            let due = self.engine.poll_timeout();
            let now = self.plane.now();
            let wait = due.map_or(Duration::MAX, |due| due.since(now));
            let input = tokio::select! {
                catalog = self.catalogs.recv() => match catalog {
                    Some(new) => {
                        let catalog = Arc::clone(&new.catalog);
                        self.unpublished = Some(new);
                        // What it turns off begins to drain now.
                        self.engine.handle(Input::Clock(crate::wall()), self.plane.now());
                        Input::Catalog(catalog)
                    }
                    None => return,
                },
                Some((probe, result)) = self.results.recv() => {
                    self.probes.answered(probe, result);
                    Input::Probed { probe, result }
                }
                Some(Resolution { host, resolvable }) = self.resolutions.recv() => {
                    Input::Resolved { host, resolvable }
                }
                Some(answer) = self.questions.recv() => {
                    let _gone = answer.send(self.engine.known(self.plane.now()));
                    continue;
                }
                _ = clock.tick(), if self.drains => {
                    let plane = Arc::clone(&self.plane);
                    // Apart from this thread: it walks all pins there are.
                    self.counting.get_or_insert_with(|| {
                        spawn_blocking(move || plane.pins_live(crate::wall()))
                    });
                    Input::Clock(crate::wall())
                }
                counted = counted(&mut self.counting) => {
                    self.tell_deserted(&counted);
                    continue;
                }
                () = sleep(wait), if due.is_some() => {
                    self.engine.handle_timeout(self.plane.now());
                    continue;
                }
            };
            self.engine.handle(input, self.plane.now());
        }
    }

    /// Says of a draining endpoint once that nobody whom this process knows is left to wait for.
    /// Its state stays: cookies that another node or an earlier process gave are not known here. A
    /// drain that an earlier process began ends with its time, and not a word is said before: the
    /// sessions that it waits for are those that are not counted.
    fn tell_deserted(&mut self, sessions: &Counted) {
        let (snapshot, now) = (self.plane.snapshot(), crate::wall());
        let mut deserted = BTreeSet::new();
        for pool in snapshot.pools() {
            for (ix, endpoint, health) in pool.endpoints() {
                let Some(left) = snapshot.drain_left(ix, now) else {
                    continue;
                };
                let older = health.drain.is_none_or(|drain| drain.began < self.began);
                if older || sessions.contains_key(&endpoint.id) {
                    continue;
                }
                deserted.insert(endpoint.id);
                if !self.deserted.contains(&endpoint.id) {
                    let (pool, name) = (pool.name, &endpoint.name);
                    let address = place(&endpoint.address, endpoint.port);
                    let left = left.as_secs();
                    tracing::info!(
                        "endpoint {pool}/{name} at {address}: no session that this process gave is left, {left} s before the drain ends"
                    );
                }
            }
        }
        self.deserted = deserted;
    }

    /// Hands a change to those who tell it. Nothing waits for them.
    fn tell(&self, change: &StateChange) {
        if let Some(happened) = events::told(change, &self.plane.snapshot())
            && self.happened.try_send(happened).is_err()
        {
            tracing::warn!("a change is not told to anybody: {HAPPENED_MAX} others wait to be");
        }
    }

    fn carry_out(&mut self, output: Output) {
        match output {
            Output::Probe(order) => {
                self.probes.ordered(&order);
                // The channel holds as many as the engine ever has under way. Should it be full all
                // the same, the engine gives the attempt up after its timeout.
                if let Err(error) = self.orders.try_send(order) {
                    tracing::error!(%error, "probe lost");
                }
            }
            // An attempt runs for a few seconds at most; its result will be ignored.
            Output::Cancel(probe) => self.probes.cancelled(probe),
            Output::Publish(snapshot) => {
                let awaited = self
                    .unpublished
                    .take_if(|new| Arc::ptr_eq(&new.catalog, snapshot.catalog()));
                self.drains = drains(&snapshot);
                self.plane.publish(snapshot);
                if let Some(new) = awaited {
                    let _gone = new.in_force.send(()); // nobody waits any more: nobody to tell
                }
            }
            Output::Resolve(hosts) => {
                self.hosts.send_replace(hosts.into_iter().collect());
            }
            Output::Event(change) => {
                log(&change);
                self.tell(&change);
                if let Some(store) = &self.desired.load().store
                    && let Some(event) = events::of(&change, &self.plane.snapshot())
                {
                    // One for which there is no room is counted there.
                    let _kept = store.record(event);
                }
            }
            Output::Ready => {
                self.ready.send_replace(true);
            }
        }
    }
}

/// Whether any endpoint is draining.
fn drains(snapshot: &Snapshot) -> bool {
    let mut endpoints = snapshot.pools().flat_map(|pool| pool.endpoints());
    endpoints.any(|(.., health)| health.state == EndpointState::Draining)
}

/// The count that is under way, once it is done; never without one.
async fn counted(counting: &mut Option<JoinHandle<Counted>>) -> Counted {
    let Some(task) = counting else {
        return std::future::pending().await;
    };
    let counted = task.await;
    *counting = None;
    match counted {
        Ok(counted) => counted,
        // It neither panics nor is cancelled; if it did, nobody would be said to be gone.
        Err(_) => std::future::pending().await,
    }
}

async fn sleep(wait: Duration) {
    tokio::time::sleep_until(Instant::now() + wait).await;
}

/// An endpoint's address as one would type it.
fn place(address: &Address, port: Option<u16>) -> String {
    match (address, port) {
        (Address::Ip(ip), Some(port)) => SocketAddr::new(*ip, port).to_string(),
        (Address::Host(host), Some(port)) => format!("{host}:{port}"),
        (address, None) => address.to_string(),
    }
}

/// Says what changed; a change that takes traffic away is a warning.
fn log(change: &StateChange) {
    match change {
        StateChange::Endpoint {
            pool,
            endpoint,
            address,
            port,
            was,
            now,
            reason,
        } => {
            let address = place(address, *port);
            if *now == EndpointState::Critical {
                tracing::warn!("endpoint {pool}/{endpoint} at {address}: {was} -> {now}: {reason}");
            } else {
                tracing::info!("endpoint {pool}/{endpoint} at {address}: {was} -> {now}: {reason}");
            }
        }
        StateChange::Pool {
            pool,
            was,
            now,
            reason,
        } => {
            if *now == PoolState::Critical {
                tracing::warn!("pool {pool}: {was} -> {now}: {reason}");
            } else {
                tracing::info!("pool {pool}: {was} -> {now}: {reason}");
            }
        }
    }
}
