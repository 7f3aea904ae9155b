//! What is done about whoever said nothing for too long.
//!
//! Deadlines are judged by the store's clock, which may jump, and by rows that may not have been
//! written for a while because the store stood still. After such a gap nobody is judged by what
//! they could not say: whoever was alive gets a fresh start, and a promise a longer one.
//!
//! Source: browser specification 11.6.

use std::time::Duration;

use super::{Ended, IDLE_MARGIN, Kill, NODE_DEAD, Region};
use crate::lease::browser::{CLOSING_QUARANTINE, Event, Phase, State, TOMBSTONE};
use crate::lease::close::CloseReason;
use crate::lease::{BrowserId, NodeId, SessionId};
use crate::time::Wall;

/// How often a region is looked over.
pub const REAP_EVERY: Duration = Duration::from_secs(5);
/// A pause between two looks that is longer than this is a gap.
pub const GAP: Duration = Duration::from_secs(15);

/// What was found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Reaped {
    /// Sessions that ended with it.
    pub ended: Vec<Ended>,
    /// What nodes must end now, by force.
    pub kills: Vec<Kill>,
    /// Nodes that were taken for dead.
    pub lost: Vec<NodeId>,
    /// Nodes that were taken out of service, because they could not end a browser.
    pub quarantined: Vec<NodeId>,
    /// The clock has jumped, or nobody could look for a while.
    pub gap: bool,
}

impl Region {
    /// Looks everything over.
    pub fn reap(&mut self, now: Wall) -> Reaped {
        let back = self.reaped.is_some_and(|last| last > now);
        let gap = back || self.reaped.is_some_and(|last| now.since(last) > GAP);
        self.reaped = Some(now);
        let mut reaped = Reaped {
            gap,
            ..Reaped::default()
        };
        if gap {
            self.forgive(now);
        }
        self.reap_nodes(now, &mut reaped);
        self.reap_browsers(now, &mut reaped);
        self.reap_idle(now, &mut reaped);
        self.drop_old(now);
        reaped
    }

    /// Nobody is judged by the time that was lost, and no moment lies ahead.
    fn forgive(&mut self, now: Wall) {
        for node in self.nodes.values_mut() {
            node.heard = now;
        }
        for row in self.browsers.values_mut() {
            row.since = row.since.min(now);
            row.started = row.started.min(now);
        }
        for row in self.sessions.values_mut() {
            row.started = row.started.min(now);
            // A use that nobody could report may have been the last moment.
            row.commanded = now;
            if let Some((ended, _)) = &mut row.ended {
                *ended = (*ended).min(now);
            }
        }
    }

    fn reap_nodes(&mut self, now: Wall, reaped: &mut Reaped) {
        let silent = |node: &super::Node| !node.lost && now.since(node.heard) > NODE_DEAD;
        let lost = self.nodes.iter().filter(|(_, node)| silent(node));
        let lost: Vec<NodeId> = lost.map(|(&id, _)| id).collect();
        for id in lost {
            if let Some(node) = self.nodes.get_mut(&id) {
                node.lost = true;
            }
            reaped
                .ended
                .extend(self.bury(id, CloseReason::ConnectionError, now));
            reaped.lost.push(id);
        }
    }

    fn reap_browsers(&mut self, now: Wall, reaped: &mut Reaped) {
        let over = |row: &super::Browser| {
            let stay = row.lease.stay_max(reaped.gap);
            stay.is_some_and(|stay| now.since(row.since) > stay)
        };
        let over: Vec<BrowserId> = self
            .browsers
            .iter()
            .filter(|(_, row)| over(row))
            .map(|(&id, _)| id)
            .collect();
        for id in over {
            let row = self.browsers[&id];
            match row.lease.state {
                State::Starting | State::Picked(_) | State::Ready | State::InUse(_) => {
                    let (_, ended) =
                        self.happen(id, Event::Force, CloseReason::ConnectionError, now);
                    reaped.ended.extend(ended);
                }
                State::Closing(_) => {}
                State::Dead(_) => continue,
            }
            reaped.kills.push(Kill {
                node: row.node,
                browser: id,
                epoch: self.browsers[&id].lease.epoch,
            });
            let stuck = row.lease.state.phase() == Phase::Closing
                && now.since(row.since) > CLOSING_QUARANTINE;
            if let Some(node) = self.nodes.get_mut(&row.node)
                && stuck
                && !node.quarantined
            {
                node.quarantined = true;
                reaped.quarantined.push(row.node);
            }
        }
    }

    /// Sessions that their node should have ended.
    fn reap_idle(&mut self, now: Wall, reaped: &mut Reaped) {
        let idle: Vec<BrowserId> = self
            .sessions
            .values()
            .filter(|row| {
                let allowed = row.keep_alive + IDLE_MARGIN;
                row.ended.is_none() && now.since(row.commanded) > allowed
            })
            .map(|row| row.browser)
            .collect();
        for id in idle {
            let (_, ended) = self.happen(id, Event::Force, CloseReason::BrowserIdle, now);
            reaped.ended.extend(ended);
            if let Some(row) = self.browsers.get(&id) {
                reaped.kills.push(Kill {
                    node: row.node,
                    browser: id,
                    epoch: row.lease.epoch,
                });
            }
        }
    }

    /// Rows that were kept for those who ask what happened.
    fn drop_old(&mut self, now: Wall) {
        self.browsers.retain(|_, row| {
            row.lease.state.phase() != Phase::Dead || now.since(row.since) <= TOMBSTONE
        });
        let old = |row: &super::SessionRow| {
            row.ended
                .is_some_and(|(ended, _)| now.since(ended) > TOMBSTONE)
        };
        let old: Vec<SessionId> = self
            .sessions
            .iter()
            .filter(|(_, row)| old(row))
            .map(|(&id, _)| id)
            .collect();
        for id in old {
            if let Some(row) = self.sessions.remove(&id) {
                self.wishes.remove(&row.wish);
            }
        }
    }
}
