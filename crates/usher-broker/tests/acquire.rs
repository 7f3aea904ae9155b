//! Wishes led to answers over real pools, with nodes that are the core's.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tempfile::TempDir;
use tokio::sync::Notify;
use usher_broker::{Ask, Broker, Node, Region, Settings, Work};
use usher_core::id::{Id, Kind};
use usher_core::lease::browser::Phase;
use usher_core::lease::close::CloseReason;
use usher_core::lease::host::Host;
use usher_core::lease::limits::{AccountKind, Limits};
use usher_core::lease::line::Class;
use usher_core::lease::refusal::Refusal;
use usher_core::lease::region::Picked;
use usher_core::lease::{Boot, BrowserId, NodeId, RequestId, SessionId, Stock};
use usher_core::time::{Mono, Wall};
use usher_pool::sqlite::Sqlite;
use usher_pool::{Clock, Pool};

const NOW: Mono = Mono::ZERO;

/// The machines of all nodes, by region and node.
#[derive(Default)]
struct Machines {
    hosts: Mutex<BTreeMap<(u16, NodeId), Host>>,
    /// They refuse to prepare so many.
    refuses: Mutex<u32>,
    /// Told when a browser was to be ended.
    closed: Notify,
}

impl Node for Machines {
    fn distance(&self, region: u16) -> Option<Duration> {
        let hosts = self.hosts.lock().expect("whole");
        let mut there = hosts.keys().filter(|(of, _)| *of == region);
        there.next().map(|_| Duration::from_millis(1))
    }

    fn prepare(&self, region: u16, picked: Picked) -> Work<'_, bool> {
        let mut refuses = self.refuses.lock().expect("whole");
        if *refuses > 0 {
            *refuses -= 1;
            return Box::pin(async { false });
        }
        let mut hosts = self.hosts.lock().expect("whole");
        let prepared = hosts.get_mut(&(region, picked.node)).is_some_and(|host| {
            let (browser, session) = (picked.browser, picked.session);
            host.prepare(browser, picked.epoch, session, NOW).is_ok()
                && host.prepared(browser, session, NOW)
        });
        Box::pin(async move { prepared })
    }

    fn close(&self, region: u16, picked: Picked, reason: CloseReason) -> Work<'_, ()> {
        let mut hosts = self.hosts.lock().expect("whole");
        if let Some(host) = hosts.get_mut(&(region, picked.node)) {
            let closed = host.close(picked.browser, picked.epoch, reason, NOW);
            assert_eq!(closed, Ok(()));
        }
        self.closed.notify_one();
        Box::pin(async {})
    }
}

struct World {
    _folder: TempDir,
    pools: Vec<Arc<dyn Pool>>,
    machines: Arc<Machines>,
    broker: Arc<Broker>,
}

impl World {
    /// So many regions, in the order in which they are near.
    async fn new(regions: u16) -> World {
        let folder = tempfile::tempdir().expect("a folder");
        let mut pools: Vec<Arc<dyn Pool>> = Vec::new();
        for number in 0..regions {
            let path = folder.path().join(format!("{number}.db"));
            // It stands still: no node falls silent because a machine is slow.
            let clock = Clock::of(|| Wall::from_millis(1_790_000_000_000));
            let opened = Sqlite::open(&path, Default::default(), clock, Duration::ZERO);
            pools.push(Arc::new(opened.await.expect("opens")));
        }
        let near = pools.iter().zip(1..).map(|(pool, far)| Region {
            pool: Arc::clone(pool),
            client_to_broker: Duration::from_millis(10 * far),
        });
        let broker = Broker::new(near.collect(), Settings::default()).expect("regions");
        World {
            _folder: folder,
            machines: Arc::default(),
            broker: Arc::new(broker),
            pools,
        }
    }

    /// A node in a region with so many browsers that are ready.
    async fn node(&self, region: u16, name: &str, browsers: u32) -> (NodeId, Boot) {
        let pool = &self.pools[usize::from(region)];
        let (node, boot, _) = pool.register(name, 1_000).await.expect("asked");
        let mut host = Host::new(1_000, 1_000);
        host.registered(boot);
        self.machines
            .hosts
            .lock()
            .expect("whole")
            .insert((region, node), host);
        self.launch(region, (node, boot), 0..browsers).await;
        (node, boot)
    }

