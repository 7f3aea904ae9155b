//! Certificates towards clients, chosen by the name in the handshake.
//!
//! An exact name beats a wildcard; a name that no certificate has gets the first certificate, so
//! that the visitor sees a page about a wrong name that can be clicked through or understood, and a
//! client without SNI is served at all. Several certificates for one name (RSA and ECDSA) are tried
//! in the order of the file until the client can verify one.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;

use arc_swap::ArcSwap;
use rustls::ServerConfig;
use rustls::crypto::aws_lc_rs::Ticketer;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use webpki::EndEntityCert;

use super::{FileFault, fault, provider};

/// TLS sessions that are kept for resumption by TLS 1.2 clients without tickets.
const SESSIONS_MAX: usize = 4096;

/// One entry of the file's `certificates:`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyPair {
    /// PEM file with the certificate, its issuers after it.
    pub cert: PathBuf,
    /// PEM file with its private key: RSA, ECDSA or Ed25519.
    pub key: PathBuf,
}

/// The certificates of a node, in the order of the file.
#[derive(Debug, Default)]
pub struct Certificates {
    certified: Vec<Arc<CertifiedKey>>,
    /// By name in lower case; a wildcard without its `*`, so `.example.com`.
    by_name: HashMap<Box<str>, Vec<usize>>,
}

impl Certificates {
    /// Reads and checks all of `pairs`.
    ///
    /// # Errors
    /// Every file that cannot be read, is no PEM, holds a key of another kind, or whose key does
    /// not belong to the certificate.
    pub fn load(pairs: &[KeyPair]) -> Result<Certificates, Vec<FileFault>> {
        let mut loaded = Certificates::default();
        let mut faults = Vec::new();
        for pair in pairs {
            match certify(pair) {
                Ok(certified) => loaded.add(certified),
                Err(found) => faults.extend(found),
            }
        }
        if faults.is_empty() {
            Ok(loaded)
        } else {
            Err(faults)
        }
    }

    /// Whether there is nothing to show to a client; every handshake then fails.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.certified.is_empty()
    }

    /// Whether a request for `host` on a connection that was opened for `sni` crosses from one
    /// certificate to another. The answer to such a request is 421.
    ///
    /// Both names in lower case. A client that named nobody has not contradicted itself.
    #[must_use]
    pub fn crosses(&self, sni: Option<&str>, host: &str) -> bool {
        let Some(sni) = sni.filter(|sni| *sni != host) else {
            return false;
        };
        let shown = self.choices(sni);
        !self
            .choices(host)
            .iter()
            .any(|choice| shown.contains(choice))
    }

    /// Certificates for `name`, the preferred one first; the default where none has it.
    fn choices(&self, name: &str) -> &[usize] {
        const DEFAULT: &[usize] = &[0];
        let exact = self.by_name.get(name);
        let wildcard = || self.by_name.get(&name[name.find('.')?..]);
        exact.or_else(wildcard).map_or(DEFAULT, Vec::as_slice)
    }

    fn add(&mut self, certified: CertifiedKey) {
        let place = self.certified.len();
        for name in names(&certified) {
            self.by_name.entry(name).or_default().push(place);
        }
        self.certified.push(Arc::new(certified));
    }

    fn choose(&self, hello: &ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let name = hello.server_name().unwrap_or_default();
        let found = self
            .choices(name)
            .iter()
            .filter_map(|&place| self.certified.get(place));
        let verifiable = |certified: &&Arc<CertifiedKey>| {
            certified
                .key
                .choose_scheme(hello.signature_schemes())
                .is_some()
        };
        let mut found = found.peekable();
        let preferred = found.peek().copied();
        found.find(verifiable).or(preferred).cloned()
    }
}

