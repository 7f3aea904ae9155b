//! Bodies flow both ways while they come: nothing is collected, nothing is added or lost.

use crate::support::config::HOST;
use crate::support::endpoint::ok;
use crate::support::wire::{Broken, End};
use crate::support::{Config, Endpoint, Message, Usher};

const POST: &str = "POST / HTTP/1.1\r\nHost: shop.example.com\r\n";

fn serve(endpoint: &Endpoint) -> Usher {
    Usher::start(&Config::serving([endpoint.origin("a")]))
}

#[test]
fn a_request_body_arrives_as_it_was_sent() {
    let endpoint = Endpoint::named("a");
    let usher = serve(&endpoint);
    let body = "0123456789".repeat(50_000);
    let mut wire = usher.connect();
    wire.send(format!(
        "{POST}Content-Length: {}\r\n\r\n{body}",
        body.len()
    ));
    assert_eq!(wire.response().status(), 200);
    let arrived = endpoint.next();
    assert_eq!(arrived.field("content-length"), Some("500000"));
    assert_eq!(arrived.text(), body);

    wire.send(format!(
        "{POST}Transfer-Encoding: chunked\r\n\r\n3;ext=1\r\nabc\r\n"
    ));
    wire.send("2\r\nde\r\n0\r\n\r\n");
    assert_eq!(wire.response().status(), 200);
    let arrived = endpoint.next();
    assert!(arrived.names("transfer-encoding", "chunked"));
    assert_eq!(arrived.text(), "abcde");
}

#[test]
fn an_endpoint_reads_the_start_of_a_body_before_the_client_has_sent_its_end() {
    let endpoint = Endpoint::scripted(|visit| {
        visit.request_head();
        assert_eq!(visit.wire.bytes(5), b"first");
        visit.send("HTTP/1.1 103 Early Hints\r\nLink: </a.css>; rel=preload\r\n\r\n");
        assert_eq!(visit.wire.bytes(6), b"second");
        visit.send(ok("done"));
    });
    let usher = serve(&endpoint);
    let mut wire = usher.connect();
    wire.send(format!("{POST}Content-Length: 11\r\n\r\nfirst"));
    assert_eq!(wire.response().status(), 103); // proof that `first` was read
    wire.send("second");
    assert_eq!(wire.response().text(), "done");
}

#[test]
fn a_client_reads_the_start_of_an_answer_before_the_endpoint_has_sent_its_end() {
    for framing in ["Content-Length: 11", "Transfer-Encoding: chunked"] {
        let chunked = framing.starts_with('T');
        let endpoint = Endpoint::scripted(move |visit| {
            visit.request();
            visit.send(format!("HTTP/1.1 200 OK\r\n{framing}\r\n\r\n"));
            visit.send(if chunked { "5\r\nfirst\r\n" } else { "first" });
            // The rest only when the client has said on its second connection that it has read.
            visit.request();
            visit.send(if chunked {
                "6\r\nsecond\r\n0\r\n\r\n"
            } else {
                "second"
            });
        });
        let usher = serve(&endpoint);
        let mut wire = usher.connect();
        wire.send("GET / HTTP/1.1\r\nHost: shop.example.com\r\n\r\n");
        let mut seen = Vec::new();
        while !seen.ends_with(b"first") {
            seen.extend(wire.bytes(1));
        }
    }
}

#[test]
fn an_answer_that_ends_with_its_connection_is_whole_and_that_connection_is_not_used_again() {
    let endpoint = Endpoint::scripted(|visit| {
        visit.request();
        visit.send("HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\nuntil the end");
        visit.wire.finish();
        visit.request();
    });
    let usher = serve(&endpoint);
    let mut wire = usher.connect();
    for _ in 0..2 {
        assert_eq!(wire.get(HOST, "/").text(), "until the end");
    }
    assert_eq!(endpoint.connections(), 2);
}

#[test]
fn an_answer_in_http_1_0_reaches_both_kinds_of_clients() {
    let endpoint = Endpoint::scripted(|visit| {
        visit.request();
        visit.send("HTTP/1.0 200 OK\r\n\r\nold");
        visit.wire.finish();
    });
    let usher = serve(&endpoint);
    assert_eq!(usher.get("/").text(), "old");
    let old = usher.exchange("GET / HTTP/1.0\r\nHost: shop.example.com\r\n\r\n");
    assert_eq!(old.text(), "old");
    assert!(
        !old.names("transfer-encoding", "chunked"),
        "HTTP/1.0 knows no chunks: {old:?}"
    );
}

