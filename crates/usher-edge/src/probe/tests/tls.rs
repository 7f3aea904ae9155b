//! Certificates, handshakes, and redirects to and from TLS.

use std::sync::atomic::Ordering;

use super::*;

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
async fn a_client_certificate_is_for_the_endpoint_alone() {
    let authority = Authority::new();
    let demanding = authority.demanding_server(&["shop.example.com"]).await;
    let to = format!("https://shop.example.com:{}/", demanding.port);
    let server = Server::routing(move |_| redirect(302, &to)).await;
    let mut probe = http(server.port, follow);
    probe.ca = Some(authority.ca_file());
    probe.client_cert = Some(authority.client_files());
    let elsewhere = Lookup::with(|_| async { Ok(vec![LOCAL]) });
    let prober = authority.prober_with(elsewhere);
    probe.host = "shop.example.com".into();
    assert_eq!(outcome(&prober.probe(&probe).await), PASS);
    probe.host = "www.example.com".into();
    let result = prober.probe(&probe).await;
    assert_eq!(outcome(&result), (FailureReason::TlsHandshake, None));
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
        trust_profiles(&https(1, |_| {}).kind, ca, pair),
        |kind: &MonitorKind| trust_profiles(kind, ca, pair),
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
