//! What a page must not reach, by every spelling and every way of asking: nothing arrives.

use std::net::{IpAddr, UdpSocket};

use tokio::io::AsyncWriteExt;
use usher_egress::{Deadlines, Guardrails, Pattern, Policy};

use crate::world::{World, answers, loopback, server, trap, until, untouched};

/// Asks for `authority` as a page, as a tunnel and as a WebSocket.
async fn ask_all_ways(world: &World, authority: &str) -> Vec<String> {
    let mut answers = Vec::new();
    for request in [
        format!(
            "GET http://{authority}/ HTTP/1.1\r\nHost: {authority}\r\nConnection: close\r\n\r\n"
        ),
        format!("CONNECT {authority} HTTP/1.1\r\nHost: {authority}\r\n\r\n"),
        format!(
            "GET http://{authority}/ HTTP/1.1\r\nHost: {authority}\r\nConnection: close, upgrade\r\n\
             Upgrade: websocket\r\nSec-WebSocket-Key: k\r\nSec-WebSocket-Version: 13\r\n\r\n"
        ),
    ] {
        answers.push(world.ask(request).await);
    }
    answers
}

async fn assert_denied(world: &World, authority: &str, cause: &str) {
    for answer in ask_all_ways(world, authority).await {
        assert!(answer.starts_with("HTTP/1.1 403 "), "{authority}: {answer}");
        assert!(
            answer.contains(&format!("\r\nusher-egress: {cause}\r\n")),
            "{authority}: {answer}"
        );
    }
}

#[tokio::test]
async fn nothing_arrives_on_loopback_whatever_it_is_called() {
    let world = World::with(Deadlines::default(), Some(Policy::default()));
    let (trap4, port) = trap("0.0.0.0:0").expect("a port");
    // Machines without IPv6 have nothing to protect there.
    let trap6 = trap(&format!("[::1]:{port}")).ok();
    for (host, addresses) in [
        ("localhost", &["::1", "127.0.0.1"][..]),
        ("public.example", &["1.1.1.1", "127.0.0.1"]),
        ("mapped.example", &["::ffff:127.0.0.1"]),
        ("any.example", &["0.0.0.0"]),
        ("any6.example", &["::"]),
        ("compatible.example", &["::7f00:1"]),
        ("translated.example", &["64:ff9b::7f00:1"]),
        ("six-to-four.example", &["2002:7f00:1::1"]),
        ("teredo.example", &["2001:0:7f00:1::1"]),
    ] {
        world.names.set(host, &[addresses]);
    }
    for host in [
        "127.0.0.1",
        "127.0.0.1.",
        "127.1",
        "127.9.9.9",
        "2130706433",
        "0x7f000001",
        "0x7f.1",
        "017700000001",
        "0177.0.0.01",
        "0",
        "0.0.0.0",
        "[::1]",
        "[::]",
        "[::ffff:127.0.0.1]",
        "[::ffff:7f00:1]",
        "[::7f00:1]",
        "[64:ff9b::7f00:1]",
        "[2002:7f00:1::1]",
        "localhost",
        "LOCALHOST.",
        "public.example",
        "mapped.example",
        "any.example",
        "any6.example",
        "compatible.example",
        "translated.example",
        "six-to-four.example",
        "teredo.example",
    ] {
        assert_denied(&world, &format!("{host}:{port}"), "denied-address").await;
        untouched(&trap4);
        if let Some((trap6, _)) = &trap6 {
            untouched(trap6);
        }
    }
    assert_eq!(world.exit.usage(), Default::default());
}

#[tokio::test]
async fn nothing_arrives_on_an_address_of_this_machine() {
    let world = World::with(Deadlines::default(), Some(Policy::default()));
    let (trap4, port) = trap("0.0.0.0:0").expect("a port");
    // The address towards the rest of the world; asking for the route sends nothing.
    let route = UdpSocket::bind("0.0.0.0:0").expect("a socket");
    if route.connect("192.0.2.1:9").is_err() {
        return;
    }
    let own = route.local_addr().expect("an address").ip();
    // Also where the range that it lies in is open.
    assert_denied(&world, &format!("{own}:{port}"), "denied-address").await;
    world.names.set("us.example", &[&[&own.to_string()]]);
    assert_denied(&world, &format!("us.example:{port}"), "denied-address").await;
    untouched(&trap4);
}

