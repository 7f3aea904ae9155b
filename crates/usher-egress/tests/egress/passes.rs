//! What passes, and how.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::mpsc;
use usher_egress::Door;

use crate::world::{World, rest, server, until};

const OK: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi";

#[tokio::test]
async fn a_request_reaches_its_server_in_the_form_of_a_server() {
    let world = World::new();
    let (told, mut heads) = mpsc::unbounded_channel();
    let connections = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&connections);
    let site = server(move |mut stream| {
        count.fetch_add(1, Ordering::Relaxed);
        let told = told.clone();
        async move {
            loop {
                let head = until(&mut stream, "\r\n\r\n").await;
                told.send(head).expect("the test listens");
                stream.write_all(OK).await.expect("the proxy reads");
            }
        }
    })
    .await;
    world.names.set("a.example", &[&["127.0.0.1"]]);
    world.names.set("b.example", &[&["127.0.0.1"]]);
    let mut browser = world.browser().await;
    let mut seen = Vec::new();
    for host in ["A.example", "A.example", "b.example"] {
        let authority = format!("{host}:{}", site.port());
        let request = format!(
            "GET http://{authority}/p?q HTTP/1.1\r\nHost: {authority}\r\nCookie: a=b\r\n\
             X-Hop: 1\r\nProxy-Connection: keep-alive\r\nProxy-Authorization: Basic x\r\n\
             Connection: x-hop\r\nSec-Fetch-Mode: navigate\r\n\r\n"
        );
        browser
            .write_all(request.as_bytes())
            .await
            .expect("the proxy reads");
        until(&mut browser, "\r\n\r\nhi").await;
        seen.push(heads.recv().await.expect("a request"));
        assert_eq!(
            seen.last().expect("one"),
            &format!(
                "GET /p?q HTTP/1.1\r\nHost: {authority}\r\nConnection: keep-alive\r\n\
                 Cookie: a=b\r\nSec-Fetch-Mode: navigate\r\n\r\n"
            )
        );
    }
    // A connection serves one host, even where another has the same address.
    assert_eq!(connections.load(Ordering::Relaxed), 2);
    assert_eq!(
        *world.names.asked.lock().expect("no panic"),
        ["a.example", "b.example"]
    );
    let usage = world.exit.usage();
    assert_eq!(usage.connections, 2);
    assert_eq!(
        usage.sent,
        seen.iter().map(|head| head.len() as u64).sum::<u64>()
    );
    assert_eq!(world.causes(), [""; 0]);
}

#[tokio::test]
async fn bodies_pass_both_ways_whatever_frames_them() {
    let world = World::new();
    let site = server(|mut stream| async move {
        let head = until(&mut stream, "\r\n\r\n").await;
        let body = match head.contains("chunked") {
            true => until(&mut stream, "0\r\n\r\n").await,
            false => until(&mut stream, "body").await,
        };
        let answer = format!(
            "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n\
             HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: x-sum\r\n\r\n\
             {:x}\r\n{body}\r\n0\r\nx-sum: 1\r\n\r\n",
            body.len()
        );
        stream
            .write_all(answer.as_bytes())
            .await
            .expect("the proxy reads");
        rest(&mut stream).await;
    })
    .await;
    for (framing, body, echoed) in [
        (
            "Content-Length: 8",
            "the body",
            "8\r\nthe body\r\n0\r\nx-sum: 1\r\n\r\n",
        ),
        (
            "Transfer-Encoding: chunked",
            "3;x=y\r\nthe\r\n5\r\n body\r\n0\r\n\r\n",
            "17\r\n3\r\nthe\r\n5\r\n body\r\n0\r\n\r\n\r\n0\r\nx-sum: 1\r\n\r\n",
        ),
    ] {
        let mut browser = world.browser().await;
        let request =
            format!("POST http://{site}/ HTTP/1.1\r\nHost: {site}\r\n{framing}\r\n\r\n{body}");
        browser
            .write_all(request.as_bytes())
            .await
            .expect("the proxy reads");
        let answer = until(&mut browser, "x-sum: 1\r\n\r\n").await;
        assert!(
            answer.starts_with("HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 200 OK\r\n"),
            "{answer}"
        );
        // A piece of a chunk may come as a chunk of its own.
        let (_, after) = answer.rsplit_once("chunked\r\n\r\n").expect("a body");
        assert_eq!(joined(after), joined(echoed), "{answer}");
    }
}

/// The data of a chunked body, and what stands behind it.
fn joined(mut chunks: &str) -> (String, &str) {
    let mut data = String::new();
    loop {
        let (size, behind) = chunks.split_once("\r\n").expect("a size");
        let size = usize::from_str_radix(size, 16).expect("a number");
        if size == 0 {
            return (data, behind);
        }
        data.push_str(&behind[..size]);
        chunks = &behind[size + 2..];
    }
}

