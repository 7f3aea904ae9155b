//! Waiting rooms of a zone: the rooms, what they do right now, and what holds for all of a zone.

mod bypass;
mod preview;

use http::Method;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use usher_core::catalog::{Room, Route as RoomRoute, Zone};
use usher_core::id::Id;
use usher_store::{Kind, Op, Scope, Stamp, State};

use super::desired::{Parsed, Shown, Whole};
use super::list::{PER_PAGE, Window, joined};
use super::resource::{self, Resource, found, text};
use super::{Call, Needs, Pending, Reply, Route, fields, route};
use crate::access::Product;
use crate::envelope::{ApiError, messages};
use crate::wire::reader::{Cursor, Fault, Mode, Report};
use crate::wire::rooms;

pub(super) use bypass::{bypass, declared_rules};
pub(crate) use preview::{Drafts, show as show_draft};

/// A body that may hold a page.
const PAGED_BODY_MAX: usize = 4 * 1024 * 1024;

const PATH: &str = "/zones/{zone_id}/waiting_rooms";
const ITEM: &str = "/zones/{zone_id}/waiting_rooms/{waiting_room_id}";

pub(crate) struct Rooms;

impl Resource for Rooms {
    const KIND: Kind = Kind::Room;
    const NOUNS: (&'static str, &'static str) = ("waiting_room", "waiting_rooms");
    const PRODUCT: Product = Product::WaitingRooms;

    fn finish(document: &mut Map<String, Value>, _: Option<&Map<String, Value>>, _: Stamp) {
        settle(document);
    }

    fn beside(id: Id, state: &State) -> Vec<Op> {
        let rules = state.find(Kind::RoomRules, id).map(|_| Op::Delete {
            kind: Kind::RoomRules,
            id,
            expected: None,
        });
        rules.into_iter().collect()
    }

    fn notes(before: Option<&Map<String, Value>>, document: &Map<String, Value>) -> Vec<Fault> {
        let key = "cookie_suffix";
        let moved = before.is_some_and(|before| before.get(key) != document.get(key));
        let text =
            "cookie_suffix changed: the cookie has another name, and who waits loses the place";
        moved
            .then(|| fault("/cookie_suffix", text.to_owned()))
            .into_iter()
            .collect()
    }
}

/// Every route of rooms.
pub(crate) fn routes() -> Vec<Route> {
    let read = Needs::Read(Product::WaitingRooms);
    let edit = Needs::Edit(Product::WaitingRooms);
    let own = resource::routes::<Rooms>(PATH, "").into_iter();
    let mut all: Vec<Route> = own
        .map(|route| match (&route.method, route.path.as_str()) {
            (&Method::GET, PATH) => Route {
                run: |call| Box::pin(async move { list(&call) }),
                ..route
            },
            (&Method::POST | &Method::PUT | &Method::PATCH, _) => {
                route.with_body_max(PAGED_BODY_MAX)
            }
            _ => route,
        })
        .collect();
    all.extend([
        route(
            Method::GET,
            "/accounts/{account_id}/waiting_rooms",
            "account_list_waiting_rooms",
            "Lists the waiting rooms of all zones, oldest first",
            read,
            |call| Box::pin(async move { list(&call) }),
        ),
        route(
            Method::GET,
            &format!("{ITEM}/status"),
            "get_waiting_room_status",
            "Shows how many are in and how many wait",
            read,
            |call| Box::pin(async move { status(&call) }),
        ),
        route(
            Method::GET,
            &format!("{PATH}/settings"),
            "get_waiting_room_settings",
            "Shows what holds for all waiting rooms of a zone",
            read,
            |_| Box::pin(async { Ok(settings(Vec::new())) }),
        ),
    ]);
    for method in [Method::PUT, Method::PATCH] {
        let operation = format!("{}_waiting_room_settings", verb(&method));
        let summary = "Changes what holds for all waiting rooms of a zone";
        let path = format!("{PATH}/settings");
        let route = route(method, &path, &operation, summary, edit, |call| {
            Box::pin(async move { set(&call) })
        });
        all.push(route.with_body(fields::ROOM_SETTINGS));
    }
    all.extend(bypass::routes());
    all.extend(preview::routes());
    all.extend(event_routes());
    all
}

