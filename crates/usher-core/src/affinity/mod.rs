//! Pins: how a visitor is tied to one endpoint, and by what it is known again.
//!
//! A pin names identities and not places, so it survives a reload, a restart and another order of
//! endpoints, and tells nothing of addresses. Who keeps pins is not the core: a cookie carries
//! them (sealed, which is the front's), or a table of the node does, and both are asked through
//! [`Pins`] only when a load balancer wants to know.

mod key;
mod pin;

pub(crate) use key::pin_key;
pub use key::{HashKey, PinKey};
pub use pin::{NoPins, Pin, Pins};

/// Name of the cookie that carries a pin.
pub const COOKIE: &str = "__cflb";
