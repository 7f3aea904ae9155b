//! Endpoints that break the protocol: 520, and nothing of it reaches the client or the next request.

use crate::support::config::HOST;
use crate::support::{Config, Endpoint, Usher};

fn serve(endpoint: &Endpoint) -> Usher {
    Usher::start(&Config::serving([endpoint.origin("a")]))
}

/// Each answer is 520 to the client; its connection is given up, that of the client is not.
fn is_520(cases: &[(&str, Vec<u8>)]) {
    for (name, bytes) in cases {
        let bytes = bytes.clone();
        let endpoint = Endpoint::scripted(move |visit| {
            visit.request();
            visit.send(&bytes);
            visit.wire.rest(); // until usher closes
        });
        let usher = serve(&endpoint);
        let mut wire = usher.connect();
        for _ in 0..2 {
            let answer = wire.get(HOST, "/");
            assert_eq!(answer.status(), 520, "{name}: {answer:?}");
        }
        assert_eq!(
            endpoint.connections(),
            2,
            "{name}: a broken connection is not used again"
        );
    }
}

#[test]
fn answers_that_are_none() {
    let long = format!(
        "HTTP/1.1 200 OK\r\nX-Long: {}\r\n\r\n",
        "a".repeat(200 * 1024)
    );
    is_520(&[
        ("garbage", b"\x00\x01\x02 this is not http\r\n\r\n".to_vec()),
        ("another protocol", b"SSH-2.0-OpenSSH_9.2\r\n\r\n".to_vec()),
        (
            "a status that is no number",
            b"HTTP/1.1 abc OK\r\n\r\n".to_vec(),
        ),
        ("a status of two digits", b"HTTP/1.1 20 OK\r\n\r\n".to_vec()),
        (
            "a status below 100",
            b"HTTP/1.1 099 OK\r\nContent-Length: 0\r\n\r\n".to_vec(),
        ),
        (
            "another version",
            b"HTTP/3.0 200 OK\r\nContent-Length: 0\r\n\r\n".to_vec(),
        ),
        (
            "obs-fold",
            b"HTTP/1.1 200 OK\r\nX: a\r\n b\r\nContent-Length: 0\r\n\r\n".to_vec(),
        ),
        (
            "NUL",
            b"HTTP/1.1 200 OK\r\nX: a\0b\r\nContent-Length: 0\r\n\r\n".to_vec(),
        ),
        (
            "a bare CR",
            b"HTTP/1.1 200 OK\r\nX: a\rb\r\nContent-Length: 0\r\n\r\n".to_vec(),
        ),
        ("an endless head", long.into_bytes()),
    ]);
}

#[test]
fn lengths_that_cannot_be_believed() {
    let cases = [
        "Content-Length: abc\r\n",
        "Content-Length: -1\r\n",
        "Content-Length: +1\r\n",
        "Content-Length: 1\r\nContent-Length: 2\r\n",
        "Content-Length: 1\r\nContent-Length: 1\r\n",
        "Content-Length: 1, 2\r\n",
        "Content-Length: 18446744073709551616\r\n",
        "Content-Length: 1\r\nTransfer-Encoding: chunked\r\n",
        "Transfer-Encoding: gzip\r\n",
        "Transfer-Encoding: chunked, identity\r\n",
    ];
    is_520(&cases.map(|fields| {
        (
            fields,
            format!("HTTP/1.1 200 OK\r\n{fields}\r\nx").into_bytes(),
        )
    }));
}

#[test]
fn a_switch_that_nobody_asked_for() {
    is_520(&[(
        "an unasked 101",
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: upgrade\r\n\r\n"
            .to_vec(),
    )]);
}

#[test]
fn an_endpoint_that_hangs_up_without_a_word() {
    for part in ["", "HTTP/1.1 200 OK\r\nContent-Le"] {
        let endpoint = Endpoint::scripted(move |visit| {
            visit.request();
            visit.send(part);
            visit.wire.finish();
            visit.wire.rest();
        });
        let usher = serve(&endpoint);
        assert_eq!(usher.get("/").status(), 520, "after {part:?}");
        assert_eq!(
            endpoint.arrived().len(),
            1,
            "a fresh connection is no reason to repeat"
        );
    }
}

#[test]
fn an_endpoint_that_resets() {
    let endpoint = Endpoint::scripted(|visit| {
        visit.request();
        visit.reset();
    });
    let usher = serve(&endpoint);
    assert_eq!(usher.get("/").status(), 520);
}

#[test]
fn bytes_behind_an_answer_never_answer_the_next_request() {
    let endpoint = Endpoint::scripted(|visit| {
        visit.request();
        visit.send(
            "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\ntrue\
             HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nforged",
        );
        visit.wire.rest();
    });
    let usher = serve(&endpoint);
    let mut wire = usher.connect();
    for _ in 0..3 {
        assert_eq!(wire.get(HOST, "/").text(), "true");
    }
}

#[test]
fn an_upgrade_in_an_ordinary_answer_is_dropped() {
    let endpoint = Endpoint::answering(
        "HTTP/1.1 200 OK\r\nUpgrade: h2c\r\nConnection: upgrade\r\nContent-Length: 2\r\n\r\nok",
    );
    let usher = serve(&endpoint);
    let mut wire = usher.connect();
    for _ in 0..3 {
        let answer = wire.get(HOST, "/");
        assert_eq!((answer.status(), answer.text().as_str()), (200, "ok"));
        assert_eq!(answer.field("upgrade"), None);
        assert!(!answer.names("connection", "upgrade"), "{answer:?}");
    }
    assert_eq!(endpoint.connections(), 1, "the connection is used again");
}

#[test]
fn a_broken_chunk_cuts_the_answer() {
    for broken in [
        "zz\r\nabc\r\n",
        "3\nabc\r\n",
        "3\r\nabcd\r\n",
        "fffffffffffffffff\r\nabc",
    ] {
        let endpoint = Endpoint::scripted(move |visit| {
            visit.request();
            visit.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n");
            visit.send(broken);
            visit.wire.rest();
        });
        let usher = serve(&endpoint);
        let mut wire = usher.connect();
        wire.send("GET / HTTP/1.1\r\nHost: shop.example.com\r\n\r\n");
        // Head and fault may have come in one piece: then 520 is still possible.
        if let Ok(answer) = wire.try_response() {
            assert_eq!(answer.status(), 520, "{broken:?}");
        }
    }
}

#[test]
fn an_answer_that_trickles_is_an_answer() {
    let endpoint = Endpoint::scripted(|visit| {
        while visit.request().is_some() {
            for byte in b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nslow" {
                visit.send([*byte]);
            }
        }
    });
    let usher = serve(&endpoint);
    let mut wire = usher.connect();
    for _ in 0..2 {
        assert_eq!(wire.get(HOST, "/").text(), "slow");
    }
    assert_eq!(endpoint.connections(), 1);
}
