//! The real binary in a folder of its own: started, asked, reloaded, handed over, stopped.

use std::io::{BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Instant;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, getpid, pidfd_open, pidfd_send_signal,
    set_child_subreaper, waitid,
};
use serde_json::Value;
use tempfile::TempDir;

use super::browsers::end_hosts;
use super::config::{Config, HOST};
use super::message::Message;
use super::wire::Wire;
use super::{PATIENCE, eventually};

/// A folder with a configuration, and the binary that may be run on it.
pub struct Folder(TempDir);

/// What a command printed and how it ended.
#[derive(Debug)]
pub struct Ended {
    pub code: i32,
    pub stdout: String,
    pub stderr: String,
}

impl Folder {
    pub fn new() -> Self {
        Self(TempDir::with_prefix("usher-test-").unwrap())
    }

    pub fn with(config: &str) -> Self {
        let folder = Self::new();
        folder.write("usher.yaml", config);
        folder
    }

    pub fn path(&self) -> &Path {
        self.0.path()
    }

    pub fn write(&self, name: &str, text: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path().join(name);
        std::fs::write(&path, text).unwrap();
        path
    }

    /// The binary, in this folder, with an environment in which nothing of the machine's remains
    /// that could change its answers.
    pub fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(binary());
        command
            .args(args)
            .current_dir(self.path())
            .stdin(Stdio::null())
            .env_remove("RUST_LOG");
        command
    }

    /// Runs a command to its end.
    pub fn run(&self, args: &[&str]) -> Ended {
        let output = self.command(args).output().unwrap();
        Ended {
            code: output.status.code().expect("ended by itself"),
            stdout: String::from_utf8(output.stdout).unwrap(),
            stderr: String::from_utf8(output.stderr).unwrap(),
        }
    }
}

/// The binary under test: the one that cargo built, or that `USHER_BIN` names (a release build in
/// the long runs).
pub fn binary() -> PathBuf {
    std::env::var_os("USHER_BIN").map_or_else(|| env!("CARGO_BIN_EXE_usher").into(), PathBuf::from)
}

/// A process, held so that its id cannot become that of another one.
pub struct Process {
    pid: Pid,
    held: OwnedFd,
}

impl Process {
    fn of(pid: Pid) -> Self {
        let held = pidfd_open(pid, PidfdFlags::empty()).unwrap();
        Self { pid, held }
    }

    /// One by its number.
    pub fn numbered(pid: u32) -> Self {
        let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
        Self::of(pid.expect("a process id"))
    }

    pub fn pid(&self) -> u32 {
        self.pid.as_raw_nonzero().get().unsigned_abs()
    }

    pub fn signal(&self, signal: Signal) {
        let _ = pidfd_send_signal(&self.held, signal); // it may have ended
    }

    /// True once it has ended.
    pub fn is_over(&self) -> bool {
        self.ends_within(0)
    }

    /// Waits for its end.
    pub fn wait(&self) {
        let patience = i64::try_from(PATIENCE.as_secs()).unwrap();
        assert!(self.ends_within(patience), "process {} goes on", self.pid());
    }

    /// Waits for its end, and tells its exit code. For one whose parent has ended.
    pub fn code(&self) -> i32 {
        self.wait();
        let ended = waitid(WaitId::PidFd(self.held.as_fd()), WaitIdOptions::EXITED).unwrap();
        ended
            .and_then(|ended| ended.exit_status())
            .expect("an exit code")
    }

    fn ends_within(&self, seconds: i64) -> bool {
        let timeout = rustix::event::Timespec {
            tv_sec: seconds,
            tv_nsec: 0,
        };
        let mut ends = [PollFd::new(&self.held, PollFlags::IN)];
        poll(&mut ends, Some(&timeout)).unwrap() > 0
    }
}

/// A running `usher run`. Killed when dropped.
pub struct Usher {
    child: Child,
    /// The process that serves, which after a hand-over is not the child.
    serving: Process,
    /// Those before it.
    before: Vec<Process>,
    folder: Folder,
    /// Kind (`http`, `https`, `api`) and address of each listener.
    listeners: Vec<(String, SocketAddr)>,
    stderr: Arc<Mutex<String>>,
    stdout: Mutex<Receiver<String>>,
}

impl Usher {
    /// Starts, and waits for `ready`.
    pub fn start(config: &Config) -> Self {
        Self::start_in(Folder::with(&config.text()))
    }

