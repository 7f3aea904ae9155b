//! `explain` and the running node agree: on random configurations, requests and health.
//!
//! Each triple is asked of `explain` first and of the node then, which has to send the request where
//! it was told, by the same draw. What the node will draw follows from what it drew last, which is
//! the id of the request before: both come from one generator, see `Worker::draw`. A triple counts
//! only when nothing was published between the two questions: health is measured all the time.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::{Map, Value, json};

use crate::support::api::result;
use crate::support::config::HOST;
use crate::support::endpoint::{PROBE_PATH, origin_at, refusing};
use crate::support::message::Message;
use crate::support::{Config, Endpoint, Usher, Wire, eventually};

const SEED: u64 = 20_261_130;
const HEADER: &str = "X-Served-By";
const ENDPOINTS: usize = 6;
/// Where nobody listens.
const DEAD: usize = ENDPOINTS;

/// Chance of the test itself: SplitMix64, as the node's.
struct Chance(u64);

const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

fn mix(state: u64) -> u64 {
    let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

/// The state that gives `mixed`.
fn unmix(mixed: u64) -> u64 {
    let unshift = |value: u64, by: u32| {
        let mut known = value;
        for _ in 0..(64 / by) {
            known = value ^ (known >> by);
        }
        known
    };
    let state = unshift(mixed, 31).wrapping_mul(inverse(0x94d0_49bb_1331_11eb));
    let state = unshift(state, 27).wrapping_mul(inverse(0xbf58_476d_1ce4_e5b9));
    unshift(state, 30)
}

/// Of an odd number modulo 2^64, by Newton's method.
fn inverse(of: u64) -> u64 {
    let mut inverse = of;
    for _ in 0..6 {
        inverse = inverse.wrapping_mul(2_u64.wrapping_sub(of.wrapping_mul(inverse)));
    }
    inverse
}

impl Chance {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(STEP);
        mix(self.0)
    }

    fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }

    fn percent(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }

    fn of<T: Clone>(&mut self, list: &[T]) -> T {
        list[self.below(list.len())].clone()
    }

    fn weight(&mut self) -> Value {
        json!(self.below(101) as f64 / 100.0)
    }

    /// A list of some of `all`, at least one, each once.
    fn some(&mut self, all: &[String]) -> Vec<String> {
        let mut left = all.to_vec();
        let count = 1 + self.below(all.len().min(3));
        (0..count)
            .map(|_| left.remove(self.below(left.len())))
            .collect()
    }
}

/// An endpoint that says the id of each request, and what its probes get.
fn telling() -> (Endpoint, Arc<AtomicBool>) {
    let healthy = Arc::new(AtomicBool::new(true));
    let works = Arc::clone(&healthy);
    let endpoint = Endpoint::scripted(move |visit| {
        while let Some(request) = visit.wire.request() {
            let probed = request.target() == PROBE_PATH;
            let status = match probed && !works.load(Ordering::SeqCst) {
                true => "503 Down",
                false => "200 OK",
            };
            let id = request.field("x-request-id").unwrap_or("none").to_owned();
            visit.send(format!(
                "HTTP/1.1 {status}\r\nX-Request-ID: {id}\r\nContent-Length: 0\r\n\r\n"
            ));
        }
    });
    (endpoint, healthy)
}

/// What a round is about.
struct World {
    endpoints: Vec<(Endpoint, Arc<AtomicBool>)>,
    dead: Value,
    chance: Chance,
}

impl World {
    fn origin(&self, which: usize) -> Value {
        let name = format!("e{which}");
        match self.endpoints.get(which) {
            Some((endpoint, _)) => endpoint.origin(&name),
            None => {
                json!({"name": name, "address": self.dead["address"], "port": self.dead["port"]})
            }
        }
    }

