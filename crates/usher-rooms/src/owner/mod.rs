//! The owner of a room: the one task that decides for it.
//!
//! Whatever changes who may pass goes through here, in one order, so there is nothing to lock. The
//! task runs on a thread that no front uses. It takes all orders that are there at once (under load
//! that is a batch, and without load nobody waits for one to fill), steps the room, and notes what
//! happened; the disk's thread writes it meanwhile.
//!
//! An admission is told when it can no longer be forgotten: while the disk knows that so many are
//! allowed for, at once; beyond that, with the next commit. So after a crash, at the worst as many
//! seats are kept free for nobody as were allowed for in advance, and never is one given twice.

mod disk;
mod history;
mod post;
mod record;
mod tally;

use std::collections::VecDeque;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, sleep_until};
use tracing::Instrument as _;
use usher_core::admission::{Answer, Change, Command, Effect, Entry, Room, Settings};
use usher_core::id::Id;

use self::disk::{COMMIT_MAX, Disk};
pub use self::history::history;
use self::post::Order;
pub use self::post::{Bulletin, Desk, ORDERS_MAX, OnStoreFailure, Pending, Post, Unanswered};
pub use self::record::Event;
use self::record::Journaled;
pub use self::tally::{Tally, WAITS_MS};
use crate::clock::Clock;
use crate::journal::{JournalFault, Limits, Live, Log, Torn};

/// Orders of one batch.
const BATCH_MAX: usize = 1024;
/// How often time alone moves a room.
const TICK: Duration = Duration::from_millis(250);
/// How often the bulletin is made anew, at least.
const BULLETIN: Duration = Duration::from_millis(500);
/// After a crash so much of the end of the journal may be missing: a commit that was never over, and
/// the records that waited for it.
const TAIL_MS: u64 = COMMIT_MAX.as_millis() as u64 + 1000;

/// A room as its journal left it, before time goes on.
#[derive(Debug)]
pub struct Found {
    state: Journaled,
    log: Option<Log>,
}

impl Found {
    /// Opens the journal of `room`.
    ///
    /// # Errors
    /// The files cannot be used.
    pub fn open(live: &Live, room: Id) -> Result<Found, JournalFault> {
        Found::open_folder(&live.of_room(room), room)
    }

    fn open_folder(folder: &Path, room: Id) -> Result<Found, JournalFault> {
        let (log, state) = Log::open(folder, room, Limits::default())?;
        Ok(Found {
            state,
            log: Some(log),
        })
    }

    /// An empty room that keeps nothing.
    #[must_use]
    pub fn unkept() -> Found {
        Found {
            state: Journaled::default(),
            log: None,
        }
    }

    /// What its clock showed last, ms since the Unix epoch; 0 where nothing ever happened.
    #[must_use]
    pub fn clock(&self) -> u64 {
        self.state.clock
    }

    /// What of its journal did not read and is lost.
    #[must_use]
    pub fn torn(&self) -> Option<&Torn> {
        self.log.as_ref()?.torn()
    }

    /// Starts the owner on the current runtime. `seed` is the chance that draws are made with.
    #[must_use]
    pub fn start(
        self,
        settings: Settings,
        on_failure: OnStoreFailure,
        clock: Clock,
        seed: u64,
    ) -> Post {
        let (post, desk) = Desk::new(settings, clock.now());
        self.start_at(desk, settings, on_failure, clock, seed);
        post
    }

    /// The same at a desk where orders may wait already. What the owner logs stands in the span that
    /// is current now.
    pub fn start_at(
        self,
        desk: Desk,
        settings: Settings,
        on_failure: OnStoreFailure,
        clock: Clock,
        seed: u64,
    ) {
        let torn = self.torn().is_some();
        let Found { state, log } = self;
        let Desk { orders, bulletin } = desk;
        let disk = match log {
            Some(log) => Disk::on(log, 0),
            None => Disk::off(),
        };
        let mut owner = Owner {
            room: state.room,
            settings,
            on_failure,
            clock,
            seed,
            set_at: clock.now(),
            moved: None,
            effects: Vec::new(),
            tally: Tally::default(),
            disk,
            held: VecDeque::new(),
            bulletin,
            bulletin_due: Instant::now(),
            left: false,
            idle: true,
            tick_due: Instant::now(),
        };
        if state.clock > 0 || torn {
            // Behind the word that it was closed there was more, if the end is torn.
            let (admitted_max, tail_ms) = if state.closed && !torn {
                (0, 0)
            } else {
                (state.admitted_max, TAIL_MS)
            };
            owner.step(Command::Recover {
                admitted_max,
                tail_ms,
                torn,
            });
        }
        owner.settle();
        tokio::spawn(owner.run(orders).in_current_span());
    }
}

struct Owner {
    room: Room,
    settings: Settings,
    on_failure: OnStoreFailure,
    clock: Clock,
    seed: u64,
    set_at: u64,
    moved: Option<u64>,
    effects: Vec<Effect>,
    tally: Tally,
    disk: Disk,
    /// Admissions that are not told yet, in order.
    held: VecDeque<Held>,
    bulletin: Arc<ArcSwap<Bulletin>>,
    bulletin_due: Instant,
    /// A seat was ended, and the fronts do not know it yet: nobody gets it before they do.
    left: bool,
    /// The fronts were told that nobody has to wait.
    idle: bool,
    tick_due: Instant,
}

struct Held {
    /// How many admissions there were with this one.
    admitted: u64,
    answer: Answer,
    reply: oneshot::Sender<Result<Answer, Unanswered>>,
}

