//! Everything that a decision is made from, frozen: any number of threads read one without a lock.
//!
//! Health is kept pool by pool behind an `Arc`, so that publishing after a change copies one
//! pointer per pool and computes only the pools that changed.

use std::sync::Arc;
use std::time::Duration;

use crate::affinity::{Pin, Pins};
use crate::assume::{AssumedEndpoint, AssumedPool, Assumption, AssumptionFault, UnderWay};
use crate::catalog::{BalancerIx, Catalog, EndpointIx, Monitoring, Pool, PoolIx};
use crate::decide;
use crate::decision::{Decision, FixedSource, PinAction, PinOrder};
use crate::health::{
    BalancerState, EndpointReason, EndpointState, PoolReason, PoolState, pool_state,
};
use crate::id::Id;
use crate::region::{CountryCode, Region};
use crate::request::{Location, Request};
use crate::route::Plan;
use crate::rules::{FixedResponse, Transform, Transforms};
use crate::steering::{Ramp, Weight};
use crate::time::{Mono, Wall};
use crate::topology::Topology;
pub use crate::topology::{EndpointView, TlsProfile, Transport};
use crate::trace::Trace;

/// Live numbers that steer and are never published: kept by the front, read per decision.
pub trait Counts {
    /// Requests sent to `endpoint` and not yet answered completely, on this node.
    fn open_requests(&self, endpoint: EndpointIx) -> u32;

    /// Connections that this node has open to `endpoint`, idle ones too; one that carries several
    /// requests counts once. A front that does not count them says 0.
    fn open_connections(&self, endpoint: EndpointIx) -> u32 {
        let _ = endpoint;
        0
    }
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
    /// Round trip of its probes, the newer ones weighing more; `None` without fresh probes that
    /// passed. What dynamic latency goes by.
    pub latency: Option<Duration>,
    /// How long pins to it hold, if it was seen to be turned off.
    pub drain: Option<Drain>,
}

/// The time after an endpoint was turned off.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Drain {
    /// When it was turned off.
    pub began: Wall,
    /// When the last of its pins ends: the load balancer that gives it the longest time decides.
    pub ends: Wall,
    /// Whether its monitors say that it works, or there are none.
    pub works: bool,
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
    /// Mean round trip of the healthy endpoints that have one.
    pub(crate) latency: Option<Duration>,
    /// Whether traffic may be pinned to it: enabled and not critical.
    pub(crate) carries: bool,
    /// How weights rise, and when the last of them is at its full value.
    pub(crate) ramp: Option<(Ramp, Mono)>,
    pub(crate) monitored: bool,
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
            let off = count(EndpointState::Disabled) + count(EndpointState::Draining);
            let enabled = endpoints.len() as u32 - off;
            let (healthy, pending) = (count(EndpointState::Healthy), count(EndpointState::Unknown));
            pool_state(healthy, pending, enabled, pool.endpoints_min)
        };
        PoolHealth::with_state(state, reason, pool, endpoints, since)
    }

    fn with_state(
        state: PoolState,
        reason: PoolReason,
        pool: &Pool,
        endpoints: Box<[EndpointHealth]>,
        since: Mono,
    ) -> PoolHealth {
        let monitored = pool.monitoring != Monitoring::None;
        let enabled = |endpoint: &EndpointHealth| !endpoint.is_off() && endpoint.resolves();
        let healthy = |endpoint: &EndpointHealth| {
            let works = match endpoint.state {
                EndpointState::Healthy => true,
                EndpointState::Unknown => !monitored,
                EndpointState::Critical | EndpointState::Disabled | EndpointState::Draining => {
                    false
                }
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
        let ramp = pool.slow_start.map(|length| Ramp { length });
        let ramp = ramp.and_then(|ramp| {
            let serving = endpoints.iter().filter(|endpoint| healthy(endpoint));
            let last = serving.map(|endpoint| endpoint.since).max()?;
            Some((ramp, last.after(ramp.length)))
        });
        let measured = endpoints.iter().filter(|endpoint| healthy(endpoint));
        let latency = mean(measured.filter_map(|endpoint| endpoint.latency));
        PoolHealth {
            state,
            reason,
            since,
            endpoints,
            usable,
            candidates,
            last_resort,
            latency,
            carries,
            ramp,
            monitored,
        }
    }

    /// Whether more than the figures of probes is another than before.
    pub(crate) fn differs(&self, before: &PoolHealth) -> bool {
        let without_figures = |endpoint: &EndpointHealth| EndpointHealth {
            status: None,
            rtt: None,
            latency: None,
            ..*endpoint
        };
        let endpoints = self.endpoints.iter().map(without_figures);
        (self.state, self.reason) != (before.state, before.reason)
            || !endpoints.eq(before.endpoints.iter().map(without_figures))
    }

    /// Whether the endpoint at `place` may serve a visitor who is pinned to it.
    pub(crate) fn holds_pins(
        &self,
        place: usize,
        now: Wall,
        drain: Duration,
    ) -> Result<(), Broken> {
        let endpoint = &self.endpoints[place];
        if !self.carries {
            return Err(Broken::Pool);
        }
        match endpoint.state {
            EndpointState::Healthy => {}
            EndpointState::Unknown if !self.monitored => {}
            EndpointState::Unknown | EndpointState::Critical => return Err(Broken::Unhealthy),
            EndpointState::Disabled => return Err(Broken::Disabled),
            EndpointState::Draining => {
                let in_time = |began: Wall| !drain.is_zero() && now < began.after(drain);
                let known = endpoint.drain.filter(|known| in_time(known.began));
                let known = known.ok_or(Broken::Disabled)?;
                if !known.works {
                    return Err(Broken::Unhealthy);
                }
            }
        }
        endpoint.resolves().then_some(()).ok_or(Broken::Unhealthy)
    }
}

/// Why a pin does not hold any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Broken {
    Pool,
    Unhealthy,
    Disabled,
}

