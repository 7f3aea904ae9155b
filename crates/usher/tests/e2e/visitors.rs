//! What is told of sessions: by `explain`, by the state, by metrics and in the log.

use serde_json::{Value, json};

use crate::support::api::{named, result};
use crate::support::config::HOST;
use crate::support::process::Folder;
use crate::support::{Config, Endpoint, Usher, Wire, eventually};

const SECRET: &str = "a secret that only this test knows";

fn url() -> String {
    format!("http://{HOST}/")
}

fn two() -> ([Endpoint; 2], Config) {
    let endpoints = ["a", "b"].map(Endpoint::named);
    let origins = [endpoints[0].origin("a"), endpoints[1].origin("b")];
    let config = Config::serving(origins).set(&["secrets"], json!({"seal": [SECRET]}));
    (endpoints, config)
}

fn with(config: Config, key: &str, value: Value) -> Config {
    config.set(&["load_balancers", HOST, key], value)
}

/// A request with these header lines: who served, and the cookie if one was given.
fn ask(wire: &mut Wire, lines: &str) -> (String, Option<String>) {
    let answer = wire.exchange(format!("GET / HTTP/1.1\r\nHost: {HOST}\r\n{lines}\r\n"));
    let set = answer.field("set-cookie");
    let set = set.map(|set| set.split(';').next().unwrap_or_default().to_owned());
    (answer.text(), set)
}

/// What the running node says, and what the file says by itself.
fn explained(usher: &Usher, headers: Value, assume: &[&str]) -> [Value; 2] {
    let question = json!({"url": url(), "headers": headers, "assume": assume});
    let told = result(&usher.api_post("/client/v4/usher/explain", &question));
    let mut args = vec!["explain".to_owned(), "--config".into(), "usher.yaml".into()];
    args.extend(["--json".to_owned(), url()]);
    for (name, value) in headers.as_object().expect("headers") {
        args.extend([
            "-H".to_owned(),
            format!("{name}: {}", value.as_str().unwrap()),
        ]);
    }
    for what in assume {
        args.extend(["--assume".to_owned(), (*what).to_owned()]);
    }
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let ended = usher.folder().run(&args);
    assert_eq!(ended.code, 0, "{ended:?}");
    [told, serde_json::from_str(&ended.stdout).unwrap()]
}

fn steps(told: &Value, step: &str) -> Vec<String> {
    let all = told["steps"].as_array().expect("steps").iter();
    let of = all.filter(|one| one["step"] == step);
    of.map(|one| one["text"].as_str().unwrap().to_owned())
        .collect()
}

#[test]
fn a_cookie_is_opened_for_an_explanation_too() {
    let (_endpoints, config) = two();
    let usher = Usher::start(&with(config, "session_affinity", json!("cookie")));
    let (served, cookie) = ask(&mut usher.connect(), "");
    let cookie = cookie.expect("a cookie");
    for told in explained(&usher, json!({"Cookie": cookie}), &[]) {
        assert_eq!(told["endpoint"]["name"], *served, "{told:#}");
        let session = json!({
            "kind": "cookie", "kept": true,
            "reason": format!("the session with main/{served} is kept"),
        });
        assert_eq!(told["session"], session);
        assert_eq!(
            named(&told["endpoints"], &served)["probability"],
            1,
            "{told:#}"
        );
    }
    // Cut short, and of nobody.
    for wrong in [&cookie[..cookie.len() - 1], "__cflb=forged", "__cflb="] {
        for told in explained(&usher, json!({"Cookie": wrong}), &[]) {
            assert_eq!(told["session"]["kept"], false, "{told:#}");
            let reason = told["session"]["reason"].as_str().unwrap();
            assert!(reason.contains("__cflb cannot be opened"), "{reason}");
        }
    }
    for told in explained(
        &usher,
        json!({}),
        &["session main/b", "endpoint main/b=down"],
    ) {
        assert_eq!(told["endpoint"]["name"], "a", "{told:#}");
        let reason = told["session"]["reason"].as_str().unwrap();
        assert!(reason.contains("main/b does not work"), "{reason}");
    }
    let drained = ["session main/b", "endpoint main/b=draining"];
    for told in explained(&usher, json!({}), &drained) {
        // The load balancer gives no time to drain.
        assert_eq!(told["session"]["kept"], false, "{told:#}");
        assert_eq!(told["endpoint"]["name"], "a", "{told:#}");
    }
}

#[test]
fn a_method_that_is_never_served_is_told_as_the_visitor_would_see_it() {
    let (_endpoints, config) = two();
    let usher = Usher::start(&config);
    for method in ["CONNECT", "TRACE"] {
        let question = json!({"url": url(), "method": method});
        let told = result(&usher.api_post("/client/v4/usher/explain", &question));
        assert_eq!(
            (&told["outcome"], &told["status"]),
            (&json!("refuse"), &json!(405))
        );
        assert_eq!(told["reason"], "method-not-allowed");
        let args = [
            "explain",
            "--config",
            "usher.yaml",
            "--method",
            method,
            &url(),
        ];
        let ended = usher.folder().run(&args);
        assert!(ended.stdout.contains("refuse with status 405"), "{ended:?}");
    }
}

