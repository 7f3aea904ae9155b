//! The engine that needs nothing else: one SQLite database in one file.
//!
//! One task owns the only connection that writes. It takes what has been handed over while the last
//! commit was on its way to the disk, runs it as one transaction, and answers when that is durable
//! (write-ahead log, `synchronous = FULL`). Writers never wait for a lock of the database, and a
//! disk that takes five milliseconds for a commit still keeps hundreds of changes a second.
//!
//! Desired state is read from memory. The audit log and the events are read through connections of
//! their own, which neither block the writer nor wait for it.

mod fault;
mod load;
mod lock;
mod open;
mod order;
mod read;
mod recall;
mod schema;
mod writer;

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use sqlx::SqlitePool;
use tokio::sync::{mpsc, oneshot, watch};
use usher_core::id::Id;

use crate::audit::{AuditQuery, AuditRow};
use crate::event::{Event, EventQuery, Recorded};
use crate::fault::{Fault, StoreError};
use crate::page::Page;
use crate::resource::Kind;
use crate::secret::Secret;
use crate::stamp::Stamp;
use crate::state::State;
use crate::store::{Answer, Order, Outcome, Retention, Store};
use writer::{Job, Writer};

/// Orders that wait for the writer; who brings one more waits.
const JOBS_MAX: usize = 256;

/// Events that wait for the writer; further ones are dropped and counted.
const EVENTS_WAITING_MAX: usize = 4096;

/// A store in a file.
pub struct Sqlite {
    place: Arc<str>,
    shared: Arc<Shared>,
    jobs: mpsc::Sender<Job>,
    events: mpsc::Sender<Event>,
    readers: SqlitePool,
}

/// What the writer and those who ask have in common.
#[derive(Debug)]
struct Shared {
    state: watch::Sender<Arc<State>>,
    uses: Mutex<Uses>,
    events_dropped: AtomicU64,
}

/// When tokens were used last.
#[derive(Debug, Default)]
struct Uses {
    at: HashMap<Id, Stamp>,
    /// Those that are not kept yet.
    unkept: HashSet<Id>,
}

impl Sqlite {
    /// Opens the store in the file at `path`, which is made if it is not there; so is its folder.
    /// Waits for up to `patience` when another process still owns it.
    ///
    /// Its writer runs on the runtime that calls this.
    ///
    /// # Errors
    /// It cannot be opened, and is as it was.
    pub async fn open(
        path: &Path,
        retention: Retention,
        patience: Duration,
    ) -> Result<Sqlite, StoreError> {
        let place: Arc<str> = path.display().to_string().into();
        let opened = open::open(path, patience).await;
        let opened = opened.map_err(|fault| fault.of(&place))?;
        let shared = Arc::new(Shared {
            state: watch::Sender::new(Arc::new(opened.state)),
            uses: Mutex::new(Uses {
                at: opened.uses,
                unkept: HashSet::new(),
            }),
            events_dropped: AtomicU64::new(0),
        });
        let (jobs, jobs_rx) = mpsc::channel(JOBS_MAX);
        let (events, events_rx) = mpsc::channel(EVENTS_WAITING_MAX);
        let writer = Writer::new(
            Arc::clone(&place),
            opened.database,
            Arc::clone(&shared),
            retention,
        );
        tokio::spawn(writer.run(jobs_rx, events_rx));
        Ok(Sqlite {
            place,
            shared,
            jobs,
            events,
            readers: opened.readers,
        })
    }

    /// Hands a job over and waits for its answer.
    async fn ask<T>(
        &self,
        job: impl FnOnce(oneshot::Sender<Result<T, Fault>>) -> Job,
    ) -> Result<T, StoreError> {
        let (reply, answer) = oneshot::channel();
        let asked = self.jobs.send(job(reply)).await;
        let told = match asked {
            Ok(()) => answer.await.unwrap_or(Err(Fault::Closed)),
            Err(_) => Err(Fault::Closed),
        };
        told.map_err(|fault| fault.of(&self.place))
    }
}

impl Store for Sqlite {
    fn place(&self) -> &str {
        &self.place
    }

    fn state(&self) -> Arc<State> {
        Arc::clone(&self.shared.state.borrow())
    }

    fn watch(&self) -> watch::Receiver<Arc<State>> {
        self.shared.state.subscribe()
    }

    fn submit(&self, order: Order) -> Answer<'_, Outcome> {
        Box::pin(self.ask(|reply| Job::Order(order, reply)))
    }

    fn audit(&self, query: AuditQuery) -> Answer<'_, Page<AuditRow>> {
        Box::pin(async move {
            let page = read::audit(&self.readers, &query).await;
            page.map_err(|fault| fault.of(&self.place))
        })
    }

    fn record(&self, event: Event) -> bool {
        let taken = self.events.try_send(event).is_ok();
        if !taken {
            self.shared.drop_events(1);
        }
        taken
    }

    fn events_dropped(&self) -> u64 {
        self.shared.events_dropped.load(Ordering::Relaxed)
    }

    fn events(&self, query: EventQuery) -> Answer<'_, Page<Recorded>> {
        Box::pin(async move {
            let page = read::events(&self.readers, &query).await;
            page.map_err(|fault| fault.of(&self.place))
        })
    }

    fn note_use(&self, token: Id, at: Stamp) {
        if self.state().find(Kind::Token, token).is_some() {
            self.shared.uses(|uses| {
                uses.at.insert(token, at);
                uses.unkept.insert(token);
            });
        }
    }

    fn last_use(&self, token: Id) -> Option<Stamp> {
        self.shared.uses(|uses| uses.at.get(&token).copied())
    }

    fn secret(&self, name: &str, made: Secret) -> Answer<'_, Secret> {
        let name = name.to_owned();
        Box::pin(self.ask(|reply| Job::Secret(name, made, reply)))
    }

    fn flush(&self) -> Answer<'_, ()> {
        Box::pin(self.ask(Job::Flush))
    }

    fn close(&self) -> Answer<'_, ()> {
        Box::pin(async move {
            self.readers.close().await;
            match self.ask(Job::Close).await {
                // Closing twice is closing.
                Err(error) if error.fault == Fault::Closed => Ok(()),
                closed => closed,
            }
        })
    }
}

impl fmt::Debug for Sqlite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sqlite")
            .field("place", &self.place)
            .finish_non_exhaustive()
    }
}

impl Shared {
    fn uses<T>(&self, look: impl FnOnce(&mut Uses) -> T) -> T {
        // A use that was half noted is a use.
        look(&mut self.uses.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn drop_events(&self, count: u64) {
        self.events_dropped.fetch_add(count, Ordering::Relaxed);
    }
}
