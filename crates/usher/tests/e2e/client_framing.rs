//! Requests that are not what they should be: each gets its answer, and nothing of it an endpoint.

use crate::support::config::HOST;
use crate::support::wire::Broken;
use crate::support::{Config, Endpoint, Usher, Wire};

const OK_HEAD: &str = "Host: shop.example.com\r\n";

fn serving() -> (Endpoint, Usher) {
    let endpoint = Endpoint::named("a");
    let usher = Usher::start(&Config::serving([endpoint.origin("a")]));
    (endpoint, usher)
}

/// Each request gets `status` and the end of its connection, and reaches no endpoint, nor does what
/// stands behind it.
fn refused(status: u16, cases: &[(&str, Vec<u8>)]) {
    let (endpoint, usher) = serving();
    for (name, bytes) in cases {
        let mut wire = usher.connect();
        // Usher may answer and close before it has read everything.
        let _ = wire.try_send(bytes);
        match wire.try_response() {
            Ok(answer) => assert_eq!(answer.status(), status, "{name}"),
            Err(broken) => panic!("{name}: {broken:?}"),
        }
        wire.expect_end();
        assert!(endpoint.arrived().is_empty(), "{name} reached the endpoint");
    }
    assert_eq!(usher.get("/").status(), 200, "it still serves");
    let counted = format!("usher_http_requests_total{{code=\"{status}\"}}");
    usher.expect_metric(&counted, cases.len() as f64); // each is counted
}

/// A GET with these field lines, and a smuggled one behind it.
fn get(fields: &str) -> Vec<u8> {
    format!("GET / HTTP/1.1\r\n{fields}\r\nGET /smuggled HTTP/1.1\r\n{OK_HEAD}\r\n").into()
}

/// A POST with these field lines, an end of chunks, and a smuggled request behind it.
fn post(fields: &str) -> Vec<u8> {
    format!(
        "POST / HTTP/1.1\r\n{OK_HEAD}{fields}\r\n0\r\n\r\nGET /smuggled HTTP/1.1\r\n{OK_HEAD}\r\n"
    )
    .into()
}

#[test]
fn two_ways_to_tell_the_length_are_refused() {
    let cases = [
        "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n",
        "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n",
        "Transfer-Encoding: chunked\r\nContent-Length: 0\r\n",
        "Transfer-Encoding: chunked, identity\r\n",
        "Transfer-Encoding: identity, chunked\r\n",
        "Transfer-Encoding: identity\r\n",
        "Transfer-Encoding: gzip\r\n",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
        "Transfer-Encoding: chunked, chunked\r\n",
        "Transfer-Encoding: xchunked\r\n",
        "Transfer-Encoding: chunked\x0b\r\n",
        "Transfer-Encoding: \"chunked\"\r\n",
        "Transfer-Encoding:\r\n",
        "Transfer-Encoding: chunked;q=1\r\n",
        "Transfer-Encoding : chunked\r\n",
        "Transfer-Encoding\t: chunked\r\n",
    ];
    refused(400, &cases.map(|fields| (fields, post(fields))));
}

#[test]
fn lengths_that_are_no_number_or_stand_there_twice_are_refused() {
    let cases = [
        "Content-Length: 5\r\nContent-Length: 5\r\n",
        "Content-Length: 5\r\nContent-Length: 6\r\n",
        "Content-Length: 5, 5\r\n",
        "Content-Length: +5\r\n",
        "Content-Length: -5\r\n",
        "Content-Length: 5 5\r\n",
        "Content-Length: 0x5\r\n",
        "Content-Length: 5.0\r\n",
        "Content-Length:\r\n",
        "Content-Length: 18446744073709551616\r\n",
        "Content-Length: 99999999999999999999999999\r\n",
    ];
    refused(400, &cases.map(|fields| (fields, post(fields))));
}

#[test]
fn chunks_in_http_1_0_are_refused() {
    let request =
        format!("POST / HTTP/1.0\r\n{OK_HEAD}Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n");
    refused(400, &[("HTTP/1.0 with chunks", request.into())]);
}

