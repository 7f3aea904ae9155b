//! The fields of each resource, as answers show them.
//!
//! Source: load-balancing specification 3.1 to 3.7. What a reader of `wire` takes and a table here
//! does not show would be lost by the echo: a test holds the two against each other.

use super::document::{Field, Kind, optional, required};

/// A monitor.
pub(crate) const MONITOR: &[Field] = &[
    optional("type", Kind::Text, "\"http\""),
    optional("description", Kind::Text, "\"\""),
    optional("method", Kind::Text, "\"GET\""),
    optional("path", Kind::Text, "\"/\""),
    optional("port", Kind::Whole, "0"),
    optional("header", Kind::Map, "null"),
    optional("expected_codes", Kind::Text, "\"200\""),
    optional("expected_body", Kind::Text, "\"\""),
    optional("follow_redirects", Kind::Flag, "false"),
    optional("allow_insecure", Kind::Flag, "false"),
    optional("probe_zone", Kind::Text, "\"\""),
    optional("interval", Kind::Whole, "60"),
    optional("timeout", Kind::Whole, "5"),
    optional("retries", Kind::Whole, "2"),
    optional("consecutive_down", Kind::Whole, "0"),
    optional("consecutive_up", Kind::Whole, "0"),
];

/// A monitor group.
pub(crate) const MONITOR_GROUP: &[Field] = &[
    required("description", Kind::Text),
    required("members", Kind::Objects(MEMBER)),
];

pub(crate) const MEMBER: &[Field] = &[
    required("monitor_id", Kind::Text),
    optional("enabled", Kind::Flag, "true"),
    optional("monitoring_only", Kind::Flag, "false"),
    optional("must_be_healthy", Kind::Flag, "false"),
];

/// A pool.
pub(crate) const POOL: &[Field] = &[
    required("name", Kind::Text),
    optional("description", Kind::Text, "\"\""),
    optional("enabled", Kind::Flag, "true"),
    optional("minimum_origins", Kind::Whole, "1"),
    optional("monitor", Kind::Text, "null"),
    optional("monitor_group", Kind::Text, "null"),
    optional("check_regions", Kind::Texts, "null"),
    optional("health_sources", Kind::Texts, "null"),
    optional("latitude", Kind::Number, "null"),
    optional("longitude", Kind::Number, "null"),
    optional("load_shedding", Kind::Object(LOAD_SHEDDING), "null"),
    optional("notification_email", Kind::Text, "\"\""),
    optional("notification_filter", Kind::Map, "null"),
    optional("networks", Kind::Texts, "[]"),
    optional("origin_steering", Kind::Object(ORIGIN_STEERING), "{}"),
    required("origins", Kind::Objects(ORIGIN)),
    optional("usher", Kind::Object(POOL_USHER), ""),
];

const LOAD_SHEDDING: &[Field] = &[
    optional("default_percent", Kind::Number, "0"),
    optional("default_policy", Kind::Text, "\"random\""),
    optional("session_percent", Kind::Number, "0"),
    optional("session_policy", Kind::Text, "\"hash\""),
];

const ORIGIN_STEERING: &[Field] = &[optional("policy", Kind::Text, "\"random\"")];

pub(crate) const ORIGIN: &[Field] = &[
    required("name", Kind::Text),
    required("address", Kind::Text),
    optional("enabled", Kind::Flag, "true"),
    optional("weight", Kind::Number, "1"),
    optional("port", Kind::Whole, "0"),
    optional("header", Kind::Map, "null"),
    optional("virtual_network_id", Kind::Text, "\"\""),
    optional("flatten_cname", Kind::Flag, "true"),
];

const POOL_USHER: &[Field] = &[
    optional("tls", Kind::Text, ""),
    optional("ca", Kind::Text, ""),
    optional("client_cert", Kind::Text, ""),
    optional("client_key", Kind::Text, ""),
    optional("sni", Kind::Text, ""),
    optional("slow_start", Kind::Whole, ""),
    optional("http2", Kind::Flag, ""),
];