    async fn launch(&self, region: u16, of: (NodeId, Boot), numbers: std::ops::Range<u32>) {
        let pool = &self.pools[usize::from(region)];
        for number in numbers {
            let id =
                BrowserId(u128::from(region) << 96 | u128::from(of.0.0) << 64 | u128::from(number));
            let seq = {
                let mut hosts = self.machines.hosts.lock().expect("whole");
                let host = hosts.get_mut(&(region, of.0)).expect("there");
                assert!(host.launch(id, NOW));
                host.next_seq()
            };
            let launched = pool.launch(of, id, Stock::default(), seq).await;
            assert_eq!(launched.expect("asked"), Ok(()));
            let mut hosts = self.machines.hosts.lock().expect("whole");
            hosts
                .get_mut(&(region, of.0))
                .expect("there")
                .ready(id, NOW);
        }
        let beats: Vec<_> = {
            let mut hosts = self.machines.hosts.lock().expect("whole");
            let host = hosts.get_mut(&(region, of.0)).expect("there");
            host.beats(|_, _| (100, Duration::ZERO))
        };
        pool.beats(of, &beats);
        pool.flush().await.expect("written");
    }

    async fn sessions(&self, region: usize) -> usize {
        let live = self.pools[region].sessions(account("default")).await;
        live.expect("asked").len()
    }

    async fn counting(&self) -> usize {
        let ask = ask(0);
        let shown = self.pools[0].account(ask.account, ask.limits).await;
        shown.expect("asked").sessions.len()
    }

    /// So many browsers stand so, in all regions.
    async fn in_phase(&self, phase: Phase) -> u32 {
        let mut all = 0;
        for pool in &self.pools {
            let counts = pool.counts().await.expect("asked");
            let fits = counts.iter().filter(|count| count.phase == phase);
            all += fits.map(|count| count.count).sum::<u32>();
        }
        all
    }

    fn node_of(&self) -> Arc<dyn Node> {
        Arc::clone(&self.machines) as Arc<dyn Node>
    }

    /// Waits until as many stand in line.
    async fn until_waiting(&self, len: usize) {
        let deadline = tokio::time::Instant::now() + Duration::from_secs(60);
        while self
            .broker
            .standing()
            .iter()
            .map(|one| one.len)
            .sum::<usize>()
            != len
        {
            assert!(tokio::time::Instant::now() < deadline, "{:?}", self.broker);
            tokio::task::yield_now().await;
        }
    }

    /// Waits until the account has nothing that counts: what was taken for a caller who left is
    /// given back behind its back.
    async fn until_free(&self) {
        let deadline = tokio::time::Instant::now() + Duration::from_secs(60);
        while self.counting().await > 0 {
            assert!(tokio::time::Instant::now() < deadline);
        }
    }
}

fn account(name: &str) -> Id {
    Id::derive(name, Kind::Account, name)
}

fn ask(number: u128) -> Ask {
    let paid = Limits::of(AccountKind::Contract);
    Ask {
        request: RequestId(number),
        account: account("default"),
        limits: Limits {
            browsers: usher_core::lease::bucket::Rate::per_second(1_000.0, 1_000),
            browsers_a_minute: None,
            ..paid
        },
        weight: 1,
        stock: Stock::default(),
        class: Class::Session,
        paid: false,
        keep_alive: Duration::from_secs(60),
        wait: None,
        only: None,
    }
}

fn patient(number: u128) -> Ask {
    Ask {
        wait: Some(Duration::from_secs(30)),
        ..ask(number)
    }
}

fn impatient(number: u128) -> Ask {
    Ask {
        wait: Some(Duration::ZERO),
        ..ask(number)
    }
}

#[tokio::test]
async fn a_wish_becomes_a_session() {
    let world = World::new(1).await;
    world.node(0, "one", 2).await;
    let offer = world.broker.acquire(ask(1), world.node_of()).await;
    let offer = offer.expect("ready");
    let picked = offer.picked;
    {
        let hosts = world.machines.hosts.lock().expect("whole");
        let host = &hosts[&(0, picked.node)];
        assert!(host.may_connect(picked.browser, picked.epoch, picked.session));
    }
    offer.written();
    assert_eq!((world.sessions(0).await, world.counting().await), (1, 1));
    assert_eq!(world.in_phase(Phase::InUse).await, 1);
}

