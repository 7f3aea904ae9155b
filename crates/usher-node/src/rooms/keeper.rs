//! The thread of the rooms, and how the node speaks to it.
//!
//! A change of the configuration comes in two halves. [`Keeper::place`] has every room that is wanted
//! in its place, so that the front can be told of it; [`Keeper::keep_only`] ends those that nobody
//! comes to any more, when it has been. So there is no moment at which a room is configured and lets
//! everybody pass.
//!
//! A room whose journal cannot be used has a desk that stays empty: its doors answer what can be
//! answered without an owner, as the room is set for that, and the others run.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use arc_swap::ArcSwap;
use tokio::sync::{mpsc, oneshot};
use tokio::task::{JoinHandle, JoinSet, spawn_blocking};
use tokio::time::{MissedTickBehavior, interval};
use usher_core::admission::Settings;
use usher_core::id::Id;
use usher_rooms::clock::Clock;
use usher_rooms::journal::{JournalFault, Live};
use usher_rooms::owner::{Desk, Found, OnStoreFailure, Post};

/// Orders that wait for the thread; senders wait beyond that.
const ORDERS_MAX: usize = 16;

/// How often the thread looks whether somebody waits.
const LOOK: Duration = Duration::from_secs(1);

/// Looks after which a line that is empty is said to be: one that comes and goes is no news.
const EMPTY_LOOKS: u32 = 10;

/// Where rooms write down what they decide.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Journals {
    /// Nowhere: a restart forgets everybody.
    Off,
    /// In this folder.
    Folder(PathBuf),
}

/// A room as it is wanted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Wanted {
    pub(crate) id: Id,
    /// Unique among all rooms of a node.
    pub(crate) name: String,
    pub(crate) settings: Settings,
    pub(crate) on_failure: OnStoreFailure,
}

/// A room that is in its place.
#[derive(Debug, Clone)]
pub(crate) struct Placed {
    /// As in [`Wanted`].
    pub(crate) name: String,
    /// The way to its owner.
    pub(crate) post: Post,
    /// Its time.
    pub(crate) clock: Clock,
}

/// Every room that is in its place.
pub(crate) type Standing = BTreeMap<Id, Placed>;

/// The way to the thread. The thread ends when every clone of this is gone.
#[derive(Debug, Clone)]
pub(crate) struct Keeper {
    orders: mpsc::Sender<Order>,
    standing: Arc<ArcSwap<Standing>>,
    kept: bool,
}

#[derive(Debug)]
enum Order {
    Claim(oneshot::Sender<Result<(), JournalFault>>),
    Place(Vec<Wanted>, oneshot::Sender<()>),
    KeepOnly(Vec<Id>, oneshot::Sender<()>),
    TakeOver,
    Close(oneshot::Sender<()>),
}

impl Keeper {
    /// Starts the thread. `follows`: the journals are another process's until
    /// [`Keeper::take_over`]. Clocks begin at `clock` at least, ms since the Unix epoch.
    ///
    /// # Errors
    /// The system gives no thread.
    pub(crate) fn start(journals: Journals, follows: bool, clock: u64) -> io::Result<Keeper> {
        let (orders, ordered) = mpsc::channel(ORDERS_MAX);
        let standing = Arc::new(ArcSwap::default());
        let kept = journals != Journals::Off;
        let files = match journals {
            Journals::Off => Files::Off,
            Journals::Folder(folder) if follows => Files::Others(folder),
            Journals::Folder(folder) => Files::Free(folder),
        };
        let thread = Thread {
            standing: Arc::clone(&standing),
            files,
            taking: None,
            rooms: HashMap::new(),
            clock: Clock::start(clock),
        };
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        thread::Builder::new()
            .name("rooms".to_owned())
            .spawn(move || {
                runtime.block_on(thread.run(ordered));
                // Whatever still waits for a lock waits for nothing.
                runtime.shutdown_background();
            })?;
        Ok(Keeper {
            orders,
            standing,
            kept,
        })
    }

    /// Whether rooms outlive the process.
    pub(crate) fn keeps(&self) -> bool {
        self.kept
    }

    /// How every room stands now. Takes no lock.
    pub(crate) fn standing(&self) -> Arc<Standing> {
        self.standing.load_full()
    }

    /// The same, whatever it is at the time of reading.
    pub(crate) fn watch(&self) -> Arc<ArcSwap<Standing>> {
        Arc::clone(&self.standing)
    }

    /// What the clocks of the rooms show, ms; 0 without a room.
    pub(crate) fn clock(&self) -> u64 {
        let standing = self.standing.load();
        let clocks = standing.values().map(|placed| placed.clock.now());
        clocks.max().unwrap_or(0)
    }