#[test]
fn heads_that_two_readers_read_differently_are_refused() {
    let mut cases: Vec<(&str, Vec<u8>)> = [
        (
            "obs-fold",
            "Host: shop.example.com\r\nX-Folded: a\r\n b\r\n",
        ),
        (
            "obs-fold with a tab",
            "Host: shop.example.com\r\nX-Folded: a\r\n\tb\r\n",
        ),
        ("a folded first line", " X: 1\r\nHost: shop.example.com\r\n"),
        ("bare LF", "Host: shop.example.com\nX: 1\r\n"),
        (
            "bare CR in a value",
            "Host: shop.example.com\r\nX: a\rb\r\n",
        ),
        ("NUL in a value", "Host: shop.example.com\r\nX: a\0b\r\n"),
        ("NUL in a name", "Host: shop.example.com\r\nX\0: a\r\n"),
        (
            "a control character in a value",
            "Host: shop.example.com\r\nX: a\x01b\r\n",
        ),
        ("DEL in a value", "Host: shop.example.com\r\nX: a\x7fb\r\n"),
        (
            "space before the colon",
            "Host: shop.example.com\r\nX : a\r\n",
        ),
        ("an empty name", "Host: shop.example.com\r\n: a\r\n"),
        (
            "a name that is no token",
            "Host: shop.example.com\r\nX(Y): a\r\n",
        ),
        (
            "a line without a colon",
            "Host: shop.example.com\r\nnonsense\r\n",
        ),
    ]
    .iter()
    .map(|(name, fields)| (*name, get(fields)))
    .collect();
    let lines: [(&str, &[u8]); 8] = [
        (
            "LF ends every line",
            b"GET / HTTP/1.1\nHost: shop.example.com\n\n",
        ),
        (
            "LF ends the head",
            b"GET / HTTP/1.1\r\nHost: shop.example.com\r\n\n",
        ),
        (
            "NUL in the target",
            b"GET /\0 HTTP/1.1\r\nHost: shop.example.com\r\n\r\n",
        ),
        (
            "a space in the target",
            b"GET /a b HTTP/1.1\r\nHost: shop.example.com\r\n\r\n",
        ),
        (
            "no token as the method",
            b"G(T / HTTP/1.1\r\nHost: shop.example.com\r\n\r\n",
        ),
        (
            "no version",
            b"GET / HTTX/1.1\r\nHost: shop.example.com\r\n\r\n",
        ),
        (
            "a star for GET",
            b"GET * HTTP/1.1\r\nHost: shop.example.com\r\n\r\n",
        ),
        (
            "a target without a slash",
            b"GET path HTTP/1.1\r\nHost: shop.example.com\r\n\r\n",
        ),
    ];
    cases.extend(lines.map(|(name, bytes)| (name, bytes.to_vec())));
    cases.push((
        "TLS on the plain port",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n".to_vec(),
    ));
    refused(400, &cases);
}

#[test]
fn a_host_that_is_missing_doubled_or_malformed_is_refused() {
    let cases = [
        "X: 1\r\n",
        "Host:\r\n",
        "Host: shop.example.com\r\nHost: shop.example.com\r\n",
        "Host: shop.example.com\r\nHost: other.example.com\r\n",
        "Host: shop.example.com, other.example.com\r\n",
        "Host: shop example.com\r\n",
        "Host: shop.example.com:port\r\n",
        "Host: shop.example.com:99999\r\n",
        "Host: shop.example.com/path\r\n",
        "Host: user@shop.example.com\r\n",
        "Host: [::1\r\n",
    ];
    refused(400, &cases.map(|fields| (fields, get(fields))));
    refused(400, &[("HTTP/1.0", "GET / HTTP/1.0\r\n\r\n".into())]);
}

#[test]
fn a_target_with_another_authority_than_host_is_refused() {
    let request = format!("GET http://other.example.com/ HTTP/1.1\r\n{OK_HEAD}\r\n");
    refused(400, &[("contradiction", request.into())]);
}

#[test]
fn an_absolute_target_that_agrees_is_served_as_a_path() {
    let (endpoint, usher) = serving();
    let answer = usher.exchange(format!(
        "GET http://shop.example.com/p?q HTTP/1.1\r\n{OK_HEAD}\r\n"
    ));
    assert_eq!(answer.status(), 200);
    assert_eq!(endpoint.next().start, "GET /p?q HTTP/1.1");
}

#[test]
fn heads_over_the_limits_are_refused() {
    let long = format!(
        "Host: shop.example.com\r\nX-Long: {}\r\n",
        "a".repeat(100 * 1024)
    );
    let many = format!("Host: shop.example.com\r\n{}", "X: 1\r\n".repeat(10_000));
    let just_too_many = format!("Host: shop.example.com\r\n{}", "X: 1\r\n".repeat(128));
    refused(
        431,
        &[
            ("100 KiB in one field", get(&long)),
            ("10,000 fields", get(&many)),
            ("129 fields", get(&just_too_many)),
        ],
    );
    let target = format!("GET /{} HTTP/1.1\r\n{OK_HEAD}\r\n", "a".repeat(20 * 1024));
    refused(414, &[("a target of 20 KiB", target.into())]);
}

