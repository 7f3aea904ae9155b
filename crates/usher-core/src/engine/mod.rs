//! What changes: takes everything that happens, keeps health, orders probes, publishes snapshots.
//!
//! No method waits or looks at a clock. The order of calls: [`Engine::handle`] when something
//! happened or [`Engine::handle_timeout`] when [`Engine::poll_timeout`] is due; then
//! [`Engine::poll_output`] until `None`; then wait until [`Engine::poll_timeout`].
//!
//! Results change watches at once and snapshots a little later: a published snapshot costs one
//! pointer per pool, and hundreds of results may come in the same moment.

mod known;
mod plan;
mod watch;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use crate::catalog::{Address, Catalog, Endpoint, EndpointIx, Monitoring, Pool, PoolIx};
use crate::chance::Chance;
use crate::health::{Ballot, Effect, EndpointReason, EndpointState, PoolReason, PoolState, vote};
use crate::id::Id;
use crate::probe::{ProbeId, ProbeOrder, ProbeResult};
use crate::snapshot::{Drain, EndpointHealth, Lookup, PoolHealth, Snapshot, mean};
use crate::steering::Weight;
use crate::time::{Mono, Wall};
use crate::topology::Topology;
pub use known::Known;
use known::Memories;
use plan::{Juror, Plan, Task};
use watch::{Verdict, Watches};

/// How long [`Output::Ready`] waits for first verdicts when nothing else is set.
pub const READY_TIMEOUT: Duration = Duration::from_secs(10);

/// The most first probes that are under way at one moment: a new catalog does not send thousands
/// at once.
pub const FIRST_PROBES_IN_FLIGHT_MAX: usize = 64;

/// The most attempts of any kind that are under way at one moment. Above the former, so that
/// endpoints that do not answer cannot hold up the probes of those that do.
pub const PROBES_IN_FLIGHT_MAX: usize = 1024;

/// The least time between two published snapshots; the first one goes out at once.
pub const PUBLISH_GAP: Duration = Duration::from_millis(50);

/// How late a snapshot may be in which only figures of probes (status, round trip) are new.
pub const FIGURES_LATE_MAX: Duration = Duration::from_secs(1);

/// How long after its own timeout an attempt that nobody answered for is given up and counted as a
/// timeout.
pub const PROBE_LOST_AFTER: Duration = Duration::from_secs(1);

/// Something that happened.
#[derive(Debug, Clone)]
pub enum Input {
    /// This is wanted from now on.
    Catalog(Arc<Catalog>),
    /// It is this time now. To be said before the first catalog, and when the clock was set: pins of
    /// endpoints that are turned off hold until a time of day. An engine that was never told drains
    /// nothing.
    Clock(Wall),
    /// An attempt ended.
    Probed {
        /// Which.
        probe: ProbeId,
        /// How.
        result: ProbeResult,
    },
    /// A hostname of [`Output::Resolve`] was looked up.
    Resolved {
        /// The hostname, as it was asked for.
        host: String,
        /// Whether it has an address now.
        resolvable: bool,
    },
}

/// Something to do.
#[derive(Debug, Clone)]
pub enum Output {
    /// Make this attempt and answer with [`Input::Probed`].
    Probe(ProbeOrder),
    /// The answer to this attempt is not needed any more.
    Cancel(ProbeId),
    /// Decide with this from now on.
    Publish(Arc<Snapshot>),
    /// Keep these hostnames looked up, and no others; say with [`Input::Resolved`] once whether each
    /// has an address, and again when that changes.
    Resolve(Vec<String>),
    /// A state changed: for the log. Comes just before the snapshot that holds it.
    Event(StateChange),
    /// Traffic can be taken: first verdicts are in, or have been waited for long enough. Said once,
    /// after the snapshot that holds them.
    Ready,
}

/// A change of state between two snapshots.
#[derive(Debug, Clone, PartialEq)]
pub enum StateChange {
    /// Of an endpoint.
    Endpoint {
        /// Name of its pool.
        pool: String,
        /// Its name.
        endpoint: String,
        /// Its address.
        address: Address,
        /// Its port, if it has one of its own.
        port: Option<u16>,
        /// Its state before.
        was: EndpointState,
        /// Its state now.
        now: EndpointState,
        /// Why.
        reason: EndpointReason,
    },
    /// Of a pool.
    Pool {
        /// Its name.
        pool: String,
        /// Its state before.
        was: PoolState,
        /// Its state now.
        now: PoolState,
        /// Why.
        reason: PoolReason,
    },
}

