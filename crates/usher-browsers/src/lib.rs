//! Browsers of one machine: started in a sandbox, lent once, ended without a trace.
//!
//! A browser is a stranger's program that runs a stranger's pages. So each gets namespaces, a file
//! system and a network of its own that die with it, serves one session, and is never given to a
//! second. Who may have it is decided by [`usher_core::lease`]; here are the processes:
//!
//! - [`lacks`] says before anything else what the machine does not have, in one line,
//! - [`backend`] says what has to be run: in a sandbox, or bare for one trusted tenant,
//! - [`browser::Browser`] is one that runs: launched, seen to draw ([`canary`]), and ended,
//! - [`exit`] is the one way out of its network, a listener that [`usher_egress`] serves,
//! - [`client`] speaks to it while it is ours, [`page`] draws one page with it,
//! - [`host::run`] runs many, for brokers that come over a socket.
//!
//! The host is a process of its own, so that sessions outlive the front. Everything in it happens on
//! one thread: a browser dies with the thread that started it, which is meant to be the process.
//!
//! Read [`browser::Browser`] first, then [`host::run`]. Nothing here knows accounts, tokens or
//! limits, and nothing is killed by its name.

pub mod backend;
pub mod browser;
pub mod canary;
pub mod client;
mod egress;
pub mod exit;
pub mod folder;
pub mod group;
pub mod host;
pub mod lacks;
mod launch;
mod namespace;
mod orphans;
pub mod page;
pub mod png;
pub mod settings;
mod tree;

pub use namespace::listen;
