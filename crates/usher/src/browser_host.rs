//! `usher browser-host`: the browsers of this machine. Started by whoever serves them, not by people.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::anyhow;
use tokio::signal::unix::{SignalKind, signal};
use usher_browsers::settings::{Kind, Settings};
use usher_node::browsers::{Manner, host};

use crate::Ending;
use crate::run::start_log;
use crate::terminal::{complain, say};

/// The word for what runs in a browser's own network.
const LISTEN: &str = "browser-listen";

/// Example: `usher browser-host --folder /var/lib/usher/browsers`
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// The folder of the host: its socket, and what browsers need on disk
    #[arg(long, value_name = "FOLDER")]
    folder: PathBuf,
    /// Leave the terminal and the process group of whoever starts it
    #[arg(long)]
    apart: bool,
    /// How browsers are run: sandbox or process
    #[arg(long, value_name = "WORD", default_value = "sandbox", value_parser = kind)]
    backend: Kind,
    /// One trusted tenant owns every session
    #[arg(long)]
    insecure_single_tenant: bool,
    /// How many browsers there may be; by default what cores and memory allow
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    max: Option<u32>,
    /// The browser's program; by default where Debian puts it
    #[arg(long, value_name = "PATH")]
    chromium: Option<PathBuf>,
    /// End after that many seconds without a question, when no session is open; by default never
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(1..))]
    alone_max: Option<u32>,
    /// Where this installation listens for what no page is to reach; any number of times
    #[arg(long, value_name = "ADDRESS")]
    own: Vec<SocketAddr>,
}

fn kind(word: &str) -> Result<Kind, String> {
    let found = Kind::ALL.into_iter().find(|kind| kind.as_str() == word);
    found.ok_or_else(|| "sandbox or process".to_owned())
}

/// Runs browsers until SIGTERM.
pub(crate) fn browser_host(arguments: Arguments) -> Ending {
    match run(arguments) {
        Ok(()) => Ending::Done,
        Err(error) => Ending::Environment(error),
    }
}

fn run(arguments: Arguments) -> anyhow::Result<()> {
    start_log();
    if arguments.apart {
        // Fails only for who leads a group, and so has left already.
        let _led = rustix::process::setsid();
    }
    let listen = vec![std::env::current_exe()?.into(), LISTEN.into()];
    let manner = Manner {
        backend: arguments.backend,
        insecure_single_tenant: arguments.insecure_single_tenant,
        max: arguments.max,
        chromium: arguments.chromium,
        alone_max: (arguments.alone_max).map(|seconds| Duration::from_secs(seconds.into())),
    };
    let mut settings = Settings::new(arguments.folder, listen);
    // The file that runs, also when another one has its name by now.
    settings.mark = manner.mark(Path::new("/proc/self/exe"))?;
    manner.apply(&mut settings);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        let mut term = signal(SignalKind::terminate())?;
        let stop = async {
            term.recv().await;
        };
        let warn = |text: String| complain(&format!("warning: {text}"));
        // Whoever started it waits for the word; that it is gone is no fault.
        let ready = || drop(say("ready"));
        let ran = host(settings, arguments.own, stop, warn, ready).await;
        ran.map_err(anyhow::Error::new)
    })
}

/// What the host runs in a browser's own network.
pub(crate) fn browser_listen() -> Ending {
    match usher_browsers::listen() {
        Ok(()) => Ending::Done,
        Err(error) => Ending::Environment(anyhow!("listen in a browser's network: {error}")),
    }
}
