//! Real clients and real endpoints, unmodified, through usher.
#![allow(clippy::unwrap_used, clippy::wildcard_enum_match_arm, unreachable_pub)]

#[path = "../support/mod.rs"]
mod support;
