//! A pool that is killed has given no browser twice, and has forgotten nothing that it said.
//!
//! A process of its own lends browsers from many tasks at once and says of each what it was told;
//! it is killed again and again.

#![allow(clippy::print_stdout)] // what the parent reads

mod support;

use std::collections::BTreeMap;
use std::io::{self, BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use support::{account, beat, wish};
use usher_core::lease::browser::Phase;
use usher_core::lease::close::CloseReason;
use usher_core::lease::limits::{AccountKind, Limits};
use usher_core::lease::region::Wish;
use usher_core::lease::{BrowserId, Epoch, RequestId, SessionId, Stock};
use usher_pool::sqlite::Sqlite;
use usher_pool::{Clock, Pool, Settings};

/// Names the pool to the process that lends.
const CHILD: &str = "USHER_POOL_TEST_KILLED";

/// After so many answers the process is killed; in between it is at some point or other.
const KILLS: [usize; 8] = [1, 60, 333, 700, 1_200, 1_201, 1_900, 2_600];

const BROKERS: u128 = 16;
const BROWSERS: u32 = 40;

/// What the process was told of one session.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
struct Told {
    picked: Option<(u128, u32)>,
    begun: bool,
    closed: bool,
}

#[test]
fn nothing_acknowledged_is_lost_and_nothing_is_given_twice() {
    match std::env::var_os(CHILD) {
        Some(path) => run(lend_until_killed(PathBuf::from(path))),
        None => run(kill_again_and_again()),
    }
}

async fn kill_again_and_again() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("eu.db");
    let mut told: BTreeMap<u128, Told> = BTreeMap::new();
    let mut answers = 0;
    for kill in KILLS {
        let mut child = start(&path);
        let mut killed = false;
        let stdout = child.stdout.take().expect("piped");
        for line in BufReader::new(stdout).lines() {
            let line = line.expect("text");
            let words: Vec<&str> = line.split(' ').collect();
            let ["told", what, session, browser, epoch] = words[..] else {
                continue;
            };
            let session: u128 = session.parse().expect("a number");
            let told = told.entry(session).or_default();
            match what {
                "picked" => {
                    let got = (
                        browser.parse().expect("a number"),
                        epoch.parse().expect("a number"),
                    );
                    assert!(told.picked.is_none_or(|before| before == got));
                    told.picked = Some(got);
                }
                "begun" => told.begun = true,
                _ => told.closed = true,
            }
            answers += 1;
            // More may have been said at the last time than where the next was to be.
            if answers >= kill && !killed {
                // What it said before it died counts too, so the loop goes on to the end.
                child.kill().expect("killed");
                killed = true;
            }
        }
        assert!(!child.wait().expect("ends").success());
        check(&path, &told).await;
    }
    assert!(told.values().filter(|told| told.closed).count() > 100);
}

fn start(path: &Path) -> Child {
    Command::new(std::env::current_exe().expect("known"))
        .args([
            "--exact",
            "nothing_acknowledged_is_lost_and_nothing_is_given_twice",
            "--nocapture",
        ])
        .env(CHILD, path)
        .stdout(Stdio::piped())
        .spawn()
        .expect("starts")
}

async fn check(path: &Path, told: &BTreeMap<u128, Told>) {
    let pool = open(path).await;
    let mut given: BTreeMap<u128, u128> = BTreeMap::new();
    for (&session, told) in told {
        let Some((browser, epoch)) = told.picked else {
            panic!("{session} was begun and never picked");
        };
        let twice = given.insert(browser, session);
        assert_eq!(twice, None, "browser {browser} was given twice");
        let kept = pool.session(SessionId(session)).await.expect("asked");
        let kept = kept.unwrap_or_else(|| panic!("session {session} is forgotten"));
        assert_eq!((kept.browser.0, kept.epoch.0), (browser, epoch));
        if told.closed {
            assert_eq!(
                kept.ended.map(|(_, reason)| reason),
                Some(CloseReason::NormalClosure)
            );
        }
    }
    pool.stop().await.expect("stops");
}

async fn open(path: &Path) -> Arc<dyn Pool> {
    // The system has taken the lock away from who was killed: nothing to be patient for.
    let opened = Sqlite::open(path, Settings::default(), Clock::system(), Duration::ZERO);
    Arc::new(opened.await.expect("opens"))
}

/// Ids come from how far an earlier process got: each start has its own range.
async fn lend_until_killed(path: PathBuf) {
    let pool = open(&path).await;
    let (node, boot, _) = pool.register("one", BROWSERS).await.expect("asked");
    let base = u128::from(boot.0) << 64;
    let mut tasks = Vec::new();
    for broker in 0..BROKERS {
        let pool = Arc::clone(&pool);
        tasks.push(tokio::spawn(lend(pool, (node, boot), base | broker << 32)));
    }
    for task in tasks {
        task.await.expect("no panic");
    }
}

/// One broker and the agent of its browsers: launches one, picks some browser, begins, closes.
async fn lend(
    pool: Arc<dyn Pool>,
    of: (usher_core::lease::NodeId, usher_core::lease::Boot),
    base: u128,
) {
    let limits = Limits {
        concurrent: u32::MAX,
        browsers: usher_core::lease::bucket::Rate::per_second(1e6, 1_000_000),
        browsers_a_minute: None,
        ..Limits::of(AccountKind::Paygo)
    };
    let who = account("default");
    for number in 1_u128.. {
        let id = base | number;
        // Full for the moment: somebody else is about to end one.
        let launched = pool.launch(of, BrowserId(id), Stock::default(), 1).await;
        if launched.expect("asked").is_ok() {
            pool.beats(of, &[beat(id, 2, Phase::Ready, 0)]);
            pool.flush().await.expect("written");
        }
        let session = SessionId(id);
        let admitted = pool.admit(who, limits, session).await.expect("asked");
        assert_eq!(admitted, Ok(()));
        let wish = Wish {
            request: RequestId(id),
            session,
            account: who,
            ..wish(id)
        };
        let Some(picked) = pool.pick(wish, id as u64).await.expect("asked") else {
            pool.refund(who, limits, session).await.expect("asked");
            tokio::task::yield_now().await;
            continue;
        };
        tell("picked", id, picked.browser, picked.epoch);
        let begun = pool.acknowledge(picked.browser, picked.epoch).await;
        if begun.expect("asked").is_err() {
            continue;
        }
        tell("begun", id, picked.browser, picked.epoch);
        let reason = CloseReason::NormalClosure;
        let closed = pool.close(picked.browser, picked.epoch, reason).await;
        assert!(closed.expect("asked").is_ok());
        tell("closed", id, picked.browser, picked.epoch);
        let dead = beat(picked.browser.0, 3, Phase::Dead, picked.epoch.0);
        pool.beats(of, &[dead]);
    }
}

/// In one piece, so that no line is half.
fn tell(what: &str, session: u128, browser: BrowserId, epoch: Epoch) {
    let line = format!("told {what} {session} {} {}\n", browser.0, epoch.0);
    io::stdout().write_all(line.as_bytes()).expect("told");
}

fn run(future: impl Future<Output = ()>) {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    let runtime = builder.worker_threads(2).enable_all().build();
    runtime.expect("a runtime").block_on(future);
}