#[test]
fn chunks_of_an_endpoint_become_an_ending_for_an_http_1_0_client() {
    let endpoint = Endpoint::answering(
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n",
    );
    let usher = serve(&endpoint);
    let mut wire = usher.connect();
    wire.send("GET / HTTP/1.0\r\nHost: shop.example.com\r\n\r\n");
    let answer = wire.response();
    assert!(!answer.names("transfer-encoding", "chunked"), "{answer:?}");
    assert_eq!(answer.text(), "abcde");
}

#[test]
fn head_204_and_304_have_no_body_whatever_they_announce() {
    let endpoint = Endpoint::scripted(|visit| {
        while let Some(request) = visit.request() {
            visit.send(match request.target() {
                "/204" => "HTTP/1.1 204 No Content\r\n\r\n",
                "/304" => "HTTP/1.1 304 Not Modified\r\nContent-Length: 50\r\nETag: \"x\"\r\n\r\n",
                _ => "HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n",
            });
        }
    });
    let usher = serve(&endpoint);
    let mut wire = usher.connect();
    for _ in 0..2 {
        wire.send("HEAD / HTTP/1.1\r\nHost: shop.example.com\r\n\r\n");
        let answer = wire.response_to("HEAD");
        assert_eq!(
            (answer.status(), answer.field("content-length")),
            (200, Some("1000"))
        );
        assert_eq!(wire.get(HOST, "/204").status(), 204);
        assert_eq!(wire.get(HOST, "/304").status(), 304);
    }
    assert_eq!(endpoint.connections(), 1, "the connection stays usable");
}

#[test]
fn interim_answers_are_passed_on() {
    let endpoint = Endpoint::scripted(|visit| {
        while visit.request().is_some() {
            visit.send("HTTP/1.1 102 Processing\r\n\r\n");
            visit.send("HTTP/1.1 103 Early Hints\r\nLink: </a.css>\r\n\r\n");
            visit.send(ok("final"));
        }
    });
    let usher = serve(&endpoint);
    let mut wire = usher.connect();
    for _ in 0..2 {
        assert_eq!(wire.get(HOST, "/").status(), 102);
        let hints = wire.response();
        assert_eq!(
            (hints.status(), hints.field("link")),
            (103, Some("</a.css>"))
        );
        assert_eq!(wire.response().text(), "final");
    }
}

#[test]
fn a_client_of_http_1_0_gets_no_interim_answer() {
    let endpoint = Endpoint::scripted(|visit| {
        visit.request();
        visit.send("HTTP/1.1 103 Early Hints\r\nLink: </a.css>\r\n\r\n");
        visit.send(ok("final"));
    });
    let usher = serve(&endpoint);
    let answer = usher.exchange("GET / HTTP/1.0\r\nHost: shop.example.com\r\n\r\n");
    assert_eq!(answer.text(), "final");
}

#[test]
fn expect_100_continue_is_between_client_and_endpoint() {
    let endpoint = Endpoint::scripted(|visit| {
        let head = visit.request_head().unwrap();
        assert!(head.names("expect", "100-continue"), "{head:?}");
        visit.send("HTTP/1.1 100 Continue\r\n\r\n");
        assert_eq!(visit.wire.bytes(4), b"body");
        visit.send(ok("taken"));
    });
    let usher = serve(&endpoint);
    let mut wire = usher.connect();
    wire.send(format!(
        "{POST}Content-Length: 4\r\nExpect: 100-continue\r\n\r\n"
    ));
    assert_eq!(wire.response().status(), 100);
    wire.send("body");
    assert_eq!(wire.response().text(), "taken");
}

#[test]
fn an_endpoint_may_refuse_what_it_is_asked_to_expect() {
    let endpoint = Endpoint::scripted(|visit| {
        visit.request_head();
        visit.send("HTTP/1.1 417 Expectation Failed\r\nContent-Length: 0\r\n\r\n");
        visit.request();
    });
    let usher = serve(&endpoint);
    let mut wire = usher.connect();
    wire.send(format!(
        "{POST}Content-Length: 4\r\nExpect: 100-continue\r\n\r\n"
    ));
    assert_eq!(wire.response().status(), 417);
}