/// Keeps health and says what to do.
#[derive(Debug)]
pub struct Engine {
    chance: Chance,
    ready_timeout: Duration,
    ready: Ready,
    /// A moment on both clocks.
    clock: Option<(Mono, Wall)>,
    /// When the first of the endpoints that are draining is drained.
    drained_at: Option<Wall>,
    /// What another engine saw being turned off, until the first catalog has been taken in.
    turned_off: BTreeMap<Id, Wall>,
    /// What is wanted; `None` before the first catalog.
    current: Option<Current>,
    watches: Watches,
    /// From another process, until the first catalog comes.
    inherited: Vec<Known>,
    /// Every hostname that is looked up, and what is known of it.
    lookups: BTreeMap<String, Lookup>,
    published: Option<Arc<Snapshot>>,
    published_at: Option<Mono>,
    /// When the next snapshot is to go out, if there is something new.
    publish_due: Option<Mono>,
    revision: u64,
    outputs: VecDeque<Output>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ready {
    /// No catalog yet.
    Idle,
    /// First verdicts are awaited until then.
    Waiting {
        until: Mono,
    },
    Said,
}

/// The catalog in force and everything that is indexed by it.
#[derive(Debug)]
struct Current {
    topology: Arc<Topology>,
    /// By [`EndpointIx`].
    jurors: Vec<Vec<Juror>>,
    /// The pools in which a hostname stands.
    hosts: BTreeMap<String, Vec<PoolIx>>,
    pools: Vec<Arc<PoolHealth>>,
    /// Pools whose health is to be computed again.
    dirty: BTreeSet<PoolIx>,
}

impl Engine {
    /// An engine without a catalog, whose only chance is `seed`.
    #[must_use]
    pub fn new(seed: u64) -> Engine {
        Engine {
            chance: Chance::new(seed),
            ready_timeout: READY_TIMEOUT,
            ready: Ready::Idle,
            clock: None,
            drained_at: None,
            turned_off: BTreeMap::new(),
            current: None,
            watches: Watches::default(),
            inherited: Vec::new(),
            lookups: BTreeMap::new(),
            published: None,
            published_at: None,
            publish_due: None,
            revision: 0,
            outputs: VecDeque::new(),
        }
    }

    /// Waits this long for first verdicts instead of [`READY_TIMEOUT`].
    #[must_use]
    pub fn with_ready_timeout(self, ready_timeout: Duration) -> Engine {
        Engine {
            ready_timeout,
            ..self
        }
    }

    /// Goes on from what another engine knew when [`Engine::known`] was asked. Only for the first
    /// catalog, so to be said before it.
    #[must_use]
    pub fn with_known(self, known: Vec<Known>) -> Engine {
        Engine {
            inherited: known,
            ..self
        }
    }

    /// Endpoints, by id, that another engine saw being turned off, and when: pins to them hold on.
    /// Only for the first catalog, so to be said before it.
    #[must_use]
    pub fn with_drains(self, drains: impl IntoIterator<Item = (Id, Wall)>) -> Engine {
        Engine {
            turned_off: drains.into_iter().collect(),
            ..self
        }
    }

    /// All that another engine needs to go on in this one's place.
    #[must_use]
    pub fn known(&self, now: Mono) -> Vec<Known> {
        let Some(current) = &self.current else {
            return Vec::new();
        };
        let mut known = Vec::new();
        for watch in self.watches.iter() {
            let ids = watch.task.endpoints.iter();
            let ids = ids.map(|&endpoint| current.topology.endpoint(endpoint).id);
            known.extend(ids.map(|id| watch.known(id, now)));
        }
        known
    }