#[test]
fn where_sessions_cannot_apply_a_step_says_why() {
    let (_endpoints, config) = two();
    let usher = Usher::start(&config);
    for told in explained(&usher, json!({}), &["session main/a"]) {
        assert_eq!(told["session"], json!(null));
        let said = steps(&told, "session");
        assert_eq!(
            said,
            ["session affinity is off: the assumed session is not looked at"]
        );
    }
    let config = with(config, "session_affinity", json!("header"));
    let attributes = json!({"headers": ["x-user", "x-team"], "require_all_headers": true});
    usher.reload(&with(config, "session_affinity_attributes", attributes));
    for told in explained(&usher, json!({"X-User": "u1"}), &[]) {
        assert_eq!(told["session"], json!(null));
        let said = steps(&told, "session").concat();
        assert!(said.contains("does not carry all of"), "{said}");
    }
    let mut wire = usher.connect();
    let lines = "X-User: u1\r\nX-Team: blue\r\n";
    let (served, _) = ask(&mut wire, lines);
    // Only the node has the table.
    let [told, file] = explained(&usher, json!({"X-User": "u1", "X-Team": "blue"}), &[]);
    assert_eq!(told["session"]["kept"], true, "{told:#}");
    assert_eq!(told["endpoint"]["name"], *served);
    assert_eq!(file["session"]["kept"], false);
}

#[test]
fn every_rule_is_told_with_what_it_changes() {
    let (_endpoints, config) = two();
    let config = config.pool("blog", []).set(
        &["pools", "blog", "origins"],
        json!([{"name": "c", "address": "192.0.2.1"}]),
    );
    let rules = json!([
        {"name": "posts", "condition": "http.request.method eq \"POST\"", "overrides": {"fallback_pool": "main"}},
        {"name": "blog", "condition": "any(http.request.headers[\"x-plan\"][*] eq \"gold\")",
         "overrides": {"pools": ["blog"]}, "terminates": true},
        {"name": "off", "disabled": true},
        {"name": "never"},
    ]);
    let config = with(config, "rules", rules);
    let folder = Folder::with(&config.text());
    let ended = folder.run(&[
        "explain",
        "--config",
        "usher.yaml",
        "--json",
        "-H",
        "X-Plan: gold",
        &url(),
    ]);
    let told: Value = serde_json::from_str(&ended.stdout).unwrap();
    assert_eq!(told["pool"], "blog", "{told:#}");
    let said = steps(&told, "rules");
    assert!(said[0].starts_with("rule 1 (posts) is false"), "{said:?}");
    assert!(
        said[1].starts_with("rule 2 (blog) is true: pools [blog]"),
        "{said:?}"
    );
    assert_eq!(said.len(), 2, "the others are not asked: {said:?}");
    let text = folder.run(&[
        "explain",
        "--config",
        "usher.yaml",
        "-H",
        "X-Plan: gold",
        &url(),
    ]);
    assert!(
        text.stdout.contains("rule 2 (blog) is true: pools [blog]"),
        "{text:?}"
    );
}

#[test]
fn the_state_counts_sessions_and_what_is_left_of_a_drain() {
    let (_endpoints, config) = two();
    let config = with(config, "session_affinity", json!("cookie"));
    let drain = json!({"drain_duration": 600});
    let config = with(config, "session_affinity_attributes", drain);
    let weight = |config: Config, weight: f64| {
        config.set(&["pools", "main", "origins", "0", "weight"], json!(weight))
    };
    // All to one side, whose weight then says the half.
    let usher = Usher::start(&weight(config.clone(), 0.0));
    let visitors: Vec<_> = (0..8).map(|_| ask(&mut usher.connect(), "")).collect();
    assert!(
        visitors
            .iter()
            .all(|(served, cookie)| served == "b" && cookie.is_some())
    );
    usher.reload(&config);
    let pool = eventually("eight sessions", || {
        let pool = named(&usher.state()["pools"], "main").clone();
        (named(&pool["endpoints"], "b")["sessions"] == 8).then_some(pool)
    });
    assert_eq!(named(&pool["endpoints"], "a")["sessions"], 0);
    assert_eq!(
        named(&pool["endpoints"], "b")["drain_seconds_left"],
        json!(null)
    );
    assert_eq!(
        pool["session_skew"], 0.5,
        "half of them would have to be at a"
    );
    usher.expect_metric("usher_endpoint_sessions{pool=\"main\",endpoint=\"b\"}", 8.0);
    usher.expect_metric("usher_pool_session_skew_ratio{pool=\"main\"}", 0.5);

    usher.reload(&config.set(&["pools", "main", "origins", "1", "enabled"], json!(false)));
    let pool = named(&usher.state()["pools"], "main").clone();
    let draining = named(&pool["endpoints"], "b");
    assert_eq!(
        (&draining["state"], &draining["sessions"]),
        (&json!("draining"), &json!(8))
    );
    let left = draining["drain_seconds_left"].as_u64().expect("seconds");
    assert!((1..=600).contains(&left), "{left}");
    let series = "usher_endpoint_drain_left_seconds{pool=\"main\",endpoint=\"b\"}";
    assert!(usher.metric(series) > 0.0);
    for (_, cookie) in visitors.iter().take(2) {
        let cookie = cookie.as_ref().unwrap();
        let (served, given) = ask(&mut usher.connect(), &format!("Cookie: {cookie}\r\n"));
        assert_eq!((served.as_str(), given), ("b", None), "those it has stay");
    }
    assert_eq!(ask(&mut usher.connect(), "").0, "a", "no new one comes");
}

