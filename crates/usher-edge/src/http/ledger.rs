//! What the front counts, and how a scrape reads it.
//!
//! A worker counts for itself, without atomics, in a [`Tally`]; a few times a second it adds that
//! to its page, under a lock that only a scrape ever contends for and that it does not wait for.
//! Names are looked up when the pages are read, so a request never touches a label. Labels come
//! from the configuration and from closed lists: what a client sends is never one.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Unit;
use usher_core::affinity::Pin;
use usher_core::catalog::{BalancerIx, Catalog, EndpointIx, PoolIx};
use usher_core::decision::PinOutcome;
use usher_core::id::Id;
use usher_core::time::Wall;

use super::access_log::Dropped;
use super::book::{Book, Count};
use super::census::Census;
use super::record::Record;
use super::rooms::{RoomSeen, RoomWord, Rooms};

/// Upper bounds of the classes of `usher_http_request_seconds`.
const BOUNDS: [f64; 15] = [
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 100.0,
];

/// A distribution of times.
#[derive(Debug, Clone, Default)]
struct Times {
    classes: [u64; BOUNDS.len() + 1],
    sum: Duration,
}

impl Times {
    fn add(&mut self, time: Duration) {
        let seconds = time.as_secs_f64();
        self.classes[BOUNDS.partition_point(|&bound| bound < seconds)] += 1;
        self.sum += time;
    }

    fn merge(&mut self, other: &Times) {
        self.classes
            .iter_mut()
            .zip(&other.classes)
            .for_each(|(all, more)| *all += more);
        self.sum += other.sum;
    }
}

impl EncodeMetric for Times {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> fmt::Result {
        let bounds = BOUNDS.into_iter().chain([f64::INFINITY]);
        let classes: Vec<_> = bounds.zip(self.classes).collect();
        let count = self.classes.iter().sum();
        encoder.encode_histogram::<NoLabelSet>(self.sum.as_secs_f64(), count, &classes, None)
    }

    fn metric_type(&self) -> MetricType {
        MetricType::Histogram
    }
}

type Path = (Option<BalancerIx>, Option<PoolIx>, Option<EndpointIx>);

/// What was counted by the indices of one catalog.
#[derive(Debug, Default)]
struct Indexed {
    requests: ByIndex<(Path, u16), u64>,
    seconds: ByIndex<Option<BalancerIx>, Times>,
    failovers: ByIndex<BalancerIx, u64>,
    retries_denied: ByIndex<BalancerIx, u64>,
    sessions: ByIndex<(BalancerIx, PinOutcome), u64>,
}

/// Its keys are indices and statuses: few, small, and none of a peer's choosing, so the hash need
/// not withstand one. It is made twice for each request.
type ByIndex<K, V> = HashMap<K, V, BuildHasherDefault<Mix>>;

/// Multiplies, so that the high bits, which tell the keys apart, depend on all of them.
#[derive(Debug, Default)]
struct Mix(u64);

impl Hasher for Mix {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|&byte| self.write_u64(byte.into()));
    }

    fn write_u16(&mut self, part: u16) {
        self.write_u64(part.into());
    }

    fn write_u32(&mut self, part: u32) {
        self.write_u64(part.into());
    }

    fn write_u64(&mut self, part: u64) {
        self.0 = (self.0.rotate_left(26) ^ part).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }

    fn write_usize(&mut self, part: usize) {
        self.write_u64(part as u64);
    }

    // What the variant of an option is hashed as.
    fn write_isize(&mut self, part: isize) {
        self.write_u64(part as u64);
    }
}

impl Indexed {
    fn is_empty(&self) -> bool {
        // Every exchange is counted as a request, and the rest only in an exchange.
        self.requests.is_empty() && self.failovers.is_empty() && self.retries_denied.is_empty()
    }

    fn take_into(&mut self, other: &mut Indexed) {
        for (key, count) in self.requests.drain() {
            *other.requests.entry(key).or_default() += count;
        }
        for (key, times) in self.seconds.drain() {
            other.seconds.entry(key).or_default().merge(&times);
        }
        for (key, count) in self.failovers.drain() {
            *other.failovers.entry(key).or_default() += count;
        }
        for (key, count) in self.retries_denied.drain() {
            *other.retries_denied.entry(key).or_default() += count;
        }
        for (key, count) in self.sessions.drain() {
            *other.sessions.entry(key).or_default() += count;
        }
    }
}

