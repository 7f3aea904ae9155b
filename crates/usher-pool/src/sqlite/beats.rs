//! A node's heartbeats, a hundred in one statement.
//!
//! Nearly all of them say what is known already: the browser stands where it stood, and lives. They
//! only count up and refresh the row, and one statement does that for all. Those that move a browser
//! do not match it, and are taken one by one afterwards, by the machine that knows what may follow.

use rusqlite::ToSql;
use usher_core::lease::beat::{Group, Heartbeat};
use usher_core::lease::browser::{Event, Phase};
use usher_core::lease::{Boot, NodeId};

use super::desk::{Desk, node_of, phase_number};
use super::nodes::in_row;
use crate::fault::Fault;
use crate::pool::News;

/// Lengths of the statement that are prepared; one that is too long is filled up with rows that
/// match nothing.
const LENGTHS: [usize; 6] = [1, 5, 20, 50, 100, 500];

const COLUMNS: usize = 6;

/// A heartbeat with the key of its browser.
type Beat = (i64, Heartbeat);

impl Desk<'_> {
    /// How many counted.
    pub(super) fn heartbeats(&mut self, group: &Group) -> Result<u64, Fault> {
        let node = group.node;
        if !self.hear_or_disown((node, group.boot))? {
            return Ok(0);
        }
        let mut beats: Vec<Beat> = group
            .beats
            .iter()
            .filter_map(|&beat| Some((self.keys.find(beat.browser)?, beat)))
            .filter(|&(key, _)| node_of(key) == node)
            .collect();
        // Neighbours lie in the same page.
        beats.sort_unstable_by_key(|&(key, _)| key);
        let mut counted = 0;
        for beats in beats.chunks(LENGTHS[LENGTHS.len() - 1]) {
            counted += self.refresh(beats)?;
        }
        Ok(counted)
    }

    /// A node was heard of; whether what it says counts.
    pub(super) fn hear_or_disown(&mut self, (node, boot): (NodeId, Boot)) -> Result<bool, Fault> {
        let heard = self.hear(node, boot)?;
        let news = News::Disowned { node, boot };
        if !heard && !self.news.contains(&news) {
            self.news.push(news);
        }
        Ok(heard)
    }

    fn refresh(&mut self, beats: &[Beat]) -> Result<u64, Fault> {
        let length = LENGTHS.into_iter().find(|&length| length >= beats.len());
        let length = length.unwrap_or(beats.len());
        let sql = format!(
            "WITH h(key, seq, mem_kib, commanded, phase, epoch) AS (VALUES {})
             UPDATE browser SET seq = h.seq, mem_kib = h.mem_kib,
                 commanded = max(browser.commanded, h.commanded)
             FROM h WHERE browser.key = h.key AND browser.seq < h.seq
                 AND browser.phase = h.phase AND browser.epoch = h.epoch",
            rows(length)
        );
        let refreshed = self.bind(&sql, beats, length, |mut statement| statement.raw_execute())?;
        if refreshed == beats.len() {
            return Ok(refreshed as u64);
        }
        // Which of them say something new that the statement did not take.
        let sql = format!(
            "WITH h(key, seq, mem_kib, commanded, phase, epoch) AS (VALUES {})
             SELECT h.key FROM h JOIN browser ON browser.key = h.key WHERE browser.seq < h.seq",
            rows(length)
        );
        let moved = self.bind(&sql, beats, length, |mut statement| {
            let mut rows = statement.raw_query();
            let mut moved = Vec::new();
            while let Some(row) = rows.next()? {
                moved.push(row.get::<_, i64>(0)?);
            }
            Ok(moved)
        })?;
        for &key in &moved {
            let beat = beats.binary_search_by_key(&key, |&(key, _)| key);
            if let Ok(at) = beat {
                self.moves(beats[at])?;
            }
        }
        Ok((refreshed + moved.len()) as u64)
    }

    fn bind<T>(
        &self,
        sql: &str,
        beats: &[Beat],
        length: usize,
        run: impl FnOnce(rusqlite::CachedStatement<'_>) -> rusqlite::Result<T>,
    ) -> Result<T, Fault> {
        let mut statement = self.statement(sql)?;
        let mut at = 0;
        let mut put = |value: &dyn ToSql| {
            at += 1;
            statement.raw_bind_parameter(at, value)
        };
        for &(key, beat) in beats {
            put(&key)?;
            put(&in_row(beat.seq))?;
            put(&beat.mem_kib)?;
            put(&self.commanded(beat))?;
            put(&phase_number(beat.phase))?;
            put(&beat.epoch.0)?;
        }
        for _ in beats.len()..length {
            put(&-1)?;
            for _ in 1..COLUMNS {
                put(&0)?;
            }
        }
        Ok(run(statement)?)
    }

    /// When the session was last in use, as far as this heartbeat may say.
    fn commanded(&self, beat: Heartbeat) -> i64 {
        if beat.phase != Phase::InUse {
            return i64::MIN;
        }
        let quiet = i64::try_from(beat.quiet.as_millis()).unwrap_or(i64::MAX);
        self.now.as_millis().saturating_sub(quiet)
    }

    fn moves(&mut self, (key, beat): Beat) -> Result<(), Fault> {
        let Some(found) = self.find(key)? else {
            return Ok(());
        };
        let sql = "UPDATE browser SET seq = ?2, mem_kib = ?3 WHERE key = ?1";
        self.run(sql, (key, in_row(beat.seq), beat.mem_kib))?;
        let event = Event::Reported {
            phase: beat.phase,
            epoch: beat.epoch,
        };
        let (lease, ..) = self.happen(&found, event, beat.reason)?;
        if lease.state.phase() == Phase::InUse {
            let quiet = Heartbeat {
                phase: Phase::InUse,
                ..beat
            };
            let sql = "UPDATE browser SET commanded = max(commanded, ?2) WHERE key = ?1";
            self.run(sql, (key, self.commanded(quiet)))?;
        }
        Ok(())
    }
}

fn rows(length: usize) -> String {
    let mut rows = "(?,?,?,?,?,?),".repeat(length);
    rows.pop();
    rows
}
