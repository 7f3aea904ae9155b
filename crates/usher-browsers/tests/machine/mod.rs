//! A folder for a host, the host as a process of its own, and what can be seen of processes.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};
use tokio::sync::{Semaphore, SemaphorePermit};
use usher_browsers::browser::{Launcher, LauncherFault};
use usher_browsers::exit::Exit;
use usher_browsers::host::wire::{Ask, Listed};
use usher_browsers::host::{Caller, Watching};
use usher_browsers::lacks::Lacks;
use usher_browsers::settings::{Kind, NOBODY, Settings};
use usher_core::lease::beat::Heartbeat;
use usher_core::lease::browser::Phase;

const PROGRAM: &str = env!("CARGO_BIN_EXE_host-under-test");
const PATIENCE: Duration = Duration::from_secs(60);

/// Looks until `found` does, and says what it last saw when it never does.
pub(crate) async fn eventually<T>(what: &str, mut found: impl FnMut() -> Result<T, String>) -> T {
    let deadline = tokio::time::Instant::now() + PATIENCE;
    loop {
        match found() {
            Ok(found) => return found,
            Err(seen) if tokio::time::Instant::now() > deadline => panic!("{what}: {seen}"),
            Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
        }
    }
}

/// Browsers are large: at most two tests have some at a time.
static TURNS: Semaphore = Semaphore::const_new(2);

pub(crate) async fn turn() -> SemaphorePermit<'static> {
    TURNS.acquire().await.unwrap()
}

/// A place for one host.
pub(crate) struct Machine {
    pub(crate) kind: Kind,
    folder: tempfile::TempDir,
}

impl Machine {
    pub(crate) fn new(kind: Kind) -> Machine {
        let folder = tempfile::Builder::new()
            .prefix("usher-browsers-")
            .tempdir()
            .unwrap();
        // Browsers of a host that is root are somebody else.
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o711)).unwrap();
        Machine { kind, folder }
    }

    fn host_folder(&self) -> PathBuf {
        self.folder.path().join("host")
    }

    pub(crate) async fn launcher(&self, exit: Box<dyn Exit>) -> Option<Launcher> {
        self.launcher_of(None, exit).await
    }

    /// The same with another program for a browser.
    pub(crate) async fn launcher_of(
        &self,
        chromium: Option<PathBuf>,
        exit: Box<dyn Exit>,
    ) -> Option<Launcher> {
        let listen: Vec<OsString> = vec![PROGRAM.into(), "listen".into()];
        let mut settings = Settings::new(self.host_folder(), listen);
        settings.kind = self.kind;
        settings.chromium = chromium;
        settings.insecure_single_tenant = self.kind == Kind::Process;
        match Launcher::prepare(settings, exit).await {
            Ok(launcher) => Some(launcher),
            Err(LauncherFault::Lacks(lacks @ Lacks::Namespaces { .. })) => {
                println!("SKIPPED: {lacks}");
                None
            }
            Err(fault) => panic!("{fault}: {:?}", std::error::Error::source(&fault)),
        }
    }

    /// Nothing of a browser is left, of which `members` were seen.
    pub(crate) async fn has_nothing_left(&self, launcher: &Launcher, members: &[Process]) {
        let left: Vec<&Process> = members.iter().filter(|member| !member.is_gone()).collect();
        assert!(left.is_empty(), "{left:?}");
        assert_eq!(launcher.groups(), 0, "control groups are left");
        self.is_empty();
    }

    /// No browser has a file left on the machine.
    pub(crate) fn is_empty(&self) {
        let browsers = self.host_folder().join("browsers");
        let left: Vec<_> = fs::read_dir(browsers)
            .into_iter()
            .flatten()
            .flatten()
            .collect();
        assert!(left.is_empty(), "{left:?}");
    }
}

/// A host as a process of its own.
pub(crate) struct HostProcess {
    child: Child,
    socket: PathBuf,
    _program: Option<tempfile::TempDir>,
}

impl HostProcess {
    pub(crate) async fn start(machine: &Machine, options: &[&str]) -> Option<HostProcess> {
        let mut command = Command::new(PROGRAM);
        command.arg("run").arg(machine.host_folder()).args(options);
        if machine.kind == Kind::Process {
            command.arg("process");
        }
        HostProcess::spawn(machine, command, None).await
    }

