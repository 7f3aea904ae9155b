//! What must hold after every step, whatever happened.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use usher_core::affinity::{NoPins, Pin};
use usher_core::catalog::{AffinityMode, BalancerIx, MonitorKind, PinFailover};
use usher_core::decision::{Decision, Forward, PinOrder, PinOutcome, Refusal};
use usher_core::engine::{
    FIRST_PROBES_IN_FLIGHT_MAX, PROBE_LOST_AFTER, PROBES_IN_FLIGHT_MAX, PUBLISH_GAP, READY_TIMEOUT,
};
use usher_core::health::EndpointState;
use usher_core::probe::ProbeOrder;
use usher_core::snapshot::{Lookup, NoCounts, Snapshot};

use crate::model::Target;
use crate::plan::{Ask, Hold, Plan};
use crate::visits::{Brought, Visit};
use crate::world::{Mode, RTT_MAX, World};

/// Visitors after a step.
const VISITORS: usize = 2;
/// Every so many steps a larger crowd comes, and the shares are held against the weights.
const CROWD_EVERY: u64 = 400;
const CROWD: usize = 4_000;
/// Standard deviations that a share may be off. One in 10^9 draws is further off by chance.
const SIGMAS: f64 = 6.0;

type Held = Result<(), String>;

fn ensure(held: bool, broken: impl FnOnce() -> String) -> Held {
    if held { Ok(()) } else { Err(broken()) }
}

impl World {
    pub(crate) fn check_invariants(&mut self) -> Held {
        let flying = self.model.flights.len();
        ensure(flying <= PROBES_IN_FLIGHT_MAX, || {
            format!("{flying} attempts under way")
        })?;
        let histories = &self.model.histories;
        let fresh = self
            .model
            .flights
            .values()
            .filter(|target| histories[*target].results.is_empty())
            .count();
        ensure(fresh <= FIRST_PROBES_IN_FLIGHT_MAX, || {
            format!("{fresh} first probes under way")
        })?;
        self.check_detection()?;
        let place = self.rng.below(self.model.draft.balancers.len());
        let crowd = self.figures.steps % CROWD_EVERY == CROWD_EVERY - 1;
        self.visit(place, if crowd { CROWD } else { VISITORS })
    }

    /// An order is for a wanted target that is not being probed, and not sooner than its interval.
    pub(crate) fn check_order(&mut self, order: &ProbeOrder, target: &Target) -> Held {
        let Some(history) = self.model.histories.get(target) else {
            return Err(format!("probe of {target:?}, which nobody wants"));
        };
        ensure(
            !self.model.flights.values().any(|flying| flying == target),
            || format!("two attempts at {target:?} together"),
        )?;
        let monitor = &self.model.draft.monitors[target.0];
        ensure(
            order.probe.timeout == monitor.timeout && order.probe.kind == monitor.kind,
            || format!("{:?} is not as monitor {} says", order.probe, monitor.name),
        )?;
        let tcp = matches!(monitor.kind, MonitorKind::Tcp);
        ensure(!tcp || monitor.port == Some(order.probe.port), || {
            format!("{:?}: wrong port", order.probe)
        })?;
        if history.timeouts > 0 {
            return Ok(());
        }
        // The first probe after a start or change is followed by one at a drawn moment; from then on
        // the interval holds.
        let (now, interval) = (self.now, monitor.interval);
        let starts = self.starts.entry(target.clone()).or_default();
        let settled = history.results.len() >= 2;
        let too_soon = starts
            .last()
            .is_some_and(|&last| settled && now.since(last) < interval);
        starts.push(now);
        ensure(!too_soon, || {
            format!("{target:?} probed again before its interval of {interval:?}")
        })
    }

