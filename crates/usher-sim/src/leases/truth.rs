//! What must hold, by what really runs: I1 to I9 of the browser specification, 11.2.

use std::collections::{BTreeMap, BTreeSet};

use usher_core::lease::browser::{Phase, State};
use usher_core::lease::line::Class;
use usher_core::lease::region::{Picked, Region};
use usher_core::lease::{BrowserId, Epoch, SessionId};

use super::Lending;
use super::node::Agent;

/// Within so many milliseconds after a browser is gone its session and slot are.
const FREED_MS: u64 = 90_000;
/// A promise is followed up or taken back within so many: its 5 s, the 15 s after a jump, the look
/// that finds it, and the one before the gap was seen.
const PROMISE_MS: u64 = 30_000;
/// A browser that the store calls dead has no process for longer than this: a minute until its node
/// stops trusting itself, half a minute between lists, the longest teardown, and messages.
const UNDEAD_MS: u64 = 300_000;
/// A node that cannot reach the store serves nobody after so many: the minute that a confirmation
/// holds, and the second until it looks.
const ALONE_MS: u64 = 62_000;

type Held = Result<(), String>;

/// What nobody in the world can see as a whole.
#[derive(Debug, Default)]
pub(super) struct Truth {
    /// Browsers that were started, ever.
    pub(super) launched: BTreeSet<BrowserId>,
    /// To whom the store gave each browser.
    given: BTreeMap<BrowserId, SessionId>,
    /// For whom a node prepared it, and the newest lease that it took.
    served: BTreeMap<BrowserId, (SessionId, Epoch)>,
    broken: Option<String>,
    /// Where the store last had each browser, and since when.
    phases: BTreeMap<BrowserId, (Phase, u64)>,
    /// When each process was seen to be gone.
    gone: BTreeMap<BrowserId, u64>,
    /// Until when the store was disturbed.
    disturbed: u64,
    forgot: bool,
}

impl Truth {
    pub(super) fn disturbed(&mut self, until: u64) {
        self.disturbed = self.disturbed.max(until);
    }

    /// What the store has forgotten can be given again; that a node serves nobody else then is
    /// still to hold.
    pub(super) fn forgot(&mut self, region: &Region) {
        self.forgot = true;
        self.given = region
            .sessions()
            .map(|(session, row)| (row.browser, session))
            .collect();
        self.phases.clear();
    }

    /// I1, I2. True when a store that forgot gives away what a node already serves.
    pub(super) fn picked(&mut self, picked: Picked) -> bool {
        let before = self.given.insert(picked.browser, picked.session);
        if before.is_some_and(|before| before != picked.session) {
            self.broken = Some(format!("{picked:?} was given to {before:?} before"));
        }
        let served = self.served.get(&picked.browser);
        served.is_some_and(|served| served.0 != picked.session)
    }

    /// I1, I3, I8: a profile sees one session.
    pub(super) fn prepared(&mut self, picked: Picked) {
        let new = (picked.session, picked.epoch);
        let before = self.served.entry(picked.browser).or_insert(new);
        if before.0 != picked.session {
            self.broken = Some(format!("{picked:?} was prepared for {:?} before", before.0));
        }
        if before.1 > picked.epoch {
            self.broken = Some(format!("{picked:?} is older than {:?}", before.1));
        }
        before.1 = picked.epoch;
    }

    /// I3.
    pub(super) fn connected(&mut self, picked: Picked) {
        if self.served.get(&picked.browser) != Some(&(picked.session, picked.epoch)) {
            self.broken = Some(format!("{picked:?} connects to what it does not hold"));
        }
    }
}

impl Lending {
    pub(super) fn check(&mut self) -> Held {
        if let Some(broken) = self.truth.broken.take() {
            return Err(broken);
        }
        self.store.region.check()?;
        self.check_room()?;
        self.check_rows()?;
        self.check_slots()?;
        self.check_ends()
    }

    /// I9, by processes, and what a node does alone.
    fn check_room(&self) -> Held {
        for machine in &self.machines {
            let running = machine.processes.len();
            if running > machine.slots() as usize {
                return Err(format!("{running} processes on {machine:?}"));
            }
            // I4, from the node's side.
            let alone = machine
                .cut_since
                .is_some_and(|since| self.now > since + ALONE_MS);
            let serving = |agent: &Agent| agent.host.in_phase(Phase::InUse) > 0;
            if alone && machine.agent.as_ref().is_some_and(serving) {
                return Err(format!("{machine:?} serves alone"));
            }
        }
        Ok(())
    }

