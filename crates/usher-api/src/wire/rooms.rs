//! A waiting room: the fields of `/zones/{zone_id}/waiting_rooms`, and its rules.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use usher_core::admission::Estimate;
use usher_core::catalog::{
    ANY_HOST, Bypass, Copies, JsonAccept, LANGUAGES, OnStoreFailure, PAGE_BYTES_MAX, Pacing,
    PageRefresh, PrefixMatch, Queueing, Room, RoomExtras, RoomProfile, Route, SameSite, Secure,
    Subrequests,
};
use usher_core::id::{Id, Kind};
use usher_core::rules::Condition;
use usher_rooms::template::{Cover, Template};

use super::reader::{Cursor, Mode, Object, Shape, Word, built, declared, read_only, unbuilt};

/// The words of `api.validation_profile`: which limits rooms have to keep.
pub const PROFILES: [(&str, Word<RoomProfile>); 2] = [
    ("usher", Word::Means(RoomProfile::Usher)),
    ("cloudflare", Word::Means(RoomProfile::Cloudflare)),
];

/// A waiting room.
pub static WAITING_ROOM: Shape = Shape {
    name: "waiting room",
    keys: &[
        built("name"),
        built("description"),
        // In the file only: in the API the path says it.
        built("zone"),
        built("host"),
        built("path"),
        built("additional_routes"),
        built("cookie_suffix"),
        built("cookie_attributes"),
        built("total_active_users"),
        built("new_users_per_minute"),
        built("session_duration"),
        built("disable_session_renewal"),
        built("queueing_method"),
        built("queue_all"),
        built("suspended"),
        built("queueing_status_code"),
        built("json_response_enabled"),
        built("custom_page_html"),
        built("default_template_language"),
        built("enabled_origin_commands"),
        built("turnstile_mode"),
        built("turnstile_action"),
        built("usher"),
        // In the file only: the API has calls of their own for them.
        built("rules"),
        unbuilt("events", &[]),
        unbuilt("account", &["default"]),
        read_only("id"),
        read_only("next_event_start_time"),
        read_only("next_event_prequeue_start_time"),
        read_only("created_on"),
        read_only("modified_on"),
    ],
};

/// What only a file says of a room.
const OF_FILES: [&str; 2] = ["zone", "rules"];

/// A further route of a room.
pub static ADDITIONAL_ROUTE: Shape = Shape {
    name: "additional route of a waiting room",
    keys: &[built("host"), built("path")],
};

/// How the cookie of a room is marked.
pub static ROOM_COOKIE: Shape = Shape {
    name: "cookie_attributes of a waiting room",
    keys: &[built("samesite"), built("secure")],
};

/// What Usher adds to a room.
pub static ROOM_USHER: Shape = Shape {
    name: "usher of a waiting room",
    keys: &[
        built("session_duration_seconds"),
        built("refresh_interval_seconds"),
        built("hold_seconds"),
        built("max_queue_length"),
        built("on_store_failure"),
        built("renewal_quantum_seconds"),
        built("pacing"),
        built("copy_policy"),
        built("show_position"),
        built("status_stream"),
        built("json_extensions"),
        built("json_accept"),
        built("subrequest_policy"),
        built("prefix_match"),
        built("page_refresh"),
        built("negotiate_language"),
        unbuilt("lottery_audit", &["false"]),
        unbuilt("fast_lane", &["false"]),
        unbuilt("durable_admissions", &["false"]),
        unbuilt("hold_while_open", &["false"]),
        unbuilt("probation_seconds", &["0"]),
        unbuilt("ticket_key", &[]),
        unbuilt("lease_grace_seconds", &[]),
    ],
};

/// A rule of a room: who passes without a seat.
pub static ROOM_RULE: Shape = Shape {
    name: "rule of a waiting room",
    keys: &[
        built("action"),
        built("expression"),
        built("description"),
        built("enabled"),
        // Read beside the rule: it says where the rule goes.
        built("position"),
        read_only("id"),
        read_only("version"),
        read_only("last_updated"),
    ],
};

