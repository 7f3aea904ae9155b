//! Health as traffic feels it: probes decide, and only they.

use std::time::{Duration, Instant};

use serde_json::json;

use crate::support::config::HOST;
use crate::support::endpoint::{PROBE_PATH, ok, origin_at, refusing};
use crate::support::{Config, Endpoint, Usher, eventually};

/// The interval of [`Config::monitored`].
const INTERVAL: Duration = Duration::from_secs(2);

#[test]
fn ready_means_that_every_monitored_endpoint_has_its_verdict() {
    let [a, b] = ["a", "b"].map(Endpoint::named);
    b.set_healthy(false);
    let usher = Usher::start(&Config::serving([a.origin("a"), b.origin("b")]).monitored("main"));
    assert!(a.probes() >= 1 && b.probes() >= 1);
    assert_eq!(usher.state_of("main/a"), "healthy");
    assert_eq!(usher.state_of("main/b"), "critical");
    assert_eq!(usher.state_of("main"), "degraded");
    for _ in 0..50 {
        assert_eq!(usher.get("/").text(), "a");
    }
}

#[test]
fn an_endpoint_goes_down_and_comes_back_with_its_probes() {
    let [a, b] = ["a", "b"].map(Endpoint::named);
    let usher = Usher::start(&Config::serving([a.origin("a"), b.origin("b")]).monitored("main"));
    b.set_healthy(false);
    eventually("b to be down", || {
        (usher.state_of("main/b") == "critical").then_some(())
    });
    let mut wire = usher.connect();
    for _ in 0..50 {
        assert_eq!(wire.get(HOST, "/").text(), "a");
    }
    b.set_healthy(true);
    eventually("b to be up", || {
        (usher.state_of("main/b") == "healthy").then_some(())
    });
    let back = (0..200)
        .filter(|_| wire.get(HOST, "/").text() == "b")
        .count();
    assert!(
        back > 50,
        "its share returns with its health: {back} of 200"
    );
}

#[test]
fn an_endpoint_that_dies_under_load_fails_no_request_after_its_detection() {
    let [a, b] = ["a", "b"].map(Endpoint::named);
    let usher = Usher::start(&Config::serving([a.origin("a"), b.origin("b")]).monitored("main"));
    let address = b.address();
    drop(b);
    let mut wire = usher.connect();
    // Until it is detected a refused connection is tried elsewhere, so nothing fails even now.
    while usher.state_of("main/b") != "critical" {
        assert_eq!(wire.get(HOST, "/").text(), "a");
    }
    for _ in 0..200 {
        assert_eq!(wire.get(HOST, "/after").text(), "a");
    }
    let after = |lines: &[serde_json::Value]| {
        lines
            .iter()
            .filter(|line| line["path"] == "/after" && line["attempts"] == 1)
            .count()
    };
    eventually("200 requests that met a refusal no more", || {
        (after(&usher.access_log(200)) == 200).then_some(())
    });
    let _b = Endpoint::named_on(address, "b");
    eventually("traffic to come back", || {
        (wire.get(HOST, "/").text() == "b").then_some(())
    });
}

#[test]
fn a_pool_without_health_is_left_for_the_next_and_taken_again() {
    let [eu, us] = ["eu", "us"].map(Endpoint::named);
    eu.set_healthy(false);
    let config = Config::new()
        .pool("eu", [eu.origin("e")])
        .pool("us", [us.origin("u")])
        .balancer(HOST, &["eu", "us"])
        .monitored("eu")
        .monitored("us");
    let usher = Usher::start(&config);
    assert_eq!(usher.get("/").text(), "us");
    assert_eq!(usher.state_of("eu"), "critical");
    eu.set_healthy(true);
    eventually("failback", || (usher.get("/").text() == "eu").then_some(()));
}

#[test]
fn the_fallback_pool_serves_whatever_its_health() {
    let a = Endpoint::named("a");
    a.set_healthy(false);
    let usher = Usher::start(&Config::serving([a.origin("a")]).monitored("main"));
    assert_eq!(usher.state_of("main"), "critical");
    assert_eq!(usher.get("/").text(), "a");
}

