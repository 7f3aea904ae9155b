//! What is done about whoever said nothing for too long, in steps so small that a pick between two
//! of them does not wait.
//!
//! What is looked for by index is looked for by the writer. Sessions that are idle are found by
//! reading them all, which a reader does on the side; the writer looks again before it acts.

use rusqlite::Connection;
use usher_core::lease::browser::{
    CLOSING_MAX, CLOSING_QUARANTINE, Event, PICKED_MAX, PICKED_MAX_AFTER_JUMP, Phase, STARTING_MAX,
    TOMBSTONE,
};
use usher_core::lease::close::CloseReason;
use usher_core::lease::line::Class;
use usher_core::lease::region::{GAP, IDLE_MARGIN, Kill, NODE_DEAD, Reaped};
use usher_core::lease::{BrowserId, NodeId};
use usher_core::time::Wall;

use super::desk::{Desk, class_number, node_of, phase_number, wide};
use crate::fault::Fault;

/// Rows in one step.
pub(super) const STEP: usize = 100;

/// Where a walk over the rows of one phase stands.
pub(super) type Cursor = (i64, i64);

/// The phases that a browser may not stay in for ever, but for dead ones.
pub(super) const HURRIED: [Phase; 3] = [Phase::Starting, Phase::Picked, Phase::Closing];

