//! Who does something when: a ring of turns.
//!
//! Everybody's next moment is minutes away at most, so a ring of short lists does what a heap would,
//! and hands people out in the order in which they came, which is the order in which they lie in
//! memory.

use super::TURN_MS;

/// Fourteen minutes.
const TURNS: usize = 1 << 14;

#[derive(Debug)]
pub(super) struct Wheel {
    turns: Vec<Vec<u32>>,
    spare: Vec<Vec<u32>>,
}

impl Wheel {
    pub(super) fn new() -> Wheel {
        Wheel {
            turns: vec![Vec::new(); TURNS],
            spare: Vec::new(),
        }
    }

    /// `guest` acts in the turn of `at`, ms; which is after the present turn.
    pub(super) fn put(&mut self, at: u64, guest: u32) {
        let turn = (at / TURN_MS) as usize % TURNS;
        let list = &mut self.turns[turn];
        if list.capacity() == 0
            && let Some(spare) = self.spare.pop()
        {
            *list = spare;
        }
        list.push(guest);
    }

    /// Those who act in the turn of `at`.
    pub(super) fn take(&mut self, at: u64) -> Vec<u32> {
        std::mem::take(&mut self.turns[(at / TURN_MS) as usize % TURNS])
    }

    /// An empty list, for another turn.
    pub(super) fn give_back(&mut self, list: Vec<u32>) {
        if list.capacity() > 0 && self.spare.len() < 1_024 {
            self.spare.push(list);
        }
    }
}
