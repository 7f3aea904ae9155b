//! Metrics and the two answers for orchestrators.

use crate::support::config::{HOST, TOKEN};
use crate::support::endpoint::{origin_at, refusing};
use crate::support::{Config, Endpoint, Usher};

#[test]
fn requests_are_counted_by_where_they_went_and_how_they_ended() {
    let endpoint = Endpoint::named("a");
    let config = Config::serving([endpoint.origin("a")])
        .pool("dead", [origin_at("d", refusing())])
        .balancer("dead.example.com", &["dead"]);
    let usher = Usher::start(&config);
    let mut wire = usher.connect();
    for _ in 0..7 {
        wire.get(HOST, "/");
    }
    wire.get("dead.example.com", "/");
    wire.get("unknown.example.net", "/");
    for (labels, count) in [
        (
            "load_balancer=\"shop.example.com\",pool=\"main\",endpoint=\"a\",code=\"200\"",
            7.0,
        ),
        (
            "load_balancer=\"dead.example.com\",pool=\"dead\",code=\"521\"",
            1.0,
        ),
        ("code=\"404\"", 1.0),
    ] {
        usher.expect_metric(&format!("usher_http_requests_total{{{labels}}}"), count);
    }
    usher.expect_metric("usher_http_request_seconds_count", 9.0);
    usher.expect_metric("usher_http_in_flight", 0.0);
}

#[test]
fn unknown_hosts_do_not_become_series() {
    let endpoint = Endpoint::named("a");
    let usher = Usher::start(&Config::serving([endpoint.origin("a")]));
    let mut wire = usher.connect();
    for n in 0..100 {
        wire.get(&format!("host{n}.example.net"), "/");
    }
    usher.expect_metric("usher_http_requests_total", 100.0);
    assert!(!usher.metrics().contains("host7.example.net"));
}

#[test]
fn an_endpoint_is_up_or_down() {
    let [up, down] = ["up", "down"].map(Endpoint::named);
    down.set_healthy(false);
    let config = Config::serving([up.origin("up"), down.origin("down")]).monitored("main");
    let usher = Usher::start(&config);
    for (name, value) in [("up", 1.0), ("down", 0.0)] {
        usher.expect_metric(
            &format!("usher_endpoint_up{{pool=\"main\",endpoint=\"{name}\"}}"),
            value,
        );
    }
    assert!(
        usher.metrics().contains("endpoint=\"down\""),
        "0 is said, not left out"
    );
}

#[test]
fn everything_promised_is_there_from_the_start() {
    let endpoint = Endpoint::named("a");
    let usher = Usher::start(&Config::serving([endpoint.origin("a")]));
    usher.get("/");
    usher.expect_metric("usher_http_requests_total", 1.0);
    let metrics = usher.metrics();
    assert!(
        metrics.contains("le=\"+Inf\""),
        "the last class of a histogram"
    );
    for name in [
        "usher_http_requests_total",
        "usher_http_request_seconds_bucket",
        "usher_http_in_flight",
        "usher_endpoint_up",
        "usher_failovers_total",
        "usher_retries_denied_total",
        "usher_config_reloads_total",
    ] {
        assert!(metrics.contains(name), "{name} is missing in\n{metrics}");
    }
}

#[test]
fn the_api_wants_its_token_and_the_orchestrator_none() {
    let usher = Usher::start(&Config::new());
    for path in ["/healthz", "/readyz", "/metrics"] {
        assert_eq!(
            usher.api(&format!("GET {path} HTTP/1.1\r\n"), "").status(),
            200,
            "{path}"
        );
    }
    let state = "GET /client/v4/usher/state HTTP/1.1\r\n";
    let none = usher.api(state, "");
    assert_eq!(none.status(), 400);
    assert!(none.text().contains("6003"), "{none:?}");
    let wrong = usher.api(&format!("{state}Authorization: Bearer {TOKEN}x\r\n"), "");
    assert_eq!(wrong.status(), 403);
    assert!(wrong.text().contains("10000"), "{wrong:?}");
    assert_eq!(usher.state()["node"], "test1");
}

#[test]
fn the_state_is_what_is_configured_and_seen() {
    let endpoint = Endpoint::named("a");
    let usher = Usher::start(&Config::serving([endpoint.origin("a")]));
    let state = usher.state();
    assert_eq!(state["load_balancers"][0]["name"], HOST);
    assert_eq!(
        state["load_balancers"][0]["pools"],
        serde_json::json!(["main"])
    );
    let pool = &state["pools"][0];
    assert_eq!(
        (&pool["name"], &pool["state"]),
        (&"main".into(), &"unknown".into())
    );
    let shown = &pool["endpoints"][0];
    assert_eq!((&shown["name"], &shown["weight"]), (&"a".into(), &1.into()));
    assert_eq!(shown["port"], endpoint.address().port());
    for section in ["rooms", "browsers"] {
        assert_eq!(state[section], serde_json::json!([]));
    }
    assert!(state["uptime_seconds"].is_number() && state["version"].is_string());
}
