//! `usher run`: everything that the file names, in the foreground, until a signal ends it. Or a
//! waiting room before one upstream, without a file.

use std::path::{Path, PathBuf};
use std::pin::pin;
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use tokio::signal::unix::{Signal, SignalKind, signal};
use usher_node::handover::{Estate, HandoverError, Heir, Predecessor, Program, Successor};
use usher_node::notify::Notify;
use usher_node::{Changes, Listening, Node, StartError};

use crate::terminal::say;
use crate::upstream::Upstream;
use crate::watch::Watch;
use crate::{Ending, config, upstream};

/// How often the file is looked at. A change is taken at the first look that finds it as the look
/// before did, so within three of these when it is written in one go.
const WATCH_INTERVAL: Duration = Duration::from_millis(500);

/// Example: `usher run --config usher.yaml`
#[derive(Debug, clap::Args)]
#[command(group(clap::ArgGroup::new("what").args(["config", "upstream"]).required(true)))]
#[command(after_help = "Examples:\n  usher run --config /etc/usher/usher.yaml
  TOTAL_ACTIVE_USERS=10 SESSION_DURATION_SECONDS=30 usher run --upstream http://127.0.0.1:3000

SIGHUP or a changed file reloads; SIGTERM or Ctrl-C stops and lets requests finish. SIGUSR1 opens
the access log again after it was moved. SIGUSR2 starts the binary at the same path again and hands
everything over to it.

With --upstream there is no file: the environment says how many visitors are inside at once
(TOTAL_ACTIVE_USERS) and how long a silent one keeps its seat (SESSION_DURATION_SECONDS). Everybody
else waits in line, in the memory of this process.")]
pub(crate) struct Arguments {
    /// The configuration file
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    #[command(flatten)]
    upstream: upstream::Arguments,
    /// Write 'ready' to this open file descriptor, too
    #[arg(long, value_name = "N")]
    ready_fd: Option<i32>,
}

