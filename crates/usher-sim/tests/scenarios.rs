//! Stories across modules, told in `scenarios/*.txt`.
//!
//! A file declares monitors, pools and load balancers, then says what happens when. The indented
//! lines below a line are what usher did until the next one; they are compared as they stand, and
//! `USHER_BLESS=1` writes them anew for review.
//!
//! ```text
//! monitor NAME interval=10 timeout=2 retries=0 down=1 up=1
//! pool NAME MONITOR|- ENDPOINT[=WEIGHT] ...
//! balancer HOST off|random POOL[=WEIGHT] ... / FALLBACK
//! SECONDS work|refuse|hang POOL/ENDPOINT      its server changes
//! SECONDS disable|enable POOL/ENDPOINT        a reload
//! SECONDS ask HOST                            where would a visitor go
//! SECONDS end
//! ```

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use usher_core::affinity::NoPins;
use usher_core::catalog::{
    Address, Affinity, Areas, Balancer, Catalog, CodeSet, Draft, Endpoint, EndpointTls,
    HostPattern, HttpCheck, Monitor, MonitorKind, Monitoring, Node, Pool, Reference, Shedding, Ssl,
    Zone,
};
use usher_core::decision::{Decision, Forward};
use usher_core::engine::{Engine, Input, Output, StateChange};
use usher_core::health::FailureReason;
use usher_core::id::{Id, Kind};
use usher_core::probe::{ProbeId, ProbeOrder, ProbeResult};
use usher_core::request::{NoHeaders, Request, Scheme};
use usher_core::snapshot::{NoCounts, Snapshot};
use usher_core::steering::{EndpointSteering, PoolSteering};
use usher_core::time::{Mono, Wall};

#[test]
fn stories() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("scenarios");
    let mut told = 0;
    for entry in std::fs::read_dir(folder).expect("the folder of scenarios") {
        let path = entry.expect("an entry").path();
        let text = std::fs::read_to_string(&path).expect("a scenario");
        let found = Story::tell(&text);
        if std::env::var_os("USHER_BLESS").is_some() {
            std::fs::write(&path, &found).expect("write the scenario");
        } else {
            assert!(found == text, "{} went otherwise:\n{found}", path.display());
        }
        told += 1;
    }
    assert!(told > 0);
}

fn id(kind: Kind, key: &str) -> Id {
    Id::derive("default", kind, key)
}

fn reference(kind: Kind, name: &str) -> Reference {
    Reference {
        id: id(kind, name),
        text: name.to_owned(),
    }
}

struct Story {
    draft: Draft,
    engine: Engine,
    now: Mono,
    /// What the server of an endpoint does, by `pool/endpoint`; those that are not here work.
    servers: BTreeMap<String, String>,
    answers: BTreeMap<(Mono, ProbeId), ProbeResult>,
    snapshot: Option<Arc<Snapshot>>,
    text: String,
}

impl Story {
    fn tell(text: &str) -> String {
        let node = Node {
            name: "n1".to_owned(),
            code: "N1".to_owned(),
            region: None,
            country: None,
            city: None,
            coordinates: None,
        };
        let zone = Zone {
            id: id(Kind::Zone, "example.com"),
            name: "example.com".to_owned(),
            ssl: Ssl::Flexible,
            always_use_https: false,
            tls: EndpointTls::default(),
        };
        let draft = Draft {
            zones: vec![zone],
            interval_min: Duration::from_secs(1),
            ..Draft::new(node)
        };
        let mut story = Story {
            draft,
            engine: Engine::new(1),
            now: Mono::ZERO,
            servers: BTreeMap::new(),
            answers: BTreeMap::new(),
            snapshot: None,
            text: String::new(),
        };
        let mut started = false;
        let mut happened = String::new();
        for line in text.lines().filter(|line| !line.starts_with("  ")) {
            let words: Vec<&str> = line.split_whitespace().collect();
            let time = words.first().and_then(|word| word.parse::<f64>().ok());
            if let Some(seconds) = time {
                if !started {
                    started = true;
                    story.load();
                }
                story.until(Mono::ZERO.after(Duration::from_secs_f64(seconds)));
                happened += &std::mem::take(&mut story.text);
                let _ = writeln!(happened, "{line}");
                story.act(&words[1..]);
            } else {
                let _ = writeln!(happened, "{line}");
                story.declare(&words);
            }
        }
        happened + &story.text
    }

