//! What is allowed and probably not meant: said, and served all the same.

use super::{
    Affinity, AffinityAttributes, AffinityField, AffinityMode, AreaMap, Balancer, Catalog, Field,
    Monitoring, Pool, PoolSetPart, Reference, RulePart, Subject,
};
use crate::region::{Country, CountryCode};
use crate::rules::Overrides;
use crate::rules::condition::FrontKind;
use crate::steering::PoolSteering;

/// One thing that deserves a second look.
#[derive(Debug, Clone, PartialEq)]
pub struct Warning {
    /// The resource, by its place in the draft.
    pub subject: Subject,
    /// The field of that resource.
    pub field: Field,
    /// What will happen, in one sentence.
    pub text: String,
}

pub(super) fn warnings(catalog: &Catalog) -> Vec<Warning> {
    let draft = catalog.draft();
    let mut all = Vec::new();
    let mut warn = |subject, field, text| {
        all.push(Warning {
            subject,
            field,
            text,
        })
    };

    for (ix, group) in draft.monitor_groups.iter().enumerate() {
        if !group
            .members
            .iter()
            .any(|member| member.enabled && !member.monitoring_only)
        {
            let text = format!(
                "monitor group {:?} has no member with a vote, so endpoints that it judges never count as healthy",
                group.name
            );
            warn(Subject::MonitorGroup(ix), Field::Members, text);
        }
    }
    for (ix, pool) in draft.pools.iter().enumerate() {
        let subject = Subject::Pool(ix);
        let (len, minimum) = (pool.endpoints.len(), pool.endpoints_min);
        if pool.monitoring != Monitoring::None && minimum as usize > len {
            let text = format!(
                "pool {:?} has {len} endpoints and needs {minimum}, so it is always critical",
                pool.name
            );
            warn(subject, Field::EndpointsMin, text);
        }
        if !pool
            .endpoints
            .iter()
            .any(|endpoint| endpoint.enabled && endpoint.weight > 0.0)
        {
            let text = format!(
                "pool {:?} has no enabled endpoint with a weight above 0",
                pool.name
            );
            warn(subject, Field::Endpoints, text);
        }
    }
    for (ix, balancer) in draft.balancers.iter().enumerate() {
        let subject = Subject::Balancer(ix);
        let fallback = catalog
            .pool_by_id(balancer.fallback.id)
            .map(|pool| catalog.pool(pool));
        if let Some(pool) = fallback.filter(|pool| !pool.enabled) {
            warn(
                subject,
                Field::Fallback,
                format!("fallback pool {:?} is disabled", pool.name),
            );
        }
        let weight = |id| {
            let own = balancer.weights.iter().find(|(pool, _)| pool.id == id);
            own.map_or(balancer.weight_default, |&(_, weight)| weight)
        };
        let all_zero = balancer.pools.iter().all(|pool| weight(pool.id) == 0.0);
        if balancer.steering.draws() && all_zero {
            let text = format!(
                "every pool of load balancer {:?} has weight 0: all goes to the fallback pool",
                balancer.name
            );
            warn(subject, Field::Pools, text);
        }
        steering(catalog, balancer, &mut |field, text| {
            warn(subject, field, text)
        });
        requests(balancer, &mut |field, text| warn(subject, field, text));
        for (place, (pool, _)) in balancer.weights.iter().enumerate() {
            if !balancer.pools.iter().any(|listed| listed.id == pool.id) {
                let text = format!(
                    "pool {:?} is not among the pools of load balancer {:?}: its weight is ignored",
                    pool.text, balancer.name
                );
                warn(subject, Field::PoolWeight(place), text);
            }
        }
    }
    all
}

/// Of a method that lacks what it goes by.
fn steering(catalog: &Catalog, balancer: &Balancer, warn: &mut dyn FnMut(Field, String)) {
    let lacks = |pool: &Pool| match balancer.steering {
        PoolSteering::Proximity if pool.coordinates.is_none() => Some("has no coordinates"),
        PoolSteering::DynamicLatency if pool.monitoring == Monitoring::None => {
            Some("has no monitor")
        }
        _ => None,
    };
    for (place, listed) in balancer.pools.iter().enumerate() {
        let pool = catalog.pool_by_id(listed.id).map(|ix| catalog.pool(ix));
        if let Some(what) = pool.and_then(lacks) {
            let text = format!(
                "pool {:?} {what}, so steering {} takes it last",
                listed.text,
                balancer.steering.name()
            );
            warn(Field::Pool(place), text);
        }
    }
}

