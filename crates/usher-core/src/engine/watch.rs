//! When each target is probed, and what its results add up to.
//!
//! A watch is a task with a memory. It is either waiting until its next probe is due or has one
//! attempt under way; a retry is a new attempt of the same probe. A watch that has not been probed
//! since it began is fresh: fresh ones go at once but only so many together, and their second probe
//! is drawn from one interval, so that what started together does not stay together.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use super::known::{Known, fingerprint};
use super::plan::{Key, Task};
use super::{FIRST_PROBES_IN_FLIGHT_MAX, Output, PROBE_LOST_AFTER, PROBES_IN_FLIGHT_MAX};
use crate::chance::Chance;
use crate::health::{Effect, Event, FailureReason, Standing};
use crate::id::Id;
use crate::probe::{Probe, ProbeId, ProbeOrder, ProbeResult};
use crate::time::Mono;

/// How much the newest round trip counts in their mean.
const LATENCY_WEIGHT: f64 = 0.2;

/// How long a mean round trip says something, or three intervals if that is longer.
const LATENCY_FRESH_MIN: Duration = Duration::from_secs(600);

/// One target under one monitor.
#[derive(Debug)]
pub(super) struct Watch {
    pub(super) task: Task,
    pub(super) standing: Standing,
    /// The last final result.
    pub(super) last: Option<ProbeResult>,
    /// Why it failed last.
    pub(super) failure: FailureReason,
    /// The round trips of passed probes, each newer one weighing a fifth, in nanoseconds; and when
    /// the last of them ended.
    latency: Option<(f64, Mono)>,
    /// When its last probe began.
    started: Option<Mono>,
    fresh: bool,
    slot: Slot,
}

#[derive(Debug, Clone, Copy)]
enum Slot {
    Waiting { due: Mono },
    Flying { probe: ProbeId },
}

/// One attempt that is under way.
#[derive(Debug, Clone, Copy)]
struct Flight {
    watch: usize,
    attempt: u32,
    started: Mono,
    deadline: Mono,
}

/// What is known of an endpoint's target from before a reload or from another process, for a watch
/// that is new.
#[derive(Debug, Clone, Copy)]
pub(super) struct Memory {
    pub(super) standing: Standing,
    pub(super) last: Option<ProbeResult>,
    pub(super) failure: FailureReason,
    /// Fingerprint of a probe, and when the next one is due: where the new watch makes the same
    /// probe, it goes on as if nothing had happened.
    pub(super) schedule: Option<(u64, Duration)>,
}

/// A result that is final.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Verdict {
    /// Place of the watch.
    pub(super) watch: usize,
    pub(super) effect: Effect,
}

/// All watches, and which of them is next.
#[derive(Debug, Default)]
pub(super) struct Watches {
    all: Vec<Watch>,
    /// Waiting and fresh.
    fresh: BTreeSet<(Mono, usize)>,
    /// Waiting and not fresh.
    regular: BTreeSet<(Mono, usize)>,
    flights: BTreeMap<ProbeId, Flight>,
    fresh_flights: usize,
    deadlines: BTreeSet<(Mono, ProbeId)>,
    probe_next: u64,
}

