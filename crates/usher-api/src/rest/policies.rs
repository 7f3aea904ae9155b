//! Notification policies: which changes are told, and to whom.

use serde_json::{Value, json};
use usher_core::id::Id;
use usher_store::{Kind, Resource, State};

use super::alerting::{self, Part, Wish, fields};
use super::document::{self, Field, optional, required};
use super::write::Verb;
use super::{Call, Reply, Route};
use crate::envelope::ApiError;
use crate::wire::reader::{Cursor, Object, Shape, Word, built, read_only, unbuilt};

/// An endpoint or pool became healthy, or ceased to be.
pub(crate) const HEALTH: &str = "load_balancing_health_alert";

/// A pool was turned on or off.
pub(crate) const ENABLEMENT: &str = "load_balancing_pool_enablement_alert";

const ALERTS: [(&str, Word<&str>); 2] = [
    (HEALTH, Word::Means(HEALTH)),
    (ENABLEMENT, Word::Means(ENABLEMENT)),
];

const MEANT: Word<()> = Word::Means(());

/// Mechanisms of one kind, and pools of a filter.
const ENTRIES_MAX: usize = 1000;

pub(crate) struct Policies;

static POLICY: Shape = Shape {
    name: "notification policy",
    keys: &[
        built("name"),
        built("description"),
        built("enabled"),
        built("alert_type"),
        built("alert_interval"),
        built("filters"),
        built("mechanisms"),
        read_only("id"),
        read_only("created"),
        read_only("modified"),
    ],
};

static FILTERS: Shape = Shape {
    name: "filters of a notification policy",
    keys: &[
        built("pool_id"),
        built("new_health"),
        built("event_source"),
        built("enabled"),
    ],
};

static MECHANISMS: Shape = Shape {
    name: "mechanisms of a notification policy",
    keys: &[built("webhooks"), built("email"), unbuilt("pagerduty", &[])],
};

static MECHANISM: Shape = Shape {
    name: "mechanism of a notification policy",
    keys: &[built("id")],
};

const FIELDS: &[Field] = &[
    required("name", document::Kind::Text),
    optional("description", document::Kind::Text, "\"\""),
    optional("enabled", document::Kind::Flag, "true"),
    required("alert_type", document::Kind::Text),
    optional("alert_interval", document::Kind::Text, ""),
    optional("filters", document::Kind::Map, "{}"),
    required("mechanisms", document::Kind::Map),
];

impl Part for Policies {
    const KIND: Kind = Kind::NotificationPolicy;
    const PATH: &'static str = "/accounts/{account_id}/alerting/v3/policies";
    const NOUNS: (&'static str, &'static str) = ("notification_policy", "notification_policies");
    const FIELDS: &'static [Field] = FIELDS;
    const BODY: &'static [Field] = FIELDS;

    fn check(document: &Cursor<'_>, state: &State, _: bool) {
        let Some(object) = document.object(&POLICY) else {
            return;
        };
        alerting::check_name(object.need("name"));
        let _ = object.text("description");
        let _ = object.flag_or("enabled", true);
        let alert = object
            .need("alert_type")
            .and_then(|word| word.word(&ALERTS));
        if let Some(interval) = object.get("alert_interval") {
            let _ = interval.text();
            interval.note("has no effect: each change is told once");
        }
        if let Some(filters) = object.get("filters").and_then(|it| it.object(&FILTERS)) {
            check_filters(&filters, alert);
        }
        if let Some(mechanisms) = object.need("mechanisms") {
            check_mechanisms(&mechanisms, state);
        }
    }

    fn shown(_: &Call, kept: &Resource) -> Value {
        let mut shown = json!({
            "id": kept.id.to_string(),
            "created": kept.created_on.to_string(),
            "modified": kept.modified_on.to_string(),
        });
        if let Some(map) = shown.as_object_mut() {
            map.extend(fields(kept));
        }
        shown
    }
}

pub(crate) fn routes() -> Vec<Route> {
    alerting::routes::<Policies>(
        |call| Box::pin(write(call, Verb::Create)),
        |call| Box::pin(write(call, Verb::Edit)),
    )
}

async fn write(call: Call, verb: Verb) -> Result<Reply, ApiError> {
    let wish = Wish::of(&call, verb)?;
    alerting::keep::<Policies>(call, wish, Vec::new()).await
}

fn check_filters(filters: &Object<'_>, alert: Option<&str>) {
    let words = |key: &'static str, words: &[(&'static str, Word<()>)], of: &str| {
        let Some(list) = filters.get(key) else { return };
        for item in list.list() {
            let _ = item.word(words);
        }
        if alert.is_some_and(|alert| alert != of) {
            list.note(format_args!("has no effect: it is for {of}"));
        }
    };
    words(
        "new_health",
        &[("Healthy", MEANT), ("Unhealthy", MEANT)],
        HEALTH,
    );
    words(
        "event_source",
        &[("pool", MEANT), ("origin", MEANT)],
        HEALTH,
    );
    words("enabled", &[("true", MEANT), ("false", MEANT)], ENABLEMENT);
    let pools = filters.get("pool_id").map(|list| list.list());
    for pool in bounded(pools.unwrap_or_default()) {
        // A pool may go and leave its id here: it is a filter, and holds nothing.
        let _ = id(&pool);
    }
}

fn check_mechanisms(mechanisms: &Cursor<'_>, state: &State) {
    let Some(object) = mechanisms.object(&MECHANISMS) else {
        return;
    };
    let entries = |key: &'static str| {
        let items = object.get(key).map(|list| list.list());
        let items = bounded(items.unwrap_or_default()).into_iter();
        items
            .filter_map(|item| item.object(&MECHANISM)?.need("id"))
            .collect::<Vec<_>>()
    };
    let (webhooks, mail) = (entries("webhooks"), entries("email"));
    for webhook in &webhooks {
        let Some(id) = id(webhook) else { continue };
        if state.find(Kind::WebhookDestination, id).is_none() {
            webhook.fault(format_args!("webhook destination {id} does not exist"));
        }
    }
    for address in &mail {
        if address.text().is_some() {
            address.note("is kept, and no mail is sent: name a webhook");
        }
    }
    let asked = ["webhooks", "email", "pagerduty"].map(|key| mechanisms.value()[key].as_array());
    if asked.into_iter().flatten().all(Vec::is_empty) {
        mechanisms.fault("names nobody to tell");
    }
}

fn bounded(items: Vec<Cursor<'_>>) -> Vec<Cursor<'_>> {
    if let Some(first) = items.get(ENTRIES_MAX) {
        first.fault(format_args!(
            "is one more than the {ENTRIES_MAX} that are possible"
        ));
    }
    items.into_iter().take(ENTRIES_MAX).collect()
}

fn id(item: &Cursor<'_>) -> Option<Id> {
    let text = item.text()?;
    let id = text.parse().ok();
    if id.is_none() {
        item.fault(format_args!(
            "{text:?} is not 32 lowercase hexadecimal digits"
        ));
    }
    id
}