/// Of what is different for some requests.
fn requests(balancer: &Balancer, warn: &mut dyn FnMut(Field, String)) {
    let Affinity {
        mode,
        ttl,
        attributes,
    } = &balancer.affinity;
    let rules = balancer.rules.as_written();
    let by_rule = |what: &dyn Fn(&Overrides<Reference>) -> bool| {
        rules
            .iter()
            .any(|rule| !rule.disabled && what(&rule.overrides))
    };
    let never = *mode == AffinityMode::None && !by_rule(&|rule| rule.affinity.is_some());
    if never && ttl.is_some() {
        let text = "session_affinity_ttl has no effect: session_affinity is none".to_owned();
        warn(Field::Affinity(AffinityField::Ttl), text);
    }
    if never && *attributes != AffinityAttributes::default() {
        let text = "session_affinity_attributes has no effect: session_affinity is none".to_owned();
        warn(Field::Affinity(AffinityField::Headers), text);
    }
    let by_place = |steering| matches!(steering, PoolSteering::Geo | PoolSteering::Auto);
    let asked = by_place(balancer.steering) || by_rule(&|rule| rule.steering.is_some_and(by_place));
    if !balancer.areas.is_empty() && !asked {
        let text = format!(
            "the pools by place have no effect: steering {} does not look at them, geo does",
            balancer.steering.name()
        );
        warn(Field::Steering, text);
    }
    for (place, (code, _)) in balancer.areas.countries.iter().enumerate() {
        // What is no code at all is a fault.
        if CountryCode::parse(code).is_some_and(|code| Country::find(code).is_none()) {
            let text = format!("country {code:?} is not in ISO 3166-1: no visitor is there");
            let map = AreaMap::Countries;
            let pool = None;
            warn(Field::Area { map, place, pool }, text);
        }
    }
    let ttl = ttl.unwrap_or(mode.ttl_default());
    if *mode != AffinityMode::None && !attributes.drain.is_zero() && attributes.drain < ttl {
        let text = format!(
            "drain_duration {} s is shorter than session_affinity_ttl {} s, so draining an endpoint ends sessions early",
            attributes.drain.as_secs(),
            ttl.as_secs()
        );
        warn(Field::Affinity(AffinityField::Drain), text);
    }
    for (place, set) in balancer.pool_sets.iter().enumerate() {
        let places = set
            .matching
            .as_ref()
            .and_then(|matching| matching.places.as_ref());
        let lists = places.map(|places| {
            let lists = [&places.pops, &places.countries, &places.regions];
            lists.iter().filter(|list| !list.is_empty()).count()
        });
        if lists > Some(1) {
            let text = format!(
                "pool set {} ({}) lists several kinds of places: a request must match all of them",
                place + 1,
                set.name
            );
            let part = PoolSetPart::Match;
            warn(Field::PoolSet { place, part }, text);
        }
    }
    let geo = !balancer.areas.is_empty()
        && matches!(balancer.steering, PoolSteering::Geo | PoolSteering::Auto);
    for (place, rule) in rules.iter().enumerate() {
        let (number, name) = (place + 1, &rule.name);
        let idle = rule.fixed_response.is_none()
            && !rule.terminates
            && rule.overrides == Overrides::default()
            && rule.transform.is_empty();
        if idle && !rule.disabled {
            let text = format!("rule {number} ({name}) changes nothing");
            let part = RulePart::Condition;
            warn(Field::Rule { place, part }, text);
        }
        if geo && rule.overrides.default_pools.is_some() {
            let text = format!(
                "rule {number} ({name}) changes default_pools, which geo steering does not look at where a map has the place"
            );
            let part = RulePart::DefaultPool(None);
            warn(Field::Rule { place, part }, text);
        }
        for fault in rule.condition.warnings(FrontKind::Http) {
            let text = format!("rule {number} ({name}): {}", fault.message);
            let part = RulePart::Condition;
            warn(Field::Rule { place, part }, text);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use crate::sample::Sample;
    use crate::steering::PoolSteering::{Geo, Random};

    #[test]
    fn settings_without_effect() {
        let told = |steering| {
            let sample = Sample::new().monitor("m").pool("eu", "m", "a");
            let sample = sample.balancer("shop.example.com", steering, "eu", "eu");
            let catalog = sample.with(|draft| {
                let balancer = &mut draft.balancers[0];
                balancer.affinity.ttl = Some(Duration::from_secs(3600));
                balancer.affinity.attributes.drain = Duration::from_secs(60);
                let eu = vec![balancer.fallback.clone()];
                let countries = ["NL", "UK"].map(|code| (code.to_owned(), eu.clone()));
                balancer.areas.countries = countries.into();
            });
            let warnings = catalog.catalog().warnings().into_iter();
            warnings.map(|warning| warning.text).collect::<Vec<_>>()
        };
        let always = [
            "session_affinity_ttl has no effect: session_affinity is none",
            "session_affinity_attributes has no effect: session_affinity is none",
            "country \"UK\" is not in ISO 3166-1: no visitor is there",
        ];
        assert_eq!(told(Geo), always);
        let beside =
            "the pools by place have no effect: steering random does not look at them, geo does";
        assert_eq!(told(Random), [always[0], always[1], beside, always[2]]);
    }

    #[test]
    fn each_warning() {
        let catalog = Sample::new()
            .monitor("m")
            .group("g", "m=only")
            .pool("eu", "m", "a b=0")
            .pool("us", "g", "c=off")
            .balancer("shop.example.com", Random, "eu=0", "us")
            .with(|draft| {
                draft.pools[0].endpoints_min = 3;
                draft.pools[1].enabled = false;
                let us = (draft.balancers[0].fallback.clone(), 0.5);
                draft.balancers[0].weights.push(us);
            })
            .catalog();
        let texts: Vec<String> = catalog
            .warnings()
            .into_iter()
            .map(|warning| warning.text)
            .collect();
        assert_eq!(
            texts,
            [
                "monitor group \"g\" has no member with a vote, so endpoints that it judges never count as healthy",
                "pool \"eu\" has 2 endpoints and needs 3, so it is always critical",
                "pool \"us\" has no enabled endpoint with a weight above 0",
                "fallback pool \"us\" is disabled",
                "every pool of load balancer \"shop.example.com\" has weight 0: all goes to the fallback pool",
                "pool \"us\" is not among the pools of load balancer \"shop.example.com\": its weight is ignored",
            ]
        );
    }
}
