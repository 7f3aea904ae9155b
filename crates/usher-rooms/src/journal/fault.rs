//! What can be wrong with the files of a room.

use std::io;
use std::path::{Path, PathBuf};

/// Why the files of a room cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum JournalFault {
    /// The system refused.
    #[error("room journal {path}: cannot {what}", path = path.display())]
    Io {
        /// File or folder.
        path: PathBuf,
        /// What was tried.
        what: &'static str,
        /// Why not.
        source: io::Error,
    },
    /// Something in the middle does not read. Nobody can tell who was inside, so the room does not
    /// run on what is left of it.
    #[error(
        "room journal {path}: damaged at byte {at}: {what}; restore the file, or remove the folder it is in, which forgets who waits and who is inside",
        path = path.display()
    )]
    Damaged {
        /// The file.
        path: PathBuf,
        /// Where.
        at: usize,
        /// What is wrong there.
        what: String,
    },
    /// Another process owns the rooms.
    #[error("room journals {path}: another process owns them", path = path.display())]
    Owned {
        /// The lock file.
        path: PathBuf,
    },
}

impl JournalFault {
    pub(super) fn io(path: &Path, what: &'static str) -> impl FnOnce(io::Error) -> JournalFault {
        let path = path.to_owned();
        move |source| JournalFault::Io { path, what, source }
    }

    pub(super) fn damaged(path: &Path, at: usize, what: impl Into<String>) -> JournalFault {
        JournalFault::Damaged {
            path: path.to_owned(),
            at,
            what: what.into(),
        }
    }
}
