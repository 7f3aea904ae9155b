//! What a client sees when usher answers itself: a short page, or JSON for those who ask for it.

use serde_json::Value;

use crate::support::config::HOST;
use crate::support::endpoint::{origin_at, refusing};
use crate::support::{Config, Endpoint, Message, Usher};

fn asked(usher: &Usher, host: &str, accept: &str) -> Message {
    usher.exchange(format!(
        "GET /secret?token=abc HTTP/1.1\r\nHost: {host}\r\n{accept}\r\n"
    ))
}

#[test]
fn an_error_is_written_as_accept_asks() {
    let usher = Usher::start(&Config::serving([origin_at("dead", refusing())]));
    for (host, status) in [(HOST, 521), ("unknown.example.net", 404)] {
        for (accept, kind) in [
            ("", "text/plain"),
            ("Accept: */*\r\n", "text/plain"),
            (
                "Accept: text/html,application/xhtml+xml,*/*;q=0.8\r\n",
                "text/html",
            ),
            ("Accept: application/json\r\n", "application/json"),
            (
                "Accept: text/html;q=0.5, application/json\r\n",
                "application/json",
            ),
            ("Accept: application/json;q=0.1, text/html\r\n", "text/html"),
        ] {
            let answer = asked(&usher, host, accept);
            assert_eq!(answer.status(), status);
            let found = answer.field("content-type").unwrap();
            assert!(found.starts_with(kind), "{accept:?}: {found}");
            assert!(answer.text().contains(&status.to_string()), "{answer:?}");
            assert!(
                answer.body.len() < 8192,
                "a short page: {} bytes",
                answer.body.len()
            );
            if kind == "application/json" {
                serde_json::from_slice::<Value>(&answer.body).unwrap();
            }
        }
    }
}

#[test]
fn an_error_tells_nothing_of_what_is_behind_and_nothing_back() {
    let dead = refusing();
    let usher = Usher::start(&Config::serving([origin_at("dead", dead)]));
    for accept in ["text/html", "application/json"] {
        let answer = usher.exchange(format!(
            "GET /<script>alert(1)</script> HTTP/1.1\r\nHost: {HOST}\r\nAccept: {accept}\r\n\r\n"
        ));
        let text = answer.text();
        assert!(
            !text.contains("<script>"),
            "what the client sent is not repeated: {text}"
        );
        assert!(
            !text.contains(&dead.port().to_string()),
            "no address of an endpoint: {text}"
        );
    }
}

#[test]
fn an_error_may_be_found_again_in_the_log() {
    let usher = Usher::start(&Config::serving([origin_at("dead", refusing())]));
    let answer = usher.get("/");
    let line = &usher.access_log(1)[0];
    let id = line["request_id"].as_str().unwrap();
    assert!(
        answer.text().contains(id),
        "{id} is on the page: {answer:?}"
    );
    assert!(line["error"].is_string(), "{line}");
}

#[test]
fn an_error_is_not_kept_by_caches() {
    let usher = Usher::start(&Config::serving([origin_at("dead", refusing())]));
    let answer = usher.get("/");
    assert!(answer.names("cache-control", "no-store"), "{answer:?}");
}

#[test]
fn head_gets_the_head_of_an_error() {
    let usher = Usher::start(&Config::serving([origin_at("dead", refusing())]));
    let mut wire = usher.connect();
    for _ in 0..2 {
        wire.send(format!("HEAD / HTTP/1.1\r\nHost: {HOST}\r\n\r\n"));
        assert_eq!(wire.response_to("HEAD").status(), 521);
    }
}

#[test]
fn a_body_that_is_refused_early_does_not_become_the_next_request() {
    let endpoint = Endpoint::named("a");
    let usher = Usher::start(&Config::serving([endpoint.origin("a")]));
    let mut wire = usher.connect();
    let body = format!("GET /smuggled HTTP/1.1\r\nHost: {HOST}\r\n\r\n");
    wire.send(format!(
        "POST / HTTP/1.1\r\nHost: unknown.example.net\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    ));
    assert_eq!(wire.response().status(), 404);
    // Either the body was read and the connection goes on, or it ends here.
    if wire
        .try_send(format!("GET /real HTTP/1.1\r\nHost: {HOST}\r\n\r\n"))
        .is_ok()
    {
        let _ = wire.try_response();
    }
    assert!(
        endpoint
            .arrived()
            .iter()
            .all(|request| request.target() == "/real")
    );
}