impl Watches {
    pub(super) fn get(&self, place: usize) -> &Watch {
        &self.all[place]
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Watch> {
        self.all.iter()
    }

    /// Watches `tasks` from now on. A task that was there keeps its memory and its place in time;
    /// the verdict of one that is new is asked of `remember`.
    pub(super) fn replace(
        &mut self,
        tasks: Vec<Task>,
        now: Mono,
        remember: impl Fn(&Task) -> Option<Memory>,
        outputs: &mut VecDeque<Output>,
    ) {
        let before = std::mem::take(&mut self.all);
        let mut before: BTreeMap<Key, Watch> = before
            .into_iter()
            .map(|watch| (watch.task.key.clone(), watch))
            .collect();
        let watches = tasks
            .into_iter()
            .map(|task| match before.remove(&task.key) {
                Some(watch) => watch.continued(task, now),
                None => {
                    let memory = remember(&task);
                    Watch::new(task, now, memory)
                }
            });
        self.all = watches.collect();
        self.fresh.clear();
        self.regular.clear();
        self.fresh_flights = 0;
        let mut flights = std::mem::take(&mut self.flights);
        for (place, watch) in self.all.iter().enumerate() {
            match watch.slot {
                Slot::Waiting { due } if watch.fresh => self.fresh.insert((due, place)),
                Slot::Waiting { due } => self.regular.insert((due, place)),
                Slot::Flying { probe } => {
                    let flight = flights.remove(&probe).expect("a flying watch has a flight");
                    self.flights.insert(
                        probe,
                        Flight {
                            watch: place,
                            ..flight
                        },
                    );
                    self.fresh_flights += usize::from(watch.fresh);
                    true
                }
            };
        }
        for (probe, flight) in flights {
            self.deadlines.remove(&(flight.deadline, probe));
            outputs.push_back(Output::Cancel(probe));
        }
    }

    /// Takes in the end of an attempt. `None` when it is not final, or not waited for any more.
    pub(super) fn probed(
        &mut self,
        probe: ProbeId,
        result: ProbeResult,
        now: Mono,
        chance: &mut Chance,
        outputs: &mut VecDeque<Output>,
    ) -> Option<Verdict> {
        let again = !result.passed() && result.reason().is_timeout();
        self.ended(probe, result, again, now, chance, outputs)
    }

    /// Gives up an attempt that nobody answered for in time.
    pub(super) fn expire(
        &mut self,
        now: Mono,
        chance: &mut Chance,
        outputs: &mut VecDeque<Output>,
    ) -> Option<Verdict> {
        while let Some(&(deadline, probe)) = self.deadlines.first()
            && deadline <= now
        {
            outputs.push_back(Output::Cancel(probe));
            let lost = ProbeResult::Fail {
                reason: FailureReason::Other,
                status: None,
                rtt: None,
            };
            let verdict = self.ended(probe, lost, true, now, chance, outputs);
            if verdict.is_some() {
                return verdict;
            }
        }
        None
    }

    fn ended(
        &mut self,
        probe: ProbeId,
        result: ProbeResult,
        again: bool,
        now: Mono,
        chance: &mut Chance,
        outputs: &mut VecDeque<Output>,
    ) -> Option<Verdict> {
        let flight = self.flights.remove(&probe)?;
        self.deadlines.remove(&(flight.deadline, probe));
        let place = flight.watch;
        if again && flight.attempt < self.all[place].task.retries {
            self.launch(place, flight.attempt + 1, flight.started, now, outputs);
            return None;
        }
        let watch = &mut self.all[place];
        let event = if result.passed() {
            Event::Pass
        } else {
            Event::Fail
        };
        let effect;
        (watch.standing, effect) = watch.standing.next(event, watch.task.streaks);
        watch.last = Some(result);
        if !result.passed() {
            watch.failure = result.reason();
        }
        if let ProbeResult::Pass { rtt, .. } = result {
            watch.measure(rtt, now);
        }
        let interval = watch.task.interval;
        let due = if std::mem::take(&mut watch.fresh) {
            self.fresh_flights -= 1;
            // An interval is at most an hour, which 64 bits of nanoseconds hold.
            let nanos = chance.below(interval.as_nanos() as u64);
            flight.started.after(Duration::from_nanos(nanos + 1))
        } else {
            flight.started.after(interval)
        };
        watch.slot = Slot::Waiting { due };
        self.regular.insert((due, place));
        Some(Verdict {
            watch: place,
            effect,
        })
    }

    /// Orders every probe that is due and has room.
    pub(super) fn start(&mut self, now: Mono, outputs: &mut VecDeque<Output>) {
        while self.flights.len() < PROBES_IN_FLIGHT_MAX {
            let regular = self.regular.first().copied().filter(|&(due, _)| due <= now);
            let fresh = self.fresh.first().copied();
            let fresh = fresh
                .filter(|&(due, _)| due <= now && self.fresh_flights < FIRST_PROBES_IN_FLIGHT_MAX);
            let Some((_, place)) = regular.or(fresh) else {
                return;
            };
            if regular.is_some() {
                self.regular.pop_first();
            } else {
                self.fresh.pop_first();
                self.fresh_flights += 1;
            }
            self.all[place].started = Some(now);
            self.launch(place, 0, now, now, outputs);
        }
    }

    /// When something is due next: a probe that has room, or an attempt to be given up.
    pub(super) fn timeout(&self) -> Option<Mono> {
        let room = self.flights.len() < PROBES_IN_FLIGHT_MAX;
        let regular = self.regular.first().filter(|_| room);
        let fresh = self
            .fresh
            .first()
            .filter(|_| room && self.fresh_flights < FIRST_PROBES_IN_FLIGHT_MAX);
        let deadline = self.deadlines.first().map(|&(deadline, _)| deadline);
        [
            regular.map(|&(due, _)| due),
            fresh.map(|&(due, _)| due),
            deadline,
        ]
        .into_iter()
        .flatten()
        .min()
    }

    fn launch(
        &mut self,
        place: usize,
        attempt: u32,
        started: Mono,
        now: Mono,
        outputs: &mut VecDeque<Output>,
    ) {
        let id = ProbeId(self.probe_next);
        self.probe_next += 1;
        let watch = &mut self.all[place];
        watch.slot = Slot::Flying { probe: id };
        let deadline = now.after(watch.task.probe.timeout).after(PROBE_LOST_AFTER);
        self.flights.insert(
            id,
            Flight {
                watch: place,
                attempt,
                started,
                deadline,
            },
        );
        self.deadlines.insert((deadline, id));
        outputs.push_back(Output::Probe(ProbeOrder {
            id,
            probe: Arc::clone(&watch.task.probe),
        }));
    }
}

impl Watch {
    /// A watch that begins now. What is known of its target holds until its first result.
    fn new(task: Task, now: Mono, memory: Option<Memory>) -> Watch {
        let unknown = Watch {
            task,
            standing: Standing::Pending,
            last: None,
            failure: FailureReason::None,
            latency: None,
            started: None,
            fresh: true,
            slot: Slot::Waiting { due: now },
        };
        let Some(memory) = memory else {
            return unknown;
        };
        let schedule = memory
            .schedule
            .filter(|&(probe, _)| probe == fingerprint(&unknown.task.probe));
        let (standing, due) = match schedule {
            Some((_, due_in)) => (
                memory.standing,
                now.after(due_in.min(unknown.task.interval)),
            ),
            None => (memory.standing.carried(), now),
        };
        Watch {
            standing,
            last: memory.last,
            failure: memory.failure,
            fresh: schedule.is_none(),
            slot: Slot::Waiting { due },
            ..unknown
        }
    }

