//! How one worker's connections learn that their listener is going away.
//!
//! Most never wait for it: an HTTP/1.1 connection looks at [`Drain::started`] when it writes an
//! answer and says `Connection: close` with it, because closing an idle connection could cut a
//! request that is already on its way. Only who must speak first (GOAWAY) waits. One worker, one
//! thread: no lock and no atomic.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use slab::Slab;

/// Whether a listener of this worker is going away.
#[derive(Debug, Default)]
pub struct Drain {
    started: Cell<bool>,
    cut: Cell<bool>,
    waiting: RefCell<Slab<Waker>>,
}

impl Drain {
    /// True once the listener is going away: the next answer on a connection is its last.
    #[must_use]
    pub fn started(&self) -> bool {
        self.started.get()
    }

    /// Starts it, and wakes everybody who waits for it. It does not end.
    pub fn start(&self) {
        self.started.set(true);
        for waker in self.waiting.borrow_mut().drain() {
            waker.wake();
        }
    }

    /// True once connections are cut: what breaks off now is not their peers' doing.
    #[must_use]
    pub fn is_cut(&self) -> bool {
        self.cut.get()
    }

    /// Starts it if it has not, and has what is left cut.
    pub fn cut(&self) {
        self.cut.set(true);
        self.start();
    }

    /// Waits until it starts.
    #[must_use]
    pub fn wait(self: &Rc<Drain>) -> Wait {
        Wait {
            drain: Rc::clone(self),
            key: None,
        }
    }
}

/// Made by [`Drain::wait`].
#[derive(Debug)]
pub struct Wait {
    drain: Rc<Drain>,
    key: Option<usize>,
}

impl Future for Wait {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        if self.drain.started() {
            return Poll::Ready(());
        }
        let drain = Rc::clone(&self.drain);
        let mut waiting = drain.waiting.borrow_mut();
        match self.key {
            Some(key) => waiting[key].clone_from(cx.waker()),
            None => self.key = Some(waiting.insert(cx.waker().clone())),
        }
        Poll::Pending
    }
}

impl Drop for Wait {
    fn drop(&mut self) {
        if let Some(key) = self.key {
            // Not there any more once the drain has started.
            self.drain.waiting.borrow_mut().try_remove(key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn who_waits_is_woken_and_who_left_is_forgotten() {
        let drain = Rc::new(Drain::default());
        let mut gone = drain.wait();
        let mut stays = drain.wait();
        let mut cx = Context::from_waker(Waker::noop());
        assert!(Pin::new(&mut gone).poll(&mut cx).is_pending());
        assert!(Pin::new(&mut stays).poll(&mut cx).is_pending());
        drop(gone);
        assert_eq!(drain.waiting.borrow().len(), 1);
        drain.start();
        assert!(drain.started());
        stays.await;
        drain.wait().await;
        assert!(drain.waiting.borrow().is_empty());
    }
}
