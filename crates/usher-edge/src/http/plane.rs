//! What every worker reads: the state of the world, swapped as a whole and never locked.
//!
//! Workers read it for each request. They keep a [`View`] of their own and look only at one number,
//! the generation, to know that it is still right: a shared pointer whose count every core writes
//! for every request is the kind of contention that a worker per core is there to avoid.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use arc_swap::{ArcSwap, ArcSwapOption};
use usher_core::id::Id;
use usher_core::region::Place;
use usher_core::request::Location;
use usher_core::snapshot::Snapshot;
use usher_core::time::{Mono, Wall};

use super::access_log::AccessLog;
use super::book::Book;
use super::ledger::Ledger;
use super::pin_table::PinTable;
use super::rooms::Rooms;
use super::settings::Settings;
use crate::geo::Places;
use crate::resolve::Addresses;
use crate::seal::Keys;
use crate::tls::{Certificates, ClientConfigs, ServerConfigs};

/// Everything that the front needs and does not make itself. The node fills it and keeps it true.
#[derive(Debug)]
pub struct Plane {
    decided: ArcSwap<Decided>,
    settings: ArcSwap<Settings>,
    certificates: Arc<ArcSwap<Certificates>>,
    clients: ArcSwap<ClientConfigs>,
    access_log: ArcSwap<AccessLog>,
    places: ArcSwapOption<Places>,
    keys: ArcSwapOption<Keys>,
    rooms: ArcSwap<Rooms>,
    addresses: Arc<Addresses>,
    pins: Arc<PinTable>,
    ledger: Ledger,
    /// One more than the last, for every change of the above.
    generation: AtomicU64,
    started: Instant,
}

/// A snapshot, and the counts of the things in it.
#[derive(Debug)]
struct Decided {
    snapshot: Arc<Snapshot>,
    book: Arc<Book>,
}

/// What a [`Plane`] is made of; each part but the last two can be changed later.
#[derive(Debug)]
pub struct Parts {
    /// What is decided with.
    pub snapshot: Arc<Snapshot>,
    /// Deadlines, limits, trusted proxies.
    pub settings: Settings,
    /// Towards clients.
    pub certificates: Certificates,
    /// Towards endpoints.
    pub clients: ClientConfigs,
    /// Where requests are logged.
    pub access_log: AccessLog,
    /// Where visitors are, if the operator brought a database.
    pub places: Option<Arc<Places>>,
    /// What seals the pins of visitors. `None` only where nothing pins by cookie.
    pub keys: Option<Arc<Keys>>,
    /// Addresses of endpoints that are hostnames.
    pub addresses: Arc<Addresses>,
    /// Workers that will read the plane: at least 1. Each counts by itself.
    pub workers: usize,
}

impl Plane {
    /// A plane of `parts`. Time is counted from here.
    #[must_use]
    pub fn new(parts: Parts) -> Arc<Plane> {
        let book = Arc::new(Book::open(parts.snapshot.catalog(), parts.workers, None));
        let ledger = Ledger::new(parts.workers);
        ledger.settle(&book);
        Arc::new(Plane {
            decided: ArcSwap::from_pointee(Decided {
                snapshot: parts.snapshot,
                book,
            }),
            settings: ArcSwap::from_pointee(parts.settings),
            certificates: Arc::new(ArcSwap::from_pointee(parts.certificates)),
            clients: ArcSwap::from_pointee(parts.clients),
            access_log: ArcSwap::from_pointee(parts.access_log),
            places: ArcSwapOption::new(parts.places),
            keys: ArcSwapOption::new(parts.keys),
            rooms: ArcSwap::default(),
            addresses: parts.addresses,
            pins: Arc::default(),
            ledger,
            generation: AtomicU64::new(0),
            started: Instant::now(),
        })
    }

    /// Decides with `snapshot` from now on. Call it from one thread at a time.
    pub fn publish(&self, snapshot: Arc<Snapshot>) {
        let before = self.decided.load();
        let book = if Arc::ptr_eq(before.book.catalog(), snapshot.catalog()) {
            Arc::clone(&before.book)
        } else {
            let workers = self.ledger.workers();
            Arc::new(Book::open(snapshot.catalog(), workers, Some(&before.book)))
        };
        let reopened = !Arc::ptr_eq(&book, &before.book);
        self.decided.store(Arc::new(Decided {
            snapshot,
            book: Arc::clone(&book),
        }));
        self.changed();
        if reopened {
            self.ledger.settle(&book);
        }
    }

    /// Holds to `settings` from now on.
    pub fn configure(&self, settings: Settings) {
        self.settings.store(Arc::new(settings));
        self.changed();
    }

    /// Shows `certificates` to clients from now on.
    pub fn certify(&self, certificates: Certificates) {
        self.certificates.store(Arc::new(certificates));
        self.changed();
    }

    /// Trusts endpoints by `clients` from now on.
    pub fn trust(&self, clients: ClientConfigs) {
        self.clients.store(Arc::new(clients));
        self.changed();
    }

    /// Logs to `access_log` from now on.
    pub fn log_to(&self, access_log: AccessLog) {
        self.access_log.store(Arc::new(access_log));
        self.changed();
    }

    /// Tells the country of visitors by `places` from now on.
    pub fn locate_with(&self, places: Option<Arc<Places>>) {
        self.places.store(places);
        self.changed();
    }

    /// Seals and opens the pins of visitors with `keys` from now on.
    pub fn seal_with(&self, keys: Option<Arc<Keys>>) {
        self.keys.store(keys);
        self.changed();
    }

