//! Why a decision is as it is, written down by the code that decides.
//!
//! `decide` and `explain` are one function, generic over a tracer; the tracer of traffic is `()`,
//! whose methods are empty and whose texts are never made.

use crate::catalog::{AffinityMode, EndpointIx, PoolIx};
use crate::health::{EndpointState, PoolState};

/// The steps of a decision and what each candidate's chances were.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Trace {
    /// Name of the load balancer that matched, if one did.
    pub balancer: Option<String>,
    /// What was done, in order.
    pub steps: Vec<Step>,
    /// What was found out about the visitor's pin; `None` where there are none.
    pub pin: Option<PinTrace>,
    /// The candidate pools, each once; then the fallback pool, if it is not among them.
    pub pools: Vec<PoolTrace>,
    /// Whether the chances of pools are counted from draws and not added up, because too many of
    /// them may shed the request.
    pub approximate: bool,
    /// The endpoints of the chosen pool; empty when no pool was chosen.
    pub endpoints: Vec<EndpointTrace>,
}

/// What was found out about a visitor's pin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PinTrace {
    /// By what the visitor is known.
    pub kind: AffinityMode,
    /// Whether it has a pin that holds.
    pub kept: bool,
    /// Why, in one sentence.
    pub reason: String,
}

/// One step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// Which.
    pub kind: StepKind,
    /// What it did, in one sentence.
    pub text: String,
}

/// The steps of a decision, in the order in which they are taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum StepKind {
    /// Finding the load balancer.
    Host,
    /// Redirecting plain HTTP.
    Https,
    /// Looking for a pool set.
    PoolSet,
    /// Asking a rule.
    Rules,
    /// Looking for a pin.
    Session,
    /// Which pools may be chosen.
    Pools,
    /// A pool that pushes the request on.
    Shedding,
    /// Choosing a pool.
    Steering,
    /// Turning to the fallback pool.
    Fallback,
    /// Choosing an endpoint.
    Endpoint,
    /// Choosing where to go when that endpoint cannot be connected to.
    Retry,
}

impl StepKind {
    /// Every step.
    pub const ALL: [StepKind; 11] = [
        StepKind::Host,
        StepKind::Https,
        StepKind::PoolSet,
        StepKind::Rules,
        StepKind::Session,
        StepKind::Pools,
        StepKind::Shedding,
        StepKind::Steering,
        StepKind::Fallback,
        StepKind::Endpoint,
        StepKind::Retry,
    ];

    /// The word for it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            StepKind::Host => "host",
            StepKind::Https => "https",
            StepKind::PoolSet => "pool_set",
            StepKind::Rules => "rules",
            StepKind::Session => "session",
            StepKind::Pools => "pools",
            StepKind::Shedding => "shedding",
            StepKind::Steering => "steering",
            StepKind::Fallback => "fallback",
            StepKind::Endpoint => "endpoint",
            StepKind::Retry => "retry",
        }
    }
}

/// One candidate pool.
#[derive(Debug, Clone, PartialEq)]
pub struct PoolTrace {
    /// Which.
    pub pool: PoolIx,
    /// Its name.
    pub name: String,
    /// Whether it could be chosen.
    pub usable: bool,
    /// Its state.
    pub state: PoolState,
    /// Why it is in that state, or why it cannot be chosen.
    pub reason: String,
    /// Its weight in this load balancer, 0..=1.
    pub weight: f64,
    /// Chance that this pool is chosen for this request: 0..=1, exact unless
    /// [`Trace::approximate`].
    pub probability: f64,
    /// What is under way in it, where steering looks at that.
    pub open: Option<u32>,
    /// Mean round trip of its probes, if it is known.
    pub latency_ms: Option<f64>,
    /// How far it is from the location of the request, if both are known.
    pub distance_km: Option<f64>,
    /// Chance that it sheds the request once it is tried; `None`: it cannot.
    pub shed: Option<f64>,
}

/// One endpoint of the chosen pool.
#[derive(Debug, Clone, PartialEq)]
pub struct EndpointTrace {
    /// Which.
    pub endpoint: EndpointIx,
    /// Its name.
    pub name: String,
    /// Its address.
    pub address: String,
    /// Its port, if it has one of its own.
    pub port: Option<u16>,
    /// Whether it could be chosen.
    pub usable: bool,
    /// Its state.
    pub state: EndpointState,
    /// Why it is in that state, or why it cannot be chosen.
    pub reason: String,
    /// Its weight, 0..=1.
    pub weight: f64,
    /// Chance that this endpoint is chosen once its pool is: 0..=1, exact.
    pub probability: f64,
    /// What is under way at it, where steering looks at that.
    pub open: Option<u32>,
}

/// What a decision reports to.
pub(crate) trait Tracer {
    /// A step; `text` is only called when it is kept.
    fn step(&mut self, kind: StepKind, text: impl FnOnce() -> String);
    /// The load balancer that matched.
    fn balancer(&mut self, name: &str);
    /// What was found out about the visitor's pin.
    fn pin(&mut self, pin: impl FnOnce() -> PinTrace);
    /// All candidate pools, and whether their chances are approximate.
    fn pools(&mut self, pools: impl FnOnce() -> (Vec<PoolTrace>, bool));
    /// All endpoints of the chosen pool.
    fn endpoints(&mut self, endpoints: impl FnOnce() -> Vec<EndpointTrace>);
}

impl Tracer for () {
    #[inline(always)]
    fn step(&mut self, _: StepKind, _: impl FnOnce() -> String) {}
    #[inline(always)]
    fn balancer(&mut self, _: &str) {}
    #[inline(always)]
    fn pin(&mut self, _: impl FnOnce() -> PinTrace) {}
    #[inline(always)]
    fn pools(&mut self, _: impl FnOnce() -> (Vec<PoolTrace>, bool)) {}
    #[inline(always)]
    fn endpoints(&mut self, _: impl FnOnce() -> Vec<EndpointTrace>) {}
}

impl Tracer for Trace {
    fn step(&mut self, kind: StepKind, text: impl FnOnce() -> String) {
        self.steps.push(Step { kind, text: text() });
    }

    fn balancer(&mut self, name: &str) {
        self.balancer = Some(name.to_owned());
    }

    fn pin(&mut self, pin: impl FnOnce() -> PinTrace) {
        self.pin = Some(pin());
    }

    fn pools(&mut self, pools: impl FnOnce() -> (Vec<PoolTrace>, bool)) {
        (self.pools, self.approximate) = pools();
    }

    fn endpoints(&mut self, endpoints: impl FnOnce() -> Vec<EndpointTrace>) {
        self.endpoints = endpoints();
    }
}
