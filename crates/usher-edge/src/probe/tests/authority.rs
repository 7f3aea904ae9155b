//! A certificate authority, and servers with its certificates.

use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::ServerConfig;
use rustls::server::WebPkiClientVerifier;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::TlsAcceptor;

use super::server::finish;
use super::*;

/// A certificate authority in a folder of its own.
pub(super) struct Authority {
    issuer: Issuer<'static, KeyPair>,
    der: CertificateDer<'static>,
    folder: tempfile::TempDir,
}

impl Authority {
    pub(super) fn new() -> Authority {
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

    pub(super) fn file(&self, name: &str) -> String {
        let path: PathBuf = self.folder.path().join(name);
        path.into_os_string().into_string().expect("UTF-8")
    }

    pub(super) fn ca_file(&self) -> String {
        self.file("ca.pem")
    }

    pub(super) fn client_files(&self) -> (String, String) {
        (self.file("client.pem"), self.file("client.key"))
    }

    pub(super) fn sign(
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

    pub(super) fn pair(
        &self,
        names: &[&str],
        change: impl FnOnce(&mut CertificateParams),
    ) -> (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>) {
        let (certificate, key) = self.sign(names, change);
        let key = PrivateKeyDer::try_from(key.serialize_der()).expect("a key");
        (vec![certificate.der().clone()], key)
    }

    pub(super) async fn server(
        &self,
        names: &[&str],
        change: impl FnOnce(&mut CertificateParams),
    ) -> Server {
        let (chain, key) = self.pair(names, change);
        let config = ServerConfig::builder()
            .with_no_client_auth()
            .with_single_cert(chain, key);
        serve_tls(config.expect("a pair"), OK).await
    }

    pub(super) async fn answering(&self, names: &[&str], answer: &str) -> Server {
        let (chain, key) = self.pair(names, |_| {});
        let config = ServerConfig::builder()
            .with_no_client_auth()
            .with_single_cert(chain, key);
        serve_tls(config.expect("a pair"), answer).await
    }

    /// Wants a client certificate of this authority.
    pub(super) async fn demanding_server(&self, names: &[&str]) -> Server {
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

    pub(super) fn probe(&self, port: u16, sni: Option<&str>) -> Probe {
        Probe {
            host: sni.unwrap_or("127.0.0.1").into(),
            sni: sni.map(Into::into),
            ca: Some(self.ca_file()),
            ..https(port, |_| {})
        }
    }

    pub(super) fn prober(&self) -> Prober {
        self.prober_with(Lookup::system())
    }

    pub(super) fn prober_with(&self, lookup: Lookup) -> Prober {
        let (ca, (cert, key)) = (self.ca_file(), self.client_files());
        let kind = https(0, follow).kind;
        let mut profiles = trust_profiles(&kind, Some(&ca), Some((&cert, &key)));
        profiles.extend(trust_profiles(&insecure(0).kind, None, None));
        let clients = Arc::new(ClientConfigs::load(profiles).expect("sound files"));
        Prober::new(lookup, Arc::default(), move || Arc::clone(&clients))
    }
}

pub(super) async fn serve_tls(config: ServerConfig, answer: &str) -> Server {
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