/// The settings of all rooms of a zone.
pub static ROOM_SETTINGS: Shape = Shape {
    name: "settings of the waiting rooms of a zone",
    keys: &[unbuilt("search_engine_crawler_bypass", &["false"])],
};

/// The only action of a rule.
pub const ACTION: &str = "bypass_waiting_room";

const SAME_SITE: [(&str, Word<SameSite>); 4] = [
    ("auto", Word::Means(SameSite::Auto)),
    ("lax", Word::Means(SameSite::Lax)),
    ("none", Word::Means(SameSite::None)),
    ("strict", Word::Means(SameSite::Strict)),
];
const SECURE: [(&str, Word<Secure>); 3] = [
    ("auto", Word::Means(Secure::Auto)),
    ("always", Word::Means(Secure::Always)),
    ("never", Word::Means(Secure::Never)),
];
const TURNSTILE_MODES: [(&str, Word<()>); 4] = [
    ("off", Word::Means(())),
    ("invisible", Word::Unbuilt),
    ("visible_non_interactive", Word::Unbuilt),
    ("visible_managed", Word::Unbuilt),
];
const TURNSTILE_ACTIONS: [(&str, Word<()>); 2] =
    [("log", Word::Means(())), ("infinite_queue", Word::Unbuilt)];

const STATUS_CODES: [u16; 3] = [200, 202, 429];
/// The largest limit, which means none.
const LIMIT_MAX: u32 = 2_147_483_647;
/// The least limit of the hosted service.
const LIMIT_MIN_HOSTED: u32 = 200;

/// Reads a room. `name` is the key of a file; `None` takes the field `name`.
///
/// Its zone is left empty: which one it stands in depends on the zones there are.
#[must_use]
pub fn read(cursor: &Cursor<'_>, id: Id, name: Option<&str>) -> Room {
    let mut room = Room::new(id);
    name.unwrap_or_default().clone_into(&mut room.name);
    let Some(object) = cursor.object(&WAITING_ROOM) else {
        return room;
    };
    match name {
        Some(key) => object.same_as_key("name", key),
        None => room.name = object.need_text("name"),
    }
    if cursor.mode() == Mode::Api {
        for key in OF_FILES {
            if let Some(value) = object.get(key) {
                value.note("is not a field of a waiting room here: it is ignored");
            }
        }
    }
    room.description = object.text_or("description", "");
    room.routes = routes(&object);
    room.cookie_suffix = object.text("cookie_suffix");
    if let Some(marks) = object
        .get("cookie_attributes")
        .and_then(|marks| marks.object(&ROOM_COOKIE))
    {
        let same_site = marks.get("samesite").and_then(|it| it.word(&SAME_SITE));
        let secure = marks.get("secure").and_then(|it| it.word(&SECURE));
        room.cookie.same_site = same_site.unwrap_or_default();
        room.cookie.secure = secure.unwrap_or_default();
    }
    let limit = |key| {
        let limit = object.need(key).and_then(|it| it.count(0, LIMIT_MAX));
        limit.unwrap_or(LIMIT_MAX)
    };
    room.seats_max = limit("total_active_users");
    room.per_minute_max = limit("new_users_per_minute");
    if cursor.mode() == Mode::Api {
        note_limits(&object, &room);
    }
    room.renewal = !object.flag_or("disable_session_renewal", false);
    room.queueing = object
        .get("queueing_method")
        .and_then(|word| one_of(&word, Queueing::ALL, Queueing::name))
        .unwrap_or_default();
    room.queue_all = object.flag_or("queue_all", false);
    room.suspended = object.flag_or("suspended", false);
    room.status = object.get("queueing_status_code").map_or(200, |status| {
        let code = status.count(200, 429).unwrap_or(200);
        let code = u16::try_from(code).unwrap_or_default();
        if !STATUS_CODES.contains(&code) {
            status.fault(format_args!("{code} is not one of 200, 202, 429"));
        }
        code
    });
    room.json = object.flag_or("json_response_enabled", false);
    if let Some(page) = object.get("custom_page_html") {
        let routes = room.routes.iter();
        let routes: Vec<_> = routes
            .map(|route| (route.host.as_str(), route.path.as_str()))
            .collect();
        let cover = Cover {
            routes: &routes,
            // Challenges are not built yet.
            challenge: false,
        };
        let text = page_of(&page, &cover).map(|page| Arc::from(page.text()));
        // What is too large is told with the rest of the room.
        let text = text.or_else(|| page.value().as_str().map(Arc::from));
        room.page = text.unwrap_or_default();
    }
    room.language = object
        .get("default_template_language")
        .and_then(|tag| one_of(&tag, &LANGUAGES, |tag| tag))
        .unwrap_or(LANGUAGES[0]);
    for command in object
        .get("enabled_origin_commands")
        .iter()
        .flat_map(Cursor::list)
    {
        room.revocable |= command
            .word(&[("revoke", Word::Means(true))])
            .unwrap_or(false);
    }
    let _off = object
        .get("turnstile_mode")
        .and_then(|word| word.word(&TURNSTILE_MODES));
    let _log = object
        .get("turnstile_action")
        .and_then(|word| word.word(&TURNSTILE_ACTIONS));
    let usher = object
        .get("usher")
        .and_then(|usher| usher.object(&ROOM_USHER));
    room.session = session(&object, usher.as_ref());
    if let Some(usher) = usher {
        room.extras = extras(&usher);
    }
    if let (Mode::File, Some(rules)) = (cursor.mode(), object.get("rules")) {
        let rules = rules.list().into_iter().zip(0_u32..);
        let of_room = |(rule, place)| read_rule(&rule, declared_rule(&room.name, place));
        room.bypass = rules.map(of_room).collect();
    }
    room
}

