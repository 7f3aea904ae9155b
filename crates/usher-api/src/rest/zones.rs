//! Zones with their settings, and accounts: what tools need to find ids, and to begin from nothing.
//!
//! A zone is known by its name, and its id comes from that: one that is declared later than it was
//! created is the same zone, and its load balancers stay where they are.

use std::sync::Arc;

use http::Method;
use serde_json::{Map, Value, json};
use usher_core::catalog::Zone;
use usher_core::id::{Id, Kind as IdKind};
use usher_store::{Change, Kind, Op, Scope, Stamp};

use super::desired::{Declared, Shown, Whole, account, fields_of, ssl_word};
use super::document::canonical;
use super::list::{PER_PAGE, Window};
use super::{Call, Needs, Reply, Route, fields, route, write};
use crate::access::Product;
use crate::envelope::{ApiError, envelope, messages};
use crate::wire::reader::{ACCOUNT, Fault, declared};

/// Labels of a name, and characters of a label and of the whole, as DNS has them.
const LABEL_LEN_MAX: usize = 63;
const NAME_LEN_MAX: usize = 253;

pub(crate) fn routes() -> Vec<Route> {
    let (read, edit) = (Needs::Read(Product::Zones), Needs::Edit(Product::Zones));
    vec![
        route(
            Method::GET,
            "/zones",
            "list_zones",
            "Lists the zones",
            read,
            |call| Box::pin(async move { list(&call) }),
        ),
        route(
            Method::POST,
            "/zones",
            "create_zone",
            "Creates a zone",
            edit,
            |call| Box::pin(create(call)),
        )
        .with_body(fields::ZONE),
        route(
            Method::GET,
            "/zones/{zone_id}",
            "get_zone",
            "Shows a zone",
            read,
            |call| Box::pin(async move { get(&call) }),
        ),
        route(
            Method::DELETE,
            "/zones/{zone_id}",
            "delete_zone",
            "Deletes a zone without load balancers and waiting rooms",
            edit,
            |call| Box::pin(delete(call)),
        ),
        route(
            Method::GET,
            "/zones/{zone_id}/settings/{setting_id}",
            "get_zone_setting",
            "Shows a setting of a zone: ssl or always_use_https",
            read,
            |call| Box::pin(async move { setting(&call) }),
        ),
        route(
            Method::PATCH,
            "/zones/{zone_id}/settings/{setting_id}",
            "edit_zone_setting",
            "Changes a setting of a zone: ssl or always_use_https",
            edit,
            |call| Box::pin(edit_setting(call)),
        ),
        route(
            Method::GET,
            "/accounts",
            "list_accounts",
            "Lists the accounts",
            Needs::Nothing,
            |call| Box::pin(async move { accounts(&call) }),
        ),
        route(
            Method::GET,
            "/accounts/{id}",
            "get_account",
            "Shows an account",
            Needs::Nothing,
            |call| Box::pin(async move { get_account(&call) }),
        ),
    ]
}

fn shown_account((id, name): &(Id, String)) -> Value {
    json!({"id": id.to_string(), "name": name, "type": "standard", "status": "active"})
}

fn accounts(call: &Call) -> Result<Reply, ApiError> {
    let asked = call.query("name").filter(|name| !name.is_empty());
    let all = call.accounts();
    let all = all
        .iter()
        .filter(|(_, name)| asked.is_none_or(|asked| asked == name));
    paged(call, all.map(shown_account).collect())
}

fn get_account(call: &Call) -> Result<Reply, ApiError> {
    let id = call.id(0)?;
    let all = call.accounts();
    let found = all.iter().find(|(known, _)| *known == id);
    let found = found.ok_or_else(|| ApiError::NoRoute(call.path.clone()))?;
    Ok(Reply::result(&shown_account(found)))
}

/// One page, also where none is asked for: the clients go on until a page is empty.
fn paged(call: &Call, all: Vec<Value>) -> Result<Reply, ApiError> {
    let window = Window::asked(call)?.unwrap_or(Window::page(1, PER_PAGE));
    let (part, info) = Window::cut(Some(window), all);
    Ok(Reply::Result(
        Value::from(part).to_string(),
        Vec::new(),
        Some(info),
    ))
}

