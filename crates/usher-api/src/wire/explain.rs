//! A question to the decision core, and its answer as the object that scripts rely on.
//!
//! `usher explain` and `POST /client/v4/usher/explain` both end here, and here is the call that
//! traffic makes: there is no second way to decide.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use http::{HeaderName, HeaderValue, Uri};
use serde_json::{Map, Value, json};
use usher_core::affinity::{Pin, PinKey, Pins};
use usher_core::assume::{Assumption, AssumptionFault};
use usher_core::catalog::BalancerIx;
use usher_core::decision::{Attempt, Decision, Forward, Response};
use usher_core::id::Id;
use usher_core::region::Place;
use usher_core::request::{Headers, Location, Request, Scheme};
use usher_core::snapshot::{Counts, Snapshot};
use usher_core::time::{Mono, Wall};
use usher_rooms::door::{Fate, Foretold};
use usher_rooms::route::Ambiguous;

use super::places::token;
use super::reader::{Fault, nearest};

/// The most assumptions of one question.
const ASSUMPTIONS_MAX: usize = 1_000;

/// What a decision looks at beside the snapshot and the request.
pub trait Surroundings: Counts {
    /// Where the visitor at `client` is, if a database knows.
    fn place(&self, client: IpAddr) -> Option<Place>;

    /// Whether there is a database that could know.
    fn locates(&self) -> bool;

    /// How many sessions there are with each endpoint, by its id, where any are known. May take as
    /// long as looking at a million of them does.
    fn sessions(&self) -> Arc<HashMap<Id, u64>>;

    /// The pins of the visitor who sends `headers`.
    fn pins<'a>(&'a self, headers: &'a dyn Headers) -> Box<dyn Pins + 'a>;

    /// What the waiting room that owns the request would say of it, if one does.
    ///
    /// # Errors
    /// By how its path is read, it is one room's or another's.
    fn room(&self, request: &Request<'_>) -> Result<Option<RoomSays>, Ambiguous>;
}

/// What a waiting room would say of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RoomSays {
    /// The room's name.
    pub name: String,
    /// Status of its waiting answers.
    pub status: u16,
    /// What it would say.
    pub foretold: Foretold,
}

struct Found<'a>(Box<dyn Pins + 'a>);

impl Pins for Found<'_> {
    fn in_cookie(&self, balancer: Id) -> Option<Pin> {
        self.0.in_cookie(balancer)
    }

    fn under_key(&self, key: PinKey) -> Option<Pin> {
        self.0.under_key(key)
    }
}

/// One hypothetical request.
#[derive(Debug, Clone, PartialEq)]
pub struct Question {
    /// The host that it asks for, as a front would see it.
    host: String,
    /// Path and query.
    uri: String,
    scheme: Scheme,
    method: String,
    headers: Vec<(String, String)>,
    client: IpAddr,
    assume: Vec<Assumption>,
    seed: Option<u64>,
    /// Fields that it has and nobody reads.
    notes: Vec<Fault>,
}

/// The fields of a question.
const FIELDS: [&str; 6] = ["url", "method", "headers", "from", "assume", "seed"];

