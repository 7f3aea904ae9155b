//! TLS on both sides of the front: certificates by name towards clients, trust towards endpoints.
//!
//! Every file is read and checked when the configuration is, so that a key which cannot be read is
//! a fault of that configuration and not of the first handshake. What was loaded is immutable and
//! swapped as a whole; a handshake that began with the old certificates ends with them.

mod client;
mod fault;
mod server;

pub use crate::file::FileFault;
pub use client::{ClientConfigs, TlsFailure, TrustProfile, failure};
pub use server::{Certificates, KeyPair, ServerConfigs};

use std::sync::Arc;

use rustls::crypto::CryptoProvider;

/// The one provider of cryptography: aws-lc-rs, with post-quantum key exchange preferred.
fn provider() -> Arc<CryptoProvider> {
    CryptoProvider::get_default().map_or_else(
        || Arc::new(rustls::crypto::aws_lc_rs::default_provider()),
        Arc::clone,
    )
}
