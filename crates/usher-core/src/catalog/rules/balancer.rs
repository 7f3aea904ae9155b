//! The rules of load balancers: pools, places, affinity, pool sets and rules.
//!
//! Source: load-balancing specification 3.5 to 3.7 and 18.

use std::collections::BTreeSet;

use super::super::check::{AffinityField, AreaMap, CatalogError, Field, PoolSetPart, RulePart};
use super::super::syntax;
use super::super::{
    AFFINITY_HEADERS_MAX, AffinityAttributes, AffinityMode, Balancer, HostPattern, PinFailover,
    PoolSet, Reference, SameSite, Secure,
};
use super::{At, Known, is_within};
use crate::region::{CountryCode, Region};
use crate::rules::{PoolMap, RULES_MAX, Rule, RuleField, Transforms, header_faults};
use crate::steering::{CANDIDATES_MAX, PoolSteering};

/// Pool sets of a load balancer, and entries of each list of places.
const POOL_SETS_MAX: usize = 1000;
const PLACES_MAX: usize = 1000;
const POOL_SET_NAME_LEN_MAX: usize = 200;
/// Codes of each map of places.
const AREAS_MAX: usize = 1000;
const AFFINITY_HEADER_LEN_MAX: usize = 100;
const NODE_CODE_LEN_MAX: usize = 64;
/// Some years; longer is a slip of the keyboard.
const DRAIN_SECS_MAX: f64 = 31_536_000.0;

pub(super) fn check(balancer: &Balancer, known: &Known<'_>, at: &mut At<'_>) {
    at.free_text(&balancer.description);
    let base = match &balancer.host {
        HostPattern::Exact(base) | HostPattern::Below(base) => Some(base),
        HostPattern::Any => None,
    };
    let is_host = base.is_none_or(|base| syntax::is_lower_hostname(base));
    let rule = "is not a hostname, with or without \"*.\" before it";
    at.syntax(Field::Name, "load balancer", &balancer.name, rule, is_host);
    if !known.zones.contains(&balancer.zone.as_str()) {
        at.missing(Field::Zone, "zone", &balancer.zone, &known.zones);
    } else if is_host && base.is_some_and(|base| !is_within(base, &balancer.zone)) {
        let error = CatalogError::OutsideZone {
            found: balancer.name.clone(),
            zone: balancer.zone.clone(),
        };
        at.fault(Field::Name, error);
    }
    pools(&balancer.pools, Field::Pools, &Field::Pool, known, at);
    at.exists(Field::Fallback, "pool", &balancer.fallback, &known.pools);
    let default = Some(balancer.weight_default);
    weights(
        default,
        &balancer.weights,
        Field::WeightDefault,
        &Field::PoolWeight,
        known,
        at,
    );
    for (map, areas) in [
        (AreaMap::Pops, &balancer.areas.pops),
        (AreaMap::Countries, &balancer.areas.countries),
        (AreaMap::Regions, &balancer.areas.regions),
    ] {
        area(
            areas,
            map,
            &|place, pool| Field::Area { map, place, pool },
            known,
            at,
        );
    }
    let affinity = &balancer.affinity;
    let field = Field::Affinity;
    if let Some(ttl) = affinity.ttl {
        affinity_ttl(affinity.mode, ttl.as_secs_f64(), &field, at);
    }
    attributes(affinity.mode, &affinity.attributes, &field, at);
    for error in balancer
        .endpoint_header
        .iter()
        .flat_map(|it| header_faults(it))
    {
        at.fault(Field::EndpointHeader, CatalogError::Rule(error));
    }
    if balancer.pool_sets.len() > POOL_SETS_MAX {
        let (code, rule) = (
            "POOL_SETS_TOO_LARGE",
            "a load balancer has at most 1000 pool sets",
        );
        at.fault(Field::PoolSets, CatalogError::PoolSet { code, rule });
    }
    for (place, set) in balancer.pool_sets.iter().enumerate() {
        pool_set(set, &|part| Field::PoolSet { place, part }, known, at);
    }
    let rules = balancer.rules.as_written();
    at.count(Field::Rules, "rules", rules.len(), 0, RULES_MAX);
    let changing = rules
        .iter()
        .filter(|rule| !rule.transform.is_empty())
        .count();
    at.count(
        Field::Rules,
        "rules that change requests",
        changing,
        0,
        Transforms::MAX,
    );
    for (place, rule) in rules.iter().enumerate() {
        let mode = rule.overrides.affinity.unwrap_or(affinity.mode);
        self::rule(rule, mode, &|part| Field::Rule { place, part }, known, at);
    }
}