    /// A pool of some endpoints. One that nobody listens at is only found where nothing is probed.
    fn pool(&mut self, monitor: &str) -> Value {
        let chance = &mut self.chance;
        let monitored = chance.percent(60);
        let all: Vec<String> = (0..=DEAD).map(|which| which.to_string()).collect();
        let members = chance.some(&all[..if monitored { DEAD } else { DEAD + 1 }]);
        let mut origins = Vec::new();
        for member in members {
            let mut origin = self.origin(member.parse().unwrap());
            let chance = &mut self.chance;
            if chance.percent(50) {
                origin["weight"] = chance.weight();
            }
            origin["enabled"] = json!(!chance.percent(8));
            origins.push(origin);
        }
        let chance = &mut self.chance;
        let mut pool = json!({
            "origins": origins,
            "enabled": !chance.percent(5),
            "minimum_origins": chance.below(3),
            "origin_steering": {"policy": chance.of(&[
                "random", "random", "hash", "least_outstanding_requests", "least_connections",
            ])},
        });
        if monitored {
            pool["monitor"] = json!(monitor);
        }
        if chance.percent(60) {
            pool["latitude"] = json!(chance.below(170) as f64 - 85.0);
            pool["longitude"] = json!(chance.below(350) as f64 - 175.0);
        }
        if chance.percent(30) {
            pool["load_shedding"] = json!({
                "default_percent": chance.below(101),
                "default_policy": chance.of(&["random", "hash"]),
                "session_percent": chance.below(101),
            });
        }
        pool
    }

    fn areas(&mut self, codes: &[&str], pools: &[String]) -> Value {
        let mut areas = Map::new();
        for _ in 0..=self.chance.below(2) {
            let code = self.chance.of(codes);
            areas.insert(code.to_owned(), json!(self.chance.some(pools)));
        }
        Value::Object(areas)
    }

    fn affinity(&mut self, into: &mut Value) {
        let chance = &mut self.chance;
        let mode = chance.of(&["none", "cookie", "ip_cookie", "header"]);
        into["session_affinity"] = json!(mode);
        into["session_affinity_attributes"] = json!({
            "headers": ["x-user", "cookie:id"],
            "require_all_headers": chance.percent(20),
            "drain_duration": chance.of(&[0, 600]),
            "zero_downtime_failover": match mode {
                "header" => chance.of(&["none", "temporary"]),
                _ => chance.of(&["none", "temporary", "sticky"]),
            },
        });
    }

    /// Weights, policy, maps: what a load balancer has and a rule may override.
    fn steering(&mut self, pools: &[String], into: &mut Value) {
        into["steering_policy"] = json!(self.chance.of(&[
            "off",
            "geo",
            "random",
            "random",
            "proximity",
            "dynamic_latency",
            "",
            "least_outstanding_requests",
            "least_connections",
        ]));
        if self.chance.percent(60) {
            let mut weights = Map::new();
            for pool in self.chance.some(pools) {
                weights.insert(pool, self.chance.weight());
            }
            into["random_steering"] =
                json!({"default_weight": self.chance.weight(), "pool_weights": weights});
        }
        if self.chance.percent(25) {
            into["country_pools"] = self.areas(&["NL", "DE", "US"], pools);
        }
        if self.chance.percent(25) {
            into["region_pools"] = self.areas(&["WEU", "OC"], pools);
        }
        if self.chance.percent(15) {
            into["pop_pools"] = self.areas(&["tst", "SJC"], pools);
        }
        if self.chance.percent(40) {
            into["adaptive_routing"] = json!({"failover_across_pools": self.chance.percent(70)});
        }
    }

    fn response(&mut self) -> Value {
        json!({"status_code": 400 + self.chance.below(100), "message_body": "as configured"})
    }

    fn pool_set(&mut self, pools: &[String]) -> Value {
        let mut set = json!({"name": "set", "disabled": self.chance.percent(20)});
        if self.chance.percent(70) {
            let list = self.chance.of(&["countries", "regions", "pops"]);
            let code = match list {
                "countries" => self.chance.of(&["NL", "DE"]),
                "regions" => self.chance.of(&["WEU", "ENAM"]),
                _ => self.chance.of(&["TST", "AMS"]),
            };
            set["match"] = json!({"topology": {list: [code]}});
        }
        if self.chance.percent(15) {
            set["fixed_response"] = self.response();
            return set;
        }
        let policy = self
            .chance
            .of(&["off", "random", "proximity", "least_connections"]);
        set["overrides"] = json!({
            "pools": self.chance.some(pools), "steering_policy": policy,
            "pool_default_weight": self.chance.weight(),
        });
        set
    }

