//! The state of a node as one object: what `usher status` and scripts read.

use std::collections::HashMap;
use std::time::Duration;

use serde_json::{Value, json};
use usher_core::catalog::Reference;
use usher_core::id::Id;
use usher_core::snapshot::{PoolView, Snapshot};
use usher_core::time::Wall;

use super::browsers::BrowserPool;
use super::explain::{Surroundings, number};
use super::rooms::{RoomStatus, status_word};

/// The `result` of `GET /client/v4/usher/state`, at `now`; `room` tells how a waiting room stands,
/// `browsers` are those of each region.
///
/// Sections of features that are off are empty lists.
#[must_use]
pub fn state(
    snapshot: &Snapshot,
    around: &impl Surroundings,
    room: &dyn Fn(Id) -> Option<RoomStatus>,
    browsers: &[BrowserPool],
    (version, uptime): (&str, Duration),
    now: Wall,
) -> Value {
    let catalog = snapshot.catalog();
    let balancers = catalog.balancers().map(|(ix, balancer)| {
        // By name, however the load balancer was told of them: the API knows ids only.
        let name = |pool: &'_ Reference| match catalog.pool_by_id(pool.id) {
            Some(ix) => catalog.pool(ix).name.clone(),
            None => pool.text.clone(),
        };
        let pools: Vec<String> = balancer.pools.iter().map(name).collect();
        json!({
            "id": balancer.id.to_string(),
            "name": balancer.name,
            "state": snapshot.balancer_state(ix).as_str(),
            "pools": pools,
        })
    });
    let balancers: Value = balancers.collect();
    let sessions = around.sessions();
    let pools = snapshot.pools().map(|pool| {
        let endpoints = pool.endpoints().map(|(ix, view, health)| {
            let left = snapshot.drain_left(ix, now);
            json!({
                "name": view.name,
                "address": view.address.to_string(),
                "port": view.port.unwrap_or(0),
                "state": health.state.as_str(),
                "reason": health.reason_shown().as_str(),
                "weight": number(health.weight.as_f64()),
                "open_requests": around.open_requests(ix),
                "open_connections": around.open_connections(ix),
                "sessions": sessions.get(&view.id).copied().unwrap_or(0),
                // The second that has begun counts: 0 is not shown while a pin may hold.
                "drain_seconds_left": left.map(|left| left.as_millis().div_ceil(1000) as u64),
            })
        });
        let endpoints: Value = endpoints.collect();
        json!({
            "id": pool.id.to_string(),
            "name": pool.name,
            "state": pool.state.as_str(),
            "reason": pool.reason.to_string(),
            "session_skew": session_skew(&pool, &sessions).map(rounded),
            "endpoints": endpoints,
        })
    });
    let pools: Value = pools.collect();
    let rooms = catalog.draft().rooms.iter().map(|found| {
        let live = room(found.id).unwrap_or_default();
        let mut told = json!({
            "id": found.id.to_string(),
            "name": found.name,
            "status": status_word(found, &live),
        });
        for (key, value) in live.figures().as_object().into_iter().flatten() {
            told[key] = value.clone();
        }
        told
    });
    let rooms: Value = rooms.collect();
    let browsers: Value = browsers.iter().map(|pool| pool.told(now)).collect();
    json!({
        "node": catalog.draft().node.name,
        "version": version,
        "uptime_seconds": uptime.as_secs(),
        "revision": snapshot.revision(),
        "load_balancers": balancers,
        "pools": pools,
        "rooms": rooms,
        "browsers": browsers,
    })
}

/// How far the sessions of a pool are from its weights, 0..=1: the part of all sessions that would
/// have to be elsewhere. `None` without sessions or without weights.
///
/// A weight moves no session, so this is what a change of weights has not reached yet.
#[must_use]
pub fn session_skew(pool: &PoolView<'_>, sessions: &HashMap<Id, u64>) -> Option<f64> {
    let of = |id: &Id| sessions.get(id).copied().unwrap_or(0) as f64;
    let weight = |health: &usher_core::snapshot::EndpointHealth| match health.is_off() {
        true => 0.0,
        false => health.weight.as_f64(),
    };
    let endpoints = || {
        pool.endpoints()
            .map(|(_, view, health)| (of(&view.id), weight(health)))
    };
    let (sessions, weights) = endpoints().fold((0.0, 0.0), |(sessions, weights), (own, weight)| {
        (sessions + own, weights + weight)
    });
    let excess = |(own, weight): (f64, f64)| (own / sessions - weight / weights).max(0.0);
    (sessions > 0.0 && weights > 0.0).then(|| endpoints().map(excess).sum())
}

fn rounded(skew: f64) -> Value {
    number((skew * 1e4).round() / 1e4)
}
