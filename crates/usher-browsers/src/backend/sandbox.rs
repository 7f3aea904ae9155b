//! A browser in bubblewrap.
//!
//! It has user, process, network, IPC, host name and control group namespaces of its own, no
//! capability, and a file system that is the machine's programs and fonts, read-only, with memory
//! where it writes. All of that is gone with its first process. Nothing of a person, of a service or
//! of the machine's devices is in there, and no network but its own loopback.
//!
//! The browser's own sandbox for pages stays on inside: it needs user namespaces within this one, so
//! making those is not forbidden.
//!
//! Source: browser specification 12.2.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use super::{Backend, Site, arguments::arguments, as_user};
use crate::settings::{Caps, Kind};

/// The browser's home inside.
const HOME: &str = "/browser";

/// What is shown of `/etc`: fonts, certificates, where libraries are.
const SHOWN: [&str; 4] = [
    "/etc/fonts",
    "/etc/ssl/certs",
    "/etc/ld.so.cache",
    "/etc/alternatives",
];

/// Folders that are links into `/usr` on some machines and folders on others.
const MERGED: [&str; 4] = ["/bin", "/lib", "/lib64", "/sbin"];

const DEVICES: [&str; 5] = ["null", "zero", "full", "random", "urandom"];

/// Browsers in bubblewrap.
#[derive(Debug)]
pub struct Sandbox {
    chromium: PathBuf,
    user: Option<(u32, u32)>,
    filter: PathBuf,
    /// How the machine's programs are shown.
    programs: Vec<OsString>,
}

impl Sandbox {
    /// Runs `chromium` as `user`; `filter` is the file with what [`super::filter::program`] says.
    #[must_use]
    pub fn new(chromium: PathBuf, user: Option<(u32, u32)>, filter: PathBuf) -> Sandbox {
        let mut programs: Vec<OsString> = ["--ro-bind", "/usr", "/usr"].map(OsString::from).into();
        for folder in MERGED {
            match std::fs::read_link(folder) {
                Ok(target) => programs.extend(["--symlink".into(), target.into(), folder.into()]),
                Err(_) => programs.extend(["--ro-bind-try", folder, folder].map(OsString::from)),
            }
        }
        for path in SHOWN {
            programs.extend(["--ro-bind-try", path, path].map(OsString::from));
        }
        if let Some(folder) = chromium
            .parent()
            .filter(|folder| !folder.starts_with("/usr"))
        {
            programs.extend(["--ro-bind".into(), folder.into(), folder.into()]);
        }
        Sandbox {
            chromium,
            user,
            filter,
            programs,
        }
    }
}

impl Backend for Sandbox {
    fn kind(&self) -> Kind {
        Kind::Sandbox
    }

    fn command(&self, site: &Site<'_>) -> Vec<OsString> {
        let mut command = as_user(self.user);
        command.extend(namespaces());
        command.extend(self.programs.iter().cloned());
        command.extend(memory(site.caps));
        command.extend(["--seccomp", "5", "--chdir", HOME, "--"].map(OsString::from));
        if !site.tasks_limited {
            // In a user namespace of its own the limit counts the browser's processes alone.
            let limit = format!("--nproc={0}:{0}", site.caps.tasks);
            command.extend(["prlimit".into(), limit.into(), "--".into()]);
        }
        command.push(self.chromium.clone().into());
        let profile = Path::new(HOME).join("profile");
        command.extend(arguments(&self.chromium, &profile, site.proxy_port));
        command.push("about:blank".into());
        command
    }

    fn has_own_network(&self) -> bool {
        true
    }

    fn needs_folder(&self) -> bool {
        false
    }

    fn filter(&self) -> Option<&Path> {
        Some(&self.filter)
    }
}

/// Bubblewrap, and what it takes away from the machine. Also what is tried to learn whether this
/// machine can do it at all.
pub(crate) fn namespaces() -> Vec<OsString> {
    let mut command: Vec<OsString> = vec!["bwrap".into()];
    let flags = [
        "--unshare-user",
        "--unshare-pid",
        "--unshare-net",
        "--unshare-ipc",
        "--unshare-uts",
        "--unshare-cgroup-try",
        "--die-with-parent",
        "--new-session",
        "--clearenv",
    ];
    command.extend(flags.map(OsString::from));
    for (flag, value) in [
        ("--uid", "1000"),
        ("--gid", "1000"),
        ("--hostname", "browser"),
        ("--cap-drop", "ALL"),
        ("--proc", "/proc"),
    ] {
        command.extend([flag.into(), value.into()]);
    }
    for (name, value) in [
        ("HOME", HOME),
        ("PATH", "/usr/bin:/bin"),
        ("LANG", "C.UTF-8"),
        ("TZ", "UTC"),
    ] {
        command.extend(["--setenv".into(), name.into(), value.into()]);
    }
    for device in DEVICES {
        let path: &OsStr = &OsString::from(format!("/dev/{device}"));
        command.extend(["--dev-bind".into(), path.into(), path.into()]);
    }
    command
}

/// Where the browser may write, and how much.
fn memory(caps: &Caps) -> Vec<OsString> {
    let mut mounts: Vec<OsString> = Vec::new();
    for (path, size) in [
        ("/tmp", caps.scratch_bytes),
        ("/dev/shm", caps.scratch_bytes),
        (HOME, caps.home_bytes),
    ] {
        mounts.extend(["--size".into(), size.to_string().into()]);
        mounts.extend(["--tmpfs".into(), path.into()]);
    }
    // The root itself is memory too, without a bound: nobody writes to it from here on.
    mounts.extend(["--remount-ro".into(), "/".into()]);
    mounts
}
