//! The engine by itself, with an edge that answers when a test says so.

use std::collections::BTreeMap;

use super::*;
use crate::catalog::{Draft, MonitorKind};
use crate::health::{FailureReason, Standing};
use crate::sample::Sample;
use crate::steering::PoolSteering::Off;

const HOST: &str = "shop.example.com";

fn at(millis: u64) -> Mono {
    Mono::ZERO.after(Duration::from_millis(millis))
}

/// An engine and everything that it has said.
struct Bench {
    engine: Engine,
    now: Mono,
    /// Under way: what, and when it was ordered.
    flying: BTreeMap<ProbeId, (ProbeOrder, Mono)>,
    ordered: Vec<(Mono, ProbeOrder)>,
    cancelled: Vec<ProbeId>,
    published: Vec<(Mono, Arc<Snapshot>)>,
    events: Vec<StateChange>,
    resolve: Vec<Vec<String>>,
    ready: Option<Mono>,
}

impl Bench {
    fn new(sample: Sample) -> Bench {
        Bench::going_on(Vec::new(), sample)
    }

    /// In the place of an engine that knew this.
    fn going_on(known: Vec<Known>, sample: Sample) -> Bench {
        let mut bench = Bench {
            engine: Engine::new(11).with_known(known),
            now: Mono::ZERO,
            flying: BTreeMap::new(),
            ordered: Vec::new(),
            cancelled: Vec::new(),
            published: Vec::new(),
            events: Vec::new(),
            resolve: Vec::new(),
            ready: None,
        };
        bench.catalog(sample);
        bench
    }

    fn drain(&mut self) {
        while let Some(output) = self.engine.poll_output() {
            match output {
                Output::Probe(order) => {
                    self.ordered.push((self.now, order.clone()));
                    self.flying.insert(order.id, (order, self.now));
                }
                Output::Cancel(probe) => {
                    self.flying.remove(&probe);
                    self.cancelled.push(probe);
                }
                Output::Publish(snapshot) => self.published.push((self.now, snapshot)),
                Output::Resolve(hosts) => self.resolve.push(hosts),
                Output::Event(change) => self.events.push(change),
                Output::Ready => self.ready = Some(self.now),
            }
        }
    }

    fn input(&mut self, input: Input) {
        self.engine.handle(input, self.now);
        self.drain();
    }

    fn catalog(&mut self, sample: Sample) {
        self.input(Input::Catalog(sample.catalog()));
    }

    /// Lets time pass, timer by timer, without answering probes.
    fn until(&mut self, then: Mono) {
        while let Some(due) = self.engine.poll_timeout().filter(|&due| due <= then) {
            self.now = self.now.max(due);
            self.engine.handle_timeout(self.now);
            self.drain();
        }
        self.now = then;
    }

    /// Answers the attempt that is under way to the address that ends in `host`.
    fn answer(&mut self, host: u8, result: ProbeResult) {
        let ends = |order: &ProbeOrder| {
            order
                .probe
                .address
                .to_string()
                .ends_with(&format!(".{host}"))
        };
        let (&probe, _) = self
            .flying
            .iter()
            .find(|(_, (order, _))| ends(order))
            .expect("a probe under way");
        self.flying.remove(&probe);
        self.input(Input::Probed { probe, result });
    }

    /// Lets time pass and answers every attempt at once as `result` says.
    fn answering(&mut self, then: Mono, result: impl Fn(&ProbeOrder) -> ProbeResult) {
        loop {
            while let Some((probe, (order, _))) = self.flying.pop_first() {
                self.input(Input::Probed {
                    probe,
                    result: result(&order),
                });
            }
            match self.engine.poll_timeout().filter(|&due| due <= then) {
                Some(due) => self.until(due),
                None => break,
            }
        }
        self.now = then;
    }

    fn last(&self) -> &Snapshot {
        &self.published.last().expect("a snapshot").1
    }

    fn state(&self, pool: u32) -> PoolState {
        self.last().pool(PoolIx(pool)).state
    }
}

fn pass() -> ProbeResult {
    ProbeResult::Pass {
        status: Some(200),
        rtt: Duration::from_millis(3),
    }
}

fn fail(reason: FailureReason) -> ProbeResult {
    ProbeResult::Fail {
        reason,
        status: None,
        rtt: None,
    }
}

fn one_pool() -> Sample {
    Sample::new()
        .monitor("m")
        .pool("p", "m", "a b")
        .balancer(HOST, Off, "p", "p")
}

