//! Control groups: what holds a browser to its share of the machine, and all of it together.
//!
//! A browser is put into a group of its own before its first program runs, so that nothing it starts
//! can be outside. Machines differ: one hierarchy for everything (v2), one for each resource (v1), or
//! none that we may write to. Each need is met by the first that can: a limit of memory, of tasks and
//! of processor time, and killing all at once. What no group can do is said once, and done by other
//! means: tasks by a limit of the user namespace, memory by looking every second.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use usher_core::lease::BrowserId;

use crate::settings::Caps;

/// How long to wait between tries to remove a group whose processes are just ending.
const RETRY: [Duration; 4] = [
    Duration::from_millis(20),
    Duration::from_millis(200),
    Duration::from_millis(400),
    Duration::from_millis(800),
];

/// A hierarchy of the machine, at the place where this process lives in it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Hierarchy {
    version: Version,
    /// Resources that it limits: all of them in the one of v2 that has any.
    limits: Vec<Limit>,
    home: PathBuf,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Version {
    One,
    Two,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Limit {
    Memory,
    Tasks,
    Cpu,
}

impl Limit {
    const ALL: [Limit; 3] = [Limit::Memory, Limit::Tasks, Limit::Cpu];

    /// The kernel's word.
    const fn controller(self) -> &'static str {
        match self {
            Limit::Memory => "memory",
            Limit::Tasks => "pids",
            Limit::Cpu => "cpu",
        }
    }

    const fn as_str(self) -> &'static str {
        match self {
            Limit::Memory => "memory",
            Limit::Tasks => "tasks",
            Limit::Cpu => "processor time",
        }
    }
}

/// The groups of this host's browsers.
#[derive(Debug)]
pub struct Groups {
    /// Named after the host's folder, so that a later host on it finds them again.
    roots: Vec<Hierarchy>,
}

impl Groups {
    /// Makes the groups for the host whose folder is `folder`, where the machine lets us.
    #[must_use]
    pub fn make(folder: &Path) -> Groups {
        let own = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        let name = format!("usher-browsers-{:016x}", name_hash(folder));
        let mut roots: Vec<Hierarchy> = Vec::new();
        for mut hierarchy in hierarchies(&own, &mounts) {
            let made = match hierarchy.version {
                Version::One => make_one(&hierarchy.home, &name),
                Version::Two => make_two(&hierarchy.home, &name).map(|(root, limits)| {
                    hierarchy.limits = limits;
                    root
                }),
            };
            match made {
                // A folder of v1 may hold two controllers; each has its own line.
                Ok(root) => {
                    hierarchy.home = root;
                    match roots.iter_mut().find(|known| known.home == hierarchy.home) {
                        Some(known) => known.limits.append(&mut hierarchy.limits),
                        None => roots.push(hierarchy),
                    }
                }
                Err(error) => {
                    tracing::debug!(home = %hierarchy.home.display(), %error, "no control group");
                }
            }
        }
        Groups { roots }
    }

    /// What no group of this machine can limit, in words.
    #[must_use]
    pub fn missing(&self) -> Vec<&'static str> {
        let limited = |limit: &Limit| self.roots.iter().any(|root| root.limits.contains(limit));
        let missing = Limit::ALL.into_iter().filter(|limit| !limited(limit));
        missing.map(Limit::as_str).collect()
    }

    /// Whether the number of a browser's tasks is limited by its group.
    #[must_use]
    pub fn limit_tasks(&self) -> bool {
        self.roots
            .iter()
            .any(|root| root.limits.contains(&Limit::Tasks))
    }

    /// Makes the group of `browser`.
    ///
    /// # Errors
    /// A group cannot be made or a limit not be set, though it could be before.
    pub fn open(&self, browser: BrowserId, caps: &Caps) -> io::Result<Group> {
        let mut group = Group::default();
        for root in &self.roots {
            let path = root.home.join(format!("{browser:?}"));
            fs::create_dir(&path)?;
            // Known to the group before limits are set, so that it goes with the group.
            group.folders.push(path.clone());
            for limit in &root.limits {
                set(&path, root.version, *limit, caps)?;
            }
            match root.version {
                Version::Two => {
                    let kill = path.join("cgroup.kill");
                    group.kill = kill.exists().then_some(kill);
                    if root.limits.contains(&Limit::Memory) {
                        group.memory = Some(path.join("memory.current"));
                        group.oom = Some(path.join("memory.events"));
                    }
                }
                Version::One if root.limits.contains(&Limit::Memory) => {
                    group.memory = Some(path.join("memory.usage_in_bytes"));
                    group.oom = Some(path.join("memory.oom_control"));
                }
                Version::One => {}
            }
        }
        Ok(group)
    }

    /// Ends all that an earlier host on the same folder left in its groups, and removes them.
    ///
    /// # Errors
    /// A group cannot be emptied.
    pub async fn sweep(&self) -> io::Result<u32> {
        let mut found = 0;
        for root in &self.roots {
            for entry in fs::read_dir(&root.home)? {
                let entry = entry?;
                if entry.file_type()?.is_dir() {
                    let path = entry.path();
                    let mut group = Group::default();
                    group.kill = Some(path.join("cgroup.kill")).filter(|kill| kill.exists());
                    group.folders.push(path);
                    found += u32::try_from(group.members().len()).unwrap_or(u32::MAX);
                    group.kill();
                    group.remove().await?;
                }
            }
        }
        Ok(found)
    }

    /// How many browsers have a group now.
    #[must_use]
    pub fn count(&self) -> usize {
        let inside = |root: &Hierarchy| {
            let entries = fs::read_dir(&root.home).into_iter().flatten().flatten();
            entries.filter(|entry| entry.path().is_dir()).count()
        };
        self.roots.iter().map(inside).max().unwrap_or(0)
    }
}

