//! How a listener goes away: with an answer, or when the grace ends.

use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

use usher_core::request::Scheme;

use crate::block_on;
use crate::kit::{Origin, PATIENCE, Peer, Usher, field, get, status};

/// Waits until nobody accepts at `address`: only the kernel knows, and it tells nobody.
fn refused(address: SocketAddr) {
    let until = Instant::now() + PATIENCE;
    while TcpStream::connect(address).is_ok() {
        assert!(Instant::now() < until, "still accepting");
        thread::yield_now();
    }
}

#[test]
fn an_idle_connection_ends_with_its_next_answer_and_not_before() {
    let origin = Origin::echo();
    let usher = Usher::to(&origin);
    let mut client = usher.client();
    client.send(get("/1"));
    assert_eq!(field(&client.message().0, "connection"), None);
    thread::scope(|scope| {
        let (done, drained) = channel();
        let front = &usher.front;
        scope.spawn(move || {
            block_on(front.drain(PATIENCE));
            done.send(()).expect("the test waits");
        });
        refused(usher.address);
        assert!(drained.try_recv().is_err(), "a connection is open still");
        client.send(get("/2"));
        let (head, _) = client.message();
        assert_eq!(
            (status(&head), field(&head, "connection")),
            (200, Some("close"))
        );
        client.ended();
        drained.recv_timeout(PATIENCE).expect("drained");
    });
    assert!(usher.front.listening().is_empty());
}

#[test]
fn a_request_under_way_is_answered_during_the_grace() {
    let origin = Origin::new(|peer, _, report| {
        peer.head();
        let _ = report.send("asked".to_owned());
        // The test goes on when the listener is gone; the client's next bytes say so.
        assert_eq!(peer.exactly(2), b"go");
        peer.answer("200 OK", "late");
    });
    let usher = Usher::to(&origin);
    let mut client = usher.client();
    client.send("POST / HTTP/1.1\r\nHost: shop.example.com\r\nContent-Length: 2\r\n\r\n");
    assert_eq!(origin.said(), "asked");
    thread::scope(|scope| {
        scope.spawn(|| block_on(usher.front.drain(PATIENCE)));
        refused(usher.address);
        client.send("go");
        let (head, body) = client.message();
        assert_eq!(
            (field(&head, "connection"), &*body),
            (Some("close"), "late")
        );
    });
}

#[test]
fn what_is_left_when_the_grace_ends_is_cut() {
    let origin = Origin::new(|peer, _, report| {
        peer.head();
        let _ = report.send("asked".to_owned());
        let _ = report.send(format!("{:?}", peer.rest()));
    });
    let usher = Usher::to(&origin);
    let mut idle = usher.client();
    let mut waiting = usher.client();
    waiting.send(get("/"));
    assert_eq!(origin.said(), "asked");
    block_on(usher.front.drain(Duration::from_millis(20)));
    idle.ended();
    waiting.ended();
    assert!(
        origin.said().starts_with("(\"\""),
        "the endpoint's connection is closed too"
    );
    assert_eq!(
        (
            usher.plane.ledger().connections(),
            usher.plane.ledger().in_flight()
        ),
        (0, 0)
    );
}

#[test]
fn another_listeners_connections_stay() {
    let origin = Origin::echo();
    let usher = Usher::to(&origin);
    let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let other = usher.front.listen(any, Scheme::Http).expect("listen");
    let mut client = usher.client();
    client.send(get("/"));
    client.message();
    let mut gone = Peer::new(TcpStream::connect(other.address).expect("connect"));
    gone.send(get("/"));
    gone.message();
    block_on(usher.front.unlisten(other.id, Duration::ZERO));
    gone.ended();
    refused(other.address);
    client.send(get("/"));
    assert_eq!(field(&client.message().0, "connection"), None);
    // The port is free for the next listener at once.
    usher
        .front
        .listen(other.address, Scheme::Http)
        .expect("listen again");
}

#[test]
fn a_tunnel_lives_until_the_grace_ends() {
    let origin = Origin::new(|peer, _, report| {
        peer.head();
        peer.send(
            "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n",
        );
        assert_eq!(peer.exactly(2), b"go");
        peer.send("on");
        let _ = report.send(format!("{:?}", peer.rest()));
    });
    let usher = Usher::to(&origin);
    let mut client = usher.client();
    client.send(
        "GET / HTTP/1.1\r\nHost: shop.example.com\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\
         Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n",
    );
    assert_eq!(status(&client.head()), 101);
    thread::scope(|scope| {
        scope.spawn(|| block_on(usher.front.drain(Duration::from_millis(200))));
        refused(usher.address);
        client.send("go");
        assert_eq!(client.exactly(2), b"on");
        client.ended();
    });
    assert!(origin.said().starts_with("(\"\""));
}