fn shown(zone: &Shown) -> Value {
    let mut value = json!({
        "id": zone.id.to_string(),
        "name": zone.name,
        "status": "active",
        "paused": false,
        "type": "full",
        "account": {"id": account().to_string(), "name": ACCOUNT},
    });
    if let Some((created, modified)) = zone.times {
        value["created_on"] = created.to_string().into();
        value["modified_on"] = modified.to_string().into();
    }
    value
}

fn list(call: &Call) -> Result<Reply, ApiError> {
    let name = call.query("name").filter(|name| !name.is_empty());
    let whole = call.whole();
    let all = whole
        .all(Kind::Zone)
        .filter(|zone| name.is_none_or(|name| zone.name == name));
    let all = all.map(|zone| shown(&zone)).collect();
    paged(call, all)
}

/// The zone of the path.
fn zone(call: &Call) -> Result<Zone, ApiError> {
    call.zone.clone().ok_or(ApiError::NotFound)
}

fn get(call: &Call) -> Result<Reply, ApiError> {
    let found = call.whole().find(Kind::Zone, zone(call)?.id);
    found
        .map(|zone| Reply::result(&shown(&zone)))
        .ok_or(ApiError::NotFound)
}

async fn create(call: Call) -> Result<Reply, ApiError> {
    let body = call.object()?;
    let at = Stamp::now();
    let declared = Arc::clone(&call.desired.declared);
    write::keep(&call, at, move |state| {
        let whole = Whole {
            declared: &declared,
            state,
        };
        let name = new_name(&body, whole)?;
        let zone = Shown {
            kind: Kind::Zone,
            id: id(&name),
            scope: Scope::Account(account()),
            document: json!({"name": name}).to_string(),
            name,
            times: Some((at, at)),
        };
        let known = ["name", "account", "type"];
        let unknown = body.keys().filter(|key| !known.contains(&key.as_str()));
        let notes: Vec<Fault> = unknown
            .map(|key| fault(&format!("/{key}"), format!("unknown key {key:?}")))
            .collect();
        Ok(Change {
            ops: vec![Op::Create(zone.put())],
            answer: envelope(&shown(&zone).to_string(), &messages(&notes), None),
        })
    })
    .await
}

fn id(name: &str) -> Id {
    declared(IdKind::Zone, name)
}

fn fault(pointer: &str, message: String) -> Fault {
    Fault {
        pointer: pointer.to_owned(),
        at_key: false,
        inside: 0,
        place: String::new(),
        message,
    }
}

/// The name in the body, if a zone may be called so and none is.
fn new_name(body: &Map<String, Value>, whole: Whole<'_>) -> Result<String, ApiError> {
    let mut faults = Vec::new();
    let name = match body.get("name") {
        None | Some(Value::Null) => {
            faults.push(fault("/name", "name is missing".to_owned()));
            String::new()
        }
        Some(Value::String(name)) => name.to_ascii_lowercase(),
        Some(_) => {
            faults.push(fault("/name", "name must be text".to_owned()));
            String::new()
        }
    };
    if faults.is_empty() && !is_domain(&name) {
        faults.push(fault(
            "/name",
            format!("name {name:?} is not a domain name"),
        ));
    }
    let own = account().to_string();
    match body.get("account") {
        None | Some(Value::Null) => {}
        Some(Value::Object(map)) if map.get("id").is_none_or(|id| id == own.as_str()) => {}
        Some(_) => faults.push(fault("/account", "account does not exist".to_owned())),
    }
    if faults.is_empty() && whole.find(Kind::Zone, id(&name)).is_some() {
        faults.push(fault("/name", format!("zone {name:?} is not unique")));
    }
    match faults.is_empty() {
        true => Ok(name),
        false => Err(ApiError::Invalid(faults)),
    }
}

fn is_domain(name: &str) -> bool {
    let label = |label: &str| {
        (1..=LABEL_LEN_MAX).contains(&label.len())
            && !label.starts_with('-')
            && !label.ends_with('-')
            && label
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_')
    };
    (1..=NAME_LEN_MAX).contains(&name.len()) && name.split('.').all(label)
}

/// Refuses to change what the file declares.
fn own(declared: &Declared, zone: Id) -> Result<(), ApiError> {
    match declared.find(Kind::Zone, zone) {
        Some(_) => Err(ApiError::Declared(declared.file().to_owned())),
        None => Ok(()),
    }
}

