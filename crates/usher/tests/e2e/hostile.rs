//! Peers that want to wear us out: many, slow, or deaf. Others are served meanwhile, and memory
//! stays within a bound that does not depend on how long they go on.
//!
//! The bounds are generous: they tell a leak from none, not a good figure from a better one.

use std::sync::Mutex;
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

use rustix::process::{Pid, Resource, Rlimit, getrlimit, prlimit, setrlimit};

use crate::support::config::HOST;
use crate::support::endpoint::{Visit, ok};
use crate::support::{Config, Endpoint, PATIENCE, Usher, Wire, eventually};

const MIB: u64 = 1024 * 1024;

/// More than the sockets on the way take without anybody reading.
const LONG: usize = 24 * 1024 * 1024;

/// How many in the long runs; a tenth of it otherwise.
fn scaled(count: usize) -> usize {
    let soak = std::env::var_os("USHER_SOAK").is_some_and(|value| value == "1");
    if soak { count } else { count / 10 }
}

/// As many descriptors as this process may have: a test has the other end of every connection.
fn raise_descriptors() {
    let maximum = getrlimit(Resource::Nofile).maximum;
    let _ = setrlimit(
        Resource::Nofile,
        Rlimit {
            current: maximum,
            maximum,
        },
    ); // tried; a test may do with less
}

/// Runs the story, during which memory may grow by so much.
fn within<T>(usher: &Usher, bytes: u64, story: impl FnOnce() -> T) -> T {
    usher.get("/");
    let before = usher.resident();
    let outcome = story();
    let grown = usher.resident_max().saturating_sub(before);
    assert!(
        grown <= bytes,
        "grew by {} KiB, allowed {} KiB",
        grown / 1024,
        bytes / 1024
    );
    outcome
}

fn is_served(usher: &Usher) {
    assert_eq!(usher.get("/").status(), 200);
}

#[test]
fn a_refused_client_that_never_stops_is_read_within_a_bound() {
    let endpoint = Endpoint::named("a");
    let usher = Usher::start(&Config::serving([endpoint.origin("a")]));
    let mut wire = usher.connect();
    wire.send("GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n");
    let piece = vec![b'x'; MIB as usize];
    let mut pieces = 0;
    while wire.try_send(&piece).is_ok() {
        pieces += 1;
        // What is read, and what lies in sockets.
        assert!(pieces <= 32 + 48, "it is read on");
    }
    is_served(&usher);
}

#[test]
fn two_lengths_on_the_api_are_refused_and_end_the_connection() {
    let usher = Usher::start(&Config::new());
    let head = |more: &str| format!("GET /readyz HTTP/1.1\r\nHost: x\r\n{more}\r\n");
    let mut api = Wire::connect(usher.address("api"));
    for more in ["", "Content-Length: 0\r\n"] {
        assert_eq!(api.exchange(head(more)).status(), 200);
    }
    for more in [
        "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n",
        "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n",
    ] {
        let mut api = Wire::connect(usher.address("api"));
        assert_eq!(api.exchange(head("")).status(), 200);
        let answer = api.exchange(head(more) + "0\r\n\r\n");
        assert_eq!(answer.status(), 400, "{more}");
        assert!(answer.names("connection", "close"), "{answer:?}");
        api.expect_end();
    }
    let chunked = head("Transfer-Encoding: chunked\r\n") + "0\r\n\r\n";
    let answer = api.exchange(chunked);
    assert_eq!(answer.status(), 200);
    assert!(answer.names("connection", "close"), "{answer:?}");
}

#[test]
fn clients_that_send_nothing_cost_little() {
    raise_descriptors();
    let endpoint = Endpoint::named("a");
    let config = Config::serving([endpoint.origin("a")]).timeout("client_header", "5s");
    let usher = Usher::start(&config);
    let count = scaled(10_000);
    let mut silent = within(&usher, 16 * MIB + count as u64 * 8 * 1024, || {
        let silent: Vec<_> = (0..count).map(|_| usher.connect()).collect();
        eventually("all are accepted", || {
            (usher.metric("usher_http_connections_accepted_total") >= count as f64).then_some(())
        });
        is_served(&usher);
        silent
    });
    // Each is given up, with a word or without one.
    silent.iter_mut().for_each(|wire| drop(wire.rest()));
    is_served(&usher);
}