#[test]
fn the_threshold_of_a_pool_counts_enabled_endpoints() {
    let [a, b] = ["a", "b"].map(Endpoint::named);
    let mut disabled = b.origin("b");
    disabled["enabled"] = json!(false);
    let config = Config::serving([a.origin("a"), disabled])
        .monitored("main")
        .set(&["pools", "main", "minimum_origins"], json!(2));
    let usher = Usher::start(&config);
    assert_eq!(usher.state_of("main"), "critical");
    assert_eq!(usher.state_of("main/b"), "disabled");
    assert_eq!(b.probes(), 0, "a disabled endpoint is not probed");
}

#[test]
fn a_monitor_on_another_port_speaks_for_that_port() {
    let traffic = Endpoint::answering(ok("traffic"));
    let checked = Endpoint::named("checked");
    let port = json!(checked.address().port());
    let config = Config::serving([traffic.origin("a")])
        .monitored("main")
        .set(&["monitors", "web", "port"], port);
    let usher = Usher::start(&config);
    assert_eq!(usher.state_of("main/a"), "healthy");
    assert!(
        traffic.arrived().is_empty(),
        "the traffic port is not probed"
    );
    checked.set_healthy(false);
    eventually("the state to follow", || {
        (usher.state_of("main/a") == "critical").then_some(())
    });
    checked.set_healthy(true);
    eventually("the state to follow", || {
        (usher.state_of("main/a") == "healthy").then_some(())
    });
}

#[test]
fn pools_that_share_a_monitor_do_not_flood_an_endpoint() {
    let a = Endpoint::named("a");
    let config = ["one", "two", "three"]
        .iter()
        .fold(Config::new(), |config, pool| {
            config.pool(pool, [a.origin("a")]).monitored(pool)
        });
    let began = Instant::now();
    let _usher = Usher::start(&config.balancer(HOST, &["one", "two", "three"]));
    a.wait_probes(6);
    // One node is one prober: a probe for each pool at once, then one for each in an interval.
    let intervals = began.elapsed().as_secs_f64() / INTERVAL.as_secs_f64();
    let allowed = 3.0 * (intervals + 2.0);
    assert!(
        a.probes() as f64 <= allowed,
        "{} probes in {intervals} intervals",
        a.probes()
    );
}

#[test]
fn a_probe_is_what_the_monitor_says() {
    let probed = Endpoint::answering(ok("all systems GO"));
    let config = Config::serving([probed.origin("a")]).monitored("main").set(
        &["monitors", "web"],
        json!({
            "type": "http", "path": "/deep?check=1", "method": "GET", "interval": 2, "timeout": 1,
            "retries": 0, "header": {"Host": ["probe.example.com"], "X-Probe": ["1"]},
            "expected_codes": "2xx", "expected_body": "systems go",
        }),
    );
    let usher = Usher::start(&config);
    assert_eq!(usher.state_of("main/a"), "healthy");
    let probe = probed.next();
    assert_eq!(probe.start, "GET /deep?check=1 HTTP/1.1");
    assert_eq!(probe.field("host"), Some("probe.example.com"));
    assert_eq!(probe.field("x-probe"), Some("1"));
    assert!(
        probe
            .field("user-agent")
            .unwrap()
            .contains("Usher-Health/1.0")
    );
}