    /// Makes sure that the journals are this process's to write, or will be.
    ///
    /// # Errors
    /// Another process owns them, or the folder cannot be used.
    pub(crate) async fn claim(&self) -> Result<(), JournalFault> {
        let (reply, told) = oneshot::channel();
        self.order(Order::Claim(reply)).await;
        // A thread that is gone has no rooms to place either.
        told.await.unwrap_or(Ok(()))
    }

    /// Has all these rooms in their places, set as they are wanted. Others stay as they are.
    pub(crate) async fn place(&self, wanted: Vec<Wanted>) -> Arc<Standing> {
        let (reply, told) = oneshot::channel();
        self.order(Order::Place(wanted, reply)).await;
        let _ended = told.await;
        self.standing()
    }

    /// Ends every other room, and forgets who was there.
    pub(crate) async fn keep_only(&self, rooms: Vec<Id>) {
        let (reply, told) = oneshot::channel();
        self.order(Order::KeepOnly(rooms, reply)).await;
        let _ended = told.await;
    }

    /// The journals are this process's as soon as the one before lets go of them.
    pub(crate) fn take_over(&self) {
        // There is room: whoever orders a take-over has ordered nothing else for long.
        if self.orders.try_send(Order::TakeOver).is_err() {
            tracing::error!("the waiting rooms cannot be taken over");
        }
    }

    /// Ends every owner; its journal is whole and another process may have it when this returns.
    pub(crate) async fn close(&self) {
        let (reply, told) = oneshot::channel();
        self.order(Order::Close(reply)).await;
        let _ended = told.await;
    }

    async fn order(&self, order: Order) {
        // A thread that panicked takes no orders: its rooms have no owners then, and doors know.
        let _gone = self.orders.send(order).await;
    }
}

#[derive(Debug)]
enum Files {
    /// Nothing is kept.
    Off,
    /// Nobody has needed them yet.
    Free(PathBuf),
    /// Another process has them.
    Others(PathBuf),
    /// This process has them.
    Ours(Arc<Live>),
    /// This process has let them go.
    Left,
}

struct Thread {
    standing: Arc<ArcSwap<Standing>>,
    files: Files,
    /// The wait for the process that has the files.
    taking: Option<JoinHandle<Result<Live, JournalFault>>>,
    rooms: HashMap<Id, Room>,
    clock: Clock,
}

#[derive(Debug)]
struct Room {
    wanted: Wanted,
    post: Post,
    clock: Clock,
    owner: Owner,
    /// Whether somebody was said to wait, and looks since somebody did.
    queues: Option<u32>,
}

#[derive(Debug)]
enum Owner {
    Runs,
    /// It cannot have its journal yet.
    Comes(Desk),
    /// It cannot have its journal.
    None,
}