    /// What is published is what the model says, and not too soon after the last.
    pub(crate) fn check_published(&self, snapshot: &Snapshot) -> Held {
        if let (Some(last), Some(at)) = (&self.published, self.published_at) {
            ensure(self.now.since(at) >= PUBLISH_GAP, || {
                "snapshots too close together".to_owned()
            })?;
            let states = |snapshot: &Snapshot| -> Vec<_> {
                let pools = snapshot.pools();
                let endpoints = pools.flat_map(|pool| pool.endpoints());
                endpoints.map(|(_, _, health)| health.state).collect()
            };
            let same =
                Arc::ptr_eq(snapshot.catalog(), last.catalog()) && states(snapshot) == states(last);
            ensure(
                match snapshot.revision() - last.revision() {
                    0 => same,
                    grown => grown == 1,
                },
                || "revision did not grow with a change".to_owned(),
            )?;
        }
        ensure(*snapshot.catalog().draft() == self.model.draft, || {
            "not the last catalog".to_owned()
        })?;
        for (view, pool) in snapshot.pools().zip(&self.model.draft.pools) {
            for ((_, known, health), endpoint) in view.endpoints().zip(&pool.endpoints) {
                let expected = self.model.endpoint_state(pool, endpoint);
                let (latency, doubtful) = match expected {
                    EndpointState::Disabled => (None, false),
                    _ => self.model.latency(pool, endpoint, self.now),
                };
                let known_latency = health.latency.map(|latency| latency.as_nanos() as f64);
                let near = match (latency, known_latency) {
                    (Some(one), Some(other)) => (one - other).abs() < 4.0,
                    (one, other) => one.is_none() && other.is_none(),
                };
                ensure(near || doubtful, || {
                    format!(
                        "endpoint {}/{}: latency {known_latency:?}, not {latency:?}",
                        pool.name, endpoint.name
                    )
                })?;
                ensure(
                    health.state == expected && known.name == endpoint.name,
                    || {
                        format!(
                            "endpoint {}/{} is {}, not {expected}",
                            pool.name, endpoint.name, health.state
                        )
                    },
                )?;
            }
            let expected = self.model.pool_state(pool);
            ensure(view.state == expected, || {
                format!(
                    "pool {} is {} ({}), not {expected}",
                    pool.name, view.state, view.reason
                )
            })?;
        }
        for (ix, balancer) in snapshot
            .catalog()
            .balancers()
            .filter(|(_, balancer)| balancer.enabled)
        {
            self.check_shares(snapshot, ix)
                .map_err(|broken| format!("load balancer {}: {broken}", balancer.name))?;
        }
        Ok(())
    }

    /// What an explanation says of one visitor is what the model says.
    fn check_shares(&self, snapshot: &Snapshot, ix: BalancerIx) -> Held {
        let (model, balancer) = (&self.model, snapshot.catalog().balancer(ix));
        let mut rng = self.rng.clone();
        let visitor = rng.pick(&self.crowd.visitors).clone();
        let visit = Visit::draw(&mut rng, &visitor, self.wall());
        let request = visit.request(&balancer.name, rng.draw());
        let (decision, trace) = snapshot.explain(&request, &NoCounts, &NoPins, self.now);
        let Some(plan) = Plan::of(balancer, &visit) else {
            let answered = matches!(decision, Decision::Respond { .. });
            return ensure(answered, || format!("{decision:?} where a rule answers"));
        };
        let ask = Ask {
            model,
            snapshot,
            plan: &plan,
            visit: &visit,
            now: self.now,
        };
        let shares = ask.shares(None);
        for pool in &trace.pools {
            let share = shares.pools.get(&pool.name).copied().unwrap_or(0.0);
            ensure((pool.probability - share).abs() < 1e-9, || {
                format!(
                    "pool {} has {}, not {share}, of {visit:?} {plan:?}",
                    pool.name, pool.probability
                )
            })?;
        }
        let sum: f64 = trace.pools.iter().map(|pool| pool.probability).sum();
        let whole: f64 = shares.pools.values().sum();
        ensure((sum - whole).abs() < 1e-9, || {
            format!("chances of pools add up to {sum}")
        })?;
        let (name, fallback) = match decision {
            Decision::Forward(forward) => {
                let first = forward.attempts.first;
                (snapshot.pool(first.pool).name, first.fallback)
            }
            _ => (plan.fallback.text.as_str(), true),
        };
        let mut pools = model.draft.pools.iter();
        let pool = pools.find(|pool| pool.name == name).ok_or("no such pool")?;
        let expected = ask.inside(pool, fallback);
        let refused = matches!(
            decision,
            Decision::Refuse {
                reason: Refusal::NoEndpoint,
                ..
            }
        );
        ensure(refused == expected.is_empty(), || {
            format!("{decision:?} where {expected:?}")
        })?;
        for endpoint in &trace.endpoints {
            let share = expected.get(&endpoint.name).copied().unwrap_or(0.0);
            ensure((endpoint.probability - share).abs() < 1e-6, || {
                format!(
                    "endpoint {}/{} has {}, not {share}",
                    pool.name, endpoint.name, endpoint.probability
                )
            })?;
        }
        Ok(())
    }

