//! Large bodies through a slow peer: usher holds a window, never the body.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;
use std::time::Duration;

use crate::soak;
use crate::support::wire::Wire;
use crate::support::{Config, Endpoint, PATIENCE, Usher};

const MIB: u64 = 1024 * 1024;
/// What usher may hold resident, whatever passes through it.
const RESIDENT_MAX: u64 = 100 * MIB;
/// What may be on its way while nobody reads: the sockets of both hops, and a window.
const HELD_MAX: u64 = 32 * MIB;

fn size() -> u64 {
    if soak() { 2048 * MIB } else { 200 * MIB }
}

/// A piece of the body. Its length is no power of two, so that a lost or doubled buffer shows.
fn pattern() -> Vec<u8> {
    (0..250_007_u32).map(|n| (n % 251) as u8).collect()
}

/// Sends `size` bytes, telling how many are gone.
fn pour(wire: &mut Wire, size: u64, sent: &AtomicU64) {
    let pattern = pattern();
    let mut left = size;
    while left > 0 {
        let count = left.min(pattern.len() as u64);
        wire.send(&pattern[..count as usize]);
        sent.fetch_add(count, Ordering::SeqCst);
        left -= count;
    }
}

/// Reads `size` bytes and compares each.
fn drain(wire: &mut Wire, size: u64) {
    let pattern = pattern();
    let mut left = size;
    while left > 0 {
        let count = left.min(pattern.len() as u64);
        assert!(
            wire.bytes(count as usize) == pattern[..count as usize],
            "{left} bytes before the end"
        );
        left -= count;
    }
}

/// Waits until the sender makes no more progress: everything on the way is full.
fn stalls(sent: &AtomicU64) -> u64 {
    let mut before = sent.load(Ordering::SeqCst);
    loop {
        std::thread::park_timeout(Duration::from_millis(400));
        let now = sent.load(Ordering::SeqCst);
        if now == before && now > 0 {
            return now;
        }
        before = now;
    }
}

#[test]
fn an_upload_to_a_slow_endpoint_is_held_back_at_the_client() {
    let size = size();
    let (go, gone) = mpsc::channel::<()>();
    let gone = std::sync::Mutex::new(gone);
    let endpoint = Endpoint::scripted(move |visit| {
        visit.request_head();
        gone.lock().unwrap().recv().unwrap();
        drain(&mut visit.wire, size);
        visit.send("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\ndone");
        visit.request();
    });
    let usher = Usher::start(&Config::serving([endpoint.origin("a")]));
    let mut wire = usher.connect();
    let sent = Arc::new(AtomicU64::new(0));
    let of_sender = Arc::clone(&sent);
    let sender = std::thread::spawn(move || {
        wire.send(format!(
            "POST / HTTP/1.1\r\nHost: shop.example.com\r\nContent-Length: {size}\r\n\r\n"
        ));
        pour(&mut wire, size, &of_sender);
        wire
    });
    let held = stalls(&sent);
    assert!(
        held < HELD_MAX,
        "{} MiB went on while nobody read",
        held / MIB
    );
    go.send(()).unwrap();
    let mut wire = sender.join().unwrap();
    assert_eq!(wire.response().text(), "done");
    within_memory(&usher, "upload", size, held);
}

#[test]
fn a_download_to_a_slow_client_is_held_back_at_the_endpoint() {
    let size = size();
    let sent = Arc::new(AtomicU64::new(0));
    let of_endpoint = Arc::clone(&sent);
    let endpoint = Endpoint::scripted(move |visit| {
        visit.request();
        visit.send(format!("HTTP/1.1 200 OK\r\nContent-Length: {size}\r\n\r\n"));
        pour(&mut visit.wire, size, &of_endpoint);
        visit.request();
    });
    let usher = Usher::start(&Config::serving([endpoint.origin("a")]));
    let mut wire = usher.connect();
    wire.send("GET / HTTP/1.1\r\nHost: shop.example.com\r\n\r\n");
    let held = stalls(&sent);
    assert!(held < HELD_MAX, "{} MiB came while nobody read", held / MIB);
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.extend(wire.bytes(1));
    }
    drain(&mut wire, size);
    within_memory(&usher, "download", size, held);
}

#[test]
fn many_slow_clients_cost_a_window_each() {
    let endpoint = Endpoint::scripted(|visit| {
        while visit.request().is_some() {
            visit.send(format!(
                "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n",
                8 * MIB
            ));
            let sent = AtomicU64::new(0);
            pour(&mut visit.wire, 8 * MIB, &sent);
        }
    });
    let usher = Usher::start(&Config::serving([endpoint.origin("a")]));
    let (done, finished) = mpsc::channel();
    let clients = if soak() { 200 } else { 50 };
    for _ in 0..clients {
        let mut wire = usher.connect();
        wire.receive_little(16 * 1024);
        wire.send("GET / HTTP/1.1\r\nHost: shop.example.com\r\nConnection: close\r\n\r\n");
        let done = done.clone();
        std::thread::spawn(move || {
            let length = wire.response().body.len() as u64;
            done.send(length).unwrap();
        });
    }
    for _ in 0..clients {
        assert_eq!(finished.recv_timeout(PATIENCE * 8).unwrap(), 8 * MIB);
    }
    within_memory(&usher, "slow clients", 8 * MIB * clients, 0);
}

fn within_memory(usher: &Usher, what: &str, size: u64, held: u64) {
    let peak = usher.resident_max();
    println!(
        "{what}: {} MiB through usher, {} MiB on the way at a stall, peak resident {} MiB",
        size / MIB,
        held / MIB,
        peak / MIB
    );
    assert!(
        peak < RESIDENT_MAX,
        "{what}: peak resident {} MiB",
        peak / MIB
    );
}
