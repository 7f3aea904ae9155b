//! HTTP/2 from clients, in cleartext by prior knowledge and over TLS; endpoints speak HTTP/1.

use bytes::Bytes;
use http::{HeaderMap, Method, Request, StatusCode};
use rustix::process::Signal;
use serde_json::json;

use crate::support::config::HOST;
use crate::support::endpoint::ok;
use crate::support::http2::{self, Client, Fate, Frames, block_on};
use crate::support::{Config, Endpoint, Usher};

fn serving() -> (Endpoint, Usher) {
    let endpoint = Endpoint::named("a");
    let usher = Usher::start(&Config::serving([endpoint.origin("a")]));
    (endpoint, usher)
}

fn url(path: &str) -> String {
    format!("http://{HOST}{path}")
}

#[test]
fn a_request_becomes_one_of_http_1() {
    let (endpoint, usher) = serving();
    let answer = block_on(async {
        let mut client = Client::plain(usher.address("http")).await;
        let request = Request::get(url("/path?query"))
            .header("cookie", "a=1")
            .header("cookie", "b=2")
            .header("x-kept", "1")
            .body(())
            .unwrap();
        client.exchange(request, None, None).await.unwrap()
    });
    assert_eq!(
        (answer.status, &answer.body[..]),
        (StatusCode::OK, &b"a"[..])
    );
    for name in ["connection", "keep-alive", "transfer-encoding"] {
        assert!(!answer.headers.contains_key(name), "{:?}", answer.headers);
    }
    let arrived = endpoint.next();
    assert_eq!(arrived.start, "GET /path?query HTTP/1.1");
    assert_eq!(arrived.field("host"), Some(HOST));
    assert_eq!(
        arrived.field("cookie"),
        Some("a=1; b=2"),
        "crumbs are joined (RFC 9113, 8.2.3)"
    );
    assert_eq!(arrived.field("x-kept"), Some("1"));
    assert_eq!(arrived.field("x-forwarded-for"), Some("127.0.0.1"));
    assert_eq!(usher.access_log(1)[0]["protocol"], "HTTP/2");
}

#[test]
fn a_stream_that_a_stop_cuts_has_its_line() {
    let endpoint = Endpoint::silent();
    let config = Config::serving([endpoint.origin("a")])
        .set(&["shutdown", "grace"], json!("100ms"))
        .set(&["access_log", "query_strings"], json!(true));
    let mut usher = Usher::start(&config);
    let mut client = Frames::over(usher.connect());
    client.request(
        1,
        &[
            (":method", "GET"),
            (":scheme", "http"),
            (":authority", HOST),
            (":path", "/path?query"),
        ],
    );
    endpoint.next();
    usher.signal(Signal::TERM);
    assert_eq!(usher.wait().code(), Some(0));
    let lines = usher.access_log(1);
    assert_eq!(lines.len(), 1);
    assert_eq!(
        (&lines[0]["error"], &lines[0]["status"], &lines[0]["path"]),
        (&json!("cut-by-stop"), &json!(null), &json!("/path?query"))
    );
}

#[test]
fn bodies_and_trailers_go_both_ways() {
    let endpoint = Endpoint::scripted(|visit| {
        while visit.request().is_some() {
            visit.send(
                "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: Grpc-Status\r\n\r\n\
                 3\r\nabc\r\n0\r\nGrpc-Status: 0\r\n\r\n",
            );
        }
    });
    let usher = Usher::start(&Config::serving([endpoint.origin("a")]));
    let body = Bytes::from(vec![b'x'; 300_000]);
    let answer = block_on(async {
        let mut client = Client::plain(usher.address("http")).await;
        let mut trailers = HeaderMap::new();
        trailers.insert("x-sum", "42".parse().unwrap());
        let request = Request::post(url("/"))
            .header("te", "trailers")
            .body(())
            .unwrap();
        client
            .exchange(request, Some(body.clone()), Some(trailers))
            .await
            .unwrap()
    });
    assert_eq!(&answer.body[..], b"abc");
    assert_eq!(answer.trailers.unwrap()["grpc-status"], "0");
    let arrived = endpoint.next();
    assert!(arrived.body == body);
    assert_eq!(arrived.trailers, [("x-sum".to_owned(), "42".to_owned())]);
}

