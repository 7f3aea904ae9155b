//! Where to wait when all browsers are taken: briefly, bounded, and fairly.
//!
//! Classes are strict: who sits before a page goes before a screenshot, and both before a crawl.
//! Within a class accounts take turns (deficit round robin: in each round an account is served as
//! often as its weight), so a hundred callers of one account wait behind each other and not before
//! the one of another. Who leaves is out at once and is never given a browser.
//!
//! Source: browser specification 9.4, clarification 44.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use crate::id::Id;
use crate::time::Mono;

/// Places there are at least, however small the pool is.
pub const PLACES_MIN: usize = 64;
/// The longest that a caller may ask to wait.
pub const WAIT_MAX: Duration = Duration::from_secs(30);

/// What a browser is wanted for, the most urgent first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Class {
    /// A session: somebody drives it.
    Session,
    /// One page, one answer.
    QuickAction,
    /// A page of a crawl.
    Crawl,
}

impl Class {
    /// Every class, the most urgent first.
    pub const ALL: [Class; 3] = [Class::Session, Class::QuickAction, Class::Crawl];

    /// How long one waits that did not say how long.
    #[must_use]
    pub const fn wait(self) -> Duration {
        match self {
            Class::Session => Duration::from_secs(3),
            Class::QuickAction | Class::Crawl => Duration::from_secs(10),
        }
    }
}

/// Names one waiter, in the order of arrival.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place(u64);

/// One who waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Waiter {
    /// Whose caller.
    pub account: Id,
    /// How often the account is served in a round, at least 1.
    pub weight: u32,
    /// The most callers of the account that wait together.
    pub account_max: u32,
    /// What for.
    pub class: Class,
    /// Since when.
    pub since: Mono,
    /// Until when.
    pub until: Mono,
}

/// The callers of one account in one class.
#[derive(Debug, Clone, Default)]
struct Turn {
    waiting: VecDeque<Place>,
    /// What is left of its turn.
    deficit: u32,
}

/// One class: its accounts, and in which order they take turns.
#[derive(Debug, Clone, Default)]
struct Ring {
    order: VecDeque<Id>,
    turns: BTreeMap<Id, Turn>,
}

impl Ring {
    fn push(&mut self, account: Id, place: Place) {
        let turn = self.turns.entry(account).or_default();
        if turn.waiting.is_empty() {
            self.order.push_back(account);
        }
        turn.waiting.push_back(place);
    }

    fn remove(&mut self, account: Id, place: Place) {
        let Some(turn) = self.turns.get_mut(&account) else {
            return;
        };
        turn.waiting.retain(|&waiting| waiting != place);
        if turn.waiting.is_empty() {
            self.turns.remove(&account);
            self.order.retain(|&waiting| waiting != account);
        }
    }

    /// The next caller of an account that `may` be served. An account that may not keeps its turn
    /// for when it may.
    fn next(&mut self, weight: impl Fn(Place) -> u32, may: impl Fn(Id) -> bool) -> Option<Place> {
        let at = self.order.iter().position(|&account| may(account))?;
        let account = self.order[at];
        let turn = self.turns.get_mut(&account)?;
        let place = turn.waiting.pop_front()?;
        if turn.deficit == 0 {
            turn.deficit = weight(place).max(1);
        }
        turn.deficit -= 1;
        if turn.waiting.is_empty() {
            // Nothing is saved up for a time in which nobody waits.
            self.turns.remove(&account);
            self.order.remove(at);
        } else if turn.deficit == 0 {
            self.order.remove(at);
            self.order.push_back(account);
        }
        Some(place)
    }
}

/// The line of one region.
#[derive(Debug, Clone, Default)]
pub struct Line {
    rings: [Ring; Class::ALL.len()],
    waiters: BTreeMap<Place, Waiter>,
    ends: BTreeSet<(Mono, Place)>,
    /// Callers of each account, over all classes.
    counts: BTreeMap<Id, u32>,
    arrived: u64,
}

impl Line {
    /// Stands at the end; `None` when there is no place, for the account or at all.
    /// `pool_size` is how many browsers the region may have.
    pub fn join(&mut self, waiter: Waiter, pool_size: usize) -> Option<Place> {
        let count = self.counts.get(&waiter.account).copied().unwrap_or(0);
        let places = pool_size.saturating_mul(2).max(PLACES_MIN);
        if count >= waiter.account_max.max(1) || self.waiters.len() >= places {
            return None;
        }
        let until = waiter.until.min(waiter.since.after(WAIT_MAX));
        let waiter = Waiter { until, ..waiter };
        self.arrived += 1;
        let place = Place(self.arrived);
        self.rings[waiter.class as usize].push(waiter.account, place);
        self.counts.insert(waiter.account, count + 1);
        self.ends.insert((until, place));
        self.waiters.insert(place, waiter);
        Some(place)
    }

