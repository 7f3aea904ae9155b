//! The store: one writer that answers in order, stalls, forgets, and has its clock set.

use std::collections::BTreeMap;

use usher_core::id::{Id, Kind};
use usher_core::lease::account::Account;
use usher_core::lease::acquire;
use usher_core::lease::beat::Settings;
use usher_core::lease::browser::Phase;
use usher_core::lease::close::CloseReason;
use usher_core::lease::limits::{AccountKind, Limits};
use usher_core::lease::line::{Class, Line, Place, Waiter};
use usher_core::lease::region::{Denied, Ended, Region, Wish};
use usher_core::lease::reserve::Reserve;
use usher_core::lease::{Boot, BrowserId, Epoch, NodeId, SessionId, Stock};
use usher_core::time::{Mono, Wall};

use super::node::ToNode;
use super::{Event, Lending};

/// How long a browser is left for one who was called, in milliseconds.
const CALLED_MS: u64 = 500;

/// Where an answer goes: broker, its life, its request, and the number of the question.
pub(super) type Asker = (usize, u64, u128, u64);

/// What the store is asked.
#[derive(Debug, Clone)]
pub(super) enum Call {
    Admit(Asker, Id, SessionId, Class),
    Pick(Asker, Wish),
    Wait(Asker, Id, Class, Mono),
    LeaveLine(u128),
    Mark(Asker, BrowserId, Epoch),
    Close(BrowserId, Epoch, CloseReason),
    HandOn(Id, SessionId, SessionId),
    Refund(Id, SessionId),
    RefundQuick(Id),
    Release(Id, SessionId),
    Register(usize, u64, u32),
    Launch(usize, Boot, BrowserId, u64),
    Reconcile(usize, Boot, u64, BTreeMap<BrowserId, (Phase, Epoch)>, Mono),
}

#[derive(Debug)]
pub(super) struct Store {
    pub(super) region: Region,
    pub(super) accounts: BTreeMap<Id, Account>,
    pub(super) names: Vec<Id>,
    pub(super) line: Line,
    waiting: BTreeMap<Place, Asker>,
    /// When those were called who may not have come yet.
    called: Vec<u64>,
    reserve: Reserve,
    /// A little older than the region: what is left when the last writes are lost.
    saved: Region,
    pub(super) skew_ms: i64,
    free_at: u64,
}

impl Store {
    pub(super) fn new(accounts: usize) -> Store {
        let begin = Wall::from_millis(super::BEGIN_MS);
        let names: Vec<Id> = (0..accounts)
            .map(|name| Id::derive("sim", Kind::Account, &name.to_string()))
            .collect();
        let account =
            |(&name, kind): (&Id, &AccountKind)| (name, Account::new(Limits::of(*kind), begin));
        let kinds = [AccountKind::Paygo, AccountKind::Contract, AccountKind::Free];
        Store {
            region: Region::default(),
            accounts: names
                .iter()
                .zip(kinds.iter().cycle())
                .map(account)
                .collect(),
            names,
            line: Line::default(),
            waiting: BTreeMap::new(),
            called: Vec::new(),
            reserve: Reserve::default(),
            saved: Region::default(),
            skew_ms: 0,
            free_at: 0,
        }
    }

    pub(super) fn stalls_until(&mut self, when: u64) {
        self.free_at = self.free_at.max(when);
    }

    /// The last writes are lost. The line is memory and is lost too; who waits gives up by itself.
    pub(super) fn forget(&mut self) {
        self.region = self.saved.clone();
        (self.line, self.waiting) = (Line::default(), BTreeMap::new());
    }
}

impl Lending {
    pub(super) fn called(&mut self, call: Call) {
        if self.now < self.store.free_at {
            let wait = self.store.free_at - self.now + self.rng.within(1, 50) as u64;
            return self.at(wait, Event::ToStore(call));
        }
        let now = self.wall();
        match call {
            Call::Admit(asker, account, session, class) => {
                let account = self.account(account);
                let admitted = match class {
                    Class::Session => account.admit(session, now),
                    Class::QuickAction | Class::Crawl => account.admit_quick_action(now),
                };
                let event = if admitted.is_ok() {
                    acquire::Event::Admitted
                } else {
                    acquire::Event::NotAdmitted
                };
                self.answer(asker, event);
            }
            Call::Pick(asker, wish) => {
                self.store.reserve.asked(wish.account, self.mono());
                let draw = self.rng.draw();
                let event = match self.store.region.pick(wish, now, draw) {
                    Some(picked) => {
                        if picked.session == wish.session {
                            self.figures.picks += 1;
                            let again = self.truth.picked(picked);
                            self.figures.given_again += u64::from(again);
                        }
                        acquire::Event::Picked(picked)
                    }
                    None => acquire::Event::NoneReady,
                };
                self.answer(asker, event);
            }
            Call::Wait(asker, account, class, since) => self.wait(asker, account, class, since),
            Call::LeaveLine(request) => {
                let place = |(_, asker): &(&Place, &Asker)| asker.2 == request;
                let place = self
                    .store
                    .waiting
                    .iter()
                    .find(place)
                    .map(|(&place, _)| place);
                if let Some(place) = place {
                    self.store.waiting.remove(&place);
                    self.store.line.leave(place);
                }
            }
            Call::Mark(asker, browser, epoch) => {
                let event = match self.store.region.acknowledge(browser, epoch, now) {
                    Ok(()) => acquire::Event::Marked,
                    Err(_) => acquire::Event::NotMarked,
                };
                self.answer(asker, event);
            }
            Call::Close(browser, epoch, reason) => {
                let ended = self.store.region.close(browser, epoch, reason, now);
                self.ended(ended.ok().flatten());
            }
            Call::HandOn(account, failed, next) => {
                self.account(account).hand_on(failed, next, now);
            }
            Call::Refund(account, session) => self.account(account).refund(session),
            Call::RefundQuick(account) => self.account(account).refund_quick_action(),
            Call::Release(account, session) => {
                self.account(account)
                    .release(session, Default::default(), now);
            }
            Call::Register(node, life, slots) => {
                let (boot, ended) = self.store.region.register(NodeId(node as u32), slots, now);
                self.ended(ended);
                self.tell_node(node, ToNode::Registered(life, boot));
            }
            Call::Launch(node, boot, browser, seq) => {
                let of = (NodeId(node as u32), boot);
                let launched = self
                    .store
                    .region
                    .launch(of, browser, Stock::default(), seq, now);
                let launched = self.heeds(node, boot, launched).is_some();
                self.tell_node(node, ToNode::Launched(browser, launched));
            }
            Call::Reconcile(node, boot, seq, has, made) => {
                let of = (NodeId(node as u32), boot);
                let compared = self.store.region.reconcile(of, seq, &has, now);
                if let Some((kills, ended)) = self.heeds(node, boot, compared) {
                    self.ended(ended);
                    self.tell_node(node, ToNode::Confirmed(boot, made));
                    for kill in kills {
                        self.tell_node(node, ToNode::Kill(kill.browser, kill.epoch));
                    }
                }
            }
        }
    }

