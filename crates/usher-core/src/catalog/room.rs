//! A waiting room: which requests it owns, how many it lets in, and how it speaks to who waits.
//!
//! Its live state is not here: a configuration may be replaced at any moment and seats and tickets
//! stay. Everything has a value, also what nobody wrote, so that no reader needs a default.

use std::sync::Arc;
use std::time::Duration;

use super::CookieMarks;
use crate::id::Id;
use crate::rules::Condition;

/// The host of a room that stands before every host. Only a file may declare one.
pub const ANY_HOST: &str = "*";

/// Bytes of a custom page.
pub const PAGE_BYTES_MAX: usize = 1_048_576;

/// Rules of a room.
pub const BYPASS_MAX: usize = 100;

/// A waiting room.
#[derive(Debug, Clone, PartialEq)]
pub struct Room {
    /// Identity: cookies are bound to it, so a new name or path keeps everybody's place.
    pub id: Id,
    /// Letters, digits, `-` and `_`, 1..=128, unique in its zone.
    pub name: String,
    /// The zone it stands in, by name. Empty for a room of every host.
    pub zone: String,
    /// Free text, at most 1024 bytes.
    pub description: String,
    /// What it owns: at least one. Further ones need a cookie suffix. Unique over all rooms.
    pub routes: Vec<Route>,
    /// Ends the name of the cookie. Letters, digits, `-` and `_`, 1..=64.
    pub cookie_suffix: Option<String>,
    /// How the cookie is marked for browsers.
    pub cookie: CookieMarks,
    /// Seats held at once. 0: nobody new enters.
    pub seats_max: u32,
    /// Admissions in any 60 s. 0: nobody new enters.
    pub per_minute_max: u32,
    /// How long a silent visitor keeps a seat. Range 5 s..=24 h (1 s where the environment says
    /// it), default 5 min.
    pub session: Duration,
    /// Whether a request begins the session anew. Default true.
    pub renewal: bool,
    /// Who is next. Default [`Queueing::Fifo`].
    pub queueing: Queueing,
    /// Everybody without a seat waits, and nobody is let in. Default false.
    pub queue_all: bool,
    /// As if the room were not there; its seats and tickets stay. Default false.
    pub suspended: bool,
    /// Status of a waiting answer: 200, 202 or 429. Default 200.
    pub status: u16,
    /// Whether programs that ask for JSON get it. Default false.
    pub json: bool,
    /// A page of the operator's own, at most [`PAGE_BYTES_MAX`]. Empty: the built-in one.
    pub page: Arc<str>,
    /// Language of the built-in page, one of [`LANGUAGES`]. Default `en-US`.
    pub language: &'static str,
    /// Whether an endpoint may end a visitor's seat by a header. Default false.
    pub revocable: bool,
    /// Who passes without a seat, in order. At most [`BYPASS_MAX`].
    pub bypass: Vec<Bypass>,
    /// What Usher adds.
    pub extras: RoomExtras,
}

/// What Usher adds to a room.
#[derive(Debug, Clone, PartialEq)]
pub struct RoomExtras {
    /// Between two looks of a waiting page. Range 1..=300 s, default 20 s.
    pub refresh: Duration,
    /// How long a silent visitor keeps a ticket. Range 30..=3600 s, default 300 s.
    pub hold: Duration,
    /// Tickets at once. Default none: no bound.
    pub queue_len_max: Option<u32>,
    /// What happens while the store does not answer. Default bounded.
    pub on_store_failure: OnStoreFailure,
    /// The age from which a seat is renewed at the store; 0: with every request. Default none: the
    /// least of 10 s and a tenth of the session.
    pub renewal_quantum: Option<Duration>,
    /// How admissions are spread over the minute. Default burst.
    pub pacing: Pacing,
    /// What becomes of a cookie that two browsers carry. Default log.
    pub copies: Copies,
    /// Whether a waiting visitor is told the position. Default true.
    pub show_position: bool,
    /// Whether the stream of the own status is served. Default true.
    pub status_stream: bool,
    /// Whether JSON carries what Usher knows beyond the documented fields. Default false.
    pub json_extensions: bool,
    /// What a request without a cookie is that no person navigates with. Default shared.
    pub subrequests: Subrequests,
    /// What lies below a path. Default segment.
    pub prefix: PrefixMatch,
    /// Which `Accept` asks for JSON. Default exact.
    pub json_accept: JsonAccept,
    /// How a custom page is brought up to date. Default by header.
    pub page_refresh: PageRefresh,
    /// Whether `Accept-Language` chooses among [`LANGUAGES`]. Default false.
    pub negotiate_language: bool,
}

