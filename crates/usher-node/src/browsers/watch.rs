//! Finds the browser host of a region or starts it, and sees to it that there is one.
//!
//! A host outlives whoever started it, so most of the time it is there already. One that runs
//! another build, or was started in another way, is replaced when no session is on it: sessions are
//! worth more than what changed.

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use arc_swap::ArcSwap;
use serde_json::Value;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};
use tokio::sync::watch;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep, timeout};
use usher_broker::wire::Front;
use usher_broker::{Agent, Hosts, Want};
use usher_browsers::host::wire::{Ask, Hello};
use usher_browsers::host::{Caller, CallerFault};
use usher_core::lease::Stock;
use usher_core::lease::warm::Starts;
use usher_core::region::Region;
use usher_pool::Pool;

use super::manner::Manner;

/// What the node of a region's own host is called in its pool.
const NAME: &str = "host";

/// For a host to say who it is.
const ANSWER_MAX: Duration = Duration::from_secs(5);

/// For a host to say that it is ready, on a slow machine.
const START_MAX: Duration = Duration::from_secs(60);

/// How long to wait before a host that ended is started again: at first, and at most. Longer each
/// time, for what is lacking takes somebody to install it.
const PAUSE: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));

/// A host that ran for as long has worked: the next one is started at once.
const WORKED: Duration = Duration::from_secs(60);

/// How often a host is asked how it is.
const PING_EVERY: Duration = Duration::from_secs(10);

/// How often a host that is to be replaced is asked whether it may.
const RETIRE_EVERY: Duration = Duration::from_secs(2);

/// How often somebody else's host is looked for.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// What is known of a host.
#[derive(Debug, Clone, Default)]
pub(super) struct Known {
    /// How many browsers there may be; 0 while there is none.
    pub(super) slots: u32,
    /// When it was found; `None` while there is none.
    pub(super) since: Option<Instant>,
    /// Why there is none.
    pub(super) trouble: Option<String>,
    /// What an operator should know.
    pub(super) warnings: Vec<String>,
}

/// Who sees to the host of one region.
pub(super) struct Watch {
    pub(super) region: Region,
    /// The region's place in the list of the broker.
    pub(super) number: u16,
    pub(super) pool: Arc<dyn Pool>,
    pub(super) front: Arc<Front>,
    pub(super) hosts: Arc<Hosts>,
    /// How many are to be ready.
    pub(super) want: watch::Receiver<Want>,
    /// How long browsers took to start.
    pub(super) starts: Arc<Mutex<Starts>>,
    /// Where this installation listens.
    pub(super) own: watch::Receiver<Vec<SocketAddr>>,
    pub(super) known: Arc<ArcSwap<Known>>,
    /// `None`: the region is left, and its host ends once no session is on it.
    pub(super) source: watch::Receiver<Option<Source>>,
}

/// Where a host comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Source {
    /// Somebody else starts it.
    Others(PathBuf),
    /// It is started here when it is not there.
    Ours {
        program: PathBuf,
        folder: PathBuf,
        manner: Manner,
    },
}

impl Source {
    pub(super) fn socket(&self) -> PathBuf {
        match self {
            Source::Others(socket) => socket.clone(),
            Source::Ours { folder, .. } => folder.join(usher_browsers::folder::SOCKET),
        }
    }
}

/// Why there is no host.
#[derive(Debug, thiserror::Error)]
enum Lack {
    #[error("the browser host cannot be started: {}", .program.display())]
    Start {
        program: PathBuf,
        #[source]
        source: io::Error,
    },
    /// It has said why.
    #[error("{0}")]
    Said(String),
    #[error("the browser host ended: {0}")]
    Ended(ExitStatus),
    #[error("the browser host was not ready in time")]
    Late,
    #[error("no browser host answers at {}", .0.display())]
    Nobody(PathBuf),
    /// It has the folder, so another one would be refused.
    #[error("the browser host at {} stands still", .0.display())]
    Still(PathBuf),
}

