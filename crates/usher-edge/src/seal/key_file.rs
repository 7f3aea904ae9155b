//! The key of a node whose configuration names none: made once and kept in a file.
//!
//! Two processes may start at the same moment (a hand-over, a demo beside a service), so the file
//! comes into being whole, under its final name, and whoever is second takes what the first one made.
//! A file that cannot be used is never replaced: that would end the session of every visitor.

use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::Path;

use super::{KEYS_MAX, Keys};
use crate::file::{self, FileFault};

/// Name of the file in the state folder.
pub const KEY_FILE_NAME: &str = "seal.key";

/// Room for every key that may be in it, and for long ones.
const KEY_FILE_BYTES_MAX: u64 = 1024 * KEYS_MAX as u64;

impl Keys {
    /// The keys in `folder`/[`KEY_FILE_NAME`], which is made with one new key if it is not there;
    /// so is the folder. Nobody but the owner may read either.
    ///
    /// The file holds one secret a line, the newest first; an operator may change the key by hand.
    ///
    /// # Errors
    /// The file cannot be read or made, others may read it, or what is in it makes no keys.
    pub fn load_or_make(folder: &Path) -> Result<Keys, FileFault> {
        let path = folder.join(KEY_FILE_NAME);
        if let Some(keys) = load(&path)? {
            return Ok(keys);
        }
        make(folder, &path).map_err(|error| {
            let what = format!(
                "cannot be made: {error}; set state_folder to a folder that this user may write to, or set secrets.seal"
            );
            FileFault::new(&path, what)
        })?;
        load(&path)?.ok_or_else(|| FileFault::new(&path, "was taken away while we started"))
    }
}

fn load(path: &Path) -> Result<Option<Keys>, FileFault> {
    if let Err(error) = fs::symlink_metadata(path)
        && error.kind() == io::ErrorKind::NotFound
    {
        return Ok(None);
    }
    let whole = file::read(path, KEY_FILE_BYTES_MAX)?;
    if whole.metadata.permissions().mode() & 0o007 != 0 {
        return Err(FileFault::new(
            path,
            "everybody on this machine may use it; chmod it to 600",
        ));
    }
    let text = String::from_utf8(whole.bytes)
        .map_err(|_| FileFault::new(path, "is not text; it holds no key that we wrote"))?;
    let secrets: Vec<&str> = text
        .lines()
        .filter(|line| !line.trim().is_empty())
        .collect();
    let keys = Keys::new(&secrets).map_err(|fault| FileFault::new(path, fault.to_string()))?;
    Ok(Some(keys))
}

/// Writes a key beside `path` and links it there, unless there is a file by now.
fn make(folder: &Path, path: &Path) -> io::Result<()> {
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(folder)?;
    let random = getrandom::u64().map_err(|error| io::Error::other(error.to_string()))?;
    let draft = path.with_extension(format!("{random:016x}"));
    let made = draft_key(&draft).and_then(|()| fs::hard_link(&draft, path));
    // What could not be written may not be there to be removed.
    let removed = fs::remove_file(&draft);
    match made {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => return removed,
        made => made?,
    }
    removed?;
    File::open(folder)?.sync_all()
}

