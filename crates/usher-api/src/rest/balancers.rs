//! Load balancers: of a zone, where traffic reaches them, and of an account.

use serde_json::{Map, Value};
use usher_store::{Kind, Stamp};

use super::Route;
use super::resource::{self, Resource};

pub(crate) struct Balancers;

impl Resource for Balancers {
    const KIND: Kind = Kind::Balancer;
    const NOUNS: (&'static str, &'static str) = ("load_balancer", "load_balancers");

    /// A rule that answers by itself is the last one, whatever it says.
    fn finish(document: &mut Map<String, Value>, _: Option<&Map<String, Value>>, _: Stamp) {
        let rules = document.get_mut("rules").and_then(Value::as_array_mut);
        for rule in rules.into_iter().flatten() {
            if rule.get("fixed_response").is_some() {
                rule["terminates"] = true.into();
            }
        }
    }
}

pub(crate) fn routes() -> Vec<Route> {
    let mut all = resource::routes::<Balancers>("/zones/{zone_id}/load_balancers", "");
    let path = "/accounts/{account_id}/load_balancers";
    all.extend(resource::routes::<Balancers>(path, "account_"));
    all
}