    fn declare(&mut self, words: &[&str]) {
        let split = |word: &str| match word.split_once('=') {
            Some((name, value)) => (
                name.to_owned(),
                Some(value.parse::<f64>().expect("a number")),
            ),
            None => (word.to_owned(), None),
        };
        match words {
            [] | ["#", ..] => {}
            ["monitor", name, settings @ ..] => {
                let settings: BTreeMap<String, Option<f64>> =
                    settings.iter().map(|word| split(word)).collect();
                let number = |key: &str, default: f64| {
                    settings.get(key).copied().flatten().unwrap_or(default)
                };
                let check = HttpCheck {
                    method: "GET".to_owned(),
                    path: "/".to_owned(),
                    headers: Vec::new(),
                    expected_codes: CodeSet::parse("200").expect("valid"),
                    expected_body: String::new(),
                    follow_redirects: false,
                };
                self.draft.monitors.push(Monitor {
                    id: id(Kind::Monitor, name),
                    name: (*name).to_owned(),
                    description: String::new(),
                    kind: MonitorKind::Http(check),
                    port: None,
                    interval: Duration::from_secs_f64(number("interval", 60.0)),
                    timeout: Duration::from_secs_f64(number("timeout", 5.0)),
                    retries: number("retries", 2.0) as u32,
                    consecutive_down: number("down", 0.0) as u32,
                    consecutive_up: number("up", 0.0) as u32,
                });
            }
            ["pool", name, monitor, endpoints @ ..] => {
                let place = self.draft.pools.len() as u8;
                let endpoints = endpoints.iter().zip(1..).map(|(word, last)| {
                    let (endpoint, weight) = split(word);
                    Endpoint {
                        id: id(Kind::Endpoint, &format!("{name}/{endpoint}")),
                        name: endpoint,
                        address: Address::Ip([192, 0, 2 + place, last].into()),
                        port: None,
                        enabled: true,
                        weight: weight.unwrap_or(1.0),
                        host_header: None,
                        disabled_at: None,
                    }
                });
                self.draft.pools.push(Pool {
                    id: id(Kind::Pool, name),
                    name: (*name).to_owned(),
                    description: String::new(),
                    enabled: true,
                    endpoints: endpoints.collect(),
                    steering: EndpointSteering::Random,
                    endpoints_min: 1,
                    monitoring: match *monitor {
                        "-" => Monitoring::None,
                        name => Monitoring::Monitor(reference(Kind::Monitor, name)),
                    },
                    tls: EndpointTls::default(),
                    coordinates: None,
                    shedding: Shedding::default(),
                    slow_start: None,
                });
            }
            ["balancer", host, steering, pools @ .., "/", fallback] => {
                let pools: Vec<(String, Option<f64>)> =
                    pools.iter().map(|word| split(word)).collect();
                let weights = pools
                    .iter()
                    .filter_map(|(name, weight)| Some((reference(Kind::Pool, name), (*weight)?)));
                let steering = PoolSteering::ALL
                    .into_iter()
                    .find(|method| method.name() == *steering);
                self.draft.balancers.push(Balancer {
                    id: id(Kind::Balancer, host),
                    name: (*host).to_owned(),
                    host: HostPattern::parse(host),
                    zone: "example.com".to_owned(),
                    description: String::new(),
                    enabled: true,
                    pools: pools
                        .iter()
                        .map(|(name, _)| reference(Kind::Pool, name))
                        .collect(),
                    fallback: reference(Kind::Pool, fallback),
                    steering: steering.expect("a steering method"),
                    weight_default: 1.0,
                    weights: weights.collect(),
                    areas: Areas::default(),
                    location: Default::default(),
                    affinity: Affinity::default(),
                    failover_across_pools: false,
                    endpoint_header: None,
                    pool_sets: Vec::new(),
                    rules: Default::default(),
                });
            }
            _ => panic!("not understood: {words:?}"),
        }
    }

    fn act(&mut self, words: &[&str]) {
        match words {
            ["end"] => {}
            [mode @ ("work" | "refuse" | "hang"), endpoint] => {
                self.servers
                    .insert((*endpoint).to_owned(), (*mode).to_owned());
            }
            [switch @ ("enable" | "disable"), endpoint] => {
                let (pool, name) = endpoint.split_once('/').expect("POOL/ENDPOINT");
                let pool = self
                    .draft
                    .pools
                    .iter_mut()
                    .find(|known| known.name == pool)
                    .expect("a pool");
                let endpoint = pool.endpoints.iter_mut().find(|known| known.name == name);
                endpoint.expect("an endpoint").enabled = *switch == "enable";
                self.load();
            }
            ["ask", host] => self.ask(host),
            _ => panic!("not understood: {words:?}"),
        }
    }

