//! WebSockets through the front: frames are the ends' own business, the handshake is ours.

use std::time::Duration;

use rustix::process::Signal;
use serde_json::json;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::protocol::CloseFrame;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::{Error, Message, client};

use crate::support::config::HOST;
use crate::support::websocket::{echo, open};
use crate::support::{Config, Endpoint, PATIENCE, Usher, Wire, eventually};

fn serving(timeouts: &[(&str, &str)]) -> (Endpoint, Usher) {
    let endpoint = Endpoint::scripted(echo);
    let config = timeouts.iter().fold(
        Config::serving([endpoint.origin("a")]),
        |config, (name, value)| config.timeout(name, value),
    );
    let usher = Usher::start(&config);
    (endpoint, usher)
}

#[test]
fn messages_of_every_kind_and_size_come_back() {
    let (_endpoint, usher) = serving(&[]);
    let mut socket = open(&usher);
    for size in [0, 1, 125, 126, 65_535, 65_536, 1_000_000] {
        let text = Message::text("t".repeat(size));
        socket.send(text.clone()).unwrap();
        assert_eq!(socket.read().unwrap(), text);
        let binary = Message::binary(vec![0xff; size]);
        socket.send(binary.clone()).unwrap();
        assert_eq!(socket.read().unwrap(), binary);
    }
    socket.send(Message::Ping("beat".into())).unwrap();
    assert_eq!(socket.read().unwrap(), Message::Pong("beat".into()));
}

#[test]
fn one_that_a_stop_cuts_has_its_line() {
    let (_endpoint, mut usher) = serving(&[]);
    let mut socket = open(&usher);
    let message = Message::text("eight by");
    socket.send(message.clone()).unwrap();
    assert_eq!(socket.read().unwrap(), message);
    usher.signal(Signal::TERM);
    eventually("the stop to begin", || {
        usher.stderr().contains("stopping: ").then_some(())
    });
    usher.signal(Signal::TERM);
    usher.wait();
    let line = &usher.access_log(1)[0];
    assert_eq!(
        (&line["error"], &line["status"], &line["bytes_out"]),
        (&json!("cut-by-stop"), &json!(101), &json!(10))
    );
}

#[test]
fn the_code_of_a_close_arrives() {
    let (_endpoint, usher) = serving(&[]);
    let mut socket = open(&usher);
    let frame = CloseFrame {
        code: CloseCode::Library(4321),
        reason: "enough".into(),
    };
    socket.close(Some(frame.clone())).unwrap();
    assert_eq!(socket.read().unwrap(), Message::Close(Some(frame)));
    assert!(matches!(socket.read(), Err(Error::ConnectionClosed)));
}

#[test]
fn a_subprotocol_is_agreed_between_the_ends() {
    let (_endpoint, usher) = serving(&[]);
    let mut request = format!("ws://{HOST}/socket").into_client_request().unwrap();
    request
        .headers_mut()
        .insert("sec-websocket-protocol", "chat".parse().unwrap());
    let (_socket, response) = client(request, usher.connect().socket()).unwrap();
    assert_eq!(response.headers()["sec-websocket-protocol"], "chat");
}

#[test]
fn the_handshake_reaches_the_endpoint_whole() {
    let endpoint = Endpoint::scripted(|visit| {
        visit.request();
        visit.send("HTTP/1.1 403 Forbidden\r\nContent-Length: 2\r\n\r\nno");
        visit.request();
    });
    let usher = Usher::start(&Config::serving([endpoint.origin("a")]));
    let mut wire = usher.connect();
    let answer = wire.exchange(
        "GET /socket HTTP/1.1\r\nHost: shop.example.com\r\nUpgrade: websocket\r\n\
         Connection: keep-alive, Upgrade\r\nSec-WebSocket-Version: 13\r\n\
         Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nOrigin: https://shop.example.com\r\n\r\n",
    );
    assert_eq!(
        (answer.status(), answer.text().as_str()),
        (403, "no"),
        "a refusal is an answer"
    );
    let arrived = endpoint.next();
    assert!(arrived.names("connection", "upgrade") && arrived.names("upgrade", "websocket"));
    assert_eq!(
        arrived.field("sec-websocket-key"),
        Some("dGhlIHNhbXBsZSBub25jZQ==")
    );
    assert_eq!(arrived.field("origin"), Some("https://shop.example.com"));
    assert_eq!(
        wire.get(HOST, "/next").text(),
        "no",
        "the connection goes on as HTTP"
    );
}

