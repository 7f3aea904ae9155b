//! The connections of one listener, over all workers: how many are open, and when the last left.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::Notify;

/// Connections of one listener.
#[derive(Debug, Default)]
pub(crate) struct Guests {
    open: AtomicUsize,
    left: Notify,
}

impl Guests {
    pub(crate) fn welcome(self: &Arc<Self>) -> Guest {
        self.open.fetch_add(1, Ordering::Relaxed);
        Guest(Arc::clone(self))
    }

    pub(crate) fn open(&self) -> usize {
        self.open.load(Ordering::Relaxed)
    }

    /// Waits until none is open. Only useful once no more can come.
    pub(crate) async fn all_left(&self) {
        loop {
            let mut left = pin!(self.left.notified());
            // From here on a guest that leaves is noticed, also between the look and the wait.
            left.as_mut().enable();
            if self.open() == 0 {
                return;
            }
            left.await;
        }
    }
}

/// One connection; it has left when this is dropped.
#[derive(Debug)]
pub(crate) struct Guest(Arc<Guests>);

impl Drop for Guest {
    fn drop(&mut self) {
        if self.0.open.fetch_sub(1, Ordering::Relaxed) == 1 {
            self.0.left.notify_waiters();
        }
    }
}
