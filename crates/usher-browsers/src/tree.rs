//! All processes of one browser, as one thing that can be killed and waited for.
//!
//! In a sandbox the first process inside is the init of a process namespace: once it is gone the
//! kernel has ended everything in there, and says so through the descriptor that we hold on it. A
//! bare browser has a process group. A control group, where there is one, holds either. Killing and
//! waiting use all that there is, so that "gone" is something that was looked at.

use std::io;
use std::os::fd::AsFd;
use std::time::Duration;

use rustix::process::{Pid, PidfdFlags, Signal, WaitOptions};
use tokio::net::unix::pipe;
use tokio::process::Child;

use crate::group::Group;
use crate::orphans;

/// How often is looked for what tells nothing when it ends.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// The processes of one browser.
#[derive(Debug)]
pub(crate) struct Tree {
    outer: Child,
    outer_pid: i32,
    init: Option<Init>,
    group: Group,
    ended: bool,
}

#[derive(Debug)]
struct Init {
    pid: i32,
    /// A descriptor on the process, not a pipe: like the end of one it becomes readable once, and is
    /// never read.
    fd: pipe::Receiver,
}

impl Tree {
    /// The processes that `outer`, the leader of a process group, starts in `group`.
    pub(crate) fn new(outer: Child, group: Group) -> io::Result<Tree> {
        let pid = outer.id().and_then(|pid| i32::try_from(pid).ok());
        let outer_pid = pid.ok_or_else(|| io::Error::other("the browser has ended at once"))?;
        Ok(Tree {
            outer,
            outer_pid,
            init: None,
            group,
            ended: false,
        })
    }

    /// Finds the first process in the sandbox; it runs already.
    pub(crate) fn find_init(&mut self) -> io::Result<i32> {
        let lost = || io::Error::other("the sandbox has no first process");
        let pid = orphans::child_of(self.outer_pid).ok_or_else(lost)?;
        let raw = Pid::from_raw(pid).ok_or_else(lost)?;
        let fd = rustix::process::pidfd_open(raw, PidfdFlags::NONBLOCK)?;
        // The number was another's if the sandbox has ended in between.
        if orphans::child_of(self.outer_pid) != Some(pid) {
            return Err(lost());
        }
        let fd = pipe::Receiver::from_owned_fd_unchecked(fd)?;
        self.init = Some(Init { pid, fd });
        Ok(pid)
    }

    /// The process that the browser's own are found below.
    pub(crate) fn root(&self) -> i32 {
        self.outer_pid
    }

    /// Memory of all of it, in bytes, as its group counts it; else what its processes have.
    pub(crate) fn memory(&self) -> u64 {
        self.group.memory().unwrap_or_else(|| {
            let members = orphans::tree(self.outer_pid);
            members.iter().map(|one| orphans::memory(one.pid)).sum()
        })
    }

    /// Processor time of all of it, as its group counts it; else of the processes that it has now.
    pub(crate) fn cpu(&self) -> Duration {
        self.group.cpu().unwrap_or_else(|| {
            let members = orphans::tree(self.outer_pid);
            members.iter().map(|one| one.cpu).sum()
        })
    }

    /// How many of its processes were killed for want of memory.
    pub(crate) fn oom_kills(&self) -> u64 {
        self.group.oom_kills()
    }

    /// Asks all of it to end. A sandbox's init is deaf to that.
    pub(crate) fn ask(&self) {
        if let Some(pid) =
            Pid::from_raw(self.outer_pid).filter(|_| !self.ended && self.init.is_none())
        {
            let _ = rustix::process::kill_process_group(pid, Signal::TERM);
        }
    }

    /// Kills all of it.
    pub(crate) fn kill(&mut self) {
        if let Some(init) = &self.init {
            let _ = rustix::process::pidfd_send_signal(init.fd.as_fd(), Signal::KILL);
        }
        self.group.kill();
        // Before the leader was waited for, its number is still its own.
        if !self.ended {
            let _ = self.outer.start_kill();
            if let Some(pid) = Pid::from_raw(self.outer_pid) {
                let _ = rustix::process::kill_process_group(pid, Signal::KILL);
            }
        }
    }

    /// Waits until the browser has ended by itself or was killed, and says whether it ended cleanly;
    /// others of it may be left. May be dropped and called again.
    pub(crate) async fn ended(&mut self) -> bool {
        let status = self.outer.wait().await;
        self.ended = true;
        status.is_ok_and(|status| status.success())
    }

    /// Kills what is left, and waits until nothing is, its group included.
    ///
    /// # Errors
    /// The group could not be removed.
    pub(crate) async fn gone(&mut self) -> io::Result<()> {
        if self.init.is_none() && !self.ended {
            // A start that failed has not looked; what we kill without knowing it, nobody waits for.
            let _ = self.find_init();
        }
        self.kill();
        self.ended().await;
        if let Some(init) = self.init.take() {
            // Readable only when the kernel has ended all that was in the namespace.
            init.fd.readable().await?;
            // Ours to ask when its parent died before it.
            if let Some(pid) = Pid::from_raw(init.pid) {
                let _ = rustix::process::waitpid(Some(pid), WaitOptions::NOHANG);
            }
        }
        // A process with the leader's number is a stranger: the leader was waited for.
        let strangers = || {
            orphans::processes()
                .iter()
                .any(|one| one.pid == self.outer_pid)
        };
        while !strangers() && orphans::kill_group(self.outer_pid) {
            tokio::time::sleep(LOOK_EVERY).await;
        }
        while !self.group.members().is_empty() {
            self.group.kill();
            tokio::time::sleep(LOOK_EVERY).await;
        }
        self.group.remove().await
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        // Nobody waits any more; the namespace and the next sweep see to the rest.
        self.kill();
    }
}