impl Default for RoomExtras {
    fn default() -> RoomExtras {
        RoomExtras {
            refresh: Duration::from_secs(20),
            hold: Duration::from_secs(300),
            queue_len_max: None,
            on_store_failure: OnStoreFailure::default(),
            renewal_quantum: None,
            pacing: Pacing::default(),
            copies: Copies::default(),
            show_position: true,
            status_stream: true,
            json_extensions: false,
            subrequests: Subrequests::default(),
            prefix: PrefixMatch::default(),
            json_accept: JsonAccept::default(),
            page_refresh: PageRefresh::default(),
            negotiate_language: false,
        }
    }
}

/// A host, and a path on it with all that lies below.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Route {
    /// Lower case, without port or trailing dot; or [`ANY_HOST`].
    pub host: String,
    /// As [`normal_path`] gives it, without a slash at its end unless it is all of it.
    pub path: String,
}

impl Route {
    /// As somebody wrote it.
    #[must_use]
    pub fn new(host: &str, path: &str) -> Route {
        let path = normal_path(path);
        let path = match path.strip_suffix('/') {
            Some(rest) if !rest.is_empty() => rest.to_owned(),
            _ => path,
        };
        Route {
            host: host.to_ascii_lowercase(),
            path,
        }
    }
}

/// The path that rooms compare: unreserved characters decoded, `.` and `..` resolved, `//` one
/// slash. Without this `/shop/../sale` or `/%73ale` would be a way around a room. Case stays.
#[must_use]
pub fn normal_path(path: &str) -> String {
    let decoded = decode_unreserved(path);
    let mut kept: Vec<&str> = Vec::new();
    for segment in decoded.split('/') {
        match segment {
            "" | "." => {}
            ".." => drop(kept.pop()),
            segment => kept.push(segment),
        }
    }
    let open = matches!(decoded.rsplit('/').next(), Some("" | "." | ".."));
    let mut normal = String::with_capacity(decoded.len() + 1);
    for segment in &kept {
        normal.push('/');
        normal.push_str(segment);
    }
    if open || normal.is_empty() {
        normal.push('/');
    }
    normal
}

fn decode_unreserved(path: &str) -> String {
    let mut decoded = String::with_capacity(path.len());
    let mut rest = path;
    while let Some(at) = rest.find('%') {
        decoded.push_str(&rest[..at]);
        let digit = |place: usize| {
            let byte = rest.as_bytes().get(at + place)?;
            char::from(*byte).to_digit(16)
        };
        let byte = digit(1).zip(digit(2)).map(|(high, low)| high * 16 + low);
        let meant = byte.and_then(char::from_u32).filter(|meant| {
            meant.is_ascii_alphanumeric() || matches!(meant, '-' | '.' | '_' | '~')
        });
        match meant {
            Some(meant) => {
                decoded.push(meant);
                rest = &rest[at + 3..];
            }
            None => {
                decoded.push('%');
                rest = &rest[at + 1..];
            }
        }
    }
    decoded.push_str(rest);
    decoded
}

/// Who passes a room without a seat.
#[derive(Debug, Clone, PartialEq)]
pub struct Bypass {
    /// Identity.
    pub id: Id,
    /// False: as if absent. Default true.
    pub enabled: bool,
    /// Free text, at most 1024 bytes.
    pub description: String,
    /// Whom it means. Never empty.
    pub condition: Condition,
}