impl Watch {
    /// Sees to it until it is dropped. The host goes on.
    pub(super) async fn run(mut self) {
        let mut pause = PAUSE.0;
        let mut refusals = 0;
        loop {
            let source = self.source.borrow_and_update().clone();
            let Some(source) = source else {
                self.update(|known| *known = Known::default());
                if self.source.changed().await.is_err() {
                    return;
                }
                continue;
            };
            let lack = match self.find(&source).await {
                Ok(found) => {
                    refusals = 0;
                    self.front.broker().lacks(self.number, false);
                    let since = Instant::now();
                    self.stay(found, &source).await;
                    self.update(|known| (known.slots, known.since) = (0, None));
                    if since.elapsed() >= WORKED {
                        pause = PAUSE.0;
                    }
                    continue;
                }
                Err(lack) => lack,
            };
            self.tell(&lack);
            // Once may be a host before that has not gone yet; what is lacking is so again.
            if let Lack::Said(_) | Lack::Start { .. } = lack {
                refusals += 1;
                self.front.broker().lacks(self.number, refusals > 1);
            }
            let wait = match (&lack, &source) {
                (Lack::Still(_), _) | (_, Source::Others(_)) => LOOK_EVERY,
                (_, Source::Ours { .. }) => {
                    let wait = pause;
                    pause = (pause * 2).min(PAUSE.1);
                    wait
                }
            };
            tokio::select! {
                () = sleep(wait) => {}
                Ok(()) = self.source.changed() => pause = PAUSE.0,
            }
        }
    }

    /// Says why there is no host, once.
    fn tell(&self, lack: &Lack) {
        let cause = std::error::Error::source(lack);
        let cause = cause.map(|cause| format!(": {cause}"));
        let text = format!("{lack}{}", cause.unwrap_or_default());
        if self.known.load().trouble.as_ref() != Some(&text) {
            tracing::warn!("no browsers in {}: {text}", self.region);
        }
        self.update(|known| known.trouble = Some(text.clone()));
    }

    fn update(&self, change: impl Fn(&mut Known)) {
        let mut known = Known::clone(&self.known.load());
        change(&mut known);
        self.known.store(Arc::new(known));
    }

    async fn find(&self, source: &Source) -> Result<Found, Lack> {
        let socket = source.socket();
        if let Some(found) = greet(&socket, None).await {
            return Ok(found);
        }
        if Caller::connect(&socket).await.is_ok() {
            return Err(Lack::Still(socket));
        }
        match source {
            Source::Others(_) => Err(Lack::Nobody(socket)),
            Source::Ours {
                program,
                folder,
                manner,
            } => {
                let own = self.own.borrow().clone();
                let child = start(program, folder, manner, &own).await?;
                greet(&socket, Some(child)).await.ok_or(Lack::Late)
            }
        }
    }

    /// Speaks for the host until it is gone, or it is another one that is wanted.
    async fn stay(&self, found: Found, source: &Source) {
        let Found {
            mut caller,
            hello,
            mut child,
        } = found;
        self.update(|known| {
            *known = Known {
                slots: hello.slots,
                since: Some(Instant::now()),
                trouble: None,
                warnings: hello.warnings.clone(),
            };
        });
        tracing::info!(
            "browser host of {}: up to {} browsers",
            self.region,
            hello.slots
        );
        let agent = Agent {
            pool: Arc::clone(&self.pool),
            region: self.number,
            hosts: Arc::clone(&self.hosts),
            name: NAME.to_owned(),
            socket: source.socket(),
            stock: Stock::default(),
            want: self.want.clone(),
            starts: Arc::clone(&self.starts),
        };
        tokio::select! {
            biased;
            gone = self.attend(&mut caller, &hello, source) => {
                if gone {
                    self.hosts.gone(self.number);
                }
            }
            () = agent.run() => {}
        }
        let status = match &mut child {
            Some(child) => timeout(ANSWER_MAX, child.wait()).await.ok(),
            None => None,
        };
        match status {
            Some(Ok(status)) if !status.success() => {
                tracing::warn!("the browser host of {} ended: {status}", self.region);
            }
            _ => tracing::info!("the browser host of {} is gone", self.region),
        }
    }

