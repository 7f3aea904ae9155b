//! Nodes: an agent that knows, and a machine whose processes are real.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use usher_core::lease::acquire;
use usher_core::lease::browser::Phase;
use usher_core::lease::close::CloseReason;
use usher_core::lease::host::Host;
use usher_core::lease::region::Picked;
use usher_core::lease::session::{self, Session};
use usher_core::lease::warm::{Sizer, Stand};
use usher_core::lease::{Boot, BrowserId, Epoch, NodeId, SessionId};
use usher_core::time::Mono;

use super::store::{Asker, Call};
use super::{Event, Lending};

const KEEP_ALIVE: Duration = Duration::from_secs(20);

/// What a node is told, by itself too.
#[derive(Debug, Clone)]
pub(super) enum ToNode {
    Registered(u64, Boot),
    Launched(BrowserId, bool),
    Disowned(Boot),
    Confirmed(Boot, Mono),
    Kill(BrowserId, Epoch),
    Prepare(Asker, Picked),
    Close(BrowserId, Epoch, CloseReason),
    Connect(Picked),
    Command(Picked, bool),
    Disconnect(Picked),
    /// The canary was seen, or is not going to be.
    Started(u64, BrowserId, bool),
    /// Guardrails are in place.
    Prepared(u64, Asker, Picked),
    /// A teardown has come to its end.
    TornDown(u64, BrowserId),
}

#[derive(Debug)]
pub(super) struct Agent {
    /// Which agent; what was begun by an earlier one is not heard by this.
    life: u64,
    pub(super) host: Host,
    sessions: BTreeMap<BrowserId, (SessionId, Session)>,
    tearing: BTreeSet<BrowserId>,
    sizer: Sizer,
    ticks: u64,
}

#[derive(Debug)]
pub(super) struct Machine {
    id: NodeId,
    slots: u32,
    launches: u32,
    lives: u64,
    pub(super) up: bool,
    pub(super) agent: Option<Agent>,
    /// What really runs.
    pub(super) processes: BTreeSet<BrowserId>,
    pub(super) cut_store: bool,
    pub(super) cut_since: Option<u64>,
    pub(super) cut_brokers: bool,
}

impl Machine {
    pub(super) fn new(id: NodeId, slots: u32, launches: u32) -> Machine {
        let mut machine = Machine {
            id,
            slots,
            launches,
            lives: 0,
            up: true,
            agent: None,
            processes: BTreeSet::new(),
            cut_store: false,
            cut_since: None,
            cut_brokers: false,
        };
        machine.agent_back();
        machine
    }

    pub(super) const fn slots(&self) -> u32 {
        self.slots
    }

    /// Its processes run on.
    pub(super) fn agent_dies(&mut self) {
        self.agent = None;
    }

    /// The first thing that an agent does is to end what it finds.
    pub(super) fn agent_back(&mut self) {
        if !self.up || self.agent.is_some() {
            return;
        }
        self.processes.clear();
        self.lives += 1;
        self.agent = Some(Agent {
            life: self.lives,
            host: Host::new(self.slots, self.launches),
            sessions: BTreeMap::new(),
            tearing: BTreeSet::new(),
            sizer: Sizer::default(),
            ticks: 0,
        });
    }

    pub(super) fn machine_back(&mut self) {
        self.up = true;
        self.agent_back();
    }
}

impl Lending {
    pub(super) fn machine_dies(&mut self, node: usize) {
        let machine = &mut self.machines[node];
        (machine.up, machine.agent) = (false, None);
        machine.processes.clear();
    }

    /// One process dies by itself; its agent sees that.
    pub(super) fn browser_dies(&mut self, node: usize) {
        let now = self.mono();
        let machine = &mut self.machines[node];
        let running: Vec<BrowserId> = machine.processes.iter().copied().collect();
        if running.is_empty() {
            return;
        }
        let dies = *self.rng.pick(&running);
        machine.processes.remove(&dies);
        if let Some(agent) = &mut machine.agent {
            agent.host.end(dies, CloseReason::ChromiumCrashed, now);
        }
    }

    /// From the store to a node.
    pub(super) fn tell_node(&mut self, node: usize, what: ToNode) {
        if !self.machines[node].cut_store {
            self.send(Event::ToNode { node, what });
        }
    }

