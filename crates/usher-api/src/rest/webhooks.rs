//! Webhook destinations: where notifications are posted to.
//!
//! A new one is called at once with a message that says so; whether it answered is told in
//! `messages` and stands in its times, and it is kept either way: a receiver that is down for a
//! moment is no fault of what its operator wrote.

use std::net::IpAddr;

use http::Uri;
use http::uri::Scheme;
use serde_json::{Map, Value, json};
use usher_core::address::is_open;
use usher_core::id::Id;
use usher_store::{Kind, Private, Resource, Secret, Stamp, State};

use super::alerting::{self, Checked, Part, Wish, fields};
use super::document::{self, Field, optional, required};
use super::letters::Letter;
use super::write::Verb;
use super::{Call, Reply, Route};
use crate::envelope::ApiError;
use crate::wire::reader::{Cursor, Fault, Shape, built, read_only};

const URL_LEN_MAX: usize = 2048;
const SECRET_LEN_MAX: usize = 1024;

pub(crate) struct Webhooks;

static WEBHOOK: Shape = Shape {
    name: "webhook destination",
    keys: &[
        built("name"),
        built("url"),
        built("secret"),
        read_only("id"),
        read_only("type"),
        read_only("created_at"),
        read_only("last_success"),
        read_only("last_failure"),
    ],
};

const FIELDS: &[Field] = &[
    required("name", document::Kind::Text),
    required("url", document::Kind::Text),
];

const BODY: &[Field] = &[
    required("name", document::Kind::Text),
    required("url", document::Kind::Text),
    optional("secret", document::Kind::Text, ""),
];

impl Part for Webhooks {
    const KIND: Kind = Kind::WebhookDestination;
    const PATH: &'static str = "/accounts/{account_id}/alerting/v3/destinations/webhooks";
    const NOUNS: (&'static str, &'static str) = ("webhook_destination", "webhook_destinations");
    const FIELDS: &'static [Field] = FIELDS;
    const BODY: &'static [Field] = BODY;

    fn check(document: &Cursor<'_>, _: &State, private_targets: bool) {
        let Some(object) = document.object(&WEBHOOK) else {
            return;
        };
        alerting::check_name(object.need("name"));
        if let Some(url) = object.need("url") {
            check_url(&url, private_targets);
        }
        let Some(secret) = object.get("secret") else {
            return;
        };
        // Its value is never part of a message.
        match secret.text() {
            Some(text) if text.len() > SECRET_LEN_MAX => {
                secret.fault(format_args!("is longer than {SECRET_LEN_MAX} characters"));
            }
            Some(text) if !text.bytes().all(|byte| byte.is_ascii_graphic()) => {
                secret.fault("has a character that is not visible ASCII");
            }
            Some(_) | None => {}
        }
    }

    /// One that is not sent stays: nobody can read it to send it again. An empty one ends it, and
    /// so does another place: who may change the address is not told by that what is kept for it.
    fn private(body: &Map<String, Value>, kept: Option<&Resource>) -> Option<Private> {
        match body.get("secret") {
            Some(Value::String(secret)) if secret.is_empty() => None,
            Some(Value::String(secret)) => Some(Private::Secret(Secret::new(secret))),
            Some(Value::Null) => None,
            _ => kept
                .filter(|kept| !moves(body, kept))
                .and_then(|kept| kept.private.clone()),
        }
    }

    fn users(state: &State, id: Id) -> Vec<String> {
        let id = id.to_string();
        let policies = state.all(Kind::NotificationPolicy);
        let users = policies.filter(|policy| {
            let used = fields(policy);
            let used = used
                .get("mechanisms")
                .and_then(|all| all["webhooks"].as_array());
            used.into_iter()
                .flatten()
                .any(|used| used["id"] == id.as_str())
        });
        users
            .map(|policy| format!("notification policy {}", policy.name))
            .collect()
    }

    fn shown(call: &Call, kept: &Resource) -> Value {
        let delivered = call.app.control.delivered(kept.id);
        let time = |at: Option<Stamp>| at.map(|at| at.to_string());
        let fields = fields(kept);
        json!({
            "id": kept.id.to_string(),
            "name": fields.get("name"),
            "url": fields.get("url"),
            "type": "generic",
            "created_at": kept.created_on.to_string(),
            "last_success": time(delivered.success),
            "last_failure": time(delivered.failure),
        })
    }
}

