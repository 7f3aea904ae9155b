//! What can be wrong with a PEM file, said so that the operator knows which file to mend.

use std::path::Path;

use rustls_pki_types::pem::{self, PemObject as _};
use rustls_pki_types::{CertificateDer, PrivateKeyDer};

use crate::file::{self, FileFault};

/// More than any bundle of authorities needs.
const PEM_BYTES_MAX: u64 = 16 << 20;

/// The certificates of a PEM file, in its order; at least one.
pub(super) fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, FileFault> {
    let pem = file::read(path, PEM_BYTES_MAX)?.bytes;
    let found = CertificateDer::pem_slice_iter(&pem).collect::<Result<Vec<_>, _>>();
    match found {
        Ok(found) if found.is_empty() => Err(FileFault::new(path, "holds no certificate")),
        Ok(found) => Ok(found),
        Err(error) => Err(FileFault::new(path, what(&error, "certificate"))),
    }
}

/// The private key of a PEM file; the first if there are several.
pub(super) fn private_key(path: &Path) -> Result<PrivateKeyDer<'static>, FileFault> {
    let pem = file::read(path, PEM_BYTES_MAX)?.bytes;
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
