//! HTTP/1.1 in, HTTP/1.1 out, byte by byte: what an endpoint sees of a client and the reverse.

mod bodies;
mod endpoint_tls;
mod failures;
mod kit;
mod long;
mod requests;
mod tunnels;