/// What was counted without a catalog.
#[derive(Debug, Default, Clone)]
struct Plain {
    errors: BTreeMap<&'static str, u64>,
    bytes_in: u64,
    bytes_out: u64,
    accepted: u64,
    refused: u64,
    handshakes_failed: u64,
    cookies: Cookies,
    rooms: ByIndex<Id, RoomCounts>,
}

/// What rooms made of requests.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
struct RoomCounts {
    /// By the place of [`RoomWord::ALL`].
    words: [u64; RoomWord::ALL.len()],
    cookies_invalid: u64,
    copies_seen: u64,
}

impl RoomCounts {
    fn add(&mut self, seen: RoomSeen) {
        self.words[seen.word as usize] += 1;
        self.cookies_invalid += u64::from(seen.invalid);
        self.copies_seen += u64::from(seen.copy);
    }

    fn merge(&mut self, other: &RoomCounts) {
        let words = self.words.iter_mut().zip(other.words);
        words.for_each(|(all, more)| *all += more);
        self.cookies_invalid += other.cookies_invalid;
        self.copies_seen += other.copies_seen;
    }
}

/// Pins in cookies that were given away, less those that were replaced: by endpoint and the minute
/// in which they end, from 1970 on. One end may be counted by another worker than the beginning, so
/// a number may be negative for a moment.
type Cookies = HashMap<(Id, i64), i64>;

/// The minute by whose end `pin` is over.
fn last_minute(pin: &Pin) -> i64 {
    pin.ends().as_millis().div_euclid(60_000)
}

impl Plain {
    fn take_into(&mut self, other: &mut Plain) {
        for (end, count) in self.cookies.drain() {
            *other.cookies.entry(end).or_default() += count;
        }
        for (room, counts) in self.rooms.drain() {
            other.rooms.entry(room).or_default().merge(&counts);
        }
        for (reason, count) in std::mem::take(&mut self.errors) {
            *other.errors.entry(reason).or_default() += count;
        }
        let Plain {
            errors: _,
            bytes_in,
            bytes_out,
            accepted,
            refused,
            handshakes_failed,
            cookies: _,
            rooms: _,
        } = std::mem::take(self);
        other.bytes_in += bytes_in;
        other.bytes_out += bytes_out;
        other.accepted += accepted;
        other.refused += refused;
        other.handshakes_failed += handshakes_failed;
    }
}

/// What one worker has counted since it last turned it in.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    book: Option<Arc<Book>>,
    indexed: Indexed,
    plain: Plain,
}

impl Tally {
    pub(crate) fn record(
        &mut self,
        ledger: &Ledger,
        worker: usize,
        book: &Arc<Book>,
        record: &Record<'_>,
    ) {
        let indexed = self.indexed(ledger, worker, book);
        let path = (record.balancer, record.pool, record.endpoint);
        *indexed.requests.entry((path, record.status)).or_default() += 1;
        indexed
            .seconds
            .entry(record.balancer)
            .or_default()
            .add(record.duration);
        if let (Some(balancer), true) = (record.balancer, record.session != PinOutcome::None) {
            *indexed
                .sessions
                .entry((balancer, record.session))
                .or_default() += 1;
        }
        self.plain.bytes_in += record.bytes_in;
        self.plain.bytes_out += record.bytes_out;
        if let Some(seen) = record.room {
            self.plain.rooms.entry(seen.room).or_default().add(seen);
        }
        if let Some(reason) = record.error {
            *self.plain.errors.entry(reason).or_default() += 1;
        }
    }

    pub(crate) fn failed_over(
        &mut self,
        ledger: &Ledger,
        worker: usize,
        book: &Arc<Book>,
        ix: BalancerIx,
    ) {
        *self
            .indexed(ledger, worker, book)
            .failovers
            .entry(ix)
            .or_default() += 1;
    }

    pub(crate) fn retry_denied(
        &mut self,
        ledger: &Ledger,
        worker: usize,
        book: &Arc<Book>,
        ix: BalancerIx,
    ) {
        *self
            .indexed(ledger, worker, book)
            .retries_denied
            .entry(ix)
            .or_default() += 1;
    }

    /// A visitor got a cookie with `pin`, in place of the one with the pin `before`.
    pub(crate) fn cookie_given(&mut self, before: Option<Pin>, pin: Pin) {
        let mut count = |pin: &Pin, by| {
            let end = (pin.endpoint, last_minute(pin));
            *self.plain.cookies.entry(end).or_default() += by;
        };
        count(&pin, 1);
        if let Some(before) = before {
            count(&before, -1);
        }
    }

