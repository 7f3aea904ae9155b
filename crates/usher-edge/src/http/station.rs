//! One worker's thread: its runtime, its listeners, and the tasks of its connections.
//!
//! The front gives it orders over a channel; so do the other workers, when they hand a connection
//! over. Connections are tasks of this thread only and never move.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::mpsc::SyncSender;
use std::time::Duration;

use slab::Slab;
use tokio::net::TcpStream;
use tokio::runtime::{Builder, LocalOptions};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::{AbortHandle, spawn_local};
use tokio::time::{MissedTickBehavior, interval};
use tracing::debug;
use usher_core::request::Scheme;

use super::drain::Drain;
use super::greet;
use super::guests::{Guest, Guests};
use super::listen::{Accepted, Acceptor};
use super::plane::Plane;
use super::worker::Worker;
use crate::tls::ServerConfigs;

/// How often a worker hands over what it counted and logged.
const HAND_OVER: Duration = Duration::from_millis(250);

/// Names a listener of one front.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ListenerId(pub(super) u64);

/// What a worker is told.
pub(crate) enum Order {
    /// Accept on these sockets. Without any, serve what others hand over.
    Listen {
        id: ListenerId,
        sockets: Vec<TcpListener>,
        place: Place,
        ready: SyncSender<io::Result<()>>,
    },
    /// Serve this connection, which another worker accepted.
    Serve {
        id: ListenerId,
        accepted: Accepted<std::net::TcpStream>,
        guest: Guest,
    },
    /// Speak this to those who connect from now on.
    Speak { id: ListenerId, scheme: Scheme },
    /// Stop accepting, and say so.
    Close {
        id: ListenerId,
        queue: Queue,
        closed: oneshot::Sender<()>,
    },
    /// Cut what is left of a listener's connections.
    Cut { id: ListenerId },
    /// Cut everything and end.
    Stop,
}

/// What becomes of connections that the kernel has accepted and nobody has taken, when a listener
/// closes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Queue {
    /// They are taken and served: they end with the socket.
    Take,
    /// They are left to another process, which has the socket too.
    Leave,
}

/// The way to a worker. Its length is bounded by `limits.connections`: all orders but
/// [`Order::Serve`] are rare and come from the node.
pub(crate) type Orders = mpsc::UnboundedSender<Order>;

/// Where a listener listens and for what.
#[derive(Debug, Clone)]
pub(crate) struct Place {
    pub(crate) address: SocketAddr,
    pub(crate) scheme: Scheme,
    pub(crate) guests: Arc<Guests>,
    /// Nothing is accepted before this is true.
    pub(crate) open: watch::Receiver<bool>,
}

/// What a worker's thread starts with.
pub(crate) struct Start {
    pub(crate) index: usize,
    pub(crate) seed: u64,
    pub(crate) plane: Arc<Plane>,
    /// The ways to all workers, by number.
    pub(crate) siblings: Arc<[Orders]>,
    pub(crate) tls: ServerConfigs,
}

impl Start {
    /// The life of the thread. Says in `ready` whether it could begin.
    pub(crate) fn run(
        self,
        orders: mpsc::UnboundedReceiver<Order>,
        ready: &SyncSender<io::Result<()>>,
    ) {
        let mut builder = Builder::new_current_thread();
        let runtime = builder
            .enable_io()
            .enable_time()
            .build_local(LocalOptions::default());
        let (runtime, answer) = match runtime {
            Ok(runtime) => (Some(runtime), Ok(())),
            Err(error) => (None, Err(error)),
        };
        // Nobody listens only when the front gave up starting.
        if let (Some(runtime), Ok(())) = (runtime, ready.send(answer)) {
            let station = Rc::new(self.open());
            let worker = Rc::clone(&station.worker);
            runtime.block_on(station.work(orders));
            // What is still under way is recorded when it is dropped.
            drop(runtime);
            worker.hand_over();
        }
    }

    fn open(self) -> Station {
        Station {
            worker: Worker::new(self.index, self.plane, self.seed),
            siblings: self.siblings,
            tls: self.tls,
            listeners: RefCell::default(),
        }
    }
}

struct Station {
    worker: Rc<Worker>,
    siblings: Arc<[Orders]>,
    tls: ServerConfigs,
    listeners: RefCell<HashMap<ListenerId, Rc<Listener>>>,
}

/// This worker's part of a listener.
struct Listener {
    place: Place,
    scheme: Cell<Scheme>,
    drain: Rc<Drain>,
    queue: Cell<Queue>,
    /// Sockets that are accepted from.
    accepting: Cell<usize>,
    /// Who wants to know that it is closed.
    closing: RefCell<Option<oneshot::Sender<()>>>,
    tasks: RefCell<Slab<AbortHandle>>,
}

