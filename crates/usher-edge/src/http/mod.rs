//! The HTTP front: reads requests, asks the core once, and moves bytes both ways.

mod buffer;
mod connection;
mod drain;
mod settings;
mod stream;

pub use buffer::BufferPool;
pub use connection::{ConnInfo, TlsInfo, canonical};
pub use drain::Drain;
pub use settings::{Limits, Settings, Timeouts};
pub use stream::{Prefixed, Stream};
