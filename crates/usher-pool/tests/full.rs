//! A disk that is full costs nothing that was kept, and once there is room again nothing at all.
//!
//! Both ways in which a disk says that it is full are tried for real: a limit on the size of a file,
//! which needs no rights, and a small file system, which needs the right to mount one.

#![allow(clippy::print_stdout, clippy::print_stderr)] // what the parent reads, and what was skipped

mod support;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Arc;
use std::time::Duration;

use support::Kept;
use usher_core::lease::{BrowserId, Stock};
use usher_pool::sqlite::Sqlite;
use usher_pool::{Clock, Fault, Pool, Settings};

/// Names the pool to the process whose disk is small.
const CHILD: &str = "USHER_POOL_TEST_FULL";

/// Blocks of 512 bytes that a file may have in one process.
const FILE_BLOCKS: u32 = 512;

#[test]
fn a_file_that_may_not_grow() {
    if let Some(path) = std::env::var_os(CHILD) {
        return block_on(launch_until_full(PathBuf::from(path), None));
    }
    let kept = Kept::new();
    // Ignored, the signal for it becomes an error.
    let script = format!("trap '' XFSZ; ulimit -f {FILE_BLOCKS}; exec \"$@\"");
    let output = Command::new("sh")
        .args(["-c", &script, "sh"])
        .arg(std::env::current_exe().expect("known"))
        .args(["--exact", "a_file_that_may_not_grow", "--nocapture"])
        .env(CHILD, kept.path())
        .output()
        .expect("runs");
    let told = ok(&output);
    block_on(async {
        let pool = open(&kept.path()).await;
        check(&pool, told).await;
        // Here there is room.
        let node = pool.nodes().await.expect("asked")[0].clone();
        let of = (node.id, node.node.boot);
        let launched = pool.launch(of, BrowserId(1 << 80), Stock::default(), 1);
        launched.await.expect("kept").expect("room");
        pool.stop().await.expect("stops");
    });
}

#[test]
fn a_file_system_that_is_full() {
    if let Some(path) = std::env::var_os(CHILD) {
        let path = PathBuf::from(path);
        let ballast = path.with_file_name("ballast");
        fs::write(&ballast, vec![0; 1 << 20]).expect("written");
        return block_on(launch_until_full(path, Some(ballast)));
    }
    let kept = Kept::new();
    let folder = kept.path().with_file_name("disk");
    fs::create_dir(&folder).expect("made");
    // What is mounted is gone with the process.
    let script = "mount -t tmpfs -o size=2m none \"$1\" || exit 77; shift; exec \"$@\"";
    let output = Command::new("unshare")
        .args([
            "--user",
            "--map-root-user",
            "--mount",
            "sh",
            "-c",
            script,
            "sh",
        ])
        .arg(&folder)
        .arg(std::env::current_exe().expect("known"))
        .args(["--exact", "a_file_system_that_is_full", "--nocapture"])
        .env(CHILD, folder.join("eu.db"))
        .output();
    let output = match output {
        Ok(output) if output.status.code() != Some(77) => output,
        _ => return eprintln!("skipped: no right to mount a file system here"),
    };
    if String::from_utf8_lossy(&output.stderr).starts_with("unshare: ") {
        return eprintln!("skipped: no namespace of our own here");
    }
    ok(&output);
}

/// How many the process said are kept.
fn ok(output: &Output) -> u128 {
    let told = String::from_utf8_lossy(&output.stdout);
    let fault = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{told}\n{fault}");
    let (_, rest) = told.split_once("kept ").expect("told");
    let number = rest.split_whitespace().next().expect("told");
    let number = number.parse().expect("a number");
    assert!(number > 0, "{told}");
    number
}

async fn open(path: &Path) -> Arc<dyn Pool> {
    let opened = Sqlite::open(path, Settings::default(), Clock::system(), Duration::ZERO);
    Arc::new(opened.await.expect("opens"))
}

/// Fills the disk. If there is `ballast` on it, takes that away and goes on.
async fn launch_until_full(path: PathBuf, ballast: Option<PathBuf>) {
    let pool = open(&path).await;
    let (node, boot, _) = pool.register("one", u32::MAX).await.expect("kept");
    let of = (node, boot);
    let launch = async |number| {
        let launched = pool.launch(of, BrowserId(number), Stock::default(), 1);
        match launched.await {
            Ok(launched) => launched.map_err(|_| panic!("there is room")),
            Err(error) => Err(error.fault),
        }
    };
    let (mut kept, mut failed) = (0, 0);
    let mut fault = None;
    // After a fault the log may find room in the file that it belongs to.
    while failed < 3 {
        match launch(kept).await {
            Ok(()) => (kept, failed) = (kept + 1, 0),
            Err(found) => (fault, failed) = (fault.or(Some(found)), failed + 1),
        }
    }
    let fault = fault.expect("it failed");
    println!("kept {kept}");
    match &ballast {
        Some(_) => assert_eq!(fault, Fault::Full),
        None => assert!(matches!(fault, Fault::Io(_) | Fault::Full), "{fault}"),
    }
    // Several at once fail at once, and each is told.
    let (one, other) = tokio::join!(launch(kept + 1_000), launch(kept + 1_001));
    assert!(one.is_err() && other.is_err());
    // What is there can be seen.
    check(&pool, kept).await;
    if let Some(ballast) = ballast {
        fs::remove_file(ballast).expect("removed");
        launch(kept).await.expect("there is room");
        check(&pool, kept + 1).await;
        pool.stop().await.expect("stops");
        check(&open(&path).await, kept + 1).await;
    }
}

/// There are exactly these.
async fn check(pool: &Arc<dyn Pool>, kept: u128) {
    let counts = pool.counts().await.expect("read");
    let count: u32 = counts.iter().map(|count| count.count).sum();
    assert_eq!(u128::from(count), kept);
}

fn block_on(future: impl Future<Output = ()>) {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    let runtime = builder.worker_threads(2).enable_all().build();
    runtime.expect("a runtime").block_on(future);
}
