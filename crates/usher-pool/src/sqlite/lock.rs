//! One process owns a pool. It says so with a lock on a file beside the database, which the system
//! takes away when the process ends, however it ends.
//!
//! The database has locks of its own, but they are held for a transaction at a time, and which key
//! a browser has is in the memory of the one who writes.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read as _, Seek as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use super::fault::of_io;
use crate::fault::Fault;

/// How often a lock that another process holds is asked for; there is no event to wait for.
const ASK_EVERY: Duration = Duration::from_millis(10);

/// Ownership of a pool, for as long as it lives.
#[derive(Debug)]
pub(super) struct Lock {
    _file: File,
}

impl Lock {
    /// Takes the lock of the database at `path`, once it is free, within `patience`.
    pub(super) fn take(path: &Path, patience: Duration) -> Result<Lock, Fault> {
        let deadline = Instant::now() + patience;
        let mut beside = path.as_os_str().to_owned();
        beside.push(".lock");
        let unusable = |error: &io::Error| of_io(error, "its lock file cannot be used");
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(&beside)
            .map_err(|error| unusable(&error))?;
        loop {
            match file.try_lock() {
                Ok(()) => break,
                Err(TryLockError::Error(error)) => return Err(unusable(&error)),
                Err(TryLockError::WouldBlock) if Instant::now() + ASK_EVERY > deadline => {
                    let pid = holder(&mut file);
                    return Err(Fault::Held { pid });
                }
                Err(TryLockError::WouldBlock) => thread::sleep(ASK_EVERY),
            }
        }
        // Only for the message of whoever comes second: a full disk must not stop us here.
        let named = file
            .set_len(0)
            .and_then(|()| write!(file, "{}", std::process::id()));
        if let Err(error) = named {
            tracing::debug!(%error, "the lock file does not say who holds it");
        }
        Ok(Lock { _file: file })
    }
}

fn holder(file: &mut File) -> Option<u32> {
    let mut text = String::new();
    file.rewind().ok()?;
    file.take(16).read_to_string(&mut text).ok()?;
    text.trim().parse().ok()
}