    /// An agent that the store does not know is told so.
    fn heeds<T>(&mut self, node: usize, boot: Boot, outcome: Result<T, Denied>) -> Option<T> {
        if let Err(Denied::StaleBoot(_)) = outcome {
            self.tell_node(node, ToNode::Disowned(boot));
        }
        outcome.ok()
    }

    fn account(&mut self, name: Id) -> &mut Account {
        self.store
            .accounts
            .get_mut(&name)
            .expect("accounts are never removed")
    }

    fn answer(&mut self, (broker, life, request, asked): Asker, event: acquire::Event) {
        self.send(Event::ToBroker {
            broker,
            life,
            request,
            asked,
            event,
        });
    }

    pub(super) fn ended(&mut self, ended: impl IntoIterator<Item = Ended>) {
        let now = self.wall();
        for end in ended {
            self.figures.idle += u64::from(end.reason == CloseReason::BrowserIdle);
            self.account(end.account)
                .release(end.session, end.billed, now);
        }
    }

    fn wait(&mut self, asker: Asker, account: Id, class: Class, since: Mono) {
        let limits = *self.account(account).limits();
        let waiter = Waiter {
            account,
            weight: 1,
            account_max: limits.concurrent,
            class,
            since,
            until: since.after(class.wait()),
        };
        match self.store.line.join(waiter, 20) {
            Some(place) => {
                self.figures.waits += 1;
                self.store.waiting.insert(place, asker);
            }
            None => self.answer(asker, acquire::Event::NotCalled),
        }
    }

    /// Heartbeats are written, and who waits is called.
    pub(super) fn consume(&mut self) {
        let (mono, now) = (self.mono(), self.wall());
        if self.now >= self.store.free_at {
            while let Some(batch) = self.beats.poll_batch(mono) {
                // A write that fails is tried once more, and then the next heartbeat has to do.
                let fails = !self.is_calm() && self.rng.percent(self.loss);
                if fails
                    && batch.clone().again(&Settings::default()).is_some()
                    && self.rng.percent(30)
                {
                    continue;
                }
                for group in batch.groups {
                    let node = group.node.0 as usize;
                    let heard = self.store.region.heartbeats(&group, now);
                    let Some((alive, ended)) = self.heeds(node, group.boot, heard) else {
                        continue;
                    };
                    for holder in alive {
                        self.account(holder.account).confirm(holder.session, now);
                    }
                    self.ended(ended);
                }
            }
        }
        while let Some((place, _)) = self.store.line.expired(mono) {
            if let Some(asker) = self.store.waiting.remove(&place) {
                self.answer(asker, acquire::Event::NotCalled);
            }
        }
        let ready = self.store.region.ready(Stock::default(), now).count() as u32;
        // A browser for each who was called and is on the way.
        let now = self.now;
        self.store.called.retain(|&when| now < when + CALLED_MS);
        let ready = ready.saturating_sub(self.store.called.len() as u32);
        for taken in 0..ready {
            let left = ready - taken;
            let Store {
                line,
                accounts,
                reserve,
                waiting,
                ..
            } = &mut self.store;
            let lets = |account: Id| {
                let has = accounts
                    .get(&account)
                    .is_some_and(|account| account.sessions().len() > 1);
                reserve.lets(left, ready, has, mono)
            };
            let Some((place, _)) = line.serve(lets) else {
                break;
            };
            if let Some(asker) = waiting.remove(&place) {
                self.store.called.push(now);
                self.answer(asker, acquire::Event::Called);
            }
        }
    }

    pub(super) fn reap(&mut self) {
        if self.now < self.store.free_at {
            return;
        }
        let now = self.wall();
        let reaped = self.store.region.reap(now);
        self.figures.lost += reaped.lost.len() as u64;
        self.ended(reaped.ended);
        for kill in reaped.kills {
            self.tell_node(kill.node.0 as usize, ToNode::Kill(kill.browser, kill.epoch));
        }
        for account in self.store.accounts.values_mut() {
            account.pass(now);
        }
        // At times what was written reaches the disk. Real stores lose a second, not a dozen; the
        // longer gap meets more of what can go wrong.
        if self.rng.percent(50) {
            self.store.saved = self.store.region.clone();
        }
    }
}
