//! What is allowed and probably not meant: said, and served all the same.

use super::{Catalog, Field, Monitoring, Subject};
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
        let random = balancer.steering == PoolSteering::Random;
        if random && balancer.pools.iter().all(|pool| weight(pool.id) == 0.0) {
            let text = format!(
                "every pool of load balancer {:?} has weight 0: all goes to the fallback pool",
                balancer.name
            );
            warn(subject, Field::Pools, text);
        }
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

#[cfg(test)]
mod tests {
    use crate::sample::Sample;
    use crate::steering::PoolSteering::Random;

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
