//! Quick actions: one request, one page, one answer.
//!
//! A body is read to its last field and judged whole before a browser is asked for; what is wrong
//! with it is told all at once. The answer of a screenshot is the picture itself, so whatever is to
//! be said beside it stands in headers.
//!
//! - `fields` takes a body apart, `order` makes what the host is told of it,
//! - `fault` writes what went wrong.
//!
//! Source: browser specification 2.4, 2.5, 6.

mod fault;
mod fields;
mod order;

use std::sync::Arc;
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderMap, HeaderValue};
use http::{Method, Request, Response, Uri};
use http_body_util::BodyExt;
use hyper::body::Body;
use serde_json::{Map, Value};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;
use usher_browsers::page::Format;
use usher_core::lease::line::Class;
use usher_core::lease::{RequestId, Stock};

use super::answer::Said;
use super::{Caller, Front, guardrails};
use crate::ask::Ask;
use crate::chance;
use crate::quick::cache::{Cache, Found, KEY_MAX};
use crate::quick::{self, Outcome, Waiting, Wanted};
use fault::Fault;
use fields::Fields;
use order::Asked;

/// Bytes of a body.
const BODY_MAX: usize = 50 << 20;
/// How long a body may take to arrive.
const BODY_TIME_MAX: Duration = Duration::from_secs(60);
/// Memory for bodies that are here together, in pieces of [`PIECE`].
const PIECES: usize = (256 << 20) / PIECE;
const PIECE: usize = 64 << 10;
/// Values in a body: as many as nobody needs, for each takes more memory than it has letters.
const VALUES_MAX: usize = 100_000;

/// Actions that have a name and are not there yet.
pub(super) const UNBUILT: [&str; 8] = [
    "pdf",
    "content",
    "markdown",
    "links",
    "scrape",
    "json",
    "snapshot",
    "accessibilityTree",
];

/// What all quick actions of a process have in common.
pub(super) struct Quick {
    cache: Cache,
    /// Room for bodies.
    room: Arc<Semaphore>,
}

impl Default for Quick {
    fn default() -> Quick {
        Quick {
            cache: Cache::default(),
            room: Arc::new(Semaphore::new(PIECES)),
        }
    }
}

/// A body, and the room that it takes.
struct Read {
    bytes: Vec<u8>,
    _room: Option<OwnedSemaphorePermit>,
}

impl Front {
    /// Answers `POST /screenshot`.
    pub(super) async fn screenshot<B>(&self, caller: &Caller, request: Request<B>) -> Response<Said>
    where
        B: Body<Data = Bytes> + Send + 'static,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let drawn = self.draw(caller, request).await;
        drawn.unwrap_or_else(Fault::written)
    }

    /// Answers what is not there yet.
    pub(super) fn unbuilt<B>(&self, action: &str, request: &Request<B>) -> Response<Said> {
        let fault = match *request.method() {
            Method::POST => Fault::unbuilt(action),
            _ => Fault::method(),
        };
        fault.written()
    }

    async fn draw<B>(&self, caller: &Caller, request: Request<B>) -> Result<Response<Said>, Fault>
    where
        B: Body<Data = Bytes> + Send + 'static,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        if request.method() != Method::POST {
            return Err(Fault::method());
        }
        let (head, body) = request.into_parts();
        is_json(&head.headers)?;
        let query = Query::read(&head.uri)?;
        let read = timeout(BODY_TIME_MAX, self.quick.read(body)).await;
        let read = read.map_err(|_| Fault::late())??;
        let object = object(&read.bytes)?;
        let policy = guardrails::policy(&caller.account, &self.lists, None).await;
        let policy = policy.map_err(|fault| Fault::bad(fault.text))?;
        let key = key(caller, &object, &query.rest);
        let asked = order::screenshot(Fields::new(object), query.ttl);
        let asked = asked.map_err(Fault::body)?;
        // What the order holds of it is bounded by what it was.
        let Read { bytes, _room } = read;
        drop(bytes);
        let start = || {
            let account = &caller.account;
            let wanted = Wanted {
                ask: Ask {
                    request: RequestId(chance::name()),
                    account: account.id,
                    limits: account.limits,
                    weight: account.weight,
                    stock: Stock::default(),
                    class: Class::QuickAction,
                    paid: false,
                    keep_alive: quick::KEEP_ALIVE,
                    wait: query.wait,
                    only: None,
                },
                policy,
                order: asked.order.clone(),
                ceiling: asked.ceiling(),
            };
            let hosts = Arc::clone(self.sessions.hosts());
            quick::start(Arc::clone(self.broker.shared()), hosts, wanted)
        };
        let Some(key) = key.filter(|_| !asked.ttl.is_zero()) else {
            let outcome = start().outcome().await;
            return answer(&asked, &outcome, false);
        };
        match self
            .quick
            .cache
            .find(&key, asked.ttl, Instant::now(), start)
        {
            Found::Picture(picture) => Ok(shown(&asked, picture, Duration::ZERO, true)),
            Found::UnderWay(waiting) => self.shared(&asked, &key, &waiting, true).await,
            Found::Started(waiting) => self.shared(&asked, &key, &waiting, false).await,
        }
    }

    /// Waits for a picture that others may wait for too.
    async fn shared(
        &self,
        asked: &Asked,
        key: &Arc<str>,
        waiting: &Waiting,
        hit: bool,
    ) -> Result<Response<Said>, Fault> {
        let outcome = waiting.outcome().await;
        if let Ok(picture) = &outcome.picture {
            let now = Instant::now();
            self.quick.cache.keep(key, picture, asked.ttl, now);
        }
        answer(asked, &outcome, hit)
    }
}

