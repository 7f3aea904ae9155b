//! Probes against servers that follow a script, over real sockets.

mod answer;
mod authority;
mod connect;
mod order;
mod redirects;
mod request;
mod server;
mod tls;

use std::net::{IpAddr, Ipv4Addr};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use usher_core::catalog::{Address, CodeSet, HttpCheck};

use self::authority::Authority;
use self::server::{Closed, Hole, Server, read_head, reset, send, until_closed};
use super::*;
use crate::tls::TrustProfile;

const LOCAL: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
/// For probes that are to end before their timeout: long enough for a busy machine.
const AMPLE: Duration = Duration::from_secs(10);
/// For probes whose timeout is what the test is about.
const SHORT: Duration = Duration::from_millis(400);
const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nalive";

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