#[tokio::test]
async fn every_kind_of_address_is_denied_and_never_told() {
    let world = World::with(Deadlines::default(), Some(Policy::default()));
    for ip in [
        "10.1.2.3",
        "172.31.0.1",
        "192.168.0.1",
        "169.254.169.254",
        "169.254.170.2",
        "100.64.0.1",
        "100.100.100.200",
        "168.63.129.16",
        "192.0.0.192",
        "192.0.2.1",
        "198.18.0.1",
        "198.51.100.1",
        "203.0.113.1",
        "224.0.0.251",
        "240.0.0.1",
        "255.255.255.255",
        "0.1.2.3",
        "fd00:ec2::254",
        "fd20:ce::254",
        "fe80::1",
        "fec0::1",
        "ff02::1",
        "100::1",
        "2001:db8::1",
        "2001::1",
        "64:ff9b:1::1",
        "4000::1",
    ] {
        world.names.set("inside.example", &[&[ip]]);
        assert_denied(&world, "inside.example:80", "denied-address").await;
        let literal: IpAddr = ip.parse().expect("an address");
        let literal = match literal {
            IpAddr::V4(_) => ip.to_owned(),
            IpAddr::V6(_) => format!("[{ip}]"),
        };
        assert_denied(&world, &format!("{literal}:443"), "denied-address").await;
        let why = world
            .exit
            .why("inside.example", Some(80))
            .expect("a refusal");
        assert_eq!(why.address.map(|ip| ip.to_string()).as_deref(), Some(ip));
        for answer in ask_all_ways(&world, "inside.example:80").await {
            assert!(!answer.contains(ip), "{answer}");
        }
    }
}

#[tokio::test]
async fn metadata_stays_shut_where_everything_is_open() {
    let everything = Policy {
        allow_private: vec![
            "0.0.0.0/0".parse().expect("all"),
            "::/0".parse().expect("all"),
        ],
        ..Policy::default()
    };
    let world = World::with(Deadlines::default(), Some(everything));
    for host in [
        "169.254.169.254",
        "2852039166",
        "0xa9fea9fe",
        "[::ffff:169.254.169.254]",
        "[fd00:ec2::254]",
        "[64:ff9b::a9fe:a9fe]",
    ] {
        assert_denied(&world, &format!("{host}:80"), "denied-address").await;
    }
}

#[tokio::test]
async fn what_we_listen_on_ourselves_nothing_opens() {
    let world = World::new();
    let (trap, port) = trap("127.0.0.1:0").expect("a port");
    let listener = format!("0.0.0.0:{port}").parse().expect("an address");
    world.egress.own_listeners([listener]);
    for host in ["127.0.0.1", "127.0.0.2", "[::ffff:127.0.0.1]", "2130706433"] {
        assert_denied(&world, &format!("{host}:{port}"), "denied-address").await;
    }
    untouched(&trap);
    let site = answers("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").await;
    let answer = world
        .ask(format!(
            "GET http://{site}/ HTTP/1.1\r\nHost: {site}\r\nConnection: close\r\n\r\n"
        ))
        .await;
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
}

#[tokio::test]
async fn a_name_that_changes_its_mind_leads_nowhere() {
    let world = World::with(
        Deadlines::default(),
        Some(Policy {
            allow_private: vec!["127.0.0.1/32".parse().expect("a network")],
            ..Policy::default()
        }),
    );
    let site = answers("HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nhi").await;
    let port = site.port();
    // The same port of another address, so that only the address tells them apart.
    let (inside, _) = trap(&format!("127.0.0.2:{port}")).expect("the port is free there");
    let allowed: &[&str] = &["127.0.0.1"];
    let denied: &[&str] = &["127.0.0.2"];
    world
        .names
        .set("rebind.example", &[allowed, denied, allowed, denied]);
    let mut browser = world.browser().await;
    let authority = format!("rebind.example:{port}");
    let request = format!("GET http://{authority}/ HTTP/1.1\r\nHost: {authority}\r\n\r\n");
    for expected in [
        "HTTP/1.1 200 ",
        "HTTP/1.1 403 ",
        "HTTP/1.1 200 ",
        "HTTP/1.1 403 ",
    ] {
        browser
            .write_all(request.as_bytes())
            .await
            .expect("the proxy reads");
        let end = if expected.contains("200") {
            "hi"
        } else {
            "reach\n"
        };
        let answer = until(&mut browser, end).await;
        assert!(answer.starts_with(expected), "{answer}");
        untouched(&inside);
    }
    // One question for each connection: what was judged is what was connected to.
    assert_eq!(world.names.asked.lock().expect("no panic").len(), 4);
}

