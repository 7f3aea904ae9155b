//! Pool sets of a load balancer, and the fixed responses that they may hold.

use usher_core::catalog::{Places, PoolSet, PoolSetMatch};
use usher_core::rules::FixedResponse;
use usher_core::steering::PoolSteering;

use super::balancers::{POLICIES, list_of_pools, pool, pool_weights};
use super::reader::{Cursor, Object, Shape, built};

/// One pool set.
pub static POOL_SET: Shape = Shape {
    name: "pool set",
    keys: &[
        built("name"),
        built("disabled"),
        built("match"),
        built("overrides"),
        built("fixed_response"),
    ],
};

/// Which requests a pool set is for.
pub static POOL_SET_MATCH: Shape = Shape {
    name: "match of a pool set",
    keys: &[built("default"), built("topology")],
};

/// The places that a pool set is for.
pub static TOPOLOGY: Shape = Shape {
    name: "topology of a match",
    keys: &[built("pops"), built("countries"), built("regions")],
};

/// What a pool set replaces.
pub static POOL_SET_OVERRIDES: Shape = Shape {
    name: "overrides of a pool set",
    keys: &[
        built("pools"),
        built("pool_weights"),
        built("pool_default_weight"),
        built("fallback_pool"),
        built("steering_policy"),
    ],
};

/// A complete answer.
pub static FIXED_RESPONSE: Shape = Shape {
    name: "fixed_response",
    keys: &[
        built("status_code"),
        built("content_type"),
        built("location"),
        built("message_body"),
    ],
};

/// Reads one set.
pub(super) fn read(item: &Cursor<'_>) -> PoolSet {
    let mut set = PoolSet {
        steering: PoolSteering::Off,
        ..PoolSet::default()
    };
    let Some(object) = item.object(&POOL_SET) else {
        return set;
    };
    set.name = object.text_or("name", "");
    set.disabled = object.flag_or("disabled", false);
    set.matching = object
        .get("match")
        .map(|it| it.object(&POOL_SET_MATCH).as_ref().map(read_match))
        .map(Option::unwrap_or_default);
    if let Some(overrides) = object
        .get("overrides")
        .and_then(|it| it.object(&POOL_SET_OVERRIDES))
    {
        read_overrides(&overrides, &mut set);
    }
    set.fixed_response = object
        .get("fixed_response")
        .and_then(|it| it.object(&FIXED_RESPONSE))
        .map(|response| read_response(&response));
    set
}

fn read_overrides(overrides: &Object<'_>, set: &mut PoolSet) {
    let get = |key| overrides.get(key);
    let pools = get("pools");
    set.pools = pools.as_ref().map_or_else(Vec::new, list_of_pools);
    let weights = get("pool_weights");
    set.weights = weights.as_ref().map_or_else(Vec::new, pool_weights);
    set.weight_default = get("pool_default_weight").and_then(|weight| weight.number());
    set.fallback = get("fallback_pool").as_ref().map(pool);
    if let Some(steering) = get("steering_policy").and_then(|word| word.word(&POLICIES)) {
        set.steering = steering;
    }
}

fn read_match(matching: &Object<'_>) -> PoolSetMatch {
    let topology = matching.get("topology");
    PoolSetMatch {
        default: matching.flag_or("default", false),
        places: topology
            .and_then(|it| it.object(&TOPOLOGY))
            .map(|topology| Places {
                pops: codes(&topology, "pops"),
                countries: codes(&topology, "countries"),
                regions: codes(&topology, "regions"),
            }),
    }
}

fn codes(topology: &Object<'_>, key: &'static str) -> Vec<String> {
    let list = topology.get(key);
    let items = list.iter().flat_map(Cursor::list);
    // One that is no text stays in its place, for the faults of those behind it.
    items
        .map(|item| item.text().unwrap_or_default().to_owned())
        .collect()
}

pub(super) fn read_response(response: &Object<'_>) -> FixedResponse {
    let status = response.count_or("status_code", (200, 599), 200);
    FixedResponse {
        // Beyond u16 it is out of range either way, which the core says.
        status: u16::try_from(status).unwrap_or(u16::MAX),
        content_type: response.text("content_type"),
        location: response.text("location"),
        body: response.text_or("message_body", ""),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::wire::reader::{Mode, Report};

    fn read_file(value: &Value) -> (PoolSet, Vec<String>) {
        let report = Report::new(Mode::File);
        let set = read(&Cursor::root(&report, value).as_resource("pool set"));
        let (faults, _) = report.into_parts();
        (set, faults.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn every_field_is_read() {
        let (set, faults) = read_file(&json!({
            "name": "north", "disabled": true,
            "match": {"topology": {"pops": ["AMS"], "countries": ["DE", "NL"], "regions": ["WEU"]}},
            "overrides": {
                "pools": ["eu", "us"], "pool_weights": {"eu": 0.25}, "pool_default_weight": 0.5,
                "fallback_pool": "us", "steering_policy": "random",
            },
        }));
        assert_eq!(faults, [""; 0]);
        assert!(set.disabled);
        let places = set.matching.and_then(|matching| matching.places).unwrap();
        assert_eq!((places.pops.len(), places.countries[1].as_str()), (1, "NL"));
        assert_eq!((set.pools[1].text.as_str(), set.weights[0].1), ("us", 0.25));
        assert_eq!(
            (set.weight_default, set.steering),
            (Some(0.5), PoolSteering::Random)
        );
        assert_eq!(set.fallback.unwrap().text, "us");
    }

    #[test]
    fn a_set_may_answer_by_itself() {
        let (set, faults) = read_file(&json!({
            "match": {"default": true},
            "fixed_response": {"status_code": 302, "content_type": "text/html",
                               "location": "https://example.com/", "message_body": "gone"},
        }));
        assert_eq!((faults, set.steering), (vec![], PoolSteering::Off));
        assert!(set.matching.unwrap().default);
        let response = set.fixed_response.unwrap();
        assert_eq!((response.status, response.body.as_str()), (302, "gone"));
        assert_eq!(response.location.as_deref(), Some("https://example.com/"));
    }

    #[test]
    fn what_cannot_be_read_is_named() {
        let (_, faults) = read_file(&json!({
            "match": {"topology": {"pops": [1], "cities": []}}, "steering": "off",
            "overrides": {"steering_policy": "fastest"}, "fixed_response": {"status_code": "x"},
        }));
        assert_eq!(
            faults,
            [
                "pool set: unknown key \"steering\"",
                "pool set: match.topology: unknown key \"cities\"",
                "pool set: match.topology.pops[0] must be text in quotes, not a number",
                "pool set: overrides.steering_policy \"fastest\" is not one of off, geo, random, \
                 dynamic_latency, proximity, least_outstanding_requests, least_connections",
                "pool set: fixed_response.status_code must be a whole number, not text",
            ]
        );
    }
}
