//! Who waits for a browser, and who is called when there is one.
//!
//! How many are ready is an estimate: the pool's news count it up, picks count it down, and once a
//! second it is looked up while somebody waits. It only decides who is called; what a browser is
//! given to, the pool decides. Whoever was called counts until it has picked, so that a browser is
//! not promised to two who wait, and newcomers do not pass the line.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::Instant;
use usher_core::admission::Pace;
use usher_core::id::Id;
use usher_core::lease::Stock;
use usher_core::lease::line::{Line, Place, Waiter};
use usher_core::lease::reserve::Reserve;
use usher_core::time::Mono;

use crate::ask::Ask;

/// The line, from outside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Standing {
    /// For which browsers.
    pub stock: Stock,
    /// How many wait.
    pub len: usize,
    /// How long the first has waited.
    pub age: Duration,
}

/// A place in line, as it was when it was taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stood {
    /// Who stands first has 1.
    pub place: usize,
    /// How long it takes until it is this one's turn: six in ten wait less. `None` while too few
    /// browsers have become ready to tell.
    pub estimate: Option<Duration>,
}

#[derive(Debug)]
pub(crate) struct Queue {
    began: Instant,
    inside: Mutex<Inside>,
}

#[derive(Debug, Default)]
struct Inside {
    lines: BTreeMap<Stock, One>,
    reserve: Reserve,
}

/// The line for one stock.
#[derive(Debug, Default)]
struct One {
    line: Line,
    waiting: BTreeMap<Place, Waiting>,
    ready: u32,
    /// How fast they become ready.
    pace: Pace,
    /// Counts what was said of `ready`.
    told: u64,
    /// Who was called and has not picked yet.
    called: u32,
    /// Browsers of this stock.
    size: usize,
    /// How many are meant to be ready.
    wanted: u32,
}

#[derive(Debug)]
struct Waiting {
    account: Id,
    has_browser: bool,
    call: oneshot::Sender<Turn>,
}

/// The right to pick before those who wait. It counts until it is dropped.
#[derive(Debug)]
pub(crate) struct Turn {
    queue: Arc<Queue>,
    stock: Stock,
}

impl Drop for Turn {
    fn drop(&mut self) {
        let mut inside = self.queue.inside();
        let one = inside.lines.entry(self.stock).or_default();
        one.called = one.called.saturating_sub(1);
    }
}

/// A place in line; whoever drops it leaves.
#[derive(Debug)]
pub(crate) struct Stand {
    queue: Arc<Queue>,
    stock: Stock,
    place: Place,
    pub(crate) call: oneshot::Receiver<Turn>,
    pub(crate) until: Instant,
    pub(crate) stood: Stood,
}

impl Drop for Stand {
    fn drop(&mut self) {
        let mut inside = self.queue.inside();
        if let Some(one) = inside.lines.get_mut(&self.stock) {
            one.line.leave(self.place);
            one.waiting.remove(&self.place);
        }
    }
}

impl Queue {
    pub(crate) fn new() -> Arc<Queue> {
        Arc::new(Queue {
            began: Instant::now(),
            inside: Mutex::default(),
        })
    }

    fn inside(&self) -> MutexGuard<'_, Inside> {
        // Whatever is inside is whole after each statement.
        self.inside.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn mono(&self, at: Instant) -> Mono {
        let nanos = at.saturating_duration_since(self.began).as_nanos();
        Mono::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }

    /// An account asks; whether it may pick without standing in line, given whether it has a browser.
    /// `None` where that has to be known first.
    pub(crate) fn may_pick(&self, ask: &Ask, has_browser: Option<bool>) -> Option<bool> {
        let now = self.mono(Instant::now());
        let mut inside = self.inside();
        inside.reserve.asked(ask.account, now);
        let reserve = inside.reserve;
        let one = inside.lines.entry(ask.stock).or_default();
        if !one.line.is_empty() {
            return Some(false);
        }
        let left = one.ready.saturating_sub(one.called);
        if left == 0 {
            // It is an estimate: where nobody else is on the way, asking costs nothing.
            return Some(one.called == 0);
        }
        if reserve.lets(left, one.wanted, true, now) {
            return Some(true);
        }
        has_browser.map(|has| reserve.lets(left, one.wanted, has, now))
    }

    /// What was said of the ready ones; to be handed to [`Queue::picked`].
    pub(crate) fn told(&self, stock: Stock) -> u64 {
        self.inside().lines.entry(stock).or_default().told
    }

