//! Waiting rooms: a room at work, and what a visitor who waits is told.
//!
//! Who may pass is decided by [`usher_core::admission`]. Around it:
//!
//! - [`route`] tells which room owns a request,
//! - [`door`] is what a front asks, and answers most of it from the sealed [`cookie`],
//! - [`owner`] is the one task that decides for a room,
//! - [`journal`] keeps what it decided.
//!
//! [`View`] is what is true of one visitor now, in values; nothing that is sent is made of anything
//! else, so that the page, the JSON answer and a page of the operator's own can not contradict each
//! other.
//!
//! - [`json`] writes it for programs,
//! - [`page`] writes the built-in page, in one of the languages of [`words`],
//! - [`template`] writes the operator's page.
//!
//! What is written of a view reads no clock and draws no number: those come as arguments.

pub mod clock;
pub mod cookie;
pub mod door;
pub mod journal;
pub mod json;
pub mod owner;
pub mod page;
pub mod route;
pub mod template;
pub mod view;
pub mod words;

pub use view::View;
