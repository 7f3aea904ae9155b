//! Notices that the configuration file, or a file that it names, is not what it was.
//!
//! By looking twice a second rather than by asking the kernel to tell: a file may be replaced by a
//! move, by a symbolic link that is turned (as Kubernetes does), or over a network, and a look sees
//! all of these.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use crate::config::Loaded;

/// The files of one configuration, as they were when it was loaded or last looked at.
#[derive(Debug)]
pub(crate) struct Watch {
    files: Vec<(PathBuf, Option<Stamp>)>,
    /// A file changed, and nobody was told yet: it may still be being written.
    unsettled: bool,
}

/// What changes when a file does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Stamp {
    device: u64,
    inode: u64,
    len: u64,
    modified: (i64, i64),
}

impl Stamp {
    fn of(path: &Path) -> Option<Stamp> {
        let data = fs::metadata(path).ok()?;
        Some(Stamp {
            device: data.dev(),
            inode: data.ino(),
            len: data.len(),
            modified: (data.mtime(), data.mtime_nsec()),
        })
    }
}

impl Watch {
    /// Watches the file at `path`. To be called before the file is read, so that a change in
    /// between is seen.
    pub(crate) fn new(path: &Path) -> Watch {
        Watch {
            files: vec![(path.to_owned(), Stamp::of(path))],
            unsettled: false,
        }
    }

    /// From now on watches what `loaded` names, too, and nothing else beside the file itself.
    pub(crate) fn follow(&mut self, loaded: &Loaded) {
        let before = std::mem::take(&mut self.files);
        let own = before.first().map(|(path, _)| path.clone());
        self.files = own
            .into_iter()
            .chain(loaded.files())
            .map(
                |path| match before.iter().find(|(known, _)| *known == path) {
                    Some(known) => known.clone(),
                    None => {
                        let stamp = Stamp::of(&path);
                        (path, stamp)
                    }
                },
            )
            .collect();
    }

    /// Whether a file changed, and none has since the look before this one: what is being written
    /// is left alone until it is whole. A file that is missing for a moment is no change; its
    /// return is.
    pub(crate) fn settled_change(&mut self) -> bool {
        if self.look() {
            self.unsettled = true;
            return false;
        }
        std::mem::take(&mut self.unsettled)
    }

    /// Takes the files as they are now for known.
    pub(crate) fn catch_up(&mut self) {
        self.look();
        self.unsettled = false;
    }

    /// Whether a file changed since the last look.
    fn look(&mut self) -> bool {
        let mut changed = false;
        for (path, known) in &mut self.files {
            let now = Stamp::of(path);
            if now.is_some() && now != *known {
                *known = now;
                changed = true;
            }
        }
        changed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_is_told_once_it_is_whole_and_a_gap_is_none() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("usher.yaml");
        let write = |text: &str| fs::write(&path, text).expect("written");
        write("one");
        let mut watch = Watch::new(&path);
        assert!(!watch.settled_change());
        write("tw");
        assert!(!watch.settled_change(), "it may be half of it");
        write("two and more");
        assert!(!watch.settled_change(), "it was");
        assert!(watch.settled_change());
        assert!(!watch.settled_change(), "once");
        fs::remove_file(&path).expect("removed");
        assert!(!watch.settled_change());
        assert!(!watch.settled_change());
        write("three, again");
        assert!(!watch.settled_change());
        assert!(watch.settled_change());
        write("four");
        watch.catch_up();
        assert!(!watch.settled_change());
    }
}