impl Station {
    async fn work(self: Rc<Self>, mut orders: mpsc::UnboundedReceiver<Order>) {
        let mut tick = interval(HAND_OVER);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let order = tokio::select! {
                order = orders.recv() => order,
                _ = tick.tick() => {
                    self.worker.hand_over();
                    continue;
                }
            };
            match order {
                Some(Order::Listen {
                    id,
                    sockets,
                    place,
                    ready,
                }) => {
                    // The front waits for the answer; if it does not, nothing can be done about it.
                    let _ = ready.send(self.listen(id, sockets, place));
                }
                Some(Order::Serve {
                    id,
                    accepted,
                    guest,
                }) => self.receive(id, accepted, guest),
                Some(Order::Speak { id, scheme }) => self.speak(id, scheme),
                Some(Order::Close { id, queue, closed }) => self.close(id, queue, closed),
                Some(Order::Cut { id }) => self.cut(id),
                Some(Order::Stop) | None => break,
            }
        }
        let all: Vec<_> = self.listeners.borrow().keys().copied().collect();
        all.into_iter().for_each(|id| self.cut(id));
    }

    fn listen(
        self: &Rc<Self>,
        id: ListenerId,
        sockets: Vec<TcpListener>,
        place: Place,
    ) -> io::Result<()> {
        let acceptor = |socket| Acceptor::new(socket, Rc::clone(&self.worker));
        let acceptors: Vec<_> = sockets
            .into_iter()
            .map(acceptor)
            .collect::<io::Result<_>>()?;
        let listener = Rc::new(Listener {
            scheme: Cell::new(place.scheme),
            place,
            drain: Rc::default(),
            queue: Cell::new(Queue::Take),
            accepting: Cell::new(acceptors.len()),
            closing: RefCell::default(),
            tasks: RefCell::default(),
        });
        self.listeners.borrow_mut().insert(id, Rc::clone(&listener));
        for acceptor in acceptors {
            spawn_local(Rc::clone(self).accept(id, acceptor, Rc::clone(&listener)));
        }
        Ok(())
    }

    async fn accept(
        self: Rc<Self>,
        id: ListenerId,
        mut acceptor: Acceptor,
        listener: Rc<Listener>,
    ) {
        let take = |(worker, accepted): (usize, Accepted<TcpStream>)| {
            let guest = listener.place.guests.welcome();
            if worker == self.worker.index() {
                self.serve(id, accepted, guest);
            } else {
                self.pass_on(id, worker, accepted, guest);
            }
        };
        let begun = Cell::new(false);
        tokio::select! {
            biased;
            () = listener.drain.wait() => {}
            () = async {
                listener.place.opened().await;
                begun.set(true);
                acceptor.run(take).await;
            } => {}
        }
        // Who has never begun has the sockets of a process that still takes from them.
        if begun.get()
            && listener.queue.get() == Queue::Take
            && let Err(error) = acceptor.close(take)
        {
            debug!(%error, "connections that nobody had accepted yet are lost");
        }
        listener.accepting.update(|sockets| sockets - 1);
        listener.tell_closed();
    }

    /// Hands a connection over to another worker. One that is lost on the way is closed.
    fn pass_on(&self, id: ListenerId, worker: usize, accepted: Accepted<TcpStream>, guest: Guest) {
        let Accepted { socket, peer, seat } = accepted;
        if let Ok(socket) = socket.into_std() {
            let accepted = Accepted { socket, peer, seat };
            let _ = self.siblings[worker].send(Order::Serve {
                id,
                accepted,
                guest,
            });
        }
    }

    fn receive(&self, id: ListenerId, accepted: Accepted<std::net::TcpStream>, guest: Guest) {
        let Accepted { socket, peer, seat } = accepted;
        match TcpStream::from_std(socket) {
            Ok(socket) => self.serve(id, Accepted { socket, peer, seat }, guest),
            Err(error) => debug!(%error, "a connection cannot be watched"),
        }
    }

    fn serve(&self, id: ListenerId, accepted: Accepted<TcpStream>, guest: Guest) {
        let Some(listener) = self.listeners.borrow().get(&id).map(Rc::clone) else {
            return;
        };
        let key = listener.tasks.borrow().vacant_key();
        let task = Task {
            listener: Rc::clone(&listener),
            key,
            worker: Rc::clone(&self.worker),
            _guest: guest,
        };
        let address = listener.place.address;
        let tls = (listener.scheme.get() == Scheme::Https).then(|| self.tls.clone());
        let drain = Rc::clone(&listener.drain);
        let worker = Rc::clone(&self.worker);
        let handle = spawn_local(async move {
            let _task = task;
            // Made here and not outside: what is moved into a task is held by it twice.
            greet::serve(worker, accepted, address, tls, drain).await;
        });
        listener.tasks.borrow_mut().insert(handle.abort_handle());
    }

    fn speak(&self, id: ListenerId, scheme: Scheme) {
        if let Some(listener) = self.listeners.borrow().get(&id) {
            listener.scheme.set(scheme);
        }
    }

    fn close(&self, id: ListenerId, queue: Queue, closed: oneshot::Sender<()>) {
        let listeners = self.listeners.borrow();
        let Some(listener) = listeners.get(&id) else {
            return;
        };
        listener.closing.replace(Some(closed));
        listener.queue.set(queue);
        listener.drain.start();
        listener.tell_closed();
    }

    fn cut(&self, id: ListenerId) {
        let Some(listener) = self.listeners.borrow_mut().remove(&id) else {
            return;
        };
        listener.drain.cut();
        let tasks: Vec<_> = listener
            .tasks
            .borrow()
            .iter()
            .map(|(_, task)| task.clone())
            .collect();
        tasks.iter().for_each(AbortHandle::abort);
    }
}

impl Place {
    /// Waits until connections may be accepted.
    async fn opened(&self) {
        if self.open.clone().wait_for(|open| *open).await.is_err() {
            // The front is gone, and this worker is about to be told.
            std::future::pending().await
        }
    }
}

impl Listener {
    /// Tells who wants to know, once all sockets are gone.
    fn tell_closed(&self) {
        if self.accepting.get() == 0
            && let Some(closed) = self.closing.take()
        {
            let _ = closed.send(());
        }
    }
}

/// A connection's entry among its listener's tasks; gone when the task is.
struct Task {
    listener: Rc<Listener>,
    key: usize,
    worker: Rc<Worker>,
    _guest: Guest,
}

impl Drop for Task {
    fn drop(&mut self) {
        self.listener.tasks.borrow_mut().try_remove(self.key);
        if std::thread::panicking() {
            self.worker.plane().ledger().panicked();
        }
    }
}
