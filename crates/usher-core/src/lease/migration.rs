//! Moving accounts from one way of running browsers to another, bit by bit.
//!
//! An account's bucket comes from a hash of its name, so raising the share only ever adds accounts,
//! and everybody agrees on who is where without asking. What the new way does worse than the old one
//! takes the share back by itself.
//!
//! The hash is SHA-256, for whose sake a caller brings the digest: the core has no cryptography.
//! Source: browser specification 11.9, clarification 62.

use std::collections::BTreeMap;

use super::Backend;
use super::limits::AccountKind;
use crate::id::Id;

/// Parts that a share is counted in.
pub const WHOLE: u16 = 10_000;
/// Requests before the new way is judged.
pub const JUDGED_AFTER: u64 = 500;

/// Where a request for a browser comes in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Surface {
    /// One page, one answer.
    QuickActions,
    /// Sessions of Workers, and those with a token.
    Bindings,
}

impl Surface {
    /// Every surface, in the order of a roll-out.
    pub const ALL: [Surface; 2] = [Surface::QuickActions, Surface::Bindings];
}

/// An account's place between 0 and [`WHOLE`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Bucket(u16);

impl Bucket {
    /// From the SHA-256 digest of salt and account.
    #[must_use]
    pub const fn of_digest(digest: [u8; 32]) -> Bucket {
        let first = u32::from_be_bytes([digest[0], digest[1], digest[2], digest[3]]);
        Bucket((first % WHOLE as u32) as u16)
    }
}

/// Who is to be where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Migration {
    /// The old way.
    pub from: Backend,
    /// The new one.
    pub to: Backend,
    /// Parts of [`WHOLE`] that go the new way; what is not named is 0.
    pub shares: BTreeMap<(Surface, AccountKind), u16>,
    /// Accounts that go one way whatever the shares are.
    pub fixed: BTreeMap<Id, Backend>,
    /// Everybody back to the old way, also those that are fixed to the new one.
    pub stopped: bool,
}

impl Migration {
    /// The way for a new browser of this account, and the other one, for when there is none.
    #[must_use]
    pub fn ways(
        &self,
        surface: Surface,
        kind: AccountKind,
        account: Id,
        bucket: Bucket,
    ) -> [Backend; 2] {
        let share = self.shares.get(&(surface, kind)).copied().unwrap_or(0);
        let by_share = if bucket.0 < share { self.to } else { self.from };
        let first = match self.fixed.get(&account) {
            _ if self.stopped => self.from,
            Some(&fixed) => fixed,
            None => by_share,
        };
        let second = if first == self.to { self.from } else { self.to };
        [first, second]
    }
}

/// What one way did, for comparing.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Record {
    /// Requests.
    pub requests: u64,
    /// Of these, those that failed by our fault.
    pub errors: u64,
    /// The duration that 95 % stayed under, in milliseconds.
    pub p95_ms: f64,
}

/// Why a share goes back.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Worse {
    /// More than half a point more errors.
    Errors,
    /// More than a fifth slower.
    Slower,
}

/// Whether the new way is worse; `None` as well while it has not done enough.
#[must_use]
pub fn judge(old: Record, new: Record) -> Option<Worse> {
    let rate = |record: Record| record.errors as f64 / record.requests.max(1) as f64;
    if new.requests < JUDGED_AFTER {
        None
    } else if rate(new) > rate(old) + 0.005 {
        Some(Worse::Errors)
    } else if old.requests >= JUDGED_AFTER && new.p95_ms > old.p95_ms * 1.2 {
        Some(Worse::Slower)
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chance::scatter;
    use crate::id::Kind;

    const OLD: Backend = Backend(0);
    const NEW: Backend = Backend(1);

    fn at(share: u16) -> Migration {
        Migration {
            from: OLD,
            to: NEW,
            shares: [((Surface::Bindings, AccountKind::Free), share)].into(),
            fixed: BTreeMap::new(),
            stopped: false,
        }
    }

    fn bucket(number: u64) -> Bucket {
        let mut digest = [0; 32];
        digest[..8].copy_from_slice(&scatter(number).to_be_bytes());
        Bucket::of_digest(digest)
    }

    #[test]
    fn a_larger_share_only_adds_accounts() {
        let account = Id::derive("a", Kind::Account, "a");
        let first = |share, number| {
            at(share).ways(
                Surface::Bindings,
                AccountKind::Free,
                account,
                bucket(number),
            )[0]
        };
        for number in 0..2_000 {
            let moved: Vec<bool> = [0, 100, 1_000, 5_000, WHOLE]
                .map(|share| first(share, number) == NEW)
                .into();
            assert!(moved.is_sorted(), "{number}");
            assert!(!moved[0] && moved[4]);
        }
        let moved = (0..20_000)
            .filter(|&number| first(1_000, number) == NEW)
            .count();
        assert!(moved.abs_diff(2_000) < 260, "{moved}");
    }

    #[test]
    fn overrides_come_first_and_a_stop_before_them() {
        let account = Id::derive("a", Kind::Account, "a");
        let ways = |migration: &Migration, kind| {
            migration.ways(Surface::Bindings, kind, account, bucket(1))
        };
        let mut migration = at(WHOLE);
        assert_eq!(ways(&migration, AccountKind::Free), [NEW, OLD]);
        assert_eq!(ways(&migration, AccountKind::Contract), [OLD, NEW]);
        migration.fixed.insert(account, NEW);
        assert_eq!(ways(&migration, AccountKind::Contract), [NEW, OLD]);
        migration.stopped = true;
        assert_eq!(ways(&migration, AccountKind::Contract), [OLD, NEW]);
    }

    #[test]
    fn the_new_way_is_judged_once_it_has_done_enough() {
        let record = |requests, errors, p95_ms| Record {
            requests,
            errors,
            p95_ms,
        };
        let old = record(10_000, 100, 100.0);
        for (new, verdict) in [
            (record(499, 499, 900.0), None),
            (record(1_000, 15, 120.0), None),
            (record(1_000, 16, 90.0), Some(Worse::Errors)),
            (record(500, 0, 120.1), Some(Worse::Slower)),
        ] {
            assert_eq!(judge(old, new), verdict, "{new:?}");
        }
    }
}
