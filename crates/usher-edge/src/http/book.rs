//! Requests under way and open connections, by endpoint and by load balancer.
//!
//! They steer (least outstanding requests, least connections), they bound retries, and the state of
//! the node shows them. Each worker counts in a cell of its own, alone on its cache line, so counting is a plain
//! load and store; who wants to know adds the cells up. Counts belong to identities and survive
//! reordering and reload; indices are those of one catalog.

use std::collections::HashMap;
use std::hash::{Hash as _, Hasher as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use usher_core::catalog::{BalancerIx, Catalog, EndpointIx};
use usher_core::id::Id;
use usher_core::snapshot::Counts;
use usher_core::time::Mono;

/// Share of a load balancer's active requests that may be retries at one time.
const RETRIES_SHARE: u32 = 5;

/// Retries that are always allowed at one time.
const RETRIES_MIN: u32 = 3;

/// Between two lines of the process's log about one endpoint.
const COMPLAINT_SECS: u64 = 60;

/// Between two lines that say the same.
const SAME_COMPLAINT_SECS: u64 = 600;

#[derive(Debug, Default)]
#[repr(align(64))]
struct Cell(AtomicU32);

/// A count that each worker keeps its part of.
#[derive(Debug)]
pub(crate) struct Count(Box<[Cell]>);

impl Count {
    pub(crate) fn new(workers: usize) -> Count {
        Count((0..workers).map(|_| Cell::default()).collect())
    }

    /// Only `worker` itself may call this: the cell has one writer.
    pub(crate) fn add(&self, worker: usize) {
        let cell = &self.0[worker].0;
        cell.store(
            cell.load(Ordering::Relaxed).wrapping_add(1),
            Ordering::Relaxed,
        );
    }

    /// Only `worker` itself may call this.
    pub(crate) fn remove(&self, worker: usize) {
        let cell = &self.0[worker].0;
        cell.store(
            cell.load(Ordering::Relaxed).wrapping_sub(1),
            Ordering::Relaxed,
        );
    }

    pub(crate) fn sum(&self) -> u32 {
        self.0
            .iter()
            .map(|cell| cell.0.load(Ordering::Relaxed))
            .fold(0, u32::wrapping_add)
    }
}

/// What one endpoint is known by beside its health.
#[derive(Debug)]
struct EndpointCounts {
    requests: Count,
    connections: Count,
    complaints: Complaints,
}

/// A connection to an endpoint, counted until it is dropped; on the worker that made it.
#[derive(Debug)]
pub(crate) struct Connected {
    counts: Arc<EndpointCounts>,
    worker: usize,
}

impl Drop for Connected {
    fn drop(&mut self) {
        self.counts.connections.remove(self.worker);
    }
}

/// What the process's log said last of an endpoint, so that it is not said with every request:
/// when, in seconds, above the reason's hash. 0: nothing yet.
#[derive(Debug, Default)]
pub(crate) struct Complaints(AtomicU64);

impl Complaints {
    /// Whether `reason` may be said now; it counts as said then. At most once a minute, and the
    /// same reason again only when ten have passed.
    pub(crate) fn may_say(&self, reason: &str, now: Mono) -> bool {
        let mut hasher = std::collections::hash_map::DefaultHasher::new();
        reason.hash(&mut hasher);
        // One more, so that nothing is told from something.
        let second = now.as_nanos() / 1_000_000_000 + 1;
        let (second, hash) = (second & 0xffff_ffff, hasher.finish() >> 32);
        let due = |last: u64| {
            let age = second.saturating_sub(last >> 32);
            let silence = if last & 0xffff_ffff == hash {
                SAME_COMPLAINT_SECS
            } else {
                COMPLAINT_SECS
            };
            (last == 0 || age >= silence).then_some(second << 32 | hash)
        };
        (self.0)
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, due)
            .is_ok()
    }
}

#[derive(Debug)]
struct BalancerCounts {
    active: Count,
    /// Rare enough to be shared.
    retries: AtomicU32,
}

/// The counts of one catalog's endpoints and load balancers.
#[derive(Debug)]
pub struct Book {
    catalog: Arc<Catalog>,
    endpoints: Box<[(Id, Arc<EndpointCounts>)]>,
    balancers: Box<[(Id, Arc<BalancerCounts>)]>,
}

