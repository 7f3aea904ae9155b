//! HTTP/2 clients that want to cost much: each is cut off or bounded, and the others are served.

use std::thread;

use crate::support::config::HOST;
use crate::support::endpoint::ok;
use crate::support::http2::{self, Fate, Frames};
use crate::support::{Config, Endpoint, Usher, eventually};

const PING: u8 = 6;
const WINDOW_UPDATE: u8 = 8;
const PRIORITY: u8 = 2;

const BASIS: [(&str, &str); 4] = [
    (":method", "GET"),
    (":scheme", "http"),
    (":authority", HOST),
    (":path", "/"),
];

const POST: [(&str, &str); 4] = [
    (":method", "POST"),
    (":scheme", "http"),
    (":authority", HOST),
    (":path", "/"),
];

fn serving() -> (Endpoint, Usher) {
    let endpoint = Endpoint::named("a");
    let usher = Usher::start(&Config::serving([endpoint.origin("a")]));
    (endpoint, usher)
}

/// Sends the same frame until the connection ends, reading nothing meanwhile.
fn flood(usher: &Usher, kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Fate {
    let mut frames = Frames::over(usher.connect());
    if stream != 0 {
        frames.send(
            http2::HEADERS,
            http2::END_HEADERS,
            stream,
            &http2::block(&POST),
        );
    }
    for _ in 0..200_000 {
        if frames.try_send(kind, flags, stream, payload).is_err() {
            break;
        }
    }
    frames.fate(u32::MAX)
}

#[test]
fn frames_that_ask_for_nothing() {
    let (_endpoint, usher) = serving();
    let before = usher.resident();
    let floods: [(&str, u8, u8, u32, &[u8]); 6] = [
        ("settings", http2::SETTINGS, 0, 0, &[]),
        ("ping", PING, 0, 0, &[0; 8]),
        ("answers to no ping", PING, 1, 0, &[0; 8]),
        ("priority", PRIORITY, 0, 3, &[0, 0, 0, 0, 1]),
        ("window", WINDOW_UPDATE, 0, 0, &[0, 0, 0, 1]),
        ("unknown", 0xfa, 0, 0, &[0; 8]),
    ];
    for (name, kind, flags, stream, payload) in floods {
        let fate = flood(&usher, kind, flags, stream, payload);
        assert!(matches!(fate, Fate::Gone(_)), "{name}: {fate:?}");
    }
    let fate = flood(&usher, http2::DATA, 0, 1, &[]);
    assert!(matches!(fate, Fate::Gone(_)), "empty data: {fate:?}");
    assert_eq!(usher.get("/").status(), 200);
    let grown = usher.resident().saturating_sub(before);
    assert!(grown < 16 << 20, "{grown} bytes");
    eventually("the floods are counted", || {
        let series = "usher_http_errors_total{reason=\"h2-noise\"}";
        (usher.metric(series) >= 1.0).then_some(())
    });
}

#[test]
fn a_client_that_only_lets_others_notice_may_stay() {
    let (_endpoint, usher) = serving();
    let mut frames = Frames::over(usher.connect());
    for nth in 0..500_u32 {
        for _ in 0..10 {
            frames.send(PING, 0, 0, &[0; 8]);
        }
        frames.request(2 * nth + 1, &BASIS);
        assert_eq!(frames.fate(2 * nth + 1), Fate::Answered(Some(200)));
    }
}

#[test]
fn fields_that_unpack_to_much() {
    let (endpoint, usher) = serving();
    let before = usher.resident();
    let mut frames = Frames::over(usher.connect());
    // One long field for the table, and references to it: 5,000 bytes that say 20 MB.
    let mut block = http2::block(&BASIS);
    block.push(0x40);
    block.extend([1, b'x', 0x7f]);
    let mut rest = 4000 - 127_usize;
    while rest >= 128 {
        block.push((rest % 128 + 128) as u8);
        rest /= 128;
    }
    block.push(rest as u8);
    block.extend(std::iter::repeat_n(b'y', 4000));
    block.extend(std::iter::repeat_n(0x80 | 62, 5000));
    let flags = http2::END_HEADERS | http2::END_STREAM;
    for nth in 0..50_u32 {
        if frames
            .try_send(http2::HEADERS, flags, 2 * nth + 1, &block)
            .is_err()
        {
            break;
        }
    }
    let fate = frames.fate(99);
    assert_ne!(fate, Fate::Answered(Some(200)));
    assert!(endpoint.arrived().is_empty());
    let grown = usher.resident().saturating_sub(before);
    assert!(grown < 16 << 20, "{grown} bytes");
    assert_eq!(usher.get("/").status(), 200);
}

#[test]
fn a_client_that_never_reads_costs_a_bounded_amount() {
    let body = "z".repeat(4 << 20);
    let endpoint = Endpoint::answering(ok(&body));
    let config = Config::serving([endpoint.origin("a")]).timeout("body_idle", "5s");
    let usher = Usher::start(&config);
    let before = usher.resident();
    let wire = usher.connect();
    wire.receive_little(4096);
    let mut frames = Frames::over(wire);
    // As large a window as can be, for each stream and for all.
    let window = [0, 4, 0x7f, 0xff, 0xff, 0xff];
    frames.send(http2::SETTINGS, 0, 0, &window);
    frames.send(WINDOW_UPDATE, 0, 0, &0x7fff_0000_u32.to_be_bytes());
    for nth in 0..100_u32 {
        frames.request(2 * nth + 1, &BASIS);
    }
    for _ in 0..100 {
        endpoint.next();
    }
    // All of them are given up in the end.
    let lines = usher.access_log(100);
    assert!(lines.iter().all(|line| line["error"] == "client-timeout"));
    let grown = usher.resident_max().saturating_sub(before);
    assert!(grown < 48 << 20, "{grown} bytes for one client");
    assert_eq!(usher.get("/").body.len(), body.len());
}

#[test]
fn a_window_that_overflows_or_does_not_grow() {
    let (_endpoint, usher) = serving();
    let mut frames = Frames::over(usher.connect());
    for _ in 0..2 {
        let _ = frames.try_send(WINDOW_UPDATE, 0, 0, &0x7fff_ffff_u32.to_be_bytes());
    }
    assert!(matches!(frames.fate(1), Fate::Gone(Some(_))));
    let mut frames = Frames::over(usher.connect());
    frames.send(WINDOW_UPDATE, 0, 0, &[0; 4]);
    assert!(matches!(frames.fate(1), Fate::Gone(Some(_))));
    assert_eq!(usher.get("/").status(), 200);
}

#[test]
fn heads_that_never_end_are_each_cut_off_in_time() {
    let endpoint = Endpoint::named("a");
    let config = Config::serving([endpoint.origin("a")]).timeout("client_header", "3s");
    let usher = Usher::start(&config);
    let mut slow: Vec<Frames> = (0..50)
        .map(|_| {
            let mut frames = Frames::over(usher.connect());
            frames.send(http2::HEADERS, 0, 1, &http2::block(&BASIS));
            frames
        })
        .collect();
    thread::scope(|scope| {
        for frames in &mut slow {
            scope.spawn(|| {
                assert!(matches!(frames.fate(1), Fate::Gone(_)));
            });
        }
    });
    assert_eq!(usher.get("/").status(), 200);
}
