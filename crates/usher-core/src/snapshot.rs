//! Everything that a decision is made from, frozen: any number of threads read one without a lock.
//!
//! Health is kept pool by pool behind an `Arc`, so that publishing after a change copies one
//! pointer per pool and computes only the pools that changed.

use std::sync::Arc;
use std::time::Duration;

use crate::assume::{AssumedEndpoint, AssumedPool, Assumption, AssumptionFault};
use crate::catalog::{BalancerIx, Catalog, EndpointIx, Monitoring, Pool, PoolIx};
use crate::decide;
use crate::decision::Decision;
use crate::health::{
    BalancerState, EndpointReason, EndpointState, PoolReason, PoolState, pool_state,
};
use crate::id::Id;
use crate::request::Request;
use crate::steering::Weight;
use crate::time::Mono;
use crate::topology::Topology;
pub use crate::topology::{EndpointView, TlsProfile, Transport};
use crate::trace::Trace;

/// Live numbers that steer and are never published: kept by the front, read per decision.
pub trait Counts {
    /// Requests sent to `endpoint` and not yet answered completely, on this node.
    fn open_requests(&self, endpoint: EndpointIx) -> u32;
}

/// Nothing is under way.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoCounts;

impl Counts for NoCounts {
    fn open_requests(&self, _: EndpointIx) -> u32 {
        0
    }
}

/// Whether there is an address to connect to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Lookup {
    /// There is.
    Resolves,
    /// Nobody has answered yet.
    Pending,
    /// The hostname does not resolve.
    UnknownHost,
}

/// What is known of one endpoint.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct EndpointHealth {
    /// Its state.
    pub state: EndpointState,
    /// Why it is in that state.
    pub reason: EndpointReason,
    /// Since when.
    pub since: Mono,
    /// Its weight.
    pub weight: Weight,
    /// Whether its hostname has an address. Without one it gets no traffic, whatever its state.
    pub lookup: Lookup,
    /// Status of the last HTTP probe that was answered.
    pub status: Option<u16>,
    /// Round trip of the last probe, if it was measured.
    pub rtt: Option<Duration>,
}

/// What is known of one pool, with its candidates made ready.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct PoolHealth {
    pub(crate) state: PoolState,
    pub(crate) reason: PoolReason,
    pub(crate) since: Mono,
    pub(crate) endpoints: Box<[EndpointHealth]>,
    /// May be chosen by steering.
    pub(crate) usable: bool,
    /// The weight of each endpoint by place, 0 where steering may not choose it.
    pub(crate) candidates: Box<[Weight]>,
    /// The same when this is the fallback pool and no pool is usable.
    pub(crate) last_resort: Box<[Weight]>,
}

impl PoolHealth {
    /// Counts `endpoints`, whose states are settled.
    pub(crate) fn new(pool: &Pool, endpoints: Box<[EndpointHealth]>, since: Mono) -> PoolHealth {
        let monitored = pool.monitoring != Monitoring::None;
        let (state, reason) = if !pool.enabled {
            (PoolState::Disabled, PoolReason::Disabled)
        } else if !monitored {
            (PoolState::Unknown, PoolReason::NoMonitor)
        } else {
            let count = |state| {
                endpoints
                    .iter()
                    .filter(|endpoint| endpoint.state == state)
                    .count() as u32
            };
            let enabled = endpoints.len() as u32 - count(EndpointState::Disabled);
            let (healthy, pending) = (count(EndpointState::Healthy), count(EndpointState::Unknown));
            pool_state(healthy, pending, enabled, pool.endpoints_min)
        };
        PoolHealth::with_state(state, reason, monitored, endpoints, since)
    }