fn draft_key(draft: &Path) -> io::Result<()> {
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(draft)?;
    // Whatever the mask of this process is.
    file.set_permissions(Permissions::from_mode(0o600))?;
    writeln!(file, "{}", Keys::generate())?;
    file.sync_all()
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use usher_core::id::Id;

    use super::*;
    use crate::seal::{Purpose, Scope};

    const SHOP: Scope = Scope {
        purpose: Purpose::Pin,
        of: Id::from_bytes([1; 16]),
    };

    #[test]
    fn a_key_is_made_once_and_kept() {
        let (_kept, folder) = folder();
        let text = keys(&folder).seal(SHOP, b"x");
        assert!(keys(&folder).open(SHOP, text.as_bytes()).is_some());
        let mode = |path: &Path| fs::metadata(path).expect("metadata").permissions().mode() & 0o777;
        assert_eq!(mode(&folder.join(KEY_FILE_NAME)), 0o600);
        assert_eq!(mode(&folder), 0o700);
        let names: Vec<_> = fs::read_dir(&folder)
            .expect("list")
            .map(|entry| entry.expect("entry").file_name())
            .collect();
        assert_eq!(names, [KEY_FILE_NAME], "no draft is left");
    }

    #[test]
    fn whoever_starts_at_the_same_moment_has_the_same_key() {
        let (_kept, folder) = folder();
        let all: Vec<Keys> = std::thread::scope(|scope| {
            let starts: Vec<_> = (0..8).map(|_| scope.spawn(|| keys(&folder))).collect();
            starts
                .into_iter()
                .map(|start| start.join().expect("no panic"))
                .collect()
        });
        let text = all[0].seal(SHOP, b"x");
        assert!(
            all.iter()
                .all(|keys| keys.open(SHOP, text.as_bytes()).is_some())
        );
        assert_eq!(fs::read_dir(&folder).expect("list").count(), 1);
    }

    #[test]
    fn an_operator_changes_the_key_by_a_line() {
        let (_kept, folder) = folder();
        let text = keys(&folder).seal(SHOP, b"x");
        let path = folder.join(KEY_FILE_NAME);
        let old = fs::read_to_string(&path).expect("read");
        fs::write(&path, format!("{}\n\n{old}", Keys::generate())).expect("write");
        let changed = keys(&folder);
        assert!(changed.open(SHOP, text.as_bytes()).is_some());
        let new = changed.seal(SHOP, b"x");
        fs::write(&path, old).expect("write");
        assert!(keys(&folder).open(SHOP, new.as_bytes()).is_none());
    }

    #[test]
    fn a_file_that_cannot_be_used_is_a_fault_and_stays() {
        let (_kept, folder) = folder();
        keys(&folder);
        let path = folder.join(KEY_FILE_NAME);
        let rows: [(&[u8], &str); 4] = [
            (b"", "no key is given"),
            (b"garbage\n", "key 1 has 7 characters, fewer than 32"),
            (
                b"\xff\xfe\x00",
                "is not text; it holds no key that we wrote",
            ),
            (&[b'a'; 20_000], "is longer than 16384 bytes"),
        ];
        for (bytes, expected) in rows {
            fs::write(&path, bytes).expect("write");
            let fault = Keys::load_or_make(&folder).expect_err("a fault");
            assert_eq!(fault.to_string(), format!("{}: {expected}", path.display()));
            assert_eq!(fs::read(&path).expect("read"), bytes);
        }
        fs::write(&path, Keys::generate()).expect("write");
        fs::set_permissions(&path, Permissions::from_mode(0o644)).expect("chmod");
        assert!(fault(&folder).contains("chmod"));
        fs::remove_file(&path).expect("remove");
        std::os::unix::fs::symlink("nowhere", &path).expect("link");
        assert_eq!(fault(&folder), "no such file");
        fs::remove_file(&path).expect("remove");
        fs::create_dir(&path).expect("folder");
        assert_eq!(fault(&folder), "is not a regular file");
    }

    #[test]
    fn a_folder_that_cannot_be_made_is_a_fault() {
        let (kept, _) = folder();
        let file = kept.path().join("file");
        fs::write(&file, b"").expect("write");
        let fault = fault(&file.join("state"));
        assert!(fault.starts_with("cannot be"), "{fault}");
    }

    /// A folder that is not there yet, in one that goes away with the test.
    fn folder() -> (tempfile::TempDir, PathBuf) {
        let parent = tempfile::tempdir().expect("folder");
        let folder = parent.path().join("state");
        (parent, folder)
    }

    fn keys(folder: &Path) -> Keys {
        Keys::load_or_make(folder).expect("keys")
    }

    fn fault(folder: &Path) -> String {
        Keys::load_or_make(folder).expect_err("a fault").what
    }
}
