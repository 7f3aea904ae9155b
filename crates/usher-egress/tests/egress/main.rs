//! The proxy between real sockets: what passes, what does not, and what is told of it.

mod causes;
mod judged;
mod limits;
mod passes;
mod refused;
mod world;
