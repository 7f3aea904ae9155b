//! Probes against servers that follow a script, over real sockets.

use std::io::Write as _;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};

use flate2::Compression;
use flate2::write::GzEncoder;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::ServerConfig;
use rustls::server::WebPkiClientVerifier;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};
use tokio_rustls::TlsAcceptor;
use usher_core::catalog::{Address, CodeSet, HttpCheck};

use super::*;
use crate::tls::TrustProfile;

const LOCAL: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
/// For probes that are to end before their timeout: long enough for a busy machine.
const AMPLE: Duration = Duration::from_secs(10);
/// For probes whose timeout is what the test is about.
const SHORT: Duration = Duration::from_millis(400);
const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nalive";

// tcp

#[tokio::test]
async fn tcp_passes_when_the_port_is_open() {
    let server = Server::start(|_stream| async {}).await;
    let result = prober().probe(&tcp(server.port)).await;
    assert!(
        matches!(result, ProbeResult::Pass { status: None, rtt } if rtt < AMPLE),
        "{result:?}"
    );
}

#[tokio::test]
async fn tcp_fails_when_the_port_is_closed() {
    let closed = Closed::new();
    let result = prober().probe(&tcp(closed.port())).await;
    assert_eq!(result, fail(FailureReason::TcpConnection, None, None));
}

#[tokio::test]
async fn tcp_times_out_when_nobody_answers_the_handshake() {
    let hole = Hole::on(LOCAL, 0);
    let mut probe = tcp(hole.port());
    probe.timeout = SHORT;
    let start = Instant::now();
    let result = prober().probe(&probe).await;
    assert_eq!(result, fail(FailureReason::TcpTimeout, None, None));
    assert!(start.elapsed() >= SHORT);
}

// names

#[tokio::test]
async fn a_name_that_nobody_knows() {
    let mut probe = tcp(80);
    // Too long for a label: no name server is asked.
    probe.address = Address::Host("a".repeat(64));
    assert_eq!(
        prober().probe(&probe).await,
        fail(FailureReason::DnsUnknownHost, None, None)
    );
    let silent = Lookup::with(|_| std::future::pending());
    probe.timeout = SHORT;
    let result = with_lookup(silent).probe(&probe).await;
    assert_eq!(result, fail(FailureReason::DnsUnknownHost, None, None));
}

#[tokio::test]
async fn a_name_that_the_system_knows() {
    let server = Server::start(|_stream| async {}).await;
    let mut probe = tcp(server.port);
    probe.address = Address::Host("localhost".into());
    assert!(prober().probe(&probe).await.passed());
}

#[tokio::test]
async fn addresses_are_tried_in_order_until_one_accepts() {
    let server = Server::start(|_stream| async {}).await;
    let mut probe = tcp(server.port);
    probe.address = Address::Host("endpoint.example.com".into());
    let elsewhere = IpAddr::from([127, 0, 0, 2]);
    let refusing_first = Lookup::with(move |_| async move { Ok(vec![elsewhere, LOCAL]) });
    assert!(with_lookup(refusing_first).probe(&probe).await.passed());

    // A silent address takes its share of the time, not all of it.
    let _hole = Hole::on(elsewhere, server.port);
    let silent_first = Lookup::with(move |_| async move { Ok(vec![elsewhere, LOCAL]) });
    probe.timeout = SHORT * 2;
    let prober = with_lookup(silent_first);
    let start = Instant::now();
    let result = prober.probe(&probe).await;
    assert!(start.elapsed() >= SHORT);
    assert!(
        matches!(result, ProbeResult::Pass { rtt, .. } if rtt < SHORT),
        "{result:?}"
    );

    let silent_only = Lookup::with(move |_| async move { Ok(vec![elsewhere]) });
    let result = with_lookup(silent_only).probe(&probe).await;
    assert_eq!(result, fail(FailureReason::TcpTimeout, None, None));
}

// http: what is asked

#[tokio::test]
async fn the_request_is_what_the_monitor_says() {
    let mut server = Server::answering(OK).await;
    let mut probe = http(server.port, |check| {
        check.path = "/health?deep=1".into();
        check.headers = vec![
            ("Host".into(), vec!["other.example.com".into()]),
            ("User-Agent".into(), vec!["other".into()]),
            ("X-Token".into(), vec!["a".into(), "b".into()]),
        ];
    });
    probe.host = "Shop.example.com".into();
    let result = prober().probe(&probe).await;
    assert!(
        matches!(
            result,
            ProbeResult::Pass {
                status: Some(200),
                ..
            }
        ),
        "{result:?}"
    );
    assert_eq!(
        server.head().await,
        "GET /health?deep=1 HTTP/1.1\r\nx-token: a\r\nx-token: b\r\nhost: shop.example.com\r\n\
         user-agent: usher-test\r\naccept: */*\r\nconnection: close\r\n\r\n"
    );
}

