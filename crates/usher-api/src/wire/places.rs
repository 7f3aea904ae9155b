//! From a fault of the core back to the JSON that caused it.
//!
//! The core numbers what it checks and names fields in its own words; this remembers where each
//! number stood and knows which key each field is read from.

use serde_json::Value;
use usher_core::catalog::{
    self, AffinityField, AreaMap, Balancer, CatalogError, Draft, Field, MonitorKind, Monitoring,
    PoolSet, PoolSetPart, Reference, RoomField, RulePart, SheddingField, Subject, TlsField,
};
use usher_core::rules::{PoolMap, Rule, RuleField};

use super::reader::{Cursor, Fault, Mode, Report};

/// Where every resource of a draft stands in the JSON that it was read from, list by list in the
/// order of the draft.
#[derive(Debug, Default)]
pub struct Places {
    /// Of `Draft::zones`, without those at its end that are only implied by a load balancer.
    pub zones: Vec<Place>,
    /// Of `Draft::monitors`.
    pub monitors: Vec<Place>,
    /// Of `Draft::monitor_groups`.
    pub monitor_groups: Vec<Place>,
    /// Of `Draft::pools`.
    pub pools: Vec<Place>,
    /// Of `Draft::balancers`.
    pub balancers: Vec<Place>,
    /// Of `Draft::rooms`.
    pub rooms: Vec<Place>,
}

/// Where one resource stands.
#[derive(Debug, Clone)]
pub struct Place {
    pointer: String,
    label: String,
    mode: Mode,
    /// Rules, by place, whose weights are written flat: the core does not tell the two ways apart.
    flat: Vec<usize>,
}

impl Place {
    /// Where `cursor` points.
    #[must_use]
    pub fn of(cursor: &Cursor<'_>) -> Place {
        Place {
            pointer: cursor.pointer().to_owned(),
            label: cursor.place().to_owned(),
            mode: cursor.mode(),
            flat: flat(cursor.value()),
        }
    }
}

fn flat(resource: &Value) -> Vec<usize> {
    let rules = resource.get("rules").and_then(Value::as_array);
    let rules = rules.into_iter().flatten().enumerate();
    let flat = rules.filter(|(_, rule)| rule["overrides"]["random_steering"].is_null());
    flat.map(|(place, _)| place).collect()
}

impl Places {
    /// Tells `report` a fault of the core, unless it only follows from another one.
    pub fn tell(&self, report: &Report, draft: &Draft, fault: &catalog::Fault) {
        if matches!(fault.subject, Subject::Zone(index) if index >= self.zones.len()) {
            // The load balancer that implies the zone has the same fault, and a line to show.
            return;
        }
        let mut found = self.finding(draft, fault.subject, fault.field, fault.error.to_string());
        let mut of = Vec::new();
        if let CatalogError::Missing { .. } = fault.error {
            // A weight for a pool that does not exist: the name is wrong, and it is a key.
            found.at_key |= matches!(fault.field, Field::PoolWeight(_));
        }
        if let CatalogError::ProbeOverlap { .. } = fault.error {
            let monitor = found
                .pointer
                .rsplit_once('/')
                .map_or("", |(monitor, _)| monitor);
            of.extend(["interval", "timeout", "retries"].map(|key| format!("{monitor}/{key}")));
        }
        report.consequence(found, &of);
    }

    /// The warning of the core as a note on the JSON.
    #[must_use]
    pub fn note(&self, draft: &Draft, warning: &catalog::Warning) -> Fault {
        let note = self.finding(draft, warning.subject, warning.field, warning.text.clone());
        // A whole sentence, which names the resource.
        Fault {
            place: String::new(),
            ..note
        }
    }

