//! A pool beside the rows in memory that say what every pool must do.
//!
//! Whatever is asked in whatever order, with a clock that jumps and restarts in between, both give
//! the same answers and have the same rows. Which of the nearest browsers is picked is the pool's
//! to choose, as long as it is one of them.

mod support;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use proptest::collection::vec;
use proptest::prelude::*;
use support::{Kept, account};
use tokio::sync::broadcast;
use usher_core::id::Id;
use usher_core::lease::account::{Account, Kept as Parts, SLOT_CONFIRMED};
use usher_core::lease::beat::{Group, Heartbeat};
use usher_core::lease::browser::{Phase, State};
use usher_core::lease::bucket::Rate;
use usher_core::lease::close::CloseReason;
use usher_core::lease::limits::{AccountKind, Limits};
use usher_core::lease::line::Class;
use usher_core::lease::region::{Ended, Kill, Region, Wish};
use usher_core::lease::{
    Backend, Boot, BrowserId, Epoch, Flavour, NodeId, RequestId, SessionId, Stock, pick,
};
use usher_core::time::Wall;
use usher_pool::{News, Pool};

const NODES: [&str; 3] = ["one", "two", "three"];
const ACCOUNTS: [&str; 2] = ["a", "b"];

/// What is done; the numbers are taken modulo what there is.
#[derive(Debug, Clone)]
enum Step {
    Register(usize, u32),
    Launch(usize, u8, bool),
    Repeat(usize, usize),
    /// Node, and for each of its browsers whether it is told of, in which phase (or as it stands),
    /// by which lease and how new.
    Beats(usize, Vec<(u8, u8, i8, i8)>, bool),
    Pick(usize, u8, u8, bool, u64),
    Acknowledge(usize, i8),
    Close(usize, i8, u8),
    Evict(usize),
    Drain(usize, bool),
    Measure(usize, u8),
    Reconcile(usize, u64, u8),
    Reap,
    Pass(u32),
    Back(u32),
    Admit(usize, u8),
    QuickAction(usize),
    RefundQuickAction(usize),
    Refund(usize, u8),
    HandOn(usize, u8, u8),
    Confirm(usize, u8),
    Release(usize, u8),
    Spend(usize, u32),
    Restart,
}

fn step() -> impl Strategy<Value = Step> {
    let n = || any::<usize>();
    prop_oneof![
        1 => (n(), 1_u32..9).prop_map(|(node, slots)| Step::Register(node, slots)),
        6 => (n(), any::<u8>(), any::<bool>()).prop_map(|(a, b, c)| Step::Launch(a, b, c)),
        1 => (n(), n()).prop_map(|(a, b)| Step::Repeat(a, b)),
        12 => (n(), vec((0_u8..4, 0_u8..12, -1_i8..2, -1_i8..3), 8), prop::bool::weighted(0.05))
            .prop_map(|(node, beats, old)| Step::Beats(node, beats, old)),
        8 => (n(), any::<u8>(), 0_u8..2, any::<bool>(), any::<u64>())
            .prop_map(|(a, b, c, d, e)| Step::Pick(a, b, c, d, e)),
        6 => (n(), -1_i8..2).prop_map(|(a, b)| Step::Acknowledge(a, b)),
        3 => (n(), -1_i8..2, 0_u8..6).prop_map(|(a, b, c)| Step::Close(a, b, c)),
        1 => n().prop_map(Step::Evict),
        1 => (n(), any::<bool>()).prop_map(|(a, b)| Step::Drain(a, b)),
        2 => (n(), 0_u8..3).prop_map(|(a, b)| Step::Measure(a, b)),
        2 => (n(), 0_u64..200, any::<u8>()).prop_map(|(a, b, c)| Step::Reconcile(a, b, c)),
        6 => Just(Step::Reap),
        8 => prop_oneof![0_u32..3_000, 3_000_u32..20_000, 20_000_u32..4_000_000].prop_map(Step::Pass),
        1 => (1_u32..100_000).prop_map(Step::Back),
        4 => (n(), any::<u8>()).prop_map(|(a, b)| Step::Admit(a, b)),
        2 => n().prop_map(Step::QuickAction),
        1 => n().prop_map(Step::RefundQuickAction),
        1 => (n(), any::<u8>()).prop_map(|(a, b)| Step::Refund(a, b)),
        1 => (n(), any::<u8>(), any::<u8>()).prop_map(|(a, b, c)| Step::HandOn(a, b, c)),
        1 => (n(), any::<u8>()).prop_map(|(a, b)| Step::Confirm(a, b)),
        1 => (n(), any::<u8>()).prop_map(|(a, b)| Step::Release(a, b)),
        1 => (n(), 0_u32..400_000).prop_map(|(a, b)| Step::Spend(a, b)),
        1 => Just(Step::Restart),
    ]
}

