//! How fast seats come free, and how many give up: what an estimate is made of.
//!
//! All are sums that fade: no list of the past is kept. They begin anew with a process, and an
//! estimate is unknown until they have seen enough.

use super::ranked::Ranked;
use super::room::Counts;
use super::trust::{Scales, Trust};
use super::{Person, State};

/// Half-life of the rates of seats and arrivals, ms.
const FLOW_HALF_LIFE_MS: f64 = 120_000.0;
/// Half-life of what is known of giving up, ms.
const PATIENCE_HALF_LIFE_MS: f64 = 600_000.0;
/// Ages of waiting at which patience may change, ms.
const AGES: [u64; 3] = [60_000, 300_000, 900_000];
/// Complete minutes of which the swing of the outflow is judged.
const MINUTES: usize = 10;

/// A sum of what happened, of which half is left after a half-life.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Fading {
    sum: f64,
    at: u64,
}

impl Fading {
    pub(super) fn add(&mut self, now: u64, amount: f64, half_life_ms: f64) {
        self.sum = self.at(now, half_life_ms) + amount;
        self.at = now;
    }

    pub(super) fn at(&self, now: u64, half_life_ms: f64) -> f64 {
        self.sum * (-(now.saturating_sub(self.at) as f64) / half_life_ms).exp2()
    }
}

/// What was seen of a room's flow.
#[derive(Debug, Clone, Default)]
pub(super) struct Rates {
    releases: Fading,
    /// Time for which seats were held, and reserved, ms.
    held: Fading,
    reserved: Fading,
    /// Called visitors who entered.
    entries: Fading,
    arrivals: Fading,
    /// Releases by minute; the last is under way.
    minutes: [u32; MINUTES + 1],
    minute: u64,
    /// Visitors who gave up, by age.
    left: [Fading; AGES.len() + 1],
    /// Time that visitors have waited, by age, ms.
    waited: [Fading; AGES.len() + 1],
    /// Visitors who fell silent, and of them those who came back.
    silent: Fading,
    back: Fading,
    pub(super) trust: Trust,
    observed: u64,
    /// How long the last visitor who entered had waited, ms: a check on the estimates.
    last_wait_ms: u64,
}

/// The rates at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(super) struct Flow {
    /// Seats that come free in a ms, of as many as will be held then.
    pub(super) releases: f64,
    /// And of one.
    pub(super) hazard: f64,
    /// How long a seat is reserved for each visitor who enters, ms; those who never come included.
    pub(super) reserved_ms: Option<f64>,
    /// As if so many releases had been seen; how sure the rate is.
    pub(super) sample: f64,
    /// Variance of the logarithm of the rate, beyond chance.
    pub(super) swing: f64,
    /// Tickets issued in a ms.
    pub(super) arrivals: f64,
    /// Chance to give up in a ms, by age.
    pub(super) giving_up: [f64; AGES.len() + 1],
    /// The same, whatever the age.
    pub(super) giving_up_any: f64,
    /// The part of those silent who come back.
    pub(super) returning: f64,
    /// How estimates have stood up to waits.
    pub(super) scales: Scales,
}

/// When a waiting visitor came, ms: tickets are made of the clock.
pub(super) fn arrived(ticket: u64) -> u64 {
    ticket / 1000
}

fn age_group(age: u64) -> usize {
    AGES.iter().filter(|edge| age >= **edge).count()
}

impl Rates {
    pub(super) fn released(&mut self, now: u64) {
        self.releases.add(now, 1.0, FLOW_HALF_LIFE_MS);
        self.turn(now);
        self.minutes[MINUTES] += 1;
    }

    pub(super) fn queued(&mut self, now: u64) {
        self.arrivals.add(now, 1.0, FLOW_HALF_LIFE_MS);
    }

    pub(super) fn entered(&mut self, now: u64, person: &Person) {
        if person.state == State::Called {
            self.entries.add(now, 1.0, FLOW_HALF_LIFE_MS);
        }
        self.last_wait_ms = now.saturating_sub(arrived(person.ticket));
    }

    pub(super) fn fell_silent(&mut self, now: u64, person: &Person) {
        let group = age_group(now.saturating_sub(arrived(person.ticket)));
        self.left[group].add(now, 1.0, PATIENCE_HALF_LIFE_MS);
        self.silent.add(now, 1.0, PATIENCE_HALF_LIFE_MS);
    }

    pub(super) fn came_back(&mut self, now: u64, person: &Person) {
        let group = age_group(now.saturating_sub(arrived(person.ticket)));
        self.left[group].add(now, -1.0, PATIENCE_HALF_LIFE_MS);
        self.back.add(now, 1.0, PATIENCE_HALF_LIFE_MS);
    }