/// Every DNS name of the certificate, as a key of [`Certificates::by_name`].
fn names(certified: &CertifiedKey) -> Vec<Box<str>> {
    let Some(Ok(leaf)) = certified.cert.first().map(EndEntityCert::try_from) else {
        return Vec::new();
    };
    let mut names: Vec<Box<str>> = leaf
        .valid_dns_names()
        .map(|name| {
            name.strip_prefix('*')
                .unwrap_or(name)
                .to_ascii_lowercase()
                .into()
        })
        .collect();
    names.sort_unstable();
    names.dedup();
    names
}

fn certify(pair: &KeyPair) -> Result<CertifiedKey, Vec<FileFault>> {
    let (chain, key) = match (
        fault::certificates(&pair.cert),
        fault::private_key(&pair.key),
    ) {
        (Ok(chain), Ok(key)) => (chain, key),
        (chain, key) => return Err([chain.err(), key.err()].into_iter().flatten().collect()),
    };
    // Parsed before it is matched with the key, so that each fault names its own file.
    if let Some(Err(error)) = chain.first().map(EndEntityCert::try_from) {
        let what = format!("the certificate cannot be parsed: {error}");
        return Err(vec![FileFault::new(&pair.cert, what)]);
    }
    let key = provider()
        .key_provider
        .load_private_key(key)
        .map_err(|error| {
            vec![FileFault::new(
                &pair.key,
                format!("the private key cannot be used: {error}"),
            )]
        })?;
    let certified = CertifiedKey::new(chain, key);
    match certified.keys_match() {
        // A key that cannot say its public half is given the benefit of the doubt.
        Ok(()) | Err(rustls::Error::InconsistentKeys(rustls::InconsistentKeys::Unknown)) => {
            Ok(certified)
        }
        Err(_) => {
            let what = format!(
                "is not the key of the certificate in {}",
                pair.cert.display()
            );
            Err(vec![FileFault::new(&pair.key, what)])
        }
    }
}

/// Looks certificates up anew for each handshake, so that a swap needs no new listener.
#[derive(Debug)]
struct Current(Arc<ArcSwap<Certificates>>);

impl ResolvesServerCert for Current {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.0.load().choose(&hello)
    }
}

/// TLS towards clients: versions 1.2 and 1.3, HTTP/2 preferred.
#[derive(Debug, Clone)]
pub struct ServerConfigs(Arc<ServerConfig>);

impl ServerConfigs {
    /// Shows whatever `certificates` holds at the time of each handshake.
    ///
    /// # Errors
    /// The provider of cryptography has no randomness for the keys of session tickets.
    pub fn new(certificates: Arc<ArcSwap<Certificates>>) -> Result<ServerConfigs, rustls::Error> {
        let mut config = ServerConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_cert_resolver(Arc::new(Current(certificates)));
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        config.ticketer = Ticketer::new()?;
        config.session_storage = rustls::server::ServerSessionMemoryCache::new(SESSIONS_MAX);
        // One ticket is what a client that keeps its connections ever uses; two cost a second
        // record in every handshake.
        config.send_tls13_tickets = 1;
        Ok(ServerConfigs(Arc::new(config)))
    }

    /// The same for a listener that speaks HTTP/1.1 and nothing else.
    #[must_use]
    pub fn of_http1(&self) -> ServerConfigs {
        let mut config = ServerConfig::clone(&self.0);
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        ServerConfigs(Arc::new(config))
    }

