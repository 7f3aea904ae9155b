//! The state of a node as one object: what `usher status` and scripts read.

use std::time::Duration;

use serde_json::{Value, json};
use usher_core::snapshot::{Counts, Snapshot};

use super::explain::number;

/// The `result` of `GET /client/v4/usher/state`.
///
/// Sections of features that are off are empty lists.
#[must_use]
pub fn state(snapshot: &Snapshot, counts: &impl Counts, version: &str, uptime: Duration) -> Value {
    let catalog = snapshot.catalog();
    let balancers = catalog.balancers().map(|(ix, balancer)| {
        let pools: Vec<&str> = balancer
            .pools
            .iter()
            .map(|pool| pool.text.as_str())
            .collect();
        json!({
            "id": balancer.id.to_string(),
            "name": balancer.name,
            "state": snapshot.balancer_state(ix).as_str(),
            "pools": pools,
        })
    });
    let balancers: Value = balancers.collect();
    let pools = snapshot.pools().map(|pool| {
        let endpoints = pool.endpoints().map(|(ix, view, health)| {
            json!({
                "name": view.name,
                "address": view.address.to_string(),
                "port": view.port.unwrap_or(0),
                "state": health.state.as_str(),
                "reason": health.reason_shown().as_str(),
                "weight": number(health.weight.as_f64()),
                "open_requests": counts.open_requests(ix),
                "open_connections": counts.open_connections(ix),
                "sessions": 0,
                "drain_seconds_left": null,
            })
        });
        let endpoints: Value = endpoints.collect();
        json!({
            "id": pool.id.to_string(),
            "name": pool.name,
            "state": pool.state.as_str(),
            "reason": pool.reason.to_string(),
            "endpoints": endpoints,
        })
    });
    let pools: Value = pools.collect();
    json!({
        "node": catalog.draft().node.name,
        "version": version,
        "uptime_seconds": uptime.as_secs(),
        "revision": snapshot.revision(),
        "load_balancers": balancers,
        "pools": pools,
        "rooms": [],
        "browsers": [],
    })
}
