//! The specification told a second time, as plainly as possible: lists, loops, no cleverness.
//!
//! It keeps for each target and monitor the results since the last change, and computes everything
//! else anew whenever it is asked.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use usher_core::catalog::{
    Address, AffinityMode, Draft, Endpoint, Monitor, MonitorKind, Monitoring, Pool,
};
use usher_core::health::{EndpointState, PoolState};
use usher_core::id::Id;
use usher_core::probe::{Probe, ProbeId, ProbeResult};
use usher_core::time::{Mono, Wall};

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
    /// Round trips of probes that passed, and when they ended.
    pub(crate) rtts: Vec<(f64, Mono)>,
}

/// What ought to be the case.
#[derive(Debug)]
pub struct Model {
    pub(crate) draft: Draft,
    pub(crate) histories: BTreeMap<Target, History>,
    pub(crate) flights: BTreeMap<ProbeId, Target>,
    /// Whether each hostname resolves; `None` before the first answer.
    pub(crate) hosts: BTreeMap<String, Option<bool>>,
    /// Every endpoint that is turned off, and since when if that was seen.
    pub(crate) off_since: BTreeMap<Id, Option<Wall>>,
    /// What time it is.
    pub(crate) time: Wall,
}

impl Model {
    pub(crate) fn new(draft: Draft, time: Wall) -> Model {
        let mut model = Model {
            draft: draft.clone(),
            histories: BTreeMap::new(),
            flights: BTreeMap::new(),
            hosts: BTreeMap::new(),
            off_since: BTreeMap::new(),
            time,
        };
        // Nothing was there before: nobody saw an endpoint being turned off.
        for endpoint in draft.pools.iter().flat_map(|pool| &pool.endpoints) {
            if !endpoint.enabled {
                model.off_since.insert(endpoint.id, None);
            }
        }
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

    /// For how long the pins of a pool's endpoints may hold at most.
    fn drain_max(&self, pool: &Pool) -> Duration {
        let mut longest = Duration::ZERO;
        for balancer in &self.draft.balancers {
            let mut named = false;
            balancer.for_each_pool(&mut |listed| named |= listed.id == pool.id);
            if named && balancer.affinity.mode != AffinityMode::None {
                longest = longest.max(balancer.affinity.attributes.drain);
            }
        }
        longest
    }

    /// Whether pins to an endpoint that is turned off may still hold.
    fn drains(&self, pool: &Pool, endpoint: &Endpoint) -> bool {
        let began = self.off_since.get(&endpoint.id).copied().flatten();
        let ends = began.map(|began| began.after(self.drain_max(pool)));
        pool.enabled && !endpoint.enabled && ends.is_some_and(|ends| self.time < ends)
    }

    pub(crate) fn is_draining(&self, pool: &Pool, endpoint: &Endpoint) -> bool {
        self.drains(pool, endpoint)
    }

    fn serves(&self, pool: &Pool, endpoint: &Endpoint) -> bool {
        pool.enabled && (endpoint.enabled || self.drains(pool, endpoint))
    }

    /// It is this time now; what is drained by it is not probed any more.
    pub(crate) fn at(&mut self, time: Wall) {
        let draining = |model: &Model| {
            let pools = model.draft.pools.iter();
            let all = pools.flat_map(|pool| pool.endpoints.iter().map(move |one| (pool, one)));
            all.filter(|(pool, one)| model.drains(pool, one)).count()
        };
        let before = draining(self);
        self.time = time;
        if draining(self) != before {
            self.reload(self.draft.clone());
        }
    }

    pub(crate) fn wanted(&self) -> BTreeSet<Target> {
        let mut wanted = BTreeSet::new();
        for pool in self.draft.pools.iter().filter(|pool| pool.enabled) {
            for (monitor, _, _) in self.members(pool) {
                let enabled = pool
                    .endpoints
                    .iter()
                    .filter(|endpoint| self.serves(pool, endpoint));
                wanted.extend(enabled.map(|endpoint| self.target_of(monitor, endpoint)));
            }
        }
        wanted
    }

    pub(crate) fn reload(&mut self, draft: Draft) {
        let before = std::mem::replace(&mut self.draft, draft);
        let was_on = |id: Id| {
            let mut endpoints = before.pools.iter().flat_map(|pool| &pool.endpoints);
            endpoints.any(|endpoint| endpoint.id == id && endpoint.enabled)
        };
        let mut off_since = BTreeMap::new();
        for endpoint in self.draft.pools.iter().flat_map(|pool| &pool.endpoints) {
            if !endpoint.enabled {
                let known = self.off_since.get(&endpoint.id).copied().flatten();
                let seen = was_on(endpoint.id).then_some(self.time);
                off_since.insert(endpoint.id, known.or(seen));
            }
        }
        self.off_since = off_since;
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
            for endpoint in pool
                .endpoints
                .iter()
                .filter(|endpoint| self.serves(pool, endpoint))
            {
                if let Address::Host(host) = &endpoint.address {
                    hosts.insert(host.clone(), self.hosts.get(host).copied().flatten());
                }
            }
        }
        self.hosts = hosts;
    }

