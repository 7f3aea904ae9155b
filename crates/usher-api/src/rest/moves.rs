//! What a change would move, told before it is made.
//!
//! The shares are those of a visitor of whom nothing is known, with every endpoint working: what
//! the change itself does, not what is broken today. Sessions are those that this node gave.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::sync::Arc;

use serde_json::{Value, json};
use usher_core::affinity::{NoPins, Pins};
use usher_core::catalog::{Catalog, Draft, EndpointIx};
use usher_core::id::Id;
use usher_core::region::Place;
use usher_core::request::{Headers, Request};
use usher_core::snapshot::{Counts, Snapshot};
use usher_core::time::Mono;
use usher_rooms::route::Ambiguous;
use usher_store::Kind;

use super::Call;
use super::desired::Parsed;
use crate::wire::explain::{Question, RoomSays, Surroundings};

/// What would move if `id` became `parsed`; if it were gone, without.
pub(crate) fn moves(call: &Call, (kind, id): (Kind, Id), parsed: Option<Parsed>) -> Value {
    let view = call.app.control.view();
    let before = Arc::clone(view.snapshot.catalog());
    let mut draft = before.draft().clone();
    put(&mut draft, (kind, id), parsed);
    let Ok(after) = Catalog::check(draft).map(Arc::new) else {
        // A pool that nothing else has seen yet: the change follows another one too closely.
        return Value::Null;
    };
    let users = call.whole().referrers(Kind::Balancer, (kind, id));
    let touched: Vec<Id> = users.iter().map(|user| user.id).chain([id]).collect();
    let [was, is] = [&before, &after].map(|catalog| Snapshot::presumed(Arc::clone(catalog)));
    let balancers = after.balancers().chain(before.balancers());
    let mut told = BTreeMap::new();
    for (_, balancer) in balancers.filter(|(_, balancer)| touched.contains(&balancer.id)) {
        let [was, is] = [&was, &is].map(|snapshot| shares(snapshot, &balancer.name));
        let more = |one: &Shares, other: &Shares| {
            let more = one.iter().map(|(endpoint, share)| {
                let there = other.get(endpoint).copied().unwrap_or(0.0);
                (share - there).max(0.0)
            });
            // A sum of nothing is -0.
            more.sum::<f64>() + 0.0
        };
        let (gained, left) = (more(&is, &was), more(&was, &is));
        let share = |share: f64| (share * 1e4).round() / 1e4;
        // What nobody would answer any more has moved, too, and that is the news.
        let (moved, lost) = (share(gained.max(left)), share((left - gained).max(0.0)));
        told.insert(balancer.name.clone(), (moved, lost));
    }
    let sessions = view.around.sessions();
    json!({
        "traffic": told.iter().map(|(name, (moved, lost))| json!({"load_balancer": name, "share_moved": moved, "share_lost": lost})).collect::<Vec<_>>(),
        "sessions_cut": cut(&before, &after, &sessions),
        "referenced_by": users.iter().map(|user| user.name.clone()).collect::<Vec<_>>(),
    })
}

fn put(draft: &mut Draft, (kind, id): (Kind, Id), parsed: Option<Parsed>) {
    fn place<T>(list: &mut Vec<T>, is_it: impl Fn(&T) -> bool, new: Option<T>) {
        match (list.iter().position(is_it), new) {
            (Some(at), Some(new)) => list[at] = new,
            (Some(at), None) => drop(list.remove(at)),
            (None, Some(new)) => list.push(new),
            (None, None) => {}
        }
    }
    match parsed {
        Some(Parsed::Monitor(new)) => place(&mut draft.monitors, |it| it.id == id, Some(new)),
        Some(Parsed::Group(new)) => place(&mut draft.monitor_groups, |it| it.id == id, Some(new)),
        Some(Parsed::Pool(new)) => place(&mut draft.pools, |it| it.id == id, Some(new)),
        Some(Parsed::Balancer(new)) => place(&mut draft.balancers, |it| it.id == id, Some(new)),
        // What a room moves depends on who comes.
        Some(Parsed::Room(_) | Parsed::RoomRules(..)) => {}
        None => match kind {
            Kind::Monitor => place(&mut draft.monitors, |it| it.id == id, None),
            Kind::MonitorGroup => place(&mut draft.monitor_groups, |it| it.id == id, None),
            Kind::Pool => place(&mut draft.pools, |it| it.id == id, None),
            Kind::Balancer => place(&mut draft.balancers, |it| it.id == id, None),
            _ => {}
        },
    }
}

/// The share of each endpoint in the traffic of a load balancer.
type Shares = BTreeMap<Id, f64>;

/// Nobody has a share in what is refused.
fn shares(snapshot: &Snapshot, name: &str) -> Shares {
    let host = name.replacen('*', "any", 1);
    let question = Question::read(&json!({"url": format!("http://{host}/")}));
    let answer = question.and_then(|asked| asked.answer(snapshot, &Nobody, Mono::ZERO, 0));
    let mut shares = BTreeMap::new();
    let pools = answer
        .as_ref()
        .ok()
        .filter(|answer| answer["outcome"] != "refuse")
        .and_then(|answer| answer["pools"].as_array());
    for pool in pools.into_iter().flatten() {
        let catalog = snapshot.catalog();
        let found = pool["name"]
            .as_str()
            .and_then(|name| catalog.pool_by_name(name));
        let (Some(found), Some(chance)) = (found, pool["probability"].as_f64()) else {
            continue;
        };
        let endpoints = catalog.pool(found).endpoints.iter();
        let on = endpoints.filter(|endpoint| endpoint.enabled);
        let whole: f64 = on.clone().map(|endpoint| endpoint.weight).sum();
        for endpoint in on.filter(|_| whole > 0.0) {
            *shares.entry(endpoint.id).or_default() += chance * endpoint.weight / whole;
        }
    }
    shares
}

/// Sessions with endpoints that would be gone.
fn cut(before: &Catalog, after: &Catalog, sessions: &HashMap<Id, u64>) -> u64 {
    let ids = |catalog: &Catalog| -> Vec<Id> {
        let endpoints = catalog.pools().flat_map(|(_, pool)| pool.endpoints.iter());
        endpoints.map(|endpoint| endpoint.id).collect()
    };
    let stay: std::collections::HashSet<Id> = ids(after).into_iter().collect();
    let gone = ids(before).into_iter().filter(|id| !stay.contains(id));
    gone.filter_map(|id| sessions.get(&id)).sum()
}

/// A visitor of whom nothing is known, at a node that does nothing else.
struct Nobody;

impl Counts for Nobody {
    fn open_requests(&self, _: EndpointIx) -> u32 {
        0
    }

    fn open_connections(&self, _: EndpointIx) -> u32 {
        0
    }
}

impl Surroundings for Nobody {
    fn place(&self, _: IpAddr) -> Option<Place> {
        None
    }

    fn locates(&self) -> bool {
        false
    }

    fn sessions(&self) -> Arc<HashMap<Id, u64>> {
        Arc::default()
    }

    fn pins<'a>(&'a self, _: &'a dyn Headers) -> Box<dyn Pins + 'a> {
        Box::new(NoPins)
    }

    fn room(&self, _request: &Request<'_>) -> Result<Option<RoomSays>, Ambiguous> {
        Ok(None)
    }
}