#[test]
fn heads_within_the_limits_are_served() {
    let (endpoint, usher) = serving();
    let many = "X: 1\r\n".repeat(127);
    let long = format!("X-Long: {}\r\n", "a".repeat(40 * 1024));
    let target = format!("/{}", "a".repeat(15 * 1024));
    for (target, fields) in [("/", many.as_str()), ("/", &long), (&target, "")] {
        let answer = usher.exchange(format!("GET {target} HTTP/1.1\r\n{OK_HEAD}{fields}\r\n"));
        assert_eq!(answer.status(), 200);
        assert_eq!(endpoint.next().target(), target);
    }
}

#[test]
fn an_endless_head_is_cut_off_before_its_end() {
    let (_endpoint, usher) = serving();
    let mut wire = usher.connect();
    wire.send(format!("GET / HTTP/1.1\r\n{OK_HEAD}"));
    let line = format!("X: {}\r\n", "a".repeat(1000));
    // Far more than the limit, never an empty line. Sending fails once usher has closed.
    for _ in 0..1000 {
        if wire.try_send(&line).is_err() {
            break;
        }
    }
    // What is still on its way turns the close into a reset, which may overtake the answer.
    match wire.try_response() {
        Ok(answer) => assert_eq!(answer.status(), 431),
        Err(Broken::NoAnswer(_)) => {}
        Err(broken) => panic!("{broken:?}"),
    }
}

#[test]
fn versions_that_are_not_spoken_here() {
    refused(
        505,
        &[(
            "HTTP/3.0",
            format!("GET / HTTP/3.0\r\n{OK_HEAD}\r\n").into(),
        )],
    );
    let (endpoint, usher) = serving();
    let mut wire = usher.connect();
    wire.send("GET /\r\n");
    wire.finish();
    let (answer, _) = wire.rest();
    assert!(
        answer.is_empty() || answer.starts_with(b"HTTP/1.1 400 "),
        "HTTP/0.9 is not answered"
    );
    assert!(endpoint.arrived().is_empty());
}

#[test]
fn methods_that_are_not_for_a_reverse_proxy() {
    let (endpoint, usher) = serving();
    let connect =
        |host: &str| format!("CONNECT shop.example.com:443 HTTP/1.1\r\nHost: {host}\r\n\r\n");
    let trace = format!("TRACE / HTTP/1.1\r\n{OK_HEAD}\r\n");
    for request in [
        connect("shop.example.com:443"),
        connect("shop.example.com"),
        connect("proxy.example.com"),
        trace,
    ] {
        let answer = usher.exchange(&request);
        assert_eq!(answer.status(), 405, "{request}");
    }
    assert!(endpoint.arrived().is_empty());
}

#[test]
fn methods_that_usher_does_not_know_are_passed_on() {
    let (endpoint, usher) = serving();
    for method in ["PURGE", "PROPFIND", "M-SEARCH", "OPTIONS"] {
        assert_eq!(
            usher
                .exchange(format!("{method} / HTTP/1.1\r\n{OK_HEAD}\r\n"))
                .status(),
            200
        );
        assert_eq!(endpoint.next().method(), method);
    }
}

#[test]
fn requests_may_stand_in_a_row() {
    let (endpoint, usher) = serving();
    let mut wire = usher.connect();
    // Empty lines before a request line are a robust reader's business (RFC 9112, 2.2).
    wire.send(format!(
        "\r\nGET /1 HTTP/1.1\r\n{OK_HEAD}\r\nPOST /2 HTTP/1.1\r\n{OK_HEAD}Content-Length: 3\r\n\r\nabc\
         GET /3 HTTP/1.1\r\n{OK_HEAD}\r\n"
    ));
    for _ in 0..3 {
        assert_eq!(wire.response().status(), 200);
    }
    let targets: Vec<String> = endpoint
        .arrived()
        .iter()
        .map(|request| request.target().to_owned())
        .collect();
    assert_eq!(targets, ["/1", "/2", "/3"]);
}

#[test]
fn http_1_0_is_served_and_closed_unless_asked_otherwise() {
    let (_endpoint, usher) = serving();
    let mut wire = usher.connect();
    let answer = wire.exchange(format!("GET / HTTP/1.0\r\n{OK_HEAD}\r\n"));
    assert_eq!(answer.text(), "a");
    wire.expect_end();

    let mut wire = usher.connect();
    for _ in 0..2 {
        let request = format!("GET / HTTP/1.0\r\n{OK_HEAD}Connection: keep-alive\r\n\r\n");
        let answer = wire.exchange(request);
        assert!(answer.names("connection", "keep-alive"), "{answer:?}");
    }
}