    /// Takes in the round trip of a probe that passed.
    fn measure(&mut self, rtt: Duration, now: Mono) {
        let sample = rtt.as_nanos() as f64;
        let mean = match self.latency {
            Some((mean, _)) => LATENCY_WEIGHT * sample + (1.0 - LATENCY_WEIGHT) * mean,
            None => sample,
        };
        self.latency = Some((mean, now));
    }

    /// The mean round trip, unless it is too old to say anything.
    pub(super) fn latency(&self, now: Mono) -> Option<Duration> {
        let (mean, at) = self.latency?;
        let fresh = now.since(at) <= LATENCY_FRESH_MIN.max(self.task.interval * 3);
        fresh.then(|| Duration::from_nanos(mean.round() as u64))
    }

    /// What is to be remembered of it.
    pub(super) fn memory(&self) -> Memory {
        Memory {
            standing: self.standing,
            last: self.last,
            failure: self.failure,
            schedule: None,
        }
    }

    /// What another process is to know of it, for one of its endpoints.
    pub(super) fn known(&self, endpoint: Id, now: Mono) -> Known {
        let due = match self.slot {
            Slot::Waiting { due } => due.since(now),
            Slot::Flying { .. } => Duration::ZERO,
        };
        Known {
            endpoint,
            monitor: self.task.key.monitor,
            kind: self.task.probe.kind.name(),
            probe: fingerprint(&self.task.probe),
            standing: self.standing,
            last: self.last,
            failure: self.failure,
            due_in: (!self.fresh).then_some(due),
        }
    }

    /// This watch under new settings. What changes the meaning of a result begins it anew, with
    /// nothing known when the type of the monitor is another; a new interval only moves the next
    /// probe.
    fn continued(mut self, task: Task, now: Mono) -> Watch {
        let (before, after) = (&*self.task.probe, &*task.probe);
        let same_type = before.kind.name() == after.kind.name();
        let renamed = Probe {
            user_agent: before.user_agent.clone(),
            ..after.clone()
        };
        if *before != renamed {
            let memory = same_type.then(|| self.memory());
            return Watch::new(task, now, memory);
        }
        if let (Slot::Waiting { due }, Some(started)) = (self.slot, self.started) {
            self.slot = Slot::Waiting {
                due: due.min(started.after(task.interval)),
            };
        }
        self.task = task;
        self
    }
}