    /// `ready` comes once, and not before all first verdicts unless they take too long.
    pub(crate) fn check_ready(&self) -> Held {
        ensure(self.ready_at.is_none(), || "ready twice".to_owned())?;
        ensure(self.published.is_some(), || {
            "ready before the first snapshot".to_owned()
        })?;
        let waited = self.now.as_nanos() >= READY_TIMEOUT.as_nanos() as u64;
        let answered = self.model.hosts.values().all(Option::is_some);
        let judged = self.model.draft.pools.iter().all(|pool| {
            let unjudged =
                |endpoint| self.model.endpoint_state(pool, endpoint) == EndpointState::Unknown;
            self.model.votes(pool) == 0 || !pool.endpoints.iter().any(unjudged)
        });
        ensure(waited || (answered && judged), || {
            "ready too soon".to_owned()
        })
    }

    /// Visitors go only where they may and stay where they are, and a crowd follows the weights.
    fn visit(&mut self, place: usize, visitors: usize) -> Held {
        let Some(snapshot) = self.published.clone() else {
            return Ok(());
        };
        let draft = snapshot.catalog().draft();
        if place >= draft.balancers.len() || !draft.balancers[place].enabled {
            return Ok(());
        }
        // Until it is published, the model is ahead of the snapshot: then only what does not depend
        // on it is held against it.
        let current = self.model.draft == *draft && self.states_are_published(&snapshot);
        for _ in 0..VISITORS {
            self.visit_one(&snapshot, BalancerIx(place as u32), current)?;
        }
        if visitors == CROWD {
            self.visit_crowd(&snapshot, BalancerIx(place as u32))?;
        }
        Ok(())
    }

    fn states_are_published(&self, snapshot: &Snapshot) -> bool {
        snapshot
            .pools()
            .zip(&self.model.draft.pools)
            .all(|(view, pool)| {
                view.state == self.model.pool_state(pool)
                    && view
                        .endpoints()
                        .zip(&pool.endpoints)
                        .all(|((_, _, health), endpoint)| {
                            let lookup = health.lookup == Lookup::Resolves;
                            let works = health.drain.is_none_or(|drain| {
                                !self.model.is_draining(pool, endpoint)
                                    || drain.works == self.model.passes(pool, endpoint)
                            });
                            health.state == self.model.endpoint_state(pool, endpoint)
                                && lookup == self.model.resolves(endpoint)
                                && works
                        })
            })
    }

