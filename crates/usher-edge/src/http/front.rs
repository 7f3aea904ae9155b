//! The front as the node sees it: start, listen, stop listening, drain.
//!
//! It owns one thread for each worker and speaks to them over channels. A listener that goes away
//! stops accepting first, then waits until its connections have ended with an answer, and cuts what
//! is left when the grace ends. Nothing here is on the path of a request.
//!
//! Another process can be given the same sockets: it then takes what waits in their queues, so that
//! no connection is refused while one process follows the other.

use std::collections::BTreeMap;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use tokio::sync::{oneshot, watch};
use tokio::time::timeout;
use usher_core::request::Scheme;

use super::descriptors;
use super::guests::Guests;
use super::listen::{self, ListenError};
use super::plane::Plane;
use super::station::{ListenerId, Order, Orders, Place, Queue, Start};
use crate::tls::ServerConfigs;

/// How long the access log may take to write what is left when the front stops.
const FLUSH: Duration = Duration::from_secs(2);

/// The front cannot start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// No thread, or no runtime for it.
    #[error("start worker {worker}")]
    Worker {
        /// Number of the worker.
        worker: usize,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// The system has no randomness.
    #[error("no randomness from the system: {0}")]
    Chance(getrandom::Error),
    /// TLS towards clients cannot be set up.
    #[error("set up TLS")]
    Tls(#[source] rustls::Error),
}

/// A listener that accepts connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Listening {
    /// Names it.
    pub id: ListenerId,
    /// The address that it has, with the port that the system chose if it was asked to.
    pub address: SocketAddr,
    /// What it speaks.
    pub scheme: Scheme,
}

struct Hand {
    orders: Orders,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// The HTTP front of a node. Dropped without [`Front::stop`], its workers end by themselves.
pub struct Front {
    plane: Arc<Plane>,
    hands: Vec<Hand>,
    listeners: Mutex<BTreeMap<ListenerId, Listener>>,
    /// Connections of listeners that are closed or closing.
    leaving: Mutex<BTreeMap<ListenerId, Arc<Guests>>>,
    /// Whether connections are accepted.
    open: watch::Sender<bool>,
    next: AtomicU64,
}

struct Listener {
    listening: Listening,
    guests: Arc<Guests>,
    /// Duplicates, to be given to another process.
    sockets: Vec<TcpListener>,
}

impl std::fmt::Debug for Front {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Front")
            .field("listening", &self.listening())
            .finish_non_exhaustive()
    }
}

impl Front {
    /// Starts the workers of `plane`, as many as it was made for; none listens yet. Raises the
    /// process's limit of file descriptors as far as it may.
    ///
    /// # Errors
    /// The system has no thread, descriptor or randomness for it.
    pub fn start(plane: &Arc<Plane>) -> Result<Front, StartError> {
        descriptors::raise(plane.settings().limits.connections);
        let tls = ServerConfigs::new(Arc::clone(plane.certificates())).map_err(StartError::Tls)?;
        let workers = plane.ledger().workers();
        let (senders, receivers): (Vec<Orders>, Vec<_>) = (0..workers)
            .map(|_| tokio::sync::mpsc::unbounded_channel())
            .unzip();
        let siblings: Arc<[Orders]> = senders.clone().into();
        let mut front = Front {
            plane: Arc::clone(plane),
            hands: Vec::with_capacity(workers),
            listeners: Mutex::default(),
            leaving: Mutex::default(),
            open: watch::Sender::new(true),
            next: AtomicU64::new(0),
        };
        let (ready, started) = mpsc::sync_channel(workers);
        for (index, (orders, receiver)) in senders.into_iter().zip(receivers).enumerate() {
            let failed = |source| StartError::Worker {
                worker: index,
                source,
            };
            let start = Start {
                index,
                seed: getrandom::u64().map_err(StartError::Chance)?,
                plane: Arc::clone(plane),
                siblings: Arc::clone(&siblings),
                tls: tls.clone(),
            };
            let ready = ready.clone();
            let thread = thread::Builder::new().name(format!("worker-{index}"));
            let thread = thread
                .spawn(move || start.run(receiver, &ready))
                .map_err(failed)?;
            let thread = Mutex::new(Some(thread));
            front.hands.push(Hand { orders, thread });
            let gone = |_| Err(io::Error::other("the thread ended"));
            started.recv().unwrap_or_else(gone).map_err(failed)?;
        }
        Ok(front)
    }

