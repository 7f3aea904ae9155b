//! The task that writes, and nobody else does.
//!
//! It answers orders as they come, and between them keeps what may wait: events, gathered for a
//! moment, and once a minute the uses of tokens. After any fault the connection is given up and
//! opened anew, so that no half of a transaction outlives the answer that told of it.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, MissedTickBehavior, interval_at, sleep_until};
use usher_core::id::Id;

use super::open::Database;
use super::{Shared, order, recall};
use crate::event::Event;
use crate::fault::Fault;
use crate::resource::Kind;
use crate::secret::Secret;
use crate::stamp::Stamp;
use crate::store::{Order, Outcome, Retention};

/// Orders in one transaction.
const BATCH_MAX: usize = 64;

/// Events in one transaction. Few, because an order that comes meanwhile waits for them.
const EVENTS_BATCH_MAX: usize = 64;

/// How long the first event waits for others.
const GATHER: Duration = Duration::from_millis(100);

/// How long events wait after they could not be kept.
const EVENTS_PAUSE: Duration = Duration::from_secs(1);

/// How often uses of tokens are kept and old rows go.
const HOUSEKEEPING_EVERY: Duration = Duration::from_secs(60);

/// What the writer is asked to do.
pub(super) enum Job {
    Order(Order, Reply<Outcome>),
    Secret(String, Secret, Reply<Secret>),
    Flush(Reply<()>),
    Close(Reply<()>),
}

/// Nobody waiting for an answer is no fault.
type Reply<T> = oneshot::Sender<Result<T, Fault>>;

pub(super) struct Writer {
    place: Arc<str>,
    database: Database,
    shared: Arc<Shared>,
    retention: Retention,
    /// Events that wait to be kept, at most [`EVENTS_BATCH_MAX`].
    gathered: Vec<Event>,
    /// When they are to be kept.
    due: Instant,
    /// Events could not be kept, and that was said.
    troubled: bool,
    /// So could changes not be.
    failing: bool,
}

impl Writer {
    pub(super) fn new(
        place: Arc<str>,
        database: Database,
        shared: Arc<Shared>,
        retention: Retention,
    ) -> Writer {
        Writer {
            place,
            database,
            shared,
            retention,
            gathered: Vec::new(),
            due: Instant::now(),
            troubled: false,
            failing: false,
        }
    }

    /// Until the store is closed, or nobody is left who could ask.
    pub(super) async fn run(
        mut self,
        mut jobs: mpsc::Receiver<Job>,
        mut events: mpsc::Receiver<Event>,
    ) {
        let first = Instant::now() + HOUSEKEEPING_EVERY;
        let mut housekeeping = interval_at(first, HOUSEKEEPING_EVERY);
        housekeeping.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut batch = Vec::with_capacity(BATCH_MAX);
        let closed = loop {
            let room = EVENTS_BATCH_MAX.saturating_sub(self.gathered.len());
            tokio::select! {
                count = jobs.recv_many(&mut batch, BATCH_MAX) => {
                    if count == 0 {
                        break None;
                    }
                    if let Some(reply) = self.serve(&mut batch, &mut events).await {
                        break Some(reply);
                    }
                }
                count = events.recv_many(&mut self.gathered, room), if room > 0 => {
                    self.came(count);
                }
                () = sleep_until(self.due), if !self.gathered.is_empty() => {
                    // It says what went wrong itself, and they stay.
                    let _ = self.keep_gathered().await;
                }
                _ = housekeeping.tick() => self.keep_house().await,
            }
        };
        jobs.close();
        events.close();
        let flushed = self.flush(&mut events).await;
        let lost = self.gathered.len() + events.len();
        self.shared.drop_events(lost as u64);
        self.database.disconnect().await;
        // The lock is free before anybody hears that it is.
        drop(self);
        if let Some(reply) = closed {
            let _ = reply.send(flushed);
        }
    }

    /// Does all jobs of a batch, orders that follow each other in one transaction. Gives back who
    /// asked to close; what came after that is refused.
    async fn serve(
        &mut self,
        batch: &mut Vec<Job>,
        events: &mut mpsc::Receiver<Event>,
    ) -> Option<Reply<()>> {
        let mut orders = Vec::new();
        for job in batch.drain(..) {
            if let Job::Order(order, reply) = job {
                orders.push((order, reply));
                continue;
            }
            self.commit(std::mem::take(&mut orders)).await;
            match job {
                Job::Order(..) => {}
                Job::Secret(name, made, reply) => {
                    let _ = reply.send(self.secret(&name, &made).await);
                }
                Job::Flush(reply) => {
                    let _ = reply.send(self.flush(events).await);
                }
                Job::Close(reply) => return Some(reply),
            }
        }
        self.commit(orders).await;
        None
    }