    /// Takes in what happened.
    pub fn handle(&mut self, input: Input, now: Mono) {
        match input {
            Input::Catalog(catalog) => self.replace(Arc::new(Topology::new(catalog)), now),
            Input::Clock(wall) => self.clock = Some((now, wall)),
            Input::Probed { probe, result } => {
                let verdict =
                    self.watches
                        .probed(probe, result, now, &mut self.chance, &mut self.outputs);
                self.judged(verdict, now);
            }
            Input::Resolved { host, resolvable } => self.resolved(&host, resolvable, now),
        }
        self.handle_timeout(now);
    }

    /// Does what is due by now.
    pub fn handle_timeout(&mut self, now: Mono) {
        while let Some(verdict) = self
            .watches
            .expire(now, &mut self.chance, &mut self.outputs)
        {
            self.judged(Some(verdict), now);
        }
        if self.drain_due().is_some_and(|due| due <= now)
            && let Some(current) = &self.current
        {
            self.replace(Arc::clone(&current.topology), now);
        }
        self.watches.start(now, &mut self.outputs);
        let waited = matches!(self.ready, Ready::Waiting { until } if until <= now);
        if self.publish_due.is_some_and(|due| due <= now || waited) {
            self.publish(now);
        }
        if waited
            || (matches!(self.ready, Ready::Waiting { .. })
                && self.publish_due.is_none()
                && self.settled())
        {
            self.ready = Ready::Said;
            self.outputs.push_back(Output::Ready);
        }
    }

    /// The next thing to do; drain until `None`.
    pub fn poll_output(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    /// When [`Engine::handle_timeout`] is due next; `None` while nothing is.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Mono> {
        let ready = match self.ready {
            Ready::Waiting { until } => Some(until),
            Ready::Idle | Ready::Said => None,
        };
        [
            self.watches.timeout(),
            self.publish_due,
            ready,
            self.drain_due(),
        ]
        .into_iter()
        .flatten()
        .min()
    }

    /// What the other clock shows.
    fn wall(&self, now: Mono) -> Option<Wall> {
        self.clock.map(|(then, wall)| wall.after(now.since(then)))
    }

    fn drain_due(&self) -> Option<Mono> {
        let (then, wall) = self.clock?;
        Some(then.after(self.drained_at?.since(wall)))
    }

    /// The time after `endpoint` was turned off, if that moment is known.
    fn drain(
        &self,
        topology: &Topology,
        pool: PoolIx,
        endpoint: &Endpoint,
        before: Option<Before>,
        now: Mono,
    ) -> Option<Drain> {
        if endpoint.enabled {
            return None;
        }
        let seen = || match before? {
            Before { enabled: true, .. } => self.wall(now),
            Before { health, .. } => health.drain.map(|drain| drain.began),
        };
        let told = || self.turned_off.get(&endpoint.id).copied();
        let began = endpoint.disabled_at.or_else(seen).or_else(told)?;
        Some(Drain {
            began,
            ends: began.after(topology.drain_max(pool)),
            works: false,
        })
    }

    fn is_running(&self, drain: &Drain, now: Mono) -> bool {
        self.wall(now).is_some_and(|wall| wall < drain.ends)
    }