    fn condition(&mut self) -> String {
        let one = |chance: &mut Chance| {
            chance.of(&[
                "http.request.uri.path contains \"/b\"",
                "http.request.method eq \"POST\"",
                "any(http.request.headers[\"x-plan\"][*] eq \"gold\")",
                "ip.geoip.country eq \"NL\"",
                "ip.src in {192.0.2.0/25 2001:db8::/32}",
                "http.cookie contains \"beta=1\"",
                "starts_with(http.request.uri.path, \"/api\")",
                "http.request.uri.query contains \"q=1\"",
                "any(http.request.uri.args[\"q\"][*] in {\"1\" \"2\"})",
                "http.host wildcard \"SHOP.*\"",
                "http.request.version eq \"HTTP/1.1\"",
                "cf.load_balancer.region eq \"WEU\"",
                "len(http.request.uri.path) gt 6",
                "lower(http.referer) matches \"^https://[a-z.]+/\"",
                "usher.node eq \"TST\"",
                "ssl",
            ])
        };
        let chance = &mut self.chance;
        match chance.below(6) {
            0 => String::new(),
            1 => format!("not {}", one(chance)),
            2 => format!("{} and {}", one(chance), one(chance)),
            3 => format!("{} xor ({} or {})", one(chance), one(chance), one(chance)),
            _ => one(chance).to_owned(),
        }
    }

    fn rule(&mut self, pools: &[String], number: usize) -> Value {
        let mut rule = json!({
            "name": format!("rule {number}"), "condition": self.condition(),
            "disabled": self.chance.percent(10), "terminates": self.chance.percent(15),
        });
        if self.chance.percent(30) {
            rule["priority"] = json!(self.chance.below(4));
        }
        if self.chance.percent(12) {
            rule["fixed_response"] = self.response();
            return rule;
        }
        let mut overrides = json!({});
        if self.chance.percent(40) {
            let key = self.chance.of(&["pools", "default_pools"]);
            overrides[key] = json!(self.chance.some(pools));
        }
        if self.chance.percent(20) {
            overrides["fallback_pool"] = json!(self.chance.of(pools));
        }
        if self.chance.percent(40) {
            self.steering(pools, &mut overrides);
        }
        if self.chance.percent(20) {
            self.affinity(&mut overrides);
        }
        rule["overrides"] = overrides;
        if self.chance.percent(30) {
            rule["usher"] = json!({"transform": {
                "request_headers": [{"set": "x-country", "value": "{country}"}, {"remove": "x-plan"}],
                "path": {"to": "/{country_lower}{path}"},
            }});
        }
        rule
    }

    fn config(&mut self, round: usize) -> Config {
        let monitor = format!("m{round}");
        let names: Vec<String> = (0..4).map(|number| format!("p{number}")).collect();
        let mut config = Config::new()
            .set(&["trusted_proxies"], json!(["127.0.0.0/8"]))
            .set(&["node", "latitude"], json!(52.3))
            .set(&["node", "longitude"], json!(4.8))
            .set(
                &["secrets"],
                json!({"seal": ["a secret that only this test knows"]}),
            )
            .set(
                &["monitors", &monitor],
                json!({"path": PROBE_PATH, "interval": 3600, "timeout": 5, "retries": 0}),
            );
        for name in &names {
            let pool = self.pool(&monitor);
            config = config.set(&["pools", name], pool);
        }
        let mut balancer = json!({
            "proxied": true, "default_pools": self.chance.some(&names),
            "fallback_pool": self.chance.of(&names),
            "usher": {"endpoint_header": HEADER},
        });
        self.steering(&names, &mut balancer);
        self.affinity(&mut balancer);
        let sets = (0..self.chance.below(3)).map(|_| self.pool_set(&names));
        balancer["pool_sets"] = sets.collect();
        let rules = (0..self.chance.below(8)).map(|number| self.rule(&names, number));
        balancer["rules"] = rules.collect();
        config.set(&["load_balancers", HOST], balancer)
    }