    /// The same, as a user who may do nothing in particular.
    pub(crate) async fn start_as_nobody(
        machine: &Machine,
        options: &[&str],
    ) -> Option<HostProcess> {
        let (user, group) = NOBODY;
        chown(machine.folder.path(), Some(user), Some(group)).unwrap();
        // Where the program was built need not be anybody's to read.
        let place = tempfile::tempdir().unwrap();
        fs::set_permissions(place.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let program = place.path().join("host");
        fs::copy(PROGRAM, &program).unwrap();
        let mut command = Command::new("setpriv");
        command
            .arg(format!("--reuid={user}"))
            .arg(format!("--regid={group}"))
            .args(["--clear-groups", "--inh-caps=-all", "--"])
            .arg(program)
            .arg("run")
            .arg(machine.host_folder())
            .args(options);
        HostProcess::spawn(machine, command, Some(place)).await
    }

    async fn spawn(
        machine: &Machine,
        mut command: Command,
        program: Option<tempfile::TempDir>,
    ) -> Option<HostProcess> {
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let errors = BufReader::new(child.stderr.take().unwrap());
        let line = tokio::time::timeout(PATIENCE, lines.next_line())
            .await
            .unwrap()
            .unwrap();
        if line.as_deref() != Some("ready") {
            let mut errors = errors.lines();
            let mut said = String::new();
            while let Some(line) = errors.next_line().await.unwrap() {
                said += &line;
            }
            assert!(
                said.contains("the sandbox cannot be made"),
                "the host did not start: {said}"
            );
            println!("SKIPPED: {said}");
            return None;
        }
        tokio::spawn(async move {
            let mut errors = errors.lines();
            while let Ok(Some(line)) = errors.next_line().await {
                println!("host: {line}");
            }
        });
        let host = HostProcess {
            child,
            socket: machine.host_folder().join("socket"),
            _program: program,
        };
        let mut caller = host.caller().await;
        let () = caller.ask(&Ask::Register { boot: 1 }).await.unwrap();
        let () = caller
            .ask(&Ask::Want {
                ready: 1,
                most: None,
            })
            .await
            .unwrap();
        Some(host)
    }

    pub(crate) async fn caller(&self) -> Caller {
        Caller::connect(&self.socket).await.unwrap()
    }

    pub(crate) fn pid(&self) -> i32 {
        i32::try_from(self.child.id().unwrap()).unwrap()
    }

    /// A browser that is ready.
    pub(crate) async fn ready(&self) -> u128 {
        let deadline = tokio::time::Instant::now() + PATIENCE;
        let mut caller = self.caller().await;
        let mut watching = self.caller().await.watch().await.unwrap();
        loop {
            let listed: Listed = caller.ask(&Ask::List).await.unwrap();
            let ready = listed
                .browsers
                .iter()
                .find(|browser| browser.phase == Phase::Ready.as_str());
            if let Some(ready) = ready {
                return ready.browser;
            }
            let next = tokio::time::timeout_at(deadline, watching.next()).await;
            next.unwrap_or_else(|_| panic!("no browser is ready: {listed:?}"))
                .unwrap();
        }
    }

    /// The last heartbeat of `browser`.
    pub(crate) async fn dead(&self, watching: &mut Watching, browser: u128) -> Heartbeat {
        let deadline = tokio::time::Instant::now() + PATIENCE;
        loop {
            let told = tokio::time::timeout_at(deadline, watching.next()).await;
            let told = told.expect("no word of its death").unwrap();
            let mine = told.beats.iter().filter(|beat| beat.browser == browser);
            let mut read = mine.map(|beat| beat.read().unwrap());
            if let Some(last) = read.find(|beat| beat.phase == Phase::Dead) {
                return last;
            }
        }
    }

    /// The main process of the oldest browser: what the sandbox's first process started.
    pub(crate) fn main_process(&self) -> Process {
        let all = processes_of(self.pid());
        let sandboxes = all.iter().filter(|one| one.parent == self.pid());
        let oldest = sandboxes.min_by_key(|one| one.started).expect("a sandbox");
        let below = processes_of(oldest.pid);
        let init = below
            .iter()
            .find(|one| one.parent == oldest.pid)
            .expect("its first process");
        let main = below
            .iter()
            .find(|one| one.parent == init.pid)
            .expect("the browser");
        main.clone()
    }

    pub(crate) async fn kill(&mut self) {
        self.child.kill().await.unwrap();
    }

    /// What the host holds of the machine.
    pub(crate) fn standing(&self) -> Standing {
        let pid = self.pid();
        let children = processes_of(pid);
        let children: Vec<&Process> = children.iter().filter(|one| one.parent == pid).collect();
        let groups = children.iter().flat_map(|one| one.groups()).collect();
        Standing {
            processes: children.len(),
            files: fs::read_dir(format!("/proc/{pid}/fd")).unwrap().count(),
            groups: counted(groups),
        }
    }

    pub(crate) async fn quit(mut self) {
        let () = self.caller().await.ask(&Ask::Quit).await.unwrap();
        let status = tokio::time::timeout(PATIENCE, self.child.wait())
            .await
            .unwrap()
            .unwrap();
        assert!(status.success(), "{status}");
    }
}

/// What a host holds of the machine.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Standing {
    /// Its children: one of each browser.
    pub(crate) processes: usize,
    /// Its descriptors.
    pub(crate) files: usize,
    /// Folders of control groups for its browsers, and how many there are in each.
    pub(crate) groups: BTreeMap<PathBuf, usize>,
}

/// How many folders there are in each of `parents`.
fn counted(parents: BTreeSet<PathBuf>) -> BTreeMap<PathBuf, usize> {
    let count = |parent: PathBuf| {
        let inside = fs::read_dir(&parent).into_iter().flatten().flatten();
        let folders = inside.filter(|entry| entry.path().is_dir()).count();
        (parent, folders)
    };
    parents.into_iter().map(count).collect()
}

