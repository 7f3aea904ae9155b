//! The sections of the file that hold resources, gathered into the draft of a catalog.

use std::path::Path;

use usher_api::wire::places::{Place, Places};
use usher_api::wire::reader::{Cursor, Object, declared};
use usher_api::wire::{balancers, monitor_groups, monitors, pools, rooms, zones};
use usher_core::catalog::{ANY_HOST, Draft, EndpointTls, Zone};
use usher_core::id::Kind;

use super::process::{read_interval_min, read_node, read_room_profile};

/// Reads every resource. Files that they name are relative to `folder`.
pub(super) fn read(root: &Object<'_>, folder: &Path) -> (Draft, Places) {
    let mut places = Places::default();
    let mut draft = Draft {
        room_profile: read_room_profile(root),
        interval_min: read_interval_min(root),
        ..Draft::new(read_node(root))
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
        balancer.zone = zone_of(&mut draft.zones, &balancer.name);
        places.balancers.push(Place::of(&cursor));
        draft.balancers.push(balancer);
    }
    for (key, cursor) in named(root, "waiting_rooms", "waiting room") {
        read_room(&mut draft, key, &cursor);
        places.rooms.push(Place::of(&cursor));
    }
    (draft, places)
}

/// Reads a room, with the zone that it names or that its host stands in.
fn read_room(draft: &mut Draft, key: &str, cursor: &Cursor<'_>) {
    let mut room = rooms::read(cursor, declared(Kind::Room, key), Some(key));
    let host = room.routes.first().map_or("", |route| &route.host);
    let zone = cursor.value().get("zone").and_then(|zone| zone.as_str());
    room.zone = match (zone, host) {
        // Of no zone: its routes are in all of them.
        (_, ANY_HOST) => String::new(),
        (Some(zone), _) => zone.to_ascii_lowercase(),
        (None, host) => zone_of(&mut draft.zones, host),
    };
    draft.rooms.push(room);
}

/// The name of the zone that `host` stands in; without one, there is one from now on.
fn zone_of(zones: &mut Vec<Zone>, host: &str) -> String {
    if let Some(zone) = zones::containing(zones, host) {
        return zone.name.clone();
    }
    let zone = zones::implied(host);
    let name = zone.name.clone();
    zones.push(zone);
    name
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

#[cfg(test)]
mod tests {
    use serde_json::json;
    use usher_api::wire::reader::{Mode, Report};
    use usher_core::catalog::{Catalog, Node};

    use super::*;

    /// What is said about rooms that stand in a file under `waiting_rooms`, and their zones.
    fn check(rooms: &serde_json::Value) -> (Vec<String>, Vec<String>) {
        let mut draft = Draft::new(Node {
            name: "n".to_owned(),
            code: "N".to_owned(),
            region: None,
            country: None,
            city: None,
            coordinates: None,
        });
        let report = Report::new(Mode::File);
        let mut places = Places::default();
        for (key, cursor) in Cursor::root(&report, rooms).entries() {
            let cursor = cursor.as_resource(&format!("waiting room {key}"));
            read_room(&mut draft, key, &cursor);
            places.rooms.push(Place::of(&cursor));
        }
        let zones = draft.rooms.iter().map(|room| room.zone.clone()).collect();
        for fault in Catalog::check(draft.clone()).err().unwrap_or_default() {
            places.tell(&report, &draft, &fault);
        }
        let (faults, _) = report.into_parts();
        let line = |fault: &usher_api::wire::reader::Fault| format!("{} {fault}", fault.pointer);
        (faults.iter().map(line).collect(), zones)
    }

    #[test]
    fn a_room_stands_in_the_zone_of_its_host() {
        let (faults, zones) = check(&json!({
            "a": {"host": "shop.example.com", "total_active_users": 1, "new_users_per_minute": 1},
            "b": {"host": "*", "total_active_users": 1, "new_users_per_minute": 1},
            "c": {"host": "example.com", "path": "/c", "total_active_users": 1, "new_users_per_minute": 1,
                  "additional_routes": [{"host": "shop.example.com", "path": "/c"}], "cookie_suffix": "c"},
        }));
        assert_eq!(faults, [""; 0]);
        assert_eq!(zones, ["example.com", "", "example.com"]);
    }

    #[test]
    fn faults_of_a_room_say_where_they_are() {
        let (faults, _) = check(&json!({
            "a b": {"host": "example.com", "total_active_users": 1, "new_users_per_minute": 1},
            "b": {"host": "example.com", "path": "/a/..", "total_active_users": 1, "new_users_per_minute": 1,
                  "cookie_suffix": "ü", "cookie_attributes": {"samesite": "none", "secure": "never"},
                  "rules": [{"expression": "ssl"}, {"expression": "cf.load_balancer.name eq \"x\""}]},
            "c": {"zone": "other.example", "host": "example.net", "total_active_users": 1, "new_users_per_minute": 1},
            "d": {"zone": "example.com", "host": "http://example.com", "path": "/a*", "total_active_users": 1, "new_users_per_minute": 1,
                  "additional_routes": [{"host": "example.org"}]},
        }));
        assert_eq!(
            faults,
            [
                "/a b waiting room a b: name \"a b\" holds other characters than letters, digits, \"_\" and \"-\"",
                "/b/cookie_suffix waiting room b: cookie_suffix \"ü\" holds other characters than letters, digits, \"_\" and \"-\"",
                "/b/cookie_attributes waiting room b: samesite none and secure never exclude each other",
                "/b/rules/1/expression waiting room b: rules[1]: expression reads cf.load_balancer.name, which has no value in a waiting room",
                "/b/path waiting room b: route \"example.com/\" is not unique",
                "/c/zone waiting room c: zone \"other.example\" does not exist",
                "/c/host waiting room c: host \"example.net\" is outside the zone \"other.example\"",
                "/d/host waiting room d: host \"http://example.com\" is not a hostname without scheme, port and wildcard",
                "/d/path waiting room d: path \"/a*\" holds a blank, a control character, \"*\", \"?\" or \"#\"",
                "/d/additional_routes/0/host waiting room d: host \"example.org\" is outside the zone \"example.com\"",
                "/d/additional_routes waiting room d: additional_routes is set without cookie_suffix",
            ]
        );
    }
}