fn settings(change: impl FnOnce(&mut crate::catalog::Monitor)) -> Sample {
    one_pool().with(|draft| change(&mut draft.monitors[0]))
}

#[test]
fn first_probes_go_at_once_and_the_first_pass_brings_traffic() {
    let mut bench = Bench::new(one_pool());
    assert_eq!(bench.ordered.len(), 2);
    assert_eq!(bench.published.len(), 1, "the first snapshot does not wait");
    assert_eq!(
        (bench.state(0), bench.last().pool(PoolIx(0)).usable),
        (PoolState::Unknown, false)
    );
    assert_eq!(bench.ready, None);
    bench.now = at(3);
    bench.answer(1, pass());
    bench.until(at(60));
    assert_eq!(
        (bench.state(0), bench.last().pool(PoolIx(0)).usable),
        (PoolState::Degraded, true)
    );
    assert_eq!(bench.ready, None, "one endpoint has no verdict");
    bench.answer(2, fail(FailureReason::CodeMismatch));
    bench.until(at(200));
    assert_eq!(
        bench.ready,
        Some(at(100)),
        "with the snapshot that holds the last first verdict"
    );
    let (_, _, health) = bench.last().pool(PoolIx(0)).endpoints().nth(1).unwrap();
    assert_eq!(health.state, EndpointState::Critical);
    assert_eq!(health.reason.as_str(), "Response code mismatch error");
    assert_eq!(bench.events.len(), 3, "{:?}", bench.events);
}

#[test]
fn what_an_order_says() {
    let sample = one_pool().with(|draft| {
        let MonitorKind::Http(check) = draft.monitors[0].kind.clone() else {
            panic!("http")
        };
        let check = crate::catalog::HttpCheck {
            headers: vec![("host".to_owned(), vec!["m.example.com:81".to_owned()])],
            ..check
        };
        draft.monitors[0].kind = MonitorKind::Https {
            check,
            allow_insecure: false,
        };
        draft.pools[0].endpoints[0].host_header = Some("a.example.com".to_owned());
        draft.pools[0].endpoints[1].port = Some(9002);
        draft.pools[0].tls.ca = Some("ca.pem".to_owned());
    });
    let bench = Bench::new(sample.clone());
    let [(_, a), (_, b)] = &bench.ordered[..] else {
        panic!("two orders")
    };
    assert_eq!(
        (a.probe.port, a.probe.host.as_str(), a.probe.sni.as_deref()),
        (443, "a.example.com", Some("a.example.com"))
    );
    assert_eq!(
        (b.probe.port, b.probe.host.as_str(), b.probe.sni.as_deref()),
        (9002, "m.example.com:81", Some("m.example.com"))
    );
    assert_eq!(a.probe.ca.as_deref(), Some("ca.pem"));
    let id = &sample.0.pools[0].id.to_string()[..16];
    assert_eq!(
        a.probe.user_agent,
        format!("Mozilla/5.0 (compatible; Usher-Health/1.0; pool-id: {id})")
    );

    let other_port = settings(|monitor| monitor.port = Some(9100));
    let bench = Bench::new(other_port.with(|draft| draft.pools[0].endpoints[0].port = Some(9001)));
    let (_, a) = &bench.ordered[0];
    assert_eq!(
        (a.probe.port, a.probe.host.as_str(), a.probe.sni.as_deref()),
        (9100, "192.0.2.1", None)
    );
}

#[test]
fn only_a_timeout_is_tried_again() {
    let mut bench = Bench::new(one_pool());
    bench.answer(1, fail(FailureReason::TcpConnection));
    assert_eq!(bench.ordered.len(), 2, "final at once");
    for attempt in 1..=2 {
        bench.now = at(attempt * 5000);
        bench.answer(2, fail(FailureReason::HttpTimeout));
        assert_eq!(bench.ordered.len() as u64, 2 + attempt, "at once");
    }
    let state = |bench: &Bench| {
        bench
            .last()
            .pool(PoolIx(0))
            .endpoints()
            .nth(1)
            .unwrap()
            .2
            .state
    };
    assert_eq!(state(&bench), EndpointState::Unknown);
    bench.answer(2, fail(FailureReason::TcpTimeout));
    bench.until(at(10_100));
    assert_eq!(state(&bench), EndpointState::Critical);
}

