//! HTTP/2 from honest clients: what they send reaches the endpoint, and its answer them.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use h2::client::SendRequest;
use http::{HeaderMap, Request, Response};
use rustls_pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use usher_core::request::Scheme;

use crate::kit::{HOST, Origin, PATIENCE, Setup, Usher, field};
use crate::tls::Authority;
use crate::{block_on, frames};

async fn talk(io: impl AsyncRead + AsyncWrite + Unpin + Send + 'static) -> SendRequest<Bytes> {
    let (send, connection) = h2::client::handshake(io).await.expect("handshake");
    // Ends with the connection, in whichever way the test wants.
    tokio::spawn(async move {
        let _ = connection.await;
    });
    send.ready().await.expect("ready")
}

pub(crate) async fn connect(usher: &Usher) -> SendRequest<Bytes> {
    talk(TcpStream::connect(usher.address).await.expect("connect")).await
}

pub(crate) fn request(method: &str, path: &str) -> Request<()> {
    Request::builder()
        .method(method)
        .uri(format!("http://{HOST}{path}"))
        .body(())
        .expect("request")
}

pub(crate) async fn read(response: Response<h2::RecvStream>) -> (String, Option<HeaderMap>) {
    let mut body = response.into_body();
    let mut whole = Vec::new();
    while let Some(piece) = body.data().await {
        let piece = piece.expect("data");
        let _ = body.flow_control().release_capacity(piece.len());
        whole.extend_from_slice(&piece);
    }
    let trailers = body.trailers().await.expect("trailers");
    (String::from_utf8(whole).expect("text"), trailers)
}

/// What the endpoint reports, while the client's side runs on.
async fn said(origin: &Arc<Mutex<Origin>>) -> String {
    let origin = Arc::clone(origin);
    let heard = tokio::task::spawn_blocking(move || origin.lock().expect("not poisoned").said());
    heard.await.expect("a report")
}

/// Sends a body as fast as it is taken.
async fn write(send: &mut h2::SendStream<Bytes>, mut body: Bytes) -> Result<(), h2::Error> {
    while !body.is_empty() {
        send.reserve_capacity(body.len());
        let room = std::future::poll_fn(|cx| send.poll_capacity(cx)).await;
        let room = room.expect("the stream is there")?;
        send.send_data(body.split_to(room.min(body.len())), body.is_empty())?;
    }
    Ok(())
}

#[test]
fn a_request_is_passed_on_as_http_1_1() {
    let origin = Origin::echo();
    let usher = Usher::to(&origin);
    block_on(async {
        let mut client = connect(&usher).await;
        let mut asked = request("GET", "/a?b=c");
        asked
            .headers_mut()
            .insert("cookie", "a=1".parse().expect("value"));
        asked
            .headers_mut()
            .append("cookie", "b=2".parse().expect("value"));
        asked
            .headers_mut()
            .insert("te", "trailers".parse().expect("value"));
        let (answer, _) = client.send_request(asked, true).expect("send");
        let answer = answer.await.expect("answer");
        assert_eq!(answer.status(), 200);
        let seen = read(answer).await.0;
        assert!(seen.starts_with("GET /a?b=c HTTP/1.1\r\n"), "{seen}");
        assert_eq!(field(&seen, "host"), Some(HOST));
        assert_eq!(field(&seen, "cookie"), Some("a=1; b=2"));
        assert_eq!(field(&seen, "te"), None);
        assert_eq!(field(&seen, "content-length"), None);
        assert_eq!(field(&seen, "transfer-encoding"), None);
        assert_eq!(field(&seen, "x-forwarded-for"), Some("127.0.0.1"));
    });
}

#[test]
fn streams_of_one_connection_do_not_wait_for_each_other() {
    let origin = Origin::new(|peer, number, report| {
        let head = peer.head();
        let _ = report.send(head.split(' ').nth(1).unwrap_or_default().to_owned());
        if head.starts_with("GET /slow") {
            peer.rest();
        } else {
            peer.answer("200 OK", &number.to_string());
        }
    });
    let usher = Usher::to(&origin);
    let origin = Arc::new(Mutex::new(origin));
    block_on(async {
        let mut client = connect(&usher).await;
        let (_slow, _) = client
            .send_request(request("GET", "/slow"), true)
            .expect("send");
        assert_eq!(said(&origin).await, "/slow");
        let (fast, _) = client
            .send_request(request("GET", "/fast"), true)
            .expect("send");
        assert_eq!(read(fast.await.expect("answer")).await.0, "1");
    });
}