#[test]
fn a_length_that_is_known_is_told() {
    let (endpoint, usher) = serving();
    block_on(async {
        let mut client = Client::plain(usher.address("http")).await;
        let request = Request::post(url("/"))
            .header("content-length", "4")
            .body(())
            .unwrap();
        let answer = client
            .exchange(request, Some("body".into()), None)
            .await
            .unwrap();
        assert_eq!(answer.headers["content-length"], "1");
    });
    let arrived = endpoint.next();
    assert_eq!(
        (arrived.field("content-length"), arrived.text().as_str()),
        (Some("4"), "body")
    );
}

#[test]
fn a_hundred_streams_share_a_connection() {
    let endpoint = Endpoint::scripted(|visit| {
        while let Some(request) = visit.request() {
            visit.send(ok(request.target()));
        }
    });
    let usher = Usher::start(&Config::serving([endpoint.origin("a")]));
    block_on(async {
        let client = Client::plain(usher.address("http")).await;
        let mut streams = tokio::task::JoinSet::new();
        for n in 0..100 {
            let mut client = Client(client.0.clone());
            streams.spawn(async move {
                let path = format!("/{n}");
                let answer = client.get(&url(&path)).await.unwrap();
                assert_eq!(answer.body, path.as_bytes());
            });
        }
        while let Some(outcome) = streams.join_next().await {
            outcome.unwrap();
        }
    });
}

#[test]
fn head_204_and_304_have_no_body() {
    let endpoint = Endpoint::scripted(|visit| {
        while let Some(request) = visit.request() {
            visit.send(match request.target() {
                "/204" => "HTTP/1.1 204 No Content\r\n\r\n",
                "/304" => "HTTP/1.1 304 Not Modified\r\nContent-Length: 9\r\n\r\n",
                _ => "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n",
            });
        }
    });
    let usher = Usher::start(&Config::serving([endpoint.origin("a")]));
    block_on(async {
        let mut client = Client::plain(usher.address("http")).await;
        let head = Request::builder()
            .method(Method::HEAD)
            .uri(url("/"))
            .body(())
            .unwrap();
        let answer = client.exchange(head, None, None).await.unwrap();
        assert_eq!(
            (
                answer.headers["content-length"].as_bytes(),
                answer.body.len()
            ),
            (&b"9"[..], 0)
        );
        assert_eq!(client.get(&url("/204")).await.unwrap().status, 204);
        assert_eq!(client.get(&url("/304")).await.unwrap().status, 304);
    });
}

#[test]
fn usher_answers_in_the_protocol_of_the_client() {
    let (_endpoint, usher) = serving();
    block_on(async {
        let mut client = Client::plain(usher.address("http")).await;
        assert_eq!(
            client
                .get("http://unknown.example.net/")
                .await
                .unwrap()
                .status,
            404
        );
        assert_eq!(
            client.get(&url("/")).await.unwrap().status,
            200,
            "the connection goes on"
        );
    });
}