    fn with_state(
        state: PoolState,
        reason: PoolReason,
        monitored: bool,
        endpoints: Box<[EndpointHealth]>,
        since: Mono,
    ) -> PoolHealth {
        let enabled = |endpoint: &EndpointHealth| {
            endpoint.state != EndpointState::Disabled && endpoint.resolves()
        };
        let healthy = |endpoint: &EndpointHealth| {
            let works = match endpoint.state {
                EndpointState::Healthy => true,
                EndpointState::Unknown => !monitored,
                EndpointState::Critical | EndpointState::Disabled => false,
            };
            works && endpoint.resolves()
        };
        // One that `may` not be chosen has no weight.
        let weights = |may: &dyn Fn(&EndpointHealth) -> bool, weight: &dyn Fn(Weight) -> Weight| {
            let own = |endpoint: &EndpointHealth| match may(endpoint) {
                true => weight(endpoint.weight),
                false => Weight::ZERO,
            };
            endpoints.iter().map(own).collect::<Box<[Weight]>>()
        };
        let nothing = |weights: &[Weight]| weights.iter().all(|weight| weight.is_zero());
        let candidates = weights(&healthy, &|weight| weight);
        let carries = match state {
            PoolState::Healthy | PoolState::Degraded => true,
            PoolState::Unknown => !monitored,
            PoolState::Critical | PoolState::Disabled => false,
        };
        let usable = carries && !nothing(&candidates);
        // As the fallback pool: the healthy ones if there are any, else all; and if all that is left
        // has weight 0, equal shares.
        let left: &dyn Fn(&EndpointHealth) -> bool = match endpoints.iter().any(healthy) {
            _ if state == PoolState::Disabled => &|_| false,
            true => &healthy,
            false => &enabled,
        };
        let mut last_resort = weights(left, &|weight| weight);
        if nothing(&last_resort) {
            last_resort = weights(left, &|_| Weight::ONE);
        }
        PoolHealth {
            state,
            reason,
            since,
            endpoints,
            usable,
            candidates,
            last_resort,
        }
    }
}

/// One pool of a snapshot.
#[derive(Debug, Clone, Copy)]
pub struct PoolView<'a> {
    /// Its place.
    pub ix: PoolIx,
    /// Its id.
    pub id: Id,
    /// Its name.
    pub name: &'a str,
    /// Its state.
    pub state: PoolState,
    /// Why it is in that state.
    pub reason: PoolReason,
    /// Since when.
    pub since: Mono,
    /// Whether steering may choose it: enabled, not critical, and with a candidate inside.
    pub usable: bool,
    snapshot: &'a Snapshot,
}

impl<'a> PoolView<'a> {
    /// Its endpoints in order.
    pub fn endpoints(
        &self,
    ) -> impl Iterator<Item = (EndpointIx, &'a EndpointView, &'a EndpointHealth)> + use<'a> {
        let (snapshot, pool) = (self.snapshot, self.ix);
        snapshot.pools[pool.at()]
            .endpoints
            .iter()
            .enumerate()
            .map(move |(place, health)| {
                let ix = snapshot.topology.endpoint_of(pool, place);
                (ix, snapshot.topology.endpoint(ix), health)
            })
    }
}

/// Desired state and health at one moment.
#[derive(Debug, Clone)]
pub struct Snapshot {
    revision: u64,
    topology: Arc<Topology>,
    pools: Box<[Arc<PoolHealth>]>,
}

impl Snapshot {
    pub(crate) fn new(
        revision: u64,
        topology: Arc<Topology>,
        pools: Box<[Arc<PoolHealth>]>,
    ) -> Snapshot {
        Snapshot {
            revision,
            topology,
            pools,
        }
    }

    /// What is decided when nothing is known to be wrong: monitored endpoints count as healthy, and
    /// every hostname as resolvable. For explanations without a running node.
    #[must_use]
    pub fn presumed(catalog: Arc<Catalog>) -> Snapshot {
        let topology = Arc::new(Topology::new(catalog));
        let pools = topology.catalog().draft().pools.iter().map(|pool| {
            let endpoints = pool.endpoints.iter().map(|endpoint| {
                let (state, reason) = if !pool.enabled {
                    (EndpointState::Disabled, EndpointReason::PoolDisabled)
                } else if !endpoint.enabled {
                    (EndpointState::Disabled, EndpointReason::Disabled)
                } else if pool.monitoring == Monitoring::None {
                    (EndpointState::Unknown, EndpointReason::NoMonitor)
                } else {
                    (EndpointState::Healthy, EndpointReason::Assumed)
                };
                let weight = Weight::from_f64(endpoint.weight);
                EndpointHealth {
                    state,
                    reason,
                    since: Mono::ZERO,
                    weight,
                    lookup: Lookup::Resolves,
                    status: None,
                    rtt: None,
                }
            });
            Arc::new(PoolHealth::new(pool, endpoints.collect(), Mono::ZERO))
        });
        let pools = pools.collect();
        Snapshot::new(0, topology, pools)
    }

