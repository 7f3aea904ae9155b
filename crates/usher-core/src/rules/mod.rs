//! Rules of a load balancer.

pub mod condition;
pub mod facts;
