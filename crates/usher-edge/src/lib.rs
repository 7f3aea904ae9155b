//! Fronts and probes: bytes in, one call to the core, bytes out.
//!
//! A front never opens a store and never chooses: it reads a request, calls
//! `usher_core::snapshot::Snapshot::decide` and does what the decision says.

pub mod file;
pub mod geo;
pub mod http;
pub mod http1;
pub mod probe;
pub mod resolve;
pub mod seal;
pub mod tls;
pub mod webhook;