#[test]
fn bytes_right_behind_the_handshake_are_part_of_the_tunnel() {
    let endpoint = Endpoint::scripted(|visit| {
        visit.request();
        visit.send(
            "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\nfrom the endpoint",
        );
        assert_eq!(visit.wire.bytes(15), b"from the client");
        visit.send("!");
        visit.wire.finish();
        visit.wire.rest();
    });
    let usher = Usher::start(&Config::serving([endpoint.origin("a")]));
    let mut wire = usher.connect();
    wire.send(
        "GET / HTTP/1.1\r\nHost: shop.example.com\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
         Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\nfrom the client",
    );
    assert_eq!(wire.response().status(), 101);
    let (rest, _) = wire.rest();
    assert_eq!(String::from_utf8_lossy(&rest), "from the endpoint!");
}

#[test]
fn an_upgrade_that_is_never_answered_is_524() {
    let endpoint = Endpoint::silent();
    let usher =
        Usher::start(&Config::serving([endpoint.origin("a")]).timeout("response_header", "500ms"));
    match client(format!("ws://{HOST}/socket"), usher.connect().socket()) {
        Err(error) => {
            let text = error.to_string();
            assert!(text.contains("524"), "{text}");
        }
        Ok(_) => panic!("opened without an answer"),
    }
}

#[test]
fn no_deadline_of_requests_ends_an_open_socket() {
    let names = [
        "response_header",
        "client_header",
        "client_body_idle",
        "keep_alive",
    ];
    let (_endpoint, usher) = serving(&names.map(|name| (name, "400ms")));
    let mut socket = open(&usher);
    let mut wire = Wire::over(socket.get_ref().try_clone().unwrap());
    assert!(
        wire.stays_open(Duration::from_millis(1500)),
        "silence is no fault in a WebSocket"
    );
    socket.send(Message::text("still here")).unwrap();
    assert_eq!(socket.read().unwrap(), Message::text("still here"));
}

#[test]
fn a_socket_on_which_nothing_moves_at_all_is_given_up() {
    let (_endpoint, usher) = serving(&[("body_idle", "1500ms")]);
    let mut socket = open(&usher);
    for _ in 0..11 {
        let mut wire = Wire::over(socket.get_ref().try_clone().unwrap());
        assert!(
            wire.stays_open(Duration::from_millis(150)),
            "each message begins it anew"
        );
        socket.send(Message::text("beat")).unwrap();
        assert_eq!(socket.read().unwrap(), Message::text("beat"));
    }
    Wire::over(socket.get_ref().try_clone().unwrap()).rest();
    assert_eq!(usher.access_log(1)[0]["error"], "tunnel-idle");
}

#[test]
fn an_endpoint_that_goes_ends_the_socket() {
    let (endpoint, usher) = serving(&[]);
    let mut socket = open(&usher);
    socket.send(Message::text("one")).unwrap();
    assert_eq!(socket.read().unwrap(), Message::text("one"));
    drop(endpoint);
    socket.get_ref().set_read_timeout(Some(PATIENCE)).unwrap();
    assert!(socket.read().is_err());
}

#[test]
fn other_upgrades_are_not_for_us() {
    let endpoint = Endpoint::named("a");
    let usher = Usher::start(&Config::serving([endpoint.origin("a")]));
    let mut wire = usher.connect();
    let answer = wire.exchange(
        "GET / HTTP/1.1\r\nHost: shop.example.com\r\nUpgrade: h2c\r\nConnection: Upgrade, HTTP2-Settings\r\n\
         HTTP2-Settings: AAMAAABkAAQAAP__\r\n\r\n",
    );
    assert_eq!(answer.status(), 200);
    let arrived = endpoint.next();
    assert_eq!(arrived.field("upgrade"), None, "{arrived:?}");
    assert_eq!(arrived.field("http2-settings"), None, "{arrived:?}");
}

#[test]
fn an_open_socket_is_one_request_in_the_log_when_it_ends() {
    let (_endpoint, usher) = serving(&[]);
    let mut socket = open(&usher);
    socket.send(Message::text("hello")).unwrap();
    socket.read().unwrap();
    usher.expect_metric("usher_http_in_flight", 1.0);
    socket.close(None).unwrap();
    while socket.read().is_ok() {}
    drop(socket);
    let line = &usher.access_log(1)[0];
    assert_eq!(
        (&line["status"], &line["path"]),
        (&json!(101), &json!("/socket"))
    );
    assert_eq!(line["error"], json!(null));
}