impl Question {
    /// Reads `{"url", "method", "headers", "from", "assume", "seed"}`; all but `url` have defaults:
    /// `GET`, none, `127.0.0.1`, none, a random draw. Other fields are noted, and ignored.
    ///
    /// # Errors
    /// Every field that is wrong, with its JSON pointer.
    pub fn read(body: &Value) -> Result<Question, Vec<Fault>> {
        let Value::Object(fields) = body else {
            return Err(vec![wrong("", "the body is not an object")]);
        };
        let mut faults = Vec::new();
        let mut text = |name: &str| match fields.get(name) {
            None | Some(Value::Null) => None,
            Some(Value::String(text)) => Some(text.as_str()),
            Some(_) => {
                faults.push(wrong(format!("/{name}"), format!("{name} is not a string")));
                None
            }
        };
        let url = text("url").map(str::to_owned);
        let method = text("method").unwrap_or("GET").to_ascii_uppercase();
        let from = text("from").map(str::to_owned);

        let url = match url.as_deref().map(split) {
            None if fields.get("url").is_none_or(Value::is_null) => {
                faults.push(wrong("/url", "url is required"));
                None
            }
            None => None,
            Some(Ok(parts)) => Some(parts),
            Some(Err(what)) => {
                faults.push(wrong("/url", what));
                None
            }
        };
        let client = match from.as_deref().map(str::parse) {
            None => IpAddr::V4(Ipv4Addr::LOCALHOST),
            Some(Ok(client)) => client,
            Some(Err(_)) => {
                let what = format!("from {:?} is not an IP address", from.unwrap_or_default());
                faults.push(wrong("/from", what));
                IpAddr::V4(Ipv4Addr::LOCALHOST)
            }
        };
        if http::Method::from_bytes(method.as_bytes()).is_err() {
            faults.push(wrong(
                "/method",
                format!("method {method:?} is not a token"),
            ));
        }
        let mut headers = headers(fields.get("headers"), &mut faults);
        let assume = assumptions(fields.get("assume"), &mut faults);
        let seed = match fields.get("seed") {
            None | Some(Value::Null) => None,
            Some(seed) => {
                if seed.as_u64().is_none() {
                    let what = format!("seed {seed} is not an integer in 0..{}", u64::MAX);
                    faults.push(wrong("/seed", what));
                }
                seed.as_u64()
            }
        };
        match url {
            Some((scheme, authority, uri)) if faults.is_empty() => Ok(Question {
                host: match host_of(&headers) {
                    Some(host) => bare_host(host),
                    None => {
                        // As a visitor would send it: conditions may look at it.
                        let host = bare_host(&authority);
                        headers.insert(0, ("Host".to_owned(), authority));
                        host
                    }
                },
                uri,
                scheme,
                method,
                headers,
                client,
                assume,
                seed,
                notes: unknown(fields),
            }),
            _ => Err(faults),
        }
    }

    /// What is odd about it, and no fault.
    #[must_use]
    pub fn notes(&self) -> &[Fault] {
        &self.notes
    }

