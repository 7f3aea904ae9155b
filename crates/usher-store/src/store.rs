//! What every engine of the store promises.
//!
//! A check is a closure that gets the newest state and says what to write. It runs where changes
//! are put in order, so nothing can come between what it saw and what is kept: a name that it found
//! free is free, and a pool that nobody named is still named by nobody. A second engine runs it
//! inside its transaction, under the lock that orders the writers of all nodes, after catching up
//! with what the others wrote.

use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::watch;
use usher_core::id::Id;

use crate::audit::{AuditQuery, AuditRow};
use crate::change::{Actor, Change, Conflict, Repeat};
use crate::event::{Event, EventQuery, Recorded};
use crate::fault::StoreError;
use crate::page::Page;
use crate::resource::Revision;
use crate::secret::Secret;
use crate::stamp::Stamp;
use crate::state::State;

/// What the store says when it has done it.
pub type Answer<'a, T> = Pin<Box<dyn Future<Output = Result<T, StoreError>> + Send + 'a>>;

/// A store that is open.
pub trait Store: Send + Sync + fmt::Debug + 'static {
    /// Where it is, for messages: a path, or an address without its password.
    fn place(&self) -> &str;

    /// What is wanted, as of the newest change that this process knows to be durable. Works to the
    /// end of the process, also when nothing can be written and after [`Store::close`].
    fn state(&self) -> Arc<State>;

    /// Wakes when there is a newer state. Who slept through several sees the newest, and finds what
    /// it missed with [`State::since`].
    fn watch(&self) -> watch::Receiver<Arc<State>>;

    /// Runs the check of an order and keeps what it answers: resources, audit row and the answer for
    /// repeats in one transaction, durable before this returns. Once handed over, an order is
    /// carried out even if nobody waits any more.
    ///
    /// [`change`](trait.Store.html#method.change) is the same with the check's own refusal.
    ///
    /// # Errors
    /// Nothing was written.
    fn submit(&self, order: Order) -> Answer<'_, Outcome>;

    /// Rows of the audit log, newest first.
    ///
    /// # Errors
    /// They cannot be read.
    fn audit(&self, query: AuditQuery) -> Answer<'_, Page<AuditRow>>;

    /// Takes an event to be kept soon. Never waits: false when there is no room, and then the event
    /// is counted and gone. A crash may take the last second of events along.
    fn record(&self, event: Event) -> bool;

    /// Events that were not kept since the store was opened.
    fn events_dropped(&self) -> u64;

    /// Events that are kept, newest first.
    ///
    /// # Errors
    /// They cannot be read.
    fn events(&self, query: EventQuery) -> Answer<'_, Page<Recorded>>;

    /// Notes that a token was used at `at`. Never waits; kept about once a minute, and at
    /// [`Store::close`]. Tokens that this store does not keep are left out.
    fn note_use(&self, token: Id, at: Stamp);

    /// When a token was used last.
    fn last_use(&self, token: Id) -> Option<Stamp>;

    /// The secret that is kept under `name`, or `made`, which is kept from then on: whoever asks
    /// first decides for everybody.
    ///
    /// # Errors
    /// It cannot be read or kept.
    fn secret(&self, name: &str, made: Secret) -> Answer<'_, Secret>;

    /// Waits until every event and use that was told before is kept.
    ///
    /// # Errors
    /// They are not, and stay waiting.
    fn flush(&self) -> Answer<'_, ()>;

    /// Finishes what was handed over, lets go of the store, and only then returns: another process
    /// may open it. What comes later is refused.
    ///
    /// # Errors
    /// Events or uses could not be kept. The store is let go all the same.
    fn close(&self) -> Answer<'_, ()>;
}

/// How much of the past is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Retention {
    /// Events; older ones go. Default 100,000.
    pub events_max: u64,
    /// Age of an event. Default 30 days.
    pub events_age: Duration,
    /// Changes in the audit log; older ones go. Default 100,000.
    pub audit_max: u64,
    /// Age of a change in the audit log. Default 365 days.
    pub audit_age: Duration,
}

impl Default for Retention {
    fn default() -> Retention {
        const DAY: Duration = Duration::from_secs(24 * 60 * 60);
        Retention {
            events_max: 100_000,
            events_age: 30 * DAY,
            audit_max: 100_000,
            audit_age: 365 * DAY,
        }
    }
}

/// Who asks for what: the part of an order that the audit log tells.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Intent {
    /// Now; becomes `created_on` and `modified_on`.
    pub at: Stamp,
    /// Who asks.
    pub actor: Actor,
    /// What they ask, such as the method and path of the request.
    pub what: String,
    /// For requests that may come twice.
    pub repeat: Option<Repeat>,
}

/// Says what to write, given the newest state; `None` to write nothing. Runs at most once, and
/// every other change waits for it: pure, and no longer than a few milliseconds.
pub type Check = Box<dyn FnOnce(&State) -> Option<Change> + Send>;

/// An intent and its check.
pub struct Order {
    /// Who asks for what.
    pub intent: Intent,
    /// What to write.
    pub check: Check,
}

impl fmt::Debug for Order {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Order")
            .field("intent", &self.intent)
            .finish_non_exhaustive()
    }
}

/// What became of an order that the store dealt with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// It is kept, or was kept when it first came.
    Written(Written),
    /// The check answered `None`.
    Refused,
    /// What the check answered does not fit the state that it saw.
    Conflict(Conflict),
}

/// A change that is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Written {
    /// The revision that it made; that of the state, if it wrote nothing.
    pub revision: Revision,
    /// What the caller is told.
    pub answer: String,
    /// It was a repeat: nothing was written now, and the answer is the first one's.
    pub repeated: bool,
}

/// Why a change was not made.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ChangeError<E> {
    /// The check refused it, for this reason.
    #[error("{0}")]
    Refused(E),
    /// What the check answered does not fit the state that it saw.
    #[error(transparent)]
    Conflict(Conflict),
    /// The store did not do it.
    #[error(transparent)]
    Store(StoreError),
}

impl dyn Store {
    /// Submits an order whose check may say why it refuses.
    ///
    /// # Errors
    /// Nothing was written.
    pub async fn change<E: Send + 'static>(
        &self,
        intent: Intent,
        check: impl FnOnce(&State) -> Result<Change, E> + Send + 'static,
    ) -> Result<Written, ChangeError<E>> {
        let reason = Arc::new(Mutex::new(None));
        let told = Arc::clone(&reason);
        let check = Box::new(move |state: &State| match check(state) {
            Ok(change) => Some(change),
            Err(refusal) => {
                *told.lock().unwrap_or_else(PoisonError::into_inner) = Some(refusal);
                None
            }
        });
        match self.submit(Order { intent, check }).await {
            Ok(Outcome::Written(written)) => Ok(written),
            Ok(Outcome::Conflict(conflict)) => Err(ChangeError::Conflict(conflict)),
            Ok(Outcome::Refused) => {
                let mut reason = reason.lock().unwrap_or_else(PoisonError::into_inner);
                let reason = reason.take().expect("a check that refuses says why");
                Err(ChangeError::Refused(reason))
            }
            Err(error) => Err(ChangeError::Store(error)),
        }
    }
}
