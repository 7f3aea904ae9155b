//! Clients of HTTP/2 that break rules, or keep them in bad faith.

use std::time::Duration;

use crate::frames::*;
use crate::kit::{HOST, Origin, Setup, Usher, get as get1, status};

const ENHANCE_YOUR_CALM: u32 = 11;

#[test]
fn malformed_requests_are_refused_and_reach_no_endpoint() {
    let origin = Origin::echo();
    let usher = Usher::to(&origin);
    let head = |more: &[(&'static str, &'static str)]| {
        let all = [(":method", "GET"), (":scheme", "http"), (":path", "/")];
        block(&[&all[..], more].concat())
    };
    let authority = (":authority", HOST);
    // Answered where we see it, reset where the frame layer does.
    let rows: [(&str, Vec<u8>, Option<u16>); 14] = [
        (
            "userinfo",
            head(&[(":authority", "user@shop.example.com")]),
            Some(400),
        ),
        (
            "contradiction",
            head(&[authority, ("host", "other.example.com")]),
            Some(400),
        ),
        (
            "two hosts",
            head(&[("host", HOST), ("host", HOST)]),
            Some(400),
        ),
        ("nobody", head(&[]), Some(400)),
        (
            "bad length",
            head(&[authority, ("content-length", "+1")]),
            None,
        ),
        (
            "connection",
            head(&[authority, ("connection", "close")]),
            None,
        ),
        (
            "transfer-encoding",
            head(&[authority, ("transfer-encoding", "chunked")]),
            None,
        ),
        ("upgrade", head(&[authority, ("upgrade", "h2c")]), None),
        ("keep-alive", head(&[authority, ("keep-alive", "5")]), None),
        ("te", head(&[authority, ("te", "gzip")]), None),
        ("upper case", head(&[authority, ("X-Upper", "1")]), None),
        ("line break", head(&[authority, ("x", "a\r\nb: c")]), None),
        (
            "connect",
            block(&[(":method", "CONNECT"), authority]),
            Some(405),
        ),
        (
            "no path",
            block(&[
                (":method", "GET"),
                (":scheme", "http"),
                (":path", ""),
                authority,
            ]),
            None,
        ),
    ];
    for (what, block, expected) in rows {
        let mut client = Client::new(&usher);
        client.send(HEADERS, END_HEADERS | END_STREAM, 1, &block);
        match expected {
            Some(expected) => assert_eq!(client.status(), expected, "{what}"),
            None => loop {
                match client.next().map(|frame| frame.kind) {
                    Some(RST_STREAM | GOAWAY) | None => break,
                    Some(HEADERS) => break assert_eq!(what, "bad length", "answered"),
                    Some(_) => {}
                }
            },
        }
    }
    assert!(origin.is_silent());
}

#[test]
fn a_header_that_is_too_large_is_431() {
    let origin = Origin::echo();
    let usher = Usher::to(&origin);
    let large = "a".repeat(15_000);
    let large: Vec<_> = ["x-1", "x-2", "x-3", "x-4", "x-5"]
        .map(|name| (name, &*large))
        .to_vec();
    let block = get(&large);
    let mut client = Client::new(&usher);
    let pieces: Vec<_> = block.chunks(16_000).collect();
    for (place, piece) in pieces.iter().enumerate() {
        let kind = if place == 0 { HEADERS } else { CONTINUATION };
        let last = if place + 1 == pieces.len() {
            END_HEADERS
        } else {
            0
        };
        client.send(
            kind,
            last | if place == 0 { END_STREAM } else { 0 },
            1,
            piece,
        );
    }
    assert_eq!(client.status(), 431);
    let many: Vec<_> = (0..200).map(|_| ("x", "1")).collect();
    let mut client = Client::new(&usher);
    client.send(HEADERS, END_HEADERS | END_STREAM, 1, &get(&many));
    assert_eq!(client.status(), 431);
    assert!(origin.is_silent());
}

#[test]
fn a_head_without_end_is_cut_off() {
    let usher = Usher::to(&Origin::echo());
    let mut client = Client::new(&usher);
    client.send(HEADERS, 0, 1, &get(&[]));
    let piece = block(&[("x", &"a".repeat(100))]);
    let flood = frame(CONTINUATION, 0, 1, &piece).repeat(10_000);
    client.0.try_send(flood);
    client.0.rest();
}

#[test]
fn a_head_that_trickles_is_cut_off_on_a_busy_connection_too() {
    let origin = Origin::new(|peer, _, report| {
        peer.head();
        let _ = report.send("asked".to_owned());
        peer.rest();
    });
    let mut setup = Setup::to(&[origin.address]);
    setup.settings.timeouts.client_header = Duration::from_millis(100);
    let usher = setup.start();
    let mut client = Client::new(&usher);
    client.send(HEADERS, END_HEADERS | END_STREAM, 1, &get(&[]));
    assert_eq!(origin.said(), "asked");
    // The first byte of the block, and no more.
    client
        .0
        .send(&frame(HEADERS, END_HEADERS | END_STREAM, 3, &get(&[]))[..10]);
    assert_eq!(client.goodbye(), ENHANCE_YOUR_CALM);
}