/// Runs until a signal ends it.
pub(crate) fn run(arguments: &Arguments) -> Ending {
    start_log();
    gather_entropy();
    let Some(config) = &arguments.config else {
        let upstream = match Upstream::read(&arguments.upstream, &|name| std::env::var(name).ok()) {
            Ok(upstream) => upstream,
            Err(ending) => return ending,
        };
        let prepare = || {
            let role = Role {
                ready_fd: arguments.ready_fd,
                ..Role::default()
            };
            Ok((upstream.load()?, role))
        };
        return serve(prepare, |_| ());
    };
    let prepare = || {
        let mut file = File::new(config);
        let loaded = file.load().map_err(|faults| faults.ending())?;
        let predecessor = Predecessor::meet();
        let role = Role {
            file: Some(file),
            predecessor: predecessor.map_err(|error| Ending::Environment(anyhow!(error)))?,
            ready_fd: arguments.ready_fd,
        };
        Ok((loaded, role))
    };
    serve(prepare, |_| ())
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

/// What a node is, beside its configuration.
#[derive(Debug, Default)]
pub(crate) struct Role {
    /// The file to be read again. Without, the node never changes and is never followed.
    file: Option<File>,
    /// Who served before, and what it leaves.
    predecessor: Option<(Predecessor, Estate)>,
    ready_fd: Option<i32>,
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

/// Starts a node with what `prepare` gives, says where it listens and that it is ready, and stays
/// until a signal.
pub(crate) fn serve(
    prepare: impl FnOnce() -> Result<(config::Loaded, Role), Ending>,
    announce: impl FnOnce(&[Listening]),
) -> Ending {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let ended = runtime
        .context("start the control runtime")
        .map_err(Ending::Environment)
        .and_then(|runtime| runtime.block_on(live(prepare, announce)));
    ended.err().unwrap_or(Ending::Done)
}

async fn live(
    prepare: impl FnOnce() -> Result<(config::Loaded, Role), Ending>,
    announce: impl FnOnce(&[Listening]),
) -> Result<(), Ending> {
    let unheard =
        |error: std::io::Error| Ending::Environment(anyhow!(error).context("listen to signals"));
    let mut calls = Calls::new().map_err(unheard)?;
    let program = Program::of_this_process();
    let (loaded, role) = prepare()?;
    let mut ends = Ends::new().map_err(unheard)?;
    let Role {
        mut file,
        predecessor,
        ready_fd,
    } = role;
    let notify = Notify::of_environment();
    warn(&loaded);
    let (mut predecessor, estate) = predecessor.unzip();
    if let Some(predecessor) = &predecessor {
        predecessor.starting(loaded.process.ready_timeout);
    }
    let places = loaded.places.map(|(_, places)| places);
    let version = env!("CARGO_PKG_VERSION");
    let started = Node::start(
        loaded.process,
        loaded.declared,
        places,
        version,
        &program,
        estate,
    );
    let mut node = started.await.map_err(start_failed)?;
    for listening in node.listening() {
        unless_said(say(format_args!("listening {listening}")));
    }
    announce(node.listening());
    let mut due = tokio::time::interval(WATCH_INTERVAL);
    due.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut ready = false;
    // While one comes up, the configuration stays as it is: both have to agree on the listeners.
    let mut successor: Option<Successor> = None;
    // Whether a signal that ends the process came already.
    let mut ended = false;
    let mut changes = node.changes();
    let heir = loop {
        tokio::select! {
            () = node.ready(), if !ready => {
                if let Some(predecessor) = predecessor.take() {
                    take_over(&mut node, predecessor).await?;
                }
                ready = true;
                node.serve();
                unless_said(say("ready"));
                notify.ready();
                if let Some(fd) = ready_fd && let Err(error) = tell_ready(fd) {
                    tracing::warn!(%error, fd, "--ready-fd cannot be written to");
                }
            }
            () = changes.next(), if successor.is_none() => {
                if let Err(error) = node.refresh().await {
                    tracing::error!("{:#}; what was in force stays", anyhow!(error));
                }
            }
            _ = calls.hangup.recv(), if successor.is_none() => {
                if let Some(file) = &mut file {
                    file.watch.catch_up();
                    reload(&mut node, file, &notify, ready).await;
                }
            }
            _ = due.tick(), if successor.is_none() => {
                if let Some(file) = &mut file && file.watch.settled_change() {
                    reload(&mut node, file, &notify, ready).await;
                }
            }
            _ = calls.reopen.recv() => node.reopen_log(),
            _ = calls.upgrade.recv() => match (&file, &successor) {
                (None, _) => refuse("there is no configuration file to start another process with"),
                (Some(_), Some(other)) => refuse(&format!("process {} is coming up", other.pid())),
                (Some(_), None) if !ready => refuse("this process is not ready itself"),
                (Some(_), None) => {
                    successor = hand_over(&node, &program).await;
                    if successor.is_none() {
                        changes = reclaim(&mut node).await;
                    }
                }
            },
            settled = settled(&mut successor) => {
                successor = None;
                match settled {
                    Ok(heir) => break Some(heir),
                    Err(error) => {
                        failed(error);
                        changes = reclaim(&mut node).await;
                    }
                }
            }
            () = ends.recv() => {
                let Some(mut called_off) = successor.take() else { break None };
                called_off.call_off();
                // It may have been too late for that.
                let heir = called_off.settled().await.ok();
                ended = heir.is_some();
                break heir;
            }
        }
    };
    match heir {
        Some(heir) => {
            notify.followed_by(heir.pid());
            leave(node, heir, calls, async || {
                if !std::mem::take(&mut ended) {
                    ends.recv().await;
                }
            })
            .await;
        }
        None => {
            notify.stopping();
            node.stop(ends.recv()).await;
        }
    }
    Ok(())
}

/// A node serves whether or not somebody can read what it says.
fn unless_said(said: Result<(), Ending>) {
    if let Err(Ending::Environment(error)) = said {
        tracing::warn!("{error:#}");
    }
}

/// Takes the place of the process that started this one for it.
async fn take_over(node: &mut Node, predecessor: Predecessor) -> Result<(), Ending> {
    node.take_over(&predecessor)
        .map_err(|error| Ending::Environment(anyhow!(error)))?;
    // It answers at once, unless it is gone; a thread that waits for it has a bound.
    let _released = tokio::task::spawn_blocking(|| predecessor.released()).await;
    Ok(())
}

/// Starts the process that is to take this one's place.
async fn hand_over(node: &Node, program: &Program) -> Option<Successor> {
    let started = node.hand_over(program).await;
    let started = started.inspect(|successor| {
        tracing::info!("hand-over to process {} begins", successor.pid());
    });
    started.map_err(failed).ok()
}

/// Goes on as the one that keeps what the API creates.
async fn reclaim(node: &mut Node) -> Changes {
    if let Err(error) = node.reclaim_store().await {
        tracing::error!(
            "{:#}; the API shows what was kept, and changes nothing",
            anyhow!(error)
        );
    }
    node.changes()
}

async fn settled(successor: &mut Option<Successor>) -> Result<Heir, HandoverError> {
    match successor {
        Some(successor) => successor.settled().await,
        None => std::future::pending().await,
    }
}

/// Finishes what has been begun, while another process serves.
async fn leave(node: Node, heir: Heir, mut calls: Calls, hurry: impl AsyncFnMut()) {
    let pid = heir.pid();
    let reopen_log = node.log_reopener();
    let mut left = pin!(node.leave(&heir, hurry));
    loop {
        tokio::select! {
            () = &mut left => return,
            _ = calls.upgrade.recv() => refuse(&format!("process {pid} serves already")),
            _ = calls.reopen.recv() => reopen_log(),
            _ = calls.hangup.recv() => {
                reopen_log();
                tracing::info!("no reload: process {pid} serves, with a configuration of its own");
            }
        }
    }
}

fn refuse(why: &str) {
    tracing::warn!("hand-over refused: {why}");
}

fn failed(error: HandoverError) {
    let error = anyhow!(error);
    tracing::error!("hand-over failed: {error:#}; this process goes on serving");
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

/// Reads the file again, and tells the service manager so if it waits for that.
async fn reload(node: &mut Node, file: &mut File, notify: &Notify, ready: bool) {
    if ready {
        notify.reloading();
    }
    take_in(node, file).await;
    if ready {
        notify.ready();
    }
}

async fn take_in(node: &mut Node, file: &mut File) {
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
    let before = node.listening().to_vec();
    match node.apply(loaded.process, loaded.declared, places).await {
        Ok(()) => {
            let without = |all: &[Listening], others: &[Listening], what: &str| {
                let changed = all.iter().filter(|one| !others.contains(one));
                changed.for_each(|one| tracing::info!("{what} {one}"));
            };
            without(&before, node.listening(), "closed");
            without(node.listening(), &before, "listening");
            tracing::info!("configuration applied");
        }
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

/// The signals that ask for something. One that nobody listens to ends the process, so they are
/// listened to before anything else.
struct Calls {
    hangup: Signal,
    reopen: Signal,
    upgrade: Signal,
}

impl Calls {
    fn new() -> std::io::Result<Calls> {
        Ok(Calls {
            hangup: signal(SignalKind::hangup())?,
            reopen: signal(SignalKind::user_defined1())?,
            upgrade: signal(SignalKind::user_defined2())?,
        })
    }
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
