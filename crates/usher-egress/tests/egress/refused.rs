//! What is no request that a proxy can serve: nothing of it arrives anywhere.

use crate::world::{World, trap, untouched};

#[tokio::test]
async fn what_could_be_read_in_two_ways_is_not_read_at_all() {
    let world = World::new();
    let (trap, port) = trap("127.0.0.1:0").expect("a port");
    let at = format!("127.0.0.1:{port}");
    let get = format!("GET http://{at}/ HTTP/1.1\r\nHost: {at}\r\n");
    let post = format!("POST http://{at}/ HTTP/1.1\r\nHost: {at}\r\n");
    for request in [
        // Not for a proxy.
        format!("GET / HTTP/1.1\r\nHost: {at}\r\n\r\n"),
        "OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n".to_owned(),
        format!("GET {at} HTTP/1.1\r\nHost: {at}\r\n\r\n"),
        format!("GET https://{at}/ HTTP/1.1\r\nHost: {at}\r\n\r\n"),
        format!("GET ftp://{at}/ HTTP/1.1\r\nHost: {at}\r\n\r\n"),
        format!("GET file:///etc/passwd HTTP/1.1\r\nHost: {at}\r\n\r\n"),
        format!("TRACE http://{at}/ HTTP/1.1\r\nHost: {at}\r\n\r\n"),
        format!("GET http://{at}/ HTTP/1.0\r\nHost: {at}\r\n\r\n"),
        "GET /\r\n".to_owned(),
        "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_owned(),
        "\x16\x03\x01\x02\x00\x01".to_owned(),
        "\x05\x01\x00".to_owned(),
        // Whom it is for.
        format!("GET http://{at}/ HTTP/1.1\r\nHost: example.com\r\n\r\n"),
        format!("GET http://{at}/ HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"),
        format!("GET http://{at}/ HTTP/1.1\r\nHost: {at}\r\nHost: {at}\r\n\r\n"),
        format!("GET http://{at}/ HTTP/1.1\r\n\r\n"),
        format!("GET http://user@{at}/ HTTP/1.1\r\nHost: {at}\r\n\r\n"),
        format!("GET http://example.com@{at}/ HTTP/1.1\r\nHost: example.com\r\n\r\n"),
        format!("GET http://{at}@example.com/ HTTP/1.1\r\nHost: {at}\r\n\r\n"),
        format!("GET http://[::1%25lo]:{port}/ HTTP/1.1\r\nHost: [::1%25lo]:{port}\r\n\r\n"),
        format!("GET http://127.0.0.1%00.example.com:{port}/ HTTP/1.1\r\nHost: x\r\n\r\n"),
        format!("GET http://{at}\\@example.com/ HTTP/1.1\r\nHost: {at}\r\n\r\n"),
        format!("GET http://{at}#@example.com/ HTTP/1.1\r\nHost: {at}\r\n\r\n"),
        format!(
            "GET http://256.256.256.256:{port}/ HTTP/1.1\r\nHost: 256.256.256.256:{port}\r\n\r\n"
        ),
        format!("GET http://1.1.1.1.1:{port}/ HTTP/1.1\r\nHost: 1.1.1.1.1:{port}\r\n\r\n"),
        format!("GET http://a..b:{port}/ HTTP/1.1\r\nHost: a..b:{port}\r\n\r\n"),
        "CONNECT 127.0.0.1 HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".to_owned(),
        format!("CONNECT http://{at}/ HTTP/1.1\r\nHost: {at}\r\n\r\n"),
        format!("CONNECT user@{at} HTTP/1.1\r\nHost: {at}\r\n\r\n"),
        "CONNECT 127.0.0.1:99999 HTTP/1.1\r\nHost: a\r\n\r\n".to_owned(),
        "CONNECT 127.0.0.1: HTTP/1.1\r\nHost: a\r\n\r\n".to_owned(),
        "CONNECT /run/socket HTTP/1.1\r\nHost: a\r\n\r\n".to_owned(),
        // Where it ends.
        format!("{post}Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
        format!("{post}Content-Length: 4\r\nContent-Length: 4\r\n\r\nbody"),
        format!("{post}Content-Length: +4\r\n\r\nbody"),
        format!("{post}Content-Length: 4, 4\r\n\r\nbody"),
        format!("{post}Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n"),
        format!("{post}Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n"),
        format!("{get}X: a\r\n b\r\n\r\n"),
        format!("{get}X: a\nb: c\r\n\r\n"),
        format!("{get}X: a\0\r\n\r\n"),
        format!("{get}Connection: host\r\n\r\n"),
        format!("{get}X: {}\r\n\r\n", "x".repeat(300_000)),
        format!(
            "GET http://{at}/{} HTTP/1.1\r\nHost: {at}\r\n\r\n",
            "x".repeat(70_000)
        ),
        format!("{get}{}\r\n", "X: y\r\n".repeat(600)),
    ] {
        let answer = world.ask(&request).await;
        let shown = &request[..request.len().min(120)];
        assert!(answer.starts_with("HTTP/1.1 400 "), "{shown}: {answer}");
        assert!(
            answer.contains("\r\nusher-egress: malformed\r\n"),
            "{shown}: {answer}"
        );
        assert_eq!(answer.matches("HTTP/1.1").count(), 1, "{shown}: {answer}");
        untouched(&trap);
    }
}

#[tokio::test]
async fn a_body_that_lies_ends_the_request() {
    let world = World::new();
    let site = crate::world::server(|mut stream| async move {
        crate::world::rest(&mut stream).await;
    })
    .await;
    for body in [
        "zz\r\n",
        "4\r\nbodyX",
        "11111111111111111\r\n",
        "4;\x01\r\nbody",
    ] {
        let answer = world
            .ask(format!("POST http://{site}/ HTTP/1.1\r\nHost: {site}\r\nTransfer-Encoding: chunked\r\n\r\n{body}"))
            .await;
        assert!(answer.starts_with("HTTP/1.1 400 "), "{body}: {answer}");
    }
    assert_eq!(world.causes(), ["malformed"; 4]);
}
