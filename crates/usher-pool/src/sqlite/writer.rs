//! The thread that writes, and nobody else does.
//!
//! Questions that have come while the last transaction was under way are one transaction; then one
//! batch of heartbeats is, if one is due, and so on in turns, so that neither waits for more than
//! the other's turn. Nobody is told anything before it is committed.
//!
//! A pool that another program keeps locked is asked for again and again. Questions wait for it as
//! long as patience allows, heartbeats stay in their queue, where their age shows. After any other
//! fault the connection is given up and opened anew, so that no half of a transaction outlives the
//! answer that told of it.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use rusqlite::Connection;
use tokio::sync::broadcast;
use usher_core::lease::beat::Batch;

use super::desk::{Desk, Keys};
use super::inbox::{Inbox, Job, Reply, Task};
use super::open::Database;
use crate::fault::Fault;
use crate::pool::News;
use crate::settings::{Clock, Settings};

pub(super) struct Writer {
    pub(super) place: Arc<str>,
    pub(super) database: Database,
    pub(super) connection: Option<Connection>,
    pub(super) keys: Keys,
    pub(super) inbox: Arc<Inbox>,
    pub(super) clock: Clock,
    pub(super) settings: Settings,
    pub(super) news: broadcast::Sender<News>,
    /// What cannot be kept was said.
    pub(super) failing: bool,
}

impl Writer {
    /// Until it is told to stop.
    pub(super) fn run(mut self) {
        let mut jobs = VecDeque::new();
        let mut pending: Option<Batch> = None;
        let stopped = loop {
            let busy = !jobs.is_empty() || pending.is_some();
            let batch = self.inbox.take(&mut jobs, pending.is_none(), busy);
            pending = pending.or(batch);
            if let Some(reply) = self.serve(&mut jobs, &mut pending) {
                break reply;
            }
            if let Some(batch) = pending.take() {
                pending = self.write(batch);
            }
        };
        let flushed = self.flush(&mut pending);
        let mut left = self.inbox.close();
        left.extend(jobs);
        if let Some(pending) = pending {
            self.inbox.gave_up(pending.len());
        }
        while let Some(lost) = self.inbox.take_any() {
            self.inbox.gave_up(lost.len());
        }
        // The lock is free before anybody hears that it is.
        drop(self);
        for job in left {
            match job {
                Job::Task(task) => task.settle(Err(Fault::Closed)),
                Job::Flush(reply) | Job::Stop(reply) => {
                    let _ = reply.send(Err(Fault::Closed));
                }
            }
        }
        let _ = stopped.send(flushed);
    }

    /// Does what can be done of `jobs`, in order. Gives back who asked to stop.
    fn serve(
        &mut self,
        jobs: &mut VecDeque<Job>,
        pending: &mut Option<Batch>,
    ) -> Option<Reply<()>> {
        while let Some(job) = jobs.pop_front() {
            match job {
                Job::Task(task) => {
                    let mut tasks = vec![task];
                    while let Some(Job::Task(_)) = jobs.front() {
                        if let Some(Job::Task(task)) = jobs.pop_front() {
                            tasks.push(task);
                        }
                    }
                    let waiting = self.answer(tasks);
                    if !waiting.is_empty() {
                        for task in waiting.into_iter().rev() {
                            jobs.push_front(Job::Task(task));
                        }
                        return None;
                    }
                }
                Job::Flush(reply) => {
                    let _ = reply.send(self.flush(pending));
                }
                Job::Stop(reply) => return Some(reply),
            }
        }
        None
    }

    /// Answers questions in one transaction. Gives those back that can wait for the lock of
    /// another program.
    fn answer(&mut self, mut tasks: Vec<Box<dyn Task>>) -> Vec<Box<dyn Task>> {
        tasks.retain(|task| !task.is_left());
        if tasks.is_empty() {
            return tasks;
        }
        let done = self.transact(|desk| {
            for task in &mut tasks {
                task.run(desk)?;
            }
            Ok(())
        });
        match done {
            Ok(()) => tasks.into_iter().for_each(|task| task.settle(Ok(()))),
            Err(Undone::Locked) => {
                let patience = self.settings.patience;
                let (late, waiting): (Vec<_>, Vec<_>) = tasks
                    .into_iter()
                    .partition(|task| task.since().elapsed() >= patience);
                if !late.is_empty() {
                    self.fails(&Fault::Busy);
                }
                late.into_iter()
                    .for_each(|task| task.settle(Err(Fault::Busy)));
                return waiting;
            }
            Err(Undone::Failed(fault)) => {
                for task in tasks {
                    task.settle(Err(fault.clone()));
                }
            }
        }
        Vec::new()
    }