    /// A request: its method, its path, and its headers but for the host.
    fn request(&mut self) -> (&'static str, &'static str, Headers) {
        let chance = &mut self.chance;
        let method = chance.of(&["GET", "GET", "POST", "DELETE"]);
        let path = chance.of(&[
            "/",
            "/b",
            "/api",
            "/api/b?q=1",
            "/long/path/b?q=3&q=2",
            "/?q=1",
        ]);
        let mut headers = BTreeMap::new();
        let client = chance.of(&["192.0.2.1", "192.0.2.200", "198.51.100.9", "2001:db8::7"]);
        headers.insert("X-Forwarded-For", client.to_owned());
        if chance.percent(40) {
            headers.insert("X-Plan", chance.of(&["gold", "basic"]).to_owned());
        }
        if chance.percent(50) {
            headers.insert("X-User", format!("u{}", chance.below(5)));
        }
        if chance.percent(20) {
            headers.insert("Referer", "https://Example.com/x".to_owned());
        }
        (method, path, headers)
    }
}

/// The session cookies of a few visitors, and beside them what else they send.
#[derive(Default)]
struct Jar(BTreeMap<usize, String>);

impl Jar {
    fn cookies(&self, visitor: usize) -> String {
        let own = if visitor.is_multiple_of(2) {
            "beta=1"
        } else {
            "id=7"
        };
        match self.0.get(&visitor) {
            Some(pin) => format!("{own}; {pin}"),
            None => own.to_owned(),
        }
    }

    fn keep(&mut self, visitor: usize, answer: &Message) {
        let set = answer
            .fields
            .iter()
            .filter(|(name, _)| name.eq_ignore_ascii_case("set-cookie"));
        for (_, value) in set {
            let pin = value.split(';').next().unwrap_or_default();
            self.0.insert(visitor, pin.to_owned());
        }
    }
}

#[test]
fn explain_and_the_node_agree() {
    let soak = std::env::var_os("USHER_SOAK").is_some();
    let (rounds, triples) = if soak { (250, 40) } else { (8, 25) };
    let mut world = World {
        endpoints: (0..ENDPOINTS).map(|_| telling()).collect(),
        dead: origin_at("dead", refusing()),
        chance: Chance(SEED),
    };
    let mut config = world.config(0);
    let usher = Usher::start(&config);
    let mut tally: BTreeMap<String, usize> = BTreeMap::new();
    let mut agreed = 0;
    for round in 0..rounds {
        for (_, healthy) in &world.endpoints {
            healthy.store(!world.chance.percent(30), Ordering::SeqCst);
        }
        config = world.config(round + 1);
        usher.reload(&config);
        settle(&usher);
        agreed += compare(&usher, &mut world, &config, triples, &mut tally);
    }
    println!("{agreed} triples in {rounds} configurations agree: {tally:?}");
    assert!(agreed >= rounds * triples, "{agreed}");
}

/// Waits until every endpoint with a monitor has its verdict, and its figures are published.
fn settle(usher: &Usher) {
    eventually("first verdicts", || {
        let state = usher.state();
        let pools = state["pools"].as_array()?;
        let endpoints = pools
            .iter()
            .flat_map(|pool| pool["endpoints"].as_array().unwrap());
        endpoints
            .into_iter()
            .all(|endpoint| endpoint["reason"] != "no result yet")
            .then_some(())
    });
}

/// A connection, and where the worker that serves it is in its draws.
struct Visit {
    wire: Wire,
    state: u64,
}

impl Visit {
    /// Learns the draws from a request that is refused, which says its id.
    fn new(usher: &Usher) -> Visit {
        let mut wire = usher.connect();
        let refused = wire.get("nobody.example.com", "/");
        let state = drawn(&refused).expect("a refusal says its id");
        // One more draw decided it.
        let state = state.wrapping_add(STEP);
        Visit { wire, state }
    }

    /// The draw that will decide the next request.
    fn next_draw(&self) -> u64 {
        mix(self.state.wrapping_add(STEP).wrapping_add(STEP))
    }

    fn ask(&mut self, method: &str, path: &str, headers: &Headers) -> Message {
        let mut head = format!("{method} {path} HTTP/1.1\r\nHost: {HOST}\r\n");
        for (name, value) in headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        if method == "POST" {
            head.push_str("Content-Length: 0\r\n");
        }
        let answer = self.wire.exchange(head + "\r\n");
        let of_id = self.state.wrapping_add(STEP);
        if let Some(drawn) = drawn(&answer) {
            assert_eq!(drawn, of_id, "the node draws as this test expects");
        }
        self.state = of_id.wrapping_add(STEP);
        answer
    }
}

