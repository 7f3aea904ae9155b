//! A node in the words of the file and back, without a node: answers are what the API would tell.

use serde_json::json;

use super::*;

fn id(number: u8) -> String {
    format!("{number:032x}")
}

/// A node with a monitor `web`, one without a description, a declared pool and two of its own, and
/// a load balancer.
fn node() -> Inventory {
    let mut inventory = Inventory::default();
    let at = "2026-01-01T00:00:00.000000Z";
    inventory.add(
        Section::Zones,
        &[json!({"id": id(9), "name": "example.com", "created_on": at, "ssl": "full"})],
    );
    inventory.add(
        Section::Monitors,
        &[
            json!({"id": id(1), "created_on": at, "type": "http", "description": "web", "path": "/up"}),
            json!({"id": id(2), "created_on": at, "type": "tcp", "description": "", "port": 7}),
        ],
    );
    let pool = |number: u8, name: &str, monitor: &str| {
        json!({"id": id(number), "created_on": at, "name": name, "monitor": monitor,
               "origins": [{"name": "a", "address": "192.0.2.1", "weight": 0.5}]})
    };
    let mut own = pool(3, "fixed", "");
    own.as_object_mut()
        .expect("an object")
        .shift_remove("created_on");
    inventory.add(
        Section::Pools,
        &[own, pool(5, "us", &id(2)), pool(4, "eu", &id(1))],
    );
    inventory.add(
        Section::Balancers,
        &[
            json!({"id": id(6), "created_on": at, "name": "Shop.example.com", "proxied": true,
                 "default_pools": [id(4), id(3)], "fallback_pool": id(5)}),
        ],
    );
    inventory.settle();
    inventory
}

fn told(steps: &[Step]) -> Vec<String> {
    let told = steps.iter().map(|step| {
        let (sign, differences) = match &step.action {
            Action::Create => ("+", &Vec::new()),
            Action::Change { differences, .. } => ("~", differences),
            Action::Delete { .. } => ("-", &Vec::new()),
        };
        let mut line = format!("{sign} {} {}", step.section.noun(), step.key);
        for it in differences {
            line += &format!(" {}: {} -> {}", it.field, it.before, it.after);
        }
        line
    });
    told.collect()
}

fn faults(file: &Value) -> Vec<(String, String)> {
    let faults = node().plan(file, false).expect_err("faults");
    let pair = |fault: Fault| (fault.pointer, fault.message);
    faults.into_iter().map(pair).collect()
}

#[test]
fn what_is_kept_is_written_by_key_without_defaults_and_what_is_declared_is_not() {
    assert_eq!(
        node().file(),
        json!({
            "zones": {"example.com": {"ssl": "full"}},
            "monitors": {id(2): {"type": "tcp", "port": 7}, "web": {"path": "/up"}},
            "pools": {
                "eu": {"monitor": "web", "origins": [{"name": "a", "address": "192.0.2.1", "weight": 0.5}]},
                "us": {"monitor": id(2), "origins": [{"name": "a", "address": "192.0.2.1", "weight": 0.5}]},
            },
            "load_balancers": {
                "shop.example.com": {"proxied": true, "default_pools": ["eu", "fixed"], "fallback_pool": "us"},
            },
        })
    );
}

#[test]
fn a_file_that_was_written_changes_nothing_also_with_prune() {
    let file = node().file();
    assert_eq!(told(&node().plan(&file, true).expect("a plan")), [""; 0]);
}

