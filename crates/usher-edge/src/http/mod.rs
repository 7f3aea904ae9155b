//! The HTTP front: reads requests, asks the core once, and moves bytes both ways.

mod access_log;
mod body;
mod book;
mod buffer;
mod connection;
mod deadline;
mod drain;
mod exchange;
mod forward;
mod h1;
mod ledger;
mod plane;
mod record;
mod refusal;
mod settings;
mod stream;
mod tunnel;
mod upstream;
mod worker;

pub use access_log::{AccessLog, LogTarget};
pub use book::Book;
pub use buffer::BufferPool;
pub use connection::{ConnInfo, TlsInfo, canonical};
pub use drain::Drain;
pub use forward::{Forwarded, RequestId, Visitor, is_replaced, trusts};
pub use ledger::{FrontMetrics, Ledger};
pub use plane::{Parts, Plane, View};
pub use record::Record;
pub use refusal::{Failure, Page, Party};
pub use settings::{Limits, Settings, Timeouts};
pub use stream::{Prefixed, Stream};
pub use upstream::{ConnectFailure, Pool};
pub use worker::{Active, InFlight, Open, Retry, Worker};
