//! What counts as a pass, and which failure everything else is.

use std::io::Write as _;

use flate2::Compression;
use flate2::write::GzEncoder;

use super::*;

#[tokio::test]
async fn status_codes() {
    for (expected, status, passes) in [
        ("200", 200, true),
        ("200", 204, false),
        ("2xx", 204, true),
        ("301,503", 503, true),
        ("2xx", 500, false),
    ] {
        let server =
            Server::answering(format!("HTTP/1.1 {status} X\r\nContent-Length: 0\r\n\r\n")).await;
        let result = prober()
            .probe(&http(server.port, |check| {
                check.expected_codes = CodeSet::parse(expected).expect("valid");
            }))
            .await;
        let reason = if passes {
            FailureReason::None
        } else {
            FailureReason::CodeMismatch
        };
        assert_eq!(outcome(&result), (reason, Some(status)), "{expected}");
        assert!(result.rtt().is_some());
    }
}

#[tokio::test]
async fn interim_responses_are_skipped() {
    let answer =
        format!("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n{OK}");
    let server = Server::answering(answer).await;
    assert_eq!(
        outcome(&prober().probe(&http(server.port, |_| {})).await),
        PASS
    );
}

#[tokio::test]
async fn bodies() {
    let limit = SEARCHED_MAX;
    let padded = |before: usize| format!("{}alive", ".".repeat(before));
    let sized = |body: &str| {
        format!(
            "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        )
        .into_bytes()
    };
    let chunked = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nal\r\n3;x=y\r\nIVE\r\n0\r\n\r\n";
    let until_close = "HTTP/1.1 200 OK\r\n\r\n<p>Alive</p>";
    let cases: [(Vec<u8>, FailureReason); 10] = [
        (sized("it is ALIVE"), FailureReason::None),
        (sized("it is dead"), FailureReason::BodyMismatch),
        (sized(""), FailureReason::BodyMismatch),
        (sized(&padded(limit - 5)), FailureReason::None),
        (sized(&padded(limit - 4)), FailureReason::BodyMismatch),
        (chunked.to_vec(), FailureReason::None),
        (until_close.into(), FailureReason::None),
        (zipped(&padded(limit - 5), false), FailureReason::None),
        (zipped(&padded(limit - 5), true), FailureReason::None),
        (
            zipped(&padded(limit - 4), true),
            FailureReason::BodyMismatch,
        ),
    ];
    for (number, (answer, reason)) in cases.into_iter().enumerate() {
        let server = Server::answering(answer).await;
        let result = prober().probe(&http(server.port, alive)).await;
        assert_eq!(outcome(&result), (reason, Some(200)), "case {number}");
    }
}

#[tokio::test]
async fn a_body_that_goes_on_is_judged_as_soon_as_possible() {
    let server = Server::start(|mut stream| async move {
        read_head(&mut stream).await;
        send(
            &mut stream,
            "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\ndata: alive",
        )
        .await;
        until_closed(&mut stream).await;
    })
    .await;
    assert_eq!(
        outcome(&prober().probe(&http(server.port, alive)).await),
        PASS
    );

    let server = Server::start(|mut stream| async move {
        read_head(&mut stream).await;
        send(&mut stream, "HTTP/1.1 200 OK\r\n\r\n").await;
        while stream.write_all(&[b'.'; 4096]).await.is_ok() {}
    })
    .await;
    let result = prober().probe(&http(server.port, alive)).await;
    assert_eq!(outcome(&result), (FailureReason::BodyMismatch, Some(200)));
}

#[tokio::test]
async fn answers_that_are_not_http() {
    let answers: [&[u8]; 12] = [
        b"",
        b"SSH-2.0-OpenSSH_9.2\r\n",
        b"\x15\x03\x03\x00\x02\x02\x28",
        b"\0\0\0\0\0\0\0\0",
        b"<html>HTTP/0.9</html>",
        b"HTTP/1.1 99999 Too Long\r\n\r\n",
        b"HTTP/1.1 20",
        b"HTTP/1.1 200 OK\r\nno colon here\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nshort",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nshort",
    ];
    for answer in answers {
        let server = Server::answering(answer).await;
        let result = prober().probe(&http(server.port, alive)).await;
        assert_eq!(
            result.reason(),
            FailureReason::HttpInvalid,
            "{}",
            answer.escape_ascii()
        );
    }
}

#[tokio::test]
async fn an_endless_head_is_cut_off() {
    let server = Server::start(|mut stream| async move {
        read_head(&mut stream).await;
        send(&mut stream, "HTTP/1.1 200 OK\r\nX: ").await;
        while stream.write_all(&[b'x'; 4096]).await.is_ok() {}
    })
    .await;
    let result = prober().probe(&http(server.port, |_| {})).await;
    assert_eq!(outcome(&result), (FailureReason::HttpInvalid, None));

    let server = Server::start(|mut stream| async move {
        read_head(&mut stream).await;
        send(&mut stream, "HTTP/1.1 200 OK\r\n").await;
        while stream.write_all(b"X: y\r\n").await.is_ok() {}
    })
    .await;
    let result = prober().probe(&http(server.port, |_| {})).await;
    assert_eq!(outcome(&result), (FailureReason::HttpInvalid, None));
}

#[tokio::test]
async fn the_bounds_of_a_head() {
    let head = |fields: usize| format!("HTTP/1.1 200 OK\r\n{}\r\n", "X: y\r\n".repeat(fields));
    for (fields, reason) in [
        (FIELDS_MAX, FailureReason::None),
        (FIELDS_MAX + 1, FailureReason::HttpInvalid),
    ] {
        let server = Server::answering(head(fields)).await;
        assert_eq!(
            prober().probe(&http(server.port, |_| {})).await.reason(),
            reason,
            "{fields}"
        );
    }
    let head = |bytes: usize| {
        let frame = "HTTP/1.1 200 OK\r\nX: \r\n\r\n".len();
        format!(
            "HTTP/1.1 200 OK\r\nX: {}\r\n\r\n",
            "y".repeat(bytes - frame)
        )
    };
    for (bytes, reason) in [
        (HEAD_BYTES_MAX - 1, FailureReason::None),
        (HEAD_BYTES_MAX + 1, FailureReason::HttpInvalid),
    ] {
        let server = Server::answering(head(bytes)).await;
        assert_eq!(
            prober().probe(&http(server.port, |_| {})).await.reason(),
            reason,
            "{bytes}"
        );
    }
}

#[tokio::test]
async fn an_endpoint_that_says_nothing_or_drop_by_drop() {
    let silent = Server::start(|mut stream| async move { until_closed(&mut stream).await }).await;
    let stuck_head = Server::start(|mut stream| async move {
        send(&mut stream, "HTTP/1.1 200 OK\r\nX: ").await;
        until_closed(&mut stream).await;
    })
    .await;
    let stuck_body = Server::start(|mut stream| async move {
        send(
            &mut stream,
            "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nali",
        )
        .await;
        until_closed(&mut stream).await;
    })
    .await;
    // Each byte comes in time for another one, but none of them moves the deadline.
    let trickle = Server::start(|mut stream| async move {
        send(&mut stream, "HTTP/1.1 200 OK\r\nX: ").await;
        let mut pause = tokio::time::interval(SHORT / 10);
        while stream.write_all(b"x").await.is_ok() {
            pause.tick().await;
        }
    })
    .await;
    let interim = Server::start(|mut stream| async move {
        while stream
            .write_all(b"HTTP/1.1 102 Processing\r\n\r\n")
            .await
            .is_ok()
        {}
    })
    .await;
    let mut probes = JoinSet::new();
    for (server, status, measured) in [
        (silent, None, false),
        (stuck_head, None, true),
        (stuck_body, Some(200), true),
        (interim, None, true),
        (trickle, None, true),
    ] {
        probes.spawn(async move {
            let probe = Probe {
                timeout: SHORT,
                ..http(server.port, alive)
            };
            let start = Instant::now();
            let result = prober().probe(&probe).await;
            assert_eq!(outcome(&result), (FailureReason::HttpTimeout, status));
            assert_eq!(result.rtt().is_some(), measured);
            assert!(start.elapsed() >= SHORT);
        });
    }
    probes.join_all().await;
}

#[tokio::test]
async fn a_reset() {
    // Before anything is read: writing and reading race for the error.
    let server = Server::start(|stream| async move { reset(stream) }).await;
    for _ in 0..50 {
        let result = prober().probe(&http(server.port, |_| {})).await;
        assert_eq!(outcome(&result), (FailureReason::ConnectionReset, None));
    }

    let server = Server::start(|mut stream| async move {
        read_head(&mut stream).await;
        reset(stream);
    })
    .await;
    let result = prober().probe(&http(server.port, |_| {})).await;
    assert_eq!(outcome(&result), (FailureReason::ConnectionReset, None));
    assert_eq!(result.rtt(), None);

    let server = Server::start(|mut stream| async move {
        read_head(&mut stream).await;
        send(
            &mut stream,
            "HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\nali",
        )
        .await;
        // The probe has read this far when it asks for the rest; nothing else tells.
        stream.writable().await.expect("open");
        reset(stream);
    })
    .await;
    let result = prober().probe(&http(server.port, alive)).await;
    assert_eq!(result.reason(), FailureReason::ConnectionReset);
}

fn zipped(body: &str, chunked: bool) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(body.as_bytes()).expect("a Vec takes all");
    let body = encoder.finish().expect("a Vec takes all");
    let head = "HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n";
    let mut answer = head.as_bytes().to_vec();
    if chunked {
        answer.extend_from_slice(b"Transfer-Encoding: chunked\r\n\r\n");
        for piece in body.chunks(10) {
            answer.extend_from_slice(format!("{:x}\r\n", piece.len()).as_bytes());
            answer.extend_from_slice(piece);
            answer.extend_from_slice(b"\r\n");
        }
        answer.extend_from_slice(b"0\r\n\r\n");
    } else {
        answer.extend_from_slice(format!("Content-Length: {}\r\n\r\n", body.len()).as_bytes());
        answer.extend_from_slice(&body);
    }
    answer
}
