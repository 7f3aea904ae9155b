//! A load balancer: the fields of `/zones/{zone_id}/load_balancers`.

use usher_core::address::is_open;
use usher_core::catalog::{Affinity, Areas, Balancer, HostPattern, Reference};
use usher_core::id::{Id, Kind};
use usher_core::rules::{PoolMap, Rules};
use usher_core::steering::PoolSteering;

use super::reader::{Cursor, Object, Shape, Word, built, read_only, unbuilt};
use super::{affinity, pool_sets, rules};

/// A load balancer.
pub static LOAD_BALANCER: Shape = Shape {
    name: "load balancer",
    keys: &[
        built("name"),
        built("description"),
        built("enabled"),
        built("proxied"),
        built("default_pools"),
        built("fallback_pool"),
        built("steering_policy"),
        built("random_steering"),
        built("region_pools"),
        built("country_pools"),
        built("pop_pools"),
        built("adaptive_routing"),
        built("pool_sets"),
        built("session_affinity"),
        built("session_affinity_ttl"),
        built("session_affinity_attributes"),
        built("rules"),
        built("usher"),
        built("ttl"),
        built("location_strategy"),
        built("networks"),
        unbuilt("account", &["default"]),
        read_only("id"),
        read_only("created_on"),
        read_only("modified_on"),
        read_only("zone_name"),
    ],
};

/// The weights of the pools of a load balancer.
pub static RANDOM_STEERING: Shape = Shape {
    name: "random_steering of a load balancer",
    keys: &[built("default_weight"), built("pool_weights")],
};

/// From where a client of the DNS front is taken to ask.
pub static LOCATION_STRATEGY: Shape = Shape {
    name: "location_strategy of a load balancer",
    keys: &[built("mode"), built("prefer_ecs")],
};

/// What happens when all of the chosen pool fails a request.
pub static ADAPTIVE_ROUTING: Shape = Shape {
    name: "adaptive_routing of a load balancer",
    keys: &[built("failover_across_pools")],
};

/// What Usher adds to a load balancer.
pub static BALANCER_USHER: Shape = Shape {
    name: "usher of a load balancer",
    keys: &[built("endpoint_header")],
};

pub(super) const POLICIES: [(&str, Word<PoolSteering>); 8] = [
    ("", Word::Means(PoolSteering::Auto)),
    ("off", Word::Means(PoolSteering::Off)),
    ("geo", Word::Means(PoolSteering::Geo)),
    ("random", Word::Means(PoolSteering::Random)),
    ("dynamic_latency", Word::Means(PoolSteering::DynamicLatency)),
    ("proximity", Word::Means(PoolSteering::Proximity)),
    (
        "least_outstanding_requests",
        Word::Means(PoolSteering::LeastOutstandingRequests),
    ),
    (
        "least_connections",
        Word::Means(PoolSteering::LeastConnections),
    ),
];

/// Reads a load balancer. `name` is the key of a file; `None` takes the field `name`.
///
/// Its zone is left empty: which one it stands in depends on the zones there are.
#[must_use]
pub fn read(cursor: &Cursor<'_>, id: Id, name: Option<&str>) -> Balancer {
    read_of(cursor, id, name, true)
}

/// Reads a load balancer of an account: it has no zone, and what it is called is a private address
/// or a label. Nothing reaches it yet, which is noted.
#[must_use]
pub fn read_private(cursor: &Cursor<'_>, id: Id) -> Balancer {
    let balancer = read_of(cursor, id, None, false);
    let Some(object) = cursor.quiet_object(&LOAD_BALANCER) else {
        return balancer;
    };
    // That it is there and text has been looked at.
    let name = object.get("name").filter(|name| name.value().is_string());
    if let Some(name) = name
        && !is_private_name(&balancer.name)
    {
        name.fault(format_args!(
            "{:?} is neither a private address nor a label",
            balancer.name
        ));
    }
    let name = object.get("name");
    name.unwrap_or_else(|| cursor.clone()).note(
        "is a load balancer of an account, which is reached from private networks: this node has no way in for those",
    );
    balancer
}

fn is_private_name(name: &str) -> bool {
    const LEN_MAX: usize = 253;
    if let Ok(ip) = name.parse() {
        return !is_open(ip);
    }
    let mut bytes = name.bytes();
    (1..=LEN_MAX).contains(&name.len())
        && bytes.all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte))
}

