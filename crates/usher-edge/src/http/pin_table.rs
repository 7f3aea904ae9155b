//! The pins of visitors who are known by their headers: one table for all workers of the process.
//!
//! Visitors choose the keys, so the table has a bound, and a full place gives way: the pin that ends
//! first goes, and its visitor is steered anew. Nothing here locks. A place is a pointer that is
//! swapped; the one thing that changes with every request, when a pin was last used, is a number
//! inside the pin. Places are grouped by key, so finding one looks at [`WAYS`] of them.
//!
//! Of two requests of one new visitor that are under way at one time, the one that is answered last
//! says where the visitor stays.

use std::collections::HashMap;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use arc_swap::ArcSwapOption;
use usher_core::affinity::{Pin, PinKey};
use usher_core::id::Id;
use usher_core::time::Wall;

/// Most pins at one time. Full, the table takes about 150 MiB; while no load balancer knows visitors
/// by headers it takes nothing.
pub const PINS_MAX: usize = 1 << 20;

/// Places that a key may be in.
const WAYS: usize = 8;

/// Attempts to store a pin while others store theirs in the same places.
const ATTEMPTS_MAX: usize = 16;

/// Pins by key. Any number of threads use one.
#[derive(Debug)]
pub struct PinTable {
    groups: OnceLock<Box<[Group]>>,
    pins_max: usize,
    evicted: AtomicU64,
}

type Group = [ArcSwapOption<Entry>; WAYS];

#[derive(Debug)]
struct Entry {
    key: PinKey,
    /// But for `since`, which is below.
    pin: Pin,
    /// Milliseconds since 1970.
    since: AtomicI64,
}

impl Entry {
    fn pin(&self) -> Pin {
        Pin {
            since: Wall::from_millis(self.since.load(Ordering::Relaxed)),
            ..self.pin
        }
    }

    fn is_over(&self, now: Wall) -> bool {
        now >= self.pin().ends()
    }
}

impl PinTable {
    /// A table of at most `pins_max` pins, rounded up to a power of two. Takes no memory before the
    /// first pin.
    #[must_use]
    pub fn new(pins_max: usize) -> PinTable {
        PinTable {
            groups: OnceLock::new(),
            pins_max,
            evicted: AtomicU64::new(0),
        }
    }

    /// The pin under `key`, be it over or not.
    #[must_use]
    pub fn find(&self, key: PinKey) -> Option<Pin> {
        let group = group(self.groups.get()?, key);
        group.iter().find_map(|place| {
            let found = place.load();
            found
                .as_ref()
                .filter(|entry| entry.key == key)
                .map(|entry| entry.pin())
        })
    }

    /// Keeps `pin` under `key`, in place of what is there.
    pub fn remember(&self, key: PinKey, pin: Pin) {
        let group = group(self.groups.get_or_init(|| self.open()), key);
        for _ in 0..ATTEMPTS_MAX {
            let (place, before) = choose(group, key, pin.since);
            let same = before.as_ref().filter(|entry| entry.key == key);
            if let Some(entry) = same.filter(|entry| is_same(&entry.pin, &pin)) {
                let since = pin.since.as_millis();
                entry.since.fetch_max(since, Ordering::Relaxed);
                return;
            }
            let evicts = same.is_none() && before.as_ref().is_some_and(|it| !it.is_over(pin.since));
            let entry = Arc::new(Entry {
                key,
                pin,
                since: AtomicI64::new(pin.since.as_millis()),
            });
            let seen = group[place].compare_and_swap(&before, Some(entry));
            if is_same_entry(seen.as_ref(), before.as_ref()) {
                if evicts {
                    self.evicted.fetch_add(1, Ordering::Relaxed);
                }
                return;
            }
        }
        // Others took every place: as if they had come a moment later.
        self.evicted.fetch_add(1, Ordering::Relaxed);
    }

    /// Forgets the pins that are over, and says how many there are left to each endpoint. Walks the
    /// whole table: some milliseconds when it is full.
    #[must_use]
    pub fn live(&self, now: Wall) -> HashMap<Id, u64> {
        let mut live = HashMap::new();
        for place in self.groups.get().into_iter().flatten().flatten() {
            let Some(entry) = place.load_full() else {
                continue;
            };
            if entry.is_over(now) {
                // One that was used or replaced just now stays.
                place.compare_and_swap(&entry, None);
            } else {
                *live.entry(entry.pin.endpoint).or_default() += 1;
            }
        }
        live
    }

    /// Pins that gave way to others before they were over.
    #[must_use]
    pub fn evicted(&self) -> u64 {
        self.evicted.load(Ordering::Relaxed)
    }

    fn open(&self) -> Box<[Group]> {
        let groups = (self.pins_max / WAYS).max(1).next_power_of_two();
        (0..groups).map(|_| Group::default()).collect()
    }
}

impl Default for PinTable {
    fn default() -> PinTable {
        PinTable::new(PINS_MAX)
    }
}

fn group(groups: &[Group], key: PinKey) -> &Group {
    // The key is a hash already, and the number of groups is a power of two.
    &groups[key.0 as usize & (groups.len() - 1)]
}

