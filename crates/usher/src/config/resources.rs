//! The sections of the file that hold resources, gathered into the draft of a catalog.

use std::path::Path;

use usher_api::wire::places::{Place, Places};
use usher_api::wire::reader::{Cursor, Object, declared};
use usher_api::wire::{balancers, monitor_groups, monitors, pools, zones};
use usher_core::catalog::{Draft, EndpointTls};
use usher_core::id::Kind;

use super::process::{read_interval_min, read_node};

/// Reads every resource. Files that they name are relative to `folder`.
pub(super) fn read(root: &Object<'_>, folder: &Path) -> (Draft, Places) {
    let mut places = Places::default();
    let mut draft = Draft {
        node: read_node(root),
        zones: Vec::new(),
        monitors: Vec::new(),
        monitor_groups: Vec::new(),
        pools: Vec::new(),
        balancers: Vec::new(),
        interval_min: read_interval_min(root),
        hash_key: Default::default(),
    };
    for (key, cursor) in named(root, "zones", "zone") {
        let mut zone = zones::read(
            &cursor,
            declared(Kind::Zone, &key.to_ascii_lowercase()),
            key,
        );
        below(folder, &mut zone.tls);
        places.zones.push(Place::of(&cursor));
        draft.zones.push(zone);
    }
    for (key, cursor) in named(root, "monitors", "monitor") {
        places.monitors.push(Place::of(&cursor));
        draft
            .monitors
            .push(monitors::read(&cursor, declared(Kind::Monitor, key), key));
    }
    for (key, cursor) in named(root, "monitor_groups", "monitor group") {
        places.monitor_groups.push(Place::of(&cursor));
        let id = declared(Kind::MonitorGroup, key);
        draft
            .monitor_groups
            .push(monitor_groups::read(&cursor, id, key));
    }
    for (key, cursor) in named(root, "pools", "pool") {
        let mut pool = pools::read(&cursor, declared(Kind::Pool, key), Some(key));
        below(folder, &mut pool.tls);
        places.pools.push(Place::of(&cursor));
        draft.pools.push(pool);
    }
    for (key, cursor) in named(root, "load_balancers", "load balancer") {
        let mut balancer = balancers::read(&cursor, declared(Kind::Balancer, key), Some(key));
        balancer.zone = match zones::containing(&draft.zones, &balancer.name) {
            Some(zone) => zone.name.clone(),
            None => {
                let zone = zones::implied(&balancer.name);
                let name = zone.name.clone();
                draft.zones.push(zone);
                name
            }
        };
        places.balancers.push(Place::of(&cursor));
        draft.balancers.push(balancer);
    }
    (draft, places)
}

/// The resources of a section, by key, each with the name that messages about it begin with.
fn named<'a>(root: &Object<'a>, section: &'static str, kind: &str) -> Vec<(&'a str, Cursor<'a>)> {
    let resources = root.get(section);
    let resources = resources.iter().flat_map(Cursor::entries);
    resources
        .map(|(key, cursor)| (key, cursor.as_resource(&format!("{kind} {key}"))))
        .collect()
}

fn below(folder: &Path, tls: &mut EndpointTls) {
    for file in [&mut tls.ca, &mut tls.client_cert, &mut tls.client_key]
        .into_iter()
        .flatten()
    {
        *file = folder.join(&*file).to_string_lossy().into_owned();
    }
}