#[tokio::test]
async fn each_step_of_a_chain_of_redirects_is_judged() {
    let world = World::with(
        Deadlines::default(),
        Some(Policy {
            allow_private: vec!["127.0.0.1/32".parse().expect("a network")],
            ..Policy::default()
        }),
    );
    let (inside, inner) = trap("127.0.0.2:0").expect("a port");
    let site = server(move |mut stream| async move {
        loop {
            let head = until(&mut stream, "\r\n\r\n").await;
            let to = match head.contains("/first") {
                true => "/second".to_owned(),
                false => format!("http://127.0.0.2:{inner}/"),
            };
            let answer =
                format!("HTTP/1.1 302 Found\r\nLocation: {to}\r\nContent-Length: 0\r\n\r\n");
            stream
                .write_all(answer.as_bytes())
                .await
                .expect("the proxy reads");
        }
    })
    .await;
    let mut browser = world.browser().await;
    let mut url = format!("http://{site}/first");
    let mut statuses = Vec::new();
    loop {
        let authority = url["http://".len()..].split('/').next().expect("a host");
        let request = format!("GET {url} HTTP/1.1\r\nHost: {authority}\r\n\r\n");
        browser
            .write_all(request.as_bytes())
            .await
            .expect("the proxy reads");
        let head = until(&mut browser, "\r\n\r\n").await;
        statuses.push(head[9..12].to_owned());
        let Some((_, to)) = head.split_once("Location: ") else {
            break;
        };
        let to = to.lines().next().expect("a place");
        url = match to.starts_with('/') {
            true => format!("http://{site}{to}"),
            false => to.to_owned(),
        };
    }
    assert_eq!(statuses, ["302", "302", "403"]);
    untouched(&inside);
}

#[tokio::test]
async fn guardrails_are_told_as_such_and_ask_no_name_server() {
    let world = World::with(
        Deadlines::default(),
        Some(Policy {
            guardrails: Some(Guardrails::new(["*.allowed.example"]).expect("a pattern")),
            denied_hosts: vec![Pattern::parse("not.allowed.example").expect("a pattern")],
            ..loopback()
        }),
    );
    for host in ["a.allowed.example", "A.Allowed.Example."] {
        world.names.set(host, &[&["127.0.0.1"]]);
    }
    let site = answers("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").await;
    for host in [
        "allowed.example",
        "secret-of-the-page.example",
        "127.0.0.1",
        "[::1]",
    ] {
        assert_denied(&world, &format!("{host}:{}", site.port()), "guardrails").await;
        for answer in ask_all_ways(&world, &format!("{host}:80")).await {
            assert!(
                answer.contains("\r\ncf-mitigated: guardrails\r\n"),
                "{answer}"
            );
            assert!(
                answer.contains("\r\ncf-brapi-guardrails-reason: not-in-allowlist\r\n"),
                "{answer}"
            );
            assert!(
                answer.contains("\r\ncontent-type: text/plain; charset=utf-8\r\n"),
                "{answer}"
            );
        }
    }
    assert_denied(&world, "not.allowed.example:80", "denied-host").await;
    assert_denied(&world, "a.allowed.example:6379", "denied-port").await;
    assert_eq!(*world.names.asked.lock().expect("no panic"), [""; 0]);
    let authority = format!("A.Allowed.Example.:{}", site.port());
    let answer = world
        .ask(format!(
            "GET http://{authority}/ HTTP/1.1\r\nHost: {authority}\r\nConnection: close\r\n\r\n"
        ))
        .await;
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    assert_eq!(
        *world.names.asked.lock().expect("no panic"),
        ["a.allowed.example"]
    );
}

#[tokio::test]
async fn a_browser_that_is_nobodys_reaches_nothing() {
    let world = World::with(Deadlines::default(), None);
    assert_denied(&world, "example.com:80", "unassigned").await;
    assert_eq!(*world.names.asked.lock().expect("no panic"), [""; 0]);
    world.exit.admit(loopback()).expect("the first policy");
    let site = answers("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").await;
    let answer = world
        .ask(format!(
            "GET http://{site}/ HTTP/1.1\r\nHost: {site}\r\nConnection: close\r\n\r\n"
        ))
        .await;
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
}