pub(crate) fn routes() -> Vec<Route> {
    alerting::routes::<Webhooks>(
        |call| Box::pin(write(call, Verb::Create)),
        |call| Box::pin(write(call, Verb::Edit)),
    )
}

/// Checks it, tries it, keeps it.
async fn write(call: Call, verb: Verb) -> Result<Reply, ApiError> {
    let wish = Wish::of(&call, verb)?;
    let Checked {
        document: whole,
        kept,
        ..
    } = wish.check::<Webhooks>(&call.state)?;
    let text = |key: &str| whole.get(key).and_then(Value::as_str).unwrap_or_default();
    let url = text("url").to_owned();
    if kept.is_some_and(|kept| kept.private.is_some() && moves(&whole, kept))
        && !whole.contains_key("secret")
    {
        let message = "secret was given for another place, and is not sent to this one: send it again, or \"\" for none";
        return Err(ApiError::wrong("/secret", message));
    }
    let called = kept
        .is_none_or(|kept| fields(kept).get("url").and_then(Value::as_str) != Some(url.as_str()));
    let mut told = Vec::new();
    if called && call.query_flag("dry_run")? != Some(true) && call.desired.store.is_some() {
        let secret = match Webhooks::private(&whole, kept) {
            Some(Private::Secret(secret)) => Some(secret),
            _ => None,
        };
        let letter = Letter {
            destination: wish.id(),
            url,
            secret,
            body: test_of(text("name")),
        };
        if let Err(why) = call.app.control.post(letter).await {
            told.push(Fault {
                pointer: "/url".to_owned(),
                at_key: false,
                inside: 0,
                place: String::new(),
                message: format!("the test message did not arrive: {why}"),
            });
        }
    }
    alerting::keep::<Webhooks>(call, wish, told).await
}

/// Whether messages would go to another scheme, host or port than before.
fn moves(document: &Map<String, Value>, kept: &Resource) -> bool {
    let place = |fields: &Map<String, Value>| {
        let uri: Option<Uri> = fields.get("url")?.as_str()?.parse().ok();
        uri.map(|uri| (uri.scheme().cloned(), uri.authority().cloned()))
    };
    place(document) != place(&fields(kept))
}

fn test_of(name: &str) -> String {
    let text = "This is a test message of Usher: notifications will arrive here.";
    let now = Stamp::now().as_micros() / 1_000_000;
    json!({"name": name, "text": text, "alert_type": "test", "ts": now, "data": {}}).to_string()
}

fn check_url(url: &Cursor<'_>, private_targets: bool) {
    let Some(text) = url.text() else { return };
    if text.len() > URL_LEN_MAX {
        url.fault(format_args!("is longer than {URL_LEN_MAX} characters"));
        return;
    }
    let parsed: Option<Uri> = text.parse().ok();
    let web =
        |uri: &Uri| uri.scheme() == Some(&Scheme::HTTP) || uri.scheme() == Some(&Scheme::HTTPS);
    let Some(parsed) = parsed
        .filter(web)
        .filter(|uri| uri.host().is_some_and(|host| !host.is_empty()))
    else {
        url.fault(format_args!("{text:?} is not an http or https url"));
        return;
    };
    if parsed
        .authority()
        .is_some_and(|whole| whole.as_str().contains('@'))
    {
        url.fault("carries a user name or password; give a secret instead");
        return;
    }
    let host = parsed.host().unwrap_or_default();
    let names_port = parsed
        .authority()
        .is_some_and(|whole| whole.as_str().len() > host.len());
    if names_port && parsed.port_u16().is_none_or(|port| port == 0) {
        url.fault("has a port that is outside 1..65535");
        return;
    }
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let private = match host.parse::<IpAddr>() {
        Ok(ip) => !is_open(ip),
        // What a name stands for is judged each time that it is called.
        Err(_) => host.eq_ignore_ascii_case("localhost"),
    };
    if private && !private_targets {
        url.fault(format_args!(
            "leads to {host}, which is private; notifications.allow_private in the configuration file allows such"
        ));
    }
}