    /// I6: every row goes forward, and into `ready` from `starting` alone. I4 for promises.
    fn check_rows(&mut self) -> Held {
        let now = self.now;
        let Lending { store, truth, .. } = self;
        for (id, row) in store.region.browsers() {
            let phase = row.lease.state.phase();
            let known = truth.phases.entry(id).or_insert((phase, now));
            if known.0 == phase {
                let promised = now - known.1;
                let undisturbed = now.saturating_sub(truth.disturbed);
                if phase == Phase::Picked && promised.min(undisturbed) > PROMISE_MS {
                    return Err(format!("{id:?} has been promised for {promised} ms"));
                }
                continue;
            }
            let forward = known.0 < phase;
            let by_canary = phase != Phase::Ready || known.0 == Phase::Starting;
            if !forward || !by_canary {
                return Err(format!("{id:?} went from {:?} to {phase:?}", known.0));
            }
            *known = (phase, now);
        }
        Ok(())
    }

    /// What is no session takes none of its account's places.
    fn check_slots(&self) -> Held {
        let sessions = self.store.region.sessions();
        for (id, row) in sessions.filter(|(_, row)| row.class != Class::Session) {
            let account = &self.store.accounts[&row.account];
            if account.sessions().any(|slot| slot == id) {
                return Err(format!("{id:?} has a slot: {row:?}"));
            }
        }
        Ok(())
    }

    /// I4, I5: what is gone frees what it held. I7: what is dead does not run.
    fn check_ends(&mut self) -> Held {
        let now = self.now;
        let running: BTreeSet<BrowserId> = self
            .machines
            .iter()
            .flat_map(|machine| machine.processes.iter().copied())
            .collect();
        let Lending {
            store,
            truth,
            machines,
            ..
        } = self;
        let undisturbed = now.saturating_sub(truth.disturbed);
        for (id, row) in store.region.browsers() {
            if running.contains(&id) {
                let (phase, since) = truth.phases[&id];
                let machine = &machines[row.node.0 as usize];
                let judged = phase == Phase::Dead && machine.agent.is_some();
                if judged && (now - since).min(undisturbed) > UNDEAD_MS {
                    return Err(format!("{id:?} is dead and runs on {:?}", row.node));
                }
                truth.gone.remove(&id);
                continue;
            }
            if !truth.launched.contains(&id) {
                continue;
            }
            let gone = now - *truth.gone.entry(id).or_insert(now);
            if gone.min(undisturbed) <= FREED_MS {
                continue;
            }
            if let State::Picked(holder) | State::InUse(holder) = row.lease.state {
                return Err(format!("{holder:?} lives in {id:?}, gone for {gone} ms"));
            }
            if let Some(holder) = row.lease.state.holder() {
                let account = &store.accounts[&holder.account];
                if account.sessions().any(|slot| slot == holder.session) {
                    return Err(format!("{holder:?} has a slot, gone for {gone} ms"));
                }
            }
        }
        Ok(())
    }

    /// After the calm: nothing is left but what waits to be picked.
    pub(super) fn check_calm(&mut self) -> Held {
        let now = self.wall();
        for (name, account) in &mut self.store.accounts {
            account.pass(now);
            if account.sessions().len() > 0 {
                return Err(format!(
                    "{name} still has {:?}",
                    account.sessions().collect::<Vec<_>>()
                ));
            }
        }
        let lives = |(id, row): (SessionId, &usher_core::lease::region::SessionRow)| {
            row.ended.is_none().then_some(id)
        };
        let live: Vec<SessionId> = self.store.region.sessions().filter_map(lives).collect();
        if !live.is_empty() {
            return Err(format!("{live:?} still live"));
        }
        if !self.store.line.is_empty() {
            return Err(format!("{} still wait", self.store.line.len()));
        }
        if self.brokers.iter().any(|broker| !broker.is_idle()) {
            return Err("a broker still leads a request".to_owned());
        }
        for machine in &self.machines {
            let Some(agent) = &machine.agent else {
                return Err(format!("{machine:?} has no agent"));
            };
            // Everything that runs is known, and everything that is known as ready runs.
            for id in &machine.processes {
                if !agent.host.knows(*id) {
                    return Err(format!("{id:?} runs and its agent does not know"));
                }
            }
            let ready = agent.host.idle(self.mono());
            if ready.is_empty() {
                return Err(format!("nothing is ready on {machine:?}"));
            }
        }
        let rows = self.store.region.browsers();
        let running = |id| {
            self.machines
                .iter()
                .any(|machine| machine.processes.contains(&id))
        };
        for (id, row) in rows {
            if row.lease.state == State::Ready && !running(id) {
                return Err(format!("{id:?} is ready and does not run"));
            }
        }
        Ok(())
    }
}
