//! A room of the catalog as its owner is set and as the front knows it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use usher_core::admission::{Copies, Method, Pacing, Renewal, Settings};
use usher_core::catalog::{
    self, ANY_HOST, Catalog, JsonAccept, PageRefresh, Queueing, Subrequests, Zone,
};
use usher_edge::http::rooms::{Room, Rooms, WaitingPage};
use usher_edge::seal::Keys;
use usher_rooms::cookie::{Attributes, Jar, SameSite};
use usher_rooms::door::{Door, Json};
use usher_rooms::owner::OnStoreFailure;
use usher_rooms::route::PrefixMatch;
use usher_rooms::template::Template;
use usher_rooms::words::Language;

use super::keeper::{Standing, Wanted};

/// The greatest quantum of renewal that nobody asked for.
const QUANTUM_MAX: Duration = Duration::from_secs(10);

/// Every room of `catalog` as it is wanted.
pub(crate) fn wanted(catalog: &Catalog) -> Vec<Wanted> {
    let rooms = &catalog.draft().rooms;
    let mut shared: BTreeMap<&str, u32> = BTreeMap::new();
    for room in rooms {
        *shared.entry(&room.name).or_default() += 1;
    }
    let wanted = rooms.iter().map(|room| Wanted {
        id: room.id,
        // Rooms of two zones may have one name.
        name: match shared.get(&*room.name) {
            Some(1) => room.name.clone(),
            _ => format!("{}/{}", room.zone, room.name),
        },
        settings: settings(room),
        on_failure: on_failure(room),
    });
    wanted.collect()
}

fn settings(room: &catalog::Room) -> Settings {
    let extras = &room.extras;
    let quantum = extras
        .renewal_quantum
        .unwrap_or(QUANTUM_MAX.min(room.session / 10));
    let refresh_ms = millis(extras.refresh);
    let plain = Settings::new(room.seats_max.into(), room.per_minute_max.into());
    let plain = plain.refresh(refresh_ms);
    Settings {
        session_ms: millis(room.session),
        renewal: match room.renewal {
            true => Renewal::After {
                quantum_ms: millis(quantum),
            },
            false => Renewal::Never,
        },
        method: match room.queueing {
            Queueing::Fifo => Method::Fifo,
            Queueing::Random => Method::Random,
            Queueing::Passthrough => Method::Passthrough,
            Queueing::Reject => Method::Reject,
        },
        queue_all: room.queue_all,
        suspended: room.suspended,
        // Whoever asks as often as it is told keeps its place.
        hold_ms: millis(extras.hold).max(plain.present_ms),
        queue_len_max: extras.queue_len_max.unwrap_or(0).into(),
        pacing: match extras.pacing {
            catalog::Pacing::Burst => Pacing::Burst,
            catalog::Pacing::Smooth => Pacing::Smooth,
        },
        copies: match extras.copies {
            catalog::Copies::Log => Copies::Log,
            catalog::Copies::Fork => Copies::Fork,
        },
        subrequests_strict: extras.subrequests == Subrequests::Strict,
        ..plain
    }
}