    fn replace(&mut self, topology: Arc<Topology>, now: Mono) {
        let catalog = Arc::clone(topology.catalog());
        let known = self
            .current
            .as_ref()
            .map(Current::by_id)
            .unwrap_or_default();
        let mut serving = Vec::with_capacity(topology.endpoints().len());
        let mut drained_at: Option<Wall> = None;
        for (ix, pool) in catalog.pools() {
            for endpoint in &pool.endpoints {
                let before = known.endpoints.get(&endpoint.id).copied();
                let drain = self.drain(&topology, ix, endpoint, before, now);
                let drain = drain.filter(|drain| pool.enabled && self.is_running(drain, now));
                let earlier = |already: Wall, ends: Wall| already.min(ends);
                if let Some(Drain { ends, .. }) = drain {
                    drained_at = Some(drained_at.map_or(ends, |already| earlier(already, ends)));
                }
                serving.push(pool.enabled && (endpoint.enabled || drain.is_some()));
            }
        }
        drop(known);
        self.drained_at = drained_at;
        let Plan { tasks, jurors } = Plan::new(&topology, &serving);
        let inherited = std::mem::take(&mut self.inherited);
        let memories = match &self.current {
            Some(current) => self.memories(current),
            None => known::memories(&inherited),
        };
        let remember = |task: &Task| {
            let known = |endpoint: &EndpointIx| {
                let id = topology.endpoint(*endpoint).id;
                let kind = task.probe.kind.name();
                let by_monitor = memories.get(&(id, kind, Some(task.key.monitor)));
                let alone = jurors[endpoint.at()].len() == 1;
                by_monitor.or_else(|| memories.get(&(id, kind, None)).filter(|_| alone))
            };
            task.endpoints.iter().find_map(known).copied()
        };
        self.watches
            .replace(tasks, now, remember, &mut self.outputs);

        let hosts = plan::hosts(&topology, &serving);
        if !hosts.keys().eq(self.lookups.keys()) {
            let lookup = |host: &String| self.lookups.get(host).copied().unwrap_or(Lookup::Pending);
            self.lookups = hosts
                .keys()
                .map(|host| (host.clone(), lookup(host)))
                .collect();
            self.outputs
                .push_back(Output::Resolve(hosts.keys().cloned().collect()));
        }

        let before = self.current.take();
        let known = before.as_ref().map(Current::by_id).unwrap_or_default();
        let mut current = Current {
            topology,
            jurors,
            hosts,
            pools: Vec::new(),
            dirty: BTreeSet::new(),
        };
        for (ix, pool) in catalog.pools() {
            let before = |endpoint: &Endpoint| known.endpoints.get(&endpoint.id).copied();
            let endpoints = self.endpoints(&current, ix, pool, before, now);
            let health = PoolHealth::new(pool, endpoints, now);
            current
                .pools
                .push(kept_since(health, known.pools.get(&pool.id).copied()));
        }
        self.current = Some(current);
        self.turned_off.clear();
        if self.ready == Ready::Idle {
            self.ready = Ready::Waiting {
                until: now.after(self.ready_timeout),
            };
        }
        self.publish_by(now);
    }

    /// What each monitor knows of each endpoint, and what the only monitor of an endpoint knows of it:
    /// that passes on to another monitor of the same type, if it is the only one in its turn. Among
    /// several it would be one opinion with two votes.
    fn memories(&self, current: &Current) -> Memories {
        let mut memories = Memories::new();
        for watch in self.watches.iter() {
            let (memory, kind) = (watch.memory(), watch.task.probe.kind.name());
            for &endpoint in &watch.task.endpoints {
                let id = current.topology.endpoint(endpoint).id;
                memories.insert((id, kind, Some(watch.task.key.monitor)), memory);
                if current.jurors[endpoint.at()].len() == 1 {
                    memories.insert((id, kind, None), memory);
                }
            }
        }
        memories
    }

    fn resolved(&mut self, host: &str, resolvable: bool, now: Mono) {
        let lookup = if resolvable {
            Lookup::Resolves
        } else {
            Lookup::UnknownHost
        };
        let Some(known) = self.lookups.get_mut(host) else {
            return;
        };
        if std::mem::replace(known, lookup) == lookup {
            return;
        }
        if let Some(current) = &mut self.current {
            current
                .dirty
                .extend(current.hosts.get(host).into_iter().flatten());
        }
        self.publish_by(now);
    }

    fn judged(&mut self, verdict: Option<Verdict>, now: Mono) {
        let (Some(Verdict { watch, effect }), Some(current)) = (verdict, &mut self.current) else {
            return;
        };
        let endpoints = &self.watches.get(watch).task.endpoints;
        current.dirty.extend(
            endpoints
                .iter()
                .map(|&endpoint| current.topology.endpoint(endpoint).pool),
        );
        match effect {
            Effect::Same => self.publish_by(now.after(FIGURES_LATE_MAX)),
            Effect::TurnedUp | Effect::TurnedDown => self.publish_by(now),
        }
    }

    /// Publishes by `when`, or as soon after it as the gap allows.
    fn publish_by(&mut self, when: Mono) {
        let earliest = self
            .published_at
            .map_or(Mono::ZERO, |last| last.after(PUBLISH_GAP));
        let due = when.max(earliest);
        self.publish_due = Some(self.publish_due.map_or(due, |already| already.min(due)));
    }

