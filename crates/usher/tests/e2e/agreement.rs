//! `explain` and the running node agree: on random configurations, requests and health.
//!
//! Each triple is asked of `explain` first and of the node then, which has to send the request where
//! it was told, by the same draw. What the node will draw follows from what it drew last, which is
//! the id of the request before: both come from one generator, see `Worker::draw`. A triple counts
//! only when nothing was published between the two questions: health is measured all the time.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use crate::support::api::result;
use crate::support::config::HOST;
use crate::support::endpoint::{origin_at, refusing};
use crate::support::message::Message;
use crate::support::{Config, Endpoint, Usher, Wire, eventually};

const SEED: u64 = 0x5eed_0f_2026_1130;
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
        (0..count).map(|_| left.remove(self.below(left.len()))).collect()
    }
}

/// What a round is about.
struct World {
    endpoints: Vec<Endpoint>,
    dead: Value,
    chance: Chance,
}

impl World {
    fn origin(&self, which: usize) -> Value {
        let name = format!("e{which}");
        match self.endpoints.get(which) {
            Some(endpoint) => endpoint.origin(&name),
            None => json!({"name": name, "address": self.dead["address"], "port": self.dead["port"]}),
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
            "off", "geo", "random", "random", "proximity", "dynamic_latency", "",
            "least_outstanding_requests", "least_connections",
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
        let policy = self.chance.of(&["off", "random", "proximity", "least_connections"]);
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
            .set(&["secrets"], json!({"seal": ["a secret that only this test knows"]}))
            .set(
                &["monitors", &monitor],
                json!({"path": "/healthz", "interval": 3600, "timeout": 5, "retries": 0}),
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
    fn request(&mut self) -> (&'static str, &'static str, BTreeMap<&'static str, String>) {
        let chance = &mut self.chance;
        let method = chance.of(&["GET", "GET", "POST", "DELETE"]);
        let path = chance.of(&["/", "/b", "/api", "/api/b?q=1", "/long/path/b?q=3&q=2", "/?q=1"]);
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
        let own = if visitor.is_multiple_of(2) { "beta=1" } else { "id=7" };
        match self.0.get(&visitor) {
            Some(pin) => format!("{own}; {pin}"),
            None => own.to_owned(),
        }
    }

    fn keep(&mut self, visitor: usize, answer: &Message) {
        let set = answer.fields.iter().filter(|(name, _)| name.eq_ignore_ascii_case("set-cookie"));
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
        endpoints: (0..ENDPOINTS).map(|n| Endpoint::named(&format!("e{n}"))).collect(),
        dead: origin_at("dead", refusing()),
        chance: Chance(SEED),
    };
    let mut config = world.config(0);
    let usher = Usher::start(&config);
    let mut tally: BTreeMap<String, usize> = BTreeMap::new();
    let mut agreed = 0;
    for round in 0..rounds {
        for endpoint in &world.endpoints {
            endpoint.set_healthy(!world.chance.percent(30));
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
        let endpoints = pools.iter().flat_map(|pool| pool["endpoints"].as_array().unwrap());
        endpoints
            .into_iter()
            .all(|endpoint| endpoint["reason"] != "no result yet")
            .then_some(())
    });
}

fn compare(
    usher: &Usher,
    world: &mut World,
    config: &Config,
    triples: usize,
    tally: &mut BTreeMap<String, usize>,
) -> usize {
    let mut wire = usher.connect();
    // The first request only tells where the worker of this connection is in its draws.
    let mut state = drawn(&ask(&mut wire, "GET", "/", &BTreeMap::new()));
    let mut jar = Jar::default();
    let (mut agreed, mut void) = (0, 0);
    while agreed < triples {
        let (method, path, mut headers) = world.request();
        let visitor = world.chance.below(6);
        headers.insert("Cookie", jar.cookies(visitor));
        idle(usher);
        // One draw for the id of the next request, and then the one that decides it.
        state = state.wrapping_add(STEP.wrapping_mul(2));
        let seed = mix(state);
        let question = json!({
            "url": format!("http://{HOST}{path}"), "method": method, "headers": headers,
            "from": headers["X-Forwarded-For"], "seed": seed,
        });
        let told = result(&usher.api_post("/client/v4/usher/explain", &question));
        let answer = ask(&mut wire, method, path, &headers);
        let after = result(&usher.api_post("/client/v4/usher/explain", &question));
        assert_eq!(drawn(&answer), state, "the node draws as this test expects");
        jar.keep(visitor, &answer);
        if told["revision"] != after["revision"] {
            void += 1;
            assert!(void < 1000, "the node publishes all the time");
            continue;
        }
        let (expected, found) = (expected(&told), found(&answer));
        assert_eq!(
            found, expected,
            "seed {SEED:#x}: {method} {path} {headers:?}\n{told:#}\n{}",
            config.text()
        );
        *tally.entry(kind(&told)).or_default() += 1;
        agreed += 1;
    }
    agreed
}