    fn visit_one(&mut self, snapshot: &Snapshot, ix: BalancerIx, current: bool) -> Held {
        let balancer = snapshot.catalog().balancer(ix).clone();
        let who = self.rng.below(self.crowd.visitors.len());
        let visitor = self.crowd.visitors[who].clone();
        let time = self.wall();
        let visit = Visit::draw(&mut self.rng, &visitor, time);
        let request = visit.request(&balancer.name, self.rng.draw());
        let brought = Brought {
            cookies: &visitor.cookies,
            table: &self.crowd.table,
        };
        let decision = snapshot.decide(&request, &NoCounts, &brought, self.now);
        let (explained, trace) = snapshot.explain(&request, &NoCounts, &brought, self.now);
        ensure(decision == explained, || {
            format!("{decision:?} explained as {explained:?}")
        })?;
        let plan = Plan::of(&balancer, &visit);
        let Some(plan) = plan else {
            self.figures.answered += 1;
            let answered = matches!(decision, Decision::Respond { .. });
            return ensure(answered, || format!("{decision:?} where a rule answers"));
        };
        let Decision::Forward(forward) = decision else {
            self.figures.refused += 1;
            return Ok(());
        };
        self.figures.forwarded += 1;
        self.figures.to_fallback += u64::from(forward.attempts.first.fallback);
        self.check_attempts(snapshot, &plan, &forward)?;

        let pin = match plan.affinity {
            AffinityMode::None => None,
            AffinityMode::Cookie | AffinityMode::IpCookie => {
                visitor.cookies.get(&balancer.id).copied()
            }
            AffinityMode::Header => {
                let key = forward.affinity.first.action.and_then(|action| action.key);
                key.and_then(|key| self.crowd.table.get(&key).copied())
            }
        };
        let known = plan.affinity != AffinityMode::None
            && (plan.affinity != AffinityMode::Header || visit.has_header());
        let ask = Ask {
            model: &self.model,
            snapshot,
            plan: &plan,
            visit: &visit,
            now: self.now,
        };
        let first = forward.affinity.first;
        let hold = ask.hold(&balancer, pin.as_ref());
        let expected = match hold {
            _ if !known => PinOutcome::None,
            Hold::Yes => PinOutcome::Kept,
            Hold::Never => PinOutcome::New,
            Hold::Broken | Hold::Shed(_) => PinOutcome::Moved,
        };
        ensure(!current || first.outcome == expected, || {
            format!(
                "the pin {pin:?} is {:?}, not {expected:?} ({hold:?})",
                first.outcome
            )
        })?;
        let kept = first.outcome == PinOutcome::Kept;
        let to = snapshot.endpoint(forward.attempts.first.endpoint).id;
        ensure(!kept || pin.is_some_and(|pin| pin.endpoint == to), || {
            format!("a visitor pinned by {pin:?} was sent elsewhere")
        })?;
        let renewed = !kept || plan.renews || plan.affinity == AffinityMode::Header;
        ensure(first.action.is_some() == (known && renewed), || {
            format!("{first:?} with a pin that is renewed: {renewed}")
        })?;
        if let (true, Hold::Shed(pool), Some(pin)) = (current, &hold, pin) {
            let shares = ask.shares(Some(*pool));
            for traced in &trace.pools {
                let share = shares.pools.get(&traced.name).copied().unwrap_or(0.0);
                ensure((traced.probability - share).abs() < 1e-9, || {
                    format!("shed from {pin:?}: pool {} has not {share}", traced.name)
                })?;
            }
        }
        self.figures.kept += u64::from(kept);
        self.figures.moved += u64::from(first.outcome == PinOutcome::Moved);
        let health = snapshot.endpoint_health(forward.attempts.first.endpoint);
        self.figures.draining += u64::from(health.state == EndpointState::Draining);
        if let Some(action) = first.action {
            match snapshot.pin(ix, &action) {
                PinOrder::SetCookie { pin, .. } => {
                    let pin = Pin::decode(&pin.encode()).ok_or("a pin does not come back")?;
                    self.crowd.visitors[who].cookies.insert(balancer.id, pin);
                }
                PinOrder::Remember(key, pin) => {
                    self.crowd.table.insert(key, pin);
                }
            }
        }
        Ok(())
    }

