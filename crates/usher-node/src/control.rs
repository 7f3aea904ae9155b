//! What the API is told of this node.

use std::collections::HashMap;
use std::fmt;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwap;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Registry;
use tokio::sync::{mpsc, watch};
use tokio::time::timeout;
use usher_api::access::Access;
use usher_api::browsers::BrowserFront;
use usher_api::server::{
    Answers, Attempt, Control, Delivered, Figures, InForce, Posted, Probed, SignIns, View,
};
use usher_api::wire::browsers::BrowserPool;
use usher_api::wire::explain::{RoomSays, Surroundings};
use usher_api::wire::rooms::RoomStatus;
use usher_api::wire::state::session_skew;
use usher_api::{Desired, Letter};
use usher_core::affinity::Pins;
use usher_core::catalog::{Address, EndpointIx, Monitoring};
use usher_core::health::EndpointState;
use usher_core::id::Id;
use usher_core::probe::ProbeResult;
use usher_core::region::Place;
use usher_core::request::{Headers, Request};
use usher_core::snapshot::{Counts, Lookup, Snapshot};
use usher_core::time::Mono;
use usher_edge::geo::Places;
use usher_edge::http::{Book, FrontMetrics, Ledger, Plane};
use usher_edge::seal::Keys;
use usher_rooms::route::Ambiguous;
use usher_store::Revision;

use crate::attempts::Attempts;
use crate::browsers::figures::BrowserMetrics;
use crate::browsers::{self, Asking, Browsers};
use crate::pins::Presented;
use crate::probes::Probes;
use crate::rooms::{self, RoomMetrics, Standing};
use crate::webhooks::Webhooks;

/// Longest wait until a change is in force: traffic is decided anew 20 times a second.
const IN_FORCE_MAX: Duration = Duration::from_secs(2);

/// The node as the API sees it.
pub(crate) struct Shared {
    plane: Arc<Plane>,
    version: &'static str,
    access: ArcSwap<Access>,
    origin: ArcSwap<String>,
    desired: Arc<ArcSwap<Desired>>,
    probes: Arc<Probes>,
    attempts: Attempts,
    webhooks: Arc<Webhooks>,
    ready: watch::Receiver<bool>,
    in_force: watch::Receiver<Revision>,
    stopping: AtomicBool,
    reloads: Arc<Reloads>,
    sessions: Arc<Sessions>,
    rooms: Arc<ArcSwap<Standing>>,
    browsers: Arc<Browsers>,
    sign_ins: Arc<SignIns>,
    registry: Mutex<Registry>,
}

/// What runs beside the front and answers the API, too.
pub(crate) struct Services {
    pub(crate) probes: Arc<Probes>,
    pub(crate) webhooks: Arc<Webhooks>,
    pub(crate) sign_ins: SignIns,
    pub(crate) rooms: Arc<ArcSwap<Standing>>,
    pub(crate) browsers: Arc<Browsers>,
}

/// Configurations that came after the first.
#[derive(Debug, Default)]
pub(crate) struct Reloads {
    pub(crate) applied: AtomicU64,
    pub(crate) rejected: AtomicU64,
}

impl Shared {
    pub(crate) fn new(
        plane: Arc<Plane>,
        version: &'static str,
        access: Access,
        desired: Arc<ArcSwap<Desired>>,
        services: Services,
        ready: watch::Receiver<bool>,
        in_force: watch::Receiver<Revision>,
    ) -> Arc<Shared> {
        let reloads = Arc::new(Reloads::default());
        let sessions = Arc::new(Sessions::new(Arc::clone(&plane)));
        let mut registry = Registry::default();
        registry.register_collector(Box::new(FrontMetrics(Arc::clone(&plane))));
        registry.register_collector(Box::new(NodeMetrics {
            plane: Arc::clone(&plane),
            reloads: Arc::clone(&reloads),
            sessions: Arc::clone(&sessions),
            version,
        }));
        registry.register_collector(Box::new(RoomMetrics(Arc::clone(&services.rooms))));
        let browsers = BrowserMetrics(Arc::clone(&services.browsers));
        registry.register_collector(Box::new(browsers));
        Arc::new(Shared {
            attempts: Attempts::new(Arc::clone(&plane)),
            plane,
            version,
            access: ArcSwap::from_pointee(access),
            origin: ArcSwap::default(),
            desired,
            probes: services.probes,
            webhooks: services.webhooks,
            ready,
            in_force,
            stopping: AtomicBool::new(false),
            reloads,
            sessions,
            rooms: services.rooms,
            browsers: services.browsers,
            sign_ins: Arc::new(services.sign_ins),
            registry: Mutex::new(registry),
        })
    }