fn read_of(cursor: &Cursor<'_>, id: Id, name: Option<&str>, of_zone: bool) -> Balancer {
    let mut balancer = Balancer {
        id,
        name: String::new(),
        host: HostPattern::Exact(String::new()),
        zone: String::new(),
        description: String::new(),
        enabled: true,
        pools: Vec::new(),
        fallback: super::nowhere(),
        steering: PoolSteering::default(),
        weight_default: 1.0,
        weights: Vec::new(),
        areas: Areas::default(),
        location: Default::default(),
        affinity: Affinity::default(),
        failover_across_pools: false,
        endpoint_header: None,
        pool_sets: Vec::new(),
        rules: Default::default(),
    };
    (balancer.name, balancer.host) = host(name.unwrap_or_default());
    let Some(object) = cursor.object(&LOAD_BALANCER) else {
        return balancer;
    };
    match name {
        Some(key) => object.same_as_key("name", key),
        None => (balancer.name, balancer.host) = host(&object.need_text("name")),
    }
    if of_zone {
        check_proxied(&object);
    } else {
        let _ = object.flag_or("proxied", false);
    }
    // Kept and shown again; nothing else comes of it.
    super::texts(&object, "networks");
    balancer.description = object.text_or("description", "");
    balancer.enabled = object.flag_or("enabled", true);
    let pools = object.need("default_pools");
    balancer.pools = pools.as_ref().map_or_else(Vec::new, list_of_pools);
    balancer.fallback = object
        .need("fallback_pool")
        .as_ref()
        .map_or_else(super::nowhere, pool);
    balancer.steering = object
        .get("steering_policy")
        .and_then(|word| word.word(&POLICIES))
        .unwrap_or_default();
    if let Some(random) = object
        .get("random_steering")
        .and_then(|it| it.object(&RANDOM_STEERING))
    {
        let default = random
            .get("default_weight")
            .and_then(|weight| weight.number());
        balancer.weight_default = default.unwrap_or(1.0);
        let weights = random.get("pool_weights");
        balancer.weights = weights.as_ref().map_or_else(Vec::new, pool_weights);
    }
    let areas = |key| {
        object
            .get(key)
            .as_ref()
            .map_or_else(Vec::new, pools_by_place)
    };
    balancer.areas = Areas {
        pops: areas("pop_pools"),
        countries: areas("country_pools"),
        regions: areas("region_pools"),
    };
    if let Some(adaptive) = object
        .get("adaptive_routing")
        .and_then(|it| it.object(&ADAPTIVE_ROUTING))
    {
        balancer.failover_across_pools = adaptive.flag_or("failover_across_pools", false);
    }
    balancer.affinity = affinity::read(&object);
    balancer.endpoint_header = object
        .get("usher")
        .and_then(|usher| usher.object(&BALANCER_USHER))
        .and_then(|usher| usher.text("endpoint_header"));
    if let Some(ttl) = object.get("ttl")
        && ttl.whole(1, 86_400).is_some()
    {
        ttl.note("is for answers of the dns front: it has no effect on a proxied load balancer");
    }
    look_at_location(&object);
    let rules = object.get("rules");
    let mode = balancer.affinity.mode;
    let rules = rules.map(|rules| rules::read(&rules, mode));
    balancer.rules = Rules::new(rules.unwrap_or_default());
    let sets = object.get("pool_sets");
    let sets = sets.iter().flat_map(Cursor::list);
    balancer.pool_sets = sets.map(|set| pool_sets::read(&set)).collect();
    balancer
}

const MODES: [(&str, Word<bool>); 2] = [
    ("pop", Word::Means(true)),
    ("resolver_ip", Word::Means(false)),
];

const ECS: [(&str, Word<bool>); 4] = [
    ("proximity", Word::Means(true)),
    ("always", Word::Means(false)),
    ("never", Word::Means(false)),
    ("geo", Word::Means(false)),
];

/// Kept and shown again: only the DNS front would go by it.
pub(super) fn look_at_location(object: &Object<'_>) {
    let Some(strategy) = object.get("location_strategy") else {
        return;
    };
    let Some(inner) = strategy.object(&LOCATION_STRATEGY) else {
        return;
    };
    let mode = inner.get("mode").and_then(|word| word.word(&MODES));
    let ecs = inner.get("prefer_ecs").and_then(|word| word.word(&ECS));
    if mode == Some(false) || ecs == Some(false) {
        strategy.note("is for the dns front: it has no effect on a proxied load balancer");
    }
}

pub(super) fn pool(value: &Cursor<'_>) -> Reference {
    value.reference(Kind::Pool).unwrap_or_else(super::nowhere)
}

pub(super) fn list_of_pools(list: &Cursor<'_>) -> Vec<Reference> {
    list.list().iter().map(pool).collect()
}

pub(super) fn pool_weights(weights: &Cursor<'_>) -> Vec<(Reference, f64)> {
    let entries = weights.entries().into_iter();
    entries
        .map(|(name, weight)| {
            let pool = weight
                .names(Kind::Pool, name)
                .unwrap_or_else(super::nowhere);
            (pool, weight.number().unwrap_or(1.0))
        })
        .collect()
}

pub(super) fn pools_by_place(map: &Cursor<'_>) -> PoolMap<Reference> {
    let entries = map.entries().into_iter();
    entries
        .map(|(code, pools)| (code.to_owned(), list_of_pools(&pools)))
        .collect()
}

