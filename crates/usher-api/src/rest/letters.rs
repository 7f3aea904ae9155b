//! What is told of a change, and to whom: policies and the filters of pools, asked when something
//! happened.

use serde_json::{Value, json};
use usher_core::id::Id;
use usher_store::{Kind, Private, Resource, Secret, Stamp};

use super::alerting::fields;
use super::desired::{Desired, Whole, account};
use super::policies::{ENABLEMENT, HEALTH};

/// Something that happened to a pool.
#[derive(Debug, Clone)]
pub struct Happened {
    /// When.
    pub at: Stamp,
    /// Which pool.
    pub pool: Id,
    /// What it is called.
    pub pool_name: String,
    /// What.
    pub what: What,
}

/// What happened.
#[derive(Debug, Clone)]
pub enum What {
    /// The pool became able to serve, or ceased to be.
    Pool {
        /// Its state before and now, in words.
        states: (&'static str, &'static str),
        /// Whether it can serve now.
        healthy: bool,
        /// Why.
        reason: String,
    },
    /// One of its endpoints became healthy, or ceased to be.
    Endpoint {
        /// What it is called.
        name: String,
        /// Where it is.
        address: String,
        /// Its state before and now, in words.
        states: (&'static str, &'static str),
        /// Whether it is healthy now.
        healthy: bool,
        /// Why.
        reason: String,
    },
    /// The pool was turned on or off.
    Enablement {
        /// Whether it is on now.
        enabled: bool,
    },
}

/// A message on its way to one destination.
#[derive(Debug, Clone)]
pub struct Letter {
    /// To whom.
    pub destination: Id,
    /// Where that is.
    pub url: String,
    /// What its receiver knows us by.
    pub secret: Option<Secret>,
    /// JSON.
    pub body: String,
}

/// The messages that policies ask for.
#[must_use]
pub fn letters(desired: &Desired, happened: &Happened) -> Vec<Letter> {
    let state = desired.state();
    let mut policies = state.all(Kind::NotificationPolicy).peekable();
    if policies.peek().is_none() {
        return Vec::new();
    }
    let whole = Whole {
        declared: &desired.declared,
        state: &state,
    };
    let pool = whole.find(Kind::Pool, happened.pool);
    let filter = pool.and_then(|pool| pool.value().remove("notification_filter"));
    if !passes(&happened.what, filter.as_ref()) {
        return Vec::new();
    }
    let mut letters = Vec::new();
    for policy in policies {
        let wanted = Value::from(fields(policy));
        if !asks(&wanted, happened) {
            continue;
        }
        let body = body(policy, happened);
        let webhooks = wanted["mechanisms"]["webhooks"].as_array();
        for webhook in webhooks.into_iter().flatten() {
            let id = webhook["id"].as_str().and_then(|id| id.parse().ok());
            let kept = id.and_then(|id| state.find(Kind::WebhookDestination, id));
            letters.extend(kept.and_then(|kept| letter(kept, &body)));
        }
    }
    letters
}

fn letter(destination: &Resource, body: &str) -> Option<Letter> {
    Some(Letter {
        destination: destination.id,
        url: fields(destination).get("url")?.as_str()?.to_owned(),
        secret: match &destination.private {
            Some(Private::Secret(secret)) => Some(secret.clone()),
            _ => None,
        },
        body: body.to_owned(),
    })
}

/// Whether the pool's own filter lets it through.
fn passes(what: &What, filter: Option<&Value>) -> bool {
    let (part, healthy) = match what {
        What::Pool { healthy, .. } => ("pool", *healthy),
        What::Endpoint { healthy, .. } => ("origin", *healthy),
        What::Enablement { .. } => return true,
    };
    let Some(part) = filter.and_then(|filter| filter.get(part)) else {
        return true;
    };
    let only = part.get("healthy").and_then(Value::as_bool);
    part.get("disable") != Some(&Value::Bool(true)) && only.is_none_or(|only| only == healthy)
}

/// Whether a policy asks for it.
fn asks(policy: &Value, happened: &Happened) -> bool {
    let filters = &policy["filters"];
    // An empty list asks for nothing in particular.
    let lists = |key: &str, word: &str| {
        let list = filters[key].as_array().filter(|list| !list.is_empty());
        list.is_none_or(|list| list.iter().any(|item| item == word))
    };
    let health = |source, healthy| {
        let word = if healthy { "Healthy" } else { "Unhealthy" };
        policy["alert_type"] == HEALTH && lists("event_source", source) && lists("new_health", word)
    };
    let fits = match happened.what {
        What::Pool { healthy, .. } => health("pool", healthy),
        What::Endpoint { healthy, .. } => health("origin", healthy),
        What::Enablement { enabled } => {
            let word = if enabled { "true" } else { "false" };
            policy["alert_type"] == ENABLEMENT && lists("enabled", word)
        }
    };
    policy["enabled"] != false && fits && lists("pool_id", &happened.pool.to_string())
}

