//! WebSockets of clients that speak HTTP/2 (RFC 8441), to endpoints of either version.

use std::future::poll_fn;
use std::net::TcpStream;

use bytes::Bytes;
use h2::ext::Protocol;
use h2::server::Builder;
use h2::{RecvStream, SendStream};
use http::{Request, Response};
use serde_json::json;
use tokio_tungstenite::tungstenite::accept;

use crate::support::config::HOST;
use crate::support::http2::{Client, block_on};
use crate::support::http2_endpoint::serve;
use crate::support::{Config, Endpoint, Usher};

fn opening(path: &str) -> Request<()> {
    let mut request = Request::connect(format!("http://{HOST}{path}"))
        .header("sec-websocket-version", "13")
        .header("origin", "http://shop.example.com")
        .body(())
        .unwrap();
    request
        .extensions_mut()
        .insert(Protocol::from_static("websocket"));
    request
}

/// Opens a WebSocket on a stream.
async fn open(client: &Client, path: &str) -> (Response<RecvStream>, SendStream<Bytes>) {
    let mut sender = client.0.clone().ready().await.unwrap();
    // The setting comes with the first frames.
    while !sender.is_extended_connect_protocol_enabled() {
        tokio::task::yield_now().await;
    }
    let (response, send) = sender.send_request(opening(path), false).unwrap();
    (response.await.unwrap(), send)
}

/// One text frame of a client, masked with zeros.
fn text(message: &[u8]) -> Bytes {
    let mut frame = vec![0x81, 0x80 | message.len() as u8, 0, 0, 0, 0];
    frame.extend_from_slice(message);
    frame.into()
}

/// The next bytes; None at the end, which an empty frame may bring.
async fn next(receive: &mut RecvStream) -> Option<Bytes> {
    let piece = receive.data().await?.unwrap();
    let _ = receive.flow_control().release_capacity(piece.len());
    (!piece.is_empty()).then_some(piece)
}

fn echo(socket: TcpStream) {
    let Ok(mut socket) = accept(socket) else {
        return;
    };
    while let Ok(message) = socket.read() {
        if message.is_text() && socket.send(message).is_err() {
            return;
        }
    }
}

async fn talks(usher: &Usher) {
    let client = Client::plain(usher.address("http")).await;
    let (response, mut send) = open(&client, "/chat").await;
    assert_eq!(response.status(), 200);
    for name in ["sec-websocket-accept", "upgrade", "connection"] {
        assert!(!response.headers().contains_key(name), "{name}");
    }
    let mut receive = response.into_body();
    for message in [&b"one"[..], b"two"] {
        send.send_data(text(message), false).unwrap();
        let echoed = next(&mut receive).await.unwrap();
        assert_eq!(echoed[2..], *message);
    }
    // A close frame, and its echo; then both ends.
    let close = Bytes::from_static(&[0x88, 0x82, 0, 0, 0, 0, 3, 0xe8]);
    send.send_data(close, true).unwrap();
    assert_eq!(next(&mut receive).await.unwrap()[0], 0x88);
    assert!(next(&mut receive).await.is_none());
}

#[test]
fn to_an_endpoint_of_http_1() {
    let endpoint = Endpoint::scripted(|visit| echo(visit.take_socket()));
    let usher = Usher::start(&Config::serving([endpoint.origin("a")]));
    block_on(talks(&usher));
    let line = &usher.access_log(1)[0];
    assert_eq!(
        (&line["status"], &line["protocol"]),
        (&json!(101), &json!("HTTP/2"))
    );
    assert_eq!(line["error"], json!(null), "{line}");
}

#[test]
fn to_an_endpoint_of_http_2_that_knows_them() {
    let endpoint = Endpoint::scripted(|visit| {
        let mut builder = Builder::new();
        builder.enable_connect_protocol();
        serve(visit, &builder, |mut call| {
            Box::pin(async move {
                let protocol = call.request.extensions().get::<Protocol>();
                assert_eq!(protocol.map(Protocol::as_str), Some("websocket"));
                assert_eq!(call.request.headers()["sec-websocket-version"], "13");
                let mut send = call.head(Response::new(()));
                while let Some(piece) = next(&mut call.body).await {
                    // What comes masked with zeros goes back without.
                    let length = piece[1] & 0x7f;
                    let frame = [&[piece[0], length][..], &piece[6..]].concat();
                    send.send_data(frame.into(), false).unwrap();
                }
                send.send_data(Bytes::new(), true).unwrap();
            })
        });
    });
    let config = Config::serving([endpoint.origin("a")])
        .set(&["pools", "main", "usher", "http2"], json!(true));
    let usher = Usher::start(&config);
    block_on(talks(&usher));
    assert_eq!(endpoint.connections(), 1);
}

#[test]
fn a_refusal_is_an_answer() {
    let endpoint = Endpoint::answering("HTTP/1.1 403 Forbidden\r\nContent-Length: 2\r\n\r\nno");
    let usher = Usher::start(&Config::serving([endpoint.origin("a")]));
    block_on(async {
        let client = Client::plain(usher.address("http")).await;
        let (response, _send) = open(&client, "/").await;
        assert_eq!(response.status(), 403);
        assert_eq!(&next(&mut response.into_body()).await.unwrap()[..], b"no");
    });
    let asked = endpoint.next();
    assert_eq!(asked.start, "GET / HTTP/1.1");
    assert_eq!(asked.field("upgrade"), Some("websocket"));
    assert_eq!(asked.field("sec-websocket-key").unwrap().len(), 24);
}

#[test]
fn an_endpoint_that_did_not_understand_is_not_believed() {
    let endpoint = Endpoint::answering(
        "HTTP/1.1 101 Switching\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\
         Sec-WebSocket-Accept: AAAAAAAAAAAAAAAAAAAAAAAAAAA=\r\n\r\n",
    );
    let usher = Usher::start(&Config::serving([endpoint.origin("a")]));
    block_on(async {
        let client = Client::plain(usher.address("http")).await;
        let (response, _send) = open(&client, "/").await;
        assert_eq!(response.status(), 520);
    });
    assert_eq!(usher.access_log(1)[0]["error"], "websocket-accept");
}

#[test]
fn a_client_that_resets_the_stream_closes_the_endpoints_connection() {
    let endpoint = Endpoint::scripted(|visit| echo(visit.take_socket()));
    let usher = Usher::start(&Config::serving([endpoint.origin("a")]));
    block_on(async {
        let client = Client::plain(usher.address("http")).await;
        let (response, mut send) = open(&client, "/").await;
        let mut receive = response.into_body();
        send.send_data(text(b"hello"), false).unwrap();
        next(&mut receive).await.unwrap();
        send.send_reset(h2::Reason::CANCEL);
        poll_fn(|cx| send.poll_reset(cx)).await.ok();
    });
    assert_eq!(usher.access_log(1)[0]["error"], "tunnel-broken");
}

#[test]
fn another_protocol_is_refused() {
    let endpoint = Endpoint::named("a");
    let usher = Usher::start(&Config::serving([endpoint.origin("a")]));
    block_on(async {
        let client = Client::plain(usher.address("http")).await;
        let mut sender = client.0.clone().ready().await.unwrap();
        while !sender.is_extended_connect_protocol_enabled() {
            tokio::task::yield_now().await;
        }
        let mut request = opening("/");
        request
            .extensions_mut()
            .insert(Protocol::from_static("connect-udp"));
        let (response, _send) = sender.send_request(request, false).unwrap();
        assert_eq!(response.await.unwrap().status(), 400);
    });
    assert!(endpoint.arrived().is_empty());
}
