//! What an endpoint sees of a client's request, and which requests it never sees.

use std::time::Duration;

use super::kit::{HOST, Origin, SHORT, Setup, Usher, field, get, status, with_body};

// The path of a request.

#[test]
fn a_request_reaches_the_endpoint_and_its_answer_the_client() {
    let origin = Origin::echo();
    let usher = Usher::to(&origin);
    let (head, seen) = usher.ask(&get("/a?b=c"));
    assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
    assert!(seen.starts_with("GET /a?b=c HTTP/1.1\r\n"), "{seen}");
    assert_eq!(field(&seen, "host"), Some(HOST));
    assert_eq!(field(&seen, "x-forwarded-for"), Some("127.0.0.1"));
    assert_eq!(field(&seen, "x-forwarded-proto"), Some("http"));
    assert_eq!(field(&seen, "cf-connecting-ip"), Some("127.0.0.1"));
}

#[test]
fn the_host_can_be_replaced_and_the_original_is_told() {
    let origin = Origin::echo();
    let mut setup = Setup::to(&[origin.address]);
    setup.host_header = Some("internal.example.com".to_owned());
    let (_, seen) = setup.start().ask(&get("/"));
    assert_eq!(field(&seen, "host"), Some("internal.example.com"));
    assert_eq!(field(&seen, "x-forwarded-host"), Some(HOST));
}

#[test]
fn requests_and_connections_of_clients_share_endpoint_connections() {
    let origin = Origin::echo();
    let usher = Usher::to(&origin);
    let mut client = usher.client();
    for _ in 0..3 {
        client.send(get("/"));
        client.message();
    }
    usher.ask(&get("/"));
    assert_eq!(origin.said(), "connection 0");
    assert!(origin.is_silent());
}

#[test]
fn requests_sent_ahead_are_answered_in_order() {
    let origin = Origin::echo();
    let usher = Usher::to(&origin);
    let mut client = usher.client();
    client.send(get("/1") + &with_body("POST", "/2", "body") + &get("/3"));
    for path in ["GET /1", "POST /2", "GET /3"] {
        let (_, seen) = client.message();
        assert!(seen.starts_with(path), "{seen}");
    }
    client.shut();
    client.ended();
}

// Fields.

#[test]
fn fields_for_one_hop_stay_there() {
    let origin = Origin::echo();
    let usher = Usher::to(&origin);
    for _ in 0..2 {
        let (_, seen) = usher.ask(&format!(
            "GET / HTTP/1.1\r\nHost: {HOST}\r\nConnection: close, X-Secret\r\nX-Secret: 1\r\nTE: trailers\r\n\
             Keep-Alive: timeout=5\r\nProxy-Authorization: Basic x\r\nUpgrade: h2c\r\nX-Kept: 1\r\n\r\n"
        ));
        for name in [
            "connection",
            "x-secret",
            "te",
            "keep-alive",
            "proxy-authorization",
            "upgrade",
        ] {
            assert_eq!(field(&seen, name), None, "{seen}");
        }
        assert_eq!(field(&seen, "x-kept"), Some("1"));
    }
    assert_eq!(origin.said(), "connection 0");
    assert!(
        origin.is_silent(),
        "the connection to the endpoint was closed with the client's"
    );
}

#[test]
fn an_endpoints_fields_for_one_hop_stay_there_and_its_connection_is_used_again() {
    let origin = Origin::new(|peer, number, report| {
        let _ = report.send(format!("connection {number}"));
        for _ in 0..2 {
            peer.head();
            peer.send(
                "HTTP/1.1 200 OK\r\nUpgrade: h2c\r\nConnection: upgrade, X-Hop\r\nX-Hop: 1\r\n\
                 Keep-Alive: timeout=5\r\nX-Kept: 1\r\nContent-Length: 2\r\n\r\nok",
            );
        }
    });
    let usher = Usher::to(&origin);
    for _ in 0..2 {
        let (head, body) = usher.ask(&get("/"));
        assert_eq!((status(&head), &*body), (200, "ok"));
        for name in ["upgrade", "connection", "x-hop", "keep-alive"] {
            assert_eq!(field(&head, name), None, "{head}");
        }
        assert_eq!(field(&head, "x-kept"), Some("1"));
    }
    assert_eq!(origin.said(), "connection 0");
    assert!(origin.is_silent());
}

// What is refused, and how the connection ends then.