    /// Listens on `address` with every worker. Port 0: the system chooses one. Blocks for the
    /// moment that the workers take to begin.
    ///
    /// # Errors
    /// The address cannot be had; the error names it and says what to do.
    pub fn listen(&self, address: SocketAddr, scheme: Scheme) -> Result<Listening, ListenError> {
        self.adopt(listen::bind(address, self.hands.len())?, address, scheme)
    }

    /// Listens with sockets that are there already: another process gave them, as many as it had
    /// workers. They are shared out, and a worker without one gets connections from the others.
    /// `address` names them in an error.
    ///
    /// # Errors
    /// They are no listening sockets, or cannot be watched.
    pub fn adopt(
        &self,
        sockets: Vec<TcpListener>,
        address: SocketAddr,
        scheme: Scheme,
    ) -> Result<Listening, ListenError> {
        let other = |source| ListenError::Other { address, source };
        let bound = sockets.first().map_or(Ok(address), TcpListener::local_addr);
        let id = ListenerId(self.next.fetch_add(1, Ordering::Relaxed));
        let listening = Listening {
            id,
            address: bound.map_err(other)?,
            scheme,
        };
        let guests = Arc::<Guests>::default();
        let duplicates = sockets.iter().map(TcpListener::try_clone);
        let duplicates = duplicates.collect::<io::Result<_>>().map_err(other)?;
        let place = Place {
            address: listening.address,
            scheme,
            guests: Arc::clone(&guests),
            open: self.open.subscribe(),
        };
        let mut shares: Vec<Vec<TcpListener>> = self.hands.iter().map(|_| Vec::new()).collect();
        for (at, socket) in sockets.into_iter().enumerate() {
            shares[at % self.hands.len()].push(socket);
        }
        let (ready, begun) = mpsc::sync_channel(self.hands.len());
        for (hand, sockets) in self.hands.iter().zip(shares) {
            hand.give(Order::Listen {
                id,
                sockets,
                place: place.clone(),
                ready: ready.clone(),
            });
        }
        drop(ready);
        for _ in &self.hands {
            let gone = |_| Err(io::Error::other("a worker has ended"));
            if let Err(source) = begun.recv().unwrap_or_else(gone) {
                self.hands
                    .iter()
                    .for_each(|hand| hand.give(Order::Cut { id }));
                return Err(other(source));
            }
        }
        self.listeners().insert(
            id,
            Listener {
                listening,
                guests,
                sockets: duplicates,
            },
        );
        Ok(listening)
    }

    /// Accepts nothing on later listeners until [`Front::open`]: connections wait in the kernel's
    /// queues.
    pub fn hold(&self) {
        self.open.send_replace(false);
    }

    /// Accepts connections from now on.
    pub fn open(&self) {
        self.open.send_replace(true);
    }

    /// The sockets of a listener, duplicated, for another process. None for one that is gone.
    ///
    /// # Errors
    /// The process has no descriptors left.
    pub fn sockets(&self, id: ListenerId) -> io::Result<Vec<TcpListener>> {
        let listeners = self.listeners();
        let sockets = listeners
            .get(&id)
            .into_iter()
            .flat_map(|listener| &listener.sockets);
        sockets.map(TcpListener::try_clone).collect()
    }

    /// The listeners that accept connections, oldest first.
    #[must_use]
    pub fn listening(&self) -> Vec<Listening> {
        self.listeners()
            .values()
            .map(|listener| listener.listening)
            .collect()
    }