/// The mean of some times; `None` of none.
pub(crate) fn mean(times: impl Iterator<Item = Duration>) -> Option<Duration> {
    let (sum, count) = times.fold((Duration::ZERO, 0), |(sum, count), time| {
        (sum + time, count + 1)
    });
    (count > 0).then(|| sum / count)
}

/// What is taken for granted beside states, for an explanation.
#[derive(Debug, Clone, Default)]
pub(crate) struct Assumed {
    pub(crate) under_way: Vec<(EndpointIx, UnderWay, u32)>,
    pub(crate) shed: Vec<(PoolIx, f64)>,
    pub(crate) latency: Vec<(PoolIx, Duration)>,
    pub(crate) pinned: Option<EndpointIx>,
    node: Option<String>,
    region: Option<Region>,
    country: Option<CountryCode>,
    pub(crate) time: Option<Wall>,
}

impl Assumed {
    /// Where the request is, if everything that was assumed of that holds.
    pub(crate) fn location<'a>(&'a self, told: &Location<'a>) -> Location<'a> {
        Location {
            node: self.node.as_deref().unwrap_or(told.node),
            region: self.region.or(told.region),
            country: self.country.or(told.country),
            coordinates: told.coordinates,
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
    /// Only explanations have any.
    assumed: Option<Box<Assumed>>,
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
            assumed: None,
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
                    (EndpointState::Healthy, EndpointReason::Presumed)
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
                    latency: None,
                    drain: None,
                }
            });
            Arc::new(PoolHealth::new(pool, endpoints.collect(), Mono::ZERO))
        });
        let pools = pools.collect();
        Snapshot::new(0, topology, pools)
    }

    /// Decides one request. Takes no lock and allocates nothing.
    #[must_use]
    pub fn decide(
        &self,
        request: &Request<'_>,
        counts: &impl Counts,
        pins: &impl Pins,
        now: Mono,
    ) -> Decision {
        decide::decide(self, request, counts, pins, now, &mut ())
    }

    /// The same decision, and why.
    #[must_use]
    pub fn explain(
        &self,
        request: &Request<'_>,
        counts: &impl Counts,
        pins: &impl Pins,
        now: Mono,
    ) -> (Decision, Trace) {
        let mut trace = Trace::default();
        let decision = decide::decide(self, request, counts, pins, now, &mut trace);
        (decision, trace)
    }

    /// Where this node is: the location of a request, but for the visitor's country if a database
    /// knows that.
    #[must_use]
    pub fn location(&self) -> Location<'_> {
        self.topology.location()
    }

    /// The pin that a decision of this snapshot asks for.
    ///
    /// # Panics
    /// When `balancer` or the action comes from another snapshot.
    #[must_use]
    pub fn pin(&self, balancer: BalancerIx, action: &PinAction) -> PinOrder {
        let pin = Pin {
            balancer: self.topology.route(balancer).id,
            pool: self.catalog().pool(action.to.pool).id,
            endpoint: self.endpoint(action.to.endpoint).id,
            since: action.since,
            ttl: action.ttl,
        };
        match action.key {
            Some(key) => PinOrder::Remember(key, pin),
            None => {
                let https_only = self.topology.route(balancer).https_only;
                let (secure, same_site) = action.marks.resolve(https_only);
                PinOrder::SetCookie {
                    pin,
                    secure,
                    same_site,
                }
            }
        }
    }

    /// The answer that a decision of this snapshot names.
    ///
    /// # Panics
    /// When `balancer` or `source` comes from another snapshot.
    #[must_use]
    pub fn fixed_response(&self, balancer: BalancerIx, source: FixedSource) -> &FixedResponse {
        let balancer = self.catalog().balancer(balancer);
        let found = match source {
            FixedSource::PoolSet(place) => &balancer.pool_sets[usize::from(place)].fixed_response,
            FixedSource::Rule(place) => {
                &balancer.rules.as_written()[usize::from(place)].fixed_response
            }
        };
        found.as_ref().expect("a decision names only what has one")
    }

    /// The changes that a decision of this snapshot asks for, in order.
    ///
    /// # Panics
    /// When `balancer` comes from another snapshot.
    pub fn transforms(
        &self,
        balancer: BalancerIx,
        transforms: Transforms,
    ) -> impl Iterator<Item = &Transform> {
        self.topology.route(balancer).rules.transforms(transforms)
    }

    /// How long pins to the endpoint at `ix` still hold, if it is draining.
    ///
    /// # Panics
    /// When `ix` comes from another snapshot.
    #[must_use]
    pub fn drain_left(&self, ix: EndpointIx, now: Wall) -> Option<Duration> {
        let health = self.endpoint_health(ix);
        let draining = health.state == EndpointState::Draining;
        health
            .drain
            .filter(|_| draining)
            .map(|drain| drain.ends.since(now))
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

    /// Whether whoever comes to `host` over plain HTTP is sent to HTTPS, whatever else is decided.
    #[must_use]
    pub fn redirects(&self, host: &str) -> bool {
        let balancer = self.balancer_for(host);
        balancer.is_some_and(|ix| self.topology.route(ix).https_only)
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
                .base
                .pools
                .iter()
                .map(|&pool| &*self.pools[pool.at()])
        };
        let all = |states: &[PoolState]| pools().all(|pool| states.contains(&pool.state));
        let plan = Plan::new(self.topology.route(ix), None, self.catalog().balancer(ix));
        let may_carry = |pool: PoolIx| {
            let drawable = !plan.steering.draws() || !plan.weight(pool).is_zero();
            self.pools[pool.at()].usable && drawable
        };
        let to_fallback = !plan.all_pools().any(may_carry);
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
        let found = |name: &String| {
            let ix = catalog.pool_by_name(name);
            ix.ok_or_else(|| AssumptionFault::NoPool(name.clone()))
        };
        let member = |name: &String, endpoint: &String| {
            let ix = found(name)?;
            let mut all = catalog.pool(ix).endpoints.iter();
            let place = all.position(|known| known.name == *endpoint);
            let place = place.ok_or_else(|| AssumptionFault::NoEndpoint {
                pool: name.clone(),
                endpoint: endpoint.clone(),
            })?;
            Ok((ix, place))
        };
        match assumption {
            Assumption::Pool { pool, state } => self.assume_pool(found(pool)?, *state),
            Assumption::Endpoint {
                pool,
                endpoint,
                state,
            } => {
                let (ix, place) = member(pool, endpoint)?;
                self.recount(ix, |endpoints| endpoints[place].assume(*state));
            }
            Assumption::Weight {
                pool,
                endpoint,
                weight,
            } => {
                let (ix, place) = member(pool, endpoint)?;
                self.recount(ix, |endpoints| endpoints[place].weight = *weight);
            }
            Assumption::UnderWay {
                pool,
                endpoint,
                what,
                count,
            } => {
                let (ix, place) = member(pool, endpoint)?;
                let endpoint = self.topology.endpoint_of(ix, place);
                let under_way = &mut self.assumed_mut().under_way;
                under_way.retain(|(of, known, _)| (*of, *known) != (endpoint, *what));
                under_way.push((endpoint, *what, *count));
            }
            Assumption::Pinned { pool, endpoint } => {
                let (ix, place) = member(pool, endpoint)?;
                self.assumed_mut().pinned = Some(self.topology.endpoint_of(ix, place));
            }
            Assumption::Latency { pool, latency } => {
                let ix = found(pool)?;
                self.assumed_mut().latency.retain(|(of, _)| *of != ix);
                self.assumed_mut().latency.push((ix, *latency));
            }
            Assumption::Shed { pool, percent } => {
                let ix = found(pool)?;
                self.assumed_mut().shed.retain(|(of, _)| *of != ix);
                self.assumed_mut().shed.push((ix, *percent));
            }
            Assumption::Country(country) => self.assumed_mut().country = Some(*country),
            Assumption::Region(region) => self.assumed_mut().region = Some(*region),
            Assumption::Node(node) => self.assumed_mut().node = Some(node.clone()),
            Assumption::Time(time) => self.assumed_mut().time = Some(*time),
        }
        Ok(())
    }

    fn assumed_mut(&mut self) -> &mut Assumed {
        self.assumed.get_or_insert_default()
    }

    pub(crate) fn assumed(&self) -> Option<&Assumed> {
        self.assumed.as_deref()
    }

    fn assume_pool(&mut self, ix: PoolIx, state: AssumedPool) {
        let catalog = Arc::clone(self.catalog());
        let pool = catalog.pool(ix);
        let before = &*self.pools[ix.at()];
        let (state, each) = match state {
            AssumedPool::Critical => (PoolState::Critical, AssumedEndpoint::Down),
            AssumedPool::Healthy => (PoolState::Healthy, AssumedEndpoint::Up),
            AssumedPool::Disabled => (PoolState::Disabled, AssumedEndpoint::Disabled),
        };
        let mut endpoints = before.endpoints.clone();
        let enabled = endpoints.iter_mut().zip(&pool.endpoints);
        for (endpoint, _) in enabled.filter(|(_, known)| known.enabled) {
            endpoint.assume(each);
        }
        let reason = PoolReason::Assumed;
        let after = PoolHealth::with_state(state, reason, pool, endpoints, before.since);
        self.pools[ix.at()] = Arc::new(after);
    }

    fn recount(&mut self, ix: PoolIx, change: impl FnOnce(&mut [EndpointHealth])) {
        let catalog = Arc::clone(self.catalog());
        let before = &*self.pools[ix.at()];
        let mut endpoints = before.endpoints.clone();
        change(&mut endpoints);
        self.pools[ix.at()] = Arc::new(PoolHealth::new(catalog.pool(ix), endpoints, before.since));
    }

    /// Whether a snapshot of these would differ in more than the figures of probes.
    pub(crate) fn differs(&self, topology: &Arc<Topology>, pools: &[Arc<PoolHealth>]) -> bool {
        let mut both = self.pools.iter().zip(pools);
        !Arc::ptr_eq(&self.topology, topology)
            || both.any(|(before, pool)| !Arc::ptr_eq(before, pool) && pool.differs(before))
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
            (EndpointState::Disabled | EndpointState::Draining, _) | (_, Lookup::Resolves) => {
                self.reason
            }
            (_, Lookup::Pending) => EndpointReason::Unresolved,
            (_, Lookup::UnknownHost) => EndpointReason::UnknownHost,
        }
    }

    fn assume(&mut self, state: AssumedEndpoint) {
        self.reason = EndpointReason::Assumed;
        self.drain = None;
        self.state = match state {
            AssumedEndpoint::Down => EndpointState::Critical,
            AssumedEndpoint::Up => {
                self.lookup = Lookup::Resolves;
                EndpointState::Healthy
            }
            AssumedEndpoint::Disabled => EndpointState::Disabled,
            AssumedEndpoint::Pending => EndpointState::Unknown,
            AssumedEndpoint::Draining => {
                // Begun at the end of time: it is never over.
                let began = Wall::from_millis(i64::MAX);
                self.drain = Some(Drain {
                    began,
                    ends: began,
                    works: true,
                });
                EndpointState::Draining
            }
        };
    }

    /// Whether new traffic has no business there.
    #[must_use]
    pub const fn is_off(&self) -> bool {
        matches!(
            self.state,
            EndpointState::Disabled | EndpointState::Draining
        )
    }

    fn resolves(&self) -> bool {
        self.lookup == Lookup::Resolves
    }
}
