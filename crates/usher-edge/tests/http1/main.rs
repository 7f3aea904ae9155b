//! HTTP/1.1 in, HTTP/1.1 out, byte by byte: what an endpoint sees of a client and the reverse.

mod endpoint_tls;
mod kit;

use std::time::Duration;

use kit::{HOST, Origin, Setup, Usher, field, get, status, with_body};

const SHORT: Duration = Duration::from_millis(150);

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

// Bodies.

#[test]
fn chunks_and_trailers_pass_both_ways() {
    let origin = Origin::new(|peer, _, report| {
        let head = peer.head();
        let _ = report.send(format!("{:?}", field(&head, "transfer-encoding")));
        let _ = report.send(peer.until("X-Sum: 1\r\n\r\n"));
        peer.send(
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n\
             3;ext=1\r\nabc\r\n0\r\nX-Trail: 2\r\nContent-Length: 9\r\n\r\n",
        );
        let (head, _) = peer.message();
        let _ = report.send(head);
        peer.answer("200 OK", "next");
    });
    let usher = Usher::to(&origin);
    let mut client = usher.client();
    client.send(format!(
        "POST / HTTP/1.1\r\nHost: {HOST}\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nwiki\r\n0\r\nX-Sum: 1\r\nHost: x\r\n\r\n"
    ));
    assert_eq!(origin.said(), "Some(\"chunked\")");
    assert_eq!(origin.said(), "4\r\nwiki\r\n0\r\nX-Sum: 1\r\n\r\n");
    assert_eq!(field(&client.head(), "transfer-encoding"), Some("chunked"));
    assert_eq!(
        client.until("\r\n\r\n"),
        "3\r\nabc\r\n0\r\nX-Trail: 2\r\n\r\n"
    );
    client.send(get("/next"));
    assert_eq!(client.message().1, "next");
    assert!(
        origin.said().starts_with("GET /next"),
        "the connection was used again"
    );
}

#[test]
fn a_long_body_passes_unchanged_both_ways() {
    let origin = Origin::echo();
    let usher = Usher::to(&origin);
    let body: String = (0..600_000).map(|number| format!("{number:07} ")).collect();
    let mut client = usher.client();
    let request = with_body("PUT", "/", &body);
    std::thread::scope(|scope| {
        let mut writer = kit::Peer::new(client.socket().try_clone().expect("clone"));
        scope.spawn(move || writer.send(request));
        let (_, seen) = client.message();
        assert!(seen.ends_with(&body));
    });
}

#[test]
fn many_bodies_of_every_length_pass_unchanged() {
    let origin = Origin::echo();
    let usher = Usher::to(&origin);
    std::thread::scope(|scope| {
        for seed in 0..4_usize {
            let mut client = usher.client();
            scope.spawn(move || {
                for round in 0..60 {
                    let length = (seed * 7919 + round * 104_729) % 70_000;
                    let body = format!("{seed}-{round} ").repeat(length / 5);
                    let request = match round % 2 {
                        0 => with_body("POST", "/", &body),
                        _ => {
                            let pieces = body.as_bytes().chunks(1 + length % 9_000);
                            let chunks = pieces.map(|piece| {
                                format!("{:x}\r\n{}\r\n", piece.len(), String::from_utf8_lossy(piece))
                            });
                            format!("PUT / HTTP/1.1\r\nHost: {HOST}\r\nTransfer-Encoding: chunked\r\n\r\n")
                                + &chunks.collect::<String>()
                                + "0\r\n\r\n"
                        }
                    };
                    client.send(request);
                    let (head, seen) = client.message();
                    assert_eq!(status(&head), 200);
                    let (_, echoed) = seen.split_once("\r\n\r\n").expect("a head");
                    assert!(echoed == body, "round {round}, {} of {} bytes", echoed.len(), body.len());
                }
            });
        }
    });
    assert_eq!(usher.plane.ledger().in_flight(), 0);
}

#[test]
fn no_body_follows_where_there_can_be_none() {
    let origin = Origin::new(|peer, _, _| {
        peer.head();
        peer.send("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n");
        peer.head();
        peer.send("HTTP/1.1 204 No Content\r\n\r\n");
        peer.head();
        peer.send("HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\nETag: x\r\n\r\n");
        peer.head();
        peer.answer("200 OK", "last");
    });
    let usher = Usher::to(&origin);
    let mut client = usher.client();
    client.send(format!("HEAD / HTTP/1.1\r\nHost: {HOST}\r\n\r\n"));
    assert_eq!(field(&client.head(), "content-length"), Some("5"));
    client.send(get("/"));
    assert_eq!(status(&client.head()), 204);
    client.send(get("/"));
    let head = client.head();
    assert_eq!(
        (status(&head), field(&head, "content-length")),
        (304, Some("5"))
    );
    client.send(get("/"));
    assert_eq!(client.message().1, "last");
}