#[tokio::test]
async fn a_tunnel_carries_anything_and_closes_by_halves() {
    let world = World::new();
    let site = server(|mut stream| async move {
        let all = rest(&mut stream).await;
        stream
            .write_all(all.to_uppercase().as_bytes())
            .await
            .expect("the proxy reads");
    })
    .await;
    world.names.set("a.example", &[&["127.0.0.1"]]);
    let mut browser = world.browser().await;
    let authority = format!("a.example:{}", site.port());
    let request = format!("CONNECT {authority} HTTP/1.1\r\nHost: {authority}\r\n\r\n");
    browser
        .write_all(request.as_bytes())
        .await
        .expect("the proxy reads");
    assert_eq!(
        until(&mut browser, "\r\n\r\n").await,
        "HTTP/1.1 200 Connection established\r\n\r\n"
    );
    browser
        .write_all(b"not http at all\0")
        .await
        .expect("the proxy reads");
    browser.shutdown().await.expect("the proxy lives");
    assert_eq!(rest(&mut browser).await, "NOT HTTP AT ALL\0");
    let usage = world.exit.usage();
    assert_eq!((usage.sent, usage.received), (16, 16));
}

#[tokio::test]
async fn a_websocket_passes_as_a_request_too() {
    let world = World::new();
    let site = server(|mut stream| async move {
        let head = until(&mut stream, "\r\n\r\n").await;
        assert!(
            head.contains("\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"),
            "{head}"
        );
        assert!(head.contains("\r\nSec-WebSocket-Key: k\r\n"), "{head}");
        let answer = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n\
                      Connection: Upgrade\r\nSec-WebSocket-Accept: a\r\n\r\nfirst";
        stream
            .write_all(answer.as_bytes())
            .await
            .expect("the proxy reads");
        assert_eq!(until(&mut stream, "frame").await, "frame");
    })
    .await;
    let mut browser = world.browser().await;
    let request = format!(
        "GET http://{site}/ HTTP/1.1\r\nHost: {site}\r\nConnection: Upgrade\r\n\
         Upgrade: websocket\r\nSec-WebSocket-Key: k\r\nSec-WebSocket-Version: 13\r\n\r\n"
    );
    browser
        .write_all(request.as_bytes())
        .await
        .expect("the proxy reads");
    let head = until(&mut browser, "\r\n\r\nfirst").await;
    assert!(head.starts_with("HTTP/1.1 101 "), "{head}");
    assert!(head.contains("\r\nSec-WebSocket-Accept: a\r\n"), "{head}");
    browser.write_all(b"frame").await.expect("the proxy reads");
    assert_eq!(rest(&mut browser).await, "");
}

#[tokio::test]
async fn a_kept_connection_that_the_server_closed_is_made_anew() {
    let world = World::new();
    let site = server(|mut stream| async move {
        until(&mut stream, "\r\n\r\n").await;
        // Says nothing of closing, and closes.
        stream.write_all(OK).await.expect("the proxy reads");
    })
    .await;
    let mut browser = world.browser().await;
    for _ in 0..5 {
        let request = format!("GET http://{site}/ HTTP/1.1\r\nHost: {site}\r\n\r\n");
        browser
            .write_all(request.as_bytes())
            .await
            .expect("the proxy reads");
        until(&mut browser, "\r\n\r\nhi").await;
    }
    assert_eq!(world.exit.usage().connections, 5);
    assert_eq!(world.causes(), [""; 0]);
}

#[tokio::test]
async fn an_answer_may_come_before_the_request_is_whole() {
    let world = World::new();
    let site = server(|mut stream| async move {
        until(&mut stream, "\r\n\r\n").await;
        let answer = b"HTTP/1.1 413 Content Too Large\r\nContent-Length: 3\r\n\r\nno!";
        stream.write_all(answer).await.expect("the proxy reads");
        rest(&mut stream).await;
    })
    .await;
    let mut browser = world.browser().await;
    let request = format!(
        "POST http://{site}/ HTTP/1.1\r\nHost: {site}\r\nContent-Length: 100000\r\n\r\nstart"
    );
    browser
        .write_all(request.as_bytes())
        .await
        .expect("the proxy reads");
    let answer = until(&mut browser, "no!").await;
    assert!(answer.starts_with("HTTP/1.1 413 "), "{answer}");
    // What would follow is the rest of a request that nobody reads.
    assert_eq!(rest(&mut browser).await, "");
}

