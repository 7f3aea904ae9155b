//! Which endpoint a request reaches: hosts, weights at both levels, the fallback pool.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::support::config::HOST;
use crate::support::{Config, Endpoint, Usher};

/// Enough draws that five standard deviations are less than six hundredths.
const DRAWS: usize = 2000;

#[test]
fn a_request_reaches_the_endpoint_and_its_answer_the_client() {
    let endpoint = Endpoint::named("a");
    let usher = Usher::start(&Config::serving([endpoint.origin("a")]));
    let answer = usher.get("/some/path?and=query");
    assert_eq!((answer.status(), answer.text().as_str()), (200, "a"));
    let arrived = endpoint.next();
    assert_eq!(arrived.start, "GET /some/path?and=query HTTP/1.1");
    assert_eq!(arrived.field("host"), Some(HOST));
}

#[test]
fn endpoints_get_their_weights() {
    let [a, b, c] = ["a", "b", "c"].map(Endpoint::named);
    let usher = Usher::start(&Config::serving([
        weighted(&a, "a", 0.25),
        weighted(&b, "b", 0.25),
        weighted(&c, "c", 0.5),
    ]));
    let shares = shares(&usher);
    assert_near(&shares, "a", 0.25);
    assert_near(&shares, "b", 0.25);
    assert_near(&shares, "c", 0.5);
}

#[test]
fn pools_get_their_weights() {
    let [eu, us] = ["eu", "us"].map(Endpoint::named);
    let config = two_pools(&eu, &us)
        .set(
            &["load_balancers", HOST, "steering_policy"],
            json!("random"),
        )
        .set(
            &["load_balancers", HOST, "random_steering"],
            json!({"pool_weights": {"eu": 0.8, "us": 0.2}}),
        );
    let shares = shares(&Usher::start(&config));
    assert_near(&shares, "eu", 0.8);
    assert_near(&shares, "us", 0.2);
}

#[test]
fn failover_order_sends_everything_to_the_first_pool() {
    let [eu, us] = ["eu", "us"].map(Endpoint::named);
    let usher = Usher::start(&two_pools(&eu, &us));
    assert_eq!(shares(&usher), BTreeMap::from([("eu".to_owned(), DRAWS)]));
}

#[test]
fn weight_zero_and_disabled_endpoints_get_nothing() {
    let [a, b, c] = ["a", "b", "c"].map(Endpoint::named);
    let mut disabled = c.origin("c");
    disabled["enabled"] = json!(false);
    let usher = Usher::start(&Config::serving([
        a.origin("a"),
        weighted(&b, "b", 0.0),
        disabled,
    ]));
    assert_eq!(shares(&usher), BTreeMap::from([("a".to_owned(), DRAWS)]));
}

#[test]
fn a_disabled_pool_is_passed_over() {
    let [eu, us] = ["eu", "us"].map(Endpoint::named);
    let usher = Usher::start(&two_pools(&eu, &us).set(&["pools", "eu", "enabled"], json!(false)));
    assert_eq!(usher.get("/").text(), "us");
}

#[test]
fn a_pool_whose_endpoints_all_weigh_nothing_is_passed_over() {
    let [eu, us] = ["eu", "us"].map(Endpoint::named);
    let config = two_pools(&eu, &us).set(&["pools", "eu", "origins", "0", "weight"], json!(0));
    assert_eq!(Usher::start(&config).get("/").text(), "us");
}

#[test]
fn in_the_fallback_pool_weights_of_zero_are_equal_shares() {
    let [a, b] = ["a", "b"].map(Endpoint::named);
    let usher = Usher::start(&Config::serving([
        weighted(&a, "a", 0.0),
        weighted(&b, "b", 0.0),
    ]));
    let shares = shares(&usher);
    assert_near(&shares, "a", 0.5);
    assert_near(&shares, "b", 0.5);
}

#[test]
fn nothing_usable_is_530_with_1016() {
    let [eu, us] = ["eu", "us"].map(Endpoint::named);
    let config = two_pools(&eu, &us)
        .set(&["pools", "eu", "enabled"], json!(false))
        .set(&["pools", "us", "enabled"], json!(false));
    let answer = Usher::start(&config).get("/");
    assert_eq!(answer.status(), 530);
    assert!(answer.text().contains("1016"), "{answer:?}");
}

#[test]
fn hosts_are_matched_without_case_and_port_and_exact_before_wildcard() {
    let [exact, wild] = ["exact", "wild"].map(Endpoint::named);
    let config = Config::new()
        .pool("exact", [exact.origin("e")])
        .pool("wild", [wild.origin("w")])
        .balancer(HOST, &["exact"])
        .balancer("*.example.com", &["wild"]);
    let usher = Usher::start(&config);
    let mut wire = usher.connect();
    for (host, expected) in [
        (HOST, "exact"),
        ("SHOP.Example.COM", "exact"),
        ("shop.example.com:8080", "exact"),
        ("other.example.com", "wild"),
    ] {
        assert_eq!(wire.get(host, "/").text(), expected, "{host}");
    }
}

#[test]
fn a_host_of_no_balancer_or_of_a_disabled_one_is_404_and_keeps_the_connection() {
    let endpoint = Endpoint::named("a");
    let config = Config::serving([endpoint.origin("a")])
        .balancer("off.example.com", &["main"])
        .set(
            &["load_balancers", "off.example.com", "enabled"],
            json!(false),
        );
    let usher = Usher::start(&config);
    let mut wire = usher.connect();
    for host in ["unknown.example.net", "off.example.com", "192.0.2.7"] {
        assert_eq!(wire.get(host, "/").status(), 404, "{host}");
    }
    assert_eq!(wire.get(HOST, "/").status(), 200);
    assert_eq!(endpoint.arrived().len(), 1);
}

#[test]
fn an_endpoint_may_have_a_host_of_its_own() {
    let endpoint = Endpoint::named("a");
    let mut origin = endpoint.origin("a");
    origin["header"] = json!({"Host": ["inner.example.net"]});
    let usher = Usher::start(&Config::serving([origin]));
    assert_eq!(usher.get("/").status(), 200);
    let arrived = endpoint.next();
    assert_eq!(arrived.field("host"), Some("inner.example.net"));
    assert_eq!(arrived.field("x-forwarded-host"), Some(HOST));
}

#[test]
fn an_endpoint_may_be_a_name() {
    let endpoint = Endpoint::named("a");
    let mut origin = endpoint.origin("a");
    origin["address"] = json!("localhost");
    assert_eq!(
        Usher::start(&Config::serving([origin])).get("/").text(),
        "a"
    );
}

fn two_pools(eu: &Endpoint, us: &Endpoint) -> Config {
    Config::new()
        .pool("eu", [eu.origin("e")])
        .pool("us", [us.origin("u")])
        .balancer(HOST, &["eu", "us"])
}

fn weighted(endpoint: &Endpoint, name: &str, weight: f64) -> Value {
    let mut origin = endpoint.origin(name);
    origin["weight"] = json!(weight);
    origin
}

/// How often each endpoint answered, by its name.
fn shares(usher: &Usher) -> BTreeMap<String, usize> {
    let mut wire = usher.connect();
    let mut shares = BTreeMap::new();
    for _ in 0..DRAWS {
        *shares.entry(wire.get(HOST, "/").text()).or_default() += 1;
    }
    shares
}

fn assert_near(shares: &BTreeMap<String, usize>, name: &str, expected: f64) {
    let found = shares.get(name).copied().unwrap_or(0) as f64 / DRAWS as f64;
    assert!(
        (found - expected).abs() < 0.06,
        "{name}: {found} instead of {expected}"
    );
}
