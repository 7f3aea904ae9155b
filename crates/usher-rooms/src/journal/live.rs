//! The folder of all rooms' journals, and the lock that says which process may write there.
//!
//! The kernel takes the lock away from a process that dies, so there is no stale one to clean up.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use usher_core::id::Id;

use super::JournalFault;

const LOCK_NAME: &str = "lock";

/// The right to write the journals in a folder; it ends when this is dropped.
#[derive(Debug)]
pub struct Live {
    folder: PathBuf,
    lock: File,
}

impl Live {
    /// Makes `folder` if it is not there and takes its lock.
    ///
    /// # Errors
    /// The folder cannot be made, or another process holds the lock ([`JournalFault::Owned`]).
    pub fn take(folder: &Path) -> Result<Live, JournalFault> {
        let lock = lock_file(folder)?;
        lock.try_lock().map_err(|fault| {
            let path = folder.join(LOCK_NAME);
            match fault {
                TryLockError::WouldBlock => JournalFault::Owned { path },
                TryLockError::Error(source) => JournalFault::io(&path, "lock")(source),
            }
        })?;
        Ok(Live::new(folder, lock))
    }

    /// The same, and waits until whoever holds the lock lets it go. Blocks the thread.
    ///
    /// # Errors
    /// The folder cannot be made, or not be locked.
    pub fn wait(folder: &Path) -> Result<Live, JournalFault> {
        let lock = lock_file(folder)?;
        lock.lock()
            .map_err(JournalFault::io(&folder.join(LOCK_NAME), "lock"))?;
        Ok(Live::new(folder, lock))
    }

    fn new(folder: &Path, lock: File) -> Live {
        Live {
            folder: folder.to_owned(),
            lock,
        }
    }

    /// Whether somebody has removed the lock: another process could have one of its own now.
    #[must_use]
    pub fn is_removed(&self) -> bool {
        // Where the system does not say, it is there.
        (self.lock.metadata()).is_ok_and(|metadata| metadata.nlink() == 0)
    }

    /// The folder of all rooms.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The folder of one room.
    #[must_use]
    pub fn of_room(&self, room: Id) -> PathBuf {
        self.folder.join(room.to_string())
    }
}

fn lock_file(folder: &Path) -> Result<File, JournalFault> {
    fs::create_dir_all(folder).map_err(JournalFault::io(folder, "make the folder"))?;
    let path = folder.join(LOCK_NAME);
    OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .open(&path)
        .map_err(JournalFault::io(&path, "open"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_owner_at_a_time() {
        let parent = tempfile::tempdir().expect("folder");
        let folder = parent.path().join("live");
        let first = Live::take(&folder).expect("free");
        let fault = Live::take(&folder).expect_err("owned");
        assert!(matches!(fault, JournalFault::Owned { .. }), "{fault}");
        let waiting = std::thread::spawn({
            let folder = folder.clone();
            move || Live::wait(&folder)
        });
        drop(first);
        let second = waiting.join().expect("no panic").expect("free");
        let room = second.of_room(Id::from_bytes([0xab; 16]));
        assert!(room.ends_with("ab".repeat(16)));
    }
}