/// Reads a page of the operator's own, and tells what in it is surely not meant. `None`: it is
/// empty, too large to be looked at, or no template.
#[must_use]
pub fn page_of(value: &Cursor<'_>, cover: &Cover<'_>) -> Option<Template> {
    let text = value.text()?;
    if text.is_empty() || text.len() > PAGE_BYTES_MAX {
        return None;
    }
    match Template::parse(text) {
        Ok(template) => {
            for warning in template.warnings(cover) {
                value.note(warning);
            }
            Some(template)
        }
        Err(fault) => {
            value.fault(fault);
            None
        }
    }
}

/// The id of a rule that a file declares at that place of a room.
#[must_use]
pub fn declared_rule(room: &str, place: u32) -> Id {
    declared(Kind::RoomRule, &format!("{room}/{place}"))
}

fn routes(object: &Object<'_>) -> Vec<Route> {
    let first = Route::new(host(object), path(object));
    let more = object.get("additional_routes");
    let more = more.iter().flat_map(Cursor::list);
    let more = more.map(|route| match route.object(&ADDITIONAL_ROUTE) {
        Some(route) => Route::new(host(&route), path(&route)),
        // Stands for the place; the fault has been told.
        None => Route::new("", "/"),
    });
    [first].into_iter().chain(more).collect()
}

fn host<'a>(object: &Object<'a>) -> &'a str {
    let host = object.need("host");
    let text = host.as_ref().and_then(Cursor::text).unwrap_or_default();
    if let (Some(host), ANY_HOST, Mode::Api) = (&host, text, object.cursor().mode()) {
        host.fault("\"*\" is only for a room that a file declares");
    }
    text
}

fn path<'a>(object: &Object<'a>) -> &'a str {
    let path = object.get("path");
    let text = path.as_ref().and_then(Cursor::text).unwrap_or("/");
    if let Some(path) = path.filter(|_| !text.starts_with('/')) {
        path.fault(format_args!("{text:?} does not start with \"/\""));
    }
    text
}

