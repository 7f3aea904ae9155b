//! One worker per core: a thread, a runtime of its own, and what its connections share.
//!
//! Everything here belongs to one thread, hence `Rc` and `Cell`: a request takes no lock, wakes no
//! other core, and writes to no cache line that another core writes to.

use std::cell::{Cell, RefCell, RefMut};
use std::rc::Rc;
use std::sync::Arc;

use usher_core::catalog::{BalancerIx, EndpointIx};
use usher_core::time::Mono;

use super::access_log::Batch;
use super::buffer::BufferPool;
use super::h1::Desks;
use super::h2::Kits;
use super::ledger::Tally;
use super::plane::{Plane, View};
use super::record::Record;
use super::splice::Pipes;
use super::upstream;
use usher_rooms::door::Presence;

/// Streams of waiting visitors that one worker keeps open. Whoever comes then has to ask.
const STREAMS_MAX: usize = 4096;

/// What the connections of one core share.
#[derive(Debug)]
pub struct Worker {
    index: usize,
    plane: Arc<Plane>,
    buffers: BufferPool,
    pipes: Pipes,
    desks: Desks,
    kits: Kits,
    upstream: Rc<upstream::Pool>,
    view: RefCell<Rc<View>>,
    chance: Cell<u64>,
    tally: RefCell<Tally>,
    batch: RefCell<Batch>,
    presence: RefCell<Presence>,
    streams: Cell<usize>,
}

impl Worker {
    /// The worker that counts as number `index` of the plane's workers. `seed` feeds its draws.
    #[must_use]
    pub fn new(index: usize, plane: Arc<Plane>, seed: u64) -> Rc<Worker> {
        let view = RefCell::new(Rc::new(View::of(&plane)));
        Rc::new(Worker {
            index,
            plane,
            buffers: BufferPool::default(),
            pipes: Pipes::default(),
            desks: Desks::default(),
            kits: Kits::default(),
            upstream: upstream::Pool::new(),
            view,
            chance: Cell::new(seed),
            tally: RefCell::default(),
            batch: RefCell::default(),
            presence: RefCell::default(),
            streams: Cell::new(0),
        })
    }

    /// The state of the world, for one request. Counts no shared references.
    #[must_use]
    pub fn view(&self) -> Rc<View> {
        let mut view = self.view.borrow_mut();
        if !view.is_current(&self.plane) {
            *view = Rc::new(View::of(&self.plane));
        }
        Rc::clone(&view)
    }

    /// The plane that this worker serves.
    #[must_use]
    pub fn plane(&self) -> &Arc<Plane> {
        &self.plane
    }

    /// Buffers to borrow.
    #[must_use]
    pub fn buffers(&self) -> &BufferPool {
        &self.buffers
    }

    /// Pipes to borrow.
    pub(crate) fn pipes(&self) -> &Pipes {
        &self.pipes
    }

    /// What HTTP/1 requests are parsed into.
    pub(crate) fn desks(&self) -> &Desks {
        &self.desks
    }

    /// What HTTP/2 streams are carried out with.
    pub(crate) fn kits(&self) -> &Kits {
        &self.kits
    }

    /// Connections to endpoints.
    #[must_use]
    pub fn upstream(&self) -> &Rc<upstream::Pool> {
        &self.upstream
    }

    /// The clock of this node.
    #[must_use]
    pub fn now(&self) -> Mono {
        self.plane.now()
    }

