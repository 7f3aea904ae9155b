//! A browser as a plain process of the machine.
//!
//! It sees the machine's files and network as its user does, and a page that takes it over has all of
//! that. So it is only for an installation whose every session belongs to one trusted tenant, and has
//! to be asked for by that name. The browser's own sandbox for pages stays on where the machine has
//! what it is made of.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use super::{Backend, Site, arguments::arguments, as_user};
use crate::settings::Kind;

/// Bare browsers.
#[derive(Debug)]
pub struct Process {
    /// The browser's program.
    pub chromium: PathBuf,
    /// Who it runs as, where the host is root.
    pub user: Option<(u32, u32)>,
    /// Whether the browser can make its own sandbox.
    pub own_sandbox: bool,
}

impl Backend for Process {
    fn kind(&self) -> Kind {
        Kind::Process
    }

    fn command(&self, site: &Site<'_>) -> Vec<OsString> {
        let mut command = as_user(self.user);
        // What it keeps beside its profile goes where it is removed.
        command.push("env".into());
        for name in ["HOME", "TMPDIR"] {
            let mut variable = OsString::from(name);
            variable.push("=");
            variable.push(site.folder);
            command.push(variable);
        }
        command.push(self.chromium.clone().into());
        command.extend(arguments(
            &self.chromium,
            &site.folder.join("profile"),
            site.proxy_port,
        ));
        if !self.own_sandbox {
            command.push("--no-sandbox".into());
        }
        if shared_memory_is_small(site) {
            command.push("--disable-dev-shm-usage".into());
        }
        command.push("about:blank".into());
        command
    }

    fn has_own_network(&self) -> bool {
        false
    }

    fn needs_folder(&self) -> bool {
        true
    }

    fn filter(&self) -> Option<&Path> {
        None
    }
}

fn shared_memory_is_small(site: &Site<'_>) -> bool {
    let found = rustix::fs::statvfs("/dev/shm");
    found.is_ok_and(|found| found.f_blocks.saturating_mul(found.f_frsize) < site.caps.scratch_bytes)
}