/// What the hosted service would refuse.
fn note_limits(object: &Object<'_>, room: &Room) {
    let (seats, rate) = (room.seats_max, room.per_minute_max);
    for (key, found) in [
        ("total_active_users", seats),
        ("new_users_per_minute", rate),
    ] {
        if let Some(value) = object.get(key).filter(|_| found < LIMIT_MIN_HOSTED) {
            value.note(format_args!(
                "{found} is below {LIMIT_MIN_HOSTED}, the least that Cloudflare takes"
            ));
        }
    }
    if let Some(value) = object.get("new_users_per_minute").filter(|_| rate > seats) {
        value.note(format_args!(
            "{rate} is above total_active_users {seats}, which Cloudflare does not take"
        ));
    }
}

/// The seconds win over the minutes, whatever these are: they may be ours, rounded up.
fn session(object: &Object<'_>, usher: Option<&Object<'_>>) -> Duration {
    let seconds = usher.and_then(|usher| usher.get("session_duration_seconds"));
    let minutes = object.get("session_duration");
    let seconds = match (seconds, minutes) {
        (Some(seconds), _) => seconds.whole(5, 86_400).map(u64::from),
        (None, Some(minutes)) => minutes.whole(1, 30).map(|minutes| u64::from(minutes) * 60),
        (None, None) => None,
    };
    Duration::from_secs(seconds.unwrap_or(300))
}

fn extras(usher: &Object<'_>) -> RoomExtras {
    let seconds = |key, min, max| {
        let seconds = usher.get(key)?.whole(min, max)?;
        Some(Duration::from_secs(seconds.into()))
    };
    fn word<T: Copy + Default>(
        usher: &Object<'_>,
        key: &'static str,
        all: &[T],
        name: fn(T) -> &'static str,
    ) -> T {
        let word = usher.get(key).and_then(|word| one_of(&word, all, name));
        word.unwrap_or_default()
    }
    let plain = RoomExtras::default();
    let queue_len_max = usher
        .get("max_queue_length")
        .and_then(|max| max.whole(0, LIMIT_MAX));
    RoomExtras {
        refresh: seconds("refresh_interval_seconds", 1, 300).unwrap_or(plain.refresh),
        hold: seconds("hold_seconds", 30, 3600).unwrap_or(plain.hold),
        queue_len_max: queue_len_max.filter(|max| *max > 0),
        on_store_failure: word(
            usher,
            "on_store_failure",
            OnStoreFailure::ALL,
            OnStoreFailure::name,
        ),
        renewal_quantum: seconds("renewal_quantum_seconds", 0, 3600),
        pacing: word(usher, "pacing", Pacing::ALL, Pacing::name),
        copies: word(usher, "copy_policy", Copies::ALL, Copies::name),
        show_position: usher.flag_or("show_position", plain.show_position),
        status_stream: usher.flag_or("status_stream", plain.status_stream),
        json_extensions: usher.flag_or("json_extensions", plain.json_extensions),
        subrequests: word(
            usher,
            "subrequest_policy",
            Subrequests::ALL,
            Subrequests::name,
        ),
        prefix: word(usher, "prefix_match", PrefixMatch::ALL, PrefixMatch::name),
        json_accept: word(usher, "json_accept", JsonAccept::ALL, JsonAccept::name),
        page_refresh: word(usher, "page_refresh", PageRefresh::ALL, PageRefresh::name),
        negotiate_language: usher.flag_or("negotiate_language", plain.negotiate_language),
    }
}

/// The one of `all` that the text names, in whatever case.
fn one_of<T: Copy>(value: &Cursor<'_>, all: &[T], name: fn(T) -> &'static str) -> Option<T> {
    let text = value.text()?;
    let mut known = all.iter().copied();
    let found = known.find(|&it| name(it).eq_ignore_ascii_case(text));
    if found.is_none() {
        let names: Vec<&str> = all.iter().map(|&it| name(it)).collect();
        value.fault(format_args!("{text:?} is not one of {}", names.join(", ")));
    }
    found
}

