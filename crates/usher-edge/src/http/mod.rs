//! The HTTP front: reads requests, asks the core once, and moves bytes both ways.

mod body;
mod buffer;
mod connection;
mod deadline;
mod drain;
mod settings;
mod stream;
mod upstream;

pub use buffer::BufferPool;
pub use connection::{ConnInfo, TlsInfo, canonical};
pub use drain::Drain;
pub use settings::{Limits, Settings, Timeouts};
pub use stream::{Prefixed, Stream};
pub use upstream::{ConnectFailure, Pool};