/// A load balancer.
pub(crate) const BALANCER: &[Field] = &[
    required("name", Kind::Text),
    optional("description", Kind::Text, "\"\""),
    optional("enabled", Kind::Flag, "true"),
    optional("proxied", Kind::Flag, "false"),
    optional("ttl", Kind::Whole, ""),
    required("default_pools", Kind::Texts),
    required("fallback_pool", Kind::Text),
    optional("region_pools", Kind::Map, "{}"),
    optional("country_pools", Kind::Map, "{}"),
    optional("pop_pools", Kind::Map, "{}"),
    optional("steering_policy", Kind::Text, "\"\""),
    optional("random_steering", Kind::Object(RANDOM_STEERING), "{}"),
    optional("location_strategy", Kind::Object(LOCATION_STRATEGY), "{}"),
    optional("session_affinity", Kind::Text, "\"none\""),
    // Its default depends on the mode, so one that was never set stays unset.
    optional("session_affinity_ttl", Kind::Whole, ""),
    optional(
        "session_affinity_attributes",
        Kind::Object(AFFINITY_ATTRIBUTES),
        "{}",
    ),
    optional("adaptive_routing", Kind::Object(ADAPTIVE_ROUTING), "{}"),
    optional("rules", Kind::Objects(RULE), "[]"),
    optional("pool_sets", Kind::Objects(POOL_SET), "[]"),
    optional("networks", Kind::Texts, "[]"),
    optional("usher", Kind::Map, ""),
];

const RANDOM_STEERING: &[Field] = &[
    optional("default_weight", Kind::Number, "1"),
    optional("pool_weights", Kind::Map, "{}"),
];

const LOCATION_STRATEGY: &[Field] = &[
    optional("mode", Kind::Text, "\"pop\""),
    optional("prefer_ecs", Kind::Text, "\"proximity\""),
];

const AFFINITY_ATTRIBUTES: &[Field] = &[
    optional("samesite", Kind::Text, "\"Auto\""),
    optional("secure", Kind::Text, "\"Auto\""),
    optional("drain_duration", Kind::Whole, "0"),
    optional("zero_downtime_failover", Kind::Text, "\"none\""),
    optional("headers", Kind::Texts, "[]"),
    optional("require_all_headers", Kind::Flag, "false"),
];

const ADAPTIVE_ROUTING: &[Field] = &[optional("failover_across_pools", Kind::Flag, "false")];

const RULE: &[Field] = &[
    optional("name", Kind::Text, "\"\""),
    optional("condition", Kind::Text, "\"\""),
    optional("disabled", Kind::Flag, "false"),
    optional("priority", Kind::Whole, ""),
    optional("terminates", Kind::Flag, "false"),
    optional("fixed_response", Kind::Object(FIXED_RESPONSE), ""),
    // What a rule does not name stays as it was, so nothing is filled in.
    optional("overrides", Kind::Map, "{}"),
    optional("usher", Kind::Map, ""),
];

const POOL_SET: &[Field] = &[
    optional("name", Kind::Text, "\"\""),
    optional("disabled", Kind::Flag, "false"),
    optional("match", Kind::Map, ""),
    optional("overrides", Kind::Object(POOL_SET_OVERRIDES), ""),
    optional("fixed_response", Kind::Object(FIXED_RESPONSE), ""),
];

const POOL_SET_OVERRIDES: &[Field] = &[
    optional("pools", Kind::Texts, ""),
    optional("pool_weights", Kind::Map, ""),
    optional("pool_default_weight", Kind::Number, ""),
    optional("fallback_pool", Kind::Text, ""),
    optional("steering_policy", Kind::Text, ""),
];

const FIXED_RESPONSE: &[Field] = &[
    optional("status_code", Kind::Whole, "200"),
    optional("content_type", Kind::Text, ""),
    optional("location", Kind::Text, ""),
    optional("message_body", Kind::Text, ""),
];

