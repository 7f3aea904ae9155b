//! Certificates of the tests' own, and connections over them.

use std::net::{SocketAddr, TcpStream};
use std::sync::{Arc, Once};

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{
    ClientConfig, ClientConnection, RootCertStore, ServerConfig, ServerConnection, StreamOwned,
};

use super::wire::Wire;

/// A certificate authority that lives as long as its test.
pub struct Authority {
    certificate: CertificateDer<'static>,
    pem: String,
    issuer: Issuer<'static, KeyPair>,
}

/// A certificate and its key, as PEM.
pub struct Pair {
    pub certificate: String,
    pub key: String,
    der: CertificateDer<'static>,
    key_pair: KeyPair,
}

impl Authority {
    pub fn new() -> Self {
        provide_crypto();
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(Vec::<String>::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params
            .distinguished_name
            .push(DnType::CommonName, "test authority");
        let certificate = params.self_signed(&key).unwrap();
        let (der, pem) = (certificate.der().clone(), certificate.pem());
        Self {
            certificate: der,
            pem,
            issuer: Issuer::new(params, key),
        }
    }

    /// The authority's own certificate, as PEM.
    pub fn pem(&self) -> &str {
        &self.pem
    }

    /// A certificate for these names.
    pub fn pair(&self, names: &[&str]) -> Pair {
        let key_pair = KeyPair::generate().unwrap();
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let certificate = CertificateParams::new(names)
            .unwrap()
            .signed_by(&key_pair, &self.issuer)
            .unwrap();
        Pair {
            certificate: certificate.pem(),
            key: key_pair.serialize_pem(),
            der: certificate.der().clone(),
            key_pair,
        }
    }

    /// A client that trusts this authority only.
    pub fn client(&self, alpn: &[&str]) -> Arc<ClientConfig> {
        let mut roots = RootCertStore::empty();
        roots.add(self.certificate.clone()).unwrap();
        let mut config = ClientConfig::builder()
            .with_root_certificates(roots)
            .with_no_client_auth();
        config.alpn_protocols = alpn.iter().map(|name| name.as_bytes().to_vec()).collect();
        Arc::new(config)
    }

    /// A connection with a finished handshake, or why there is none.
    pub fn try_connect(
        &self,
        address: SocketAddr,
        name: &str,
        alpn: &[&str],
    ) -> Result<Secured, std::io::Error> {
        let name = ServerName::try_from(name.to_owned()).unwrap();
        let mut session = ClientConnection::new(self.client(alpn), name).unwrap();
        let mut socket = TcpStream::connect(address)?;
        socket.set_read_timeout(Some(super::PATIENCE))?;
        while session.is_handshaking() {
            session.complete_io(&mut socket)?;
        }
        let certificate = session.peer_certificates().unwrap()[0].clone();
        let alpn = session
            .alpn_protocol()
            .map(|name| String::from_utf8_lossy(name).into_owned());
        let clone = socket.try_clone()?;
        Ok(Secured {
            wire: Wire::with(clone, StreamOwned::new(session, socket)),
            certificate,
            alpn,
        })
    }

    /// An HTTP/1.1 connection.
    pub fn connect(&self, address: SocketAddr, name: &str) -> Wire {
        self.try_connect(address, name, &["http/1.1"])
            .unwrap_or_else(|e| panic!("TLS handshake for {name}: {e}"))
            .wire
    }
}

/// A connection after its handshake.
pub struct Secured {
    pub wire: Wire,
    /// What the server showed.
    pub certificate: CertificateDer<'static>,
    /// The protocol that was agreed on.
    pub alpn: Option<String>,
}

impl Pair {
    /// True when this is the certificate that a server showed.
    pub fn is(&self, shown: &CertificateDer<'_>) -> bool {
        self.der == *shown
    }

    /// A server that shows this certificate and speaks these protocols.
    pub fn server(&self, alpn: &[&str]) -> Arc<ServerConfig> {
        let key = rustls::pki_types::PrivatePkcs8KeyDer::from(self.key_pair.serialize_der());
        let mut config = ServerConfig::builder()
            .with_no_client_auth()
            .with_single_cert(vec![self.der.clone()], key.into())
            .unwrap();
        config.alpn_protocols = alpn.iter().map(|name| name.as_bytes().to_vec()).collect();
        Arc::new(config)
    }

    /// A server's side of a connection with this certificate; None when the handshake fails.
    pub fn accept(&self, mut socket: TcpStream) -> Option<Wire> {
        let mut session = ServerConnection::new(self.server(&[])).unwrap();
        while session.is_handshaking() {
            session.complete_io(&mut socket).ok()?;
        }
        let clone = socket.try_clone().unwrap();
        Some(Wire::with(clone, StreamOwned::new(session, socket)))
    }
}

/// One provider for the whole test binary, as the product has.
pub fn provide_crypto() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    });
}
