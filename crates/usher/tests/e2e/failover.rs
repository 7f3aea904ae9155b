//! What is tried again, where, and how often.

use serde_json::json;

use crate::support::config::HOST;
use crate::support::endpoint::{Blackhole, ok, origin_at, refusing};
use crate::support::{Config, Endpoint, Usher};

const POST: &str = "POST / HTTP/1.1\r\nHost: shop.example.com\r\nContent-Length: 4\r\n\r\nbody";

#[test]
fn a_refused_connection_is_tried_once_more_elsewhere_with_the_body_intact() {
    let alive = Endpoint::named("alive");
    let usher = Usher::start(&Config::serving([
        origin_at("dead", refusing()),
        alive.origin("alive"),
    ]));
    let mut wire = usher.connect();
    for _ in 0..40 {
        let answer = wire.exchange(POST);
        assert_eq!((answer.status(), answer.text().as_str()), (200, "alive"));
    }
    let arrived = alive.arrived();
    assert_eq!(arrived.len(), 40);
    assert!(arrived.iter().all(|request| request.text() == "body"));
    crate::support::eventually("failovers to be counted", || {
        (usher.metric("usher_failovers_total") > 0.0).then_some(())
    });
}

#[test]
fn a_large_body_survives_the_second_attempt() {
    let alive = Endpoint::named("alive");
    let usher = Usher::start(&Config::serving([
        origin_at("dead", refusing()),
        alive.origin("alive"),
    ]));
    let body = "0123456789abcdef".repeat(64 * 1024); // 1 MiB: no byte was sent, so all can be
    for _ in 0..8 {
        let answer = usher.exchange(format!(
            "POST / HTTP/1.1\r\nHost: shop.example.com\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        ));
        assert_eq!(answer.status(), 200);
        assert!(alive.next().text() == body);
    }
}

#[test]
fn when_both_attempts_fail_the_client_gets_the_code_of_the_second() {
    let usher = Usher::start(&Config::serving([
        origin_at("one", refusing()),
        origin_at("two", refusing()),
    ]));
    assert_eq!(usher.get("/").status(), 521);
    let line = &usher.access_log(1)[0];
    assert_eq!(
        (&line["status"], &line["attempts"]),
        (&json!(521), &json!(2))
    );
}

#[test]
fn a_single_endpoint_that_refuses_is_521() {
    let usher = Usher::start(&Config::serving([origin_at("one", refusing())]));
    let mut wire = usher.connect();
    assert_eq!(wire.get(HOST, "/").status(), 521);
    assert_eq!(
        wire.get(HOST, "/").status(),
        521,
        "the client's connection lives on"
    );
}

#[test]
fn a_connect_that_hangs_is_522_and_is_tried_elsewhere() {
    let hole = Blackhole::new();
    let only = Config::serving([origin_at("hole", hole.address())]).timeout("connect", "300ms");
    assert_eq!(Usher::start(&only).get("/").status(), 522);

    let alive = Endpoint::named("alive");
    let both = Config::serving([origin_at("hole", hole.address()), alive.origin("alive")])
        .timeout("connect", "300ms");
    let usher = Usher::start(&both);
    for _ in 0..6 {
        assert_eq!(usher.exchange(POST).text(), "alive");
    }
}

#[test]
fn an_address_that_cannot_be_reached_is_523() {
    // TCP has no broadcast: Linux answers a connect to one with "network is unreachable".
    let nowhere = json!({"name": "nowhere", "address": "127.255.255.255", "port": 80});
    assert_eq!(
        Usher::start(&Config::serving([nowhere])).get("/").status(),
        523
    );
}

#[test]
fn a_name_that_does_not_resolve_makes_its_endpoint_unusable() {
    let alive = Endpoint::named("alive");
    let lost = json!({"name": "lost", "address": "no-such-host.invalid", "port": 80});
    let usher = Usher::start(&Config::serving([lost.clone(), alive.origin("alive")]));
    for _ in 0..10 {
        assert_eq!(usher.get("/").text(), "alive");
    }
    assert_eq!(
        Usher::start(&Config::serving([lost])).get("/").status(),
        530
    );
}

#[test]
fn tls_failures_are_525_and_526() {
    let plain = Endpoint::named("plain");
    let full = Config::serving([plain.origin("p")])
        .set(&["pools", "main", "usher"], json!({"tls": "full"}));
    assert_eq!(Usher::start(&full).get("/").status(), 525);

    let authority = crate::support::tls::Authority::new();
    let pair = authority.pair(&["other.example.net"]);
    let endpoint = Endpoint::scripted(move |visit| {
        let socket = visit.take_socket();
        if let Some(mut wire) = pair.accept(socket) {
            while wire.request().is_some() {
                let _ = wire.try_send(ok("over tls"));
            }
        }
    });
    let pool = ["pools", "main", "usher"];
    let strict = Config::serving([endpoint.origin("a")]).set(&pool, json!({"tls": "strict"}));
    assert_eq!(Usher::start(&strict).get("/").status(), 526);
    let full = Config::serving([endpoint.origin("a")]).set(&pool, json!({"tls": "full"}));
    assert_eq!(Usher::start(&full).get("/").text(), "over tls");

    let folder = crate::support::process::Folder::new();
    folder.write("ca.pem", authority.pem());
    let mut origin = endpoint.origin("a");
    origin["header"] = json!({"Host": ["other.example.net"]});
    let named = Config::serving([origin]).set(&pool, json!({"tls": "strict", "ca": "ca.pem"}));
    folder.write("usher.yaml", named.text());
    assert_eq!(Usher::start_in(folder).get("/").text(), "over tls");
}

#[test]
fn what_an_endpoint_says_itself_is_never_tried_again() {
    for status in [500, 502, 503, 520, 521, 524, 530] {
        let answer =
            format!("HTTP/1.1 {status} Own Words\r\nContent-Length: 3\r\nX-Own: yes\r\n\r\nown");
        let [one, two] = [&answer, &answer].map(Endpoint::answering);
        let usher = Usher::start(&Config::serving([one.origin("one"), two.origin("two")]));
        let answer = usher.get("/");
        assert_eq!((answer.status(), answer.text().as_str()), (status, "own"));
        assert_eq!(answer.field("x-own"), Some("yes"));
        assert_eq!(one.arrived().len() + two.arrived().len(), 1);
    }
}

#[test]
fn an_endpoint_that_dies_after_it_got_the_request_is_520_once() {
    let [one, two] = [1, 2].map(|_| {
        Endpoint::scripted(|visit| {
            visit.request();
        })
    });
    let usher = Usher::start(&Config::serving([one.origin("one"), two.origin("two")]));
    assert_eq!(usher.exchange(POST).status(), 520);
    assert_eq!(one.arrived().len() + two.arrived().len(), 1);
}

#[test]
fn a_minute_long_post_is_never_sent_twice() {
    let [one, two] = [1, 2].map(|_| Endpoint::silent());
    let config =
        Config::serving([one.origin("one"), two.origin("two")]).timeout("response_header", "500ms");
    let usher = Usher::start(&config);
    assert_eq!(usher.exchange(POST).status(), 524);
    assert_eq!(
        one.arrived().len() + two.arrived().len(),
        1,
        "the other endpoint sees nothing"
    );
}

/// Answers the first request of its first connection and breaks that connection on the second.
fn dies_when_reused() -> Endpoint {
    Endpoint::scripted(|visit| {
        if visit.request().is_some() {
            visit.send(ok("first"));
        }
        if visit.nth == 0 {
            visit.request();
            return;
        }
        while visit.request().is_some() {
            visit.send(ok("again"));
        }
    })
}

#[test]
fn a_reused_connection_that_dies_is_replaced_when_the_request_can_be_repeated() {
    let endpoint = dies_when_reused();
    let usher = Usher::start(&Config::serving([endpoint.origin("a")]));
    let mut wire = usher.connect();
    assert_eq!(wire.get(HOST, "/").status(), 200);
    assert_eq!(wire.get(HOST, "/").status(), 200);
    assert_eq!(
        endpoint.arrived().len(),
        3,
        "the second request went out twice"
    );
}

#[test]
fn a_reused_connection_that_dies_under_a_post_is_520() {
    let endpoint = dies_when_reused();
    let usher = Usher::start(&Config::serving([endpoint.origin("a")]));
    let mut wire = usher.connect();
    assert_eq!(wire.get(HOST, "/").status(), 200);
    assert_eq!(wire.exchange(POST).status(), 520);
    assert_eq!(
        endpoint.arrived().len(),
        2,
        "a request that may have had an effect is not repeated"
    );
}

#[test]
fn a_connection_that_the_endpoint_closed_while_idle_costs_nobody_anything() {
    // Each connection serves one request and is closed without a word, as short keep-alives do.
    let endpoint = Endpoint::scripted(|visit| {
        visit.request();
        visit.send(ok("once"));
    });
    let usher = Usher::start(&Config::serving([endpoint.origin("a")]));
    let mut wire = usher.connect();
    for _ in 0..50 {
        assert_eq!(
            wire.exchange("GET / HTTP/1.1\r\nHost: shop.example.com\r\n\r\n")
                .status(),
            200
        );
    }
}

#[test]
fn the_retry_stays_in_its_pool() {
    let alive = Endpoint::named("alive");
    let config = Config::new()
        .pool("eu", [origin_at("dead", refusing())])
        .pool("us", [alive.origin("alive")])
        .balancer(HOST, &["eu", "us"]);
    assert_eq!(Usher::start(&config).get("/").status(), 521);
    assert!(alive.arrived().is_empty());
}

#[test]
fn a_second_attempt_is_over_when_it_is_answered() {
    let alive = Endpoint::scripted(|visit| {
        while let Some(request) = visit.wire.request() {
            if request.target() == "/hold" {
                visit.send("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nstart");
                visit.wire.rest();
                return;
            }
            visit.send(ok("alive"));
        }
    });
    // Nearly every first attempt goes to the one that refuses.
    let mut seldom = alive.origin("alive");
    seldom["weight"] = json!(0.01);
    let usher = Usher::start(&Config::serving([origin_at("dead", refusing()), seldom]));
    let held: Vec<_> = (1..=8)
        .map(|count| {
            let mut wire = usher.connect();
            wire.send(format!("GET /hold HTTP/1.1\r\nHost: {HOST}\r\n\r\n"));
            assert_eq!(wire.bytes(12), b"HTTP/1.1 200", "request {count}");
            wire
        })
        .collect();
    // More than the budget ever allows at a time are under way, and each has its answer.
    assert_eq!(usher.get("/").text(), "alive");
    assert_eq!(usher.metric("usher_retries_denied_total"), 0.0);
    drop(held);
}
