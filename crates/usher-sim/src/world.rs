//! Servers, an edge, an operator and visitors, in virtual time.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use usher_core::catalog::{Address, Catalog, Draft};
use usher_core::engine::{Engine, Input, Output};
use usher_core::health::FailureReason;
use usher_core::probe::{ProbeId, ProbeOrder, ProbeResult};
use usher_core::snapshot::Snapshot;
use usher_core::time::{Mono, Wall};

use crate::catalogs;
use crate::model::{Model, Target};
use crate::rng::Rng;
use crate::visits::Crowd;

/// How long an answer takes at most.
pub(crate) const RTT_MAX: Duration = Duration::from_millis(400);

/// What the clock on the wall shows when a world begins.
pub(crate) const BEGIN: Wall = Wall::from_millis(1_790_000_000_000);

/// What a server does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    Works,
    Refuses,
    Hangs,
    AnswersWrongly,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Server {
    pub(crate) mode: Mode,
    pub(crate) since: Mono,
}

#[derive(Debug)]
enum Event {
    Answer { probe: ProbeId, result: ProbeResult },
    Resolved { host: String, resolvable: bool },
    ServersChange,
    HostsChange,
    Reload,
}

/// What a run did, so that a test can see that it was worth something.
#[derive(Debug, Default, Clone)]
pub struct Figures {
    /// Inputs and timers.
    pub steps: u64,
    /// Attempts that were ordered.
    pub probes: u64,
    /// Attempts that were never answered.
    pub lost: u64,
    /// Snapshots.
    pub snapshots: u64,
    /// Catalogs after the first.
    pub reloads: u64,
    /// Changes of state that were told.
    pub changes: u64,
    /// Visitors that were forwarded.
    pub forwarded: u64,
    /// Visitors that were forwarded to the fallback pool.
    pub to_fallback: u64,
    /// Visitors that were refused.
    pub refused: u64,
    /// Visitors whose pin was used.
    pub kept: u64,
    /// Of these, to an endpoint that is draining.
    pub draining: u64,
    /// Visitors that got another pin than they had.
    pub moved: u64,
    /// Retries that lead to another pool.
    pub across: u64,
    /// Visitors that were answered by the configuration.
    pub answered: u64,
}

/// One run.
#[derive(Debug)]
pub struct World {
    seed: u64,
    pub(crate) rng: Rng,
    pub(crate) now: Mono,
    engine: Engine,
    pub(crate) model: Model,
    pub(crate) crowd: Crowd,
    /// By address: one machine answers on all its ports.
    servers: BTreeMap<Address, Server>,
    hosts: BTreeMap<String, bool>,
    queue: BTreeMap<(Mono, u64), Event>,
    queued: u64,
    /// Percent of attempts that nobody answers.
    pub(crate) loss: usize,
    pub(crate) published: Option<Arc<Snapshot>>,
    pub(crate) published_at: Option<Mono>,
    pub(crate) reloaded_at: Mono,
    pub(crate) ready_at: Option<Mono>,
    /// Start of the last probes of a target since the last reload.
    pub(crate) starts: BTreeMap<Target, Vec<Mono>>,
    /// Targets of which an attempt was lost, and when last.
    pub(crate) lost_at: BTreeMap<Target, Mono>,
    pub(crate) figures: Figures,
}

impl World {
    /// The world of `seed`, before anything has happened.
    #[must_use]
    pub fn new(seed: u64) -> World {
        let mut rng = Rng::new(seed);
        let draft = catalogs::draw(&mut rng);
        let loss = if rng.percent(50) { 0 } else { rng.within(1, 5) };
        let mut world = World {
            seed,
            now: Mono::ZERO,
            engine: Engine::new(rng.draw()),
            model: Model::new(draft.clone(), BEGIN),
            crowd: Crowd::draw(&mut rng),
            rng,
            servers: BTreeMap::new(),
            hosts: BTreeMap::new(),
            queue: BTreeMap::new(),
            queued: 0,
            loss,
            published: None,
            published_at: None,
            reloaded_at: Mono::ZERO,
            ready_at: None,
            starts: BTreeMap::new(),
            lost_at: BTreeMap::new(),
            figures: Figures::default(),
        };
        world.settle_servers();
        for event in [Event::ServersChange, Event::HostsChange, Event::Reload] {
            world.later(10_000, event);
        }
        world.engine.handle(Input::Clock(BEGIN), Mono::ZERO);
        world.load(draft);
        world
    }

