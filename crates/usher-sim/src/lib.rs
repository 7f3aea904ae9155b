//! Runs the decision core in a made-up world: seeds, virtual time, and a second opinion.
//!
//! A [`World`] holds servers that fail, hang, flap and recover, an edge that loses answers, an
//! operator who changes the catalog at any moment, and visitors who ask all the time. All of it
//! follows from one seed. After each step the [`model`], a second and simpler telling of the
//! specification, must agree with what the engine published, and the invariants must hold.
//!
//! [`rooms`] does the same for a waiting room, and [`Lending`] for browsers that are lent out.
//!
//! Read [`World::run`] first. No product crate depends on this one.

mod catalogs;
mod invariants;
mod leases;
pub mod model;
mod plan;
mod rng;
pub mod rooms;
mod visits;
mod world;

pub use leases::{Lending, Lent};
pub use world::{Figures, World};
