//! Waiting rooms: what a visitor who waits is told.
//!
//! Read [`View`] first. It is what is true of one visitor now, in values; nothing that is sent is
//! made of anything else, so that the page, the JSON answer and a page of the operator's own can
//! not contradict each other.
//!
//! - [`json`] writes it for programs,
//! - [`page`] writes the built-in page, in one of the languages of [`words`],
//! - [`template`] writes the operator's page.
//!
//! Nothing here decides who enters, reads a clock or draws a number: those come as arguments.

pub mod journal;
pub mod json;
pub mod page;
pub mod template;
pub mod view;
pub mod words;

pub use view::View;
