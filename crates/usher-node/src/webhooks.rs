//! Notifications on their way: what happened is held until it is delivered, or was tried often
//! enough.
//!
//! Everything is bounded and nothing waits for a receiver but its own message. What there is no
//! room for is counted and gone: events are kept elsewhere.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwap;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::sleep;
use usher_api::server::Delivered;
use usher_api::{Desired, Happened, Letter, letters};
use usher_core::id::Id;
use usher_edge::resolve::Lookup;
use usher_edge::webhook::{Courier, Message, PostError, Secret};
use usher_store::Stamp;

/// Changes that wait to be told.
pub(crate) const HAPPENED_MAX: usize = 256;

/// Messages under way at once.
const UNDER_WAY_MAX: usize = 16;

/// How long to wait before each try of a message.
const PAUSES: [Duration; 3] = [
    Duration::ZERO,
    Duration::from_secs(1),
    Duration::from_secs(5),
];

/// Destinations whose last deliveries are remembered, those that are gone among them.
const DESTINATIONS_MAX: usize = 4096;

/// Delivers messages, and remembers how it went.
#[derive(Debug)]
pub(crate) struct Webhooks {
    courier: Courier,
    allow_private: AtomicBool,
    delivered: Mutex<HashMap<Id, Delivered>>,
}

impl Webhooks {
    pub(crate) fn new(allow_private: bool) -> Webhooks {
        Webhooks {
            courier: Courier::new(Lookup::system()),
            allow_private: AtomicBool::new(allow_private),
            delivered: Mutex::default(),
        }
    }

    /// Whether addresses of private networks may be called.
    pub(crate) fn allow_private(&self, allow: bool) {
        self.allow_private.store(allow, Ordering::Relaxed);
    }

    pub(crate) fn allows_private(&self) -> bool {
        self.allow_private.load(Ordering::Relaxed)
    }

    /// How the last deliveries to this destination went.
    pub(crate) fn delivered(&self, destination: Id) -> Delivered {
        self.all().get(&destination).copied().unwrap_or_default()
    }

    /// Tells what `happened`, until its sender is gone.
    pub(crate) async fn run(
        self: Arc<Self>,
        desired: Arc<ArcSwap<Desired>>,
        mut happened: mpsc::Receiver<Happened>,
    ) {
        let mut under_way = JoinSet::new();
        while let Some(happened) = happened.recv().await {
            let letters = letters(&desired.load(), &happened);
            for letter in letters {
                while under_way.len() >= UNDER_WAY_MAX {
                    under_way.join_next().await;
                }
                let own = Arc::clone(&self);
                under_way.spawn(async move { own.deliver(&letter).await });
            }
            while under_way.try_join_next().is_some() {}
        }
    }

    async fn deliver(&self, letter: &Letter) {
        for (nth, pause) in PAUSES.into_iter().enumerate() {
            sleep(pause).await;
            let Err(error) = self.post(letter).await else {
                return;
            };
            // The URL may be a secret by itself.
            let (destination, last) = (letter.destination, nth + 1 == PAUSES.len());
            if last {
                tracing::warn!("a notification for destination {destination} is lost: {error}");
            } else {
                tracing::info!("destination {destination} was not told, and will be: {error}");
            }
        }
    }

    /// Posts a message once.
    pub(crate) async fn post(&self, letter: &Letter) -> Result<(), PostError> {
        let now = Stamp::now();
        let message = Message {
            url: letter.url.clone(),
            secret: letter.secret.as_ref().map(|it| Secret::new(it.expose())),
            body: letter.body.clone().into(),
            at: u64::try_from(now.as_micros() / 1_000_000).unwrap_or(0),
        };
        let result = self.courier.post(&message, self.allows_private()).await;
        let mut all = self.all();
        if all.len() >= DESTINATIONS_MAX && !all.contains_key(&letter.destination) {
            all.clear();
        }
        let delivered = all.entry(letter.destination).or_default();
        match result {
            Ok(()) => delivered.success = Some(Stamp::now()),
            Err(_) => delivered.failure = Some(Stamp::now()),
        }
        result
    }

    fn all(&self) -> MutexGuard<'_, HashMap<Id, Delivered>> {
        self.delivered
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}