#[test]
fn malformed_requests_are_answered_closed_and_not_passed_on() {
    let origin = Origin::echo();
    let usher = Usher::to(&origin);
    let long = "a".repeat(17 * 1024);
    let many: String = (0..10_000)
        .map(|number| format!("x-{number}: 1\r\n"))
        .collect();
    let rows = [
        (400, "POST / HTTP/1.1\r\nHost: H\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n".to_owned()),
        (400, "POST / HTTP/1.1\r\nHost: H\r\nTransfer-Encoding: chunked, identity\r\n\r\n".to_owned()),
        (400, "POST / HTTP/1.1\r\nHost: H\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n".to_owned()),
        (400, "POST / HTTP/1.1\r\nHost: H\r\nContent-Length: 5\r\nContent-Length: 5\r\n\r\n".to_owned()),
        (400, "GET / HTTP/1.1\r\n\r\n".to_owned()),
        (400, "GET / HTTP/1.1\r\nHost: H\nX: 1\r\n\r\n".to_owned()),
        (400, "GET / HTTP/1.1\r\nHost: H\r\nX: 1\r\n folded\r\n\r\n".to_owned()),
        (414, format!("GET /{long} HTTP/1.1\r\nHost: H\r\n\r\n")),
        (431, format!("GET / HTTP/1.1\r\nHost: H\r\nX: {}\r\n\r\n", "a".repeat(100 * 1024))),
        (431, format!("GET / HTTP/1.1\r\nHost: H\r\n{many}\r\n")),
        (405, "TRACE / HTTP/1.1\r\nHost: H\r\n\r\n".to_owned()),
        (405, "CONNECT shop.example.com:443 HTTP/1.1\r\nHost: shop.example.com:443\r\n\r\n".to_owned()),
        (505, "GET / HTTP/3.0\r\nHost: H\r\n\r\n".to_owned()),
    ];
    for (wanted, request) in rows {
        let request = request
            .replace("Host: H\n", &format!("Host: {HOST}\n"))
            .replace("Host: H\r", &format!("Host: {HOST}\r"));
        let mut client = usher.client();
        // What follows must never be taken for a request.
        client.try_send(request.clone() + &get("/admin"));
        let (head, _) = client.message();
        assert_eq!(status(&head), wanted, "{:.80}", request);
        assert_eq!(field(&head, "connection"), Some("close"), "{head}");
        client.ended();
    }
    assert!(origin.is_silent());
}

#[test]
fn a_host_of_nobody_is_not_found_and_the_connection_goes_on() {
    let origin = Origin::echo();
    let usher = Usher::to(&origin);
    let mut client = usher.client();
    client.send("GET / HTTP/1.1\r\nHost: other.example.com\r\n\r\n");
    assert_eq!(status(&client.message().0), 404);
    client.send(get("/"));
    assert_eq!(status(&client.message().0), 200);
}

#[test]
fn the_connection_closes_when_the_client_asks_for_it() {
    let origin = Origin::echo();
    let usher = Usher::to(&origin);
    let mut client = usher.client();
    client.send(format!(
        "GET / HTTP/1.1\r\nHost: {HOST}\r\nConnection: close\r\n\r\n"
    ));
    assert_eq!(field(&client.message().0, "connection"), Some("close"));
    client.ended();
}

#[test]
fn what_follows_the_last_request_is_not_served_and_does_not_cost_its_answer() {
    let origin = Origin::echo();
    let usher = Usher::to(&origin);
    let mut client = usher.client();
    let last = format!("GET /last HTTP/1.1\r\nHost: {HOST}\r\nConnection: close\r\n\r\n");
    client.send(last + &get("/more"));
    assert!(client.message().1.starts_with("GET /last "));
    let (rest, orderly) = client.rest();
    assert_eq!((&*rest, orderly), ("", true));
}

#[test]
fn a_large_unwanted_upload_still_sees_its_answer() {
    let origin = Origin::echo();
    let usher = Usher::to(&origin);
    let mut client = usher.client();
    client.send("POST / HTTP/1.1\r\nHost: other.example.com\r\nContent-Length: 100000000\r\n\r\n");
    client.try_send(vec![0; 1024 * 1024]);
    assert_eq!(status(&client.message().0), 404);
}

#[test]
fn plain_http_is_sent_to_https_when_the_zone_says_so() {
    let mut setup = Setup::to(&[Origin::closed()]);
    setup.always_use_https = true;
    let (head, _) = setup.start().ask(&get("/a?b"));
    assert_eq!(status(&head), 301);
    assert_eq!(
        field(&head, "location"),
        Some("https://shop.example.com/a?b")
    );
}