    pub(crate) fn error(&mut self, reason: &'static str) {
        *self.plain.errors.entry(reason).or_default() += 1;
    }

    pub(crate) fn accepted(&mut self) {
        self.plain.accepted += 1;
    }

    pub(crate) fn refused(&mut self) {
        self.plain.refused += 1;
    }

    pub(crate) fn handshake_failed(&mut self) {
        self.plain.handshakes_failed += 1;
    }

    /// Counts by indices of `book`; what was counted by another's is turned in first.
    fn indexed(&mut self, ledger: &Ledger, worker: usize, book: &Arc<Book>) -> &mut Indexed {
        if !self
            .book
            .as_ref()
            .is_some_and(|known| Arc::ptr_eq(known, book))
        {
            self.turn_in(&mut lock(&ledger.pages[worker]));
            self.book = Some(Arc::clone(book));
        }
        &mut self.indexed
    }

    /// Adds everything to `page` and starts anew.
    fn turn_in(&mut self, page: &mut Page) {
        self.plain.take_into(&mut page.plain);
        let Some(book) = &self.book else { return };
        if self.indexed.is_empty() {
            return;
        }
        let known = page
            .indexed
            .iter()
            .position(|(known, _)| Arc::ptr_eq(known, book));
        let place = known.unwrap_or_else(|| {
            page.indexed.push((Arc::clone(book), Indexed::default()));
            page.indexed.len() - 1
        });
        self.indexed.take_into(&mut page.indexed[place].1);
    }
}

/// What a worker has turned in and nobody has read yet.
#[derive(Debug, Default)]
struct Page {
    plain: Plain,
    /// By book. Read whenever a book is opened, so there are only a few.
    indexed: Vec<(Arc<Book>, Indexed)>,
}

/// Names instead of indices; an absent one is empty.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Route {
    load_balancer: String,
    pool: String,
    endpoint: String,
}

#[derive(Debug, Default)]
struct Totals {
    plain: Plain,
    requests: BTreeMap<(Route, u16), u64>,
    seconds: BTreeMap<String, Times>,
    failovers: BTreeMap<String, u64>,
    retries_denied: BTreeMap<String, u64>,
    sessions: BTreeMap<(String, &'static str), u64>,
}

impl Totals {
    fn add(&mut self, catalog: &Catalog, mut counted: Indexed) {
        let balancer = |ix: BalancerIx| catalog.balancer(ix).name.clone();
        for ((path, code), count) in counted.requests.drain() {
            *self
                .requests
                .entry((route(catalog, path), code))
                .or_default() += count;
        }
        for (ix, times) in counted.seconds.drain() {
            self.seconds
                .entry(ix.map(balancer).unwrap_or_default())
                .or_default()
                .merge(&times);
        }
        for (ix, count) in counted.failovers.drain() {
            *self.failovers.entry(balancer(ix)).or_default() += count;
        }
        for (ix, count) in counted.retries_denied.drain() {
            *self.retries_denied.entry(balancer(ix)).or_default() += count;
        }
        for ((ix, outcome), count) in counted.sessions.drain() {
            let key = (balancer(ix), outcome.as_str());
            *self.sessions.entry(key).or_default() += count;
        }
    }

    /// Counts that may stay at 0 for long are there from the start, so that an alert on them can be
    /// told from a wrong name.
    fn begin(&mut self, catalog: &Catalog) {
        for (_, balancer) in catalog.balancers() {
            self.failovers.entry(balancer.name.clone()).or_default();
            self.retries_denied
                .entry(balancer.name.clone())
                .or_default();
        }
    }

