//! What the writer works with inside one transaction, and how values stand in rows.

use std::collections::HashMap;

use rusqlite::{CachedStatement, Connection, OptionalExtension as _, Params, Row};
use usher_core::id::Id;
use usher_core::lease::browser::{Effect, Event, Holder, Lease, Phase, State};
use usher_core::lease::close::CloseReason;
use usher_core::lease::line::Class;
use usher_core::lease::region::Ended;
use usher_core::lease::{Backend, BrowserId, Epoch, Flavour, NodeId, SessionId, Stock};
use usher_core::time::Wall;

use crate::fault::Fault;
use crate::pool::News;
use crate::settings::Retention;

/// The lower half of a key counts the browsers of its node.
const NODE_SHIFT: u32 = 32;

/// Which key a browser has. It never changes, so that one who has seen it need not ask.
#[derive(Debug, Default)]
pub(super) struct Keys(HashMap<BrowserId, i64>);

impl Keys {
    pub(super) fn load(connection: &Connection) -> Result<Keys, Fault> {
        let mut statement = connection.prepare("SELECT id, key FROM browser_birth")?;
        let rows = statement.query_map([], |row| Ok((BrowserId(wide(row, 0)?), row.get(1)?)))?;
        Ok(Keys(rows.collect::<Result<_, _>>()?))
    }

    pub(super) fn find(&self, browser: BrowserId) -> Option<i64> {
        self.0.get(&browser).copied()
    }

    pub(super) fn add(&mut self, browser: BrowserId, key: i64) {
        self.0.insert(browser, key);
    }

    pub(super) fn remove(&mut self, browser: BrowserId) {
        self.0.remove(&browser);
    }
}

/// One transaction. After a fault the connection is closed and the keys are read anew.
pub(super) struct Desk<'a> {
    pub(super) connection: &'a Connection,
    pub(super) keys: &'a mut Keys,
    /// One moment for all of it.
    pub(super) now: Wall,
    /// What is told when it is kept.
    pub(super) news: &'a mut Vec<News>,
    pub(super) retention: Retention,
}

/// A browser as its row and its session's say.
pub(super) struct Found {
    pub(super) key: i64,
    pub(super) lease: Lease,
    pub(super) stock: Stock,
    pub(super) seq: i64,
    pub(super) since: Wall,
    /// Of its session, if it ever had one.
    started: Wall,
    /// What it is or was lent for.
    class: Class,
}

