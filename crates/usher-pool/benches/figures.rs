//! What the pool costs. Goals: a pick within 0.2 ms at the median with 10,000 rows; fifty brokers
//! together 2,000 picks a second without an error; a batch of 100 heartbeats within 0.15 ms at the
//! 95th percentile on tmpfs and 0.4 ms on a disk at 5,000 rows; 100,000 heartbeats a second on tmpfs
//! for a minute (500,000 browsers that each speak every 5 s) with picks within 1 ms at the 99th.
//!
//! The folder is `TMPDIR`, so that a disk can be chosen. Words after `--` choose parts: `pick`,
//! `brokers`, `batch`, `minute`, `locked`; without any all but the last. A number says how many
//! nodes of 100 browsers `minute` has, 5,000 without one. Times are printed and not judged: they
//! say as much of the machine as of the pool.

#![allow(clippy::print_stdout)]

#[path = "../tests/support/mod.rs"]
mod support;

use std::collections::HashSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use support::{beat, wish};
use tempfile::TempDir;
use usher_core::lease::beat::Heartbeat;
use usher_core::lease::browser::Phase;
use usher_core::lease::{Boot, BrowserId, Epoch, NodeId, Stock};
use usher_pool::sqlite::Sqlite;
use usher_pool::{Clock, Pool, Settings};

/// A pool that has browsers, and where its nodes' count of what they say stands.
struct Filled {
    _folder: TempDir,
    path: std::path::PathBuf,
    pool: Arc<dyn Pool>,
    nodes: Vec<(NodeId, Boot)>,
    each: u32,
}

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let named = |part: &str| words.iter().any(|word| word == part);
    let any = ["pick", "brokers", "batch", "minute", "locked"]
        .into_iter()
        .any(named);
    let wants = |part: &str| named(part) || (!any && part != "locked");
    println!("in {}", std::env::temp_dir().display());
    if wants("pick") {
        picks(&fill(100, 100).await).await;
    }
    if wants("brokers") {
        brokers(&fill(100, 200).await).await;
    }
    if wants("batch") {
        batches(&fill(50, 100).await).await;
    }
    if wants("minute") {
        let nodes = words.iter().find_map(|word| word.parse().ok());
        let filled = fill(nodes.unwrap_or(5_000), 100).await;
        minute(&filled, Duration::from_secs(60)).await;
    }
    if wants("locked") {
        locked(&fill(50, 100).await).await;
    }
}

/// So many nodes with so many browsers each, all ready.
async fn fill(nodes: u32, each: u32) -> Filled {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("eu.db");
    let began = Instant::now();
    let opened = Sqlite::open(&path, Settings::default(), Clock::system(), Duration::ZERO);
    let pool: Arc<dyn Pool> = Arc::new(opened.await.expect("opens"));
    let mut of = Vec::new();
    for node in 0..nodes {
        let registered = pool.register(&format!("node-{node}"), each).await;
        let (node, boot, _) = registered.expect("registered");
        let launches: Vec<_> = (0..each)
            .map(|at| {
                let pool = Arc::clone(&pool);
                tokio::spawn(async move {
                    let launch = pool.launch((node, boot), id(node, at), Stock::default(), 1);
                    launch.await.expect("asked").expect("room");
                })
            })
            .collect();
        for launch in launches {
            launch.await.expect("no panic");
        }
        of.push((node, boot));
        pool.beats((node, boot), &beats(node, each, 2));
    }
    pool.flush().await.expect("written");
    println!(
        "{} browsers on {nodes} nodes in {:?}",
        nodes * each,
        began.elapsed()
    );
    Filled {
        _folder: folder,
        path,
        pool,
        nodes: of,
        each,
    }
}

/// Scattered, as random ids are.
fn id(node: NodeId, at: u32) -> BrowserId {
    let number = u128::from(node.0) << 32 | u128::from(at);
    BrowserId(number.wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835))
}

fn beats(node: NodeId, each: u32, seq: u64) -> Vec<Heartbeat> {
    let beats = (0..each).map(|at| Heartbeat {
        mem_kib: 100_000 + (seq as u32 * 7_919 + at) % 50_000,
        ..beat(id(node, at).0, seq, Phase::Ready, 0)
    });
    beats.collect()
}

/// The nodes are alive, whatever they have.
async fn speak(filled: &Filled) {
    for &of in &filled.nodes {
        filled.pool.beats(of, &[]);
    }
    filled.pool.flush().await.expect("written");
}

