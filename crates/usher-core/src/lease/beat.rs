//! Heartbeats: gathered into batches, so that a hundred of them cost the store one write.
//!
//! Each says where a browser stands, with a number that its node counts up, so that it may be lost,
//! repeated, late or out of order: the newest of a browser wins, and in five seconds there is
//! another. A batch that fails is tried once more and then dropped, for the same reason. What
//! cannot be helped is a queue that lags: then the pool looks older than it is, and its region is
//! left alone until it has caught up.
//!
//! Source: browser specification 11.7.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use super::browser::Phase;
use super::close::CloseReason;
use super::{Boot, BrowserId, Epoch, NodeId};
use crate::time::Mono;

/// How often each browser's state is told.
pub const EVERY: Duration = Duration::from_secs(5);
/// Heartbeats that may wait; the oldest are dropped beyond it. Five seconds of 500,000 browsers.
pub const QUEUE_MAX: usize = 500_000;

/// Where one browser stands, as its node tells it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Heartbeat {
    /// Which browser.
    pub browser: BrowserId,
    /// Counts what the node's agent says; larger is newer.
    pub seq: u64,
    /// Where it stands.
    pub phase: Phase,
    /// The newest lease that the node has heard of.
    pub epoch: Epoch,
    /// Memory, in KiB.
    pub mem_kib: u32,
    /// Since when no command has come: a span, because clocks of nodes are never compared.
    pub quiet: Duration,
    /// Why its session ends, where it does.
    pub reason: CloseReason,
}

/// Heartbeats of one start of one node's agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Group {
    /// The node.
    pub node: NodeId,
    /// Which start of its agent.
    pub boot: Boot,
    /// One of each browser at most.
    pub beats: Vec<Heartbeat>,
}

/// The three numbers of the queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settings {
    /// Heartbeats in one write. Range 1..=10000, default 100.
    pub batch_size: usize,
    /// How long the first waits for others. Default 1 s.
    pub batch_wait: Duration,
    /// Tries after the first. Default 1.
    pub retries_max: u32,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            batch_size: 100,
            batch_wait: Duration::from_secs(1),
            retries_max: 1,
        }
    }
}

/// The queue of one region.
#[derive(Debug, Default)]
pub struct Queue {
    settings: Settings,
    waiting: VecDeque<(Mono, NodeId, Boot, Heartbeat)>,
    dropped: u64,
}

/// One write, and how often it has failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Batch {
    /// By node.
    pub groups: Vec<Group>,
    tries: u32,
}

impl Batch {
    /// The same once more; `None` when it was tried often enough and is dropped.
    #[must_use]
    pub fn again(mut self, settings: &Settings) -> Option<Batch> {
        self.tries += 1;
        (self.tries <= settings.retries_max).then_some(self)
    }

    /// How many heartbeats.
    #[must_use]
    pub fn len(&self) -> usize {
        self.groups.iter().map(|group| group.beats.len()).sum()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.groups.is_empty()
    }
}

impl Queue {
    /// An empty one.
    #[must_use]
    pub fn new(settings: Settings) -> Queue {
        Queue {
            settings,
            ..Queue::default()
        }
    }

    /// Puts one in.
    pub fn push(&mut self, node: NodeId, boot: Boot, beat: Heartbeat, now: Mono) {
        self.waiting.push_back((now, node, boot, beat));
        if self.waiting.len() > QUEUE_MAX {
            self.waiting.pop_front();
            self.dropped += 1;
        }
    }

    /// What to write now: a full batch, or less when the first has waited long enough.
    pub fn poll_batch(&mut self, now: Mono) -> Option<Batch> {
        let size = self.settings.batch_size.max(1);
        if self.waiting.len() < size && self.poll_timeout().is_none_or(|due| due > now) {
            return None;
        }
        let mut groups: BTreeMap<(NodeId, Boot), BTreeMap<BrowserId, Heartbeat>> = BTreeMap::new();
        let count = self.waiting.len().min(size);
        for (_, node, boot, beat) in self.waiting.drain(..count) {
            let beats = groups.entry((node, boot)).or_default();
            let newest = beats.entry(beat.browser).or_insert(beat);
            if newest.seq < beat.seq {
                *newest = beat;
            }
        }
        let groups = groups.into_iter().map(|((node, boot), beats)| Group {
            node,
            boot,
            beats: beats.into_values().collect(),
        });
        Some(Batch {
            groups: groups.collect(),
            tries: 0,
        })
    }

    /// When the first has waited long enough.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Mono> {
        let first = self.waiting.front();
        first.map(|&(since, ..)| since.after(self.settings.batch_wait))
    }

    /// How long the oldest has waited; zero when none does.
    #[must_use]
    pub fn age(&self, now: Mono) -> Duration {
        let first = self.waiting.front();
        first.map_or(Duration::ZERO, |&(since, ..)| now.since(since))
    }

    /// How many wait.
    #[must_use]
    pub fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Whether none waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// The three numbers.
    #[must_use]
    pub const fn settings(&self) -> Settings {
        self.settings
    }

    /// How many were dropped because the queue was full.
    #[must_use]
    pub const fn dropped(&self) -> u64 {
        self.dropped
    }
}

