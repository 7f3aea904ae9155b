//! The specification told a second time, as plainly as possible: lists, loops, no cleverness.
//!
//! It keeps for each target and monitor the results since the last change, and computes everything
//! else anew whenever it is asked.

use std::collections::{BTreeMap, BTreeSet};

use usher_core::catalog::{Address, Draft, Endpoint, Monitor, MonitorKind, Monitoring, Pool};
use usher_core::health::{EndpointState, PoolState};
use usher_core::probe::{Probe, ProbeId, ProbeResult};
use usher_core::steering::PoolSteering;

use crate::catalogs::TCP_PORTS;

/// A monitor by its place in the draft, and what it probes.
pub(crate) type Target = (usize, Address, u16);

/// What is known of one target by one monitor.
#[derive(Debug, Default, Clone)]
pub(crate) struct History {
    pub(crate) verdict: Option<bool>,
    /// Final results since the monitor was last changed.
    pub(crate) results: Vec<bool>,
    /// Attempts of the present probe that timed out.
    pub(crate) timeouts: u32,
}

/// What ought to be the case.
#[derive(Debug)]
pub struct Model {
    pub(crate) draft: Draft,
    pub(crate) histories: BTreeMap<Target, History>,
    pub(crate) flights: BTreeMap<ProbeId, Target>,
    /// Whether each hostname resolves; `None` before the first answer.
    pub(crate) hosts: BTreeMap<String, Option<bool>>,
}

/// Where one load balancer's traffic goes: pools and endpoints by name, with their chances.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Shares {
    pub(crate) pools: BTreeMap<String, f64>,
    /// By `pool/endpoint`.
    pub(crate) endpoints: BTreeMap<String, f64>,
    pub(crate) fallback: bool,
}

impl Model {
    pub(crate) fn new(draft: Draft) -> Model {
        let mut model = Model {
            draft: draft.clone(),
            histories: BTreeMap::new(),
            flights: BTreeMap::new(),
            hosts: BTreeMap::new(),
        };
        model.reload(draft);
        model
    }

    pub(crate) fn target(&self, probe: &Probe) -> Target {
        let monitor = match &probe.kind {
            MonitorKind::Http(check) | MonitorKind::Https { check, .. } => {
                let digits: String = check.path[2..]
                    .chars()
                    .take_while(char::is_ascii_digit)
                    .collect();
                digits
                    .parse()
                    .expect("paths begin with the monitor's place")
            }
            MonitorKind::Tcp => usize::from(probe.port - TCP_PORTS),
        };
        (monitor, probe.address.clone(), probe.port)
    }

    fn target_of(&self, monitor: usize, endpoint: &Endpoint) -> Target {
        let port = self.draft.monitors[monitor]
            .port
            .or(endpoint.port)
            .unwrap_or(80);
        (monitor, endpoint.address.clone(), port)
    }

    /// Each monitor that probes for a pool: its place, whether it votes, whether it is decisive.
    fn members(&self, pool: &Pool) -> Vec<(usize, bool, bool)> {
        let place = |id| {
            self.draft
                .monitors
                .iter()
                .position(|monitor| monitor.id == id)
                .expect("checked")
        };
        match &pool.monitoring {
            Monitoring::None => Vec::new(),
            Monitoring::Monitor(monitor) => vec![(place(monitor.id), true, false)],
            Monitoring::Group(_) => {
                let members = self.draft.monitor_groups[0]
                    .members
                    .iter()
                    .filter(|member| member.enabled);
                let told = members.map(|member| {
                    (
                        place(member.monitor.id),
                        !member.monitoring_only,
                        member.must_be_healthy,
                    )
                });
                told.collect()
            }
        }
    }

    /// How many monitors of a pool have a vote.
    pub(crate) fn votes(&self, pool: &Pool) -> usize {
        self.members(pool)
            .iter()
            .filter(|(_, votes, _)| *votes)
            .count()
    }

    pub(crate) fn wanted(&self) -> BTreeSet<Target> {
        let mut wanted = BTreeSet::new();
        for pool in self.draft.pools.iter().filter(|pool| pool.enabled) {
            for (monitor, _, _) in self.members(pool) {
                let enabled = pool.endpoints.iter().filter(|endpoint| endpoint.enabled);
                wanted.extend(enabled.map(|endpoint| self.target_of(monitor, endpoint)));
            }
        }
        wanted
    }

