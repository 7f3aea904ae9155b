//! What must hold after every step, whatever happened.

use std::collections::BTreeMap;
use std::time::Duration;

use usher_core::catalog::{BalancerIx, MonitorKind};
use usher_core::decision::{Decision, Refusal};
use usher_core::engine::{
    FIRST_PROBES_IN_FLIGHT_MAX, PROBE_LOST_AFTER, PROBES_IN_FLIGHT_MAX, PUBLISH_GAP, READY_TIMEOUT,
};
use usher_core::health::EndpointState;
use usher_core::probe::ProbeOrder;
use usher_core::request::{Request, Scheme};
use usher_core::snapshot::{NoCounts, Snapshot};

use crate::model::Target;
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
            ensure(snapshot.revision() > last.revision(), || {
                "revision did not grow".to_owned()
            })?;
        }
        ensure(*snapshot.catalog().draft() == self.model.draft, || {
            "not the last catalog".to_owned()
        })?;
        for (view, pool) in snapshot.pools().zip(&self.model.draft.pools) {
            for ((_, known, health), endpoint) in view.endpoints().zip(&pool.endpoints) {
                let expected = self.model.endpoint_state(pool, endpoint);
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

    fn check_shares(&self, snapshot: &Snapshot, ix: BalancerIx) -> Held {
        let (decision, trace) = snapshot.explain(&request(snapshot, ix, 0), &NoCounts, self.now);
        let expected = self.model.shares(ix.at());
        let Some(expected) = expected else {
            let refused = matches!(
                decision,
                Decision::Refuse {
                    reason: Refusal::NoEndpoint,
                    ..
                }
            );
            return ensure(refused, || format!("{decision:?} where nothing is left"));
        };
        for pool in &trace.pools {
            let share = expected.pools.get(&pool.name).copied().unwrap_or(0.0);
            ensure((pool.probability - share).abs() < 1e-9, || {
                format!("pool {} has {}, not {share}", pool.name, pool.probability)
            })?;
        }
        let Decision::Forward { attempts, .. } = decision else {
            return Err(format!("{decision:?}"));
        };
        ensure(attempts.first.fallback == expected.fallback, || {
            format!("fallback: {}", expected.fallback)
        })?;
        let pool = snapshot.pool(attempts.first.pool).name;
        for endpoint in &trace.endpoints {
            let share = expected
                .endpoints
                .get(&format!("{pool}/{}", endpoint.name))
                .copied()
                .unwrap_or(0.0);
            ensure((endpoint.probability - share).abs() < 1e-9, || {
                format!(
                    "endpoint {pool}/{} has {}, not {share}",
                    endpoint.name, endpoint.probability
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

    /// Visitors go only where they may, and a crowd follows the weights.
    fn visit(&mut self, place: usize, visitors: usize) -> Held {
        let Some(snapshot) = self.published.clone() else {
            return Ok(());
        };
        let ix = BalancerIx(place as u32);
        let draft = snapshot.catalog().draft();
        if place >= draft.balancers.len() || !draft.balancers[place].enabled {
            return Ok(());
        }
        let mut counts: BTreeMap<String, f64> = BTreeMap::new();
        let (_, trace) = snapshot.explain(&request(&snapshot, ix, 0), &NoCounts, self.now);
        for visitor in 0..visitors {
            let draw = self.rng.draw();
            let decision = snapshot.decide(&request(&snapshot, ix, draw), &NoCounts, self.now);
            if visitor < VISITORS {
                let (explained, _) =
                    snapshot.explain(&request(&snapshot, ix, draw), &NoCounts, self.now);
                ensure(decision == explained, || {
                    format!("{decision:?} explained as {explained:?}")
                })?;
            }
            let Decision::Forward { attempts, .. } = decision else {
                self.figures.refused += 1;
                continue;
            };
            self.figures.forwarded += 1;
            self.figures.to_fallback += u64::from(attempts.first.fallback);
            for attempt in [Some(attempts.first), attempts.retry].into_iter().flatten() {
                let health = snapshot.endpoint_health(attempt.endpoint);
                let pool = snapshot.pool(attempt.pool);
                ensure(health.state != EndpointState::Disabled, || {
                    "traffic to a disabled endpoint".to_owned()
                })?;
                ensure(attempt.pool == attempts.first.pool, || {
                    "retry in another pool".to_owned()
                })?;
                let works =
                    |state| state == EndpointState::Healthy || state == EndpointState::Unknown;
                let others = pool.endpoints().any(|(_, _, other)| {
                    other.state == EndpointState::Healthy && {
                        other.lookup == usher_core::snapshot::Lookup::Resolves
                    }
                });
                ensure(works(health.state) || (attempt.fallback && !others), || {
                    format!(
                        "traffic to an endpoint that is {} in pool {}",
                        health.state, pool.name
                    )
                })?;
                let listed = draft.balancers[place]
                    .pools
                    .iter()
                    .any(|listed| listed.id == pool.id);
                ensure(listed || attempt.fallback, || {
                    format!("traffic to pool {}, which is not listed", pool.name)
                })?;
            }
            ensure(
                attempts
                    .retry
                    .is_none_or(|retry| retry.endpoint != attempts.first.endpoint),
                || "retry at the same endpoint".to_owned(),
            )?;
            *counts
                .entry(snapshot.pool(attempts.first.pool).name.to_owned())
                .or_default() += 1.0;
        }
        if visitors == CROWD && !counts.is_empty() {
            for pool in &trace.pools {
                let (n, p) = (visitors as f64, pool.probability);
                let off = (counts.get(&pool.name).copied().unwrap_or(0.0) - n * p).abs();
                let bound = SIGMAS * (n * p * (1.0 - p)).sqrt();
                ensure(off <= bound + 1e-6, || {
                    format!("pool {} is {off} visitors off its share of {p}", pool.name)
                })?;
            }
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

fn request(snapshot: &Snapshot, ix: BalancerIx, draw: u64) -> Request<'_> {
    let host = &snapshot.catalog().balancer(ix).name;
    let client = [198, 51, 100, 1].into();
    Request {
        host,
        method: "GET",
        uri: "/",
        scheme: Scheme::Http,
        client,
        draw,
    }
}
