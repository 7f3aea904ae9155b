//! Tokens: made here, shown once, kept as digests.
//!
//! The answer that shows a token is never kept for a repeat: it would be the one place where the
//! token itself is written down.

use http::Method;
use serde_json::{Map, Value, json};
use usher_store::token::{self, Digest};
use usher_store::{Change, Kind, Op, Private, Put, Resource, Scope, Stamp, State};

use super::document::{canonical, patched};
use super::list::Window;
use super::write::{self, Verb};
use super::{Call, Caller, Needs, Reply, Route, fields, route};
use crate::access::{Permission, Product};
use crate::envelope::{ApiError, envelope};
use crate::wire::reader::{ACCOUNT, Fault};

const NAME_LEN_MAX: usize = 255;

pub(crate) fn routes() -> Vec<Route> {
    let (read, edit) = (Needs::Read(Product::Tokens), Needs::Edit(Product::Tokens));
    let mut all = vec![route(
        Method::GET,
        "/user/tokens/verify",
        "verify_token",
        "Says whether the token that is sent opens anything",
        Needs::Nothing,
        |call| Box::pin(async move { Ok(verify(&call)) }),
    )];
    for (base, prefix) in [("/user", "user_"), ("/accounts/{account_id}", "")] {
        let path = format!("{base}/tokens");
        let item = format!("{path}/{{token_id}}");
        let name = |verb: &str| format!("{prefix}{verb}_token");
        all.extend([
            route(
                Method::GET,
                &path,
                &format!("{prefix}list_tokens"),
                "Lists the tokens that are kept",
                read,
                |call| Box::pin(async move { list(&call) }),
            ),
            route(
                Method::POST,
                &path,
                &name("create"),
                "Makes a token, and shows it once",
                edit,
                |call| Box::pin(write(call, Verb::Create)),
            )
            .with_body(fields::TOKEN),
            route(
                Method::GET,
                &item,
                &name("get"),
                "Shows what a token may do",
                read,
                |call| Box::pin(async move { get(&call) }),
            ),
            route(
                Method::PUT,
                &item,
                &name("replace"),
                "Changes what a token may do",
                edit,
                |call| Box::pin(write(call, Verb::Replace)),
            )
            .with_body(fields::TOKEN),
            route(
                Method::PATCH,
                &item,
                &name("edit"),
                "Changes the fields that are sent",
                edit,
                |call| Box::pin(write(call, Verb::Edit)),
            )
            .with_body(fields::TOKEN),
            route(
                Method::DELETE,
                &item,
                &name("delete"),
                "Takes a token away",
                edit,
                |call| Box::pin(write(call, Verb::Delete)),
            ),
            route(
                Method::PUT,
                &format!("{item}/value"),
                &name("roll"),
                "Makes another text for a token, and shows it once",
                edit,
                |call| Box::pin(roll(call)),
            ),
        ]);
    }
    all
}

fn verify(call: &Call) -> Reply {
    let id = match call.caller.token {
        Some(id) => id.to_string(),
        // A token of the file has a name and no id; its digest stays where it is.
        None => usher_core::id::Id::derive(
            ACCOUNT,
            usher_core::id::Kind::Account,
            &format!("token {}", call.caller.name),
        )
        .to_string(),
    };
    Reply::result(&json!({"id": id, "status": "active"}))
}

fn shown(call: &Call, kept: &Resource) -> Value {
    let last = call
        .desired
        .store
        .as_ref()
        .and_then(|store| store.last_use(kept.id));
    let mut value = text(kept.id, &kept.document, kept.created_on, kept.modified_on);
    value["last_used_on"] = last.map(|at| at.to_string()).into();
    value
}

fn text(id: usher_core::id::Id, document: &str, created: Stamp, modified: Stamp) -> Value {
    let mut value = json!({
        "id": id.to_string(), "status": "active",
        "issued_on": created.to_string(), "modified_on": modified.to_string(),
    });
    if let (Some(map), Ok(Value::Object(fields))) = (
        value.as_object_mut(),
        serde_json::from_str::<Value>(document),
    ) {
        let expires = fields.get("expires_on").and_then(Value::as_str);
        if expires
            .and_then(Stamp::parse)
            .is_some_and(|at| at <= Stamp::now())
        {
            map.insert("status".to_owned(), "expired".into());
        }
        map.extend(fields);
    }
    value
}

fn list(call: &Call) -> Result<Reply, ApiError> {
    let all = call
        .state
        .all(Kind::Token)
        .map(|kept| shown(call, kept))
        .collect();
    let (part, info) = Window::cut(Window::asked(call)?, all);
    Ok(Reply::Result(
        Value::from(part).to_string(),
        Vec::new(),
        Some(info),
    ))
}