    /// Writes a batch of heartbeats. Gives it back if it is to be tried once more.
    fn write(&mut self, batch: Batch) -> Option<Batch> {
        let began = Instant::now();
        let done = self.transact(|desk| {
            let groups = batch.groups.iter();
            groups
                .map(|group| desk.heartbeats(group))
                .sum::<Result<u64, Fault>>()
        });
        let len = batch.len();
        match done {
            Ok(counted) => self.inbox.wrote(len, counted, began.elapsed()),
            // It has not been tried.
            Err(Undone::Locked) => return Some(batch),
            Err(Undone::Failed(_)) => match batch.again(&self.settings.beats) {
                Some(batch) => return Some(batch),
                None => self.inbox.gave_up(len),
            },
        }
        None
    }

    /// Writes all heartbeats that there are.
    fn flush(&mut self, pending: &mut Option<Batch>) -> Result<(), Fault> {
        let deadline = Instant::now() + self.settings.patience;
        while let Some(batch) = pending.take().or_else(|| self.inbox.take_any()) {
            *pending = self.write(batch);
            if pending.is_some() && Instant::now() >= deadline {
                return Err(Fault::Busy);
            }
        }
        Ok(())
    }

    /// Runs `work` in a transaction of its own.
    fn transact<T>(
        &mut self,
        work: impl FnOnce(&mut Desk<'_>) -> Result<T, Fault>,
    ) -> Result<T, Undone> {
        let connection = match self.begin() {
            Ok(connection) => connection,
            Err(Fault::Busy) => return Err(Undone::Locked),
            Err(fault) => return Err(self.failed(fault)),
        };
        let mut news = Vec::new();
        let mut desk = Desk {
            connection: &connection,
            keys: &mut self.keys,
            now: self.clock.now(),
            news: &mut news,
            retention: self.settings.retention,
        };
        let done = work(&mut desk).and_then(|done| {
            run(&connection, "COMMIT")?;
            Ok(done)
        });
        match done {
            Ok(done) => {
                self.connection = Some(connection);
                if std::mem::take(&mut self.failing) {
                    tracing::info!(place = %self.place, "the browser pool is kept again");
                }
                for news in news {
                    // Nobody may be listening.
                    let _ = self.news.send(news);
                }
                Ok(done)
            }
            Err(fault) => {
                // Closing it ends what it began.
                drop(connection);
                Err(self.failed(fault))
            }
        }
    }

    /// Takes the connection, opened anew if need be, with a transaction begun.
    fn begin(&mut self) -> Result<Connection, Fault> {
        let connection = match self.connection.take() {
            Some(connection) => connection,
            None => {
                let connection = self.database.connect()?;
                self.keys = Keys::load(&connection)?;
                connection
            }
        };
        match run(&connection, "BEGIN IMMEDIATE") {
            Ok(()) => Ok(connection),
            Err(fault) => {
                if fault == Fault::Busy {
                    self.connection = Some(connection);
                }
                Err(fault)
            }
        }
    }

    fn failed(&mut self, fault: Fault) -> Undone {
        self.fails(&fault);
        Undone::Failed(fault)
    }

    /// Every caller is told; the log needs it once.
    fn fails(&mut self, fault: &Fault) {
        if !self.failing {
            tracing::warn!(place = %self.place, %fault, "the browser pool cannot be kept");
        }
        self.failing = true;
    }
}

/// Why a transaction was not made.
enum Undone {
    /// Another program has the lock; nothing was tried.
    Locked,
    /// It was tried.
    Failed(Fault),
}

fn run(connection: &Connection, sql: &str) -> Result<(), Fault> {
    connection.prepare_cached(sql)?.execute([])?;
    Ok(())
}
