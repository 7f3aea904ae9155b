//! The front as a whole: listeners, TLS, HTTP/2, what is logged and counted, and how it ends.

#[path = "../http1/kit.rs"]
mod kit;

mod drain;
mod frames;
mod h2_hostile;
mod h2_traffic;
mod handover;
mod limits;
mod origins;
mod pins;
mod reload;
mod rooms;
mod rules;
mod seen;
mod tls;

use std::future::Future;

/// Runs `work` on a runtime of its own, like a node's.
fn block_on<T>(work: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("runtime");
    runtime.block_on(work)
}
