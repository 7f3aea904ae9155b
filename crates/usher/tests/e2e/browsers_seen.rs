//! Browsers as an operator sees them: state, table, metrics, readiness, log.

use serde_json::{Value, json};

use crate::support::browsers::PATIENCE_OF_BROWSERS;
use crate::support::config::TOKEN;
use crate::support::{Config, Usher, eventually, eventually_within};

fn region(usher: &Usher) -> Value {
    usher.state()["browsers"][0].clone()
}

#[test]
fn a_session_is_seen_from_its_beginning_to_its_end() {
    let usher = Usher::start(&Config::new().browsers());
    let Some(session) = usher.acquire() else {
        return;
    };
    eventually("the session in the state", || {
        (region(&usher)["sessions"] == json!({"default": 1})).then_some(())
    });
    let seen = region(&usher);
    for (key, value) in [
        ("region", json!("WEU")),
        ("backend", json!("sandbox")),
        ("insecure_single_tenant", json!(false)),
        ("in_use", json!(1)),
        ("max", json!(2)),
        ("trouble", Value::Null),
    ] {
        assert_eq!(seen[key], value, "{key}: {seen}");
    }
    assert_eq!(seen["host"]["state"], "running", "{seen}");
    let api = format!("http://{}", usher.address("api"));
    let table = usher
        .folder()
        .run(&["status", "--token", TOKEN, "--api", &api]);
    let row = table.stdout.lines().find(|line| line.starts_with("WEU"));
    let row = row.unwrap_or_else(|| panic!("{table:?}"));
    assert!(
        row.contains("running") && row.ends_with("default 1"),
        "{row}"
    );

    let count = |state: &str| format!("usher_browser_count{{region=\"WEU\",state=\"{state}\"}}");
    usher.expect_metric(&count("in_use"), 1.0);
    usher.expect_metric("usher_browser_up{region=\"WEU\"}", 1.0);
    let acquired = ["ready", "cold"].map(|from| {
        let labels = format!("region=\"WEU\",from=\"{from}\"");
        usher.metric(&format!("usher_browser_acquire_seconds_count{{{labels}}}"))
    });
    assert_eq!(acquired.iter().sum::<f64>(), 1.0, "{acquired:?}");
    usher.expect_metric(
        "usher_browser_sessions{region=\"WEU\",account=\"default\"}",
        1.0,
    );
    let part = usher.api_get("/readyz?part=browsers");
    assert_eq!((part.status(), part.text().as_str()), (200, "ready\n"));

    let mut browser = usher.devtools(&session);
    browser.version();
    usher.expect_metric("usher_browser_clients", 1.0);
    let bytes = "usher_browser_cdp_bytes_total{direction=\"from_browser\"}";
    assert!(usher.metric(bytes) > 0.0);
    let closed = usher.binding(&format!("DELETE /devtools/browser/{session}"));
    assert_eq!(closed.status(), 200);
    // A moment later: its browser has to be gone first.
    let line = eventually_within("a line for the session", PATIENCE_OF_BROWSERS, || {
        let log = usher.stderr();
        let mut lines = log.lines();
        let line = lines.find(|line| line.contains("a session has ended"));
        line.map(str::to_owned)
    });
    for word in [
        format!("session=\"{session}\""),
        "account=\"default\"".to_owned(),
        "region=\"WEU\"".to_owned(),
        "reason=\"NormalClosure\"".to_owned(),
        "commands=".to_owned(),
        "peak_mib=".to_owned(),
        "cpu_seconds=".to_owned(),
    ] {
        assert!(line.contains(&word), "{word}: {line}");
    }
    usher.expect_metric(
        "usher_browser_sessions_ended_total{region=\"WEU\",reason=\"NormalClosure\"}",
        1.0,
    );
    eventually("what the host counted", || {
        let ended = "usher_browser_ended_total{region=\"WEU\",reason=\"NormalClosure\"}";
        (usher.metric(ended) == 1.0).then_some(())
    });
    assert!(usher.metric("usher_browser_launches_total{region=\"WEU\"}") >= 1.0);
    usher.expect_metric("usher_browser_leaked_total{region=\"WEU\"}", 0.0);
}

#[test]
fn a_node_without_a_browser_is_ready_and_says_why_there_is_none() {
    let config = Config::new()
        .browsers()
        .set(&["browsers", "chromium"], json!("/nowhere/chromium"));
    let usher = Usher::start(&config);
    let why = "this machine has no program /nowhere/chromium: correct browsers.chromium";
    eventually("the reason in the state", || {
        let trouble = region(&usher)["trouble"].clone();
        trouble.as_str()?.contains(why).then_some(())
    });
    assert_eq!(region(&usher)["host"]["state"], "missing");
    let ready = usher.api_get("/readyz");
    assert_eq!(ready.status(), 200);
    assert!(
        ready.text().starts_with("ready\nbrowsers WEU: "),
        "{ready:?}"
    );
    assert!(ready.text().contains(why), "{ready:?}");
    let part = usher.api_get("/readyz?part=browsers");
    assert_eq!(part.status(), 503);
    assert!(part.text().contains(why), "{part:?}");
    usher.expect_metric("usher_browser_up{region=\"WEU\"}", 0.0);
    let api = format!("http://{}", usher.address("api"));
    let table = usher
        .folder()
        .run(&["status", "--token", TOKEN, "--api", &api]);
    assert!(
        table.stdout.contains("missing") && table.stdout.contains(why),
        "{table:?}"
    );
}

#[test]
fn a_node_that_is_to_have_none_is_not_ready_for_browsers() {
    let usher = Usher::start(&Config::new());
    assert_eq!(usher.state()["browsers"], json!([]));
    assert_eq!(usher.api_get("/readyz").text(), "ready\n");
    let part = usher.api_get("/readyz?part=browsers");
    assert_eq!(part.status(), 503);
    assert!(part.text().contains("this node runs none"), "{part:?}");
    assert_eq!(usher.api_get("/readyz?part=rooms").status(), 400);
    assert!(!usher.metrics().contains("usher_browser"));
}