    fn check_attempts(&mut self, snapshot: &Snapshot, plan: &Plan, forward: &Forward) -> Held {
        let attempts = forward.attempts;
        let kept = forward.affinity.first.outcome == PinOutcome::Kept;
        let all = [(Some(attempts.first), kept), (attempts.retry, false)];
        for (attempt, pinned) in all {
            let Some(attempt) = attempt else { continue };
            let health = snapshot.endpoint_health(attempt.endpoint);
            let pool = snapshot.pool(attempt.pool);
            let off = health.state == EndpointState::Disabled;
            ensure(!off, || "traffic to a disabled endpoint".to_owned())?;
            let draining = health.state == EndpointState::Draining;
            ensure(!draining || pinned, || {
                "new traffic to a draining endpoint".to_owned()
            })?;
            let works = matches!(
                health.state,
                EndpointState::Healthy | EndpointState::Unknown
            );
            let others = pool.endpoints().any(|(_, _, other)| {
                other.state == EndpointState::Healthy && other.lookup == Lookup::Resolves
            });
            ensure(works || draining || (attempt.fallback && !others), || {
                format!(
                    "traffic to an endpoint that is {} in pool {}",
                    health.state, pool.name
                )
            })?;
            ensure(plan.names(pool.id), || {
                format!("traffic to pool {}, not named", pool.name)
            })?;
            ensure(attempt.fallback || pinned || pool.usable, || {
                format!("traffic to pool {}, which is {}", pool.name, pool.state)
            })?;
        }
        let failover = plan.attributes.failover;
        let Some(retry) = attempts.retry else {
            return Ok(());
        };
        ensure(retry.endpoint != attempts.first.endpoint, || {
            "retry at the same endpoint".to_owned()
        })?;
        let across = retry.pool != attempts.first.pool;
        self.figures.across += u64::from(across);
        ensure(plan.across || !across, || {
            "retry in another pool".to_owned()
        })?;
        ensure(!kept || failover != PinFailover::None, || {
            "a pinned request is retried".to_owned()
        })
    }

    /// Shares of visitors who are nobody's.
    fn visit_crowd(&mut self, snapshot: &Snapshot, ix: BalancerIx) -> Held {
        let balancer = snapshot.catalog().balancer(ix).clone();
        let visitor = self.crowd.visitors[0].clone();
        let time = self.wall();
        let visit = Visit::draw(&mut self.rng, &visitor, time);
        let mut counts: BTreeMap<String, f64> = BTreeMap::new();
        let request = visit.request(&balancer.name, 0);
        let (_, trace) = snapshot.explain(&request, &NoCounts, &NoPins, self.now);
        for _ in 0..CROWD {
            let request = visit.request(&balancer.name, self.rng.draw());
            if let Decision::Forward(forward) =
                snapshot.decide(&request, &NoCounts, &NoPins, self.now)
            {
                let pool = snapshot.pool(forward.attempts.first.pool).name;
                *counts.entry(pool.to_owned()).or_default() += 1.0;
            }
        }
        let sent: f64 = counts.values().sum();
        // Where some of the pools can only refuse, there is nothing to count.
        if sent as usize != CROWD {
            return Ok(());
        }
        for pool in &trace.pools {
            let (n, p) = (CROWD as f64, pool.probability);
            let off = (counts.get(&pool.name).copied().unwrap_or(0.0) - n * p).abs();
            let bound = SIGMAS * (n * p * (1.0 - p)).sqrt();
            ensure(off <= bound + 1e-6, || {
                format!("pool {} is {off} visitors off its share of {p}", pool.name)
            })?;
        }
        Ok(())
    }

    /// A server that has failed for the whole detection time is known to fail; one that has worked
    /// for long enough is known to work, unless the edge loses answers.
    fn check_detection(&self) -> Held {
        if self.model.histories.len() > FIRST_PROBES_IN_FLIGHT_MAX {
            return Ok(());
        }
        for (target, history) in &self.model.histories {
            let monitor = &self.model.draft.monitors[target.0];
            let server = self.server(&target.1);
            let steady = self.now.since(server.since.max(self.reloaded_at));
            let attempts = (monitor.timeout + PROBE_LOST_AFTER) * (monitor.retries + 1);
            // Attempts that nobody answers for may outlast the interval.
            let period = monitor.interval.max(attempts);
            let bound = |streak: u32| {
                period * streak.max(1) + attempts + RTT_MAX + Duration::from_millis(1)
            };
            let fails = server.mode != Mode::Works;
            let in_time = if fails {
                bound(monitor.consecutive_down)
            } else {
                bound(monitor.consecutive_up)
            };
            let known = history.verdict != Some(fails);
            let judged = fails || self.loss == 0;
            ensure(known || steady <= in_time || !judged, || {
                format!(
                    "{target:?} has been {:?} for {steady:?} and is not known to, {history:?}",
                    server.mode
                )
            })?;
        }
        Ok(())
    }
}