fn on_failure(room: &catalog::Room) -> OnStoreFailure {
    match room.extras.on_store_failure {
        catalog::OnStoreFailure::Bounded => OnStoreFailure::Bounded,
        catalog::OnStoreFailure::Closed => OnStoreFailure::Closed,
        catalog::OnStoreFailure::Open => OnStoreFailure::Open,
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// What the cookie of `room` is marked with; `zone` is the one that it stands in.
fn attributes(room: &catalog::Room, zone: Option<&Zone>) -> Attributes {
    let https = zone.is_some_and(|zone| zone.always_use_https);
    let (secure, same_site) = room.cookie.resolve(https);
    // Below a path that is only how others begin, a browser would not send it.
    let raw = room.extras.prefix == catalog::PrefixMatch::Raw;
    let path = match room.routes.as_slice() {
        [only] if !raw => only.path.clone(),
        _ => "/".to_owned(),
    };
    Attributes {
        suffix: room.cookie_suffix.clone().unwrap_or_default(),
        path,
        domain: domain(room),
        secure,
        same_site: match same_site {
            catalog::SameSite::Auto | catalog::SameSite::Lax => SameSite::Lax,
            catalog::SameSite::None => SameSite::None,
            catalog::SameSite::Strict => SameSite::Strict,
        },
    }
}

/// The longest domain that all hosts of the room are in; `None` when there is one host only, or
/// every one.
fn domain(room: &catalog::Room) -> Option<String> {
    let mut hosts = room.routes.iter().map(|route| route.host.as_str());
    let first = hosts.next().filter(|host| *host != ANY_HOST)?;
    let mut common = first;
    for host in hosts {
        while !within(host, common) {
            let (_, above) = common.split_once('.')?;
            common = above;
        }
    }
    let several = room.routes.iter().any(|route| route.host != first);
    several.then(|| common.to_owned())
}

fn within(host: &str, domain: &str) -> bool {
    host.strip_suffix(domain)
        .is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
}

/// What cookies are sealed with.
#[derive(Debug, Clone)]
pub(crate) struct Seals {
    /// Of rooms that outlive the process.
    kept: Option<Arc<Keys>>,
    /// Of all others: the seats that such a cookie speaks of are forgotten with the process, and so
    /// is what opens it, or they would be given twice.
    forgotten: Arc<Keys>,
}

impl Seals {
    pub(crate) fn new() -> Seals {
        let secret: String = (0..4).map(|_| format!("{:016x}", crate::draw())).collect();
        // 64 random digits: short or monotonous by no likelihood that counts.
        let keys = Keys::new(&[&secret]).expect("a random secret makes a key");
        Seals {
            kept: None,
            forgotten: Arc::new(keys),
        }
    }

    /// The same where rooms outlive the process, with the keys that it shares with the next.
    pub(crate) fn with(&self, keys: Option<Arc<Keys>>) -> Seals {
        Seals {
            kept: keys,
            forgotten: Arc::clone(&self.forgotten),
        }
    }

    fn keys(&self) -> Arc<Keys> {
        Arc::clone(self.kept.as_ref().unwrap_or(&self.forgotten))
    }
}

/// The rooms of `catalog` as the front serves them. One that is not in its place is left out: there
/// is none, as long as every room was placed before.
pub(crate) fn of_front(catalog: &Catalog, standing: &Standing, seals: &Seals) -> Rooms {
    let draft = catalog.draft();
    let mut rooms = Rooms::new();
    for room in &draft.rooms {
        let Some(placed) = standing.get(&room.id) else {
            tracing::error!("waiting room {}: it is not in its place", room.name);
            continue;
        };
        let zone = draft.zones.iter().find(|zone| zone.name == room.zone);
        let extras = &room.extras;
        let bypass = room.bypass.iter().filter(|rule| rule.enabled);
        let served = Room {
            name: placed.name.clone(),
            door: Door {
                room: room.id,
                jar: Jar::new(room.id, &attributes(room, zone), seals.keys()),
                post: placed.post.clone(),
                clock: placed.clock,
                bypass: bypass.map(|rule| rule.condition.clone()).collect(),
                on_failure: on_failure(room),
                revocable: room.revocable,
                json: match (room.json, extras.json_accept) {
                    (false, _) => Json::Never,
                    (true, JsonAccept::Exact) => Json::Exact,
                    (true, JsonAccept::Lenient) => Json::Lenient,
                },
                show_position: extras.show_position,
            },
            page: page(room),
            // One of ours: the catalog knows no other.
            language: Language::parse(room.language).unwrap_or(Language::EnUs),
            negotiate_language: extras.negotiate_language,
            status: room.status,
            json_extensions: extras.json_extensions,
            status_stream: extras.status_stream,
        };
        let routes = room.routes.iter();
        let routes = routes.map(|route| (route.host.as_str(), route.path.as_str()));
        let prefix = match extras.prefix {
            catalog::PrefixMatch::Segment => PrefixMatch::Segments,
            catalog::PrefixMatch::Raw => PrefixMatch::Raw,
        };
        rooms.add(Arc::new(served), routes, prefix);
    }
    rooms
}

fn page(room: &catalog::Room) -> WaitingPage {
    if room.page.is_empty() {
        return WaitingPage::BuiltIn;
    }
    match Template::parse(&room.page) {
        Ok(template) => WaitingPage::Own {
            template,
            refresh: room.extras.page_refresh == PageRefresh::Header,
        },
        // Whoever took it in has read it; a room with a page that we do not like still has one.
        Err(fault) => {
            tracing::error!("waiting room {}: custom_page_html: {fault}", room.name);
            WaitingPage::BuiltIn
        }
    }
}

#[cfg(test)]
mod tests {
    use usher_core::catalog::{CookieMarks, Route};
    use usher_core::id::Id;

    use super::*;

    fn room(routes: &[(&str, &str)]) -> catalog::Room {
        let mut room = catalog::Room::new(Id::from_bytes([1; 16]));
        room.zone = "example.com".to_owned();
        let routes = routes.iter().map(|(host, path)| Route::new(host, path));
        room.routes = routes.collect();
        room
    }

    #[test]
    fn a_cookie_goes_where_the_room_is() {
        let of = |routes: &[(&str, &str)]| {
            let attributes = attributes(&room(routes), None);
            (attributes.path, attributes.domain)
        };
        let path = |path: &str| path.to_owned();
        assert_eq!(of(&[("shop.example.com", "/sale")]), (path("/sale"), None));
        assert_eq!(of(&[("*", "/")]), (path("/"), None));
        let one_host = [("shop.example.com", "/a"), ("shop.example.com", "/b")];
        assert_eq!(of(&one_host), (path("/"), None));
        let domain = |name: &str| (path("/"), Some(name.to_owned()));
        let two = [("shop.example.com", "/a"), ("www.example.com", "/b")];
        assert_eq!(of(&two), domain("example.com"));
        let below = [("eu.shop.example.com", "/"), ("us.shop.example.com", "/")];
        assert_eq!(of(&below), domain("shop.example.com"));
        let itself = [("shop.example.com", "/"), ("eu.shop.example.com", "/")];
        assert_eq!(of(&itself), domain("shop.example.com"));
        let alike = [("shop.example.com", "/"), ("workshop.example.com", "/")];
        assert_eq!(of(&alike), domain("example.com"));
        let mut raw = room(&[("shop.example.com", "/sale")]);
        raw.extras.prefix = catalog::PrefixMatch::Raw;
        assert_eq!(attributes(&raw, None).path, "/");
    }

    #[test]
    fn marks_follow_the_zone() {
        let plain = room(&[("shop.example.com", "/")]);
        let zone = |https| Zone {
            id: Id::from_bytes([2; 16]),
            name: "example.com".to_owned(),
            ssl: Default::default(),
            always_use_https: https,
            tls: Default::default(),
        };
        let marks = |zone: &Zone| {
            let attributes = attributes(&plain, Some(zone));
            (attributes.secure, attributes.same_site)
        };
        assert_eq!(plain.cookie, CookieMarks::default());
        assert_eq!(marks(&zone(false)), (false, SameSite::Lax));
        assert_eq!(marks(&zone(true)), (true, SameSite::None));
    }

    #[test]
    fn what_nobody_set_follows_from_what_was_set() {
        let mut wanted = room(&[("shop.example.com", "/")]);
        wanted.session = Duration::from_secs(30);
        let made = settings(&wanted);
        assert_eq!(made.renewal, Renewal::After { quantum_ms: 3_000 });
        assert_eq!((made.present_ms, made.claim_ms), (45_000, 45_000));
        assert_eq!(made.hold_ms, 300_000);
        // Who asks every five minutes is not forgotten in between.
        wanted.extras.refresh = Duration::from_secs(300);
        wanted.extras.hold = Duration::from_secs(30);
        wanted.session = Duration::from_secs(3600);
        let made = settings(&wanted);
        assert_eq!((made.present_ms, made.hold_ms), (605_000, 605_000));
        assert_eq!(made.renewal, Renewal::After { quantum_ms: 10_000 });
        wanted.extras.renewal_quantum = Some(Duration::ZERO);
        assert_eq!(settings(&wanted).renewal, Renewal::After { quantum_ms: 0 });
        wanted.renewal = false;
        assert_eq!(settings(&wanted).renewal, Renewal::Never);
    }
}
