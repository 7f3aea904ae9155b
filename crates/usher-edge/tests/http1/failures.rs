//! Endpoints that fail, and what the client is told.

use super::kit::{HOST, Origin, SHORT, Setup, Usher, field, get, status, with_body};

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
