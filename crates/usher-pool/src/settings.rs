//! What an engine is told when it is opened, and what it tells of its heartbeats.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use usher_core::lease::beat;
use usher_core::time::Wall;

/// Questions that wait for the writer together; one more waits outside, for as long as
/// [`Settings::patience`].
pub const JOBS_MAX: usize = 4_096;

/// News that are kept for a listener that does not keep up; it is told how many it missed.
pub const NEWS_MAX: usize = 4_096;

/// How a pool is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settings {
    /// The three numbers of the queue of heartbeats.
    pub beats: beat::Settings,
    /// How long a question waits for a pool that is locked or overloaded before it is refused.
    ///
    /// Range 10 ms to 60 s, default 2 s: a broker asks three times and has then kept its client
    /// waiting for six.
    pub patience: Duration,
    /// How much is remembered.
    pub retention: Retention,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            beats: beat::Settings::default(),
            patience: Duration::from_secs(2),
            retention: Retention::default(),
        }
    }
}

/// How long sessions that have ended stay in the history. The first bound that is reached counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retention {
    /// How long. Not less than an hour, default 30 days.
    pub age: Duration,
    /// How many of one account. Range 1..=1000000, default 10000.
    pub len: u32,
}

impl Default for Retention {
    fn default() -> Retention {
        Retention {
            age: Duration::from_secs(30 * 86_400),
            len: 10_000,
        }
    }
}

/// The one clock that a pool goes by. Clocks of nodes and brokers are never compared with it.
#[derive(Clone)]
pub struct Clock(Arc<dyn Fn() -> Wall + Send + Sync>);

impl Clock {
    /// The time of this machine.
    #[must_use]
    pub fn system() -> Clock {
        Clock::of(|| {
            let since = SystemTime::now().duration_since(UNIX_EPOCH);
            let millis = since.map_or(0, |since| since.as_millis());
            Wall::from_millis(i64::try_from(millis).unwrap_or(i64::MAX))
        })
    }

    /// Whatever `now` says. It may jump.
    #[must_use]
    pub fn of(now: impl Fn() -> Wall + Send + Sync + 'static) -> Clock {
        Clock(Arc::new(now))
    }

    /// What it shows.
    #[must_use]
    pub fn now(&self) -> Wall {
        (self.0)()
    }
}

impl fmt::Debug for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Clock").field(&self.now()).finish()
    }
}

/// What became of heartbeats, since the pool was opened.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Figures {
    /// Came in.
    pub received: u64,
    /// Were written and moved their browser, or showed that it is alive.
    pub counted: u64,
    /// Said nothing new: repeats, late ones, of browsers or starts of an agent that are past.
    pub outdated: u64,
    /// Were dropped because the queue was full.
    pub dropped_full: u64,
    /// Were dropped because they could not be written, tried as often as the settings say.
    pub dropped_failed: u64,
    /// Writes.
    pub batches: u64,
    /// How long they took together.
    pub writing: Duration,
    /// Wait now.
    pub waiting: usize,
    /// How long the oldest has waited.
    pub age: Duration,
    /// They wait so long that picks of this region should go to its substitute.
    pub degraded: bool,
}
