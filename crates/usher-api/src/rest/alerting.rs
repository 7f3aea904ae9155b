//! Who is told what happens: the calls that notification policies and webhook destinations share.
//!
//! As the hosted service has them: a create and a change are answered with the id alone.

use http::Method;
use serde_json::{Map, Value, json};
use usher_core::id::Id;
use usher_store::{Change, Kind, Op, Private, Put, Resource, Stamp, State};

use super::document::{Field, canonical, patched};
use super::list::Window;
use super::write::{self, Verb};
use super::{Call, Needs, Reply, Route, route};
use crate::access::Product;
use crate::envelope::{ApiError, envelope, messages};
use crate::wire::reader::{Cursor, Fault, Mode, Report};

/// One of the two kinds.
pub(crate) trait Part: 'static {
    const KIND: Kind;
    const PATH: &'static str;
    /// What its routes are called: `webhook_destination`, `webhook_destinations`.
    const NOUNS: (&'static str, &'static str);
    /// The fields that are kept.
    const FIELDS: &'static [Field];
    /// The fields of a body.
    const BODY: &'static [Field];

    /// Tells what is wrong or odd about a whole document.
    fn check(document: &Cursor<'_>, state: &State, private_targets: bool);

    /// What is kept and never shown.
    fn private(_body: &Map<String, Value>, _kept: Option<&Resource>) -> Option<Private> {
        None
    }

    /// What stands in the way of its end.
    fn users(_state: &State, _id: Id) -> Vec<String> {
        Vec::new()
    }

    fn shown(call: &Call, kept: &Resource) -> Value;
}

pub(crate) fn routes<P: Part>(create: super::Run, replace: super::Run) -> Vec<Route> {
    let (one, many) = P::NOUNS;
    let read = Needs::Read(Product::Notifications);
    let edit = Needs::Edit(Product::Notifications);
    let item = format!("{}/{{{one}_id}}", P::PATH);
    vec![
        route(
            Method::GET,
            P::PATH,
            &format!("list_{many}"),
            "Lists all, oldest first",
            read,
            |call| Box::pin(async move { list::<P>(&call) }),
        ),
        route(
            Method::POST,
            P::PATH,
            &format!("create_{one}"),
            "Creates one",
            edit,
            create,
        )
        .with_body(P::BODY),
        route(
            Method::GET,
            &item,
            &format!("get_{one}"),
            "Shows one",
            read,
            |call| Box::pin(async move { get::<P>(&call) }),
        ),
        route(
            Method::PUT,
            &item,
            &format!("replace_{one}"),
            "Changes the fields that are sent",
            edit,
            replace,
        )
        .with_body(P::BODY),
        route(
            Method::DELETE,
            &item,
            &format!("delete_{one}"),
            "Deletes one that nothing refers to",
            edit,
            |call| Box::pin(delete::<P>(call)),
        ),
    ]
}

fn list<P: Part>(call: &Call) -> Result<Reply, ApiError> {
    let all = call.state.within(P::KIND, call.scope);
    let all = all.map(|kept| P::shown(call, kept)).collect();
    let (part, info) = Window::cut(Window::asked(call)?, all);
    Ok(Reply::Result(
        Value::from(part).to_string(),
        Vec::new(),
        Some(info),
    ))
}

fn get<P: Part>(call: &Call) -> Result<Reply, ApiError> {
    let kept = found::<P>(&call.state, call.id(0)?)?;
    Ok(Reply::result(&P::shown(call, kept)))
}

fn found<P: Part>(state: &State, id: Id) -> Result<&Resource, ApiError> {
    let kept = state.find(P::KIND, id);
    kept.map(|kept| &**kept).ok_or(ApiError::NotFound)
}

/// The fields of what is kept.
pub(crate) fn fields(kept: &Resource) -> Map<String, Value> {
    match serde_json::from_str(&kept.document) {
        Ok(Value::Object(map)) => map,
        // What this process has accepted is an object.
        Ok(_) | Err(_) => Map::new(),
    }
}