    /// Forgets what `catalog` does not have any more, or series would pile up with every reload.
    fn prune(&mut self, catalog: &Catalog) {
        let balancer = |name: &str| name.is_empty() || catalog.balancer_by_name(name).is_some();
        let endpoint = |route: &Route| {
            route.pool.is_empty()
                || catalog.pool_by_name(&route.pool).is_some_and(|ix| {
                    let mut endpoints = catalog.pool(ix).endpoints.iter();
                    route.endpoint.is_empty() || endpoints.any(|known| known.name == route.endpoint)
                })
        };
        self.requests
            .retain(|(route, _), _| balancer(&route.load_balancer) && endpoint(route));
        self.seconds.retain(|name, _| balancer(name));
        self.failovers.retain(|name, _| balancer(name));
        self.retries_denied.retain(|name, _| balancer(name));
        self.sessions.retain(|(name, _), _| balancer(name));
        let pools = catalog.draft().pools.iter();
        let known: HashSet<Id> = pools
            .flat_map(|pool| &pool.endpoints)
            .map(|endpoint| endpoint.id)
            .collect();
        (self.plain.cookies).retain(|(endpoint, _), _| known.contains(endpoint));
    }
}

fn route(catalog: &Catalog, (balancer, pool, endpoint): Path) -> Route {
    let named = |ix: EndpointIx| {
        // The order of `EndpointIx`: pool by pool.
        let mut endpoints = catalog
            .draft()
            .pools
            .iter()
            .flat_map(|pool| &pool.endpoints);
        endpoints.nth(ix.at()).map(|endpoint| endpoint.name.clone())
    };
    Route {
        load_balancer: balancer
            .map(|ix| catalog.balancer(ix).name.clone())
            .unwrap_or_default(),
        pool: pool
            .map(|ix| catalog.pool(ix).name.clone())
            .unwrap_or_default(),
        endpoint: endpoint.and_then(named).unwrap_or_default(),
    }
}

/// The counts of all workers.
#[derive(Debug)]
pub struct Ledger {
    pages: Box<[Mutex<Page>]>,
    totals: Mutex<Totals>,
    in_flight: Count,
    /// Streams of waiting visitors.
    streams: Count,
    census: Arc<Census>,
    pub(crate) log_dropped: Dropped,
    panics: AtomicU64,
}

/// Nothing that holds one of these locks can leave a count half made.
fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Ledger {
    /// Upper bounds of the classes of times, in seconds.
    pub const BOUNDS: &'static [f64] = &BOUNDS;

    pub(crate) fn new(workers: usize) -> Ledger {
        Ledger {
            pages: (0..workers).map(|_| Mutex::default()).collect(),
            totals: Mutex::default(),
            in_flight: Count::new(workers),
            streams: Count::new(workers),
            census: Census::new(workers),
            log_dropped: Dropped::default(),
            panics: AtomicU64::new(0),
        }
    }

    /// How many workers count.
    #[must_use]
    pub fn workers(&self) -> usize {
        self.pages.len()
    }

    /// Requests under way.
    #[must_use]
    pub fn in_flight(&self) -> u32 {
        self.in_flight.sum()
    }

    /// Client connections.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.census.open()
    }

    pub(crate) fn in_flight_count(&self) -> &Count {
        &self.in_flight
    }

    pub(crate) fn streams_count(&self) -> &Count {
        &self.streams
    }

    pub(crate) fn census(&self) -> &Arc<Census> {
        &self.census
    }

    pub(crate) fn panicked(&self) {
        self.panics.fetch_add(1, Ordering::Relaxed);
    }

    /// Takes what `tally` has, unless a scrape is reading just now: then the next time will do.
    pub(crate) fn collect(&self, worker: usize, tally: &mut Tally) {
        if let Ok(mut page) = self.pages[worker].try_lock() {
            tally.turn_in(&mut page);
        }
    }

    /// Reads all pages, forgets what the catalog of `book` does not have, and begins what it has.
    pub(crate) fn settle(&self, book: &Book) {
        let mut totals = self.read_pages();
        totals.prune(book.catalog());
        totals.begin(book.catalog());
    }

    /// Forgets what was counted of rooms that are not among `rooms`.
    pub(crate) fn settle_rooms(&self, rooms: &Rooms) {
        let mut totals = self.read_pages();
        (totals.plain.rooms).retain(|room, _| rooms.by_id(*room).is_some());
    }

    /// How many pins in cookies are not over, by endpoint.
    pub(crate) fn cookies_live(&self, now: Wall) -> HashMap<Id, u64> {
        let mut totals = self.read_pages();
        let minute = now.as_millis().div_euclid(60_000);
        let cookies = &mut totals.plain.cookies;
        cookies.retain(|(_, last), count| *last >= minute && *count != 0);
        let mut live = HashMap::new();
        for ((endpoint, _), count) in cookies {
            // Below 0: cookies of before this process began were replaced.
            if let Ok(count) = u64::try_from(*count) {
                *live.entry(*endpoint).or_default() += count;
            }
        }
        live
    }

