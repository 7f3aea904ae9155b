//! One JSON object a line, for every request, with what an operator asks of it.

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::support::config::HOST;
use crate::support::endpoint::{origin_at, refusing};
use crate::support::{Config, Endpoint, Usher, eventually};

const KEYS: [&str; 20] = [
    "time",
    "request_id",
    "client",
    "method",
    "host",
    "path",
    "status",
    "bytes_in",
    "bytes_out",
    "duration_ms",
    "load_balancer",
    "pool",
    "endpoint",
    "upstream_ms",
    "attempts",
    "session",
    "room",
    "error",
    "tls",
    "protocol",
];

#[test]
fn a_line_has_everything_that_is_promised() {
    let endpoint = Endpoint::named("a");
    let usher = Usher::start(&Config::serving([endpoint.origin("a")]));
    let answer = usher.exchange(
        "POST /a%20path?secret=1 HTTP/1.1\r\nHost: SHOP.example.com:8080\r\nCookie: secret=2\r\n\
         Content-Length: 4\r\n\r\nbody",
    );
    assert_eq!(answer.status(), 200);
    let lines = usher.access_log(1);
    assert_eq!(lines.len(), 1);
    let line = &lines[0];
    for key in KEYS {
        assert!(line.get(key).is_some(), "{key} is missing: {line}");
    }
    let expected = [
        ("client", json!("127.0.0.1")),
        ("method", json!("POST")),
        ("host", json!(HOST)),
        ("path", json!("/a%20path")),
        ("status", json!(200)),
        ("bytes_in", json!(4)),
        ("bytes_out", json!(1)),
        ("load_balancer", json!(HOST)),
        ("pool", json!("main")),
        ("endpoint", json!("a")),
        ("attempts", json!(1)),
        ("session", json!("none")),
        ("room", json!("none")),
        ("error", json!(null)),
        ("tls", json!(null)),
        ("protocol", json!("HTTP/1.1")),
    ];
    for (key, value) in expected {
        assert_eq!(line[key], value, "{key}");
    }
    assert!(
        !line.to_string().contains("secret"),
        "no query, no cookie: {line}"
    );
    let time = line["time"].as_str().unwrap();
    assert!(is_time(time), "{time}");
    assert!(line["duration_ms"].as_f64().unwrap() >= line["upstream_ms"].as_f64().unwrap());
}

#[test]
fn a_refused_request_has_its_line_and_reason() {
    let endpoint = Endpoint::named("a");
    let usher = Usher::start(&Config::serving([endpoint.origin("a")]));
    usher.exchange("GET / HTTP/1.1\r\nHost: shop.example.com\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n");
    usher.connect().get("unknown.example.net", "/");
    let lines = usher.access_log(2);
    let by_status = |status: u16| lines.iter().find(|line| line["status"] == status).unwrap();
    assert!(by_status(400)["error"].is_string(), "{}", by_status(400));
    assert!(by_status(404)["error"].is_string(), "{}", by_status(404));
    assert_eq!(by_status(404)["load_balancer"], json!(null));
}

#[test]
fn a_malformed_request_is_told_as_far_as_it_was_read() {
    let endpoint = Endpoint::named("a");
    let usher = Usher::start(&Config::serving([endpoint.origin("a")]));
    usher.exchange("PUT /here?secret=1 HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n");
    usher.exchange("nonsense\r\n\r\n");
    let mut lines = usher.access_log(2);
    // Each connection has its worker, and each worker hands its lines over in its own time.
    lines.sort_by_key(|line| line["method"].is_null());
    let told = |key: &str| {
        lines
            .iter()
            .map(|line| line[key].clone())
            .collect::<Vec<_>>()
    };
    assert_eq!(told("status"), [400, 400]);
    assert_eq!(told("method"), [json!("PUT"), json!(null)]);
    assert_eq!(told("host"), [json!(null), json!(null)]);
    assert_eq!(told("path"), [json!("/here"), json!(null)]);
}

