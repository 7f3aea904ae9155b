//! What is wanted of this node: the file's part and the store's, laid together.
//!
//! The store is opened with the node and let go of before another process takes its place: one
//! process owns it at a time. A configuration that contradicts what is kept is not put in force.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::spawn_blocking;
use usher_api::{Assembler, Declared, Desired};
use usher_core::catalog::Catalog;
use usher_edge::tls::TrustProfile;
use usher_store::{Kind, Place, Retention, Revision, State, Store, StoreError};

use crate::trust;

/// How long the store may stay with the process that had it before.
const PATIENCE: Duration = Duration::from_secs(10);

/// Both parts, and the catalog that they make.
#[derive(Debug)]
pub(crate) struct Wanted {
    declared: Arc<Declared>,
    place: Option<Place>,
    store: Option<Arc<dyn Store>>,
    assembler: Assembler,
    /// What of the store the catalog has.
    seen: Revision,
}

/// What a change of the store comes to.
pub(crate) struct Changed {
    pub(crate) catalog: Arc<Catalog>,
    pub(crate) profiles: BTreeSet<TrustProfile>,
}

/// Tells when what is kept has changed.
#[derive(Debug)]
pub struct Changes(Option<watch::Receiver<Arc<State>>>);

impl Changes {
    /// Waits for the next change; for ever, where nothing is kept.
    pub async fn next(&mut self) {
        let changed = match &mut self.0 {
            Some(watch) => watch.changed().await,
            None => std::future::pending().await,
        };
        if changed.is_err() {
            // The store was let go of.
            self.0 = None;
            std::future::pending().await
        }
    }
}

impl Wanted {
    /// Opens the store, where there is one.
    pub(crate) async fn open(
        declared: Arc<Declared>,
        place: Option<Place>,
    ) -> Result<Wanted, StoreError> {
        let store = match &place {
            Some(place) => Some(place.open(Retention::default(), PATIENCE).await?),
            None => None,
        };
        Ok(Wanted {
            declared,
            place,
            store,
            assembler: Assembler::default(),
            seen: Revision::default(),
        })
    }

    /// As the API is told of it.
    pub(crate) fn desired(&self) -> Desired {
        Desired {
            declared: Arc::clone(&self.declared),
            store: self.store.clone(),
        }
    }

    pub(crate) fn place(&self) -> Option<&Place> {
        self.place.as_ref()
    }

    pub(crate) fn changes(&self) -> Changes {
        Changes(self.store.as_ref().map(|store| store.watch()))
    }

    /// What is kept, and in the catalog as soon as [`Wanted::with`] or [`Wanted::changed`] made one.
    pub(crate) fn kept(&self) -> Revision {
        self.state().revision()
    }

    /// What of it the last catalog of [`Wanted::changed`] has.
    pub(crate) fn seen(&self) -> Revision {
        self.seen
    }

    fn state(&self) -> Arc<State> {
        self.store
            .as_ref()
            .map_or_else(Arc::default, |store| store.state())
    }

    /// The catalog of `declared` and what is kept.
    ///
    /// # Errors
    /// What contradicts itself, a line each.
    pub(crate) fn with(&mut self, declared: &Declared) -> Result<Arc<Catalog>, Vec<String>> {
        self.assembler.assemble(declared, &self.state())
    }

    /// From now on the file says this.
    pub(crate) fn declare(&mut self, declared: Arc<Declared>) {
        self.declared = declared;
    }

    /// The catalog, if something that traffic depends on changed in the store since the last time,
    /// and whom it trusts. Made beside the tasks of this thread, which are many resources' work.
    ///
    /// # Errors
    /// What contradicts itself, a line each.
    pub(crate) async fn changed(&mut self) -> Result<Option<Changed>, Vec<String>> {
        let state = self.state();
        let delta = state.since(self.seen);
        self.seen = state.revision();
        let changed = delta.changed.iter().map(|kept| kept.kind);
        let removed = delta.removed.iter().map(|stone| stone.kind);
        if !delta.whole && !changed.chain(removed).any(steers) {
            return Ok(None);
        }
        let declared = Arc::clone(&self.declared);
        let mut assembler = std::mem::take(&mut self.assembler);
        let made = spawn_blocking(move || {
            let catalog = assembler.assemble(&declared, &state);
            let changed = catalog.map(|catalog| Changed {
                profiles: trust::profiles(&catalog),
                catalog,
            });
            (assembler, changed)
        });
        let made = made.await;
        let (assembler, changed) =
            made.unwrap_or_else(|error| std::panic::resume_unwind(error.into_panic()));
        self.assembler = assembler;
        changed.map(Some)
    }

    /// Lets go of the store: another process may open it. What is asked of it is refused from then
    /// on, what it said last stays.
    pub(crate) async fn release(&self) {
        if let Some(store) = &self.store
            && let Err(error) = store.close().await
        {
            tracing::warn!("{error}");
        }
    }

    /// Opens the store again.
    pub(crate) async fn reclaim(&mut self) -> Result<(), StoreError> {
        if let Some(place) = &self.place {
            self.store = Some(place.open(Retention::default(), PATIENCE).await?);
        }
        Ok(())
    }
}

/// Whether traffic depends on resources of that kind.
const fn steers(kind: Kind) -> bool {
    match kind {
        Kind::Zone
        | Kind::ZoneSettings
        | Kind::Monitor
        | Kind::MonitorGroup
        | Kind::Pool
        | Kind::Balancer
        | Kind::Room
        | Kind::RoomRules => true,
        Kind::Account | Kind::NotificationPolicy | Kind::WebhookDestination | Kind::Token => false,
    }
}
