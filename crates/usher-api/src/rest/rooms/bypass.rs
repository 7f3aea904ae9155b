//! The rules of a waiting room: who passes it without a seat.
//!
//! They are kept beside the room and not in it: replacing a room leaves them as they are, and the
//! API may give rules to a room that a file declares without any. Every call answers with the whole
//! list, in the order in which it is asked.

use std::sync::Arc;

use http::Method;
use serde_json::{Map, Value, json};
use usher_core::catalog::{self, Bypass, Catalog, Field, RoomField, Zone};
use usher_core::id::Id;
use usher_store::{Change, Kind, Op, Scope, Stamp, State};

use super::{ITEM, fault};
use crate::access::Product;
use crate::envelope::{ApiError, envelope, messages};
use crate::rest::desired::{Declared, Parsed, Shown, Whole};
use crate::rest::document::{canonical, patched};
use crate::rest::resource::found;
use crate::rest::{Call, Needs, Reply, Route, fields, route, write};
use crate::wire::reader::{Cursor, Mode, Report, Shape, built};
use crate::wire::rooms::{ACTION, declared_rule, read_rule};

/// What is kept of the rules of one room.
static KEPT: Shape = Shape {
    name: "rules of a waiting room",
    keys: &[built("rules")],
};

pub(super) fn routes() -> Vec<Route> {
    let read = Needs::Read(Product::WaitingRooms);
    let edit = Needs::Edit(Product::WaitingRooms);
    let path = format!("{ITEM}/rules");
    let item = format!("{path}/{{rule_id}}");
    vec![
        route(
            Method::GET,
            &path,
            "list_waiting_room_rules",
            "Lists the rules of a waiting room in their order",
            read,
            |call| Box::pin(async move { list(&call) }),
        ),
        route(
            Method::POST,
            &path,
            "create_waiting_room_rule",
            "Adds a rule at the end; the answer is the whole list",
            edit,
            |call| {
                Box::pin(async move {
                    let body = call.object()?;
                    change(call, Act::Add(body.into())).await
                })
            },
        )
        .with_body(fields::ROOM_RULE),
        route(
            Method::PUT,
            &path,
            "replace_waiting_room_rules",
            "Replaces the whole list; the body is a list of rules",
            edit,
            |call| {
                Box::pin(async move {
                    let body = call.json()?;
                    change(call, Act::Replace(body)).await
                })
            },
        ),
        route(
            Method::PATCH,
            &item,
            "edit_waiting_room_rule",
            "Changes or moves a rule; the answer is the whole list",
            edit,
            |call| {
                Box::pin(async move {
                    let (rule, body) = (call.id(1)?, call.object()?);
                    change(call, Act::Edit(rule, body)).await
                })
            },
        )
        .with_body(fields::ROOM_RULE),
        route(
            Method::DELETE,
            &item,
            "delete_waiting_room_rule",
            "Deletes a rule; the answer is the whole list",
            edit,
            |call| {
                Box::pin(async move {
                    let rule = call.id(1)?;
                    change(call, Act::Delete(rule)).await
                })
            },
        ),
    ]
}

/// What a call does to the list.
enum Act {
    Add(Value),
    Replace(Value),
    Edit(Id, Map<String, Value>),
    Delete(Id),
}

/// The rules in a kept document, in the words of the core.
pub(in crate::rest) fn bypass(cursor: &Cursor<'_>) -> Vec<Bypass> {
    let rules = cursor.object(&KEPT).and_then(|object| object.get("rules"));
    let rules = rules.iter().flat_map(Cursor::list);
    let ided = rules.filter_map(|rule| {
        let id = rule.value().get("id")?.as_str()?.parse().ok()?;
        Some(read_rule(&rule, id))
    });
    ided.collect()
}

/// The rules that a file declares with a room, as they would be kept; nothing, if it leaves them to
/// the API.
pub(in crate::rest) fn declared_rules(kind: Kind, key: &str, room: &Value) -> Option<Value> {
    let rules = room.get("rules").filter(|_| kind == Kind::Room)?;
    let rules = rules.as_array()?.iter().zip(0_u32..).map(|(rule, place)| {
        let rule = rule.as_object().cloned().unwrap_or_default();
        let mut rule = sent(&rule);
        rule.entry("action").or_insert_with(|| ACTION.into());
        stamped(rule, declared_rule(key, place), 1, None)
    });
    Some(json!({"rules": rules.collect::<Vec<_>>()}))
}

/// The fields of a rule that are a client's.
fn sent(rule: &Map<String, Value>) -> Map<String, Value> {
    let mut rule = canonical(rule, fields::ROOM_RULE);
    rule.remove("position");
    rule
}

/// A rule as it is kept and shown.
fn stamped(rule: Map<String, Value>, id: Id, version: u64, at: Option<Stamp>) -> Value {
    let mut whole = Map::new();
    whole.insert("id".to_owned(), id.to_string().into());
    whole.insert("version".to_owned(), version.to_string().into());
    whole.extend(rule);
    if let Some(at) = at {
        whole.insert("last_updated".to_owned(), at.to_string().into());
    }
    whole.into()
}