    /// Runs `steps` steps and checks after each.
    ///
    /// # Panics
    /// When an invariant does not hold or the model disagrees; the message says how to replay it.
    #[must_use]
    pub fn run(mut self, steps: u64) -> Figures {
        self.checked();
        while self.figures.steps < steps {
            self.step();
            self.checked();
        }
        self.figures
    }

    fn checked(&mut self) {
        if let Err(broken) = self.check_invariants() {
            self.fail(&broken);
        }
    }

    fn fail(&self, broken: &str) -> ! {
        let mut text = String::new();
        let (seed, step) = (self.seed, self.figures.steps);
        let at = self.now.as_nanos() as f64 / 1e9;
        let _ = writeln!(text, "seed {seed}, step {step}, {at:.3} s: {broken}");
        let _ = write!(
            text,
            "replay: USHER_SEED={seed} cargo test -p usher-sim --test seeds"
        );
        panic!("{text}");
    }

    fn step(&mut self) {
        self.figures.steps += 1;
        let queued = self.queue.first_key_value().map(|(&(when, _), _)| when);
        let timer = self.engine.poll_timeout();
        let next = [queued, timer]
            .into_iter()
            .flatten()
            .min()
            .expect("the world always has plans");
        self.now = self.now.max(next);
        if timer.is_some_and(|timer| timer <= self.now)
            && (queued != Some(next) || self.rng.percent(50))
        {
            self.model.at(self.wall());
            self.engine.handle_timeout(self.now);
            self.drain();
        } else if let Some((_, event)) = self.queue.pop_first() {
            self.happen(event);
        }
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Answer { probe, result } => {
                self.model.probed(probe, Some(&result), self.now);
                self.input(Input::Probed { probe, result });
            }
            Event::Resolved { host, resolvable } => {
                if let Some(known) = self.model.hosts.get_mut(&host) {
                    *known = Some(resolvable);
                }
                self.input(Input::Resolved { host, resolvable });
            }
            Event::ServersChange => {
                self.change_servers();
                self.later(20_000, Event::ServersChange);
            }
            Event::HostsChange => {
                let hosts: Vec<String> = self.model.hosts.keys().cloned().collect();
                if !hosts.is_empty() {
                    let host = self.rng.pick(&hosts).clone();
                    let resolvable = !self.rng.percent(30);
                    self.hosts.insert(host.clone(), resolvable);
                    self.later(200, Event::Resolved { host, resolvable });
                }
                self.later(30_000, Event::HostsChange);
            }
            Event::Reload => {
                let mut draft = self.model.draft.clone();
                catalogs::change(&mut self.rng, &mut draft);
                self.figures.reloads += 1;
                self.load(draft);
                // Mostly far apart, so that bounds in time can be seen to hold; at times a burst.
                let pause = if self.rng.percent(20) { 100 } else { 200_000 };
                self.later(pause, Event::Reload);
            }
        }
    }

    fn load(&mut self, draft: Draft) {
        let catalog = Catalog::check(draft.clone());
        let catalog = catalog.unwrap_or_else(|faults| self.fail(&format!("bad draft: {faults:?}")));
        self.model.at(self.wall());
        self.model.reload(draft);
        self.reloaded_at = self.now;
        self.starts.clear();
        self.settle_servers();
        self.input(Input::Catalog(Arc::new(catalog)));
    }

    /// Every address that may be probed is a server.
    fn settle_servers(&mut self) {
        let addresses: BTreeSet<Address> = self
            .model
            .draft
            .pools
            .iter()
            .flat_map(|pool| &pool.endpoints)
            .map(|endpoint| endpoint.address.clone())
            .collect();
        for address in addresses {
            let mode = self.draw_mode();
            self.servers.entry(address).or_insert(Server {
                mode,
                since: self.now,
            });
        }
    }

    fn draw_mode(&mut self) -> Mode {
        match self.rng.below(10) {
            0 => Mode::Refuses,
            1 => Mode::Hangs,
            2 => Mode::AnswersWrongly,
            _ => Mode::Works,
        }
    }

    /// One server changes, or in bad moments all do.
    fn change_servers(&mut self) {
        let all: Vec<Address> = self.servers.keys().cloned().collect();
        let changing = match self.rng.below(8) {
            0 => all,
            _ => vec![self.rng.pick(&all).clone()],
        };
        let together = self.draw_mode();
        for address in changing {
            let mode = if self.rng.percent(50) {
                together
            } else {
                self.draw_mode()
            };
            let now = self.now;
            let server = self
                .servers
                .entry(address)
                .or_insert(Server { mode, since: now });
            if server.mode != mode {
                *server = Server { mode, since: now };
            }
        }
    }

    pub(crate) fn server(&self, address: &Address) -> Server {
        self.servers[address]
    }

    fn later(&mut self, within_millis: usize, event: Event) {
        let wait = Duration::from_millis(self.rng.within(1, within_millis) as u64);
        self.at(self.now.after(wait), event);
    }

    fn at(&mut self, when: Mono, event: Event) {
        self.queued += 1;
        self.queue.insert((when, self.queued), event);
    }

    /// What the clock on the wall shows.
    pub(crate) fn wall(&self) -> Wall {
        BEGIN.after(self.now.since(Mono::ZERO))
    }

    fn input(&mut self, input: Input) {
        self.model.at(self.wall());
        self.engine.handle(input, self.now);
        self.drain();
    }

    fn drain(&mut self) {
        while let Some(output) = self.engine.poll_output() {
            match output {
                Output::Probe(order) => self.probe(order),
                Output::Cancel(probe) => {
                    if let Some(target) = self.model.flights.get(&probe) {
                        self.lost_at.insert(target.clone(), self.now);
                    }
                    self.model.probed(probe, None, self.now);
                }
                Output::Publish(snapshot) => {
                    self.figures.snapshots += 1;
                    if let Err(broken) = self.check_published(&snapshot) {
                        self.fail(&broken);
                    }
                    (self.published, self.published_at) = (Some(snapshot), Some(self.now));
                }
                Output::Resolve(hosts) => {
                    if !hosts.iter().eq(self.model.hosts.keys()) {
                        self.fail(&format!(
                            "asked for {hosts:?}, wanted {:?}",
                            self.model.hosts
                        ));
                    }
                    for host in hosts
                        .into_iter()
                        .filter(|host| self.model.hosts[host].is_none())
                        .collect::<Vec<_>>()
                    {
                        let resolvable = self.hosts.get(&host).copied().unwrap_or(true);
                        self.later(300, Event::Resolved { host, resolvable });
                    }
                }
                Output::Event(_) => self.figures.changes += 1,
                Output::Ready => {
                    if let Err(broken) = self.check_ready() {
                        self.fail(&broken);
                    }
                    self.ready_at = Some(self.now);
                }
            }
        }
    }

    /// The edge takes an order: what becomes of it is settled by what the server does now.
    fn probe(&mut self, order: ProbeOrder) {
        self.figures.probes += 1;
        let target = self.model.target(&order.probe);
        if let Err(broken) = self.check_order(&order, &target) {
            self.fail(&broken);
        }
        self.model.flights.insert(order.id, target);
        if self.rng.percent(self.loss) {
            self.figures.lost += 1;
            return;
        }
        let rtt = Duration::from_micros(self.rng.within(200, RTT_MAX.as_micros() as usize) as u64);
        let fail = |reason, status| ProbeResult::Fail {
            reason,
            status,
            rtt: Some(rtt),
        };
        let (wait, result) = match self.server(&order.probe.address).mode {
            Mode::Works => (
                rtt,
                ProbeResult::Pass {
                    status: Some(200),
                    rtt,
                },
            ),
            Mode::Refuses => (rtt, fail(FailureReason::TcpConnection, None)),
            Mode::AnswersWrongly => (rtt, fail(FailureReason::CodeMismatch, Some(503))),
            Mode::Hangs => (order.probe.timeout, fail(FailureReason::HttpTimeout, None)),
        };
        self.at(
            self.now.after(wait),
            Event::Answer {
                probe: order.id,
                result,
            },
        );
        // At times the edge says it twice, or long after nobody listens any more.
        if self.rng.percent(2) {
            let late = Duration::from_secs(self.rng.within(0, 9) as u64);
            self.at(
                self.now.after(wait).after(late),
                Event::Answer {
                    probe: order.id,
                    result,
                },
            );
        }
    }
}
