//! Monitor groups.

use serde_json::{Map, Value};
use usher_store::Kind;

use super::resource::{self, Resource};
use super::write::Verb;
use super::{Route, references};
use crate::wire::reader::Fault;

pub(crate) struct MonitorGroups;

impl Resource for MonitorGroups {
    const KIND: Kind = Kind::MonitorGroup;
    const NOUNS: (&'static str, &'static str) = ("monitor_group", "monitor_groups");
    const SHOWN_WHEN_DELETED: bool = true;

    /// A PATCH names both fields, too; one that changes nothing names none.
    fn faults(body: &Map<String, Value>, verb: Verb) -> Vec<Fault> {
        let keys = ["description", "members"].into_iter();
        let missing = keys.filter(|key| verb == Verb::Edit && !body.contains_key(*key));
        missing
            .map(|key| Fault {
                pointer: format!("/{key}"),
                at_key: true,
                inside: 0,
                place: String::new(),
                message: format!("{key} is missing"),
            })
            .collect()
    }
}

pub(crate) fn routes() -> Vec<Route> {
    let path = "/accounts/{account_id}/load_balancers/monitor_groups";
    let mut all = resource::routes::<MonitorGroups>(path, "");
    let item = format!("{path}/{{monitor_group_id}}");
    all.push(references::route::<MonitorGroups>(&item, ""));
    all
}
