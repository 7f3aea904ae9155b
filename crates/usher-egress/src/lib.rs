//! The egress proxy: the only way from a browser to the network.
//!
//! Pages are written by strangers and run on a machine inside somebody's network. So a browser has
//! no route of its own; it has this proxy, and the proxy judges what is asked for before anything
//! of it leaves: the name by the session's [`Guardrails`], the port, and then every address that
//! the name has. It connects to an address that it judged and to no other, so a name that is first
//! public and then private leads nowhere. A redirect is a new request and is judged as one.
//!
//! Read [`Policy`] and [`Exit`] first. The order of calls:
//!
//! 1. [`Egress::new`] once in a process, [`Egress::own_listeners`] whenever those change.
//! 2. [`Egress::open`] for each browser, and [`Exit::serve`] on the browser's own socket. Nothing
//!    gets out yet: a browser that waits to be lent has nothing to look for outside.
//! 3. [`Exit::admit`] when it is lent. What was admitted holds for as long as the browser lives.
//! 4. [`Exit::why`] when a page did not load: through a proxy a browser sees no name that does not
//!    resolve and no refused connection, only a tunnel that failed.
//!
//! [`Lists`] fetches lists of hosts in nobody's name, through an exit like a browser's.
//!
//! What it never does: look into a tunnel, follow a redirect, share a connection between two
//! browsers, keep a DNS answer, tell a page an address that it did not know.

pub mod address;
mod answer;
pub mod cause;
mod client;
mod dial;
pub mod exit;
mod forward;
pub mod guardrails;
mod inbox;
pub mod list;
pub mod meter;
mod own;
pub mod policy;
pub mod record;
pub mod target;
mod tunnel;

pub use cause::Cause;
pub use exit::{Credential, Deadlines, Door, Egress, Exit};
pub use guardrails::{Guardrails, Pattern, PatternFault};
pub use list::{ListFault, Lists};
pub use meter::Usage;
pub use policy::{Policy, PolicyFault, Ports};
pub use record::Refusal;
