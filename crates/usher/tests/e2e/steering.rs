//! Which pool and endpoint a request reaches by place, by load, by address and by hand; and that
//! `explain` says of each what the running node does.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::support::api::{named, result};
use crate::support::config::HOST;
use crate::support::endpoint::{ok, origin_at, refusing};
use crate::support::{Config, Endpoint, Usher, Wire, eventually};

const URL: &str = "http://shop.example.com/";
/// Enough draws that five standard deviations are less than six hundredths.
const DRAWS: usize = 2000;

/// Three pools with one endpoint each that answers with the name of its pool.
fn three() -> ([Endpoint; 3], Config) {
    let endpoints = ["eu", "us", "last"].map(Endpoint::named);
    let [eu, us, last] = &endpoints;
    let config = Config::new()
        .pool("eu", [eu.origin("e")])
        .pool("us", [us.origin("u")])
        .pool("last", [last.origin("l")])
        .balancer(HOST, &["eu", "us"])
        .set(&["load_balancers", HOST, "fallback_pool"], json!("last"));
    (endpoints, config)
}

fn steered(config: Config, policy: &str) -> Config {
    config.set(&["load_balancers", HOST, "steering_policy"], json!(policy))
}

/// The node sends every request where `explain` says, with certainty, that it goes.
fn all_go_to(usher: &Usher, pool: &str) {
    let told = usher.explain(URL);
    assert_eq!(told["pool"], pool, "{told:#}");
    let mut wire = usher.connect();
    for _ in 0..20 {
        assert_eq!(wire.get(HOST, "/").text(), pool);
    }
}

fn chance(told: &Value, list: &str, name: &str) -> f64 {
    named(&told[list], name)["probability"].as_f64().unwrap()
}

/// How often each endpoint answered, by what it answers.
fn shares(usher: &Usher) -> BTreeMap<String, f64> {
    let mut wire = usher.connect();
    let mut shares = BTreeMap::new();
    for _ in 0..DRAWS {
        *shares.entry(wire.get(HOST, "/").text()).or_insert(0.0) += 1.0 / DRAWS as f64;
    }
    shares
}

/// Over many requests the shares are the chances that `explain` tells.
fn follows(usher: &Usher, list: &str, expected: &[(&str, f64)]) {
    let (told, shares) = (usher.explain(URL), shares(usher));
    for (name, expected) in expected {
        let told = chance(&told, list, name);
        assert!((told - expected).abs() < 1e-4, "{name}: {told} is told");
        let found = shares.get(*name).copied().unwrap_or(0.0);
        assert!((found - expected).abs() < 0.06, "{name}: {found} was found");
    }
}

#[test]
fn geo_goes_by_the_place_of_the_node() {
    let map =
        |config: Config, key: &str, value: Value| config.set(&["load_balancers", HOST, key], value);
    let (_endpoints, config) = three();
    // The empty policy acts as geo where there is a map.
    let config = map(config, "region_pools", json!({"WEU": ["us"], "OC": ["eu"]}));
    all_go_to(&Usher::start(&config), "us");
    let config = map(config, "country_pools", json!({"NL": ["eu"], "DE": ["us"]}));
    all_go_to(&Usher::start(&steered(config.clone(), "geo")), "eu");
    let config = map(config, "pop_pools", json!({"tst": ["us"]}));
    all_go_to(&Usher::start(&config), "us");
    // Exhausted: the fallback pool, though the default pools are usable.
    let config = config.set(&["pools", "us", "enabled"], json!(false));
    let usher = Usher::start(&config);
    all_go_to(&usher, "last");
    assert_eq!(usher.explain(URL)["fallback"], true);
}

#[test]
fn proximity_takes_the_nearest_pool() {
    let (_endpoints, config) = three();
    let at = |config: Config, pool: &str, latitude: f64, longitude: f64| {
        config
            .set(&["pools", pool, "latitude"], json!(latitude))
            .set(&["pools", pool, "longitude"], json!(longitude))
    };
    let config = at(steered(config, "proximity"), "eu", 50.1, 8.7);
    let config = at(config, "us", 37.4, -122.1);
    let node = |latitude: f64, longitude: f64| {
        config
            .clone()
            .set(&["node", "latitude"], json!(latitude))
            .set(&["node", "longitude"], json!(longitude))
    };
    all_go_to(&Usher::start(&node(52.31, 4.76)), "eu");
    let usher = Usher::start(&node(34.0, -118.2));
    all_go_to(&usher, "us");
    let far = named(&usher.explain(URL)["pools"], "eu")["distance_km"].as_f64();
    assert!(
        far.is_some_and(|far| (9_000.0..10_000.0).contains(&far)),
        "{far:?}"
    );
}

/// Holds every request for `/hold` and answers all others with its name.
fn holding(name: &'static str) -> Endpoint {
    Endpoint::scripted(move |visit| {
        while let Some(request) = visit.request() {
            if request.target() != "/hold" {
                visit.send(ok(name));
            }
        }
    })
}

