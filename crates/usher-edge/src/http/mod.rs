//! The HTTP front: reads requests, asks the core once, and moves bytes both ways.

mod settings;

pub use settings::{Limits, Settings, Timeouts};
