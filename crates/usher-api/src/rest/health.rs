//! The health of a pool, as this node sees it.

use std::time::Duration;

use http::Method;
use serde_json::{Map, Value, json};
use usher_core::health::EndpointState;
use usher_core::probe::ProbeResult;
use usher_core::snapshot::{EndpointHealth, PoolView, Snapshot};
use usher_store::{Kind, Stamp};

use super::resource::found;
use super::{Call, Needs, Reply, Route};
use crate::access::Product;
use crate::envelope::ApiError;
use crate::server::{Control, Probed};

/// `GET path/health`.
pub(crate) fn route(item: &str, prefix: &str) -> Route {
    super::route(
        Method::GET,
        &format!("{item}/health"),
        &format!("{prefix}get_pool_health"),
        "Shows the health of its endpoints, by where it was looked at from",
        Needs::Read(Product::LoadBalancing),
        |call| Box::pin(async move { health(&call) }),
    )
}

fn health(call: &Call) -> Result<Reply, ApiError> {
    let shown = found(call, Kind::Pool)?;
    let view = call.app.control.view();
    let snapshot = &view.snapshot;
    let pool = snapshot.catalog().pool_by_id(shown.id);
    // A pool that was created a moment ago has not been looked at.
    let pool = pool.map(|ix| snapshot.pool(ix));
    let mut places = Map::new();
    if let Some(pool) = &pool {
        let origins: Vec<Value> = pool
            .endpoints()
            .map(|(_, endpoint, health)| json!({endpoint.address.to_string(): of_endpoint(health)}))
            .collect();
        let healthy = pool.usable
            && origins
                .iter()
                .flat_map(Value::as_object)
                .flatten()
                .any(is_healthy);
        places.insert(
            place(snapshot),
            json!({"healthy": healthy, "origins": origins}),
        );
    }
    let id = shown.id.to_string();
    Ok(Reply::result(&json!({
        "pool_id": id,
        "pop_health": places,
        "usher": pool.map(|pool| of_pool(&*call.app.control, &pool)),
    })))
}

fn is_healthy((_, origin): (&String, &Value)) -> bool {
    origin["healthy"] == true
}

/// `Amsterdam, NL`.
fn place(snapshot: &Snapshot) -> String {
    let node = &snapshot.catalog().draft().node;
    match (&node.city, &node.country) {
        (Some(city), Some(country)) => format!("{city}, {country}"),
        (Some(only), None) | (None, Some(only)) => only.clone(),
        (None, None) => node.name.clone(),
    }
}

fn of_endpoint(health: &EndpointHealth) -> Value {
    let rtt = health.rtt.map(in_millis);
    json!({
        "healthy": health.state == EndpointState::Healthy,
        "failure_reason": health.reason_shown().as_str(),
        "response_code": health.status.unwrap_or(0),
        "rtt": rtt,
    })
}

/// One of the last results.
fn of_probe(probed: &Probed) -> Value {
    let mut shown = of_result(&probed.result);
    shown["at"] = Stamp::from_micros(probed.at.as_millis() * 1000)
        .to_string()
        .into();
    shown
}

/// What one attempt has seen of an endpoint.
pub(crate) fn of_result(result: &ProbeResult) -> Value {
    json!({
        "healthy": result.passed(),
        "failure_reason": result.reason().as_str(),
        "response_code": result.status().unwrap_or(0),
        "rtt": result.rtt().map(in_millis),
    })
}

/// `12.1ms`.
fn in_millis(rtt: Duration) -> String {
    let tenths = (rtt.as_secs_f64() * 1e4).round() / 10.0;
    format!("{tenths}ms")
}

fn of_pool(control: &dyn Control, pool: &PoolView<'_>) -> Value {
    let states = pool.endpoints().map(|(_, endpoint, health)| {
        let results = control.probed(pool.id, &endpoint.address, endpoint.port);
        let results: Vec<Value> = results.iter().map(of_probe).collect();
        json!({
            "name": endpoint.name,
            "address": endpoint.address.to_string(),
            "port": endpoint.port.unwrap_or(0),
            "state": health.state.as_str(),
            "results": results,
        })
    });
    let states: Vec<Value> = states.collect();
    let count = |state: &str| states.iter().filter(|it| it["state"] == state).count();
    json!({
        "state": pool.state.as_str(),
        "reason": pool.reason.to_string(),
        "usable": pool.usable,
        "healthy": count("healthy"),
        "critical": count("critical"),
        "endpoints": states,
    })
}
