//! Pools: their own rules, the bulk edit, and what hangs on one.

use std::sync::Arc;

use http::Method;
use serde_json::{Map, Value};
use usher_store::{Change, Kind, Op, Stamp};

use super::desired::{Declared, Shown, Whole};
use super::list::{PER_PAGE, Window, joined};
use super::resource::{self, Resource, text};
use super::write::{self, Verb};
use super::{Call, Needs, Reply, Route, health, previews, references, route};
use crate::access::Product;
use crate::envelope::{ApiError, envelope, messages};
use crate::wire::reader::Fault;

/// Where resources of an account are, and what the names of those routes begin with. The second is
/// an older way to say: mine.
pub(crate) const BASES: [(&str, &str); 2] = [
    ("/accounts/{account_id}/load_balancers", ""),
    ("/user/load_balancers", "user_"),
];

/// Files of the node: a token of the API is no reason to read them.
const FILES: [&str; 3] = ["ca", "client_cert", "client_key"];

pub(crate) struct Pools;

impl Resource for Pools {
    const KIND: Kind = Kind::Pool;
    const NOUNS: (&'static str, &'static str) = ("pool", "pools");

    fn faults(body: &Map<String, Value>, _verb: Verb) -> Vec<Fault> {
        let usher = body.get("usher").and_then(Value::as_object);
        let named = |key: &&str| usher.is_some_and(|usher| usher.contains_key(*key));
        FILES
            .into_iter()
            .filter(named)
            .map(|key| Fault {
                pointer: format!("/usher/{key}"),
                at_key: true,
                inside: 0,
                place: String::new(),
                message: format!("usher.{key} names a file, which only the configuration file may"),
            })
            .collect()
    }

    /// An endpoint is known again by its address, and keeps the time at which it was turned off.
    fn finish(document: &mut Map<String, Value>, before: Option<&Map<String, Value>>, at: Stamp) {
        let key = |origin: &Value| {
            ["address", "port", "virtual_network_id"]
                .map(|key| origin[key].to_string().to_lowercase())
        };
        let old = before.and_then(|before| before.get("origins")?.as_array());
        let old: Vec<&Value> = old.into_iter().flatten().collect();
        let origins = document.get_mut("origins").and_then(Value::as_array_mut);
        for origin in origins.into_iter().flatten() {
            let same = old.iter().find(|old| key(old) == key(origin));
            let since = same.and_then(|same| same.get("disabled_at").cloned());
            let new = origin["enabled"] == false;
            if let (true, Value::Object(origin)) = (new, origin) {
                let since = since.unwrap_or_else(|| at.to_string().into());
                origin.insert("disabled_at".to_owned(), since);
            }
        }
        if document.get("enabled") == Some(&Value::Bool(false)) {
            let since = before.and_then(|before| before.get("disabled_at").cloned());
            let since = since.unwrap_or_else(|| at.to_string().into());
            document.insert("disabled_at".to_owned(), since);
        }
    }

    fn is_asked_for(call: &Call, shown: &Shown) -> bool {
        call.query("monitor")
            .is_none_or(|monitor| shown.value().get("monitor") == Some(&monitor.into()))
    }
}

pub(crate) fn routes() -> Vec<Route> {
    let mut all = Vec::new();
    let edit = Needs::Edit(Product::LoadBalancing);
    for (base, prefix) in BASES {
        let path = format!("{base}/pools");
        all.extend(resource::routes::<Pools>(&path, prefix));
        let bulk = format!("{prefix}bulk_edit_pools");
        let summary = "Clears notification_email on a page of pools";
        all.push(route(Method::PATCH, &path, &bulk, summary, edit, |call| {
            Box::pin(bulk_edit(call))
        }));
        let item = format!("{path}/{{pool_id}}");
        all.push(health::route(&item, prefix));
        all.push(references::route::<Pools>(&item, prefix));
        all.push(previews::of_pool(&item, prefix));
    }
    all
}

async fn bulk_edit(call: Call) -> Result<Reply, ApiError> {
    let body = call.object()?;
    if body.len() != 1 || body.get("notification_email") != Some(&"".into()) {
        let only = "the only body that changes many pools is {\"notification_email\": \"\"}";
        return Err(ApiError::wrong("", only));
    }
    let window = Window::asked(&call)?.unwrap_or(Window::page(1, PER_PAGE));
    let at = Stamp::now();
    let declared = Arc::clone(&call.desired.declared);
    let scope = call.scope;
    write::keep(&call, at, move |state| {
        let whole = Whole {
            declared: &declared,
            state,
        };
        let all = whole.all(Kind::Pool).filter(|pool| pool.scope == scope);
        let (part, info) = Window::cut(Some(window), all.collect());
        let mut ops = Vec::new();
        let mut notes = Vec::new();
        let mut items = Vec::new();
        for pool in part {
            let shown = match cleared(&declared, &pool, at) {
                Ok(shown) => shown,
                Err(note) => {
                    notes.push(note);
                    None
                }
            };
            if let Some(shown) = &shown {
                ops.push(Op::Replace {
                    put: shown.put(),
                    expected: None,
                });
            }
            items.push(text(shown.as_ref().unwrap_or(&pool), whole));
        }
        let answer = envelope(&joined(&items), &messages(&notes), Some(&info));
        Ok(Change { ops, answer })
    })
    .await
}

/// The pool without its address for mail; nothing, if it has none. One that is declared stays as it
/// is, and that is said.
fn cleared(declared: &Declared, pool: &Shown, at: Stamp) -> Result<Option<Shown>, Fault> {
    let mut document = pool.value();
    let had = document.insert("notification_email".to_owned(), "".into());
    if had.is_none_or(|had| had == "") {
        return Ok(None);
    }
    if declared.find(Kind::Pool, pool.id).is_some() {
        return Err(Fault {
            pointer: String::new(),
            at_key: false,
            inside: 0,
            place: String::new(),
            message: format!("pool {} is declared in {}", pool.name, declared.file()),
        });
    }
    Ok(Some(Shown {
        document: Value::from(document).to_string(),
        times: pool.times.map(|(created, _)| (created, at)),
        ..pool.clone()
    }))
}
