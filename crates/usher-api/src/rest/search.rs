//! Search over load balancers, pools and monitors.

use http::Method;
use serde_json::{Value, json};
use usher_store::Kind;

use super::desired::Shown;
use super::list::Window;
use super::references::{name, referrals, referrers, word};
use super::{Call, Needs, Reply, Route};
use crate::access::Product;
use crate::envelope::ApiError;

pub(crate) fn routes() -> Vec<Route> {
    vec![super::route(
        Method::GET,
        "/accounts/{account_id}/load_balancers/search",
        "search",
        "Finds load balancers, pools and monitors by part of a name or address",
        Needs::Read(Product::LoadBalancing),
        |call| Box::pin(async move { search(&call) }),
    )]
}

fn search(call: &Call) -> Result<Reply, ApiError> {
    let query = call.query("query").unwrap_or_default().to_lowercase();
    let (to, from) = match call.query("references").unwrap_or_default() {
        "" => (false, false),
        "referral" => (true, false),
        "referrer" => (false, true),
        "*" => (true, true),
        other => {
            let message = format!("references {other:?} is not one of referral, referrer, *");
            return Err(ApiError::wrong("/references", message));
        }
    };
    let window = Window::asked(call)?.unwrap_or(Window::page(1, super::list::PER_PAGE));
    let whole = call.whole();
    let kinds = [Kind::Balancer, Kind::Pool, Kind::Monitor].into_iter();
    let all = kinds.flat_map(|kind| whole.all(kind));
    let hits = all.filter(|shown| is_hit(shown, &query)).collect();
    let (part, info) = Window::cut(Some(window), hits);
    let resources: Vec<Value> = part
        .iter()
        .map(|shown| {
            let mut entry = json!({
                "resource_id": shown.id.to_string(),
                "resource_name": name(shown),
                "resource_type": word(shown.kind),
            });
            if to || from {
                let mut references = Vec::new();
                if from {
                    references.extend(referrers(whole, shown));
                }
                if to {
                    references.extend(referrals(whole, shown));
                }
                entry["references"] = references.into();
            }
            entry
        })
        .collect();
    // The clients ask for the next page until there is no item.
    let items = match resources.is_empty() {
        true => json!([]),
        false => json!([{"resources": resources}]),
    };
    let result = json!({"resources": resources, "items": items});
    Ok(Reply::Result(result.to_string(), Vec::new(), Some(info)))
}

fn is_hit(shown: &Shown, query: &str) -> bool {
    if name(shown).to_lowercase().contains(query) {
        return true;
    }
    let value = shown.value();
    let origins = value.get("origins").and_then(Value::as_array);
    let mut addresses = origins.into_iter().flatten();
    addresses.any(|origin| {
        let address = origin["address"].as_str();
        address.is_some_and(|address| address.to_lowercase().contains(query))
    })
}
