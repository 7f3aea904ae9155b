//! Browsers lent out in a made-up world, where everybody may die at any step.
//!
//! Brokers, nodes, the queue of heartbeats and the store run the machines of `usher_core::lease`;
//! what is real here and nowhere else are the processes on the nodes. Messages are late, lost,
//! repeated and out of order; the store stalls, forgets its last writes and has its clock set;
//! agents, machines, brokers and clients vanish. After every step [`truth`] compares what everybody
//! believes with the processes, and when all is quiet again nothing may be left over.
//!
//! Read [`Lending::run`] first, then [`truth`].

mod broker;
mod client;
mod node;
mod store;
mod truth;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use usher_core::lease::acquire;
use usher_core::lease::beat::{Heartbeat, Queue};
use usher_core::lease::{Boot, NodeId};
use usher_core::time::{Mono, Wall};

use crate::rng::Rng;
use broker::Broker;
use client::{Client, Does};
use node::{Machine, ToNode};
use store::{Call, Store};
use truth::Truth;

/// How long faults and clients go on, and how long it is quiet afterwards, in milliseconds.
const STORM_MS: u64 = 240_000;
const CALM_MS: u64 = 480_000;
/// A clock that shows this when a world begins.
const BEGIN_MS: i64 = 1_790_000_000_000;

/// What a run did, so that a test can see that it was worth something.
#[derive(Debug, Default, Clone)]
pub struct Lent {
    /// Events.
    pub steps: u64,
    /// Browsers that were launched.
    pub launches: u64,
    /// Browsers that were promised.
    pub picks: u64,
    /// Sessions whose client got its answer.
    pub answers: u64,
    /// Requests that were refused.
    pub refusals: u64,
    /// Requests that stood in line.
    pub waits: u64,
    /// Clients that left before they had their answer.
    pub left: u64,
    /// Hand-overs that a node refused or did not answer.
    pub unprepared: u64,
    /// Browsers that a node ended because the store said so.
    pub kills: u64,
    /// Nodes that were taken for dead.
    pub lost: u64,
    /// Sessions that ended because they were idle.
    pub idle: u64,
    /// Faults.
    pub faults: u64,
    /// Times that the store lost its last writes.
    pub amnesias: u64,
    /// Browsers that such a store gave away a second time.
    pub given_again: u64,
}

#[derive(Debug, Clone)]
enum Event {
    Arrive,
    Client {
        client: u64,
        does: Does,
    },
    ToStore(Call),
    ToBroker {
        broker: usize,
        life: u64,
        request: u128,
        asked: u64,
        event: acquire::Event,
    },
    ToNode {
        node: usize,
        what: ToNode,
    },
    Beat {
        node: NodeId,
        boot: Boot,
        beat: Heartbeat,
    },
    Tick(usize),
    Consume,
    Reap,
    Fault,
    AgentBack(usize),
    MachineBack(usize),
    Heal(usize),
}

/// One run.
#[derive(Debug)]
pub struct Lending {
    seed: u64,
    rng: Rng,
    now: u64,
    queue: BTreeMap<(u64, u64), Event>,
    drawn: u128,
    store: Store,
    beats: Queue,
    brokers: Vec<Broker>,
    machines: Vec<Machine>,
    clients: BTreeMap<u64, Client>,
    /// Percent of messages that are lost, and that come twice.
    loss: usize,
    twice: usize,
    /// Milliseconds from one client to the next, at most.
    pace: usize,
    /// Whether the store may forget its last writes in this world.
    forgetful: bool,
    truth: Truth,
    figures: Lent,
}

impl Lending {
    /// The world of `seed`, before anything has happened.
    #[must_use]
    pub fn new(seed: u64) -> Lending {
        let mut rng = Rng::new(seed ^ 0x6c65_6e64);
        let nodes = rng.within(1, 3);
        let machines = (0..nodes)
            .map(|number| {
                let slots = rng.within(3, 12) as u32;
                Machine::new(NodeId(number as u32), slots, rng.within(1, 4) as u32)
            })
            .collect();
        let calm = rng.percent(20);
        let mut world = Lending {
            seed,
            now: 0,
            queue: BTreeMap::new(),
            drawn: 0,
            store: Store::new(rng.within(1, 4)),
            beats: Queue::default(),
            brokers: (0..rng.within(1, 3)).map(|_| Broker::default()).collect(),
            machines,
            clients: BTreeMap::new(),
            loss: if calm { 0 } else { rng.within(0, 8) },
            twice: if calm { 0 } else { rng.within(0, 8) },
            pace: *rng.pick(&[400, 1_500, 4_000]),
            forgetful: rng.percent(25),
            truth: Truth::default(),
            figures: Lent::default(),
            rng,
        };
        for node in 0..nodes {
            world.later(1_000, Event::Tick(node));
        }
        for event in [Event::Arrive, Event::Consume, Event::Reap] {
            world.later(1_000, event);
        }
        if !calm {
            world.later(20_000, Event::Fault);
        }
        world
    }

    /// Runs the storm and the calm after it, and checks after each step.
    ///
    /// # Panics
    /// When an invariant does not hold; the message says how to replay it.
    #[must_use]
    pub fn run(mut self) -> Lent {
        while let Some(((when, _), event)) = self.queue.pop_first() {
            if when > STORM_MS + CALM_MS {
                break;
            }
            self.now = self.now.max(when);
            self.figures.steps += 1;
            let told = format!("{event:?}");
            self.happen(event);
            if let Err(broken) = self.check() {
                self.fail(&format!("{broken}\nafter {told}"));
            }
        }
        if let Err(broken) = self.check_calm() {
            self.fail(&broken);
        }
        self.figures
    }

