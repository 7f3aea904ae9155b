//! The last browsers are for accounts that have none.
//!
//! Otherwise one account at its limit of 120 could shut out all others. Where only one account is
//! about, nobody would ever come for the reserve, so it is there only while a second one is.
//!
//! Source: browser specification 9.4 point 4, clarification 44.

use std::time::Duration;

use crate::id::Id;
use crate::time::Mono;

/// How long an account counts as active after it has asked.
pub const ACTIVE: Duration = Duration::from_secs(600);
/// Ready browsers for one that is kept back: 5 %.
const SHARE: u32 = 20;

/// Who has asked of late. Two accounts are enough to know that it was more than one.
#[derive(Debug, Clone, Copy, Default)]
pub struct Reserve {
    last: Option<(Id, Mono)>,
    other: Option<(Id, Mono)>,
}

impl Reserve {
    /// `account` asks for a browser.
    pub fn asked(&mut self, account: Id, now: Mono) {
        if self.last.is_some_and(|(last, _)| last != account) {
            self.other = self.last;
        }
        self.last = Some((account, now));
    }

    /// How many of the browsers are kept back when the pool means to have `ready_wanted` ready.
    #[must_use]
    pub fn size(&self, ready_wanted: u32, now: Mono) -> u32 {
        let active =
            |asked: Option<(Id, Mono)>| asked.is_some_and(|(_, at)| now.since(at) < ACTIVE);
        if active(self.last) && active(self.other) {
            (ready_wanted / SHARE).max(1)
        } else {
            0
        }
    }

    /// Whether one of `ready` browsers may go to an account, given whether it has one already.
    #[must_use]
    pub fn lets(&self, ready: u32, ready_wanted: u32, has_browser: bool, now: Mono) -> bool {
        let kept = if has_browser {
            self.size(ready_wanted, now)
        } else {
            0
        };
        ready > kept
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::Kind;

    #[test]
    fn the_reserve_is_there_while_two_accounts_are() {
        let [a, b] = ["a", "b"].map(|name| Id::derive(name, Kind::Account, name));
        let at = |secs| Mono::ZERO.after(Duration::from_secs(secs));
        let mut reserve = Reserve::default();
        reserve.asked(a, at(0));
        reserve.asked(a, at(1));
        assert!(reserve.lets(1, 10, true, at(1)));
        reserve.asked(b, at(2));
        assert!(!reserve.lets(1, 10, true, at(2)));
        assert!(reserve.lets(1, 10, false, at(2)));
        assert!(!reserve.lets(0, 10, false, at(2)));
        assert!(!reserve.lets(5, 100, true, at(2)));
        assert!(reserve.lets(6, 100, true, at(2)));
        reserve.asked(b, at(500));
        assert!(!reserve.lets(1, 10, true, at(600)));
        assert!(
            reserve.lets(1, 10, true, at(601)),
            "the first was last seen at 1 s"
        );
    }
}
