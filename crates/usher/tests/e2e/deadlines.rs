//! Every wait has its end, and each deadline ends only its own kind of waiting.
//!
//! The deadlines are configured short. A test that expects one to strike waits for the event, and
//! checks that it did not strike early.

use std::time::{Duration, Instant};

use crate::support::config::HOST;
use crate::support::endpoint::ok;
use crate::support::wire::Broken;
use crate::support::{Config, Endpoint, Usher, Wire};

const GET: &str = "GET / HTTP/1.1\r\nHost: shop.example.com\r\n\r\n";
const HALF: Duration = Duration::from_millis(500);

/// For what must outlive a deadline: steps so short beside it that a machine which stalls for a
/// second breaks nothing, and enough of them that together they are longer than the deadline.
const PATIENT: &str = "1500ms";
const STEP: Duration = Duration::from_millis(150);
const STEPS: &[u8] = b"0123456789a";

fn serve(endpoint: &Endpoint, name: &str) -> Usher {
    Usher::start(&Config::serving([endpoint.origin("a")]).timeout(name, "500ms"))
}

fn serve_patiently(endpoint: &Endpoint, name: &str) -> Usher {
    Usher::start(&Config::serving([endpoint.origin("a")]).timeout(name, PATIENT))
}

/// Runs the story, which must take the deadline, and not several of them.
fn strikes<T>(story: impl FnOnce() -> T) -> T {
    let began = Instant::now();
    let outcome = story();
    let took = began.elapsed();
    assert!(
        took >= HALF - Duration::from_millis(50),
        "struck early, after {took:?}"
    );
    assert!(took < HALF * 8, "struck late, after {took:?}");
    outcome
}

/// The end of a connection, with or without a 408 before it.
fn given_up(wire: &mut Wire) {
    let (answer, _) = wire.rest();
    assert!(
        answer.is_empty() || answer.starts_with(b"HTTP/1.1 408 "),
        "{}",
        String::from_utf8_lossy(&answer)
    );
}

/// Sends a byte each time that the peer was silent for a while, until the connection ends.
fn trickle(wire: &mut Wire, bytes: &str) {
    for byte in bytes.bytes().cycle() {
        if !wire.stays_open(Duration::from_millis(100)) || wire.try_send([byte]).is_err() {
            return;
        }
    }
}

#[test]
fn a_client_that_sends_nothing_is_given_up() {
    let endpoint = Endpoint::named("a");
    let usher = serve(&endpoint, "client_header");
    let mut wire = usher.connect();
    strikes(|| given_up(&mut wire));
}

#[test]
fn a_head_has_a_deadline_as_a_whole_on_a_fresh_connection() {
    let endpoint = Endpoint::named("a");
    let usher = serve(&endpoint, "client_header");
    let mut wire = usher.connect();
    wire.send("GET / HTTP/1.1\r\nHost: shop.example.com\r\nX-Slow: ");
    strikes(|| trickle(&mut wire, "a"));
    given_up(&mut wire);
    assert!(endpoint.arrived().is_empty());
}

#[test]
fn a_head_has_a_deadline_as_a_whole_on_a_reused_connection() {
    let endpoint = Endpoint::named("a");
    let usher = serve(&endpoint, "client_header");
    let mut wire = usher.connect();
    assert_eq!(wire.get(HOST, "/").status(), 200);
    wire.send("GET / HTTP/1.1\r\nHost: shop.example.com\r\nX-Slow: ");
    strikes(|| trickle(&mut wire, "a"));
    given_up(&mut wire);
    assert_eq!(endpoint.arrived().len(), 1);
}

#[test]
fn an_idle_connection_is_closed_without_a_word() {
    let endpoint = Endpoint::named("a");
    let usher = serve(&endpoint, "keep_alive");
    let mut wire = usher.connect();
    assert_eq!(wire.get(HOST, "/").status(), 200);
    strikes(|| wire.expect_end());
}

#[test]
fn a_body_that_stops_is_given_up_and_one_that_flows_is_not() {
    let endpoint = Endpoint::named("a");
    let usher = serve_patiently(&endpoint, "client_body_idle");
    let mut wire = usher.connect();
    wire.send("POST / HTTP/1.1\r\nHost: shop.example.com\r\nContent-Length: 12\r\n\r\n");
    for byte in STEPS {
        assert!(wire.stays_open(STEP), "the deadline is for silence only");
        wire.send([*byte]);
    }
    strikes(|| given_up(&mut wire));
    assert!(endpoint.arrived().is_empty());
}

#[test]
fn an_endpoint_that_never_answers_is_524() {
    let endpoint = Endpoint::silent();
    let usher = serve(&endpoint, "response_header");
    let mut wire = usher.connect();
    assert_eq!(strikes(|| wire.get(HOST, "/")).status(), 524);
    assert_eq!(
        strikes(|| wire.get(HOST, "/")).status(),
        524,
        "the client's connection lives on"
    );
    assert_eq!(
        endpoint.connections(),
        2,
        "a late answer must not answer the next request"
    );
}

