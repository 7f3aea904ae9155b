//! What a machine lacks to run browsers, said before one is tried, in one line.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use tokio::process::Command;

use crate::backend::sandbox;
use crate::launch::PATH;
use crate::settings::{Kind, Settings};

/// Where Debian puts the browser, the light one first. Not the script in `/usr/bin`, which adds
/// arguments of its own.
const CHROMIUM: [&str; 2] = [
    "/usr/lib/chromium/chromium-headless-shell",
    "/usr/lib/chromium/chromium",
];

/// How long a program may take to say that it is there.
const TRY_MAX: Duration = Duration::from_secs(10);

/// What was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// The browser's program.
    pub chromium: PathBuf,
    /// Whether user namespaces can be made, by who will run the browsers.
    pub user_namespaces: bool,
}

/// Why no browser can be run here.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Lacks {
    /// Programs are not there.
    #[error("this machine has no {}: {}", names.join(" and no "), remedy(packages, *named))]
    Programs {
        /// What is not there.
        names: Vec<String>,
        /// Debian packages that bring it.
        packages: Vec<&'static str>,
        /// Whether the browser's program that is not there was named by the operator.
        named: bool,
    },
    /// The kernel refuses namespaces.
    #[error("the sandbox cannot be made, {hint} ({told})")]
    Namespaces {
        /// What to do.
        hint: &'static str,
        /// What bubblewrap said.
        told: String,
    },
    /// Bare browsers were not asked for by name.
    #[error(
        "backend process runs without a sandbox: it needs insecure_single_tenant, which says that one trusted tenant owns every session"
    )]
    Trust,
}

/// What to do about it.
fn remedy(packages: &[&str], named: bool) -> String {
    let correct = named.then(|| "correct browsers.chromium".to_owned());
    let install = (!packages.is_empty()).then(|| format!("apt-get install {}", packages.join(" ")));
    let both: Vec<String> = correct.into_iter().chain(install).collect();
    both.join(", and ")
}

/// Looks for all that is needed to run browsers as `settings` say.
///
/// # Errors
/// What is lacking; see [`Lacks`].
pub async fn check(settings: &Settings) -> Result<Found, Lacks> {
    if settings.kind == Kind::Process && !settings.insecure_single_tenant {
        return Err(Lacks::Trust);
    }
    let (mut names, mut packages) = (Vec::new(), Vec::new());
    let chromium = match &settings.chromium {
        Some(path) => is_program(path).then(|| path.clone()),
        None => CHROMIUM
            .iter()
            .map(PathBuf::from)
            .find(|path| is_program(path)),
    };
    let named = chromium.is_none() && settings.chromium.is_some();
    match &settings.chromium {
        // No package brings what somebody named.
        Some(path) if named => names.push(format!("program {}", path.display())),
        None if chromium.is_none() => {
            names.push("chromium".to_owned());
            packages.push("chromium-headless-shell");
        }
        Some(_) | None => {}
    }
    let needed: &[(&str, &str)] = match settings.kind {
        Kind::Sandbox => &[
            ("bwrap", "bubblewrap"),
            ("nsenter", "util-linux"),
            ("prlimit", "util-linux"),
        ],
        Kind::Process => &[],
    };
    let root = rustix::process::geteuid().is_root();
    let for_root = root.then_some(("setpriv", "util-linux"));
    for &(name, package) in needed.iter().chain(&for_root) {
        if !on_path(name) {
            names.push(name.to_owned());
            if !packages.contains(&package) {
                packages.push(package);
            }
        }
    }
    let Some(chromium) = chromium.filter(|_| names.is_empty()) else {
        return Err(Lacks::Programs {
            names,
            packages,
            named,
        });
    };
    let user = root.then_some(settings.user);
    let user_namespaces = match (settings.kind, namespaces(user).await) {
        (Kind::Sandbox, Err(told)) => return Err(Lacks::Namespaces { hint: hint(), told }),
        (_, made) => made.is_ok(),
    };
    Ok(Found {
        chromium,
        user_namespaces,
    })
}

/// Whether there is a file that may be run.
#[must_use]
pub fn is_program(path: &Path) -> bool {
    rustix::fs::access(path, rustix::fs::Access::EXEC_OK).is_ok() && path.is_file()
}

fn on_path(name: &str) -> bool {
    PATH.split(':')
        .any(|folder| is_program(&Path::new(folder).join(name)))
}

/// Tries to make the namespaces; what was said when it failed.
async fn namespaces(user: Option<(u32, u32)>) -> Result<(), String> {
    // Without bubblewrap the browser's own sandbox is asked for, which needs the same of the kernel.
    let mut words = crate::backend::as_user(user);
    if on_path("bwrap") {
        words.extend(sandbox::namespaces());
        words.extend(["--ro-bind", "/", "/", "--proc", "/proc", "--", "true"].map(Into::into));
    } else {
        words.extend(["unshare", "--user", "--pid", "--fork", "--net", "true"].map(Into::into));
    }
    let Some((program, arguments)) = words.split_first() else {
        return Ok(());
    };
    let output = Command::new(program)
        .args(arguments)
        .env_clear()
        .env("PATH", PATH)
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output();
    match tokio::time::timeout(TRY_MAX, output).await {
        Ok(Ok(output)) if output.status.success() => Ok(()),
        Ok(Ok(output)) => {
            let told = String::from_utf8_lossy(&output.stderr);
            Err(told.lines().next().unwrap_or("nothing was said").to_owned())
        }
        Ok(Err(error)) => Err(error.to_string()),
        Err(_) => Err("it did not end".to_owned()),
    }
}

/// What an administrator of this machine has to change.
fn hint() -> &'static str {
    let says = |path: &str, value: &str| {
        std::fs::read_to_string(path).is_ok_and(|found| found.trim() == value)
    };
    if says("/proc/sys/kernel/unprivileged_userns_clone", "0") {
        "user namespaces are off: sysctl kernel.unprivileged_userns_clone=1"
    } else if says("/proc/sys/user/max_user_namespaces", "0") {
        "user namespaces are off: sysctl user.max_user_namespaces=15000"
    } else if says(
        "/proc/sys/kernel/apparmor_restrict_unprivileged_userns",
        "1",
    ) {
        "AppArmor keeps user namespaces from bwrap: give it a profile that grants userns"
    } else {
        "the kernel or the container around us refuses namespaces"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn bare_browsers_have_to_be_asked_for_by_name() {
        let mut settings = Settings::new("/nowhere".into(), Vec::new());
        settings.kind = Kind::Process;
        let lacks = check(&settings).await.unwrap_err();
        assert_eq!(lacks, Lacks::Trust);
    }

    #[test]
    fn both_remedies_are_named() {
        assert_eq!(
            remedy(&["bubblewrap", "util-linux"], false),
            "apt-get install bubblewrap util-linux"
        );
        assert_eq!(
            remedy(&["bubblewrap"], true),
            "correct browsers.chromium, and apt-get install bubblewrap"
        );
    }

    #[tokio::test]
    async fn one_line_names_what_to_do() {
        let mut settings = Settings::new("/nowhere".into(), Vec::new());
        settings.kind = Kind::Process;
        settings.insecure_single_tenant = true;
        settings.chromium = Some("/nowhere/chromium".into());
        let line = check(&settings).await.unwrap_err().to_string();
        assert_eq!(
            line,
            "this machine has no program /nowhere/chromium: correct browsers.chromium"
        );
    }
}