#[test]
fn a_retry_that_passes_is_a_pass() {
    let mut bench = Bench::new(one_pool());
    bench.answer(1, fail(FailureReason::HttpTimeout));
    bench.answer(1, pass());
    bench.until(at(100));
    let (_, _, health) = bench.last().pool(PoolIx(0)).endpoints().next().unwrap();
    assert_eq!(
        (health.state, health.status),
        (EndpointState::Healthy, Some(200))
    );
}

#[test]
fn the_second_probe_is_spread_and_then_the_interval_holds() {
    let names: Vec<String> = (0..40).map(|place| format!("e{place}")).collect();
    let sample = Sample::new()
        .monitor("m")
        .pool("p", "m", &names.join(" "))
        .balancer(HOST, Off, "p", "p");
    let mut bench = Bench::new(sample);
    bench.answering(at(300_000), |_| pass());
    let mut times: BTreeMap<String, Vec<Mono>> = BTreeMap::new();
    for (when, order) in &bench.ordered {
        times
            .entry(order.probe.address.to_string())
            .or_default()
            .push(*when);
    }
    let seconds: BTreeSet<u64> = times
        .values()
        .map(|times| times[1].since(at(0)).as_secs())
        .collect();
    assert!(
        seconds.len() > 20,
        "second probes are spread over the minute: {seconds:?}"
    );
    assert!(seconds.iter().all(|&second| second < 60));
    for times in times.values() {
        assert!(
            times[1..]
                .windows(2)
                .all(|pair| pair[1].since(pair[0]) == Duration::from_secs(60))
        );
    }
}

#[test]
fn pools_that_share_monitor_and_target_are_probed_once() {
    let sample = Sample::new()
        .monitor("m")
        .pool("p1", "m", "a")
        .pool("p2", "m", "a")
        .pool("p3", "m", "a");
    let sample = sample.balancer(HOST, Off, "p1 p2 p3", "p1").with(|draft| {
        let address = draft.pools[0].endpoints[0].address.clone();
        draft
            .pools
            .iter_mut()
            .for_each(|pool| pool.endpoints[0].address = address.clone());
    });
    let mut bench = Bench::new(sample);
    assert_eq!(bench.ordered.len(), 1);
    bench.answer(1, pass());
    bench.until(at(100));
    assert_eq!(
        [0, 1, 2].map(|pool| bench.state(pool)),
        [PoolState::Healthy; 3]
    );
    bench.answering(at(600_000), |_| pass());
    assert!(
        bench.ordered.len() <= 12,
        "{} probes in 10 minutes",
        bench.ordered.len()
    );
}

#[test]
fn consecutive_results() {
    let sample = Sample::new()
        .monitor("m")
        .pool("p", "m", "a")
        .balancer(HOST, Off, "p", "p");
    let mut bench = Bench::new(sample.with(|draft| {
        (
            draft.monitors[0].consecutive_down,
            draft.monitors[0].consecutive_up,
        ) = (3, 2);
    }));
    let mut seen = Vec::new();
    for result in [
        pass(),
        fail(FailureReason::TcpConnection),
        fail(FailureReason::TcpConnection),
        pass(),
    ]
    .into_iter()
    .chain([fail(FailureReason::TcpConnection); 3])
    .chain([pass(); 2])
    {
        bench.answer(1, result);
        while bench.flying.is_empty() {
            let due = bench.engine.poll_timeout().unwrap();
            bench.until(due);
        }
        let (_, _, health) = bench.last().pool(PoolIx(0)).endpoints().next().unwrap();
        seen.push(health.state == EndpointState::Healthy);
    }
    assert_eq!(
        seen,
        [true, true, true, true, true, true, false, false, true]
    );
}

#[test]
fn first_probes_are_bounded() {
    let names: Vec<String> = (0..200).map(|place| format!("e{place}")).collect();
    let sample = Sample::new()
        .monitor("m")
        .pool("p", "m", &names.join(" "))
        .balancer(HOST, Off, "p", "p");
    let mut bench = Bench::new(sample);
    assert_eq!(bench.flying.len(), FIRST_PROBES_IN_FLIGHT_MAX);
    bench.answer(1, pass());
    assert_eq!(
        (bench.flying.len(), bench.ordered.len()),
        (FIRST_PROBES_IN_FLIGHT_MAX, 65)
    );
    bench.answering(at(1000), |_| pass());
    assert_eq!(
        bench
            .ordered
            .iter()
            .map(|(_, order)| &order.probe.address)
            .collect::<BTreeSet<_>>()
            .len(),
        200
    );
    assert!(bench.ready.is_some());
}

