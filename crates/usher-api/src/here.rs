//! A node that is there for tests of calls alone.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use usher_core::catalog::{Address, Draft, Node};
use usher_core::id::Id;
use usher_core::probe::ProbeResult;
use usher_core::time::Mono;
use usher_store::Revision;

use crate::access::Access;
use crate::browsers::BrowserFront;
use crate::rest::{Desired, Letter};
use crate::server::{Attempt, Control, Delivered, Figures, InForce, Posted, Probed, SignIns, View};
use crate::wire::browsers::BrowserPool;
use crate::wire::rooms::RoomStatus;

/// What a file says in which nothing stands.
pub(crate) fn nothing() -> Draft {
    Draft::new(Node {
        name: "n".to_owned(),
        code: "N".to_owned(),
        region: None,
        country: None,
        city: None,
        coordinates: None,
    })
}

pub(crate) struct Here {
    pub(crate) desired: Arc<Desired>,
    pub(crate) access: Arc<Access>,
    /// Whether what is kept comes into force in time.
    pub(crate) in_time: Arc<AtomicBool>,
    pub(crate) browsers: Option<Arc<dyn BrowserFront>>,
}

impl Control for Here {
    fn desired(&self) -> Arc<Desired> {
        Arc::clone(&self.desired)
    }
    fn view(&self) -> View {
        unreachable!("no test asks for it")
    }
    fn access(&self) -> Arc<Access> {
        Arc::clone(&self.access)
    }
    fn version(&self) -> &str {
        "0"
    }
    fn uptime(&self) -> Duration {
        Duration::ZERO
    }
    fn ready(&self) -> bool {
        true
    }
    fn stopping(&self) -> bool {
        false
    }
    fn now(&self) -> Mono {
        Mono::ZERO
    }
    fn draw(&self) -> u64 {
        use std::hash::{BuildHasher as _, RandomState};
        RandomState::new().hash_one(0)
    }
    fn public_origin(&self) -> String {
        "http://usher.example.com".to_owned()
    }
    fn metrics(&self) -> String {
        String::new()
    }
    fn probed(&self, _: Id, _: &Address, _: Option<u16>) -> Vec<Probed> {
        Vec::new()
    }
    fn attempt(&self, _: Vec<Attempt>) -> tokio::sync::mpsc::Receiver<(usize, ProbeResult)> {
        unreachable!("no test probes")
    }
    fn post(&self, _: Letter) -> Posted {
        unreachable!("no test posts")
    }
    fn delivered(&self, _: Id) -> Delivered {
        Delivered::default()
    }
    fn posts_privately(&self) -> bool {
        false
    }
    fn in_force(&self, _: Revision) -> InForce {
        let in_time = self.in_time.load(Ordering::Relaxed);
        Box::pin(async move { in_time })
    }
    fn sign_ins(&self) -> Arc<SignIns> {
        Arc::default()
    }
    fn room(&self, _: Id) -> Option<RoomStatus> {
        Some(RoomStatus {
            seats: 7,
            waiting: 2,
            admitted_last_minute: 1,
            wait_max: Some(Duration::from_secs(90)),
            ..RoomStatus::default()
        })
    }
    fn browsers(&self) -> Arc<Vec<BrowserPool>> {
        Arc::default()
    }
    fn figures(&self) -> Figures {
        Figures::default()
    }
    fn browser_front(&self) -> Option<Arc<dyn BrowserFront>> {
        self.browsers.clone()
    }
}