#[tokio::test]
async fn an_ipv6_address_as_host_gets_brackets() {
    let mut server = Server::answering(OK).await;
    let mut probe = http(server.port, |_| {});
    probe.host = "2001:db8::1".into();
    assert!(prober().probe(&probe).await.passed());
    assert!(server.head().await.contains("\r\nhost: [2001:db8::1]\r\n"));
}

#[tokio::test]
async fn methods() {
    let head_only = "HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\n";
    let mut server = Server::answering(head_only).await;
    assert!(
        prober()
            .probe(&http(server.port, |check| check.method = "HEAD".into()))
            .await
            .passed()
    );
    assert!(server.head().await.starts_with("HEAD / HTTP/1.1\r\n"));
    // There is no body to find anything in.
    let result = prober()
        .probe(&http(server.port, |check| {
            check.method = "HEAD".into();
            check.expected_body = "alive".into();
        }))
        .await;
    assert_eq!(outcome(&result), (FailureReason::BodyMismatch, Some(200)));

    let mut server = Server::answering(OK).await;
    assert!(
        prober()
            .probe(&http(server.port, |check| check.method = "POST".into()))
            .await
            .passed()
    );
    let head = server.head().await;
    assert!(head.starts_with("POST / HTTP/1.1\r\n") && head.contains("\r\ncontent-length: 0\r\n"));
}

#[tokio::test]
async fn what_cannot_be_sent_is_a_fault_of_the_monitor() {
    let closed = Closed::new();
    let port = closed.port();
    let header = |name: &str, value: &str| vec![(name.to_owned(), vec![value.to_owned()])];
    let probes = [
        http(port, |check| check.method = "G T".into()),
        http(port, |check| check.method = "CONNECT".into()),
        http(port, |check| check.path = "/with space".into()),
        http(port, |check| check.headers = header("x y", "z")),
        http(port, |check| check.headers = header("x", "y\r\nz: 1")),
        http(port, |check| check.headers = header("Content-Length", "5")),
        http(port, |check| {
            check.headers = header("Transfer-Encoding", "chunked")
        }),
        Probe {
            host: "a b".into(),
            ..http(port, |_| {})
        },
        // A trust profile that was not loaded.
        Probe {
            ca: Some("/nowhere.pem".into()),
            ..https(port, |_| {})
        },
        Probe {
            sni: Some("no name".into()),
            ..insecure(port)
        },
    ];
    for probe in probes {
        let result = prober().probe(&probe).await;
        assert_eq!(
            result,
            fail(FailureReason::MonitorConfig, None, None),
            "{probe:?}"
        );
    }
}

// http: what counts

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

// http: what goes wrong

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

// http: redirects

#[tokio::test]
async fn redirects_are_not_followed_unless_asked_for() {
    let answer = "HTTP/1.1 302 Found\r\nLocation: /there\r\nContent-Length: 0\r\n\r\n";
    let server = Server::answering(answer).await;
    let result = prober().probe(&http(server.port, |_| {})).await;
    assert_eq!(outcome(&result), (FailureReason::CodeMismatch, Some(302)));
    let found = CodeSet::parse("302").expect("valid");
    let probe = http(server.port, |check| check.expected_codes = found);
    assert!(prober().probe(&probe).await.passed());
}

#[tokio::test]
async fn a_redirect_to_itself_stays_at_the_endpoint_and_its_port() {
    for location in [
        "/there",
        "http://shop.example.com/there",
        "//SHOP.example.com/there",
    ] {
        let mut server = Server::routing(move |target| match target {
            "/" => redirect(302, location),
            "/there" => OK.into(),
            _ => not_found(),
        })
        .await;
        let mut probe = http(server.port, follow);
        probe.host = "shop.example.com".into();
        assert_eq!(outcome(&prober().probe(&probe).await), PASS, "{location}");
        server.head().await;
        let second = server.head().await;
        assert!(
            second.starts_with("GET /there ") && second.contains("\r\nhost: shop.example.com\r\n")
        );
        assert!(
            second.contains("\r\nauthorization: secret\r\n"),
            "its own headers stay: {second}"
        );
    }
}