    /// Decides one request. Takes no lock and allocates nothing.
    #[must_use]
    pub fn decide(&self, request: &Request<'_>, counts: &impl Counts, now: Mono) -> Decision {
        decide::decide(self, request, counts, now, &mut ())
    }

    /// The same decision, and why.
    #[must_use]
    pub fn explain(
        &self,
        request: &Request<'_>,
        counts: &impl Counts,
        now: Mono,
    ) -> (Decision, Trace) {
        let mut trace = Trace::default();
        let decision = decide::decide(self, request, counts, now, &mut trace);
        (decision, trace)
    }

    /// The desired state.
    #[must_use]
    pub fn catalog(&self) -> &Arc<Catalog> {
        self.topology.catalog()
    }

    /// Grows with every snapshot of an engine.
    #[must_use]
    pub fn revision(&self) -> u64 {
        self.revision
    }

    /// The endpoint at `ix`.
    ///
    /// # Panics
    /// When `ix` comes from another snapshot.
    #[must_use]
    pub fn endpoint(&self, ix: EndpointIx) -> &EndpointView {
        self.topology.endpoint(ix)
    }

    /// What is known of the endpoint at `ix`.
    ///
    /// # Panics
    /// When `ix` comes from another snapshot.
    #[must_use]
    pub fn endpoint_health(&self, ix: EndpointIx) -> &EndpointHealth {
        let (pool, place) = self.topology.place_of(ix);
        &self.pools[pool.at()].endpoints[place]
    }

    /// Every endpoint; the place in the slice is its [`EndpointIx`].
    #[must_use]
    pub fn endpoints(&self) -> &[EndpointView] {
        self.topology.endpoints()
    }

