//! Why a page did not load: told in the answer, kept for whoever asks, counted.

use std::io;
use std::time::Duration;

use tokio::net::{TcpSocket, TcpStream};
use usher_egress::{Cause, Deadlines};

use crate::world::{World, answers, loopback, server, until};

fn get(authority: &str) -> String {
    format!("GET http://{authority}/ HTTP/1.1\r\nHost: {authority}\r\nConnection: close\r\n\r\n")
}

#[tokio::test]
async fn each_fault_of_a_server_has_its_own_name() {
    let world = World::new();
    // Bound and not listening: the port is nobody else's, and refuses.
    let socket = TcpSocket::new_v4().expect("a socket");
    socket
        .bind("127.0.0.1:0".parse().expect("an address"))
        .expect("a port");
    let refuses = socket.local_addr().expect("an address");
    let closes = answers("").await;
    let garbage = answers("SSH-2.0-x\r\n").await;
    let unasked =
        answers("HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n")
            .await;
    let doubled =
        answers("HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab").await;
    let half = answers("HTTP/1.1 200 OK\r\nContent-Le").await;
    let babbles = server(|mut stream| async move {
        use tokio::io::AsyncWriteExt;
        until(&mut stream, "\r\n\r\n").await;
        while stream
            .write_all(b"HTTP/1.1 103 Early Hints\r\n\r\n")
            .await
            .is_ok()
        {}
    })
    .await;
    for (authority, cause) in [
        ("nowhere.example:80".to_owned(), Cause::Name),
        (refuses.to_string(), Cause::Refused),
        (closes.to_string(), Cause::Empty),
        (garbage.to_string(), Cause::Answer),
        (unasked.to_string(), Cause::Answer),
        (doubled.to_string(), Cause::Answer),
        (half.to_string(), Cause::Cut),
        (babbles.to_string(), Cause::Answer),
    ] {
        assert_told(&world, &authority, cause).await;
    }
    assert_eq!(world.exit.why("example.com", Some(80)), None);
}

#[tokio::test]
async fn waiting_has_an_end() {
    // Whoever is waited for here never answers, so that no machine is too slow for these.
    let deadlines = Deadlines {
        name: Duration::from_millis(50),
        connect: Duration::from_millis(100),
        ..Deadlines::default()
    };
    let world = World::with(deadlines, Some(loopback()));
    assert_told(&world, "silent.example:80", Cause::NameTimeout).await;
    let (full, _held) = full().await.expect("a listener");
    assert_told(&world, &full.to_string(), Cause::ConnectTimeout).await;
}

#[tokio::test]
async fn a_tunnel_that_fails_says_why_as_well() {
    let world = World::new();
    let answer = world
        .ask("CONNECT nowhere.example:443 HTTP/1.1\r\nHost: nowhere.example:443\r\n\r\n")
        .await;
    assert!(answer.starts_with("HTTP/1.1 502 "), "{answer}");
    assert!(
        answer.contains("\r\nusher-egress: name-not-resolved\r\n"),
        "{answer}"
    );
    let why = world
        .exit
        .why("Nowhere.Example.", Some(443))
        .expect("a refusal");
    assert_eq!(
        (why.cause, why.cause.net_error()),
        (Cause::Name, "net::ERR_NAME_NOT_RESOLVED")
    );
}

#[tokio::test]
async fn an_answer_that_is_shorter_than_it_says_is_cut() {
    let world = World::new();
    for (answer, received) in [
        (
            "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf",
            "\r\n\r\nhalf",
        ),
        (
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n9\r\nhalf",
            "\r\n\r\n4\r\nhalf\r\n",
        ),
    ] {
        let site = answers(answer).await;
        let got = world.ask(get(&site.to_string())).await;
        assert!(
            got.starts_with("HTTP/1.1 200 ") && got.ends_with(received),
            "{got}"
        );
    }
    assert_eq!(world.causes(), ["answer-cut"; 2]);
}

#[tokio::test]
async fn another_address_of_the_name_is_tried() {
    let world = World::new();
    let site = answers("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").await;
    // Nothing listens on that port of the first one.
    world
        .names
        .set("two.example", &[&["127.0.0.77", "127.0.0.1"]]);
    let answer = world
        .ask(get(&format!("two.example:{}", site.port())))
        .await;
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    assert_eq!(world.causes(), [""; 0]);
}

/// A page there is answered with this cause, which is kept and counted.
async fn assert_told(world: &World, authority: &str, cause: Cause) {
    let before = count(world, cause);
    let answer = world.ask(get(authority)).await;
    let (_, last) = answer.rsplit_once("HTTP/1.1 ").expect("an answer");
    assert!(
        last.starts_with(&cause.status().to_string()),
        "{authority}: {answer}"
    );
    assert!(
        last.contains(&format!("\r\nusher-egress: {}\r\n", cause.as_str())),
        "{authority}: {answer}"
    );
    let status = format!("\r\nproxy-status: usher; error={}\r\n", cause.proxy_error());
    assert!(last.contains(&status), "{authority}: {answer}");
    let (host, port) = authority.rsplit_once(':').expect("both");
    let why = world
        .exit
        .why(host, Some(port.parse().expect("a port")))
        .expect("a refusal");
    assert_eq!(why.cause, cause, "{authority}");
    assert_eq!(count(world, cause), before + 1, "{authority}");
}

fn count(world: &World, cause: Cause) -> u64 {
    let found = world.egress.counts().find(|(of, _)| *of == cause);
    found.expect("every cause").1
}

/// A listener whose queue is full: further connections are neither taken nor refused.
async fn full() -> io::Result<(std::net::SocketAddr, (tokio::net::TcpListener, TcpStream))> {
    let socket = TcpSocket::new_v4()?;
    socket.bind(([127, 0, 0, 1], 0).into())?;
    let listener = socket.listen(0)?;
    let address = listener.local_addr()?;
    let held = TcpStream::connect(address).await?;
    Ok((address, (listener, held)))
}
