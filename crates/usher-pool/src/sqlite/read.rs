//! Questions that change nothing, on connections of their own: they neither block the writer nor
//! wait for it.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rusqlite::{Connection, OptionalExtension as _, Row};
use tokio::sync::Semaphore;
use usher_core::id::Id;
use usher_core::lease::browser::Holder;
use usher_core::lease::close::CloseReason;
use usher_core::lease::region::Node;
use usher_core::lease::{Boot, BrowserId, Epoch, NodeId, SessionId};
use usher_core::time::Wall;

use super::desk::{class_of, keys_of, node_of, phase_of, stock_of, unknown, wide};
use super::open::Database;
use crate::fault::Fault;
use crate::view::{
    BrowserView, Connection as Connected, ConnectionId, Count, HISTORY_PAGE_MAX, NodeView,
    SessionView,
};

/// Questions that are looked up at the same time.
const READERS_MAX: usize = 4;

#[derive(Debug)]
pub(super) struct Readers {
    path: PathBuf,
    idle: Mutex<Vec<Connection>>,
    seats: Semaphore,
}

impl Readers {
    pub(super) fn new(path: PathBuf) -> Arc<Readers> {
        Arc::new(Readers {
            path,
            idle: Mutex::new(Vec::new()),
            seats: Semaphore::new(READERS_MAX),
        })
    }

    pub(super) async fn ask<T: Send + 'static>(
        self: &Arc<Self>,
        read: impl FnOnce(&Connection) -> Result<T, Fault> + Send + 'static,
    ) -> Result<T, Fault> {
        let Ok(seat) = self.seats.acquire().await else {
            return Err(Fault::Closed);
        };
        let readers = Arc::clone(self);
        let asked = tokio::task::spawn_blocking(move || {
            let idle = readers.idle().pop();
            let connection = idle.map_or_else(|| Database::reader(&readers.path), Ok)?;
            let answer = read(&connection)?;
            // A connection that met a fault is not used again.
            if !readers.seats.is_closed() {
                readers.idle().push(connection);
            }
            Ok(answer)
        });
        let answer = asked.await;
        drop(seat);
        answer.unwrap_or_else(|error| Err(Fault::Internal(error.to_string())))
    }

    pub(super) fn close(&self) {
        self.seats.close();
        self.idle().clear();
    }

    fn idle(&self) -> std::sync::MutexGuard<'_, Vec<Connection>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The columns that [`session`] reads.
macro_rules! sessions {
    ($rest:literal) => {
        concat!(
            "SELECT s.id, s.account, s.browser_id, s.browser, s.epoch, s.keep_alive, s.started,
                CASE WHEN s.ended IS NULL THEN b.commanded ELSE s.commanded END,
                s.connection, s.connected, s.disconnected, s.ended, s.reason, s.class
             FROM session s LEFT JOIN browser b ON b.key = s.browser AND s.ended IS NULL ",
            $rest
        )
    };
}

fn session(row: &Row<'_>) -> rusqlite::Result<SessionView> {
    let moment = |column| {
        Ok::<_, rusqlite::Error>(row.get::<_, Option<i64>>(column)?.map(Wall::from_millis))
    };
    let keep_alive: i64 = row.get(5)?;
    let started = Wall::from_millis(row.get(6)?);
    let connection = match row.get::<_, Option<[u8; 16]>>(8)? {
        Some(id) => Some(Connected {
            id: ConnectionId(u128::from_be_bytes(id)),
            started: moment(9)?.unwrap_or(started),
            ended: moment(10)?,
        }),
        None => None,
    };
    let reason: Option<u8> = row.get(12)?;
    let reason = CloseReason::of_number(reason.unwrap_or(0));
    Ok(SessionView {
        session: SessionId(wide(row, 0)?),
        account: Id::from_bytes(row.get(1)?),
        browser: BrowserId(wide(row, 2)?),
        node: node_of(row.get(3)?),
        epoch: Epoch(row.get(4)?),
        class: class_of(row.get(13)?).ok_or(unknown(13))?,
        keep_alive: Duration::from_millis(keep_alive.max(0) as u64),
        started,
        commanded: moment(7)?.unwrap_or(started),
        connection,
        ended: moment(11)?.map(|ended| (ended, reason)),
    })
}

pub(super) fn live(connection: &Connection, account: Id) -> Result<Vec<SessionView>, Fault> {
    let sql = sessions!(
        "WHERE s.account = ?1 AND s.ended IS NULL AND s.class = 0 ORDER BY s.number DESC"
    );
    let mut statement = connection.prepare_cached(sql)?;
    let rows = statement.query_map([account.to_bytes()], session)?;
    Ok(rows.collect::<Result<_, _>>()?)
}