#[tokio::test]
async fn an_answer_that_is_not_written_gives_all_back() {
    let world = World::new(1).await;
    world.node(0, "one", 2).await;
    let offer = world.broker.acquire(ask(1), world.node_of()).await;
    drop(offer.expect("ready"));
    world.machines.closed.notified().await;
    world.until_free().await;
    assert_eq!(world.sessions(0).await, 0);
    assert_eq!(world.in_phase(Phase::InUse).await, 0);
    assert_eq!(world.in_phase(Phase::Closing).await, 1);
}

#[tokio::test]
async fn nodes_that_refuse_cost_three_browsers_and_no_more() {
    let world = World::new(1).await;
    world.node(0, "one", 8).await;
    *world.machines.refuses.lock().expect("whole") = 2;
    let offer = world.broker.acquire(ask(1), world.node_of()).await;
    offer.expect("the third does").written();
    assert_eq!(world.in_phase(Phase::Closing).await, 2);
    assert_eq!(world.counting().await, 1);
    *world.machines.refuses.lock().expect("whole") = 9;
    let refused = world.broker.acquire(impatient(2), world.node_of()).await;
    let refused = refused.expect_err("none does");
    assert_eq!(refused.status(), 503);
    assert_eq!(*world.machines.refuses.lock().expect("whole"), 6);
    assert_eq!(world.counting().await, 1);
}

#[tokio::test]
async fn limits_answer_at_once_and_capacity_after_the_wait() {
    let world = World::new(1).await;
    let limits = Limits::of(AccountKind::Free);
    let free = |number| Ask {
        limits,
        ..impatient(number)
    };
    let refused = world.broker.acquire(free(1), world.node_of()).await;
    assert!(matches!(refused, Err(Refusal::Capacity { .. })));
    // It was paid back: the one token is still there.
    world.node(0, "one", 3).await;
    let offer = world.broker.acquire(free(2), world.node_of()).await;
    offer.expect("ready").written();
    let refused = world.broker.acquire(free(3), world.node_of()).await;
    let refused = refused.expect_err("one in 20 s");
    assert_eq!(refused.to_string(), "Rate limit exceeded");
    assert_eq!(world.in_phase(Phase::Ready).await, 2);
}

#[tokio::test]
async fn nobody_waits_for_a_machine_that_can_run_none() {
    let world = World::new(2).await;
    world.broker.lacks(0, true);
    world.broker.lacks(1, true);
    let began = tokio::time::Instant::now();
    let refused = world.broker.acquire(patient(1), world.node_of()).await;
    assert!(matches!(refused, Err(Refusal::Capacity { .. })));
    let only = Ask {
        only: Some(1),
        ..patient(2)
    };
    world.broker.lacks(0, false);
    let refused = world.broker.acquire(only, world.node_of()).await;
    assert!(matches!(refused, Err(Refusal::Capacity { .. })));
    // Each of them would have stood in line for thirty seconds.
    assert!(began.elapsed() < Duration::from_secs(25));
    assert_eq!(world.counting().await, 0, "it was paid back");
    world.broker.lacks(1, false);
    world.node(1, "one", 1).await;
    let offer = world.broker.acquire(patient(3), world.node_of()).await;
    offer.expect("it came").written();
}

#[tokio::test]
async fn who_waits_is_called_and_newcomers_do_not_pass() {
    let world = World::new(1).await;
    let of = world.node(0, "one", 0).await;
    let waits = |number| {
        let (broker, node) = (Arc::clone(&world.broker), world.node_of());
        tokio::spawn(async move {
            let offer = broker.acquire(patient(number), node).await;
            offer.map(|offer| {
                let session = offer.picked.session;
                offer.written();
                session
            })
        })
    };
    let first = waits(1);
    world.until_waiting(1).await;
    let second = waits(2);
    world.until_waiting(2).await;
    world.launch(0, of, 0..1).await;
    let served: SessionId = first.await.expect("no panic").expect("called");
    assert_eq!(world.sessions(0).await, 1);
    world.until_waiting(1).await;
    world.launch(0, of, 1..2).await;
    let other = second.await.expect("no panic").expect("called");
    assert_ne!(served, other);
    assert_eq!(world.counting().await, 2);
}