fn limits() -> Limits {
    Limits {
        concurrent: 4,
        browsers: Rate::per_second(1.0, 3),
        browsers_a_minute: Some(10),
        a_day: Some(Duration::from_secs(900)),
        ..Limits::of(AccountKind::Free)
    }
}

struct World {
    kept: Kept,
    pool: Arc<dyn Pool>,
    news: broadcast::Receiver<News>,
    region: Region,
    accounts: BTreeMap<Id, Account>,
    /// The newest start of each node, by its place in `NODES`.
    boots: BTreeMap<usize, (NodeId, Boot)>,
    launched: Vec<BrowserId>,
    seq: u64,
}

impl World {
    async fn new() -> World {
        let kept = Kept::new();
        let pool = kept.open().await;
        let now = kept.hand.now();
        let mut world = World {
            news: pool.news(),
            pool,
            region: Region::default(),
            accounts: BTreeMap::new(),
            boots: BTreeMap::new(),
            launched: Vec::new(),
            seq: 10,
            kept,
        };
        for name in ACCOUNTS {
            let id = account(name);
            let account = Account::new(limits(), now);
            world.accounts.insert(id, account);
            let charged = world.pool.admit_quick_action(id, limits()).await;
            assert_eq!(
                charged.expect("asked"),
                world.with(id, |account, now| { account.admit_quick_action(now) })
            );
        }
        world
    }

    fn now(&self) -> Wall {
        self.kept.hand.now()
    }

    fn node(&self, number: usize) -> Option<(NodeId, Boot)> {
        self.boots.get(&(number % NODES.len())).copied()
    }

    fn browser(&self, number: usize) -> Option<BrowserId> {
        let len = self.launched.len();
        (len > 0).then(|| self.launched[number % len])
    }

    fn epoch(&self, browser: BrowserId, off: i8) -> Epoch {
        let row = self.region.browsers().find(|&(id, _)| id == browser);
        let epoch = row.map_or(0, |(_, row)| row.lease.epoch.0);
        Epoch(epoch.saturating_add_signed(i32::from(off)))
    }

    fn live(&self, of: Id) -> Vec<SessionId> {
        let lives = self.region.sessions();
        let lives = lives.filter(|(_, row)| {
            row.ended.is_none() && row.account == of && row.class == Class::Session
        });
        lives.map(|(id, _)| id).collect()
    }

    /// A claim counts, and so does a session that lives.
    fn counting(&self, of: Id) -> Account {
        let mut parts = self.accounts[&of].kept();
        let until = self.now().after(SLOT_CONFIRMED);
        parts
            .slots
            .extend(self.live(of).into_iter().map(|live| (live, until)));
        Account::of_kept(limits(), parts)
    }

    fn with<T>(&mut self, of: Id, change: impl FnOnce(&mut Account, Wall) -> T) -> T {
        let (mut account, now) = (self.counting(of), self.now());
        let done = change(&mut account, now);
        let (before, live) = (self.accounts[&of].kept().slots, self.live(of));
        let parts = account.kept();
        let slots = parts.slots.iter().filter_map(|(session, &until)| {
            // What lives has no claim of its own unless it had one.
            match (live.contains(session), before.get(session)) {
                (true, None) => None,
                (true, Some(&old)) => Some((*session, old)),
                (false, _) => Some((*session, until)),
            }
        });
        let slots = slots.collect();
        let parts = Parts { slots, ..parts };
        self.accounts.insert(of, Account::of_kept(limits(), parts));
        done
    }