/// Each set of fields is malformed (RFC 9113, 8.1.1): a stream error or 400, and no request.
#[test]
fn malformed_requests_are_refused() {
    let basis: [(&str, &str); 4] = [
        (":method", "GET"),
        (":scheme", "http"),
        (":authority", HOST),
        (":path", "/"),
    ];
    let with = |more: &[(&'static str, &'static str)]| {
        let mut fields = basis.to_vec();
        fields.extend_from_slice(more);
        fields
    };
    let cases = [
        ("connection", with(&[("connection", "close")])),
        ("keep-alive", with(&[("keep-alive", "timeout=5")])),
        (
            "transfer-encoding",
            with(&[("transfer-encoding", "chunked")]),
        ),
        ("upgrade", with(&[("upgrade", "websocket")])),
        ("proxy-connection", with(&[("proxy-connection", "close")])),
        ("te other than trailers", with(&[("te", "gzip")])),
        ("upper case", with(&[("X-Upper", "1")])),
        ("another host", with(&[("host", "other.example.com")])),
        (
            "a new line in a value",
            with(&[("x", "a\r\nx-smuggled: 1")]),
        ),
        ("NUL in a value", with(&[("x", "a\0b")])),
        (
            "a pseudo field behind a plain one",
            with(&[("x", "1"), (":path", "/other")]),
        ),
        ("an unknown pseudo field", with(&[(":unknown", "1")])),
        (
            "a length without its body",
            with(&[("content-length", "5")]),
        ),
        (
            "two lengths",
            with(&[("content-length", "0"), ("content-length", "5")]),
        ),
        (
            "userinfo",
            vec![
                (":method", "GET"),
                (":scheme", "http"),
                (":authority", "user@shop.example.com"),
                (":path", "/"),
            ],
        ),
        (
            "no path",
            vec![
                (":method", "GET"),
                (":scheme", "http"),
                (":authority", HOST),
            ],
        ),
        (
            "an empty path",
            vec![
                (":method", "GET"),
                (":scheme", "http"),
                (":authority", HOST),
                (":path", ""),
            ],
        ),
        (
            "a path without a slash",
            vec![
                (":method", "GET"),
                (":scheme", "http"),
                (":authority", HOST),
                (":path", "x"),
            ],
        ),
        (
            "a space in the path",
            vec![
                (":method", "GET"),
                (":scheme", "http"),
                (":authority", HOST),
                (":path", "/a b"),
            ],
        ),
        (
            "a request line in the path",
            vec![
                (":method", "GET"),
                (":scheme", "http"),
                (":authority", HOST),
                (":path", "/ HTTP/1.1\r\nx-smuggled: 1\r\n"),
            ],
        ),
        (
            "a method that is no token",
            vec![
                (":method", "GET /x HTTP/1.1\r\n"),
                (":scheme", "http"),
                (":authority", HOST),
                (":path", "/"),
            ],
        ),
        (
            "no authority and no host",
            vec![(":method", "GET"), (":scheme", "http"), (":path", "/")],
        ),
    ];
    let (endpoint, usher) = serving();
    for (name, fields) in cases {
        let mut frames = Frames::over(usher.connect());
        frames.request(1, &fields);
        let fate = frames.fate(1);
        assert!(
            matches!(
                fate,
                Fate::Reset(_) | Fate::Answered(Some(400)) | Fate::Gone(Some(_))
            ),
            "{name}: {fate:?}"
        );
        assert!(endpoint.arrived().is_empty(), "{name} reached the endpoint");
    }
    assert_eq!(usher.get("/").status(), 200);
}

#[test]
fn methods_that_are_not_for_a_reverse_proxy() {
    let (endpoint, usher) = serving();
    block_on(async {
        let mut client = Client::plain(usher.address("http")).await;
        let trace = Request::builder()
            .method(Method::TRACE)
            .uri(url("/"))
            .body(())
            .unwrap();
        assert_eq!(
            client.exchange(trace, None, None).await.unwrap().status,
            405
        );
        let connect = Request::builder()
            .method(Method::CONNECT)
            .uri("shop.example.com:443")
            .body(())
            .unwrap();
        assert_eq!(
            client.exchange(connect, None, None).await.unwrap().status,
            405
        );
    });
    assert!(endpoint.arrived().is_empty());
}

#[test]
fn heads_over_the_limits_are_refused() {
    let (endpoint, usher) = serving();
    block_on(async {
        let mut client = Client::plain(usher.address("http")).await;
        let target = format!("/{}", "a".repeat(20 * 1024));
        assert_eq!(client.get(&url(&target)).await.unwrap().status, 414);
        let many = (0..200).fold(Request::get(url("/")), |request, n| {
            request.header(format!("x-{n}"), "1")
        });
        let answer = client
            .exchange(many.body(()).unwrap(), None, None)
            .await
            .unwrap();
        assert_eq!(answer.status, 431);
    });
    assert!(endpoint.arrived().is_empty());
}

