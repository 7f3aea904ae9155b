//! Changes: checked on the newest state there is, kept in one transaction, told in one envelope.
//!
//! The check runs where the store puts changes in order, so what it saw is what the change meets.
//! It reads what is touched and what that names, never all there is. With `dry_run=true` the same
//! check runs on the state of the moment and nothing is handed to the store.

use std::sync::Arc;

use http::Method;
use serde_json::{Map, Value, json};
use usher_core::catalog::Zone;
use usher_core::id::Id;
use usher_store::{
    Actor, Change, ChangeError, Intent, Kind, Op, Put, Repeat, RepeatKey, Scope, Stamp, State,
    Store,
};

use super::desired::{Declared, Parsed, Shown, Whole, fields_of};
use super::moves::moves;
use super::resource::{Resource, text};
use super::{Call, Caller, Reply, document};
use crate::envelope::{ApiError, envelope, messages};
use crate::wire::reader::{Fault, Mode, Report};

/// What a call does to a resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verb {
    Create,
    Replace,
    Edit,
    Delete,
}

/// One change that a client asks for, complete: nothing has to be looked up but the state.
struct Wish {
    verb: Verb,
    id: Id,
    scope: Scope,
    zone: Option<Zone>,
    body: Map<String, Value>,
    at: Stamp,
    declared: Arc<Declared>,
}

/// What a wish comes to.
struct Decided {
    ops: Vec<Op>,
    answer: String,
    /// What the resource becomes. `None`: it stays, or goes.
    parsed: Option<Parsed>,
}

/// Carries out a create, replace, edit or delete.
pub(crate) async fn write<R: Resource>(call: Call, verb: Verb) -> Result<Reply, ApiError> {
    let id = match verb {
        Verb::Create => draw(&call),
        Verb::Replace | Verb::Edit | Verb::Delete => call.id(0)?,
    };
    let body = match verb {
        Verb::Delete => Map::new(),
        Verb::Create | Verb::Replace | Verb::Edit => call.object()?,
    };
    let wish = Wish {
        verb,
        id,
        scope: call.scope,
        zone: call.zone.clone(),
        body,
        at: Stamp::now(),
        declared: Arc::clone(&call.desired.declared),
    };
    if call.query_flag("dry_run")? == Some(true) {
        let decided = wish.decide::<R>(&call.state)?;
        let would = moves(&call, (R::KIND, wish.id), decided.parsed);
        // One more key beside the four: the result stays what it would be.
        let envelope = decided.answer.strip_suffix('}').unwrap_or_default();
        return Ok(Reply::Envelope(format!(
            r#"{envelope},"dry_run":{would}}}"#
        )));
    }
    keep(&call, wish.at, move |state| {
        let Decided { ops, answer, .. } = wish.decide::<R>(state)?;
        Ok(Change { ops, answer })
    })
    .await
}

/// A new id.
pub(crate) fn draw(call: &Call) -> Id {
    let mut bytes = [0; Id::LEN];
    let (high, low) = bytes.split_at_mut(Id::LEN / 2);
    high.copy_from_slice(&call.app.control.draw().to_be_bytes());
    low.copy_from_slice(&call.app.control.draw().to_be_bytes());
    Id::from_bytes(bytes)
}

/// Hands a check to the store, or with `dry_run` runs it and lets go of what it says.
pub(crate) async fn keep(
    call: &Call,
    at: Stamp,
    check: impl FnOnce(&State) -> Result<Change, ApiError> + Send + 'static,
) -> Result<Reply, ApiError> {
    if call.query_flag("dry_run")? == Some(true) {
        return check(&call.state).map(|change| Reply::Envelope(change.answer));
    }
    let store = store(call)?;
    let repeat = (call.method == Method::POST).then(|| Repeat {
        key: RepeatKey::new(&fingerprint(&call.caller), &call.path, &call.body),
        again: call.again,
    });
    keep_in(&store, intent(call, at, repeat), check).await
}

/// Where changes are kept.
pub(crate) fn store(call: &Call) -> Result<Arc<dyn Store>, ApiError> {
    call.desired.store.clone().ok_or_else(|| {
        let file = call.desired.declared.file();
        ApiError::Unbuilt(format!(
            "no store is configured: {file} says where changes are kept with store: {{url: \"sqlite:var/usher.db\"}}, from the next start on"
        ))
    })
}

/// Who asks for what, for the audit log.
pub(crate) fn intent(call: &Call, at: Stamp, repeat: Option<Repeat>) -> Intent {
    Intent {
        at,
        actor: Actor {
            token: call.caller.token,
            name: call.caller.name.clone(),
        },
        what: format!("{} {}", call.method, call.path),
        repeat,
    }
}

pub(crate) async fn keep_in(
    store: &Arc<dyn Store>,
    intent: Intent,
    check: impl FnOnce(&State) -> Result<Change, ApiError> + Send + 'static,
) -> Result<Reply, ApiError> {
    match store.change(intent, check).await {
        Ok(written) => Ok(Reply::Kept(written.answer, written.revision)),
        Err(ChangeError::Refused(refusal)) => Err(refusal),
        Err(ChangeError::Conflict(conflict)) => Err(conflict.into()),
        Err(ChangeError::Store(error)) => Err(ApiError::Store(error)),
    }
}

