//! Rules of a load balancer: when they hold, and what is different then.
//!
//! An override that is absent changes nothing, so everything here is read as an option. The weights
//! of pools may be written in two ways, nested as in a load balancer or flat as in a pool set; they
//! mean the same, and one rule has one of them.

use usher_core::catalog::{AffinityMode, Reference};
use usher_core::rules::{Condition, HeaderEdit, Overrides, PathRewrite, Rule, Template, Transform};

use super::affinity;
use super::balancers::{
    ADAPTIVE_ROUTING, POLICIES, RANDOM_STEERING, list_of_pools, pool, pool_weights, pools_by_place,
};
use super::pool_sets::{FIXED_RESPONSE, read_response};
use super::reader::{Cursor, Object, Shape, built};

/// One rule.
pub static RULE: Shape = Shape {
    name: "rule",
    keys: &[
        built("name"),
        built("condition"),
        built("disabled"),
        built("priority"),
        built("terminates"),
        built("fixed_response"),
        built("overrides"),
        built("usher"),
    ],
};

/// What a rule changes.
pub static OVERRIDES: Shape = Shape {
    name: "overrides of a rule",
    keys: &[
        built("pools"),
        built("default_pools"),
        built("fallback_pool"),
        built("steering_policy"),
        built("random_steering"),
        built("pool_weights"),
        built("pool_default_weight"),
        built("region_pools"),
        built("country_pools"),
        built("pop_pools"),
        built("adaptive_routing"),
        built("session_affinity"),
        built("session_affinity_ttl"),
        built("session_affinity_attributes"),
        built("ttl"),
        built("location_strategy"),
    ],
};

/// What Usher adds to a rule.
pub static RULE_USHER: Shape = Shape {
    name: "usher of a rule",
    keys: &[built("transform")],
};

/// What a rule does to requests and their answers on the way.
pub static TRANSFORM: Shape = Shape {
    name: "transform of a rule",
    keys: &[
        built("request_headers"),
        built("response_headers"),
        built("path"),
    ],
};

/// One change of one header.
pub static HEADER_EDIT: Shape = Shape {
    name: "header edit of a transform",
    keys: &[built("set"), built("value"), built("remove")],
};

/// Another path.
pub static PATH_REWRITE: Shape = Shape {
    name: "path of a transform",
    keys: &[built("strip_prefix"), built("to")],
};

/// Reads the rules in `list`. `mode` is how the load balancer knows visitors.
pub(super) fn read(list: &Cursor<'_>, mode: AffinityMode) -> Vec<Rule<Reference>> {
    let items = list.list();
    items.iter().map(|item| read_rule(item, mode)).collect()
}

fn read_rule(item: &Cursor<'_>, mode: AffinityMode) -> Rule<Reference> {
    let object = item.object(&RULE);
    let get = |key| object.as_ref().and_then(|object| object.get(key));
    let mut rule = Rule {
        name: String::new(),
        condition: get("condition").map_or_else(always, |text| condition(&text)),
        disabled: false,
        priority: get("priority")
            .and_then(|priority| priority.count(0, u32::MAX))
            .map(u64::from),
        terminates: false,
        fixed_response: get("fixed_response")
            .and_then(|response| response.object(&FIXED_RESPONSE))
            .map(|response| read_response(&response)),
        overrides: get("overrides")
            .and_then(|overrides| overrides.object(&OVERRIDES))
            .map(|overrides| read_overrides(&overrides, mode))
            .unwrap_or_default(),
        transform: get("usher")
            .and_then(|usher| usher.object(&RULE_USHER)?.get("transform"))
            .and_then(|transform| transform.object(&TRANSFORM))
            .map(|transform| read_transform(&transform))
            .unwrap_or_default(),
    };
    if let Some(object) = object {
        rule.name = object.text_or("name", "");
        rule.disabled = object.flag_or("disabled", false);
        rule.terminates = object.flag_or("terminates", false);
    }
    rule
}

