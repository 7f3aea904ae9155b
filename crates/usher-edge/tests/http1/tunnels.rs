//! Connections that switch protocols.

use std::time::Instant;

use super::kit::{HOST, Origin, SHORT, Setup, Usher, field, get, status};

fn websocket(path: &str) -> String {
    format!(
        "GET {path} HTTP/1.1\r\nHost: {HOST}\r\nConnection: keep-alive, Upgrade\r\nUpgrade: websocket\r\n\
         Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"
    )
}

const SWITCHING: &str = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
                         Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n";

#[test]
fn a_websocket_is_a_tunnel_that_closes_one_way_at_a_time() {
    let origin = Origin::new(|peer, _, report| {
        let head = peer.head();
        let _ = report.send(format!(
            "{:?} {:?}",
            field(&head, "connection"),
            field(&head, "upgrade")
        ));
        peer.send(SWITCHING.to_owned() + "hello");
        assert_eq!(peer.exactly(5), b"early");
        let (said, orderly) = peer.rest();
        let _ = report.send(format!("{said} {orderly}"));
        peer.send("farewell");
    });
    let usher = Usher::to(&origin);
    let mut client = usher.client();
    client.send(websocket("/chat") + "early");
    let head = client.head();
    assert_eq!(
        (status(&head), field(&head, "upgrade")),
        (101, Some("websocket"))
    );
    assert_eq!(
        field(&head, "sec-websocket-accept"),
        Some("s3pPLMBiTxaQ9kYGzzhZRbK+xOo=")
    );
    assert_eq!(origin.said(), "Some(\"upgrade\") Some(\"websocket\")");
    assert_eq!(client.exactly(5), b"hello");
    client.send("and so on");
    client.shut();
    assert_eq!(origin.said(), "and so on true");
    assert_eq!(client.rest(), ("farewell".to_owned(), true));
}

#[test]
fn a_websocket_that_is_not_answered_is_524() {
    let origin = Origin::new(|peer, _, _| {
        peer.head();
        peer.rest();
    });
    let mut setup = Setup::to(&[origin.address]);
    setup.settings.timeouts.response_header = SHORT;
    assert_eq!(status(&setup.start().ask(&websocket("/")).0), 524);
}

#[test]
fn a_websocket_that_is_refused_is_an_ordinary_answer() {
    let origin = Origin::new(|peer, _, _| {
        peer.head();
        peer.answer("403 Forbidden", "no");
        peer.head();
        peer.answer("200 OK", "plain");
    });
    let usher = Usher::to(&origin);
    let mut client = usher.client();
    client.send(websocket("/"));
    assert_eq!(client.message().1, "no");
    client.send(get("/"));
    assert_eq!(client.message().1, "plain");
}

#[test]
fn a_silent_tunnel_ends() {
    let origin = Origin::new(|peer, _, report| {
        peer.head();
        peer.send(SWITCHING);
        let _ = report.send(peer.rest().0);
    });
    let mut setup = Setup::to(&[origin.address]);
    // The deadline for the answer means nothing any more.
    setup.settings.timeouts.response_header = SHORT;
    setup.settings.timeouts.body_idle = 3 * SHORT;
    let usher = setup.start();
    let mut client = usher.client();
    let start = Instant::now();
    client.send(websocket("/"));
    client.head();
    client.ended();
    assert!(start.elapsed() >= 3 * SHORT);
    assert_eq!(origin.said(), "");
}
