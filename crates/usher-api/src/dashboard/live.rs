//! What an open page is told without asking: the state of the node, and its figures each second.
//!
//! One task samples for every page, so that ten pages cost little more than one. The last minutes
//! of figures are kept, and a page that opens gets them at once. A page that reads slowly misses
//! samples; it never makes another wait, and nothing is queued for it but the newest.

use std::collections::{BTreeMap, VecDeque};
use std::convert::Infallible;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use axum::Router;
use axum::extract::{Path, State};
use axum::response::sse::{Event, Sse};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use futures_util::stream;
use http::HeaderMap;
use http::StatusCode;
use serde_json::{Map, Value, json};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use usher_core::time::Mono;

use super::Dashboard;
use crate::access::Product;
use crate::envelope::{ApiError, envelope, ok};
use crate::server::{Control, state_of};
use crate::wire::browsers;
use crate::wire::explain::wall;

/// Between two looks at the revision: a state is sent at most this often.
const BEAT: Duration = Duration::from_millis(500);

/// Beats between two samples of the figures.
const BEATS_PER_FIGURES: u64 = 2;

/// Beats after which a state is sent even if its revision is the same: sessions and what is left
/// of drains change without one.
const BEATS_PER_STATE: u64 = 10;

/// Samples that are kept: ten minutes.
const HISTORY_MAX: usize = 600;

/// Streams at once; one more is asked to come again.
const STREAMS_MAX: usize = 64;

/// What a node has counted since it started.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Figures {
    /// Requests under way now.
    pub in_flight: u32,
    /// Requests that were answered, by (load balancer, pool, endpoint); a name that does not apply
    /// is empty.
    pub answers: BTreeMap<(String, String, String), Answers>,
    /// How long answers took, by load balancer: as many as fell into each class.
    pub times: BTreeMap<String, Vec<u64>>,
    /// Upper bounds of the classes in seconds, ascending. There is one class more, without a bound.
    pub bounds: &'static [f64],
}

/// A count of answers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Answers {
    /// All of them.
    pub all: u64,
    /// Those with a status of 500 or more.
    pub errors_5xx: u64,
}

impl std::ops::AddAssign for Answers {
    fn add_assign(&mut self, more: Answers) {
        self.all += more.all;
        self.errors_5xx += more.errors_5xx;
    }
}

impl Answers {
    /// Since `before`; counts that began anew since then are taken whole.
    fn since(self, before: Answers) -> Answers {
        Answers {
            all: self.all.checked_sub(before.all).unwrap_or(self.all),
            errors_5xx: (self.errors_5xx.checked_sub(before.errors_5xx)).unwrap_or(self.errors_5xx),
        }
    }

    fn told(self, seconds: f64) -> Value {
        json!({
            "requests": per(self.all, seconds),
            "errors_5xx": per(self.errors_5xx, seconds),
        })
    }
}

/// Between two samples: requests a second, and how long they took.
fn between(before: &Figures, now: &Figures, seconds: f64) -> Value {
    let mut total = Answers::default();
    let mut balancers: BTreeMap<&str, Answers> = BTreeMap::new();
    let mut pools: BTreeMap<&str, (Answers, Map<String, Value>)> = BTreeMap::new();
    let mut endpoints: BTreeMap<(&str, &str), Answers> = BTreeMap::new();
    for (path, answers) in &now.answers {
        let earlier = before.answers.get(path).copied().unwrap_or_default();
        let answers = answers.since(earlier);
        if answers.all == 0 {
            continue;
        }
        let (balancer, pool, endpoint) = (path.0.as_str(), path.1.as_str(), path.2.as_str());
        total += answers;
        if !balancer.is_empty() {
            *balancers.entry(balancer).or_default() += answers;
        }
        if !pool.is_empty() {
            pools.entry(pool).or_default().0 += answers;
            *endpoints.entry((pool, endpoint)).or_default() += answers;
        }
    }
    for ((pool, endpoint), answers) in endpoints {
        let told = answers.told(seconds);
        if let Some((_, endpoints)) = pools.get_mut(pool) {
            endpoints.insert(endpoint.to_owned(), told);
        }
    }
    let pools: Map<String, Value> = pools
        .into_iter()
        .map(|(name, (answers, endpoints))| {
            let mut told = answers.told(seconds);
            told["endpoints"] = Value::Object(endpoints);
            (name.to_owned(), told)
        })
        .collect();

    let mut all = vec![0; now.bounds.len() + 1];
    let mut balancers_told = Map::new();
    for (name, classes) in &now.times {
        let earlier = before.times.get(name).map_or(&[][..], Vec::as_slice);
        let mut new: Vec<u64> = classes.clone();
        for (class, earlier) in new.iter_mut().zip(earlier) {
            *class = class.saturating_sub(*earlier);
        }
        all.iter_mut().zip(&new).for_each(|(all, new)| *all += *new);
        if let Some(answers) = balancers.get(name.as_str()) {
            let mut told = answers.told(seconds);
            told["p50_ms"] = quantile(now.bounds, &new, 0.5);
            told["p99_ms"] = quantile(now.bounds, &new, 0.99);
            balancers_told.insert(name.clone(), told);
        }
    }
    let mut told = total.told(seconds);
    told["p50_ms"] = quantile(now.bounds, &all, 0.5);
    told["p99_ms"] = quantile(now.bounds, &all, 0.99);
    told["in_flight"] = json!(now.in_flight);
    told["load_balancers"] = Value::Object(balancers_told);
    told["pools"] = Value::Object(pools);
    told
}