    /// Asks `rooms` from now on; there are none before the first call. Call it from one thread at a
    /// time.
    pub fn open_rooms(&self, mut rooms: Rooms) {
        rooms.follow(&self.rooms.load());
        self.ledger.settle_rooms(&rooms);
        self.rooms.store(Arc::new(rooms));
        self.changed();
    }

    fn changed(&self) {
        self.generation.fetch_add(1, Ordering::Release);
    }

    /// What is decided with now.
    #[must_use]
    pub fn snapshot(&self) -> Arc<Snapshot> {
        Arc::clone(&self.decided.load().snapshot)
    }

    /// Requests under way at each endpoint of the snapshot that goes with it.
    #[must_use]
    pub fn counted(&self) -> (Arc<Snapshot>, Arc<Book>) {
        let decided = self.decided.load();
        (Arc::clone(&decided.snapshot), Arc::clone(&decided.book))
    }

    /// The settings now.
    #[must_use]
    pub fn settings(&self) -> Arc<Settings> {
        self.settings.load_full()
    }

    /// Certificates towards clients, whichever they are at the time of reading.
    pub(crate) fn certificates(&self) -> &Arc<ArcSwap<Certificates>> {
        &self.certificates
    }

    /// TLS of a listener for HTTP/1.1 alone that shows the certificates of the front.
    ///
    /// # Errors
    /// As [`ServerConfigs::new`].
    pub fn api_configs(&self) -> Result<ServerConfigs, rustls::Error> {
        let configs = ServerConfigs::new(Arc::clone(&self.certificates))?;
        Ok(configs.of_http1())
    }

    /// Trust towards endpoints now; probes share it.
    #[must_use]
    pub fn clients(&self) -> Arc<ClientConfigs> {
        self.clients.load_full()
    }

    /// Addresses of endpoints that are hostnames.
    #[must_use]
    pub fn addresses(&self) -> &Arc<Addresses> {
        &self.addresses
    }

    /// The pins of visitors who are known by their headers.
    #[must_use]
    pub fn pins(&self) -> &Arc<PinTable> {
        &self.pins
    }

    /// How many pins there are to each endpoint: those of the table, and those in cookies that this
    /// process gave and that are not over, to the minute. Walks the table, so not for the path of
    /// a request.
    #[must_use]
    pub fn pins_live(&self, now: Wall) -> HashMap<Id, u64> {
        let mut live = self.pins.live(now);
        for (endpoint, count) in self.ledger.cookies_live(now) {
            *live.entry(endpoint).or_default() += count;
        }
        live
    }

    /// The counts of the front.
    #[must_use]
    pub fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// The access log now.
    #[must_use]
    pub fn access_log(&self) -> Arc<AccessLog> {
        self.access_log.load_full()
    }

    /// The database of places now.
    #[must_use]
    pub fn places(&self) -> Option<Arc<Places>> {
        self.places.load_full()
    }

    /// The keys of pins now.
    #[must_use]
    pub fn keys(&self) -> Option<Arc<Keys>> {
        self.keys.load_full()
    }

    /// The waiting rooms now.
    #[must_use]
    pub fn rooms(&self) -> Arc<Rooms> {
        self.rooms.load_full()
    }

    /// The clock of this node. Not a system call.
    #[must_use]
    pub fn now(&self) -> Mono {
        Mono::ZERO.after(self.started.elapsed())
    }
}

/// A plane at one moment, as one worker sees it: every part belongs to the same moment or a later
/// one, and the snapshot and its book to exactly the same.
#[derive(Debug)]
pub struct View {
    generation: u64,
    /// What is decided with.
    pub snapshot: Arc<Snapshot>,
    /// Counts of the things in `snapshot`.
    pub book: Arc<Book>,
    /// Deadlines, limits, trusted proxies.
    pub settings: Arc<Settings>,
    /// Towards clients.
    pub certificates: Arc<Certificates>,
    /// Towards endpoints.
    pub clients: Arc<ClientConfigs>,
    /// Where requests are logged.
    pub access_log: Arc<AccessLog>,
    /// Where visitors are, if the operator brought a database.
    pub places: Option<Arc<Places>>,
    /// What seals the pins of visitors.
    pub keys: Option<Arc<Keys>>,
    /// The waiting rooms.
    pub rooms: Arc<Rooms>,
}

impl View {
    pub(crate) fn of(plane: &Plane) -> View {
        // Read first: a change that comes in between makes this view old, not wrong for ever.
        let generation = plane.generation.load(Ordering::Acquire);
        let decided = plane.decided.load();
        View {
            generation,
            snapshot: Arc::clone(&decided.snapshot),
            book: Arc::clone(&decided.book),
            settings: plane.settings.load_full(),
            certificates: plane.certificates.load_full(),
            clients: plane.clients.load_full(),
            access_log: plane.access_log.load_full(),
            places: plane.places.load_full(),
            keys: plane.keys.load_full(),
            rooms: plane.rooms.load_full(),
        }
    }

    /// Where a request of the visitor at `client` is taken to be: at this node, but in the
    /// visitor's own country if that is known.
    #[must_use]
    pub fn location(&self, client: IpAddr) -> Location<'_> {
        let node = self.snapshot.location();
        let country = self.place(client).map(|place| place.country);
        Location {
            country: country.or(node.country),
            ..node
        }
    }

    /// Where the visitor at `client` is, if that is known.
    #[must_use]
    pub fn place(&self, client: IpAddr) -> Option<Place> {
        self.places.as_ref()?.place(client)
    }

    /// Whether nothing has changed since.
    pub(crate) fn is_current(&self, plane: &Plane) -> bool {
        self.generation == plane.generation.load(Ordering::Acquire)
    }
}