    /// Somebody picked, or found nothing, who began when `told` was so.
    pub(crate) fn picked(&self, stock: Stock, found: bool, told: u64) {
        let mut inside = self.inside();
        let one = inside.lines.entry(stock).or_default();
        if found {
            one.ready = one.ready.saturating_sub(1);
        } else if one.told == told {
            one.ready = 0;
        }
    }

    /// Stands in line since `since`; `None` when there is no place.
    pub(crate) fn join(
        self: &Arc<Self>,
        ask: &Ask,
        has_browser: bool,
        since: Instant,
    ) -> Option<Stand> {
        let until = since + ask.patience();
        let waiter = Waiter {
            account: ask.account,
            weight: ask.weight,
            account_max: ask.limits.concurrent,
            class: ask.class,
            since: self.mono(since),
            until: self.mono(until),
        };
        let (call, called) = oneshot::channel();
        let mut inside = self.inside();
        let one = inside.lines.entry(ask.stock).or_default();
        let place = one.line.join(waiter, one.size)?;
        let people = one.line.before(place).map_or(1, |before| before + 1);
        let now = millis(self.mono(Instant::now()));
        let estimate = one.pace.estimate(now, people);
        let stood = Stood {
            place: people,
            estimate: estimate.map(|estimate| Duration::from_millis(estimate.shown_ms)),
        };
        let waiting = Waiting {
            account: ask.account,
            has_browser,
            call,
        };
        one.waiting.insert(place, waiting);
        let unheard = self.serve(&mut inside, ask.stock);
        drop(inside);
        drop(unheard);
        Some(Stand {
            queue: Arc::clone(self),
            stock: ask.stock,
            place,
            call: called,
            until,
            stood,
        })
    }

    /// So many more are ready.
    pub(crate) fn became_ready(self: &Arc<Self>, stock: Stock, count: u32) {
        let now = millis(self.mono(Instant::now()));
        let mut inside = self.inside();
        let one = inside.lines.entry(stock).or_default();
        one.ready = one.ready.saturating_add(count);
        for _ in 0..count {
            one.pace.came_free(now);
        }
        one.told += 1;
        let unheard = self.serve(&mut inside, stock);
        drop(inside);
        drop(unheard);
    }

    /// How many there are, looked up.
    pub(crate) fn stands(self: &Arc<Self>, stock: Stock, ready: u32, size: usize, wanted: u32) {
        let mut inside = self.inside();
        let one = inside.lines.entry(stock).or_default();
        (one.ready, one.size, one.wanted) = (ready, size, wanted);
        one.told += 1;
        let unheard = self.serve(&mut inside, stock);
        drop(inside);
        drop(unheard);
    }

    /// Calls who may be. Gives back the turns that nobody was there to take, which may only be
    /// dropped when the mutex is free.
    fn serve(self: &Arc<Self>, inside: &mut Inside, stock: Stock) -> Vec<Turn> {
        let now = self.mono(Instant::now());
        let reserve = inside.reserve;
        let one = inside.lines.entry(stock).or_default();
        let mut unheard = Vec::new();
        while one.ready > one.called && !one.line.is_empty() {
            let left = one.ready - one.called;
            let (waiting, wanted) = (&one.waiting, one.wanted);
            let has = |account: Id| {
                let mut of = waiting
                    .values()
                    .filter(|waiting| waiting.account == account);
                of.any(|waiting| waiting.has_browser)
            };
            let lets = |account| reserve.lets(left, wanted, has(account), now);
            let Some((place, _)) = one.line.serve(lets) else {
                break;
            };
            if let Some(waiting) = one.waiting.remove(&place) {
                one.called += 1;
                let turn = Turn {
                    queue: Arc::clone(self),
                    stock,
                };
                if let Err(turn) = waiting.call.send(turn) {
                    unheard.push(turn);
                }
            }
        }
        unheard
    }

    /// Stocks that somebody waits for.
    pub(crate) fn is_waited_for(&self) -> bool {
        let inside = self.inside();
        inside.lines.values().any(|one| !one.line.is_empty())
    }

    pub(crate) fn standing(&self) -> Vec<Standing> {
        let now = self.mono(Instant::now());
        let inside = self.inside();
        let lines = inside.lines.iter();
        lines
            .map(|(&stock, one)| Standing {
                stock,
                len: one.line.len(),
                age: one.line.age(now),
            })
            .collect()
    }
}

fn millis(at: Mono) -> u64 {
    at.as_nanos() / 1_000_000
}
