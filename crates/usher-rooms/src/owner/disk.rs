//! A room's journal at work: one batch being filled, one being written.
//!
//! A commit begins when somebody waits for it, or [`COMMIT_AFTER`] after the first record. Each says
//! how many admissions are allowed for until the next one, so nobody waits for the disk as long as
//! admissions stay below what the disk knows; whoever passes it waits for a commit that is shared by
//! all who wait then.
//!
//! A disk that refuses, that stays behind, or that somebody removed the file from is failing: what cannot be written is dropped, and when
//! the disk works again the room begins its files anew from what is in memory.

use std::future::pending;
use std::io;
use std::time::Duration;

use tokio::task::{JoinError, JoinHandle, spawn_blocking};
use tokio::time::Instant;
use usher_core::admission::{Effect, Room};

use super::record::{self, Journaled};
use super::tally::DiskTally;
use crate::journal::{Batch, Fold, Log};

/// How long a record waits for company.
const COMMIT_AFTER: Duration = Duration::from_millis(10);
/// A commit that takes longer counts as failed, though it may still come to an end.
pub(super) const COMMIT_MAX: Duration = Duration::from_secs(5);
/// So many bytes behind, a disk counts as failing.
const BEHIND_MAX: usize = 8 << 20;
/// How long until a failing disk is tried again.
const RETRY_AFTER: Duration = Duration::from_secs(1);
/// How often it is looked whether the file is still there.
const LOOK_AFTER: Duration = Duration::from_secs(1);

/// The journal of one room.
#[derive(Debug)]
pub(super) struct Disk {
    work: Work,
    filling: Batch,
    spare: Batch,
    /// When the first record of the batch was noted.
    begun: Option<Instant>,
    /// Admissions that the disk knows to be allowed for.
    allowed: u64,
    /// Admissions ever when the last commit was begun.
    admitted: Option<u64>,
    failing: Option<Failing>,
    folding: Option<JoinHandle<()>>,
    looked: Instant,
    tally: DiskTally,
}

#[derive(Debug)]
enum Work {
    /// There is no journal, by the operator's order.
    Off,
    Idle(Box<Log>),
    Busy {
        since: Instant,
        done: JoinHandle<Done>,
    },
    /// The thread that had the log is gone. Only a restart brings it back.
    Lost,
}

#[derive(Debug)]
struct Failing {
    retry_at: Instant,
    /// The files are being begun anew, and records count again.
    anew: bool,
}

#[derive(Debug)]
struct Done {
    log: Box<Log>,
    batch: Batch,
    written: io::Result<Option<Fold>>,
    /// Until the disk had it.
    took: Duration,
    allowed: u64,
}

impl Disk {
    /// Nothing is kept.
    pub(super) fn off() -> Disk {
        Disk::new(Work::Off, u64::MAX)
    }

    /// Goes on in `log`, which says that `allowed` admissions are allowed for.
    pub(super) fn on(log: Log, allowed: u64) -> Disk {
        Disk::new(Work::Idle(Box::new(log)), allowed)
    }

    fn new(work: Work, allowed: u64) -> Disk {
        Disk {
            work,
            filling: Batch::new(),
            spare: Batch::new(),
            begun: None,
            allowed,
            admitted: None,
            failing: None,
            folding: None,
            looked: Instant::now(),
            tally: DiskTally::default(),
        }
    }

    /// What it has done so far.
    pub(super) fn tally(&self) -> DiskTally {
        self.tally
    }

    /// Whether what happens now would not outlive the process.
    pub(super) fn is_failing(&self) -> bool {
        self.failing.is_some() || matches!(self.work, Work::Lost)
    }

    /// Whether a commit is on its way.
    pub(super) fn is_writing(&self) -> bool {
        matches!(self.work, Work::Busy { .. })
    }

    /// Whether so many admissions may be told of.
    pub(super) fn allows(&self, admitted: u64) -> bool {
        admitted <= self.allowed
    }

    /// Takes what has happened.
    pub(super) fn note(&mut self, effects: &[Effect]) {
        let dropped = match &self.failing {
            Some(failing) => !failing.anew,
            None => false,
        };
        if dropped || matches!(self.work, Work::Off | Work::Lost) {
            return;
        }
        for effect in effects.iter().filter(|effect| effect.is_durable()) {
            record::write(self.filling.records(), effect);
        }
        if !self.filling.is_empty() && self.begun.is_none() {
            self.begun = Some(Instant::now());
        }
    }

