//! The proxy between real sockets: what passes, what does not, and what is told of it.

mod causes;
mod judged;
mod limits;
mod lists;
mod passes;
mod refused;
mod world;