    /// Sessions that ended: of the ones that had begun, the claim goes and the time is counted.
    fn ended(&mut self, before: &Region, ended: &[Ended]) {
        let now = self.now();
        for end in ended {
            let row = before.session(end.session).expect("it lived");
            let begun = before.browsers().any(|(id, browser)| {
                id == row.browser && browser.lease.state.phase() == Phase::InUse
            });
            if begun {
                let account = self.accounts.get_mut(&end.account).expect("known");
                account.release(end.session, end.billed, now);
            }
        }
    }

    /// What the pool told since the last step, without who became ready.
    fn told(&mut self) -> (Vec<Ended>, Vec<(NodeId, Boot)>) {
        let (mut ended, mut disowned) = (Vec::new(), Vec::new());
        while let Ok(news) = self.news.try_recv() {
            match news {
                News::Ended(end) => ended.push(end),
                News::Disowned { node, boot } => disowned.push((node, boot)),
                News::Ready { count, .. } => assert!(count > 0),
            }
        }
        (sorted(ended), disowned)
    }

    async fn take(&mut self, step: &Step) {
        let (pool, now, before) = (Arc::clone(&self.pool), self.now(), self.region.clone());
        let mut ended = Vec::new();
        let mut disowned = Vec::new();
        match *step {
            Step::Register(number, slots) => {
                let number = number % NODES.len();
                // A node that has more browsers than it now says is another story.
                let answer = pool.register(NODES[number], slots).await.expect("asked");
                let node = answer.0;
                if let Some(&(known, _)) = self.boots.get(&number) {
                    assert_eq!(node, known);
                }
                let (boot, gone) = self.region.register(node, slots, now);
                assert_eq!((answer.1, sorted(answer.2)), (boot, sorted(gone.clone())));
                self.boots.insert(number, (node, boot));
                ended = gone;
            }
            Step::Launch(number, backend, lab) => {
                let Some(of) = self.node(number) else { return };
                let stock = Stock {
                    backend: Backend(backend % 2),
                    flavour: if lab { Flavour::Lab } else { Flavour::Stable },
                };
                self.seq += 1;
                // Mostly of the stock that is asked for.
                let stock = if backend % 8 < 6 {
                    Stock::default()
                } else {
                    stock
                };
                let id = BrowserId((u128::from(self.seq) << 70) | 7);
                let answer = pool.launch(of, id, stock, self.seq).await.expect("asked");
                let model = self.region.launch(of, id, stock, self.seq, now);
                assert_eq!(answer, model);
                if answer.is_ok() {
                    self.launched.push(id);
                }
            }
            Step::Repeat(number, browser) => {
                let (Some(of), Some(id)) = (self.node(number), self.browser(browser)) else {
                    return;
                };
                // One that was dropped an hour ago would be a new one.
                if !self.region.browsers().any(|(known, _)| known == id) {
                    return;
                }
                let answer = pool.launch(of, id, Stock::default(), 1).await;
                let model = self.region.launch(of, id, Stock::default(), 1, now);
                assert_eq!(answer.expect("asked"), model);
            }
            Step::Beats(number, ref beats, old) => {
                let Some((node, boot)) = self.node(number) else {
                    return;
                };
                let boot = if old { Boot(boot.0 - 1) } else { boot };
                let beats = self.beats(node, beats);
                pool.beats((node, boot), &beats);
                pool.flush().await.expect("written");
                let mut sorted = beats.clone();
                sorted.sort_by_key(|beat| beat.browser);
                let group = Group {
                    node,
                    boot,
                    beats: sorted,
                };
                match self.region.heartbeats(&group, now) {
                    Ok((_, gone)) => ended = gone,
                    Err(_) => disowned.push((node, boot)),
                }
            }
            Step::Pick(name, request, attempt, quick, draw) => {
                let request = u128::from(request % 64);
                self.seq += 1;
                let wish = Wish {
                    request: RequestId(request),
                    attempt,
                    session: SessionId(u128::from(self.seq) << 64),
                    account: account(ACCOUNTS[name % ACCOUNTS.len()]),
                    stock: Stock::default(),
                    class: if quick {
                        Class::QuickAction
                    } else {
                        Class::Session
                    },
                    keep_alive: Duration::from_secs(10 + u64::from(attempt) * 30),
                };
                let answer = pool.pick(wish, draw).await.expect("asked");
                let draw = match answer {
                    Some(picked) if picked.session == wish.session => self.draw_of(picked.browser),
                    _ => draw,
                };
                assert_eq!(answer, self.region.pick(wish, now, draw), "{wish:?}");
            }
            Step::Acknowledge(browser, off) => {
                let Some(id) = self.browser(browser) else {
                    return;
                };
                let epoch = self.epoch(id, off);
                let answer = pool.acknowledge(id, epoch).await.expect("asked");
                assert_eq!(answer, self.region.acknowledge(id, epoch, now));
            }
            Step::Close(browser, off, reason) => {
                let Some(id) = self.browser(browser) else {
                    return;
                };
                let (epoch, reason) = (self.epoch(id, off), CloseReason::of_number(reason));
                let answer = pool.close(id, epoch, reason).await.expect("asked");
                let model = self.region.close(id, epoch, reason, now);
                assert_eq!(answer, model);
                ended.extend(model.ok().flatten());
            }
            Step::Evict(browser) => {
                let Some(id) = self.browser(browser) else {
                    return;
                };
                let reason = CloseReason::SessionEvicted;
                let answer = pool.evict(id, reason).await.expect("asked");
                let model = self.region.evict(id, reason, now);
                assert_eq!(answer, model);
                ended.extend(model);
            }
            Step::Drain(number, draining) => {
                let Some((node, _)) = self.node(number) else {
                    return;
                };
                pool.drain(node, draining).await.expect("asked");
                self.region.drain(node, draining);
            }
            Step::Measure(number, far) => {
                let Some((node, _)) = self.node(number) else {
                    return;
                };
                let far = Duration::from_millis(u64::from(far));
                pool.measure(node, far).await.expect("asked");
                self.region.measure(node, far);
            }
            Step::Reconcile(number, back, keep) => {
                let Some(of) = self.node(number) else { return };
                let seq = self.seq.saturating_sub(back % 40);
                let rows = self.region.browsers();
                let mut has: BTreeMap<BrowserId, (Phase, Epoch)> = rows
                    .filter(|(_, row)| row.node == of.0)
                    .enumerate()
                    .filter(|(at, _)| keep >> (at % 8) & 1 == 1)
                    .map(|(at, (id, row))| {
                        let phase = match at % 3 {
                            0 => Phase::ALL[usize::from(keep) % 6],
                            _ => row.lease.state.phase(),
                        };
                        (id, (phase, row.lease.epoch))
                    })
                    .collect();
                has.insert(BrowserId(1), (Phase::Ready, Epoch(3)));
                let answer = pool.reconcile(of, seq, has.clone()).await.expect("asked");
                let model = self.region.reconcile(of, seq, &has, now);
                let answer = answer.map(|told| (by_id(told.kills), sorted(told.ended)));
                let model = model.map(|(kills, ended)| (by_id(kills), sorted(ended)));
                assert_eq!(answer, model);
                ended = model.map(|(_, ended)| ended).unwrap_or_default();
            }
            Step::Reap => {
                let mut answer = pool.reap().await.expect("asked");
                let mut model = self.region.reap(now);
                for reaped in [&mut answer, &mut model] {
                    reaped.ended = sorted(std::mem::take(&mut reaped.ended));
                    reaped.kills = by_id(std::mem::take(&mut reaped.kills));
                    reaped.quarantined.sort_unstable();
                }
                assert_eq!(answer, model);
                // A gap moves what had begun ahead of the clock, and bills by that.
                ended = model.ended;
                // Claims that have run out are forgotten then, and no clock brings them back.
                for account in self.accounts.values_mut() {
                    let mut parts = account.kept();
                    parts.slots.retain(|_, until| *until > now);
                    *account = Account::of_kept(limits(), parts);
                }
            }
            Step::Pass(millis) => self.kept.hand.pass(i64::from(millis)),
            Step::Back(millis) => self.kept.hand.pass(-i64::from(millis)),
            Step::Admit(name, session) => {
                let (id, session) = (self.account(name), claim(session));
                let answer = pool.admit(id, limits(), session).await.expect("asked");
                let model = self.with(id, |account, now| account.admit(session, now));
                assert_eq!(answer, model);
            }
            Step::QuickAction(name) => {
                let id = self.account(name);
                let answer = pool.admit_quick_action(id, limits()).await.expect("asked");
                let model = self.with(id, |account, now| account.admit_quick_action(now));
                assert_eq!(answer, model);
            }
            Step::RefundQuickAction(name) => {
                let id = self.account(name);
                let refunded = pool.refund_quick_action(id, limits()).await;
                refunded.expect("asked");
                self.with(id, |account, now| {
                    account.pass(now);
                    account.refund_quick_action();
                });
            }
            Step::Refund(name, session) => {
                let (id, session) = (self.account(name), claim(session));
                pool.refund(id, limits(), session).await.expect("asked");
                self.with(id, |account, now| {
                    account.pass(now);
                    account.refund(session);
                });
            }
            Step::HandOn(name, failed, next) => {
                let (id, failed, next) = (self.account(name), claim(failed), claim(next));
                pool.hand_on(id, limits(), failed, next)
                    .await
                    .expect("asked");
                self.with(id, |account, now| {
                    account.pass(now);
                    account.hand_on(failed, next, now);
                });
            }
            Step::Confirm(name, session) => {
                let (id, session) = (self.account(name), claim(session));
                pool.confirm(id, limits(), session).await.expect("asked");
                self.with(id, |account, now| account.confirm(session, now));
            }
            Step::Release(name, session) => {
                let (id, session) = (self.account(name), claim(session));
                let billed = Duration::from_secs(u64::from(session.0 as u8 % 3));
                pool.release(id, session, billed).await.expect("asked");
                let account = self.accounts.get_mut(&id).expect("known");
                account.release(session, Duration::ZERO, now);
                if !billed.is_zero() {
                    account.spend(billed, now);
                }
            }
            Step::Spend(name, millis) => {
                let (id, time) = (self.account(name), Duration::from_millis(u64::from(millis)));
                pool.spend(id, time).await.expect("asked");
                if !time.is_zero() {
                    self.accounts.get_mut(&id).expect("known").spend(time, now);
                }
            }
            Step::Restart => {
                pool.stop().await.expect("stops");
                self.pool = self.kept.open().await;
                self.news = self.pool.news();
            }
        }
        self.ended(&before, &ended);
        assert_eq!(self.told(), (sorted(ended), disowned));
        self.compare().await;
    }