    pub(crate) fn admit(&self, access: Access) {
        self.access.store(Arc::new(access));
    }

    /// The API is reached under this origin from now on.
    pub(crate) fn appear_as(&self, origin: String) {
        self.origin.store(Arc::new(origin));
    }

    pub(crate) fn want(&self, desired: Desired) {
        self.desired.store(Arc::new(desired));
    }

    pub(crate) fn post_privately(&self, allow: bool) {
        self.webhooks.allow_private(allow);
    }

    pub(crate) fn begin_stop(&self) {
        self.stopping.store(true, Ordering::Relaxed);
    }

    pub(crate) fn reloads(&self) -> &Reloads {
        &self.reloads
    }
}

/// Live sessions by endpoint, counted when somebody asks and at most once a second: there may be a
/// million of them.
#[derive(Debug)]
struct Sessions {
    plane: Arc<Plane>,
    counted: Mutex<Option<Counted>>,
}

/// When, and how many.
type Counted = (Mono, Arc<HashMap<Id, u64>>);

impl Sessions {
    const FRESH: Duration = Duration::from_secs(1);

    fn new(plane: Arc<Plane>) -> Sessions {
        Sessions {
            plane,
            counted: Mutex::new(None),
        }
    }

    /// The count of now, or of up to [`Sessions::FRESH`] ago.
    fn count(&self) -> Arc<HashMap<Id, u64>> {
        let mut counted = self.counted.lock().unwrap_or_else(PoisonError::into_inner);
        let now = self.plane.now();
        match &*counted {
            Some((then, sessions)) if now.since(*then) < Sessions::FRESH => Arc::clone(sessions),
            _ => {
                let sessions = Arc::new(self.plane.pins_live(crate::wall()));
                *counted = Some((now, Arc::clone(&sessions)));
                sessions
            }
        }
    }
}

/// What the front knows beside the snapshot: its book, and its visitors.
struct Around {
    book: Arc<Book>,
    plane: Arc<Plane>,
    sessions: Arc<Sessions>,
    places: Option<Arc<Places>>,
    keys: Option<Arc<Keys>>,
}

impl Counts for Around {
    fn open_requests(&self, endpoint: EndpointIx) -> u32 {
        self.book.open_requests(endpoint)
    }

    fn open_connections(&self, endpoint: EndpointIx) -> u32 {
        self.book.open_connections(endpoint)
    }
}

impl Surroundings for Around {
    fn place(&self, client: IpAddr) -> Option<Place> {
        self.places.as_ref()?.place(client)
    }

    fn locates(&self) -> bool {
        self.places.is_some()
    }

    fn sessions(&self) -> Arc<HashMap<Id, u64>> {
        self.sessions.count()
    }

    fn pins<'a>(&'a self, headers: &'a dyn Headers) -> Box<dyn Pins + 'a> {
        Box::new(Presented {
            headers,
            keys: self.keys.as_deref(),
            table: Some(self.plane.pins()),
        })
    }

    fn room(&self, request: &Request<'_>) -> Result<Option<RoomSays>, Ambiguous> {
        rooms::ask(&self.plane.rooms(), request)
    }
}