    /// Asks the host how it is and tells it what changes, until it is gone (true), stands still, or has
    /// nothing to do with what is wanted.
    async fn attend(&self, caller: &mut Caller, hello: &Hello, source: &Source) -> bool {
        let mut wanted = self.source.clone();
        let mut outdated = false;
        wanted.mark_changed();
        let mut own = self.own.clone();
        own.mark_changed();
        let (mut pings, mut retires) = (interval(PING_EVERY), interval(RETIRE_EVERY));
        for ticks in [&mut pings, &mut retires] {
            ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        }
        loop {
            tokio::select! {
                biased;
                () = caller.gone() => return true,
                _ = pings.tick() => {
                    if !said(caller, &Ask::Hello).await {
                        return false;
                    }
                }
                _ = retires.tick(), if outdated => {
                    if !said(caller, &Ask::Retire).await {
                        return false;
                    }
                }
                Ok(()) = wanted.changed() => {
                    let wanted = wanted.borrow_and_update().clone();
                    let same = |wanted: &Source| wanted.socket() == source.socket();
                    if !wanted.as_ref().is_none_or(same) {
                        if let Source::Ours { .. } = source {
                            said(caller, &Ask::Retire).await;
                        }
                        return false;
                    }
                    let before = std::mem::replace(&mut outdated, is_outdated(hello, wanted.as_ref()));
                    if outdated && !before {
                        tracing::info!(
                            "the browser host of {} is not what is wanted now; it ends once no session is on it",
                            self.region
                        );
                    }
                }
                Ok(()) = own.changed() => {
                    let listeners = own.borrow_and_update().clone();
                    if !said(caller, &Ask::Own { listeners }).await {
                        return false;
                    }
                }
            }
        }
    }
}

/// Whether a host runs another file than would be started, or was started in another way.
fn is_outdated(hello: &Hello, wanted: Option<&Source>) -> bool {
    match wanted {
        None => true,
        Some(Source::Others(_)) => false,
        Some(Source::Ours {
            program, manner, ..
        }) => {
            // A file that is not there starts nothing that would be newer.
            let mark = manner.mark(program);
            mark.is_ok_and(|mark| mark != hello.mark)
        }
    }
}

/// Tells a host something; whether it is there to hear it. An older one refuses what it does not know,
/// and keeps what it was started with.
async fn said(caller: &mut Caller, ask: &Ask) -> bool {
    match timeout(ANSWER_MAX, caller.ask::<Value>(ask)).await {
        Ok(Ok(_) | Err(CallerFault::Refused { .. })) => true,
        Ok(Err(fault)) => {
            tracing::debug!(%fault, "a browser host does not answer");
            false
        }
        Err(_) => false,
    }
}

/// A host that answers.
struct Found {
    caller: Caller,
    hello: Hello,
    child: Option<Child>,
}

async fn greet(socket: &Path, child: Option<Child>) -> Option<Found> {
    let greeted = timeout(ANSWER_MAX, async {
        let mut caller = Caller::connect(socket).await?;
        let hello = caller.ask(&Ask::Hello).await?;
        Ok::<_, CallerFault>((caller, hello))
    });
    let (caller, hello) = greeted.await.ok()?.ok()?;
    Some(Found {
        caller,
        hello,
        child,
    })
}

/// Has a host end if no session is on it; whether it does.
pub(super) async fn retire(caller: &mut Caller) -> Result<bool, CallerFault> {
    caller.ask(&Ask::Retire).await
}

/// Starts a host and waits until it is ready. It belongs to no terminal and to nobody's process
/// group, and what it says goes to a file beside its folder, so that nothing of it ends with us.
async fn start(
    program: &Path,
    folder: &Path,
    manner: &Manner,
    own: &[SocketAddr],
) -> Result<Child, Lack> {
    let failed = |source| Lack::Start {
        program: program.to_owned(),
        source,
    };
    let said = folder.with_extension("log");
    let log = std::fs::File::create(&said).map_err(failed)?;
    let own = own
        .iter()
        .flat_map(|own| ["--own".to_owned(), own.to_string()]);
    let mut child = Command::new(program)
        .args(["browser-host", "--apart", "--folder"])
        .arg(folder)
        .args(manner.words())
        .args(own)
        .env_remove(crate::handover::VARIABLE)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(log)
        .spawn()
        .map_err(failed)?;
    let ready = async {
        let mut lines = BufReader::new(child.stdout.take()?).lines();
        lines.next_line().await.ok()?
    };
    match timeout(START_MAX, ready).await {
        Ok(Some(_)) => Ok(child),
        Ok(None) => {
            let status = child.wait().await.map_err(failed)?;
            let said = std::fs::read_to_string(&said).unwrap_or_default();
            let last = said.lines().rfind(|line| !line.trim().is_empty());
            Err(last.map_or(Lack::Ended(status), |line| {
                Lack::Said(line.strip_prefix("usher: ").unwrap_or(line).to_owned())
            }))
        }
        Err(_) => {
            let _ = child.kill().await;
            Err(Lack::Late)
        }
    }
}
