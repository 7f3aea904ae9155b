//! The one timer of a connection.
//!
//! Every request moves a deadline several times, and almost none is ever reached. So moving one
//! later is a store: the timer stays armed for an earlier moment, and when that comes it is armed
//! for the real one. Only a deadline that is nearer than the armed one touches the timer wheel.

use std::future::Future as _;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::task::unconstrained;
use tokio::time::{Instant, Sleep, sleep_until};

/// A deadline that is cheap to move.
#[derive(Debug)]
pub(crate) struct Deadline {
    sleep: Pin<Box<Sleep>>,
    due: Instant,
}

impl Deadline {
    /// Due `after` from now.
    pub(crate) fn new(after: Duration) -> Deadline {
        let due = Instant::now() + after;
        Deadline {
            sleep: Box::pin(sleep_until(due)),
            due,
        }
    }

    /// Due at `due`, whatever it was before.
    pub(crate) fn set(&mut self, due: Instant) {
        self.due = due;
        if due < self.sleep.deadline() {
            self.sleep.as_mut().reset(due);
        }
    }

    /// Due `after` from now.
    pub(crate) fn set_after(&mut self, after: Duration) {
        self.set(Instant::now() + after);
    }

    /// Ready when it is due.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        loop {
            // Not a matter of fairness between tasks: a peer that keeps this one busy must not be
            // able to put its deadline off.
            ready!(pin!(unconstrained(self.sleep.as_mut())).poll(cx));
            if self.sleep.deadline() >= self.due {
                return Poll::Ready(());
            }
            self.sleep.as_mut().reset(self.due);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    async fn reached(deadline: &mut Deadline) {
        std::future::poll_fn(|cx| deadline.poll(cx)).await;
    }

    #[tokio::test(start_paused = true)]
    async fn it_is_due_where_it_was_moved_last() {
        let start = Instant::now();
        let mut deadline = Deadline::new(5 * SECOND);
        deadline.set(start + 9 * SECOND);
        reached(&mut deadline).await;
        assert_eq!(start.elapsed().as_secs(), 9);
        deadline.set(start + 30 * SECOND);
        deadline.set(start + 12 * SECOND);
        reached(&mut deadline).await;
        assert_eq!(start.elapsed().as_secs(), 12);
    }

    #[tokio::test(start_paused = true)]
    async fn a_task_that_has_used_up_its_turn_is_still_told() {
        let mut deadline = Deadline::new(SECOND);
        tokio::time::advance(2 * SECOND).await;
        let told = std::future::poll_fn(|cx| {
            while let Poll::Ready(turn) = tokio::task::coop::poll_proceed(cx) {
                turn.made_progress();
            }
            Poll::Ready(deadline.poll(cx).is_ready())
        });
        assert!(told.await);
    }

    #[tokio::test(start_paused = true)]
    async fn moving_it_later_leaves_the_timer_alone() {
        let mut deadline = Deadline::new(SECOND);
        let armed = deadline.sleep.deadline();
        deadline.set_after(100 * SECOND);
        assert_eq!(deadline.sleep.deadline(), armed);
    }
}