#[tokio::test]
async fn a_redirect_to_another_port_or_host_is_followed_without_secrets() {
    let mut other = Server::answering(OK).await;
    let port = other.port;
    let server =
        Server::routing(move |_| redirect(307, &format!("http://localhost:{port}/x?y"))).await;
    let mut probe = http(server.port, follow);
    probe.host = "shop.example.com".into();
    assert_eq!(outcome(&prober().probe(&probe).await), PASS);
    let head = other.head().await;
    assert!(
        head.starts_with("GET /x?y ") && head.contains(&format!("\r\nhost: localhost:{port}\r\n"))
    );
    assert!(!head.contains("secret"), "{head}");

    // The same name on another port is the endpoint itself.
    let server =
        Server::routing(move |_| redirect(307, &format!("http://shop.example.com:{port}/"))).await;
    probe.port = server.port;
    assert_eq!(outcome(&prober().probe(&probe).await), PASS);
    assert!(other.head().await.contains("secret"));
}

#[tokio::test]
async fn redirects_end_after_ten_hops_and_the_last_response_counts() {
    let mut server = Server::routing(|_| redirect(302, "/")).await;
    let result = prober().probe(&http(server.port, follow)).await;
    assert_eq!(outcome(&result), (FailureReason::CodeMismatch, Some(302)));
    for _ in 0..=REDIRECTS_MAX {
        server.head().await;
    }
    assert!(
        server.heads.try_recv().is_err(),
        "no request after the tenth redirect"
    );

    let ten = |target: &str| match target.trim_start_matches('/').parse().unwrap_or(0) {
        10 => OK.into(),
        hop => redirect(302, &format!("/{}", hop + 1)),
    };
    let server = Server::routing(ten).await;
    assert_eq!(
        outcome(&prober().probe(&http(server.port, follow)).await),
        PASS
    );
}

#[tokio::test]
async fn redirects_share_one_timeout() {
    let server = Server::start(|mut stream| async move {
        let head = read_head(&mut stream).await;
        if head.starts_with("GET / ") {
            send(&mut stream, &redirect(302, "/slow")).await;
        }
        until_closed(&mut stream).await;
    })
    .await;
    let result = prober()
        .probe(&Probe {
            timeout: SHORT,
            ..http(server.port, follow)
        })
        .await;
    assert_eq!(outcome(&result), (FailureReason::HttpTimeout, None));
    assert!(
        result.rtt().is_some(),
        "the first hop measures the endpoint"
    );
}

#[tokio::test]
async fn redirects_that_lead_nowhere_are_judged_as_they_are() {
    for location in [
        "ftp://shop.example.com/",
        "http://user@shop.example.com/",
        "/a b",
        "http://",
    ] {
        let server = Server::routing(move |_| redirect(302, location)).await;
        let result = prober().probe(&http(server.port, follow)).await;
        assert_eq!(
            outcome(&result),
            (FailureReason::CodeMismatch, Some(302)),
            "{location}"
        );
    }
    let server = Server::answering("HTTP/1.1 302 Found\r\nContent-Length: 0\r\n\r\n").await;
    let result = prober().probe(&http(server.port, follow)).await;
    assert_eq!(outcome(&result), (FailureReason::CodeMismatch, Some(302)));
    let closed = Closed::new();
    let to = format!("http://127.0.0.1:{}/", closed.port());
    let server = Server::routing(move |_| redirect(302, &to)).await;
    let result = prober().probe(&http(server.port, follow)).await;
    assert_eq!(outcome(&result), (FailureReason::TcpConnection, None));
}

#[tokio::test]
async fn methods_across_redirects() {
    for (status, method, then) in [
        (302, "POST", "GET"),
        (301, "POST", "GET"),
        (303, "PUT", "GET"),
        (303, "HEAD", "HEAD"),
        (307, "POST", "POST"),
        (308, "POST", "POST"),
        (302, "PUT", "PUT"),
    ] {
        let mut server = Server::routing(move |target| match target {
            "/" => redirect(status, "/there"),
            _ => OK.into(),
        })
        .await;
        let mut probe = http(server.port, follow);
        let MonitorKind::Http(check) = &mut probe.kind else {
            panic!("made so")
        };
        check.method = method.into();
        assert!(prober().probe(&probe).await.passed());
        assert!(server.head().await.starts_with(&format!("{method} / ")));
        assert!(
            server.head().await.starts_with(&format!("{then} /there ")),
            "{status} {method}"
        );
    }
}

// https