#[test]
fn long_bodies_pass_both_ways_at_once() {
    let origin = Origin::echo();
    let usher = Usher::to(&origin);
    let body =
        Bytes::from_iter((0..300_000).flat_map(|number| format!("{number:07} ").into_bytes()));
    block_on(async {
        let mut client = connect(&usher).await;
        for known in [true, false] {
            let mut asked = request("PUT", "/");
            if known {
                asked
                    .headers_mut()
                    .insert("content-length", body.len().into());
            }
            let (answer, mut send) = client.send_request(asked, false).expect("send");
            let (sent, answered) = tokio::join!(write(&mut send, body.clone()), async {
                read(answer.await.expect("answer")).await.0
            });
            sent.expect("sent");
            let (head, echoed) = answered.split_once("\r\n\r\n").expect("head and body");
            let framing = if known {
                "content-length"
            } else {
                "transfer-encoding"
            };
            assert!(field(head, framing).is_some(), "{head}");
            assert!(echoed.as_bytes() == body, "the body came back changed");
        }
    });
}

#[test]
fn trailers_and_interim_answers_pass() {
    let origin = Origin::new(|peer, _, report| {
        peer.head();
        let _ = report.send(peer.until("\r\n\r\n"));
        peer.send("HTTP/1.1 103 Early Hints\r\nLink: </a.css>\r\n\r\n");
        peer.send(
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\nX-Sum: 2\r\n\r\n",
        );
    });
    let usher = Usher::to(&origin);
    let origin = Arc::new(Mutex::new(origin));
    block_on(async {
        let mut client = connect(&usher).await;
        let (mut answer, mut send) = client
            .send_request(request("POST", "/"), false)
            .expect("send");
        send.send_data(Bytes::from_static(b"wiki"), false)
            .expect("data");
        let trailers = HeaderMap::from_iter([(
            http::HeaderName::from_static("x-sum"),
            "1".parse().expect("value"),
        )]);
        send.send_trailers(trailers).expect("trailers");
        let hint = std::future::poll_fn(|cx| answer.poll_informational(cx)).await;
        let hint = hint.expect("a hint").expect("a good one");
        assert_eq!(
            (hint.status().as_u16(), &hint.headers()["link"]),
            (
                103,
                &"</a.css>".parse::<http::HeaderValue>().expect("value")
            )
        );
        let (body, trailers) = read(answer.await.expect("answer")).await;
        assert_eq!(
            (&*body, &trailers.expect("trailers")["x-sum"]),
            ("hi", &"2".parse::<http::HeaderValue>().expect("value"))
        );
        assert_eq!(said(&origin).await, "4\r\nwiki\r\n0\r\nx-sum: 1\r\n\r\n");
    });
}

#[test]
fn an_answer_may_come_before_the_request_is_whole() {
    let origin = Origin::new(|peer, _, report| {
        peer.head();
        peer.answer("413 Content Too Large", "stop");
        let _ = report.send(peer.rest().0);
    });
    let usher = Usher::to(&origin);
    block_on(async {
        let mut client = connect(&usher).await;
        let (answer, mut send) = client
            .send_request(request("POST", "/"), false)
            .expect("send");
        send.send_data(Bytes::from_static(b"begin"), false)
            .expect("data");
        let answer = answer.await.expect("answer");
        assert_eq!(answer.status(), 413);
        assert_eq!(read(answer).await.0, "stop");
        // RFC 9113 8.1: nothing is wrong, the rest is just not wanted.
        let reset = std::future::poll_fn(|cx| send.poll_reset(cx))
            .await
            .expect("reset");
        assert_eq!(reset, h2::Reason::NO_ERROR);
        // The connection serves on.
        let (again, _) = client
            .send_request(request("GET", "/"), true)
            .expect("send");
        assert_eq!(again.await.expect("answer").status(), 413);
    });
}