/// Two endpoints, the first with three requests under way on three connections.
fn at_work(policy: &str) -> ([Endpoint; 2], Usher, Vec<Wire>) {
    let endpoints = [holding("busy"), Endpoint::named("free")];
    let [busy, free] = &endpoints;
    let config = Config::serving([busy.origin("busy"), free.origin("free")]).set(
        &["pools", "main", "origin_steering"],
        json!({"policy": policy}),
    );
    let off = config
        .clone()
        .set(&["pools", "main", "origins", "1", "enabled"], json!(false));
    let usher = Usher::start(&off);
    let held = (0..3).map(|_| {
        let mut wire = usher.connect();
        wire.send(format!("GET /hold HTTP/1.1\r\nHost: {HOST}\r\n\r\n"));
        busy.next();
        wire
    });
    let held = held.collect();
    usher.reload(&config);
    (endpoints, usher, held)
}

#[test]
fn least_outstanding_requests_spares_the_endpoint_that_is_at_work() {
    let (_endpoints, usher, _held) = at_work("least_outstanding_requests");
    // 1 / (3 + 1) against 1 / (0 + 1).
    follows(&usher, "endpoints", &[("busy", 0.2), ("free", 0.8)]);
    let told = usher.explain(URL);
    assert_eq!(named(&told["endpoints"], "busy")["open"], 3);
}

#[test]
fn least_connections_counts_connections_and_not_requests() {
    let (_endpoints, usher, held) = at_work("least_connections");
    let open = |name| {
        let state = usher.state();
        let found = named(&state["pools"][0]["endpoints"], name)["open_connections"].as_u64();
        found.unwrap() as f64
    };
    assert_eq!((open("busy"), open("free")), (3.0, 0.0));
    shares(&usher);
    // Idle ones count as well: the draws above left one at each endpoint.
    let told = usher.explain(URL);
    let [busy, free] = ["busy", "free"].map(|name| 1.0 / (open(name) + 1.0));
    assert!((chance(&told, "endpoints", "busy") - busy / (busy + free)).abs() < 1e-4);
    assert!(open("busy") >= 3.0 && open("free") >= 1.0);
    drop(held);
    eventually("connections to end", || (open("busy") <= 1.0).then_some(()));
}

#[test]
fn least_outstanding_requests_sums_up_pools() {
    let [busy, free] = [holding("eu"), Endpoint::named("us")];
    let config = Config::new()
        .pool("eu", [busy.origin("e")])
        .pool("us", [free.origin("u")])
        .balancer(HOST, &["eu", "us"])
        .set(
            &["load_balancers", HOST, "random_steering"],
            json!({"pool_weights": {"eu": 0.4, "us": 0.6}}),
        );
    let usher = Usher::start(&config);
    let held: Vec<Wire> = (0..3)
        .map(|_| {
            let mut wire = usher.connect();
            wire.send(format!("GET /hold HTTP/1.1\r\nHost: {HOST}\r\n\r\n"));
            busy.next();
            wire
        })
        .collect();
    usher.reload(&steered(config, "least_outstanding_requests"));
    // The example of the specification: .4 / 4 against .6.
    follows(&usher, "pools", &[("eu", 0.1 / 0.7), ("us", 0.6 / 0.7)]);
    drop(held);
}

#[test]
fn dynamic_latency_goes_by_probes() {
    let (_endpoints, config) = three();
    let usher = Usher::start(&steered(config.monitored("us"), "dynamic_latency"));
    // The first pool has no probes and so comes last.
    all_go_to(&usher, "us");
    let rtt = named(&usher.explain(URL)["pools"], "us")["rtt_ms"].as_f64();
    assert!(rtt.is_some_and(|rtt| rtt > 0.0), "{rtt:?}");
    let body = json!({"url": URL, "assume": ["rtt eu=20ms", "rtt us=45ms"]});
    let told = result(&usher.api_post("/client/v4/usher/explain", &body));
    assert_eq!(told["pool"], "eu");
    assert_eq!(named(&told["pools"], "us")["rtt_ms"], 45);
}

#[test]
fn hash_keeps_a_client_at_its_endpoint() {
    let endpoints = ["a", "b", "c"].map(Endpoint::named);
    let origins = ["a", "b", "c"].iter().zip(&endpoints);
    let config = Config::serving(origins.map(|(name, endpoint)| endpoint.origin(name)))
        .set(&["trusted_proxies"], json!(["127.0.0.0/8"]))
        .set(
            &["pools", "main", "origin_steering"],
            json!({"policy": "hash"}),
        );
    let usher = Usher::start(&config);
    let mut wire = usher.connect();
    let mut ask = |client: &str| {
        let head = format!("GET / HTTP/1.1\r\nHost: {HOST}\r\nX-Forwarded-For: {client}\r\n\r\n");
        wire.exchange(head).text()
    };
    let mut shares = BTreeMap::new();
    for last in 1..=250 {
        let client = format!("192.0.2.{last}");
        let found = ask(&client);
        assert_eq!(ask(&client), found, "{client}");
        if last % 50 == 0 {
            let body = json!({"url": URL, "from": client});
            let told = result(&usher.api_post("/client/v4/usher/explain", &body));
            assert_eq!(told["endpoint"]["name"], found.as_str());
            assert_eq!(chance(&told, "endpoints", &found), 1.0);
        }
        *shares.entry(found).or_insert(0) += 1;
    }
    assert!(
        shares.len() == 3 && shares.values().all(|&count| count > 40),
        "{shares:?}"
    );
}

