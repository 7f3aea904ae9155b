//! Starting the processes of a browser.
//!
//! What must hold before the browser's first instruction is done by a few lines of shell that become
//! the browser: they step into the control groups, set limits, open the file of system calls, and
//! lay the one socket that we talk over onto descriptors 3 and 4, where the browser looks for it. A
//! process that is started from here dies with the thread that started it.

use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Stdio;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::io::AsyncReadExt;
use tokio::process::{ChildStderr, Command};

use crate::group::Group;
use crate::orphans::MARK;
use crate::tree::Tree;

/// Where programs are looked for.
pub(crate) const PATH: &str = "/usr/sbin:/usr/bin:/sbin:/bin";
/// How much is kept of what a browser says on standard error.
const LOG_MAX: usize = 4096;

/// Arguments: how many group files, these, a limit of files, a file of system calls or nothing, and
/// the command.
const SCRIPT: &str = r#"
umask 077
n=$1; shift
while [ "$n" -gt 0 ]; do echo $$ >"$1" || exit 71; shift; n=$((n - 1)); done
ulimit -c 0
ulimit -n "$1" 2>/dev/null; shift
[ -z "$1" ] || exec 5<"$1"; shift
exec "$@" 3<&0 4>&0 </dev/null >/dev/null
"#;

/// What is to be run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Launch<'a> {
    /// Program and arguments.
    pub command: Vec<OsString>,
    /// The host's folder, as a mark.
    pub folder: &'a Path,
    /// A file of system calls that the command finds on descriptor 5.
    pub filter: Option<&'a Path>,
    /// Descriptors that one process may have.
    pub files: u32,
}

/// What was started.
#[derive(Debug)]
pub(crate) struct Launched {
    /// Its processes.
    pub tree: Tree,
    /// The browser at the other end.
    pub socket: tokio::net::UnixStream,
    /// What it says.
    pub log: Log,
}

impl Launch<'_> {
    /// Starts it in `group`.
    pub(crate) fn start(self, group: Group) -> io::Result<Launched> {
        let (ours, theirs) = UnixStream::pair()?;
        let doors: Vec<_> = group.doors().collect();
        let mut command = Command::new("/bin/sh");
        command
            .args(["-c", SCRIPT, "sh"])
            .arg(doors.len().to_string())
            .args(doors)
            .arg(self.files.to_string())
            .arg(self.filter.unwrap_or(Path::new("")))
            .args(self.command)
            .env_clear()
            .env("PATH", PATH)
            .env("LANG", "C.UTF-8")
            .env("TZ", "UTC")
            .env(MARK, self.folder)
            .stdin(Stdio::from(OwnedFd::from(theirs)))
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .process_group(0)
            .kill_on_drop(true);
        let mut outer = command.spawn()?;
        // The command holds its end of the socket, and ours would never see it closed.
        drop(command);
        let log = Log::default();
        if let Some(stderr) = outer.stderr.take() {
            tokio::spawn(log.clone().follow(stderr));
        }
        let tree = Tree::new(outer, group)?;
        ours.set_nonblocking(true)?;
        let socket = tokio::net::UnixStream::from_std(ours)?;
        Ok(Launched { tree, socket, log })
    }
}

/// The end of what a browser says.
#[derive(Debug, Clone, Default)]
pub(crate) struct Log(Arc<Mutex<Vec<u8>>>);

impl Log {
    async fn follow(self, mut from: ChildStderr) {
        let mut chunk = [0; 1024];
        while let Ok(len @ 1..) = from.read(&mut chunk).await {
            let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            kept.extend_from_slice(&chunk[..len]);
            let over = kept.len().saturating_sub(LOG_MAX);
            kept.drain(..over);
        }
    }

    /// Its last lines, for somebody who looks for the reason of a failure.
    pub(crate) fn tail(&self) -> String {
        let kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let text = String::from_utf8_lossy(&kept);
        let lines: Vec<&str> = text.lines().rev().take(3).collect();
        lines.into_iter().rev().collect::<Vec<_>>().join(" | ")
    }
}