    async fn commit(&mut self, orders: Vec<(Order, Reply<Outcome>)>) {
        if orders.is_empty() {
            return;
        }
        let (orders, replies): (Vec<_>, Vec<_>) = orders.into_iter().unzip();
        let outcomes = match self.carry_out(orders).await {
            Ok(outcomes) => outcomes,
            Err(fault) => {
                self.database.disconnect().await;
                // Every caller is told; the log needs it once.
                if !self.failing {
                    tracing::warn!(place = %self.place, %fault, "changes cannot be kept");
                }
                self.failing = true;
                vec![Err(fault); replies.len()]
            }
        };
        for (reply, outcome) in replies.into_iter().zip(outcomes) {
            let _ = reply.send(outcome);
        }
    }

    async fn carry_out(
        &mut self,
        orders: Vec<Order>,
    ) -> Result<Vec<Result<Outcome, Fault>>, Fault> {
        let known = Arc::clone(&self.shared.state.borrow());
        let connection = self.database.connection().await?;
        let batch = order::carry_out(connection, &known, orders, &self.retention).await?;
        if let Some(state) = batch.state {
            if self.failing {
                tracing::info!(place = %self.place, "changes are kept again");
            }
            self.failing = false;
            self.shared.state.send_replace(Arc::new(state));
        }
        Ok(batch.outcomes)
    }

    async fn secret(&mut self, name: &str, made: &Secret) -> Result<Secret, Fault> {
        let kept = match self.database.connection().await {
            Ok(connection) => recall::secret(connection, name, made).await,
            Err(fault) => Err(fault),
        };
        self.checked(kept).await
    }

    /// Says when the events that are gathered by now are to be kept, of which `count` are new.
    fn came(&mut self, count: usize) {
        if self.gathered.len() == count {
            self.due = Instant::now() + GATHER;
        }
        if self.gathered.len() >= EVENTS_BATCH_MAX && !self.troubled {
            self.due = Instant::now();
        }
    }

    /// Keeps every event and use that was told before.
    async fn flush(&mut self, events: &mut mpsc::Receiver<Event>) -> Result<(), Fault> {
        // No more than there are now, or somebody who never stops telling would keep us here.
        let mut waiting = events.len();
        loop {
            while self.gathered.len() < EVENTS_BATCH_MAX && waiting > 0 {
                waiting -= 1;
                match events.try_recv() {
                    Ok(event) => self.gathered.push(event),
                    Err(_) => waiting = 0,
                }
            }
            if self.gathered.is_empty() {
                break;
            }
            self.keep_gathered().await?;
        }
        self.keep_uses().await
    }

    async fn keep_gathered(&mut self) -> Result<(), Fault> {
        let kept = match self.database.connection().await {
            Ok(connection) => recall::events(connection, &self.gathered, &self.retention).await,
            Err(fault) => Err(fault),
        };
        match self.checked(kept).await {
            Ok(()) => {
                self.gathered.clear();
                self.troubled = false;
                Ok(())
            }
            Err(fault) => {
                if !self.troubled {
                    tracing::warn!(place = %self.place, %fault, "events wait, they cannot be kept");
                }
                self.troubled = true;
                self.due = Instant::now() + EVENTS_PAUSE;
                Err(fault)
            }
        }
    }

    async fn keep_uses(&mut self) -> Result<(), Fault> {
        let state = Arc::clone(&self.shared.state.borrow());
        let uses: Vec<(Id, Stamp)> = self.shared.uses(|uses| {
            let there = |token: &Id| state.find(Kind::Token, *token).is_some();
            uses.at.retain(|token, _| there(token));
            let unkept = std::mem::take(&mut uses.unkept);
            let at = |token: Id| Some((token, *uses.at.get(&token)?));
            unkept.into_iter().filter_map(at).collect()
        });
        if uses.is_empty() {
            return Ok(());
        }
        let kept = match self.database.connection().await {
            Ok(connection) => recall::uses(connection, &uses).await,
            Err(fault) => Err(fault),
        };
        let kept = self.checked(kept).await;
        if kept.is_err() {
            let again = uses.into_iter().map(|(token, _)| token);
            self.shared.uses(|uses| uses.unkept.extend(again));
        }
        kept
    }

    async fn keep_house(&mut self) {
        let kept = self.keep_uses().await;
        let trimmed = match self.database.connection().await {
            Ok(connection) => recall::trim(connection, Stamp::now(), &self.retention).await,
            Err(fault) => Err(fault),
        };
        let trimmed = self.checked(trimmed).await;
        if let Err(fault) = kept.and(trimmed) {
            tracing::warn!(place = %self.place, %fault, "the store could not be tidied");
        }
    }

    /// Gives the connection up after a fault.
    async fn checked<T>(&mut self, done: Result<T, Fault>) -> Result<T, Fault> {
        if done.is_err() {
            self.database.disconnect().await;
        }
        done
    }
}