#[test]
fn another_node_gets_everything_once() {
    let file = node().file();
    let mut other = Inventory::default();
    other.add(
        Section::Pools,
        &[json!({"id": id(8), "name": "fixed", "origins": []})],
    );
    other.settle();
    let steps = other.plan(&file, false).expect("a plan");
    let unnamed = format!("+ monitor {}", id(2));
    let wanted = [
        "+ zone example.com",
        &unnamed,
        "+ monitor web",
        "+ pool eu",
        "+ pool us",
        "+ load balancer shop.example.com",
    ];
    assert_eq!(told(&steps), wanted);
    // Ids are filled in as they come to be known.
    let pool = &steps[3];
    assert_eq!(pool.body(&other, |_, _| None), None);
    let body = pool.body(&other, |_, key| (key == "web").then(|| id(7)));
    assert_eq!(body.expect("whole")["monitor"], id(7));
    // The one without a description is known again by the key that it had.
    let mut body = steps[1].body(&other, |_, _| None).expect("whole");
    assert_eq!(body["description"], id(2));
    body["id"] = id(0x77).into();
    body["created_on"] = "now".into();
    let mut later = Inventory::default();
    later.add(Section::Monitors, &[body]);
    later.settle();
    let steps = later.plan(&json!({"monitors": file["monitors"]}), false);
    assert_eq!(told(&steps.expect("a plan")), ["+ monitor web"]);
}

#[test]
fn differences_are_told_by_field_and_deletions_come_last() {
    let mut file = node().file();
    file["pools"]["eu"]["origins"][0]["weight"] = json!(1);
    file["pools"]["eu"]["minimum_origins"] = json!(2);
    file["pools"]["us"]["origins"][0]["weight"] = json!(0.5);
    file["monitors"]
        .as_object_mut()
        .expect("an object")
        .shift_remove(&id(2));
    file["load_balancers"] = json!({});
    file["pools"]["us"]["monitor"] = json!("web");
    file["pools"]["new"] = json!({"origins": [{"name": "a", "address": "192.0.2.1"}]});
    let steps = node().plan(&file, true).expect("a plan");
    let wanted = [
        "~ pool eu minimum_origins: 1 -> 2 origins[0].weight: 0.5 -> 1".to_owned(),
        format!("~ pool us monitor: \"{}\" -> \"web\"", id(2)),
        "+ pool new".to_owned(),
        "- load balancer shop.example.com".to_owned(),
        format!("- monitor {}", id(2)),
    ];
    assert_eq!(told(&steps), wanted);
}

#[test]
fn what_cannot_be_meant_is_told_with_its_place() {
    let pool = |extra: Value| {
        let mut pool = json!({"origins": [{"name": "a", "address": "192.0.2.1"}]});
        for (key, value) in extra.as_object().expect("an object") {
            pool[key] = value.clone();
        }
        pool
    };
    let found = faults(&json!({"pools": {"x/y": pool(json!({"monitor": "none"}))}}));
    let message = "pool x/y: monitor \"none\" is neither in the file nor on the node";
    assert_eq!(found, [("/pools/x~1y".to_owned(), message.to_owned())]);
    let found = faults(&json!({"pools": {"fixed": pool(json!({"enabled": false}))}}));
    let message = "pool fixed is declared in the node's own file: change it there";
    assert_eq!(found, [("/pools/fixed".to_owned(), message.to_owned())]);
    let found = faults(&json!({"monitors": {"web": {}, "also": {"description": "web"}}}));
    let message = "monitor also is the same as web";
    assert_eq!(found, [("/monitors/also".to_owned(), message.to_owned())]);
}

#[test]
fn a_host_without_a_zone_brings_one_and_a_declared_name_is_found() {
    let file = json!({"load_balancers": {"a.example.net": {"proxied": true, "default_pools": ["fixed"], "fallback_pool": "fixed"}}});
    let steps = node().plan(&file, false).expect("a plan");
    assert_eq!(
        told(&steps),
        ["+ zone example.net", "+ load balancer a.example.net"]
    );
    let mut inventory = Inventory::default();
    let web = declared(IdKind::Monitor, "web").to_string();
    inventory.add(Section::Monitors, &[json!({"id": web, "description": ""})]);
    inventory.settle();
    let file = json!({"pools": {"eu": {"monitor": "web", "origins": []}}});
    let steps = inventory.plan(&file, false).expect("a plan");
    let body = steps[0].body(&inventory, |_, _| None).expect("whole");
    assert_eq!(body["monitor"], web);
}

