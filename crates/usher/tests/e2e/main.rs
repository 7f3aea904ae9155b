//! The binary from outside: real sockets, one file a theme.
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::wildcard_enum_match_arm,
    unreachable_pub
)]

#[path = "../support/mod.rs"]
mod support;

mod access_log;
mod agreement;
mod api_faults;
mod apply;
mod bad_input;
mod bodies;
mod browser_host;
mod browsers;
mod browsers_api;
mod browsers_churn;
mod browsers_killed;
mod browsers_lines;
mod browsers_locked;
mod browsers_seen;
mod check;
mod client_framing;
mod control_api;
mod deadlines;
mod demo;
mod drain;
mod endpoint_faults;
mod errors;
mod explain;
mod failover;
mod fields;
mod forwarding;
mod geo;
mod handover;
mod health;
mod hostile;
mod http2;
mod http2_endpoints;
mod http2_hostile;
mod http2_websocket;
mod kit;
mod metrics;
mod notifications;
mod previews;
mod reload;
mod rooms;
mod rooms_again;
mod rooms_kept;
mod rooms_seed;
mod routing;
mod rush;
mod seal;
mod sessions;
mod start;
mod steering;
mod tls;
mod visitors;
mod websocket;