#[test]
fn query_strings_are_kept_when_asked_for() {
    let endpoint = Endpoint::named("a");
    let config = Config::serving([endpoint.origin("a")]);
    let keeping = config
        .clone()
        .set(&["access_log", "query_strings"], json!(true));
    let usher = Usher::start(&keeping);
    usher.get("/a?b=c");
    assert_eq!(usher.access_log(1)[0]["path"], "/a?b=c");
    usher.reload(&config);
    usher.get("/a?b=c");
    assert_eq!(usher.access_log(2)[1]["path"], "/a");
}

#[test]
fn a_log_that_was_moved_away_is_opened_anew_with_a_reload() {
    let endpoint = Endpoint::named("a");
    let config = Config::serving([endpoint.origin("a")]);
    let usher = Usher::start(&config);
    usher.get("/before");
    usher.access_log(1);
    std::fs::rename(usher.path("access.log"), usher.path("access.log.1")).unwrap();
    usher.reload(&config);
    eventually("a new file", || {
        usher.path("access.log").exists().then_some(())
    });
    usher.get("/after");
    assert_eq!(usher.access_log(1)[0]["path"], "/after");
    let moved = std::fs::read_to_string(usher.path("access.log.1")).unwrap();
    assert_eq!(moved.lines().count(), 1, "{moved}");
}

#[test]
fn a_log_that_was_moved_away_is_opened_anew_on_sigusr1() {
    let endpoint = Endpoint::named("a");
    let usher = Usher::start(&Config::serving([endpoint.origin("a")]));
    usher.get("/before");
    usher.access_log(1);
    std::fs::rename(usher.path("access.log"), usher.path("access.log.1")).unwrap();
    usher.signal(Signal::USR1);
    eventually("a new file", || {
        usher.path("access.log").exists().then_some(())
    });
    usher.get("/after");
    assert_eq!(usher.access_log(1)[0]["path"], "/after");
}

#[test]
fn a_failed_attempt_is_told() {
    let usher = Usher::start(&Config::serving([origin_at("dead", refusing())]));
    usher.get("/");
    let line = &usher.access_log(1)[0];
    assert_eq!(
        (&line["status"], &line["pool"], &line["endpoint"]),
        (&json!(521), &json!("main"), &json!("dead"))
    );
    assert!(line["error"].is_string(), "{line}");
}

#[test]
fn what_a_client_sends_cannot_forge_a_line() {
    let endpoint = Endpoint::named("a");
    let usher = Usher::start(&Config::serving([endpoint.origin("a")]));
    usher.get("/\"}{\"status\":999,\\u0000");
    let lines = usher.access_log(1);
    assert_eq!(lines.len(), 1);
    assert_ne!(lines[0]["status"], 999);
}

#[test]
fn a_stopped_node_has_written_every_line() {
    let endpoint = Endpoint::named("a");
    let mut usher = Usher::start(&Config::serving([endpoint.origin("a")]));
    let mut wire = usher.connect();
    for _ in 0..300 {
        wire.get(HOST, "/");
    }
    drop(wire);
    usher.signal(Signal::TERM);
    assert_eq!(usher.wait().code(), Some(0));
    let text = std::fs::read_to_string(usher.path("access.log")).unwrap();
    assert_eq!(text.lines().count(), 300);
}

#[test]
fn the_log_may_go_to_stdout() {
    let endpoint = Endpoint::named("a");
    let usher = Usher::start(
        &Config::serving([endpoint.origin("a")]).set(&["access_log", "path"], json!("-")),
    );
    assert_eq!(usher.get("/here").status(), 200);
    eventually("the line on stdout", || {
        let line: Value = serde_json::from_str(&usher.next_line()?).ok()?;
        (line["path"] == "/here").then_some(())
    });
}

/// RFC 3339 with milliseconds, in UTC: `2026-11-29T12:00:00.000Z`.
fn is_time(text: &str) -> bool {
    text.len() == 24
        && text.bytes().enumerate().all(|(at, byte)| match at {
            4 | 7 => byte == b'-',
            10 => byte == b'T',
            13 | 16 => byte == b':',
            19 => byte == b'.',
            23 => byte == b'Z',
            _ => byte.is_ascii_digit(),
        })
}