    fn account(&self, name: usize) -> Id {
        account(ACCOUNTS[name % ACCOUNTS.len()])
    }

    fn beats(&mut self, node: NodeId, told: &[(u8, u8, i8, i8)]) -> Vec<Heartbeat> {
        let rows = self.region.browsers().filter(|(_, row)| row.node == node);
        let rows: Vec<_> = rows.map(|(id, row)| (id, *row)).collect();
        let mut beats = Vec::new();
        for (&(told, phase, epoch, seq), (id, row)) in told.iter().zip(rows.into_iter().rev()) {
            if told == 0 {
                continue;
            }
            self.seq += 1;
            let stands = row.lease.state.phase();
            let phase = match phase {
                0 => Phase::Dead,
                1 => Phase::Closing,
                2 => Phase::Starting,
                3 | 4 if stands == Phase::Starting => Phase::Ready,
                3 => Phase::InUse,
                _ if stands == Phase::Starting => Phase::Ready,
                _ => stands,
            };
            // Seldom of another lease.
            let epoch = if told == 1 { epoch } else { 0 };
            beats.push(Heartbeat {
                browser: id,
                seq: if seq < 0 {
                    row.seq.saturating_sub(1)
                } else {
                    self.seq
                },
                phase,
                epoch: Epoch(row.lease.epoch.0.saturating_add_signed(i32::from(epoch))),
                mem_kib: self.seq as u32,
                quiet: Duration::from_secs(self.seq % 90),
                reason: CloseReason::of_number((self.seq % 6) as u8),
            });
        }
        beats
    }

