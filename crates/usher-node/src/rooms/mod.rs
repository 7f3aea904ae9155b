//! The waiting rooms of this node.
//!
//! Their owners live on one thread (`keeper`) that neither the fronts nor the control tasks use: a
//! room that is asked a hundred thousand times a second takes nothing from them, and a configuration
//! that is being checked takes nothing from it. `make` says what a room of the catalog is for its
//! owner and for the front, `figures` how rooms stand, in numbers.
//!
//! Journals are kept beside the store and belong to one process. One that follows another has its
//! doors open before it has the journals: what is asked meanwhile waits at a desk, until the process
//! before has let go.

mod asked;
mod figures;
mod keeper;
mod make;

pub use asked::{ask, presumed};
pub(crate) use figures::{RoomMetrics, status};
pub(crate) use keeper::{Journals, Keeper, Standing};
pub(crate) use make::{Seals, of_front, wanted};