    fn fail(&self, broken: &str) -> ! {
        let mut text = String::new();
        let (seed, step) = (self.seed, self.figures.steps);
        let at = self.now as f64 / 1e3;
        let _ = writeln!(text, "seed {seed}, step {step}, {at:.3} s: {broken}");
        let _ = write!(
            text,
            "replay: USHER_SEED={seed} cargo test -p usher-sim --test leases"
        );
        panic!("{text}");
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Arrive => {
                if !self.is_calm() {
                    self.arrive();
                    self.later(self.pace, Event::Arrive);
                }
            }
            Event::Client { client, does } => self.client(client, does),
            Event::ToStore(call) => self.called(call),
            Event::ToBroker {
                broker,
                life,
                request,
                asked,
                event,
            } => self.heard(broker, life, request, asked, event),
            Event::ToNode { node, what } => self.told(node, what),
            Event::Beat { node, boot, beat } => self.beats.push(node, boot, beat, self.mono()),
            Event::Tick(node) => {
                self.tick(node);
                self.at(1_000, Event::Tick(node));
            }
            Event::Consume => {
                self.consume();
                self.at(250, Event::Consume);
            }
            Event::Reap => {
                self.reap();
                self.at(5_000, Event::Reap);
            }
            Event::Fault => {
                if !self.is_calm() {
                    self.fault();
                    self.later(15_000, Event::Fault);
                }
            }
            Event::AgentBack(node) => self.machines[node].agent_back(),
            Event::MachineBack(node) => self.machines[node].machine_back(),
            Event::Heal(node) => {
                let machine = &mut self.machines[node];
                (machine.cut_store, machine.cut_brokers) = (false, false);
                machine.cut_since = None;
            }
        }
    }

    /// Whether faults are over and nobody comes any more.
    fn is_calm(&self) -> bool {
        self.now >= STORM_MS
    }

    fn fault(&mut self) {
        self.figures.faults += 1;
        let node = self.rng.below(self.machines.len());
        match self.rng.below(11) {
            0 => {
                let wait = self.rng.within(100, 10_000) as u64;
                self.machines[node].agent_dies();
                self.at(wait, Event::AgentBack(node));
            }
            1 => {
                let wait = self.rng.within(100, 90_000) as u64;
                self.machine_dies(node);
                self.at(wait, Event::MachineBack(node));
            }
            2 | 3 => {
                let (store, brokers) = (self.rng.percent(60), self.rng.percent(60));
                let machine = &mut self.machines[node];
                machine.cut_brokers = brokers;
                machine.cut_store = store;
                machine.cut_since = store.then_some(machine.cut_since.unwrap_or(self.now));
                let wait = self.rng.within(500, 160_000) as u64;
                self.at(wait, Event::Heal(node));
            }
            4 | 5 => {
                let broker = self.rng.below(self.brokers.len());
                self.broker_dies(broker);
            }
            6 | 7 => {
                let stall = self.rng.within(100, 25_000) as u64;
                self.store.stalls_until(self.now + stall);
                self.truth.disturbed(self.now + stall);
            }
            8 | 9 if self.forgetful => {
                self.figures.amnesias += 1;
                self.store.forget();
                self.truth.forgot(&self.store.region);
                self.truth.disturbed(self.now);
            }
            8 => {
                // The clock of the store is set, by a second or by an hour.
                let far = *self.rng.pick(&[1_000, 20_000, 3_600_000]);
                let forward = self.rng.percent(50);
                self.store.skew_ms += if forward { far } else { -far };
                self.truth.disturbed(self.now);
            }
            _ => self.browser_dies(node),
        }
    }

    fn draw(&mut self) -> u128 {
        self.drawn += 1;
        // Ids are random in the product; here they only have to differ and to be in no order.
        let high = u128::from(self.rng.draw());
        (high << 64) | self.drawn
    }

    fn mono(&self) -> Mono {
        Mono::ZERO.after(Duration::from_millis(self.now))
    }

    fn wall(&self) -> Wall {
        Wall::from_millis(BEGIN_MS + self.now as i64 + self.store.skew_ms)
    }

    /// After `wait` milliseconds.
    fn at(&mut self, wait: u64, event: Event) {
        let number = self.figures.steps << 20 | self.queue.len() as u64;
        let mut key = (self.now + wait, number);
        while self.queue.contains_key(&key) {
            key.1 += 1;
        }
        self.queue.insert(key, event);
    }

    /// At some moment within so many milliseconds.
    fn later(&mut self, within: usize, event: Event) {
        let wait = self.rng.within(1, within) as u64;
        self.at(wait, event);
    }

    /// Over the network: late, at times never, at times twice, and in no order.
    fn send(&mut self, event: Event) {
        let calm = self.is_calm();
        if !calm && self.rng.percent(self.loss) {
            return;
        }
        if !calm && self.rng.percent(self.twice) {
            let late = *self.rng.pick(&[50, 2_000, 15_000]);
            self.later(late, event.clone());
        }
        let late = if !calm && self.rng.percent(3) {
            3_000
        } else {
            40
        };
        self.later(late, event);
    }
}
