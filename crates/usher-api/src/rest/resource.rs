//! What one kind of resource has of its own, and the calls that all kinds share.

use http::Method;
use serde_json::{Map, Value};
use usher_store::{Kind, Op, Scope, Stamp};

use super::desired::{Shown, Whole, fields_of};
use super::list::{Window, joined};
use super::write::{self, Verb};
use super::{Call, Needs, Reply, Route, route};
use crate::access::Product;
use crate::envelope::ApiError;
use crate::wire::reader::Fault;

/// A kind of resource that the API creates, changes and deletes.
pub(crate) trait Resource: 'static {
    const KIND: Kind;
    /// What its routes are called: `monitor`, `monitors`.
    const NOUNS: (&'static str, &'static str);
    /// What a token must be allowed to read or edit.
    const PRODUCT: Product = Product::LoadBalancing;
    /// A DELETE is answered with the whole of it and not with its id alone.
    const SHOWN_WHEN_DELETED: bool = false;

    /// What is wrong with a body beyond what its reader finds.
    fn faults(_body: &Map<String, Value>, _verb: Verb) -> Vec<Fault> {
        Vec::new()
    }

    /// Puts into an accepted document what no client sets.
    fn finish(
        _document: &mut Map<String, Value>,
        _before: Option<&Map<String, Value>>,
        _at: Stamp,
    ) {
    }

    /// What is kept beside it, and goes with it.
    fn beside(_id: usher_core::id::Id, _state: &usher_store::State) -> Vec<Op> {
        Vec::new()
    }

    /// What to say about a change that was accepted.
    fn notes(_before: Option<&Map<String, Value>>, _document: &Map<String, Value>) -> Vec<Fault> {
        Vec::new()
    }

    /// Whether a list that asks for some only asks for this one.
    fn is_asked_for(_call: &Call, _shown: &Shown) -> bool {
        true
    }
}

/// The six calls of a resource: its list at `path`, and each at `path/{id}`.
pub(crate) fn routes<R: Resource>(path: &str, prefix: &str) -> Vec<Route> {
    let (one, many) = R::NOUNS;
    let name = |verb: &str, noun: &str| format!("{prefix}{verb}_{noun}");
    let (read, edit) = (Needs::Read(R::PRODUCT), Needs::Edit(R::PRODUCT));
    let fields = fields_of(R::KIND);
    let item = format!("{path}/{{{one}_id}}");
    let item = item.as_str();
    vec![
        route(
            Method::GET,
            path,
            &name("list", many),
            "Lists all, oldest first",
            read,
            |call| Box::pin(async move { list::<R>(&call) }),
        ),
        route(
            Method::POST,
            path,
            &name("create", one),
            "Creates one",
            edit,
            |call| Box::pin(write::write::<R>(call, Verb::Create)),
        )
        .with_body(fields),
        route(
            Method::GET,
            item,
            &name("get", one),
            "Shows one",
            read,
            |call| Box::pin(async move { get::<R>(&call) }),
        ),
        route(
            Method::PUT,
            item,
            &name("replace", one),
            "Replaces one: what is not sent returns to its default",
            edit,
            |call| Box::pin(write::write::<R>(call, Verb::Replace)),
        )
        .with_body(fields),
        route(
            Method::PATCH,
            item,
            &name("edit", one),
            "Changes the fields that are sent",
            edit,
            |call| Box::pin(write::write::<R>(call, Verb::Edit)),
        )
        .with_body(fields),
        route(
            Method::DELETE,
            item,
            &name("delete", one),
            "Deletes one that nothing refers to",
            edit,
            |call| Box::pin(write::write::<R>(call, Verb::Delete)),
        ),
    ]
}

fn list<R: Resource>(call: &Call) -> Result<Reply, ApiError> {
    let window = Window::asked(call)?;
    let whole = call.whole();
    let all = whole.all(R::KIND);
    let all = all.filter(|shown| shown.scope == call.scope && R::is_asked_for(call, shown));
    let (part, info) = Window::cut(window, all.collect());
    let items: Vec<String> = part.iter().map(|shown| text(shown, whole)).collect();
    Ok(Reply::Result(joined(&items), Vec::new(), Some(info)))
}

fn get<R: Resource>(call: &Call) -> Result<Reply, ApiError> {
    let shown = found(call, R::KIND)?;
    Ok(Reply::Result(text(&shown, call.whole()), Vec::new(), None))
}

/// The resource whose id the path has.
pub(crate) fn found(call: &Call, kind: Kind) -> Result<std::sync::Arc<Shown>, ApiError> {
    let found = call.whole().find(kind, call.id(0)?);
    found
        .filter(|shown| shown.scope == call.scope)
        .ok_or(ApiError::NotFound)
}

/// A resource as every answer shows it, byte for byte the same until it is changed.
pub(crate) fn text(shown: &Shown, whole: Whole<'_>) -> String {
    let mut text = format!(r#"{{"id":"{}""#, shown.id);
    if let Some((created, modified)) = shown.times {
        text += &format!(r#","created_on":"{created}","modified_on":"{modified}""#);
    }
    if let (Kind::Balancer, Scope::Zone(zone)) = (shown.kind, shown.scope)
        && let Some(zone) = whole.zone(zone)
    {
        text += &format!(r#","zone_name":{}"#, Value::from(zone.name));
    }
    if shown.kind == Kind::Room {
        // There are no events yet.
        text += r#","next_event_start_time":null,"next_event_prequeue_start_time":null"#;
    }
    let fields = shown.document.trim_start_matches('{');
    if fields != "}" {
        text.push(',');
    }
    text + fields
}