    fn ask(&mut self, host: &str) {
        let snapshot = self.snapshot.clone().expect("a snapshot");
        let client = [198, 51, 100, 1].into();
        let request = Request {
            host,
            method: "GET",
            uri: "/",
            scheme: Scheme::Http,
            client,
            version: "HTTP/1.1",
            headers: &NoHeaders,
            location: snapshot.location(),
            time: Wall::from_millis(1_790_000_000_000),
            draw: 0,
        };
        let (decision, trace) = snapshot.explain(&request, &NoCounts, &NoPins, self.now);
        let shares: Vec<String> = trace
            .pools
            .iter()
            .map(|pool| format!("{} {:.4}", pool.name, pool.probability))
            .collect();
        let _ = writeln!(self.text, "  pools: {}", shares.join(", "));
        let shares: Vec<String> = trace
            .endpoints
            .iter()
            .map(|endpoint| format!("{} {:.4}", endpoint.name, endpoint.probability))
            .collect();
        let outcome = match decision {
            Decision::Forward(Forward { attempts, .. }) => {
                let role = if attempts.first.fallback {
                    " (fallback)"
                } else {
                    ""
                };
                format!(
                    "{}{role}: {}",
                    snapshot.pool(attempts.first.pool).name,
                    shares.join(", ")
                )
            }
            Decision::Respond { with, .. } => format!("{with:?}"),
            Decision::Refuse { reason, .. } => reason.as_str().to_owned(),
        };
        let _ = writeln!(self.text, "  {outcome}");
    }

    fn load(&mut self) {
        let catalog = Catalog::check(self.draft.clone()).expect("a valid story");
        self.engine
            .handle(Input::Catalog(Arc::new(catalog)), self.now);
        self.drain();
    }

    fn until(&mut self, then: Mono) {
        loop {
            let answer = self.answers.first_key_value().map(|(&(when, _), _)| when);
            let timer = self.engine.poll_timeout();
            let Some(next) = [answer, timer]
                .into_iter()
                .flatten()
                .min()
                .filter(|&next| next <= then)
            else {
                break;
            };
            self.now = self.now.max(next);
            if answer == Some(next) {
                let ((_, probe), result) = self.answers.pop_first().expect("an answer");
                self.engine
                    .handle(Input::Probed { probe, result }, self.now);
            } else {
                self.engine.handle_timeout(self.now);
            }
            self.drain();
        }
        self.now = then;
    }

    fn drain(&mut self) {
        while let Some(output) = self.engine.poll_output() {
            let told = match output {
                Output::Probe(order) => {
                    self.probe(&order);
                    continue;
                }
                Output::Publish(snapshot) => {
                    self.snapshot = Some(snapshot);
                    continue;
                }
                Output::Cancel(_) | Output::Resolve(_) => continue,
                Output::Ready => "ready".to_owned(),
                Output::Event(StateChange::Endpoint {
                    pool,
                    endpoint,
                    was,
                    now,
                    reason,
                    ..
                }) => {
                    format!("endpoint {pool}/{endpoint}: {was} to {now} ({reason})")
                }
                Output::Event(StateChange::Pool {
                    pool,
                    was,
                    now,
                    reason,
                }) => {
                    format!("pool {pool}: {was} to {now} ({reason})")
                }
            };
            let seconds = self.now.as_nanos() as f64 / 1e9;
            let _ = writeln!(self.text, "  {seconds:.2} {told}");
        }
    }

    fn probe(&mut self, order: &ProbeOrder) {
        let mut all = self
            .draft
            .pools
            .iter()
            .flat_map(|pool| pool.endpoints.iter().map(move |endpoint| (pool, endpoint)));
        let (pool, endpoint) = all
            .find(|(_, endpoint)| endpoint.address == order.probe.address)
            .expect("an endpoint");
        let mode = self
            .servers
            .get(&format!("{}/{}", pool.name, endpoint.name))
            .map_or("work", String::as_str);
        let rtt = Duration::from_millis(10);
        let fail = |reason| ProbeResult::Fail {
            reason,
            status: None,
            rtt: None,
        };
        let (wait, result) = match mode {
            "refuse" => (rtt, fail(FailureReason::TcpConnection)),
            "hang" => (order.probe.timeout, fail(FailureReason::HttpTimeout)),
            _ => (
                rtt,
                ProbeResult::Pass {
                    status: Some(200),
                    rtt,
                },
            ),
        };
        self.answers
            .insert((self.now.after(wait), order.id), result);
    }
}