    /// 64 random bits: good enough to spread load, not to keep a secret.
    #[must_use]
    pub fn draw(&self) -> u64 {
        // SplitMix64: every state is reached, so no seed is a bad one.
        let state = self.chance.get().wrapping_add(0x9e37_79b9_7f4a_7c15);
        self.chance.set(state);
        let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Counts a request as under way until the guard is dropped.
    #[must_use]
    pub fn in_flight(self: &Rc<Self>) -> InFlight {
        self.plane.ledger().in_flight_count().add(self.index);
        InFlight(Rc::clone(self))
    }

    /// Counts a request as active at `balancer` until the guard is dropped.
    #[must_use]
    pub fn active(&self, view: &Rc<View>, balancer: BalancerIx) -> Active {
        view.book.active(balancer).add(self.index);
        Active {
            view: Rc::clone(view),
            balancer,
            worker: self.index,
        }
    }

    /// Counts a request as open at `endpoint` until the guard is dropped.
    #[must_use]
    pub fn open(&self, view: &Rc<View>, endpoint: EndpointIx) -> Open {
        view.book.endpoint(endpoint).add(self.index);
        Open {
            view: Rc::clone(view),
            endpoint,
            worker: self.index,
        }
    }

    /// Asks the retry budget of `balancer` for one second attempt, which waits until the guard is
    /// dropped. Either answer is counted.
    #[must_use]
    pub fn retry(&self, view: &Rc<View>, balancer: BalancerIx) -> Option<Retry> {
        let mut tally = self.tally.borrow_mut();
        let ledger = self.plane.ledger();
        if !view.book.take_retry(balancer) {
            tally.retry_denied(ledger, self.index, &view.book, balancer);
            return None;
        }
        tally.failed_over(ledger, self.index, &view.book, balancer);
        Some(Retry {
            view: Rc::clone(view),
            balancer,
        })
    }

    /// Logs and counts an exchange that is over. `view` is the one that it was decided with.
    pub fn record(&self, view: &View, record: &Record<'_>) {
        let ledger = self.plane.ledger();
        self.tally
            .borrow_mut()
            .record(ledger, self.index, &view.book, record);
        let mut batch = self.batch.borrow_mut();
        batch.add(
            &view.access_log,
            &view.snapshot,
            record,
            &ledger.log_dropped,
        );
    }

    /// Counts something that went wrong outside of an exchange that is recorded.
    pub fn count_error(&self, reason: &'static str) {
        self.tally.borrow_mut().error(reason);
    }

    pub(crate) fn tally(&self) -> RefMut<'_, Tally> {
        self.tally.borrow_mut()
    }

    /// Waiting visitors that this worker has seen.
    pub(crate) fn presence(&self) -> RefMut<'_, Presence> {
        self.presence.borrow_mut()
    }

    /// Counts a stream as open until the guard is dropped; `None` when there are enough.
    pub(crate) fn open_stream(self: &Rc<Self>) -> Option<OpenStream> {
        let open = self.streams.get();
        (open < STREAMS_MAX).then(|| {
            self.streams.set(open + 1);
            self.plane.ledger().streams_count().add(self.index);
            OpenStream(Rc::clone(self))
        })
    }

    pub(crate) fn index(&self) -> usize {
        self.index
    }

    /// Hands over what was counted, logged and seen. Called a few times a second, and at the end.
    pub(crate) fn hand_over(&self) {
        self.presence.borrow_mut().flush();
        let ledger = self.plane.ledger();
        ledger.collect(self.index, &mut self.tally.borrow_mut());
        let view = self.view();
        self.batch
            .borrow_mut()
            .hand_over(&view.access_log, &ledger.log_dropped);
    }
}

/// A request that is under way. Made by [`Worker::in_flight`].
#[derive(Debug)]
pub struct InFlight(Rc<Worker>);

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.plane.ledger().in_flight_count().remove(self.0.index);
    }
}

/// A stream of a waiting visitor's state. Made by [`Worker::open_stream`].
#[derive(Debug)]
pub(crate) struct OpenStream(Rc<Worker>);

impl Drop for OpenStream {
    fn drop(&mut self) {
        self.0.streams.update(|open| open - 1);
        self.0.plane.ledger().streams_count().remove(self.0.index);
    }
}

/// A request that is active at a load balancer. Made by [`Worker::active`].
#[derive(Debug)]
pub struct Active {
    view: Rc<View>,
    balancer: BalancerIx,
    worker: usize,
}

impl Drop for Active {
    fn drop(&mut self) {
        self.view.book.active(self.balancer).remove(self.worker);
    }
}

/// A request that is open at an endpoint. Made by [`Worker::open`].
#[derive(Debug)]
pub struct Open {
    view: Rc<View>,
    endpoint: EndpointIx,
    worker: usize,
}

impl Drop for Open {
    fn drop(&mut self) {
        self.view.book.endpoint(self.endpoint).remove(self.worker);
    }
}

/// A second attempt out of the retry budget. Made by [`Worker::retry`].
#[derive(Debug)]
pub struct Retry {
    view: Rc<View>,
    balancer: BalancerIx,
}

impl Drop for Retry {
    fn drop(&mut self) {
        self.view.book.return_retry(self.balancer);
    }
}
