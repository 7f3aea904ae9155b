//! How much one browser may have, and how everything of it ends.

use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::mpsc;
use tokio::time::timeout;
use usher_egress::{Deadlines, Policy};

use crate::world::{LONG, World, loopback, rest, server, until};

#[tokio::test]
async fn a_browser_has_so_many_connections_and_no_more() {
    let world = World::with(
        Deadlines::default(),
        Some(Policy {
            connections_max: 2,
            ..loopback()
        }),
    );
    let site = server(|mut stream| async move {
        rest(&mut stream).await;
    })
    .await;
    let connect = format!("CONNECT {site} HTTP/1.1\r\nHost: {site}\r\n\r\n");
    let mut tunnels = Vec::new();
    for _ in 0..2 {
        let mut tunnel = world.browser().await;
        tunnel
            .write_all(connect.as_bytes())
            .await
            .expect("the proxy reads");
        until(&mut tunnel, "established\r\n\r\n").await;
        tunnels.push(tunnel);
    }
    assert_eq!(world.exit.usage().open, 2);
    for _ in 0..3 {
        let answer = world.ask(&connect).await;
        assert!(answer.starts_with("HTTP/1.1 503 "), "{answer}");
        assert!(
            answer.contains("\r\nusher-egress: connections\r\n"),
            "{answer}"
        );
    }
    drop(tunnels.pop());
    let freed = async {
        while world.exit.usage().open == 2 {
            tokio::task::yield_now().await;
        }
    };
    timeout(LONG, freed).await.expect("its place is free");
    let mut tunnel = world.browser().await;
    tunnel
        .write_all(connect.as_bytes())
        .await
        .expect("the proxy reads");
    until(&mut tunnel, "established\r\n\r\n").await;
}

#[tokio::test]
async fn traffic_ends_where_its_limit_is() {
    const MAX: u64 = 100_000;
    let world = World::with(
        Deadlines::default(),
        Some(Policy {
            traffic_max: Some(MAX),
            ..loopback()
        }),
    );
    let site = server(|mut stream| async move {
        let mut byte = [0];
        // The tunnel is asked for first, then the page: both babble without end.
        if stream.read_exact(&mut byte).await.is_ok() && byte == *b"G" {
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await;
        }
        while stream.write_all(&[b'x'; 1000]).await.is_ok() {}
    })
    .await;
    let mut tunnel = world.browser().await;
    let connect = format!("CONNECT {site} HTTP/1.1\r\nHost: {site}\r\n\r\nT");
    tunnel
        .write_all(connect.as_bytes())
        .await
        .expect("the proxy reads");
    let got = rest(&mut tunnel).await.len() as u64;
    let usage = world.exit.usage();
    assert!(usage.sent + usage.received <= MAX, "{usage:?}");
    assert!(got <= MAX + 100, "{got}");
    for _ in 0..20 {
        let page = format!("GET http://{site}/ HTTP/1.1\r\nHost: {site}\r\n\r\n");
        let answer = world.ask(page).await;
        assert!(answer.len() as u64 <= MAX, "cut");
    }
    let usage = world.exit.usage();
    assert!(usage.sent + usage.received <= MAX, "{usage:?}");
    let causes = world.causes();
    assert!(
        causes.iter().all(|cause| *cause == "traffic") && !causes.is_empty(),
        "{causes:?}"
    );
}

#[tokio::test]
async fn silence_ends_a_connection_and_a_slow_head_does_too() {
    let second = Duration::from_secs(1);
    let deadlines = Deadlines {
        head: second,
        idle: second,
        ..Deadlines::default()
    };
    let world = World::with(deadlines, Some(loopback()));
    let site = server(|mut stream| async move {
        rest(&mut stream).await;
    })
    .await;
    let (page, tunnel, half, nothing) = tokio::join!(
        world.ask(format!(
            "GET http://{site}/ HTTP/1.1\r\nHost: {site}\r\n\r\n"
        )),
        world.ask(format!("CONNECT {site} HTTP/1.1\r\nHost: {site}\r\n\r\n")),
        world.ask(format!("GET http://{site}/ HT")),
        world.ask(""),
    );
    assert!(page.starts_with("HTTP/1.1 504 "), "{page}");
    assert_eq!(tunnel, "HTTP/1.1 200 Connection established\r\n\r\n");
    assert_eq!((&*half, &*nothing), ("", ""));
    assert_eq!(world.causes(), ["silent"; 2]);
}

#[tokio::test]
async fn with_its_proxy_everything_of_a_browser_ends() {
    let world = World::new();
    let (told, mut ends) = mpsc::unbounded_channel();
    let site = server(move |mut stream| {
        let told = told.clone();
        async move {
            let _ = stream.write_all(b"hello").await;
            rest(&mut stream).await;
            told.send(()).expect("the test listens");
        }
    })
    .await;
    let mut tunnels = Vec::new();
    for _ in 0..5 {
        let mut tunnel = world.browser().await;
        let connect = format!("CONNECT {site} HTTP/1.1\r\nHost: {site}\r\n\r\n");
        tunnel
            .write_all(connect.as_bytes())
            .await
            .expect("the proxy reads");
        until(&mut tunnel, "hello").await;
        tunnels.push(tunnel);
    }
    world.serving.abort();
    for mut tunnel in tunnels {
        assert_eq!(rest(&mut tunnel).await, "");
        ends.recv().await.expect("the server's end");
    }
}