    /// Goes away: served, or not waiting any more. `None` when it was not there.
    pub fn leave(&mut self, place: Place) -> Option<Waiter> {
        let waiter = self.forget(place)?;
        self.rings[waiter.class as usize].remove(waiter.account, place);
        Some(waiter)
    }

    fn forget(&mut self, place: Place) -> Option<Waiter> {
        let waiter = self.waiters.remove(&place)?;
        self.ends.remove(&(waiter.until, place));
        if let Some(count) = self.counts.get_mut(&waiter.account) {
            *count -= 1;
            if *count == 0 {
                self.counts.remove(&waiter.account);
            }
        }
        Some(waiter)
    }

    /// The next to be served, out of the accounts that `may` be, who leaves the line with that.
    pub fn serve(&mut self, may: impl Fn(Id) -> bool) -> Option<(Place, Waiter)> {
        let waiters = &self.waiters;
        let weight = |place| waiters.get(&place).map_or(1, |waiter| waiter.weight);
        let place = self
            .rings
            .iter_mut()
            .find_map(|ring| ring.next(weight, &may))?;
        Some((place, self.forget(place)?))
    }

    /// One whose wait is over at `now`, who leaves the line with that. To be asked until `None`.
    pub fn expired(&mut self, now: Mono) -> Option<(Place, Waiter)> {
        let &(until, place) = self.ends.first()?;
        if until > now {
            return None;
        }
        Some((place, self.leave(place)?))
    }