    /// When [`Disk::go_on`] has something to do though nothing happens.
    pub(super) fn due(&self) -> Option<Instant> {
        match (&self.work, &self.failing) {
            (Work::Off | Work::Lost, _) => None,
            (Work::Busy { since, .. }, None) => Some(*since + COMMIT_MAX),
            (Work::Busy { .. }, Some(_)) => None,
            (Work::Idle(_), Some(failing)) => Some(failing.retry_at),
            (Work::Idle(_), None) => self.begun.map(|begun| begun + COMMIT_AFTER),
        }
    }

    /// Begins what is due. `somebody_waits` for a commit; `step` is how far ahead admissions are
    /// allowed for.
    pub(super) fn go_on(&mut self, room: &Room, step: u64, somebody_waits: bool) {
        let now = Instant::now();
        let admitted = room.counts().admitted;
        let behind = self.filling.len() > BEHIND_MAX;
        match std::mem::replace(&mut self.work, Work::Lost) {
            Work::Busy { since, done } => {
                self.work = Work::Busy { since, done };
                let slow = match &self.failing {
                    None => behind || now >= since + COMMIT_MAX,
                    Some(failing) => behind && failing.anew,
                };
                if slow {
                    self.fail(&io::Error::new(io::ErrorKind::TimedOut, "it is too slow"));
                }
            }
            Work::Idle(log) if self.failing.is_some() => self.begin_anew(log, room, step, now),
            Work::Idle(log) if self.is_removed(&log, now) => {
                self.work = Work::Idle(log);
                self.fail(&io::Error::new(
                    io::ErrorKind::NotFound,
                    "its file was removed",
                ));
            }
            Work::Idle(log) => {
                // Nothing is allowed for where nobody came in of late: a crash would cost seats that
                // nobody can have.
                let busy = somebody_waits || self.admitted.is_some_and(|before| before < admitted);
                let low = busy && self.allowed.saturating_sub(admitted) <= step / 2;
                // What was recovered is on disk before anybody is told anything.
                let first = self.admitted.is_none();
                let due = self.begun.is_some_and(|begun| {
                    first || somebody_waits || behind || low || now >= begun + COMMIT_AFTER
                });
                if due {
                    let ahead = if busy { step } else { 0 };
                    self.admitted = Some(admitted);
                    self.commit(log, admitted.saturating_add(ahead), now);
                } else {
                    self.work = Work::Idle(log);
                }
            }
            other @ (Work::Off | Work::Lost) => self.work = other,
        }
    }

    /// Looked at once in [`LOOK_AFTER`]: the system goes on taking what is written to such a file.
    fn is_removed(&mut self, log: &Log, now: Instant) -> bool {
        if now < self.looked + LOOK_AFTER {
            return false;
        }
        self.looked = now;
        // Where the system does not say, the next commit does.
        log.is_removed().unwrap_or(false)
    }

    fn commit(&mut self, mut log: Box<Log>, allowed: u64, now: Instant) {
        record::write_watermark(self.filling.records(), allowed);
        // What is no longer allowed for may not be told of from here on.
        self.allowed = self.allowed.min(allowed);
        self.begun = None;
        let mut batch = std::mem::replace(&mut self.filling, std::mem::take(&mut self.spare));
        let may_rotate = self.folding.as_ref().is_none_or(JoinHandle::is_finished);
        let done = spawn_blocking(move || {
            let begun = Instant::now();
            let committed = log.commit(&mut batch);
            let took = begun.elapsed();
            let written = committed.map(|()| {
                if !may_rotate || !log.is_full() {
                    return None;
                }
                let fold = log.rotate();
                if let Err(error) = &fold {
                    tracing::warn!(%error, "a room's log cannot be followed by the next");
                }
                fold.ok()
            });
            batch.clear();
            Done {
                log,
                batch,
                written,
                took,
                allowed,
            }
        });
        self.work = Work::Busy { since: now, done };
    }

    fn begin_anew(&mut self, mut log: Box<Log>, room: &Room, step: u64, now: Instant) {
        let retry_at = self
            .failing
            .as_ref()
            .map_or(now, |failing| failing.retry_at);
        if now < retry_at {
            self.work = Work::Idle(log);
            return;
        }
        self.filling.clear();
        self.begun = None;
        self.failing = Some(Failing {
            retry_at,
            anew: true,
        });
        let allowed = room.counts().admitted.saturating_add(step);
        let state = Journaled {
            room: room.clone(),
            clock: 0,
            admitted_max: allowed,
            closed: false,
        };
        let done = spawn_blocking(move || {
            let begun = Instant::now();
            Done {
                written: log.rebase(&state).map(|()| None),
                log,
                batch: Batch::new(),
                took: begun.elapsed(),
                allowed,
            }
        });
        self.work = Work::Busy { since: now, done };
    }