    /// `message`, about a field of a resource of `draft`.
    #[must_use]
    pub fn finding(&self, draft: &Draft, subject: Subject, field: Field, message: String) -> Fault {
        let nowhere = || Place {
            pointer: String::new(),
            label: String::new(),
            mode: Mode::File,
            flat: Vec::new(),
        };
        let at = |list: &[Place], index: usize| list.get(index).cloned().unwrap_or_else(nowhere);
        let place = match subject {
            Subject::Node => nowhere(),
            Subject::Zone(index) => at(&self.zones, index),
            Subject::Monitor(index) => at(&self.monitors, index),
            Subject::MonitorGroup(index) => at(&self.monitor_groups, index),
            Subject::Pool(index) => at(&self.pools, index),
            Subject::Balancer(index) => at(&self.balancers, index),
            Subject::Room(index) => at(&self.rooms, index),
            Subject::Endpoint { pool, endpoint } => {
                let pool_place = at(&self.pools, pool);
                let name = draft
                    .pools
                    .get(pool)
                    .and_then(|pool| pool.endpoints.get(endpoint));
                let name = name
                    .map(|endpoint| endpoint.name.clone())
                    .filter(|name| !name.is_empty());
                let name = name.unwrap_or_else(|| (endpoint + 1).to_string());
                Place {
                    pointer: format!("{}/origins/{endpoint}", pool_place.pointer),
                    label: format!("{}endpoint {name}: ", pool_place.label),
                    mode: pool_place.mode,
                    flat: Vec::new(),
                }
            }
        };
        let key = key(draft, subject, field, &place);
        let at_key = key.is_empty();
        Fault {
            pointer: format!("{}{key}", place.pointer),
            at_key,
            inside: 0,
            place: place.label + &within(&key),
            message,
        }
    }
}

/// The way to what is inside a rule or a pool set, as the reader tells it: `rules[1].overrides: `.
/// The field itself is named by the message.
fn within(key: &str) -> String {
    if !key.starts_with("/rules/") && !key.starts_with("/pool_sets/") {
        return String::new();
    }
    let names: Vec<&str> = key.split('/').skip(1).collect();
    // The list and the place in it, at least.
    let parents = names.len().saturating_sub(1).max(2);
    let mut way = String::new();
    for name in &names[..parents.min(names.len())] {
        match name.parse::<usize>() {
            Ok(place) => way += &format!("[{place}]"),
            Err(_) if way.is_empty() => way += name,
            Err(_) => way += &format!(".{name}"),
        }
    }
    way + ": "
}

/// Pointer of the field from its resource; empty for what is not a field of its own.
fn key(draft: &Draft, subject: Subject, field: Field, place: &Place) -> String {
    let fixed = match field {
        Field::Name => match (subject, place.mode) {
            (Subject::Endpoint { .. }, _) | (_, Mode::Api) => "/name",
            (Subject::Node, Mode::File) => "/node/name",
            // In a file the key is the name.
            (_, Mode::File) => "",
        },
        Field::Zone if matches!((subject, place.mode), (Subject::Room(_), Mode::File)) => "/zone",
        Field::Zone => "",
        Field::Room(field) => return room(field),
        Field::Count => return String::new(),
        Field::Description => "/description",
        Field::Code => "/node/code",
        Field::Region => "/node/region",
        Field::Country => "/node/country",
        Field::Coordinates if matches!(subject, Subject::Pool(_)) => "/latitude",
        Field::Coordinates => "/node/latitude",
        Field::Shedding(SheddingField::Default) => "/load_shedding/default_percent",
        Field::Shedding(SheddingField::Session) => "/load_shedding/session_percent",
        Field::SlowStart => "/usher/slow_start",
        Field::Steering => "/steering_policy",
        Field::EndpointHeader => "/usher/endpoint_header",
        Field::Affinity(field) => return affinity(field),
        Field::PoolSets => "/pool_sets",
        Field::Rules => "/rules",
        Field::Area { .. } | Field::PoolSet { .. } | Field::Rule { .. } => {
            let Subject::Balancer(balancer) = subject else {
                return String::new();
            };
            let balancer = draft.balancers.get(balancer);
            return balancer.map_or_else(String::new, |balancer| inside(balancer, field, place));
        }
        Field::IntervalMin => "/limits/monitor_interval_min",
        Field::Method => "/method",
        Field::Path => "/path",
        Field::Port => "/port",
        Field::ExpectedBody => "/expected_body",
        Field::Interval => "/interval",
        Field::Timeout => "/timeout",
        Field::Retries => "/retries",
        Field::ConsecutiveDown => "/consecutive_down",
        Field::ConsecutiveUp => "/consecutive_up",
        Field::Members => "/members",
        Field::Endpoints => "/origins",
        Field::EndpointsMin => "/minimum_origins",
        Field::Address => "/address",
        Field::Weight => "/weight",
        Field::HostHeader => "/header/Host/0",
        Field::Pools => "/default_pools",
        Field::Fallback => "/fallback_pool",
        Field::WeightDefault => "/random_steering/default_weight",
        Field::Header(index) => {
            let name = header_name(draft, subject, index).unwrap_or_default();
            return format!("/header/{}", token(&name));
        }
        Field::Member(index) => return format!("/members/{index}/monitor_id"),
        Field::Pool(index) => return format!("/default_pools/{index}"),
        Field::PoolWeight(index) => {
            let Subject::Balancer(balancer) = subject else {
                return String::new();
            };
            let weights = draft
                .balancers
                .get(balancer)
                .map(|balancer| &balancer.weights);
            let name = weights
                .and_then(|weights| weights.get(index))
                .map(|(pool, _)| &pool.text);
            return format!(
                "/random_steering/pool_weights/{}",
                token(name.map_or("", |name| name))
            );
        }
        Field::Monitoring => {
            let Subject::Pool(pool) = subject else {
                return String::new();
            };
            match draft.pools.get(pool).map(|pool| &pool.monitoring) {
                Some(Monitoring::Group(_)) => "/monitor_group",
                Some(Monitoring::Monitor(_) | Monitoring::None) | None => "/monitor",
            }
        }
        Field::Tls(field) => {
            let is_zone = matches!(subject, Subject::Zone(_));
            let object = if is_zone { "upstream" } else { "usher" };
            let key = match field {
                TlsField::Ca => "ca",
                TlsField::ClientCert => "client_cert",
                TlsField::ClientKey => "client_key",
                TlsField::Sni => "sni",
            };
            return format!("/{object}/{key}");
        }
    };
    fixed.to_owned()
}

