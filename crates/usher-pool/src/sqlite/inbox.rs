//! What waits for the writer: questions, and heartbeats.
//!
//! One mutex, held for moments: questions come by the thousand a second, heartbeats in groups. The
//! heartbeats are `usher_core`'s queue, so what it bounds and drops is what the simulator has seen.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::oneshot;
use usher_core::lease::beat::{self, Batch, Freshness, Heartbeat, Queue};
use usher_core::lease::{Boot, NodeId};
use usher_core::time::Mono;

use super::desk::Desk;
use crate::fault::Fault;
use crate::settings::Figures;

/// Questions in one transaction. Few, because a heartbeat batch that is due waits for them.
const TURN_MAX: usize = 64;

/// A question.
pub(super) trait Task: Send {
    /// Does it, inside a transaction that others may be in too.
    fn run(&mut self, desk: &mut Desk<'_>) -> Result<(), Fault>;
    /// Tells whoever asked, after the transaction has ended so.
    fn settle(self: Box<Self>, kept: Result<(), Fault>);
    /// When it was asked.
    fn since(&self) -> Instant;
    /// Nobody wants it any more.
    fn is_left(&self) -> bool;
}

/// Nobody waiting for an answer is no fault.
pub(super) type Reply<T> = oneshot::Sender<Result<T, Fault>>;

/// What the writer is asked to do.
pub(super) enum Job {
    Task(Box<dyn Task>),
    Flush(Reply<()>),
    Stop(Reply<()>),
}

#[derive(Debug)]
pub(super) struct Inbox {
    began: Instant,
    inside: Mutex<Inside>,
    came: Condvar,
}

struct Inside {
    jobs: VecDeque<Job>,
    beats: Queue,
    /// The oldest heartbeat that was taken out and is not written.
    under_way: Option<Mono>,
    freshness: Freshness,
    figures: Figures,
    told_of_loss: u64,
    closed: bool,
}

impl std::fmt::Debug for Inside {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Inside")
            .field("jobs", &self.jobs.len())
            .field("beats", &self.beats.len())
            .finish_non_exhaustive()
    }
}

impl Inbox {
    pub(super) fn new(settings: beat::Settings) -> Inbox {
        Inbox {
            began: Instant::now(),
            inside: Mutex::new(Inside {
                jobs: VecDeque::new(),
                beats: Queue::new(settings),
                under_way: None,
                freshness: Freshness::Fresh,
                figures: Figures::default(),
                told_of_loss: 0,
                closed: false,
            }),
            came: Condvar::new(),
        }
    }

    fn inside(&self) -> MutexGuard<'_, Inside> {
        // Whatever is inside is whole after each statement.
        self.inside.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now(&self) -> Mono {
        let nanos = self.began.elapsed().as_nanos();
        Mono::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }

    /// Puts a job in; gives it back when nobody takes jobs any more.
    pub(super) fn put(&self, job: Job) -> Result<(), Job> {
        let mut inside = self.inside();
        if inside.closed {
            return Err(job);
        }
        inside.jobs.push_back(job);
        drop(inside);
        self.came.notify_one();
        Ok(())
    }

    pub(super) fn put_beats(&self, (node, boot): (NodeId, Boot), beats: &[Heartbeat]) {
        let now = self.now();
        let mut inside = self.inside();
        inside.figures.received += beats.len() as u64;
        if inside.closed {
            inside.figures.dropped_failed += beats.len() as u64;
            return;
        }
        let was_empty = inside.beats.is_empty();
        for &beat in beats {
            inside.beats.push(node, boot, beat, now);
        }
        // The writer wakes by itself when the first has waited long enough.
        let full = inside.beats.len() >= inside.beats.settings().batch_size;
        drop(inside);
        if was_empty || full {
            self.came.notify_one();
        }
    }