    /// Shows `answered` each count of answers with its load balancer, pool, endpoint (empty where
    /// there is none) and status, and `took` how long those of each load balancer took: as many as
    /// fell into each class of [`Ledger::BOUNDS`], and above them.
    pub fn tell(
        &self,
        mut answered: impl FnMut([&str; 3], u16, u64),
        mut took: impl FnMut(&str, &[u64]),
    ) {
        let totals = self.read_pages();
        for ((route, code), count) in &totals.requests {
            let path = [
                route.load_balancer.as_str(),
                route.pool.as_str(),
                route.endpoint.as_str(),
            ];
            answered(path, *code, *count);
        }
        for (name, times) in &totals.seconds {
            took(name, &times.classes);
        }
    }

    fn read_pages(&self) -> std::sync::MutexGuard<'_, Totals> {
        let mut totals = lock(&self.totals);
        for page in &self.pages {
            let mut page = std::mem::take(&mut *lock(page));
            page.plain.take_into(&mut totals.plain);
            for (book, counted) in page.indexed {
                totals.add(book.catalog(), counted);
            }
        }
        totals
    }
}

/// Registers the front's metrics: `registry.register_collector(Box::new(FrontMetrics(plane)))`.
#[derive(Debug)]
pub struct FrontMetrics(pub Arc<super::plane::Plane>);

impl Collector for FrontMetrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let ledger = self.0.ledger();
        let totals = ledger.read_pages();
        let mut metric = encoder.encode_descriptor(
            "usher_http_requests",
            "Requests that were answered, by what answered them",
            None,
            MetricType::Counter,
        )?;
        for ((route, code), count) in &totals.requests {
            let code = itoa::Buffer::new().format(*code).to_owned();
            let labels = [
                ("load_balancer", route.load_balancer.as_str()),
                ("pool", route.pool.as_str()),
                ("endpoint", route.endpoint.as_str()),
                ("code", code.as_str()),
            ];
            metric
                .encode_family(&labels)?
                .encode_counter::<NoLabelSet, _, u64>(count, None)?;
        }
        let mut metric = encoder.encode_descriptor(
            "usher_http_request",
            "From the first byte of a request to the last byte of its answer",
            Some(&Unit::Seconds),
            MetricType::Histogram,
        )?;
        for (name, times) in &totals.seconds {
            times.encode(metric.encode_family(&[("load_balancer", name.as_str())])?)?;
        }
        let by_balancer = [
            (
                "usher_failovers",
                "Requests that went to a second endpoint",
                &totals.failovers,
            ),
            (
                "usher_retries_denied",
                "Second attempts that the retry budget did not allow",
                &totals.retries_denied,
            ),
        ];
        for (name, text, counts) in by_balancer {
            let mut metric = encoder.encode_descriptor(name, text, None, MetricType::Counter)?;
            for (name, count) in counts {
                let labels = [("load_balancer", name.as_str())];
                metric
                    .encode_family(&labels)?
                    .encode_counter::<NoLabelSet, _, u64>(count, None)?;
            }
        }
        let mut metric = encoder.encode_descriptor(
            "usher_sessions",
            "Requests of load balancers with session affinity, by what became of the session",
            None,
            MetricType::Counter,
        )?;
        for ((name, outcome), count) in &totals.sessions {
            let labels = [("load_balancer", name.as_str()), ("outcome", *outcome)];
            metric
                .encode_family(&labels)?
                .encode_counter::<NoLabelSet, _, u64>(count, None)?;
        }
        let mut metric = encoder.encode_descriptor(
            "usher_http_errors",
            "Exchanges that went wrong, malformed requests among them, by reason",
            None,
            MetricType::Counter,
        )?;
        for (reason, count) in &totals.plain.errors {
            metric
                .encode_family(&[("reason", *reason)])?
                .encode_counter::<NoLabelSet, _, u64>(count, None)?;
        }
        self.encode_rooms(&totals.plain.rooms, &mut encoder)?;
        let gauges = [
            (
                "usher_room_streams",
                "Streams of waiting visitors",
                i64::from(ledger.streams.sum()),
            ),
            (
                "usher_http_in_flight",
                "Requests under way",
                i64::from(ledger.in_flight()),
            ),
            (
                "usher_http_connections",
                "Client connections",
                ledger.connections() as i64,
            ),
        ];
        for (name, text, value) in gauges {
            let mut metric = encoder.encode_descriptor(name, text, None, MetricType::Gauge)?;
            metric.encode_gauge(&value)?;
        }
        let plain = &totals.plain;
        let counters = [
            (
                "usher_http_received_bytes",
                "Bytes of request bodies",
                plain.bytes_in,
            ),
            (
                "usher_http_sent_bytes",
                "Bytes of response bodies",
                plain.bytes_out,
            ),
            (
                "usher_http_connections_accepted",
                "Client connections accepted",
                plain.accepted,
            ),
            (
                "usher_http_connections_refused",
                "Client connections closed at once by limits.connections_per_client",
                plain.refused,
            ),
            (
                "usher_tls_handshakes_failed",
                "TLS handshakes with clients that failed or took too long",
                plain.handshakes_failed,
            ),
            (
                "usher_access_log_dropped",
                "Lines lost because the log could not keep up",
                ledger.log_dropped.lines(),
            ),
            (
                "usher_session_evictions",
                "Header sessions that gave way to others because the table was full",
                self.0.pins().evicted(),
            ),
            (
                "usher_http_panics",
                "Connections that ended in a defect of this program",
                ledger.panics.load(Ordering::Relaxed),
            ),
        ];
        for (name, text, value) in counters {
            let mut metric = encoder.encode_descriptor(name, text, None, MetricType::Counter)?;
            metric.encode_counter::<NoLabelSet, _, u64>(&value, None)?;
        }
        Ok(())
    }
}

