//! Bodies and interim answers, both ways.

use super::kit::{HOST, Origin, PATIENCE, Peer, Usher, field, get, status, with_body};

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
        let mut writer = Peer::new(client.socket().try_clone().expect("clone"));
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
    // When all connections have ended nothing is left behind.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build();
    runtime
        .expect("runtime")
        .block_on(usher.front.drain(PATIENCE));
    let ledger = usher.plane.ledger();
    assert_eq!((ledger.connections(), ledger.in_flight()), (0, 0));
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