#[test]
fn an_attempt_that_nobody_answers_for_counts_as_a_timeout() {
    let mut bench = Bench::new(settings(|monitor| monitor.retries = 1));
    bench.answer(2, pass());
    let (lost, _) = bench.flying.first_key_value().unwrap();
    let lost = *lost;
    bench.until(at(6000));
    assert_eq!(bench.cancelled, [lost]);
    assert_eq!(bench.ordered.len(), 3, "tried again");
    bench.until(at(12_000));
    let (_, _, health) = bench.last().pool(PoolIx(0)).endpoints().next().unwrap();
    assert_eq!(
        (health.state, health.reason.as_str()),
        (EndpointState::Critical, "Other failure")
    );
    bench.input(Input::Probed {
        probe: lost,
        result: pass(),
    });
    bench.until(at(12_100));
    assert_eq!(
        bench.state(0),
        PoolState::Degraded,
        "a late answer is ignored"
    );
}

#[test]
fn ready_does_not_wait_for_ever() {
    let mut bench = Bench::new(one_pool());
    bench.until(at(9_999));
    assert_eq!(bench.ready, None);
    bench.until(at(10_000));
    assert_eq!(bench.ready, Some(at(10_000)));

    let nobody = Bench::new(
        Sample::new()
            .pool("p", "", "a")
            .balancer(HOST, Off, "p", "p"),
    );
    assert_eq!(nobody.ready, Some(at(0)), "nothing to wait for");
    let only = Sample::new()
        .monitor("m")
        .group("g", "m=only")
        .pool("p", "g", "a")
        .balancer(HOST, Off, "p", "p");
    assert_eq!(
        Bench::new(only).ready,
        Some(at(0)),
        "nobody with a vote to wait for"
    );
}

#[test]
fn snapshots_are_coalesced() {
    let names: Vec<String> = (0..60).map(|place| format!("e{place}")).collect();
    let sample = Sample::new()
        .monitor("m")
        .pool("p", "m", &names.join(" "))
        .balancer(HOST, Off, "p", "p");
    let mut bench = Bench::new(sample);
    for place in 1..=60 {
        bench.now = at(u64::from(place));
        bench.answer(place, pass());
    }
    bench.until(at(1000));
    let times: Vec<Mono> = bench.published.iter().map(|(when, _)| *when).collect();
    assert_eq!(times, [at(0), at(50), at(100)]);
    assert!(
        bench
            .published
            .windows(2)
            .all(|pair| pair[0].1.revision() < pair[1].1.revision())
    );
}

#[test]
fn figures_alone_are_published_late() {
    let mut bench = Bench::new(settings(|monitor| {
        (monitor.interval, monitor.retries) = (Duration::from_secs(6), 0)
    }));
    bench.answering(at(100_000), |_| pass());
    let last = bench.published.len();
    bench.answering(at(110_000), |_| ProbeResult::Pass {
        status: Some(200),
        rtt: Duration::from_millis(9),
    });
    assert!(bench.published.len() > last);
    let revision = bench.published[last - 1].1.revision();
    assert_eq!(bench.last().revision(), revision, "nothing else changed");
    let (_, _, health) = bench.last().pool(PoolIx(0)).endpoints().next().unwrap();
    assert_eq!(health.rtt, Some(Duration::from_millis(9)));
    assert_eq!(
        health.since,
        at(50),
        "its state began with the first verdict"
    );
}

#[test]
fn a_reload_keeps_what_is_the_same() {
    let mut bench = Bench::new(one_pool());
    bench.answering(at(100), |order| {
        match order.probe.address.to_string().as_str() {
            "192.0.2.1" => pass(),
            _ => fail(FailureReason::TcpConnection),
        }
    });
    assert_eq!(bench.state(0), PoolState::Degraded);
    let probes = bench.ordered.len();
    let events = bench.events.len();

    // A third endpoint, another order, another name: only the new one is probed.
    bench.catalog(
        Sample::new()
            .monitor("m")
            .pool("p", "m", "a b c")
            .balancer(HOST, Off, "p", "p")
            .with(|draft| {
                draft.pools[0].endpoints.rotate_right(1);
                draft.pools[0].endpoints[1].name = "alpha".to_owned();
            }),
    );
    bench.until(at(200));
    assert_eq!(bench.ordered.len(), probes + 1);
    let states: Vec<String> = bench
        .last()
        .pool(PoolIx(0))
        .endpoints()
        .map(|(_, view, health)| format!("{} {}", view.name, health.state))
        .collect();
    assert_eq!(states, ["c unknown", "alpha healthy", "b critical"]);
    assert_eq!(bench.events.len(), events, "{:?}", &bench.events[events..]);
}

