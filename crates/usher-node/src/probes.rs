//! The last results of probes, for those who ask why an endpoint is in its state.
//!
//! The engine keeps what it decides by and no more, so the task that carries orders out and results
//! in keeps these beside it. An order names its target and not the endpoint that it is for; results
//! are found again by the pool, which every probe names in its user agent, and the target.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use usher_api::server::Probed;
use usher_core::catalog::Address;
use usher_core::id::Id;
use usher_core::probe::{Probe, ProbeId, ProbeOrder, ProbeResult};
use usher_core::time::Wall;

/// Results that are kept of each target.
const RESULTS_MAX: usize = 10;

/// Targets that are kept; beyond that, those that were asked longest ago are forgotten. More than
/// enough for every endpoint of a large configuration.
const TARGETS_MAX: usize = 65_536;

type Target = (String, Address, u16);

/// What was seen of each target. Orders and results come from one task, questions from others.
#[derive(Debug, Default)]
pub(crate) struct Probes(Mutex<Seen>);

#[derive(Debug, Default)]
struct Seen {
    /// Attempts under way. The engine bounds them, and answers for each that is lost.
    under_way: HashMap<ProbeId, Arc<Probe>>,
    results: HashMap<Target, VecDeque<Probed>>,
}

impl Probes {
    pub(crate) fn ordered(&self, order: &ProbeOrder) {
        self.seen()
            .under_way
            .insert(order.id, Arc::clone(&order.probe));
    }

    /// An attempt whose result nobody waits for.
    pub(crate) fn cancelled(&self, id: ProbeId) {
        self.seen().under_way.remove(&id);
    }

    pub(crate) fn answered(&self, id: ProbeId, result: ProbeResult) {
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        let at = Wall::from_millis(since.map_or(0, |since| since.as_millis() as i64));
        let mut seen = self.seen();
        let Some(probe) = seen.under_way.remove(&id) else {
            return;
        };
        let target = (probe.user_agent.clone(), probe.address.clone(), probe.port);
        if seen.results.len() >= TARGETS_MAX && !seen.results.contains_key(&target) {
            let newest = |(_, results): &(&Target, &VecDeque<Probed>)| {
                results.front().map(|probed| probed.at)
            };
            let oldest = seen.results.iter().min_by_key(newest);
            if let Some(oldest) = oldest.map(|(target, _)| target.clone()) {
                seen.results.remove(&oldest);
            }
        }
        let results = seen.results.entry(target).or_default();
        results.truncate(RESULTS_MAX - 1);
        results.push_front(Probed { at, result });
    }

    /// The last results at this endpoint of `pool`, newest first.
    pub(crate) fn of(&self, pool: Id, address: &Address, port: Option<u16>) -> Vec<Probed> {
        let named = format!("pool-id: {:016x}", pool.short());
        let seen = self.seen();
        let same = seen
            .results
            .iter()
            .filter(|((agent, at, _), _)| at == address && agent.contains(&named));
        // A monitor may have a port of its own; then all endpoints at an address share its results.
        let own = |((_, _, at), _): &(&Target, &VecDeque<Probed>)| Some(*at) == port;
        let found = same.max_by_key(|found| (own(found), found.1.front().map(|it| it.at)));
        found.map_or_else(Vec::new, |(_, results)| results.iter().copied().collect())
    }

    fn seen(&self) -> std::sync::MutexGuard<'_, Seen> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use usher_core::catalog::MonitorKind;

    use super::*;

    fn order(id: u64, pool: Id, port: u16) -> ProbeOrder {
        let probe = Probe {
            kind: MonitorKind::Tcp,
            address: Address::Ip("192.0.2.1".parse().expect("valid")),
            port,
            timeout: Duration::from_secs(1),
            host: String::new(),
            sni: None,
            ca: None,
            client_cert: None,
            user_agent: format!("(pool-id: {:016x})", pool.short()),
        };
        ProbeOrder {
            id: ProbeId(id),
            probe: Arc::new(probe),
        }
    }

    fn pass(millis: u64) -> ProbeResult {
        ProbeResult::Pass {
            status: None,
            rtt: Duration::from_millis(millis),
        }
    }

    #[test]
    fn the_last_results_of_an_endpoint_are_kept_newest_first() {
        let probes = Probes::default();
        let (ours, other) = (Id::from_bytes([1; 16]), Id::from_bytes([2; 16]));
        for attempt in 0..12 {
            probes.ordered(&order(attempt, ours, 80));
            probes.answered(ProbeId(attempt), pass(attempt));
        }
        probes.ordered(&order(20, ours, 81));
        probes.answered(ProbeId(20), pass(20));
        let address = Address::Ip("192.0.2.1".parse().expect("valid"));
        let rtts = |pool, port| {
            let found = probes.of(pool, &address, port);
            let rtts = found.iter().map(|probed| probed.result.rtt());
            rtts.map(|rtt| rtt.map_or(0, |rtt| rtt.as_millis()))
                .collect::<Vec<_>>()
        };
        assert_eq!(rtts(ours, Some(80)), [11, 10, 9, 8, 7, 6, 5, 4, 3, 2]);
        assert_eq!(rtts(ours, Some(81)), [20]);
        assert_eq!(rtts(other, Some(80)), []);
    }

    #[test]
    fn what_was_cancelled_is_not_a_result() {
        let probes = Probes::default();
        let ours = Id::from_bytes([1; 16]);
        probes.ordered(&order(1, ours, 80));
        probes.cancelled(ProbeId(1));
        probes.answered(ProbeId(1), pass(1));
        let address = Address::Ip("192.0.2.1".parse().expect("valid"));
        assert_eq!(probes.of(ours, &address, None), []);
        assert!(probes.seen().under_way.is_empty());
    }
}