    /// The end of an attempt; `None` for a result: nobody answered for it.
    pub(crate) fn probed(&mut self, probe: ProbeId, result: Option<&ProbeResult>, now: Mono) {
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
        if let Some(ProbeResult::Pass { rtt, .. }) = result {
            history.rtts.push((rtt.as_nanos() as f64, now));
        }
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
        match () {
            () if self.drains(pool, endpoint) => EndpointState::Draining,
            () if !pool.enabled || !endpoint.enabled => EndpointState::Disabled,
            () => self.judged(pool, endpoint),
        }
    }

    /// What its monitors say.
    fn judged(&self, pool: &Pool, endpoint: &Endpoint) -> EndpointState {
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

    /// Whether whoever is pinned there may stay, as far as monitors say.
    pub(crate) fn passes(&self, pool: &Pool, endpoint: &Endpoint) -> bool {
        pool.monitoring == Monitoring::None || self.judged(pool, endpoint) == EndpointState::Healthy
    }

    /// The mean round trip of each monitor that votes, and of all of them; and whether one of them
    /// is near the age at which it says nothing any more.
    pub(crate) fn latency(
        &self,
        pool: &Pool,
        endpoint: &Endpoint,
        now: Mono,
    ) -> (Option<f64>, bool) {
        let (mut means, mut doubtful) = (Vec::new(), false);
        for (monitor, _, _) in self
            .members(pool)
            .into_iter()
            .filter(|(_, votes, _)| *votes)
        {
            let history = &self.histories[&self.target_of(monitor, endpoint)];
            let Some(&(first, _)) = history.rtts.first() else {
                continue;
            };
            let rest = history.rtts[1..].iter();
            let mean = rest.fold(first, |mean, (rtt, _)| 0.2 * rtt + 0.8 * mean);
            let age = history
                .rtts
                .last()
                .map_or(Duration::ZERO, |&(_, at)| now.since(at));
            let limit = Duration::from_secs(600).max(self.draft.monitors[monitor].interval * 3);
            doubtful |= age > limit - Duration::from_secs(120);
            if age <= limit {
                means.push(mean.round());
            }
        }
        let mean = means.iter().sum::<f64>() / means.len() as f64;
        ((!means.is_empty()).then_some(mean), doubtful)
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

    pub(crate) fn resolves(&self, endpoint: &Endpoint) -> bool {
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

    /// Whether a pool is there for traffic.
    pub(crate) fn carries(&self, pool: &Pool) -> bool {
        match self.pool_state(pool) {
            PoolState::Healthy | PoolState::Degraded => true,
            PoolState::Unknown => pool.monitoring == Monitoring::None,
            PoolState::Critical | PoolState::Disabled => false,
        }
    }

    pub(crate) fn candidates<'a>(&self, pool: &'a Pool) -> Vec<(&'a str, f64)> {
        let carried = self.carries(pool);
        let all = pool.endpoints.iter().filter(|_| carried);
        let all = all.filter(|endpoint| endpoint.weight > 0.0 && self.works(pool, endpoint));
        all.map(|endpoint| (endpoint.name.as_str(), endpoint.weight))
            .collect()
    }

    pub(crate) fn last_resort<'a>(&self, pool: &'a Pool) -> Vec<(&'a str, f64)> {
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
}