impl Thread {
    async fn run(mut self, mut orders: mpsc::Receiver<Order>) {
        let mut look = interval(LOOK);
        look.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let order = tokio::select! {
                order = orders.recv() => order,
                live = taken(&mut self.taking) => {
                    self.taken(live).await;
                    continue;
                }
                _ = look.tick() => {
                    self.rooms.values_mut().for_each(Room::tell);
                    self.keep_lock().await;
                    continue;
                }
            };
            // Whoever ordered it may be gone.
            match order {
                None => return,
                Some(Order::Claim(reply)) => drop(reply.send(self.claim().await)),
                Some(Order::Place(wanted, reply)) => {
                    for wanted in wanted {
                        self.place(wanted).await;
                    }
                    self.publish();
                    let _ = reply.send(());
                }
                Some(Order::KeepOnly(rooms, reply)) => {
                    self.keep_only(&rooms).await;
                    let _ = reply.send(());
                }
                Some(Order::TakeOver) => {
                    if let Files::Others(folder) = &self.files {
                        let folder = folder.clone();
                        self.taking = Some(spawn_blocking(move || Live::wait(&folder)));
                    }
                }
                Some(Order::Close(reply)) => {
                    self.close().await;
                    let _ = reply.send(());
                }
            }
        }
    }

    async fn claim(&mut self) -> Result<(), JournalFault> {
        let Files::Free(folder) = &self.files else {
            return Ok(());
        };
        let folder = folder.clone();
        let live = blocking(move || Live::take(&folder)).await?;
        self.files = Files::Ours(Arc::new(live));
        Ok(())
    }

    /// Takes the lock anew if somebody has removed it. Its rooms notice by themselves what they have
    /// lost, and say so.
    async fn keep_lock(&mut self) {
        let Files::Ours(live) = &self.files else {
            return;
        };
        if live.is_removed() {
            let folder = live.folder().to_owned();
            // As long as the folder cannot be made, it is tried with each look.
            if let Ok(live) = blocking(move || Live::take(&folder)).await {
                self.files = Files::Ours(Arc::new(live));
            }
        }
    }

    async fn taken(&mut self, live: Result<Live, JournalFault>) {
        match live {
            Ok(live) => self.files = Files::Ours(Arc::new(live)),
            Err(fault) => {
                tracing::error!("{}", chain(&fault));
                self.files = Files::Left;
            }
        }
        let waiting: Vec<Id> = (self.rooms.iter())
            .filter(|(_, room)| matches!(room.owner, Owner::Comes(_)))
            .map(|(id, _)| *id)
            .collect();
        for id in waiting {
            let Some(mut room) = self.rooms.remove(&id) else {
                continue;
            };
            if let Owner::Comes(desk) = std::mem::replace(&mut room.owner, Owner::None) {
                (room.owner, room.clock) = self.open(&room.wanted, desk).await;
            }
            self.rooms.insert(id, room);
        }
        self.publish();
    }

    async fn place(&mut self, wanted: Wanted) {
        let id = wanted.id;
        if let Some(room) = self.rooms.get_mut(&id)
            && !room.post.is_gone()
        {
            let (settings, on_failure) = (wanted.settings, wanted.on_failure);
            let same = room.wanted.settings == settings && room.wanted.on_failure == on_failure;
            // One that is still to come begins with what is wanted then.
            if !same && matches!(room.owner, Owner::Runs) {
                // One that is gone has left its doors with what they can do without it.
                let _gone = room.post.set(settings, on_failure).await;
            }
            room.wanted = wanted;
            return;
        }
        // New, or one that has no owner: its files may have been put right meanwhile.
        let (post, desk) = Desk::new(wanted.settings, self.clock.now());
        let (owner, clock) = match &self.files {
            Files::Others(_) => (Owner::Comes(desk), self.clock),
            Files::Off | Files::Free(_) | Files::Ours(_) | Files::Left => {
                self.open(&wanted, desk).await
            }
        };
        let room = Room {
            wanted,
            post,
            clock,
            owner,
            queues: None,
        };
        self.rooms.insert(id, room);
    }

    /// Opens the journal of a room and has its owner sit down.
    async fn open(&self, wanted: &Wanted, desk: Desk) -> (Owner, Clock) {
        let (id, name) = (wanted.id, wanted.name.as_str());
        let found = match &self.files {
            Files::Off => Ok(Found::unkept()),
            Files::Ours(live) => {
                let live = Arc::clone(live);
                blocking(move || Found::open(&live, id)).await
            }
            // Nobody is told twice what is wrong with the folder.
            Files::Free(_) | Files::Others(_) | Files::Left => return (Owner::None, self.clock),
        };
        let found = match found {
            Ok(found) => found,
            Err(fault) => {
                tracing::error!("waiting room {name}: {}", chain(&fault));
                return (Owner::None, self.clock);
            }
        };
        if let Some(torn) = found.torn() {
            tracing::warn!("waiting room {name}: {torn}");
        }
        let clock = match found.clock() {
            later if later > self.clock.now() => Clock::start(later),
            _ => self.clock,
        };
        let span = tracing::info_span!("waiting room", name);
        let _within = span.enter();
        let seed = crate::draw();
        found.start_at(desk, wanted.settings, wanted.on_failure, clock, seed);
        (Owner::Runs, clock)
    }

    async fn keep_only(&mut self, rooms: &[Id]) {
        let gone: Vec<Room> = (self.rooms)
            .extract_if(|id, _| !rooms.contains(id))
            .map(|(_, room)| room)
            .collect();
        self.publish();
        for room in gone {
            room.post_closed().await;
            if let Files::Ours(live) = &self.files {
                let folder = live.of_room(room.wanted.id);
                let removed = blocking(move || match fs::remove_dir_all(&folder) {
                    Err(error) if error.kind() != io::ErrorKind::NotFound => Err((folder, error)),
                    _ => Ok(()),
                });
                if let Err((folder, error)) = removed.await {
                    let (name, folder) = (&room.wanted.name, folder.display());
                    tracing::warn!("waiting room {name}: its journal {folder} stays: {error}");
                }
            }
        }
    }

    async fn close(&mut self) {
        self.taking = None;
        let mut closing = JoinSet::new();
        for (_, room) in self.rooms.drain() {
            closing.spawn(async move { room.post_closed().await });
        }
        closing.join_all().await;
        // The lock goes with it.
        self.files = Files::Left;
    }

    fn publish(&self) {
        let placed = self.rooms.iter().map(|(id, room)| {
            let placed = Placed {
                name: room.wanted.name.clone(),
                post: room.post.clone(),
                clock: room.clock,
            };
            (*id, placed)
        });
        self.standing.store(Arc::new(placed.collect()));
    }
}

