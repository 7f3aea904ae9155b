//! Probes that somebody asks for once, beside those that monitors order.
//!
//! They neither take the places of the engine's probes nor tell the engine anything.

use std::path::PathBuf;
use std::sync::Arc;

use tokio::sync::{Semaphore, mpsc};
use tokio::task::{JoinSet, spawn_blocking};
use usher_api::server::Attempt;
use usher_core::probe::ProbeResult;
use usher_edge::http::Plane;
use usher_edge::probe::{self, Prober};
use usher_edge::resolve::Lookup;
use usher_edge::tls::{ClientConfigs, TrustProfile};

/// Attempts under way at once, whoever asked.
const UNDER_WAY_MAX: usize = 64;

/// Carries out what is asked for.
#[derive(Debug)]
pub(crate) struct Attempts {
    plane: Arc<Plane>,
    places: Arc<Semaphore>,
}

impl Attempts {
    pub(crate) fn new(plane: Arc<Plane>) -> Attempts {
        Attempts {
            plane,
            places: Arc::new(Semaphore::new(UNDER_WAY_MAX)),
        }
    }

    /// Begins; each result comes with the place of its attempt in `wanted`. Whoever drops the
    /// receiver wants no more of it.
    pub(crate) fn begin(&self, wanted: Vec<Attempt>) -> mpsc::Receiver<(usize, ProbeResult)> {
        let (tell, told) = mpsc::channel(UNDER_WAY_MAX);
        tokio::spawn(run(
            Arc::clone(&self.plane),
            Arc::clone(&self.places),
            wanted,
            tell,
        ));
        told
    }
}

async fn run(
    plane: Arc<Plane>,
    places: Arc<Semaphore>,
    wanted: Vec<Attempt>,
    tell: mpsc::Sender<(usize, ProbeResult)>,
) {
    let clients = clients(&plane, &wanted).await;
    let addresses = Arc::clone(plane.addresses());
    let prober = Prober::new(Lookup::system(), addresses, move || Arc::clone(&clients));
    let prober = Arc::new(prober);
    // Ends what is under way when it is dropped.
    let mut under_way = JoinSet::new();
    for (nth, attempt) in wanted.into_iter().enumerate() {
        let place = tokio::select! {
            () = tell.closed() => return,
            place = Arc::clone(&places).acquire_owned() => place,
        };
        let (prober, tell) = (Arc::clone(&prober), tell.clone());
        under_way.spawn(async move {
            let _place = place;
            let result = judge(&prober, &attempt).await;
            let _gone = tell.send((nth, result)).await;
        });
    }
    under_way.join_all().await;
}

/// As a monitor does it: after a timeout, and only then, another attempt follows at once.
async fn judge(prober: &Prober, attempt: &Attempt) -> ProbeResult {
    let mut result = prober.probe(&attempt.probe).await;
    for _ in 0..attempt.retries {
        if !result.reason().is_timeout() {
            break;
        }
        result = prober.probe(&attempt.probe).await;
    }
    result
}

/// The trust that traffic and monitors share, or what goes beyond it. A file that cannot be used
/// shows in the results of those who need it.
async fn clients(plane: &Plane, wanted: &[Attempt]) -> Arc<ClientConfigs> {
    let shared = plane.clients();
    let mut needed: Vec<TrustProfile> = Vec::new();
    for attempt in wanted {
        let probe = &attempt.probe;
        let client_cert = probe.client_cert.as_ref();
        let client_cert = client_cert.map(|(cert, key)| (cert.as_str(), key.as_str()));
        for profile in probe::trust_profiles(&probe.kind, probe.ca.as_deref(), client_cert) {
            if !needed.contains(&profile) {
                needed.push(profile);
            }
        }
    }
    if needed.iter().all(|profile| shared.get(profile).is_some()) {
        return shared;
    }
    let loaded = spawn_blocking(move || {
        // Each by itself: one bad file is no reason against the others.
        let usable = |profile: &TrustProfile| match ClientConfigs::load([profile.clone()]) {
            Ok(_) => true,
            Err(faults) => {
                let ca: Option<&PathBuf> = profile.ca.as_ref();
                tracing::warn!(
                    ?faults,
                    ?ca,
                    "a probe cannot be carried out as its pool asks"
                );
                false
            }
        };
        needed.retain(usable);
        ClientConfigs::load(needed).unwrap_or_default()
    });
    loaded.await.map_or(shared, Arc::new)
}