impl Drop for Groups {
    fn drop(&mut self) {
        for root in &self.roots {
            // Fails, and is meant to, while a browser is left in it.
            let _ = fs::remove_dir(&root.home);
        }
    }
}

/// The groups that one browser is in.
#[derive(Debug, Default)]
pub struct Group {
    folders: Vec<PathBuf>,
    kill: Option<PathBuf>,
    memory: Option<PathBuf>,
    oom: Option<PathBuf>,
}

impl Group {
    /// Files that a process writes its own number into, to be in the group.
    pub fn doors(&self) -> impl Iterator<Item = PathBuf> {
        self.folders
            .iter()
            .map(|folder| folder.join("cgroup.procs"))
    }

    /// Memory used by all of it, in bytes; `None` when no group counts it.
    #[must_use]
    pub fn memory(&self) -> Option<u64> {
        let told = fs::read_to_string(self.memory.as_ref()?).ok()?;
        told.trim().parse().ok()
    }

    /// Processor time used by all of it; `None` when no group counts it.
    #[must_use]
    pub fn cpu(&self) -> Option<Duration> {
        let read = |folder: &PathBuf, name| fs::read_to_string(folder.join(name)).ok();
        self.folders.iter().find_map(|folder| {
            // v1 counts nanoseconds, v2 says microseconds beside other figures.
            if let Some(told) = read(folder, "cpuacct.usage") {
                return told.trim().parse().ok().map(Duration::from_nanos);
            }
            let told = read(folder, "cpu.stat")?;
            let mut used = told
                .lines()
                .filter_map(|line| line.strip_prefix("usage_usec "));
            used.next()?.trim().parse().ok().map(Duration::from_micros)
        })
    }

    /// How many of its processes were killed for want of memory.
    #[must_use]
    pub fn oom_kills(&self) -> u64 {
        let told = self
            .oom
            .as_ref()
            .and_then(|path| fs::read_to_string(path).ok());
        let told = told.unwrap_or_default();
        let mut kills = told
            .lines()
            .filter_map(|line| line.strip_prefix("oom_kill "));
        kills
            .next()
            .and_then(|count| count.trim().parse().ok())
            .unwrap_or(0)
    }

    /// The processes that are in it.
    #[must_use]
    pub fn members(&self) -> Vec<i32> {
        let Some(door) = self.doors().next() else {
            return Vec::new();
        };
        let told = fs::read_to_string(door).unwrap_or_default();
        told.lines()
            .filter_map(|line| line.trim().parse().ok())
            .collect()
    }

    /// Kills all that is in it.
    pub fn kill(&self) {
        let at_once = self
            .kill
            .as_ref()
            .is_some_and(|kill| fs::write(kill, "1").is_ok());
        if !at_once {
            for pid in self.members() {
                if let Some(pid) = rustix::process::Pid::from_raw(pid) {
                    let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
                }
            }
        }
    }

