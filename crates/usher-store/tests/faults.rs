//! What is wrong with a store is said by name, and left as it was.

#![allow(clippy::print_stderr)] // what was skipped

mod support;

use std::fs::{self, OpenOptions, Permissions};
use std::io::{Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use sqlx::{ConnectOptions as _, Connection as _, raw_sql, sqlite::SqliteConnectOptions};
use support::{Kept, create, fault, names, pool, refused, write, written};
use usher_store::sqlite::Sqlite;
use usher_store::{ChangeError, Fault, Retention};

/// Names the store to a process of this test that runs as somebody else.
const CHILD: &str = "USHER_STORE_TEST_READ_ONLY";

/// Nobody in particular.
const NOBODY: u32 = 65534;

#[tokio::test]
async fn a_store_has_one_owner() {
    let kept = Kept::new();
    let store = kept.open().await;
    let error = refused(&kept.path()).await;
    let pid = Some(std::process::id());
    assert_eq!(error.fault, Fault::Held { pid });
    assert_eq!(
        error.to_string(),
        format!(
            "store {}: is in use by process {}; stop that one first, or name another store",
            kept.path().display(),
            std::process::id()
        )
    );
    // The owner is not disturbed.
    written(&store, vec![create(pool(1))]).await;
    store.close().await.expect("closes");
    assert_eq!(names(&kept.open().await), ["pool-1"]);
}

#[tokio::test]
async fn who_is_patient_gets_the_store_when_its_owner_lets_go() {
    let kept = Kept::new();
    let store = kept.open().await;
    let path = kept.path();
    let next = tokio::spawn(async move {
        Sqlite::open(&path, Retention::default(), Duration::from_secs(60)).await
    });
    written(&store, vec![create(pool(1))]).await;
    store.close().await.expect("closes");
    let next = next.await.expect("no panic").expect("opens");
    assert_eq!(usher_store::Store::state(&next), store.state());
}

#[tokio::test]
async fn a_newer_version_is_left_alone() {
    let kept = Kept::new();
    kept.open().await.close().await.expect("closes");
    sql(&kept.path(), "PRAGMA user_version = 7").await;
    let before = fs::read(kept.path()).expect("there");
    let error = refused(&kept.path()).await;
    assert_eq!(error.fault, Fault::Newer { found: 7, known: 2 });
    assert!(error.to_string().contains("newer than 2"), "{error}");
    assert_eq!(fs::read(kept.path()).expect("there"), before);
}

#[tokio::test]
async fn what_is_not_ours_is_left_alone() {
    let kept = Kept::new();
    let path = kept.path();
    make(&path, b"");
    sql(&path, "CREATE TABLE orders (id INTEGER)").await;
    let before = fs::read(&path).expect("there");
    assert!(matches!(fault(&path).await, Fault::Foreign(_)));
    assert_eq!(fs::read(&path).expect("there"), before);

    make(&path, "pools: {}\n".repeat(100).as_bytes());
    let before = fs::read(&path).expect("there");
    assert!(matches!(fault(&path).await, Fault::Foreign(_)));
    assert_eq!(fs::read(&path).expect("there"), before);

    let folder = path.with_file_name("folder");
    fs::create_dir(&folder).expect("made");
    assert!(matches!(fault(&folder).await, Fault::Foreign(_)));

    let below = path.join("usher.db");
    assert!(matches!(fault(&below).await, Fault::Io(_)));
}

#[tokio::test]
async fn a_file_that_everybody_may_use_is_not_used() {
    let kept = Kept::new();
    kept.open().await.close().await.expect("closes");
    let mode = |path: &Path| fs::metadata(path).expect("there").mode() & 0o777;
    assert_eq!(mode(&kept.path()), 0o600);
    chmod(&kept.path(), 0o644);
    let found = fault(&kept.path()).await;
    assert_eq!(found, Fault::Exposed { mode: 0o644 });
    chmod(&kept.path(), 0o640);
    kept.open().await;
}

#[tokio::test]
async fn an_owner_makes_the_folder_for_itself() {
    let kept = Kept::new();
    let path = kept.path().with_file_name("var").join("usher.db");
    let store = Sqlite::open(&path, Retention::default(), Duration::ZERO).await;
    assert!(store.is_ok());
    let folder = fs::metadata(path.parent().expect("a folder")).expect("there");
    assert_eq!(folder.mode() & 0o777, 0o700);
}

#[tokio::test]
async fn a_damaged_file_is_refused() {
    let kept = Kept::new();
    let store = kept.open().await;
    for number in 0..200 {
        written(&store, vec![create(pool(number))]).await;
    }
    store.close().await.expect("closes");
    let whole = fs::read(kept.path()).expect("there");
    // One page after the other, but for the first, which says what the file is.
    let pages = whole.len() / 4096;
    let mut refusals = 0;
    for page in 1..pages {
        let mut file = OpenOptions::new().write(true).open(kept.path());
        let file = file.as_mut().expect("opens");
        file.seek(SeekFrom::Start(page as u64 * 4096))
            .expect("seeks");
        file.write_all(&[0xa5; 4096]).expect("writes");
        match Sqlite::open(&kept.path(), Retention::default(), Duration::ZERO).await {
            // The page was of the past, not of what is wanted.
            Ok(store) => usher_store::Store::close(&store).await.expect("closes"),
            Err(error) => {
                assert!(matches!(error.fault, Fault::Damaged(_)), "{error}");
                let told = error.to_string();
                assert!(told.contains("restore a copy"), "{told}");
                refusals += 1;
            }
        }
        fs::write(kept.path(), &whole).expect("restored");
    }
    assert!(refusals > 0, "of {pages} pages none mattered");
    assert_eq!(names(&kept.open().await).len(), 200);
}

#[tokio::test]
async fn a_row_that_cannot_be_is_refused() {
    for damage in [
        "UPDATE resources SET scope = 'nowhere'",
        "UPDATE resources SET kind = 'pools'",
        "UPDATE resources SET revision = 7",
        "UPDATE resources SET created = -1",
        "DELETE FROM meta",
    ] {
        let kept = Kept::new();
        let store = kept.open().await;
        written(&store, vec![create(pool(1))]).await;
        store.close().await.expect("closes");
        sql(&kept.path(), damage).await;
        let found = fault(&kept.path()).await;
        assert!(matches!(found, Fault::Damaged(_)), "{damage}: {found}");
    }
}

#[tokio::test]
async fn a_commit_that_nobody_learned_of_is_found() {
    let kept = Kept::new();
    let store = kept.open().await;
    written(&store, vec![create(pool(1))]).await;
    // As if it had reached the disk and the answer had been an error.
    sql(
        &kept.path(),
        "INSERT INTO resources (kind, id, scope, name, document, created_on, modified_on, \
         created, position, revision) SELECT kind, zeroblob(16), scope, 'found', document, \
         created_on, modified_on, 2, 0, 2 FROM resources; \
         INSERT INTO audit (revision, at, actor, what) VALUES (2, 0, 'admin', ''); \
         UPDATE meta SET revision = 2",
    )
    .await;
    written(&store, vec![create(pool(3))]).await;
    assert_eq!(names(&store), ["pool-1", "found", "pool-3"]);
    assert_eq!(store.state().revision().0, 3);
}

#[tokio::test]
async fn a_lock_of_another_program_is_waited_for() {
    let kept = Kept::new();
    let store = kept.open().await;
    let other = SqliteConnectOptions::new().filename(kept.path());
    let mut other = other.connect().await.expect("opens");
    let begun = raw_sql("BEGIN IMMEDIATE").execute(&mut other).await;
    begun.expect("locks");
    let waiting = tokio::spawn({
        let store = std::sync::Arc::clone(&store);
        async move { write(&store, support::intent(0), vec![create(pool(1))]).await }
    });
    raw_sql("ROLLBACK")
        .execute(&mut other)
        .await
        .expect("lets go");
    waiting.await.expect("no panic").expect("written");
}

#[test]
fn what_cannot_be_written_is_refused() {
    if let Some(path) = std::env::var_os(CHILD) {
        return read_only(Path::new(&path));
    }
    let kept = Kept::new();
    let path = kept.path();
    let folder = path.parent().expect("a folder");
    block_on(async { kept.open().await.close().await.expect("closes") });
    let lock = path.with_file_name("usher.db.lock");
    let as_nobody = fs::metadata("/proc/self").expect("there").uid() == 0;
    for there in [&path, &lock, &folder.to_path_buf()] {
        if as_nobody {
            chown(there, Some(NOBODY), None).expect("given away");
        }
    }
    // The database but nothing else is read-only; then the folder too, and nothing is in it.
    chmod(&path, 0o400);
    run_as(as_nobody, folder, &path);
    let empty = folder.join("empty");
    fs::create_dir(&empty).expect("made");
    chmod(&empty, 0o555);
    run_as(as_nobody, folder, &empty.join("usher.db"));
    chmod(&empty, 0o755);
}

/// Runs this test in a process of its own, without the rights of the superuser.
fn run_as(nobody: bool, folder: &Path, path: &Path) {
    // Where this binary is, somebody else may have no way to.
    let binary: PathBuf = folder.join("test");
    if !binary.exists() {
        fs::copy(std::env::current_exe().expect("known"), &binary).expect("copied");
    }
    let mut child = Command::new(&binary);
    child
        .args(["--exact", "what_cannot_be_written_is_refused"])
        .env(CHILD, path)
        .current_dir(folder);
    if nobody {
        child.uid(NOBODY);
    }
    let output = match child.output() {
        Ok(output) => output,
        // A container may have no other user, or one that may not enter here.
        Err(error) if nobody => return eprintln!("skipped: no test as nobody: {error}"),
        Err(error) => panic!("{error}"),
    };
    let told = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{told}");
}

fn read_only(path: &Path) {
    let error = block_on(refused(path));
    assert!(matches!(error.fault, Fault::ReadOnly(_)), "{error}");
    let told = error.to_string();
    assert!(told.contains(&path.display().to_string()), "{told}");
    assert!(told.contains("is read-only"), "{told}");
}

#[test]
fn what_was_said_of_a_fault_is_said_of_the_change() {
    let error = Fault::Full.to_string();
    let place = "usher.db".into();
    let fault = Fault::Full;
    let change: ChangeError<String> = ChangeError::Store(usher_store::StoreError { place, fault });
    assert_eq!(change.to_string(), format!("store usher.db: {error}"));
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    runtime.expect("a runtime").block_on(future)
}

async fn sql(path: &Path, text: &'static str) {
    let options = SqliteConnectOptions::new().filename(path);
    let mut connection = options.connect().await.expect("opens");
    raw_sql(text).execute(&mut connection).await.expect("done");
    connection.close().await.expect("closes");
}

fn make(path: &Path, bytes: &[u8]) {
    fs::write(path, bytes).expect("written");
    chmod(path, 0o600);
}

fn chmod(path: &Path, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).expect("changed");
}
