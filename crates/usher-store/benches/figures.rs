//! What the store costs with 1,000 pools and 1,000 load balancers in it. Goals: a change durable
//! within 10 ms, one resource within 2 ms, a list of 1,000 within 50 ms, 200 changes a second.
//!
//! The folder is `TMPDIR`, so that a disk can be chosen. Times are printed and not judged: they say
//! as much of the machine as of the store.

#![allow(clippy::print_stdout)]

#[path = "../tests/support/mod.rs"]
mod support;

use std::sync::Arc;
use std::time::{Duration, Instant};

use support::{Kept, at, create, id, intent, pool, write, written};
use usher_store::{
    AuditQuery, Change, Event, EventKind, EventPart, EventQuery, Kind, Op, Put, State, Store,
};

const RESOURCES: u32 = 1000;

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() {
    let kept = Kept::new();
    let store = kept.open().await;
    fill(&store).await;
    one_after_the_other(&store).await;
    many_at_once(&store).await;
    at_a_steady_rate(&store).await;
    reads(&store);
    the_past(&store).await;
    store.close().await.expect("closes");
    let began = Instant::now();
    let store = kept.open().await;
    let resources = store.state().count(Kind::Pool) + store.state().count(Kind::Balancer);
    println!("open with {resources} resources: {:?}", began.elapsed());
}

/// About as long as a pool of three endpoints.
fn document(number: u32, weight: u32) -> String {
    format!(
        "{{\"number\":{number},\"weight\":{weight},\"text\":\"{}\"}}",
        "x".repeat(1000)
    )
}

async fn fill(store: &Arc<dyn Store>) {
    let began = Instant::now();
    let of = |kind| {
        (0..RESOURCES).map(move |number| {
            create(Put {
                kind,
                document: document(number, 0),
                ..pool(number)
            })
        })
    };
    let all: Vec<Op> = of(Kind::Pool).chain(of(Kind::Balancer)).collect();
    let len = all.len();
    written(store, all).await;
    println!("one change of {len} resources: {:?}", began.elapsed());
}

/// As an API would: the name is checked against all others, then the pool is replaced.
async fn change(store: &Arc<dyn Store>, number: u32) {
    let check = move |state: &State| {
        let put = Put {
            document: document(number, number),
            ..pool(number % RESOURCES)
        };
        match state.named(put.kind, put.scope, &put.name) {
            Some(found) if found.id != put.id => Err(put.name),
            _ => Ok(Change {
                answer: put.document.clone(),
                ops: vec![support::replace(put)],
            }),
        }
    };
    store
        .change(intent(i64::from(number)), check)
        .await
        .expect("written");
}

async fn one_after_the_other(store: &Arc<dyn Store>) {
    let mut times = Vec::new();
    for number in 0..500 {
        let began = Instant::now();
        change(store, number).await;
        times.push(began.elapsed());
    }
    show("change, one after the other", times);
}

async fn many_at_once(store: &Arc<dyn Store>) {
    let began = Instant::now();
    let writers = (0..32).map(|writer| {
        let store = Arc::clone(store);
        tokio::spawn(async move {
            let mut times = Vec::new();
            for number in 0..100 {
                let began = Instant::now();
                change(&store, writer * 100 + number).await;
                times.push(began.elapsed());
            }
            times
        })
    });
    let writers: Vec<_> = writers.collect();
    let mut times = Vec::new();
    for writer in writers {
        times.extend(writer.await.expect("no panic"));
    }
    let rate = times.len() as f64 / began.elapsed().as_secs_f64();
    show(&format!("change, 32 at once ({rate:.0} a second)"), times);
}

/// 200 a second, each timed from when it was due.
async fn at_a_steady_rate(store: &Arc<dyn Store>) {
    let began = tokio::time::Instant::now();
    let writers: Vec<_> = (0..1000_u32)
        .map(|number| {
            let store = Arc::clone(store);
            tokio::spawn(async move {
                let due = began + Duration::from_millis(5) * number;
                tokio::time::sleep_until(due).await;
                change(&store, number).await;
                due.elapsed()
            })
        })
        .collect();
    let mut times = Vec::new();
    for writer in writers {
        times.push(writer.await.expect("no panic"));
    }
    show("change, 200 a second", times);
}

fn reads(store: &Arc<dyn Store>) {
    let times = (0..10_000).map(|number| {
        let began = Instant::now();
        let state = store.state();
        let found = state.find(Kind::Pool, id(number % RESOURCES));
        std::hint::black_box(found.expect("there").document.clone());
        began.elapsed()
    });
    show("read one", times.collect());
    let times = (0..200).map(|_| {
        let began = Instant::now();
        let state = store.state();
        let list: Vec<String> = state
            .all(Kind::Pool)
            .map(|pool| pool.document.clone())
            .collect();
        std::hint::black_box(list);
        began.elapsed()
    });
    show("list of 1,000", times.collect());
}

async fn the_past(store: &Arc<dyn Store>) {
    let began = Instant::now();
    let mut recorded = 0;
    for number in 0..20_000 {
        while !store.record(event(number)) {
            store.flush().await.expect("kept");
        }
        recorded += 1;
    }
    store.flush().await.expect("kept");
    let rate = f64::from(recorded) / began.elapsed().as_secs_f64();
    println!("events kept: {rate:.0} a second");
    let mut times = Vec::new();
    for number in 0..50 {
        let began = Instant::now();
        let subject = (number % 2 == 0).then_some(id(number % RESOURCES));
        let query = EventQuery {
            subject,
            ..EventQuery::default()
        };
        std::hint::black_box(store.events(query).await.expect("read"));
        times.push(began.elapsed());
    }
    show("page of 100 events of 20,000", times);
    let mut times = Vec::new();
    for _ in 0..50 {
        let began = Instant::now();
        let page = store.audit(AuditQuery::default()).await;
        std::hint::black_box(page.expect("read"));
        times.push(began.elapsed());
    }
    show("page of 100 changes", times);
    // Events do not stand in the way of a change.
    let mut times = Vec::new();
    for number in 0..200 {
        for more in 0..20 {
            store.record(event(number * 20 + more));
        }
        let began = Instant::now();
        write(store, intent(0), vec![support::replace(pool(number))])
            .await
            .expect("written");
        times.push(began.elapsed());
    }
    show("change beside 20 events each", times);
}

fn event(number: u32) -> Event {
    Event {
        at: at(i64::from(number)),
        kind: EventKind::Health,
        account: id(0),
        subject: id(number % RESOURCES),
        subject_name: format!("pool-{}", number % RESOURCES),
        healthy: Some(number.is_multiple_of(2)),
        parts: (0..3)
            .map(|part| EventPart {
                name: format!("endpoint-{part}"),
                healthy: Some(part % 2 == 0),
            })
            .collect(),
        document: document(number, 0),
    }
}

fn show(what: &str, mut times: Vec<Duration>) {
    times.sort();
    let at = |share: f64| times[((times.len() - 1) as f64 * share) as usize];
    println!(
        "{what}: p50 {:?}, p99 {:?}, max {:?}",
        at(0.5),
        at(0.99),
        at(1.0)
    );
}