/// A load balancer that is not proxied is served by the DNS front.
fn check_proxied(object: &Object<'_>) {
    const WHAT: &str = "false is the default and means the dns front, which is not built yet; \
                        only \"proxied: true\" is served";
    match object.get("proxied") {
        None => object.absent("proxied").fault_at_key(
            "is missing: write \"proxied: true\"; without it the dns front is meant, which is not built yet",
        ),
        Some(proxied) => {
            if proxied.flag() == Some(false) {
                proxied.fault(WHAT);
            }
        }
    }
}

fn host(name: &str) -> (String, HostPattern) {
    let name = name.to_ascii_lowercase();
    let host = match name.strip_prefix("*.") {
        Some(below) => HostPattern::Below(below.to_owned()),
        None => HostPattern::Exact(name.clone()),
    };
    (name, host)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use usher_core::catalog::AffinityMode;

    use super::*;
    use crate::wire::reader::{Mode, Report, declared};

    fn read_file(key: &str, value: &Value) -> (Balancer, Vec<String>) {
        let report = Report::new(Mode::File);
        let cursor = Cursor::root(&report, value).as_resource("load balancer lb");
        let balancer = read(&cursor, declared(Kind::Balancer, key), Some(key));
        let (faults, _) = report.into_parts();
        (balancer, faults.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn every_field_is_read() {
        let value = json!({
            "description": "d", "enabled": false, "proxied": true, "default_pools": ["eu", "us"],
            "fallback_pool": "us", "steering_policy": "random",
            "random_steering": {"default_weight": 0.5, "pool_weights": {"eu": 0.7}},
            "session_affinity": "cookie", "usher": {"endpoint_header": "X-Served-By"},
            "region_pools": {"WEU": ["eu", "us"]}, "country_pools": {"DE": ["eu"]},
            "pop_pools": {"ams": ["us"]}, "rules": [{"name": "r"}], "location_strategy": {"mode": "pop"},
            "adaptive_routing": {"failover_across_pools": true},
            "pool_sets": [{"overrides": {"pools": ["us"]}}],
        });
        let (balancer, faults) = read_file("*.Example.com", &value);
        assert_eq!(faults, [""; 0]);
        assert_eq!(balancer.host, HostPattern::Below("example.com".into()));
        assert_eq!(balancer.steering, PoolSteering::Random);
        assert_eq!(balancer.pools[1].id, declared(Kind::Pool, "us"));
        assert_eq!(balancer.fallback.text, "us");
        assert_eq!((balancer.weight_default, balancer.weights[0].1), (0.5, 0.7));
        assert!(!balancer.enabled);
        let areas = &balancer.areas;
        assert_eq!(areas.regions[0].1[1].text, "us");
        assert_eq!(
            (areas.countries[0].0.as_str(), areas.pops[0].0.as_str()),
            ("DE", "ams")
        );
        assert!(balancer.failover_across_pools);
        assert_eq!(balancer.pool_sets[0].pools[0].text, "us");
        assert_eq!(balancer.affinity.mode, AffinityMode::Cookie);
        assert_eq!(balancer.endpoint_header.as_deref(), Some("X-Served-By"));
        assert_eq!(balancer.rules.as_written()[0].name, "r");
    }

    #[test]
    fn every_steering_policy_has_a_name() {
        for policy in PoolSteering::ALL {
            let value = json!({
                "proxied": true, "default_pools": ["eu"], "fallback_pool": "eu",
                "steering_policy": policy.name(),
            });
            let (balancer, faults) = read_file("lb", &value);
            assert_eq!((balancer.steering, faults), (policy, vec![]));
        }
    }

    #[test]
    fn what_is_not_built_is_refused_by_name() {
        let value = json!({
            "proxied": false, "default_pools": ["eu"], "fallback_pool": "eu",
            "location_strategy": {"mode": "resolver_ip"}, "networks": ["a"],
        });
        let (_, faults) = read_file("lb", &value);
        assert_eq!(
            faults,
            [
                "load balancer lb: proxied false is the default and means the dns front, which is \
                 not built yet; only \"proxied: true\" is served",
            ]
        );
    }

    #[test]
    fn what_is_missing_is_named() {
        let (_, faults) = read_file(
            "lb",
            &json!({"default_pools": "eu", "random_steering": {"pool_weights": {"eu": "x"}}}),
        );
        assert_eq!(
            faults,
            [
                "load balancer lb: proxied is missing: write \"proxied: true\"; without it the dns front is \
                 meant, which is not built yet",
                "load balancer lb: default_pools must be a list, not text",
                "load balancer lb: fallback_pool is missing",
                "load balancer lb: random_steering.pool_weights.eu must be a number, not text",
            ]
        );
    }
}
