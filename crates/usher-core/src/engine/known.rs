//! What one process knows of its endpoints, as values that another one can go on from.
//!
//! It is told per monitor and endpoint, by their ids, because an index is valid only with its
//! snapshot and the other process may have read another configuration. A streak and the time of
//! the next probe pass on only where the probe is the same: elsewhere the rule of a reload holds,
//! and the verdict stays until the next result.

use std::collections::BTreeMap;
use std::hash::{Hash as _, Hasher as _};
use std::time::Duration;

use siphasher::sip::SipHasher24;

use super::watch::Memory;
use crate::health::{FailureReason, Standing};
use crate::id::Id;
use crate::probe::{Probe, ProbeResult};

/// What one monitor knows of one endpoint.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Known {
    /// The endpoint.
    pub endpoint: Id,
    /// The monitor.
    pub monitor: Id,
    /// Type of the monitor: one of `MonitorKind::NAMES`.
    pub kind: &'static str,
    /// Tells whether another process makes the same probe. A build that counts differently finds
    /// no probe the same, which costs a streak and no verdict.
    pub probe: u64,
    /// What its results add up to.
    pub standing: Standing,
    /// The last final result, if there is one.
    pub last: Option<ProbeResult>,
    /// Why it failed last.
    pub failure: FailureReason,
    /// Until its next probe; zero while one is under way. `None`: its first result is awaited.
    pub due_in: Option<Duration>,
}

/// By endpoint, type of the monitor, and monitor; `None` stands for the only one that the endpoint
/// has.
pub(super) type Memories = BTreeMap<(Id, &'static str, Option<Id>), Memory>;

/// The memories of another process.
pub(super) fn memories(known: &[Known]) -> Memories {
    let mut memories = Memories::new();
    let mut judges: BTreeMap<Id, usize> = BTreeMap::new();
    for one in known {
        *judges.entry(one.endpoint).or_default() += 1;
    }
    for one in known {
        let memory = Memory {
            standing: one.standing,
            last: one.last,
            failure: one.failure,
            schedule: one.due_in.map(|due_in| (one.probe, due_in)),
        };
        memories.insert((one.endpoint, one.kind, Some(one.monitor)), memory);
        if judges[&one.endpoint] == 1 {
            memories.insert((one.endpoint, one.kind, None), memory);
        }
    }
    memories
}

/// The same for probes that ask the same of the same target. The user agent names one of the pools
/// that share the probe, and is no part of it.
pub(super) fn fingerprint(probe: &Probe) -> u64 {
    let user_agent = String::new();
    let mut hasher = SipHasher24::new();
    Probe {
        user_agent,
        ..probe.clone()
    }
    .hash(&mut hasher);
    hasher.finish()
}