#[test]
fn a_changed_monitor_keeps_the_verdict_until_its_next_result() {
    let mut bench = Bench::new(settings(|monitor| monitor.consecutive_down = 3));
    bench.answering(at(100), |_| pass());
    let probes = bench.ordered.len();
    bench.catalog(settings(|monitor| {
        monitor.consecutive_down = 3;
        monitor.timeout = Duration::from_secs(6);
    }));
    bench.until(at(200));
    assert_eq!(bench.ordered.len(), probes + 2, "probed anew, at once");
    assert_eq!(bench.state(0), PoolState::Healthy);
    bench.answer(1, fail(FailureReason::CodeMismatch));
    bench.until(at(300));
    assert_eq!(
        bench.state(0),
        PoolState::Degraded,
        "the first result under the new settings decides"
    );

    // Another monitor of the same type.
    let other = |kind: fn(&mut Draft)| {
        Sample::new()
            .monitor("m2")
            .pool("p", "m2", "a b")
            .balancer(HOST, Off, "p", "p")
            .with(kind)
    };
    bench.catalog(other(|_| {}));
    bench.until(at(400));
    assert_eq!(bench.state(0), PoolState::Degraded, "kept");
    // Another type: nothing is known.
    bench.catalog(other(|draft| {
        (draft.monitors[0].kind, draft.monitors[0].port) = (MonitorKind::Tcp, Some(80))
    }));
    bench.until(at(500));
    assert_eq!(bench.state(0), PoolState::Unknown);
}

/// `a` is critical with one pass of two since, `b` healthy.
fn in_the_middle_of_a_streak(sample: Sample) -> Bench {
    let mut bench = Bench::new(sample);
    bench.answer(1, fail(FailureReason::CodeMismatch));
    bench.answer(2, pass());
    bench.answering(at(80_000), |_| pass());
    assert_eq!(bench.state(0), PoolState::Degraded);
    bench
}

#[test]
fn another_engine_goes_on_where_this_one_was() {
    let sample = || {
        settings(|monitor| {
            monitor.consecutive_up = 3;
        })
    };
    let before = in_the_middle_of_a_streak(sample());
    let known = before.engine.known(before.now);
    let mut after = Bench::going_on(known.clone(), sample());
    assert_eq!(after.state(0), PoolState::Degraded);
    assert_eq!(after.ready, Some(at(0)), "nothing is left to wait for");
    assert_eq!(after.ordered.len(), 0, "the next probe is due later");
    assert_eq!(after.engine.known(after.now), known);
    let due = |bench: &Bench| bench.engine.poll_timeout().map(|due| due.since(bench.now));
    assert_eq!(due(&after), due(&before));
    // The streak goes on, too: what is missing of three passes is enough, and one less is not.
    let down = |known: &&Known| known.standing.verdict() == Some(false);
    let Some(Standing::Down { passes }) = known.iter().find(down).map(|known| known.standing)
    else {
        panic!("a streak of passes: {known:?}")
    };
    let mut probes = 0;
    while after.state(0) == PoolState::Degraded {
        let due = after.engine.poll_timeout().expect("probes go on");
        after.answering(due, |_| pass());
        let to_a =
            |(_, order): &&(Mono, ProbeOrder)| order.probe.address.to_string() == "192.0.2.1";
        probes = after.ordered.iter().filter(to_a).count();
    }
    assert_eq!(
        (after.state(0), probes),
        (PoolState::Healthy, 3 - passes as usize)
    );
}

#[test]
fn under_other_settings_the_verdict_goes_on_and_the_streak_does_not() {
    let before = in_the_middle_of_a_streak(settings(|monitor| monitor.consecutive_up = 3));
    let known = before.engine.known(before.now);
    let other = settings(|monitor| {
        monitor.consecutive_up = 3;
        monitor.timeout = Duration::from_secs(2);
    });
    let mut after = Bench::going_on(known.clone(), other);
    assert_eq!(
        (after.state(0), after.ready),
        (PoolState::Degraded, Some(at(0)))
    );
    assert_eq!(after.ordered.len(), 2, "what is asked is not the same");
    after.answer(1, pass());
    after.until(at(2_000));
    assert_eq!(
        after.state(0),
        PoolState::Healthy,
        "the first result decides"
    );

    let other_type = settings(|monitor| {
        monitor.kind = MonitorKind::Tcp;
        monitor.port = Some(80);
    });
    let after = Bench::going_on(known, other_type);
    assert_eq!((after.state(0), after.ready), (PoolState::Unknown, None));
}

