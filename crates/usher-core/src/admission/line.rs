//! Those who wait: who is in line, who is silent, who comes next.
//!
//! Both sets are ordered by ticket, since a silent visitor who returns is the lowest ticket again;
//! each has a list by last sign of life beside it, so that those who fell silent are found without
//! a search.

use super::people::{Heard, People};
use super::ranked::Ranked;
use super::{Method, Person, State};
use crate::chance::part_of;

/// The waiting visitors for whom no seat is reserved.
#[derive(Debug, Clone, Default)]
pub(super) struct Line {
    present: Ranked,
    away: Ranked,
    heard: Heard,
    silent: Heard,
    /// Of those away, how many have never come back with their cookie.
    strangers: usize,
}

impl Line {
    pub(super) fn present(&self) -> &Ranked {
        &self.present
    }

    pub(super) fn away(&self) -> &Ranked {
        &self.away
    }

    /// How long the line is for whoever would join it. Whoever takes a ticket and is never heard of
    /// again takes no place for longer than it counts as present.
    pub(super) fn counted(&self) -> usize {
        self.present.len() + self.away.len() - self.strangers
    }

    /// Of those present, the one not heard of for longest.
    pub(super) fn least_heard(&self) -> Option<u32> {
        self.heard.oldest()
    }

    /// Of those away, the one not heard of for longest.
    pub(super) fn most_silent(&self) -> Option<u32> {
        self.silent.oldest()
    }

    /// Who is called next.
    pub(super) fn next(&self, method: Method, draw: u64) -> Option<u32> {
        match method {
            Method::Fifo => self.present.first(),
            Method::Random => {
                let rank = part_of(self.present.len() as u64, draw);
                self.present.select(rank as usize)
            }
            Method::Passthrough | Method::Reject => None,
        }
        .map(|(_, slot)| slot)
    }

    /// Whoever is in `slot`, by its state; those with a seat are not in line.
    pub(super) fn insert(&mut self, people: &mut People, slot: u32) {
        let person = *people.at(slot);
        let (set, list) = match person.state {
            State::Present => (&mut self.present, &mut self.heard),
            State::Away => (&mut self.away, &mut self.silent),
            State::Called | State::Seated => return,
        };
        set.insert(person.ticket, slot);
        list.push(people, slot);
        self.strangers += usize::from(is_stranger(&person));
    }

    /// The opposite of [`Line::insert`]; the state must be what it was then.
    pub(super) fn remove(&mut self, people: &mut People, slot: u32) {
        let person = *people.at(slot);
        let (set, list) = match person.state {
            State::Present => (&mut self.present, &mut self.heard),
            State::Away => (&mut self.away, &mut self.silent),
            State::Called | State::Seated => return,
        };
        set.remove(person.ticket, slot);
        list.remove(people, slot);
        self.strangers -= usize::from(is_stranger(&person));
    }

    /// Whoever is in `slot` is present, and has just been heard of.
    pub(super) fn heard_again(&mut self, people: &mut People, slot: u32) {
        self.heard.remove(people, slot);
        self.heard.push(people, slot);
    }

    /// Present first, each from the least heard on.
    pub(super) fn iter<'a>(&self, people: &'a People) -> impl Iterator<Item = u32> + 'a {
        self.heard.iter(people).chain(self.silent.iter(people))
    }
}

fn is_stranger(person: &Person) -> bool {
    person.state == State::Away && !person.confirmed
}
