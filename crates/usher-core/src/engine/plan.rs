//! What a catalog wants to have probed, and who judges which endpoint.
//!
//! Pools that share a monitor and a target share one task: the target is probed once per interval,
//! however many pools it stands in.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crate::catalog::{Address, Catalog, Endpoint, EndpointIx, Monitor, Monitoring, Pool, PoolIx};
use crate::health::Streaks;
use crate::id::Id;
use crate::probe::Probe;
use crate::topology::Topology;

/// What tells one task from another. Settings of the monitor that may change while the task stays
/// the same are not in it.
#[derive(Debug, Clone)]
pub(super) struct Key {
    pub(super) monitor: Id,
    /// Shared with the task: there may be hundreds of thousands.
    probe: Arc<Probe>,
}

impl Key {
    /// What two keys are compared by: the target, and who it is taken to be.
    fn parts(&self) -> impl Ord {
        let Probe {
            address,
            port,
            host,
            sni,
            ca,
            client_cert,
            kind: _,
            timeout: _,
            user_agent: _,
        } = &*self.probe;
        (self.monitor, address, port, host, sni, ca, client_cert)
    }
}

impl Ord for Key {
    fn cmp(&self, other: &Key) -> Ordering {
        self.parts().cmp(&other.parts())
    }
}

impl PartialOrd for Key {
    fn partial_cmp(&self, other: &Key) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Key {
    fn eq(&self, other: &Key) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Key {}

/// One target to probe by one monitor.
#[derive(Debug)]
pub(super) struct Task {
    pub(super) key: Key,
    pub(super) probe: Arc<Probe>,
    pub(super) interval: Duration,
    pub(super) retries: u32,
    pub(super) streaks: Streaks,
    /// Those that its verdict is for.
    pub(super) endpoints: Vec<EndpointIx>,
}

/// A task's part in judging an endpoint.
#[derive(Debug, Clone, Copy)]
pub(super) struct Juror {
    /// Place of the task in [`Plan::tasks`].
    pub(super) task: usize,
    pub(super) votes: bool,
    pub(super) decisive: bool,
}

/// Everything that a catalog wants to have probed.
#[derive(Debug, Default)]
pub(super) struct Plan {
    pub(super) tasks: Vec<Task>,
    /// By [`EndpointIx`]; empty for endpoints that nobody judges and for those that serve nobody.
    pub(super) jurors: Vec<Vec<Juror>>,
}

impl Plan {
    /// `serving` says of each endpoint, by [`EndpointIx`], whether traffic or pins may come to it.
    pub(super) fn new(topology: &Topology, serving: &[bool]) -> Plan {
        let catalog = topology.catalog();
        let mut plan = Plan {
            tasks: Vec::new(),
            jurors: vec![Vec::new(); topology.endpoints().len()],
        };
        let mut places = BTreeMap::new();
        for (ix, pool) in catalog.pools().filter(|(_, pool)| pool.enabled) {
            for (monitor, votes, decisive) in members(catalog, pool) {
                for (place, endpoint) in pool.endpoints.iter().enumerate() {
                    let target = topology.endpoint_of(ix, place);
                    if !serving[target.at()] {
                        continue;
                    }
                    let task = plan.task(&mut places, monitor, pool, endpoint);
                    plan.tasks[task].endpoints.push(target);
                    plan.jurors[target.at()].push(Juror {
                        task,
                        votes,
                        decisive,
                    });
                }
            }
        }
        plan
    }

    fn task(
        &mut self,
        places: &mut BTreeMap<Key, usize>,
        monitor: &Monitor,
        pool: &Pool,
        endpoint: &Endpoint,
    ) -> usize {
        let probe = Arc::new(Probe::of(monitor, pool, endpoint));
        let key = Key {
            monitor: monitor.id,
            probe: Arc::clone(&probe),
        };
        *places.entry(key.clone()).or_insert_with(|| {
            self.tasks.push(Task {
                key,
                probe,
                interval: monitor.interval,
                retries: monitor.retries,
                streaks: Streaks::new(monitor.consecutive_up, monitor.consecutive_down),
                endpoints: Vec::new(),
            });
            self.tasks.len() - 1
        })
    }
}

/// The monitors that probe for `pool`, whether each votes, and whether its failure is enough.
fn members<'a>(catalog: &'a Catalog, pool: &Pool) -> Vec<(&'a Monitor, bool, bool)> {
    let monitor = |id| {
        catalog.monitor(
            catalog
                .monitor_by_id(id)
                .expect("the check found every monitor"),
        )
    };
    match &pool.monitoring {
        Monitoring::None => Vec::new(),
        Monitoring::Monitor(one) => vec![(monitor(one.id), true, false)],
        Monitoring::Group(group) => {
            let group = catalog
                .monitor_group_by_id(group.id)
                .expect("the check found every group");
            let enabled = group.members.iter().filter(|member| member.enabled);
            enabled
                .map(|member| {
                    (
                        monitor(member.monitor.id),
                        !member.monitoring_only,
                        member.must_be_healthy,
                    )
                })
                .collect()
        }
    }
}

/// The hostnames of all endpoints that serve, and the pools in which each stands.
pub(super) fn hosts(topology: &Topology, serving: &[bool]) -> BTreeMap<String, Vec<PoolIx>> {
    let mut hosts: BTreeMap<String, Vec<PoolIx>> = BTreeMap::new();
    let endpoints = topology.endpoints().iter().zip(serving);
    for (endpoint, _) in endpoints.filter(|(_, serving)| **serving) {
        if let Address::Host(host) = &endpoint.address {
            hosts.entry(host.clone()).or_default().push(endpoint.pool);
        }
    }
    hosts
}
