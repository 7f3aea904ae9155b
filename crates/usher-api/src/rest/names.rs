//! Which other resources a document names, and where.
//!
//! One walk serves two ends: the documents of a file name each other by key and are shown with
//! ids, and nothing that is named may be deleted. Geo maps count whatever the policy is.

use serde_json::Value;
use usher_core::id::Id;
use usher_store::Kind;

/// Tells `see` every name of another resource in `document`, to read or to change.
pub(crate) fn visit(kind: Kind, document: &mut Value, see: &mut dyn FnMut(Kind, &mut String)) {
    match kind {
        Kind::MonitorGroup => {
            for member in items(document, "members") {
                text(member.get_mut("monitor_id"), Kind::Monitor, see);
            }
        }
        Kind::Pool => {
            text(document.get_mut("monitor"), Kind::Monitor, see);
            text(document.get_mut("monitor_group"), Kind::MonitorGroup, see);
        }
        Kind::Balancer => {
            topology(document, see);
            for rule in items(document, "rules") {
                if let Some(overrides) = rule.get_mut("overrides") {
                    topology(overrides, see);
                }
            }
            for set in items(document, "pool_sets") {
                if let Some(overrides) = set.get_mut("overrides") {
                    topology(overrides, see);
                }
            }
        }
        Kind::Account
        | Kind::Zone
        | Kind::ZoneSettings
        | Kind::Monitor
        | Kind::Room
        | Kind::RoomRules
        | Kind::NotificationPolicy
        | Kind::WebhookDestination
        | Kind::Token => {}
    }
}

/// Every resource that `document` names, once.
pub(crate) fn named(kind: Kind, document: &Value) -> Vec<(Kind, Id)> {
    let mut found = Vec::new();
    visit(kind, &mut document.clone(), &mut |kind, text| {
        if let Ok(id) = text.parse::<Id>()
            && !found.contains(&(kind, id))
        {
            found.push((kind, id));
        }
    });
    found
}

fn topology(place: &mut Value, see: &mut dyn FnMut(Kind, &mut String)) {
    for key in ["default_pools", "pools"] {
        texts(place.get_mut(key), see);
    }
    text(place.get_mut("fallback_pool"), Kind::Pool, see);
    for key in ["region_pools", "country_pools", "pop_pools"] {
        if let Some(Value::Object(map)) = place.get_mut(key) {
            map.values_mut().for_each(|list| texts(Some(list), see));
        }
    }
    keys(place.get_mut("pool_weights"), see);
    if let Some(random) = place.get_mut("random_steering") {
        keys(random.get_mut("pool_weights"), see);
    }
}

fn items<'v>(value: &'v mut Value, key: &str) -> impl Iterator<Item = &'v mut Value> {
    let list = value.get_mut(key).and_then(Value::as_array_mut);
    list.into_iter().flatten()
}

fn text(value: Option<&mut Value>, kind: Kind, see: &mut dyn FnMut(Kind, &mut String)) {
    if let Some(Value::String(text)) = value
        && !text.is_empty()
    {
        see(kind, text);
    }
}

fn texts(value: Option<&mut Value>, see: &mut dyn FnMut(Kind, &mut String)) {
    let list = value.and_then(Value::as_array_mut);
    for item in list.into_iter().flatten() {
        text(Some(item), Kind::Pool, see);
    }
}

fn keys(value: Option<&mut Value>, see: &mut dyn FnMut(Kind, &mut String)) {
    if let Some(Value::Object(map)) = value {
        let named = std::mem::take(map).into_iter().map(|(mut key, weight)| {
            see(Kind::Pool, &mut key);
            (key, weight)
        });
        *map = named.collect();
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn every_place_of_a_load_balancer_that_names_a_pool_is_seen() {
        let mut document = json!({
            "name": "p0", "default_pools": ["p1"], "fallback_pool": "p2",
            "region_pools": {"WEU": ["p3"]}, "country_pools": {"NL": ["p4"]}, "pop_pools": {"AMS": ["p5"]},
            "random_steering": {"pool_weights": {"p6": 1}},
            "rules": [{"overrides": {"pools": ["p7"], "pool_weights": {"p8": 1}, "fallback_pool": "p9",
                        "default_pools": ["p10"], "random_steering": {"pool_weights": {"p11": 0}}}}],
            "pool_sets": [{"overrides": {"pools": ["p12"], "pool_weights": {"p13": 1}, "fallback_pool": "p14"}}],
        });
        let mut seen = Vec::new();
        visit(Kind::Balancer, &mut document, &mut |kind, text| {
            assert_eq!(kind, Kind::Pool);
            seen.push(text[1..].parse::<u8>().expect("a number"));
            text.push('x');
        });
        seen.sort_unstable();
        assert_eq!(seen, (1..=14).collect::<Vec<u8>>());
        assert_eq!(
            document["random_steering"]["pool_weights"],
            json!({"p6x": 1})
        );
        assert_eq!(document["name"], "p0");
    }
}
