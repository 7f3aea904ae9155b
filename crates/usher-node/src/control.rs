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
use tokio::sync::watch;
use usher_api::access::Access;
use usher_api::server::{Control, View};
use usher_api::wire::explain::Surroundings;
use usher_core::affinity::{NoPins, Pins};
use usher_core::catalog::{EndpointIx, Monitoring};
use usher_core::health::EndpointState;
use usher_core::id::Id;
use usher_core::region::Place;
use usher_core::request::Headers;
use usher_core::snapshot::{Counts, Lookup};
use usher_core::time::{Mono, Wall};
use usher_edge::geo::Places;
use usher_edge::http::{Book, FrontMetrics, Plane};

/// The node as the API sees it.
pub(crate) struct Shared {
    plane: Arc<Plane>,
    version: &'static str,
    access: ArcSwap<Access>,
    ready: watch::Receiver<bool>,
    stopping: AtomicBool,
    reloads: Arc<Reloads>,
    registry: Mutex<Registry>,
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
        ready: watch::Receiver<bool>,
    ) -> Arc<Shared> {
        let reloads = Arc::new(Reloads::default());
        let mut registry = Registry::default();
        registry.register_collector(Box::new(FrontMetrics(Arc::clone(&plane))));
        registry.register_collector(Box::new(NodeMetrics {
            plane: Arc::clone(&plane),
            reloads: Arc::clone(&reloads),
            version,
        }));
        Arc::new(Shared {
            plane,
            version,
            access: ArcSwap::from_pointee(access),
            ready,
            stopping: AtomicBool::new(false),
            reloads,
            registry: Mutex::new(registry),
        })
    }

    pub(crate) fn admit(&self, access: Access) {
        self.access.store(Arc::new(access));
    }

    pub(crate) fn begin_stop(&self) {
        self.stopping.store(true, Ordering::Relaxed);
    }

    pub(crate) fn reloads(&self) -> &Reloads {
        &self.reloads
    }
}

/// What the front knows beside the snapshot: its book, and its visitors.
struct Around {
    book: Arc<Book>,
    places: Option<Arc<Places>>,
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

    fn sessions(&self, _: Wall) -> HashMap<Id, u64> {
        HashMap::new()
    }

    fn pins<'a>(&'a self, _: &'a dyn Headers) -> Box<dyn Pins + 'a> {
        Box::new(NoPins)
    }
}

impl Control for Shared {
    fn view(&self) -> View {
        let (snapshot, book) = self.plane.counted();
        View {
            snapshot,
            around: Box::new(Around {
                book,
                places: self.plane.places(),
            }),
        }
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

    fn metrics(&self) -> String {
        let registry = self.registry.lock().unwrap_or_else(PoisonError::into_inner);
        let mut text = String::new();
        if let Err(error) = prometheus_client::encoding::text::encode(&mut text, &registry) {
            tracing::error!(%error, "metrics cannot be written");
        }
        text
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared")
            .field("reloads", &self.reloads)
            .finish_non_exhaustive()
    }
}

/// What is not the front's to count.
#[derive(Debug)]
struct NodeMetrics {
    plane: Arc<Plane>,
    reloads: Arc<Reloads>,
    version: &'static str,
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
