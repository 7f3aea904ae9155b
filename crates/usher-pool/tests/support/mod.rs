//! What the tests of all engines share.

#![allow(dead_code)] // each test uses its own part

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use tempfile::TempDir;
use usher_core::id::{Id, Kind};
use usher_core::lease::beat::Heartbeat;
use usher_core::lease::browser::Phase;
use usher_core::lease::close::CloseReason;
use usher_core::lease::line::Class;
use usher_core::lease::region::{Picked, Wish};
use usher_core::lease::{Boot, BrowserId, Epoch, NodeId, RequestId, SessionId, Stock};
use usher_core::time::Wall;
use usher_pool::sqlite::Sqlite;
use usher_pool::{Clock, Pool, Settings};

/// When tests begin, in the middle of a day.
pub(crate) const BEGIN_MS: i64 = 1_790_000_000_000;

/// A clock that only the test sets.
#[derive(Debug, Clone)]
pub(crate) struct Hand(Arc<AtomicI64>);

impl Hand {
    pub(crate) fn new() -> Hand {
        Hand(Arc::new(AtomicI64::new(BEGIN_MS)))
    }

    pub(crate) fn clock(&self) -> Clock {
        let at = Arc::clone(&self.0);
        Clock::of(move || Wall::from_millis(at.load(Ordering::SeqCst)))
    }

    pub(crate) fn now(&self) -> Wall {
        Wall::from_millis(self.0.load(Ordering::SeqCst))
    }

    pub(crate) fn pass(&self, millis: i64) {
        self.0.fetch_add(millis, Ordering::SeqCst);
    }

    pub(crate) fn pass_secs(&self, secs: i64) {
        self.pass(secs * 1_000);
    }
}

/// Where a pool is kept, and its clock.
pub(crate) struct Kept {
    folder: TempDir,
    pub(crate) hand: Hand,
}

impl Kept {
    pub(crate) fn new() -> Kept {
        Kept {
            folder: tempfile::tempdir().expect("a folder"),
            hand: Hand::new(),
        }
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.folder.path().join("eu.db")
    }

    /// Every engine is opened here; a second one gets a line of its own.
    pub(crate) async fn open(&self) -> Arc<dyn Pool> {
        self.open_with(Settings::default()).await
    }

    pub(crate) async fn open_with(&self, settings: Settings) -> Arc<dyn Pool> {
        let clock = self.hand.clock();
        let opened = Sqlite::open(&self.path(), settings, clock, Duration::ZERO).await;
        Arc::new(opened.expect("opens"))
    }
}

pub(crate) fn account(name: &str) -> Id {
    Id::derive(name, Kind::Account, name)
}

pub(crate) fn wish(number: u128) -> Wish {
    Wish {
        request: RequestId(number),
        attempt: 0,
        session: SessionId(number),
        account: account("default"),
        stock: Stock::default(),
        class: Class::Session,
        keep_alive: Duration::from_secs(60),
    }
}

pub(crate) fn beat(browser: u128, seq: u64, phase: Phase, epoch: u32) -> Heartbeat {
    Heartbeat {
        browser: BrowserId(browser),
        seq,
        phase,
        epoch: Epoch(epoch),
        mem_kib: 100,
        quiet: Duration::ZERO,
        reason: CloseReason::NormalClosure,
    }
}

/// A node with the browsers of `ids`, all ready.
pub(crate) async fn node(
    pool: &Arc<dyn Pool>,
    name: &str,
    slots: u32,
    ids: std::ops::Range<u128>,
) -> (NodeId, Boot) {
    let (node, boot, _) = pool.register(name, slots).await.expect("registered");
    for id in ids.clone() {
        let launched = pool
            .launch((node, boot), BrowserId(id), Stock::default(), 1)
            .await;
        launched.expect("asked").expect("launched");
    }
    let beats: Vec<Heartbeat> = ids.map(|id| beat(id, 2, Phase::Ready, 0)).collect();
    pool.beats((node, boot), &beats);
    pool.flush().await.expect("written");
    (node, boot)
}

pub(crate) async fn pick(pool: &Arc<dyn Pool>, number: u128) -> Option<Picked> {
    pool.pick(wish(number), number as u64).await.expect("asked")
}

pub(crate) async fn picked(pool: &Arc<dyn Pool>, number: u128) -> Picked {
    pick(pool, number).await.expect("something is ready")
}

pub(crate) async fn begun(pool: &Arc<dyn Pool>, number: u128) -> Picked {
    let picked = picked(pool, number).await;
    let begun = pool.acknowledge(picked.browser, picked.epoch).await;
    begun.expect("asked").expect("held");
    picked
}
