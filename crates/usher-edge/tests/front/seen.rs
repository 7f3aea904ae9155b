//! What is seen of requests afterwards: the access log and the metrics.

use std::sync::Arc;
use std::time::Duration;

use prometheus_client::registry::Registry;
use usher_edge::http::{AccessLog, FrontMetrics, LogTarget};

use crate::block_on;
use crate::kit::{HOST, Origin, Setup, Usher, get, with_body};

/// Ends the workers, which hand over what they have.
pub(crate) fn end(usher: Usher) -> Arc<usher_edge::http::Plane> {
    let Usher { front, plane, .. } = usher;
    block_on(front.drain(Duration::from_millis(1)));
    front.stop();
    plane
}

pub(crate) fn scrape(plane: &Arc<usher_edge::http::Plane>) -> String {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(FrontMetrics(Arc::clone(plane))));
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, &registry).expect("encode");
    text
}

#[test]
fn each_request_is_one_line_with_these_keys() {
    let folder = tempfile::tempdir().expect("folder");
    let path = folder.path().join("access.log");
    let origin = Origin::new(|peer, _, _| {
        peer.message();
        peer.answer("200 OK", "four");
    });
    let mut setup = Setup::to(&[origin.address]);
    setup.access_log = AccessLog::open(LogTarget::File(path.clone())).expect("log");
    let usher = setup.start();
    usher.ask(&with_body("POST", "/a\"b?secret=1", "body!").replace(HOST, "Shop.Example.Com.:80"));
    usher.ask("GET / HTTP/1.1\r\nHost: evil.example.net\r\n\r\n");
    usher.ask("GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n");
    end(usher);
    let log = std::fs::read_to_string(&path).expect("log");
    let lines: Vec<_> = log.lines().collect();
    assert_eq!(lines.len(), 3, "{log}");
    let keys = |line: &str| {
        // No value holds a comma that is followed by a quote.
        let keys = line
            .trim_matches(['{', '}'])
            .split(",\"")
            .map(|pair| pair.trim_matches('"').split('"').next());
        keys.map(|key| key.unwrap_or_default().to_owned())
            .collect::<Vec<_>>()
    };
    for line in &lines {
        assert_eq!(
            keys(line),
            [
                "time",
                "request_id",
                "client",
                "method",
                "host",
                "path",
                "status",
                "bytes_in",
                "bytes_out",
                "duration_ms",
                "load_balancer",
                "pool",
                "endpoint",
                "upstream_ms",
                "attempts",
                "session",
                "room",
                "error",
                "tls",
                "protocol"
            ]
        );
    }
    for part in [
        r#""client":"127.0.0.1","method":"POST","host":"shop.example.com","path":"/a\"b","status":200,"#,
        r#""bytes_in":5,"bytes_out":4,"#,
        r#""load_balancer":"shop.example.com","pool":"eu","endpoint":"e0","#,
        r#""attempts":1,"session":"none","room":"none","error":null,"tls":null,"protocol":"HTTP/1.1"}"#,
    ] {
        assert!(lines[0].contains(part), "{part}\n{}", lines[0]);
    }
    assert!(
        lines[1].contains(r#""host":"evil.example.net","path":"/","status":404,"#),
        "{}",
        lines[1]
    );
    assert!(lines[1].contains(
        r#""load_balancer":null,"pool":null,"endpoint":null,"upstream_ms":null,"attempts":0"#
    ));
    assert!(
        lines[2].contains(r#""status":400,"#) && lines[2].contains(r#""error":"host-repeated""#),
        "{}",
        lines[2]
    );
}

#[test]
fn requests_are_counted_by_what_served_them_and_never_by_what_the_client_says() {
    let origin = Origin::echo();
    let folder = tempfile::tempdir().expect("folder");
    let path = folder.path().join("access.log");
    let mut setup = Setup::to(&[Origin::closed(), origin.address]);
    setup.access_log = AccessLog::open(LogTarget::File(path.clone())).expect("log");
    let usher = setup.start();
    for _ in 0..3 {
        usher.ask(&get("/"));
    }
    usher.ask("GET / HTTP/1.1\r\nHost: evil.example.net\r\n\r\n");
    usher.ask("GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n");
    let plane = end(usher);
    let text = scrape(&plane);
    // Chance may choose the second endpoint at once; the log knows.
    let log = std::fs::read_to_string(&path).expect("log");
    let failovers = log.matches(r#""attempts":2"#).count();
    let failovers =
        format!(r#"usher_failovers_total{{load_balancer="shop.example.com"}} {failovers}"#);
    for line in [
        &*failovers,
        r#"usher_http_requests_total{load_balancer="shop.example.com",pool="eu",endpoint="e1",code="200"} 3"#,
        r#"usher_http_requests_total{load_balancer="",pool="",endpoint="",code="404"} 1"#,
        r#"usher_http_requests_total{load_balancer="",pool="",endpoint="",code="400"} 1"#,
        r#"usher_http_request_seconds_count{load_balancer="shop.example.com"} 3"#,
        r#"usher_http_request_seconds_bucket{le="+Inf",load_balancer="shop.example.com"} 3"#,
        r#"usher_http_errors_total{reason="host-repeated"} 1"#,
        r#"usher_http_errors_total{reason="unknown-host"} 1"#,
        "usher_http_in_flight 0",
        "usher_http_connections 0",
        "usher_http_connections_accepted_total 5",
        "usher_access_log_dropped_total 0",
        "usher_http_panics_total 0",
    ] {
        assert!(text.lines().any(|found| found == line), "{line}\n{text}");
    }
    assert!(!text.contains("evil"), "{text}");
    assert!(
        text.contains("# TYPE usher_retries_denied counter"),
        "{text}"
    );
}

#[test]
fn requests_under_way_are_seen_while_they_are() {
    let origin = Origin::new(|peer, _, report| {
        peer.head();
        let _ = report.send("asked".to_owned());
        peer.exactly(2);
        peer.answer("200 OK", "");
    });
    let usher = Usher::to(&origin);
    let mut client = usher.client();
    client.send("POST / HTTP/1.1\r\nHost: shop.example.com\r\nContent-Length: 2\r\n\r\n");
    assert_eq!(origin.said(), "asked");
    assert_eq!(usher.plane.ledger().in_flight(), 1);
    let (snapshot, book) = usher.plane.counted();
    let open = || {
        use usher_core::snapshot::Counts as _;
        (0..snapshot.endpoints().len() as u32)
            .map(|ix| book.open_requests(usher_core::catalog::EndpointIx(ix)))
            .sum::<u32>()
    };
    assert_eq!(open(), 1);
    client.send("go");
    client.message();
    client.shut();
    client.ended();
    assert_eq!((usher.plane.ledger().in_flight(), open()), (0, 0));
}