    pub fn start_in(folder: Folder) -> Self {
        Self::start_file(folder, "usher.yaml")
    }

    pub fn start_file(folder: Folder, file: &str) -> Self {
        Self::start_command(folder, &["run", "--config", file])
    }

    /// Any command that serves until it is stopped.
    pub fn start_command(folder: Folder, args: &[&str]) -> Self {
        let command = folder.command(args);
        Self::spawn(folder, command)
    }

    /// A command of that folder which serves until it is stopped.
    pub fn spawn(folder: Folder, command: Command) -> Self {
        Self::spawn_and(folder, command, |_| ())
    }

    /// The same with something to be done before it can get ready.
    pub fn spawn_and(
        folder: Folder,
        mut command: Command,
        meanwhile: impl FnOnce(&Process),
    ) -> Self {
        let mut child = command
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let stdout = Mutex::new(lines_of(child.stdout.take().unwrap()));
        let stderr = text_of(child.stderr.take().unwrap());
        let serving = Process::of(Pid::from_child(&child));
        let mut usher = Self {
            child,
            serving,
            before: Vec::new(),
            folder,
            listeners: Vec::new(),
            stderr,
            stdout,
        };
        meanwhile(&usher.serving);
        usher.wait_ready();
        usher
    }

    fn wait_ready(&mut self) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let Ok(line) = self.stdout.lock().unwrap().recv_timeout(left) else {
                panic!("usher did not get ready; stderr:\n{}", self.stderr());
            };
            if line == "ready" {
                return;
            }
            let words: Vec<&str> = line.split(' ').collect();
            if let ["listening", kind, address] = words[..] {
                self.listeners
                    .push((kind.to_owned(), address.parse().unwrap()));
            }
        }
    }

    /// The first listener of that kind.
    pub fn address(&self, kind: &str) -> SocketAddr {
        self.listeners
            .iter()
            .find(|(found, _)| found == kind)
            .unwrap_or_else(|| panic!("no listener {kind} among {:?}", self.listeners))
            .1
    }

    /// All listeners of that kind.
    pub fn listeners(&self, kind: &str) -> Vec<SocketAddr> {
        let of_kind = self.listeners.iter().filter(|(found, _)| found == kind);
        of_kind.map(|(_, address)| *address).collect()
    }

    /// Id of the process that serves.
    pub fn pid(&self) -> u32 {
        self.serving.pid()
    }

    /// Starts another process to follow this one, waits until it serves, and gives the one that
    /// served before. The configuration has to name `usher.pid`.
    pub fn hand_over(&mut self) -> &Process {
        // So that those whose parents end are waited for here.
        set_child_subreaper(Some(getpid())).unwrap();
        let listeners = std::mem::take(&mut self.listeners);
        self.signal(Signal::USR2);
        self.wait_ready();
        assert_eq!(self.listeners, listeners);
        let follower = Process::numbered(self.pid_file().expect("a process that serves"));
        assert_ne!(follower.pid(), self.pid());
        self.before
            .push(std::mem::replace(&mut self.serving, follower));
        self.before.last().expect("just pushed")
    }

    /// What `usher.pid` holds.
    pub fn pid_file(&self) -> Option<u32> {
        let text = std::fs::read_to_string(self.path("usher.pid")).ok()?;
        Some(text.trim().parse().expect("a number"))
    }

    /// The process that serves.
    pub fn serving(&self) -> &Process {
        &self.serving
    }

    /// The processes that served before it, oldest first.
    pub fn before(&self) -> &[Process] {
        &self.before
    }

    /// Waits for a line on stderr that holds the text, and gives what follows it there.
    pub fn wait_stderr(&self, text: &str) -> String {
        eventually(&format!("{text:?} on stderr"), || {
            let stderr = self.stderr();
            let at = stderr.find(text)? + text.len();
            let end = stderr[at..].find('\n')?;
            Some(stderr[at..at + end].to_owned())
        })
    }

    /// A new connection to the plain listener.
    pub fn connect(&self) -> Wire {
        Wire::connect(self.address("http"))
    }

    /// One request on a connection of its own.
    pub fn exchange(&self, request: impl AsRef<[u8]>) -> Message {
        self.connect().exchange(request)
    }

    /// `GET path` for [`HOST`] on a connection of its own.
    pub fn get(&self, path: &str) -> Message {
        self.connect().get(HOST, path)
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub fn folder(&self) -> &Folder {
        &self.folder
    }

    /// The next line on stdout that came already, if any.
    pub fn next_line(&self) -> Option<String> {
        self.stdout.lock().unwrap().try_recv().ok()
    }

    /// Everything written to stderr so far.
    pub fn stderr(&self) -> String {
        self.stderr.lock().unwrap().clone()
    }

    /// Waits until this was written to stderr.
    pub fn expect_stderr(&self, what: &str) {
        eventually(&format!("{what:?} on stderr"), || {
            self.stderr().contains(what).then_some(())
        });
    }

    pub fn signal(&self, signal: Signal) {
        self.serving.signal(signal);
    }

    /// Writes the configuration and waits until it was taken.
    pub fn reload(&self, config: &Config) {
        self.reload_text(&config.text(), "applied");
    }

    /// Writes any text as the configuration and waits for its result, `applied` or `rejected`.
    pub fn reload_text(&self, text: &str, result: &str) {
        let counter = format!("usher_config_reloads_total{{result=\"{result}\"}}");
        let before = self.metric(&counter);
        self.folder.write("usher.yaml", text);
        self.signal(Signal::HUP);
        eventually("the reload", || {
            (self.metric(&counter) > before).then_some(())
        });
    }

    /// The lines of the access log, once there are at least `count`. Those of one connection stand
    /// in their order; those of two may stand either way round.
    pub fn access_log(&self, count: usize) -> Vec<Value> {
        let path = self.path("access.log");
        eventually(&format!("{count} lines in the access log"), || {
            let text = std::fs::read_to_string(&path).unwrap_or_default();
            let whole = &text[..text.rfind('\n').map_or(0, |end| end + 1)];
            let lines: Vec<Value> = whole
                .lines()
                .map(|line| serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}")))
                .collect();
            (lines.len() >= count).then_some(lines)
        })
    }

    /// Kills it in the middle of whatever it does; the folder with all that it kept. Not after a
    /// hand-over.
    pub fn kill(mut self) -> Folder {
        self.signal(Signal::KILL);
        self.wait();
        self.take_folder()
    }

    /// The folder with all that it kept, of one that has ended.
    pub fn take_folder(&mut self) -> Folder {
        std::mem::replace(&mut self.folder, Folder::new())
    }

    /// SIGTERM, and how it ended. Not after a hand-over.
    pub fn stop(mut self) -> ExitStatus {
        self.signal(Signal::TERM);
        self.wait()
    }

    /// Waits for the end of the process that was started first.
    pub fn wait(&mut self) -> ExitStatus {
        eventually("the end of usher", || self.child.try_wait().unwrap())
    }

    /// Resident memory in bytes, now.
    pub fn resident(&self) -> u64 {
        self.memory("VmRSS:")
    }

    /// The most that it ever held resident, in bytes.
    pub fn resident_max(&self) -> u64 {
        self.memory("VmHWM:")
    }

    fn memory(&self, key: &str) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid())).unwrap();
        let line = status
            .lines()
            .find(|line| line.starts_with(key))
            .expect("a line of memory");
        let kib: u64 = line.split_whitespace().nth(1).unwrap().parse().unwrap();
        kib * 1024
    }
}

impl Drop for Usher {
    fn drop(&mut self) {
        self.before
            .iter()
            .for_each(|process| process.signal(Signal::KILL));
        self.serving.signal(Signal::KILL);
        let _ = self.child.kill(); // it may have ended in the test
        let _ = self.child.wait();
        end_hosts(self.folder.path());
        if thread::panicking() {
            eprintln!("--- stderr of usher\n{}---", self.stderr());
        }
    }
}

fn lines_of(source: impl Read + Send + 'static) -> Receiver<String> {
    let (lines, receiver) = mpsc::channel();
    thread::spawn(move || {
        for line in BufReader::new(source).lines().map_while(Result::ok) {
            let _ = lines.send(line); // after `ready` nobody may listen, but the pipe must drain
        }
    });
    receiver
}

fn text_of(source: impl Read + Send + 'static) -> Arc<Mutex<String>> {
    let text = Arc::new(Mutex::new(String::new()));
    let shared = Arc::clone(&text);
    thread::spawn(move || {
        for line in BufReader::new(source).lines().map_while(Result::ok) {
            let mut text = shared.lock().unwrap();
            text.push_str(&line);
            text.push('\n');
        }
    });
    text
}
