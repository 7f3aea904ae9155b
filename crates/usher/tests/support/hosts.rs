//! Browser hosts from outside: which process one is, what it has, and how a relay in front of it
//! delays all that is said to it.

use std::collections::BTreeSet;
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use rustix::net::sockopt::socket_peercred;
use rustix::process::Signal;
use serde_json::{Value, json};

use super::browsers::PATIENCE_OF_BROWSERS;
use super::eventually_within;
use super::process::{Folder, Process, Usher};

/// A browser host, found by its socket.
pub struct Host {
    socket: PathBuf,
}

/// A process of a browser, held by its number and when it was started: numbers come again.
pub type Member = (i32, u64);

impl Host {
    /// The host of a region of this node.
    pub fn of(usher: &Usher, region: &str) -> Host {
        Host::at(usher.path(&format!("var/browsers/{region}/socket")))
    }

    pub fn at(socket: PathBuf) -> Host {
        Host { socket }
    }

    /// Its process. `None` while nobody listens.
    pub fn process(&self) -> Option<Process> {
        let stream = UnixStream::connect(&self.socket).ok()?;
        let peer = socket_peercred(&stream).ok()?;
        Some(Process::numbered(
            peer.pid.as_raw_nonzero().get().unsigned_abs(),
        ))
    }

    /// How many of its browsers are in a phase. `None` while it does not answer.
    pub fn count(&self, phase: &str) -> Option<usize> {
        let listed = self.ask(&json!({"ask": "list"}))?;
        let browsers = listed["ok"]["browsers"].as_array()?;
        let there = browsers.iter().filter(|one| one["phase"] == phase);
        Some(there.count())
    }

    /// Waits until so many of its browsers are in a phase.
    pub fn until(&self, phase: &str, count: usize) {
        let what = format!("{count} browsers {phase} at {}", self.socket.display());
        eventually_within(&what, PATIENCE_OF_BROWSERS, || {
            (self.count(phase) == Some(count)).then_some(())
        });
    }

    fn ask(&self, ask: &Value) -> Option<Value> {
        let mut stream = UnixStream::connect(&self.socket).ok()?;
        stream
            .set_read_timeout(Some(Duration::from_secs(5)))
            .unwrap();
        let text = ask.to_string();
        let length = u32::try_from(text.len()).unwrap().to_be_bytes();
        stream
            .write_all(&[&length[..], text.as_bytes()].concat())
            .ok()?;
        let mut length = [0; 4];
        stream.read_exact(&mut length).ok()?;
        let mut answer = vec![0; u32::from_be_bytes(length) as usize];
        stream.read_exact(&mut answer).ok()?;
        serde_json::from_slice(&answer).ok()
    }

    /// All processes of its browsers.
    pub fn members(&self) -> BTreeSet<Member> {
        let host = self.process().expect("a host").pid();
        below(&[i32::try_from(host).unwrap()])
    }

    /// How many control groups there are beside and with those of its browsers.
    pub fn groups(&self) -> usize {
        let parents: BTreeSet<PathBuf> = self.members().into_iter().flat_map(groups_of).collect();
        let folders = |parent: &PathBuf| {
            let inside = fs::read_dir(parent).into_iter().flatten().flatten();
            inside.filter(|entry| entry.path().is_dir()).count()
        };
        parents.iter().map(folders).sum()
    }

    /// The main process of each of its browsers.
    pub fn browsers(&self) -> Vec<i32> {
        let host = i32::try_from(self.process().expect("a host").pid()).unwrap();
        // Below the host is what makes the sandbox, then its first process, then the browser.
        let mut at = vec![host];
        for _ in 0..3 {
            at = children(&at);
        }
        at
    }
}

/// Waits until none of these is there any more.
pub fn are_gone(members: &BTreeSet<Member>, within: Duration) {
    eventually_within("the end of processes", within, || {
        let now = started();
        let left = members.iter().any(|member| now.contains(member));
        (!left).then_some(())
    });
}

/// Kills a process by its number.
pub fn kill(pid: i32) {
    Process::numbered(pid.unsigned_abs()).signal(Signal::KILL);
}

