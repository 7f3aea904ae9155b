//! TLS towards clients: which certificate, which protocol, and what does not get that far.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use rustls_pki_types::{CertificateDer, ServerName};
use usher_core::request::Scheme;
use usher_edge::tls::{Certificates, KeyPair};

use crate::kit::{HOST, Origin, PATIENCE, Setup, Usher};

/// An authority, and a folder with certificates that it signed.
pub(crate) struct Authority {
    folder: tempfile::TempDir,
    issuer: rcgen::CertifiedIssuer<'static, rcgen::KeyPair>,
}

impl Authority {
    pub(crate) fn new() -> Authority {
        let mut params = rcgen::CertificateParams::new(Vec::new()).expect("params");
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        let key = rcgen::KeyPair::generate().expect("key");
        let issuer = rcgen::CertifiedIssuer::self_signed(params, key).expect("authority");
        Authority {
            folder: tempfile::tempdir().expect("folder"),
            issuer,
        }
    }

    pub(crate) fn pair(&self, name: &str) -> KeyPair {
        let key = rcgen::KeyPair::generate().expect("key");
        let params = rcgen::CertificateParams::new([name.to_owned()]).expect("name");
        let cert = params.signed_by(&key, &self.issuer).expect("certificate");
        let path = |end: &str| {
            self.folder
                .path()
                .join(format!("{}.{end}", name.replace('*', "any")))
        };
        let pair = KeyPair {
            cert: path("pem"),
            key: path("key"),
        };
        std::fs::write(&pair.cert, cert.pem()).expect("write");
        std::fs::write(&pair.key, key.serialize_pem()).expect("write");
        pair
    }

    pub(crate) fn certificates(&self, names: &[&str]) -> Certificates {
        let pairs: Vec<_> = names.iter().map(|name| self.pair(name)).collect();
        Certificates::load(&pairs).expect("certificates")
    }

    pub(crate) fn client(
        &self,
        versions: &[&'static rustls::SupportedProtocolVersion],
        alpn: &[&[u8]],
    ) -> Arc<ClientConfig> {
        let mut roots = RootCertStore::empty();
        roots.add(self.issuer.der().clone()).expect("root");
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let mut config = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(versions)
            .expect("versions")
            .with_root_certificates(roots)
            .with_no_client_auth();
        config.alpn_protocols = alpn.iter().map(|name| name.to_vec()).collect();
        Arc::new(config)
    }
}

type Secure = StreamOwned<ClientConnection, TcpStream>;

fn connect(address: SocketAddr, config: &Arc<ClientConfig>, name: &str) -> std::io::Result<Secure> {
    let name = ServerName::try_from(name.to_owned()).expect("name");
    let mut client = ClientConnection::new(Arc::clone(config), name).expect("client");
    let mut socket = TcpStream::connect(address).expect("connect");
    socket.set_read_timeout(Some(PATIENCE)).expect("timeout");
    while client.is_handshaking() {
        client.complete_io(&mut socket)?;
    }
    Ok(StreamOwned::new(client, socket))
}

fn ask(secure: &mut Secure, host: &str) -> String {
    write!(secure, "GET / HTTP/1.1\r\nHost: {host}\r\n\r\n").expect("write");
    let mut answer = Vec::new();
    let mut piece = [0; 4096];
    loop {
        let count = secure.read(&mut piece).expect("read");
        assert!(count > 0, "the connection ended");
        answer.extend_from_slice(&piece[..count]);
        let text = String::from_utf8_lossy(&answer).to_lowercase();
        let Some((head, body)) = text.split_once("\r\n\r\n") else {
            continue;
        };
        let length = head
            .split("content-length: ")
            .nth(1)
            .and_then(|rest| rest.lines().next());
        if body.len() >= length.expect("a length").parse().expect("a number") {
            return text;
        }
    }
}

fn shown(secure: &Secure) -> CertificateDer<'static> {
    secure.conn.peer_certificates().expect("certificates")[0]
        .clone()
        .into_owned()
}

fn listen(usher: &Usher) -> SocketAddr {
    let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    usher
        .front
        .listen(any, Scheme::Https)
        .expect("listen")
        .address
}

fn start(authority: &Authority, names: &[&str], origin: &Origin) -> (Usher, SocketAddr) {
    let mut setup = Setup::to(&[origin.address]);
    setup.certificates = authority.certificates(names);
    let usher = setup.start();
    let address = listen(&usher);
    (usher, address)
}