/// Who asks without waiting learns the place that it would have; how long it takes is told once
/// enough browsers have become ready to tell.
#[tokio::test]
async fn a_place_in_line_has_a_number_and_later_an_estimate() {
    let world = World::new(1).await;
    let of = world.node(0, "one", 0).await;
    let first = {
        let (broker, node) = (Arc::clone(&world.broker), world.node_of());
        tokio::spawn(async move { broker.acquire_in_line(patient(1), node).await })
    };
    world.until_waiting(1).await;
    let asks = |number| {
        world
            .broker
            .acquire_in_line(impatient(number), world.node_of())
    };
    let (stood, refused) = asks(2).await;
    assert!(matches!(refused, Err(Refusal::Capacity { .. })));
    let stood = stood.expect("it stood there");
    assert_eq!((stood.place, stood.estimate), (2, None));
    // Twenty come and go.
    world.launch(0, of, 0..20).await;
    let (stood, offer) = first.await.expect("no panic");
    assert_eq!(stood.expect("it stood there").place, 1);
    offer.expect("called").written();
    for number in 3..22 {
        asks(number).await.1.expect("ready").written();
    }
    let (stood, refused) = asks(22).await;
    assert!(refused.is_err());
    let stood = stood.expect("it stood there");
    assert_eq!(stood.place, 1);
    // They came at once, so the next is thought to come within minutes.
    let estimate = stood.estimate.expect("enough were seen");
    assert!(estimate < Duration::from_secs(120), "{estimate:?}");
}

#[tokio::test]
async fn whoever_leaves_the_line_is_given_nothing() {
    let world = World::new(1).await;
    let of = world.node(0, "one", 0).await;
    let (broker, node) = (Arc::clone(&world.broker), world.node_of());
    let leaver = tokio::spawn(async move { broker.acquire(patient(1), node).await.is_ok() });
    world.until_waiting(1).await;
    leaver.abort();
    assert!(leaver.await.is_err_and(|error| error.is_cancelled()));
    world.until_waiting(0).await;
    world.launch(0, of, 0..1).await;
    world.until_free().await;
    assert_eq!(world.in_phase(Phase::Ready).await, 1);
    let offer = world.broker.acquire(ask(2), world.node_of()).await;
    offer.expect("nobody took it").written();
}

/// The near region gives first; when it is empty, the other does; and who must not leave waits.
#[tokio::test]
async fn the_nearest_region_first_and_then_the_other() {
    let world = World::new(2).await;
    world.node(0, "near", 1).await;
    world.node(1, "far", 2).await;
    for (number, region) in [(1, 0), (2, 1)] {
        let offer = world.broker.acquire(ask(number), world.node_of()).await;
        let offer = offer.expect("ready");
        assert_eq!(offer.region, region);
        offer.written();
    }
    let bound = Ask {
        only: Some(0),
        ..impatient(3)
    };
    let refused = world.broker.acquire(bound, world.node_of()).await;
    assert!(matches!(refused, Err(Refusal::Capacity { .. })));
    // Both count at home, and the one abroad no longer once it has ended there.
    assert_eq!(world.counting().await, 2);
    let live = world.pools[1].sessions(account("default")).await;
    let abroad = live.expect("asked")[0];
    let reason = CloseReason::NormalClosure;
    let closed = world.pools[1]
        .close(abroad.browser, abroad.epoch, reason)
        .await;
    assert!(closed.expect("asked").is_ok());
    let deadline = tokio::time::Instant::now() + Duration::from_secs(60);
    while world.counting().await > 1 {
        assert!(tokio::time::Instant::now() < deadline);
    }
}

