//! Previews: settings of a monitor are tried once on real endpoints, and nothing is kept of them
//! but what was seen, for an hour.
//!
//! What was seen lives in this process: it is an answer to one question, and neither a fact about
//! the endpoint nor anything that traffic goes by.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use http::Method;
use serde_json::{Map, Value, json};
use usher_core::catalog::{Monitor, Pool};
use usher_core::id::Id;
use usher_core::probe::{Probe, ProbeResult};
use usher_core::time::Mono;
use usher_store::Kind;

use super::desired::{Parsed, Shown, Whole};
use super::resource::found;
use super::{Call, Needs, Reply, Route, fields, health, pools, route, write};
use crate::access::Product;
use crate::envelope::{ApiError, messages};
use crate::server::Attempt;
use crate::wire::reader::{Mode, Report};

/// How long a preview can be asked for.
const KEPT: Duration = Duration::from_secs(60 * 60);

/// Previews that are kept; beyond that the oldest that is complete makes room, and if none is,
/// another one has to wait.
const PREVIEWS_MAX: usize = 64;

/// Endpoints of one preview.
const ENDPOINTS_MAX: usize = 4096;

/// What previews of this process have seen.
#[derive(Debug, Default)]
pub(crate) struct Previews(Mutex<HashMap<Id, Preview>>);

#[derive(Debug)]
struct Preview {
    asked: Mono,
    complete: bool,
    pools: Vec<Looked>,
}

/// One pool, and what its endpoints answered.
#[derive(Debug)]
struct Looked {
    pool: Id,
    endpoints_min: u32,
    endpoints: Vec<(String, Option<ProbeResult>)>,
}

impl Looked {
    fn of(pool: &Pool) -> Looked {
        let on = pool.endpoints.iter().filter(|endpoint| endpoint.enabled);
        Looked {
            pool: pool.id,
            endpoints_min: pool.endpoints_min,
            endpoints: on
                .map(|endpoint| (endpoint.address.to_string(), None))
                .collect(),
        }
    }

    fn shown(&self) -> Value {
        let seen = self.endpoints.iter();
        let seen: Vec<_> = seen
            .filter_map(|(address, result)| Some((address, result.as_ref()?)))
            .collect();
        let healthy = seen.iter().filter(|(_, result)| result.passed()).count();
        let origins = seen
            .iter()
            .map(|(address, result)| json!({*address: health::of_result(result)}));
        json!({
            "healthy": healthy > 0 && healthy >= self.endpoints_min as usize,
            "origins": origins.collect::<Vec<Value>>(),
        })
    }
}

impl Previews {
    /// Keeps a place for a preview, if there is one.
    fn begin(&self, id: Id, preview: Preview) -> Result<(), ApiError> {
        let mut all = self.all();
        let now = preview.asked;
        all.retain(|_, old| !old.complete || now.since(old.asked) < KEPT);
        if all.len() >= PREVIEWS_MAX {
            let complete = all.iter().filter(|(_, old)| old.complete);
            let oldest = complete
                .min_by_key(|(_, old)| old.asked)
                .map(|(id, _)| *id)
                .ok_or(ApiError::Limited(Duration::from_secs(1)))?;
            all.remove(&oldest);
        }
        all.insert(id, preview);
        Ok(())
    }

    fn saw(&self, id: Id, (pool, endpoint): (usize, usize), result: ProbeResult) {
        let mut all = self.all();
        let pool = all
            .get_mut(&id)
            .and_then(|preview| preview.pools.get_mut(pool));
        if let Some((_, seen)) = pool.and_then(|pool| pool.endpoints.get_mut(endpoint)) {
            *seen = Some(result);
        }
    }

    fn end(&self, id: Id) {
        if let Some(preview) = self.all().get_mut(&id) {
            preview.complete = true;
        }
    }

    fn shown(&self, id: Id, now: Mono) -> Option<Value> {
        let all = self.all();
        let preview = all
            .get(&id)
            .filter(|preview| now.since(preview.asked) < KEPT)?;
        let pools = preview.pools.iter();
        let pools: Map<String, Value> = pools
            .map(|looked| (looked.pool.to_string(), looked.shown()))
            .collect();
        Some(pools.into())
    }

