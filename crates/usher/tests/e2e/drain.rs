//! SIGTERM: nothing new is taken, nothing begun is cut before the grace is over.

use std::net::TcpStream;
use std::sync::{Arc, Barrier};
use std::time::Instant;

use rustix::process::Signal;
use serde_json::json;

use crate::support::config::HOST;
use crate::support::{Config, Endpoint, Usher, Wire, eventually};

/// Answers in two halves, the second when the test comes to the barrier.
fn halves() -> (Endpoint, Arc<Barrier>) {
    let gate = Arc::new(Barrier::new(2));
    let at_endpoint = Arc::clone(&gate);
    let endpoint = Endpoint::scripted(move |visit| {
        visit.request();
        visit.send("HTTP/1.1 200 OK\r\nContent-Length: 11\r\n\r\nfirst");
        at_endpoint.wait();
        visit.send("second");
        visit.request();
    });
    (endpoint, gate)
}

#[test]
fn a_node_without_connections_stops_at_once() {
    let usher = Usher::start(&Config::new().set(&["shutdown", "grace"], json!("30s")));
    let began = Instant::now();
    assert_eq!(usher.stop().code(), Some(0));
    assert!(
        began.elapsed().as_secs() < 5,
        "there was nothing to wait for"
    );
}

#[test]
fn an_idle_connection_has_until_the_end_of_the_grace() {
    let endpoint = Endpoint::named("a");
    let config = Config::serving([endpoint.origin("a")]).set(&["shutdown", "grace"], json!("1s"));
    let usher = Usher::start(&config);
    let mut idle = usher.connect();
    assert_eq!(idle.get(HOST, "/").status(), 200);
    let began = Instant::now();
    assert_eq!(usher.stop().code(), Some(0));
    let took = began.elapsed().as_millis();
    assert!(
        (900..5000).contains(&took),
        "a request may have been on its way: {took} ms"
    );
    idle.expect_end();
}

#[test]
fn a_request_in_flight_is_finished_and_its_connection_closed_with_the_answer() {
    let (endpoint, gate) = halves();
    let mut usher = Usher::start(&Config::serving([endpoint.origin("a")]));
    let mut wire = usher.connect();
    wire.send(format!("GET / HTTP/1.1\r\nHost: {HOST}\r\n\r\n"));
    endpoint.next();
    let address = usher.address("http");
    usher.signal(Signal::TERM);
    eventually("the listener to be gone", || {
        TcpStream::connect(address).err()
    });
    gate.wait();
    assert_eq!(wire.response().text(), "firstsecond");
    wire.expect_end();
    assert_eq!(usher.wait().code(), Some(0));
}

#[test]
fn a_kept_connection_gets_close_with_its_next_answer() {
    let endpoint = Endpoint::named("a");
    let mut usher = Usher::start(&Config::serving([endpoint.origin("a")]));
    let mut wire = usher.connect();
    assert_eq!(wire.get(HOST, "/").status(), 200);
    let address = usher.address("http");
    usher.signal(Signal::TERM);
    eventually("the listener to be gone", || {
        TcpStream::connect(address).err()
    });
    // The request that may have been on its way already is answered, not cut.
    let answer = wire.get(HOST, "/");
    assert_eq!(answer.status(), 200);
    assert!(answer.names("connection", "close"), "{answer:?}");
    wire.expect_end();
    assert_eq!(usher.wait().code(), Some(0));
}

#[test]
fn the_grace_ends_what_does_not_end() {
    let endpoint = Endpoint::silent();
    let config =
        Config::serving([endpoint.origin("a")]).set(&["shutdown", "grace"], json!("500ms"));
    let mut usher = Usher::start(&config);
    let mut wire = usher.connect();
    wire.send(format!("GET / HTTP/1.1\r\nHost: {HOST}\r\n\r\n"));
    endpoint.next();
    let began = Instant::now();
    usher.signal(Signal::TERM);
    assert_eq!(usher.wait().code(), Some(0));
    assert!(began.elapsed().as_millis() >= 450, "the grace was given");
    wire.rest();
    let line = &usher.access_log(1)[0];
    assert_eq!(
        (&line["error"], &line["status"], &line["endpoint"]),
        (&json!("cut-by-stop"), &json!(null), &json!("a"))
    );
    eventually("what the log says of it", || {
        let said = usher.stderr();
        [
            "stopping: 1 connection open, up to 500ms",
            "grace over: 1 connection cut",
        ]
        .iter()
        .all(|line| said.contains(line))
        .then_some(())
    });
}

#[test]
fn a_second_signal_ends_at_once_and_every_request_has_its_line() {
    let (endpoint, _gate) = halves();
    let config = Config::serving([endpoint.origin("a")]).set(&["shutdown", "grace"], json!("60s"));
    let mut usher = Usher::start(&config);
    let mut wire = usher.connect();
    wire.send(format!("GET / HTTP/1.1\r\nHost: {HOST}\r\n\r\n"));
    assert_eq!(wire.bytes(15), b"HTTP/1.1 200 OK");
    usher.signal(Signal::TERM);
    eventually("the stop to begin", || {
        usher.stderr().contains("stopping: ").then_some(())
    });
    usher.signal(Signal::TERM);
    assert_eq!(usher.wait().code(), Some(0));
    let lines = usher.access_log(1);
    assert_eq!(lines.len(), 1);
    assert_eq!(
        (&lines[0]["error"], &lines[0]["status"]),
        (&json!("cut-by-stop"), &json!(200))
    );
}

#[test]
fn readiness_ends_before_the_node_does() {
    let (endpoint, gate) = halves();
    let mut usher = Usher::start(&Config::serving([endpoint.origin("a")]));
    let plain = |path: &str| {
        TcpStream::connect(usher.address("api")).ok().map(|socket| {
            Wire::over(socket)
                .exchange(format!(
                    "GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
                ))
                .status()
        })
    };
    assert_eq!(plain("/readyz"), Some(200));
    assert_eq!(plain("/healthz"), Some(200));
    let mut wire = usher.connect();
    wire.send(format!("GET / HTTP/1.1\r\nHost: {HOST}\r\n\r\n"));
    endpoint.next();
    usher.signal(Signal::TERM);
    eventually("/readyz to fail", || {
        (plain("/readyz") != Some(200)).then_some(())
    });
    gate.wait();
    assert_eq!(wire.response().text(), "firstsecond");
    assert_eq!(usher.wait().code(), Some(0));
}

#[test]
fn sigint_is_heard_as_well() {
    let mut usher = Usher::start(&Config::new());
    usher.signal(Signal::INT);
    assert_eq!(usher.wait().code(), Some(0));
}