    /// The line as it is; often enough that it stands for the time since the last call.
    pub(super) fn observe(&mut self, now: u64, counts: &Counts, present: &Ranked) {
        self.turn(now);
        (self.trust).settle(now, present.first().map_or(u64::MAX, |(ticket, _)| ticket));
        let since = now.saturating_sub(self.observed);
        if since == 0 {
            return;
        }
        let first = self.observed == 0;
        self.observed = now;
        if first {
            return;
        }
        let span = |count: u64| count as f64 * since as f64;
        self.held.add(now, span(counts.seated), FLOW_HALF_LIFE_MS);
        (self.reserved).add(now, span(counts.called), FLOW_HALF_LIFE_MS);
        let mut younger = present.len();
        for group in 0..self.waited.len() {
            // Tickets of those at least as old as the next group.
            let older = match AGES.get(group) {
                Some(edge) => present.rank(now.saturating_sub(*edge).saturating_mul(1000)),
                None => 0,
            };
            let people = younger - older.min(younger);
            younger = older;
            let waited = people as f64 * since as f64;
            self.waited[group].add(now, waited, PATIENCE_HALF_LIFE_MS);
        }
    }

    fn turn(&mut self, now: u64) {
        let minute = now / 60_000;
        let passed = minute.saturating_sub(self.minute);
        if passed > 0 {
            let passed = usize::try_from(passed).unwrap_or(usize::MAX);
            let passed = passed.min(self.minutes.len());
            self.minutes.rotate_left(passed);
            let len = self.minutes.len();
            self.minutes[len - passed..].fill(0);
            self.minute = minute;
        }
    }

    /// What is to be expected while `seats` are held or reserved. It is a seat that comes free, not a
    /// room: so a changed limit changes the flow at once.
    pub(super) fn flow(&self, now: u64, seats: u64) -> Flow {
        let faded = |sum: &Fading| sum.at(now, FLOW_HALF_LIFE_MS).max(0.0);
        let releases = faded(&self.releases);
        let (held, reserved) = (faded(&self.held), faded(&self.reserved));
        let entries = faded(&self.entries);
        let fade = std::f64::consts::LN_2 / FLOW_HALF_LIFE_MS;
        let hazard = if held > 0.0 { releases / held } else { 0.0 };
        // Nobody leaves a seat that is only reserved.
        let part_held = if held > 0.0 {
            held / (held + reserved)
        } else {
            1.0
        };
        let rate = |left: f64, waited: f64| {
            if waited > 0.0 {
                (left / waited).clamp(0.0, 1.0)
            } else {
                0.0
            }
        };
        let left = self
            .left
            .map(|sum| sum.at(now, PATIENCE_HALF_LIFE_MS).max(0.0));
        let waited = self.waited.map(|sum| sum.at(now, PATIENCE_HALF_LIFE_MS));
        let mut giving_up = [0.0; AGES.len() + 1];
        for group in 0..giving_up.len() {
            giving_up[group] = rate(left[group], waited[group]);
        }
        Flow {
            releases: hazard * part_held * seats as f64,
            hazard,
            reserved_ms: (entries >= 1.0).then(|| reserved / entries),
            sample: 2.0 * releases,
            swing: self.swing(),
            arrivals: self.arrivals.at(now, FLOW_HALF_LIFE_MS) * fade,
            giving_up,
            giving_up_any: rate(left.iter().sum(), waited.iter().sum()),
            returning: {
                // Until it is known otherwise, all of them.
                let back = self.back.at(now, PATIENCE_HALF_LIFE_MS) + 3.0;
                let silent = self.silent.at(now, PATIENCE_HALF_LIFE_MS) + 3.0;
                (back / silent).min(1.0)
            },
            scales: self.trust.scales(now),
        }
    }

    /// Releases in a ms, as many as were seen, whoever held what came free.
    pub(super) fn pace(&self, now: u64) -> f64 {
        let fade = std::f64::consts::LN_2 / FLOW_HALF_LIFE_MS;
        self.releases.at(now, FLOW_HALF_LIFE_MS).max(0.0) * fade
    }

    /// Of the last complete minutes since there was outflow.
    fn swing(&self) -> f64 {
        let seen = self.minutes[..MINUTES]
            .iter()
            .skip_while(|count| **count == 0);
        let counts: Vec<f64> = seen.map(|count| f64::from(*count)).collect();
        if counts.len() < 3 {
            return 0.0;
        }
        let len = counts.len() as f64;
        let mean = counts.iter().sum::<f64>() / len;
        let variance = counts
            .iter()
            .map(|count| (count - mean).powi(2))
            .sum::<f64>()
            / (len - 1.0);
        // Chance alone makes the variance of a count its mean.
        ((variance - mean) / (mean * mean)).clamp(0.0, 1.0)
    }
}

impl Flow {
    /// The share of visitors of this age who are still there after `later`, both in ms.
    pub(super) fn staying(&self, age: f64, later: f64) -> f64 {
        let mut exponent = 0.0;
        let mut from = age;
        let end = age + later;
        for (group, hazard) in self.giving_up.iter().enumerate() {
            let edge = AGES.get(group).map_or(f64::INFINITY, |edge| *edge as f64);
            let to = edge.min(end);
            if to > from {
                exponent += hazard * (to - from);
                from = to;
            }
        }
        (-exponent).exp()
    }
}
