//! An ordered set that can count: the rank of a key, and the key of a rank.
//!
//! Sorted pieces of at most 512 keys, and a Fenwick tree of their lengths. A tree of nodes would do
//! the same with a pointer or two a key; here a million keys cost 16 bytes each, a walk goes along
//! memory, and the commonest changes, an append and a removal of the least, touch one piece.

const PIECE_MAX: usize = 512;

type Key = (u64, u32);

/// Keys with a small number attached, in order.
#[derive(Debug, Clone, Default)]
pub(super) struct Ranked {
    /// None is empty.
    pieces: Vec<Vec<Key>>,
    /// Fenwick tree of the lengths of `pieces`.
    sums: Vec<u32>,
    len: usize,
}

impl Ranked {
    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn insert(&mut self, key: u64, value: u32) {
        let key = (key, value);
        let at = self.piece_of(key);
        let Some(piece) = self.pieces.get_mut(at) else {
            self.append(key);
            return;
        };
        let place = piece.partition_point(|other| *other < key);
        piece.insert(place, key);
        let full = piece.len() > PIECE_MAX;
        self.len += 1;
        if full {
            let half = self.pieces[at].split_off(PIECE_MAX / 2);
            self.pieces.insert(at + 1, half);
            self.count_anew();
        } else {
            self.add(at, 1);
        }
    }

    /// A key above all others.
    fn append(&mut self, key: Key) {
        self.len += 1;
        match self.pieces.last_mut() {
            Some(last) if last.len() < PIECE_MAX => {
                last.push(key);
                self.add(self.pieces.len() - 1, 1);
            }
            _ => {
                self.pieces.push(vec![key]);
                // The new node of the tree sums the nodes it covers.
                let node = self.pieces.len();
                let lowest = node & node.wrapping_neg();
                let mut sum = 1;
                let mut step = 1;
                while step < lowest {
                    sum += self.sums[node - step - 1];
                    step <<= 1;
                }
                self.sums.push(sum);
            }
        }
    }

    /// Whether it was there.
    pub(super) fn remove(&mut self, key: u64, value: u32) -> bool {
        let key = (key, value);
        let at = self.piece_of(key);
        let Some(piece) = self.pieces.get_mut(at) else {
            return false;
        };
        let Ok(place) = piece.binary_search(&key) else {
            return false;
        };
        piece.remove(place);
        self.len -= 1;
        let left = piece.len();
        let merged = left > 0
            && left < PIECE_MAX / 4
            && (self.pieces.get(at + 1)).is_some_and(|next| next.len() + left <= PIECE_MAX / 2);
        if merged {
            let next = self.pieces.remove(at + 1);
            self.pieces[at].extend(next);
            self.count_anew();
        } else if left == 0 {
            self.pieces.remove(at);
            self.count_anew();
        } else {
            self.add(at, -1);
        }
        true
    }

    pub(super) fn first(&self) -> Option<Key> {
        self.pieces.first().and_then(|piece| piece.first()).copied()
    }

    /// How many keys are below `key`.
    pub(super) fn rank(&self, key: u64) -> usize {
        let at = self.piece_of((key, 0));
        let within =
            (self.pieces.get(at)).map_or(0, |piece| piece.partition_point(|other| other.0 < key));
        let mut sum = within;
        let mut node = at;
        while node > 0 {
            sum += self.sums[node - 1] as usize;
            node &= node - 1;
        }
        sum
    }

    /// The key with `rank` others below it.
    pub(super) fn select(&self, rank: usize) -> Option<Key> {
        if rank >= self.len {
            return None;
        }
        let mut node = 0;
        let mut left = rank;
        let mut step = self.sums.len().next_power_of_two();
        while step > 0 {
            if let Some(sum) = self.sums.get(node + step - 1) {
                let sum = *sum as usize;
                if sum <= left {
                    left -= sum;
                    node += step;
                }
            }
            step >>= 1;
        }
        self.pieces[node].get(left).copied()
    }

    /// All, in order.
    pub(super) fn iter(&self) -> impl Iterator<Item = Key> + '_ {
        self.pieces.iter().flatten().copied()
    }

    /// The first piece whose last key is not below `key`.
    fn piece_of(&self, key: Key) -> usize {
        // Tickets and ends come in order, or nearly: most keys lie at the end.
        let above = |piece: &Vec<Key>| piece.last().is_none_or(|last| *last < key);
        if self.pieces.last().is_none_or(above) {
            return self.pieces.len();
        }
        (self.pieces).partition_point(|piece| piece.last().is_some_and(|last| *last < key))
    }

    fn add(&mut self, at: usize, count: i32) {
        let mut node = at + 1;
        while let Some(sum) = self.sums.get_mut(node - 1) {
            *sum = sum.wrapping_add_signed(count);
            node += node & node.wrapping_neg();
        }
    }

    fn count_anew(&mut self) {
        self.sums.clear();
        self.sums
            .extend(self.pieces.iter().map(|piece| piece.len() as u32));
        for node in 1..=self.sums.len() {
            let parent = node + (node & node.wrapping_neg());
            if parent <= self.sums.len() {
                self.sums[parent - 1] += self.sums[node - 1];
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chance::Chance;
    use std::collections::BTreeSet;

    #[test]
    fn it_counts_as_a_sorted_list_does() {
        for seed in 0..8 {
            let mut chance = Chance::new(seed);
            let mut ranked = Ranked::default();
            let mut naive = BTreeSet::new();
            for step in 0..6_000_u64 {
                // Grows, then shrinks, at the end, in the middle and at the beginning.
                let grows = chance.below(10) < if step < 4_000 { 7 } else { 2 };
                if grows {
                    let key = match chance.below(2) {
                        0 => step * 10,
                        _ => chance.below(60_000),
                    };
                    let key = (key, step as u32);
                    ranked.insert(key.0, key.1);
                    naive.insert(key);
                } else if let Some(key) = match chance.below(2) {
                    0 => ranked.first(),
                    _ => ranked.select(chance.below(ranked.len().max(1) as u64) as usize),
                } {
                    assert!(ranked.remove(key.0, key.1));
                    assert!(naive.remove(&key));
                    assert!(!ranked.remove(key.0, key.1));
                }
                assert_eq!(ranked.len(), naive.len(), "seed {seed} step {step}");
                if step % 64 == 0 {
                    let sorted: Vec<Key> = naive.iter().copied().collect();
                    assert_eq!(ranked.iter().collect::<Vec<_>>(), sorted);
                    for (rank, key) in sorted.iter().enumerate().step_by(37) {
                        assert_eq!(ranked.select(rank), Some(*key), "seed {seed} step {step}");
                        let below = sorted.partition_point(|other| other.0 < key.0);
                        assert_eq!(ranked.rank(key.0), below, "seed {seed} step {step}");
                    }
                    assert_eq!(ranked.select(sorted.len()), None);
                    assert_eq!(ranked.rank(u64::MAX), sorted.len());
                }
            }
        }
    }
}