/// The condition of a rule without one.
fn always() -> Condition {
    Condition::parse("").expect("the empty expression is always true")
}

fn condition(value: &Cursor<'_>) -> Condition {
    let parsed = value.text().map(Condition::parse);
    parsed
        .transpose()
        .unwrap_or_else(|faults| {
            for fault in faults {
                value.fault_inside(fault.column - 1, fault);
            }
            None
        })
        .unwrap_or_else(always)
}

fn read_overrides(object: &Object<'_>, mode: AffinityMode) -> Overrides<Reference> {
    super::balancers::look_at_location(object);
    let get = |key| object.get(key);
    let list = |key| get(key).as_ref().map(list_of_pools);
    let by_place = |key| get(key).as_ref().map(pools_by_place);
    let affinity = affinity::mode(object);
    let random = get("random_steering");
    let flat = [get("pool_weights"), get("pool_default_weight")];
    if let (Some(random), Some(flat)) = (&random, flat.iter().flatten().next()) {
        let what = match flat.pointer().ends_with("weights") {
            true => "pool_weights",
            false => "pool_default_weight",
        };
        random.fault_at_key(format_args!("cannot stand together with {what}"));
    }
    let random = random.and_then(|random| random.object(&RANDOM_STEERING));
    let nested = |key| random.as_ref().and_then(|random| random.get(key));
    let [flat_weights, flat_default] = flat;
    let weights = nested("pool_weights").or(flat_weights);
    let default = nested("default_weight").or(flat_default);
    Overrides {
        pools: list("pools"),
        default_pools: list("default_pools"),
        region_pools: by_place("region_pools"),
        country_pools: by_place("country_pools"),
        pop_pools: by_place("pop_pools"),
        fallback: get("fallback_pool").as_ref().map(pool),
        steering: get("steering_policy").and_then(|word| word.word(&POLICIES)),
        weight_default: default.and_then(|weight| weight.number()),
        weights: weights.as_ref().map(pool_weights),
        location: None,
        ttl_secs: get("ttl").and_then(|ttl| ttl.count(1, 86_400)),
        failover_across_pools: get("adaptive_routing")
            .and_then(|adaptive| {
                adaptive
                    .object(&ADAPTIVE_ROUTING)?
                    .get("failover_across_pools")
            })
            .and_then(|flag| flag.flag()),
        affinity,
        affinity_ttl: affinity::ttl(object, affinity.unwrap_or(mode)),
        affinity_attributes: affinity::attributes(object),
    }
}

fn read_transform(object: &Object<'_>) -> Transform {
    let edits = |key| {
        let list = object.get(key);
        let items = list.iter().flat_map(Cursor::list);
        // One that cannot be read stays in its place, for the faults of those behind it.
        let nothing = || HeaderEdit::Remove {
            name: "x".to_owned(),
        };
        items
            .map(|item| header_edit(&item).unwrap_or_else(nothing))
            .collect()
    };
    Transform {
        request_headers: edits("request_headers"),
        response_headers: edits("response_headers"),
        path: object
            .get("path")
            .and_then(|path| path.object(&PATH_REWRITE))
            .and_then(|path| path_rewrite(&path)),
    }
}

/// `{set: NAME, value: TEMPLATE}` or `{remove: NAME}`.
fn header_edit(item: &Cursor<'_>) -> Option<HeaderEdit> {
    let object = item.object(&HEADER_EDIT)?;
    match (object.get("set"), object.get("remove")) {
        (Some(_), Some(remove)) => {
            remove.fault_at_key("cannot stand together with set");
            None
        }
        (None, None) => {
            item.fault("has neither set nor remove");
            None
        }
        (Some(name), None) => {
            let value = object.need("value").and_then(|value| template(&value));
            Some(HeaderEdit::Set {
                name: name.text()?.to_owned(),
                value: value?,
            })
        }
        (None, Some(name)) => {
            if let Some(value) = object.get("value") {
                value.fault_at_key("has no meaning beside remove");
            }
            Some(HeaderEdit::Remove {
                name: name.text()?.to_owned(),
            })
        }
    }
}