#[tokio::test]
async fn a_certificate_that_the_authority_signed_for_the_name() {
    let authority = Authority::new();
    let mut server = authority.server(&["shop.example.com"], |_| {}).await;
    let prober = authority.prober();
    let probe = authority.probe(server.port, Some("shop.example.com"));
    let result = prober.probe(&probe).await;
    assert_eq!(outcome(&result), PASS, "{result:?}");
    assert!(
        server
            .head()
            .await
            .contains("\r\nhost: shop.example.com\r\n")
    );
    assert_eq!(server.sni().await.as_deref(), Some("shop.example.com"));

    let result = prober
        .probe(&authority.probe(server.port, Some("www.example.com")))
        .await;
    assert_eq!(outcome(&result), (FailureReason::TlsNameMismatch, None));
    // Without a name the certificate has to be for the address.
    let result = prober.probe(&authority.probe(server.port, None)).await;
    assert_eq!(outcome(&result), (FailureReason::TlsNameMismatch, None));
    assert!(prober.probe(&insecure(server.port)).await.passed());
}

#[tokio::test]
async fn without_a_name_none_is_asked_for_and_the_address_is_checked() {
    let authority = Authority::new();
    let mut server = authority.server(&["127.0.0.1", "localhost"], |_| {}).await;
    let mut probe = authority.probe(server.port, None);
    let prober = authority.prober();
    assert_eq!(outcome(&prober.probe(&probe).await), PASS);
    assert_eq!(server.sni().await, None);
    probe.address = Address::Host("localhost".into());
    assert_eq!(outcome(&prober.probe(&probe).await), PASS);
    assert_eq!(server.sni().await, None);
}

#[tokio::test]
async fn certificates_that_nobody_should_trust() {
    let authority = Authority::new();
    let expired = authority
        .server(&["shop.example.com"], |params| {
            params.not_before = rcgen::date_time_ymd(2020, 1, 1);
            params.not_after = rcgen::date_time_ymd(2021, 1, 1);
        })
        .await;
    let stranger = Authority::new().server(&["shop.example.com"], |_| {}).await;
    for server in [expired, stranger] {
        let probe = authority.probe(server.port, Some("shop.example.com"));
        let result = authority.prober().probe(&probe).await;
        assert_eq!(outcome(&result), (FailureReason::TlsUntrusted, None));
        assert!(
            authority
                .prober()
                .probe(&insecure(server.port))
                .await
                .passed()
        );
    }
}

#[tokio::test]
async fn the_certificate_is_looked_at_in_every_probe() {
    let authority = Authority::new();
    let server = authority.server(&["shop.example.com"], |_| {}).await;
    let (prober, probe) = (
        authority.prober(),
        authority.probe(server.port, Some("shop.example.com")),
    );
    for _ in 0..3 {
        assert_eq!(outcome(&prober.probe(&probe).await), PASS);
    }
    assert_eq!(server.resumed.load(Ordering::Relaxed), 0);
}

#[tokio::test]
async fn a_client_certificate() {
    let authority = Authority::new();
    let server = authority.demanding_server(&["shop.example.com"]).await;
    let mut probe = authority.probe(server.port, Some("shop.example.com"));
    let result = authority.prober().probe(&probe).await;
    assert_eq!(outcome(&result), (FailureReason::TlsHandshake, None));
    probe.client_cert = Some(authority.client_files());
    assert_eq!(outcome(&authority.prober().probe(&probe).await), PASS);
}

#[tokio::test]
async fn handshakes_that_fail() {
    let alert = |level: u8, what: u8| vec![0x15, 3, 3, 0, 2, level, what];
    let cases: [(Vec<u8>, FailureReason); 9] = [
        (OK.into(), FailureReason::TlsProtocol),
        (
            b"SSH-2.0-OpenSSH_9.2\r\n".to_vec(),
            FailureReason::TlsProtocol,
        ),
        (alert(2, 0x70), FailureReason::TlsUnrecognizedName),
        (alert(2, 0x28), FailureReason::TlsHandshake),
        (alert(2, 0x46), FailureReason::TlsProtocol),
        (alert(2, 0x0a), FailureReason::TlsProtocol),
        (alert(2, 0x31), FailureReason::TlsHandshake),
        (vec![], FailureReason::TlsHandshake),
        (vec![0x16, 3, 3, 0, 4, 2, 0, 0], FailureReason::TlsHandshake),
    ];
    for (answer, reason) in cases {
        let text = answer.escape_ascii().to_string();
        let server = Server::start(move |mut stream| {
            let answer = answer.clone();
            async move {
                let mut hello = [0; 5];
                stream.read_exact(&mut hello).await.expect("a record");
                let mut rest = vec![0; usize::from(u16::from_be_bytes([hello[3], hello[4]]))];
                stream.read_exact(&mut rest).await.expect("a client hello");
                stream.write_all(&answer).await.expect("sent");
                stream.shutdown().await.expect("sent");
                until_closed(&mut stream).await;
            }
        })
        .await;
        let result = prober().probe(&insecure(server.port)).await;
        assert_eq!(result, fail(reason, None, None), "{text}");
    }
    let resetting = Server::start(|mut stream| async move {
        stream.read_u8().await.expect("a client hello");
        reset(stream);
    })
    .await;
    let result = prober().probe(&insecure(resetting.port)).await;
    assert_eq!(result, fail(FailureReason::ConnectionReset, None, None));
    let silent = Server::start(|mut stream| async move { until_closed(&mut stream).await }).await;
    let result = prober()
        .probe(&Probe {
            timeout: SHORT,
            ..insecure(silent.port)
        })
        .await;
    assert_eq!(result, fail(FailureReason::HttpTimeout, None, None));
}