    /// For one handshake.
    #[must_use]
    pub fn acceptor(&self) -> tokio_rustls::TlsAcceptor {
        tokio_rustls::TlsAcceptor::from(Arc::clone(&self.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    /// Writes a certificate for `names` and its key as `<stem>.pem` and `<stem>.key`.
    fn write(
        folder: &Path,
        stem: &str,
        names: &[&str],
        algorithm: &'static rcgen::SignatureAlgorithm,
    ) -> KeyPair {
        let key = rcgen::KeyPair::generate_for(algorithm).expect("key");
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let cert = rcgen::CertificateParams::new(names)
            .expect("names")
            .self_signed(&key)
            .expect("certificate");
        let pair = KeyPair {
            cert: folder.join(format!("{stem}.pem")),
            key: folder.join(format!("{stem}.key")),
        };
        std::fs::write(&pair.cert, cert.pem()).expect("write");
        std::fs::write(&pair.key, key.serialize_pem()).expect("write");
        pair
    }

    fn loaded(folder: &Path) -> Certificates {
        let pairs = [
            write(
                folder,
                "a",
                &["a.example.com", "Upper.example.com"],
                &rcgen::PKCS_ECDSA_P256_SHA256,
            ),
            write(
                folder,
                "b",
                &["*.example.com", "b.example.com"],
                &rcgen::PKCS_ED25519,
            ),
            write(folder, "c", &["a.example.com"], &rcgen::PKCS_RSA_SHA256),
        ];
        Certificates::load(&pairs).expect("fine")
    }

    #[test]
    fn an_exact_name_beats_a_wildcard_and_the_first_serves_the_rest() {
        let folder = tempfile::tempdir().expect("folder");
        let certificates = loaded(folder.path());
        let rows: [(&str, &[usize]); 7] = [
            ("a.example.com", &[0, 2]),
            ("upper.example.com", &[0]),
            ("b.example.com", &[1]),
            ("other.example.com", &[1]),
            ("deep.other.example.com", &[0]),
            ("example.com", &[0]),
            ("localhost", &[0]),
        ];
        for (name, expected) in rows {
            assert_eq!(certificates.choices(name), expected, "{name}");
        }
    }

    #[test]
    fn a_host_of_another_certificate_than_the_connections_is_told_apart() {
        let folder = tempfile::tempdir().expect("folder");
        let certificates = loaded(folder.path());
        let rows = [
            (None, "b.example.com", false),
            (Some("a.example.com"), "a.example.com", false),
            (Some("a.example.com"), "upper.example.com", false),
            (Some("a.example.com"), "b.example.com", true),
            (Some("b.example.com"), "other.example.com", false),
            (Some("other.example.com"), "a.example.com", true),
            // Both get the first certificate.
            (Some("nobody.example.net"), "else.example.net", false),
            (Some("nobody.example.net"), "b.example.com", true),
        ];
        for (sni, host, expected) in rows {
            assert_eq!(certificates.crosses(sni, host), expected, "{sni:?} {host}");
        }
    }

    #[test]
    fn every_file_that_cannot_be_used_is_named() {
        let folder = tempfile::tempdir().expect("folder");
        let path = |name: &str| folder.path().join(name);
        let good = write(folder.path(), "good", &["a"], &rcgen::PKCS_ED25519);
        let other = write(folder.path(), "other", &["a"], &rcgen::PKCS_ED25519);
        std::fs::write(path("empty"), "").expect("write");
        std::fs::write(
            path("garbage"),
            "-----BEGIN CERTIFICATE-----\n!\n-----END CERTIFICATE-----\n",
        )
        .expect("write");
        std::fs::write(
            path("locked"),
            "-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----\n",
        )
        .expect("write");
        let pairs = [
            KeyPair {
                cert: path("gone"),
                key: path("gone-too"),
            },
            KeyPair {
                cert: path("empty"),
                key: good.key.clone(),
            },
            KeyPair {
                cert: path("garbage"),
                key: path("locked"),
            },
            KeyPair {
                cert: good.cert.clone(),
                key: other.key,
            },
            KeyPair {
                cert: good.cert.clone(),
                key: good.cert.clone(),
            },
            good,
        ];
        let faults = Certificates::load(&pairs).expect_err("faults");
        let said: Vec<_> = faults
            .iter()
            .map(|fault| {
                fault
                    .to_string()
                    .replace(&format!("{}/", folder.path().display()), "")
            })
            .collect();
        assert_eq!(
            said,
            [
                "gone: no such file",
                "gone-too: no such file",
                "empty: holds no certificate",
                "garbage: is damaged, no certificate can be read from it",
                "locked: the private key is encrypted; store it without a passphrase",
                "other.key: is not the key of the certificate in good.pem",
                "good.pem: holds no private key",
            ]
        );
    }
}
