//! Pictures that were drawn a moment ago, and those that are being drawn.
//!
//! Whoever asks for the same as somebody else at the same time waits for the same picture: what a
//! popular page costs is one browser. Bounded in bytes and entries; the oldest go first.
//!
//! Source: browser specification 6.6.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use bytes::Bytes;

use super::Waiting;

/// Bytes of all that is kept, the keys too.
const BYTES_MAX: usize = 64 << 20;
/// How many are kept.
const ENTRIES_MAX: usize = 1_024;
/// Bytes of one of them.
const ENTRY_MAX: usize = 8 << 20;
/// Bytes of what is asked, where an answer to it is kept.
pub(crate) const KEY_MAX: usize = 16 << 10;
/// From so many on those that nobody waits for any more are looked for.
const UNDER_WAY_MIN: usize = 64;

#[derive(Debug, Default)]
pub(crate) struct Cache {
    inside: Mutex<Inside>,
}

#[derive(Debug, Default)]
struct Inside {
    kept: HashMap<Arc<str>, Kept>,
    /// In the order in which they came, with their number: what was replaced is here twice.
    order: VecDeque<(Arc<str>, u64)>,
    bytes: usize,
    number: u64,
    under_way: HashMap<Arc<str>, Weak<Waiting>>,
}

#[derive(Debug)]
struct Kept {
    picture: Bytes,
    since: Instant,
    ttl: Duration,
    number: u64,
}

/// What there is for somebody who asks.
#[derive(Debug)]
pub(crate) enum Found {
    Picture(Bytes),
    /// Somebody else has it drawn.
    UnderWay(Arc<Waiting>),
    /// It was not there, and is being drawn now.
    Started(Arc<Waiting>),
}

impl Cache {
    fn inside(&self) -> MutexGuard<'_, Inside> {
        // Whatever is inside is whole after each statement.
        self.inside.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What there is that is not older than `ttl`; `start` has it drawn where there is nothing.
    pub(crate) fn find(
        &self,
        key: &Arc<str>,
        ttl: Duration,
        now: Instant,
        start: impl FnOnce() -> Waiting,
    ) -> Found {
        let mut inside = self.inside();
        if let Some(kept) = inside.kept.get(key)
            && now.saturating_duration_since(kept.since) < kept.ttl.min(ttl)
        {
            return Found::Picture(kept.picture.clone());
        }
        let under_way = inside.under_way.get(key).and_then(Weak::upgrade);
        if let Some(waiting) = under_way.filter(|waiting| !waiting.has_failed()) {
            return Found::UnderWay(waiting);
        }
        if inside.under_way.len() >= UNDER_WAY_MIN {
            inside
                .under_way
                .retain(|_, waiting| waiting.strong_count() > 0);
        }
        let waiting = Arc::new(start());
        let weak = Arc::downgrade(&waiting);
        inside.under_way.insert(Arc::clone(key), weak);
        Found::Started(waiting)
    }

    /// Keeps what was drawn.
    pub(crate) fn keep(&self, key: &Arc<str>, picture: &Bytes, ttl: Duration, now: Instant) {
        let mut inside = self.inside();
        inside.under_way.remove(key);
        let size = key.len() + picture.len();
        if size > ENTRY_MAX {
            return;
        }
        inside.remove(key);
        inside.number += 1;
        let number = inside.number;
        let kept = Kept {
            picture: picture.clone(),
            since: now,
            ttl,
            number,
        };
        inside.kept.insert(Arc::clone(key), kept);
        inside.order.push_back((Arc::clone(key), number));
        inside.bytes += size;
        while inside.bytes > BYTES_MAX
            || inside.kept.len() > ENTRIES_MAX
            || inside.first_is_over(now)
        {
            let Some((key, number)) = inside.order.pop_front() else {
                return;
            };
            if inside
                .kept
                .get(&key)
                .is_some_and(|kept| kept.number == number)
            {
                inside.remove(&key);
            }
        }
    }
}

