//! A monitor group: the fields of `/accounts/{account_id}/load_balancers/monitor_groups`.

use usher_core::catalog::{Member, MonitorGroup};
use usher_core::id::{Id, Kind};

use super::reader::{Cursor, Mode, Object, Shape, built, read_only, unbuilt};

/// A monitor group.
pub static MONITOR_GROUP: Shape = Shape {
    name: "monitor group",
    keys: &[
        built("description"),
        built("members"),
        unbuilt("account", &["default"]),
        read_only("id"),
        read_only("created_on"),
        read_only("modified_on"),
    ],
};

/// A monitor in a group.
pub static MEMBER: Shape = Shape {
    name: "member of a monitor group",
    keys: &[
        built("monitor_id"),
        built("enabled"),
        built("monitoring_only"),
        built("must_be_healthy"),
        read_only("created_at"),
        read_only("updated_at"),
    ],
};

/// Reads a monitor group. What the API requires and has an obvious default is optional in a file.
#[must_use]
pub fn read(cursor: &Cursor<'_>, id: Id, name: &str) -> MonitorGroup {
    let mut group = MonitorGroup {
        id,
        name: name.to_owned(),
        description: String::new(),
        members: Vec::new(),
    };
    let Some(object) = cursor.object(&MONITOR_GROUP) else {
        return group;
    };
    if cursor.mode() == Mode::Api {
        let _ = object.need("description");
    }
    group.description = object.text_or("description", "");
    let members = object.need("members");
    group.members = members
        .iter()
        .flat_map(Cursor::list)
        .map(|item| read_member(&item))
        .collect();
    group
}

fn read_member(item: &Cursor<'_>) -> Member {
    let object = item.object(&MEMBER);
    let flag = |key, default| {
        let object = object.as_ref();
        if item.mode() == Mode::Api {
            let _ = object.and_then(|object| object.need(key));
        }
        object.map_or(default, |object: &Object<'_>| object.flag_or(key, default))
    };
    let monitor = object.as_ref().and_then(|object| object.need("monitor_id"));
    Member {
        enabled: flag("enabled", true),
        monitoring_only: flag("monitoring_only", false),
        must_be_healthy: flag("must_be_healthy", false),
        // Its place in the list has to stay, so that the core's faults about later ones are right.
        monitor: monitor
            .and_then(|id| id.reference(Kind::Monitor))
            .unwrap_or_else(super::nowhere),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::wire::reader::{Report, declared};

    #[test]
    fn a_file_may_leave_out_what_the_api_wants() {
        let value =
            json!({"members": [{"monitor_id": "web"}, {"enabled": false, "must_be_healthy": 1}]});
        let report = Report::new(Mode::File);
        let cursor = Cursor::root(&report, &value).as_resource("monitor group g");
        let group = read(&cursor, declared(Kind::MonitorGroup, "g"), "g");
        assert_eq!(group.members[0].monitor.id, declared(Kind::Monitor, "web"));
        assert!(group.members[0].enabled && !group.members[1].enabled);
        let (faults, _) = report.into_parts();
        let faults: Vec<_> = faults.iter().map(ToString::to_string).collect();
        assert_eq!(
            faults,
            [
                "monitor group g: members[1].monitor_id is missing",
                "monitor group g: members[1].must_be_healthy must be true or false, not a number",
            ]
        );
    }

    #[test]
    fn the_api_wants_every_field_and_an_id() {
        let value = json!({"members": [{"monitor_id": "web"}]});
        let report = Report::new(Mode::Api);
        let _ = read(
            &Cursor::root(&report, &value),
            declared(Kind::MonitorGroup, "g"),
            "g",
        );
        let (faults, _) = report.into_parts();
        let faults: Vec<_> = faults.iter().map(ToString::to_string).collect();
        assert_eq!(
            faults,
            [
                "description is missing",
                "members[0].enabled is missing",
                "members[0].monitoring_only is missing",
                "members[0].must_be_healthy is missing",
                "members[0].monitor_id \"web\" is not 32 lowercase hexadecimal digits",
            ]
        );
    }
}