    fn tell_store(&mut self, node: usize, call: Call) {
        if !self.machines[node].cut_store {
            self.send(Event::ToStore(call));
        }
    }

    fn itself(&mut self, node: usize, within: usize, what: ToNode) {
        self.later(within, Event::ToNode { node, what });
    }

    pub(super) fn told(&mut self, node: usize, what: ToNode) {
        let now = self.mono();
        let machine = &mut self.machines[node];
        let Some(agent) = &mut machine.agent else {
            return;
        };
        let life = agent.life;
        match what {
            ToNode::Registered(of, boot) if of == life => agent.host.registered(boot),
            ToNode::Registered(..) => {}
            ToNode::Launched(browser, true) => {
                // Only what is still wanted is started, and only once.
                let fresh = !self.truth.launched.contains(&browser);
                let wanted = agent.host.wants(browser);
                if fresh && wanted {
                    self.truth.launched.insert(browser);
                    machine.processes.insert(browser);
                    self.figures.launches += 1;
                    let works = self.rng.percent(95);
                    let within = if self.rng.percent(5) { 30_000 } else { 3_000 };
                    self.itself(node, within, ToNode::Started(life, browser, works));
                }
            }
            ToNode::Launched(browser, false) => {
                agent.host.end(browser, CloseReason::Unknown, now);
            }
            ToNode::Disowned(boot) => agent.host.disowned(boot, now),
            ToNode::Confirmed(boot, made) => agent.host.confirmed(boot, made),
            ToNode::Kill(browser, epoch) => {
                let killed = agent
                    .host
                    .close(browser, epoch, CloseReason::ConnectionError, now);
                self.figures.kills += u64::from(killed.is_ok());
            }
            ToNode::Prepare(asker, picked) => {
                let prepared =
                    agent
                        .host
                        .prepare(picked.browser, picked.epoch, picked.session, now);
                if prepared.is_ok() {
                    self.truth.prepared(picked);
                    let wait = ToNode::Prepared(life, asker, picked);
                    let within = if self.rng.percent(3) { 12_000 } else { 60 };
                    self.itself(node, within, wait);
                } else {
                    self.node_answers(node, asker, acquire::Event::NotPrepared);
                }
            }
            ToNode::Prepared(of, asker, picked) if of == life => {
                if agent.host.prepared(picked.browser, picked.session, now) {
                    let fresh = (picked.session, Session::new(now));
                    agent.sessions.entry(picked.browser).or_insert(fresh);
                    self.node_answers(node, asker, acquire::Event::Prepared);
                } else {
                    self.node_answers(node, asker, acquire::Event::NotPrepared);
                }
            }
            ToNode::Prepared(..) => {}
            ToNode::Close(browser, epoch, reason) => {
                // Who comes with an older lease is refused; that is the whole point.
                let _ = agent.host.close(browser, epoch, reason, now);
            }
            ToNode::Connect(picked) => {
                if agent
                    .host
                    .may_connect(picked.browser, picked.epoch, picked.session)
                {
                    self.truth.connected(picked);
                    self.session(node, picked, &[session::Event::Connected]);
                }
            }
            ToNode::Command(picked, true) => {
                let answered = session::Event::Answered { counted: true };
                self.session(node, picked, &[session::Event::Command, answered]);
            }
            ToNode::Command(picked, false) => {
                self.session(node, picked, &[session::Event::Command]);
            }
            ToNode::Disconnect(picked) => {
                let gone = session::Event::Disconnected { unanswered: 9 };
                self.session(node, picked, &[gone]);
            }
            ToNode::Started(of, browser, works) => {
                if of == life && machine.processes.contains(&browser) {
                    if works {
                        agent.host.ready(browser, now);
                    } else {
                        agent.host.end(browser, CloseReason::ChromiumCrashed, now);
                    }
                }
            }
            ToNode::TornDown(of, browser) => {
                if of != life {
                    return;
                }
                machine.processes.remove(&browser);
                agent.tearing.remove(&browser);
                agent.sessions.remove(&browser);
                let boot = agent.host.boot();
                if let (Some(beat), Some(boot)) = (agent.host.gone(browser), boot) {
                    let id = machine.id;
                    if !machine.cut_store {
                        self.send(Event::Beat {
                            node: id,
                            boot,
                            beat,
                        });
                    }
                }
            }
        }
    }

