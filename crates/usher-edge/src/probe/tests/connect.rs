//! Getting a connection: handshakes, names, several addresses.

use super::*;

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