#[tokio::test]
async fn heads_without_bodies_keep_the_lengths_they_announce() {
    let world = World::new();
    let site = server(|mut stream| async move {
        for answer in [
            "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n",
            "HTTP/1.1 304 Not Modified\r\nContent-Length: 6\r\n\r\n",
            "HTTP/1.1 204 No Content\r\n\r\n",
            "HTTP/1.1 200 Fine\r\n\r\nuntil the end",
        ] {
            until(&mut stream, "\r\n\r\n").await;
            stream
                .write_all(answer.as_bytes())
                .await
                .expect("the proxy reads");
        }
    })
    .await;
    let mut browser = world.browser().await;
    for (method, expected) in [
        ("HEAD", "HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\n"),
        (
            "GET",
            "HTTP/1.1 304 Not Modified\r\ncontent-length: 6\r\n\r\n",
        ),
        ("GET", "HTTP/1.1 204 No Content\r\n\r\n"),
    ] {
        let request = format!("{method} http://{site}/ HTTP/1.1\r\nHost: {site}\r\n\r\n");
        browser
            .write_all(request.as_bytes())
            .await
            .expect("the proxy reads");
        assert_eq!(until(&mut browser, "\r\n\r\n").await, expected);
    }
    let request = format!("GET http://{site}/ HTTP/1.1\r\nHost: {site}\r\n\r\n");
    browser
        .write_all(request.as_bytes())
        .await
        .expect("the proxy reads");
    assert_eq!(
        rest(&mut browser).await,
        "HTTP/1.1 200 Fine\r\nconnection: close\r\n\r\nuntil the end"
    );
    assert_eq!(world.exit.usage().connections, 1);
}

#[tokio::test]
async fn a_browser_that_leaves_is_not_waited_for() {
    let world = World::new();
    let (told, mut ends) = mpsc::unbounded_channel();
    let site = server(move |mut stream| {
        let told = told.clone();
        async move {
            until(&mut stream, "\r\n\r\n").await;
            told.send("asked").expect("the test listens");
            let mut byte = [0];
            let _ = stream.read(&mut byte).await;
            told.send("left").expect("the test listens");
        }
    })
    .await;
    let mut browser = world.browser().await;
    let request = format!("GET http://{site}/ HTTP/1.1\r\nHost: {site}\r\n\r\n");
    browser
        .write_all(request.as_bytes())
        .await
        .expect("the proxy reads");
    assert_eq!(ends.recv().await, Some("asked"));
    drop(browser);
    assert_eq!(ends.recv().await, Some("left"));
}

#[tokio::test]
async fn a_browser_behind_a_port_shows_its_credential() {
    let world = World::new();
    let (told, mut heads) = mpsc::unbounded_channel();
    let site = server(move |mut stream| {
        let told = told.clone();
        async move {
            told.send(until(&mut stream, "\r\n\r\n").await)
                .expect("the test listens");
            stream.write_all(OK).await.expect("the proxy reads");
        }
    })
    .await;
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0")
        .await
        .expect("a port");
    let address = listener.local_addr().expect("an address");
    let credential = usher_egress::Credential::new("browser", "secret");
    let exit = world.exit.clone();
    tokio::spawn(async move { exit.serve(Door::Port(listener, Some(credential))).await });
    let mut browser = tokio::net::TcpStream::connect(address)
        .await
        .expect("the proxy");
    for (field, status) in [
        ("", 407),
        ("Proxy-Authorization: Basic YnJvd3NlcjpzZWNyZXR4\r\n", 407),
        (
            "Proxy-Authorization: Basic YnJvd3NlcjpzZWNyZXQ=\r\nProxy-Authorization: Basic YnJvd3NlcjpzZWNyZXQ=\r\n",
            407,
        ),
        ("Proxy-Authorization: Basic YnJvd3NlcjpzZWNyZXQ=\r\n", 200),
    ] {
        let request = format!("GET http://{site}/ HTTP/1.1\r\nHost: {site}\r\n{field}\r\n");
        browser
            .write_all(request.as_bytes())
            .await
            .expect("the proxy reads");
        let end = if status == 200 {
            "\r\n\r\nhi"
        } else {
            "credential\n"
        };
        let answer = until(&mut browser, end).await;
        assert!(
            answer.starts_with(&format!("HTTP/1.1 {status} ")),
            "{answer}"
        );
        assert_eq!(
            status == 407,
            answer.contains("proxy-authenticate: Basic realm=\"usher\"")
        );
    }
    let head = heads.recv().await.expect("a request");
    assert!(!head.to_lowercase().contains("proxy-"), "{head}");
    assert!(heads.try_recv().is_err(), "one request passed");
}
