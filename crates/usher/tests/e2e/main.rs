//! The binary from outside: real sockets, one file a theme.
#![allow(clippy::unwrap_used, clippy::wildcard_enum_match_arm, unreachable_pub)]

#[path = "../support/mod.rs"]
mod support;

mod routing;