fn is_same(one: &Pin, other: &Pin) -> bool {
    Pin {
        since: one.since,
        ..*other
    } == *one
}

fn is_same_entry(one: Option<&Arc<Entry>>, other: Option<&Arc<Entry>>) -> bool {
    match (one, other) {
        (Some(one), Some(other)) => Arc::ptr_eq(one, other),
        (None, None) => true,
        _ => false,
    }
}

/// The place for `key`, and what is in it: its own, else a free one, else that of a pin that is
/// over, else that of the pin that ends first.
fn choose(group: &Group, key: PinKey, now: Wall) -> (usize, Option<Arc<Entry>>) {
    let mut best: Option<(Wall, usize, Option<Arc<Entry>>)> = None;
    for (place, entry) in group.iter().enumerate() {
        let entry = entry.load_full();
        let ends = match &entry {
            Some(entry) if entry.key == key => return (place, Some(Arc::clone(entry))),
            Some(entry) if entry.is_over(now) => Wall::from_millis(i64::MIN + 1),
            Some(entry) => entry.pin().ends(),
            None => Wall::from_millis(i64::MIN),
        };
        if best.as_ref().is_none_or(|(least, ..)| ends < *least) {
            best = Some((ends, place, entry));
        }
    }
    let (_, place, entry) = best.expect("a group has places");
    (place, entry)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use usher_core::id::Kind;

    use super::*;

    fn id(kind: Kind, key: &str) -> Id {
        Id::derive("default", kind, key)
    }

    fn pin(endpoint: &str, since: i64) -> Pin {
        Pin {
            balancer: id(Kind::Balancer, "shop.example.com"),
            pool: id(Kind::Pool, "eu"),
            endpoint: id(Kind::Endpoint, endpoint),
            since: Wall::from_millis(since * 1000),
            ttl: Duration::from_secs(30),
        }
    }

    fn at(secs: i64) -> Wall {
        Wall::from_millis(secs * 1000)
    }

    #[test]
    fn a_pin_is_found_until_another_takes_its_place() {
        let table = PinTable::new(64);
        let key = PinKey(7);
        assert_eq!(table.find(key), None);
        table.remember(key, pin("a", 0));
        assert_eq!(table.find(key), Some(pin("a", 0)));
        assert_eq!(table.find(PinKey(8)), None);
        table.remember(key, pin("a", 20));
        assert_eq!(table.find(key), Some(pin("a", 20)), "it slides");
        table.remember(key, pin("a", 10));
        assert_eq!(table.find(key), Some(pin("a", 20)), "and never back");
        table.remember(key, pin("b", 21));
        assert_eq!(table.find(key), Some(pin("b", 21)));
        assert_eq!(table.evicted(), 0);
    }

    #[test]
    fn what_is_over_makes_room_and_is_forgotten() {
        let table = PinTable::new(WAYS);
        for key in 0..WAYS as u128 {
            table.remember(PinKey(key), pin("a", key as i64));
        }
        let counted = |now| table.live(at(now)).into_values().sum::<u64>();
        assert_eq!(counted(7), 8);
        // The first two are over.
        table.remember(PinKey(100), pin("b", 31));
        assert_eq!(table.evicted(), 0);
        assert_eq!(counted(31), 7, "six, and the new one");
        assert_eq!(table.find(PinKey(1)), None, "forgotten while counting");
        assert_eq!(table.live(at(31))[&id(Kind::Endpoint, "b")], 1);
    }

    #[test]
    fn a_full_table_gives_up_the_pin_that_ends_first() {
        let table = PinTable::new(WAYS);
        for key in 0..WAYS as u128 {
            table.remember(PinKey(key), pin("a", key as i64));
        }
        table.remember(PinKey(0), pin("a", 20));
        table.remember(PinKey(100), pin("b", 21));
        assert_eq!(table.evicted(), 1);
        assert_eq!(table.find(PinKey(1)), None, "the oldest that was not used");
        assert_eq!(table.find(PinKey(0)), Some(pin("a", 20)));
        for key in 0..10_000 {
            table.remember(PinKey(key), pin("c", 22));
        }
        let live: u64 = table.live(at(22)).into_values().sum();
        assert_eq!(live, WAYS as u64, "never more than its bound");
    }

    #[test]
    fn of_many_who_write_at_one_time_nothing_is_lost() {
        let table = PinTable::new(1 << 14);
        std::thread::scope(|scope| {
            for worker in 0..4_u128 {
                let table = &table;
                scope.spawn(move || {
                    for key in 0..500 {
                        // Each key from every thread, all to one endpoint.
                        table.remember(PinKey(key), pin("a", 0));
                        // And some of its own.
                        let own = PinKey(1000 + 4 * key + worker);
                        table.remember(own, pin("b", 0));
                        assert_eq!(table.find(own), Some(pin("b", 0)));
                    }
                });
            }
        });
        assert_eq!(table.evicted(), 0);
        for key in 0..500 {
            assert_eq!(table.find(PinKey(key)), Some(pin("a", 0)));
        }
        let live = table.live(at(1));
        assert_eq!(live[&id(Kind::Endpoint, "b")], 2000);
    }
}
