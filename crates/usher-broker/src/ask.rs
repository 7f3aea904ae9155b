//! What a caller wants, and what is asked of the node that runs it.

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use usher_core::id::Id;
use usher_core::lease::close::CloseReason;
use usher_core::lease::limits::Limits;
use usher_core::lease::line::{Class, WAIT_MAX};
use usher_core::lease::region::Picked;
use usher_core::lease::{RequestId, Stock};

/// Something that takes a while.
pub type Work<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// A wish for a browser.
#[derive(Debug, Clone, Copy)]
pub struct Ask {
    /// The caller's wish, the same however often it is repeated.
    pub request: RequestId,
    /// For whom.
    pub account: Id,
    /// What the account may have.
    pub limits: Limits,
    /// How often the account is served in a round of the line, at least 1.
    pub weight: u32,
    /// Of what.
    pub stock: Stock,
    /// What for. Only a [`Class::Session`] counts as one for its account.
    pub class: Class,
    /// The account has paid for it before and what it got came to nothing: another browser for the
    /// same price. Of quick actions alone, whose price is no place.
    pub paid: bool,
    /// How long the session may be idle.
    pub keep_alive: Duration,
    /// How long to stand in line, if the caller said so; no longer than [`WAIT_MAX`].
    pub wait: Option<Duration>,
    /// The only region that the account may use, by its place in the list of the broker.
    pub only: Option<u16>,
}

impl Ask {
    pub(crate) fn patience(&self) -> Duration {
        self.wait
            .map_or(self.class.wait(), |wait| wait.min(WAIT_MAX))
    }
}

/// The nodes, as one request needs them: what the browser is to be prepared with is known here.
pub trait Node: Send + Sync {
    /// How far the nearest node of a region is that can be spoken to; `None` while none can.
    fn distance(&self, _region: u16) -> Option<Duration> {
        Some(Duration::ZERO)
    }

    /// Has the node prepare the browser for its session. False when it refuses. Given up after
    /// [`usher_core::lease::browser::PICKED_MAX`].
    fn prepare(&self, region: u16, picked: Picked) -> Work<'_, bool>;

    /// Has the node end the browser. Whether it does is watched by others.
    fn close(&self, region: u16, picked: Picked, reason: CloseReason) -> Work<'_, ()>;
}
