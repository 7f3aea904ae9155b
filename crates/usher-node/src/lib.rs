//! A running node: owns the engine and the front and joins them; reload, hand-over, drain.
//!
//! [`Node`] is the whole of it: start it, wait until it is ready, apply a changed configuration any
//! number of times, stop it or have another process follow it ([`handover`]). [`settings::Process`] is what it starts from beside a catalog. It never
//! reads a configuration file and never prints.

mod attempts;
pub mod browsers;
mod control;
mod drive;
mod events;
pub mod handover;
mod listeners;
mod node;
pub mod notify;
mod pid_file;
pub mod pins;
mod probes;
pub mod rooms;
pub mod settings;
mod trust;
mod wanted;
mod webhooks;

use std::time::{SystemTime, UNIX_EPOCH};

use usher_core::time::Wall;

pub use node::{Listening, Node, Part, StartError};
pub use wanted::Changes;

/// What the clock on the wall shows.
pub(crate) fn wall() -> Wall {
    let time = SystemTime::now().duration_since(UNIX_EPOCH);
    Wall::from_millis(time.map_or(0, |since| since.as_millis() as i64))
}

/// 64 bits of the system's entropy.
///
/// # Panics
/// When the system has none, which on Linux happens only before it has booted.
#[must_use]
pub fn draw() -> u64 {
    getrandom::u64().expect("a running system has entropy")
}