#[test]
fn close_is_heard_and_told() {
    let (_endpoint, usher) = serving();
    let mut wire = usher.connect();
    let answer = wire.exchange(format!(
        "GET / HTTP/1.1\r\n{OK_HEAD}Connection: close\r\n\r\n"
    ));
    assert!(answer.names("connection", "close"), "{answer:?}");
    wire.expect_end();
}

#[test]
fn a_head_in_single_bytes_is_a_head() {
    let (endpoint, usher) = serving();
    let mut wire = usher.connect();
    for byte in format!("GET /slow HTTP/1.1\r\n{OK_HEAD}\r\n").bytes() {
        wire.send([byte]);
    }
    assert_eq!(wire.response().status(), 200);
    assert_eq!(endpoint.next().target(), "/slow");
}

/// The head may have gone on to the endpoint already: then it must see that the request is broken.
fn broken_body(fields: &str, body: &[u8]) {
    let (endpoint, usher) = serving();
    let mut wire = usher.connect();
    wire.send(format!("POST / HTTP/1.1\r\n{OK_HEAD}{fields}\r\n"));
    let _ = wire.try_send(body);
    let name = String::from_utf8_lossy(&body[..body.len().min(60)]).into_owned();
    match wire.try_response() {
        Ok(answer) => assert_eq!(answer.status(), 400, "{name:?}"),
        Err(broken) => panic!("{name:?}: {broken:?}"),
    }
    wire.expect_end();
    assert!(
        endpoint.arrived().is_empty(),
        "{name:?}: a whole request reached the endpoint"
    );
    assert_eq!(usher.get("/").status(), 200);
}

#[test]
fn broken_chunks_end_the_request() {
    let endless_extension = format!("3;{}\r\nabc\r\n0\r\n\r\n", "e".repeat(64 * 1024));
    let endless_trailer = format!("0\r\nX: {}\r\n\r\n", "t".repeat(100 * 1024));
    let cases: [&[u8]; 12] = [
        b"zz\r\nabc\r\n0\r\n\r\n",
        b"-3\r\nabc\r\n0\r\n\r\n",
        b"+3\r\nabc\r\n0\r\n\r\n",
        b"0x3\r\nabc\r\n0\r\n\r\n",
        b"\r\nabc\r\n0\r\n\r\n",
        b"3\nabc\r\n0\r\n\r\n",
        b"3\r\nabcd\r\n0\r\n\r\n",
        b"3\r\nabc\n0\r\n\r\n",
        b"3\r\nabc\r\n0\r\nX: a\r\n b\r\n\r\n",
        b"fffffffffffffffff\r\nabc\r\n0\r\n\r\n",
        endless_extension.as_bytes(),
        endless_trailer.as_bytes(),
    ];
    for body in cases {
        broken_body("Transfer-Encoding: chunked\r\n", body);
    }
}

#[test]
fn a_body_longer_than_announced_is_a_bad_next_request() {
    let (endpoint, usher) = serving();
    let mut wire = usher.connect();
    wire.send(format!(
        "POST / HTTP/1.1\r\n{OK_HEAD}Content-Length: 3\r\n\r\nabc and more\r\n\r\n"
    ));
    assert_eq!(wire.response().status(), 200);
    assert_eq!(wire.response().status(), 400);
    wire.expect_end();
    assert_eq!(endpoint.next().text(), "abc");
    assert!(endpoint.arrived().is_empty());
}

#[test]
fn a_body_shorter_than_announced_is_no_request() {
    for fields in ["Content-Length: 10", "Transfer-Encoding: chunked"] {
        let (endpoint, usher) = serving();
        let mut wire = usher.connect();
        wire.send(format!(
            "POST / HTTP/1.1\r\n{OK_HEAD}{fields}\r\n\r\n4\r\nabcd\r\n"
        ));
        wire.finish();
        let (answer, _) = wire.rest();
        assert!(
            answer.is_empty() || answer.starts_with(b"HTTP/1.1 400 "),
            "{}",
            String::from_utf8_lossy(&answer)
        );
        assert!(endpoint.arrived().is_empty());
        // The connection with half a request on it is not used again.
        let mut next = Wire::connect(usher.address("http"));
        assert_eq!(next.get(HOST, "/after").status(), 200);
        assert_eq!(endpoint.next().target(), "/after");
    }
}