#[test]
fn a_client_that_resets_its_stream_cancels_the_request() {
    let origin = Origin::new(|peer, _, report| {
        peer.head();
        let _ = report.send("asked".to_owned());
        let _ = report.send(format!("{:?}", peer.rest().0));
    });
    let usher = Usher::to(&origin);
    let origin = Arc::new(Mutex::new(origin));
    block_on(async {
        let mut client = connect(&usher).await;
        let (answer, mut send) = client
            .send_request(request("GET", "/"), true)
            .expect("send");
        assert_eq!(said(&origin).await, "asked");
        send.send_reset(h2::Reason::CANCEL);
        drop(answer);
        assert_eq!(said(&origin).await, "\"\"");
    });
}

#[test]
fn an_answer_that_breaks_off_is_reset_and_never_ended() {
    let origin = Origin::new(|peer, _, _| {
        peer.head();
        peer.send("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf");
    });
    let usher = Usher::to(&origin);
    block_on(async {
        let mut client = connect(&usher).await;
        let (answer, _) = client
            .send_request(request("GET", "/"), true)
            .expect("send");
        let mut body = answer.await.expect("answer").into_body();
        let mut whole = Vec::new();
        let error = loop {
            match body.data().await {
                Some(Ok(piece)) => whole.extend_from_slice(&piece),
                Some(Err(error)) => break error,
                None => panic!("a clean end after {whole:?}"),
            }
        };
        assert_eq!(
            (error.reason(), &*whole),
            (Some(h2::Reason::INTERNAL_ERROR), &b"half"[..])
        );
    });
}

#[test]
fn answers_without_a_body_have_none() {
    let origin = Origin::new(|peer, _, _| {
        peer.head();
        peer.send("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n");
        peer.head();
        peer.send("HTTP/1.1 204 No Content\r\n\r\n");
        peer.head();
        peer.answer("200 OK", "last");
    });
    let usher = Usher::to(&origin);
    block_on(async {
        let mut client = connect(&usher).await;
        for (method, status, length, body) in [
            ("HEAD", 200, Some("5"), ""),
            ("GET", 204, None, ""),
            ("GET", 200, Some("4"), "last"),
        ] {
            let (answer, _) = client
                .send_request(request(method, "/"), true)
                .expect("send");
            let answer = answer.await.expect("answer");
            let found = answer
                .headers()
                .get("content-length")
                .map(|value| value.to_str().expect("text").to_owned());
            assert_eq!(
                (answer.status().as_u16(), found.as_deref()),
                (status, length)
            );
            assert_eq!(read(answer).await.0, body);
        }
    });
}

#[test]
fn a_slow_client_slows_the_endpoint_and_grows_nothing() {
    const SIZE: usize = 64 * 1024 * 1024;
    let origin = Origin::new(|peer, _, report| {
        peer.head();
        peer.send(format!("HTTP/1.1 200 OK\r\nContent-Length: {SIZE}\r\n\r\n"));
        peer.socket()
            .set_write_timeout(Some(Duration::from_millis(300)))
            .expect("timeout");
        // What the kernel's buffers and ours hold, and no more.
        let piece = vec![0; 64 * 1024];
        let taken = (0..SIZE / piece.len())
            .take_while(|_| peer.try_send(&piece))
            .count();
        let _ = report.send((taken * piece.len()).to_string());
    });
    let usher = Usher::to(&origin);
    let origin = Arc::new(Mutex::new(origin));
    block_on(async {
        let mut client = connect(&usher).await;
        let (answer, _) = client
            .send_request(request("GET", "/"), true)
            .expect("send");
        let _unread = answer.await.expect("answer");
        let taken: usize = said(&origin).await.parse().expect("number");
        assert!(
            taken < SIZE / 2,
            "{taken} bytes were taken for a client that reads none"
        );
    });
}

