//! Leads each wish for a browser from its account's limits to an answer, and carries the session.
//!
//! What follows what is `usher_core::lease::acquire`'s to say; here are the questions it asks, put
//! to the pools and the nodes, with their deadlines. A request is led by a task of its own, so that
//! whoever asked may vanish at any moment, and what was taken for them is given back all the same.
//!
//! - [`Broker`] leads wishes; read it first, then [`Offer`]: a browser is the caller's only once its
//!   answer is written,
//! - [`Agent`] keeps a pool and the host of one node in step, [`Hosts`] knows where hosts are found,
//! - `quick` has one page drawn for one request,
//! - [`Sessions`] holds the browsers that are talked to through this process,
//! - [`wire`] is what clients speak: HTTP and WebSockets, the words of the hosted service.
//!
//! The core of it, up to [`Offer`], knows nothing of HTTP and of what is said to a browser.

mod agent;
mod ask;
mod broker;
mod chance;
mod hosts;
mod lead;
mod queue;
mod quick;
mod sessions;
mod tally;
pub mod wire;

pub use agent::{Agent, Want, reap};
pub use ask::{Ask, Node, Work};
pub use broker::{Broker, Offer, Region, Settings};
pub use hosts::{Heard, Hosts};
pub use queue::{Standing, Stood};
pub use sessions::{Farewell, Missing, Sessions};
pub use tally::{ACQUIRE_MS, Counted, REFUSALS, Tally, Times};