    /// Waits until what was begun has ended, for ever if nothing was. May be dropped and called again.
    pub(super) async fn ended(&mut self) {
        let Work::Busy { done, .. } = &mut self.work else {
            return pending().await;
        };
        let done = done.await;
        self.take(done);
    }

    fn take(&mut self, done: Result<Done, JoinError>) {
        let done = match done {
            Ok(done) => done,
            Err(error) => {
                tracing::error!(%error, "a room's journal is lost until a restart");
                self.work = Work::Lost;
                return;
            }
        };
        self.work = Work::Idle(done.log);
        self.spare = done.batch;
        self.tally.committed(done.took, done.written.is_ok());
        match (done.written, &self.failing) {
            (Ok(_), Some(failing)) if !failing.anew => {
                // Too late: records were dropped meanwhile.
            }
            (Ok(fold), failing) => {
                if failing.is_some() {
                    tracing::info!("a room's journal is written again");
                    self.failing = None;
                }
                self.allowed = done.allowed;
                if let Some(fold) = fold {
                    self.folding = Some(spawn_blocking(move || {
                        if let Err(fault) = fold.run::<Journaled>() {
                            tracing::warn!(%fault, "a room's logs are not folded");
                        }
                    }));
                }
            }
            (Err(error), _) => self.fail(&error),
        }
    }

    fn fail(&mut self, error: &io::Error) {
        if self.failing.is_none() {
            tracing::error!(%error, "a room's journal cannot be written");
        }
        self.filling.clear();
        self.begun = None;
        self.failing = Some(Failing {
            retry_at: Instant::now() + RETRY_AFTER,
            anew: false,
        });
    }