    /// A draw by which the model chooses this one too; there is none if it is not near enough.
    fn draw_of(&self, browser: BrowserId) -> u64 {
        let ready: Vec<_> = self.region.ready(Stock::default(), self.now()).collect();
        (0..100_000)
            .find(|&draw| pick::choose(ready.iter().copied(), draw) == Some(browser))
            .unwrap_or_else(|| panic!("{browser:?} is not one of the nearest of {ready:?}"))
    }

    async fn compare(&mut self) {
        if let Err(broken) = self.region.check()
            && !broken.contains("room for")
        {
            panic!("{broken}");
        }
        let nodes = self.pool.nodes().await.expect("asked");
        assert_eq!(nodes.len(), self.boots.len());
        let mut count = 0;
        for view in &nodes {
            assert_eq!(Some(&view.node), self.region.node(view.id), "{}", view.name);
            for browser in self.pool.browsers(view.id, 0).await.expect("asked") {
                let row = self
                    .region
                    .browsers()
                    .find(|&(id, _)| id == browser.browser);
                let row = row.expect("in both").1;
                assert_eq!(browser.node, row.node);
                assert_eq!(browser.stock, row.stock);
                assert_eq!(browser.phase, row.lease.state.phase());
                assert_eq!(browser.epoch, row.lease.epoch);
                let holder = match row.lease.state {
                    State::Starting | State::Ready => None,
                    state => state.holder(),
                };
                assert_eq!(browser.holder, holder);
                assert_eq!((browser.since, browser.started), (row.since, row.started));
                assert_eq!((browser.seq, browser.mem_kib), (row.seq, row.mem_kib));
                count += 1;
            }
        }
        assert_eq!(count, self.region.browsers().count());
        for name in ACCOUNTS {
            let id = account(name);
            let shown = self.pool.account(id, limits()).await.expect("asked");
            let mut counting = self.counting(id);
            counting.pass(self.now());
            assert_eq!(shown.sessions, counting.sessions().collect::<Vec<_>>());
            assert_eq!(shown.wait, counting.wait(self.now()));
            assert_eq!(shown.used, counting.used());
            let others = self.region.sessions().filter(|(_, row)| {
                row.ended.is_none() && row.account == id && row.class != Class::Session
            });
            assert_eq!(shown.others as usize, others.count());
            let history = self.pool.history(id, 0, 1_000).await.expect("asked");
            let mut found = BTreeSet::new();
            for view in history {
                let Some(row) = self.region.session(view.session) else {
                    assert!(view.ended.is_some(), "{view:?}");
                    continue;
                };
                assert_eq!(view.account, row.account);
                assert_eq!((view.browser, view.epoch), (row.browser, row.epoch));
                assert_eq!((view.started, view.ended), (row.started, row.ended));
                assert_eq!((view.keep_alive, view.class), (row.keep_alive, row.class));
                if row.ended.is_none() {
                    assert_eq!(view.commanded, row.commanded, "{view:?}");
                }
                found.insert(view.session);
            }
            let rows = self
                .region
                .sessions()
                .filter(|(_, row)| row.account == id && row.class == Class::Session);
            assert_eq!(found, rows.map(|(id, _)| id).collect());
        }
    }
}

/// Sessions whose browser is elsewhere.
fn claim(number: u8) -> SessionId {
    SessionId(u128::from(number % 8) + 1)
}

fn sorted(mut ended: Vec<Ended>) -> Vec<Ended> {
    ended.sort_by_key(|end| end.session);
    ended
}

fn by_id(mut kills: Vec<Kill>) -> Vec<Kill> {
    kills.sort_by_key(|kill| kill.browser);
    kills
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn both_agree(steps in vec(step(), 1..140)) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .expect("a runtime");
        runtime.block_on(async {
            let mut world = World::new().await;
            for step in &steps {
                world.take(step).await;
            }
        });
    }
}
