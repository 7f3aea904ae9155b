//! Changes of state as the API tells them: kept beside what is wanted, if anything is kept.
//!
//! One is about an endpoint that became healthy or ceased to be, and shows its pool as it is then.

use serde_json::{Value, json};
use usher_api::{Happened, What};
use usher_core::catalog::Pool;
use usher_core::engine::StateChange;
use usher_core::health::{EndpointState, PoolState};
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

/// What those who want to be told may hear of `change`. First results after a start are no news
/// while they are good, and neither is what an operator turns off, but for a whole pool.
pub(crate) fn told(change: &StateChange, snapshot: &Snapshot) -> Option<Happened> {
    let (pool_name, what) = match change {
        StateChange::Endpoint {
            pool,
            endpoint,
            address,
            was,
            now,
            reason,
            ..
        } => {
            let healthy = match (was, now) {
                (EndpointState::Unknown, EndpointState::Healthy) => return None,
                (_, EndpointState::Healthy) => true,
                (_, EndpointState::Critical) => false,
                (_, EndpointState::Unknown | EndpointState::Disabled | EndpointState::Draining) => {
                    return None;
                }
            };
            let what = What::Endpoint {
                name: endpoint.clone(),
                address: address.to_string(),
                states: (was.as_str(), now.as_str()),
                healthy,
                reason: reason.as_str().to_owned(),
            };
            (pool, what)
        }
        StateChange::Pool {
            pool,
            was,
            now,
            reason,
        } => (pool, of_pool(*was, *now, reason.to_string())?),
    };
    let catalog = snapshot.catalog();
    let pool = catalog.pool(catalog.pool_by_name(pool_name)?);
    Some(Happened {
        at: Stamp::now(),
        pool: pool.id,
        pool_name: pool_name.clone(),
        what,
    })
}

fn of_pool(was: PoolState, now: PoolState, reason: String) -> Option<What> {
    let serves = |state| match state {
        PoolState::Healthy | PoolState::Degraded => Some(true),
        PoolState::Critical => Some(false),
        PoolState::Unknown | PoolState::Disabled => None,
    };
    if was == PoolState::Disabled || now == PoolState::Disabled {
        return Some(What::Enablement {
            enabled: now != PoolState::Disabled,
        });
    }
    let healthy = serves(now).filter(|healthy| serves(was) != Some(*healthy))?;
    let news = was != PoolState::Unknown || !healthy;
    news.then(|| What::Pool {
        states: (was.as_str(), now.as_str()),
        healthy,
        reason,
    })
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
