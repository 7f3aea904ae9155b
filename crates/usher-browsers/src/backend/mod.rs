//! Ways to run a browser.
//!
//! A backend says what has to be run and where the browser's network is; starting, lending and ending
//! are the same for all. There are two: [`sandbox`] for anybody's pages, and [`process`] for one
//! tenant who is trusted with the machine.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

pub mod arguments;
pub mod filter;
pub mod process;
pub mod sandbox;

use crate::lacks::Found;
use crate::settings::{Caps, Kind};

/// Where a browser is to run.
#[derive(Debug, Clone, Copy)]
pub struct Site<'a> {
    /// Its files on the machine's own disk; there only if [`Backend::needs_folder`].
    pub folder: &'a Path,
    /// The port of the loopback address where its proxy listens, in the network it sees.
    pub proxy_port: u16,
    /// What it may use.
    pub caps: &'a Caps,
    /// Whether its control group limits the number of its tasks.
    pub tasks_limited: bool,
}

/// A way to run a browser.
pub trait Backend: std::fmt::Debug + Send + Sync {
    /// Which one it is.
    fn kind(&self) -> Kind;

    /// Program and arguments that become the browser, with the debugging pipe on descriptors 3 and 4.
    fn command(&self, site: &Site<'_>) -> Vec<OsString>;

    /// Whether the browser has a network of its own, which the listener has to be made in.
    fn has_own_network(&self) -> bool;

    /// Whether its profile lies in a folder of the machine.
    fn needs_folder(&self) -> bool;

    /// A file of system calls that the command expects on descriptor 5.
    fn filter(&self) -> Option<&Path>;
}

/// The backend of `kind`; `filter` is where its system call filter was written to.
#[must_use]
pub fn of(
    kind: Kind,
    found: &Found,
    user: Option<(u32, u32)>,
    filter: PathBuf,
) -> Box<dyn Backend> {
    match kind {
        Kind::Sandbox => Box::new(sandbox::Sandbox::new(found.chromium.clone(), user, filter)),
        Kind::Process => Box::new(process::Process {
            chromium: found.chromium.clone(),
            user,
            own_sandbox: found.user_namespaces,
        }),
    }
}

/// What gives up root for `user`, before a command.
pub(crate) fn as_user(user: Option<(u32, u32)>) -> Vec<OsString> {
    let Some((user, group)) = user else {
        return Vec::new();
    };
    let mut command: Vec<OsString> = vec!["setpriv".into()];
    command.push(format!("--reuid={user}").into());
    command.push(format!("--regid={group}").into());
    for flag in ["--clear-groups", "--inh-caps=-all", "--no-new-privs", "--"] {
        command.push(flag.into());
    }
    command
}