    /// Removes it, killing what may still be in it.
    ///
    /// # Errors
    /// Something in it does not end.
    pub async fn remove(&self) -> io::Result<()> {
        for folder in &self.folders {
            let mut pauses = RETRY.iter();
            loop {
                match fs::remove_dir(folder) {
                    Ok(()) => break,
                    Err(error) if error.kind() == io::ErrorKind::NotFound => break,
                    Err(error) => match pauses.next() {
                        Some(&pause) => {
                            self.kill();
                            tokio::time::sleep(pause).await;
                        }
                        None => return Err(error),
                    },
                }
            }
        }
        Ok(())
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // A launch that failed leaves it empty; else it was removed before, or is swept later.
        for folder in &self.folders {
            let _ = fs::remove_dir(folder);
        }
    }
}

/// The same name for the same folder, in every build.
fn name_hash(folder: &Path) -> u64 {
    use std::os::unix::ffi::OsStrExt;
    // FNV-1a: names only have to differ where folders do.
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    for byte in folder.as_os_str().as_bytes() {
        hash = (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
    }
    hash
}

/// The hierarchies that could serve, read from the kernel's two lists.
fn hierarchies(own: &str, mounts: &str) -> Vec<Hierarchy> {
    let mut found = Vec::new();
    for line in own.lines() {
        let mut parts = line.splitn(3, ':');
        let (Some(_), Some(controllers), Some(path)) = (parts.next(), parts.next(), parts.next())
        else {
            continue;
        };
        let named: Vec<&str> = controllers.split(',').collect();
        let limits: Vec<Limit> = Limit::ALL
            .into_iter()
            .filter(|limit| named.contains(&limit.controller()))
            .collect();
        let version = if controllers.is_empty() {
            Version::Two
        } else {
            Version::One
        };
        if version == Version::One && limits.is_empty() {
            continue;
        }
        let mount = mounts
            .lines()
            .find_map(|line| mount_of(line, version, &named));
        if let Some((root, point)) = mount {
            let below = path
                .strip_prefix(root.trim_end_matches('/'))
                .unwrap_or(path);
            let home = Path::new(point).join(below.trim_start_matches('/'));
            found.push(Hierarchy {
                version,
                limits,
                home,
            });
        }
    }
    found
}

/// Which part of a hierarchy a line of the mount list shows, and where.
fn mount_of<'a>(
    line: &'a str,
    version: Version,
    controllers: &[&str],
) -> Option<(&'a str, &'a str)> {
    let (mount, source) = line.split_once(" - ")?;
    let mut mount = mount.split(' ').skip(3);
    let (root, point) = (mount.next()?, mount.next()?);
    let mut source = source.split(' ');
    let (kind, options) = (source.next()?, source.nth(1)?);
    let fits = match version {
        Version::Two => kind == "cgroup2",
        Version::One => {
            kind == "cgroup"
                && controllers
                    .iter()
                    .all(|name| options.split(',').any(|has| has == *name))
        }
    };
    fits.then_some((root, point))
}

fn make_one(home: &Path, name: &str) -> io::Result<PathBuf> {
    let root = home.join(name);
    make_folder(&root)?;
    Ok(root)
}

/// In v2 a group either has processes or shares out resources, so this process may have to step
/// aside first: into a group of its own below the one that was delegated to it.
fn make_two(home: &Path, name: &str) -> io::Result<(PathBuf, Vec<Limit>)> {
    let offered = fs::read_to_string(home.join("cgroup.controllers"))?;
    let limits: Vec<Limit> = Limit::ALL
        .into_iter()
        .filter(|limit| {
            offered
                .split_whitespace()
                .any(|name| name == limit.controller())
        })
        .collect();
    let root = home.join(name);
    make_folder(&root)?;
    if limits.is_empty() {
        return Ok((root, limits));
    }
    let wanted: Vec<String> = limits
        .iter()
        .map(|limit| format!("+{}", limit.controller()))
        .collect();
    let wanted = wanted.join(" ");
    let shared = share_out(home, &wanted)
        .and_then(|()| fs::write(root.join("cgroup.subtree_control"), &wanted));
    if let Err(error) = shared {
        let _ = fs::remove_dir(&root);
        return Err(error);
    }
    Ok((root, limits))
}