/// The age of the oldest heartbeat above which a region is left alone.
pub const LAG_MAX: Duration = Duration::from_secs(10);
/// The age below which it has caught up.
pub const LAG_FINE: Duration = Duration::from_secs(2);
/// How long it has to have caught up before it is trusted again.
pub const FINE_FOR: Duration = Duration::from_secs(30);

/// Whether what a region's pool says can be relied on.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Freshness {
    /// It can.
    #[default]
    Fresh,
    /// It cannot: picks go to the region's substitute.
    Lagging,
    /// It looks as if it could again, since then.
    Recovering(Mono),
}

impl Freshness {
    /// What holds after the oldest heartbeat in the queue is found to be `age` old.
    #[must_use]
    pub fn next(self, age: Duration, now: Mono) -> Freshness {
        match self {
            Freshness::Fresh if age > LAG_MAX => Freshness::Lagging,
            Freshness::Fresh => Freshness::Fresh,
            Freshness::Lagging | Freshness::Recovering(_) if age >= LAG_FINE => Freshness::Lagging,
            Freshness::Lagging => Freshness::Recovering(now),
            Freshness::Recovering(since) if now.since(since) >= FINE_FOR => Freshness::Fresh,
            Freshness::Recovering(since) => Freshness::Recovering(since),
        }
    }

    /// Whether picks go elsewhere.
    #[must_use]
    pub const fn is_degraded(self) -> bool {
        !matches!(self, Freshness::Fresh)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Mono {
        Mono::ZERO.after(Duration::from_millis(millis))
    }

    fn beat(browser: u128, seq: u64) -> Heartbeat {
        Heartbeat {
            browser: BrowserId(browser),
            seq,
            phase: Phase::Ready,
            epoch: Epoch(0),
            mem_kib: 0,
            quiet: Duration::ZERO,
            reason: CloseReason::Unknown,
        }
    }

    #[test]
    fn a_batch_is_full_or_has_waited() {
        let mut queue = Queue::new(Settings {
            batch_size: 3,
            ..Settings::default()
        });
        queue.push(NodeId(2), Boot(1), beat(1, 1), at(0));
        queue.push(NodeId(1), Boot(1), beat(2, 1), at(500));
        assert_eq!(queue.poll_batch(at(999)), None);
        assert_eq!(queue.poll_timeout(), Some(at(1_000)));
        let batch = queue.poll_batch(at(1_000)).expect("has waited");
        let nodes: Vec<NodeId> = batch.groups.iter().map(|group| group.node).collect();
        assert_eq!((batch.len(), nodes), (2, vec![NodeId(1), NodeId(2)]));
        for browser in 0..4 {
            queue.push(NodeId(1), Boot(1), beat(browser, 1), at(2_000));
        }
        assert_eq!(
            queue.poll_batch(at(2_000)).map(|batch| batch.len()),
            Some(3)
        );
        assert_eq!(queue.poll_batch(at(2_000)), None);
    }

    #[test]
    fn the_newest_of_a_browser_wins_and_starts_are_kept_apart() {
        let mut queue = Queue::default();
        for (boot, seq) in [(1, 7), (1, 9), (1, 8), (2, 1)] {
            queue.push(NodeId(1), Boot(boot), beat(5, seq), at(0));
        }
        let batch = queue.poll_batch(at(1_000)).expect("has waited");
        let told: Vec<_> = batch
            .groups
            .iter()
            .map(|group| (group.boot.0, group.beats[0].seq, group.beats.len()))
            .collect();
        assert_eq!(told, [(1, 9, 1), (2, 1, 1)]);
    }

    #[test]
    fn a_batch_is_tried_twice() {
        let mut queue = Queue::default();
        queue.push(NodeId(1), Boot(1), beat(1, 1), at(0));
        let batch = queue.poll_batch(at(1_000)).expect("has waited");
        let again = batch.again(&Settings::default()).expect("one retry");
        assert_eq!(again.again(&Settings::default()), None);
    }

    #[test]
    fn a_region_that_lags_is_trusted_after_half_a_minute() {
        let told = [
            (0, 10_000, false),
            (1, 10_001, true),
            (2, 2_000, true),
            (3, 1_999, true),
            (32, 1_000, true),
            (33, 1_000, false),
        ];
        let mut freshness = Freshness::Fresh;
        for (secs, age_ms, degraded) in told {
            freshness = freshness.next(Duration::from_millis(age_ms), at(secs * 1_000));
            assert_eq!(
                freshness.is_degraded(),
                degraded,
                "at {secs} s: {freshness:?}"
            );
        }
        let relapse = Freshness::Recovering(at(0)).next(LAG_FINE, at(40_000));
        assert_eq!(relapse, Freshness::Lagging);
    }
}
