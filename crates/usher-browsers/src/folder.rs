//! The folder of a running host.
//!
//! Ours alone: a host that finds it open to others refuses it, and a second host on the same folder
//! is turned away by a lock, which the kernel gives back however the first one ends. What an earlier
//! host left in it is swept before anything is started.
//!
//! A host that is root lets others pass through it, not look into it: bare browsers run as somebody
//! else and have their files below it.

use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use usher_core::lease::BrowserId;

/// How long to wait between tries to remove a folder that is still in use.
const RETRY: [Duration; 3] = [
    Duration::from_millis(200),
    Duration::from_millis(400),
    Duration::from_millis(800),
];

/// The name of the socket in it.
pub const SOCKET: &str = "socket";

/// Why a folder cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum FolderFault {
    /// It cannot be made, read or written.
    #[error("browser host folder {path}")]
    Io {
        /// Which file or folder.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// Somebody else can write to it or owns it.
    #[error(
        "browser host folder {path} belongs to user {owner} with mode {mode:o}: it has to be ours, and closed to others (700)"
    )]
    Open {
        /// The folder.
        path: PathBuf,
        /// Whose it is.
        owner: u32,
        /// Its permissions.
        mode: u32,
    },
    /// Another host runs in it.
    #[error("browser host folder {0} is in use by another host")]
    Taken(PathBuf),
}

/// A folder that this host has to itself.
#[derive(Debug)]
pub struct Folder {
    path: PathBuf,
    // Held, not used: the lock goes when it is closed.
    _lock: fs::File,
}

impl Folder {
    /// Takes the folder at `path`, makes it when it is not there.
    ///
    /// # Errors
    /// See [`FolderFault`].
    pub fn take(path: &Path) -> Result<Folder, FolderFault> {
        let io = |path: &Path| {
            let path = path.to_owned();
            move |source| FolderFault::Io { path, source }
        };
        let mut builder = fs::DirBuilder::new();
        let root = rustix::process::geteuid().is_root();
        builder
            .recursive(true)
            .mode(if root { 0o711 } else { 0o700 });
        builder.create(path).map_err(io(path))?;
        let path = path.canonicalize().map_err(io(path))?;
        let found = fs::metadata(&path).map_err(io(&path))?;
        let (owner, mode) = (found.uid(), found.mode() & 0o777);
        if owner != rustix::process::geteuid().as_raw() || mode & 0o066 != 0 {
            return Err(FolderFault::Open { path, owner, mode });
        }
        let lock_path = path.join("lock");
        let lock = fs::OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .mode(0o600)
            .open(&lock_path)
            .map_err(io(&lock_path))?;
        match lock.try_lock() {
            Ok(()) => Ok(Folder { path, _lock: lock }),
            Err(fs::TryLockError::WouldBlock) => Err(FolderFault::Taken(path)),
            Err(fs::TryLockError::Error(source)) => Err(io(&lock_path)(source)),
        }
    }

    /// Where it is, without links in its path.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Where brokers connect.
    #[must_use]
    pub fn socket(&self) -> PathBuf {
        self.path.join(SOCKET)
    }

    /// Where the file `name` of the host itself lies.
    #[must_use]
    pub fn file(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// Where the files of `browser` lie, if it has some.
    #[must_use]
    pub fn of(&self, browser: BrowserId) -> PathBuf {
        self.path.join("browsers").join(format!("{browser:?}"))
    }

    /// Removes what browsers of an earlier host left behind.
    ///
    /// # Errors
    /// [`FolderFault::Io`]. A host that cannot sweep must not start browsers.
    pub async fn sweep(&self) -> Result<(), FolderFault> {
        let path = self.path.join("browsers");
        remove(&path)
            .await
            .map_err(|source| FolderFault::Io { path, source })
    }
}

/// Removes `path` with all that is in it. A process that was just killed may still let go of files
/// there, so a failure is tried again.
pub(crate) async fn remove(path: &Path) -> io::Result<()> {
    let mut pauses = RETRY.iter();
    loop {
        match fs::remove_dir_all(path) {
            Ok(()) => return Ok(()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) => match pauses.next() {
                Some(&pause) => tokio::time::sleep(pause).await,
                None => return Err(error),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn one_host_a_folder() {
        let parent = tempfile::tempdir().unwrap();
        let path = parent.path().join("a/b");
        let first = Folder::take(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o066, 0);
        assert!(matches!(Folder::take(&path), Err(FolderFault::Taken(_))));
        drop(first);
        Folder::take(&path).unwrap();
    }

    #[test]
    fn a_folder_that_others_may_enter_is_refused() {
        let parent = tempfile::tempdir().unwrap();
        fs::set_permissions(parent.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let fault = Folder::take(parent.path()).unwrap_err();
        assert!(
            matches!(fault, FolderFault::Open { mode: 0o755, .. }),
            "{fault}"
        );
    }
}
