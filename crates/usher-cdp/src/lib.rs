//! The browser's protocol between clients and one browser.
//!
//! A browser has one pipe and a session has many clients, each of which believes to have the
//! browser for itself. What they say is strangers' text that a browser acts on, so a command is
//! read strictly as far as it is looked at (number, method, part) and judged; everything else is
//! copied. What the browser says is copied too, and only its end is looked at.
//!
//! - [`chunks`] is the framing of older clients, where a message is cut into pieces,
//! - [`message`] finds what is looked at: in commands by reading all of it, in what the browser
//!   says without,
//! - [`gate`] says what becomes of a command: passed, changed, refused, or answered here,
//! - [`oversize`] makes what is too long for a client short enough, or says that it cannot,
//! - [`relay`] holds the clients and their parts of the browser: read this first,
//! - [`session`] carries it all: one task for a browser's pipe, and one for each client's WebSocket.
//!   Nothing else here does IO.
//!
//! What it never does: parse what it only carries, let a client's text reach the pipe unread, hold
//! more for a slow client than its bound.

pub mod chunks;
pub mod gate;
pub mod message;
mod open;
pub mod oversize;
pub mod relay;
pub mod session;

pub use gate::Gate;
pub use relay::{ClientId, Delivery, Part, Reach, Relay, Step};
pub use session::{Ended, Framing, Session, Terms};
