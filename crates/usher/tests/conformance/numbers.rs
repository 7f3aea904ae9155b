//! The worked numbers of the specification (4.2, 4.9, 9): exact in what explain says, and near in
//! what really happens to very many requests.

use serde_json::{Value, json};

use crate::programs::{Nginx, h2load};
use crate::soak;
use crate::support::api::named;
use crate::support::config::HOST;
use crate::support::endpoint::{ok, origin_at, refusing};
use crate::support::{Config, Endpoint, Usher, eventually};

/// By how much a share of [`requests`] requests may differ from its probability. The draw is
/// random: this is eight standard deviations or more of the least number of requests.
fn tolerance() -> f64 {
    if soak() { 0.01 } else { 0.09 }
}

fn requests() -> u32 {
    if soak() { 200_000 } else { 2_000 }
}

const URL: &str = "http://shop.example.com/small";

/// Says what each share must be, asks explain, and then sends requests and counts.
fn follows(case: &str, usher: &Usher, level: &str, shares: &[(&str, f64)], clients: &str) {
    let told = usher.explain(URL);
    for (name, share) in shares {
        let probability = named(&told[level], name)["probability"].as_f64().unwrap();
        assert!(
            (probability - share).abs() < 0.000_05,
            "{case}: explain says {probability} of {name}, not {share}"
        );
    }
    let count = requests();
    h2load(usher, "http", count, clients, &["--h1"]);
    let label = level.trim_end_matches('s');
    let counted = |name: &str| {
        usher.metric(&format!(
            "usher_http_requests_total{{load_balancer=\"{HOST}\",{label}=\"{name}\",code=\"200\"}}"
        ))
    };
    let total = f64::from(requests());
    let all = || shares.iter().map(|(name, _)| counted(name)).sum::<f64>();
    eventually("every request to be counted", || {
        (all() >= total).then_some(())
    });
    let mut line = format!("{case}: {count} requests:");
    for (name, share) in shares {
        let found = counted(name) / total;
        line.push_str(&format!(" {name} {found:.4} of {share:.4},"));
        assert!(
            (found - share).abs() < tolerance(),
            "{case}: {name} got {found}, not {share}"
        );
    }
    println!("{}", line.trim_end_matches(','));
}

fn weighted(mut origin: Value, weight: f64) -> Value {
    origin["weight"] = json!(weight);
    origin
}

/// A load balancer that draws between pools of these weights, one endpoint each.
fn pools(nginx: &Nginx, weights: &[(&str, f64)]) -> Config {
    let names: Vec<&str> = weights.iter().map(|(name, _)| *name).collect();
    let weights: Value = weights
        .iter()
        .map(|(name, weight)| ((*name).to_owned(), json!(weight)))
        .collect::<serde_json::Map<_, _>>()
        .into();
    let config = names.iter().fold(Config::new(), |config, name| {
        config.pool(name, [nginx.origin("only")])
    });
    config
        .balancer(HOST, &names)
        .set(
            &["load_balancers", HOST, "steering_policy"],
            json!("random"),
        )
        .set(
            &["load_balancers", HOST, "random_steering"],
            json!({"pool_weights": weights}),
        )
}

#[test]
fn weights_of_pools() {
    let nginx = Nginx::start();
    for (case, weights, shares) in [
        (
            "pools of 4, 5, 6 endpoints",
            [0.4, 0.5, 0.6],
            [0.2667, 0.3333, 0.4],
        ),
        (
            "double capacity in the first",
            [0.8, 0.5, 0.6],
            [0.4211, 0.2632, 0.3158],
        ),
        (
            "pools of equal weight",
            [0.7, 0.7, 0.7],
            [0.3333, 0.3333, 0.3333],
        ),
    ] {
        let names = ["one", "two", "three"];
        let pair = |numbers: [f64; 3]| [0, 1, 2].map(|i| (names[i], numbers[i]));
        let usher = Usher::start(&pools(&nginx, &pair(weights)));
        follows(case, &usher, "pools", &pair(shares), "8");
    }
}