impl Desk<'_> {
    pub(super) fn statement(&self, sql: &str) -> Result<CachedStatement<'_>, Fault> {
        Ok(self.connection.prepare_cached(sql)?)
    }

    /// Changes rows; how many.
    pub(super) fn run(&self, sql: &str, params: impl Params) -> Result<usize, Fault> {
        Ok(self.statement(sql)?.execute(params)?)
    }

    pub(super) fn one<T>(
        &self,
        sql: &str,
        params: impl Params,
        read: impl FnOnce(&Row<'_>) -> rusqlite::Result<T>,
    ) -> Result<Option<T>, Fault> {
        Ok(self.statement(sql)?.query_row(params, read).optional()?)
    }

    pub(super) fn all<T>(
        &self,
        sql: &str,
        params: impl Params,
        read: impl FnMut(&Row<'_>) -> rusqlite::Result<T>,
    ) -> Result<Vec<T>, Fault> {
        let mut statement = self.statement(sql)?;
        let rows = statement.query_map(params, read)?;
        Ok(rows.collect::<Result<_, _>>()?)
    }

    pub(super) fn find(&self, key: i64) -> Result<Option<Found>, Fault> {
        let sql = "SELECT b.phase, b.epoch, b.stock, b.seq, b.since, s.id, s.account, s.started,
                s.class
            FROM browser b LEFT JOIN session s ON s.browser = b.key WHERE b.key = ?1";
        self.one(sql, [key], |row| {
            let holder = match row.get::<_, Option<[u8; 16]>>(5)? {
                Some(session) => Some(Holder {
                    session: SessionId(u128::from_be_bytes(session)),
                    account: Id::from_bytes(row.get(6)?),
                }),
                None => None,
            };
            Ok(Found {
                key,
                lease: Lease {
                    state: state(row.get(0)?, holder).ok_or(unknown(0))?,
                    epoch: Epoch(row.get(1)?),
                },
                stock: stock_of(row.get(2)?).ok_or(unknown(2))?,
                seq: row.get(3)?,
                since: Wall::from_millis(row.get(4)?),
                started: Wall::from_millis(row.get::<_, Option<i64>>(7)?.unwrap_or(0)),
                class: class_of(row.get::<_, Option<u8>>(8)?.unwrap_or(0)).ok_or(unknown(8))?,
            })
        })
    }

    /// The one place where a row moves; the lease after it, and the session that ended with it.
    pub(super) fn happen(
        &mut self,
        found: &Found,
        event: Event,
        reason: CloseReason,
    ) -> Result<(Lease, Effect, Option<Ended>), Fault> {
        let (lease, effect) = found.lease.next(event);
        if lease != found.lease {
            let (before, after) = (found.lease.state.phase(), lease.state.phase());
            let since = if before == after {
                found.since
            } else {
                self.now
            };
            let sql = "UPDATE browser SET phase = ?2, epoch = ?3, since = ?4 WHERE key = ?1";
            let row = (
                found.key,
                phase_number(after),
                lease.epoch.0,
                since.as_millis(),
            );
            self.run(sql, row)?;
            if before == Phase::Starting && after == Phase::Ready {
                self.ready(found.stock);
            }
        }
        let Effect::Ended(Holder { session, account }) = effect else {
            return Ok((lease, effect, None));
        };
        let sql = "UPDATE session SET ended = ?2, reason = ?3, disconnected = CASE
                WHEN connection IS NOT NULL THEN coalesce(disconnected, ?2) END,
                commanded = (SELECT commanded FROM browser WHERE key = session.browser)
            WHERE id = ?1";
        let row = (
            session.0.to_be_bytes(),
            self.now.as_millis(),
            reason.number(),
        );
        self.run(sql, row)?;
        let billed = match reason.is_billed() && found.class == Class::Session {
            true => self.now.since(found.started),
            false => std::time::Duration::ZERO,
        };
        // A promise that came to nothing keeps its claim: it is handed on, paid back or runs out.
        if found.lease.state.phase() == Phase::InUse {
            self.release(account, session, billed)?;
        }
        let ended = Ended {
            session,
            account,
            class: found.class,
            reason,
            billed,
        };
        self.news.push(News::Ended(ended));
        Ok((lease, effect, Some(ended)))
    }

    /// The same for a browser that is named by its key, if it is there.
    pub(super) fn happen_to(
        &mut self,
        key: i64,
        event: Event,
        reason: CloseReason,
    ) -> Result<Option<Ended>, Fault> {
        match self.find(key)? {
            Some(found) => Ok(self.happen(&found, event, reason)?.2),
            None => Ok(None),
        }
    }

    fn ready(&mut self, stock: Stock) {
        for news in self.news.iter_mut() {
            if let News::Ready { stock: of, count } = news
                && *of == stock
            {
                *count += 1;
                return;
            }
        }
        self.news.push(News::Ready { stock, count: 1 });
    }
}

/// The first and the last key that browsers of a node may have.
pub(super) const fn keys_of(node: NodeId) -> (i64, i64) {
    let first = (node.0 as i64) << NODE_SHIFT;
    (first, first | 0xffff_ffff)
}

pub(super) const fn node_of(key: i64) -> NodeId {
    NodeId((key >> NODE_SHIFT) as u32)
}

pub(super) const fn phase_number(phase: Phase) -> u8 {
    match phase {
        Phase::Starting => 0,
        Phase::Ready => 1,
        Phase::Picked => 2,
        Phase::InUse => 3,
        Phase::Closing => 4,
        Phase::Dead => 5,
    }
}

pub(super) fn phase_of(number: u8) -> Option<Phase> {
    Phase::ALL.get(usize::from(number)).copied()
}

fn state(phase: u8, holder: Option<Holder>) -> Option<State> {
    Some(match (phase_of(phase)?, holder) {
        (Phase::Starting, _) => State::Starting,
        (Phase::Ready, _) => State::Ready,
        (Phase::Picked, holder) => State::Picked(holder?),
        (Phase::InUse, holder) => State::InUse(holder?),
        (Phase::Closing, holder) => State::Closing(holder),
        (Phase::Dead, holder) => State::Dead(holder),
    })
}

pub(super) const fn stock_number(stock: Stock) -> i64 {
    let flavour = match stock.flavour {
        Flavour::Stable => 0,
        Flavour::Lab => 1,
    };
    (stock.backend.0 as i64) << 1 | flavour
}

pub(super) fn stock_of(number: i64) -> Option<Stock> {
    Some(Stock {
        backend: Backend(u8::try_from(number >> 1).ok()?),
        flavour: *Flavour::ALL.get((number & 1) as usize)?,
    })
}

pub(super) const fn class_number(class: Class) -> u8 {
    match class {
        Class::Session => 0,
        Class::QuickAction => 1,
        Class::Crawl => 2,
    }
}

pub(super) fn class_of(number: u8) -> Option<Class> {
    Class::ALL.get(usize::from(number)).copied()
}

/// 128 bits, as ids of browsers, sessions and requests stand in rows.
pub(super) fn wide(row: &Row<'_>, column: usize) -> rusqlite::Result<u128> {
    Ok(u128::from_be_bytes(row.get(column)?))
}

/// A value in this column that nobody here writes.
pub(super) fn unknown(column: usize) -> rusqlite::Error {
    rusqlite::Error::IntegralValueOutOfRange(column, -1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_can_be_read() {
        for phase in Phase::ALL {
            assert_eq!(phase_of(phase_number(phase)), Some(phase));
        }
        for class in Class::ALL {
            assert_eq!(class_of(class_number(class)), Some(class));
        }
        for flavour in Flavour::ALL {
            for backend in [0, 1, u8::MAX].map(Backend) {
                let stock = Stock { backend, flavour };
                assert_eq!(stock_of(stock_number(stock)), Some(stock));
            }
        }
        assert_eq!(stock_of(1 << 10), None);
        let node = NodeId(i32::MAX as u32);
        let (first, last) = keys_of(node);
        assert_eq!((node_of(first), node_of(last)), (node, node));
        assert!(0 < first && first < last);
    }
}