    pub(crate) fn reload(&mut self, draft: Draft) {
        let before = std::mem::replace(&mut self.draft, draft);
        let monitors: Vec<Monitor> = self.draft.monitors.clone();
        // A monitor without a port of its own keeps its targets when only its path changes; one that
        // became another type has nothing to remember.
        let same_type =
            |place: usize| monitors[place].kind.name() == before.monitors[place].kind.name();
        let same_probe = |place: usize| {
            let (old, new) = (&before.monitors[place], &monitors[place]);
            old.kind == new.kind && old.timeout == new.timeout && old.port == new.port
        };
        let mut histories = BTreeMap::new();
        for target in self.wanted() {
            let known = self.histories.get(&target).filter(|_| same_type(target.0));
            let history = match known {
                Some(history) if same_probe(target.0) => history.clone(),
                Some(history) => History {
                    verdict: history.verdict,
                    ..History::default()
                },
                None => History::default(),
            };
            histories.insert(target, history);
        }
        self.histories = histories;
        self.flights
            .retain(|_, target| self.histories.contains_key(target) && same_probe(target.0));

        let mut hosts = BTreeMap::new();
        for pool in self.draft.pools.iter().filter(|pool| pool.enabled) {
            for endpoint in pool.endpoints.iter().filter(|endpoint| endpoint.enabled) {
                if let Address::Host(host) = &endpoint.address {
                    hosts.insert(host.clone(), self.hosts.get(host).copied().flatten());
                }
            }
        }
        self.hosts = hosts;
    }

    /// The end of an attempt; `None` for a result: nobody answered for it.
    pub(crate) fn probed(&mut self, probe: ProbeId, result: Option<&ProbeResult>) {
        let Some(target) = self.flights.remove(&probe) else {
            return;
        };
        let monitor = &self.draft.monitors[target.0];
        let history = self
            .histories
            .get_mut(&target)
            .expect("flights are of wanted targets");
        let passed = result.is_some_and(ProbeResult::passed);
        let timed_out = result.is_none_or(|result| result.reason().is_timeout());
        if timed_out && history.timeouts < monitor.retries {
            history.timeouts += 1;
            return;
        }
        history.timeouts = 0;
        history.results.push(passed);
        let needed = if passed {
            monitor.consecutive_up
        } else {
            monitor.consecutive_down
        };
        let run = history
            .results
            .iter()
            .rev()
            .take_while(|&&result| result == passed)
            .count();
        let first = history.results.len() == 1;
        if first || run >= needed.max(1) as usize {
            history.verdict = Some(passed);
        }
    }

    pub(crate) fn endpoint_state(&self, pool: &Pool, endpoint: &Endpoint) -> EndpointState {
        if !pool.enabled || !endpoint.enabled {
            return EndpointState::Disabled;
        }
        let (mut up, mut down, mut vetoed) = (0, 0, false);
        for (monitor, votes, decisive) in self.members(pool) {
            match self.histories[&self.target_of(monitor, endpoint)].verdict {
                _ if !votes => {}
                None => {}
                Some(true) => up += 1,
                Some(false) => {
                    down += 1;
                    vetoed |= decisive;
                }
            }
        }
        match () {
            () if up + down == 0 => EndpointState::Unknown,
            () if vetoed || down > up => EndpointState::Critical,
            () => EndpointState::Healthy,
        }
    }

    pub(crate) fn pool_state(&self, pool: &Pool) -> PoolState {
        let count = |state| {
            pool.endpoints
                .iter()
                .filter(|endpoint| self.endpoint_state(pool, endpoint) == state)
                .count() as u32
        };
        let enabled = pool
            .endpoints
            .iter()
            .filter(|endpoint| endpoint.enabled)
            .count() as u32;
        let healthy = count(EndpointState::Healthy);
        match () {
            () if !pool.enabled => PoolState::Disabled,
            () if pool.monitoring == Monitoring::None => PoolState::Unknown,
            () if enabled > 0 && count(EndpointState::Unknown) == enabled => PoolState::Unknown,
            () if enabled > 0 && pool.endpoints_min == 0 && healthy == enabled => {
                PoolState::Healthy
            }
            () if enabled > 0 && pool.endpoints_min == 0 => PoolState::Degraded,
            () if healthy == 0 || healthy < pool.endpoints_min => PoolState::Critical,
            () if healthy < enabled => PoolState::Degraded,
            () => PoolState::Healthy,
        }
    }

