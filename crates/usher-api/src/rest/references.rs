//! Who refers to a resource, and to whom it refers.

use http::Method;
use serde_json::{Value, json};
use usher_store::Kind;

use super::desired::{Shown, Whole};
use super::resource::{Resource, found};
use super::{Call, Needs, Reply, Route, names};
use crate::access::Product;
use crate::envelope::ApiError;

/// `GET path/references`.
pub(crate) fn route<R: Resource>(item: &str, prefix: &str) -> Route {
    super::route(
        Method::GET,
        &format!("{item}/references"),
        &format!("{prefix}list_{}_references", R::NOUNS.0),
        "Lists what refers to it (referrer) and what it refers to (referral)",
        Needs::Read(Product::LoadBalancing),
        |call| Box::pin(async move { list(&call, R::KIND) }),
    )
}

fn list(call: &Call, kind: Kind) -> Result<Reply, ApiError> {
    let shown = found(call, kind)?;
    let whole = call.whole();
    let mut all = referrers(whole, &shown);
    all.extend(referrals(whole, &shown));
    Ok(Reply::result(&all.into()))
}

/// What names it.
pub(crate) fn referrers(whole: Whole<'_>, shown: &Shown) -> Vec<Value> {
    let target = (shown.kind, shown.id);
    let kinds = [Kind::MonitorGroup, Kind::Pool, Kind::Balancer].into_iter();
    let users = kinds.flat_map(|kind| whole.referrers(kind, target));
    users.map(|user| entry("referrer", &user)).collect()
}

/// What it names.
pub(crate) fn referrals(whole: Whole<'_>, shown: &Shown) -> Vec<Value> {
    let named = names::named(shown.kind, &shown.value().into()).into_iter();
    let named = named.filter_map(|(kind, id)| whole.find(kind, id));
    named.map(|used| entry("referral", &used)).collect()
}

fn entry(direction: &str, shown: &Shown) -> Value {
    json!({
        "reference_type": direction,
        "resource_id": shown.id.to_string(),
        "resource_name": name(shown),
        "resource_type": word(shown.kind),
    })
}

/// What people know it by; a monitor has nothing but its description.
pub(crate) fn name(shown: &Shown) -> String {
    let described = matches!(shown.kind, Kind::Monitor | Kind::MonitorGroup);
    let description = described.then(|| {
        shown
            .value()
            .get("description")?
            .as_str()
            .map(str::to_owned)
    });
    description.flatten().unwrap_or_else(|| shown.name.clone())
}

pub(crate) const fn word(kind: Kind) -> &'static str {
    match kind {
        Kind::Balancer => "load_balancer",
        Kind::MonitorGroup => "monitor_group",
        other => other.name(),
    }
}