#[tokio::test]
async fn plain_http_to_a_port_that_speaks_tls() {
    let server = Authority::new().server(&["shop.example.com"], |_| {}).await;
    let result = prober().probe(&http(server.port, |_| {})).await;
    assert_eq!(outcome(&result), (FailureReason::HttpInvalid, None));
}

#[tokio::test]
async fn a_redirect_to_tls_is_checked_and_keeps_what_is_secret() {
    let authority = Authority::new();
    let mut secure = authority.server(&["shop.example.com"], |_| {}).await;
    let port = secure.port;
    let plain =
        Server::routing(move |_| redirect(301, &format!("https://shop.example.com:{port}/"))).await;
    let mut probe = http(plain.port, follow);
    probe.host = "shop.example.com".into();
    probe.ca = Some(authority.ca_file());
    assert_eq!(outcome(&authority.prober().probe(&probe).await), PASS);
    assert_eq!(secure.sni().await.as_deref(), Some("shop.example.com"));
    assert!(secure.head().await.contains("secret"));

    probe.host = "www.example.com".into();
    probe.ca = Some(authority.ca_file());
    let elsewhere = Lookup::with(|_| async { Ok(vec![LOCAL]) });
    assert_eq!(
        outcome(&authority.prober_with(elsewhere).probe(&probe).await),
        PASS
    );
    assert!(!secure.head().await.contains("secret"), "another host");
}

#[tokio::test]
async fn what_was_meant_for_tls_is_not_sent_in_the_clear() {
    let authority = Authority::new();
    let mut plain = Server::routing(|target| match target {
        "/" => redirect(302, "/there"),
        _ => OK.into(),
    })
    .await;
    let to = redirect(302, &format!("http://shop.example.com:{}/", plain.port));
    let secure = authority.answering(&["shop.example.com"], &to).await;
    let mut probe = authority.probe(secure.port, Some("shop.example.com"));
    let MonitorKind::Https { check, .. } = &mut probe.kind else {
        panic!("made so")
    };
    follow(check);
    assert_eq!(outcome(&authority.prober().probe(&probe).await), PASS);
    // Both hops are at the endpoint, and neither shows what was for TLS.
    for target in ["/", "/there"] {
        let head = plain.head().await;
        assert!(
            head.starts_with(&format!("GET {target} ")) && !head.contains("secret"),
            "{head}"
        );
    }
}

#[test]
fn the_trust_that_a_monitor_needs() {
    let (ca, pair) = (Some("ca.pem"), Some(("cert.pem", "key.pem")));
    let (here, away) = (
        super::trust_profiles(&https(1, |_| {}).kind, ca, pair),
        |kind: &MonitorKind| super::trust_profiles(kind, ca, pair),
    );
    assert_eq!(here.len(), 1);
    assert!(here[0].verify && here[0].client_key.is_some());
    assert_eq!(away(&http(1, |_| {}).kind), []);
    assert_eq!(away(&MonitorKind::Tcp), []);
    let both = away(&http(1, follow).kind);
    assert_eq!(
        both.iter()
            .map(|profile| profile.client_cert.is_some())
            .collect::<Vec<_>>(),
        [true, false]
    );
    assert!(!away(&insecure(1).kind)[0].verify);
}

// many

