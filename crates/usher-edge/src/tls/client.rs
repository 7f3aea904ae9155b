//! Trust towards endpoints, for traffic and probes alike.
//!
//! One rustls configuration for each different answer to "whom do we trust, and who are we":
//! building one costs milliseconds (the system's authorities are parsed), and connections of one
//! configuration share its sessions.

use std::collections::HashMap;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::CryptoProvider;
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};
use rustls_pki_types::{CertificateDer, ServerName, UnixTime};

use super::{FileFault, fault, provider};

/// Whom to trust towards an endpoint, and which certificate to show it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TrustProfile {
    /// Whether the endpoint's certificate is checked. Default false: any certificate will do, but
    /// the endpoint must still hold its key.
    pub verify: bool,
    /// PEM file with the authorities to trust instead of the system's.
    pub ca: Option<PathBuf>,
    /// PEM file with the certificate to show. Needs `client_key`.
    pub client_cert: Option<PathBuf>,
    /// PEM file with the key of `client_cert`.
    pub client_key: Option<PathBuf>,
}

/// Configurations of all profiles that a catalog needs.
#[derive(Debug, Default)]
pub struct ClientConfigs(HashMap<TrustProfile, Arc<ClientConfig>>);

impl ClientConfigs {
    /// Reads and checks the files of all `profiles`.
    ///
    /// # Errors
    /// Every file that cannot be used, and a certificate without its key or the reverse.
    pub fn load(
        profiles: impl IntoIterator<Item = TrustProfile>,
    ) -> Result<ClientConfigs, Vec<FileFault>> {
        let mut configs = HashMap::new();
        let mut faults = Vec::new();
        for profile in profiles {
            if configs.contains_key(&profile) {
                continue;
            }
            match configure(&profile) {
                Ok(config) => drop(configs.insert(profile, Arc::new(config))),
                Err(found) => faults.extend(found),
            }
        }
        if faults.is_empty() {
            Ok(ClientConfigs(configs))
        } else {
            Err(faults)
        }
    }

    /// The configuration of a profile that was loaded.
    #[must_use]
    pub fn get(&self, profile: &TrustProfile) -> Option<&Arc<ClientConfig>> {
        self.0.get(profile)
    }
}

fn configure(profile: &TrustProfile) -> Result<ClientConfig, Vec<FileFault>> {
    let builder = ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .expect("the provider has suites for the default versions");
    let builder = if profile.verify {
        let roots = roots(profile.ca.as_ref()).map_err(|fault| vec![fault])?;
        let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider())
            .build()
            .map_err(|error| {
                let path = profile
                    .ca
                    .clone()
                    .unwrap_or_else(|| PathBuf::from("system trust store"));
                vec![FileFault {
                    path,
                    what: format!("cannot be trusted: {error}"),
                }]
            })?;
        builder
            .dangerous()
            .with_custom_certificate_verifier(verifier)
    } else {
        let any = AnyCertificate(provider());
        builder
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(any))
    };
    let (cert, key) = match (&profile.client_cert, &profile.client_key) {
        (None, None) => return Ok(builder.with_no_client_auth()),
        (Some(cert), Some(key)) => (cert, key),
        (Some(cert), None) => {
            return Err(vec![FileFault::new(
                cert,
                "client_cert needs client_key beside it",
            )]);
        }
        (None, Some(key)) => {
            return Err(vec![FileFault::new(
                key,
                "client_key needs client_cert beside it",
            )]);
        }
    };
    match (fault::certificates(cert), fault::private_key(key)) {
        (Ok(chain), Ok(private)) => {
            builder
                .with_client_auth_cert(chain, private)
                .map_err(|error| {
                    vec![FileFault::new(
                        key,
                        format!("does not fit client_cert: {error}"),
                    )]
                })
        }
        (chain, key) => Err([chain.err(), key.err()].into_iter().flatten().collect()),
    }
}

fn roots(ca: Option<&PathBuf>) -> Result<RootCertStore, FileFault> {
    let mut roots = RootCertStore::empty();
    let Some(path) = ca else {
        // A system store may hold certificates that webpki does not take; the others still count.
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        if roots.is_empty() {
            let what = "holds no certificate; install ca-certificates or name a `ca` file";
            return Err(FileFault::new("system trust store".as_ref(), what));
        }
        return Ok(roots);
    };
    for certificate in fault::certificates(path)? {
        roots.add(certificate).map_err(|error| {
            FileFault::new(
                path,
                format!("holds a certificate that cannot be trusted: {error}"),
            )
        })?;
    }
    Ok(roots)
}

