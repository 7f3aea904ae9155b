//! How fronts reach the owner of a room.

use std::sync::Arc;

use arc_swap::{ArcSwap, Guard};
use tokio::sync::{mpsc, oneshot};
use usher_core::admission::{Answer, Claims, End, Room, Settings, Summary, Visitor};

use super::Tally;

/// Orders that wait for the owner, at most. An owner carries out some hundred thousand a second.
pub const ORDERS_MAX: usize = 16_384;

/// The owner has no answer: it is gone, it is behind by [`ORDERS_MAX`] orders, or its journal fails
/// and the room is set to let nobody in then.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the room has no answer")]
pub struct Unanswered;

/// What the owner lets everybody know, twice a second, and at once when somebody is called.
#[derive(Debug, Clone)]
pub struct Bulletin {
    /// What waiting visitors are answered from.
    pub summary: Summary,
    /// What the room is set to.
    pub settings: Settings,
    /// When it was set so, ms.
    pub set_at: u64,
    /// When somebody was last let in from the line, ms.
    pub moved: Option<u64>,
    /// What happens now may not outlive the process.
    pub degraded: bool,
    /// What the room has done since its owner began.
    pub tally: Tally,
}

impl Bulletin {
    /// Of a room where nobody is.
    fn of_nobody(settings: Settings, now: u64) -> Bulletin {
        Bulletin {
            summary: Room::default().summary(&settings, now),
            settings,
            set_at: now,
            moved: None,
            degraded: false,
            tally: Tally::default(),
        }
    }
}

#[derive(Debug)]
pub(super) enum Order {
    Ask {
        visitor: Visitor,
        claims: Option<Claims>,
        reply: oneshot::Sender<Result<Answer, Unanswered>>,
    },
    Renew {
        visitor: Visitor,
        claims: Option<Claims>,
        reply: oneshot::Sender<Result<Answer, Unanswered>>,
    },
    CheckIn(Vec<Visitor>),
    End {
        visitor: Visitor,
        cause: End,
    },
    Set(Settings, OnStoreFailure),
    Close(oneshot::Sender<()>),
}

/// Who is let in while the journal cannot be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum OnStoreFailure {
    /// The room goes on from memory: a crash meanwhile forgets whom it let in.
    #[default]
    Bounded,
    /// Nobody new.
    Closed,
    /// Everybody, without a seat.
    Open,
}

/// A way to the owner of one room. Nothing here waits or takes a lock.
#[derive(Debug, Clone)]
pub struct Post {
    orders: mpsc::Sender<Order>,
    bulletin: Arc<ArcSwap<Bulletin>>,
}

/// An answer on its way.
#[derive(Debug)]
pub struct Pending(oneshot::Receiver<Result<Answer, Unanswered>>);

impl Pending {
    /// The answer, when it is there.
    ///
    /// # Errors
    /// There will be none.
    pub async fn answer(self) -> Result<Answer, Unanswered> {
        self.0.await.unwrap_or(Err(Unanswered))
    }

    /// The answer, if it is there by now.
    pub fn now(&mut self) -> Option<Result<Answer, Unanswered>> {
        match self.0.try_recv() {
            Ok(answer) => Some(answer),
            Err(oneshot::error::TryRecvError::Empty) => None,
            Err(oneshot::error::TryRecvError::Closed) => Some(Err(Unanswered)),
        }
    }
}

/// The place of an owner that is still to come: what is asked waits there, for as long as whoever
/// asked does. A desk that is dropped stays empty, and then nothing has an answer.
#[derive(Debug)]
pub struct Desk {
    pub(super) orders: mpsc::Receiver<Order>,
    pub(super) bulletin: Arc<ArcSwap<Bulletin>>,
}

impl Desk {
    /// A desk and the way to it, at `now` (ms). Nothing is known of the room yet, so its bulletin
    /// takes it for full: whoever can be answered from a cookie is, all else waits for the owner.
    #[must_use]
    pub fn new(settings: Settings, now: u64) -> (Post, Desk) {
        let full = Settings {
            total: 0,
            ..settings
        };
        Desk::with(Bulletin {
            settings,
            ..Bulletin::of_nobody(full, now)
        })
    }

    fn with(bulletin: Bulletin) -> (Post, Desk) {
        let (sender, orders) = mpsc::channel(ORDERS_MAX);
        let bulletin = Arc::new(ArcSwap::from_pointee(bulletin));
        let post = Post {
            orders: sender,
            bulletin: Arc::clone(&bulletin),
        };
        (post, Desk { orders, bulletin })
    }
}

impl Post {
    /// The way to nobody: a room that is taken to be empty, for those who only want to know what it
    /// would say.
    #[must_use]
    pub fn presumed(settings: Settings, now: u64) -> Post {
        Desk::with(Bulletin::of_nobody(settings, now)).0
    }

    /// Whether there is no owner and none will come: its journal cannot be used, or it has ended.
    #[must_use]
    pub fn is_gone(&self) -> bool {
        self.orders.is_closed()
    }

    /// The newest bulletin.
    #[must_use]
    pub fn bulletin(&self) -> Guard<Arc<Bulletin>> {
        self.bulletin.load()
    }

    /// Asks for `visitor`, who came with `claims`.
    ///
    /// # Errors
    /// There will be no answer.
    pub fn ask(&self, visitor: Visitor, claims: Option<Claims>) -> Result<Pending, Unanswered> {
        let (reply, pending) = oneshot::channel();
        self.send(Order::Ask {
            visitor,
            claims,
            reply,
        })?;
        Ok(Pending(pending))
    }

    /// Renews the seat of `visitor`, whose request is on its way.
    ///
    /// # Errors
    /// It is not renewed.
    pub fn renew(&self, visitor: Visitor, claims: Option<Claims>) -> Result<Pending, Unanswered> {
        let (reply, pending) = oneshot::channel();
        self.send(Order::Renew {
            visitor,
            claims,
            reply,
        })?;
        Ok(Pending(pending))
    }

    /// These waiting visitors were seen.
    ///
    /// # Errors
    /// Nobody heard of it.
    pub fn check_in(&self, visitors: Vec<Visitor>) -> Result<(), Unanswered> {
        self.send(Order::CheckIn(visitors))
    }

    /// Gives up the seat or ticket of `visitor`.
    ///
    /// # Errors
    /// It is kept, until time ends it.
    pub fn end(&self, visitor: Visitor, cause: End) -> Result<(), Unanswered> {
        self.send(Order::End { visitor, cause })
    }

    /// Changes the settings.
    ///
    /// # Errors
    /// The owner is gone.
    pub async fn set(
        &self,
        settings: Settings,
        on_failure: OnStoreFailure,
    ) -> Result<(), Unanswered> {
        let order = Order::Set(settings, on_failure);
        self.orders.send(order).await.map_err(|_| Unanswered)
    }

    /// Ends the owner: it decides nothing from then on, and its journal is closed when this returns.
    pub async fn close(&self) {
        let (closed, done) = oneshot::channel();
        if self.orders.send(Order::Close(closed)).await.is_ok() {
            // An owner that is gone has let its files go.
            let _ = done.await;
        }
    }

    fn send(&self, order: Order) -> Result<(), Unanswered> {
        self.orders.try_send(order).map_err(|_| Unanswered)
    }
}