#[test]
fn trailers_go_both_ways() {
    let endpoint = Endpoint::scripted(|visit| {
        while visit.request().is_some() {
            visit.send(
                "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X-Sum\r\n\r\n\
                 3\r\nabc\r\n0\r\nX-Sum: 42\r\n\r\n",
            );
        }
    });
    let usher = serve(&endpoint);
    let mut wire = usher.connect();
    wire.send(format!(
        "{POST}Transfer-Encoding: chunked\r\nTrailer: X-Hash\r\nTE: trailers\r\n\r\n\
         3\r\nabc\r\n0\r\nX-Hash: 7\r\nContent-Length: 9\r\nHost: evil.example.net\r\n\r\n"
    ));
    let answer = wire.response();
    assert_eq!(answer.trailers, [("X-Sum".to_owned(), "42".to_owned())]);
    let arrived = endpoint.next();
    assert_eq!(
        arrived.trailers,
        [("X-Hash".to_owned(), "7".to_owned())],
        "trailers must not carry framing or routing"
    );
}

#[test]
fn an_answer_may_come_while_the_body_still_flows() {
    let endpoint = Endpoint::scripted(|visit| {
        visit.request_head();
        visit.send("HTTP/1.1 413 Too Large\r\nContent-Length: 5\r\nConnection: close\r\n\r\nlarge");
        visit.wire.rest();
    });
    let usher = serve(&endpoint);
    let mut wire = usher.connect();
    wire.send(format!("{POST}Content-Length: 100000000\r\n\r\nstart"));
    let answer = wire.response();
    assert_eq!((answer.status(), answer.text().as_str()), (413, "large"));
}

#[test]
fn a_client_that_goes_takes_its_request_along() {
    let (ends, ended) = std::sync::mpsc::channel();
    let ends = std::sync::Mutex::new(ends);
    let endpoint = Endpoint::scripted(move |visit| {
        visit.request();
        let (rest, _) = visit.wire.rest(); // returns when usher gives the connection up
        ends.lock().unwrap().send(rest.len()).unwrap();
    });
    let usher = serve(&endpoint);
    let mut wire = usher.connect();
    wire.send("GET /long HTTP/1.1\r\nHost: shop.example.com\r\n\r\n");
    endpoint.next();
    wire.reset();
    assert_eq!(ended.recv_timeout(crate::support::PATIENCE), Ok(0));
}

#[test]
fn a_client_that_goes_during_its_answer_ends_the_exchange() {
    let (ends, ended) = std::sync::mpsc::channel();
    let ends = std::sync::Mutex::new(ends);
    let endpoint = Endpoint::scripted(move |visit| {
        visit.request();
        visit.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
        let piece = format!("10000\r\n{}\r\n", "x".repeat(0x10000));
        while visit.wire.try_send(&piece).is_ok() {}
        ends.lock().unwrap().send(()).unwrap();
    });
    let usher = serve(&endpoint);
    let mut wire = usher.connect();
    wire.send("GET /endless HTTP/1.1\r\nHost: shop.example.com\r\n\r\n");
    wire.bytes(100_000);
    wire.reset();
    assert_eq!(ended.recv_timeout(crate::support::PATIENCE), Ok(()));
}

#[test]
fn an_answer_cut_short_is_cut_short_for_the_client() {
    for (head, part) in [
        ("Content-Length: 100", "only this"),
        ("Transfer-Encoding: chunked", "9\r\nonly this\r\n"),
        ("Transfer-Encoding: chunked", "63\r\nonly this"),
    ] {
        let endpoint = Endpoint::scripted(move |visit| {
            visit.request();
            visit.send(format!("HTTP/1.1 200 OK\r\n{head}\r\n\r\n{part}"));
        });
        let usher = serve(&endpoint);
        let mut wire = usher.connect();
        wire.send("GET / HTTP/1.1\r\nHost: shop.example.com\r\n\r\n");
        match wire.try_response() {
            Err(Broken::Cut(Message { body, .. }, End::Closed | End::Reset)) => {
                assert!(b"only this".starts_with(&body[..]), "{head}");
            }
            other => panic!("{head}: {other:?}"),
        }
    }
}