fn body(policy: &Resource, happened: &Happened) -> String {
    let pool = &happened.pool_name;
    let mut data = json!({
        "pool_id": happened.pool.to_string(),
        "pool_name": pool,
        "timestamp": happened.at.to_string(),
    });
    let word = |healthy: bool| if healthy { "Healthy" } else { "Unhealthy" };
    let (alert, text) = match &happened.what {
        What::Pool {
            states: (was, now),
            healthy,
            reason,
        } => {
            data["event_source"] = "pool".into();
            data["new_health"] = word(*healthy).into();
            data["old_state"] = (*was).into();
            data["new_state"] = (*now).into();
            data["reason"] = reason.as_str().into();
            (HEALTH, format!("pool {pool}: {was} -> {now}: {reason}"))
        }
        What::Endpoint {
            name,
            address,
            states: (was, now),
            healthy,
            reason,
        } => {
            data["event_source"] = "origin".into();
            data["new_health"] = word(*healthy).into();
            data["old_state"] = (*was).into();
            data["new_state"] = (*now).into();
            data["origins"] = json!([{
                "name": name, "address": address, "healthy": healthy, "failure_reason": reason,
            }]);
            let text = format!("endpoint {pool}/{name} at {address}: {was} -> {now}: {reason}");
            (HEALTH, text)
        }
        What::Enablement { enabled } => {
            data["enabled"] = (*enabled).into();
            let word = if *enabled { "on" } else { "off" };
            (ENABLEMENT, format!("pool {pool} was turned {word}"))
        }
    };
    json!({
        "name": policy.name,
        "text": text,
        "alert_type": alert,
        "account_id": account().to_string(),
        "policy_id": policy.id.to_string(),
        "policy_name": policy.name,
        "ts": happened.at.as_micros() / 1_000_000,
        "data": data,
    })
    .to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn origin(healthy: bool) -> What {
        What::Endpoint {
            name: "a".to_owned(),
            address: "192.0.2.1".to_owned(),
            states: ("healthy", "critical"),
            healthy,
            reason: String::new(),
        }
    }

    fn pool(healthy: bool) -> What {
        What::Pool {
            states: ("healthy", "critical"),
            healthy,
            reason: String::new(),
        }
    }

    #[test]
    fn the_filter_of_a_pool_silences_what_it_names() {
        let off =
            json!({"pool": {"disable": true}, "origin": {"disable": false, "healthy": false}});
        for (what, filter, through) in [
            (pool(true), None, true),
            (pool(true), Some(&Value::Null), true),
            (pool(true), Some(&off), false),
            (origin(true), Some(&off), false),
            (origin(false), Some(&off), true),
            (What::Enablement { enabled: true }, Some(&off), true),
        ] {
            assert_eq!(passes(&what, filter), through, "{what:?} {filter:?}");
        }
    }

    #[test]
    fn a_policy_gets_what_it_asks_for() {
        let id = Id::from_bytes([1; 16]);
        let asked = |policy: Value, what: What| {
            let happened = Happened {
                at: Stamp::now(),
                pool: id,
                pool_name: "eu".to_owned(),
                what,
            };
            asks(&policy, &happened)
        };
        let health =
            |filters: Value| json!({"alert_type": HEALTH, "enabled": true, "filters": filters});
        assert!(asked(health(json!({})), pool(true)));
        assert!(asked(
            health(json!({"pool_id": [id.to_string()]})),
            origin(true)
        ));
        assert!(!asked(health(json!({"pool_id": ["0"]})), origin(true)));
        assert!(!asked(
            health(json!({"new_health": ["Unhealthy"]})),
            origin(true)
        ));
        assert!(asked(
            health(json!({"new_health": ["Unhealthy"]})),
            origin(false)
        ));
        assert!(!asked(
            health(json!({"event_source": ["pool"]})),
            origin(false)
        ));
        assert!(!asked(
            health(json!({})),
            What::Enablement { enabled: true }
        ));
        let off = json!({"alert_type": HEALTH, "enabled": false, "filters": {}});
        assert!(!asked(off, pool(true)));
        let turned = json!({"alert_type": ENABLEMENT, "filters": {"enabled": ["false"]}});
        assert!(asked(turned.clone(), What::Enablement { enabled: false }));
        assert!(!asked(turned, What::Enablement { enabled: true }));
    }
}