#[test]
fn a_head_that_trickles_from_an_endpoint_has_a_deadline_as_a_whole() {
    let endpoint = Endpoint::scripted(|visit| {
        visit.request();
        visit.send("HTTP/1.1 200 OK\r\nX-Slow: ");
        trickle(&mut visit.wire, "a");
    });
    let usher = serve(&endpoint, "response_header");
    assert_eq!(strikes(|| usher.get("/")).status(), 524);
}

#[test]
fn an_answer_that_stops_is_cut() {
    let endpoint = Endpoint::scripted(|visit| {
        visit.request();
        visit.send("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nstart");
        visit.wire.rest();
    });
    let usher = serve(&endpoint, "body_idle");
    let mut wire = usher.connect();
    wire.send(GET);
    match strikes(|| wire.try_response()) {
        Err(Broken::Cut(answer, _)) => assert!(b"start".starts_with(&answer.body[..])),
        other => panic!("{other:?}"),
    }
}

#[test]
fn an_answer_that_flows_slowly_is_not_cut() {
    let endpoint = Endpoint::scripted(|visit| {
        visit.request();
        visit.send("HTTP/1.1 200 OK\r\nContent-Length: 11\r\n\r\n");
        for byte in STEPS {
            visit.wire.stays_open(STEP);
            visit.send([*byte]);
        }
    });
    let usher = serve_patiently(&endpoint, "body_idle");
    assert_eq!(usher.get("/").body, STEPS);
}

#[test]
fn the_deadline_of_an_answer_starts_when_the_request_is_sent() {
    // A slow upload is the client's time, not the endpoint's.
    let endpoint = Endpoint::named("a");
    let usher = serve_patiently(&endpoint, "response_header");
    let mut wire = usher.connect();
    wire.send("POST / HTTP/1.1\r\nHost: shop.example.com\r\nContent-Length: 11\r\n\r\n");
    for byte in STEPS {
        assert!(wire.stays_open(STEP), "still uploading");
        wire.send([*byte]);
    }
    assert_eq!(wire.response().status(), 200);
}

#[test]
fn a_connection_to_an_endpoint_is_closed_after_its_idle_time() {
    let (ends, ended) = std::sync::mpsc::channel();
    let ends = std::sync::Mutex::new(ends);
    let endpoint = Endpoint::scripted(move |visit| {
        visit.request();
        visit.send(ok("a"));
        let idle = Instant::now();
        visit.wire.expect_end();
        ends.lock().unwrap().send(idle.elapsed()).unwrap();
    });
    let usher = serve(&endpoint, "upstream_keep_alive");
    assert_eq!(usher.get("/").status(), 200);
    let idle = ended.recv_timeout(crate::support::PATIENCE).unwrap();
    assert!(
        idle >= HALF - Duration::from_millis(50),
        "closed early, after {idle:?}"
    );
}

#[test]
fn a_handshake_that_never_comes_is_given_up() {
    let authority = crate::support::tls::Authority::new();
    let pair = authority.pair(&[HOST]);
    let endpoint = Endpoint::named("a");
    let folder = crate::support::process::Folder::new();
    folder.write("shop.pem", &pair.certificate);
    folder.write("shop.key", &pair.key);
    let config = Config::serving([endpoint.origin("a")])
        .set(&["listen", "https"], serde_json::json!(["127.0.0.1:0"]))
        .set(
            &["certificates"],
            serde_json::json!([{"cert": "shop.pem", "key": "shop.key"}]),
        )
        .timeout("tls_handshake", "500ms");
    folder.write("usher.yaml", config.text());
    let usher = Usher::start_in(folder);
    let mut wire = Wire::connect(usher.address("https"));
    strikes(|| wire.expect_end());
    let mut wire = Wire::connect(usher.address("https"));
    wire.send(b"\x16\x03\x01");
    strikes(|| wire.rest());
}

#[test]
fn a_client_that_does_not_read_its_answer_is_given_up() {
    let endpoint = Endpoint::scripted(|visit| {
        visit.request();
        visit.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
        let piece = format!("10000\r\n{}\r\n", "x".repeat(0x10000));
        while visit.wire.try_send(&piece).is_ok() {}
    });
    let config = Config::serving([endpoint.origin("a")])
        .timeout("body_idle", "500ms")
        .timeout("client_body_idle", "500ms");
    let usher = Usher::start(&config);
    let mut wire = usher.connect();
    wire.send(GET);
    let open = || usher.metric("usher_http_in_flight");
    crate::support::eventually("the request to be in flight", || {
        (open() >= 1.0).then_some(())
    });
    // Not one byte is read. Usher must not hold the exchange for ever.
    crate::support::eventually("the request to be given up", || {
        (open() < 1.0).then_some(())
    });
}