fn list(call: &Call) -> Result<Reply, ApiError> {
    let room = found(call, Kind::Room)?;
    let rules = call.whole().find(Kind::RoomRules, room.id);
    Ok(Reply::result(&rules_of(rules.as_deref()).into()))
}

fn rules_of(shown: Option<&Shown>) -> Vec<Value> {
    let rules = shown.and_then(|shown| shown.value().remove("rules"));
    match rules {
        Some(Value::Array(rules)) => rules,
        _ => Vec::new(),
    }
}

/// A change of the list of one room, complete.
struct Wish {
    room: Id,
    scope: Scope,
    zone: Option<Zone>,
    declared: Arc<Declared>,
    at: Stamp,
    /// For rules that are new.
    ids: Vec<Id>,
}

async fn change(call: Call, act: Act) -> Result<Reply, ApiError> {
    let new = match &act {
        Act::Add(_) => 1,
        Act::Replace(rules) => rules.as_array().map_or(0, Vec::len),
        Act::Edit(..) | Act::Delete(_) => 0,
    };
    // More than may be are refused; none of those needs an id.
    let new = new.min(catalog::BYPASS_MAX);
    let wish = Wish {
        room: call.id(0)?,
        scope: call.scope,
        zone: call.zone.clone(),
        declared: Arc::clone(&call.desired.declared),
        at: Stamp::now(),
        ids: (0..new).map(|_| write::draw(&call)).collect(),
    };
    write::keep(&call, wish.at, move |state| wish.decide(state, act)).await
}