fn pools(
    pools: &[Reference],
    list: Field,
    each: &dyn Fn(usize) -> Field,
    known: &Known<'_>,
    at: &mut At<'_>,
) {
    at.count(list, "pools", pools.len(), 1, CANDIDATES_MAX);
    let mut seen = BTreeSet::new();
    for (place, pool) in pools.iter().enumerate() {
        at.exists(each(place), "pool", pool, &known.pools);
        at.unique(each(place), "pool", &pool.text, seen.insert(pool.id));
    }
}

fn weights(
    default: Option<f64>,
    weights: &[(Reference, f64)],
    field: Field,
    each: &dyn Fn(usize) -> Field,
    known: &Known<'_>,
    at: &mut At<'_>,
) {
    if let Some(default) = default {
        at.weight(field, "default weight", default);
    }
    let mut seen = BTreeSet::new();
    for (place, (pool, weight)) in weights.iter().enumerate() {
        at.exists(each(place), "pool", pool, &known.pools);
        at.unique(
            each(place),
            "weight of pool",
            &pool.text,
            seen.insert(pool.id),
        );
        at.weight(each(place), "weight", *weight);
    }
}

fn area(
    areas: &PoolMap<Reference>,
    map: AreaMap,
    field: &dyn Fn(usize, Option<usize>) -> Field,
    known: &Known<'_>,
    at: &mut At<'_>,
) {
    if areas.len() > AREAS_MAX {
        at.count(
            field(AREAS_MAX, None),
            "places with pools of their own",
            areas.len(),
            0,
            AREAS_MAX,
        );
    }
    let mut seen = BTreeSet::new();
    for (place, (code, listed)) in areas.iter().enumerate() {
        code_of(map, code, field(place, None), at);
        let unique = seen.insert(code.to_ascii_uppercase());
        at.unique(field(place, None), map.what(), code, unique);
        pools(
            listed,
            field(place, None),
            &|pool| field(place, Some(pool)),
            known,
            at,
        );
    }
}

fn code_of(map: AreaMap, code: &str, field: Field, at: &mut At<'_>) {
    match map {
        // Whether there is such a node is not known here: nodes come and go.
        AreaMap::Pops => {
            at.syntax(field, map.what(), code, "", true);
            at.len(field, map.what(), code, NODE_CODE_LEN_MAX);
        }
        AreaMap::Countries => {
            let kept = CountryCode::parse(code).is_some();
            at.syntax(
                field,
                map.what(),
                code,
                "is not a code of two letters",
                kept,
            );
        }
        AreaMap::Regions => {
            let kept = Region::parse(code).is_some();
            let rule = "is none of the 13 region codes (WNAM, ENAM, WEU, ...)";
            at.syntax(field, map.what(), code, rule, kept);
        }
    }
}

fn affinity_ttl(
    mode: AffinityMode,
    secs: f64,
    field: &dyn Fn(AffinityField) -> Field,
    at: &mut At<'_>,
) {
    if mode != AffinityMode::None {
        let (min, max) = mode.ttl_range();
        let (min, max) = (min.as_secs_f64(), max.as_secs_f64());
        at.range(
            field(AffinityField::Ttl),
            "session_affinity_ttl",
            secs,
            min,
            max,
        );
    }
}