/// A rate with one decimal.
fn per(count: u64, seconds: f64) -> f64 {
    if seconds <= 0.0 {
        return 0.0;
    }
    (count as f64 / seconds * 10.0).round() / 10.0
}

/// The `part`-quantile in ms, straight between the bounds of the class that it falls into; null
/// without any. The class without a bound answers its lower one.
fn quantile(bounds: &[f64], classes: &[u64], part: f64) -> Value {
    let all: u64 = classes.iter().sum();
    if all == 0 {
        return Value::Null;
    }
    let rank = part * all as f64;
    let mut below = 0.0;
    for (place, &class) in classes.iter().enumerate() {
        let count = class as f64;
        if count > 0.0 && below + count >= rank {
            let lower = place.checked_sub(1).map_or(0.0, |before| bounds[before]);
            let upper = bounds.get(place).copied().unwrap_or(lower);
            let inside = ((rank - below) / count).clamp(0.0, 1.0);
            let seconds = lower + (upper - lower) * inside;
            return json!((seconds * 1e5).round() / 100.0);
        }
        below += count;
    }
    Value::Null
}

/// What all streams read from.
pub(crate) struct Live {
    control: Arc<dyn Control>,
    beat: watch::Sender<Beat>,
    history: Mutex<VecDeque<Arc<Value>>>,
    state: Mutex<Option<(Key, Arc<str>)>>,
    places: Arc<Semaphore>,
}

/// Which state a text shows.
type Key = (u64, u64);

#[derive(Debug, Clone, Default)]
struct Beat {
    number: u64,
    /// New with this beat.
    figures: Option<Arc<Value>>,
    /// How browsers stand, where there are some: with the figures.
    browsers: Option<Arc<str>>,
}

impl fmt::Debug for Live {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Live")
            .field("streams", &self.beat.receiver_count())
            .finish_non_exhaustive()
    }
}

impl Live {
    /// Samples until the last that holds it lets go.
    pub(super) fn start(control: &Arc<dyn Control>) -> Arc<Live> {
        let live = Arc::new(Live {
            control: Arc::clone(control),
            beat: watch::Sender::default(),
            history: Mutex::default(),
            state: Mutex::default(),
            places: Arc::new(Semaphore::new(STREAMS_MAX)),
        });
        tokio::spawn(sample(Arc::downgrade(&live), Arc::clone(control)));
        live
    }

    /// The state as text, made once for all who ask for the same.
    fn state(&self, beat: u64) -> (Key, Arc<str>) {
        let view = self.control.view();
        let key = (view.snapshot.revision(), beat / BEATS_PER_STATE);
        let mut kept = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        match &*kept {
            Some((known, text)) if *known == key => (key, Arc::clone(text)),
            _ => {
                let text: Arc<str> = state_of(&*self.control, &view).to_string().into();
                *kept = Some((key, Arc::clone(&text)));
                (key, text)
            }
        }
    }

    fn history(&self) -> Vec<Arc<Value>> {
        let history = self.history.lock().unwrap_or_else(PoisonError::into_inner);
        history.iter().cloned().collect()
    }
}

