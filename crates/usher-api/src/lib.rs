//! REST compatible with the Cloudflare v4 API, and the wire shapes that file and API share.
//!
//! The words of that API (`origins`, `session_affinity`, ...) stop in this crate: what leaves it
//! towards the node is made of `usher-core`'s types.

pub mod access;
pub mod browsers;
mod dashboard;
mod envelope;
#[cfg(test)]
mod here;
mod lengths;
mod patient;
mod rest;
pub mod server;
pub mod wire;

pub use rest::{Assembler, Declared, Desired, Happened, Letter, What, account, inventory, letters};