#[tokio::test]
async fn orders_are_carried_out_side_by_side_up_to_the_bound() {
    const ORDERS: usize = PROBES_MAX + 6;
    let (open, mut seen) = watch::channel(0_usize);
    let most = Arc::new(AtomicUsize::new(0));
    let now = Arc::new(AtomicUsize::new(0));
    let server = {
        let (open, most, now) = (open.clone(), Arc::clone(&most), Arc::clone(&now));
        Server::start(move |mut stream| {
            let (open, most, now) = (open.clone(), Arc::clone(&most), Arc::clone(&now));
            async move {
                most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                open.send_modify(|count| *count += 1);
                // Nobody is answered before as many as may be are waiting.
                let enough = open
                    .subscribe()
                    .wait_for(|&count| count >= PROBES_MAX)
                    .await
                    .is_ok();
                assert!(enough);
                read_head(&mut stream).await;
                now.fetch_sub(1, Ordering::SeqCst);
                send(&mut stream, OK).await;
                until_closed(&mut stream).await;
            }
        })
        .await
    };
    let (orders, taken) = mpsc::channel(ORDERS);
    let (results, mut done) = mpsc::channel(1);
    let running = tokio::spawn(super::run(Arc::new(prober()), taken, results));
    let probe = Arc::new(http(server.port, |_| {}));
    for id in 0..ORDERS as u64 {
        orders
            .send(ProbeOrder {
                id: ProbeId(id),
                probe: Arc::clone(&probe),
            })
            .await
            .expect("running");
    }
    drop(orders);
    let mut ids = Vec::new();
    while let Some((id, result)) = done.recv().await {
        assert_eq!(outcome(&result), PASS);
        ids.push(id.0);
    }
    ids.sort_unstable();
    assert_eq!(ids, (0..ORDERS as u64).collect::<Vec<_>>());
    running.await.expect("ends with its orders");
    assert!(seen.borrow_and_update().eq(&ORDERS));
    assert_eq!(most.load(Ordering::SeqCst), PROBES_MAX);
}

// what the tests are made of

const PASS: (FailureReason, Option<u16>) = (FailureReason::None, Some(200));

fn outcome(result: &ProbeResult) -> (FailureReason, Option<u16>) {
    (result.reason(), result.status())
}

fn prober() -> Prober {
    with_lookup(Lookup::system())
}

fn with_lookup(lookup: Lookup) -> Prober {
    let clients = ClientConfigs::load([TrustProfile::default()]).expect("no files");
    let clients = Arc::new(clients);
    Prober::new(lookup, Arc::default(), move || Arc::clone(&clients))
}

fn probe(kind: MonitorKind, port: u16) -> Probe {
    Probe {
        kind,
        address: Address::Ip(LOCAL),
        port,
        timeout: AMPLE,
        host: LOCAL.to_string(),
        sni: None,
        ca: None,
        client_cert: None,
        user_agent: "usher-test".into(),
    }
}

fn tcp(port: u16) -> Probe {
    probe(MonitorKind::Tcp, port)
}

fn check(change: impl FnOnce(&mut HttpCheck)) -> HttpCheck {
    let mut check = HttpCheck {
        method: "GET".into(),
        path: "/".into(),
        headers: vec![],
        expected_codes: CodeSet::parse("200").expect("valid"),
        expected_body: String::new(),
        follow_redirects: false,
    };
    change(&mut check);
    check
}

fn http(port: u16, change: impl FnOnce(&mut HttpCheck)) -> Probe {
    probe(MonitorKind::Http(check(change)), port)
}

fn https(port: u16, change: impl FnOnce(&mut HttpCheck)) -> Probe {
    probe(
        MonitorKind::Https {
            check: check(change),
            allow_insecure: false,
        },
        port,
    )
}

fn insecure(port: u16) -> Probe {
    probe(
        MonitorKind::Https {
            check: check(|_| {}),
            allow_insecure: true,
        },
        port,
    )
}

fn alive(check: &mut HttpCheck) {
    check.expected_body = "alive".into();
}

fn follow(check: &mut HttpCheck) {
    check.follow_redirects = true;
    check.headers = vec![("Authorization".into(), vec!["secret".into()])];
}

fn redirect(status: u16, location: &str) -> String {
    format!("HTTP/1.1 {status} X\r\nLocation: {location}\r\nContent-Length: 0\r\n\r\n")
}

fn not_found() -> String {
    "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n".into()
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

/// A port that nobody listens on, and that nobody else can take while this lives.
struct Closed(socket2::Socket);

impl Closed {
    fn new() -> Closed {
        let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None);
        let socket = socket.expect("a socket");
        socket
            .bind(&SocketAddr::new(LOCAL, 0).into())
            .expect("a free port");
        Closed(socket)
    }

    fn port(&self) -> u16 {
        port_of(&self.0)
    }
}

fn port_of(socket: &socket2::Socket) -> u16 {
    let address = socket.local_addr().expect("bound");
    address.as_socket().expect("an IP socket").port()
}