/// A change, and what it is checked with.
#[derive(Clone)]
pub(crate) struct Wish {
    verb: Verb,
    id: Id,
    body: Map<String, Value>,
    private_targets: bool,
}

/// A change that may be made.
pub(crate) struct Checked<'s> {
    /// All fields, those among them that are never shown.
    pub(crate) document: Map<String, Value>,
    /// What is kept now.
    pub(crate) kept: Option<&'s Resource>,
    notes: Vec<Fault>,
}

impl Wish {
    /// What the call asks for. A PUT is [`Verb::Edit`] here: the official clients send only what
    /// shall change.
    pub(crate) fn of(call: &Call, verb: Verb) -> Result<Wish, ApiError> {
        Ok(Wish {
            verb,
            id: match verb {
                Verb::Create => write::draw(call),
                Verb::Replace | Verb::Edit | Verb::Delete => call.id(0)?,
            },
            body: call.object()?,
            private_targets: call.app.control.posts_privately(),
        })
    }

    pub(crate) fn id(&self) -> Id {
        self.id
    }

    /// What it comes to.
    pub(crate) fn check<'s, P: Part>(&self, state: &'s State) -> Result<Checked<'s>, ApiError> {
        let kept = match self.verb {
            Verb::Create => None,
            _ => Some(found::<P>(state, self.id)?),
        };
        let whole = kept.map_or_else(
            || self.body.clone(),
            |kept| patched(&fields(kept), &self.body),
        );
        let whole = Value::from(whole);
        let report = Report::new(Mode::Api);
        P::check(&Cursor::root(&report, &whole), state, self.private_targets);
        let (faults, notes) = report.into_parts();
        match whole {
            Value::Object(document) if faults.is_empty() => Ok(Checked {
                document,
                kept,
                notes,
            }),
            _ => Err(ApiError::of_faults(faults)),
        }
    }
}

/// Keeps what was wished; `told` is what was seen while trying it.
pub(crate) async fn keep<P: Part>(
    call: Call,
    wish: Wish,
    told: Vec<Fault>,
) -> Result<Reply, ApiError> {
    let (at, scope) = (Stamp::now(), call.scope);
    write::keep(&call, at, move |state| {
        let Checked {
            document: whole,
            kept,
            mut notes,
        } = wish.check::<P>(state)?;
        notes.extend(told);
        let put = Put {
            kind: P::KIND,
            id: wish.id,
            scope,
            name: whole
                .get("name")
                .and_then(Value::as_str)
                .unwrap_or_default()
                .to_owned(),
            document: Value::from(canonical(&whole, P::FIELDS)).to_string(),
            private: P::private(&wish.body, kept),
        };
        let op = match kept {
            None => Op::Create(put),
            Some(_) => Op::Replace {
                put,
                expected: None,
            },
        };
        let result = json!({"id": wish.id.to_string()}).to_string();
        Ok(Change {
            ops: vec![op],
            answer: envelope(&result, &messages(&notes), None),
        })
    })
    .await
}

async fn delete<P: Part>(call: Call) -> Result<Reply, ApiError> {
    let id = call.id(0)?;
    write::keep(&call, Stamp::now(), move |state| {
        found::<P>(state, id)?;
        let users = P::users(state, id);
        if !users.is_empty() {
            return Err(ApiError::Referenced(users));
        }
        Ok(Change {
            ops: vec![Op::Delete {
                kind: P::KIND,
                id,
                expected: None,
            }],
            answer: envelope(&json!({"id": id.to_string()}).to_string(), &[], None),
        })
    })
    .await
}

/// Text of a name.
pub(crate) fn check_name(name: Option<Cursor<'_>>) {
    const LEN_MAX: usize = 255;
    let Some(name) = name else { return };
    match name.text().map(|text| text.chars().count()) {
        Some(0) => name.fault("is empty"),
        Some(count) if count > LEN_MAX => {
            name.fault(format_args!("has {count} characters, more than {LEN_MAX}"));
        }
        Some(_) | None => {}
    }
}