#[test]
fn clients_that_send_a_byte_now_and_then_do_not_gain_time() {
    raise_descriptors();
    let endpoint = Endpoint::named("a");
    let config = Config::serving([endpoint.origin("a")]).timeout("client_header", "3s");
    let usher = Usher::start(&config);
    let count = scaled(1000);
    within(&usher, 16 * MIB + count as u64 * 32 * 1024, || {
        let mut slow: Vec<_> = (0..count).map(|_| usher.connect()).collect();
        let head = format!("GET / HTTP/1.1\r\nHost: {HOST}\r\nX-Slow: ");
        let bytes = head.bytes().chain(std::iter::repeat(b'x'));
        let given_up = |wire: &mut Wire| !wire.stays_open(Duration::from_millis(1));
        for byte in bytes {
            if slow.iter_mut().all(given_up) {
                break;
            }
            // Those that were given up take it or refuse it.
            slow.iter_mut().for_each(|wire| drop(wire.try_send([byte])));
            is_served(&usher);
        }
    });
}

/// Answers `GET /` and holds everything else as it is until the sender is gone.
fn holding(long: impl Fn(&mut Visit) + Send + Sync + 'static) -> (Endpoint, Sender<()>) {
    let (done, wait) = channel::<()>();
    let wait = Mutex::new(wait);
    let endpoint = Endpoint::scripted(move |visit| {
        while let Some(request) = visit.request_head() {
            if request.target() == "/" {
                visit.send(ok("a"));
                continue;
            }
            long(visit);
            let _ = wait.lock().unwrap().recv_timeout(PATIENCE);
        }
    });
    (endpoint, done)
}

#[test]
fn clients_that_never_read_hold_back_the_endpoint() {
    let (endpoint, done) = holding(|visit| {
        visit.send(format!("HTTP/1.1 200 OK\r\nContent-Length: {LONG}\r\n\r\n"));
        visit.send(vec![b'x'; LONG]);
    });
    let config = Config::serving([endpoint.origin("a")]).timeout("body_idle", "5s");
    let usher = Usher::start(&config);
    let count = scaled(100);
    let lines = count + 2; // beside those of the long answers: one before, one meanwhile
    within(&usher, 16 * MIB + count as u64 * MIB, || {
        let mut deaf: Vec<_> = (0..count).map(|_| usher.connect()).collect();
        for wire in &mut deaf {
            wire.receive_little(4096);
            wire.send(format!("GET /long HTTP/1.1\r\nHost: {HOST}\r\n\r\n"));
        }
        is_served(&usher);
        usher.access_log(lines);
    });
    drop(done);
    let cut = usher.access_log(lines);
    let cut = cut.iter().filter(|line| line["error"] == "client-timeout");
    assert_eq!(cut.count(), count);
}

#[test]
fn an_endpoint_that_never_reads_holds_back_its_clients() {
    let (endpoint, done) = holding(|_| {});
    let config = Config::serving([endpoint.origin("a")]).timeout("response_header", "5s");
    let usher = Usher::start(&config);
    let count = scaled(100);
    within(&usher, 16 * MIB + count as u64 * MIB, || {
        let wires: Vec<_> = (0..count).map(|_| usher.connect()).collect();
        std::thread::scope(|scope| {
            for mut wire in wires {
                scope.spawn(move || {
                    wire.send(format!(
                        "POST /long HTTP/1.1\r\nHost: {HOST}\r\nContent-Length: {LONG}\r\n\r\n"
                    ));
                    // Refused half way, when the endpoint is given up.
                    let _ = wire.try_send(vec![b'x'; LONG]);
                });
            }
            is_served(&usher);
            // Beside those of the long bodies: one before, one meanwhile.
            let lines = usher.access_log(count + 2);
            let given_up = lines.iter().filter(|line| line["status"] == 524);
            assert_eq!(given_up.count(), count);
        });
    });
    drop(done);
}

#[test]
fn without_descriptors_accepting_pauses_and_what_is_there_goes_on() {
    raise_descriptors();
    let endpoint = Endpoint::named("a");
    let usher = Usher::start(&Config::serving([endpoint.origin("a")]));
    let mut before = usher.connect();
    assert_eq!(before.get(HOST, "/").status(), 200);
    let descriptors = || {
        let open = std::fs::read_dir(format!("/proc/{}/fd", usher.pid()));
        open.unwrap().count() as u64
    };
    let open = descriptors();
    let limit = Rlimit {
        current: Some(open + 20),
        maximum: Some(open + 20),
    };
    let pid = Pid::from_raw(i32::try_from(usher.pid()).unwrap());
    prlimit(pid, Resource::Nofile, limit).unwrap();
    let mut more: Vec<_> = (0..40).map(|_| usher.connect()).collect();
    eventually("the log says it", || {
        usher.stderr().contains("accepting pauses").then_some(())
    });
    for _ in 0..10 {
        assert_eq!(before.get(HOST, "/").status(), 200);
    }
    // Who waited in the queue is served once there is room, and so is who comes then.
    let mut last = more.pop().unwrap();
    drop(more);
    // Without room it could be accepted and not passed on.
    eventually("there is room", || {
        (descriptors() < open + 10).then_some(())
    });
    assert_eq!(last.get(HOST, "/").status(), 200);
    is_served(&usher);
}
