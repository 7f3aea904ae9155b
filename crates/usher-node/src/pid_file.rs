//! The file that holds the id of the process that serves.
//!
//! It appears in one move, when the process serves, and never half written. Whether it can be
//! written is found out at the start, when somebody is looking. At the end it is removed only by the
//! process whose id it holds: it may be that of a process that followed.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// The file. Dropped, it is removed.
#[derive(Debug)]
pub(crate) struct PidFile {
    path: PathBuf,
    /// Where the id stands until the file appears; beside it, so that the move is one.
    draft: Option<PathBuf>,
    ours: bool,
}

impl PidFile {
    /// Makes sure that the file can be written, and leaves what it holds as it is.
    pub(crate) fn prepare(path: &Path) -> io::Result<PidFile> {
        if path.is_dir() {
            return Err(io::ErrorKind::IsADirectory.into());
        }
        let pid = std::process::id();
        let mut name = path.file_name().unwrap_or_default().to_owned();
        name.push(format!(".{pid}"));
        let draft = path.with_file_name(name);
        fs::write(&draft, format!("{pid}\n"))?;
        Ok(PidFile {
            path: path.to_owned(),
            draft: Some(draft),
            ours: true,
        })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Lets the file appear, in the place of one that was there.
    pub(crate) fn show(&mut self) {
        if let Some(draft) = self.draft.take()
            && let Err(error) = fs::rename(&draft, &self.path)
        {
            tracing::error!(%error, path = %self.path.display(), "the pid file cannot be written");
            self.draft = Some(draft);
        }
    }

    /// Leaves it to the process that follows.
    pub(crate) fn leave(&mut self) {
        self.ours = false;
    }
}

impl Drop for PidFile {
    fn drop(&mut self) {
        // What cannot be removed was removed by somebody else.
        if let Some(draft) = &self.draft {
            let _ = fs::remove_file(draft);
        }
        let holds = fs::read_to_string(&self.path);
        let own = holds.is_ok_and(|text| text.trim() == std::process::id().to_string());
        if self.ours && own {
            let _ = fs::remove_file(&self.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder(name: &str) -> PathBuf {
        let name = format!("usher-pid-{}-{name}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        fs::create_dir(&folder).expect("a folder");
        folder
    }

    fn files(folder: &Path) -> usize {
        fs::read_dir(folder).expect("a folder").count()
    }

    #[test]
    fn a_stale_file_is_replaced_when_this_process_serves_and_removed_with_it() {
        let folder = folder("stale");
        let path = folder.join("usher.pid");
        fs::write(&path, "1\n").expect("written");
        let mut file = PidFile::prepare(&path).expect("can be written");
        let text = || fs::read_to_string(&path).expect("read");
        assert_eq!(text(), "1\n", "not yet");
        file.show();
        assert_eq!(text(), format!("{}\n", std::process::id()));
        assert_eq!(files(&folder), 1);
        drop(file);
        assert_eq!(files(&folder), 0);
        fs::remove_dir(&folder).expect("removed");
    }

    #[test]
    fn a_file_of_another_process_stays() {
        let folder = folder("other");
        let path = folder.join("usher.pid");
        let mut file = PidFile::prepare(&path).expect("can be written");
        file.show();
        fs::write(&path, "1\n").expect("written");
        drop(file);
        assert_eq!(fs::read_to_string(&path).expect("still there"), "1\n");
        fs::remove_dir_all(&folder).expect("removed");
    }

    #[test]
    fn what_cannot_be_written_is_known_at_the_start() {
        let folder = folder("impossible");
        assert!(PidFile::prepare(&folder).is_err(), "a folder");
        assert!(PidFile::prepare(&folder.join("missing/usher.pid")).is_err());
        drop(PidFile::prepare(&folder.join("usher.pid")).expect("can be written"));
        assert_eq!(files(&folder), 0, "one that never served leaves nothing");
        fs::remove_dir(&folder).expect("removed");
    }
}