    /// When the next wait is over.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Mono> {
        self.ends.first().map(|&(until, _)| until)
    }

    /// How many are served before `place`, if nobody comes or goes; `None` when it is not there.
    /// Costs as much as serving them.
    #[must_use]
    pub fn before(&self, place: Place) -> Option<usize> {
        self.waiters.get(&place)?;
        let mut line = self.clone();
        let served = std::iter::from_fn(|| line.serve(|_| true));
        Some(served.take_while(|&(next, _)| next != place).count())
    }

    /// How many wait.
    #[must_use]
    pub fn len(&self) -> usize {
        self.waiters.len()
    }

    /// Whether nobody waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.waiters.is_empty()
    }

    /// How long the first has waited; zero when nobody does.
    #[must_use]
    pub fn age(&self, now: Mono) -> Duration {
        let first = self.waiters.values().next();
        first.map_or(Duration::ZERO, |waiter| now.since(waiter.since))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::Kind;
    use proptest::prelude::*;

    fn account(number: usize) -> Id {
        Id::derive("test", Kind::Account, &number.to_string())
    }

    fn waiter(of: usize, weight: u32, class: Class) -> Waiter {
        Waiter {
            account: account(of),
            weight,
            account_max: 100,
            class,
            since: Mono::ZERO,
            until: Mono::ZERO.after(class.wait()),
        }
    }

    /// `line` served until it is empty, as account numbers.
    fn order(mut line: Line) -> Vec<usize> {
        std::iter::from_fn(|| line.serve(|_| true))
            .map(|(_, waiter)| (0..9).find(|&of| account(of) == waiter.account).unwrap())
            .collect()
    }

    #[test]
    fn accounts_take_turns_by_weight() {
        let mut line = Line::default();
        for (of, weight, times) in [(0, 1, 4), (1, 2, 4), (2, 1, 1)] {
            for _ in 0..times {
                line.join(waiter(of, weight, Class::Session), 100).unwrap();
            }
        }
        assert_eq!(order(line), [0, 1, 1, 2, 0, 1, 1, 0, 0]);
    }

    #[test]
    fn classes_are_strict() {
        let mut line = Line::default();
        for (of, class) in [
            (0, Class::Crawl),
            (1, Class::QuickAction),
            (2, Class::Session),
        ] {
            line.join(waiter(of, 1, class), 100).unwrap();
        }
        assert_eq!(order(line), [2, 1, 0]);
    }

    #[test]
    fn who_may_not_be_served_keeps_the_turn() {
        let mut line = Line::default();
        for of in [0, 0, 1, 1] {
            line.join(waiter(of, 1, Class::Session), 100).unwrap();
        }
        let (_, served) = line.serve(|of| of != account(0)).unwrap();
        assert_eq!(served.account, account(1));
        assert!(line.serve(|_| false).is_none());
        assert_eq!(order(line), [0, 1, 0]);
    }

    #[test]
    fn places_are_bounded() {
        let mut line = Line::default();
        let few = Waiter {
            account_max: 2,
            ..waiter(0, 1, Class::Session)
        };
        assert!(line.join(few, 0).is_some());
        let second = line.join(few, 0).unwrap();
        assert!(line.join(few, 0).is_none());
        line.leave(second);
        assert!(line.join(few, 0).is_some());
        let all = (0..100).filter(|_| line.join(waiter(1, 1, Class::Session), 0).is_some());
        assert_eq!(all.count(), PLACES_MIN - 2);
        assert!(line.join(waiter(1, 1, Class::Session), 33).is_some());
    }

    #[test]
    fn a_wait_ends_when_it_was_said_to() {
        let mut line = Line::default();
        let at = |millis| Mono::ZERO.after(Duration::from_millis(millis));
        let session = line.join(waiter(0, 1, Class::Session), 0).unwrap();
        let patient = Waiter {
            until: at(99_000),
            ..waiter(0, 1, Class::Session)
        };
        line.join(patient, 0).unwrap();
        assert_eq!(line.poll_timeout(), Some(at(3_000)));
        assert!(line.expired(at(2_999)).is_none());
        assert_eq!(
            line.expired(at(3_000)).map(|(place, _)| place),
            Some(session)
        );
        assert!(line.expired(at(29_999)).is_none());
        assert!(line.expired(at(30_000)).is_some());
        assert!(line.is_empty() && line.poll_timeout().is_none());
    }

    proptest! {
        /// Whoever comes and goes: nobody is lost, nobody is served twice, and while two accounts
        /// both wait all the time neither gets more than a turn ahead of its share.
        #[test]
        fn fair_and_complete(
            steps in proptest::collection::vec((0_u8..4, 0_usize..4, 0_usize..3), 1..200),
        ) {
            let mut line = Line::default();
            let mut inside = BTreeSet::new();
            for (what, of, class) in steps {
                match what {
                    0 | 1 => inside.extend(line.join(waiter(of, of as u32 + 1, Class::ALL[class]), 50)),
                    2 => {
                        if let Some((place, _)) = line.serve(|_| true) {
                            prop_assert!(inside.remove(&place));
                        }
                    }
                    _ => {
                        if let Some(place) = inside.pop_first() {
                            prop_assert!(line.leave(place).is_some());
                            prop_assert!(line.leave(place).is_none());
                        }
                    }
                }
                prop_assert_eq!(line.len(), inside.len());
                prop_assert!(line.before(Place(u64::MAX)).is_none());
            }
            let before: Vec<_> = inside.iter().map(|&place| line.before(place).unwrap()).collect();
            prop_assert_eq!(before.iter().copied().collect::<BTreeSet<_>>(), (0..inside.len()).collect());
            let places: Vec<_> = inside.iter().copied().collect();
            for at in 0..inside.len() {
                let (place, _) = line.serve(|_| true).unwrap();
                let index = places.iter().position(|&known| known == place).unwrap();
                prop_assert_eq!(before[index], at);
            }
            prop_assert!(line.is_empty() && line.counts.is_empty() && line.ends.is_empty());
            prop_assert!(line.rings.iter().all(|ring| ring.order.is_empty() && ring.turns.is_empty()));
        }

        #[test]
        fn shares_follow_weights(weights in proptest::collection::vec(1_u32..9, 2..6)) {
            let mut line = Line::default();
            for (of, &weight) in weights.iter().enumerate() {
                for _ in 0..weight * 10 {
                    line.join(waiter(of, weight, Class::QuickAction), 1_000).unwrap();
                }
            }
            let rounds = 7;
            let turns = rounds * weights.iter().sum::<u32>();
            let mut served = vec![0; weights.len()];
            for _ in 0..turns {
                let (_, next) = line.serve(|_| true).unwrap();
                served[(0..9).find(|&of| account(of) == next.account).unwrap()] += 1;
            }
            for (of, &weight) in weights.iter().enumerate() {
                prop_assert_eq!(served[of], rounds * weight);
            }
        }
    }
}
