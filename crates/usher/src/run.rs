//! `usher run`: everything that the file names, in the foreground, until a signal ends it.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use tokio::signal::unix::{Signal, SignalKind, signal};
use usher_node::{Listening, Node, StartError};

use crate::terminal::say;
use crate::watch::Watch;
use crate::{Ending, config};

/// How often the file is looked at. A change is taken at the first look that finds it as the look
/// before did, so within three of these when it is written in one go.
const WATCH_INTERVAL: Duration = Duration::from_millis(500);

/// Example: `usher run --config usher.yaml`
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  usher run --config /etc/usher/usher.yaml

SIGHUP or a changed file reloads; SIGTERM or Ctrl-C stops and lets requests finish.")]
pub(crate) struct Arguments {
    /// The configuration file
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
    /// Write 'ready' to this open file descriptor, too
    #[arg(long, value_name = "N")]
    ready_fd: Option<i32>,
}

/// Runs until a signal ends it.
pub(crate) fn run(arguments: &Arguments) -> Ending {
    start_log();
    gather_entropy();
    let mut file = File::new(&arguments.config);
    match file.load() {
        Ok(loaded) => serve(loaded, Some(file), arguments.ready_fd, |_| ()),
        Err(faults) => faults.ending(),
    }
}

/// The first random number of the TLS library takes it a while: beside the file, not after it.
fn gather_entropy() {
    let provider = rustls::crypto::aws_lc_rs::default_provider();
    // Whoever needs one and cannot have it will say so.
    let gather = move || drop(provider.secure_random.fill(&mut [0]));
    let _ = std::thread::Builder::new()
        .name("entropy".to_owned())
        .spawn(gather);
}

/// Sends the process's own log to stderr. `RUST_LOG` turns it up.
pub(crate) fn start_log() {
    let filter = tracing_subscriber::EnvFilter::try_from_default_env();
    tracing_subscriber::fmt()
        .with_env_filter(filter.unwrap_or_else(|_| "info".into()))
        .with_writer(std::io::stderr)
        .with_ansi(std::io::IsTerminal::is_terminal(&std::io::stderr()))
        .with_target(false)
        .init();
}

/// Starts a node, says where it listens and that it is ready, and stays until a signal.
pub(crate) fn serve(
    loaded: config::Loaded,
    file: Option<File>,
    ready_fd: Option<i32>,
    announce: impl FnOnce(&[Listening]),
) -> Ending {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    match runtime
        .context("start the control runtime")
        .map_err(Ending::Environment)
    {
        Ok(runtime) => runtime.block_on(live(loaded, file, ready_fd, announce)),
        Err(ending) => ending,
    }
}

async fn live(
    loaded: config::Loaded,
    mut file: Option<File>,
    ready_fd: Option<i32>,
    announce: impl FnOnce(&[Listening]),
) -> Ending {
    let signals = Ends::new().and_then(|ends| Ok((ends, signal(SignalKind::hangup())?)));
    let (mut ends, mut hangup) = match signals.context("listen to signals") {
        Ok(signals) => signals,
        Err(error) => return Ending::Environment(error),
    };
    warn(&loaded);
    let places = loaded.places.map(|(_, places)| places);
    let version = env!("CARGO_PKG_VERSION");
    let mut node = match Node::start(loaded.process, loaded.catalog, places, version).await {
        Ok(node) => node,
        Err(error) => return start_failed(error),
    };
    for listening in node.listening() {
        unless_said(say(format_args!("listening {listening}")));
    }
    announce(node.listening());
    let mut due = tokio::time::interval(WATCH_INTERVAL);
    due.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut ready = false;
    loop {
        tokio::select! {
            () = node.ready(), if !ready => {
                ready = true;
                unless_said(say("ready"));
                if let Some(fd) = ready_fd && let Err(error) = tell_ready(fd) {
                    tracing::warn!(%error, fd, "--ready-fd cannot be written to");
                }
            }
            _ = hangup.recv() => {
                if let Some(file) = &mut file {
                    file.watch.catch_up();
                    reload(&mut node, file).await;
                }
            }
            _ = due.tick() => {
                if let Some(file) = file.as_mut() && file.watch.settled_change() {
                    reload(&mut node, file).await;
                }
            }
            () = ends.recv() => break,
        }
    }
    node.stop(ends.recv()).await;
    Ending::Done
}

/// A node serves whether or not somebody can read what it says.
fn unless_said(said: Result<(), Ending>) {
    if let Err(Ending::Environment(error)) = said {
        tracing::warn!("{error:#}");
    }
}

/// The configuration file of a running node.
#[derive(Debug)]
pub(crate) struct File {
    path: PathBuf,
    watch: Watch,
}

impl File {
    fn new(path: &Path) -> File {
        File {
            path: path.to_owned(),
            watch: Watch::new(path),
        }
    }

    fn load(&mut self) -> Result<config::Loaded, config::Faults> {
        let loaded = config::load(&self.path)?;
        self.watch.follow(&loaded);
        Ok(loaded)
    }
}

async fn reload(node: &mut Node, file: &mut File) {
    // Whatever becomes of the configuration: who moved the log waits for it to be let go.
    node.reopen_log();
    // At start somebody may pipe a configuration in; a running node must not wait for a pipe.
    if std::fs::metadata(&file.path).is_ok_and(|data| !data.is_file()) {
        node.reload_rejected();
        return rejected(&format!("{}: is not a regular file", file.path.display()));
    }
    let loaded = match file.load() {
        Ok(loaded) => loaded,
        Err(error) => {
            node.reload_rejected();
            return rejected(&error.to_string());
        }
    };
    // A file is empty for a moment when it is written in place, and a node without a listener is
    // of no use to anybody.
    if !loaded.process.listens() {
        node.reload_rejected();
        return rejected("nothing listens: name an address in listen or api");
    }
    warn(&loaded);
    let places = loaded.places.map(|(_, places)| places);
    match node.apply(loaded.process, loaded.catalog, places).await {
        Ok(()) => tracing::info!("configuration applied"),
        Err(error) => rejected(&format!("{:#}", anyhow!(error))),
    }
}

fn rejected(why: &str) {
    why.lines().for_each(|line| tracing::error!("{line}"));
    tracing::error!("configuration rejected; the one before stays in force");
}

fn warn(loaded: &config::Loaded) {
    loaded
        .warnings
        .iter()
        .for_each(|warning| tracing::warn!("{warning}"));
}

fn start_failed(error: StartError) -> Ending {
    if error.is_fault_of_configuration() {
        Ending::Change(anyhow!(error))
    } else {
        Ending::Environment(anyhow!(error))
    }
}

fn tell_ready(fd: i32) -> std::io::Result<()> {
    // Through /proc, so that no raw descriptor has to be trusted.
    let mut out = std::fs::OpenOptions::new()
        .write(true)
        .open(format!("/proc/self/fd/{fd}"))?;
    std::io::Write::write_all(&mut out, b"ready\n")
}

/// The signals that end the process.
struct Ends {
    terminate: Signal,
    interrupt: Signal,
}

impl Ends {
    fn new() -> std::io::Result<Ends> {
        Ok(Ends {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
        })
    }

    async fn recv(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}