const fn verb(method: &Method) -> &'static str {
    match *method {
        Method::PUT => "replace",
        Method::PATCH => "edit",
        Method::DELETE => "delete",
        _ => "get",
    }
}

/// There are no events: what would make one is refused by name.
fn event_routes() -> Vec<Route> {
    let read = Needs::Read(Product::WaitingRooms);
    let edit = Needs::Edit(Product::WaitingRooms);
    let path = format!("{ITEM}/events");
    let item = format!("{path}/{{event_id}}");
    let nothing = |call: Call| -> Pending { Box::pin(async move { no_event(&call) }) };
    let mut all = vec![
        route(
            Method::GET,
            &path,
            "list_waiting_room_events",
            "Lists the events of a waiting room",
            read,
            |call| {
                Box::pin(async move {
                    found(&call, Kind::Room)?;
                    paged(&call, Vec::new())
                })
            },
        ),
        route(
            Method::POST,
            &path,
            "create_waiting_room_event",
            "Creates an event (not built yet)",
            edit,
            |_| {
                Box::pin(async {
                    let what = "events of waiting rooms are not built yet";
                    Err(ApiError::Unbuilt(what.to_owned()))
                })
            },
        )
        .with_body_max(PAGED_BODY_MAX),
        route(
            Method::GET,
            &format!("{item}/details"),
            "get_waiting_room_event_details",
            "Shows an event with what it inherits",
            read,
            nothing,
        ),
        route(
            Method::GET,
            &item,
            "get_waiting_room_event",
            "Shows an event",
            read,
            nothing,
        ),
    ];
    for method in [Method::PUT, Method::PATCH, Method::DELETE] {
        let operation = format!("{}_waiting_room_event", verb(&method));
        let summary = "Changes an event (not built yet)";
        all.push(route(method, &item, &operation, summary, edit, nothing));
    }
    all
}

fn no_event(call: &Call) -> Result<Reply, ApiError> {
    found(call, Kind::Room)?;
    Err(ApiError::NotFound)
}

/// The rooms of the zone, or of all of them.
fn list(call: &Call) -> Result<Reply, ApiError> {
    let whole = call.whole();
    let all = whole.all(Kind::Room);
    let all = all.filter(|shown| match call.scope {
        Scope::Zone(_) => shown.scope == call.scope,
        Scope::Account(_) | Scope::Installation => true,
    });
    let all: Vec<_> = all.collect();
    let (part, info) = Window::cut(Some(window(call)?), all);
    let items: Vec<String> = part.iter().map(|shown| text(shown, whole)).collect();
    Ok(Reply::Result(joined(&items), Vec::new(), Some(info)))
}

fn paged(call: &Call, all: Vec<String>) -> Result<Reply, ApiError> {
    let (part, info) = Window::cut(Some(window(call)?), all);
    Ok(Reply::Result(joined(&part), Vec::new(), Some(info)))
}

/// A page, also where none is asked for: the clients go on until one is empty. They may spell its
/// number 2.0.
fn window(call: &Call) -> Result<Window, ApiError> {
    const PAGE_MAX: f64 = 4_294_967_295.0;
    let whole = |name: &str, min: f64, max: f64, step: f64, default: usize| {
        let Some(text) = call.query(name).filter(|text| !text.is_empty()) else {
            return Ok(default);
        };
        let number = text.parse::<f64>().ok();
        let number = number.filter(|it| (min..=max).contains(it) && it % step == 0.0);
        // In range and whole, so nothing is lost.
        number.map(|number| number as usize).ok_or_else(|| {
            let message = format!("{name} {text:?} is not a multiple of {step} in {min}..{max}");
            ApiError::wrong(&format!("/{name}"), message)
        })
    };
    let page = whole("page", 1.0, PAGE_MAX, 1.0, 1)?;
    let per_page = whole("per_page", 5.0, 1000.0, 5.0, PER_PAGE)?;
    Ok(Window::page(page, per_page))
}