/// Parent and start of every process that has not ended.
fn all() -> Vec<(i32, i32, u64)> {
    let entries = fs::read_dir("/proc").unwrap().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    let read = |pid: i32| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        let (_, fields) = stat.rsplit_once(") ")?;
        let fields: Vec<&str> = fields.split(' ').collect();
        let ended = matches!(*fields.first()?, "Z" | "X");
        let member = (
            pid,
            fields.get(1)?.parse().ok()?,
            fields.get(19)?.parse().ok()?,
        );
        (!ended).then_some(member)
    };
    pids.filter_map(read).collect()
}

/// The folders that the control groups of a process of ours are in.
fn groups_of((pid, _): Member) -> Vec<PathBuf> {
    let own = fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap_or_default();
    let mounts = fs::read_to_string("/proc/mounts").unwrap_or_default();
    let points = mounts.lines().filter(|line| line.starts_with("cgroup"));
    let points: Vec<&str> = points.filter_map(|line| line.split(' ').nth(1)).collect();
    let inside = own.lines().filter_map(|line| line.splitn(3, ':').nth(2));
    let ours = inside.filter(|path| path.contains("usher-browsers"));
    let parents = ours.filter_map(|path| Path::new(path.trim_start_matches('/')).parent());
    let found = parents.flat_map(|parent| {
        points
            .iter()
            .map(move |point| Path::new(point).join(parent))
    });
    found.filter(|folder| folder.is_dir()).collect()
}

fn started() -> BTreeSet<Member> {
    all().into_iter().map(|(pid, _, at)| (pid, at)).collect()
}

fn children(parents: &[i32]) -> Vec<i32> {
    let all = all().into_iter();
    all.filter(|(_, parent, _)| parents.contains(parent))
        .map(|(pid, ..)| pid)
        .collect()
}

fn below(roots: &[i32]) -> BTreeSet<Member> {
    let all = all();
    let mut found = BTreeSet::new();
    let mut parents = roots.to_vec();
    while !parents.is_empty() {
        let next = all.iter().filter(|(_, parent, _)| parents.contains(parent));
        let next: Vec<Member> = next.map(|&(pid, _, at)| (pid, at)).collect();
        parents = next.iter().map(|&(pid, _)| pid).collect();
        found.extend(next);
    }
    found
}

/// A host that nobody's node started.
pub struct Started {
    child: Child,
    pub host: Host,
}

impl Started {
    /// `None`, and a word why, where the machine refuses sandboxes.
    pub fn new(folder: &Folder, name: &str, options: &[&str]) -> Option<Started> {
        let mut command = folder.command(&["browser-host", "--folder", name]);
        let mut child = command
            .args(options)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut word = [0; 6];
        if child
            .stdout
            .as_mut()
            .unwrap()
            .read_exact(&mut word)
            .is_err()
        {
            let mut said = String::new();
            let mut stderr = child.stderr.take().unwrap();
            stderr.read_to_string(&mut said).unwrap();
            child.wait().unwrap();
            assert!(said.contains("the sandbox cannot be made"), "{said}");
            println!("SKIPPED: {said}");
            return None;
        }
        assert_eq!(&word, b"ready\n");
        let host = Host::at(folder.path().join(name).join("socket"));
        Some(Started { child, host })
    }

    pub fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Takes connections at `socket` and passes them on to `to`, each piece so much later.
pub fn delayed(socket: &Path, to: &Path, by: Duration) {
    let listener = UnixListener::bind(socket).unwrap();
    let to = to.to_owned();
    std::thread::spawn(move || {
        for near in listener.incoming().map_while(Result::ok) {
            let Ok(far) = UnixStream::connect(&to) else {
                // Whoever came sees that nobody is there.
                continue;
            };
            for (from, to) in [(&near, &far), (&far, &near)] {
                let (from, to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
                pass(from, to, by);
            }
        }
    });
}

fn pass(mut from: UnixStream, mut to: UnixStream, by: Duration) {
    let (pieces, come) = mpsc::channel::<(Instant, Vec<u8>)>();
    std::thread::spawn(move || {
        let mut piece = vec![0; 64 << 10];
        while let Ok(length @ 1..) = from.read(&mut piece) {
            let _ = pieces.send((Instant::now() + by, piece[..length].to_vec()));
        }
    });
    std::thread::spawn(move || {
        for (due, piece) in come {
            while let Some(early) = due.checked_duration_since(Instant::now()) {
                std::thread::park_timeout(early);
            }
            if to.write_all(&piece).is_err() {
                break;
            }
        }
        let _ = to.shutdown(Shutdown::Both); // the other side may have gone first
    });
}
