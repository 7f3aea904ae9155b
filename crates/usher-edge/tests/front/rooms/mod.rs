//! Waiting rooms as a visitor meets them: a front, a room with its owner, and an endpoint behind.

mod house;
mod own;
mod paths;
mod visits;