/// Reads a rule of a room.
#[must_use]
pub fn read_rule(cursor: &Cursor<'_>, id: Id) -> Bypass {
    let always = || Condition::parse("").expect("the empty expression is always true");
    let mut rule = Bypass {
        id,
        enabled: true,
        description: String::new(),
        condition: always(),
    };
    let Some(object) = cursor.object(&ROOM_RULE) else {
        return rule;
    };
    let _bypass = match cursor.mode() {
        // There is only one, so a file need not say it.
        Mode::File => object.get("action"),
        Mode::Api => object.need("action"),
    }
    .and_then(|action| action.word(&[(ACTION, Word::Means(()))]));
    rule.description = object.text_or("description", "");
    rule.enabled = object.flag_or("enabled", true);
    let expression = object.need("expression");
    let Some((expression, text)) = expression.and_then(|it| it.text().map(|text| (it, text)))
    else {
        return rule;
    };
    match Condition::parse(text) {
        Ok(condition) => rule.condition = condition,
        Err(faults) => {
            for fault in faults {
                expression.fault_inside(fault.column - 1, fault);
            }
        }
    }
    rule
}

/// What is true of a room right now.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RoomStatus {
    /// Seats held and reserved.
    pub seats: u64,
    /// Visitors who wait, present or away, not called.
    pub waiting: u64,
    /// Admissions in the last 60 s.
    pub admitted_last_minute: u64,
    /// What the last in line is told, if an estimate exists.
    pub wait_max: Option<Duration>,
    /// How long the last in line waits, in more words.
    pub estimate: Option<Estimate>,
    /// What it has done since this process runs it.
    pub tally: RoomTally,
    /// Why it does not run as it should, in words for its operator.
    pub trouble: Option<&'static str>,
}

/// What a room has done since a process began to run it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RoomTally {
    /// Visitors without a seat who got one.
    pub admitted: u64,
    /// Of them, those who came from the line.
    pub entered: u64,
    /// How long these waited, together, ms.
    pub waited_ms: u64,
    /// Places in line that were given up.
    pub abandoned: u64,
}

impl RoomStatus {
    /// As the dashboard and scripts read it: what changes from moment to moment.
    #[must_use]
    pub fn figures(&self) -> Value {
        let seconds = |ms: u64| ms as f64 / 1000.0;
        json!({
            "seats": self.seats,
            "waiting": self.waiting,
            "admitted_last_minute": self.admitted_last_minute,
            "wait_seconds": self.estimate.map(|it| json!({
                "low": seconds(it.low_ms), "mid": seconds(it.mid_ms), "high": seconds(it.high_ms),
            })),
            "admitted": self.tally.admitted,
            "entered": self.tally.entered,
            "waited_seconds": seconds(self.tally.waited_ms),
            "abandoned": self.tally.abandoned,
            "trouble": self.trouble,
        })
    }
}

/// The word of the API for what a room does.
#[must_use]
pub fn status_word(room: &Room, live: &RoomStatus) -> &'static str {
    match (room.suspended, room.queue_all || live.waiting > 0) {
        (true, _) => "suspended",
        (false, true) => "queueing",
        (false, false) => "not_queueing",
    }
}

