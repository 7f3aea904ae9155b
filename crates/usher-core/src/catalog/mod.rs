//! The desired state: what the operator asked for, checked as a whole.
//!
//! A [`Draft`] is what somebody wrote; [`Catalog::check`] turns it into a [`Catalog`] or into every
//! fault that it has. Holding a `Catalog` is the proof that all values are in range and all
//! references exist, so nothing later has to ask again.

mod affinity;
mod balancer;
mod check;
mod cookie;
mod monitor;
mod pool;
mod pool_set;
mod room;
mod rules;
mod syntax;
mod warn;

pub use affinity::{AFFINITY_HEADERS_MAX, Affinity, AffinityAttributes, AffinityMode, PinFailover};
pub use balancer::{Areas, Balancer, HostPattern, Ssl, Zone};
pub use check::{
    AffinityField, AreaMap, CatalogError, Fault, Field, PoolSetPart, RoomField, RulePart,
    SheddingField, Subject, TlsField,
};
pub use cookie::{CookieMarks, SameSite, Secure};
pub use monitor::{CodeSet, CodeSetFault, HttpCheck, Member, Monitor, MonitorGroup, MonitorKind};
pub use pool::{Address, Endpoint, EndpointTls, Monitoring, Pool, ShedPolicy, Shedding, TlsMode};
pub use pool_set::{Places, PoolSet, PoolSetMatch};
pub use room::{
    ANY_HOST, BYPASS_MAX, Bypass, Copies, JsonAccept, LANGUAGES, OnStoreFailure, PAGE_BYTES_MAX,
    Pacing, PageRefresh, PrefixMatch, Queueing, Room, RoomExtras, RoomProfile, Route, Subrequests,
    normal_path,
};
pub(crate) use syntax::nearest;
pub use warn::Warning;

use std::collections::BTreeMap;

use crate::id::Id;

macro_rules! index {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(pub u32);

        impl $name {
            /// As an index into a slice.
            #[must_use]
            pub const fn at(self) -> usize {
                self.0 as usize
            }
        }
    };
}

index! {
    /// Place of a pool in its catalog. Valid only with the catalog or snapshot that it came from.
    PoolIx
}
index! {
    /// Place of an endpoint in the snapshot's table of all endpoints (pool by pool, in order).
    EndpointIx
}
index! {
    /// Place of a load balancer in its catalog.
    BalancerIx
}
index! {
    /// Place of a monitor in its catalog.
    MonitorIx
}

/// A reference to another resource, with the text that the operator wrote for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reference {
    /// What is meant.
    pub id: Id,
    /// How it was written: a key in the file, an id in the API. For messages.
    pub text: String,
}

/// Where this node stands; steering by place and the names in reports come from it.
#[derive(Debug, Clone, PartialEq)]
pub struct Node {
    /// Name of the node, unique among nodes.
    pub name: String,
    /// The PoP code, upper case.
    pub code: String,
    /// One of the 13 region codes, if known.
    pub region: Option<String>,
    /// ISO 3166-1 alpha-2 code, upper case, if known.
    pub country: Option<String>,
    /// City, for reports.
    pub city: Option<String>,
    /// Degrees: latitude -90..=90 and longitude -180..=180.
    pub coordinates: Option<(f64, f64)>,
}

/// What somebody asked for, unchecked.
#[derive(Debug, Clone, PartialEq)]
pub struct Draft {
    /// This node.
    pub node: Node,
    /// Zones, in order of creation.
    pub zones: Vec<Zone>,
    /// Monitors, in order of creation.
    pub monitors: Vec<Monitor>,
    /// Monitor groups, in order of creation.
    pub monitor_groups: Vec<MonitorGroup>,
    /// Pools, in order of creation.
    pub pools: Vec<Pool>,
    /// Load balancers, in order of creation.
    pub balancers: Vec<Balancer>,
    /// Waiting rooms, in order of creation.
    pub rooms: Vec<Room>,
    /// Which limits rooms have to keep. Default [`RoomProfile::Usher`].
    pub room_profile: RoomProfile,
    /// The operator's own floor for [`Monitor::interval`]. Default [`INTERVAL_MIN`], least 1 s.
    pub interval_min: std::time::Duration,
    /// The key of every hash that steers; the same on all nodes of a configuration.
    pub hash_key: crate::affinity::HashKey,
}

/// The floor for [`Monitor::interval`] where an operator says nothing.
pub const INTERVAL_MIN: std::time::Duration = std::time::Duration::from_secs(10);

impl Draft {
    /// Nothing yet, on this node.
    #[must_use]
    pub fn new(node: Node) -> Draft {
        Draft {
            node,
            zones: Vec::new(),
            monitors: Vec::new(),
            monitor_groups: Vec::new(),
            pools: Vec::new(),
            balancers: Vec::new(),
            rooms: Vec::new(),
            room_profile: RoomProfile::default(),
            interval_min: INTERVAL_MIN,
            hash_key: Default::default(),
        }
    }
}