/// Takes any certificate, but not a peer that lacks the key of the one it shows.
#[derive(Debug)]
struct AnyCertificate(Arc<CryptoProvider>);

impl ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, cert, dss, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, cert, dss, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

/// Why a TLS connection to an endpoint did not come about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TlsFailure {
    /// The handshake failed: 525.
    Handshake,
    /// The endpoint's certificate is not valid for it: 526.
    Certificate,
}

/// What `error`, from a handshake with an endpoint, says.
#[must_use]
pub fn failure(error: &io::Error) -> TlsFailure {
    let cause = error
        .get_ref()
        .and_then(|cause| cause.downcast_ref::<rustls::Error>());
    match cause {
        Some(rustls::Error::InvalidCertificate(_) | rustls::Error::NoCertificatesPresented) => {
            TlsFailure::Certificate
        }
        _ => TlsFailure::Handshake,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    fn write(folder: &Path, stem: &str) -> (PathBuf, PathBuf) {
        let made =
            rcgen::generate_simple_self_signed(["a.example.com".to_owned()]).expect("certificate");
        let paths = (
            folder.join(format!("{stem}.pem")),
            folder.join(format!("{stem}.key")),
        );
        std::fs::write(&paths.0, made.cert.pem()).expect("write");
        std::fs::write(&paths.1, made.signing_key.serialize_pem()).expect("write");
        paths
    }

    #[test]
    fn equal_profiles_share_one_configuration() {
        let folder = tempfile::tempdir().expect("folder");
        let (ca, _) = write(folder.path(), "ca");
        let checked = TrustProfile {
            verify: true,
            ca: Some(ca),
            ..TrustProfile::default()
        };
        let any = TrustProfile::default();
        let configs =
            ClientConfigs::load([checked.clone(), any.clone(), checked.clone()]).expect("fine");
        assert_eq!(configs.0.len(), 2);
        assert!(configs.get(&checked).is_some() && configs.get(&any).is_some());
        let unknown = TrustProfile {
            verify: true,
            ca: Some("other.pem".into()),
            ..TrustProfile::default()
        };
        assert!(configs.get(&unknown).is_none());
    }

    #[test]
    fn every_file_that_cannot_be_used_is_named() {
        let folder = tempfile::tempdir().expect("folder");
        let path = |name: &str| folder.path().join(name);
        let (cert, key) = write(folder.path(), "good");
        let (_, other) = write(folder.path(), "other");
        std::fs::write(path("empty"), "").expect("write");
        let trusted = |ca: PathBuf| TrustProfile {
            verify: true,
            ca: Some(ca),
            ..TrustProfile::default()
        };
        let shown = |client_cert, client_key| TrustProfile {
            client_cert,
            client_key,
            ..TrustProfile::default()
        };
        let faults = ClientConfigs::load([
            trusted(path("gone")),
            trusted(path("empty")),
            shown(Some(cert.clone()), None),
            shown(None, Some(key.clone())),
            shown(Some(path("gone")), Some(path("empty"))),
            shown(Some(cert.clone()), Some(other)),
            shown(Some(cert), Some(key)),
        ]);
        let prefix = format!("{}/", folder.path().display());
        let said: Vec<_> = faults
            .expect_err("faults")
            .iter()
            .map(|fault| fault.to_string().replace(&prefix, ""))
            .collect();
        assert_eq!(said.len(), 7, "{said:#?}");
        for (said, expected) in said.iter().zip([
            "gone: no such file",
            "empty: holds no certificate",
            "good.pem: client_cert needs client_key beside it",
            "good.key: client_key needs client_cert beside it",
            "gone: no such file",
            "empty: holds no private key",
            "other.key: does not fit client_cert",
        ]) {
            assert!(said.starts_with(expected), "{said}");
        }
    }

    #[test]
    fn what_a_failed_handshake_says() {
        let of = |error: rustls::Error| failure(&io::Error::new(io::ErrorKind::InvalidData, error));
        let expired = rustls::Error::InvalidCertificate(rustls::CertificateError::Expired);
        assert_eq!(of(expired), TlsFailure::Certificate);
        assert_eq!(
            of(rustls::Error::NoCertificatesPresented),
            TlsFailure::Certificate
        );
        assert_eq!(
            of(rustls::Error::HandshakeNotComplete),
            TlsFailure::Handshake
        );
        assert_eq!(
            failure(&io::ErrorKind::UnexpectedEof.into()),
            TlsFailure::Handshake
        );
    }
}