    fn node_answers(&mut self, node: usize, asker: Asker, event: acquire::Event) {
        let (broker, life, request, asked) = asker;
        if !self.machines[node].cut_brokers {
            self.send(Event::ToBroker {
                broker,
                life,
                request,
                asked,
                event,
            });
        }
    }

    fn session(&mut self, node: usize, picked: Picked, events: &[session::Event]) {
        let now = self.mono();
        let Some(agent) = &mut self.machines[node].agent else {
            return;
        };
        let Some((of, session)) = agent.sessions.get_mut(&picked.browser) else {
            return;
        };
        if *of != picked.session {
            return;
        }
        for &event in events {
            let effect;
            (*session, effect) = session.next(event, KEEP_ALIVE, now);
            if let session::Effect::Closes(reason) = effect {
                agent.host.end(picked.browser, reason, now);
            }
        }
    }

    /// Once a second: deadlines, teardowns, new browsers; every five heartbeats, every thirty a list.
    pub(super) fn tick(&mut self, node: usize) {
        let now = self.mono();
        let machine = &mut self.machines[node];
        let (id, slots) = (machine.id, machine.slots);
        let Some(agent) = &mut machine.agent else {
            return;
        };
        agent.ticks += 1;
        let (life, ticks) = (agent.life, agent.ticks);
        agent.host.pass(now);
        for (&browser, (_, session)) in &mut agent.sessions {
            let effect;
            (*session, effect) = session.next(session::Event::Passed, KEEP_ALIVE, now);
            if let session::Effect::Closes(reason) = effect {
                agent.host.end(browser, reason, now);
            }
        }
        let ending: Vec<BrowserId> = agent.host.ending().map(|(browser, _)| browser).collect();
        let fresh: Vec<BrowserId> = ending
            .into_iter()
            .filter(|&browser| agent.tearing.insert(browser))
            .collect();
        let wants = agent.host.wants_registering();
        let boot = agent.host.boot();
        let mut calls = Vec::new();
        if wants && ticks % 2 == 1 {
            calls.push(Call::Register(node, life, slots));
        }
        if let Some(boot) = boot {
            if ticks.is_multiple_of(5) {
                let order = agent.size(slots);
                for (browser, _) in agent.host.idle(now).into_iter().take(order.retire as usize) {
                    agent.host.end(browser, CloseReason::Unknown, now);
                }
                for _ in 0..order.launch {
                    self.drawn += 1;
                    let browser = BrowserId((u128::from(self.rng.draw()) << 64) | self.drawn);
                    if agent.host.launch(browser, now) {
                        calls.push(Call::Launch(node, boot, browser, agent.host.next_seq()));
                    }
                }
                let sessions = &agent.sessions;
                let quiet = |browser, _: Option<SessionId>| {
                    let session = sessions.get(&browser);
                    (
                        0,
                        session.map_or(Duration::ZERO, |(_, session)| session.quiet(now)),
                    )
                };
                let beats = agent.host.beats(quiet);
                if !machine.cut_store {
                    for beat in beats {
                        self.send(Event::Beat {
                            node: id,
                            boot,
                            beat,
                        });
                    }
                }
            }
            let agent = self.machines[node].agent.as_mut();
            if let Some(agent) = agent.filter(|_| ticks.is_multiple_of(30)) {
                let (seq, has) = agent.host.list();
                calls.push(Call::Reconcile(node, boot, seq, has, now));
            }
        }
        for browser in fresh {
            let within = match self.rng.below(100) {
                0 if !self.is_calm() => 75_000,
                1..5 => 40_000,
                _ => 3_000,
            };
            self.itself(node, within, ToNode::TornDown(life, browser));
        }
        for call in calls {
            self.tell_store(node, call);
        }
    }
}

impl Agent {
    fn size(&mut self, slots: u32) -> usher_core::lease::warm::Order {
        let stand = Stand {
            ready: self.host.in_phase(Phase::Ready),
            stale: 0,
            starting: self.host.in_phase(Phase::Starting),
            free: slots - self.host.len() as u32,
            launches: slots,
        };
        self.sizer
            .order(slots.div_ceil(2), stand, Duration::from_secs(5))
    }
}
