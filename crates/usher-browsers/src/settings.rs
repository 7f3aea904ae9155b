//! What an operator may say about the browsers of a machine.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

pub use usher_egress::address::keeps_metadata;

/// How browsers are run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Kind {
    /// In bubblewrap: namespaces, file system and network of their own. The default.
    #[default]
    Sandbox,
    /// As plain processes of the machine, beside everything else on it.
    Process,
}

impl Kind {
    /// All of them.
    pub const ALL: [Kind; 2] = [Kind::Sandbox, Kind::Process];

    /// Its word in the configuration, in tables and in metrics.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Kind::Sandbox => "sandbox",
            Kind::Process => "process",
        }
    }
}

/// What one browser may use of the machine.
///
/// Source: browser specification 12.2, 12.8.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Caps {
    /// Memory of all its processes and of its files, in bytes. Default 1 GiB.
    pub memory_bytes: u64,
    /// Processes and threads. Default 512.
    pub tasks: u32,
    /// Processor time in percent of one core. Default 200.
    pub cpu_percent: u32,
    /// Its home with the profile, in bytes; it lies in memory. Default 512 MiB.
    pub home_bytes: u64,
    /// Its `/tmp` and its `/dev/shm`, in bytes each; they lie in memory. Default 256 MiB.
    pub scratch_bytes: u64,
    /// File descriptors of one of its processes. Default 4096.
    pub files: u32,
}

impl Default for Caps {
    fn default() -> Caps {
        Caps {
            memory_bytes: 1 << 30,
            tasks: 512,
            cpu_percent: 200,
            home_bytes: 512 << 20,
            scratch_bytes: 256 << 20,
            files: 4096,
        }
    }
}

/// The browsers of a machine.
#[derive(Debug, Clone)]
pub struct Settings {
    /// How they are run.
    pub kind: Kind,
    /// Says that all sessions of this machine belong to one tenant who is trusted with it: without
    /// it [`Kind::Process`] is refused. Default false.
    pub insecure_single_tenant: bool,
    /// The browser's program; found by [`crate::lacks`] when nothing is said.
    pub chromium: Option<PathBuf>,
    /// The folder of the running host: its socket, its lock, and what browsers need on disk. One
    /// host per folder; it is made for us alone.
    pub folder: PathBuf,
    /// A command that calls [`crate::listen`], to be run in a browser's network.
    pub listen: Vec<OsString>,
    /// User and group that browsers run as when the host is root. Default 65534, 65534.
    pub user: (u32, u32),
    /// How many browsers there may be. Default 2.5 for each core, as memory allows.
    pub slots: u32,
    /// How many may be starting together. Default half the cores, at least 1.
    pub launches_max: u32,
    /// What one browser may use.
    pub caps: Caps,
    /// How long the host goes on without a question, when no session is on it. Default `None`: until
    /// it is told to end.
    pub alone_max: Option<Duration>,
    /// Tells hosts apart that were started in other ways. Default empty.
    pub mark: String,
}

/// The user and group called `nobody`, when nothing else is said.
pub const NOBODY: (u32, u32) = (65534, 65534);

impl Settings {
    /// The defaults for a host in `folder` whose `listen` command calls [`crate::listen`].
    #[must_use]
    pub fn new(folder: PathBuf, listen: Vec<OsString>) -> Settings {
        let caps = Caps::default();
        Settings {
            kind: Kind::default(),
            insecure_single_tenant: false,
            chromium: None,
            folder,
            listen,
            user: NOBODY,
            slots: slots(),
            launches_max: (cores() / 2).max(1),
            caps,
            alone_max: None,
            mark: String::new(),
        }
    }
}

/// How many browsers cores and memory of this machine allow; at least 1.
#[must_use]
pub fn slots() -> u32 {
    let caps = Caps::default();
    let by_memory = available_bytes().map_or(u64::MAX, |bytes| bytes / caps.memory_bytes);
    let by_cores = u64::from(cores().saturating_mul(5) / 2);
    u32::try_from(by_memory.min(by_cores))
        .unwrap_or(u32::MAX)
        .max(1)
}

fn cores() -> u32 {
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    u32::try_from(cores).unwrap_or(u32::MAX)
}

/// Memory that the machine could still give, in bytes.
fn available_bytes() -> Option<u64> {
    let told = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = told
        .lines()
        .find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}