impl Inside {
    fn remove(&mut self, key: &Arc<str>) {
        if let Some(kept) = self.kept.remove(key) {
            self.bytes -= key.len() + kept.picture.len();
        }
    }

    /// Whether the oldest is replaced or too old.
    fn first_is_over(&self, now: Instant) -> bool {
        self.order.front().is_some_and(|(key, number)| {
            let kept = self.kept.get(key).filter(|kept| kept.number == *number);
            kept.is_none_or(|kept| now.saturating_duration_since(kept.since) >= kept.ttl)
        })
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::watch;

    use super::super::{Outcome, Why};
    use super::*;

    fn key(text: &str) -> Arc<str> {
        text.into()
    }

    type Told = watch::Sender<Option<Arc<Outcome>>>;

    fn waiting() -> (Told, Waiting) {
        let (told, waiting) = watch::channel(None);
        (told, Waiting(waiting))
    }

    const TTL: Duration = Duration::from_secs(5);

    #[tokio::test]
    async fn those_who_ask_together_wait_together_and_the_last_one_ends_it() {
        let (cache, now) = (Cache::default(), Instant::now());
        let (told, first) = waiting();
        let Found::Started(first) = cache.find(&key("a"), TTL, now, || first) else {
            panic!("nothing was there");
        };
        let second = match cache.find(&key("a"), TTL, now, || unreachable!()) {
            Found::UnderWay(second) => second,
            found => panic!("{found:?}"),
        };
        drop(first);
        assert!(!told.is_closed());
        drop(second);
        told.closed().await;
        let (told, third) = waiting();
        let found = cache.find(&key("a"), TTL, now, || third);
        assert!(matches!(found, Found::Started(_)), "{found:?}");
        // What failed is not shared with those who come later.
        let outcome = Outcome {
            picture: Err(Why::Ours),
            used: Duration::ZERO,
        };
        told.send(Some(Arc::new(outcome))).expect("heard");
        let again = cache.find(&key("a"), TTL, now, || waiting().1);
        assert!(matches!(again, Found::Started(_)), "{again:?}");
    }

    #[test]
    fn a_picture_is_as_old_as_both_allow() {
        let (cache, began) = (Cache::default(), Instant::now());
        let secs = Duration::from_secs;
        let there = |ttl, after| {
            let found = cache.find(&key("a"), secs(ttl), began + secs(after), || waiting().1);
            matches!(found, Found::Picture(_))
        };
        assert!(!there(5, 0));
        cache.keep(&key("a"), &Bytes::from_static(b"x"), secs(60), began);
        assert!(there(5, 0));
        assert!(!there(5, 10) && there(11, 10));
        assert!(!there(3_600, 60));
    }

    #[test]
    fn what_is_kept_is_bounded() {
        let (cache, now) = (Cache::default(), Instant::now());
        let picture = Bytes::from(vec![0; 1 << 20]);
        for number in 0..200 {
            cache.keep(&key(&number.to_string()), &picture, TTL, now);
            cache.keep(&key("again"), &picture, TTL, now);
        }
        let sum = |inside: &Inside| {
            let kept = inside.kept.iter();
            kept.map(|(key, kept)| key.len() + kept.picture.len())
                .sum::<usize>()
        };
        {
            let inside = cache.inside();
            assert_eq!(inside.bytes, sum(&inside));
            assert!(inside.bytes <= BYTES_MAX && inside.kept.len() > 50);
            assert!(inside.kept.contains_key("again"));
        }
        for number in 0..3_000 {
            cache.keep(&key(&number.to_string()), &Bytes::new(), TTL, now);
        }
        assert!(cache.inside().kept.len() <= ENTRIES_MAX);
        cache.keep(&key("large"), &Bytes::from(vec![0; ENTRY_MAX]), TTL, now);
        assert!(!cache.inside().kept.contains_key("large"));
        // What is too old goes with the next that comes.
        cache.keep(&key("new"), &picture, TTL, now + TTL);
        let inside = cache.inside();
        assert_eq!((inside.kept.len(), inside.order.len()), (1, 1));
    }
}
