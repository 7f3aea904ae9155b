//! Real clients and real endpoints, unmodified, through usher.
//!
//! What is compared is a direct fetch with one through usher, by the same client from the same
//! server. With `USHER_SOAK=1` the long forms run: `make soak` and `scripts/show` set it.
#![allow(clippy::unwrap_used, clippy::wildcard_enum_match_arm, unreachable_pub)]
#![allow(clippy::print_stdout)] // the evidence, for `--nocapture`

#[path = "../support/mod.rs"]
mod support;

mod browsers;
mod dashboard;
mod described;
mod documents;
mod grpc;
mod handover;
mod load;
mod numbers;
mod programs;
mod room;
mod rules;
mod sdk;
mod sdk_browsers;
mod sdk_rooms;
mod streams;
mod websocket;

/// True when the long forms are asked for.
fn soak() -> bool {
    std::env::var_os("USHER_SOAK").is_some_and(|value| value == "1")
}
