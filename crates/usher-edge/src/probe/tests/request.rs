//! What a probe sends.

use super::*;

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