#[test]
fn each_way_to_fail_has_its_reason() {
    let answers = |answer: &'static str| Endpoint::answering(answer);
    let wrong_code = answers("HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n");
    let wrong_body = answers("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nfine");
    let garbage = answers("nonsense\r\n\r\n");
    let silent = Endpoint::silent();
    let cases = [
        (
            "code",
            wrong_code.origin("code"),
            "Response code mismatch error",
        ),
        (
            "body",
            wrong_body.origin("body"),
            "Response body mismatch error",
        ),
        (
            "garbage",
            garbage.origin("garbage"),
            "HTTP invalid response",
        ),
        ("silent", silent.origin("silent"), "HTTP timeout occurred"),
        (
            "dead",
            origin_at("dead", refusing()),
            "TCP connection failed",
        ),
    ];
    let config = Config::serving(cases.iter().map(|case| case.1.clone()))
        .monitored("main")
        .set(&["monitors", "web", "expected_body"], json!("healthy"));
    let usher = Usher::start(&config);
    let state = usher.state();
    for (name, _, reason) in cases {
        let pool = crate::support::api::named(&state["pools"], "main");
        let endpoint = crate::support::api::named(&pool["endpoints"], name);
        assert_eq!(
            (&endpoint["state"], &endpoint["reason"]),
            (&json!("critical"), &json!(reason)),
            "{name}"
        );
    }
}

#[test]
fn a_connection_is_all_that_a_tcp_monitor_wants() {
    let silent = Endpoint::silent();
    let config = Config::serving([silent.origin("up"), origin_at("down", refusing())])
        .monitored("main")
        .set(
            &["monitors", "web"],
            json!({"type": "tcp", "port": silent.address().port(), "interval": 2, "timeout": 1, "retries": 0}),
        );
    let usher = Usher::start(&config);
    assert_eq!(usher.state_of("main/up"), "healthy");
    assert_eq!(usher.state_of("main/down"), "critical");
}

#[test]
fn a_verdict_needs_as_many_results_as_the_monitor_says() {
    let [a, b] = ["a", "b"].map(Endpoint::named);
    let config = Config::serving([a.origin("a"), b.origin("b")])
        .monitored("main")
        .set(&["monitors", "web", "consecutive_down"], json!(2));
    let usher = Usher::start(&config);
    a.set_healthy(false);
    let before = a.probes();
    eventually("a to be down", || {
        (usher.state_of("main/a") == "critical").then_some(())
    });
    assert!(a.probes() >= before + 2, "one failure is not enough");
}

#[test]
fn a_reload_keeps_the_verdicts_of_what_it_leaves_alone() {
    let [a, b] = ["a", "b"].map(Endpoint::named);
    let config = Config::serving([a.origin("a")]).monitored("main");
    let usher = Usher::start(&config);
    let mut wire = usher.connect();
    let probes = a.probes();
    let more = config
        .pool("second", [b.origin("b")])
        .balancer("other.example.com", &["second"]);
    usher.reload(&more);
    assert_eq!(
        usher.state_of("main/a"),
        "healthy",
        "not unknown until the next probe"
    );
    assert_eq!(wire.get(HOST, "/").text(), "a");
    assert!(
        a.probes() <= probes + 1,
        "a reload is no reason to probe again"
    );
}

#[test]
fn a_monitor_that_is_taken_away_stops_probing() {
    let a = Endpoint::named("a");
    let bystander = Endpoint::named("b");
    let config = Config::serving([a.origin("a")])
        .monitored("main")
        .pool("other", [bystander.origin("b")])
        .monitored("other")
        .balancer("other.example.com", &["other"]);
    let usher = Usher::start(&config);
    usher.reload(&config.set(&["pools", "main", "monitor"], json!("")));
    let before = a.probes();
    bystander.wait_probes(2); // more than an interval goes by
    assert!(
        a.probes() <= before + 1,
        "one probe may have been on its way"
    );
    assert_eq!(usher.state_of("main"), "unknown");
    assert_eq!(usher.get("/").text(), "a", "no monitor: traffic at once");
}

#[test]
fn probes_are_not_requests() {
    let a = Endpoint::named("a");
    let usher = Usher::start(&Config::serving([a.origin("a")]).monitored("main"));
    a.wait_probes(1);
    assert_eq!(usher.get("/only").status(), 200);
    let lines = usher.access_log(1);
    assert!(
        lines.iter().all(|line| line["path"] != PROBE_PATH),
        "{lines:?}"
    );
}
