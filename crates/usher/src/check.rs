//! `usher check`: every fault of a configuration file, without starting anything.

use std::io::{self, Write as _};
use std::path::PathBuf;

use anyhow::anyhow;

use crate::Ending;
use crate::config::{self, Faults, Loaded};
use crate::terminal::{say_all, shown};

/// Example: `usher check --config usher.yaml`
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  usher check --config /etc/usher/usher.yaml

Prints 'ok' and what the file holds, or a line 'FILE:LINE:COLUMN: what is wrong' for every fault.")]
pub(crate) struct Arguments {
    /// The configuration file
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
}

/// Checks and prints.
pub(crate) fn check(arguments: &Arguments) -> Ending {
    let loaded = match config::load(&arguments.config) {
        Ok(loaded) => loaded,
        Err(faults) => return faults.ending(),
    };
    for warning in &loaded.warnings {
        complain_bare(&format!("warning: {warning}"));
    }
    say_all([format_args!("ok: {}", summary(&loaded))])
}

impl Faults {
    /// Says every fault on the standard error.
    ///
    /// The lines stand alone, as a compiler's do, so that editors can jump to the places.
    pub(crate) fn ending(self) -> Ending {
        if let Faults::Read { source, .. } = &self
            && !may_be_mended(source)
        {
            return Ending::Environment(anyhow!("{self}"));
        }
        self.lines().iter().for_each(|line| complain_bare(line));
        Ending::Refused
    }
}

/// Whether the user can do something about it, as against a disk that fails.
fn may_be_mended(error: &io::Error) -> bool {
    use io::ErrorKind::{InvalidInput, IsADirectory, NotADirectory, NotFound, PermissionDenied};
    [
        NotFound,
        PermissionDenied,
        IsADirectory,
        NotADirectory,
        InvalidInput,
    ]
    .contains(&error.kind())
}

fn complain_bare(line: &str) {
    // Whoever closed the pipe has seen enough.
    let _closed = writeln!(io::stderr().lock(), "{}", shown(line));
}

fn summary(loaded: &Loaded) -> String {
    let draft = loaded.catalog.draft();
    let browsers = loaded.process.browsers.as_ref();
    let regions = browsers.map_or(0, |browsers| browsers.pools.len());
    let of_browsers = [
        (regions, "browser pool"),
        (loaded.process.accounts.len(), "account"),
    ];
    let endpoints = draft.pools.iter().map(|pool| pool.endpoints.len()).sum();
    let counts = [
        (draft.zones.len(), "zone"),
        (draft.monitors.len(), "monitor"),
        (draft.monitor_groups.len(), "monitor group"),
        (draft.pools.len(), "pool"),
        (endpoints, "endpoint"),
        (draft.balancers.len(), "load balancer"),
        (draft.rooms.len(), "waiting room"),
    ];
    let counted = |(count, what): (usize, &str)| {
        format!("{count} {what}{}", if count == 1 { "" } else { "s" })
    };
    let of_browsers = of_browsers.into_iter().filter(|_| regions > 0);
    let counts: Vec<String> = counts.into_iter().chain(of_browsers).map(counted).collect();
    counts.join(", ")
}