async fn sample(live: Weak<Live>, control: Arc<dyn Control>) {
    let mut ticks = tokio::time::interval(BEAT);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut last: (Mono, Figures) = (control.now(), control.figures());
    for number in 1.. {
        ticks.tick().await;
        let Some(live) = live.upgrade() else { return };
        let (mut figures, mut standing) = (None, None);
        if number % BEATS_PER_FIGURES == 0 {
            let now = (control.now(), control.figures());
            let seconds = now.0.since(last.0).as_secs_f64();
            let told = Arc::new(with_counts(&*control, between(&last.1, &now.1, seconds)));
            last = now;
            let mut history = live.history.lock().unwrap_or_else(PoisonError::into_inner);
            if history.len() == HISTORY_MAX {
                history.pop_front();
            }
            history.push_back(Arc::clone(&told));
            figures = Some(told);
            standing = stand(&*control);
        }
        live.beat.send_replace(Beat {
            number,
            figures,
            browsers: standing,
        });
    }
}

/// Adds the time, the requests under way at each endpoint that has some, and how rooms stand.
fn with_counts(control: &dyn Control, mut told: Value) -> Value {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    told["time"] = json!(since.map_or(0, |since| since.as_millis() as u64));
    let view = control.view();
    let rooms = view.snapshot.catalog().draft().rooms.iter();
    let rooms = rooms.map(|room| {
        let live = control.room(room.id).unwrap_or_default();
        (room.id.to_string(), live.figures())
    });
    told["rooms"] = Value::Object(rooms.collect());
    for pool in view.snapshot.pools() {
        let mut sum = 0;
        for (ix, endpoint, _) in pool.endpoints() {
            use usher_core::snapshot::Counts as _;
            let open = view.open_requests(ix);
            if open > 0 {
                told["pools"][pool.name]["endpoints"][&endpoint.name]["in_flight"] = json!(open);
                sum += open;
            }
        }
        if sum > 0 {
            told["pools"][pool.name]["in_flight"] = json!(sum);
        }
    }
    told
}

/// How browsers stand; nothing where there are none.
fn stand(control: &dyn Control) -> Option<Arc<str>> {
    let pools = control.browsers();
    (!pools.is_empty()).then(|| browsers::told(&pools, wall()).to_string().into())
}

/// Only what a chart shows.
fn brief(figures: &Value) -> Value {
    let keys = [
        "time",
        "requests",
        "errors_5xx",
        "p50_ms",
        "p99_ms",
        "in_flight",
    ];
    let parts = keys.map(|key| (key.to_owned(), figures[key].clone()));
    Value::Object(parts.into_iter().collect())
}

pub(super) fn routes<S: Clone + Send + Sync + 'static>(dashboard: &Dashboard) -> Router<S> {
    Router::new()
        .route("/client/v4/usher/live", get(live))
        .route(
            "/client/v4/usher/rooms/{room_id}/history",
            get(room_history),
        )
        .with_state(dashboard.clone())
}

/// The last minutes of one room, oldest first.
async fn room_history(
    State(dashboard): State<Dashboard>,
    Path(room): Path<String>,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    allowed(&*dashboard.control, &headers, Product::WaitingRooms)?;
    let history = dashboard.live.history();
    let samples = history.iter().filter_map(|told| {
        let mut sample = told["rooms"].get(&room)?.clone();
        sample["time"] = told["time"].clone();
        Some(sample)
    });
    let samples: Value = samples.collect();
    Ok(ok(envelope(&samples.to_string(), &[], None)))
}

/// Whether the caller may look: asked again with every beat, for a token may end.
fn allowed(control: &dyn Control, headers: &HeaderMap, product: Product) -> Result<(), ApiError> {
    let caller = control
        .access()
        .caller(headers, &control.desired().state())?;
    if caller.reads(product) {
        Ok(())
    } else {
        Err(ApiError::Forbidden)
    }
}

/// One stream.
struct Reader {
    live: Arc<Live>,
    headers: HeaderMap,
    beats: watch::Receiver<Beat>,
    shown: Option<Key>,
    /// Ready to go out.
    waiting: VecDeque<Event>,
    _place: OwnedSemaphorePermit,
}

