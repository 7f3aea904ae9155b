//! What a room writes down, so that its queue and its seats are there after a restart.
//!
//! [`Live`] is the right to write, [`Log`] the files of one room, [`Batch`] what goes to disk in one
//! piece. Nothing here knows what records mean: they are bytes that a [`State`] understands.
//!
//! There are no threads here either. A commit blocks, and whoever owns a room sends one batch at a
//! time to a thread for blocking work and fills the next one meanwhile. So the disk sets the pace of
//! commits, all who wait share one `fdatasync`, and a slow disk makes batches longer, not queues.

mod fault;
mod frame;
mod live;
mod log;

pub use fault::JournalFault;
pub use frame::Batch;
pub use live::Live;
pub use log::{Fold, Limits, Log, State, Torn, look_back};