/// The `result` of a room's status.
#[must_use]
pub fn status(room: &Room, live: &RoomStatus) -> Value {
    let minutes = live.wait_max.filter(|_| live.waiting > 0);
    let minutes = minutes.map_or(0, |wait| wait.as_secs().div_ceil(60));
    json!({
        "status": status_word(room, live),
        "event_id": "",
        "estimated_queued_users": live.waiting,
        "estimated_total_active_users": live.seats,
        "max_estimated_time_minutes": minutes,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::reader::Report;

    fn read_as(mode: Mode, value: &Value) -> (Room, Vec<String>, Vec<String>) {
        let report = Report::new(mode);
        let cursor = Cursor::root(&report, value).as_resource("waiting room sale");
        let name = (mode == Mode::File).then_some("sale");
        let room = read(&cursor, declared(Kind::Room, "sale"), name);
        let (faults, notes) = report.into_parts();
        let text = |list: Vec<_>| list.iter().map(ToString::to_string).collect();
        (room, text(faults), text(notes))
    }

    fn least() -> Value {
        json!({"host": "Shop.example.com", "total_active_users": 200, "new_users_per_minute": 200})
    }

    #[test]
    fn what_nobody_wrote_has_the_defaults_of_the_api() {
        let (room, faults, notes) = read_as(Mode::File, &least());
        assert_eq!((faults, notes), (vec![], vec![]));
        let mut plain = Room::new(room.id);
        plain.name = "sale".to_owned();
        plain.routes = vec![Route::new("shop.example.com", "/")];
        (plain.seats_max, plain.per_minute_max) = (200, 200);
        assert_eq!(room, plain);
    }

    #[test]
    fn every_field_is_read() {
        let value = json!({
            "zone": "example.com", "description": "d", "host": "shop.example.com", "path": "/sale/",
            "additional_routes": [{"host": "www.example.com", "path": "/a/../b"}, {"host": "example.com"}],
            "cookie_suffix": "x", "cookie_attributes": {"samesite": "none", "secure": "always"},
            "total_active_users": 10, "new_users_per_minute": 0, "session_duration": 1,
            "disable_session_renewal": true, "queueing_method": "Random", "queue_all": true,
            "suspended": true, "queueing_status_code": 429, "json_response_enabled": true,
            "custom_page_html": "<p>", "default_template_language": "ko-KR",
            "enabled_origin_commands": ["revoke"], "turnstile_mode": "off", "turnstile_action": "log",
            "rules": [{"expression": "starts_with(http.request.uri.path, \"/favicon\")", "enabled": false,
                       "description": "icons"}],
            "usher": {"session_duration_seconds": 5, "refresh_interval_seconds": 1, "hold_seconds": 30,
                "max_queue_length": 7, "on_store_failure": "open", "renewal_quantum_seconds": 0,
                "pacing": "smooth", "copy_policy": "fork",
                "show_position": false, "status_stream": false, "json_extensions": true,
                "json_accept": "lenient", "subrequest_policy": "strict", "prefix_match": "raw",
                "page_refresh": "script", "negotiate_language": true, "lottery_audit": false},
        });
        let (room, faults, notes) = read_as(Mode::File, &value);
        assert_eq!((faults, notes), (vec![], vec![]));
        let routes: Vec<String> = room
            .routes
            .iter()
            .map(|it| format!("{}{}", it.host, it.path))
            .collect();
        assert_eq!(
            routes,
            ["shop.example.com/sale", "www.example.com/b", "example.com/"]
        );
        assert_eq!((room.seats_max, room.per_minute_max), (10, 0));
        assert_eq!(room.session, Duration::from_secs(5));
        assert_eq!(
            (room.cookie.same_site, room.cookie.secure),
            (SameSite::None, Secure::Always)
        );
        assert!(!room.renewal && room.queue_all && room.suspended && room.json && room.revocable);
        assert_eq!(
            (room.queueing, room.status, room.language),
            (Queueing::Random, 429, "ko-KR")
        );
        assert_eq!(
            (&*room.page, room.cookie_suffix.as_deref()),
            ("<p>", Some("x"))
        );
        assert_eq!(room.bypass.len(), 1);
        assert!(!room.bypass[0].enabled);
        let seconds = Duration::from_secs;
        assert_eq!(
            room.extras,
            RoomExtras {
                refresh: seconds(1),
                hold: seconds(30),
                queue_len_max: Some(7),
                on_store_failure: OnStoreFailure::Open,
                renewal_quantum: Some(Duration::ZERO),
                pacing: Pacing::Smooth,
                copies: Copies::Fork,
                show_position: false,
                status_stream: false,
                json_extensions: true,
                subrequests: Subrequests::Strict,
                prefix: PrefixMatch::Raw,
                json_accept: JsonAccept::Lenient,
                page_refresh: PageRefresh::Script,
                negotiate_language: true,
            }
        );
    }

    #[test]
    fn what_cannot_be_read_is_named() {
        let (_, faults, _) = read_as(
            Mode::File,
            &json!({
                "path": "shop", "total_active_users": -1, "session_duration": 31, "queueing_method": "lifo",
                "queueing_status_code": 201, "default_template_language": "xx", "enabled_origin_commands": ["stop"],
                "turnstile_mode": "invisible", "events": [{"name": "e"}], "additional_routes": [5],
                "cookie_attributes": {"samesite": "Lax"},
                "rules": [{"expression": "http.host eq 5"}, {"action": "wait", "expression": "ssl"}],
                "usher": {"refresh_interval_seconds": 0, "fast_lane": true, "pacing": "slow"},
            }),
        );
        assert_eq!(
            faults,
            [
                "waiting room sale: events is not built yet",
                "waiting room sale: host is missing",
                "waiting room sale: path \"shop\" does not start with \"/\"",
                "waiting room sale: additional_routes[0] must be an object, not a number",
                "waiting room sale: cookie_attributes.samesite \"Lax\" is not one of auto, lax, none, strict",
                "waiting room sale: total_active_users -1 is outside 0..2147483647",
                "waiting room sale: new_users_per_minute is missing",
                "waiting room sale: queueing_method \"lifo\" is not one of fifo, random, passthrough, reject",
                "waiting room sale: queueing_status_code 201 is not one of 200, 202, 429",
                &format!(
                    "waiting room sale: default_template_language \"xx\" is not one of {}",
                    LANGUAGES.join(", ")
                ),
                "waiting room sale: enabled_origin_commands[0] \"stop\" is not one of revoke",
                "waiting room sale: turnstile_mode invisible is not built yet",
                "waiting room sale: usher.fast_lane is not built yet",
                "waiting room sale: session_duration 31 is outside 1..30",
                "waiting room sale: usher.refresh_interval_seconds 0 is outside 1..300",
                "waiting room sale: usher.pacing \"slow\" is not one of burst, smooth",
                "waiting room sale: rules[0].expression column 14: expected a string in quotes, found 5",
                "waiting room sale: rules[1].action \"wait\" is not one of bypass_waiting_room",
            ]
        );
    }

    #[test]
    fn the_api_says_what_the_hosted_service_would_refuse() {
        let mut value = least();
        (value["name"], value["total_active_users"]) = ("sale".into(), 5.into());
        let (room, faults, notes) = read_as(Mode::Api, &value);
        assert_eq!((room.name.as_str(), faults), ("sale", vec![]));
        assert_eq!(
            notes,
            [
                "waiting room sale: total_active_users 5 is below 200, the least that Cloudflare takes",
                "waiting room sale: new_users_per_minute 200 is above total_active_users 5, which Cloudflare does not take",
            ]
        );
        value["host"] = "*".into();
        let (_, faults, _) = read_as(Mode::Api, &value);
        assert_eq!(
            faults,
            ["waiting room sale: host \"*\" is only for a room that a file declares"]
        );
    }

    #[test]
    fn seconds_win_over_minutes_that_were_rounded_up() {
        let mut value = least();
        (value["session_duration"], value["usher"]) =
            (1440.into(), json!({"session_duration_seconds": 86_400}));
        let (room, faults, _) = read_as(Mode::File, &value);
        assert_eq!((room.session.as_secs(), faults), (86_400, vec![]));
    }

    #[test]
    fn a_status_has_the_words_of_the_api() {
        let mut room = Room::new(declared(Kind::Room, "sale"));
        let mut live = RoomStatus {
            seats: 3,
            wait_max: Some(Duration::from_secs(61)),
            ..RoomStatus::default()
        };
        assert_eq!(
            status(&room, &live),
            json!({
                "status": "not_queueing", "event_id": "", "estimated_queued_users": 0,
                "estimated_total_active_users": 3, "max_estimated_time_minutes": 0,
            })
        );
        live.waiting = 1;
        let told = status(&room, &live);
        assert_eq!(
            (&told["status"], &told["max_estimated_time_minutes"]),
            (&json!("queueing"), &json!(2))
        );
        room.suspended = true;
        assert_eq!(status_word(&room, &live), "suspended");
        (room.suspended, room.queue_all, live.waiting) = (false, true, 0);
        assert_eq!(status_word(&room, &live), "queueing");
    }
}