    /// Decides it with `snapshot` under its assumptions. `draw` is the chance when the question
    /// fixes none.
    ///
    /// # Errors
    /// Assumptions about things that do not exist.
    pub fn answer(
        &self,
        snapshot: &Snapshot,
        around: &impl Surroundings,
        now: Mono,
        draw: u64,
    ) -> Result<Value, Vec<Fault>> {
        let assumed = snapshot.assume(&self.assume);
        let snapshot = assumed.map_err(|fault| vec![wrong("/assume", fault.to_string())])?;
        let draw = self.seed.unwrap_or(draw);
        if matches!(&*self.method, "CONNECT" | "TRACE") {
            let text = format!("{} is refused, whatever it asks for", self.method);
            let steps = json!([{"step": "method", "text": text}]);
            return Ok(refused(405, "method-not-allowed", steps, &snapshot, draw));
        }
        let time = wall();
        let (location, whence) = self.location(&snapshot, around);
        let request = Request {
            host: &self.host,
            method: &self.method,
            uri: &self.uri,
            scheme: self.scheme,
            client: self.client,
            version: "HTTP/1.1",
            headers: &self.headers,
            location,
            time,
            draw,
        };
        let whence = json!({"step": "location", "text": whence});
        // A visitor who is to come back over HTTPS is told so first.
        let stays = self.scheme == Scheme::Https || !snapshot.redirects(&self.host);
        let room = match stays {
            true => around.room(&request),
            false => Ok(None),
        };
        let kept_out = match &room {
            Ok(Some(says)) if says.keeps_out() => {
                Some(outside(says, whence.clone(), &snapshot, draw))
            }
            Ok(_) => None,
            Err(ambiguous) => {
                let step = json!({"step": "room", "text": ambiguous.to_string()});
                let steps = json!([whence, step]);
                Some(refused(400, Ambiguous::WORD, steps, &snapshot, draw))
            }
        };
        if let Some(mut answer) = kept_out {
            let balancer = snapshot.balancer_for(&self.host);
            let name = balancer.map(|balancer| &snapshot.catalog().balancer(balancer).name);
            answer["load_balancer"] = json!(name);
            return Ok(answer);
        }
        let room = room.ok().flatten();
        let pins = Found(around.pins(&self.headers));
        let (decision, trace) = snapshot.explain(&request, around, &pins, now);
        let mut answer = outcome(&decision, &snapshot);
        if let Some(pin) = &trace.pin {
            answer["session"] =
                json!({"kind": pin.kind.name(), "kept": pin.kept, "reason": pin.reason});
        }
        if trace.approximate {
            answer["approximate"] = json!(true);
        }
        let pools = trace.pools.iter().map(|pool| {
            let mut told = json!({
                "name": pool.name,
                "usable": pool.usable,
                "state": pool.state.as_str(),
                "reason": pool.reason,
                "weight": number(pool.weight),
                "probability": number(pool.probability),
            });
            add(&mut told, "open", pool.open.map(f64::from));
            add(&mut told, "rtt_ms", pool.latency_ms);
            add(&mut told, "distance_km", pool.distance_km);
            add(&mut told, "shed", pool.shed);
            told
        });
        answer["pools"] = pools.collect();
        let endpoints = trace.endpoints.iter().map(|endpoint| {
            let mut told = json!({
                "name": endpoint.name,
                "usable": endpoint.usable,
                "state": endpoint.state.as_str(),
                "reason": endpoint.reason,
                "weight": number(endpoint.weight),
                "probability": number(endpoint.probability),
            });
            add(&mut told, "open", endpoint.open.map(f64::from));
            told
        });
        answer["endpoints"] = endpoints.collect();
        let steps = trace.steps.iter();
        let steps = steps.map(|step| json!({"step": step.kind.as_str(), "text": step.text}));
        let of_room = room.as_ref().map(RoomSays::step);
        answer["steps"] = [whence].into_iter().chain(of_room).chain(steps).collect();
        if let Some(says) = &room {
            answer["room"] = says.object();
            // What becomes of it after that is told as ever.
            if says.foretold.fate == Fate::Bypassed && answer["outcome"] == "forward" {
                answer["outcome"] = json!("bypass");
            }
        }
        answer["seed"] = json!(draw);
        answer["revision"] = json!(snapshot.revision());
        Ok(answer)
    }

    /// Where the request is taken to be, and who says so.
    fn location<'a>(
        &self,
        snapshot: &'a Snapshot,
        around: &impl Surroundings,
    ) -> (Location<'a>, String) {
        let node = snapshot.location();
        let found = around.place(self.client).map(|place| place.country);
        let assumed = |assumption: &Assumption| match assumption {
            Assumption::Country(country) => Some(*country),
            _ => None,
        };
        let assumed = self.assume.iter().rev().find_map(assumed);
        let country = assumed.or(found).or(node.country);
        let whence = match (assumed, found, country) {
            (Some(_), ..) => "by assumption",
            (None, Some(_), _) => "by the geo database",
            (None, None, _) if around.locates() => {
                "that of the node: the geo database does not know the address"
            }
            (None, None, _) => "that of the node: no geo database is set",
        };
        let shown = country.map_or("unknown".to_owned(), |country| country.to_string());
        let text = format!(
            "country of the visitor at {}: {shown}, {whence}; the node is {}{}",
            self.client,
            node.node,
            node.region.map_or_else(String::new, |region| format!(
                " in region {}",
                region.code()
            )),
        );
        (Location { country, ..node }, text)
    }
}

