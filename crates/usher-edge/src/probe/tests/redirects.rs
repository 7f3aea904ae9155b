//! Where redirects lead, and what goes along.

use super::*;

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