macro_rules! words {
    ($(#[$doc:meta])* $name:ident { $($(#[$each:meta])* $variant:ident = $word:literal,)* }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
        pub enum $name { $($(#[$each])* $variant,)* }

        impl $name {
            /// Every one.
            pub const ALL: &[$name] = &[$($name::$variant,)*];

            /// The word, as the API spells it.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $($name::$variant => $word,)* }
            }
        }
    };
}

words! {
    /// Who is next.
    Queueing {
        /// Who waits longest.
        #[default]
        Fifo = "fifo",
        /// One of those present, drawn anew each time.
        Random = "random",
        /// Everybody at once; limits are counted and not kept.
        Passthrough = "passthrough",
        /// Nobody: newcomers are turned away.
        Reject = "reject",
    }
}

words! {
    /// What happens while the store does not answer.
    OnStoreFailure {
        /// As many are let in as cannot exceed the limits by much.
        #[default]
        Bounded = "bounded",
        /// Nobody new is let in.
        Closed = "closed",
        /// Everybody is let in.
        Open = "open",
    }
}

words! {
    /// How admissions are spread over the minute.
    Pacing {
        /// As soon as a limit allows.
        #[default]
        Burst = "burst",
        /// No second gets more than its share.
        Smooth = "smooth",
    }
}

words! {
    /// What becomes of a cookie that two browsers carry.
    Copies {
        /// It is counted.
        #[default]
        Log = "log",
        /// The staler bearer is a new visitor.
        Fork = "fork",
    }
}

words! {
    /// What a request without a cookie is that no person navigates with.
    Subrequests {
        /// Part of a page: forwarded or held back, never a visitor.
        #[default]
        Shared = "shared",
        /// A visitor like any other.
        Strict = "strict",
    }
}

words! {
    /// What lies below a path.
    PrefixMatch {
        /// What goes on with a slash: `/shop` has `/shop/a`, not `/shopping`.
        #[default]
        Segment = "segment",
        /// Whatever begins with it.
        Raw = "raw",
    }
}

words! {
    /// Which `Accept` asks for JSON.
    JsonAccept {
        /// `application/json` alone.
        #[default]
        Exact = "exact",
        /// Also with parameters, or as the one of the highest quality.
        Lenient = "lenient",
    }
}

words! {
    /// How a custom page is brought up to date.
    PageRefresh {
        /// By the header `Refresh`.
        #[default]
        Header = "header",
        /// By the script that it loads.
        Script = "script",
    }
}

words! {
    /// Which limits a configuration has to keep.
    RoomProfile {
        /// Those that make sense.
        #[default]
        Usher = "usher",
        /// Those of the hosted service: both limits at least 200, the rate at most the seats.
        Cloudflare = "cloudflare",
    }
}

/// The languages of the built-in page.
pub const LANGUAGES: [&str; 39] = [
    "en-US", "es-ES", "de-DE", "fr-FR", "it-IT", "ja-JP", "ko-KR", "pt-BR", "zh-CN", "zh-TW",
    "nl-NL", "pl-PL", "id-ID", "tr-TR", "ar-EG", "ru-RU", "fa-IR", "bg-BG", "hr-HR", "cs-CZ",
    "da-DK", "fi-FI", "lt-LT", "lv-LV", "ms-MY", "nb-NO", "ro-RO", "el-GR", "he-IL", "hi-IN",
    "hu-HU", "sr-BA", "sk-SK", "sl-SI", "sv-SE", "tl-PH", "th-TH", "uk-UA", "vi-VN",
];

impl Room {
    /// A room without a name or route, and with every default.
    #[must_use]
    pub fn new(id: Id) -> Room {
        Room {
            id,
            name: String::new(),
            zone: String::new(),
            description: String::new(),
            routes: Vec::new(),
            cookie_suffix: None,
            cookie: CookieMarks::default(),
            seats_max: 0,
            per_minute_max: 0,
            session: Duration::from_secs(300),
            renewal: true,
            queueing: Queueing::default(),
            queue_all: false,
            suspended: false,
            status: 200,
            json: false,
            page: Arc::from(""),
            language: LANGUAGES[0],
            revocable: false,
            bypass: Vec::new(),
            extras: RoomExtras::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_that_mean_the_same_are_the_same() {
        for (path, normal) in [
            ("/", "/"),
            ("", "/"),
            ("/shop", "/shop"),
            ("/shop/", "/shop/"),
            ("//shop///a", "/shop/a"),
            ("/shop/../sale", "/sale"),
            ("/../../sale", "/sale"),
            ("/shop/./a/.", "/shop/a/"),
            ("/shop/a/..", "/shop/"),
            ("/%73hop", "/shop"),
            ("/%2e%2E/sale", "/sale"),
            // A slash that is data, and what is no escape, stay as they are.
            ("/a%2Fb%zz%4", "/a%2Fb%zz%4"),
            ("/%E9%zé%", "/%E9%zé%"),
            ("/Shop", "/Shop"),
        ] {
            assert_eq!(normal_path(path), normal, "{path}");
            assert_eq!(normal_path(normal), normal, "{path}");
        }
    }

    #[test]
    fn a_route_ends_without_a_slash() {
        let route = |path| Route::new("Shop.Example.com", path);
        assert_eq!(route("/shop/"), route("/shop"));
        assert_eq!(route("/shop").host, "shop.example.com");
        assert_eq!(route("/").path, "/");
    }
}