/// Tells callers apart without being of any use to who reads it.
fn fingerprint(caller: &Caller) -> String {
    let digits = caller.digest.as_bytes().iter();
    digits.map(|byte| format!("{byte:02x}")).collect()
}

impl Wish {
    fn decide<R: Resource>(&self, state: &State) -> Result<Decided, ApiError> {
        let whole = Whole {
            declared: &self.declared,
            state,
        };
        let kept = match self.verb {
            Verb::Create => None,
            Verb::Replace | Verb::Edit | Verb::Delete => Some(self.kept(R::KIND, whole)?),
        };
        if let (Verb::Delete, Some(kept)) = (self.verb, &kept) {
            return self.delete::<R>(kept, whole);
        }
        let before = kept.as_ref().map(Shown::value);
        if let (Verb::Edit, true, Some(kept)) = (self.verb, self.body.is_empty(), &kept) {
            return Ok(Decided {
                ops: Vec::new(),
                answer: envelope(&text(kept, whole), &[], None),
                parsed: whole.own_or_kept(R::KIND, self.id),
            });
        }
        let candidate = match &before {
            Some(before) if self.verb == Verb::Edit => document::patched(before, &self.body),
            _ => self.body.clone(),
        };
        let candidate = Value::from(candidate);
        let report = Report::new(Mode::Api);
        R::faults(&self.body, self.verb)
            .into_iter()
            .for_each(|fault| report.fault(fault));
        let parsed = whole.check(&report, (R::KIND, self.id), &candidate, self.zone.as_ref());
        let (mut faults, mut notes) = report.into_parts();
        for (pointer, wanted) in document::misfits(&self.body, fields_of(R::KIND)) {
            // Where the reader has said something, that is enough.
            if !faults
                .iter()
                .any(|fault| fault.pointer.starts_with(&pointer))
            {
                let name = pointer.rsplit('/').next().unwrap_or_default();
                faults.push(Fault {
                    message: format!("{name} must be {wanted}"),
                    pointer,
                    at_key: false,
                    inside: 0,
                    place: String::new(),
                });
            }
        }
        let (Some(parsed), Value::Object(candidate), true) = (parsed, candidate, faults.is_empty())
        else {
            return Err(ApiError::of_faults(faults));
        };
        let mut document = document::canonical(&candidate, fields_of(R::KIND));
        R::finish(&mut document, before.as_ref(), self.at);
        notes.extend(R::notes(before.as_ref(), &document));
        let created = kept.as_ref().and_then(|kept| kept.times);
        let shown = Shown {
            kind: R::KIND,
            id: self.id,
            scope: self.scope,
            name: parsed.name().to_owned(),
            document: Value::from(document).to_string(),
            times: Some((created.map_or(self.at, |(created, _)| created), self.at)),
        };
        let answer = envelope(&text(&shown, whole), &messages(&notes), None);
        let put = shown.put();
        let op = match kept {
            None => Op::Create(put),
            Some(_) => Op::Replace {
                put,
                expected: None,
            },
        };
        Ok(Decided {
            ops: vec![op],
            answer,
            parsed: Some(parsed),
        })
    }

    /// The resource that is meant, which must be the store's.
    fn kept(&self, kind: Kind, whole: Whole<'_>) -> Result<Shown, ApiError> {
        let of_scope = |shown: &Shown| shown.scope == self.scope;
        if let Some(declared) = self.declared.find(kind, self.id)
            && of_scope(declared)
        {
            return Err(ApiError::Declared(self.declared.file().to_owned()));
        }
        let kept = whole.state.find(kind, self.id).map(|kept| Shown::of(kept));
        kept.filter(of_scope).ok_or(ApiError::NotFound)
    }

    fn delete<R: Resource>(&self, kept: &Shown, whole: Whole<'_>) -> Result<Decided, ApiError> {
        let users = [Kind::MonitorGroup, Kind::Pool, Kind::Balancer];
        let users = users.map(|kind| whole.referrers(kind, (R::KIND, self.id)));
        let users: Vec<String> = users.iter().flatten().map(|user| label(user)).collect();
        if !users.is_empty() {
            return Err(ApiError::Referenced(users));
        }
        let result = match R::SHOWN_WHEN_DELETED {
            true => text(kept, whole),
            false => json!({"id": self.id.to_string()}).to_string(),
        };
        let mut ops = R::beside(self.id, whole.state);
        ops.push(Op::Delete {
            kind: R::KIND,
            id: self.id,
            expected: None,
        });
        Ok(Decided {
            ops,
            answer: envelope(&result, &[], None),
            parsed: None,
        })
    }
}

/// How a message calls a resource that stands in the way.
fn label(shown: &Shown) -> String {
    match shown.name.as_str() {
        "" => format!("{} {}", shown.kind, shown.id),
        name => format!("{} {name}", shown.kind),
    }
}

impl Shown {
    /// As it is handed to the store.
    pub(crate) fn put(&self) -> Put {
        Put {
            kind: self.kind,
            id: self.id,
            scope: self.scope,
            name: self.name.clone(),
            document: self.document.clone(),
            private: None,
        }
    }
}
