//! Files that the edge reads, and what can be wrong with them, said so that the operator knows
//! which file to mend.

use std::fs::{Metadata, OpenOptions};
use std::io::{self, Read as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;

/// A file that is needed and cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("{}: {what}", path.display())]
pub struct FileFault {
    /// The file.
    pub path: PathBuf,
    /// What is wrong with it.
    pub what: String,
}

impl FileFault {
    pub(crate) fn new(path: &Path, what: impl Into<String>) -> FileFault {
        FileFault {
            path: path.to_owned(),
            what: what.into(),
        }
    }

    pub(crate) fn io(path: &Path, error: &io::Error) -> FileFault {
        let what = match error.kind() {
            io::ErrorKind::NotFound => "no such file".to_owned(),
            io::ErrorKind::PermissionDenied => "this process may not read it".to_owned(),
            _ => format!("cannot be read: {error}"),
        };
        FileFault::new(path, what)
    }
}

/// A file that was read, all of it at one moment.
pub(crate) struct Whole {
    pub(crate) bytes: Vec<u8>,
    pub(crate) metadata: Metadata,
}

/// Reads the file at `path`, which holds at most `len_max` bytes.
///
/// # Errors
/// It cannot be read, is longer, or changed meanwhile: then what was read is partly old.
pub(crate) fn read(path: &Path, len_max: u64) -> Result<Whole, FileFault> {
    let io = |error: io::Error| FileFault::io(path, &error);
    // Without waiting: opening a pipe that nobody writes to would otherwise never end.
    let flags = OFlags::NONBLOCK.bits() as i32;
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(flags)
        .open(path)
        .map_err(io)?;
    let metadata = file.metadata().map_err(io)?;
    if !metadata.is_file() {
        return Err(FileFault::new(path, "is not a regular file"));
    }
    let mut bytes = Vec::new();
    // A length of zero says nothing about what is not a regular file.
    let expected = metadata.len().min(len_max) as usize;
    bytes
        .try_reserve_exact(expected)
        .map_err(|error| FileFault::new(path, format!("does not fit into memory: {error}")))?;
    (&file)
        .take(len_max + 1)
        .read_to_end(&mut bytes)
        .map_err(io)?;
    if bytes.len() as u64 > len_max {
        let what = format!("is longer than {len_max} bytes");
        return Err(FileFault::new(path, what));
    }
    let after = file.metadata().map_err(io)?;
    let stamp = |metadata: &Metadata| (metadata.len(), metadata.modified().ok());
    if metadata.is_file() && stamp(&metadata) != stamp(&after) {
        return Err(FileFault::new(path, "changed while it was read"));
    }
    Ok(Whole { bytes, metadata })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_read_up_to_its_limit() {
        let folder = tempfile::tempdir().expect("folder");
        let path = folder.path().join("file");
        std::fs::write(&path, b"12345").expect("write");
        assert_eq!(read(&path, 5).expect("fits").bytes, b"12345");
        assert_eq!(fault(&path, 4), "is longer than 4 bytes");
        assert_eq!(fault(&folder.path().join("none"), 4), "no such file");
        assert_eq!(fault(folder.path(), 4), "is not a regular file");
    }

    fn fault(path: &Path, len_max: u64) -> String {
        let fault = read(path, len_max).err().expect("a fault");
        assert_eq!(fault.path, path);
        fault.what
    }
}