#[test]
fn a_block_of_fields_without_end_is_cut_off() {
    let (endpoint, usher) = serving();
    let mut frames = Frames::over(usher.connect());
    let basis = [
        (":method", "GET"),
        (":scheme", "http"),
        (":authority", HOST),
        (":path", "/"),
    ];
    frames.send(http2::HEADERS, http2::END_STREAM, 1, &http2::block(&basis));
    let piece = http2::block(&[("x-more", &"m".repeat(10_000))]);
    for _ in 0..200 {
        if frames.try_send(http2::CONTINUATION, 0, 1, &piece).is_err() {
            break;
        }
    }
    assert!(matches!(frames.fate(1), Fate::Gone(_) | Fate::Reset(_)));
    assert!(endpoint.arrived().is_empty());
}

#[test]
fn streams_that_are_reset_as_fast_as_they_open_end_the_connection() {
    let (_endpoint, usher) = serving();
    let mut frames = Frames::over(usher.connect());
    let basis = [
        (":method", "GET"),
        (":scheme", "http"),
        (":authority", HOST),
        (":path", "/"),
    ];
    let block = http2::block(&basis);
    let flags = http2::END_STREAM | http2::END_HEADERS;
    for n in 0..10_000_u32 {
        let stream = 2 * n + 1;
        let opened = frames.try_send(http2::HEADERS, flags, stream, &block);
        let reset = frames.try_send(http2::RST_STREAM, 0, stream, &8_u32.to_be_bytes());
        if opened.is_err() || reset.is_err() {
            break;
        }
    }
    assert!(matches!(frames.fate(u32::MAX), Fate::Gone(_)));
    assert_eq!(usher.get("/").status(), 200);
}

#[test]
fn a_stream_that_the_client_gives_up_is_given_up_at_the_endpoint() {
    let (ends, ended) = std::sync::mpsc::channel();
    let ends = std::sync::Mutex::new(ends);
    let endpoint = Endpoint::scripted(move |visit| {
        if visit.request().is_some() {
            visit.wire.rest();
            ends.lock().unwrap().send(()).unwrap();
        }
    });
    let usher = Usher::start(&Config::serving([endpoint.origin("a")]));
    let mut frames = Frames::over(usher.connect());
    let basis = [
        (":method", "GET"),
        (":scheme", "http"),
        (":authority", HOST),
        (":path", "/"),
    ];
    frames.request(1, &basis);
    endpoint.next();
    frames.send(http2::RST_STREAM, 0, 1, &8_u32.to_be_bytes());
    assert_eq!(ended.recv_timeout(crate::support::PATIENCE), Ok(()));
}

#[test]
fn an_answer_that_breaks_off_resets_the_stream() {
    let endpoint = Endpoint::scripted(|visit| {
        visit.request();
        visit.send("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nonly this");
    });
    let usher = Usher::start(&Config::serving([endpoint.origin("a")]));
    block_on(async {
        let mut client = Client::plain(usher.address("http")).await;
        assert!(client.get(&url("/")).await.is_err());
    });
}

#[test]
fn the_last_bytes_of_a_known_length_end_the_stream() {
    let (_endpoint, usher) = serving();
    let mut frames = Frames::over(usher.connect());
    let get = [
        (":method", "GET"),
        (":scheme", "http"),
        (":authority", HOST),
        (":path", "/"),
    ];
    frames.request(1, &get);
    let of_stream = std::iter::from_fn(|| frames.next()).filter(|frame| frame.stream == 1);
    let kinds: Vec<_> = of_stream
        .map(|frame| (frame.kind, frame.payload.is_empty(), frame.flags))
        .take(2)
        .collect();
    let expected = [
        (http2::HEADERS, false, http2::END_HEADERS),
        (http2::DATA, false, http2::END_STREAM),
    ];
    assert_eq!(kinds, expected);
}