fn status(call: &Call) -> Result<Reply, ApiError> {
    let shown = found(call, Kind::Room)?;
    let parsed = call.whole().own_or_kept(Kind::Room, shown.id);
    let Some(Parsed::Room(room)) = parsed else {
        return Err(ApiError::NotFound);
    };
    let live = call.app.control.room(shown.id).unwrap_or_default();
    Ok(Reply::result(&rooms::status(&room, &live)))
}

fn settings(notes: Vec<Fault>) -> Reply {
    let result = json!({"search_engine_crawler_bypass": false});
    Reply::Result(result.to_string(), messages(&notes), None)
}

/// All that can be set so far is what holds already.
fn set(call: &Call) -> Result<Reply, ApiError> {
    let body = Value::from(call.object()?);
    let report = Report::new(Mode::Api);
    let _settings = Cursor::root(&report, &body).object(&rooms::ROOM_SETTINGS);
    let (faults, notes) = report.into_parts();
    match faults.is_empty() {
        true => Ok(settings(notes)),
        false => Err(ApiError::of_faults(faults)),
    }
}

/// Brings an accepted document into the form in which it is shown.
pub(super) fn settle(document: &mut Map<String, Value>) {
    for key in ["host", "queueing_method", "default_template_language"] {
        if let Some(Value::String(text)) = document.get_mut(key) {
            *text = match key {
                "default_template_language" => language(text).to_owned(),
                _ => text.to_ascii_lowercase(),
            };
        }
    }
    let routes = document
        .get_mut("additional_routes")
        .and_then(Value::as_array_mut);
    for route in routes.into_iter().flatten() {
        if let Some(Value::String(host)) = route.get_mut("host") {
            host.make_ascii_lowercase();
        }
    }
    let seconds = document.get("usher").and_then(|usher| {
        let seconds = usher.get("session_duration_seconds")?;
        seconds.as_f64()
    });
    if let Some(seconds) = seconds {
        // Between 5 s and a day: it was checked.
        let minutes = (seconds / 60.0).ceil().max(1.0) as u64;
        document.insert("session_duration".to_owned(), minutes.into());
    }
}

/// The tag as it is spelled among those that there are.
fn language(text: &str) -> &str {
    let mut known = usher_core::catalog::LANGUAGES.into_iter();
    let found = known.find(|tag| tag.eq_ignore_ascii_case(text));
    found.unwrap_or(text)
}

/// What no two rooms may have, of a room that is there.
#[derive(Deserialize)]
struct Owned {
    host: String,
    path: String,
    additional_routes: Vec<OwnedRoute>,
}

#[derive(Deserialize)]
struct OwnedRoute {
    host: String,
    path: String,
}

/// Says what of `room` another one has already: its name in the zone, its routes anywhere. Pages of
/// the others are skipped over, not read.
pub(super) fn clashes(whole: Whole<'_>, report: &Report, room: &Room, zone: Option<&Zone>) {
    let scope = zone.map(|zone| Scope::Zone(zone.id));
    let mut taken: Vec<RoomRoute> = Vec::new();
    for other in whole.all(Kind::Room).filter(|other| other.id != room.id) {
        if Some(other.scope) == scope && other.name == room.name {
            let message = format!("waiting room name {:?} is not unique", room.name);
            report.fault(fault("/name", message));
        }
        taken.extend(routes_of(&other));
    }
    for (place, route) in room.routes.iter().enumerate() {
        // Those of the room itself are compared with the rest of its draft.
        if taken.contains(route) {
            let pointer = match place {
                0 => "/path".to_owned(),
                place => format!("/additional_routes/{}/path", place - 1),
            };
            let message = format!(
                "route {:?} is not unique",
                format!("{}{}", route.host, route.path)
            );
            report.fault(fault(&pointer, message));
        }
    }
}

fn routes_of(room: &Shown) -> Vec<RoomRoute> {
    let Ok(owned) = serde_json::from_str::<Owned>(&room.document) else {
        return Vec::new();
    };
    let first = RoomRoute::new(&owned.host, &owned.path);
    let more = owned.additional_routes.iter();
    let more = more.map(|route| RoomRoute::new(&route.host, &route.path));
    [first].into_iter().chain(more).collect()
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

#[cfg(test)]
mod tests;