impl Room {
    /// Ends its owner, if it has one.
    async fn post_closed(&self) {
        if matches!(self.owner, Owner::Runs) {
            self.post.close().await;
        }
    }

    /// Says when a line begins and when it has been empty for a while.
    fn tell(&mut self) {
        let counts = self.post.bulletin().summary.counts;
        let waiting = counts.present + counts.away;
        let name = &self.wanted.name;
        match &mut self.queues {
            None if waiting > 0 => {
                tracing::info!("waiting room {name}: visitors wait, {waiting} now");
                self.queues = Some(0);
            }
            None => {}
            Some(looks) if waiting > 0 => *looks = 0,
            Some(looks) => {
                *looks += 1;
                if *looks >= EMPTY_LOOKS {
                    tracing::info!("waiting room {name}: nobody waits any more");
                    self.queues = None;
                }
            }
        }
    }
}

/// The lock, when it is this process's; never while nobody waits for it.
async fn taken(
    taking: &mut Option<JoinHandle<Result<Live, JournalFault>>>,
) -> Result<Live, JournalFault> {
    let Some(task) = taking else {
        return std::future::pending().await;
    };
    let live = task.await;
    *taking = None;
    live.unwrap_or_else(|error| std::panic::resume_unwind(error.into_panic()))
}

/// Does what touches the disk beside the owners.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    let done = spawn_blocking(work).await;
    done.unwrap_or_else(|error| std::panic::resume_unwind(error.into_panic()))
}

