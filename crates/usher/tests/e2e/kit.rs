//! The kit itself: what the other tests take for granted about their own tools.

use std::net::TcpStream;
use std::time::Duration;

use crate::support::endpoint::{Blackhole, ok, refusing};
use crate::support::tls::Authority;
use crate::support::wire::{Broken, End};
use crate::support::{Endpoint, Wire};

#[test]
fn a_closed_and_a_reset_connection_are_told_apart() {
    let endpoint = Endpoint::scripted(|visit| match visit.request().unwrap().target() {
        "/reset" => visit.reset(),
        "/cut" => visit.send("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\ncu"),
        _ => {}
    });
    let ask = |path: &str| {
        let mut wire = Wire::connect(endpoint.address());
        wire.send(format!("GET {path} HTTP/1.1\r\nHost: x\r\n\r\n"));
        wire.try_response()
    };
    assert!(matches!(ask("/close"), Err(Broken::NoAnswer(End::Closed))));
    assert!(matches!(ask("/reset"), Err(Broken::NoAnswer(End::Reset))));
    assert!(matches!(ask("/cut"), Err(Broken::Cut(message, End::Closed)) if message.body == b"cu"));
}

#[test]
fn messages_are_read_in_every_framing() {
    let endpoint = Endpoint::scripted(|visit| {
        while let Some(request) = visit.request() {
            match request.target() {
                "/length" => visit.send(ok("length")),
                "/end" => {
                    visit.send("HTTP/1.1 200 OK\r\n\r\nend");
                    return;
                }
                _ => visit.send(
                    "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nchu\r\n4\r\nnked\r\n0\r\nX: 1\r\n\r\n",
                ),
            }
        }
    });
    let mut wire = Wire::connect(endpoint.address());
    assert_eq!(wire.get("x", "/length").text(), "length");
    let chunked = wire.get("x", "/chunked");
    assert_eq!(
        (chunked.text().as_str(), chunked.trailers.len()),
        ("chunked", 1)
    );
    assert_eq!(wire.get("x", "/end").text(), "end");
    assert_eq!(endpoint.arrived().len(), 3);
}

#[test]
fn a_hole_neither_takes_nor_refuses_and_a_refusing_address_refuses() {
    let hole = Blackhole::new();
    let attempt = TcpStream::connect_timeout(&hole.address(), Duration::from_millis(200));
    assert_eq!(attempt.unwrap_err().kind(), std::io::ErrorKind::TimedOut);
    let attempt = TcpStream::connect(refusing());
    assert_eq!(
        attempt.unwrap_err().kind(),
        std::io::ErrorKind::ConnectionRefused
    );
}

#[test]
fn an_endpoint_that_is_dropped_is_gone() {
    let endpoint = Endpoint::named("a");
    let address = endpoint.address();
    let mut open = Wire::connect(address);
    assert_eq!(open.get("x", "/").text(), "a");
    drop(endpoint);
    open.expect_end();
    assert!(TcpStream::connect(address).is_err());
    let again = Endpoint::named_on(address, "b");
    assert_eq!(Wire::connect(again.address()).get("x", "/").text(), "b");
}

#[test]
fn tls_is_spoken_on_both_sides() {
    let authority = Authority::new();
    let pair = authority.pair(&["x.example.com"]);
    let endpoint = Endpoint::scripted(move |visit| {
        if let Some(mut wire) = pair.accept(visit.take_socket()) {
            while wire.request().is_some() {
                wire.send(ok("secret"));
            }
        }
    });
    let mut wire = authority.connect(endpoint.address(), "x.example.com");
    assert_eq!(wire.get("x.example.com", "/").text(), "secret");
    assert!(
        authority
            .try_connect(endpoint.address(), "y.example.com", &[])
            .is_err()
    );
}