impl Quick {
    /// Reads a body, as far as there is room for it.
    async fn read<B>(&self, body: B) -> Result<Read, Fault>
    where
        B: Body<Data = Bytes> + Send + 'static,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let mut body = std::pin::pin!(body);
        if body.size_hint().lower() > BODY_MAX as u64 {
            return Err(Fault::large());
        }
        let mut bytes = Vec::new();
        let mut room: Option<OwnedSemaphorePermit> = None;
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|fault| Fault::bad(format!("body: {}", fault.into())))?;
            let Ok(data) = frame.into_data() else {
                continue;
            };
            if bytes.len() + data.len() > BODY_MAX {
                return Err(Fault::large());
            }
            bytes.extend_from_slice(&data);
            let wanted = bytes.len().div_ceil(PIECE);
            let held = room.as_ref().map_or(0, OwnedSemaphorePermit::num_permits);
            if wanted > held {
                let more = u32::try_from(wanted - held).unwrap_or(u32::MAX);
                let more = Arc::clone(&self.room).try_acquire_many_owned(more);
                let more = more.map_err(|_| Fault::no_room())?;
                match &mut room {
                    Some(room) => room.merge(more),
                    None => room = Some(more),
                }
            }
        }
        Ok(Read { bytes, _room: room })
    }
}

/// Whether a body is what it should be. One without a type is taken for that.
fn is_json(headers: &HeaderMap) -> Result<(), Fault> {
    let Some(kind) = headers.get(CONTENT_TYPE) else {
        return Ok(());
    };
    let text = kind.to_str().unwrap_or_default();
    let essence = text.split(';').next().unwrap_or_default().trim();
    let json = essence.eq_ignore_ascii_case("application/json");
    match json || essence.to_ascii_lowercase().ends_with("+json") {
        true => Ok(()),
        false => Err(Fault::bad(format!(
            "content-type {text:.100}: application/json is expected"
        ))),
    }
}

/// What stands in the query.
#[derive(Debug)]
struct Query {
    /// For how long an answer may be kept, in seconds.
    ttl: Option<u64>,
    /// How long to stand in line for a browser.
    wait: Option<Duration>,
    /// What is part of the question, in an order of its own.
    rest: Vec<(String, String)>,
}

impl Query {
    fn read(uri: &Uri) -> Result<Query, Fault> {
        let pairs = url::form_urlencoded::parse(uri.query().unwrap_or_default().as_bytes());
        let (mut ttl, mut wait, mut rest) = (None, None, Vec::new());
        for (name, value) in pairs.into_owned().filter(|(_, value)| !value.is_empty()) {
            match name.as_str() {
                "cacheTTL" => {
                    let read = value.parse::<u64>().ok().filter(|secs| *secs <= 86_400);
                    let bad = || Fault::bad(format!("cacheTTL {value:.40}: 0 to 86400 seconds"));
                    ttl = Some(read.ok_or_else(bad)?);
                }
                "wait" => {
                    let read = super::acquire::wait(&value);
                    wait = Some(read.map_err(|fault| Fault::bad(fault.text))?);
                }
                "browser" => {
                    let text = format!("browser {value:?} is not available here");
                    return Err(Fault::bad(text));
                }
                _ => rest.push((name, value)),
            }
        }
        rest.sort();
        Ok(Query { ttl, wait, rest })
    }
}

fn object(body: &[u8]) -> Result<Map<String, Value>, Fault> {
    if values(body) > VALUES_MAX {
        let text = format!("body: more than {VALUES_MAX} values");
        return Err(Fault::bad(text));
    }
    match serde_json::from_slice(body) {
        Ok(Value::Object(object)) => Ok(object),
        Ok(_) => Err(Fault::bad("body: an object is expected")),
        Err(fault) => Err(Fault::bad(format!("body: {fault}"))),
    }
}

/// How many values a text has at most, without reading it.
fn values(body: &[u8]) -> usize {
    let (mut count, mut inside, mut escaped) = (0, false, false);
    for &byte in body {
        match (inside, byte) {
            (true, _) if escaped => escaped = false,
            (true, b'\\') => escaped = true,
            (_, b'"') => inside = !inside,
            (false, b',' | b'[' | b'{') => count += 1,
            _ => {}
        }
    }
    count
}

