//! Processes of ours that have lost their parent.
//!
//! Every process tree is started with the host's folder in its environment. After a host was killed,
//! the next one on the same folder looks for that mark and ends what carries it, with all that is in
//! the same process group: nothing is ever found by its name or its command line.

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::Duration;

use rustix::process::{Pid, Signal, WaitOptions};

/// The variable that carries the mark: the host's folder.
pub(crate) const MARK: &str = "USHER_BROWSERS_OF";

/// What is told of a process.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Process {
    /// Its number.
    pub pid: i32,
    /// Its parent's.
    pub parent: i32,
    /// Its process group.
    pub group: i32,
    /// Processor time that it has used.
    pub cpu: Duration,
    /// Whether it has ended and only waits to be asked how.
    pub ended: bool,
}

/// Every process that can be seen.
pub(crate) fn processes() -> Vec<Process> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let number = |entry: fs::DirEntry| entry.file_name().to_str()?.parse().ok();
    entries.filter_map(number).filter_map(process).collect()
}

/// What is told of the process `pid`.
fn process(pid: i32) -> Option<Process> {
    let told = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The program's name stands in brackets and may hold anything.
    let (_, rest) = told.rsplit_once(") ")?;
    let mut fields = rest.split(' ');
    let state = fields.next()?;
    let parent = fields.next()?.parse().ok()?;
    let group = fields.next()?.parse().ok()?;
    // The 14th and 15th field of all, in hundredths of a second on every machine that Linux runs on.
    let mut ticks = fields
        .clone()
        .skip(8)
        .map_while(|field| field.parse::<u64>().ok());
    let cpu = Duration::from_millis(ticks.by_ref().take(2).sum::<u64>() * 10);
    let ended = matches!(state, "Z" | "X");
    Some(Process {
        pid,
        parent,
        group,
        cpu,
        ended,
    })
}

/// All that descends from `root`, with it.
pub(crate) fn tree(root: i32) -> Vec<Process> {
    let all = processes();
    let mut members: Vec<Process> = all.iter().filter(|one| one.pid == root).copied().collect();
    let mut at = 0;
    while let Some(member) = members.get(at).copied() {
        members.extend(
            all.iter()
                .filter(|one| one.parent == member.pid && one.pid != member.pid),
        );
        at += 1;
    }
    members
}

/// The only child of `pid`, or its first.
pub(crate) fn child_of(pid: i32) -> Option<i32> {
    match fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")) {
        Ok(told) => told.split_whitespace().next()?.parse().ok(),
        // Not every kernel keeps that list.
        Err(_) => {
            let mut all = processes().into_iter();
            all.find(|one| one.parent == pid).map(|one| one.pid)
        }
    }
}

/// Memory of `pid` that is its own, in bytes.
pub(crate) fn memory(pid: i32) -> u64 {
    let told = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let own = |line: &str| {
        let value = line
            .strip_prefix("RssAnon:")
            .or_else(|| line.strip_prefix("RssShmem:"))?;
        value.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()
    };
    told.lines().filter_map(own).sum::<u64>() * 1024
}

/// The processes that carry the mark of `folder`, but for this one.
pub(crate) fn marked(folder: &Path) -> Vec<Process> {
    let mark = [MARK.as_bytes(), b"=", folder.as_os_str().as_bytes()].concat();
    let own = i32::try_from(std::process::id()).unwrap_or(0);
    let carries = |one: &Process| {
        let environment = fs::read(format!("/proc/{}/environ", one.pid)).unwrap_or_default();
        environment
            .split(|&byte| byte == 0)
            .any(|entry| entry == mark)
    };
    let all = processes().into_iter();
    all.filter(|one| one.pid != own && !one.ended && carries(one))
        .collect()
}

/// Kills every process in the group `group` and asks those that are our children how they ended;
/// whether some are left.
pub(crate) fn kill_group(group: i32) -> bool {
    let Some(leader) = Pid::from_raw(group) else {
        return false;
    };
    let left = |one: &Process| one.group == group && !one.ended;
    if !processes().iter().any(|one| one.group == group) {
        return false;
    }
    let _ = rustix::process::kill_process_group(leader, Signal::KILL);
    while let Ok(Some(_)) = rustix::process::waitpgid(leader, WaitOptions::NOHANG) {}
    processes().iter().any(left)
}

/// Ends every process that an earlier host on `folder` left behind; how many there were, and whether
/// all are gone.
pub(crate) async fn sweep(folder: &Path) -> (usize, bool) {
    let found = marked(folder);
    let count = found.len();
    let own = rustix::process::getpgrp().as_raw_nonzero().get();
    let mut groups: Vec<i32> = found.iter().map(|one| one.group).collect();
    groups.sort_unstable();
    groups.dedup();
    for one in found {
        if let Some(pid) = Pid::from_raw(one.pid) {
            let _ = rustix::process::kill_process(pid, Signal::KILL);
        }
    }
    // They are other people's children now: nothing tells when they are gone but looking.
    for _ in 0..500 {
        let mut left = false;
        for &group in groups.iter().filter(|&&group| group != own) {
            left |= kill_group(group);
        }
        if !left && marked(folder).is_empty() {
            return (count, true);
        }
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    (count, false)
}
