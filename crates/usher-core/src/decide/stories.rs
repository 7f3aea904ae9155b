//! What a decision is, told as the specification tells it: one file for each part of it, and here
//! what all of them stand on.

mod rules;
mod sessions;
mod steering;

use std::cell::Cell;
use std::collections::BTreeMap;
use std::time::Duration;

use crate::affinity::{NoPins, Pin, PinKey, Pins};
use crate::assume::Assumption;
use crate::catalog::{
    AffinityMode, Draft, EndpointIx, PinFailover, PoolSet, PoolSetMatch, Reference,
};
use crate::chance::Chance;
use crate::decision::{Decision, FixedSource, Forward, PinOrder, PinOutcome, Response, Served};
use crate::id::Id;
use crate::region::{CountryCode, Region};
use crate::request::{Location, Request};
use crate::rules::{Condition, FixedResponse, Overrides, Rule, Rules, Transform};
use crate::sample::{Sample, TIME, request};
use crate::snapshot::{Counts, NoCounts, Snapshot};
use crate::steering::{EndpointSteering, PoolSteering};
use crate::time::{Mono, Wall};
use crate::trace::Trace;

const HOST: &str = "shop.example.com";

/// Pools `a`, `b`, `c`, `d` and `rest` of two endpoints each, all monitored; `rest` is the fallback.
fn pools(steering: PoolSteering, listed: &str) -> Sample {
    ["a", "b", "c", "d", "rest"]
        .into_iter()
        .fold(Sample::new().monitor("m"), |sample, name| {
            sample.pool(name, "m", &format!("{name}1 {name}2"))
        })
        .balancer(HOST, steering, listed, "rest")
}

fn snapshot(sample: Sample, assumptions: &str) -> Snapshot {
    let assumptions: Vec<Assumption> = (assumptions.split(", "))
        .filter(|text| !text.is_empty())
        .map(|text| text.parse().unwrap())
        .collect();
    Snapshot::presumed(sample.catalog())
        .assume(&assumptions)
        .unwrap()
}

fn explain(snapshot: &Snapshot, request: &Request<'_>, pins: &impl Pins) -> (Decision, Trace) {
    let (decision, trace) = snapshot.explain(request, &NoCounts, pins, Mono::ZERO);
    assert_eq!(
        decision,
        snapshot.decide(request, &NoCounts, pins, Mono::ZERO)
    );
    (decision, trace)
}

/// `a .8000, b .2000, rest .0000`
fn shares(snapshot: &Snapshot) -> String {
    let (_, trace) = explain(snapshot, &request(HOST, 7), &NoPins);
    let each = trace
        .pools
        .iter()
        .map(|pool| format!("{} {:.4}", pool.name, pool.probability));
    let each: Vec<String> = each.collect();
    each.join(", ").replace(" 0.", " .")
}

fn forward(decision: Decision) -> Forward {
    match decision {
        Decision::Forward(forward) => forward,
        other => panic!("{other:?}"),
    }
}

/// The endpoint of the first attempt, with ` fallback` behind it in that role, and the retry.
fn attempts(snapshot: &Snapshot, request: &Request<'_>, pins: &impl Pins) -> (String, String) {
    let attempts = forward(explain(snapshot, request, pins).0).attempts;
    let name = |attempt: crate::decision::Attempt| {
        let role = if attempt.fallback { " fallback" } else { "" };
        format!("{}{role}", snapshot.endpoint(attempt.endpoint).name)
    };
    (
        name(attempts.first),
        attempts.retry.map_or("-".to_owned(), name),
    )
}

fn reference(draft: &Draft, name: &str) -> Reference {
    let pool = draft.pools.iter().find(|pool| pool.name == name).unwrap();
    Reference {
        id: pool.id,
        text: name.to_owned(),
    }
}

fn references(draft: &Draft, names: &str) -> Vec<Reference> {
    names
        .split(' ')
        .map(|name| reference(draft, name))
        .collect()
}

fn shed(sample: Sample, each: &str) -> Sample {
    sample.with(|draft| {
        for (name, percent) in each.split(' ').map(|each| each.split_once('=').unwrap()) {
            let pool = draft
                .pools
                .iter_mut()
                .find(|pool| pool.name == name)
                .unwrap();
            pool.shedding.default_percent = percent.parse().unwrap();
        }
    })
}

/// How often each pool is drawn.
fn drawn(snapshot: &Snapshot, draws: u32) -> BTreeMap<String, f64> {
    let mut chance = Chance::new(3);
    let mut counts: BTreeMap<String, f64> = BTreeMap::new();
    for _ in 0..draws {
        let request = request(HOST, chance.draw());
        let decision = snapshot.decide(&request, &NoCounts, &NoPins, Mono::ZERO);
        let pool = snapshot.pool(forward(decision).attempts.first.pool).name;
        *counts.entry(pool.to_owned()).or_default() += 1.0 / f64::from(draws);
    }
    counts
}

/// A front that keeps one visitor's pin.
#[derive(Default)]
struct Front {
    cookie: Cell<Option<Pin>>,
    table: Cell<Option<(PinKey, Pin)>>,
}

impl Pins for Front {
    fn in_cookie(&self, _: Id) -> Option<Pin> {
        self.cookie.get()
    }
    fn under_key(&self, key: PinKey) -> Option<Pin> {
        self.table
            .get()
            .filter(|(known, _)| *known == key)
            .map(|(_, pin)| pin)
    }
}

impl Front {
    /// Asks once; the endpoint and what became of the pin.
    fn ask(&self, snapshot: &Snapshot, request: &Request<'_>, served: Served) -> String {
        let (decision, trace) = explain(snapshot, request, self);
        let Decision::Forward(forward) = decision else {
            return format!("{decision:?}");
        };
        let attempt = match served {
            Served::First => Some(forward.attempts.first),
            Served::Retry => forward.attempts.retry,
        };
        let Some(attempt) = attempt else {
            return "the error".to_owned();
        };
        let change = forward.affinity.of(served);
        if served == Served::First && trace.pin.is_some() {
            let kept = trace.pin.as_ref().map(|pin| pin.kept);
            assert_eq!(kept, Some(change.outcome == PinOutcome::Kept));
        }
        let mut set = "";
        if let Some(action) = change.action {
            match snapshot.pin(forward.balancer, &action) {
                PinOrder::SetCookie { pin, .. } => {
                    set = " set";
                    self.cookie.set(Some(pin));
                }
                PinOrder::Remember(key, pin) => {
                    set = " remembered";
                    self.table.set(Some((key, pin)));
                }
            }
        }
        let name = &snapshot.endpoint(attempt.endpoint).name;
        format!("{name} {}{set}", change.outcome.as_str())
    }
}

fn at(seconds: u64, draw: u64) -> Request<'static> {
    Request {
        time: TIME.after(Duration::from_secs(seconds)),
        ..request(HOST, draw)
    }
}

fn pinned(mode: AffinityMode, change: impl FnOnce(&mut Draft)) -> Sample {
    let sample = pools(PoolSteering::Off, "a b").with(|draft| {
        let affinity = &mut draft.balancers[0].affinity;
        affinity.mode = mode;
        if mode == AffinityMode::Header {
            affinity.attributes.headers = vec!["x-visitor".to_owned()];
        }
    });
    sample.with(change)
}
