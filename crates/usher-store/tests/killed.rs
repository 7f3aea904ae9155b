//! A store that is killed keeps every change that it said it kept, each once and whole.
//!
//! A process of its own writes from many tasks at once and says of each change when it is kept; it
//! is killed again and again until 10,000 are. Each change makes a pool and counts it in a monitor,
//! so a change that is half there, or there twice, shows in the count.

mod support;

use std::io::{self, BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use support::{Kept, create, id, intent, pool, replace};
use usher_store::{AuditQuery, Change, Kind, Op, Put, Retention, State, Store};

/// Names the store to the process that writes.
const CHILD: &str = "USHER_STORE_TEST_KILLED";

/// Tells it that nobody will kill it.
const ENDS: &str = "USHER_STORE_TEST_ENDS";

const CHANGES: u32 = 10_000;

/// The change after whose answer the process is killed. In between it is at some point or other.
const KILLS: [u32; 6] = [1, 137, 2_009, 4_500, 6_111, 9_001];

const WRITERS: u32 = 64;

/// A kill leaves up to a number for each writer out.
const NUMBERS: u32 = CHANGES + WRITERS * KILLS.len() as u32;

const COUNTER: u32 = u32::MAX;

#[test]
fn acknowledged_changes_survive_a_kill() {
    match std::env::var_os(CHILD) {
        Some(path) => run(write_until_killed(Path::new(&path).to_owned())),
        None => run(kill_again_and_again()),
    }
}

async fn kill_again_and_again() {
    let kept = Kept::new();
    let mut acknowledged = Vec::new();
    for kill in KILLS.into_iter().map(Some).chain([None]) {
        let mut child = Writing::start(&kept.path(), kill.is_none());
        for number in child.acknowledged() {
            acknowledged.push(number);
            if kill.is_some_and(|kill| acknowledged.len() == kill as usize) {
                // What it said before it died counts too, so the loop goes on to the end.
                child.child.kill().expect("killed");
            }
        }
        let status = child.child.wait().expect("ends");
        assert_eq!(status.success(), kill.is_none(), "{status}");
        check(&kept, &acknowledged).await;
    }
    let store = kept.open().await;
    assert!(store.state().count(Kind::Pool) >= CHANGES as usize);
}

/// Everything that was acknowledged is there, and whatever is there is whole.
async fn check(kept: &Kept, acknowledged: &[u32]) {
    let store = kept.open().await;
    let state = store.state();
    for number in acknowledged {
        let found = state.find(Kind::Pool, id(*number));
        let found = found.unwrap_or_else(|| panic!("pool {number} is gone"));
        assert_eq!(found.document, document(*number));
    }
    let pools = state.count(Kind::Pool);
    assert_eq!(state.revision().0, pools as u64);
    let counted = state.find(Kind::Monitor, id(COUNTER));
    assert_eq!(
        counted.map_or(0, |counter| counter.name.parse().expect("a number")),
        pools
    );
    // Newest first, each row once, and each found what the one before it left.
    let mut query = AuditQuery {
        limit: 1000,
        ..AuditQuery::default()
    };
    let mut rows = 0;
    let mut found: Option<String> = None;
    loop {
        let page = store.audit(query.clone()).await.expect("read");
        assert_eq!(page.total, pools as u64);
        for row in &page.rows {
            assert_eq!(row.revision.0, (pools - rows) as u64);
            let [made, counter] = &row.items[..] else {
                panic!("{row:?}");
            };
            assert_eq!((made.kind, &made.before), (Kind::Pool, &None));
            if rows > 0 {
                assert_eq!(counter.after, found);
            }
            found = counter.before.clone();
            rows += 1;
        }
        query.before = page.next;
        if page.next.is_none() {
            break;
        }
    }
    assert_eq!(rows, pools);
    assert_eq!(found, None);
    store.close().await.expect("closes");
}

/// A process that writes, and tells.
struct Writing {
    child: Child,
}

impl Writing {
    fn start(path: &Path, ends: bool) -> Writing {
        let mut command = Command::new(std::env::current_exe().expect("known"));
        command
            .args([
                "--exact",
                "acknowledged_changes_survive_a_kill",
                "--nocapture",
            ])
            .env(CHILD, path)
            .stdout(Stdio::piped());
        if ends {
            command.env(ENDS, "");
        }
        let child = command.spawn().expect("starts");
        Writing { child }
    }

    /// The changes that it says are kept. It writes a line in one piece, so none is half.
    fn acknowledged(&mut self) -> impl Iterator<Item = u32> + use<> {
        let stdout = self.child.stdout.take().expect("piped");
        let lines = BufReader::new(stdout).lines();
        lines.filter_map(|line| {
            let line = line.expect("text");
            let (_, number) = line.split_once("kept ")?;
            Some(number.parse().expect("a number"))
        })
    }
}

async fn write_until_killed(path: std::path::PathBuf) {
    let store =
        usher_store::sqlite::Sqlite::open(&path, Retention::default(), std::time::Duration::ZERO);
    // The system has taken the lock away from who was killed: nothing to be patient for.
    let store: Arc<dyn Store> = Arc::new(store.await.expect("opens"));
    let state = store.state();
    let number = |name: &str| {
        name.trim_start_matches("pool-")
            .parse::<u32>()
            .expect("a number")
    };
    let last = state.all(Kind::Pool).map(|pool| number(&pool.name)).max();
    let next = Arc::new(AtomicU32::new(last.map_or(0, |last| last + 1)));
    let ends = std::env::var_os(ENDS).is_some();
    let writers: Vec<_> = (0..WRITERS)
        .map(|_| {
            let (store, next) = (Arc::clone(&store), Arc::clone(&next));
            tokio::spawn(async move {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= NUMBERS {
                        if ends {
                            break;
                        }
                        // The kill is on its way, and has to find somebody.
                        std::future::pending::<()>().await;
                    }
                    let check = move |state: &State| Ok::<_, String>(count(state, number));
                    let written = store.change(intent(0), check).await.expect("kept");
                    let line = format!("kept {}\n", written.answer);
                    io::stdout().write_all(line.as_bytes()).expect("told");
                }
            })
        })
        .collect();
    for writer in writers {
        writer.await.expect("no panic");
    }
    store.close().await.expect("closes");
}

/// A pool more, and the count of pools.
fn count(state: &State, number: u32) -> Change {
    let counted = state.count(Kind::Pool);
    let counter = Put {
        kind: Kind::Monitor,
        id: id(COUNTER),
        name: (counted + 1).to_string(),
        document: document(u32::try_from(counted).expect("small")),
        ..pool(0)
    };
    let count: Op = if counted == 0 {
        create(counter)
    } else {
        replace(counter)
    };
    let made = Put {
        document: document(number),
        ..pool(number)
    };
    let (ops, answer) = (vec![create(made), count], number.to_string());
    Change { ops, answer }
}

/// Long enough to lie on several pages of a log now and then.
fn document(number: u32) -> String {
    format!(
        "{{\"number\": {number}, \"text\": \"{}\"}}",
        "x".repeat(number as usize % 700)
    )
}

fn run(future: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build();
    runtime.expect("a runtime").block_on(future);
}
