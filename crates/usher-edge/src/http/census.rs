//! Client connections that are open: how many in all, on each worker, and from each address.
//!
//! Looked at when a connection comes and when it goes, never in between. Who must wait for room
//! waits here, so that nothing is polled.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::timeout;

/// How long to wait for room before looking whether the limit itself was raised.
const LIMIT_CHECK: Duration = Duration::from_secs(1);

#[derive(Debug, Default)]
#[repr(align(64))]
struct Load(AtomicUsize);

/// All client connections of a node.
#[derive(Debug)]
pub(crate) struct Census {
    open: AtomicUsize,
    loads: Box<[Load]>,
    room: Notify,
    /// Only of connections that came while a limit per client was set.
    clients: Mutex<HashMap<IpAddr, usize>>,
}

impl Census {
    pub(crate) fn new(workers: usize) -> Arc<Census> {
        Arc::new(Census {
            open: AtomicUsize::new(0),
            loads: (0..workers).map(|_| Load::default()).collect(),
            room: Notify::new(),
            clients: Mutex::default(),
        })
    }

    pub(crate) fn open(&self) -> usize {
        self.open.load(Ordering::Relaxed)
    }

    /// Takes a seat for a connection that may come, if fewer than `limit` are taken.
    pub(crate) fn reserve(self: &Arc<Self>, limit: usize) -> Option<Seat> {
        let one_more = |open: usize| (open < limit).then_some(open + 1);
        let taken = self
            .open
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more);
        taken.is_ok().then(|| Seat {
            census: Arc::clone(self),
            worker: None,
            client: None,
        })
    }

    /// Waits until a seat is given up, or a moment.
    pub(crate) async fn room(&self) {
        // Either way the caller looks again.
        let _ = timeout(LIMIT_CHECK, self.room.notified()).await;
    }

    /// The worker that a connection accepted by `worker` should go to: itself, unless its load is
    /// clearly above the least.
    pub(crate) fn place(&self, worker: usize) -> usize {
        let load = |at: usize| self.loads[at].0.load(Ordering::Relaxed);
        let own = load(worker);
        let least = (0..self.loads.len())
            .min_by_key(|&at| load(at))
            .unwrap_or(worker);
        // A hand-over costs a wake-up of another core, so a difference of one is let be.
        if own > load(least) + 1 + own / 32 {
            least
        } else {
            worker
        }
    }

    fn clients(&self) -> MutexGuard<'_, HashMap<IpAddr, usize>> {
        self.clients.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A counted connection, or one that may come.
#[derive(Debug)]
pub(crate) struct Seat {
    census: Arc<Census>,
    worker: Option<usize>,
    client: Option<IpAddr>,
}

impl Seat {
    /// The connection has come and goes to `worker`.
    pub(crate) fn sit(&mut self, worker: usize) {
        debug_assert!(self.worker.is_none(), "a connection has one worker");
        self.census.loads[worker].0.fetch_add(1, Ordering::Relaxed);
        self.worker = Some(worker);
    }

    /// Counts the connection to `client`. False: it has `limit` connections already.
    pub(crate) fn belong(&mut self, client: IpAddr, limit: usize) -> bool {
        let mut clients = self.census.clients();
        let count = clients.entry(client).or_default();
        if *count >= limit {
            return false;
        }
        *count += 1;
        self.client = Some(client);
        true
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        if let Some(worker) = self.worker {
            self.census.loads[worker].0.fetch_sub(1, Ordering::Relaxed);
        }
        if let Some(client) = self.client {
            let mut clients = self.census.clients();
            if let Some(count) = clients.get_mut(&client) {
                *count -= 1;
                if *count == 0 {
                    clients.remove(&client);
                }
            }
        }
        self.census.open.fetch_sub(1, Ordering::Relaxed);
        // Nothing to do when nobody waits; a permit that is kept costs one look too many.
        self.census.room.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seats_end_at_the_limit_and_come_back() {
        let census = Census::new(1);
        let first = census.reserve(1).expect("room");
        assert!(census.reserve(1).is_none());
        drop(first);
        assert_eq!(census.open(), 0);
        assert!(census.reserve(1).is_some());
    }

    #[test]
    fn a_client_has_so_many_and_no_more() {
        let census = Census::new(1);
        let client = IpAddr::from([192, 0, 2, 1]);
        let mut seats: Vec<_> = (0..3).filter_map(|_| census.reserve(9)).collect();
        assert!(seats[0].belong(client, 1));
        assert!(!seats[1].belong(client, 1));
        assert!(seats[2].belong(IpAddr::from([192, 0, 2, 2]), 1));
        seats.clear();
        assert!(census.clients().is_empty());
    }

    #[test]
    fn load_spreads_evenly_whatever_the_kernel_hashes_to() {
        let census = Census::new(4);
        let mut seats = Vec::new();
        for _ in 0..64 {
            let mut seat = census.reserve(99).expect("room");
            seat.sit(census.place(0));
            seats.push(seat);
        }
        let loads: Vec<_> = census
            .loads
            .iter()
            .map(|load| load.0.load(Ordering::Relaxed))
            .collect();
        assert!(
            loads.iter().all(|load| (14..=18).contains(load)),
            "{loads:?}"
        );
        assert_eq!(census.place(1), 1, "a small difference is let be");
    }
}
