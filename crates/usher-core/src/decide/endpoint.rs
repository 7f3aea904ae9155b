//! Choosing an endpoint inside a pool, and where the single retry goes.

use super::pool::Passed;
use super::{Case, Purpose};
use crate::catalog::{EndpointIx, PinFailover, PoolIx};
use crate::decision::{Attempt, Attempts};
use crate::snapshot::Counts;
use crate::steering::{EndpointSteering, Weight, Weights, by_load, by_weight, rendezvous};
use crate::trace::{StepKind, Tracer};

impl<C: Counts> Case<'_, C> {
    pub(super) fn choose_endpoint(
        &self,
        pool: PoolIx,
        fallback: bool,
        passed: &mut Passed,
        tracer: &mut impl Tracer,
    ) -> Option<Attempts> {
        let weights = self.weigh_endpoints(pool, fallback, None);
        tracer.endpoints(|| self.endpoints_traced(pool, fallback, &weights));
        let Some(place) = weights.draw(self.draw(Purpose::Endpoint, 0)) else {
            tracer.step(StepKind::Endpoint, || self.no_endpoint_text(pool));
            return None;
        };
        let first = self.attempt(pool, place, fallback);
        tracer.step(StepKind::Endpoint, || self.endpoint_text(first));
        let other = self.other_endpoint(pool, fallback, place, &weights);
        let retry = other.or_else(|| self.other_pool(first, passed));
        tracer.step(StepKind::Retry, || self.retry_text(first, retry));
        Some(Attempts { first, retry })
    }

    /// The attempts of a visitor who is pinned to `to`.
    pub(super) fn pinned(&self, to: EndpointIx, tracer: &mut impl Tracer) -> Attempts {
        let (pool, place) = self.snapshot.topology().place_of(to);
        let first = self.attempt(pool, place, false);
        tracer.pools(|| self.pools_traced(&Passed::default(), Some(pool)));
        tracer.endpoints(|| self.endpoints_traced(pool, false, &Weights::certain(place)));
        tracer.step(StepKind::Endpoint, || {
            format!(
                "pinned to endpoint {:?} of pool {:?}",
                self.endpoint_name(to),
                self.pool_name(pool)
            )
        });
        if self.pin_failover() == PinFailover::None {
            tracer.step(StepKind::Retry, || {
                "if it cannot be connected to: the error, since zero_downtime_failover is none"
                    .to_owned()
            });
            return Attempts { first, retry: None };
        }
        let weights = self.weigh_endpoints(pool, false, Some(place));
        let other = weights.draw(self.draw(Purpose::Retry, 0));
        let mut passed = Passed::default();
        let retry = other
            .map(|place| self.attempt(pool, place, false))
            .or_else(|| self.other_pool(first, &mut passed));
        tracer.step(StepKind::Retry, || self.retry_text(first, retry));
        Attempts { first, retry }
    }

    /// Another candidate of the same pool.
    fn other_endpoint(
        &self,
        pool: PoolIx,
        fallback: bool,
        first: usize,
        weights: &Weights,
    ) -> Option<Attempt> {
        let draw = self.draw(Purpose::Retry, 0);
        let other = match self.is_hashed(pool) {
            true => self.weigh_endpoints(pool, fallback, Some(first)).draw(draw),
            false => weights.draw_other(first, draw),
        };
        other.map(|place| self.attempt(pool, place, fallback))
    }

    /// An endpoint of the next pool, where the load balancer allows it.
    fn other_pool(&self, first: Attempt, passed: &mut Passed) -> Option<Attempt> {
        if !self.plan.across_pools || first.fallback {
            return None;
        }
        self.pass(passed, first.pool);
        let chosen = self.choose_pool(passed, Purpose::RetryPool, &mut ());
        let (pool, fallback) = match chosen {
            Some(pool) => (pool, false),
            None if self.plan.fallback == first.pool => return None,
            None => (self.plan.fallback, true),
        };
        let weights = self.weigh_endpoints(pool, fallback, None);
        let place = weights.draw(self.draw(Purpose::RetryEndpoint, 0))?;
        Some(self.attempt(pool, place, fallback))
    }

    fn is_hashed(&self, pool: PoolIx) -> bool {
        self.by_address() || self.endpoint_steering(pool) == EndpointSteering::Hash
    }

    pub(super) fn endpoint_steering(&self, pool: PoolIx) -> EndpointSteering {
        self.snapshot.catalog().pool(pool).steering
    }

    /// The weights of a pool's endpoints in its role, 0 where steering may not choose one.
    pub(super) fn candidates(&self, pool: PoolIx, fallback: bool) -> &[Weight] {
        let health = self.snapshot.pool_health(pool);
        match fallback {
            true => &health.last_resort,
            false => &health.candidates,
        }
    }

    /// The chance of each endpoint of a pool, when the one at `without` is out.
    pub(super) fn weigh_endpoints(
        &self,
        pool: PoolIx,
        fallback: bool,
        without: Option<usize>,
    ) -> Weights {
        let candidates = self.candidates(pool, fallback);
        let topology = self.snapshot.topology();
        let weights = candidates.iter().enumerate().map(|(place, &weight)| {
            let weight = if without == Some(place) {
                Weight::ZERO
            } else {
                weight
            };
            (place, weight)
        });
        if self.is_hashed(pool) {
            let keyed = weights.map(|(place, weight)| {
                let endpoint = topology.endpoint(topology.endpoint_of(pool, place));
                (place, weight.shares(), endpoint.id)
            });
            return rendezvous(self.hash_key, self.request.client, keyed);
        }
        let steering = self.endpoint_steering(pool);
        let health = self.snapshot.pool_health(pool);
        let ramp = health.ramp.filter(|&(_, over)| self.now < over);
        if ramp.is_none() && without.is_none() && steering == EndpointSteering::Random {
            return by_weight(candidates);
        }
        by_load(weights.map(|(place, weight)| {
            let shares = match ramp {
                Some((ramp, _)) => ramp.shares(weight, health.endpoints[place].since, self.now),
                None => weight.shares(),
            };
            let load = match weight.is_zero() {
                true => 0,
                false => self.load(topology.endpoint_of(pool, place), steering),
            };
            (shares, load)
        }))
    }
}
