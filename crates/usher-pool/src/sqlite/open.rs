//! From a path to a pool that can be trusted, or to what is wrong with it.
//!
//! Order matters: nothing is written before the lock is held and the version is known.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags};

use super::fault::of_io;
use super::lock::Lock;
use super::schema;
use crate::fault::Fault;

/// How long a lock of another program on the database is waited for at one time.
pub(super) const BUSY_STEP: Duration = Duration::from_millis(50);

/// The same for whoever only reads.
const BUSY_READING: Duration = Duration::from_secs(2);

/// Statements that are kept ready to run.
const STATEMENTS_MAX: usize = 128;

/// The log goes back into the file when it is this long, in pages of 4 KiB: seldom, because
/// whoever asks meanwhile waits for it, and a row that was written twenty times goes back once.
const LOG_PAGES: u32 = 8_192;

/// Memory for pages, in KiB: the rows of half a million browsers.
const CACHE_KIB: u32 = 65_536;

/// The one connection that writes, and the right to.
#[derive(Debug)]
pub(super) struct Database {
    path: PathBuf,
    _lock: Lock,
}

impl Database {
    /// Takes the pool at `path`, which is made if it is not there, and says what is wrong with it.
    pub(super) fn take(path: &Path, patience: Duration) -> Result<(Database, Connection), Fault> {
        // Absolute, so that no name is taken for a URI.
        let path = std::path::absolute(path).map_err(|error| of_io(&error, "has no place"))?;
        make_folder(&path)?;
        let lock = Lock::take(&path, patience)?;
        make_file(&path)?;
        let database = Database { path, _lock: lock };
        let connection = database.connect()?;
        connection.busy_timeout(patience.max(BUSY_READING))?;
        schema::look(&connection)?;
        let mode: String =
            connection.query_row("PRAGMA journal_mode = WAL", [], |row| row.get(0))?;
        if mode != "wal" {
            let what = "its file system allows no write-ahead log; put it on a local disk";
            return Err(Fault::Io(what.to_owned()));
        }
        schema::bring_up(&connection)?;
        let found: String = connection.query_row("PRAGMA quick_check(1)", [], |row| row.get(0))?;
        if found != "ok" {
            return Err(Fault::Damaged(found.replace('\n', "; ")));
        }
        connection.busy_timeout(BUSY_STEP)?;
        Ok((database, connection))
    }

    /// Another connection for the writer, after a fault.
    pub(super) fn connect(&self) -> Result<Connection, Fault> {
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = Connection::open_with_flags(&self.path, flags)?;
        connection.set_prepared_statement_cache_capacity(STATEMENTS_MAX);
        keep_plans(&connection)?;
        connection.busy_timeout(BUSY_STEP)?;
        // A kill of this process loses nothing. A machine that loses its power may lose the last
        // moments; the nodes, which keep their own truth, then end what the pool does not know.
        connection.execute_batch(&format!(
            "PRAGMA synchronous = NORMAL;
             PRAGMA wal_autocheckpoint = {LOG_PAGES};
             PRAGMA journal_size_limit = 67108864;
             PRAGMA cache_size = -{CACHE_KIB};"
        ))?;
        Ok(connection)
    }

    /// A connection for questions.
    pub(super) fn reader(path: &Path) -> Result<Connection, Fault> {
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = Connection::open_with_flags(path, flags)?;
        keep_plans(&connection)?;
        connection.busy_timeout(BUSY_READING)?;
        Ok(connection)
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}

/// A statement that was prepared stays so, whatever values are put into it. The engine would look
/// at them (a bound `LIMIT` is enough) and prepare it anew each time, which was 40 % of a pick.
fn keep_plans(connection: &Connection) -> Result<(), Fault> {
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
    Ok(())
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
        // The name of a new file is as durable as what will be in it.
        Ok(_) => File::open(path.parent().unwrap_or(Path::new("/")))
            .and_then(|folder| folder.sync_all())
            .map_err(|error| of_io(&error, "cannot be made")),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            let metadata = fs::metadata(path);
            let metadata = metadata.map_err(|error| of_io(&error, "cannot be looked at"))?;
            match metadata.is_file() {
                true => Ok(()),
                false => Err(Fault::Foreign("no file is there".to_owned())),
            }
        }
        Err(error) => Err(of_io(&error, "cannot be made")),
    }
}