    /// The pool at `ix`.
    ///
    /// # Panics
    /// When `ix` comes from another snapshot.
    #[must_use]
    pub fn pool(&self, ix: PoolIx) -> PoolView<'_> {
        let health = &self.pools[ix.at()];
        let pool = self.catalog().pool(ix);
        let PoolHealth {
            state,
            reason,
            since,
            usable,
            ..
        } = **health;
        PoolView {
            ix,
            id: pool.id,
            name: &pool.name,
            state,
            reason,
            since,
            usable,
            snapshot: self,
        }
    }

    /// Every pool.
    pub fn pools(&self) -> impl Iterator<Item = PoolView<'_>> {
        (0..self.pools.len() as u32).map(|ix| self.pool(PoolIx(ix)))
    }

    /// The enabled load balancer that answers for `host` (lower case, no port, no final dot).
    #[must_use]
    pub fn balancer_for(&self, host: &str) -> Option<BalancerIx> {
        self.topology.balancer_for(host)
    }

    /// The state of a load balancer. Source: load-balancing specification 6.6.
    ///
    /// # Panics
    /// When `ix` comes from another snapshot.
    #[must_use]
    pub fn balancer_state(&self, ix: BalancerIx) -> BalancerState {
        if !self.catalog().balancer(ix).enabled {
            return BalancerState::Disabled;
        }
        let pools = || {
            self.topology
                .route(ix)
                .pools
                .iter()
                .map(|&(pool, _)| &*self.pools[pool.at()])
        };
        let all = |states: &[PoolState]| pools().all(|pool| states.contains(&pool.state));
        let to_fallback = decide::weigh_pools(self, self.topology.route(ix)).is_empty();
        if to_fallback && !all(&[PoolState::Unknown]) {
            BalancerState::Critical
        } else if all(&[PoolState::Healthy]) {
            BalancerState::Healthy
        } else if all(&[PoolState::Healthy, PoolState::Unknown]) {
            BalancerState::Unknown
        } else {
            BalancerState::Degraded
        }
    }

    /// How `balancer` speaks to `endpoint`.
    ///
    /// The pool's own settings stand above those of the load balancer's zone; `flexible` means in
    /// the clear, except to port 443.
    ///
    /// # Panics
    /// When one of them comes from another snapshot.
    #[must_use]
    pub fn transport(&self, balancer: BalancerIx, endpoint: EndpointIx) -> Transport<'_> {
        self.topology.transport(balancer, endpoint)
    }

    /// This snapshot as it would be if `assumptions` held, the later ones over the earlier.
    ///
    /// # Errors
    /// When one of them names a pool or endpoint that does not exist.
    pub fn assume(&self, assumptions: &[Assumption]) -> Result<Snapshot, AssumptionFault> {
        let mut assumed = self.clone();
        assumptions
            .iter()
            .try_for_each(|assumption| assumed.take(assumption))?;
        Ok(assumed)
    }

    fn take(&mut self, assumption: &Assumption) -> Result<(), AssumptionFault> {
        let catalog = Arc::clone(self.catalog());
        let (Assumption::Pool { pool: name, .. }
        | Assumption::Endpoint { pool: name, .. }
        | Assumption::Weight { pool: name, .. }) = assumption;
        let ix = catalog
            .pool_by_name(name)
            .ok_or_else(|| AssumptionFault::NoPool(name.clone()))?;
        let pool = catalog.pool(ix);
        let monitored = pool.monitoring != Monitoring::None;
        let place = |endpoint: &String| {
            let found = pool
                .endpoints
                .iter()
                .position(|known| known.name == *endpoint);
            found.ok_or_else(|| AssumptionFault::NoEndpoint {
                pool: name.clone(),
                endpoint: endpoint.clone(),
            })
        };
        let before = &*self.pools[ix.at()];
        let mut endpoints = before.endpoints.clone();
        let set = |endpoint: &mut EndpointHealth, state| {
            (endpoint.state, endpoint.reason) = (state, EndpointReason::Assumed);
            if state == EndpointState::Healthy {
                endpoint.lookup = Lookup::Resolves;
            }
        };
        let counted = |endpoints| PoolHealth::new(pool, endpoints, before.since);
        let forced = |state, endpoints| {
            PoolHealth::with_state(
                state,
                PoolReason::Assumed,
                monitored,
                endpoints,
                before.since,
            )
        };
        let after = match assumption {
            Assumption::Pool { state, .. } => {
                let (state, each) = match state {
                    AssumedPool::Critical => (PoolState::Critical, EndpointState::Critical),
                    AssumedPool::Healthy => (PoolState::Healthy, EndpointState::Healthy),
                    AssumedPool::Disabled => (PoolState::Disabled, EndpointState::Disabled),
                };
                for (endpoint, known) in endpoints
                    .iter_mut()
                    .zip(&pool.endpoints)
                    .filter(|(_, known)| known.enabled)
                {
                    let _ = known;
                    set(endpoint, each);
                }
                forced(state, endpoints)
            }
            Assumption::Endpoint {
                endpoint, state, ..
            } => {
                let state = match state {
                    AssumedEndpoint::Down => EndpointState::Critical,
                    AssumedEndpoint::Up => EndpointState::Healthy,
                    AssumedEndpoint::Disabled => EndpointState::Disabled,
                    AssumedEndpoint::Pending => EndpointState::Unknown,
                };
                set(&mut endpoints[place(endpoint)?], state);
                counted(endpoints)
            }
            Assumption::Weight {
                endpoint, weight, ..
            } => {
                endpoints[place(endpoint)?].weight = *weight;
                counted(endpoints)
            }
        };
        self.pools[ix.at()] = Arc::new(after);
        Ok(())
    }

    /// Whether the other snapshot, of the same catalog, knows exactly the same of this pool.
    pub(crate) fn shares_health(&self, other: &Snapshot, pool: PoolIx) -> bool {
        Arc::ptr_eq(&self.pools[pool.at()], &other.pools[pool.at()])
    }

    pub(crate) fn topology(&self) -> &Topology {
        &self.topology
    }

    pub(crate) fn pool_health(&self, ix: PoolIx) -> &PoolHealth {
        &self.pools[ix.at()]
    }
}

impl EndpointHealth {
    /// Why it gets traffic or gets none: what its state says, unless there is no address.
    #[must_use]
    pub fn reason_shown(&self) -> EndpointReason {
        match (self.state, self.lookup) {
            (EndpointState::Disabled, _) | (_, Lookup::Resolves) => self.reason,
            (_, Lookup::Pending) => EndpointReason::Unresolved,
            (_, Lookup::UnknownHost) => EndpointReason::UnknownHost,
        }
    }

    fn resolves(&self) -> bool {
        self.lookup == Lookup::Resolves
    }
}