#[test]
fn a_drain_goes_on_in_the_process_that_follows() {
    let (_endpoints, config) = two();
    let config =
        with(config, "session_affinity", json!("cookie")).set(&["pid_file"], json!("usher.pid"));
    let drain = json!({"drain_duration": 600});
    let config = with(config, "session_affinity_attributes", drain);
    let mut usher = Usher::start(&config);
    let (served, cookie) = ask(&mut usher.connect(), "");
    let cookie = format!("Cookie: {}\r\n", cookie.expect("a cookie"));
    let place = if served == "a" { "0" } else { "1" };
    eventually("the session is counted", || {
        let pool = named(&usher.state()["pools"], "main").clone();
        (named(&pool["endpoints"], &served)["sessions"] == 1).then_some(())
    });
    usher.reload(&config.clone().set(
        &["pools", "main", "origins", place, "enabled"],
        json!(false),
    ));
    assert_eq!(ask(&mut usher.connect(), &cookie), (served.clone(), None));
    let left = |usher: &Usher| {
        let pool = named(&usher.state()["pools"], "main").clone();
        named(&pool["endpoints"], &served)["drain_seconds_left"].as_u64()
    };
    let before = left(&usher).expect("it drains");
    usher.hand_over();
    assert_eq!(ask(&mut usher.connect(), &cookie), (served.clone(), None));
    let after = left(&usher).expect("it still drains");
    assert!(after <= before, "from the same moment: {before}, {after}");
    // The visitor's cookie is not among those that this process gave, so it says of nobody to be
    // gone before the time is over.
    let ending = json!({"drain_duration": 1});
    let off = with(config, "session_affinity_attributes", ending).set(
        &["pools", "main", "origins", place, "enabled"],
        json!(false),
    );
    usher.reload(&off);
    usher.expect_stderr("draining -> disabled: drained");
    assert!(!usher.stderr().contains("is left,"), "{}", usher.stderr());
}

#[test]
fn the_end_of_a_drain_is_said() {
    let (_endpoints, config) = two();
    let config = with(config, "session_affinity", json!("cookie"));
    let lasting = |config: &Config, secs: u32| {
        let drain = json!({"drain_duration": secs});
        with(config.clone(), "session_affinity_attributes", drain)
    };
    let usher = Usher::start(&lasting(&config, 600));
    let off = config
        .clone()
        .set(&["pools", "main", "origins", "1", "enabled"], json!(false));
    usher.reload(&lasting(&off, 600));
    usher.expect_stderr("no session that this process gave is left");
    assert_eq!(
        usher.state_of("main/b"),
        "draining",
        "another node may have given some"
    );
    usher.reload(&lasting(&off, 1));
    usher.expect_stderr("draining -> disabled: drained");
    let pool = named(&usher.state()["pools"], "main").clone();
    let drained = named(&pool["endpoints"], "b");
    assert_eq!(drained["drain_seconds_left"], json!(null));
    assert_eq!(
        (&drained["state"], &drained["reason"]),
        (&json!("disabled"), &json!("drained"))
    );
    // Back again: new ones come.
    usher.reload(&lasting(&config, 1));
    eventually("a visitor at b", || {
        (ask(&mut usher.connect(), "").0 == "b").then_some(())
    });
}

#[test]
fn pools_and_endpoints_that_serve_are_named_in_a_header_when_asked() {
    let (_endpoints, config) = two();
    let usher = Usher::start(&config);
    let get = || usher.get("/");
    assert_eq!(get().field("x-served-by"), None);
    usher.reload(&with(
        config.clone(),
        "usher",
        json!({"endpoint_header": "X-Served-By"}),
    ));
    let answer = get();
    let served = format!("main/{}", answer.text());
    assert_eq!(answer.field("x-served-by"), Some(served.as_str()));
}