    fn publish(&mut self, now: Mono) {
        self.publish_due = None;
        let Some(mut current) = self.current.take() else {
            return;
        };
        let catalog = Arc::clone(current.topology.catalog());
        for ix in std::mem::take(&mut current.dirty) {
            let pool = catalog.pool(ix);
            let before = Arc::clone(&current.pools[ix.at()]);
            let mut places = before.endpoints.iter();
            let same = |endpoint: &Endpoint| {
                places.next().map(|&health| Before {
                    health,
                    enabled: endpoint.enabled,
                })
            };
            let endpoints = self.endpoints(&current, ix, pool, same, now);
            current.pools[ix.at()] =
                kept_since(PoolHealth::new(pool, endpoints, now), Some(&*before));
        }
        let changed = |before: &Arc<Snapshot>| before.differs(&current.topology, &current.pools);
        self.revision += u64::from(self.published.as_ref().is_none_or(changed));
        let pools = current.pools.iter().map(Arc::clone).collect();
        let snapshot = Arc::new(Snapshot::new(
            self.revision,
            Arc::clone(&current.topology),
            pools,
        ));
        if let Some(before) = &self.published {
            self.outputs
                .extend(changes(before, &snapshot).into_iter().map(Output::Event));
        }
        self.outputs
            .push_back(Output::Publish(Arc::clone(&snapshot)));
        (self.published, self.published_at) = (Some(snapshot), Some(now));
        self.current = Some(current);
    }

    /// The health of every endpoint of a pool, as the watches and lookups have it.
    fn endpoints(
        &self,
        current: &Current,
        ix: PoolIx,
        pool: &Pool,
        mut before: impl FnMut(&Endpoint) -> Option<Before>,
        now: Mono,
    ) -> Box<[EndpointHealth]> {
        let mut ballots = Vec::new();
        let health = pool.endpoints.iter().enumerate().map(|(place, endpoint)| {
            let jurors = &current.jurors[current.topology.endpoint_of(ix, place).at()];
            let lookup = match &endpoint.address {
                Address::Ip(_) => Lookup::Resolves,
                Address::Host(host) => self.lookups.get(host).copied().unwrap_or(Lookup::Pending),
            };
            let weight = Weight::from_f64(endpoint.weight);
            let before = before(endpoint);
            let drain = self.drain(&current.topology, ix, endpoint, before, now);
            let settled = |state, reason| EndpointHealth {
                state,
                reason,
                since: now,
                weight,
                lookup,
                status: None,
                rtt: None,
                latency: None,
                drain,
            };
            let draining = drain.filter(|drain| pool.enabled && self.is_running(drain, now));
            let health = if !pool.enabled {
                settled(EndpointState::Disabled, EndpointReason::PoolDisabled)
            } else if !endpoint.enabled && draining.is_none() {
                let over = drain.is_some_and(|drain| drain.began < drain.ends);
                let reason = match over && self.clock.is_some() {
                    true => EndpointReason::Drained,
                    false => EndpointReason::Disabled,
                };
                settled(EndpointState::Disabled, reason)
            } else if pool.monitoring == Monitoring::None {
                settled(EndpointState::Unknown, EndpointReason::NoMonitor)
            } else {
                ballots.clear();
                ballots.extend(jurors.iter().map(
                    |&Juror {
                         task,
                         votes,
                         decisive,
                     }| {
                        Ballot {
                            standing: self.watches.get(task).standing,
                            votes,
                            decisive,
                        }
                    },
                ));
                let outcome = vote(&ballots);
                let watch = outcome
                    .because
                    .map(|ballot| self.watches.get(jurors[ballot].task));
                let reason = match (outcome.state, watch) {
                    (EndpointState::Critical, Some(watch)) => EndpointReason::Probe(watch.failure),
                    (EndpointState::Healthy, _) => {
                        EndpointReason::Probe(crate::health::FailureReason::None)
                    }
                    _ => EndpointReason::Pending,
                };
                let last = watch.and_then(|watch| watch.last);
                let (status, rtt) = (
                    last.and_then(|last| last.status()),
                    last.and_then(|last| last.rtt()),
                );
                let voters = jurors.iter().filter(|juror| juror.votes);
                let latencies = voters.map(|juror| self.watches.get(juror.task).latency(now));
                EndpointHealth {
                    status,
                    rtt,
                    latency: mean(latencies.flatten()),
                    ..settled(outcome.state, reason)
                }
            };
            let health = match draining {
                Some(drain) => EndpointHealth {
                    drain: Some(Drain {
                        works: match health.state {
                            EndpointState::Healthy => true,
                            EndpointState::Unknown => pool.monitoring == Monitoring::None,
                            _ => false,
                        },
                        ..drain
                    }),
                    state: EndpointState::Draining,
                    reason: EndpointReason::Draining,
                    ..health
                },
                None => health,
            };
            match before.map(|before| before.health) {
                Some(known) if known.state == health.state => EndpointHealth {
                    since: known.since,
                    ..health
                },
                _ => health,
            }
        });
        health.collect()
    }

