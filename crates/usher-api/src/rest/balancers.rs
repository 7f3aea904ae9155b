//! Load balancers: of a zone, where traffic reaches them, and of an account.

use http::Method;
use serde_json::{Map, Value};
use usher_store::{Kind, Stamp};

use super::resource::{self, Resource};
use super::{Call, Pending, Route};
use crate::envelope::ApiError;

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
    let of_account = resource::routes::<Balancers>(path, "account_");
    all.extend(of_account.into_iter().map(|route| match route.method {
        // There are none; what would make one asks for the private front.
        Method::POST => Route {
            run: private,
            ..route
        },
        _ => route,
    }));
    all
}

fn private(_: Call) -> Pending {
    Box::pin(async {
        let what = "a load balancer of an account is reached from private networks, which is not built yet; \
                    create it in a zone";
        Err(ApiError::Unbuilt(what.to_owned()))
    })
}
