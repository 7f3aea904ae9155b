//! Browsers are given away, begun with, and given up.

use usher_core::lease::browser::{Effect, Event};
use usher_core::lease::close::CloseReason;
use usher_core::lease::pick::NEAREST;
use usher_core::lease::region::{Denied, Ended, NODE_SUSPECT, Picked, Wish};
use usher_core::lease::{BrowserId, Epoch, SessionId};

use super::desk::{Desk, class_number, node_of, phase_number, stock_number, wide};
use crate::fault::Fault;
use crate::view::ConnectionId;
use usher_core::lease::browser::Phase;

/// Chooses and marks. Walks the nodes that give browsers, the nearest first, and those that are
/// equally near from one of them on, which the draw says and so the heat goes round; takes the first
/// eight ready browsers that it meets, and of these one by the draw. No node is looked at that the
/// walk does not come to. The limits without end keep the engine from leaving the order out.
///
/// ?1 is now, ?2 the moment that a node was heard of at the earliest, ?3 the stock; ?4 and ?5 are
/// of the draw, and small enough that no product overflows.
const PICK: &str = "
    WITH near(far) AS (
        SELECT distance_us FROM node INDEXED BY node_gives
        WHERE lost = 0 AND draining = 0 AND quarantined = 0 AND heard >= ?2
        ORDER BY distance_us LIMIT 1
    ), low(id) AS (
        SELECT min(id) FROM node INDEXED BY node_gives
        WHERE lost = 0 AND draining = 0 AND quarantined = 0
            AND distance_us = (SELECT far FROM near)
    ), high(id) AS (
        SELECT max(id) FROM node INDEXED BY node_gives
        WHERE lost = 0 AND draining = 0 AND quarantined = 0
            AND distance_us = (SELECT far FROM near)
    ), first(id) AS (
        SELECT low.id + ?5 % (high.id - low.id + 1) FROM low, high
    ), walk(id) AS (
        SELECT id FROM (
            SELECT id FROM node INDEXED BY node_gives
            WHERE lost = 0 AND draining = 0 AND quarantined = 0 AND heard >= ?2
                AND distance_us = (SELECT far FROM near) AND id >= (SELECT id FROM first)
            ORDER BY id LIMIT -1)
        UNION ALL SELECT id FROM (
            SELECT id FROM node INDEXED BY node_gives
            WHERE lost = 0 AND draining = 0 AND quarantined = 0 AND heard >= ?2
                AND distance_us = (SELECT far FROM near) AND id < (SELECT id FROM first)
            ORDER BY id LIMIT -1)
        UNION ALL SELECT id FROM (
            SELECT id FROM node INDEXED BY node_gives
            WHERE lost = 0 AND draining = 0 AND quarantined = 0 AND heard >= ?2
                AND distance_us > (SELECT far FROM near)
            ORDER BY distance_us, id LIMIT -1)
    )
    UPDATE browser SET phase = 2, epoch = epoch + 1, since = ?1, commanded = ?1
    WHERE phase = 1 AND key = (
        SELECT key FROM (
            SELECT b.key AS key FROM walk CROSS JOIN browser b INDEXED BY browser_ready
            ON b.phase = 1 AND b.stock = ?3
                AND b.key BETWEEN walk.id << 32 AND (walk.id << 32) + 4294967295
            LIMIT ?6
        ) ORDER BY ((key & 4294967295) * ?4 + (key >> 32) + ?5) % 2147483647 LIMIT 1
    ) RETURNING key, epoch";