impl FrontMetrics {
    /// Every room is there from the start, as with load balancers. Rooms of one name, in zones of
    /// different names, are told together.
    fn encode_rooms(
        &self,
        counted: &ByIndex<Id, RoomCounts>,
        encoder: &mut DescriptorEncoder<'_>,
    ) -> fmt::Result {
        let rooms = self.0.rooms();
        let mut named: BTreeMap<&str, RoomCounts> = BTreeMap::new();
        for room in rooms.iter() {
            let counts = counted.get(&room.door.room).copied().unwrap_or_default();
            named.entry(&room.name).or_default().merge(&counts);
        }
        let mut metric = encoder.encode_descriptor(
            "usher_room_requests",
            "Requests that a waiting room was asked about, by what it made of them",
            None,
            MetricType::Counter,
        )?;
        for (name, counts) in &named {
            for (word, count) in RoomWord::ALL.iter().zip(&counts.words) {
                metric
                    .encode_family(&[("room", *name), ("outcome", word.as_str())])?
                    .encode_counter::<NoLabelSet, _, u64>(count, None)?;
            }
        }
        type Read = fn(&RoomCounts) -> &u64;
        let by_room: [(&str, &str, Read); 2] = [
            (
                "usher_room_cookies_invalid",
                "Cookies of waiting rooms that were forged, damaged, or of another room or key",
                |counts| &counts.cookies_invalid,
            ),
            (
                "usher_room_copies_seen",
                "Seats that were renewed by an old copy of their cookie",
                |counts| &counts.copies_seen,
            ),
        ];
        for (name, text, read) in by_room {
            let mut metric = encoder.encode_descriptor(name, text, None, MetricType::Counter)?;
            for (name, counts) in &named {
                metric
                    .encode_family(&[("room", *name)])?
                    .encode_counter::<NoLabelSet, _, u64>(read(counts), None)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_fall_into_the_class_that_bounds_them() {
        let mut times = Times::default();
        for micros in [0, 1000, 1001, 100_000_000, 100_000_001] {
            times.add(Duration::from_micros(micros));
        }
        let classes: Vec<_> = times
            .classes
            .iter()
            .enumerate()
            .filter(|(_, count)| **count > 0)
            .collect();
        assert_eq!(classes, [(0, &2), (1, &1), (14, &1), (15, &1)]);
        let mut sum = times.clone();
        sum.merge(&times);
        assert_eq!(sum.classes.iter().sum::<u64>(), 10);
        assert_eq!(sum.sum, times.sum * 2);
    }

    #[test]
    fn a_scrape_that_is_reading_does_not_stop_a_worker() {
        let ledger = Ledger::new(1);
        let mut tally = Tally::default();
        tally.error("a-reason");
        let page = lock(&ledger.pages[0]);
        ledger.collect(0, &mut tally);
        drop(page);
        assert_eq!(tally.plain.errors["a-reason"], 1, "kept for the next time");
        ledger.collect(0, &mut tally);
        ledger.collect(0, &mut tally);
        assert!(tally.plain.errors.is_empty());
        assert_eq!(ledger.read_pages().plain.errors["a-reason"], 1);
    }
}