#[test]
fn a_pool_sheds_its_part() {
    let (_endpoints, config) = three();
    let shed = |config: Config, pool: &str, percent: f64| {
        config.set(
            &["pools", pool, "load_shedding"],
            json!({"default_percent": percent}),
        )
    };
    let config = shed(config, "eu", 20.0);
    follows(&Usher::start(&config), "pools", &[("eu", 0.8), ("us", 0.2)]);
    let config = shed(shed(config, "eu", 50.0), "us", 50.0);
    let halves = [("eu", 0.5), ("us", 0.25), ("last", 0.25)];
    follows(&Usher::start(&config), "pools", &halves);
}

#[test]
fn pool_sets_replace_the_pools_by_place() {
    let (_endpoints, config) = three();
    let sets = |config: &Config, sets: Value| {
        config
            .clone()
            .set(&["load_balancers", HOST, "pool_sets"], sets)
    };
    let us = json!({"match": {"topology": {"countries": ["NL"]}}, "overrides": {"pools": ["us"]}});
    let elsewhere =
        json!({"match": {"topology": {"regions": ["OC"]}}, "overrides": {"pools": ["last"]}});
    all_go_to(&Usher::start(&sets(&config, json!([elsewhere, us]))), "us");
    all_go_to(&Usher::start(&sets(&config, json!([elsewhere]))), "eu");
    let own = json!([{
        "match": {"default": true},
        "overrides": {
            "pools": ["eu", "us"], "steering_policy": "random", "pool_default_weight": 0.2,
            "pool_weights": {"eu": 0.6}, "fallback_pool": "last",
        },
    }]);
    let usher = Usher::start(&sets(&config, own));
    follows(&usher, "pools", &[("eu", 0.75), ("us", 0.25)]);
}

#[test]
fn a_pool_set_may_answer_by_itself() {
    let (endpoints, config) = three();
    let answer = |response: Value| {
        let sets = json!([{"match": {"topology": {"pops": ["TST"]}}, "fixed_response": response}]);
        Usher::start(
            &config
                .clone()
                .set(&["load_balancers", HOST, "pool_sets"], sets),
        )
    };
    let usher = answer(json!({
        "status_code": 302, "content_type": "text/html", "message_body": "elsewhere",
        "location": "https://www.example.com/",
    }));
    let told = usher.explain(URL);
    assert_eq!(
        (&told["outcome"], &told["status"]),
        (&json!("respond"), &json!(302))
    );
    let mut wire = usher.connect();
    for _ in 0..2 {
        let found = wire.get(HOST, "/");
        assert_eq!((found.status(), found.text().as_str()), (302, "elsewhere"));
        assert_eq!(found.field("location"), Some("https://www.example.com/"));
        assert_eq!(found.field("content-type"), Some("text/html"));
    }
    let head = format!("HEAD / HTTP/1.1\r\nHost: {HOST}\r\n\r\n");
    wire.send(head);
    let found = wire.response_to("HEAD");
    assert_eq!(
        (found.status(), found.field("content-length")),
        (302, Some("9"))
    );
    assert_eq!(
        wire.get(HOST, "/").status(),
        302,
        "nothing of a body was sent"
    );
    let line = &usher.access_log(1)[0];
    assert_eq!(
        (&line["status"], &line["load_balancer"]),
        (&json!(302), &json!(HOST))
    );
    assert_eq!(
        (&line["pool"], &line["attempts"]),
        (&json!(null), &json!(0))
    );
    let bare = answer(json!({"status_code": 204, "message_body": "never seen"}));
    let mut wire = bare.connect();
    for _ in 0..2 {
        let found = wire.get(HOST, "/");
        assert_eq!((found.status(), found.field("content-length")), (204, None));
    }
    assert!(
        endpoints
            .iter()
            .all(|endpoint| endpoint.arrived().is_empty())
    );
}

#[test]
fn a_failed_connection_fails_over_to_another_pool_when_asked() {
    let us = Endpoint::named("us");
    let config = Config::new()
        .pool("eu", [origin_at("e", refusing())])
        .pool("us", [us.origin("u")])
        .balancer(HOST, &["eu", "us"]);
    assert_eq!(Usher::start(&config).get("/").status(), 521);
    let config = config.set(
        &["load_balancers", HOST, "adaptive_routing"],
        json!({"failover_across_pools": true}),
    );
    let usher = Usher::start(&config);
    let told = usher.explain(URL);
    assert_eq!(
        (&told["pool"], &told["retry"]["pool"]),
        (&json!("eu"), &json!("us"))
    );
    assert_eq!(usher.get("/").text(), "us");
    let line = &usher.access_log(1)[0];
    assert_eq!(
        (&line["pool"], &line["attempts"]),
        (&json!("us"), &json!(2))
    );
}