impl Desk<'_> {
    pub(super) fn pick(&mut self, wish: Wish, draw: u64) -> Result<Option<Picked>, Fault> {
        let (request, session) = (wish.request.0.to_be_bytes(), wish.session.0.to_be_bytes());
        let sql = "SELECT browser, browser_id, epoch, id FROM session
            WHERE request = ?1 AND attempt = ?2";
        let repeat = self.one(sql, (request, wish.attempt), |row| {
            Ok(Picked {
                node: node_of(row.get(0)?),
                browser: BrowserId(wide(row, 1)?),
                epoch: Epoch(row.get(2)?),
                session: SessionId(wide(row, 3)?),
            })
        })?;
        if repeat.is_some() {
            return Ok(repeat);
        }
        let sql = "SELECT 1 FROM session WHERE id = ?1";
        if self.one(sql, [session], |_| Ok(()))?.is_some() {
            return Ok(None);
        }
        let now = self.now.as_millis();
        let fresh = now.saturating_sub(NODE_SUSPECT.as_millis() as i64);
        let (factor, shift) = ((draw as u32 >> 2 | 1) as i64, (draw >> 34) as i64);
        let params = (
            now,
            fresh,
            stock_number(wish.stock),
            factor,
            shift,
            NEAREST as i64,
        );
        let picked = self.one(PICK, params, |row| Ok((row.get::<_, i64>(0)?, row.get(1)?)))?;
        let Some((key, epoch)) = picked else {
            return Ok(None);
        };
        let sql = "SELECT id FROM browser_birth WHERE key = ?1";
        let browser = self.one(sql, [key], |row| wide(row, 0))?;
        let browser =
            browser.ok_or_else(|| Fault::Damaged(format!("browser {key} has no name")))?;
        let sql = "INSERT INTO session (id, account, browser, browser_id, epoch, request, attempt,
                keep_alive, started, commanded, class)
            VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?9, ?10)";
        let keep_alive = i64::try_from(wish.keep_alive.as_millis()).unwrap_or(i64::MAX);
        let row = (
            session,
            wish.account.to_bytes(),
            key,
            browser.to_be_bytes(),
            epoch,
            request,
            wish.attempt,
            keep_alive,
            now,
            class_number(wish.class),
        );
        self.run(sql, row)?;
        Ok(Some(Picked {
            browser: BrowserId(browser),
            node: node_of(key),
            epoch: Epoch(epoch),
            session: wish.session,
        }))
    }

    /// Something happens to a browser that the caller says is its own.
    fn claim(
        &mut self,
        browser: BrowserId,
        event: Event,
        reason: CloseReason,
    ) -> Result<Result<Option<Ended>, Denied>, Fault> {
        let key = self.keys.find(browser);
        let found = key.map_or(Ok(None), |key| self.find(key))?;
        let Some(found) = found else {
            return Ok(Err(Denied::NotHeld(browser)));
        };
        let (_, effect, ended) = self.happen(&found, event, reason)?;
        Ok(match effect {
            Effect::Refused => Err(Denied::NotHeld(browser)),
            Effect::Nothing | Effect::Moved | Effect::Ended(_) => Ok(ended),
        })
    }

    pub(super) fn acknowledge(
        &mut self,
        browser: BrowserId,
        epoch: Epoch,
    ) -> Result<Result<(), Denied>, Fault> {
        let event = Event::Acknowledged { epoch };
        let claimed = self.claim(browser, event, CloseReason::Unknown)?;
        Ok(claimed.map(|_| ()))
    }

    pub(super) fn close(
        &mut self,
        browser: BrowserId,
        epoch: Epoch,
        reason: CloseReason,
    ) -> Result<Result<Option<Ended>, Denied>, Fault> {
        self.claim(browser, Event::Close { epoch }, reason)
    }

    pub(super) fn evict(
        &mut self,
        browser: BrowserId,
        reason: CloseReason,
    ) -> Result<Option<Ended>, Fault> {
        let evicted = self.claim(browser, Event::Force, reason)?;
        Ok(evicted.ok().flatten())
    }

    pub(super) fn connected(
        &mut self,
        session: SessionId,
        connection: Option<ConnectionId>,
    ) -> Result<bool, Fault> {
        let (session, now) = (session.0.to_be_bytes(), self.now.as_millis());
        let changed = match connection {
            Some(ConnectionId(id)) => {
                let sql = "UPDATE session SET connection = ?2, connected = ?3, disconnected = NULL
                    WHERE id = ?1 AND ended IS NULL";
                self.run(sql, (session, id.to_be_bytes(), now))?
            }
            None => {
                let sql = "UPDATE session SET disconnected = CASE
                        WHEN connection IS NOT NULL THEN coalesce(disconnected, ?2) END
                    WHERE id = ?1 AND ended IS NULL";
                self.run(sql, (session, now))?
            }
        };
        Ok(changed == 1)
    }
}

// The number of a phase is in the statements above.
const _: () = assert!(phase_number(Phase::Ready) == 1 && phase_number(Phase::Picked) == 2);