#[test]
fn a_body_ended_by_close_is_chunked_and_its_connection_not_used_again() {
    let origin = Origin::new(|peer, number, report| {
        let _ = report.send(format!("connection {number}"));
        peer.head();
        peer.send("HTTP/1.1 200 OK\r\n\r\nto the end");
    });
    let usher = Usher::to(&origin);
    let mut client = usher.client();
    for number in 0..2 {
        client.send(get("/"));
        let (head, body) = client.message();
        assert_eq!(
            (field(&head, "transfer-encoding"), &*body),
            (Some("chunked"), "to the end")
        );
        assert_eq!(origin.said(), format!("connection {number}"));
    }
}

#[test]
fn clients_of_http_1_0_get_no_chunks_and_no_interim_answers() {
    let origin = Origin::new(|peer, _, _| {
        peer.head();
        peer.send("HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n");
        peer.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n");
        peer.head();
        peer.answer("200 OK", "kept");
    });
    let usher = Usher::to(&origin);
    let request = format!("GET / HTTP/1.0\r\nHost: {HOST}\r\nConnection: keep-alive\r\n\r\n");
    let mut client = usher.client();
    client.send(&request);
    let (answer, orderly) = client.rest();
    assert!(
        answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.ends_with("\r\n\r\nabc") && orderly,
        "{answer}"
    );
    let mut client = usher.client();
    client.send(&request);
    let (head, body) = client.message();
    assert_eq!(
        (field(&head, "connection"), &*body),
        (Some("keep-alive"), "kept")
    );
}

#[test]
fn a_request_body_cut_short_cuts_the_request() {
    let origin = Origin::new(|peer, _, report| {
        let _ = report.send(peer.until("half"));
        let _ = report.send(peer.rest().0);
    });
    let usher = Usher::to(&origin);
    let mut client = usher.client();
    client.send(format!(
        "POST / HTTP/1.1\r\nHost: {HOST}\r\nContent-Length: 10\r\n\r\nhalf"
    ));
    origin.said();
    client.shut();
    assert_eq!(origin.said(), "");
    client.ended();
}

#[test]
fn a_request_body_longer_than_announced_is_the_next_request() {
    let origin = Origin::echo();
    let usher = Usher::to(&origin);
    let mut client = usher.client();
    client.send(with_body("POST", "/", "abc") + "defg \r\n\r\n");
    assert_eq!(status(&client.message().0), 200);
    assert_eq!(status(&client.message().0), 400);
    client.ended();
}

#[test]
fn a_chunked_request_that_goes_wrong_is_answered_and_never_completed() {
    let origin = Origin::new(|peer, _, report| drop(report.send(peer.rest().0)));
    let usher = Usher::to(&origin);
    let mut client = usher.client();
    client.send(format!(
        "POST / HTTP/1.1\r\nHost: {HOST}\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n"
    ));
    client.send("xyz\r\n");
    assert_eq!(status(&client.message().0), 400);
    assert!(!origin.said().contains("0\r\n\r\n"));
}

#[test]
fn an_answer_may_come_while_the_request_is_still_flowing() {
    let origin = Origin::new(|peer, _, report| {
        peer.head();
        peer.answer("413 Content Too Large", "stop");
        let _ = report.send(peer.rest().0);
    });
    let usher = Usher::to(&origin);
    let mut client = usher.client();
    client.send(format!(
        "POST / HTTP/1.1\r\nHost: {HOST}\r\nContent-Length: 100000000\r\n\r\nbegin"
    ));
    let (head, body) = client.message();
    assert_eq!((status(&head), &*body), (413, "stop"));
    assert!(origin.said().starts_with("begin"));
}

#[test]
fn an_early_answer_does_not_stop_an_upload_that_goes_on() {
    let origin = Origin::new(|peer, _, _| {
        peer.head();
        peer.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
        let body = peer.exactly(8);
        peer.send(format!(
            "8\r\n{}\r\n0\r\n\r\n",
            String::from_utf8_lossy(&body)
        ));
        peer.head();
        peer.answer("200 OK", "again");
    });
    let usher = Usher::to(&origin);
    let mut client = usher.client();
    client.send(format!(
        "POST / HTTP/1.1\r\nHost: {HOST}\r\nContent-Length: 8\r\n\r\n"
    ));
    assert_eq!(status(&client.head()), 200);
    client.send("in flow!");
    assert_eq!(client.until("0\r\n\r\n"), "8\r\nin flow!\r\n0\r\n\r\n");
    client.send(get("/"));
    assert_eq!(client.message().1, "again");
}