/// The process that began a session in another region is gone; the next one sees to its place.
#[tokio::test]
async fn a_session_abroad_outlives_who_began_it_and_counts_until_it_ends() {
    let world = World::new(2).await;
    world.node(1, "far", 1).await;
    let offer = world.broker.acquire(ask(1), world.node_of()).await;
    let offer = offer.expect("ready");
    let picked = offer.picked;
    assert_eq!(offer.region, 1);
    offer.written();
    assert_eq!(world.counting().await, 1);
    let World {
        _folder,
        pools,
        machines,
        broker,
    } = world;
    drop(broker);
    let regions = pools.iter().map(|pool| Region {
        pool: Arc::clone(pool),
        client_to_broker: Duration::ZERO,
    });
    let broker = Broker::new(regions.collect(), Settings::default()).expect("regions");
    let world = World {
        _folder,
        pools,
        machines,
        broker: Arc::new(broker),
    };
    assert_eq!(world.counting().await, 1);
    let deadline = tokio::time::Instant::now() + Duration::from_secs(60);
    while world.broker.abroad() == 0 {
        assert!(tokio::time::Instant::now() < deadline);
        tokio::task::yield_now().await;
    }
    let reason = CloseReason::NormalClosure;
    let closed = world.pools[1].close(picked.browser, picked.epoch, reason);
    assert!(closed.await.expect("asked").is_ok());
    world.until_free().await;
}

/// Fifty at once and thirty browsers: thirty different ones, and the exact refusal.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fifty_at_once_get_different_ones_or_the_refusal() {
    let world = World::new(1).await;
    world.node(0, "one", 15).await;
    world.node(0, "two", 15).await;
    let asked: Vec<_> = (0..50)
        .map(|number| {
            let (broker, node) = (Arc::clone(&world.broker), world.node_of());
            tokio::spawn(async move {
                match broker.acquire(impatient(number), node).await {
                    Ok(offer) => {
                        let browser = offer.picked.browser;
                        offer.written();
                        Ok(browser)
                    }
                    Err(refusal) => Err(refusal.to_string()),
                }
            })
        })
        .collect();
    let mut given = BTreeSet::new();
    let mut refused = 0;
    for asked in asked {
        match asked.await.expect("no panic") {
            Ok(browser) => assert!(given.insert(browser), "given twice"),
            Err(text) => {
                let none = "No browser available. Please try again in a few minutes.";
                assert_eq!(text, none);
                refused += 1;
            }
        }
    }
    assert_eq!(given.len() + refused, 50);
    // Nobody is refused while there is one: who found none had been passed by thirty.
    assert_eq!(given.len(), 30);
    assert_eq!((world.sessions(0).await, world.counting().await), (30, 30));
}

#[tokio::test]
async fn a_quick_action_has_its_own_rate_and_no_place() {
    let world = World::new(1).await;
    world.node(0, "one", 4).await;
    let quick = |number| Ask {
        class: Class::QuickAction,
        limits: Limits {
            quick_actions: usher_core::lease::bucket::Rate::one_per(Duration::from_secs(1), 2),
            concurrent: 1,
            ..ask(0).limits
        },
        ..impatient(number)
    };
    // As many sessions as there may be.
    let session = Ask {
        limits: quick(0).limits,
        ..ask(1)
    };
    let offer = world.broker.acquire(session, world.node_of()).await;
    offer.expect("ready").written();
    let offer = world.broker.acquire(quick(2), world.node_of()).await;
    offer.expect("no session").written();
    assert_eq!((world.sessions(0).await, world.counting().await), (1, 1));
    assert_eq!(world.in_phase(Phase::InUse).await, 2);

    // What came to nothing is tried again for the same price.
    let offer = world.broker.acquire(quick(3), world.node_of()).await;
    drop(offer.expect("the second of two"));
    world.machines.closed.notified().await;
    let refused = world.broker.acquire(quick(4), world.node_of()).await;
    let refusal = refused.expect_err("the rate");
    assert!(matches!(refusal, Refusal::Rate { .. }), "{refusal:?}");
    let again = Ask {
        paid: true,
        ..quick(5)
    };
    let offer = world.broker.acquire(again, world.node_of()).await;
    offer.expect("paid").written();
}

#[tokio::test]
async fn a_quick_action_without_a_browser_costs_nothing() {
    let world = World::new(1).await;
    world.node(0, "one", 0).await;
    let quick = |number| Ask {
        class: Class::QuickAction,
        limits: Limits {
            quick_actions: usher_core::lease::bucket::Rate::one_per(Duration::from_secs(1), 1),
            ..ask(0).limits
        },
        ..impatient(number)
    };
    for number in 0..3 {
        let refused = world.broker.acquire(quick(number), world.node_of()).await;
        let refusal = refused.expect_err("nothing is ready");
        assert!(matches!(refusal, Refusal::Capacity { .. }), "{refusal:?}");
    }
}
