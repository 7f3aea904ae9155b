//! A disk that is full costs nothing that was kept, and once there is room again nothing at all.
//!
//! Both ways in which a disk says that it is full are tried for real: a limit on the size of a file,
//! which needs no rights, and a small file system, which needs the right to mount one.

#![allow(clippy::print_stdout, clippy::print_stderr)] // what the parent reads, and what was skipped

mod support;

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use support::{Kept, create, id, intent, pool, write};
use usher_store::sqlite::Sqlite;
use usher_store::{
    AuditQuery, ChangeError, Event, EventKind, EventQuery, Fault, Put, Retention, Store,
};

/// Names the store to the process whose disk is small.
const CHILD: &str = "USHER_STORE_TEST_FULL";

/// Blocks of 512 bytes that a file may have in one process.
const FILE_BLOCKS: u32 = 4096;

#[test]
fn a_file_that_may_not_grow() {
    if let Some(path) = std::env::var_os(CHILD) {
        return block_on(write_until_full(PathBuf::from(path), None));
    }
    let kept = Kept::new();
    // Ignored, the signal for it becomes an error.
    let script = format!("trap '' XFSZ; ulimit -f {FILE_BLOCKS}; exec \"$@\"");
    let test = std::env::current_exe().expect("known");
    let output = Command::new("sh")
        .args(["-c", &script, "sh"])
        .arg(test)
        .args(["--exact", "a_file_that_may_not_grow", "--nocapture"])
        .env(CHILD, kept.path())
        .output()
        .expect("runs");
    let told = String::from_utf8_lossy(&output.stdout);
    let fault = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{told}\n{fault}");
    block_on(async {
        let store = kept.open().await;
        check(&store, acknowledged(&told)).await;
        // Here there is room.
        more(&store, u32::MAX).await.expect("written");
    });
}

#[test]
fn a_file_system_that_is_full() {
    if let Some(path) = std::env::var_os(CHILD) {
        let path = PathBuf::from(path);
        let ballast = path.with_file_name("ballast");
        fs::write(&ballast, vec![0; 1 << 20]).expect("written");
        return block_on(write_until_full(path, Some(ballast)));
    }
    let kept = Kept::new();
    let folder = kept.path().with_file_name("disk");
    fs::create_dir(&folder).expect("made");
    // What is mounted is gone with the process.
    let script = "mount -t tmpfs -o size=4m none \"$1\" || exit 77; shift; exec \"$@\"";
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
        .env(CHILD, folder.join("usher.db"))
        .output();
    let output = match output {
        Ok(output) if output.status.code() != Some(77) => output,
        _ => return eprintln!("skipped: no right to mount a file system here"),
    };
    let told = String::from_utf8_lossy(&output.stdout);
    let fault = String::from_utf8_lossy(&output.stderr);
    if fault.starts_with("unshare: ") {
        return eprintln!("skipped: no namespace of our own here");
    }
    assert!(output.status.success(), "{told}\n{fault}");
    assert!(acknowledged(&told) > 0, "{told}");
}

/// Fills the disk. If there is `ballast` on it, takes that away and goes on.
async fn write_until_full(path: PathBuf, ballast: Option<PathBuf>) {
    let store = Sqlite::open(&path, Retention::default(), Duration::ZERO).await;
    let store: Arc<dyn Store> = Arc::new(store.expect("opens"));
    // Somebody reads too, so the log does not shrink when the writer starts anew.
    check(&store, 0).await;
    let (mut kept, mut failed) = (0, 0);
    let mut fault = None;
    // After a fault the log may find room in the file that it belongs to.
    while failed < 3 {
        match more(&store, kept).await {
            Ok(()) => (kept, failed) = (kept + 1, 0),
            Err(found) => (fault, failed) = (fault.or(Some(found)), failed + 1),
        }
    }
    let fault = fault.expect("it failed");
    println!("kept {kept}");
    match &ballast {
        Some(_) => assert_eq!(fault, Fault::Full),
        None => assert!(matches!(fault, Fault::Io(_)), "{fault}"),
    }
    // Several at once fail at once, and each is told.
    let (one, other) = tokio::join!(more(&store, kept), more(&store, kept + 1));
    assert!(one.is_err() && other.is_err());
    check(&store, kept).await;
    if let Some(ballast) = ballast {
        let event = Event {
            at: support::at(0),
            kind: EventKind::Health,
            account: id(0),
            subject: id(1),
            subject_name: "x".repeat(100_000),
            healthy: None,
            parts: Vec::new(),
            document: String::new(),
        };
        assert!(store.record(event));
        assert!(store.flush().await.is_err());
        fs::remove_file(ballast).expect("removed");
        more(&store, kept).await.expect("there is room");
        check(&store, kept + 1).await;
        store.flush().await.expect("there is room");
        let page = store.events(EventQuery::default()).await.expect("read");
        assert_eq!((page.total, store.events_dropped()), (1, 0));
        store.close().await.expect("closes");
        let store = Sqlite::open(&path, Retention::default(), Duration::ZERO).await;
        let store: Arc<dyn Store> = Arc::new(store.expect("opens"));
        check(&store, kept + 1).await;
    }
}

/// One pool more, which takes a good piece of the disk.
async fn more(store: &Arc<dyn Store>, number: u32) -> Result<(), Fault> {
    let put = Put {
        document: "x".repeat(20_000),
        ..pool(number)
    };
    match write(store, intent(0), vec![create(put)]).await {
        Ok(_) => Ok(()),
        Err(ChangeError::Store(error)) => Err(error.fault),
        Err(error) => panic!("{error}"),
    }
}

/// There are exactly these, each with its audit row.
async fn check(store: &Arc<dyn Store>, pools: u32) {
    let state = store.state();
    let names: Vec<_> = support::names(store);
    let wanted: Vec<_> = (0..pools).map(|number| format!("pool-{number}")).collect();
    assert_eq!(names, wanted);
    assert_eq!(state.revision().0, u64::from(pools));
    let page = store.audit(AuditQuery::default()).await.expect("read");
    assert_eq!(page.total, u64::from(pools));
}

fn acknowledged(told: &str) -> u32 {
    let (_, rest) = told.split_once("kept ").expect("told");
    let number = rest.split_whitespace().next().expect("told");
    number.parse().expect("a number")
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    runtime.expect("a runtime").block_on(future)
}
