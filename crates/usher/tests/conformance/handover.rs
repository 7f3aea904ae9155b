//! One process follows another under load, again and again.

use std::sync::Arc;
use std::time::Instant;

use rustix::process::Signal;
use serde_json::json;

use crate::load::Wrk;
use crate::programs::Nginx;
use crate::soak;
use crate::support::config::HOST;
use crate::support::load::Client;
use crate::support::process::Folder;
use crate::support::tls::Authority;
use crate::support::websocket::{echo, echoes, open_at};
use crate::support::{Config, Endpoint, Usher, Wire};

const SOCKETS: &str = "sockets.example.com";

#[test]
fn reloads_and_hand_overs_under_load_lose_nothing() {
    let (requests_min, hand_overs, seconds) = if soak() {
        (1_000_000, 10, 4)
    } else {
        (3_000, 2, 1)
    };
    let nginx = [Nginx::start(), Nginx::start()];
    let echoing = Endpoint::scripted(echo);
    let authority = Arc::new(Authority::new());
    let pair = authority.pair(&[HOST]);
    let folder = Folder::new();
    folder.write("shop.pem", &pair.certificate);
    folder.write("shop.key", &pair.key);
    let config = Config::serving([nginx[0].origin("a"), nginx[1].origin("b")])
        .monitored("main")
        .pool("echo", [echoing.origin("e")])
        .balancer(SOCKETS, &["echo"])
        .set(&["listen", "https"], json!(["127.0.0.1:0"]))
        .set(
            &["certificates"],
            json!([{"cert": "shop.pem", "key": "shop.key"}]),
        )
        .set(
            &["shutdown"],
            json!({"grace": "1s", "handover_grace": "1h"}),
        )
        .set(&["access_log"], json!("off"))
        .set(&["pid_file"], json!("usher.pid"));
    folder.write("usher.yaml", config.text());
    let mut usher = Usher::start_in(folder);
    let (http, https) = (usher.address("http"), usher.address("https"));
    let mut sockets: Vec<_> = (0..100).map(|_| open_at(&usher, SOCKETS)).collect();
    let secure = {
        let authority = Arc::clone(&authority);
        move || authority.connect(https, HOST)
    };
    let clients = [
        Client::fresh("HTTP/1.1, fresh connections", move || Wire::connect(http)),
        Client::kept("HTTP/1.1 over TLS, kept connections", secure),
        Client::streams("HTTP/2", None, http),
        Client::streams("HTTP/2 over TLS", Some(authority), https),
    ];

    let began = Instant::now();
    let (mut of_wrk, mut reloads) = (0, 0);
    let answered = || clients.iter().map(Client::answered).sum::<usize>() as u64;
    for round in 1..=hand_overs {
        let mut wrk = Wrk::start(http, seconds);
        for weight in [0.3, 1.0] {
            clients.iter().for_each(|client| client.wait_answers(20));
            let changed = json!(weight);
            usher.reload(
                &config
                    .clone()
                    .set(&["pools", "main", "origins", "0", "weight"], changed),
            );
            reloads += 1;
        }
        clients.iter().for_each(|client| client.wait_answers(20));
        usher.hand_over();
        sockets.iter_mut().for_each(echoes);
        of_wrk += wrk.finish();
        // Each round has its share of the requests.
        while of_wrk + answered() < requests_min * round / hand_overs {
            wrk = Wrk::start(http, seconds);
            of_wrk += wrk.finish();
        }
    }
    let took = began.elapsed();
    let row = |name: &str, requests: u64| println!("{name:<40}{requests:>10}{:>8}{:>8}", 0, 0);
    println!("{:<40}{:>10}{:>8}{:>8}", "", "requests", "failed", "resets");
    row("HTTP/1.1, wrk", of_wrk);
    let mut requests = of_wrk;
    for client in clients {
        let name = client.name().to_owned();
        // Any failure is a panic of its thread, which this tells.
        let answered = client.stop() as u64;
        requests += answered;
        row(&name, answered);
    }
    row("all", requests);
    println!("over {reloads} reloads and {hand_overs} hand-overs in {took:.0?}");

    // Nothing but the sockets kept a process that was followed.
    usher.before()[1..]
        .iter()
        .for_each(|process| process.wait());
    sockets.iter_mut().for_each(echoes);
    let first = &usher.before()[0];
    assert!(!first.is_over());
    first.signal(Signal::TERM);
    for mut socket in sockets {
        assert!(socket.read().is_err(), "cut when the grace ends");
    }
    assert_eq!(usher.wait().code(), Some(0));
    println!("100 WebSockets: unbroken until the grace of the process that they began with");
}
