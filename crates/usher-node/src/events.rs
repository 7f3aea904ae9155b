//! Changes of state as the API tells them: kept beside what is wanted, if anything is kept.
//!
//! One is about an endpoint that became healthy or ceased to be, and shows its pool as it is then.

use serde_json::{Value, json};
use usher_core::catalog::Pool;
use usher_core::engine::StateChange;
use usher_core::health::EndpointState;
use usher_core::snapshot::{PoolView, Snapshot};
use usher_store::{Event, EventKind, EventPart, Stamp};

/// The event that `change` is, seen with the snapshot of that moment; `None` for what is told
/// otherwise.
pub(crate) fn of(change: &StateChange, snapshot: &Snapshot) -> Option<Event> {
    let StateChange::Endpoint {
        pool,
        endpoint,
        now,
        reason,
        ..
    } = change
    else {
        return None;
    };
    let now_healthy = match now {
        EndpointState::Healthy => true,
        EndpointState::Critical => false,
        EndpointState::Unknown | EndpointState::Disabled | EndpointState::Draining => return None,
    };
    let view = snapshot.pool(snapshot.catalog().pool_by_name(pool)?);
    let wanted = snapshot.catalog().pool(view.ix);
    let mut healthy_count = 0;
    let mut parts = Vec::new();
    let mut origins = Vec::new();
    for (_, shown, health) in view.endpoints() {
        let changed = shown.name == *endpoint;
        // The snapshot may not have the change yet.
        let (healthy, why) = match changed {
            true => (now_healthy, reason.as_str()),
            false => (
                health.state == EndpointState::Healthy,
                health.reason_shown().as_str(),
            ),
        };
        healthy_count += u32::from(healthy);
        parts.push(EventPart {
            name: shown.name.clone(),
            healthy: Some(healthy),
        });
        let address = shown.address.to_string();
        origins.push(json!({
            "name": shown.name, "address": address, "ip": address, "enabled": !health.is_off(),
            "healthy": healthy, "changed": changed, "failure_reason": why,
        }));
    }
    Some(event(&view, wanted, healthy_count, parts, origins))
}

fn event(
    view: &PoolView<'_>,
    wanted: &Pool,
    healthy_count: u32,
    parts: Vec<EventPart>,
    origins: Vec<Value>,
) -> Event {
    let at = Stamp::now();
    let healthy = healthy_count > 0 && healthy_count >= wanted.endpoints_min;
    let was_usable = view.usable;
    let document = json!({
        "timestamp": at.to_string(),
        "pool": {
            "id": view.id.to_string(), "name": view.name, "healthy": healthy,
            "changed": healthy != was_usable, "minimum_origins": wanted.endpoints_min,
        },
        "origins": origins,
    });
    Event {
        at,
        kind: EventKind::Health,
        account: usher_api::account(),
        subject: view.id,
        subject_name: view.name.to_owned(),
        healthy: Some(healthy),
        parts,
        document: document.to_string(),
    }
}