fn attributes(
    mode: AffinityMode,
    attributes: &AffinityAttributes,
    field: &dyn Fn(AffinityField) -> Field,
    at: &mut At<'_>,
) {
    if (attributes.marks.same_site, attributes.marks.secure) == (SameSite::None, Secure::Never) {
        let error = CatalogError::Excluded {
            what: "samesite None",
            other: "secure Never",
        };
        at.fault(field(AffinityField::SameSite), error);
    }
    let drain = attributes.drain.as_secs_f64();
    at.range(
        field(AffinityField::Drain),
        "drain_duration",
        drain,
        0.0,
        DRAIN_SECS_MAX,
    );
    if mode == AffinityMode::Header && attributes.failover == PinFailover::Sticky {
        let error = CatalogError::Excluded {
            what: "zero_downtime_failover sticky",
            other: "session_affinity header",
        };
        at.fault(field(AffinityField::Failover), error);
    }
    let headers = &attributes.headers;
    let listed = field(AffinityField::Headers);
    if mode == AffinityMode::Header && headers.is_empty() {
        at.fault(listed, CatalogError::AffinityHeaders);
    }
    at.count(listed, "headers", headers.len(), 0, AFFINITY_HEADERS_MAX);
    let mut seen = BTreeSet::new();
    for (place, header) in headers.iter().enumerate() {
        let field = field(AffinityField::Header(place));
        let rule = "is neither a header name of letters, digits, \"_\" and \"-\" nor of the form \"cookie:a,b\"";
        at.syntax(field, "header", header, rule, is_affinity_header(header));
        at.len(field, "header", header, AFFINITY_HEADER_LEN_MAX);
        at.unique(
            field,
            "header",
            header,
            seen.insert(header.to_ascii_lowercase()),
        );
    }
}

fn is_affinity_header(text: &str) -> bool {
    let name = |text: &str| {
        let inside = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
        !text.is_empty() && text.bytes().all(inside)
    };
    match text.split_once(':') {
        Some((cookie, names)) => {
            cookie.eq_ignore_ascii_case("cookie")
                && names.split(',').all(|name| syntax::is_token(name.trim()))
        }
        None => name(text),
    }
}