    /// Speaks `scheme` to those who connect to a listener from now on; the socket stays open, and
    /// connections that are there go on as they are. Does nothing for a listener that is gone.
    pub fn speak(&self, id: ListenerId, scheme: Scheme) {
        if let Some(listener) = self.listeners().get_mut(&id) {
            listener.listening.scheme = scheme;
        }
        self.hands
            .iter()
            .for_each(|hand| hand.give(Order::Speak { id, scheme }));
    }

    /// Stops listening at once; connections end with their next answer, or are cut after `grace`.
    /// Done when none is left. How many were cut. Does nothing for a listener that is gone already.
    pub async fn unlisten(&self, id: ListenerId, grace: Duration) -> usize {
        self.close([(id, Queue::Take)]).await;
        let left = self.leaving().get(&id).map(Arc::clone);
        let left = left.map(|guests| (id, guests)).into_iter().collect();
        self.see_off(left, grace).await
    }

    /// Stops all listeners, each as [`Front::unlisten`] does. Done when no connection is left, those
    /// of listeners that were closed before included. How many were cut.
    pub async fn drain(&self, grace: Duration) -> usize {
        self.drain_beside(&[], grace).await.await
    }

    /// The same beside another process that has the sockets of the listeners `taken`: what waits in
    /// their queues is left to it. Done when nothing is accepted here any more; the drain goes on in
    /// what it gives.
    pub async fn drain_beside(
        &self,
        taken: &[ListenerId],
        grace: Duration,
    ) -> impl Future<Output = usize> {
        let all = self.listening().into_iter().map(|Listening { id, .. }| {
            let queue = if taken.contains(&id) {
                Queue::Leave
            } else {
                Queue::Take
            };
            (id, queue)
        });
        self.close(all).await;
        let left = self.leaving().clone();
        self.see_off(left, grace)
    }

    /// Stops accepting on these listeners, all at once.
    async fn close(&self, which: impl IntoIterator<Item = (ListenerId, Queue)>) {
        let mut closing = Vec::new();
        for (id, queue) in which {
            let Some(Listener { guests, .. }) = self.listeners().remove(&id) else {
                continue;
            };
            self.leaving().insert(id, guests);
            for hand in &self.hands {
                let (closed, wait) = oneshot::channel();
                hand.give(Order::Close { id, queue, closed });
                closing.push(wait);
            }
        }
        for closed in closing {
            // A worker that has ended has closed its socket too.
            let _ = closed.await;
        }
    }

    /// Waits for the ends of connections; the grace is one, however many listeners they are of.
    async fn see_off(&self, left: BTreeMap<ListenerId, Arc<Guests>>, grace: Duration) -> usize {
        let all_left = async || {
            for guests in left.values() {
                guests.all_left().await;
            }
        };
        let _ = timeout(grace, all_left()).await;
        let cut = left.values().map(|guests| guests.open()).sum();
        for &id in left.keys() {
            self.hands
                .iter()
                .for_each(|hand| hand.give(Order::Cut { id }));
        }
        all_left().await;
        self.leaving().retain(|id, _| !left.contains_key(id));
        cut
    }

    /// Ends the workers, cutting what is left, and waits for them and for the log. Blocks.
    pub fn stop(&self) {
        self.hands.iter().for_each(|hand| hand.give(Order::Stop));
        for hand in &self.hands {
            let thread = hand.thread.lock().unwrap_or_else(PoisonError::into_inner);
            // A worker that panicked has said so; the others still have to end.
            let _ = { thread }.take().map(JoinHandle::join);
        }
        self.plane.access_log().flush(FLUSH);
    }

    fn listeners(&self) -> MutexGuard<'_, BTreeMap<ListenerId, Listener>> {
        self.listeners
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn leaving(&self) -> MutexGuard<'_, BTreeMap<ListenerId, Arc<Guests>>> {
        self.leaving.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Front {
    fn drop(&mut self) {
        self.hands.iter().for_each(|hand| hand.give(Order::Stop));
    }
}

impl Hand {
    /// A worker that has ended needs no orders.
    fn give(&self, order: Order) {
        let _ = self.orders.send(order);
    }
}