async fn delete(call: Call) -> Result<Reply, ApiError> {
    let zone = zone(&call)?.id;
    let declared = Arc::clone(&call.desired.declared);
    write::keep(&call, Stamp::now(), move |state| {
        own(&declared, zone)?;
        state.find(Kind::Zone, zone).ok_or(ApiError::NotFound)?;
        let kinds = [Kind::Balancer, Kind::Room].into_iter();
        let within = kinds.flat_map(|kind| state.within(kind, Scope::Zone(zone)));
        let within: Vec<String> = within
            .map(|kept| format!("{} {}", kept.kind, kept.name))
            .collect();
        if !within.is_empty() {
            return Err(ApiError::Referenced(within));
        }
        let settings = state
            .find(Kind::ZoneSettings, zone)
            .map(|_| Kind::ZoneSettings);
        let ops = settings
            .into_iter()
            .chain([Kind::Zone])
            .map(|kind| Op::Delete {
                kind,
                id: zone,
                expected: None,
            });
        Ok(Change {
            ops: ops.collect(),
            answer: envelope(&json!({"id": zone.to_string()}).to_string(), &[], None),
        })
    })
    .await
}

fn setting(call: &Call) -> Result<Reply, ApiError> {
    let zone = zone(call)?;
    let editable = own(&call.desired.declared, zone.id).is_ok();
    let modified = call.state.find(Kind::ZoneSettings, zone.id);
    let modified = modified.map(|kept| kept.modified_on);
    let value = match call.param(0) {
        "ssl" => ssl_word(zone.ssl).into(),
        "always_use_https" => on_off(zone.always_use_https),
        other => return Err(unknown_setting(other)),
    };
    Ok(Reply::result(&shown_setting(
        call.param(0),
        &value,
        editable,
        modified,
    )))
}

fn shown_setting(name: &str, value: &Value, editable: bool, modified: Option<Stamp>) -> Value {
    json!({
        "id": name, "value": value, "editable": editable,
        "modified_on": modified.map(|at| at.to_string()),
    })
}

fn on_off(on: bool) -> Value {
    if on { "on" } else { "off" }.into()
}

fn unknown_setting(name: &str) -> ApiError {
    ApiError::Unbuilt(format!(
        "setting {name} is not built: there are ssl and always_use_https"
    ))
}

async fn edit_setting(call: Call) -> Result<Reply, ApiError> {
    let body = call.object()?;
    let zone = zone(&call)?.id;
    let declared = Arc::clone(&call.desired.declared);
    own(&declared, zone)?;
    let name = call.param(0).to_owned();
    let value = match name.as_str() {
        "ssl" => word(&body, &["flexible", "full", "strict"])?.into(),
        "always_use_https" => Value::Bool(word(&body, &["on", "off"])? == "on"),
        other => return Err(unknown_setting(other)),
    };
    let at = Stamp::now();
    write::keep(&call, at, move |state| {
        let kept = state.find(Kind::ZoneSettings, zone);
        let mut document = kept.map_or_else(Map::new, |kept| Shown::of(kept).value());
        document.insert(name.clone(), value.clone());
        let document = canonical(&document, fields_of(Kind::ZoneSettings));
        let put = Shown {
            kind: Kind::ZoneSettings,
            id: zone,
            scope: Scope::Zone(zone),
            name: String::new(),
            document: Value::from(document).to_string(),
            times: None,
        }
        .put();
        let op = match kept {
            None => Op::Create(put),
            Some(_) => Op::Replace {
                put,
                expected: None,
            },
        };
        let told = match &value {
            Value::Bool(on) => on_off(*on),
            word => word.clone(),
        };
        let result = shown_setting(&name, &told, true, Some(at));
        Ok(Change {
            ops: vec![op],
            answer: envelope(&result.to_string(), &[], None),
        })
    })
    .await
}

fn word<'b>(body: &'b Map<String, Value>, words: &[&str]) -> Result<&'b str, ApiError> {
    match body.get("value") {
        None | Some(Value::Null) => Err(ApiError::wrong("/value", "value is missing")),
        Some(Value::String(word)) if words.contains(&word.as_str()) => Ok(word),
        Some(Value::String(word)) => Err(ApiError::wrong(
            "/value",
            format!("value {word:?} is not one of {}", words.join(", ")),
        )),
        Some(_) => Err(ApiError::wrong("/value", "value must be text")),
    }
}
