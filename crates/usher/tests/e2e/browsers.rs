//! Browsers as a node serves them: real ones, asked for as a Worker does.
//!
//! Where the machine refuses namespaces most of these say so and do nothing.

use std::os::unix::net::UnixStream;

use rustix::process::Signal;
use serde_json::json;

use crate::support::browsers::SECRET;
use crate::support::{Config, Endpoint, Usher, Wire, eventually};

const PAGE: &str = "<!doctype html><title>drawn</title>";

#[test]
fn a_browser_is_acquired_draws_a_page_and_is_given_back() {
    let site = Endpoint::answering(format!(
        "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: {}\r\n\r\n{PAGE}",
        PAGE.len()
    ));
    let mut usher = Usher::start(&Config::new().browsers());
    let Some(session) = usher.acquire() else {
        return;
    };
    let sessions = usher.binding_get("/sessions");
    assert_eq!(sessions["sessions"][0]["sessionId"], session.as_str());
    let mut browser = usher.devtools(&session);
    assert!(
        browser.version().contains("Chrome"),
        "{}",
        browser.version()
    );
    let target = browser.ask(None, "Target.createTarget", json!({"url": "about:blank"}));
    let attach = json!({"targetId": target["targetId"], "flatten": true});
    let attached = browser.ask(None, "Target.attachToTarget", attach);
    let page = attached["sessionId"].as_str().unwrap();
    browser.ask(Some(page), "Page.enable", json!({}));
    let url = format!("http://{}/", site.address());
    browser.ask(Some(page), "Page.navigate", json!({"url": url}));
    browser.until(|message| message["method"] == "Page.loadEventFired");
    let title = json!({"expression": "document.title"});
    let title = browser.ask(Some(page), "Runtime.evaluate", title);
    assert_eq!(title["result"]["value"], "drawn");
    let picture = browser.ask(Some(page), "Page.captureScreenshot", json!({}));
    let png_begins = "iVBORw0KGgo";
    assert!(picture["data"].as_str().unwrap().starts_with(png_begins));
    // Its own listeners stay out of reach, whatever the account may.
    let healthy = usher.api("GET /healthz HTTP/1.1\r\n", "").text();
    let url = format!("http://{}/healthz", usher.address("api"));
    browser.ask(Some(page), "Page.navigate", json!({"url": url}));
    browser.until(|message| message["method"] == "Page.loadEventFired");
    let text = json!({"expression": "document.documentElement.innerText"});
    let text = browser.ask(Some(page), "Runtime.evaluate", text);
    let text = text["result"]["value"].as_str().unwrap();
    assert!(!text.contains(healthy.trim()), "{text}");

    let closed = usher.binding(&format!("DELETE /devtools/browser/{session}"));
    assert_eq!(closed.text(), r#"{"status":"closing"}"#);
    let history = usher.binding_get("/history");
    let ended = &history["history"][0];
    assert_eq!(ended["sessionId"], session.as_str());
    assert_eq!(ended["closeReasonText"], "NormalClosure");
    assert_eq!(usher.binding_as("wrong", "GET /sessions", "").status(), 401);

    // With nobody on it the host goes with us.
    let socket = usher.path("var/browsers/WEU/socket");
    assert!(UnixStream::connect(&socket).is_ok());
    usher.signal(Signal::TERM);
    assert_eq!(usher.wait().code(), Some(0));
    eventually("the end of the host", || {
        UnixStream::connect(&socket).is_err().then_some(())
    });
}

#[test]
fn a_reload_changes_accounts_and_numbers_and_cuts_nobody() {
    let config = Config::new().browsers();
    let usher = Usher::start(&config);
    let Some(session) = usher.acquire() else {
        return;
    };
    let mut browser = usher.devtools(&session);
    browser.version();
    let other = "binding-secret-of-tomorrow";
    let changed = config
        .clone()
        .set(&["browsers", "pools", "WEU", "min_ready"], json!(0))
        .set(&["accounts", "default", "binding_secret"], json!(other))
        .set(
            &["accounts", "default", "limits", "concurrent_browsers"],
            json!(7),
        );
    usher.reload(&changed);
    browser.version();
    assert_eq!(usher.binding("GET /limits").status(), 401);
    let limits = usher.binding_as(other, "GET /limits", "");
    let limits: serde_json::Value = serde_json::from_slice(&limits.body).unwrap();
    assert_eq!(limits["maxConcurrentSessions"], 7);
    assert_eq!(limits["activeSessions"][0]["id"], session.as_str());
    usher.reload(&config);
    browser.version();
    assert_eq!(usher.binding("GET /limits").status(), 200);
}

#[test]
fn sessions_outlive_a_crash_of_the_front() {
    let usher = Usher::start(&Config::new().browsers());
    let Some(session) = usher.acquire() else {
        return;
    };
    let mut before = usher.devtools(&session);
    before.ask(
        None,
        "Target.createTarget",
        json!({"url": "about:blank#kept"}),
    );
    let usher = Usher::start_in(usher.kill());
    let mut browser = usher.devtools(&session);
    let targets = browser.ask(None, "Target.getTargets", json!({}));
    assert!(
        targets.to_string().contains("about:blank#kept"),
        "{targets}"
    );
    let sessions = usher.binding_get("/sessions");
    assert_eq!(sessions["sessions"][0]["sessionId"], session.as_str());
}

#[test]
fn a_machine_without_a_browser_is_told_once_and_the_rest_is_served() {
    let endpoint = Endpoint::answering("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi");
    let config = Config::serving([endpoint.origin("a")])
        .browsers()
        .set(&["browsers", "chromium"], json!("/nowhere/chromium"));
    let usher = Usher::start(&config);
    let said = usher.wait_stderr("no browsers in WEU: ");
    let lacks = "this machine has no program /nowhere/chromium: correct browsers.chromium";
    assert!(said.starts_with(lacks), "{said}");
    assert_eq!(usher.get("/").status(), 200);
    let refused = usher.binding_as(SECRET, "GET /acquire?wait=0s", "");
    assert_eq!(refused.status(), 503);
    assert_eq!(
        refused.text(),
        "No browser available. Please try again in a few minutes."
    );
    assert_eq!(usher.stderr().matches("no browsers in").count(), 1);
}

#[test]
fn sessions_outlive_a_hand_over_and_so_do_connections() {
    let config = Config::new()
        .browsers()
        .set(&["pid_file"], json!("usher.pid"));
    let mut usher = Usher::start(&config);
    let Some(session) = usher.acquire() else {
        return;
    };
    let mut before = usher.devtools(&session);
    before.version();
    usher.hand_over();
    // Carried to its end by the process before.
    before.version();
    let sessions = usher.binding_get("/sessions");
    assert_eq!(sessions["sessions"][0]["sessionId"], session.as_str());
    let mut after = usher.devtools(&session);
    after.version();
    // The host is the same, and so is its next browser.
    assert!(usher.acquire().is_some());
    drop(before);
    assert_eq!(usher.wait().code(), Some(0));
}

#[test]
fn pools_come_and_go_and_hosts_change_while_sessions_go_on() {
    let config = Config::new().browsers();
    let usher = Usher::start(&config);
    let Some(session) = usher.acquire() else {
        return;
    };
    let mut browser = usher.devtools(&session);
    browser.version();
    // Another region, and another number for the first one, whose host is to be another then.
    let one = json!({"min_ready": 1, "max": 1});
    let both = config
        .clone()
        .set(&["browsers", "pools"], json!({"ENAM": one, "WEU": one}));
    usher.reload(&both);
    usher.expect_stderr("browser host of ENAM: up to 1 browsers");
    usher.expect_stderr("the browser host of WEU is not what is wanted now");
    browser.version();
    // The first region is left: what is acquired is of the other.
    let other = config.set(&["browsers", "pools"], json!({"ENAM": one}));
    usher.reload(&other);
    browser.version();
    let next = usher.acquire().unwrap();
    usher.devtools(&next).version();
    browser.version();
    // With its last session the host that nobody wants ends.
    drop(browser);
    usher.binding(&format!("DELETE /devtools/browser/{session}"));
    let socket = usher.path("var/browsers/WEU/socket");
    eventually("the end of the host", || {
        UnixStream::connect(&socket).is_err().then_some(())
    });
    usher.devtools(&next).version();
    usher.binding(&format!("DELETE /devtools/browser/{next}"));
    // None at all, and then again some.
    let binding = usher.address("binding");
    usher.reload(&Config::new());
    usher.expect_stderr(&format!("closed binding {binding}"));
    usher.reload(&other);
    let binding = usher.wait_stderr("INFO listening binding ");
    let head =
        format!("GET /v1/limits HTTP/1.1\r\nHost: fake.host\r\nusher-binding: {SECRET}\r\n\r\n");
    let limits = Wire::connect(binding.parse().unwrap()).exchange(head);
    assert_eq!(limits.status(), 200, "{limits:?}");
}

#[test]
fn a_region_that_keeps_none_ready_starts_one_when_asked_and_a_restart_keeps_its_session() {
    let config = Config::new().browsers().set(
        &["browsers", "pools", "WEU"],
        json!({"min_ready": 0, "max": 1}),
    );
    let mut usher = Usher::start(&config);
    let Some(session) = usher.acquire() else {
        return;
    };
    usher.devtools(&session).version();
    usher.signal(Signal::TERM);
    assert_eq!(usher.wait().code(), Some(0));
    let usher = Usher::start_in(usher.take_folder());
    usher.devtools(&session).version();
}