    /// Whether every endpoint that waits for a verdict has one, and every hostname an answer.
    fn settled(&self) -> bool {
        let Some(current) = &self.current else {
            return false;
        };
        let judged = |jurors: &Vec<Juror>| {
            let mut voters = jurors.iter().filter(|juror| juror.votes).peekable();
            voters.peek().is_none()
                || voters.any(|juror| self.watches.get(juror.task).standing.verdict().is_some())
        };
        current.jurors.iter().all(judged)
            && self
                .lookups
                .values()
                .all(|&lookup| lookup != Lookup::Pending)
    }
}

/// The health of a catalog's pools and endpoints by their ids.
#[derive(Default)]
struct ById<'a> {
    pools: BTreeMap<Id, &'a PoolHealth>,
    endpoints: BTreeMap<Id, Before>,
}

/// What an endpoint was.
#[derive(Clone, Copy)]
struct Before {
    health: EndpointHealth,
    /// Whether it was wanted, whatever its pool was.
    enabled: bool,
}

impl Current {
    fn by_id(&self) -> ById<'_> {
        let mut known = ById::default();
        for ((_, pool), health) in self.topology.catalog().pools().zip(&self.pools) {
            known.pools.insert(pool.id, &**health);
            let endpoints = pool.endpoints.iter().zip(&health.endpoints);
            known.endpoints.extend(endpoints.map(|(endpoint, &health)| {
                let enabled = endpoint.enabled;
                (endpoint.id, Before { health, enabled })
            }));
        }
        known
    }
}

/// `health`, whose state began when that of `before` did if it is the same.
fn kept_since(health: PoolHealth, before: Option<&PoolHealth>) -> Arc<PoolHealth> {
    match before {
        Some(before) if before.state == health.state => Arc::new(PoolHealth {
            since: before.since,
            ..health
        }),
        _ => Arc::new(health),
    }
}

/// What the log says between two snapshots. What only one of them has is no change of state.
fn changes(before: &Snapshot, after: &Snapshot) -> Vec<StateChange> {
    let mut changes = Vec::new();
    let same_catalog = Arc::ptr_eq(before.catalog(), after.catalog());
    for pool in after.pools() {
        let known = if same_catalog {
            Some(pool.ix)
        } else {
            before.catalog().pool_by_id(pool.id)
        };
        let Some(known) = known else { continue };
        if same_catalog && before.shares_health(after, pool.ix) {
            continue;
        }
        let was: BTreeMap<Id, EndpointState> = before
            .pool(known)
            .endpoints()
            .map(|(_, view, health)| (view.id, health.state))
            .collect();
        for (_, view, health) in pool.endpoints() {
            if let Some(&was) = was.get(&view.id).filter(|&&was| was != health.state) {
                changes.push(StateChange::Endpoint {
                    pool: pool.name.to_owned(),
                    endpoint: view.name.clone(),
                    address: view.address.clone(),
                    port: view.port,
                    was,
                    now: health.state,
                    reason: health.reason,
                });
            }
        }
        let was = before.pool(known).state;
        if was != pool.state {
            changes.push(StateChange::Pool {
                pool: pool.name.to_owned(),
                was,
                now: pool.state,
                reason: pool.reason,
            });
        }
    }
    changes
}

#[cfg(test)]
mod tests;
