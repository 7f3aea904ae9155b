//! What the relay costs: the round trip of a small command and the throughput of large events, with
//! a stand-in for the browser on a socket pair, beside the same WebSocket without a relay between.
//!
//! `cargo bench -p usher-cdp`. One line each; times are of one machine and one run.

#![allow(clippy::print_stdout)] // figures are for people

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::{SinkExt, StreamExt};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UnixStream};
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;
use tokio_tungstenite::{WebSocketStream, accept_async_with_config, client_async_with_config};
use usher_cdp::session::{Room, websocket};
use usher_cdp::{Framing, Gate, Part, Session, Terms};

const ROUND_TRIPS: usize = 20_000;
const EVENT_BYTES: usize = 1 << 20;
const EVENTS: usize = 1000;
const IDLE_SESSIONS: usize = 200;
const LIMIT: usize = 256 << 20;

type Client = WebSocketStream<TcpStream>;

fn main() {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build();
    let runtime = runtime.expect("a runtime");
    runtime.block_on(async {
        let mut client = direct().await;
        let direct = round_trips(&mut client).await;
        let straight = throughput(&mut client).await;
        let (_session, mut client) = relayed().await;
        let through = round_trips(&mut client).await;
        report("round trip, no relay", &direct);
        report("round trip, relay", &through);
        let added = through[through.len() / 2].saturating_sub(direct[direct.len() / 2]);
        println!("added round trip, p50: {added:?}");
        let relayed = throughput(&mut client).await;
        println!("events of 1 MiB, no relay: {straight:.0} MB/s");
        println!("events of 1 MiB, relay: {relayed:.0} MB/s");
        idle().await;
    });
}

fn report(what: &str, sorted: &[Duration]) {
    let at = |share: usize| sorted[sorted.len() * share / 100];
    println!("{what}: p50 {:?}, p99 {:?}", at(50), at(99));
}

/// A client of a server that answers by itself.
async fn direct() -> Client {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    tokio::spawn(async move {
        let (stream, _) = listener.accept().await.expect("a client");
        stream.set_nodelay(true).expect("a socket");
        let server = accept_async_with_config(stream, Some(websocket(LIMIT))).await;
        let mut server = server.expect("a handshake");
        let event = event("");
        while let Some(Ok(Message::Text(text))) = server.next().await {
            let answered = server.send(Message::text(answer(&text))).await;
            answered.expect("the client reads");
            if text.contains("Stream.start") {
                for _ in 0..EVENTS {
                    let event = Message::text(event.clone());
                    server.send(event).await.expect("the client reads");
                }
            }
        }
    });
    connect(address).await
}

fn terms() -> Terms {
    Terms {
        service: Arc::new(|_| Box::pin(async { String::new() })),
        reach: None,
        room: Room::default(),
    }
}

async fn connect(address: std::net::SocketAddr) -> Client {
    let stream = TcpStream::connect(address).await.expect("the server");
    stream.set_nodelay(true).expect("a socket");
    // As a client would have it.
    let own = WebSocketConfig::default();
    let client = client_async_with_config("ws://localhost/", stream, Some(own)).await;
    client.expect("a handshake").0
}

/// A client behind a relay, whose browser answers at once.
async fn relayed() -> (Session, Client) {
    let (ours, theirs) = UnixStream::pair().expect("a pair");
    tokio::spawn(browser(theirs));
    let (session, carried) = Session::new(ours, terms());
    tokio::spawn(carried);
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    let of = session.clone();
    tokio::spawn(async move {
        let (stream, _) = listener.accept().await.expect("a client");
        stream.set_nodelay(true).expect("a socket");
        let server = accept_async_with_config(stream, Some(websocket(LIMIT))).await;
        let line = of
            .join(Part::Browser, Gate::default(), LIMIT)
            .await
            .expect("a part");
        let stream = server.expect("a handshake").into_inner();
        line.serve(stream, Framing::Text).await;
    });
    (session, connect(address).await)
}

