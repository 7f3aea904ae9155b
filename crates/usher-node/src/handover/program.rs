//! How to start this binary again: the path that it was started by, at which a new build may lie
//! meanwhile.

use std::ffi::OsString;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A command line.
#[derive(Debug, Clone)]
pub struct Program {
    pub(super) path: PathBuf,
    name: OsString,
    arguments: Vec<OsString>,
}

impl Program {
    /// The command line of this process. To be called at its start, while the file that it runs is
    /// still at its path.
    ///
    /// A path by way of symbolic links is kept as it was written, so that a link that is turned to
    /// another build is followed.
    #[must_use]
    pub fn of_this_process() -> Program {
        let mut words = std::env::args_os();
        let name = words.next().unwrap_or_default();
        let running = std::env::current_exe().unwrap_or_default();
        let path = written(&name, &running).unwrap_or(running);
        Program {
            path,
            name,
            arguments: words.collect(),
        }
    }

    /// The binary.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn command(&self) -> Command {
        let mut command = Command::new(&self.path);
        command.arg0(&self.name).args(&self.arguments);
        command
    }
}

/// The path that the shell found for `name`, if it leads to the file that is running.
fn written(name: &OsString, running: &Path) -> Option<PathBuf> {
    let leads_here = |path: &PathBuf| {
        let found = path.canonicalize();
        found.is_ok_and(|found| Some(found) == running.canonicalize().ok())
    };
    if Path::new(name).components().count() > 1 {
        return std::path::absolute(name).ok().filter(leads_here);
    }
    let folders = std::env::var_os("PATH")?;
    std::env::split_paths(&folders)
        .map(|folder| folder.join(name))
        .find(leads_here)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_is_kept_and_a_name_that_lies_is_not() {
        let running = std::env::current_exe().expect("this test");
        let program = Program::of_this_process();
        assert_eq!(
            program.path.canonicalize().ok(),
            running.canonicalize().ok()
        );
        let folder = std::env::temp_dir().join(format!("usher-program-{}", std::process::id()));
        std::fs::create_dir(&folder).expect("a folder");
        let link = folder.join("usher");
        std::os::unix::fs::symlink(&running, &link).expect("a link");
        let found = written(&link.clone().into_os_string(), &running);
        let lie = written(&OsString::from("/bin/sh"), &running);
        std::fs::remove_dir_all(&folder).expect("removed");
        assert_eq!((found, lie), (Some(link), None));
    }
}