/// What a kept answer is found by; `None` where that is too long. The same body in another order of
/// its fields is the same.
fn key(caller: &Caller, body: &Map<String, Value>, query: &[(String, String)]) -> Option<Arc<str>> {
    let mut key = format!("{:?} screenshot {query:?} ", caller.account.id);
    let mut names: Vec<&String> = body.keys().filter(|name| *name != "cacheTTL").collect();
    names.sort();
    for name in names {
        write(&mut key, &Value::String(name.clone()));
        key.push(':');
        write(&mut key, &body[name]);
        if key.len() > KEY_MAX {
            return None;
        }
    }
    Some(key.into())
}

/// Goes no further once it is longer than a key may be: a body is a thousand times as long.
fn write(key: &mut String, value: &Value) {
    if key.len() > KEY_MAX {
        return;
    }
    match value {
        // However it is written, it is too long.
        Value::String(text) if text.len() > KEY_MAX => key.extend(text.chars().take(KEY_MAX + 1)),
        Value::Array(list) => {
            key.push('[');
            for value in list {
                write(key, value);
                key.push(',');
            }
            key.push(']');
        }
        Value::Object(object) => {
            let mut names: Vec<&String> = object.keys().collect();
            names.sort();
            key.push('{');
            for name in names {
                write(key, &Value::String(name.clone()));
                key.push(':');
                write(key, &object[name]);
                key.push(',');
            }
            key.push('}');
        }
        plain => key.push_str(&plain.to_string()),
    }
}

fn answer(asked: &Asked, outcome: &Outcome, hit: bool) -> Result<Response<Said>, Fault> {
    // Whoever waited with somebody else pays nothing and used nothing.
    let used = if hit { Duration::ZERO } else { outcome.used };
    match &outcome.picture {
        Ok(picture) => Ok(shown(asked, picture.clone(), used, hit)),
        Err(why) => Err(Fault::of(why, used)),
    }
}

fn shown(asked: &Asked, picture: Bytes, used: Duration, hit: bool) -> Response<Said> {
    let kind = match asked.order.format {
        Format::Png => "image/png",
        Format::Jpeg => "image/jpeg",
        Format::Webp => "image/webp",
    };
    let mut response = match asked.base64 {
        true => {
            let text = format!("data:{kind};base64,{}", STANDARD.encode(&picture));
            Said::whole("text/plain", text.into())
        }
        false => Said::whole(kind, picture),
    };
    let headers = response.headers_mut();
    tell_used(headers, used);
    if hit {
        headers.insert("usher-cache", HeaderValue::from_static("hit"));
    }
    for warning in &asked.warnings {
        // Names of fields may have letters that no header may.
        let shown: String = warning
            .chars()
            .map(|letter| {
                if letter.is_ascii_graphic() || letter == ' ' {
                    letter
                } else {
                    '?'
                }
            })
            .take(500)
            .collect();
        if let Ok(value) = HeaderValue::try_from(shown) {
            headers.append("usher-warning", value);
        }
    }
    response
}

/// How long browsers worked.
fn tell_used(headers: &mut HeaderMap, used: Duration) {
    let millis = u64::try_from(used.as_millis()).unwrap_or(u64::MAX);
    headers.insert("x-browser-ms-used", HeaderValue::from(millis));
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn values_are_counted_without_reading_them() {
        for (body, count) in [
            ("{}", 1),
            (r#"{"a":[1,2,"x,[{"],"b\"":","}"#, 5),
            ("[[[[", 4),
            ("\"", 0),
        ] {
            assert_eq!(values(body.as_bytes()), count, "{body}");
        }
        let many = format!("[{}1]", "1,".repeat(VALUES_MAX));
        assert!(object(many.as_bytes()).is_err());
    }

    #[test]
    fn a_key_is_the_same_in_any_order() {
        let of = |value: &Value| {
            let mut key = String::new();
            write(&mut key, value);
            key
        };
        let one = json!({"a": 1, "b": {"c": [1, 2], "d": "x"}});
        let same = json!({"b": {"d": "x", "c": [1, 2]}, "a": 1});
        let other = json!({"b": {"d": "x", "c": [2, 1]}, "a": 1});
        assert_eq!(of(&one), of(&same));
        assert_ne!(of(&one), of(&other));
    }

    #[test]
    fn the_query_says_how_long_and_the_rest_is_part_of_the_question() {
        let of = |text: &str| Query::read(&text.parse().expect("a path"));
        let read = of("/screenshot?b=2&cacheTTL=7&wait=2s&a=1&c=").expect("read");
        assert_eq!(
            (read.ttl, read.wait),
            (Some(7), Some(Duration::from_secs(2)))
        );
        let names: Vec<&str> = read.rest.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["a", "b"]);
        for bad in [
            "cacheTTL=x",
            "cacheTTL=86401",
            "browser=kitesurf",
            "wait=soon",
        ] {
            assert!(of(&format!("/screenshot?{bad}")).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_body_says_what_it_is() {
        let with = |kind: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
            is_json(&headers).is_ok()
        };
        assert!(is_json(&HeaderMap::new()).is_ok());
        assert!(with("application/json; charset=utf-8") && with("Application/JSON"));
        assert!(with("application/problem+json"));
        assert!(!with("text/plain") && !with("multipart/form-data") && !with(""));
    }
}