type Headers = BTreeMap<&'static str, String>;

/// The state of the node's chance when it made the id of the request that this answers; a fixed
/// response does not say it.
fn drawn(answer: &Message) -> Option<u64> {
    let id = answer.field("x-request-id")?;
    Some(unmix(
        u64::from_str_radix(id, 16).expect("16 hexadecimal digits"),
    ))
}

fn compare(
    usher: &Usher,
    world: &mut World,
    config: &Config,
    triples: usize,
    tally: &mut BTreeMap<String, usize>,
) -> usize {
    let mut visit = Visit::new(usher);
    let mut jar = Jar::default();
    let (mut agreed, mut void) = (0, 0);
    while agreed < triples {
        let (method, path, mut headers) = world.request();
        let visitor = world.chance.below(6);
        headers.insert("Cookie", jar.cookies(visitor));
        idle(usher);
        let question = json!({
            "url": format!("http://{HOST}{path}"), "method": method, "headers": headers,
            "from": headers["X-Forwarded-For"], "seed": visit.next_draw(),
        });
        let explain = || result(&usher.api_post("/client/v4/usher/explain", &question));
        let told = explain();
        let answer = visit.ask(method, path, &headers);
        jar.keep(visitor, &answer);
        if explain()["revision"] != told["revision"] {
            void += 1;
            assert!(void < 1000, "the node publishes all the time");
            continue;
        }
        assert_eq!(
            found(&answer),
            expected(&told),
            "seed {SEED:#x}: {method} {path} {headers:?}\n{told:#}\n{}",
            config.text()
        );
        *tally.entry(kind(&told)).or_default() += 1;
        agreed += 1;
    }
    agreed
}

/// Status, and who served.
type Outcome = (u16, Option<String>);

fn found(answer: &Message) -> Outcome {
    let served = answer.field(HEADER).map(str::to_owned);
    (answer.status(), served)
}

/// What the client gets when the node does what it was told, endpoints being what they are.
fn expected(told: &Value) -> Outcome {
    let text = |value: &Value| value.as_str().expect("text").to_owned();
    if told["outcome"] != "forward" {
        return (
            u16::try_from(told["status"].as_u64().expect("a status")).unwrap(),
            None,
        );
    }
    let dead = format!("e{DEAD}");
    let alive = |attempt: &Value| !attempt.is_null() && attempt["name"] != *dead;
    let (first, retry) = (&told["endpoint"], &told["retry"]);
    if alive(first) {
        return (
            200,
            Some(format!("{}/{}", text(&told["pool"]), text(&first["name"]))),
        );
    }
    match alive(retry) {
        true => (
            200,
            Some(format!("{}/{}", text(&retry["pool"]), text(&retry["name"]))),
        ),
        false => (521, None),
    }
}

/// For the tally: what was decided, and whether chance had a part in it.
fn kind(told: &Value) -> String {
    let certain = |list: &Value| {
        let all = list.as_array().expect("a list");
        all.iter()
            .all(|one| one["probability"] == 0 || one["probability"] == 1)
    };
    let drawn = !(certain(&told["pools"]) && certain(&told["endpoints"]));
    let session = match &told["session"]["kept"] {
        Value::Bool(true) => ", session kept",
        Value::Bool(false) => ", session new",
        _ => "",
    };
    let drawn = if drawn { ", drawn" } else { "" };
    let fallback = if told["fallback"] == true {
        ", fallback"
    } else {
        ""
    };
    format!(
        "{}{fallback}{drawn}{session}",
        told["outcome"].as_str().unwrap_or_default()
    )
}

/// Waits until the node has put the last request away: what is under way steers.
fn idle(usher: &Usher) {
    eventually("nothing under way", || {
        let state = usher.state();
        let pools = state["pools"].as_array()?;
        let mut endpoints = pools
            .iter()
            .flat_map(|pool| pool["endpoints"].as_array().unwrap());
        endpoints
            .all(|endpoint| endpoint["open_requests"] == 0)
            .then_some(())
    });
}