    /// Waits until there is something to do and takes it: jobs up to a turn's worth, and a batch
    /// if `wants_batch` and one is due. Does not wait when the writer is `busy` with what it could
    /// not do yet.
    pub(super) fn take(
        &self,
        jobs: &mut VecDeque<Job>,
        wants_batch: bool,
        busy: bool,
    ) -> Option<Batch> {
        let mut inside = self.inside();
        loop {
            let now = self.now();
            inside.look(now);
            let room = TURN_MAX.saturating_sub(jobs.len()).min(inside.jobs.len());
            jobs.extend(inside.jobs.drain(..room));
            let pending = match wants_batch {
                true => inside.take_batch(now, now),
                false => None,
            };
            if pending.is_some() || !jobs.is_empty() || busy {
                return pending;
            }
            let due = inside.beats.poll_timeout().filter(|_| wants_batch);
            inside = match due {
                Some(due) => {
                    // Never quite zero, or a clock that stands still would be asked for ever.
                    let wait = due.since(now).max(Duration::from_micros(100));
                    let waited = self.came.wait_timeout(inside, wait);
                    waited.unwrap_or_else(PoisonError::into_inner).0
                }
                None => {
                    let waited = self.came.wait(inside);
                    waited.unwrap_or_else(PoisonError::into_inner)
                }
            };
        }
    }

    /// The next batch, whether it is due or not.
    pub(super) fn take_any(&self) -> Option<Batch> {
        let (now, end) = (self.now(), Mono::from_nanos(u64::MAX));
        self.inside().take_batch(now, end)
    }

    /// A batch that was taken out is written: so many of it counted.
    pub(super) fn wrote(&self, len: usize, counted: u64, took: Duration) {
        let mut inside = self.inside();
        inside.under_way = None;
        inside.figures.batches += 1;
        inside.figures.counted += counted;
        inside.figures.outdated += (len as u64).saturating_sub(counted);
        inside.figures.writing += took;
    }

    /// A batch that was taken out is given up.
    pub(super) fn gave_up(&self, len: usize) {
        let mut inside = self.inside();
        inside.under_way = None;
        inside.figures.dropped_failed += len as u64;
    }

    /// Nothing is taken any more. What waits is given back.
    pub(super) fn close(&self) -> VecDeque<Job> {
        let mut inside = self.inside();
        inside.closed = true;
        std::mem::take(&mut inside.jobs)
    }

    pub(super) fn figures(&self) -> Figures {
        let now = self.now();
        let mut inside = self.inside();
        inside.look(now);
        Figures {
            dropped_full: inside.beats.dropped(),
            waiting: inside.beats.len(),
            age: inside.age(now),
            degraded: inside.freshness.is_degraded(),
            ..inside.figures
        }
    }
}

impl Inside {
    fn age(&self, now: Mono) -> Duration {
        let under_way = self.under_way.map(|since| now.since(since));
        self.beats.age(now).max(under_way.unwrap_or_default())
    }

    /// `when` decides what is due.
    fn take_batch(&mut self, now: Mono, when: Mono) -> Option<Batch> {
        let age = self.beats.age(now);
        let batch = self.beats.poll_batch(when)?;
        let age = u64::try_from(age.as_nanos()).unwrap_or(u64::MAX);
        self.under_way = Some(Mono::from_nanos(now.as_nanos().saturating_sub(age)));
        Some(batch)
    }

    /// Judges the queue, and says so when it is lossy or no longer is.
    fn look(&mut self, now: Mono) {
        let before = self.freshness;
        self.freshness = before.next(self.age(now), now);
        if self.freshness.is_degraded() != before.is_degraded() {
            let age = self.age(now);
            match self.freshness.is_degraded() {
                true => tracing::warn!(?age, "heartbeats of browsers wait too long"),
                false => tracing::info!(?age, "heartbeats of browsers are on time again"),
            }
        }
        let lost = self.beats.dropped() + self.figures.dropped_failed;
        // Each tenfold is said once: what is lost without end must not fill the log.
        if lost > self.told_of_loss.saturating_mul(10) {
            self.told_of_loss = lost;
            tracing::warn!(
                lost,
                full = self.beats.dropped(),
                failed = self.figures.dropped_failed,
                "heartbeats of browsers were dropped"
            );
        }
    }
}