    fn all(&self) -> MutexGuard<'_, HashMap<Id, Preview>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

pub(crate) fn routes() -> Vec<Route> {
    let bases = pools::BASES.into_iter();
    bases
        .map(|(base, prefix)| {
            route(
                Method::GET,
                &format!("{base}/preview/{{preview_id}}"),
                &format!("{prefix}get_preview"),
                "Shows what a preview has seen so far",
                Needs::Read(Product::LoadBalancing),
                |call| Box::pin(async move { show(&call) }),
            )
        })
        .collect()
}

/// `POST path/preview` of a monitor.
pub(crate) fn of_monitor(item: &str, prefix: &str) -> Route {
    begin(item, &format!("{prefix}preview_monitor"), |call| {
        Box::pin(async move { preview(&call, Kind::Monitor) })
    })
}

/// `POST path/preview` of a pool.
pub(crate) fn of_pool(item: &str, prefix: &str) -> Route {
    begin(item, &format!("{prefix}preview_pool"), |call| {
        Box::pin(async move { preview(&call, Kind::Pool) })
    })
}

fn begin(item: &str, operation: &str, run: super::Run) -> Route {
    route(
        Method::POST,
        &format!("{item}/preview"),
        operation,
        "Tries the settings of a monitor once, without keeping them",
        Needs::Edit(Product::LoadBalancing),
        run,
    )
    .with_body(fields::MONITOR)
}

fn show(call: &Call) -> Result<Reply, ApiError> {
    let shown = call.app.previews.shown(call.id(0)?, call.app.control.now());
    shown
        .map(|shown| Reply::result(&shown))
        .ok_or(ApiError::NotFound)
}

fn preview(call: &Call, kind: Kind) -> Result<Reply, ApiError> {
    let shown = found(call, kind)?;
    let body = Value::from(call.object()?);
    let whole = call.whole();
    let report = Report::new(Mode::Api);
    let monitor = whole.check(&report, (Kind::Monitor, shown.id), &body, None);
    let (faults, notes) = report.into_parts();
    let (Some(Parsed::Monitor(monitor)), true) = (monitor, faults.is_empty()) else {
        return Err(ApiError::of_faults(faults));
    };
    let asked = match kind {
        Kind::Pool => vec![shown],
        _ => users(whole, &shown),
    };
    let names: Map<String, Value> = asked
        .iter()
        .map(|pool| (pool.id.to_string(), pool.name.as_str().into()))
        .collect();
    let asked = asked.iter();
    let asked: Vec<Pool> = asked
        .filter_map(|pool| match whole.own_or_kept(Kind::Pool, pool.id) {
            Some(Parsed::Pool(pool)) => Some(pool),
            _ => None,
        })
        .collect();
    let id = write::draw(call);
    look(call, id, &monitor, &asked)?;
    let result = json!({"preview_id": id.to_string(), "pools": names});
    Ok(Reply::Result(result.to_string(), messages(&notes), None))
}

/// The pools that a monitor probes for, by itself or in a group.
fn users(whole: Whole<'_>, monitor: &Shown) -> Vec<Arc<Shown>> {
    let target = (Kind::Monitor, monitor.id);
    let mut pools = whole.referrers(Kind::Pool, target);
    for group in whole.referrers(Kind::MonitorGroup, target) {
        for pool in whole.referrers(Kind::Pool, (Kind::MonitorGroup, group.id)) {
            if pools.iter().all(|known| known.id != pool.id) {
                pools.push(pool);
            }
        }
    }
    pools
}

/// Has every endpoint of `pools` that is on looked at, and notes what is seen.
fn look(call: &Call, id: Id, monitor: &Monitor, pools: &[Pool]) -> Result<(), ApiError> {
    let mut places = Vec::new();
    let mut attempts = Vec::new();
    for (at, pool) in pools.iter().enumerate() {
        let on = pool.endpoints.iter().filter(|endpoint| endpoint.enabled);
        for (place, endpoint) in on.enumerate() {
            places.push((at, place));
            attempts.push(Attempt {
                probe: Arc::new(Probe::of(monitor, pool, endpoint)),
                retries: monitor.retries,
            });
        }
    }
    if attempts.len() > ENDPOINTS_MAX {
        let count = attempts.len();
        return Err(ApiError::wrong(
            "",
            format!(
                "{count} endpoints are more than the {ENDPOINTS_MAX} that one preview looks at"
            ),
        ));
    }
    let control = &call.app.control;
    let preview = Preview {
        asked: control.now(),
        complete: false,
        pools: pools.iter().map(Looked::of).collect(),
    };
    call.app.previews.begin(id, preview)?;
    let mut seen = control.attempt(attempts);
    let app = Arc::clone(&call.app);
    tokio::spawn(async move {
        while let Some((place, result)) = seen.recv().await {
            app.previews.saw(id, places[place], result);
        }
        app.previews.end(id);
    });
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn preview(asked: u64, complete: bool) -> Preview {
        Preview {
            asked: Mono::ZERO.after(Duration::from_secs(asked)),
            complete,
            pools: Vec::new(),
        }
    }

    fn id(number: usize) -> Id {
        let mut bytes = [0; Id::LEN];
        bytes[..8].copy_from_slice(&(number as u64).to_be_bytes());
        Id::from_bytes(bytes)
    }

    #[test]
    fn the_oldest_that_is_complete_makes_room() {
        let previews = Previews::default();
        for number in 0..PREVIEWS_MAX {
            let begun = previews.begin(id(number), preview(number as u64, false));
            assert_eq!(begun, Ok(()));
        }
        let late = preview(100, false);
        assert!(matches!(
            previews.begin(id(100), late),
            Err(ApiError::Limited(_))
        ));
        previews.end(id(7));
        previews.end(id(9));
        assert_eq!(previews.begin(id(100), preview(100, false)), Ok(()));
        let now = Mono::ZERO.after(Duration::from_secs(100));
        assert_eq!(previews.shown(id(7), now), None);
        assert!(previews.shown(id(9), now).is_some());
    }

    #[test]
    fn a_preview_is_forgotten_after_an_hour() {
        let previews = Previews::default();
        assert_eq!(previews.begin(id(1), preview(0, true)), Ok(()));
        let at = |seconds| Mono::ZERO.after(Duration::from_secs(seconds));
        assert!(previews.shown(id(1), at(3599)).is_some());
        assert_eq!(previews.shown(id(1), at(3600)), None);
        assert_eq!(previews.begin(id(2), preview(3600, true)), Ok(()));
        assert_eq!(previews.all().len(), 1);
    }
}