impl Book {
    /// Counts of `catalog`, those that `before` kept already among them.
    pub(crate) fn open(catalog: &Arc<Catalog>, workers: usize, before: Option<&Book>) -> Book {
        let known: HashMap<Id, &Arc<EndpointCounts>> = before
            .iter()
            .flat_map(|book| &book.endpoints)
            .map(|(id, counts)| (*id, counts))
            .collect();
        let endpoint = |id: Id| {
            let counts = known.get(&id).map(|counts| Arc::clone(counts));
            let new = || {
                Arc::new(EndpointCounts {
                    requests: Count::new(workers),
                    connections: Count::new(workers),
                    complaints: Complaints::default(),
                })
            };
            (id, counts.unwrap_or_else(new))
        };
        let known: HashMap<Id, &Arc<BalancerCounts>> = before
            .iter()
            .flat_map(|book| &book.balancers)
            .map(|(id, count)| (*id, count))
            .collect();
        let balancer = |id: Id| {
            let counts = known.get(&id).map(|counts| Arc::clone(counts));
            let new = || {
                Arc::new(BalancerCounts {
                    active: Count::new(workers),
                    retries: AtomicU32::new(0),
                })
            };
            (id, counts.unwrap_or_else(new))
        };
        let pools = catalog.draft().pools.iter();
        Book {
            catalog: Arc::clone(catalog),
            // The order of `EndpointIx`: pool by pool.
            endpoints: pools
                .flat_map(|pool| &pool.endpoints)
                .map(|found| endpoint(found.id))
                .collect(),
            balancers: catalog
                .draft()
                .balancers
                .iter()
                .map(|found| balancer(found.id))
                .collect(),
        }
    }

    pub(crate) fn catalog(&self) -> &Arc<Catalog> {
        &self.catalog
    }

    pub(crate) fn endpoint(&self, ix: EndpointIx) -> &Count {
        &self.endpoints[ix.at()].1.requests
    }

    pub(crate) fn complaints(&self, ix: EndpointIx) -> &Complaints {
        &self.endpoints[ix.at()].1.complaints
    }

    /// Counts a connection that is being made. Only `worker` itself may call this.
    pub(crate) fn connecting(&self, ix: EndpointIx, worker: usize) -> Connected {
        let counts = Arc::clone(&self.endpoints[ix.at()].1);
        counts.connections.add(worker);
        Connected { counts, worker }
    }

    pub(crate) fn active(&self, ix: BalancerIx) -> &Count {
        &self.balancers[ix.at()].1.active
    }

    /// Takes one retry from the budget: at most a fifth of the load balancer's active requests and
    /// at least 3 at a time. True: give it back with [`Book::return_retry`].
    pub(crate) fn take_retry(&self, ix: BalancerIx) -> bool {
        let counts = &self.balancers[ix.at()].1;
        let allowed = (counts.active.sum() / RETRIES_SHARE).max(RETRIES_MIN);
        let taken = counts.retries.fetch_add(1, Ordering::Relaxed) < allowed;
        if !taken {
            counts.retries.fetch_sub(1, Ordering::Relaxed);
        }
        taken
    }

    pub(crate) fn return_retry(&self, ix: BalancerIx) {
        self.balancers[ix.at()]
            .1
            .retries
            .fetch_sub(1, Ordering::Relaxed);
    }
}

impl Counts for Book {
    fn open_requests(&self, endpoint: EndpointIx) -> u32 {
        self.endpoint(endpoint).sum()
    }

    fn open_connections(&self, endpoint: EndpointIx) -> u32 {
        self.endpoints[endpoint.at()].1.connections.sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_complaint_is_repeated_only_after_a_while() {
        let complaints = Complaints::default();
        let says = |reason, secs| {
            complaints.may_say(
                reason,
                Mono::ZERO.after(std::time::Duration::from_secs(secs)),
            )
        };
        assert!(says("expired", 0));
        assert!(!says("expired", 0) && !says("expired", 599));
        assert!(says("expired", 600));
        assert!(!says("unknown issuer", 659));
        assert!(says("unknown issuer", 660));
    }

    #[test]
    fn a_count_is_the_sum_of_what_each_worker_counts() {
        let count = Count::new(2);
        count.add(0);
        count.add(1);
        count.add(1);
        count.remove(1);
        assert_eq!(count.sum(), 2);
    }
}
