//! Nodes come, launch browsers, say what they have, and go.

use std::collections::BTreeMap;
use std::time::Duration;

use rusqlite::Row;
use usher_core::lease::browser::{Event, Phase};
use usher_core::lease::close::CloseReason;
use usher_core::lease::region::{Denied, Ended, Kill};
use usher_core::lease::{Boot, BrowserId, Epoch, NodeId, Stock};

use super::desk::{Desk, keys_of, node_of, stock_number};
use crate::fault::Fault;
use crate::view::Reconciled;

impl Desk<'_> {
    pub(super) fn register(
        &mut self,
        name: &str,
        slots: u32,
    ) -> Result<(NodeId, Boot, Vec<Ended>), Fault> {
        let now = self.now.as_millis();
        let sql = "INSERT INTO node (name, boot, slots, heard, distance_us, draining, quarantined,
                lost, launches)
            VALUES (?1, 1, ?2, ?3, 0, 0, 0, 0, 0)
            ON CONFLICT (name) DO UPDATE SET boot = boot + 1, slots = ?2, heard = ?3,
                quarantined = 0, lost = 0
            RETURNING id, boot";
        let read = |row: &Row<'_>| Ok((NodeId(row.get(0)?), Boot(row.get(1)?)));
        let row = self.one(sql, (name, slots, now), read)?;
        let (node, boot) =
            row.ok_or_else(|| Fault::Internal("a node was not written".to_owned()))?;
        let ended = self.bury(node, CloseReason::ConnectionError)?;
        Ok((node, boot, ended))
    }

    /// Everything of a node is gone.
    pub(super) fn bury(&mut self, node: NodeId, reason: CloseReason) -> Result<Vec<Ended>, Fault> {
        let mut buried = Vec::new();
        for key in self.living(node)? {
            buried.extend(self.happen_to(key, Event::Gone, reason)?);
        }
        Ok(buried)
    }

    /// The browsers of a node that are not dead.
    fn living(&self, node: NodeId) -> Result<Vec<i64>, Fault> {
        let sql = "SELECT key FROM browser INDEXED BY browser_live
            WHERE phase < 5 AND key BETWEEN ?1 AND ?2 ORDER BY key";
        self.all(sql, keys_of(node), |row| row.get(0))
    }

    pub(super) fn launch(
        &mut self,
        (node, boot): (NodeId, Boot),
        browser: BrowserId,
        stock: Stock,
        seq: u64,
    ) -> Result<Result<(), Denied>, Fault> {
        let sql = "SELECT slots, launches FROM node WHERE id = ?1 AND boot = ?2 AND lost = 0";
        let read = |row: &Row<'_>| Ok((row.get::<_, u32>(0)?, row.get::<_, u32>(1)?));
        let Some((slots, launches)) = self.one(sql, (node.0, boot.0), read)? else {
            return Ok(Err(Denied::StaleBoot(node)));
        };
        if self.keys.find(browser).is_some() {
            return Ok(Ok(()));
        }
        let sql = "SELECT count(*) FROM browser INDEXED BY browser_live
            WHERE phase < 5 AND key BETWEEN ?1 AND ?2";
        let taken = self.one(sql, keys_of(node), |row| row.get::<_, u32>(0))?;
        if taken.unwrap_or(0) >= slots {
            return Ok(Err(Denied::NoRoom { node, slots }));
        }
        let Some(launches) = launches.checked_add(1) else {
            return Ok(Err(Denied::NoRoom { node, slots }));
        };
        let (key, now) = (keys_of(node).0 | i64::from(launches), self.now.as_millis());
        self.run(
            "UPDATE node SET launches = ?2 WHERE id = ?1",
            (node.0, launches),
        )?;
        let sql = "INSERT INTO browser (key, phase, stock, epoch, seq, mem_kib, commanded, since)
            VALUES (?1, 0, ?2, 0, ?3, 0, ?4, ?4)";
        self.run(sql, (key, stock_number(stock), in_row(seq), now))?;
        let sql = "INSERT INTO browser_birth (key, id, started) VALUES (?1, ?2, ?3)";
        self.run(sql, (key, browser.0.to_be_bytes(), now))?;
        self.keys.add(browser, key);
        Ok(Ok(()))
    }

    /// A node was heard of; whether this start of its agent counts.
    pub(super) fn hear(&mut self, node: NodeId, boot: Boot) -> Result<bool, Fault> {
        let sql = "UPDATE node SET heard = ?3 WHERE id = ?1 AND boot = ?2 AND lost = 0";
        let heard = self.run(sql, (node.0, boot.0, self.now.as_millis()))?;
        Ok(heard == 1)
    }

    pub(super) fn reconcile(
        &mut self,
        (node, boot): (NodeId, Boot),
        seq: u64,
        has: &BTreeMap<BrowserId, (Phase, Epoch)>,
    ) -> Result<Result<Reconciled, Denied>, Fault> {
        if !self.hear(node, boot)? {
            return Ok(Err(Denied::StaleBoot(node)));
        }
        let listed: BTreeMap<i64, BrowserId> = has
            .keys()
            .filter_map(|&browser| Some((self.keys.find(browser)?, browser)))
            .filter(|&(key, _)| node_of(key) == node)
            .collect();
        let mut ended = Vec::new();
        for key in self.living(node)? {
            if listed.contains_key(&key) {
                continue;
            }
            // What was said of it after the list was made says more than the list.
            let found = self.find(key)?.filter(|found| found.seq < in_row(seq));
            if let Some(found) = found {
                let reason = CloseReason::ChromiumCrashed;
                ended.extend(self.happen(&found, Event::Gone, reason)?.2);
            }
        }
        let mut kills = Vec::new();
        for (&browser, &(phase, epoch)) in has {
            let key = self.keys.find(browser).filter(|&key| node_of(key) == node);
            let found = key.map_or(Ok(None), |key| self.find(key))?;
            let lease = found.map(|found| found.lease);
            // A lease that the list knows nothing of is younger than the list, not a reason.
            let wanted = lease.is_some_and(|lease| lease.state.phase() < Phase::Closing);
            if !wanted && phase < Phase::Closing {
                kills.push(Kill {
                    node,
                    browser,
                    epoch: lease.map_or(epoch, |lease| lease.epoch.max(epoch)),
                });
            }
        }
        Ok(Ok(Reconciled { kills, ended }))
    }

    pub(super) fn drain(&mut self, node: NodeId, draining: bool) -> Result<(), Fault> {
        let sql = "UPDATE node SET draining = ?2 WHERE id = ?1";
        self.run(sql, (node.0, draining)).map(|_| ())
    }

    pub(super) fn measure(&mut self, node: NodeId, distance: Duration) -> Result<(), Fault> {
        let micros = i64::try_from(distance.as_micros()).unwrap_or(i64::MAX);
        let sql = "UPDATE node SET distance_us = ?2 WHERE id = ?1";
        self.run(sql, (node.0, micros)).map(|_| ())
    }
}

/// A node counts what it says; a count that no agent reaches is as good as any other.
pub(super) fn in_row(seq: u64) -> i64 {
    i64::try_from(seq).unwrap_or(i64::MAX)
}