fn pool_set(
    set: &PoolSet,
    field: &dyn Fn(PoolSetPart) -> Field,
    known: &Known<'_>,
    at: &mut At<'_>,
) {
    at.len(
        field(PoolSetPart::Name),
        "pool set name",
        &set.name,
        POOL_SET_NAME_LEN_MAX,
    );
    let mut refuse = |part, code, rule| {
        at.fault(field(part), CatalogError::PoolSet { code, rule });
    };
    if set.pools.is_empty() == set.fixed_response.is_none() {
        let rule = "a pool set has either overrides.pools or fixed_response";
        refuse(PoolSetPart::Whole, "POOL_SET_NO_INTENT", rule);
    }
    let places = set
        .matching
        .as_ref()
        .and_then(|matching| matching.places.as_ref());
    match (&set.matching, places) {
        (Some(matching), None) if !matching.default => {
            let rule = "match has neither default nor topology; without match all requests match";
            refuse(PoolSetPart::Match, "POOL_SET_EMPTY_MATCH", rule);
        }
        (Some(matching), Some(_)) if matching.default => {
            let rule = "match.default and match.topology exclude each other";
            refuse(PoolSetPart::Match, "POOL_SET_DEFAULT_WITH_MATCH", rule);
        }
        _ => {}
    }
    if let Some(places) = places {
        let lists = [
            (AreaMap::Pops, &places.pops),
            (AreaMap::Countries, &places.countries),
            (AreaMap::Regions, &places.regions),
        ];
        if lists.iter().all(|(_, list)| list.is_empty()) {
            let rule = "match.topology lists no place";
            refuse(PoolSetPart::Match, "POOL_SET_EMPTY_TOPOLOGY", rule);
        }
        for (map, list) in lists {
            if list.len() > PLACES_MAX {
                let rule = "a list of match.topology has more than 1000 entries";
                let code = "POOL_SET_TOPOLOGY_TOO_LARGE";
                at.fault(
                    field(PoolSetPart::Places(map, PLACES_MAX)),
                    CatalogError::PoolSet { code, rule },
                );
                continue;
            }
            let mut seen = BTreeSet::new();
            for (place, code) in list.iter().enumerate() {
                let field = field(PoolSetPart::Places(map, place));
                code_of(map, code, field, at);
                at.unique(
                    field,
                    map.what(),
                    code,
                    seen.insert(code.to_ascii_uppercase()),
                );
            }
        }
    }
    if !set.pools.is_empty() {
        let each = |place| field(PoolSetPart::Pool(place));
        pools(&set.pools, field(PoolSetPart::Pools), &each, known, at);
    }
    let each = |place| field(PoolSetPart::Weight(place));
    let of = field(PoolSetPart::WeightDefault);
    weights(set.weight_default, &set.weights, of, &each, known, at);
    if let Some(fallback) = &set.fallback {
        at.exists(field(PoolSetPart::Fallback), "pool", fallback, &known.pools);
    }
    if let PoolSteering::Geo | PoolSteering::Auto = set.steering {
        let error = CatalogError::Syntax {
            what: "steering_policy of a pool set",
            found: set.steering.name().to_owned(),
            rule: "would look at maps, which a pool set has not",
        };
        at.fault(field(PoolSetPart::Steering), error);
    }
    for fault in set
        .fixed_response
        .iter()
        .flat_map(|response| response.faults())
    {
        at.fault(
            field(PoolSetPart::Response(fault.field)),
            CatalogError::Rule(fault.error),
        );
    }
}

fn rule(
    rule: &Rule<Reference>,
    mode: AffinityMode,
    field: &dyn Fn(RulePart) -> Field,
    known: &Known<'_>,
    at: &mut At<'_>,
) {
    for fault in rule.faults() {
        at.fault(
            field(RulePart::Own(fault.field)),
            CatalogError::Rule(fault.error),
        );
    }
    let overrides = &rule.overrides;
    if let Some(listed) = &overrides.pools {
        let each = |place| field(RulePart::Pool(place));
        pools(
            listed,
            field(RulePart::Own(RuleField::Pools)),
            &each,
            known,
            at,
        );
    }
    if let Some(listed) = &overrides.default_pools {
        let each = |place| field(RulePart::DefaultPool(Some(place)));
        pools(listed, field(RulePart::DefaultPool(None)), &each, known, at);
    }
    for (map, areas) in [
        (AreaMap::Pops, &overrides.pop_pools),
        (AreaMap::Countries, &overrides.country_pools),
        (AreaMap::Regions, &overrides.region_pools),
    ] {
        let each = |place, pool| field(RulePart::Area { map, place, pool });
        if let Some(areas) = areas {
            area(areas, map, &each, known, at);
        }
    }
    if let Some(fallback) = &overrides.fallback {
        at.exists(field(RulePart::Fallback), "pool", fallback, &known.pools);
    }
    let mut seen = BTreeSet::new();
    for (place, (pool, _)) in overrides.weights.iter().flatten().enumerate() {
        let field = field(RulePart::Own(RuleField::Weight(place)));
        at.exists(field, "pool", pool, &known.pools);
        at.unique(field, "weight of pool", &pool.text, seen.insert(pool.id));
    }
    let part = |part| field(RulePart::Affinity(part));
    if let Some(ttl) = overrides.affinity_ttl {
        affinity_ttl(mode, ttl.as_secs_f64(), &part, at);
    }
    if let Some(own) = &overrides.affinity_attributes {
        attributes(mode, own, &part, at);
    }
}
