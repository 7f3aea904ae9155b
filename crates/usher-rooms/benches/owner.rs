//! What the owner of a room costs, journal and all: decisions a second on one core, and memory of a
//! waiting visitor. Goals: 200,000 a second, and 200 bytes.
//!
//! `cargo bench -p usher-rooms --bench owner`. The owner has a thread of its own, as in a node; what
//! counts is the CPU of that thread, since those who ask, and the disk, need the rest of the machine.
//! The figure beside it is what a clock on the wall saw.

#![allow(clippy::print_stdout, reason = "a bench prints what it saw")]

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::time::Instant;

use usher_core::admission::{Answer, End, Settings, Visitor};
use usher_core::id::Id;
use usher_rooms::clock::Clock;
use usher_rooms::journal::Live;
use usher_rooms::owner::{Found, OnStoreFailure, Pending, Post};

const SEATS: u64 = 100_000;
const WAITING: u64 = 1_000_000;
/// Questions under way at once: fewer than an owner lets wait.
const UNDER_WAY: usize = 4_096;
/// Most visitors that a front tells of at once.
const BATCH: usize = 512;

fn main() {
    let folder = tempfile::tempdir().expect("a folder");
    let (post, task) = start(folder.path());
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .expect("a runtime");
    runtime.block_on(async {
        let bench = Bench { post, task };
        bench.ask("direct entries", 0..SEATS, true).await;
        let before = resident();
        bench
            .ask("arrivals into a line", SEATS..SEATS + WAITING, false)
            .await;
        let each = resident().saturating_sub(before) / WAITING;
        println!("owner: {each} bytes a waiting visitor");
        bench.check_in(SEATS..SEATS + WAITING).await;
        bench.renew(0..SEATS).await;
        bench.leave(0..SEATS / 2).await;
        bench
            .ask("called visitors enter", SEATS..SEATS + SEATS / 2, true)
            .await;
        bench.post.close().await;
    });
}

/// The owner on its thread; and where the system counts the CPU of that.
fn start(folder: &Path) -> (Post, PathBuf) {
    let live = Live::take(folder).expect("nobody else");
    let (told, hear) = mpsc::channel();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build()
            .expect("a runtime");
        runtime.block_on(async {
            let found = Found::open(&live, Id::from_bytes([7; 16])).expect("files");
            let clock = Clock::start(found.clock());
            let settings = Settings::new(SEATS, u64::from(u32::MAX)).session(3_600_000);
            let post = found.start(settings, OnStoreFailure::Bounded, clock, 1);
            let task = std::fs::read_link("/proc/thread-self").expect("Linux");
            let stat = Path::new("/proc").join(task).join("schedstat");
            told.send((post, stat)).expect("somebody hears");
            // The owner goes on until nobody can ask any more.
            std::future::pending::<()>().await;
        });
    });
    hear.recv().expect("an owner")
}

struct Bench {
    post: Post,
    task: PathBuf,
}

impl Bench {
    /// Nanoseconds of the owner's thread.
    fn cpu(&self) -> u64 {
        let text = std::fs::read_to_string(&self.task).expect("a thread");
        let spent = text.split_whitespace().next().expect("its CPU");
        spent.parse().expect("a number")
    }

    fn report(&self, what: &str, count: u64, began: (Instant, u64)) {
        let wall = began.0.elapsed().as_secs_f64();
        let cpu = (self.cpu() - began.1) as f64 / 1e9;
        println!(
            "owner: {what}: {:.0} a second of its core, {:.0} a second of the clock",
            count as f64 / cpu,
            count as f64 / wall
        );
    }

    fn now(&self) -> (Instant, u64) {
        (Instant::now(), self.cpu())
    }

    async fn ask(&self, what: &str, numbers: std::ops::Range<u64>, enter: bool) {
        let count = numbers.end - numbers.start;
        let began = self.now();
        let mut under_way = VecDeque::with_capacity(UNDER_WAY);
        let mut entered = 0;
        for number in numbers {
            if under_way.len() == UNDER_WAY {
                entered += forwarded(under_way.pop_front()).await;
            }
            under_way.push_back(self.post.ask(visitor(number), None).expect("room for it"));
        }
        while let Some(pending) = under_way.pop_front() {
            entered += forwarded(Some(pending)).await;
        }
        self.report(what, count, began);
        assert_eq!(entered, if enter { count } else { 0 }, "{what}");
    }

    async fn renew(&self, numbers: std::ops::Range<u64>) {
        let count = numbers.end - numbers.start;
        let began = self.now();
        let mut under_way = VecDeque::with_capacity(UNDER_WAY);
        for number in numbers {
            if under_way.len() == UNDER_WAY {
                forwarded(under_way.pop_front()).await;
            }
            under_way.push_back(self.post.renew(visitor(number), None).expect("room for it"));
        }
        while let Some(pending) = under_way.pop_front() {
            forwarded(Some(pending)).await;
        }
        self.report("renewals", count, began);
    }

    async fn check_in(&self, numbers: std::ops::Range<u64>) {
        let count = numbers.end - numbers.start;
        let began = self.now();
        let everybody: Vec<Visitor> = numbers.map(visitor).collect();
        for batch in everybody.chunks(BATCH) {
            self.post.check_in(batch.to_vec()).expect("room for it");
        }
        self.settled().await;
        self.report("check-ins, 512 at once", count, began);
    }

    async fn leave(&self, numbers: std::ops::Range<u64>) {
        let count = numbers.end - numbers.start;
        let began = self.now();
        for number in numbers {
            self.post
                .end(visitor(number), End::Left)
                .expect("room for it");
            if number % UNDER_WAY as u64 == 0 {
                self.settled().await;
            }
        }
        self.settled().await;
        self.report("seats given up", count, began);
    }

    /// Orders are carried out in their order: when this is answered, all others are.
    async fn settled(&self) {
        let asked = self
            .post
            .renew(visitor(u64::MAX), None)
            .expect("room for it");
        let _ = asked.answer().await;
    }
}

async fn forwarded(pending: Option<Pending>) -> u64 {
    let answer = pending.expect("one under way").answer().await;
    u64::from(matches!(answer.expect("an answer"), Answer::Forward(_)))
}

fn visitor(number: u64) -> Visitor {
    // Identities are random; a multiplication spreads them as well.
    let half = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    Visitor::from_u128((u128::from(half) << 64) | u128::from(half.rotate_left(17)))
}

/// Resident memory of this process, bytes.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kilobytes = line.and_then(|line| line.trim().strip_suffix("kB"));
    kilobytes
        .and_then(|it| it.trim().parse::<u64>().ok())
        .unwrap_or(0)
        * 1024
}