impl RoomSays {
    fn keeps_out(&self) -> bool {
        matches!(self.foretold.fate, Fate::Queued | Fate::Rejected)
    }

    fn object(&self) -> Value {
        let Foretold { fate, position, .. } = &self.foretold;
        json!({"name": self.name, "state": fate.word(), "position": position})
    }

    fn step(&self) -> Value {
        let Foretold {
            fate,
            position,
            why,
        } = &self.foretold;
        let what = match fate {
            Fate::Bypassed | Fate::Untouched => "passes without a seat",
            Fate::Active => "passes by its seat",
            Fate::Admitted => "is let in",
            Fate::Queued => "waits",
            Fate::Rejected => "is turned away",
        };
        let place = position.map_or_else(String::new, |place| format!(" at place {place}"));
        let text = format!("waiting room {}: {what}{place}: {why}", self.name);
        json!({"step": "room", "text": text})
    }
}

/// What the front refuses before it asks where to send a request.
fn refused(status: u16, reason: &str, steps: Value, snapshot: &Snapshot, draw: u64) -> Value {
    json!({
        "outcome": "refuse", "status": status, "reason": reason,
        "load_balancer": null, "pool": null, "fallback": false, "endpoint": null, "retry": null,
        "session": null, "room": null, "pools": [], "endpoints": [],
        "steps": steps,
        "seed": draw, "revision": snapshot.revision(),
    })
}

/// What is told of a request that no endpoint sees, because a waiting room keeps it out.
fn outside(says: &RoomSays, whence: Value, snapshot: &Snapshot, draw: u64) -> Value {
    let outcome = match says.foretold.fate {
        Fate::Rejected => "reject",
        _ => "wait",
    };
    json!({
        "outcome": outcome, "status": says.status,
        "load_balancer": null, "pool": null, "fallback": false, "endpoint": null, "retry": null,
        "session": null, "room": says.object(), "pools": [], "endpoints": [],
        "steps": [whence, says.step()],
        "seed": draw, "revision": snapshot.revision(),
    })
}

/// What the clock on the wall shows.
pub(crate) fn wall() -> Wall {
    let time = SystemTime::now().duration_since(UNIX_EPOCH);
    Wall::from_millis(time.map_or(0, |since| since.as_millis() as i64))
}

/// A note for each field that a question does not have.
fn unknown(fields: &Map<String, Value>) -> Vec<Fault> {
    let unknown = fields.keys().filter(|key| !FIELDS.contains(&key.as_str()));
    let note = |key: &String| {
        let near = nearest(key, FIELDS.into_iter());
        let near = near.map(|near| format!("; the nearest known key is {near:?}"));
        Fault {
            at_key: true,
            ..wrong(
                format!("/{}", token(key)),
                format!("unknown key {key:?}{}", near.unwrap_or_default()),
            )
        }
    };
    unknown.map(note).collect()
}

fn wrong(pointer: impl Into<String>, message: impl Into<String>) -> Fault {
    Fault {
        pointer: pointer.into(),
        at_key: false,
        inside: 0,
        place: String::new(),
        message: message.into(),
    }
}

/// The keys that say what happens.
fn outcome(decision: &Decision, snapshot: &Snapshot) -> Value {
    let name = |balancer: BalancerIx| snapshot.catalog().balancer(balancer).name.clone();
    let mut answer = json!({
        "outcome": null, "status": null,
        "load_balancer": null, "pool": null, "fallback": false, "endpoint": null, "retry": null,
        "session": null, "room": null,
    });
    match *decision {
        Decision::Forward(Forward {
            balancer, attempts, ..
        }) => {
            answer["outcome"] = json!("forward");
            answer["load_balancer"] = json!(name(balancer));
            answer["pool"] = json!(snapshot.pool(attempts.first.pool).name);
            answer["fallback"] = json!(attempts.first.fallback);
            answer["endpoint"] = endpoint(snapshot, balancer, attempts.first);
            if let Some(retry) = attempts.retry {
                answer["retry"] = endpoint(snapshot, balancer, retry);
                answer["retry"]["pool"] = json!(snapshot.pool(retry.pool).name);
            }
        }
        Decision::Respond { balancer, with } => {
            answer["outcome"] = json!("respond");
            answer["load_balancer"] = json!(name(balancer));
            answer["status"] = match with {
                Response::RedirectToHttps => json!(301),
                Response::Fixed(source) => {
                    json!(snapshot.fixed_response(balancer, source).status)
                }
            };
        }
        Decision::Refuse { balancer, reason } => {
            answer["outcome"] = json!("refuse");
            answer["load_balancer"] = json!(balancer.map(name));
            answer["status"] = json!(reason.status());
            answer["reason"] = json!(reason.as_str());
        }
    }
    answer
}