/// When what is due begins: late where what was before took too long, which counts; but not for the
/// clock, which wakes a millisecond late.
async fn begin(due: tokio::time::Instant) -> tokio::time::Instant {
    let late = tokio::time::Instant::now() > due;
    tokio::time::sleep_until(due).await;
    if late {
        due
    } else {
        tokio::time::Instant::now()
    }
}

fn draw(number: u64) -> u64 {
    (number + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

async fn picks(filled: &Filled) {
    speak(filled).await;
    let mut times = Vec::new();
    for number in 0..5_000_u64 {
        let began = Instant::now();
        let picked = filled.pool.pick(wish(u128::from(number)), draw(number));
        picked.await.expect("asked").expect("ready");
        times.push(began.elapsed());
    }
    show("pick, one after the other", times);
}

/// 2,000 a second together, each timed from when it was due; then as fast as they can.
async fn brokers(filled: &Filled) {
    for (paced, each) in [(true, 160_u64), (false, 200)] {
        speak(filled).await;
        let errors = Arc::new(AtomicU64::new(0));
        let start = tokio::time::Instant::now();
        let brokers = (0..50_u64).map(|broker| {
            let (pool, errors) = (Arc::clone(&filled.pool), Arc::clone(&errors));
            tokio::spawn(async move {
                let mut times = Vec::new();
                for number in 0..each {
                    let due = match paced {
                        true => start + Duration::from_micros(500) * (number * 50 + broker) as u32,
                        false => tokio::time::Instant::now(),
                    };
                    let begun = begin(due).await;
                    let name = 1 << 60 | broker << 32 | number << 1 | u64::from(paced);
                    match pool.pick(wish(u128::from(name)), draw(name)).await {
                        Ok(Some(_)) => {}
                        _ => {
                            errors.fetch_add(1, Ordering::Relaxed);
                        }
                    }
                    times.push(begun.elapsed());
                }
                times
            })
        });
        let mut times = Vec::new();
        for broker in brokers.collect::<Vec<_>>() {
            times.extend(broker.await.expect("no panic"));
        }
        let rate = times.len() as f64 / start.elapsed().as_secs_f64();
        let errors = errors.load(Ordering::Relaxed);
        let how = if paced {
            "at 2,000 a second"
        } else {
            "as they can"
        };
        show(
            &format!("pick, 50 brokers, {how} ({rate:.0} a second, {errors} errors)"),
            times,
        );
    }
}

/// As the writer measures them, from the begin of the transaction to its end.
async fn batches(filled: &Filled) {
    let mut times = Vec::new();
    let mut before = filled.pool.figures();
    for round in 0..100_u64 {
        for &(node, boot) in &filled.nodes {
            filled
                .pool
                .beats((node, boot), &beats(node, filled.each, 3 + round));
            filled.pool.flush().await.expect("written");
            let after = filled.pool.figures();
            assert_eq!(after.batches, before.batches + 1);
            assert_eq!(after.counted, before.counted + 100);
            times.push(after.writing - before.writing);
            before = after;
        }
    }
    show("batch of 100 heartbeats, 5,000 rows", times);
}

/// Every browser speaks every five seconds, in groups by node; brokers pick meanwhile, 100 a
/// second, each timed from when it was due; and everything is looked over every five seconds.
async fn minute(filled: &Filled, long: Duration) {
    // Filling may have taken so long that the first are taken for dead.
    speak(filled).await;
    let start = tokio::time::Instant::now();
    let end = start + long;
    let before = filled.pool.figures();
    let lent: Arc<Mutex<HashSet<BrowserId>>> = Arc::default();
    let speak = {
        let (pool, nodes, each) = (Arc::clone(&filled.pool), filled.nodes.clone(), filled.each);
        let lent = Arc::clone(&lent);
        tokio::spawn(async move {
            let step = Duration::from_secs(5) / nodes.len() as u32;
            for turn in 0.. {
                let due = start + step * turn;
                if due >= end {
                    break;
                }
                tokio::time::sleep_until(due).await;
                let (node, boot) = nodes[turn as usize % nodes.len()];
                let seq = 3 + u64::from(turn) / nodes.len() as u64;
                let mut beats = beats(node, each, seq);
                let lent = lent.lock().expect("whole");
                for beat in &mut beats {
                    if lent.contains(&beat.browser) {
                        (beat.phase, beat.epoch) = (Phase::InUse, Epoch(1));
                    }
                }
                drop(lent);
                pool.beats((node, boot), &beats);
            }
        })
    };
    let look = {
        let pool = Arc::clone(&filled.pool);
        tokio::spawn(async move {
            let mut times = Vec::new();
            let mut due = start;
            while due < end {
                tokio::time::sleep_until(due).await;
                let began = Instant::now();
                let reaped = pool.reap().await.expect("asked");
                assert!(reaped.lost.is_empty());
                times.push(began.elapsed());
                due += Duration::from_secs(5);
            }
            times
        })
    };
    let mut times = Vec::new();
    let mut age_max = Duration::ZERO;
    for number in 0.. {
        let due = start + Duration::from_millis(10) * number;
        if due >= end {
            break;
        }
        let begun = begin(due).await;
        let number = u64::from(number);
        let picked = filled.pool.pick(wish(u128::from(number)), draw(number));
        let picked = picked.await.expect("asked").expect("ready");
        times.push(begun.elapsed());
        let acknowledged = filled.pool.acknowledge(picked.browser, picked.epoch);
        assert_eq!(acknowledged.await.expect("asked"), Ok(()));
        lent.lock().expect("whole").insert(picked.browser);
        age_max = age_max.max(filled.pool.figures().age);
    }
    speak.await.expect("no panic");
    show("pick meanwhile", times);
    show(
        "looking everything over meanwhile",
        look.await.expect("no panic"),
    );
    filled.pool.flush().await.expect("written");
    let after = filled.pool.figures();
    let (count, took) = (after.received - before.received, start.elapsed());
    let batches = after.batches - before.batches;
    let writing = (after.writing - before.writing) / batches as u32;
    println!(
        "{count} heartbeats in {took:?} ({:.0} a second), {batches} batches of {writing:?} each, \
         the oldest waited {age_max:?}; dropped: {} full, {} failed",
        count as f64 / took.as_secs_f64(),
        after.dropped_full,
        after.dropped_failed,
    );
}

/// Another program locks the pool for 20 s while brokers ask and nodes speak.
async fn locked(filled: &Filled) {
    let other = rusqlite::Connection::open(&filled.path).expect("opens");
    other.execute_batch("BEGIN IMMEDIATE").expect("locked");
    let start = tokio::time::Instant::now();
    let free = start + Duration::from_secs(20);
    let brokers = (0..20_u64).map(|broker| {
        let pool = Arc::clone(&filled.pool);
        tokio::spawn(async move {
            let (mut refused, mut times) = (0, Vec::new());
            for number in 0.. {
                let wish = wish(u128::from(1 << 60 | broker << 32 | number));
                let began = Instant::now();
                match pool.pick(wish, draw(number)).await {
                    Ok(picked) => {
                        assert!(picked.is_some() && start.elapsed() > Duration::from_secs(19));
                        return (refused, times, start.elapsed());
                    }
                    Err(_) => refused += 1,
                }
                times.push(began.elapsed());
            }
            unreachable!("the lock goes away")
        })
    });
    let brokers: Vec<_> = brokers.collect();
    for round in 0..4 {
        tokio::time::sleep_until(start + Duration::from_secs(5) * round).await;
        for &(node, boot) in &filled.nodes {
            let beats = beats(node, filled.each, 3 + u64::from(round));
            filled.pool.beats((node, boot), &beats);
        }
    }
    tokio::time::sleep_until(free).await;
    let figures = filled.pool.figures();
    println!("after 20 s locked: {figures:?}");
    other.execute_batch("ROLLBACK").expect("free");
    let (mut times, mut refused, mut last) = (Vec::new(), 0, Duration::ZERO);
    for broker in brokers {
        let (more, waits, done) = broker.await.expect("no panic");
        refused += more;
        times.extend(waits);
        last = last.max(done);
    }
    filled.pool.flush().await.expect("written");
    println!("{refused} picks were refused, the last broker had its browser at {last:?}");
    show("time to a refusal", times);
    let reaped = filled.pool.reap().await.expect("asked");
    println!(
        "looked over: gap {}, ended {}",
        reaped.gap,
        reaped.ended.len()
    );
    println!("and caught up: {:?}", filled.pool.figures());
}

fn show(what: &str, mut times: Vec<Duration>) {
    times.sort_unstable();
    let at = |share: f64| times[((times.len() - 1) as f64 * share) as usize];
    println!(
        "{what}: n {}, p50 {:?}, p95 {:?}, p99 {:?}, max {:?}",
        times.len(),
        at(0.5),
        at(0.95),
        at(0.99),
        at(1.0)
    );
}