fn get(call: &Call) -> Result<Reply, ApiError> {
    let kept = call.state.find(Kind::Token, call.id(0)?);
    kept.map(|kept| Reply::result(&shown(call, kept)))
        .ok_or(ApiError::NotFound)
}

async fn write(call: Call, verb: Verb) -> Result<Reply, ApiError> {
    let id = match verb {
        Verb::Create => write::draw(&call),
        Verb::Replace | Verb::Edit | Verb::Delete => call.id(0)?,
    };
    let body = match verb {
        Verb::Delete => Map::new(),
        Verb::Create | Verb::Replace | Verb::Edit => call.object()?,
    };
    let (caller, accounts) = (call.caller.clone(), call.accounts());
    let at = Stamp::now();
    keep(&call, at, move |state| {
        let kept = match verb {
            Verb::Create => None,
            _ => Some(state.find(Kind::Token, id).ok_or(ApiError::NotFound)?),
        };
        if let Some(kept) = kept {
            within(kept, &caller)?;
        }
        if verb == Verb::Delete {
            return Ok(Change {
                ops: vec![Op::Delete {
                    kind: Kind::Token,
                    id,
                    expected: None,
                }],
                answer: envelope(&json!({"id": id.to_string()}).to_string(), &[], None),
            });
        }
        let before =
            kept.map(|kept| serde_json::from_str::<Value>(&kept.document).unwrap_or_default());
        let before = before.as_ref().and_then(Value::as_object);
        let whole = match before {
            Some(before) if verb == Verb::Edit => patched(before, &body),
            _ => body,
        };
        let fields = checked(&whole, &caller, &accounts, state)?;
        if state
            .all(Kind::Token)
            .any(|other| other.id != id && other.name == fields.name)
        {
            let message = format!("name {:?} is not unique", fields.name);
            return Err(ApiError::wrong("/name", message));
        }
        let document = Value::from(canonical(&whole, fields::TOKEN)).to_string();
        let held = kept.and_then(|kept| match &kept.private {
            Some(Private::Token { digest, .. }) => Some(*digest),
            _ => None,
        });
        let (digest, made) = match held {
            Some(digest) => (digest, None),
            None => drawn()?,
        };
        let created = kept.map_or(at, |kept| kept.created_on);
        let mut result = text(id, &document, created, at);
        if let Some(made) = made {
            result["value"] = made.into();
        }
        let put = Put {
            kind: Kind::Token,
            id,
            scope: Scope::Installation,
            name: fields.name,
            document,
            private: Some(Private::Token {
                digest,
                expires: fields.expires,
            }),
        };
        let op = match kept {
            None => Op::Create(put),
            Some(_) => Op::Replace {
                put,
                expected: None,
            },
        };
        Ok(Change {
            ops: vec![op],
            answer: envelope(&result.to_string(), &[], None),
        })
    })
    .await
}

async fn roll(call: Call) -> Result<Reply, ApiError> {
    let id = call.id(0)?;
    let (caller, accounts) = (call.caller.clone(), call.accounts());
    keep(&call, Stamp::now(), move |state| {
        let kept = state.find(Kind::Token, id).ok_or(ApiError::NotFound)?;
        let value: Value = serde_json::from_str(&kept.document).unwrap_or_default();
        // Whoever rolls a token holds it then, so may not get more than they have.
        let fields = checked(
            value.as_object().unwrap_or(&Map::new()),
            &caller,
            &accounts,
            state,
        )?;
        let (digest, made) = drawn()?;
        let put = Put {
            kind: Kind::Token,
            id,
            scope: Scope::Installation,
            name: kept.name.clone(),
            document: kept.document.clone(),
            private: Some(Private::Token {
                digest,
                expires: fields.expires,
            }),
        };
        Ok(Change {
            ops: vec![Op::Replace {
                put,
                expected: None,
            }],
            answer: envelope(&Value::from(made).to_string(), &[], None),
        })
    })
    .await
}

/// As other changes are kept, and never for a repeat.
async fn keep(
    call: &Call,
    at: Stamp,
    check: impl FnOnce(&State) -> Result<Change, ApiError> + Send + 'static,
) -> Result<Reply, ApiError> {
    if call.query_flag("dry_run")? == Some(true) {
        let message = "dry_run has no meaning for tokens";
        return Err(ApiError::wrong("/dry_run", message));
    }
    let store = write::store(call)?;
    write::keep_in(&store, write::intent(call, at, None), check).await
}

/// A new token: what is kept of it, and the text.
fn drawn() -> Result<(Digest, Option<String>), ApiError> {
    let secret = token::draw().map_err(|fault| ApiError::Unbuilt(fault.to_string()))?;
    Ok((
        Digest::of(secret.expose()),
        Some(secret.expose().to_owned()),
    ))
}

struct Fields {
    name: String,
    expires: Option<Stamp>,
}

