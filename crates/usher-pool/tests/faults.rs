//! What is wrong with a pool is said by name, in bounded time, and left as it was.

mod support;

use std::fs;
use std::time::{Duration, Instant};

use rusqlite::Connection;
use support::{Kept, beat, node, pick, picked, wish};
use usher_core::lease::beat::{self, QUEUE_MAX};
use usher_core::lease::browser::Phase;
use usher_pool::sqlite::Sqlite;
use usher_pool::{Clock, Fault, PoolError, Settings};

async fn refused(kept: &Kept) -> PoolError {
    let clock = Clock::system();
    let opened = Sqlite::open(&kept.path(), Settings::default(), clock, Duration::ZERO).await;
    opened.expect_err("refused")
}

fn impatient() -> Settings {
    Settings {
        patience: Duration::from_millis(200),
        ..Settings::default()
    }
}

#[tokio::test]
async fn a_pool_has_one_owner() {
    let kept = Kept::new();
    let pool = kept.open().await;
    let error = refused(&kept).await;
    let id = std::process::id();
    assert_eq!(error.fault, Fault::Held { pid: Some(id) });
    assert_eq!(
        error.to_string(),
        format!(
            "browser pool {}: is in use by process {id}; stop that one first, or name another pool",
            kept.path().display(),
        )
    );
    // The owner is not disturbed, and lets the next one in.
    node(&pool, "one", 4, 1..2).await;
    pool.stop().await.expect("stops");
    assert_eq!(kept.open().await.nodes().await.expect("asked").len(), 1);
}

#[tokio::test]
async fn a_newer_schema_is_refused() {
    let kept = Kept::new();
    kept.open().await.stop().await.expect("stops");
    let connection = Connection::open(kept.path()).expect("opens");
    connection
        .execute_batch("PRAGMA user_version = 9")
        .expect("set");
    drop(connection);
    let before = fs::read(kept.path()).expect("read");
    assert_eq!(
        refused(&kept).await.fault,
        Fault::Newer { found: 9, known: 2 }
    );
    assert_eq!(fs::read(kept.path()).expect("read"), before);
}

#[tokio::test]
async fn what_is_not_ours_is_left_alone() {
    let kept = Kept::new();
    let connection = Connection::open(kept.path()).expect("opens");
    connection
        .execute_batch("CREATE TABLE theirs (x); INSERT INTO theirs VALUES (1)")
        .expect("made");
    drop(connection);
    let before = fs::read(kept.path()).expect("read");
    assert!(matches!(refused(&kept).await.fault, Fault::Foreign(_)));
    assert_eq!(fs::read(kept.path()).expect("read"), before);
    let text = "no database at all, but long enough that somebody could take it for one\n";
    fs::write(kept.path(), text.repeat(100)).expect("written");
    assert!(matches!(refused(&kept).await.fault, Fault::Foreign(_)));
}

#[tokio::test]
async fn a_damaged_file_is_said_to_be() {
    let kept = Kept::new();
    let pool = kept.open().await;
    node(&pool, "one", 400, 0..300).await;
    pool.stop().await.expect("stops");
    let mut bytes = fs::read(kept.path()).expect("read");
    // Every page but the first.
    for byte in &mut bytes[4_096..] {
        *byte ^= 0x5a;
    }
    fs::write(kept.path(), &bytes).expect("written");
    let error = refused(&kept).await;
    assert!(matches!(error.fault, Fault::Damaged(_)), "{error}");
    assert!(error.to_string().contains("put it aside"), "{error}");
    assert_eq!(fs::read(kept.path()).expect("read"), bytes);
}

/// Another program has the lock: whoever asks is refused when patience is over, heartbeats wait,
/// and when the lock is gone everything goes on.
#[tokio::test]
async fn a_lock_that_stays_refuses_in_time() {
    let kept = Kept::new();
    let pool = kept.open_with(impatient()).await;
    let of = node(&pool, "one", 4, 1..4).await;
    let other = Connection::open(kept.path()).expect("opens");
    other.execute_batch("BEGIN IMMEDIATE").expect("locked");
    let asked = Instant::now();
    let (one, two) = tokio::join!(pool.pick(wish(1), 1), pool.pick(wish(2), 2));
    assert!(asked.elapsed() >= impatient().patience);
    for refused in [one, two] {
        assert_eq!(refused.expect_err("locked").fault, Fault::Busy);
    }
    // Reading goes on.
    assert_eq!(pool.nodes().await.expect("asked").len(), 1);
    pool.beats(of, &[beat(1, 9, Phase::Dead, 0)]);
    assert_eq!(pool.flush().await.expect_err("locked").fault, Fault::Busy);
    assert_eq!(pool.figures().dropped_failed, 0);
    other.execute_batch("ROLLBACK").expect("free");
    pool.flush().await.expect("written");
    assert_eq!(pool.figures().counted, 4);
    let given = [picked(&pool, 1).await, picked(&pool, 2).await];
    assert_ne!(given[0].browser, given[1].browser);
    assert_eq!(pick(&pool, 3).await, None, "one of three was dead");
}

/// More heartbeats than may wait: the oldest go, and that is counted.
#[tokio::test]
async fn what_is_lost_under_overload_is_told() {
    let kept = Kept::new();
    let settings = Settings {
        beats: beat::Settings {
            batch_size: 10_000,
            ..beat::Settings::default()
        },
        patience: Duration::from_millis(50),
        ..Settings::default()
    };
    let pool = kept.open_with(settings).await;
    let of = node(&pool, "one", 4, 1..2).await;
    let other = Connection::open(kept.path()).expect("opens");
    other.execute_batch("BEGIN IMMEDIATE").expect("locked");
    // One batch may be in the hands of the writer already.
    let room = QUEUE_MAX + 10_000;
    let many: Vec<_> = (0..room as u64 + 7)
        .map(|seq| beat(1, 10 + seq, Phase::Ready, 0))
        .collect();
    pool.beats(of, &many);
    let figures = pool.figures();
    assert_eq!(figures.received, 1 + many.len() as u64);
    assert!(figures.dropped_full >= 7, "{figures:?}");
    assert_eq!(figures.dropped_failed, 0);
    other.execute_batch("ROLLBACK").expect("free");
    pool.flush().await.expect("written");
    let figures = pool.figures();
    let told = figures.counted + figures.outdated + figures.dropped_full;
    // Of a browser's heartbeats in one batch only the newest is written.
    assert!(told <= figures.received, "{figures:?}");
    let browsers = pool.browsers(of.0, 0).await.expect("asked");
    assert_eq!(browsers[0].seq, 10 + many.len() as u64 - 1);
}