    /// Writes what is left, and that nothing is missing, and lets the files go.
    pub(super) async fn close(mut self, room: &Room) {
        if self.is_writing() {
            self.ended().await;
        }
        if let Some(folding) = self.folding.take() {
            // It said itself what went wrong.
            let _ = folding.await;
        }
        let Work::Idle(mut log) = self.work else {
            return;
        };
        let allowed = room.counts().admitted;
        let written = if self.failing.is_some() {
            let state = Journaled {
                room: room.clone(),
                clock: 0,
                admitted_max: allowed,
                closed: true,
            };
            spawn_blocking(move || log.rebase(&state)).await
        } else {
            let mut batch = self.filling;
            record::write_watermark(batch.records(), allowed);
            record::write_closed(batch.records());
            spawn_blocking(move || log.commit(&mut batch)).await
        };
        if let Ok(Err(error)) = written {
            tracing::error!(%error, "the end of a room's journal is not written");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::journal::Limits;
    use usher_core::admission::{Command, Settings, Visitor};
    use usher_core::id::Id;

    const ROOM: Id = Id::from_bytes([7; 16]);

    struct Kit {
        room: Room,
        settings: Settings,
        visitors: u128,
        now: u64,
    }

    impl Kit {
        fn new() -> Kit {
            Kit {
                room: Room::default(),
                settings: Settings::new(100, 1000),
                visitors: 0,
                now: 1_796_119_200_000,
            }
        }

        fn admit(&mut self, disk: &mut Disk) {
            self.visitors += 1;
            let mut effects = Vec::new();
            let command = Command::Ask {
                visitor: Visitor::from_u128(self.visitors),
                claims: None,
            };
            (self.room).step(&self.settings, self.now, 0, command, &mut effects);
            disk.note(&effects);
        }
    }

    impl Kit {
        /// A second passes, and somebody is in the room.
        fn tick(&mut self, disk: &mut Disk) {
            self.now += 2_000;
            let mut effects = Vec::new();
            (self.room).step(&self.settings, self.now, 0, Command::Tick, &mut effects);
            disk.note(&effects);
        }
    }

    fn reopened(folder: &tempfile::TempDir) -> Journaled {
        Log::open(folder.path(), ROOM, Limits::default())
            .expect("files")
            .1
    }

    fn opened(folder: &tempfile::TempDir) -> Log {
        Log::open::<Journaled>(folder.path(), ROOM, Limits::default())
            .expect("files")
            .0
    }

    #[tokio::test(start_paused = true)]
    async fn admissions_are_told_up_to_what_the_disk_knows() {
        let folder = tempfile::tempdir().expect("folder");
        let mut disk = Disk::on(opened(&folder), 0);
        let mut kit = Kit::new();
        kit.admit(&mut disk);
        assert!(!disk.allows(1));
        disk.go_on(&kit.room, 3, true);
        disk.ended().await;
        assert!(disk.allows(1) && disk.allows(4) && !disk.allows(5));
        // While there is room nobody needs the disk, and then it is told in time.
        kit.admit(&mut disk);
        disk.go_on(&kit.room, 3, false);
        assert!(matches!(disk.work, Work::Idle(_)));
        kit.admit(&mut disk);
        disk.go_on(&kit.room, 3, false);
        disk.ended().await;
        assert!(disk.allows(6) && !disk.allows(7));
        drop(disk);
        let state = reopened(&folder);
        assert_eq!((state.admitted_max, state.closed), (6, false));
        assert_eq!(state.room.counts().admitted, 3);
    }

    #[tokio::test(start_paused = true)]
    async fn what_comes_first_is_written_at_once() {
        let folder = tempfile::tempdir().expect("folder");
        let mut disk = Disk::on(opened(&folder), 0);
        let mut kit = Kit::new();
        kit.admit(&mut disk);
        disk.go_on(&kit.room, 3, false);
        assert!(
            disk.is_writing(),
            "an owner waits for this before it answers"
        );
        disk.ended().await;
    }

    #[tokio::test(start_paused = true)]
    async fn where_nobody_comes_in_nothing_is_allowed_for() {
        let folder = tempfile::tempdir().expect("folder");
        let mut disk = Disk::on(opened(&folder), 0);
        let mut kit = Kit::new();
        kit.admit(&mut disk);
        disk.go_on(&kit.room, 3, true);
        disk.ended().await;
        assert!(disk.allows(4));
        kit.tick(&mut disk);
        tokio::time::advance(COMMIT_AFTER).await;
        disk.go_on(&kit.room, 3, false);
        // From the moment on when that is being written.
        assert!(disk.allows(1) && !disk.allows(2));
        disk.ended().await;
        assert!(disk.allows(1) && !disk.allows(2));
        drop(disk);
        assert_eq!(reopened(&folder).admitted_max, 1);
    }

    #[tokio::test(start_paused = true)]
    async fn a_disk_that_works_again_knows_all() {
        let folder = tempfile::tempdir().expect("folder");
        let mut log = opened(&folder);
        log.spoil();
        let mut disk = Disk::on(log, 0);
        let mut kit = Kit::new();
        kit.admit(&mut disk);
        disk.go_on(&kit.room, 1, true);
        disk.ended().await;
        assert!(disk.is_failing() && !disk.allows(1));
        // What happens meanwhile is not kept by itself.
        kit.admit(&mut disk);
        disk.go_on(&kit.room, 1, true);
        assert!(disk.is_failing());
        tokio::time::advance(RETRY_AFTER).await;
        disk.go_on(&kit.room, 1, true);
        // And what happens while the files are begun anew is.
        kit.admit(&mut disk);
        disk.ended().await;
        assert!(!disk.is_failing() && disk.allows(3) && !disk.allows(4));
        disk.go_on(&kit.room, 1, true);
        disk.ended().await;
        assert!(disk.allows(4));
        drop(disk);
        assert_eq!(reopened(&folder).room.counts().admitted, 3);
    }

    #[tokio::test(start_paused = true)]
    async fn a_file_that_was_removed_is_noticed_and_begun_anew() {
        let parent = tempfile::tempdir().expect("folder");
        let path = parent.path().join("live").join("room");
        let open = || Log::open::<Journaled>(&path, ROOM, Limits::default()).expect("files");
        let mut disk = Disk::on(open().0, 0);
        let mut kit = Kit::new();
        kit.admit(&mut disk);
        disk.go_on(&kit.room, 1, true);
        disk.ended().await;
        std::fs::remove_dir_all(parent.path().join("live")).expect("removed");
        disk.go_on(&kit.room, 1, true);
        assert!(!disk.is_failing(), "it is not looked for at every turn");
        tokio::time::advance(LOOK_AFTER).await;
        disk.go_on(&kit.room, 1, true);
        assert!(disk.is_failing(), "though nobody asked for anything");
        kit.admit(&mut disk);
        assert!(!disk.allows(3));
        tokio::time::advance(RETRY_AFTER).await;
        disk.go_on(&kit.room, 1, true);
        disk.ended().await;
        assert!(!disk.is_failing() && disk.allows(3));
        tokio::time::advance(LOOK_AFTER).await;
        disk.go_on(&kit.room, 1, true);
        assert!(!disk.is_failing());
        drop(disk);
        assert_eq!(open().1.room.counts().admitted, 2);
    }

    #[tokio::test(start_paused = true)]
    async fn an_orderly_end_says_that_nothing_is_missing() {
        let folder = tempfile::tempdir().expect("folder");
        let mut disk = Disk::on(opened(&folder), 0);
        let mut kit = Kit::new();
        kit.admit(&mut disk);
        disk.close(&kit.room).await;
        let state = reopened(&folder);
        assert_eq!((state.admitted_max, state.closed), (1, true));
        assert_eq!(state.room.counts().seated, 1);
    }
}