/// A draft that passed every check.
#[derive(Debug, Clone, PartialEq)]
pub struct Catalog {
    draft: Draft,
    pools: BTreeMap<Id, PoolIx>,
    monitors: BTreeMap<Id, MonitorIx>,
    groups: BTreeMap<Id, usize>,
    balancers: BTreeMap<Id, BalancerIx>,
    zones: BTreeMap<String, usize>,
}

impl Catalog {
    /// Checks everything that `draft` says.
    ///
    /// # Errors
    /// Every fault, in the order of the draft.
    pub fn check(draft: Draft) -> Result<Catalog, Vec<Fault>> {
        let faults = rules::faults(&draft);
        if faults.is_empty() {
            Ok(Catalog::indexed(draft))
        } else {
            Err(faults)
        }
    }

    /// What is allowed and probably not meant.
    #[must_use]
    pub fn warnings(&self) -> Vec<Warning> {
        warn::warnings(self)
    }

    fn indexed(draft: Draft) -> Catalog {
        // The check bounds every list far below `u32::MAX`.
        let pools = draft
            .pools
            .iter()
            .zip(0..)
            .map(|(pool, ix)| (pool.id, PoolIx(ix)))
            .collect();
        let monitors = draft
            .monitors
            .iter()
            .zip(0..)
            .map(|(monitor, ix)| (monitor.id, MonitorIx(ix)))
            .collect();
        let groups = draft
            .monitor_groups
            .iter()
            .enumerate()
            .map(|(ix, group)| (group.id, ix))
            .collect();
        let balancers = draft
            .balancers
            .iter()
            .zip(0..)
            .map(|(balancer, ix)| (balancer.id, BalancerIx(ix)))
            .collect();
        let zones = draft
            .zones
            .iter()
            .enumerate()
            .map(|(ix, zone)| (zone.name.clone(), ix))
            .collect();
        Catalog {
            draft,
            pools,
            monitors,
            groups,
            balancers,
            zones,
        }
    }

    /// The checked values.
    #[must_use]
    pub fn draft(&self) -> &Draft {
        &self.draft
    }

    /// The pool at `ix`.
    ///
    /// # Panics
    /// When `ix` comes from another catalog.
    #[must_use]
    pub fn pool(&self, ix: PoolIx) -> &Pool {
        &self.draft.pools[ix.at()]
    }

    /// The load balancer at `ix`.
    ///
    /// # Panics
    /// When `ix` comes from another catalog.
    #[must_use]
    pub fn balancer(&self, ix: BalancerIx) -> &Balancer {
        &self.draft.balancers[ix.at()]
    }

    /// The monitor at `ix`.
    ///
    /// # Panics
    /// When `ix` comes from another catalog.
    #[must_use]
    pub fn monitor(&self, ix: MonitorIx) -> &Monitor {
        &self.draft.monitors[ix.at()]
    }

    /// Place of the pool with this id.
    #[must_use]
    pub fn pool_by_id(&self, id: Id) -> Option<PoolIx> {
        self.pools.get(&id).copied()
    }

    /// Place of the pool with this name.
    #[must_use]
    pub fn pool_by_name(&self, name: &str) -> Option<PoolIx> {
        self.draft
            .pools
            .iter()
            .zip(0..)
            .find(|(pool, _)| pool.name == name)
            .map(|(_, ix)| PoolIx(ix))
    }

    /// Place of the load balancer with this id.
    #[must_use]
    pub fn balancer_by_id(&self, id: Id) -> Option<BalancerIx> {
        self.balancers.get(&id).copied()
    }

    /// Place of the load balancer with this name.
    #[must_use]
    pub fn balancer_by_name(&self, name: &str) -> Option<BalancerIx> {
        let found = self
            .draft
            .balancers
            .iter()
            .zip(0..)
            .find(|(balancer, _)| balancer.name == name);
        found.map(|(_, ix)| BalancerIx(ix))
    }

    /// Place of the monitor with this id.
    #[must_use]
    pub fn monitor_by_id(&self, id: Id) -> Option<MonitorIx> {
        self.monitors.get(&id).copied()
    }

    /// The monitor group with this id.
    #[must_use]
    pub fn monitor_group_by_id(&self, id: Id) -> Option<&MonitorGroup> {
        self.groups
            .get(&id)
            .map(|&ix| &self.draft.monitor_groups[ix])
    }

    /// The zone with this name.
    #[must_use]
    pub fn zone(&self, name: &str) -> Option<&Zone> {
        self.zones.get(name).map(|&ix| &self.draft.zones[ix])
    }

    /// Every pool with its place.
    pub fn pools(&self) -> impl Iterator<Item = (PoolIx, &Pool)> {
        self.draft
            .pools
            .iter()
            .zip(0..)
            .map(|(pool, ix)| (PoolIx(ix), pool))
    }

    /// Every load balancer with its place.
    pub fn balancers(&self) -> impl Iterator<Item = (BalancerIx, &Balancer)> {
        self.draft
            .balancers
            .iter()
            .zip(0..)
            .map(|(balancer, ix)| (BalancerIx(ix), balancer))
    }
}