/// A fault with its causes.
fn chain(fault: &JournalFault) -> String {
    let mut text = fault.to_string();
    let mut cause = std::error::Error::source(fault);
    while let Some(error) = cause {
        text.push_str(": ");
        text.push_str(&error.to_string());
        cause = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use usher_core::admission::{Answer, Visitor};

    use super::*;

    const SALE: Id = Id::from_bytes([1; 16]);
    const SHOP: Id = Id::from_bytes([2; 16]);

    fn wanted(id: Id, seats: u64) -> Wanted {
        Wanted {
            id,
            name: id.to_string(),
            settings: Settings::new(seats, 1000).session(3_600_000),
            on_failure: OnStoreFailure::Bounded,
        }
    }

    fn keeper(folder: &tempfile::TempDir, follows: bool) -> Keeper {
        let journals = Journals::Folder(folder.path().join("live"));
        Keeper::start(journals, follows, 0).expect("a thread")
    }

    async fn ask(keeper: &Keeper, room: Id, visitor: u128) -> Option<Answer> {
        let post = keeper.standing()[&room].post.clone();
        let pending = post.ask(Visitor::from_u128(visitor), None).ok()?;
        pending.answer().await.ok()
    }

    fn is_seat(answer: Option<Answer>) -> bool {
        matches!(answer, Some(Answer::Forward(_)))
    }

    fn is_place(answer: Option<Answer>) -> bool {
        matches!(answer, Some(Answer::Wait(_)))
    }

    #[tokio::test]
    async fn who_is_inside_outlives_a_keeper() {
        let folder = tempfile::tempdir().expect("folder");
        let first = keeper(&folder, false);
        first.claim().await.expect("free");
        first.place(vec![wanted(SALE, 1)]).await;
        assert!(is_seat(ask(&first, SALE, 1).await));
        assert!(is_place(ask(&first, SALE, 2).await));
        first.close().await;

        let second = keeper(&folder, false);
        second.claim().await.expect("let go of");
        second.place(vec![wanted(SALE, 1)]).await;
        assert!(is_place(ask(&second, SALE, 3).await));
        assert!(is_seat(ask(&second, SALE, 1).await));
        second.close().await;
    }

    #[tokio::test]
    async fn journals_are_one_process_s_at_a_time() {
        let folder = tempfile::tempdir().expect("folder");
        let first = keeper(&folder, false);
        first.claim().await.expect("free");
        let second = keeper(&folder, false);
        let refused = second.claim().await.expect_err("taken");
        assert!(matches!(refused, JournalFault::Owned { .. }), "{refused}");
        // A room that is placed all the same has no owner, and says so.
        let standing = second.place(vec![wanted(SALE, 1)]).await;
        assert!(standing[&SALE].post.is_gone());
        assert_eq!(ask(&second, SALE, 1).await, None);
        first.close().await;
    }

    #[tokio::test]
    async fn a_follower_answers_when_the_one_before_has_let_go() {
        let folder = tempfile::tempdir().expect("folder");
        let before = keeper(&folder, false);
        before.claim().await.expect("free");
        before.place(vec![wanted(SALE, 1)]).await;
        assert!(is_seat(ask(&before, SALE, 1).await));

        let after = keeper(&folder, true);
        after.claim().await.expect("not yet its matter");
        let standing = after.place(vec![wanted(SALE, 1)]).await;
        assert!(!standing[&SALE].post.is_gone());
        // Settings that change before the owner is there are those that it begins with.
        after.place(vec![wanted(SALE, 2)]).await;
        after.take_over();
        let post = after.standing()[&SALE].post.clone();
        let mut pending = post.ask(Visitor::from_u128(2), None).expect("a desk");
        assert_eq!(pending.now(), None);
        before.close().await;
        assert!(is_seat(pending.answer().await.ok()));
        // The seat of before is held, so this is one too many.
        assert!(is_place(ask(&after, SALE, 3).await));
        assert!(!after.standing()[&SALE].post.is_gone());
        after.close().await;
    }

    #[tokio::test]
    async fn a_damaged_journal_stops_its_room_alone_until_it_is_put_right() {
        let folder = tempfile::tempdir().expect("folder");
        let first = keeper(&folder, false);
        first.claim().await.expect("free");
        first.place(vec![wanted(SALE, 1), wanted(SHOP, 1)]).await;
        assert!(is_seat(ask(&first, SALE, 1).await));
        first.close().await;
        let journal = folder.path().join("live").join(SALE.to_string());
        let log = journal.join("1.log");
        let whole = fs::read(&log).expect("written");
        let mut bytes = whole.clone();
        bytes[20] ^= 1;
        fs::write(&log, &bytes).expect("damaged");

        let second = keeper(&folder, false);
        second.claim().await.expect("free");
        let both = || vec![wanted(SALE, 1), wanted(SHOP, 1)];
        let standing = second.place(both()).await;
        assert!(standing[&SALE].post.is_gone() && !standing[&SHOP].post.is_gone());
        assert_eq!(ask(&second, SALE, 2).await, None);
        assert!(is_seat(ask(&second, SHOP, 2).await));

        fs::write(&log, &whole).expect("put right");
        let standing = second.place(both()).await;
        assert!(!standing[&SALE].post.is_gone());
        assert!(is_place(ask(&second, SALE, 2).await));
        assert!(is_place(ask(&second, SHOP, 3).await), "it was not touched");
        second.close().await;
    }

    #[tokio::test]
    async fn a_room_that_is_no_more_is_forgotten_and_the_others_stay() {
        let folder = tempfile::tempdir().expect("folder");
        let keeper = keeper(&folder, false);
        keeper.claim().await.expect("free");
        keeper.place(vec![wanted(SALE, 1), wanted(SHOP, 1)]).await;
        assert!(is_seat(ask(&keeper, SALE, 1).await));
        assert!(is_seat(ask(&keeper, SHOP, 1).await));
        let gone = keeper.standing()[&SALE].post.clone();
        keeper.keep_only(vec![SHOP]).await;
        assert!(gone.ask(Visitor::from_u128(2), None).is_err());
        assert_eq!(keeper.standing().len(), 1);
        let live = folder.path().join("live");
        assert!(!live.join(SALE.to_string()).exists());
        assert!(live.join(SHOP.to_string()).exists());
        // The same again is another room.
        keeper.place(vec![wanted(SALE, 1)]).await;
        assert!(is_seat(ask(&keeper, SALE, 2).await));
        assert!(is_place(ask(&keeper, SHOP, 2).await));
        keeper.close().await;
    }

    #[tokio::test]
    async fn changed_settings_reach_an_owner_at_work() {
        let keeper = Keeper::start(Journals::Off, false, 0).expect("a thread");
        assert!(!keeper.keeps());
        keeper.place(vec![wanted(SALE, 0)]).await;
        assert!(is_place(ask(&keeper, SALE, 1).await));
        keeper.place(vec![wanted(SALE, 1)]).await;
        assert!(is_seat(ask(&keeper, SALE, 1).await));
        keeper.close().await;
    }

    #[tokio::test]
    async fn a_clock_goes_on_from_the_one_before() {
        let ahead = 99_000_000_000_000;
        let keeper = Keeper::start(Journals::Off, false, ahead).expect("a thread");
        assert_eq!(keeper.clock(), 0);
        keeper.place(vec![wanted(SALE, 1)]).await;
        assert!(keeper.clock() >= ahead);
        keeper.close().await;
    }
}
