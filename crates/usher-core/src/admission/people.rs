//! Everybody in a room: found by identity, kept in place, and linked by how lately each was heard of.
//!
//! One table for waiting visitors and seat holders, so that nobody can be two things at once. Its
//! pages never move, and a slot is a number that the ordered sets hold in place of an identity.

use super::{Person, Visitor};
use crate::chance::scatter;
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

const PAGE: usize = 4096;
const NONE: u32 = u32::MAX;

/// A slot number cannot be greater: so many people, seated and waiting, fit in one room.
pub(super) const PEOPLE_MAX: usize = 1 << 31;

/// Identities are random already, and made by this program: nobody can choose them to collide.
#[derive(Debug, Clone, Copy, Default)]
struct ByHalves(u64);

impl Hasher for ByHalves {
    fn finish(&self) -> u64 {
        scatter(self.0)
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte));
        }
    }

    fn write_u64(&mut self, half: u64) {
        self.0 = self.0.rotate_left(32) ^ half;
    }
}

/// The hash of an identity is of half of it: the map compares the whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Id(Visitor);

impl std::hash::Hash for Id {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.0.half());
    }
}

#[derive(Debug, Clone)]
struct Card {
    person: Person,
    older: u32,
    newer: u32,
}

/// The people of a room.
#[derive(Debug, Clone, Default)]
pub(super) struct People {
    slots: HashMap<Id, u32, BuildHasherDefault<ByHalves>>,
    pages: Vec<Vec<Card>>,
    free: Vec<u32>,
}

impl People {
    pub(super) fn len(&self) -> usize {
        self.slots.len()
    }

    pub(super) fn find(&self, visitor: Visitor) -> Option<u32> {
        self.slots.get(&Id(visitor)).copied()
    }

    pub(super) fn at(&self, slot: u32) -> &Person {
        &self.card(slot).person
    }

    pub(super) fn at_mut(&mut self, slot: u32) -> &mut Person {
        &mut self.card_mut(slot).person
    }

    /// `person` must not be there.
    pub(super) fn add(&mut self, person: Person) -> u32 {
        let card = Card {
            person,
            older: NONE,
            newer: NONE,
        };
        let slot = if let Some(slot) = self.free.pop() {
            *self.card_mut(slot) = card;
            slot
        } else {
            if self.pages.last().is_none_or(|page| page.len() == PAGE) {
                self.pages.push(Vec::with_capacity(PAGE));
            }
            let before = (self.pages.len() - 1) * PAGE;
            let page = self.pages.last_mut().expect("one was just made");
            page.push(card);
            (before + page.len() - 1) as u32
        };
        self.slots.insert(Id(person.visitor), slot);
        slot
    }

    /// Whoever is in `slot` must be in no list.
    pub(super) fn remove(&mut self, slot: u32) {
        let visitor = self.at(slot).visitor;
        self.slots.remove(&Id(visitor));
        self.free.push(slot);
    }

    fn card(&self, slot: u32) -> &Card {
        &self.pages[slot as usize / PAGE][slot as usize % PAGE]
    }

    fn card_mut(&mut self, slot: u32) -> &mut Card {
        &mut self.pages[slot as usize / PAGE][slot as usize % PAGE]
    }
}

/// Some of the people, in the order in which they were heard of.
#[derive(Debug, Clone)]
pub(super) struct Heard {
    oldest: u32,
    newest: u32,
}

impl Default for Heard {
    fn default() -> Heard {
        Heard {
            oldest: NONE,
            newest: NONE,
        }
    }
}

impl Heard {
    pub(super) fn oldest(&self) -> Option<u32> {
        (self.oldest != NONE).then_some(self.oldest)
    }

    pub(super) fn push(&mut self, people: &mut People, slot: u32) {
        let older = std::mem::replace(&mut self.newest, slot);
        let card = people.card_mut(slot);
        (card.older, card.newer) = (older, NONE);
        match older {
            NONE => self.oldest = slot,
            _ => people.card_mut(older).newer = slot,
        }
    }

    pub(super) fn remove(&mut self, people: &mut People, slot: u32) {
        let (older, newer) = {
            let card = people.card(slot);
            (card.older, card.newer)
        };
        match older {
            NONE => self.oldest = newer,
            _ => people.card_mut(older).newer = newer,
        }
        match newer {
            NONE => self.newest = older,
            _ => people.card_mut(newer).older = older,
        }
    }

    /// From the oldest on.
    pub(super) fn iter<'a>(&self, people: &'a People) -> impl Iterator<Item = u32> + 'a {
        let mut next = self.oldest;
        std::iter::from_fn(move || {
            let slot = (next != NONE).then_some(next)?;
            next = people.card(slot).newer;
            Some(slot)
        })
    }
}