#[test]
fn weights_of_endpoints() {
    let nginx = [Nginx::start(), Nginx::start(), Nginx::start()];
    let names = ["a", "b", "c"];
    let config = |weights: [f64; 3]| {
        Config::serving([0, 1, 2].map(|i| weighted(nginx[i].origin(names[i]), weights[i])))
    };
    for (case, weights, shares) in [
        ("equal endpoints of weight 1", [1.0; 3], [0.3333; 3]),
        ("equal endpoints of weight .1", [0.1; 3], [0.3333; 3]),
        (
            "a quarter, a quarter, a half",
            [0.25, 0.25, 0.5],
            [0.25, 0.25, 0.5],
        ),
    ] {
        let usher = Usher::start(&config(weights));
        let shares = [0, 1, 2].map(|i| (names[i], shares[i]));
        follows(case, &usher, "endpoints", &shares, "8");
    }
    let half_down = [
        weighted(nginx[0].origin("a"), 0.25),
        weighted(nginx[1].origin("b"), 0.25),
        weighted(origin_at("c", refusing()), 0.5),
    ];
    let usher = Usher::start(&Config::serving(half_down).monitored("main"));
    let shares = [("a", 0.5), ("b", 0.5)];
    follows("the half is down", &usher, "endpoints", &shares, "8");
}

#[test]
fn open_requests_lower_the_weight() {
    // The held requests are WebSockets in all but name: answered never, counted always.
    let held = Endpoint::scripted(|visit| {
        while let Some(request) = visit.wire.request() {
            if request.target() == "/hold" {
                visit.wire.rest();
                return;
            }
            visit.send(ok("a"));
        }
    });
    let nginx = Nginx::start();
    let config = pools(&nginx, &[("a", 0.4), ("b", 0.6)])
        .pool("a", [held.origin("only")])
        .balancer("held.example.com", &["a"])
        .set(
            &["load_balancers", HOST, "steering_policy"],
            json!("least_outstanding_requests"),
        );
    let usher = Usher::start(&config);
    let holding: Vec<_> = (0..3)
        .map(|_| {
            let mut wire = usher.connect();
            wire.send("GET /hold HTTP/1.1\r\nHost: held.example.com\r\n\r\n");
            wire
        })
        .collect();
    eventually("three open requests", || {
        let state = usher.state();
        let pool = named(&state["pools"], "a");
        (named(&pool["endpoints"], "only")["open_requests"] == 3).then_some(())
    });
    // One client that asks one thing after the other, so that nothing else is open.
    let shares = [("a", 0.1429), ("b", 0.8571)];
    follows("3 open beside 0", &usher, "pools", &shares, "1");
    drop(holding);
}

#[test]
fn shedding_pushes_requests_on() {
    let nginx = Nginx::start();
    let config = |shed: &[(&str, f64)]| {
        let basis = ["a", "b", "last"]
            .iter()
            .fold(Config::new(), |config, name| {
                config.pool(name, [nginx.origin("only")])
            })
            .balancer(HOST, &["a", "b"])
            .set(&["load_balancers", HOST, "fallback_pool"], json!("last"));
        shed.iter().fold(basis, |config, (pool, percent)| {
            config.set(
                &["pools", pool, "load_shedding"],
                json!({"default_percent": percent, "default_policy": "random"}),
            )
        })
    };
    let usher = Usher::start(&config(&[("a", 20.0)]));
    follows(
        "a sheds 20 %",
        &usher,
        "pools",
        &[("a", 0.8), ("b", 0.2)],
        "8",
    );
    let usher = Usher::start(&config(&[("a", 50.0), ("b", 50.0)]));
    let halves = [("a", 0.5), ("b", 0.25), ("last", 0.25)];
    follows("both shed 50 %", &usher, "pools", &halves, "8");
}