#[test]
fn who_says_nothing_is_let_go() {
    let mut setup = Setup::to(&[Origin::closed()]);
    setup.settings.timeouts.client_header = Duration::from_millis(50);
    let usher = setup.start();
    Client::new(&usher).goodbye();
    // Not even the whole preface.
    let mut client = usher.client();
    client.send("PRI * HTTP/2.0\r\n\r\nSM");
    client.rest();
}

#[test]
fn an_idle_connection_ends_with_goaway() {
    let origin = Origin::echo();
    let mut setup = Setup::to(&[origin.address]);
    setup.settings.timeouts.keep_alive = Duration::from_millis(50);
    let usher = setup.start();
    let mut client = Client::new(&usher);
    client.send(HEADERS, END_HEADERS | END_STREAM, 1, &get(&[]));
    assert_eq!(client.status(), 200);
    assert_eq!(client.goodbye(), 0);
}

#[test]
fn streams_that_are_opened_only_to_be_reset_end_the_connection() {
    let origin = Origin::new(|peer, _, _| {
        peer.rest();
    });
    let usher = Usher::to(&origin);
    let mut client = Client::new(&usher);
    let block = get(&[]);
    let mut all = Vec::new();
    for stream in (1..2001).step_by(2) {
        all.extend(frame(HEADERS, END_HEADERS | END_STREAM, stream, &block));
        all.extend(frame(RST_STREAM, 0, stream, &8_u32.to_be_bytes()));
    }
    client.0.try_send(all);
    assert_eq!(client.goodbye(), ENHANCE_YOUR_CALM);
}

#[test]
fn streams_that_are_abandoned_one_by_one_end_the_connection_too() {
    let origin = Origin::new(|peer, _, report| {
        peer.head();
        let _ = report.send("asked".to_owned());
        peer.rest();
    });
    let usher = Usher::to(&origin);
    let mut client = Client::new(&usher);
    let mut stream = 1;
    // Each is seen by the endpoint before it is abandoned, as no count of pending resets notices.
    let ended = loop {
        if !client
            .0
            .try_send(frame(HEADERS, END_HEADERS | END_STREAM, stream, &get(&[])))
        {
            break true;
        }
        if origin.heard(Duration::from_secs(1)).is_none() {
            break true;
        }
        client
            .0
            .try_send(frame(RST_STREAM, 0, stream, &8_u32.to_be_bytes()));
        stream += 2;
        if stream > 1000 {
            break false;
        }
    };
    assert!(ended, "500 abandoned streams, and still served");
    assert_eq!(client.goodbye(), ENHANCE_YOUR_CALM);
}

#[test]
fn floods_of_small_frames_do_not_pile_up() {
    let origin = Origin::echo();
    let usher = Usher::to(&origin);
    let floods = [
        frame(PING, 0, 0, &[0; 8]).repeat(20_000),
        frame(SETTINGS, 0, 0, &[]).repeat(20_000),
        frame(WINDOW_UPDATE, 0, 0, &1_u32.to_be_bytes()).repeat(20_000),
    ];
    for flood in floods {
        let mut client = Client::new(&usher);
        // It never reads the answers; either it is stopped, or it was harmless.
        client
            .0
            .socket()
            .set_write_timeout(Some(Duration::from_millis(200)))
            .expect("timeout");
        client.0.try_send(flood);
    }
    // Others are served as before.
    assert_eq!(status(&usher.ask(&get1("/")).0), 200);
}

#[test]
fn empty_data_frames_without_end_do_not_occupy_us() {
    let origin = Origin::new(|peer, _, _| {
        peer.rest();
    });
    let usher = Usher::to(&origin);
    let mut client = Client::new(&usher);
    let head = block(&[
        (":method", "POST"),
        (":scheme", "http"),
        (":path", "/"),
        (":authority", HOST),
    ]);
    client.send(HEADERS, END_HEADERS, 1, &head);
    client.0.try_send(frame(DATA, 0, 1, &[]).repeat(100_000));
    assert_eq!(client.goodbye(), ENHANCE_YOUR_CALM);
}

#[test]
fn more_streams_than_allowed_are_refused_and_the_others_go_on() {
    let origin = Origin::new(|peer, _, _| {
        peer.head();
        peer.exactly(2);
        peer.answer("200 OK", "");
    });
    let usher = Usher::to(&origin);
    let mut client = Client::new(&usher);
    let settings = client.until(SETTINGS).payload;
    let max = settings
        .chunks(6)
        .find(|pair| pair[..2] == [0, 3])
        .expect("a limit of streams");
    assert_eq!(u32::from_be_bytes([max[2], max[3], max[4], max[5]]), 128);
    let head = block(&[
        (":method", "POST"),
        (":scheme", "http"),
        (":path", "/"),
        (":authority", HOST),
        ("content-length", "2"),
    ]);
    client.send(SETTINGS, ACK, 0, &[]);
    for stream in (0..129).map(|number| 2 * number + 1) {
        client.send(HEADERS, END_HEADERS, stream, &head);
    }
    let refused = client.until(RST_STREAM);
    assert_eq!(
        (refused.stream, &*refused.payload),
        (257, &7_u32.to_be_bytes()[..])
    );
    client.send(DATA, END_STREAM, 1, b"go");
    assert_eq!(client.status(), 200);
}