#[test]
fn our_own_answers_come_as_pages_too() {
    let usher = Setup::to(&[Origin::closed()]).start();
    block_on(async {
        let mut client = connect(&usher).await;
        let mut asked = request("GET", "/");
        asked
            .headers_mut()
            .insert("accept", "application/json".parse().expect("value"));
        let (answer, _) = client.send_request(asked, true).expect("send");
        let answer = answer.await.expect("answer");
        assert_eq!(
            (
                answer.status().as_u16(),
                answer.headers()["content-type"].to_str().ok()
            ),
            (521, Some("application/json"))
        );
        assert!(read(answer).await.0.contains(r#""code": 521"#));
        let (answer, _) = client
            .send_request(request("HEAD", "/"), true)
            .expect("send");
        let answer = answer.await.expect("answer");
        assert_eq!(answer.status(), 521);
        assert_eq!(read(answer).await.0, "");
    });
}

#[test]
fn what_a_client_began_before_it_was_told_to_go_is_served() {
    let origin = Origin::echo();
    let usher = Usher::to(&origin);
    let mut client = frames::Client::new(&usher);
    let ask = |stream| {
        let flags = frames::END_HEADERS | frames::END_STREAM;
        frames::frame(frames::HEADERS, flags, stream, &frames::get(&[]))
    };
    client.0.send(ask(1));
    assert_eq!(client.status(), 200);
    std::thread::scope(|scope| {
        scope.spawn(|| block_on(usher.front.drain(PATIENCE)));
        let last = |goaway: &frames::Frame| goaway.payload[..4].to_vec();
        let goaway = client.until(frames::GOAWAY);
        assert_eq!(
            last(&goaway),
            [0x7f, 0xff, 0xff, 0xff],
            "none is passed over"
        );
        let ping = client.until(frames::PING);
        // Clients answer a PING ahead of what waits to be sent.
        let answer = frames::frame(frames::PING, frames::ACK, 0, &ping.payload);
        client.0.send([answer, ask(3)].concat());
        assert_eq!(client.status(), 200);
        let goaway = client.until(frames::GOAWAY);
        assert_eq!(last(&goaway), [0, 0, 0, 3]);
        while client.next().is_some() {}
    });
}

#[test]
fn a_draining_connection_says_goaway_and_finishes_what_it_has() {
    let origin = Origin::new(|peer, _, report| {
        peer.head();
        let _ = report.send("asked".to_owned());
        peer.exactly(2);
        peer.answer("200 OK", "late");
    });
    let usher = Usher::to(&origin);
    let origin = Arc::new(Mutex::new(origin));
    std::thread::scope(|scope| {
        let (drain, start) = channel();
        let front = &usher.front;
        let drained = scope.spawn(move || {
            start.recv_timeout(PATIENCE).expect("the test goes on");
            block_on(front.drain(PATIENCE));
        });
        block_on(async {
            let (send, connection) = {
                let io = TcpStream::connect(usher.address).await.expect("connect");
                h2::client::handshake::<_>(io).await.expect("handshake")
            };
            let over = tokio::spawn(connection);
            let mut client: SendRequest<Bytes> = send.ready().await.expect("ready");
            let mut asked = request("POST", "/");
            asked.headers_mut().insert("content-length", 2.into());
            let (answer, mut send) = client.send_request(asked, false).expect("send");
            assert_eq!(said(&origin).await, "asked");
            drain.send(()).expect("the drain waits");
            // GOAWAY reaches the client: it may open no more streams.
            while client.clone().ready().await.is_ok() {
                tokio::task::yield_now().await;
            }
            send.send_data(Bytes::from_static(b"go"), true)
                .expect("the stream goes on");
            assert_eq!(read(answer.await.expect("answer")).await.0, "late");
            drop(client);
            over.await.expect("no panic").expect("an orderly end");
        });
        drained.join().expect("drained");
    });
}

#[test]
fn over_tls_the_handshake_chooses_it() {
    let authority = Authority::new();
    let origin = Origin::echo();
    let mut setup = Setup::to(&[origin.address]);
    setup.certificates = authority.certificates(&[HOST]);
    let usher = setup.start();
    let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let address = usher
        .front
        .listen(any, Scheme::Https)
        .expect("listen")
        .address;
    block_on(async {
        let config = authority.client(rustls::ALL_VERSIONS, &[b"h2"]);
        let socket = TcpStream::connect(address).await.expect("connect");
        let name = ServerName::try_from(HOST).expect("name");
        let tls = tokio_rustls::TlsConnector::from(config)
            .connect(name, socket)
            .await
            .expect("handshake");
        let mut client = talk(tls).await;
        let (answer, _) = client
            .send_request(request("GET", "/"), true)
            .expect("send");
        let seen = read(answer.await.expect("answer")).await.0;
        assert_eq!(field(&seen, "x-forwarded-proto"), Some("https"));
        let other = Request::builder()
            .uri("https://other.example.com/")
            .body(())
            .expect("request");
        let (answer, _) = client.send_request(other, true).expect("send");
        // The same certificate would serve both, so it is a question of the host only.
        assert_eq!(answer.await.expect("answer").status(), 404);
    });
}
