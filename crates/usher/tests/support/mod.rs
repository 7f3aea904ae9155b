//! The kit of the end-to-end and conformance tests: the real binary, endpoints that follow a script
//! byte by byte, and clients that may misbehave.
//!
//! Everything blocks, on plain threads with one bound ([`PATIENCE`]) on every wait: a test reads as
//! the story on the wire, and one that hangs fails by itself. The message parser is a second one,
//! written apart from the product's, so that both sides of a test cannot share a mistake.
#![allow(dead_code, unused_imports, unreachable_pub, missing_docs)] // two test binaries, each with its own part of the kit
#![allow(clippy::unwrap_used, clippy::print_stderr)] // a test stops at what it did not expect

pub mod api;
pub mod browsers;
pub mod config;
pub mod endpoint;
pub mod hosts;
pub mod http2;
pub mod http2_endpoint;
pub mod load;
pub mod message;
pub mod process;
pub mod tls;
pub mod visitor;
pub mod websocket;
pub mod wire;

use std::time::{Duration, Instant};

pub use config::Config;
pub use endpoint::Endpoint;
pub use message::Message;
pub use process::Usher;
pub use visitor::Visitor;
pub use wire::Wire;

/// How long any single wait of a test may take. Longer than every deadline that a test configures.
pub const PATIENCE: Duration = Duration::from_secs(15);

/// Asks an outside process again and again until it answers what is hoped for. Only for facts of
/// which no event tells, such as a counter or a line in a file.
pub fn eventually<T>(what: &str, ask: impl FnMut() -> Option<T>) -> T {
    eventually_within(what, PATIENCE, ask)
}

/// As [`eventually`], for as long as is said.
pub fn eventually_within<T>(what: &str, within: Duration, mut ask: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + within;
    loop {
        if let Some(answer) = ask() {
            return answer;
        }
        assert!(Instant::now() < deadline, "not within {within:?}: {what}");
        std::thread::park_timeout(Duration::from_millis(10));
    }
}
