//! Leads each wish for a browser from its account's limits to an answer.
//!
//! What follows what is `usher_core::lease::acquire`'s to say; here are the questions it asks, put
//! to the pools and the node, with their deadlines. A request is led by a task of its own, so that
//! whoever asked may vanish at any moment, and what was taken for them is given back all the same.
//!
//! Read [`Broker`] first, then [`Offer`]: a browser is the caller's only once its answer is written.
//!
//! It knows nothing of HTTP and of what is said to a browser.

mod ask;
mod broker;
mod chance;
mod lead;
mod queue;

pub use ask::{Ask, Node, Work};
pub use broker::{Broker, Offer, Region, Settings};
pub use queue::Standing;