/// A room of a zone, as the API shows it, with its rules laid in.
fn with_room() -> Inventory {
    let mut inventory = Inventory::default();
    let at = "2026-01-01T00:00:00.000000Z";
    let zone = json!({"id": id(9), "name": "example.com", "created_on": at});
    inventory.add(Section::Zones, &[zone]);
    let rule = json!({"id": id(8), "version": "3", "action": "bypass_waiting_room", "expression": "ssl",
                      "description": "", "enabled": false, "last_updated": at});
    let room = json!({"id": id(7), "created_on": at, "name": "sale", "host": "shop.example.com", "path": "/",
                      "total_active_users": 9, "new_users_per_minute": 9, "session_duration": 2,
                      "usher": {"session_duration_seconds": 90}, "rules": [rule]});
    inventory.add(Section::Rooms, &[room]);
    inventory.settle();
    inventory
}

#[test]
fn a_room_is_written_with_its_rules_and_read_back() {
    let inventory = with_room();
    let file = inventory.file();
    assert_eq!(
        file["waiting_rooms"],
        json!({"sale": {
            "host": "shop.example.com", "total_active_users": 9, "new_users_per_minute": 9, "session_duration": 2,
            "usher": {"session_duration_seconds": 90}, "rules": [{"expression": "ssl", "enabled": false}],
        }})
    );
    let planned = |file: &Value| inventory.plan(file, true).expect("meant");
    assert_eq!(told(&planned(&file)), [""; 0]);

    // Without a word on rules they stay; an empty list is a word.
    let mut silent = file.clone();
    let room = silent["waiting_rooms"]["sale"]
        .as_object_mut()
        .expect("an object");
    room.shift_remove("rules");
    assert_eq!(told(&planned(&silent)), [""; 0]);
    silent["waiting_rooms"]["sale"]["rules"] = json!([]);
    let steps = planned(&silent);
    assert_eq!(steps.len(), 1);
    assert_eq!(steps[0].rules(), Some(json!([])));

    let mut changed = file.clone();
    changed["waiting_rooms"]["sale"]["total_active_users"] = 10.into();
    let steps = planned(&changed);
    assert_eq!(
        told(&steps),
        ["~ waiting room sale total_active_users: 9 -> 10"]
    );
    assert_eq!(
        (steps[0].rules(), steps[0].host()),
        (None, "shop.example.com")
    );
    let body = steps[0].body(&inventory, |_, _| None).expect("whole");
    assert_eq!(body.get("rules"), None);
    let steps = planned(&json!({}));
    assert_eq!(told(&steps), ["- waiting room sale", "- zone example.com"]);
    assert_eq!(
        (steps[0].rules(), steps[0].host()),
        (None, "shop.example.com")
    );
}

#[test]
fn a_new_room_brings_its_zone_and_its_rules() {
    let file = json!({"waiting_rooms": {"sale": {
        "host": "Shop.example.org", "total_active_users": 9, "new_users_per_minute": 9, "rules": [{"expression": "ssl"}],
    }}});
    let steps = with_room().plan(&file, false).expect("meant");
    let steps = match &steps[..] {
        // The room of that name is in another zone; it is the same one for a file.
        [zone, room] => [zone, room],
        _ => panic!("{:?}", told(&steps)),
    };
    assert_eq!(steps[0].key, "example.org");
    assert_eq!(steps[1].host(), "shop.example.org");
    let rule = json!({"action": "bypass_waiting_room", "expression": "ssl", "description": "", "enabled": true});
    assert_eq!(steps[1].rules(), Some(json!([rule])));
}

#[test]
fn a_name_that_two_zones_have_is_told() {
    let mut inventory = with_room();
    assert_eq!(inventory.shared_names(), [""; 0]);
    inventory.add(
        Section::Rooms,
        &[json!({"id": id(6), "name": "sale", "host": "a.example.org"})],
    );
    assert_eq!(inventory.shared_names(), ["sale"]);
}