impl Desk<'_> {
    /// Notes that everything is looked over now, and does what concerns nodes.
    pub(super) fn reap_nodes(&mut self) -> Result<Reaped, Fault> {
        let now = self.now.as_millis();
        let last: Option<i64> = self
            .one("SELECT reaped FROM meta", [], |row| row.get(0))?
            .flatten();
        let gap =
            last.is_some_and(|last| last > now || self.now.since(Wall::from_millis(last)) > GAP);
        self.run("UPDATE meta SET reaped = ?1", [now])?;
        if gap {
            self.forgive(now)?;
        }
        let mut reaped = Reaped {
            gap,
            ..Reaped::default()
        };
        let silent = now.saturating_sub(NODE_DEAD.as_millis() as i64);
        let sql = "UPDATE node SET lost = 1 WHERE lost = 0 AND heard < ?1 RETURNING id";
        reaped.lost = self.all(sql, [silent], |row| Ok(NodeId(row.get(0)?)))?;
        reaped.lost.sort_unstable();
        for &node in &reaped.lost {
            let ended = self.bury(node, CloseReason::ConnectionError)?;
            reaped.ended.extend(ended);
        }
        Ok(reaped)
    }

    /// Nobody is judged by the time that was lost, and no moment lies ahead.
    fn forgive(&mut self, now: i64) -> Result<(), Fault> {
        for sql in [
            "UPDATE node SET heard = ?1",
            "UPDATE browser SET since = ?1 WHERE since > ?1",
            // A use that nobody could report may have been the last moment.
            "UPDATE browser SET commanded = ?1 WHERE phase IN (2, 3)",
            "UPDATE browser_birth SET started = ?1 WHERE started > ?1",
            "UPDATE session SET started = ?1 WHERE started > ?1",
            "UPDATE session SET ended = ?1 WHERE ended > ?1",
        ] {
            self.run(sql, [now])?;
        }
        Ok(())
    }

    /// Browsers that have been in `phase` for too long, from `cursor` on; where to go on.
    pub(super) fn reap_phase(
        &mut self,
        phase: Phase,
        reaped: &mut Reaped,
        cursor: Option<Cursor>,
    ) -> Result<Option<Cursor>, Fault> {
        let stay = match phase {
            Phase::Starting => STARTING_MAX,
            Phase::Picked if reaped.gap => PICKED_MAX_AFTER_JUMP,
            Phase::Picked => PICKED_MAX,
            Phase::Closing => CLOSING_MAX,
            Phase::Ready | Phase::InUse | Phase::Dead => return Ok(None),
        };
        let limit = self.now.as_millis().saturating_sub(stay.as_millis() as i64);
        let (since, key) = cursor.unwrap_or((i64::MIN, i64::MIN));
        let sql = "SELECT since, key FROM browser INDEXED BY browser_watch
            WHERE phase = ?1 AND phase IN (0, 2, 4, 5) AND since < ?2 AND (since, key) > (?3, ?4)
            ORDER BY since, key LIMIT ?5";
        let params = (phase_number(phase), limit, since, key, STEP as i64);
        let over = self.all(sql, params, |row| Ok((row.get(0)?, row.get(1)?)))?;
        for &(since, key) in &over {
            if phase != Phase::Closing {
                let reason = CloseReason::ConnectionError;
                reaped
                    .ended
                    .extend(self.happen_to(key, Event::Force, reason)?);
            }
            reaped.kills.extend(self.kill(key)?);
            let closing = self.now.since(Wall::from_millis(since));
            if phase == Phase::Closing && closing > CLOSING_QUARANTINE {
                let sql = "UPDATE node SET quarantined = 1 WHERE id = ?1 AND quarantined = 0";
                let node = node_of(key);
                if self.run(sql, [node.0])? == 1 {
                    reaped.quarantined.push(node);
                }
            }
        }
        Ok((over.len() == STEP).then(|| over[STEP - 1]))
    }

    fn kill(&self, key: i64) -> Result<Option<Kill>, Fault> {
        let sql = "SELECT n.id, b.epoch FROM browser b JOIN browser_birth n USING (key)
            WHERE b.key = ?1";
        self.one(sql, [key], |row| {
            Ok(Kill {
                node: node_of(key),
                browser: BrowserId(wide(row, 0)?),
                epoch: usher_core::lease::Epoch(row.get(1)?),
            })
        })
    }

    /// Sessions that their node should have ended, of those that looked so.
    pub(super) fn reap_idle(&mut self, suspects: &[i64], reaped: &mut Reaped) -> Result<(), Fault> {
        for &key in suspects {
            let sql = "SELECT 1 FROM session s JOIN browser b ON b.key = s.browser
                WHERE s.browser = ?1 AND s.ended IS NULL AND b.commanded + s.keep_alive < ?2";
            let limit = idle_limit(self.now);
            if self.one(sql, (key, limit), |_| Ok(()))?.is_some() {
                let reason = CloseReason::BrowserIdle;
                reaped
                    .ended
                    .extend(self.happen_to(key, Event::Force, reason)?);
                reaped.kills.extend(self.kill(key)?);
            }
        }
        Ok(())
    }

    /// Forgets some of what is old; whether there may be more.
    pub(super) fn forget(&mut self) -> Result<bool, Fault> {
        let now = self.now.as_millis();
        let tomb = now.saturating_sub(TOMBSTONE.as_millis() as i64);
        let step = STEP as i64;
        let sql = "SELECT key FROM browser INDEXED BY browser_watch
            WHERE phase = 5 AND phase IN (0, 2, 4, 5) AND since < ?1 LIMIT ?2";
        let dead: Vec<i64> = self.all(sql, (tomb, step), |row| row.get(0))?;
        for &key in &dead {
            let sql = "DELETE FROM browser_birth WHERE key = ?1 RETURNING id";
            if let Some(id) = self.one(sql, [key], |row| wide(row, 0))? {
                self.keys.remove(BrowserId(id));
            }
            self.run("DELETE FROM browser WHERE key = ?1", [key])?;
        }
        let sql = "UPDATE session SET request = NULL WHERE number IN (
                SELECT number FROM session INDEXED BY session_wish
                WHERE ended IS NOT NULL AND request IS NOT NULL AND ended < ?1 LIMIT ?2
            ) RETURNING account, number, class";
        let forgotten: Vec<([u8; 16], i64, u8)> = self.all(sql, (tomb, step), |row| {
            Ok((row.get(0)?, row.get(1)?, row.get(2)?))
        })?;
        let wishes = forgotten.len();
        let (sessions, others): (Vec<_>, Vec<_>) = forgotten
            .into_iter()
            .partition(|&(.., class)| class == class_number(Class::Session));
        // No history shows these.
        for (_, number, _) in others {
            self.run("DELETE FROM session WHERE number = ?1", [number])?;
        }
        let mut accounts: Vec<[u8; 16]> = sessions.into_iter().map(|(of, ..)| of).collect();
        accounts.sort_unstable();
        accounts.dedup();
        for account in accounts {
            let sql = "DELETE FROM session WHERE number IN (
                SELECT number FROM session WHERE account = ?1 AND class = 0
                    AND ended IS NOT NULL AND request IS NULL AND number <= (
                        SELECT number FROM session WHERE account = ?1 AND class = 0
                        ORDER BY number DESC LIMIT 1 OFFSET ?2)
                ORDER BY number LIMIT ?3)";
            self.run(sql, (account, self.retention.len.max(1), 2 * step))?;
        }
        let age = self.retention.age.max(TOMBSTONE).as_millis();
        let old = now.saturating_sub(i64::try_from(age).unwrap_or(i64::MAX));
        let sql = "DELETE FROM session WHERE number IN (
            SELECT number FROM session INDEXED BY session_ended
            WHERE ended IS NOT NULL AND ended < ?1 AND request IS NULL LIMIT ?2)";
        let gone = self.run(sql, (old, step))?;
        // Claims of accounts that never come again.
        let sql = "DELETE FROM slot WHERE until <= ?1";
        self.run(sql, [now])?;
        Ok([dead.len(), wishes, gone].contains(&STEP))
    }
}

/// Browsers whose sessions look idle. For a reader.
pub(super) fn idle(connection: &Connection, now: Wall) -> Result<Vec<i64>, Fault> {
    let sql = "SELECT s.browser FROM session s INDEXED BY session_live
        CROSS JOIN browser b ON b.key = s.browser
        WHERE s.ended IS NULL AND b.commanded + s.keep_alive < ?1";
    let mut statement = connection.prepare_cached(sql)?;
    let rows = statement.query_map([idle_limit(now)], |row| row.get(0))?;
    Ok(rows.collect::<Result<_, _>>()?)
}

fn idle_limit(now: Wall) -> i64 {
    now.as_millis()
        .saturating_sub(IDLE_MARGIN.as_millis() as i64)
}