/// Whether the caller may do what the permission allows.
fn holds(caller: &Caller, permission: Permission) -> bool {
    match permission {
        Permission::Admin => caller.permissions.contains(&Permission::Admin),
        Permission::Read(product) => caller.reads(product),
        Permission::Edit(product) => caller.edits(product),
    }
}

/// Nobody changes or takes away a token that can do more than their own.
fn within(kept: &Resource, caller: &Caller) -> Result<(), ApiError> {
    let document: Value = serde_json::from_str(&kept.document).unwrap_or_default();
    let permissions = document["permissions"].as_array();
    let mut permissions = permissions.into_iter().flatten().filter_map(Value::as_str);
    let held = permissions
        .all(|word| Permission::parse(word).is_some_and(|permission| holds(caller, permission)));
    match held {
        true => Ok(()),
        false => {
            let message = format!(
                "token {:?} can do more than the token that asks for this",
                kept.name
            );
            Err(ApiError::wrong("", message))
        }
    }
}

/// Everything that is wrong with a token, or what is needed of it. Nobody gives away more than they
/// have.
fn checked(
    body: &Map<String, Value>,
    caller: &Caller,
    accounts: &[(usher_core::id::Id, String)],
    state: &State,
) -> Result<Fields, ApiError> {
    let mut faults = Vec::new();
    let mut fault = |pointer: String, message: String| {
        faults.push(Fault {
            pointer,
            at_key: false,
            inside: 0,
            place: String::new(),
            message,
        });
    };
    let given = |key: &str| body.get(key).filter(|value| !value.is_null());
    let name = match given("name") {
        Some(Value::String(name)) if (1..=NAME_LEN_MAX).contains(&name.len()) => name.clone(),
        Some(Value::String(_)) => {
            fault(
                "/name".into(),
                format!("name must have 1..{NAME_LEN_MAX} bytes"),
            );
            String::new()
        }
        Some(_) => {
            fault("/name".into(), "name must be text".into());
            String::new()
        }
        None => {
            fault("/name".into(), "name is missing".into());
            String::new()
        }
    };
    match given("permissions") {
        Some(Value::Array(list)) if !list.is_empty() => {
            for (place, item) in list.iter().enumerate() {
                let pointer = format!("/permissions/{place}");
                let permission = item.as_str().and_then(Permission::parse);
                match permission {
                    None => fault(
                        pointer,
                        format!(
                            "permissions[{place}] {item} is not admin, <product>:read or <product>:edit"
                        ),
                    ),
                    Some(permission) if !holds(caller, permission) => fault(
                        pointer,
                        format!(
                            "permissions[{place}] {item} is more than the token that asks for it has"
                        ),
                    ),
                    Some(_) => {}
                }
            }
        }
        Some(Value::Array(_)) => {
            fault(
                "/permissions".into(),
                "permissions is empty: the token could do nothing".into(),
            );
        }
        Some(_) => fault("/permissions".into(), "permissions must be a list".into()),
        None => fault("/permissions".into(), "permissions is missing".into()),
    }
    match given("accounts") {
        None => {}
        Some(Value::Array(list)) => {
            let is_one = |item: &Value| accounts.iter().any(|(_, name)| item == name);
            for (place, item) in list.iter().enumerate().filter(|(_, item)| !is_one(item)) {
                fault(
                    format!("/accounts/{place}"),
                    format!("account {item} does not exist"),
                );
            }
        }
        Some(_) => fault("/accounts".into(), "accounts must be a list".into()),
    }
    let unlimited = given("accounts").is_none_or(|list| *list == json!([]));
    if unlimited && !caller.accounts.is_empty() {
        fault(
            "/accounts".into(),
            "accounts is missing: the token that asks for it is limited to some".into(),
        );
    }
    if given("email").is_some_and(|email| !email.is_string()) {
        fault("/email".into(), "email must be text".into());
    }
    let expires = given("expires_on");
    let moment = expires.and_then(Value::as_str).and_then(Stamp::parse);
    if expires.is_some() && moment.is_none() {
        fault(
            "/expires_on".into(),
            "expires_on is not a time such as 2026-12-01T10:00:00Z".into(),
        );
    }
    let end = caller.token.and_then(|id| state.find(Kind::Token, id));
    let end = end.and_then(|kept| match &kept.private {
        Some(Private::Token { expires, .. }) => *expires,
        _ => None,
    });
    if let Some(end) = end.filter(|end| moment.is_none_or(|moment| moment > *end)) {
        fault(
            "/expires_on".into(),
            format!("expires_on must not be after that of the token that asks for it, {end}"),
        );
    }
    match faults.is_empty() {
        true => Ok(Fields {
            name,
            expires: moment,
        }),
        false => Err(ApiError::Invalid(faults)),
    }
}