/// A listener with a full queue: the kernel drops further handshakes.
struct Hole {
    listener: socket2::Socket,
    _queued: Vec<std::net::TcpStream>,
}

impl Hole {
    fn on(ip: IpAddr, port: u16) -> Hole {
        let listener = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None);
        let listener = listener.expect("a socket");
        listener
            .bind(&SocketAddr::new(ip, port).into())
            .expect("a free port");
        listener.listen(0).expect("listening");
        let address = listener
            .local_addr()
            .expect("bound")
            .as_socket()
            .expect("an IP socket");
        let queued = vec![std::net::TcpStream::connect(address).expect("a queue of one")];
        Hole {
            listener,
            _queued: queued,
        }
    }

    fn port(&self) -> u16 {
        port_of(&self.listener)
    }
}

/// Runs a script for each connection; ends with the test.
struct Server {
    port: u16,
    heads: mpsc::UnboundedReceiver<String>,
    names: mpsc::UnboundedReceiver<Option<String>>,
    resumed: Arc<AtomicUsize>,
}

impl Server {
    async fn start<F>(script: impl Fn(TcpStream) -> F + Send + 'static) -> Server
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let listener = TcpListener::bind((LOCAL, 0)).await.expect("a free port");
        let port = listener.local_addr().expect("bound").port();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(script(stream));
            }
        });
        let (_, heads) = mpsc::unbounded_channel();
        let (_, names) = mpsc::unbounded_channel();
        Server {
            port,
            heads,
            names,
            resumed: Arc::default(),
        }
    }

    /// Answers every request with the same bytes, then closes.
    async fn answering(answer: impl Into<Vec<u8>>) -> Server {
        let answer = answer.into();
        Server::routing_bytes(move |_| answer.clone()).await
    }

    /// Answers by request target, then closes.
    async fn routing(answer: impl Fn(&str) -> String + Send + Sync + 'static) -> Server {
        Server::routing_bytes(move |target| answer(target).into_bytes()).await
    }

    async fn routing_bytes(answer: impl Fn(&str) -> Vec<u8> + Send + Sync + 'static) -> Server {
        let answer = Arc::new(answer);
        let (sender, heads) = mpsc::unbounded_channel();
        let server = Server::start(move |mut stream| {
            let (answer, sender) = (Arc::clone(&answer), sender.clone());
            async move {
                let head = read_head(&mut stream).await;
                let answer = answer(head.split(' ').nth(1).unwrap_or_default());
                let _ = sender.send(head);
                finish(stream, &answer).await;
            }
        })
        .await;
        Server { heads, ..server }
    }

    /// The next request head that came in.
    async fn head(&mut self) -> String {
        self.heads.recv().await.expect("a request")
    }

    /// The name that the next handshake asked for.
    async fn sni(&mut self) -> Option<String> {
        self.names.recv().await.expect("a handshake")
    }
}

async fn read_head(stream: &mut (impl AsyncRead + Unpin)) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        match stream.read_u8().await {
            Ok(byte) => head.push(byte),
            Err(_) => break,
        }
    }
    String::from_utf8(head).expect("ASCII")
}

async fn send(stream: &mut TcpStream, answer: &str) {
    stream.write_all(answer.as_bytes()).await.expect("sent");
}

/// Sends and closes; a probe may have left before.
async fn finish(mut stream: impl AsyncRead + AsyncWrite + Unpin, answer: &[u8]) {
    let _ = stream.write_all(answer).await;
    let _ = stream.shutdown().await;
    until_closed(&mut stream).await;
}

async fn until_closed(stream: &mut (impl AsyncRead + Unpin)) {
    let mut sink = [0; 1024];
    while stream.read(&mut sink).await.is_ok_and(|count| count > 0) {}
}

fn reset(stream: TcpStream) {
    socket2::SockRef::from(&stream)
        .set_linger(Some(Duration::ZERO))
        .expect("a socket");
}

/// A certificate authority in a folder of its own.
struct Authority {
    issuer: Issuer<'static, KeyPair>,
    der: CertificateDer<'static>,
    folder: tempfile::TempDir,
}

impl Authority {
    fn new() -> Authority {
        let key = KeyPair::generate().expect("a key");
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let certificate = params.self_signed(&key).expect("a certificate");
        let folder = tempfile::tempdir().expect("a folder");
        let authority = Authority {
            issuer: Issuer::new(params, key),
            der: certificate.der().clone(),
            folder,
        };
        std::fs::write(authority.ca_file(), certificate.pem()).expect("written");
        let (chain, key) = authority.sign(&["probe.example.com"], |_| {});
        let (cert_file, key_file) = authority.client_files();
        std::fs::write(cert_file, chain.pem()).expect("written");
        std::fs::write(key_file, key.serialize_pem()).expect("written");
        authority
    }