/// Has `home` share out `wanted` to the groups below it.
fn share_out(home: &Path, wanted: &str) -> io::Result<()> {
    let switch = home.join("cgroup.subtree_control");
    if fs::write(&switch, wanted).is_ok() {
        return Ok(());
    }
    let aside = home.join("usher-browser-host");
    make_folder(&aside)?;
    let own = std::process::id().to_string();
    fs::write(aside.join("cgroup.procs"), &own)?;
    let shared = fs::write(&switch, wanted);
    if shared.is_err() {
        // Others live in this group too: it was not delegated to us.
        let _ = fs::write(home.join("cgroup.procs"), &own);
        let _ = fs::remove_dir(&aside);
    }
    shared
}

fn make_folder(path: &Path) -> io::Result<()> {
    match fs::create_dir(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        made => made,
    }
}

fn set(group: &Path, version: Version, limit: Limit, caps: &Caps) -> io::Result<()> {
    let write = |file: &str, value: String| {
        fs::write(group.join(file), value).map_err(|error| {
            io::Error::new(error.kind(), format!("{}/{file}: {error}", group.display()))
        })
    };
    const PERIOD_US: u64 = 100_000;
    let quota_us = PERIOD_US * u64::from(caps.cpu_percent) / 100;
    match (version, limit) {
        (Version::One, Limit::Memory) => {
            write("memory.limit_in_bytes", caps.memory_bytes.to_string())?;
            // Not there where the kernel does not account for swap.
            let swap = write("memory.memsw.limit_in_bytes", caps.memory_bytes.to_string());
            swap.or_else(|error| match error.kind() {
                io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied => Ok(()),
                _ => Err(error),
            })
        }
        (Version::One, Limit::Cpu) => {
            write("cpu.cfs_period_us", PERIOD_US.to_string())?;
            write("cpu.cfs_quota_us", quota_us.to_string())
        }
        (Version::Two, Limit::Memory) => {
            write("memory.max", caps.memory_bytes.to_string())?;
            write("memory.high", (caps.memory_bytes / 100 * 85).to_string())?;
            write("memory.oom.group", "1".to_owned())?;
            match write("memory.swap.max", "0".to_owned()) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
                set => set,
            }
        }
        (Version::Two, Limit::Cpu) => write("cpu.max", format!("{quota_us} {PERIOD_US}")),
        (Version::One | Version::Two, Limit::Tasks) => write("pids.max", caps.tasks.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOUNTS: &str = "\
30 23 0:26 / /sys/fs/cgroup ro,nosuid - tmpfs tmpfs ro,mode=755
33 30 0:29 / /sys/fs/cgroup/cpu,cpuacct rw,relatime shared:9 - cgroup cgroup rw,cpu,cpuacct
34 30 0:30 /docker/ab /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory
35 30 0:31 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw";

    #[test]
    fn the_kernels_lists_lead_to_where_we_are() {
        let own =
            "9:name=systemd:/x\n5:memory:/docker/ab/inner\n2:cpu,cpuacct:/\n0::/user.slice/a:b\n";
        let found: Vec<(String, Vec<Limit>)> = hierarchies(own, MOUNTS)
            .into_iter()
            .map(|one| (one.home.display().to_string(), one.limits))
            .collect();
        let expected = [
            ("/sys/fs/cgroup/memory/inner", vec![Limit::Memory]),
            ("/sys/fs/cgroup/cpu,cpuacct/", vec![Limit::Cpu]),
            ("/sys/fs/cgroup/unified/user.slice/a:b", vec![]),
        ];
        let expected = expected.map(|(home, limits)| (home.to_owned(), limits));
        assert_eq!(found, expected);
    }

    #[test]
    fn a_machine_without_groups_says_what_it_cannot_limit() {
        assert_eq!(hierarchies("", MOUNTS), []);
        let none = Groups { roots: Vec::new() };
        assert_eq!(none.missing(), ["memory", "tasks", "processor time"]);
        let group = none.open(BrowserId(1), &Caps::default()).unwrap();
        assert_eq!(
            (group.memory(), group.oom_kills(), group.doors().count()),
            (None, 0, 0)
        );
    }

    #[test]
    fn v2_is_written_as_the_kernel_reads_it() {
        let folder = tempfile::tempdir().unwrap();
        let group = folder.path();
        let caps = Caps::default();
        for limit in Limit::ALL {
            set(group, Version::Two, limit, &caps).unwrap();
        }
        let read = |file: &str| fs::read_to_string(group.join(file)).unwrap();
        assert_eq!(read("memory.max"), "1073741824");
        assert_eq!(read("memory.oom.group"), "1");
        assert_eq!(read("cpu.max"), "200000 100000");
        assert_eq!(read("pids.max"), "512");
    }
}