fn path_rewrite(object: &Object<'_>) -> Option<PathRewrite> {
    let strip_prefix = object.text("strip_prefix");
    let to = object.need("to").and_then(|to| template(&to))?;
    Some(PathRewrite { strip_prefix, to })
}

fn template(value: &Cursor<'_>) -> Option<Template> {
    let parsed = Template::parse(value.text()?);
    parsed
        .map_err(|what| {
            value.fault(format_args!(
                "{:?}: {what}",
                value.text().unwrap_or_default()
            ))
        })
        .ok()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::{Value, json};
    use usher_core::catalog::{AffinityMode, PinFailover};
    use usher_core::id::Kind;
    use usher_core::steering::PoolSteering;

    use super::*;
    use crate::wire::reader::{Mode, Report, declared};

    fn read_file(value: &Value) -> (Vec<Rule<Reference>>, Vec<String>) {
        let report = Report::new(Mode::File);
        let cursor = Cursor::root(&report, value).as_resource("load balancer lb");
        let rules = read(&cursor, AffinityMode::Cookie);
        let (faults, _) = report.into_parts();
        let told = |fault: &super::super::reader::Fault| format!("{} {fault}", fault.pointer);
        (rules, faults.iter().map(told).collect())
    }

    #[test]
    fn every_field_is_read() {
        let (rules, faults) = read_file(&json!([
            {
                "name": "blog", "condition": "http.request.uri.path contains \"/blog\"",
                "disabled": true, "priority": 7, "terminates": true,
                "fixed_response": {"status_code": 418, "message_body": "tea"},
            },
            {
                "overrides": {
                    "default_pools": ["eu", "us"], "fallback_pool": "us", "steering_policy": "random",
                    "random_steering": {"default_weight": 0.5, "pool_weights": {"eu": 0.25}},
                    "region_pools": {"WEU": ["eu"]}, "country_pools": {"DE": ["eu", "us"]},
                    "pop_pools": {}, "adaptive_routing": {"failover_across_pools": true},
                    "session_affinity": "ip_cookie", "session_affinity_ttl": 3600,
                    "session_affinity_attributes": {"zero_downtime_failover": "sticky"},
                    "ttl": 60, "location_strategy": {"mode": "pop"},
                },
                "usher": {"transform": {
                    "request_headers": [{"set": "X-Country", "value": "{country}"}, {"remove": "X-Debug"}],
                    "response_headers": [{"set": "X-Pool", "value": "{pool}"}],
                    "path": {"strip_prefix": "/api", "to": "/v2{path}"},
                }},
            },
            {"overrides": {"pools": ["us"], "pool_weights": {"us": 1}, "pool_default_weight": 0}},
            {},
        ]));
        assert_eq!(faults, [""; 0]);
        let [blog, all, flat, empty] = rules.as_slice() else {
            panic!("{rules:?}")
        };
        assert_eq!(blog.name, "blog");
        assert_eq!(
            blog.condition.text(),
            "http.request.uri.path contains \"/blog\""
        );
        assert_eq!(
            (blog.disabled, blog.priority, blog.terminates),
            (true, Some(7), true)
        );
        let response = blog.fixed_response.as_ref().expect("a response");
        assert_eq!((response.status, response.body.as_str()), (418, "tea"));

        let over = &all.overrides;
        assert_eq!(over.pools, None);
        let default = over.default_pools.as_ref().expect("pools");
        assert_eq!(default[1].id, declared(Kind::Pool, "us"));
        assert_eq!(
            over.fallback.as_ref().map(|pool| pool.text.as_str()),
            Some("us")
        );
        assert_eq!(over.steering, Some(PoolSteering::Random));
        assert_eq!(over.weight_default, Some(0.5));
        let weights = over.weights.as_ref().expect("weights");
        assert_eq!((weights[0].0.text.as_str(), weights[0].1), ("eu", 0.25));
        assert_eq!(over.region_pools.as_ref().map(Vec::len), Some(1));
        assert_eq!(over.country_pools.as_ref().expect("a map")[0].1.len(), 2);
        // A map that is there and empty replaces; one that is not there does not.
        assert_eq!(over.pop_pools.as_ref().map(Vec::len), Some(0));
        assert_eq!(over.failover_across_pools, Some(true));
        assert_eq!(over.affinity, Some(AffinityMode::IpCookie));
        assert_eq!(over.affinity_ttl, Some(Duration::from_secs(3600)));
        let attributes = over.affinity_attributes.as_ref().expect("attributes");
        assert_eq!(attributes.failover, PinFailover::Sticky);
        assert_eq!(over.ttl_secs, Some(60));
        let transform = &all.transform;
        assert_eq!(transform.request_headers.len(), 2);
        assert_eq!(transform.request_headers[1].name(), "X-Debug");
        assert_eq!(transform.response_headers[0].name(), "X-Pool");
        let path = transform.path.as_ref().expect("a path");
        assert_eq!(
            (path.strip_prefix.as_deref(), path.to.text()),
            (Some("/api"), "/v2{path}")
        );

        assert_eq!(flat.overrides.weight_default, Some(0.0));
        assert_eq!(flat.overrides.weights.as_ref().map(Vec::len), Some(1));
        assert!(!empty.ends() && empty.transform.is_empty());
        assert_eq!((empty.condition.text(), empty.priority), ("", None));
        assert_eq!(empty.overrides, Overrides::default());
    }

    #[test]
    fn what_cannot_be_read_is_named() {
        let (rules, faults) = read_file(&json!([
            "x",
            {"condition": "http.host eq 5 and ip.src contains \"a\"", "priority": -1, "when": 5},
            {"condition": 5, "overrides": {"random_steering": {}, "pool_default_weight": 1, "ttl": "x",
                                           "location_strategy": {"mode": "resolver_ip"}}},
            {"usher": {"transform": {
                "request_headers": [{"set": "a", "remove": "b"}, {}, {"set": "a"}, {"set": "a", "value": "{city}"},
                                    {"remove": "a", "value": "b"}],
                "path": {"strip_prefix": "/a"},
            }}},
        ]));
        assert_eq!(rules.len(), 4);
        assert_eq!(
            faults,
            [
                "/0 load balancer lb: [0] must be an object, not text",
                "/1/when load balancer lb: [1]: unknown key \"when\"",
                "/1/condition load balancer lb: [1].condition column 14: expected a string in quotes, found 5",
                "/1/condition load balancer lb: [1].condition column 27: \"contains\" needs a string on its left side, found an ip address",
                "/1/priority load balancer lb: [1].priority -1 is below 0",
                "/2/condition load balancer lb: [2].condition must be text in quotes, not a number",
                "/2/overrides/random_steering load balancer lb: [2].overrides.random_steering cannot stand together with pool_default_weight",
                "/2/overrides/ttl load balancer lb: [2].overrides.ttl must be a whole number, not text",
                "/3/usher/transform/request_headers/0/remove load balancer lb: [3].usher.transform.request_headers[0].remove cannot stand together with set",
                "/3/usher/transform/request_headers/1 load balancer lb: [3].usher.transform.request_headers[1] has neither set nor remove",
                "/3/usher/transform/request_headers/2/value load balancer lb: [3].usher.transform.request_headers[2].value is missing",
                "/3/usher/transform/request_headers/3/value load balancer lb: [3].usher.transform.request_headers[3].value \"{city}\": no variable \"city\": there are country, country_lower, region, region_lower, client, host, path, load_balancer, node, and in response headers pool, endpoint",
                "/3/usher/transform/request_headers/4/value load balancer lb: [3].usher.transform.request_headers[4].value has no meaning beside remove",
                "/3/usher/transform/path/to load balancer lb: [3].usher.transform.path.to is missing",
            ]
        );
    }
}