impl Control for Shared {
    fn view(&self) -> View {
        let (snapshot, book) = self.plane.counted();
        View {
            snapshot,
            around: Box::new(Around {
                book,
                plane: Arc::clone(&self.plane),
                places: self.plane.places(),
                keys: self.plane.keys(),
                sessions: Arc::clone(&self.sessions),
            }),
        }
    }

    fn desired(&self) -> Arc<Desired> {
        self.desired.load_full()
    }

    fn access(&self) -> Arc<Access> {
        self.access.load_full()
    }

    fn version(&self) -> &str {
        self.version
    }

    fn uptime(&self) -> Duration {
        self.plane.now().since(Mono::ZERO)
    }

    fn ready(&self) -> bool {
        *self.ready.borrow() && !Control::stopping(self)
    }

    fn stopping(&self) -> bool {
        self.stopping.load(Ordering::Relaxed)
    }

    fn now(&self) -> Mono {
        self.plane.now()
    }

    fn draw(&self) -> u64 {
        crate::draw()
    }

    fn public_origin(&self) -> String {
        String::clone(&self.origin.load())
    }

    fn metrics(&self) -> String {
        let registry = self.registry.lock().unwrap_or_else(PoisonError::into_inner);
        let mut text = String::new();
        if let Err(error) = prometheus_client::encoding::text::encode(&mut text, &registry) {
            tracing::error!(%error, "metrics cannot be written");
        }
        text
    }

    fn probed(&self, pool: Id, address: &Address, port: Option<u16>) -> Vec<Probed> {
        self.probes.of(pool, address, port)
    }

    fn attempt(&self, wanted: Vec<Attempt>) -> mpsc::Receiver<(usize, ProbeResult)> {
        self.attempts.begin(wanted)
    }

    fn post(&self, letter: Letter) -> Posted {
        let webhooks = Arc::clone(&self.webhooks);
        Box::pin(async move {
            let posted = webhooks.post(&letter).await;
            posted.map_err(|error| error.to_string())
        })
    }

    fn delivered(&self, destination: Id) -> Delivered {
        self.webhooks.delivered(destination)
    }

    fn posts_privately(&self) -> bool {
        self.webhooks.allows_private()
    }

    fn in_force(&self, revision: Revision) -> InForce {
        let mut in_force = self.in_force.clone();
        Box::pin(async move {
            let reached = in_force.wait_for(|reached| *reached >= revision);
            // A node that ends puts nothing in force any more.
            matches!(timeout(IN_FORCE_MAX, reached).await, Ok(Ok(_)))
        })
    }

    fn sign_ins(&self) -> Arc<SignIns> {
        Arc::clone(&self.sign_ins)
    }

    fn room(&self, room: Id) -> Option<RoomStatus> {
        self.rooms.load().get(&room).map(rooms::status)
    }

    fn browsers(&self) -> Arc<Vec<BrowserPool>> {
        Arc::new(browsers::figures::pools(&self.browsers))
    }

    fn browser_front(&self) -> Option<Arc<dyn BrowserFront>> {
        let configured = self.browsers.are_configured();
        configured.then(|| Arc::new(Asking(Arc::clone(&self.browsers))) as Arc<dyn BrowserFront>)
    }

    fn figures(&self) -> Figures {
        let ledger = self.plane.ledger();
        let mut figures = Figures {
            in_flight: ledger.in_flight(),
            bounds: Ledger::BOUNDS,
            ..Figures::default()
        };
        let answers = &mut figures.answers;
        let times = &mut figures.times;
        ledger.tell(
            |[balancer, pool, endpoint], code, count| {
                let path = (balancer.to_owned(), pool.to_owned(), endpoint.to_owned());
                let errors_5xx = if code >= 500 { count } else { 0 };
                *answers.entry(path).or_default() += Answers {
                    all: count,
                    errors_5xx,
                };
            },
            |balancer, classes| {
                times.insert(balancer.to_owned(), classes.to_vec());
            },
        );
        figures
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared")
            .field("reloads", &self.reloads)
            .field("browsers", &self.browsers)
            .finish_non_exhaustive()
    }
}