/// Answers commands at once; `Stream.start` sends events.
async fn browser(mut pipe: UnixStream) {
    let mut buffer = Vec::new();
    let event = event(",\"sessionId\":\"R0\"");
    let event = [event.as_bytes(), b"\0"].concat();
    loop {
        while let Some(end) = buffer.iter().position(|&byte| byte == 0) {
            let text = String::from_utf8_lossy(&buffer[..end]).into_owned();
            buffer.drain(..=end);
            if text.contains("attachToBrowserTarget") {
                let answer = b"{\"id\":1,\"result\":{\"sessionId\":\"R0\"}}\0";
                pipe.write_all(answer).await.expect("the relay reads");
                continue;
            }
            let answer = answer(&text).replace('}', "");
            let answer = format!("{answer}}},\"sessionId\":\"R0\"}}\0");
            pipe.write_all(answer.as_bytes())
                .await
                .expect("the relay reads");
            if text.contains("Stream.start") {
                for _ in 0..EVENTS {
                    pipe.write_all(&event).await.expect("the relay reads");
                }
            }
        }
        if pipe.read_buf(&mut buffer).await.unwrap_or(0) == 0 {
            return;
        }
    }
}

/// With `end` behind its other members.
fn event(end: &str) -> String {
    let data = "x".repeat(EVENT_BYTES);
    format!(r#"{{"method":"A.b","params":{{"data":"{data}"}}{end}}}"#)
}

fn answer(command: &str) -> String {
    let (_, id) = command.rsplit_once("\"id\":").expect("a number");
    let id: String = id
        .chars()
        .take_while(|c| *c == '-' || c.is_ascii_digit())
        .collect();
    format!(r#"{{"id":{id},"result":{{}}}}"#)
}

async fn round_trips(client: &mut Client) -> Vec<Duration> {
    let mut times = Vec::with_capacity(ROUND_TRIPS);
    for id in 0..ROUND_TRIPS {
        let began = Instant::now();
        let text =
            format!(r#"{{"method":"Runtime.evaluate","params":{{"expression":"1"}},"id":{id}}}"#);
        client
            .send(Message::text(text))
            .await
            .expect("the server reads");
        client.next().await.expect("an answer").expect("an answer");
        times.push(began.elapsed());
    }
    times.sort_unstable();
    times
}

async fn throughput(client: &mut Client) -> f64 {
    let text = r#"{"method":"Stream.start","id":1}"#;
    client
        .send(Message::text(text))
        .await
        .expect("the server reads");
    client.next().await.expect("an answer").expect("an answer");
    let began = Instant::now();
    let mut bytes = 0;
    for _ in 0..EVENTS {
        bytes += client
            .next()
            .await
            .expect("an event")
            .expect("an event")
            .len();
    }
    bytes as f64 / began.elapsed().as_secs_f64() / 1e6
}

/// Resident memory of sessions with a client that says nothing, sockets and tasks included. The
/// client's side, which is in the same process, has no WebSocket of its own.
async fn idle() {
    let before = resident();
    let mut kept = Vec::new();
    for _ in 0..IDLE_SESSIONS {
        let (ours, theirs) = UnixStream::pair().expect("a pair");
        let (near, far) = UnixStream::pair().expect("a pair");
        let (session, carried) = Session::new(ours, terms());
        tokio::spawn(carried);
        let answered = tokio::spawn(async move {
            let mut theirs = theirs;
            let mut text = Vec::new();
            while !String::from_utf8_lossy(&text).contains("attachToBrowserTarget") {
                let read = theirs.read_buf(&mut text).await;
                assert_ne!(read.expect("the relay writes"), 0);
            }
            let answer = b"{\"id\":1,\"result\":{\"sessionId\":\"R0\"}}\0";
            theirs.write_all(answer).await.expect("the relay reads");
            theirs
        });
        let line = session
            .join(Part::Browser, Gate::default(), LIMIT)
            .await
            .expect("a part");
        tokio::spawn(line.serve(near, Framing::Text));
        kept.push((session, far, answered.await.expect("the stand-in")));
    }
    let each = resident().saturating_sub(before) / IDLE_SESSIONS as u64;
    println!("an idle session with one client: {each} KiB");
}

/// In KiB.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let number = line.and_then(|line| line.split_whitespace().next()?.parse().ok());
    number.unwrap_or(0)
}