fn room(field: RoomField) -> String {
    let fixed = match field {
        RoomField::Routes | RoomField::Host(0) => "/host",
        RoomField::Path(0) => "/path",
        RoomField::AdditionalRoutes => "/additional_routes",
        RoomField::CookieSuffix => "/cookie_suffix",
        RoomField::CookieMarks => "/cookie_attributes",
        RoomField::Seats => "/total_active_users",
        RoomField::PerMinute => "/new_users_per_minute",
        RoomField::Session => "/session_duration",
        RoomField::Page => "/custom_page_html",
        RoomField::Rules => "/rules",
        RoomField::Host(place) => return format!("/additional_routes/{}/host", place - 1),
        RoomField::Path(place) => return format!("/additional_routes/{}/path", place - 1),
        RoomField::Expression(place) => return format!("/rules/{place}/expression"),
        RoomField::RuleDescription(place) => return format!("/rules/{place}/description"),
    };
    fixed.to_owned()
}

fn affinity(field: AffinityField) -> String {
    let attribute = match field {
        AffinityField::Ttl => return "/session_affinity_ttl".to_owned(),
        AffinityField::SameSite => "samesite".to_owned(),
        AffinityField::Drain => "drain_duration".to_owned(),
        AffinityField::Failover => "zero_downtime_failover".to_owned(),
        AffinityField::Headers => "headers".to_owned(),
        AffinityField::Header(index) => format!("headers/{index}"),
    };
    format!("/session_affinity_attributes/{attribute}")
}

/// Pointer of what lies in a map, pool set or rule of a load balancer.
fn inside(balancer: &Balancer, field: Field, at: &Place) -> String {
    match field {
        Field::Area { map, place, pool } => {
            let areas = &balancer.areas;
            let areas = match map {
                AreaMap::Pops => &areas.pops,
                AreaMap::Countries => &areas.countries,
                AreaMap::Regions => &areas.regions,
            };
            area(map, Some(areas), place, pool)
        }
        Field::PoolSet { place, part } => {
            let set = balancer.pool_sets.get(place);
            format!("/pool_sets/{place}{}", pool_set(set, part))
        }
        Field::Rule { place, part } => {
            let rule = balancer.rules.as_written().get(place);
            let flat = at.flat.contains(&place);
            format!("/rules/{place}{}", rule_part(rule, part, flat))
        }
        _ => String::new(),
    }
}

fn area(
    map: AreaMap,
    areas: Option<&PoolMap<Reference>>,
    place: usize,
    pool: Option<usize>,
) -> String {
    let key = match map {
        AreaMap::Pops => "pop_pools",
        AreaMap::Countries => "country_pools",
        AreaMap::Regions => "region_pools",
    };
    let code = areas
        .and_then(|areas| areas.get(place))
        .map_or("", |(code, _)| code);
    let pool = pool.map_or_else(String::new, |pool| format!("/{pool}"));
    format!("/{key}/{}{pool}", token(code))
}