#[test]
fn both_versions_are_spoken_and_the_endpoint_is_told_of_tls() {
    let (authority, origin) = (Authority::new(), Origin::echo());
    let (_usher, address) = start(&authority, &[HOST], &origin);
    for version in [&rustls::version::TLS12, &rustls::version::TLS13] {
        let mut secure =
            connect(address, &authority.client(&[version], &[]), HOST).expect("handshake");
        for _ in 0..2 {
            let answer = ask(&mut secure, HOST);
            assert!(
                answer.starts_with("http/1.1 200") && answer.contains("x-forwarded-proto: https"),
                "{answer}"
            );
        }
    }
}

#[test]
fn key_exchange_is_post_quantum_where_the_client_can() {
    let (authority, origin) = (Authority::new(), Origin::echo());
    let (_usher, address) = start(&authority, &[HOST], &origin);
    let secure = connect(
        address,
        &authority.client(&[&rustls::version::TLS13], &[]),
        HOST,
    )
    .expect("handshake");
    let group = secure
        .conn
        .negotiated_key_exchange_group()
        .expect("a group");
    assert_eq!(group.name(), rustls::NamedGroup::X25519MLKEM768);
}

#[test]
fn the_protocol_is_settled_in_the_handshake() {
    let (authority, origin) = (Authority::new(), Origin::echo());
    let (_usher, address) = start(&authority, &[HOST], &origin);
    type Row = (&'static [&'static [u8]], Option<&'static [u8]>);
    let rows: [Row; 4] = [
        (&[b"h2", b"http/1.1"], Some(b"h2")),
        (&[b"http/1.1", b"h2"], Some(b"h2")),
        (&[b"http/1.1"], Some(b"http/1.1")),
        (&[], None),
    ];
    for (offered, expected) in rows {
        let secure = connect(
            address,
            &authority.client(rustls::ALL_VERSIONS, offered),
            HOST,
        )
        .expect("handshake");
        assert_eq!(secure.conn.alpn_protocol(), expected);
    }
    let other = authority.client(rustls::ALL_VERSIONS, &[b"smtp"]);
    assert!(connect(address, &other, HOST).is_err(), "nothing in common");
}

#[test]
fn certificates_are_swapped_under_open_connections() {
    let (authority, origin) = (Authority::new(), Origin::echo());
    let (usher, address) = start(&authority, &[HOST], &origin);
    let config = authority.client(rustls::ALL_VERSIONS, &[]);
    let mut before = connect(address, &config, HOST).expect("handshake");
    ask(&mut before, HOST);
    usher
        .plane
        .certify(authority.certificates(&[HOST, "new.example.com"]));
    let after =
        connect(address, &authority.client(rustls::ALL_VERSIONS, &[]), HOST).expect("handshake");
    assert_ne!(shown(&before), shown(&after));
    connect(address, &config, "new.example.com").expect("a name that was not there");
    assert!(ask(&mut before, HOST).starts_with("http/1.1 200"));
}

#[test]
fn a_host_of_another_certificate_is_misdirected() {
    let (authority, origin) = (Authority::new(), Origin::echo());
    let (_usher, address) = start(
        &authority,
        &["a.example.net", HOST, "*.example.org"],
        &origin,
    );
    let config = authority.client(rustls::ALL_VERSIONS, &[]);
    let mut secure = connect(address, &config, "a.example.net").expect("handshake");
    assert!(ask(&mut secure, HOST).starts_with("http/1.1 421"));
    let mut secure = connect(address, &config, "x.example.org").expect("handshake");
    assert!(ask(&mut secure, "y.example.org").starts_with("http/1.1 404"));
}

#[test]
fn who_does_not_finish_the_handshake_is_let_go() {
    let (authority, origin) = (Authority::new(), Origin::echo());
    let mut setup = Setup::to(&[origin.address]);
    setup.certificates = authority.certificates(&[HOST]);
    setup.settings.timeouts.tls_handshake = Duration::from_millis(50);
    let usher = setup.start();
    let address = listen(&usher);
    for said in [
        &b""[..],
        b"\x16\x03\x01",
        b"GET / HTTP/1.1\r\nHost: shop.example.com\r\n\r\n",
    ] {
        let mut client = TcpStream::connect(address).expect("connect");
        client.set_read_timeout(Some(PATIENCE)).expect("timeout");
        client.write_all(said).expect("write");
        let mut rest = Vec::new();
        // Reset or closed, perhaps after an alert; but not left open.
        match client.read_to_end(&mut rest) {
            Ok(_) => {}
            Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset, "{error}"),
        }
    }
}