// Interim answers.

#[test]
fn early_hints_pass() {
    let origin = Origin::new(|peer, _, _| {
        peer.head();
        peer.send("HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
    });
    let usher = Usher::to(&origin);
    let mut client = usher.client();
    client.send(get("/"));
    let hints = client.head();
    assert_eq!((status(&hints), field(&hints, "link")), (103, Some("</a>")));
    assert_eq!(client.message().1, "ok");
}

#[test]
fn who_waits_to_be_told_to_go_on_is_told_by_the_endpoint() {
    let origin = Origin::new(|peer, _, report| {
        let head = peer.head();
        let _ = report.send(format!("{:?}", field(&head, "expect")));
        peer.send("HTTP/1.1 100 Continue\r\n\r\n");
        let body = String::from_utf8(peer.exactly(4)).expect("text");
        peer.answer("200 OK", &body);
    });
    let usher = Usher::to(&origin);
    let mut client = usher.client();
    client.send(format!(
        "PUT / HTTP/1.1\r\nHost: {HOST}\r\nExpect: 100-continue\r\nContent-Length: 4\r\n\r\n"
    ));
    assert_eq!(origin.said(), "Some(\"100-continue\")");
    assert_eq!(status(&client.head()), 100);
    client.send("body");
    let (head, body) = client.message();
    assert_eq!((field(&head, "connection"), &*body), (None, "body"));
}

#[test]
fn who_is_told_not_to_go_on_is_disconnected() {
    let origin = Origin::new(|peer, _, _| {
        peer.head();
        peer.answer("401 Unauthorized", "no");
        peer.rest();
    });
    let usher = Usher::to(&origin);
    let mut client = usher.client();
    client.send(format!(
        "PUT / HTTP/1.1\r\nHost: {HOST}\r\nExpect: 100-continue\r\nContent-Length: 4\r\n\r\n"
    ));
    let (head, _) = client.message();
    assert_eq!(
        (status(&head), field(&head, "connection")),
        (401, Some("close"))
    );
    client.ended();
}

// Endpoints that fail.

#[test]
fn an_endpoint_that_refuses_is_replaced_once_and_the_body_is_whole() {
    let origin = Origin::echo();
    let usher = Setup::to(&[Origin::closed(), origin.address]).start();
    for _ in 0..5 {
        let (head, seen) = usher.ask(&with_body("POST", "/", "the body"));
        assert_eq!(status(&head), 200);
        assert!(
            seen.starts_with("POST / ") && seen.ends_with("the body"),
            "{seen}"
        );
    }
}

#[test]
fn when_both_refuse_the_client_is_told() {
    let usher = Setup::to(&[Origin::closed(), Origin::closed()]).start();
    let mut client = usher.client();
    for _ in 0..2 {
        client.send(get("/"));
        assert_eq!(status(&client.message().0), 521);
    }
}

#[test]
fn retries_are_bounded_when_everything_fails() {
    let origin = Origin::new(|peer, _, _| {
        peer.head();
        peer.send("HTTP/1.1 103 Early Hints\r\n\r\n");
        peer.rest();
    });
    let usher = Setup::to(&[Origin::closed(), origin.address]).start();
    let mut clients: Vec<_> = (0..8).map(|_| usher.client()).collect();
    let statuses = clients.iter_mut().map(|client| {
        client.send(get("/"));
        status(&client.head())
    });
    let refused = statuses.filter(|&status| status == 521).count();
    // Three at a time, and who was sent to the second endpoint at once.
    assert!((1..=5).contains(&refused), "{refused} of 8 were refused");
}

#[test]
fn a_literal_521_of_an_endpoint_is_its_answer() {
    let origins = [0, 1].map(|_| {
        Origin::new(|peer, number, report| {
            let _ = report.send(format!("connection {number}"));
            peer.head();
            peer.answer("521 Mine", "literal");
        })
    });
    let usher = Setup::to(&[origins[0].address, origins[1].address]).start();
    let (head, body) = usher.ask(&get("/"));
    assert!(head.starts_with("HTTP/1.1 521 Mine\r\n"), "{head}");
    assert_eq!(body, "literal");
    assert!(origins.iter().any(Origin::is_silent), "it was sent to both");
}

#[test]
fn an_answer_that_does_not_come_is_524_and_nothing_is_repeated() {
    let origins = [0, 1].map(|_| {
        Origin::new(|peer, number, report| {
            peer.message();
            let _ = report.send(format!("request {number}"));
            peer.rest();
        })
    });
    let mut setup = Setup::to(&[origins[0].address, origins[1].address]);
    setup.settings.timeouts.response_header = SHORT;
    let usher = setup.start();
    for request in [get("/"), with_body("POST", "/", "pay")] {
        assert_eq!(status(&usher.ask(&request).0), 524);
    }
    let seen = origins
        .iter()
        .flat_map(|origin| std::iter::from_fn(move || (!origin.is_silent()).then_some(())))
        .count();
    assert_eq!(seen, 2);
}

#[test]
fn answers_that_are_no_http_are_520() {
    let answers = [
        "",
        "garbage\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Le",
        "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\na",
        "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n",
        "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n",
        "HTTP/1.1 200 OK\r\nX: \u{1}\r\n\r\n",
        &format!("HTTP/1.1 200 OK\r\nX: {}\r\n\r\n", "a".repeat(100 * 1024)),
    ];
    for answer in answers.map(str::to_owned) {
        let given = answer.clone();
        let origin = Origin::new(move |peer, _, _| {
            peer.head();
            peer.try_send(&given);
        });
        let usher = Usher::to(&origin);
        let mut client = usher.client();
        client.send(get("/"));
        assert_eq!(status(&client.message().0), 520, "{answer:.80}");
        client.send("GET / HTTP/1.1\r\nHost: other.example.com\r\n\r\n");
        assert_eq!(status(&client.message().0), 404, "the client can go on");
    }
}

#[test]
fn a_body_that_breaks_off_never_looks_complete() {
    let answers = [
        "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\nzz\r\n",
    ];
    for answer in answers {
        let origin = Origin::new(move |peer, _, _| {
            peer.head();
            peer.send(answer);
        });
        let usher = Usher::to(&origin);
        let mut client = usher.client();
        client.send(get("/"));
        let (text, _) = client.rest();
        assert!(
            text.contains("half") && !text.contains("\r\n0\r\n\r\n"),
            "{text:?}"
        );
        let mut old = usher.client();
        old.send(format!("GET / HTTP/1.0\r\nHost: {HOST}\r\n\r\n"));
        let (text, orderly) = old.rest();
        assert!(
            !orderly || field(&text, "content-length") == Some("10"),
            "{text:?}"
        );
    }
}

#[test]
fn a_body_that_stalls_is_cut() {
    let origin = Origin::new(|peer, _, report| {
        peer.head();
        peer.send("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf");
        let _ = report.send(peer.rest().0);
    });
    let mut setup = Setup::to(&[origin.address]);
    setup.settings.timeouts.body_idle = SHORT;
    let usher = setup.start();
    let mut client = usher.client();
    client.send(get("/"));
    assert!(client.rest().0.ends_with("half"));
    origin.said();
}

// Kept connections that died.

/// Serves one request on each connection; on the next it is gone, without a word.
fn fickle() -> Origin {
    Origin::new(|peer, number, report| {
        let (head, _) = peer.message();
        peer.answer("200 OK", &number.to_string());
        let second = peer.head();
        let _ = report.send(format!(
            "{}|{}",
            head.lines().next().unwrap_or(""),
            second.lines().next().unwrap_or("")
        ));
    })
}

#[test]
fn a_repeatable_request_on_a_dead_connection_is_sent_again() {
    for request in [get("/again"), with_body("PUT", "/again", "body")] {
        let origin = fickle();
        let usher = Usher::to(&origin);
        let mut client = usher.client();
        client.send(get("/"));
        assert_eq!(client.message().1, "0");
        client.send(request);
        assert_eq!(client.message().1, "1", "served by the second connection");
    }
}

#[test]
fn a_request_that_may_not_be_repeated_is_not() {
    let origin = fickle();
    let usher = Usher::to(&origin);
    let mut client = usher.client();
    client.send(get("/"));
    assert_eq!(client.message().1, "0");
    client.send(with_body("POST", "/pay", "once"));
    assert_eq!(status(&client.message().0), 520);
    assert_eq!(origin.said(), "GET / HTTP/1.1|POST /pay HTTP/1.1");
    assert!(origin.is_silent());
}

#[test]
fn a_connection_that_an_endpoint_closed_is_not_used() {
    let origin = Origin::new(|peer, number, _| {
        peer.message();
        peer.answer("200 OK", &number.to_string());
    });
    let usher = Usher::to(&origin);
    let mut client = usher.client();
    client.send(get("/"));
    assert_eq!(client.message().1, "0");
    for number in 1..20 {
        client.send(with_body("POST", "/", "x"));
        let (head, body) = client.message();
        // The close may be on its way yet: then the answer is 520, but never a wrong one.
        assert!(body == number.to_string() || status(&head) == 520, "{head}");
        if status(&head) == 520 {
            return;
        }
    }
}

#[test]
fn what_an_endpoint_says_unasked_is_nobodys_answer() {
    let origin = Origin::new(|peer, number, _| {
        peer.message();
        peer.send("HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n");
        peer.send(format!(
            "{number}HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\npoison"
        ));
        peer.rest();
    });
    let usher = Usher::to(&origin);
    for number in 0..3 {
        assert_eq!(usher.ask(&get("/")).1, number.to_string());
    }
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
fn a_slow_reader_gets_every_byte() {
    let pieces =
        || (0..3_000).map(|number: usize| format!("{number:05} ").repeat(1 + number % 900));
    let origin = Origin::new(move |peer, _, _| {
        peer.head();
        peer.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
        for piece in pieces() {
            peer.send(format!("{:x}\r\n{piece}\r\n", piece.len()));
        }
        peer.send("0\r\n\r\n");
    });
    let usher = Usher::to(&origin);
    let mut client = usher.client();
    client.send(get("/"));
    // Both sockets fill up before the first byte is taken.
    std::thread::park_timeout(SHORT);
    assert_eq!(client.message().1, pieces().collect::<String>());
}

// Switching protocols.

fn websocket(path: &str) -> String {
    format!(
        "GET {path} HTTP/1.1\r\nHost: {HOST}\r\nConnection: keep-alive, Upgrade\r\nUpgrade: websocket\r\n\
         Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"
    )
}

const SWITCHING: &str = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
                         Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n";

#[test]
fn a_websocket_is_a_tunnel_that_closes_one_way_at_a_time() {
    let origin = Origin::new(|peer, _, report| {
        let head = peer.head();
        let _ = report.send(format!(
            "{:?} {:?}",
            field(&head, "connection"),
            field(&head, "upgrade")
        ));
        peer.send(SWITCHING.to_owned() + "hello");
        assert_eq!(peer.exactly(5), b"early");
        let (said, orderly) = peer.rest();
        let _ = report.send(format!("{said} {orderly}"));
        peer.send("farewell");
    });
    let mut setup = Setup::to(&[origin.address]);
    setup.settings.timeouts.response_header = SHORT;
    let usher = setup.start();
    let mut client = usher.client();
    client.send(websocket("/chat") + "early");
    let head = client.head();
    assert_eq!(
        (status(&head), field(&head, "upgrade")),
        (101, Some("websocket"))
    );
    assert_eq!(
        field(&head, "sec-websocket-accept"),
        Some("s3pPLMBiTxaQ9kYGzzhZRbK+xOo=")
    );
    assert_eq!(origin.said(), "Some(\"upgrade\") Some(\"websocket\")");
    assert_eq!(client.exactly(5), b"hello");
    // The deadline for the answer is over and means nothing any more.
    std::thread::park_timeout(2 * SHORT);
    client.send("and so on");
    client.shut();
    assert_eq!(origin.said(), "and so on true");
    assert_eq!(client.rest(), ("farewell".to_owned(), true));
}

#[test]
fn a_websocket_that_is_not_answered_is_524() {
    let origin = Origin::new(|peer, _, _| {
        peer.head();
        peer.rest();
    });
    let mut setup = Setup::to(&[origin.address]);
    setup.settings.timeouts.response_header = SHORT;
    assert_eq!(status(&setup.start().ask(&websocket("/")).0), 524);
}

#[test]
fn a_websocket_that_is_refused_is_an_ordinary_answer() {
    let origin = Origin::new(|peer, _, _| {
        peer.head();
        peer.answer("403 Forbidden", "no");
        peer.head();
        peer.answer("200 OK", "plain");
    });
    let usher = Usher::to(&origin);
    let mut client = usher.client();
    client.send(websocket("/"));
    assert_eq!(client.message().1, "no");
    client.send(get("/"));
    assert_eq!(client.message().1, "plain");
}

#[test]
fn a_silent_tunnel_ends() {
    let origin = Origin::new(|peer, _, report| {
        peer.head();
        peer.send(SWITCHING);
        let _ = report.send(peer.rest().0);
    });
    let mut setup = Setup::to(&[origin.address]);
    setup.settings.timeouts.body_idle = SHORT;
    let usher = setup.start();
    let mut client = usher.client();
    client.send(websocket("/"));
    client.head();
    client.ended();
    assert_eq!(origin.said(), "");
}