fn endpoint(snapshot: &Snapshot, balancer: BalancerIx, attempt: Attempt) -> Value {
    let view = snapshot.endpoint(attempt.endpoint);
    json!({
        "name": view.name,
        "address": view.address.to_string(),
        "port": snapshot.transport(balancer, attempt.endpoint).port,
    })
}

/// What steering looked at, where it did.
fn add(told: &mut Value, key: &str, value: Option<f64>) {
    if let Some(value) = value {
        told[key] = number(value);
    }
}

/// A whole number without a fraction: 1, not 1.0.
pub(super) fn number(value: f64) -> Value {
    // Everything told is small enough for the cast to be exact.
    if value.fract() == 0.0 {
        json!(value as i64)
    } else {
        json!(value)
    }
}

/// Scheme, authority, and path with query of an absolute URL.
fn split(url: &str) -> Result<(Scheme, String, String), String> {
    let not = |what: &str| format!("url {url:?} {what}");
    let uri: Uri = url.parse().map_err(|_| not("is not a URL"))?;
    let scheme = match uri.scheme_str() {
        Some("http") => Scheme::Http,
        Some("https") => Scheme::Https,
        _ => return Err(not("does not start with http:// or https://")),
    };
    let authority = uri.authority().ok_or_else(|| not("names no host"))?;
    let path = uri.path_and_query().map_or("/", |path| path.as_str());
    // What a visitor does not send.
    let authority = authority
        .as_str()
        .rsplit_once('@')
        .map_or(authority.as_str(), |(_, host)| host);
    Ok((scheme, authority.to_owned(), path.to_owned()))
}

/// The host of an authority as a front compares it: lower case, no port, no final dot.
fn bare_host(authority: &str) -> String {
    let host = match authority.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => authority,
    };
    host.strip_suffix('.').unwrap_or(host).to_ascii_lowercase()
}

fn host_of(headers: &[(String, String)]) -> Option<&str> {
    let mut hosts = headers
        .iter()
        .filter(|(name, _)| name.eq_ignore_ascii_case("host"));
    hosts.next_back().map(|(_, value)| value.as_str())
}

fn headers(headers: Option<&Value>, faults: &mut Vec<Fault>) -> Vec<(String, String)> {
    let headers = match headers {
        None | Some(Value::Null) => return Vec::new(),
        Some(Value::Object(headers)) => headers,
        Some(_) => {
            faults.push(wrong("/headers", "headers is not an object of strings"));
            return Vec::new();
        }
    };
    let mut lines = Vec::new();
    for (name, value) in headers {
        if HeaderName::from_bytes(name.as_bytes()).is_err() {
            let pointer = format!("/headers/{}", token(name));
            faults.push(wrong(
                pointer,
                format!("header name {name:?} is not a token"),
            ));
        }
        match value.as_str() {
            Some(value) if HeaderValue::from_str(value).is_err() => {
                let pointer = format!("/headers/{}", token(name));
                faults.push(wrong(
                    pointer,
                    format!("header {name:?} has a control character"),
                ));
            }
            Some(value) => lines.push((name.clone(), value.to_owned())),
            None => {
                let pointer = format!("/headers/{}", token(name));
                faults.push(wrong(pointer, format!("header {name:?} is not a string")));
            }
        }
    }
    lines
}