#[test]
fn what_had_no_verdict_is_asked_at_once() {
    let before = Bench::new(one_pool());
    let after = Bench::going_on(before.engine.known(at(3)), one_pool());
    assert_eq!((after.ordered.len(), after.ready), (2, None));
}

#[test]
fn probes_of_what_is_gone_or_off_stop() {
    let removed: [fn(&mut Draft); 4] = [
        |draft| draft.pools[0].enabled = false,
        |draft| {
            draft.pools[0]
                .endpoints
                .iter_mut()
                .for_each(|endpoint| endpoint.enabled = false)
        },
        |draft| draft.pools[0].monitoring = Monitoring::None,
        |draft| {
            draft.balancers.clear();
            draft.pools.clear();
        },
    ];
    for change in removed {
        let mut bench = Bench::new(one_pool());
        bench.answer(1, pass());
        bench.catalog(one_pool().with(change));
        assert_eq!(bench.cancelled.len(), 1, "the one under way");
        let probes = bench.ordered.len();
        bench.until(at(600_000));
        assert_eq!(bench.ordered.len(), probes);
    }
}

#[test]
fn an_endpoint_that_is_turned_on_again_starts_anew() {
    let mut bench = Bench::new(one_pool());
    bench.answering(at(100), |_| pass());
    bench.catalog(one_pool().with(|draft| draft.pools[0].endpoints[0].enabled = false));
    bench.until(at(200));
    assert_eq!(bench.state(0), PoolState::Healthy, "one of one");
    bench.catalog(one_pool());
    bench.until(at(300));
    assert_eq!(bench.state(0), PoolState::Degraded, "no result yet");
    bench.answer(1, pass());
    bench.until(at(400));
    assert_eq!(bench.state(0), PoolState::Healthy);
}

#[test]
fn hostnames_get_traffic_while_they_resolve() {
    let sample = Sample::new()
        .pool("p", "", "a.example.net b.example.net")
        .balancer(HOST, Off, "p", "p");
    let mut bench = Bench::new(sample.clone());
    assert_eq!(bench.resolve, [["a.example.net", "b.example.net"]]);
    assert!(!bench.last().pool(PoolIx(0)).usable);
    assert_eq!(bench.ready, None);
    let resolved = |host: &str, resolvable| Input::Resolved {
        host: host.to_owned(),
        resolvable,
    };
    bench.input(resolved("a.example.net", true));
    bench.input(resolved("b.example.net", false));
    bench.until(at(100));
    assert_eq!(bench.ready, Some(at(50)));
    let pool = bench.last().pool(PoolIx(0));
    assert!(pool.usable);
    let reasons: Vec<&str> = pool
        .endpoints()
        .map(|(_, _, health)| health.reason_shown().as_str())
        .collect();
    assert_eq!(reasons, ["no monitor", "DNS unknown host"]);
    bench.input(resolved("a.example.net", false));
    bench.until(at(200));
    assert!(!bench.last().pool(PoolIx(0)).usable);
    // A reload with the same hosts asks nothing and forgets nothing.
    bench.input(resolved("b.example.net", true));
    bench.catalog(sample);
    bench.until(at(300));
    assert_eq!(bench.resolve.len(), 1);
    assert!(bench.last().pool(PoolIx(0)).usable);
}

#[test]
fn a_group_votes() {
    let sample = Sample::new()
        .monitor("m1")
        .monitor("m2")
        .monitor("m3")
        .group("g", "m1 m2 m3=must");
    let sample = sample
        .pool("p", "g", "a")
        .balancer(HOST, Off, "p", "p")
        .with(|draft| {
            for (monitor, port) in draft.monitors.iter_mut().zip(1..) {
                monitor.port = Some(port);
            }
        });
    let run = |failing: &'static [u16]| {
        let mut bench = Bench::new(sample.clone());
        bench.answering(at(1000), |order| {
            match failing.contains(&order.probe.port) {
                true => fail(FailureReason::CodeMismatch),
                false => pass(),
            }
        });
        bench.state(0)
    };
    assert_eq!(run(&[]), PoolState::Healthy);
    assert_eq!(run(&[1]), PoolState::Healthy);
    assert_eq!(run(&[1, 2]), PoolState::Critical);
    assert_eq!(run(&[3]), PoolState::Critical);
}