/// What is not the front's to count.
#[derive(Debug)]
struct NodeMetrics {
    plane: Arc<Plane>,
    reloads: Arc<Reloads>,
    sessions: Arc<Sessions>,
    version: &'static str,
}

impl NodeMetrics {
    /// Sessions as they stand: by endpoint, what is left of drains, and how far from the weights.
    fn sessions(&self, snapshot: &Snapshot, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let now = crate::wall();
        let sessions = self.sessions.count();
        let mut metric = encoder.encode_descriptor(
            "usher_endpoint_sessions",
            "Sessions with the endpoint that this node gave and that are not over",
            None,
            MetricType::Gauge,
        )?;
        for pool in snapshot.pools() {
            for (_, endpoint, _) in pool.endpoints() {
                let labels = [("pool", pool.name), ("endpoint", endpoint.name.as_str())];
                let count = sessions.get(&endpoint.id).copied().unwrap_or(0);
                let count = i64::try_from(count).unwrap_or(i64::MAX);
                metric.encode_family(&labels)?.encode_gauge(&count)?;
            }
        }
        let mut metric = encoder.encode_descriptor(
            "usher_endpoint_drain_left_seconds",
            "How long the sessions of a draining endpoint still hold",
            None,
            MetricType::Gauge,
        )?;
        for pool in snapshot.pools() {
            for (ix, endpoint, _) in pool.endpoints() {
                let Some(left) = snapshot.drain_left(ix, now) else {
                    continue;
                };
                let labels = [("pool", pool.name), ("endpoint", endpoint.name.as_str())];
                metric
                    .encode_family(&labels)?
                    .encode_gauge(&left.as_secs_f64())?;
            }
        }
        let mut metric = encoder.encode_descriptor(
            "usher_pool_session_skew_ratio",
            "Part of the sessions of the pool that would have to be elsewhere to follow the weights",
            None,
            MetricType::Gauge,
        )?;
        for pool in snapshot.pools() {
            if let Some(skew) = session_skew(&pool, &sessions) {
                metric
                    .encode_family(&[("pool", pool.name)])?
                    .encode_gauge(&skew)?;
            }
        }
        Ok(())
    }
}

impl Collector for NodeMetrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let mut metric = encoder.encode_descriptor(
            "usher_endpoint_up",
            "1 while the endpoint may get traffic, 0 while it may not",
            None,
            MetricType::Gauge,
        )?;
        let snapshot = self.plane.snapshot();
        for pool in snapshot.pools() {
            let monitored = snapshot.catalog().pool(pool.ix).monitoring != Monitoring::None;
            for (_, endpoint, health) in pool.endpoints() {
                let works = match health.state {
                    EndpointState::Healthy => true,
                    EndpointState::Unknown => !monitored,
                    EndpointState::Critical | EndpointState::Disabled | EndpointState::Draining => {
                        false
                    }
                };
                let labels = [("pool", pool.name), ("endpoint", endpoint.name.as_str())];
                let up = i64::from(works && health.lookup == Lookup::Resolves);
                metric.encode_family(&labels)?.encode_gauge(&up)?;
            }
        }
        self.sessions(&snapshot, &mut encoder)?;
        let mut metric = encoder.encode_descriptor(
            "usher_config_reloads",
            "Configurations that came after the first, by what became of them",
            None,
            MetricType::Counter,
        )?;
        for (result, count) in [
            ("applied", &self.reloads.applied),
            ("rejected", &self.reloads.rejected),
        ] {
            let count = count.load(Ordering::Relaxed);
            metric
                .encode_family(&[("result", result)])?
                .encode_counter::<NoLabelSet, _, u64>(&count, None)?;
        }
        let mut metric = encoder.encode_descriptor(
            "usher_build_info",
            "Always 1; the version is a label",
            None,
            MetricType::Gauge,
        )?;
        let one: i64 = 1;
        metric
            .encode_family(&[("version", self.version)])?
            .encode_gauge(&one)?;
        Ok(())
    }
}