    fn file(&self, name: &str) -> String {
        let path: PathBuf = self.folder.path().join(name);
        path.into_os_string().into_string().expect("UTF-8")
    }

    fn ca_file(&self) -> String {
        self.file("ca.pem")
    }

    fn client_files(&self) -> (String, String) {
        (self.file("client.pem"), self.file("client.key"))
    }

    fn sign(
        &self,
        names: &[&str],
        change: impl FnOnce(&mut CertificateParams),
    ) -> (rcgen::Certificate, KeyPair) {
        let names: Vec<_> = names.iter().map(|&name| name.to_owned()).collect();
        let mut params = CertificateParams::new(names).expect("names");
        change(&mut params);
        let key = KeyPair::generate().expect("a key");
        let certificate = params.signed_by(&key, &self.issuer).expect("a certificate");
        (certificate, key)
    }

    fn pair(
        &self,
        names: &[&str],
        change: impl FnOnce(&mut CertificateParams),
    ) -> (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>) {
        let (certificate, key) = self.sign(names, change);
        let key = PrivateKeyDer::try_from(key.serialize_der()).expect("a key");
        (vec![certificate.der().clone()], key)
    }

    async fn server(&self, names: &[&str], change: impl FnOnce(&mut CertificateParams)) -> Server {
        let (chain, key) = self.pair(names, change);
        let config = ServerConfig::builder()
            .with_no_client_auth()
            .with_single_cert(chain, key);
        serve_tls(config.expect("a pair"), OK).await
    }

    async fn answering(&self, names: &[&str], answer: &str) -> Server {
        let (chain, key) = self.pair(names, |_| {});
        let config = ServerConfig::builder()
            .with_no_client_auth()
            .with_single_cert(chain, key);
        serve_tls(config.expect("a pair"), answer).await
    }

    /// Wants a client certificate of this authority.
    async fn demanding_server(&self, names: &[&str]) -> Server {
        let (chain, key) = self.pair(names, |_| {});
        let mut roots = rustls::RootCertStore::empty();
        roots.add(self.der.clone()).expect("an authority");
        let verifier = WebPkiClientVerifier::builder(Arc::new(roots))
            .build()
            .expect("roots");
        let config = ServerConfig::builder()
            .with_client_cert_verifier(verifier)
            .with_single_cert(chain, key);
        serve_tls(config.expect("a pair"), OK).await
    }

    fn probe(&self, port: u16, sni: Option<&str>) -> Probe {
        Probe {
            host: sni.unwrap_or("127.0.0.1").into(),
            sni: sni.map(Into::into),
            ca: Some(self.ca_file()),
            ..https(port, |_| {})
        }
    }

    fn prober(&self) -> Prober {
        self.prober_with(Lookup::system())
    }

    fn prober_with(&self, lookup: Lookup) -> Prober {
        let (ca, (cert, key)) = (self.ca_file(), self.client_files());
        let kind = https(0, follow).kind;
        let mut profiles = trust_profiles(&kind, Some(&ca), Some((&cert, &key)));
        profiles.extend(trust_profiles(&insecure(0).kind, None, None));
        let clients = Arc::new(ClientConfigs::load(profiles).expect("sound files"));
        Prober::new(lookup, Arc::default(), move || Arc::clone(&clients))
    }
}

async fn serve_tls(config: ServerConfig, answer: &str) -> Server {
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let answer: Arc<str> = answer.into();
    let (head_sender, heads) = mpsc::unbounded_channel();
    let (name_sender, names) = mpsc::unbounded_channel();
    let resumed = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&resumed);
    let server = Server::start(move |stream| {
        let (acceptor, answer, count) = (acceptor.clone(), Arc::clone(&answer), Arc::clone(&count));
        let (head_sender, name_sender) = (head_sender.clone(), name_sender.clone());
        async move {
            let Ok(mut stream) = acceptor.accept(stream).await else {
                return;
            };
            let session = stream.get_ref().1;
            if session.handshake_kind() == Some(rustls::HandshakeKind::Resumed) {
                count.fetch_add(1, Ordering::Relaxed);
            }
            let _ = name_sender.send(session.server_name().map(str::to_owned));
            let _ = head_sender.send(read_head(&mut stream).await);
            finish(stream, answer.as_bytes()).await;
        }
    })
    .await;
    Server {
        heads,
        names,
        resumed,
        ..server
    }
}
