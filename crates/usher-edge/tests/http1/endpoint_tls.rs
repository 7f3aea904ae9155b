//! TLS towards endpoints: which certificates are taken, and what the client is told otherwise.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;

use rustls::{ServerConfig, ServerConnection, StreamOwned};
use rustls_pki_types::PrivateKeyDer;
use usher_core::catalog::{EndpointTls, Ssl, TlsMode};

use super::kit::{HOST, Origin, PATIENCE, Setup, Usher, get, status};

/// An endpoint with a certificate of its own for `name`.
struct Secure {
    address: SocketAddr,
    pem: String,
    /// The name that each connection asked for.
    names: Receiver<Option<String>>,
}

impl Secure {
    fn new(name: &str) -> Secure {
        let made = rcgen::generate_simple_self_signed([name.to_owned()]).expect("certificate");
        let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).expect("key");
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_no_client_auth()
            .with_single_cert(vec![made.cert.der().clone()], key)
            .expect("config");
        let config = Arc::new(config);
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("bind");
        let address = listener.local_addr().expect("address");
        let (report, names) = channel();
        thread::spawn(move || {
            for socket in listener.incoming() {
                let (Ok(socket), Ok(session)) =
                    (socket, ServerConnection::new(Arc::clone(&config)))
                else {
                    return;
                };
                let report = report.clone();
                thread::spawn(move || {
                    let mut stream = StreamOwned::new(session, socket);
                    let mut read = Vec::new();
                    let mut piece = [0; 4096];
                    let mut first = true;
                    while let Ok(count @ 1..) = stream.read(&mut piece) {
                        if std::mem::take(&mut first) {
                            let _ = report.send(stream.conn.server_name().map(str::to_owned));
                        }
                        read.extend_from_slice(&piece[..count]);
                        if read.ends_with(b"\r\n\r\n") {
                            read.clear();
                            let _ = stream
                                .write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nsecret");
                        }
                    }
                });
            }
        });
        Secure {
            address,
            pem: made.cert.pem(),
            names,
        }
    }

    fn name(&self) -> Option<String> {
        self.names.recv_timeout(PATIENCE).expect("a connection")
    }
}

fn usher(endpoint: SocketAddr, tls: EndpointTls) -> Usher {
    let mut setup = Setup::to(&[endpoint]);
    setup.tls = tls;
    setup.start()
}

#[test]
fn full_takes_any_certificate_and_asks_for_the_host() {
    let origin = Secure::new("whoever.example.net");
    let mut setup = Setup::to(&[origin.address]);
    setup.ssl = Ssl::Full;
    let usher = setup.start();
    for _ in 0..2 {
        assert_eq!(usher.ask(&get("/")).1, "secret");
    }
    assert_eq!(origin.name().as_deref(), Some(HOST));
    assert!(
        origin.names.try_recv().is_err(),
        "the connection is used again"
    );
}

#[test]
fn strict_takes_the_certificate_of_a_trusted_authority_for_the_right_name() {
    let origin = Secure::new("internal.example.com");
    let folder = tempfile::tempdir().expect("folder");
    let ca = folder.path().join("ca.pem");
    std::fs::write(&ca, &origin.pem).expect("write");
    let strict = EndpointTls {
        mode: Some(TlsMode::Strict),
        ca: Some(ca.to_str().expect("path").to_owned()),
        sni: Some("internal.example.com".to_owned()),
        ..EndpointTls::default()
    };
    assert_eq!(
        usher(origin.address, strict.clone()).ask(&get("/")).1,
        "secret"
    );
    assert_eq!(origin.name().as_deref(), Some("internal.example.com"));
    let wrong = EndpointTls {
        sni: Some("other.example.com".to_owned()),
        ..strict
    };
    assert_eq!(status(&usher(origin.address, wrong).ask(&get("/")).0), 526);
}

#[test]
fn strict_refuses_a_certificate_of_nobody() {
    let origin = Secure::new(HOST);
    let strict = EndpointTls {
        mode: Some(TlsMode::Strict),
        ..EndpointTls::default()
    };
    assert_eq!(status(&usher(origin.address, strict).ask(&get("/")).0), 526);
}

#[test]
fn what_is_no_tls_is_525() {
    let plain = Origin::new(|peer, _, _| {
        peer.try_send("HTTP/1.1 400 Bad Request\r\n\r\n");
    });
    let silent = Origin::new(|peer, _, _| drop(peer.rest()));
    for origin in [plain, silent] {
        let mut setup = Setup::to(&[origin.address]);
        setup.ssl = Ssl::Full;
        setup.settings.timeouts.tls_handshake = Duration::from_millis(150);
        assert_eq!(status(&setup.start().ask(&get("/")).0), 525);
    }
}