async fn live(
    State(dashboard): State<Dashboard>,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    let control = &dashboard.control;
    allowed(&**control, &headers, Product::LoadBalancing)?;
    let live = Arc::clone(&dashboard.live);
    let Ok(place) = Arc::clone(&live.places).try_acquire_owned() else {
        return Ok((StatusCode::SERVICE_UNAVAILABLE, [("retry-after", "5")]).into_response());
    };
    let mut beats = live.beat.subscribe();
    let beat = beats.borrow_and_update().number;
    let history: Vec<Value> = live.history().iter().map(|told| brief(told)).collect();
    let (key, state) = live.state(beat);
    let mut waiting = VecDeque::from([
        Event::default().event("state").data(&*state),
        Event::default()
            .event("history")
            .data(Value::Array(history).to_string()),
    ]);
    if let Some(browsers) = stand(&**control)
        && allowed(&**control, &headers, Product::Browsers).is_ok()
    {
        waiting.push_back(Event::default().event("browsers").data(&*browsers));
    }
    let reader = Reader {
        live,
        headers,
        beats,
        shown: Some(key),
        waiting,
        _place: place,
    };
    let events = stream::unfold(reader, |mut reader| async move {
        let event = reader.next().await?;
        Some((Ok::<_, Infallible>(event), reader))
    });
    let mut answer = Sse::new(events).into_response();
    let fresh = http::HeaderValue::from_static("no-store");
    answer
        .headers_mut()
        .insert(http::header::CACHE_CONTROL, fresh);
    Ok(answer)
}

impl Reader {
    /// The next event; none when the stream is over: at a stop, and for a token that may no more.
    async fn next(&mut self) -> Option<Event> {
        loop {
            if let Some(event) = self.waiting.pop_front() {
                return Some(event);
            }
            self.beats.changed().await.ok()?;
            let beat = self.beats.borrow_and_update().clone();
            let control = &self.live.control;
            if control.stopping() {
                return None;
            }
            allowed(&**control, &self.headers, Product::LoadBalancing).ok()?;
            let (key, state) = self.live.state(beat.number);
            if self.shown != Some(key) {
                self.shown = Some(key);
                let event = Event::default().event("state").data(&*state);
                self.waiting.push_back(event);
            }
            if let Some(figures) = beat.figures {
                let event = Event::default().event("figures").data(figures.to_string());
                self.waiting.push_back(event);
            }
            // Names of sessions are for those who may see sessions.
            if let Some(browsers) = beat.browsers
                && allowed(&**control, &self.headers, Product::Browsers).is_ok()
            {
                let event = Event::default().event("browsers").data(&*browsers);
                self.waiting.push_back(event);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOUNDS: &[f64] = &[0.001, 0.01, 0.1];

    fn figures(answers: &[(&str, &str, &str, u64, u64)], classes: &[u64]) -> Figures {
        let answers = answers.iter().map(|&(balancer, pool, endpoint, all, bad)| {
            let path = (balancer.to_owned(), pool.to_owned(), endpoint.to_owned());
            let answers = Answers {
                all,
                errors_5xx: bad,
            };
            (path, answers)
        });
        Figures {
            in_flight: 3,
            answers: answers.collect(),
            times: BTreeMap::from([("shop".to_owned(), classes.to_vec())]),
            bounds: BOUNDS,
        }
    }

    #[test]
    fn what_lies_between_two_samples() {
        let before = figures(&[("shop", "eu", "a", 10, 1)], &[10, 0, 0, 0]);
        let now = figures(
            &[
                ("", "", "", 2, 0),
                ("shop", "eu", "a", 16, 2),
                ("shop", "eu", "b", 4, 0),
            ],
            &[10, 10, 0, 0],
        );
        let told = between(&before, &now, 2.0);
        assert_eq!(told["requests"], 6.0);
        assert_eq!(told["errors_5xx"], 0.5);
        assert_eq!(told["p50_ms"], 5.5);
        assert_eq!(told["in_flight"], 3);
        assert_eq!(told["load_balancers"]["shop"]["requests"], 5.0);
        assert_eq!(told["pools"]["eu"]["endpoints"]["a"]["requests"], 3.0);
        assert_eq!(told["pools"]["eu"]["endpoints"]["b"]["errors_5xx"], 0.0);
    }

    #[test]
    fn counts_that_began_anew_are_taken_whole() {
        let before = figures(&[("shop", "eu", "a", 10, 1)], &[10, 0, 0, 0]);
        let now = figures(&[("shop", "eu", "a", 4, 0)], &[4, 0, 0, 0]);
        assert_eq!(between(&before, &now, 1.0)["requests"], 4.0);
    }

    #[test]
    fn quantiles() {
        assert_eq!(quantile(BOUNDS, &[0, 0, 0, 0], 0.5), Value::Null);
        assert_eq!(quantile(BOUNDS, &[4, 0, 0, 0], 0.5), json!(0.5));
        assert_eq!(quantile(BOUNDS, &[0, 0, 0, 9], 0.99), json!(100.0));
        assert_eq!(quantile(BOUNDS, &[98, 0, 2, 0], 0.99), json!(55.0));
    }
}
