//! What was refused or failed, so that somebody who saw a page fail can be told why.

use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use crate::cause::Cause;
use crate::target::Target;

/// Refusals that are kept of one browser; older ones are forgotten.
pub const REFUSALS_MAX: usize = 128;

/// Something that did not come about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// How many were before it with this browser.
    pub number: u64,
    /// When.
    pub at: SystemTime,
    /// The host, as [`Target::host`] writes it; empty where the request could not be read.
    pub host: Box<str>,
    /// The port; 0 where the request could not be read.
    pub port: u16,
    /// Why.
    pub cause: Cause,
    /// The address that was denied, for the log of the operator: a page must not learn it.
    pub address: Option<IpAddr>,
}

/// The last of them. Written by connections that failed, so its lock is on no path that is in a
/// hurry.
#[derive(Debug, Default)]
pub(crate) struct Record {
    kept: Mutex<Kept>,
}

#[derive(Debug, Default)]
struct Kept {
    list: VecDeque<Refusal>,
    total: u64,
}

impl Record {
    pub(crate) fn add(&self, target: Option<&Target>, cause: Cause, address: Option<IpAddr>) {
        let mut kept = self.lock();
        if kept.list.len() == REFUSALS_MAX {
            kept.list.pop_front();
        }
        let number = kept.total;
        kept.total += 1;
        kept.list.push_back(Refusal {
            number,
            at: SystemTime::now(),
            host: target.map_or("", Target::host).into(),
            port: target.map_or(0, Target::port),
            cause,
            address,
        });
    }

    pub(crate) fn last_of(&self, host: &str, port: Option<u16>) -> Option<Refusal> {
        let kept = self.lock();
        let there = |refusal: &&Refusal| {
            *refusal.host == *host && port.is_none_or(|port| refusal.port == port)
        };
        kept.list.iter().rev().find(there).cloned()
    }

    pub(crate) fn since(&self, number: u64) -> Vec<Refusal> {
        let kept = self.lock();
        let newer = kept.list.iter().filter(|refusal| refusal.number >= number);
        newer.cloned().collect()
    }

    fn lock(&self) -> MutexGuard<'_, Kept> {
        // Nothing panics while it is held.
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_are_kept_and_found_by_where_they_went() {
        let record = Record::default();
        let target = |port| Target::new("Example.com.", port).expect("a target");
        for _ in 0..REFUSALS_MAX {
            record.add(Some(&target(80)), Cause::Name, None);
        }
        record.add(Some(&target(80)), Cause::Refused, None);
        record.add(Some(&target(443)), Cause::Address, None);
        let why = |port| {
            let refusal = record.last_of("example.com", port);
            refusal.map(|refusal| refusal.cause)
        };
        assert_eq!(why(Some(80)), Some(Cause::Refused));
        assert_eq!(why(Some(443)), Some(Cause::Address));
        assert_eq!((why(None), why(Some(81))), (Some(Cause::Address), None));
        assert_eq!(record.since(0).len(), REFUSALS_MAX);
        let last = record.since(REFUSALS_MAX as u64 + 1);
        assert_eq!(
            (last.len(), last[0].port, &*last[0].host),
            (1, 443, "example.com")
        );
    }
}
