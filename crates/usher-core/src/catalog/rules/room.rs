//! The rules of waiting rooms.
//!
//! Source: waiting-room specification 2.3, 2.5 and 3.

use std::collections::BTreeMap;

use super::super::check::{CatalogError, Field, RoomField, Subject};
use super::super::room::{ANY_HOST, BYPASS_MAX, PAGE_BYTES_MAX, Room, RoomProfile};
use super::super::{Draft, SameSite, Secure, syntax};
use super::{At, Fault, is_within};
use crate::rules::condition::{Field as Asked, FrontKind};

const NAME_LEN_MAX: usize = 128;
const DESCRIPTION_LEN_MAX: usize = 1024;
const SUFFIX_LEN_MAX: usize = 64;
const ROUTES_MAX: usize = 1000;
const PATH_LEN_MAX: usize = 2048;
/// Where the paths of the waiting pages themselves lie, below any other.
const OWN: &str = "/cdn-cgi/waitingroom";
/// The largest limit of the hosted service, which means none.
const LIMIT_MAX: f64 = 2_147_483_647.0;
/// The least limit of the hosted service.
pub(in super::super) const LIMIT_MIN_HOSTED: u32 = 200;
/// From 1 s for those who come with the environment of a smaller program.
const SESSION_SECS_MIN: f64 = 1.0;
const SESSION_SECS_MAX: f64 = 86_400.0;

pub(super) fn check(room: &Room, zones: &[&str], profile: RoomProfile, at: &mut At<'_>) {
    let field = Field::Room;
    word(Field::Name, "name", &room.name, NAME_LEN_MAX, at);
    at.len(
        Field::Description,
        "description",
        &room.description,
        DESCRIPTION_LEN_MAX,
    );
    let everywhere = room.routes.first().is_some_and(|it| it.host == ANY_HOST);
    if !everywhere && !zones.contains(&room.zone.as_str()) {
        at.missing(Field::Zone, "zone", &room.zone, zones);
    }
    at.count(
        field(RoomField::Routes),
        "routes",
        room.routes.len(),
        1,
        ROUTES_MAX,
    );
    for (place, route) in room.routes.iter().enumerate() {
        let (host, path) = (field(RoomField::Host(place)), field(RoomField::Path(place)));
        let is_host = syntax::is_lower_hostname(&route.host);
        let rule = "is not a hostname without scheme, port and wildcard";
        let is_any = place == 0 && route.host == ANY_HOST;
        at.syntax(host, "host", &route.host, rule, is_host || is_any);
        if is_host && !everywhere && !is_within(&route.host, &room.zone) {
            let error = CatalogError::RouteOutsideZone {
                found: route.host.clone(),
                zone: room.zone.clone(),
            };
            at.fault(host, error);
        }
        let rule = "holds a blank, a control character, \"*\", \"?\" or \"#\"";
        let kept = |byte: u8| byte.is_ascii_graphic() && !matches!(byte, b'*' | b'?' | b'#');
        at.syntax(
            path,
            "path",
            &route.path,
            rule,
            route.path.bytes().all(kept),
        );
        let rule = "lies under /cdn-cgi/waitingroom, where no endpoint is asked";
        let under = route.path.split_once(OWN);
        let is_own = under.is_some_and(|(_, rest)| rest.is_empty() || rest.starts_with('/'));
        at.syntax(path, "path", &route.path, rule, !is_own);
        at.len(path, "path", &route.path, PATH_LEN_MAX);
    }
    match &room.cookie_suffix {
        Some(suffix) => word(
            field(RoomField::CookieSuffix),
            "cookie_suffix",
            suffix,
            SUFFIX_LEN_MAX,
            at,
        ),
        None if room.routes.len() > 1 => {
            let error = CatalogError::Incomplete {
                what: "additional_routes",
                other: "cookie_suffix",
            };
            at.fault(field(RoomField::AdditionalRoutes), error);
        }
        None => {}
    }
    if room.cookie.same_site == SameSite::None && room.cookie.secure == Secure::Never {
        let error = CatalogError::Excluded {
            what: "samesite none",
            other: "secure never",
        };
        at.fault(field(RoomField::CookieMarks), error);
    }
    limits(room, profile, at);
    let (session, seconds) = (field(RoomField::Session), room.session.as_secs_f64());
    at.range(
        session,
        "session in seconds",
        seconds,
        SESSION_SECS_MIN,
        SESSION_SECS_MAX,
    );
    if room.page.len() > PAGE_BYTES_MAX {
        let error = CatalogError::PageTooLarge {
            found: room.page.len(),
            max: PAGE_BYTES_MAX,
        };
        at.fault(field(RoomField::Page), error);
    }
    at.count(
        field(RoomField::Rules),
        "rules",
        room.bypass.len(),
        0,
        BYPASS_MAX,
    );
    for (place, rule) in room.bypass.iter().enumerate() {
        let expression = field(RoomField::Expression(place));
        if rule.condition.text().trim().is_empty() {
            at.fault(expression, CatalogError::Empty { what: "expression" });
        }
        for read in rule.condition.reads() {
            let later =
                read.field == Asked::BalancerName || read.field.front() == Some(FrontKind::Dns);
            if later {
                let field = read.field.name();
                at.fault(expression, CatalogError::NotKnownYet { field });
            }
        }
        let text = field(RoomField::RuleDescription(place));
        at.len(text, "description", &rule.description, DESCRIPTION_LEN_MAX);
    }
}

fn word(field: Field, what: &'static str, text: &str, max: usize, at: &mut At<'_>) {
    let inside = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
    let rule = "holds other characters than letters, digits, \"_\" and \"-\"";
    at.syntax(field, what, text, rule, text.bytes().all(inside));
    at.len(field, what, text, max);
}

fn limits(room: &Room, profile: RoomProfile, at: &mut At<'_>) {
    let least = match profile {
        RoomProfile::Usher => 0.0,
        RoomProfile::Cloudflare => f64::from(LIMIT_MIN_HOSTED),
    };
    let (seats, rate) = (
        Field::Room(RoomField::Seats),
        Field::Room(RoomField::PerMinute),
    );
    let (found, per_minute) = (f64::from(room.seats_max), f64::from(room.per_minute_max));
    at.range(seats, "total_active_users", found, least, LIMIT_MAX);
    let inside = at.range(rate, "new_users_per_minute", per_minute, least, LIMIT_MAX);
    if profile == RoomProfile::Cloudflare && inside && per_minute > found {
        let (what, min, max) = ("new_users_per_minute", least, found);
        let error = CatalogError::OutOfRange {
            what,
            found: per_minute,
            min,
            max,
        };
        at.fault(rate, error);
    }
}

/// Names within a zone, and routes over all rooms.
pub(super) fn unique(draft: &Draft, faults: &mut Vec<Fault>) {
    let mut names = BTreeMap::new();
    let mut routes = BTreeMap::new();
    let mut ids = BTreeMap::new();
    for (ix, room) in draft.rooms.iter().enumerate() {
        let subject = Subject::Room(ix);
        let mut at = At { subject, faults };
        let name = names.insert((&room.zone, &room.name), ()).is_none();
        let name = name && ids.insert(room.id, ()).is_none();
        at.unique(Field::Name, "waiting room name", &room.name, name);
        for (place, route) in room.routes.iter().enumerate() {
            let unique = routes.insert(route, ()).is_none();
            let field = Field::Room(RoomField::Path(place));
            let text = format!("{}{}", route.host, route.path);
            at.unique(field, "route", &text, unique);
        }
    }
}