    fn resolves(&self, endpoint: &Endpoint) -> bool {
        match &endpoint.address {
            Address::Ip(_) => true,
            Address::Host(host) => self.hosts.get(host).copied().flatten() == Some(true),
        }
    }

    /// Whether steering may send a new request there, but for its weight.
    pub(crate) fn works(&self, pool: &Pool, endpoint: &Endpoint) -> bool {
        let state = self.endpoint_state(pool, endpoint);
        let unjudged = pool.monitoring == Monitoring::None && state == EndpointState::Unknown;
        self.resolves(endpoint) && (state == EndpointState::Healthy || unjudged)
    }

    fn candidates<'a>(&self, pool: &'a Pool) -> Vec<(&'a str, f64)> {
        let carried = match self.pool_state(pool) {
            PoolState::Healthy | PoolState::Degraded => true,
            PoolState::Unknown => pool.monitoring == Monitoring::None,
            PoolState::Critical | PoolState::Disabled => false,
        };
        let all = pool.endpoints.iter().filter(|_| carried);
        let all = all.filter(|endpoint| endpoint.weight > 0.0 && self.works(pool, endpoint));
        all.map(|endpoint| (endpoint.name.as_str(), endpoint.weight))
            .collect()
    }

    fn last_resort<'a>(&self, pool: &'a Pool) -> Vec<(&'a str, f64)> {
        let all = || pool.endpoints.iter().filter(|_| pool.enabled);
        let mut left: Vec<&Endpoint> = all()
            .filter(|endpoint| self.works(pool, endpoint))
            .collect();
        if left.is_empty() {
            left = all()
                .filter(|endpoint| endpoint.enabled && self.resolves(endpoint))
                .collect();
        }
        let equal = left.iter().all(|endpoint| endpoint.weight == 0.0);
        let weight = |endpoint: &Endpoint| if equal { 1.0 } else { endpoint.weight };
        left.into_iter()
            .map(|endpoint| (endpoint.name.as_str(), weight(endpoint)))
            .collect()
    }

    /// Where the load balancer at `place` sends its traffic; `None`: nowhere.
    pub(crate) fn shares(&self, place: usize) -> Option<Shares> {
        let balancer = &self.draft.balancers[place];
        let pool = |id| {
            self.draft
                .pools
                .iter()
                .find(|pool| pool.id == id)
                .expect("checked")
        };
        let weight = |id| {
            let own = balancer.weights.iter().find(|(pool, _)| pool.id == id);
            own.map_or(balancer.weight_default, |(_, weight)| *weight)
        };
        let usable = balancer
            .pools
            .iter()
            .filter(|listed| !self.candidates(pool(listed.id)).is_empty());
        let mut chosen: Vec<(&Pool, f64)> = usable
            .map(|listed| (pool(listed.id), weight(listed.id)))
            .collect();
        match balancer.steering {
            PoolSteering::Off => {
                chosen.truncate(1);
                chosen.iter_mut().for_each(|(_, weight)| *weight = 1.0);
            }
            PoolSteering::Random => chosen.retain(|(_, weight)| *weight > 0.0),
        }
        let fallback = chosen.is_empty();
        if fallback {
            chosen.push((pool(balancer.fallback.id), 1.0));
        }
        let mut shares = Shares {
            fallback,
            ..Shares::default()
        };
        let sum: f64 = chosen.iter().map(|(_, weight)| weight).sum();
        for (pool, weight) in chosen {
            let inside = if fallback {
                self.last_resort(pool)
            } else {
                self.candidates(pool)
            };
            let inside_sum: f64 = inside.iter().map(|(_, weight)| weight).sum();
            if inside.is_empty() {
                return None;
            }
            shares.pools.insert(pool.name.clone(), weight / sum);
            for (endpoint, weight) in inside.into_iter().filter(|(_, weight)| *weight > 0.0) {
                shares
                    .endpoints
                    .insert(format!("{}/{endpoint}", pool.name), weight / inside_sum);
            }
        }
        Some(shares)
    }
}
