//! The HTTP front: reads requests, asks the core once, and moves bytes both ways.

mod buffer;
mod settings;

pub use buffer::BufferPool;
pub use settings::{Limits, Settings, Timeouts};