// Slow clients.

#[test]
fn a_head_must_arrive_in_time_on_fresh_and_on_reused_connections() {
    let origin = Origin::echo();
    let mut setup = Setup::to(&[origin.address]);
    setup.settings.timeouts.client_header = SHORT;
    let usher = setup.start();
    let mut fresh = usher.client();
    fresh.send("GET / HTTP/1.1\r\nHo");
    assert_eq!(status(&fresh.message().0), 408);
    fresh.ended();
    let mut reused = usher.client();
    reused.send(get("/"));
    reused.message();
    reused.send("GET / HTTP/1.1\r\nHo");
    assert_eq!(status(&reused.message().0), 408);
    reused.ended();
    usher.client().ended();
}

#[test]
fn an_idle_connection_is_closed_without_a_word() {
    let origin = Origin::echo();
    let mut setup = Setup::to(&[origin.address]);
    setup.settings.timeouts.keep_alive = SHORT;
    let usher = setup.start();
    let mut client = usher.client();
    client.send(get("/"));
    client.message();
    client.ended();
}

#[test]
fn a_body_that_stops_coming_is_answered_with_408() {
    let origin = Origin::new(|peer, _, report| {
        peer.head();
        let _ = report.send(format!("{:?}", peer.rest()));
    });
    let mut setup = Setup::to(&[origin.address]);
    setup.settings.timeouts.client_body_idle = SHORT;
    let usher = setup.start();
    let mut client = usher.client();
    client.send(format!(
        "POST / HTTP/1.1\r\nHost: {HOST}\r\nContent-Length: 10\r\n\r\nhalf"
    ));
    assert_eq!(status(&client.message().0), 408);
    assert!(origin.said().starts_with("(\"half\""));
}

// Clients that leave.

#[test]
fn when_the_client_leaves_the_endpoint_is_told_and_its_connection_not_used_again() {
    let origin = Origin::new(|peer, number, report| {
        peer.head();
        let _ = report.send(format!("request {number}"));
        if number == 0 {
            let _ = report.send(format!("{:?}", peer.rest().0));
        } else {
            peer.answer("200 OK", "second");
        }
    });
    let usher = Usher::to(&origin);
    let mut client = usher.client();
    client.send(get("/"));
    assert_eq!(origin.said(), "request 0");
    drop(client);
    assert_eq!(origin.said(), "\"\"");
    assert_eq!(usher.ask(&get("/")).1, "second");
    assert_eq!(origin.said(), "request 1");
}

#[test]
fn a_client_that_does_not_read_holds_the_endpoint_back() {
    const PIECE: usize = 64 * 1024;
    let origin = Origin::new(|peer, _, report| {
        peer.head();
        peer.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
        peer.socket()
            .set_write_timeout(Some(Duration::from_millis(500)))
            .expect("timeout");
        let piece = [
            format!("{PIECE:x}\r\n").into_bytes(),
            vec![b'a'; PIECE],
            b"\r\n".to_vec(),
        ]
        .concat();
        let taken = (0..4096).take_while(|_| peer.try_send(&piece)).count();
        let _ = report.send(taken.to_string());
    });
    let usher = Usher::to(&origin);
    let mut client = usher.client();
    client.send(get("/"));
    client.head();
    let taken: usize = origin.said().parse().expect("number");
    // What fits into the sockets of two connections, and not the 256 MiB that were there to send.
    assert!(
        taken * PIECE < 64 * 1024 * 1024,
        "{taken} pieces were taken"
    );
}

#[test]
fn a_late_reader_gets_every_byte() {
    let pieces =
        || (0..3_000).map(|number: usize| format!("{number:05} ").repeat(1 + number % 900));
    let origin = Origin::new(move |peer, _, report| {
        peer.head();
        peer.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
        for (number, piece) in pieces().enumerate() {
            if number == 1_000 {
                let _ = report.send("a good part is on its way".to_owned());
            }
            peer.send(format!("{:x}\r\n{piece}\r\n", piece.len()));
        }
        peer.send("0\r\n\r\n");
    });
    let usher = Usher::to(&origin);
    let mut client = usher.client();
    client.send(get("/"));
    origin.said();
    assert_eq!(client.message().1, pieces().collect::<String>());
}