impl Owner {
    async fn run(mut self, mut orders: mpsc::Receiver<Order>) {
        // What was recovered is on disk before anybody is told anything: another crash would else
        // begin the same epoch again, and give its tickets twice.
        if self.disk.is_writing() {
            self.disk.ended().await;
            self.settle();
        }
        let mut batch = Vec::with_capacity(BATCH_MAX);
        loop {
            let wake = (self.disk.due()).map_or(self.tick_due, |due| due.min(self.tick_due));
            tokio::select! {
                () = self.disk.ended() => {}
                count = orders.recv_many(&mut batch, BATCH_MAX) => if count == 0 {
                    // Nobody is left who could ask.
                    self.disk.close(&self.room).await;
                    return;
                },
                () = sleep_until(wake) => {}
            }
            for order in batch.drain(..) {
                if let Order::Close(closed) = order {
                    orders.close();
                    self.close().await;
                    // Whoever waits for this may be gone.
                    let _ = closed.send(());
                    return;
                }
                self.carry_out(order);
            }
            self.settle();
        }
    }

    fn carry_out(&mut self, order: Order) {
        match order {
            Order::Ask {
                visitor,
                claims,
                reply,
            } => {
                if self.disk.is_failing() && self.on_failure == OnStoreFailure::Open {
                    answer(reply, Err(Unanswered));
                    return;
                }
                let claims = claims.as_ref();
                let given = self.step(Command::Ask { visitor, claims });
                if let Answer::Forward(seat) = &given {
                    self.tally.let_in(seat, self.clock.now());
                }
                // Who is first to wait is told of the room as it is now, not as it was when it had
                // seats.
                let first = self.idle && matches!(given, Answer::Wait(_));
                if first || self.left && is_admission(&given) {
                    self.publish();
                }
                let admitted = self.room.counts().admitted;
                if is_admission(&given) && !self.disk.is_failing() && !self.disk.allows(admitted) {
                    self.held.push_back(Held {
                        admitted,
                        answer: given,
                        reply,
                    });
                } else {
                    answer(reply, Ok(given));
                }
            }
            Order::Renew {
                visitor,
                claims,
                reply,
            } => {
                let claims = claims.as_ref();
                let given = self.step(Command::Renew { visitor, claims });
                answer(reply, Ok(given));
            }
            Order::CheckIn(visitors) => {
                self.step(Command::CheckIn(&visitors));
            }
            Order::End { visitor, cause } => {
                self.step(Command::End { visitor, cause });
                self.left = true;
            }
            Order::Set(settings, on_failure) => {
                self.settings = settings;
                self.on_failure = on_failure;
                self.set_at = self.clock.now();
                self.bulletin_due = Instant::now();
                self.tick_due = Instant::now();
            }
            Order::Close(_) => unreachable!("the loop takes it"),
        }
    }

    fn step(&mut self, command: Command<'_>) -> Answer {
        // The step of SplitMix64: the core makes of it what it needs.
        self.seed = self.seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let settings = self.settings_now();
        let now = self.clock.now();
        (self.room).step(&settings, now, self.seed, command, &mut self.effects)
    }

    /// While the journal fails, a room that is set so lets nobody in.
    fn settings_now(&self) -> Settings {
        let closed = self.disk.is_failing() && self.on_failure == OnStoreFailure::Closed;
        Settings {
            queue_all: self.settings.queue_all || closed,
            ..self.settings
        }
    }

    /// After each batch: time, disk, answers that waited, the bulletin.
    fn settle(&mut self) {
        let now = Instant::now();
        if now >= self.tick_due {
            let more = matches!(self.step(Command::Tick), Answer::Done { more: true });
            self.tick_due = if more { now } else { now + TICK };
        }
        let mut urgent = false;
        for effect in &self.effects {
            self.tally.count(&effect.change);
            match effect.change {
                Change::Called { .. } => urgent = true,
                Change::Seated {
                    how: Entry::Called, ..
                } => self.moved = Some(effect.at),
                _ => {}
            }
        }
        self.disk.note(&self.effects);
        self.effects.clear();
        let step = self.settings.watermark_step();
        self.disk.go_on(&self.room, step, !self.held.is_empty());
        self.release();
        if urgent || self.left || now >= self.bulletin_due {
            self.publish();
            self.bulletin_due = now + BULLETIN;
        }
    }

    fn release(&mut self) {
        let failing = self.disk.is_failing();
        while let Some(held) = self.held.front() {
            let told = self.disk.allows(held.admitted);
            if !told && !failing {
                break;
            }
            let Some(held) = self.held.pop_front() else {
                break;
            };
            let forgettable = !told && self.on_failure != OnStoreFailure::Bounded;
            let given = if forgettable {
                Err(Unanswered)
            } else {
                Ok(held.answer)
            };
            answer(held.reply, given);
        }
    }

    fn publish(&mut self) {
        self.left = false;
        let settings = self.settings_now();
        let summary = self.room.summary(&settings, self.clock.now());
        self.idle = !summary.queues();
        self.bulletin.store(Arc::new(Bulletin {
            summary,
            settings,
            set_at: self.set_at,
            moved: self.moved,
            degraded: self.disk.is_failing(),
            tally: Tally {
                disk: self.disk.tally(),
                ..self.tally
            },
        }));
    }

    /// Nobody is told anything from here on: what was decided and not told is in the journal.
    async fn close(self) {
        let Owner {
            disk, room, held, ..
        } = self;
        disk.close(&room).await;
        // These were admitted, and the disk knows it now.
        for held in held {
            answer(held.reply, Ok(held.answer));
        }
    }
}

/// Whoever asked may be gone.
fn answer(reply: oneshot::Sender<Result<Answer, Unanswered>>, given: Result<Answer, Unanswered>) {
    let _ = reply.send(given);
}

fn is_admission(answer: &Answer) -> bool {
    matches!(
        answer,
        Answer::Forward(seat) if matches!(seat.how, Entry::Direct | Entry::Called | Entry::Passthrough)
    )
}
