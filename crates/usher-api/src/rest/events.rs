//! What happened by itself, and who changed what.

use http::Method;
use serde_json::{Value, json};
use usher_store::{AuditQuery, EventQuery, Stamp};

use super::list::{Window, joined};
use super::{Call, Needs, Pending, Reply, Route, route};
use crate::access::Product;
use crate::envelope::ApiError;

pub(crate) fn routes() -> Vec<Route> {
    let read = Needs::Read(Product::LoadBalancing);
    let told = "Lists changes of the state of endpoints, newest first";
    let mut all: Vec<Route> = [("/user", "user_"), ("/accounts/{account_id}", "")]
        .into_iter()
        .map(|(base, prefix)| {
            let path = format!("{base}/load_balancing_analytics/events");
            route(
                Method::GET,
                &path,
                &format!("{prefix}list_events"),
                told,
                read,
                |call| Box::pin(events(call)),
            )
        })
        .collect();
    all.push(route(
        Method::GET,
        "/accounts/{account_id}/audit_logs",
        "list_audit_logs",
        "Lists who changed what, newest first",
        Needs::Read(Product::Tokens),
        audit,
    ));
    all
}

async fn events(call: Call) -> Result<Reply, ApiError> {
    let window = Window::asked(&call)?.unwrap_or(Window::page(1, 100));
    let small = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
    let query = EventQuery {
        since: moment(&call, "since")?,
        until: moment(&call, "until")?,
        subject: match call.query("pool_id") {
            None | Some("") => None,
            Some(text) => Some(text.parse().map_err(|fault: usher_core::id::IdFault| {
                ApiError::wrong("/pool_id", fault.to_string())
            })?),
        },
        subject_name: text(&call, "pool_name"),
        healthy: call.query_flag("pool_healthy")?,
        part: text(&call, "origin_name"),
        part_healthy: call.query_flag("origin_healthy")?,
        skip: small(window.skip),
        limit: small(window.take),
        ..EventQuery::default()
    };
    let Some(store) = &call.desired.store else {
        return Ok(Reply::Result(
            "[]".to_owned(),
            Vec::new(),
            Some(window.info(0, 0)),
        ));
    };
    let page = store.events(query).await.map_err(ApiError::Store)?;
    let items: Vec<String> = page
        .rows
        .iter()
        .map(|event| {
            let fields = event.document.trim_start_matches('{');
            format!(r#"{{"id":{},{fields}"#, event.id)
        })
        .collect();
    let total = usize::try_from(page.total).unwrap_or(usize::MAX);
    let info = window.info(items.len(), total);
    Ok(Reply::Result(joined(&items), Vec::new(), Some(info)))
}

fn audit(call: Call) -> Pending {
    Box::pin(async move {
        let window = Window::asked(&call)?.unwrap_or(Window::page(1, 100));
        let small = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
        let query = AuditQuery {
            since: moment(&call, "since")?,
            until: moment(&call, "until")?,
            actor: text(&call, "actor"),
            skip: small(window.skip),
            limit: small(window.take),
            ..AuditQuery::default()
        };
        let Some(store) = &call.desired.store else {
            return Ok(Reply::Result(
                "[]".to_owned(),
                Vec::new(),
                Some(window.info(0, 0)),
            ));
        };
        let page = store.audit(query).await.map_err(ApiError::Store)?;
        let rows = page.rows.iter().map(|row| {
            let items = row.items.iter().map(|item| {
                json!({
                    "kind": item.kind.name(), "id": item.id.to_string(), "name": item.name,
                    "before": parsed(item.before.as_deref()), "after": parsed(item.after.as_deref()),
                })
            });
            json!({
                "revision": row.revision.0, "when": row.at.to_string(), "actor": row.actor.name,
                "action": row.what, "resources": items.collect::<Vec<_>>(),
            })
        });
        let rows: Vec<Value> = rows.collect();
        let total = usize::try_from(page.total).unwrap_or(usize::MAX);
        let info = window.info(rows.len(), total);
        Ok(Reply::Result(
            Value::from(rows).to_string(),
            Vec::new(),
            Some(info),
        ))
    })
}

fn parsed(document: Option<&str>) -> Value {
    document.map_or(Value::Null, |text| {
        serde_json::from_str(text).unwrap_or_default()
    })
}

fn text(call: &Call, name: &str) -> Option<String> {
    call.query(name)
        .filter(|text| !text.is_empty())
        .map(str::to_owned)
}

fn moment(call: &Call, name: &str) -> Result<Option<Stamp>, ApiError> {
    let Some(text) = call.query(name).filter(|text| !text.is_empty()) else {
        return Ok(None);
    };
    let moment = Stamp::parse(text);
    let fault = || {
        let message = format!("{name} {text:?} is not a time such as 2026-12-01T10:00:00Z");
        ApiError::wrong(&format!("/{name}"), message)
    };
    moment.ok_or_else(fault).map(Some)
}