/// What is seen of a process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Process {
    pub(crate) pid: i32,
    pub(crate) parent: i32,
    /// When it was started: a number belongs to another process later.
    pub(crate) started: u64,
}

impl Process {
    fn of(pid: i32) -> Option<Process> {
        let told = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        let (_, rest) = told.rsplit_once(") ")?;
        let fields: Vec<&str> = rest.split(' ').collect();
        let ended = fields
            .first()
            .is_some_and(|state| matches!(*state, "Z" | "X"));
        let parent = fields.get(1)?.parse().ok()?;
        let started = fields.get(19)?.parse().ok()?;
        (!ended).then_some(Process {
            pid,
            parent,
            started,
        })
    }

    pub(crate) fn is_gone(&self) -> bool {
        Process::of(self.pid).is_none_or(|now| now.started != self.started)
    }

    pub(crate) fn namespace(&self, kind: &str) -> Option<PathBuf> {
        fs::read_link(format!("/proc/{}/ns/{kind}", self.pid)).ok()
    }

    /// A line of its status.
    pub(crate) fn status(&self, name: &str) -> String {
        let told = fs::read_to_string(format!("/proc/{}/status", self.pid)).unwrap_or_default();
        let mut lines = told.lines().filter_map(|line| line.strip_prefix(name));
        lines.next().unwrap_or_default().trim().to_owned()
    }

    /// The folders that its control groups are in.
    fn groups(&self) -> Vec<PathBuf> {
        let own = fs::read_to_string(format!("/proc/{}/cgroup", self.pid)).unwrap_or_default();
        let mounts = fs::read_to_string("/proc/mounts").unwrap_or_default();
        let points = mounts.lines().filter(|line| line.starts_with("cgroup"));
        let points: Vec<&str> = points.filter_map(|line| line.split(' ').nth(1)).collect();
        let inside = own.lines().filter_map(|line| line.splitn(3, ':').nth(2));
        let ours = inside.filter(|path| path.contains("usher-browsers-"));
        let parents = ours.filter_map(|path| Path::new(path).parent());
        let found = parents.flat_map(|parent| {
            let below = parent.strip_prefix("/").unwrap_or(parent).to_owned();
            points
                .iter()
                .map(move |point| Path::new(point).join(&below))
        });
        found.filter(|folder| folder.is_dir()).collect()
    }

    pub(crate) fn kill(&self) {
        let pid = rustix::process::Pid::from_raw(self.pid).unwrap();
        rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
    }

    /// It stands still.
    pub(crate) fn stop(&self) {
        let pid = rustix::process::Pid::from_raw(self.pid).unwrap();
        rustix::process::kill_process(pid, rustix::process::Signal::STOP).unwrap();
    }
}

pub(crate) fn own_namespace(kind: &str) -> Option<PathBuf> {
    fs::read_link(format!("/proc/self/ns/{kind}")).ok()
}

/// `root` and all below it.
pub(crate) fn processes_of(root: i32) -> Vec<Process> {
    let entries = fs::read_dir("/proc").unwrap().flatten();
    let numbers = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let all: Vec<Process> = numbers.filter_map(Process::of).collect();
    let mut members: Vec<Process> = all.iter().filter(|one| one.pid == root).cloned().collect();
    let mut at = 0;
    while let Some(pid) = members.get(at).map(|member| member.pid) {
        members.extend(all.iter().filter(|one| one.parent == pid).cloned());
        at += 1;
    }
    members
}

/// Asking pages for things.
pub(crate) mod evaluate {
    use serde_json::{Value, json};
    use usher_browsers::client::{Client, within};

    use super::PATIENCE;

    /// A session with a new page.
    pub(crate) async fn page(client: &mut Client) -> String {
        let deadline = within(PATIENCE);
        let made: Value = client
            .call(
                "",
                "Target.createTarget",
                json!({"url": "about:blank"}),
                deadline,
            )
            .await
            .unwrap();
        let params = json!({"targetId": made["targetId"], "flatten": true});
        let attached: Value = client
            .call("", "Target.attachToTarget", params, deadline)
            .await
            .unwrap();
        attached["sessionId"].as_str().unwrap().to_owned()
    }

    async fn value(client: &mut Client, page: &str, expression: &str) -> Value {
        let params = json!({"expression": expression, "returnByValue": true});
        let answer: Value = client
            .call(page, "Runtime.evaluate", params, within(PATIENCE))
            .await
            .unwrap();
        answer["result"]["value"].clone()
    }

    /// What `expression` is on a new page.
    pub(crate) async fn number(client: &mut Client, expression: &str) -> i64 {
        let page = page(client).await;
        value(client, &page, expression).await.as_i64().unwrap()
    }

    /// What `expression` is on `page`.
    pub(crate) async fn text(client: &mut Client, page: &str, expression: &str) -> String {
        value(client, page, expression)
            .await
            .as_str()
            .unwrap()
            .to_owned()
    }
}