fn assumptions(assume: Option<&Value>, faults: &mut Vec<Fault>) -> Vec<Assumption> {
    let items = match assume {
        None | Some(Value::Null) => return Vec::new(),
        Some(Value::Array(items)) if items.len() <= ASSUMPTIONS_MAX => items,
        Some(Value::Array(items)) => {
            let what = format!(
                "number of assumptions {} is outside 0..{ASSUMPTIONS_MAX}",
                items.len()
            );
            faults.push(wrong("/assume", what));
            return Vec::new();
        }
        Some(_) => {
            faults.push(wrong("/assume", "assume is not a list of strings"));
            return Vec::new();
        }
    };
    let mut assumptions = Vec::new();
    for (place, item) in items.iter().enumerate() {
        match item.as_str().map(str::parse) {
            Some(Ok(assumption)) => assumptions.push(assumption),
            Some(Err(fault)) => {
                let fault: AssumptionFault = fault;
                faults.push(wrong(format!("/assume/{place}"), fault.to_string()));
            }
            None => faults.push(wrong(format!("/assume/{place}"), "is not a string")),
        }
    }
    assumptions
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_question_with_everything() {
        let body = json!({
            "url": "https://Shop.Example.com.:8443/sale?x=1", "method": "post",
            "headers": {"Accept": "text/html"}, "from": "2001:db8::1",
            "assume": ["pool eu=critical"], "seed": 7,
        });
        let question = Question::read(&body).expect("valid");
        assert_eq!(question.host, "shop.example.com");
        assert_eq!(question.uri, "/sale?x=1");
        let sent = ("Host".to_owned(), "Shop.Example.com.:8443".to_owned());
        assert_eq!(question.headers[0], sent);
        assert_eq!(question.scheme, Scheme::Https);
        assert_eq!(question.method, "POST");
        assert_eq!(question.assume.len(), 1);
        assert_eq!(question.seed, Some(7));
    }

    #[test]
    fn fields_that_nobody_reads_are_noted() {
        let body = json!({"url": "http://a.example.com/", "asume": [], "zzzzzzzz": 1});
        let question = Question::read(&body).expect("valid");
        let notes: Vec<String> = question.notes().iter().map(ToString::to_string).collect();
        assert_eq!(
            notes,
            [
                "unknown key \"asume\"; the nearest known key is \"assume\"",
                "unknown key \"zzzzzzzz\""
            ]
        );
        assert_eq!(question.notes()[0].pointer, "/asume");
    }

    #[test]
    fn a_host_header_stands_above_the_url() {
        let body = json!({"url": "http://192.0.2.1/", "headers": {"host": "Shop.example.com:80"}});
        assert_eq!(
            Question::read(&body).expect("valid").host,
            "shop.example.com"
        );
    }

    #[test]
    fn every_fault_is_named_with_its_place() {
        let body = json!({
            "url": "ftp://example.com/", "method": "a b", "headers": {"a/b": 1}, "from": "me",
            "assume": ["pool eu=purple", 3], "seed": -1,
        });
        let faults = Question::read(&body).expect_err("all wrong");
        let pointers: Vec<&str> = faults.iter().map(|fault| fault.pointer.as_str()).collect();
        assert_eq!(
            pointers,
            [
                "/url",
                "/from",
                "/method",
                "/headers/a~1b",
                "/headers/a~1b",
                "/assume/0",
                "/assume/1",
                "/seed"
            ]
        );
    }

    #[test]
    fn what_is_no_question() {
        for body in [
            json!(null),
            json!([]),
            json!({}),
            json!({"url": null}),
            json!({"url": 4}),
        ] {
            assert!(Question::read(&body).is_err(), "{body}");
        }
    }
}
