//! Which certificates and authorities a catalog needs towards its endpoints.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;

use usher_core::catalog::{Catalog, Monitoring};
use usher_core::snapshot::Snapshot;
use usher_edge::probe;
use usher_edge::tls::TrustProfile;

/// Every profile that traffic or a probe of `catalog` may ask for.
pub(crate) fn profiles(catalog: &Arc<Catalog>) -> BTreeSet<TrustProfile> {
    let snapshot = Snapshot::presumed(Arc::clone(catalog));
    let mut profiles = BTreeSet::new();
    for (balancer, wanted) in catalog.balancers() {
        let pools = wanted.pools.iter().chain([&wanted.fallback]);
        for pool in pools.filter_map(|pool| catalog.pool_by_id(pool.id)) {
            for (endpoint, ..) in snapshot.pool(pool).endpoints() {
                profiles.extend(snapshot.transport(balancer, endpoint).tls.map(|tls| {
                    TrustProfile {
                        verify: tls.verify,
                        ca: tls.ca.map(PathBuf::from),
                        client_cert: tls.client_cert.map(|(cert, _)| PathBuf::from(cert)),
                        client_key: tls.client_cert.map(|(_, key)| PathBuf::from(key)),
                    }
                }));
            }
        }
    }
    for (_, pool) in catalog.pools() {
        let monitors = match &pool.monitoring {
            Monitoring::None => Vec::new(),
            Monitoring::Monitor(monitor) => vec![monitor.id],
            Monitoring::Group(group) => catalog
                .monitor_group_by_id(group.id)
                .into_iter()
                .flat_map(|group| group.members.iter().map(|member| member.monitor.id))
                .collect(),
        };
        let client_cert = pool
            .tls
            .client_cert
            .as_deref()
            .zip(pool.tls.client_key.as_deref());
        for monitor in monitors
            .into_iter()
            .filter_map(|id| catalog.monitor_by_id(id))
        {
            let kind = &catalog.monitor(monitor).kind;
            profiles.extend(probe::trust_profiles(
                kind,
                pool.tls.ca.as_deref(),
                client_cert,
            ));
        }
    }
    profiles
}