pub(super) fn live_of_all(connection: &Connection, limit: u32) -> Result<Vec<SessionView>, Fault> {
    // By the browsers that are lent: there are few, and of sessions there is a whole history.
    let sql = sessions!(
        "WHERE s.ended IS NULL AND s.class = 0
            AND s.browser IN (SELECT key FROM browser WHERE phase < 5 AND phase IN (2, 3))
         ORDER BY +s.number DESC LIMIT ?1"
    );
    let mut statement = connection.prepare_cached(sql)?;
    let rows = statement.query_map([limit], session)?;
    Ok(rows.collect::<Result<_, _>>()?)
}

pub(super) fn history(
    connection: &Connection,
    account: Id,
    offset: u32,
    limit: u32,
) -> Result<Vec<SessionView>, Fault> {
    let sql =
        sessions!("WHERE s.account = ?1 AND s.class = 0 ORDER BY s.number DESC LIMIT ?2 OFFSET ?3");
    let mut statement = connection.prepare_cached(sql)?;
    let limit = limit.min(HISTORY_PAGE_MAX);
    let rows = statement.query_map((account.to_bytes(), limit, offset), session)?;
    Ok(rows.collect::<Result<_, _>>()?)
}

pub(super) fn one(connection: &Connection, id: SessionId) -> Result<Option<SessionView>, Fault> {
    let sql = sessions!("WHERE s.id = ?1");
    let mut statement = connection.prepare_cached(sql)?;
    let found = statement.query_row([id.0.to_be_bytes()], session);
    Ok(found.optional()?)
}

pub(super) fn nodes(connection: &Connection) -> Result<Vec<NodeView>, Fault> {
    let sql = "SELECT id, name, boot, slots, heard, distance_us, draining, quarantined, lost
        FROM node ORDER BY id";
    let mut statement = connection.prepare_cached(sql)?;
    let rows = statement.query_map([], |row| {
        let micros: i64 = row.get(5)?;
        Ok(NodeView {
            id: NodeId(row.get(0)?),
            name: row.get(1)?,
            node: Node {
                boot: Boot(row.get(2)?),
                slots: row.get(3)?,
                heard: Wall::from_millis(row.get(4)?),
                distance: Duration::from_micros(micros.max(0) as u64),
                draining: row.get(6)?,
                quarantined: row.get(7)?,
                lost: row.get(8)?,
            },
        })
    })?;
    Ok(rows.collect::<Result<_, _>>()?)
}

pub(super) fn browsers(
    connection: &Connection,
    node: NodeId,
    offset: u32,
) -> Result<Vec<BrowserView>, Fault> {
    let sql = "SELECT n.id, b.stock, b.phase, b.epoch, s.id, s.account, b.since, n.started, b.seq,
            b.mem_kib
        FROM browser b JOIN browser_birth n USING (key) LEFT JOIN session s ON s.browser = b.key
        WHERE b.key BETWEEN ?1 AND ?2 ORDER BY b.key LIMIT ?3 OFFSET ?4";
    let mut statement = connection.prepare_cached(sql)?;
    let (first, last) = keys_of(node);
    let rows = statement.query_map((first, last, HISTORY_PAGE_MAX, offset), |row| {
        let holder = match row.get::<_, Option<[u8; 16]>>(4)? {
            Some(session) => Some(Holder {
                session: SessionId(u128::from_be_bytes(session)),
                account: Id::from_bytes(row.get(5)?),
            }),
            None => None,
        };
        let seq: i64 = row.get(8)?;
        Ok(BrowserView {
            browser: BrowserId(wide(row, 0)?),
            node,
            stock: stock_of(row.get(1)?).ok_or(unknown(1))?,
            phase: phase_of(row.get(2)?).ok_or(unknown(2))?,
            epoch: Epoch(row.get(3)?),
            holder,
            since: Wall::from_millis(row.get(6)?),
            started: Wall::from_millis(row.get(7)?),
            seq: seq.max(0) as u64,
            mem_kib: row.get(9)?,
        })
    })?;
    Ok(rows.collect::<Result<_, _>>()?)
}

pub(super) fn counts(connection: &Connection) -> Result<Vec<Count>, Fault> {
    let sql = "SELECT key >> 32, stock, phase, count(*) FROM browser WHERE phase < 5
        GROUP BY 1, 2, 3 ORDER BY 1, 2, 3";
    let mut statement = connection.prepare_cached(sql)?;
    let rows = statement.query_map([], |row| {
        Ok(Count {
            node: NodeId(row.get(0)?),
            stock: stock_of(row.get(1)?).ok_or(unknown(1))?,
            phase: phase_of(row.get(2)?).ok_or(unknown(2))?,
            count: row.get(3)?,
        })
    })?;
    Ok(rows.collect::<Result<_, _>>()?)
}