fn pool_set(set: Option<&PoolSet>, part: PoolSetPart) -> String {
    match part {
        PoolSetPart::Whole => String::new(),
        PoolSetPart::Name => "/name".to_owned(),
        PoolSetPart::Match => "/match".to_owned(),
        PoolSetPart::Places(map, place) => {
            let list = match map {
                AreaMap::Pops => "pops",
                AreaMap::Countries => "countries",
                AreaMap::Regions => "regions",
            };
            format!("/match/topology/{list}/{place}")
        }
        PoolSetPart::Pools => "/overrides/pools".to_owned(),
        PoolSetPart::Pool(place) => format!("/overrides/pools/{place}"),
        PoolSetPart::Fallback => "/overrides/fallback_pool".to_owned(),
        PoolSetPart::WeightDefault => "/overrides/pool_default_weight".to_owned(),
        PoolSetPart::Weight(place) => {
            let pool = set.and_then(|set| set.weights.get(place));
            let name = pool.map_or("", |(pool, _)| pool.text.as_str());
            format!("/overrides/pool_weights/{}", token(name))
        }
        PoolSetPart::Steering => "/overrides/steering_policy".to_owned(),
        PoolSetPart::Response(field) => own(None, field, false),
    }
}

fn rule_part(rule: Option<&Rule<Reference>>, part: RulePart, flat: bool) -> String {
    let overrides = rule.map(|rule| &rule.overrides);
    match part {
        RulePart::Condition => "/condition".to_owned(),
        RulePart::Own(field) => own(rule, field, flat),
        RulePart::Pool(place) => format!("/overrides/pools/{place}"),
        RulePart::DefaultPool(place) => {
            let place = place.map_or_else(String::new, |place| format!("/{place}"));
            format!("/overrides/default_pools{place}")
        }
        RulePart::Area { map, place, pool } => {
            let areas = overrides.and_then(|overrides| match map {
                AreaMap::Pops => overrides.pop_pools.as_ref(),
                AreaMap::Countries => overrides.country_pools.as_ref(),
                AreaMap::Regions => overrides.region_pools.as_ref(),
            });
            format!("/overrides{}", area(map, areas, place, pool))
        }
        RulePart::Fallback => "/overrides/fallback_pool".to_owned(),
        RulePart::Affinity(field) => format!("/overrides{}", affinity(field)),
    }
}

/// Of a rule by itself; pool sets share the fixed response.
fn own(rule: Option<&Rule<Reference>>, field: RuleField, flat: bool) -> String {
    match field {
        RuleField::Name => "/name".to_owned(),
        RuleField::Status => "/fixed_response/status_code".to_owned(),
        RuleField::ContentType => "/fixed_response/content_type".to_owned(),
        RuleField::Location => "/fixed_response/location".to_owned(),
        RuleField::Body => "/fixed_response/message_body".to_owned(),
        RuleField::Pools => "/overrides/pools".to_owned(),
        RuleField::Ttl => "/overrides/ttl".to_owned(),
        RuleField::WeightDefault if flat => "/overrides/pool_default_weight".to_owned(),
        RuleField::WeightDefault => "/overrides/random_steering/default_weight".to_owned(),
        RuleField::Weight(place) => {
            let weights = rule.and_then(|rule| rule.overrides.weights.as_ref());
            let pool = weights.and_then(|weights| weights.get(place));
            let name = pool.map_or("", |(pool, _)| pool.text.as_str());
            let object = if flat { "" } else { "random_steering/" };
            format!("/overrides/{object}pool_weights/{}", token(name))
        }
        RuleField::RequestHeader(place) => format!("/usher/transform/request_headers/{place}"),
        RuleField::ResponseHeader(place) => format!("/usher/transform/response_headers/{place}"),
        RuleField::Path => "/usher/transform/path".to_owned(),
    }
}

fn header_name(draft: &Draft, subject: Subject, index: usize) -> Option<String> {
    let Subject::Monitor(monitor) = subject else {
        return None;
    };
    let check = match &draft.monitors.get(monitor)?.kind {
        MonitorKind::Http(check) | MonitorKind::Https { check, .. } => check,
        MonitorKind::Tcp => return None,
    };
    check.headers.get(index).map(|(name, _)| name.clone())
}

/// `text` as one token of a JSON pointer.
pub(super) fn token(text: &str) -> String {
    text.replace('~', "~0").replace('/', "~1")
}
