//! Decides: which endpoint serves a request, what state a pool is in, when to probe.
//!
//! Traffic, `usher explain`, the simulator and the tests call the same functions, so this crate
//! has no IO, no async, no clock, no entropy and no wire formats. Time and chance arrive as
//! arguments; everything that happens is a value that goes in or comes out.
//!
//! Read [`catalog::Catalog`] (what is wanted) and [`snapshot::Snapshot`] (what is decided with)
//! first. The order of calls: an [`engine::Engine`] takes inputs, its outputs are drained, one of
//! them publishes a snapshot, and any number of threads call [`snapshot::Snapshot::decide`] on it.

pub mod address;
pub mod admission;
pub mod affinity;
pub mod assume;
pub mod catalog;
mod chance;
mod decide;
pub mod decision;
pub mod engine;
pub mod health;
pub mod id;
pub mod lease;
pub mod probe;
pub mod region;
pub mod request;
mod route;
pub mod rules;
#[cfg(test)]
mod sample;
pub mod snapshot;
pub mod steering;
pub mod time;
mod topology;
pub mod trace;