impl Wish {
    fn decide(self, state: &State, act: Act) -> Result<Change, ApiError> {
        let whole = Whole {
            declared: &self.declared,
            state,
        };
        let room = whole.find(Kind::Room, self.room);
        let room = room.filter(|room| room.scope == self.scope);
        let room = room.ok_or(ApiError::NotFound)?;
        if self.declared.find(Kind::RoomRules, room.id).is_some() {
            return Err(ApiError::Declared(self.declared.file().to_owned()));
        }
        let kept = state
            .find(Kind::RoomRules, room.id)
            .map(|kept| Shown::of(kept));
        let before = rules_of(kept.as_ref());
        let report = Report::new(Mode::Api);
        let (rules, named) = self.act(before, act, &report)?;
        let (mut faults, notes) = report.into_parts();
        if faults.is_empty() {
            self.check(whole, &rules, &named, &mut faults);
        }
        if !faults.is_empty() {
            return Err(ApiError::of_faults(faults));
        }
        let result = Value::from(rules);
        let put = Shown {
            kind: Kind::RoomRules,
            id: room.id,
            scope: room.scope,
            name: String::new(),
            document: json!({"rules": result}).to_string(),
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
        Ok(Change {
            ops: vec![op],
            answer: envelope(&result.to_string(), &messages(&notes), None),
        })
    }

    /// The list as it shall be, and how the body names the rules of it: by place, or (all of the
    /// body is one rule) that one.
    fn act(
        &self,
        mut rules: Vec<Value>,
        act: Act,
        report: &Report,
    ) -> Result<(Vec<Value>, Named), ApiError> {
        let place = |rules: &[Value], rule: Id| {
            let id = rule.to_string();
            let found = rules.iter().position(|rule| rule["id"] == id.as_str());
            found.ok_or(ApiError::NotFound)
        };
        let mut named = Named::Nothing;
        match act {
            Act::Add(body) => {
                let cursor = Cursor::root(report, &body);
                let id = self.ids.first().copied().ok_or(ApiError::NotFound)?;
                let _read = read_rule(&cursor, id);
                let rule = body.as_object().map(sent).unwrap_or_default();
                if let Some(position) = body.get("position").filter(|it| !it.is_null()) {
                    let at = moved(position, &rules, report);
                    rules.insert(at.unwrap_or(rules.len()), self.first(rule, id));
                    named = Named::One(at.unwrap_or(0));
                } else {
                    named = Named::One(rules.len());
                    rules.push(self.first(rule, id));
                }
            }
            Act::Replace(body) => {
                named = Named::All;
                let cursor = Cursor::root(report, &body).as_resource("the body");
                let items = cursor.list();
                if items.len() > catalog::BYPASS_MAX {
                    let message = format!(
                        "number of rules {} is outside 0..{}",
                        items.len(),
                        catalog::BYPASS_MAX
                    );
                    report.fault(fault("", message));
                }
                let new = items.iter().zip(&self.ids).map(|(item, &id)| {
                    let _read = read_rule(item, id);
                    let rule = item.value().as_object().map(sent).unwrap_or_default();
                    let own = item.value().get("id").and_then(Value::as_str);
                    let known = own.and_then(|own| rules.iter().find(|rule| rule["id"] == own));
                    known.map_or_else(
                        || self.first(rule.clone(), id),
                        |known| self.next(known, &rule),
                    )
                });
                let new: Vec<Value> = new.collect();
                let twice = new
                    .iter()
                    .enumerate()
                    .find(|(at, rule)| new[..*at].iter().any(|other| other["id"] == rule["id"]));
                if let Some((at, _)) = twice {
                    let message = "id stands twice in the list".to_owned();
                    report.fault(fault(&format!("/{at}/id"), message));
                }
                rules = new;
            }
            Act::Edit(rule, mut body) => {
                let at = place(&rules, rule)?;
                let position = body.remove("position").filter(|it| !it.is_null());
                let before = rules.remove(at);
                let kept = before.as_object().cloned().unwrap_or_default();
                let candidate = Value::from(patched(&kept, &body));
                let _read = read_rule(&Cursor::root(report, &candidate), rule);
                let after = candidate.as_object().map(sent).unwrap_or_default();
                let at = match position {
                    Some(position) => moved(&position, &rules, report).unwrap_or(at),
                    None => at,
                };
                rules.insert(at, self.next(&before, &after));
                named = Named::One(at);
            }
            Act::Delete(rule) => {
                rules.remove(place(&rules, rule)?);
            }
        }
        Ok((rules, named))
    }

    fn first(&self, rule: Map<String, Value>, id: Id) -> Value {
        stamped(rule, id, 1, Some(self.at))
    }

    /// What a rule becomes. One that stays what it is keeps its version.
    fn next(&self, before: &Value, after: &Map<String, Value>) -> Value {
        let kept = before.as_object().map(sent).unwrap_or_default();
        let id = before["id"].as_str().and_then(|id| id.parse().ok());
        let version = before["version"].as_str().and_then(|it| it.parse().ok());
        match (kept == *after, id, version) {
            (false, Some(id), Some(version)) => {
                let next = u64::saturating_add(version, 1);
                stamped(after.clone(), id, next, Some(self.at))
            }
            _ => before.clone(),
        }
    }

    /// What only the core can judge.
    fn check(
        &self,
        whole: Whole<'_>,
        rules: &[Value],
        named: &Named,
        faults: &mut Vec<crate::wire::reader::Fault>,
    ) {
        let Some(Parsed::Room(mut room)) = whole.own_or_kept(Kind::Room, self.room) else {
            return;
        };
        let quiet = Report::new(Mode::Api);
        let kept = json!({"rules": rules});
        room.bypass = bypass(&Cursor::root(&quiet, &kept));
        let mut draft = self.declared.frame();
        draft.zones.extend(self.zone.clone());
        draft.rooms.push(room);
        let found = Catalog::check(draft).err().unwrap_or_default();
        faults.extend(found.iter().filter_map(|found| {
            let (place, key) = match found.field {
                Field::Room(RoomField::Rules) => return Some(fault("", found.error.to_string())),
                Field::Room(RoomField::Expression(place)) => (place, "expression"),
                Field::Room(RoomField::RuleDescription(place)) => (place, "description"),
                _ => return None,
            };
            let pointer = match named {
                Named::All => format!("/{place}/{key}"),
                Named::One(one) if *one == place => format!("/{key}"),
                Named::One(_) | Named::Nothing => return None,
            };
            Some(fault(&pointer, found.error.to_string()))
        }));
    }
}

/// Which rules of a list a body speaks of.
enum Named {
    All,
    One(usize),
    Nothing,
}

/// Where a rule goes among `others`, which it is not one of.
fn moved(position: &Value, others: &[Value], report: &Report) -> Option<usize> {
    let wrong = |key: &str, message: String| {
        report.fault(fault(&format!("/position{key}"), message));
        None
    };
    let keys = ["index", "before", "after"];
    let given: Vec<&str> = keys
        .into_iter()
        .filter(|key| position.get(key).is_some_and(|value| !value.is_null()))
        .collect();
    let [key] = given.as_slice() else {
        let message = "position must be one of index, before, after".to_owned();
        return wrong("", message);
    };
    let value = &position[*key];
    if *key == "index" {
        let last = others.len() + 1;
        let index = value.as_f64().filter(|it| it.fract() == 0.0);
        let index = index.filter(|it| (1.0..=last as f64).contains(it));
        return match index {
            Some(index) => Some(index as usize - 1),
            None => wrong(
                "/index",
                format!("position.index {value} is not a whole number in 1..{last}"),
            ),
        };
    }
    let Some(id) = value.as_str() else {
        return wrong(&format!("/{key}"), format!("position.{key} must be text"));
    };
    let found = others.iter().position(|rule| rule["id"] == id);
    match (*key, id, found) {
        ("before", "", _) => Some(0),
        ("after", "", _) => Some(others.len()),
        ("before", _, Some(at)) => Some(at),
        (_, _, Some(at)) => Some(at + 1),
        (_, _, None) => wrong(
            &format!("/{key}"),
            format!("position.{key} {id:?} is not another rule of this room"),
        ),
    }
}