/// A waiting room.
pub(crate) const ROOM: &[Field] = &[
    required("name", Kind::Text),
    optional("description", Kind::Text, "\"\""),
    required("host", Kind::Text),
    optional("path", Kind::Text, "\"/\""),
    optional("additional_routes", Kind::Objects(ADDITIONAL_ROUTE), "[]"),
    optional("cookie_suffix", Kind::Text, ""),
    optional("cookie_attributes", Kind::Object(ROOM_COOKIE), "{}"),
    required("total_active_users", Kind::Whole),
    required("new_users_per_minute", Kind::Whole),
    optional("session_duration", Kind::Whole, "5"),
    optional("disable_session_renewal", Kind::Flag, "false"),
    optional("queueing_method", Kind::Text, "\"fifo\""),
    optional("queue_all", Kind::Flag, "false"),
    optional("suspended", Kind::Flag, "false"),
    optional("queueing_status_code", Kind::Whole, "200"),
    optional("json_response_enabled", Kind::Flag, "false"),
    optional("custom_page_html", Kind::Text, "\"\""),
    optional("default_template_language", Kind::Text, "\"en-US\""),
    optional("enabled_origin_commands", Kind::Texts, "[]"),
    optional("turnstile_mode", Kind::Text, "\"off\""),
    optional("turnstile_action", Kind::Text, "\"log\""),
    optional("usher", Kind::Map, ""),
];

const ADDITIONAL_ROUTE: &[Field] = &[
    required("host", Kind::Text),
    optional("path", Kind::Text, "\"/\""),
];

const ROOM_COOKIE: &[Field] = &[
    optional("samesite", Kind::Text, "\"auto\""),
    optional("secure", Kind::Text, "\"auto\""),
];

/// The rules of a waiting room, as they are kept.
pub(crate) const ROOM_RULES: &[Field] = &[required("rules", Kind::Objects(ROOM_RULE_KEPT))];

const ROOM_RULE_KEPT: &[Field] = &[
    required("id", Kind::Text),
    required("version", Kind::Text),
    optional("action", Kind::Text, "\"bypass_waiting_room\""),
    required("expression", Kind::Text),
    optional("description", Kind::Text, "\"\""),
    optional("enabled", Kind::Flag, "true"),
    optional("last_updated", Kind::Text, ""),
];

/// A rule of a waiting room, as a client sends it.
pub(crate) const ROOM_RULE: &[Field] = &[
    required("action", Kind::Text),
    required("expression", Kind::Text),
    optional("description", Kind::Text, "\"\""),
    optional("enabled", Kind::Flag, "true"),
    optional("position", Kind::Map, ""),
];

/// A preview of a waiting page.
pub(crate) const ROOM_PREVIEW: &[Field] = &[
    required("custom_html", Kind::Text),
    optional("usher", Kind::Map, ""),
];

/// The settings of the waiting rooms of a zone.
pub(crate) const ROOM_SETTINGS: &[Field] = &[optional(
    "search_engine_crawler_bypass",
    Kind::Flag,
    "false",
)];

/// A zone.
pub(crate) const ZONE: &[Field] = &[required("name", Kind::Text)];

/// The settings of a zone.
pub(crate) const ZONE_SETTINGS: &[Field] = &[
    optional("ssl", Kind::Text, "\"flexible\""),
    optional("always_use_https", Kind::Flag, "false"),
];

/// A token.
pub(crate) const TOKEN: &[Field] = &[
    required("name", Kind::Text),
    required("permissions", Kind::Texts),
    optional("accounts", Kind::Texts, "[]"),
    optional("email", Kind::Text, "null"),
    optional("expires_on", Kind::Text, "null"),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::reader::{Shape, Status};
    use crate::wire::{balancers, monitor_groups, monitors, pools, rooms};

    #[test]
    fn no_field_is_lost_by_the_echo() {
        let tables: [(&Shape, &[Field]); 8] = [
            (&monitors::MONITOR, MONITOR),
            (&monitor_groups::MONITOR_GROUP, MONITOR_GROUP),
            (&monitor_groups::MEMBER, MEMBER),
            (&pools::POOL, POOL),
            (&pools::ORIGIN, ORIGIN),
            (&balancers::LOAD_BALANCER, BALANCER),
            (&rooms::WAITING_ROOM, ROOM),
            (&rooms::ROOM_RULE, ROOM_RULE),
        ];
        for (shape, fields) in tables {
            for key in shape.keys {
                let shown = fields.iter().any(|field| field.name == key.name);
                // What stands in the path, or has calls of its own.
                let apart = ["account", "zone", "rules", "events"].contains(&key.name)
                    && !fields.iter().any(|field| field.name == key.name);
                let own = key.status == Status::ReadOnly || apart;
                assert_eq!(shown, !own, "{}: {}", shape.name, key.name);
            }
        }
    }
}
