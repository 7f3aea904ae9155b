//! What can be wrong with a PEM file, said so that the operator knows which file to mend.

use std::io;
use std::path::{Path, PathBuf};

use rustls_pki_types::pem::{self, PemObject as _};
use rustls_pki_types::{CertificateDer, PrivateKeyDer};

/// A file that TLS needs and cannot use.
#[derive(Debug, thiserror::Error)]
#[error("{}: {what}", path.display())]
pub struct FileFault {
    /// The file.
    pub path: PathBuf,
    /// What is wrong with it.
    pub what: String,
}

impl FileFault {
    pub(super) fn new(path: &Path, what: impl Into<String>) -> FileFault {
        FileFault {
            path: path.to_owned(),
            what: what.into(),
        }
    }
}

/// The certificates of a PEM file, in its order; at least one.
pub(super) fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, FileFault> {
    let pem = read(path)?;
    let found = CertificateDer::pem_slice_iter(&pem).collect::<Result<Vec<_>, _>>();
    match found {
        Ok(found) if found.is_empty() => Err(FileFault::new(path, "holds no certificate")),
        Ok(found) => Ok(found),
        Err(error) => Err(FileFault::new(path, what(&error, "certificate"))),
    }
}

/// The private key of a PEM file; the first if there are several.
pub(super) fn private_key(path: &Path) -> Result<PrivateKeyDer<'static>, FileFault> {
    let pem = read(path)?;
    PrivateKeyDer::from_pem_slice(&pem).map_err(|error| {
        let encrypted = pem.windows(9).any(|word| word == b"ENCRYPTED");
        match error {
            pem::Error::NoItemsFound if encrypted => FileFault::new(
                path,
                "the private key is encrypted; store it without a passphrase",
            ),
            _ => FileFault::new(path, what(&error, "private key")),
        }
    })
}

fn what(error: &pem::Error, item: &str) -> String {
    match error {
        pem::Error::NoItemsFound => format!("holds no {item}"),
        // The parser's own words are about base64 and help nobody.
        _ => format!("is damaged, no {item} can be read from it"),
    }
}

fn read(path: &Path) -> Result<Vec<u8>, FileFault> {
    std::fs::read(path).map_err(|error| {
        let what = match error.kind() {
            io::ErrorKind::NotFound => "no such file".to_owned(),
            io::ErrorKind::PermissionDenied => "this process may not read it".to_owned(),
            _ => format!("cannot be read: {error}"),
        };
        FileFault::new(path, what)
    })
}
