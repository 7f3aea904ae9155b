//! From a path to a store that can be trusted, or to what is wrong with it.
//!
//! Order matters: nothing is written before the lock is held and the version is known, and nobody
//! but the owner may ever read the file, which holds keys.

use std::collections::HashMap;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use sqlx::sqlite::{SqliteConnectOptions, SqlitePoolOptions, SqliteSynchronous};
use sqlx::{ConnectOptions as _, Connection as _, SqliteConnection, SqlitePool, query_scalar};
use usher_core::id::Id;

use super::fault::of_io;
use super::load;
use super::lock::Lock;
use super::schema;
use crate::fault::Fault;
use crate::stamp::Stamp;
use crate::state::State;

/// How long a lock of another program on the database is waited for: a shell, a backup.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);

/// Bytes of write-ahead log that stay after it was long.
const LOG_BYTES_KEPT: &str = "16777216";

/// Connections for questions; each has a thread.
const READERS_MAX: u32 = 2;

/// What there is once a store is open.
pub(super) struct Opened {
    pub(super) database: Database,
    pub(super) readers: SqlitePool,
    pub(super) state: State,
    pub(super) uses: HashMap<Id, Stamp>,
}

/// The one connection that writes, and the right to.
#[derive(Debug)]
pub(super) struct Database {
    options: SqliteConnectOptions,
    connection: Option<SqliteConnection>,
    _lock: Lock,
}

impl Database {
    /// The connection, opened anew after a fault.
    pub(super) async fn connection(&mut self) -> Result<&mut SqliteConnection, Fault> {
        let connection = match self.connection.take() {
            Some(connection) => connection,
            None => self.options.connect().await?,
        };
        Ok(self.connection.insert(connection))
    }

    /// Gives the connection up, and with it whatever transaction it is in.
    pub(super) async fn disconnect(&mut self) {
        if let Some(connection) = self.connection.take()
            && let Err(error) = connection.close().await
        {
            tracing::debug!(%error, "a connection to the store did not end well");
        }
    }
}

/// Opens the store at `path`, which is made if it is not there.
pub(super) async fn open(path: &Path, patience: Duration) -> Result<Opened, Fault> {
    // Absolute, so that no name is taken for a URI.
    let path = std::path::absolute(path).map_err(|error| of_io(&error, "has no place"))?;
    make_folder(&path)?;
    let lock = Lock::take(&path, patience).await?;
    make_file(&path)?;
    let options = SqliteConnectOptions::new()
        .filename(&path)
        .busy_timeout(BUSY_TIMEOUT)
        .synchronous(SqliteSynchronous::Full)
        .pragma("journal_size_limit", LOG_BYTES_KEPT)
        // What was a secret once does not lie about in free pages.
        .pragma("secure_delete", "ON")
        .disable_statement_logging();
    let mut database = Database {
        options,
        connection: None,
        _lock: lock,
    };
    match look_and_load(&mut database).await {
        Ok((state, uses)) => Ok(Opened {
            readers: readers(&database.options),
            database,
            state,
            uses,
        }),
        Err(fault) => {
            database.disconnect().await;
            Err(fault)
        }
    }
}

async fn look_and_load(database: &mut Database) -> Result<(State, HashMap<Id, Stamp>), Fault> {
    let connection = database.connection().await?;
    schema::look(connection).await?;
    let mode: String = query_scalar("PRAGMA journal_mode = WAL")
        .fetch_one(&mut *connection)
        .await?;
    if mode != "wal" {
        let what = "its file system allows no write-ahead log; put it on a local disk";
        return Err(Fault::Io(what.to_owned()));
    }
    schema::bring_up(connection).await?;
    // What is loaded is looked at whole. A fault in the rest shows when the rest is read.
    let found: String = query_scalar("PRAGMA quick_check(resources)")
        .fetch_one(&mut *connection)
        .await?;
    if found != "ok" {
        return Err(Fault::Damaged(found.replace('\n', "; ")));
    }
    let state = load::state(connection).await?;
    let uses = load::uses(connection).await?;
    Ok((state, uses))
}

fn readers(options: &SqliteConnectOptions) -> SqlitePool {
    SqlitePoolOptions::new()
        .max_connections(READERS_MAX)
        .acquire_timeout(BUSY_TIMEOUT)
        .idle_timeout(None)
        .max_lifetime(None)
        .test_before_acquire(false)
        .connect_lazy_with(options.clone().read_only(true))
}

fn make_folder(path: &Path) -> Result<(), Fault> {
    let Some(folder) = path.parent() else {
        return Err(Fault::Foreign("a folder is there".to_owned()));
    };
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(folder)
        .map_err(|error| of_io(&error, "its folder cannot be made"))
}

/// Makes sure that there is a file, for nobody but its owner.
fn make_file(path: &Path) -> Result<(), Fault> {
    let made = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path);
    match made {
        Ok(_) => sync_folder(path).map_err(|error| of_io(&error, "cannot be made")),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => check_file(path),
        Err(error) => Err(of_io(&error, "cannot be made")),
    }
}

fn check_file(path: &Path) -> Result<(), Fault> {
    let metadata = fs::metadata(path).map_err(|error| of_io(&error, "cannot be looked at"))?;
    if !metadata.is_file() {
        return Err(Fault::Foreign("no file is there".to_owned()));
    }
    let mode = metadata.permissions().mode() & 0o777;
    if mode & 0o007 != 0 {
        return Err(Fault::Exposed { mode });
    }
    Ok(())
}

/// The name of a new file is as durable as what will be in it.
fn sync_folder(path: &Path) -> io::Result<()> {
    let folder = path.parent().map_or_else(PathBuf::new, Path::to_path_buf);
    File::open(folder)?.sync_all()
}
