//! Keeps a pool and the host of one node in step.
//!
//! A host knows processes and a pool knows rows; neither knows the other. What a host says of its
//! browsers is carried to the pool, and what the pool wants to end to the host. Either may vanish
//! at any moment: then everything is begun anew from what both say, for a host keeps its browsers
//! while nobody speaks to it, for as long as `usher_core::lease::host` lets it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::broadcast::error::RecvError;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep, sleep_until, timeout};
use usher_browsers::host::wire::{Ask, Beats, Figures, Hello, Listed, VERSION, phase};
use usher_browsers::host::{Caller, CallerFault, Watching};
use usher_core::lease::beat::Heartbeat;
use usher_core::lease::browser::Phase;
use usher_core::lease::close::CloseReason;
use usher_core::lease::host::RECONCILE_EVERY;
use usher_core::lease::region::{Denied, NODE_SUSPECT, REAP_EVERY};
use usher_core::lease::warm::Starts;
use usher_core::lease::{Boot, BrowserId, Epoch, NodeId, Stock};
use usher_pool::{News, Pool, PoolError};

use crate::hosts::{ANSWER_MAX, Hosts, asked, whole_millis};

/// How long to wait before a host or pool that does not answer is tried again.
const AGAIN: Duration = Duration::from_secs(1);

/// How often it is looked whether a host that begins anew has ended what it had.
const EMPTY_EVERY: Duration = Duration::from_millis(200);

/// Heartbeats that wait for the pool; the host drops others meanwhile, and newer ones follow.
const BEATS_MAX: usize = 16;

/// How often it is measured how far the host is.
const MEASURE_EVERY: Duration = Duration::from_secs(10);

/// How often a host is asked what it counted.
const FIGURES_EVERY: Duration = Duration::from_secs(5);

/// How often a pool is looked over while a host says nothing: the death of a node is told on time.
const REAP_SOON: Duration = Duration::from_secs(1);

/// Speaks for one node.
pub struct Agent {
    /// The pool of its region.
    pub pool: Arc<dyn Pool>,
    /// The region, by its place in the list of the broker.
    pub region: u16,
    /// Where hosts are found by those who prepare and connect.
    pub hosts: Arc<Hosts>,
    /// What the node is called in the pool.
    pub name: String,
    /// The socket of its host.
    pub socket: PathBuf,
    /// What its browsers are.
    pub stock: Stock,
    /// How many are to be ready.
    pub want: watch::Receiver<Want>,
    /// How long browsers took to start, canary included.
    pub starts: Arc<Mutex<Starts>>,
}

/// How many browsers a host is to have ready, together with those that are starting.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Want {
    /// It starts more below that.
    pub ready: u32,
    /// It ends the oldest that are ready beyond that; `None`: none.
    pub most: Option<u32>,
}

impl Want {
    const fn asked(self) -> Ask {
        Ask::Want {
            ready: self.ready,
            most: self.most,
        }
    }
}

/// Why it has to be begun anew.
#[derive(Debug, thiserror::Error)]
enum Anew {
    #[error("the browser host cannot be spoken to")]
    Host(#[from] CallerFault),
    #[error("the pool does not answer")]
    Pool(#[from] PoolError),
    #[error("the browser host speaks version {0} of the protocol, not {VERSION}")]
    Version(u32),
    #[error("the pool does not know this start of the host any more")]
    Disowned,
    #[error("the browser host has said nothing for {} s", NODE_SUSPECT.as_secs())]
    Silent,
}

impl From<std::io::Error> for Anew {
    fn from(error: std::io::Error) -> Anew {
        Anew::Host(error.into())
    }
}

impl Anew {
    /// Whether the host closed its connection, as it does when it is replaced. Whoever sees to it
    /// says what became of it.
    fn is_end(&self) -> bool {
        use std::io::ErrorKind::{BrokenPipe, ConnectionReset, UnexpectedEof};
        let Anew::Host(CallerFault::Io(error)) = self else {
            return false;
        };
        matches!(error.kind(), BrokenPipe | ConnectionReset | UnexpectedEof)
    }

    /// With what caused it.
    fn whole(&self) -> String {
        let first: &(dyn std::error::Error + 'static) = self;
        let causes = std::iter::successors(Some(first), |error| error.source());
        let causes: Vec<String> = causes.map(ToString::to_string).collect();
        causes.join(": ")
    }
}

/// What was said of a host that is away.
#[derive(Clone, Copy)]
enum Said {
    Nothing,
    /// It ended, which is no fault if another one follows.
    Ended,
    All,
}

/// A node, once both sides know it.
struct Known {
    of: (NodeId, Boot),
    caller: Caller,
    /// How long its first answer took.
    way: Duration,
    /// Browsers that the pool was told of.
    told: BTreeSet<BrowserId>,
    /// Those that are starting, since they said so.
    starting: BTreeMap<BrowserId, Instant>,
}

/// A host that can be spoken to, until this is dropped.
struct Found<'a> {
    hosts: &'a Hosts,
    at: (u16, NodeId),
}

impl Drop for Found<'_> {
    fn drop(&mut self) {
        self.hosts.lost(self.at.0, self.at.1);
    }
}

impl Agent {
    /// Speaks for the node until it is dropped.
    pub async fn run(self) {
        let mut said = Said::Nothing;
        loop {
            let Err(anew) = self.stay(&mut said).await;
            // Once: a host that is away for long need not fill the log.
            match said {
                Said::Nothing if anew.is_end() => {
                    tracing::debug!(node = self.name, "the browser host has ended");
                    said = Said::Ended;
                }
                Said::Nothing | Said::Ended => {
                    tracing::warn!(node = self.name, "{}", anew.whole());
                    said = Said::All;
                }
                Said::All => {}
            }
            sleep(AGAIN).await;
        }
    }

    async fn stay(&self, said: &mut Said) -> Result<std::convert::Infallible, Anew> {
        let mut news = self.pool.news();
        let mut known = self.introduce().await?;
        let watching = Caller::connect(&self.socket).await?.watch();
        let watching = timeout(ANSWER_MAX, watching).await;
        let watching = watching.map_err(|_| Anew::Silent)??;
        let (heard, mut beats) = mpsc::channel(BEATS_MAX);
        // In a task of its own, for half a heartbeat must not be dropped; it ends with the channel.
        tokio::spawn(listen(watching, heard));
        let mut wanted = self.want.clone();
        let want = wanted.borrow_and_update().asked();
        let () = asked(&mut known.caller, &want).await?;
        let node = known.of.0;
        self.hosts.found(self.region, node, &self.socket, known.way);
        let _lost = Found {
            hosts: &self.hosts,
            at: (self.region, node),
        };
        let mut distance = whole_millis(known.way);
        self.pool.measure(node, distance).await?;
        *said = Said::Nothing;
        let mut last = Instant::now();
        let mut lists = interval(RECONCILE_EVERY);
        let mut measures = interval(MEASURE_EVERY);
        let mut figures = interval(FIGURES_EVERY);
        for ticks in [&mut lists, &mut measures, &mut figures] {
            ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        }
        measures.reset();
        loop {
            tokio::select! {
                told = beats.recv() => {
                    let told = told.ok_or_else(|| std::io::Error::from(std::io::ErrorKind::UnexpectedEof))?;
                    last = Instant::now();
                    self.hear(&mut known, &told).await?;
                }
                () = sleep_until(last + NODE_SUSPECT) => return Err(Anew::Silent),
                Ok(()) = wanted.changed() => {
                    let want = wanted.borrow_and_update().asked();
                    let () = asked(&mut known.caller, &want).await?;
                }
                _ = lists.tick() => self.compare(&mut known).await?,
                _ = measures.tick() => {
                    let (_, way) = hello(&mut known.caller).await?;
                    self.hosts.measured(self.region, node, way);
                    let now = self.hosts.distance(self.region).unwrap_or(way);
                    if now != distance {
                        distance = now;
                        self.pool.measure(node, distance).await?;
                    }
                }
                _ = figures.tick() => self.count(&mut known.caller).await?,
                news = news.recv() => match news {
                    Ok(News::Disowned { node, boot }) if (node, boot) == known.of => {
                        return Err(self.disown(&mut known.caller, boot).await);
                    }
                    Ok(_) | Err(RecvError::Lagged(_)) => {}
                    Err(RecvError::Closed) => return Err(Anew::Disowned),
                },
            }
        }
    }

    /// Asks what the host counted. An older one does not know.
    async fn count(&self, caller: &mut Caller) -> Result<(), Anew> {
        match asked::<Figures>(caller, &Ask::Figures).await {
            Ok(figures) => self.hosts.counted(self.region, figures),
            Err(CallerFault::Refused { .. }) => {}
            Err(fault) => return Err(fault.into()),
        }
        Ok(())
    }

    /// Finds out or makes the number of the host's start.
    async fn introduce(&self) -> Result<Known, Anew> {
        let mut caller = Caller::connect(&self.socket).await?;
        let (hello, way) = hello(&mut caller).await?;
        if hello.version != VERSION {
            return Err(Anew::Version(hello.version));
        }
        if let Some(boot) = hello.boot.map(Boot) {
            let nodes = self.pool.nodes().await?;
            let same = nodes.into_iter().find(|node| node.name == self.name);
            if let Some(node) = same.filter(|node| node.node.boot == boot && !node.node.lost) {
                return Ok(Known {
                    of: (node.id, boot),
                    caller,
                    way,
                    told: BTreeSet::new(),
                    starting: BTreeMap::new(),
                });
            }
            let () = asked(&mut caller, &Ask::Disowned { boot: boot.0 }).await?;
        }
        // The pool takes it as the word that nothing runs.
        loop {
            let listed: Listed = asked(&mut caller, &Ask::List).await?;
            if listed.browsers.is_empty() {
                break;
            }
            sleep(EMPTY_EVERY).await;
        }
        let (node, boot, _) = self.pool.register(&self.name, hello.slots).await?;
        let () = asked(&mut caller, &Ask::Register { boot: boot.0 }).await?;
        Ok(Known {
            of: (node, boot),
            caller,
            way,
            told: BTreeSet::new(),
            starting: BTreeMap::new(),
        })
    }

    async fn hear(&self, known: &mut Known, told: &Beats) -> Result<(), Anew> {
        if told.boot() != known.of.1 {
            return Ok(());
        }
        for beat in &told.beats {
            if let Some(took) = beat.last {
                self.hosts.told_of(BrowserId(beat.browser), took);
            }
        }
        let beats: Vec<Heartbeat> = told.beats.iter().filter_map(|beat| beat.read()).collect();
        for beat in &beats {
            self.clock(known, beat);
            match beat.phase {
                Phase::Closing => self.hosts.ends(beat.browser, beat.reason),
                Phase::Dead => {
                    self.hosts.ends(beat.browser, beat.reason);
                    known.told.remove(&beat.browser);
                }
                Phase::Starting | Phase::Ready | Phase::Picked | Phase::InUse => {
                    // As of a moment before, so that what is said now is newer.
                    let seq = beat.seq.saturating_sub(1);
                    self.launched(known, beat.browser, beat.epoch, seq).await?;
                }
            }
        }
        self.pool.beats(known.of, &beats);
        Ok(())
    }

    /// Measures how long starts take.
    fn clock(&self, known: &mut Known, beat: &Heartbeat) {
        match beat.phase {
            Phase::Starting => {
                known
                    .starting
                    .entry(beat.browser)
                    .or_insert_with(Instant::now);
            }
            Phase::Ready => {
                if let Some(since) = known.starting.remove(&beat.browser) {
                    let mut starts = self.starts.lock().unwrap_or_else(PoisonError::into_inner);
                    starts.took(since.elapsed());
                    self.hosts.became_ready(self.region);
                }
            }
            Phase::Picked | Phase::InUse | Phase::Closing | Phase::Dead => {
                known.starting.remove(&beat.browser);
            }
        }
    }

    /// Tells the pool of a browser that it may not have heard of. One that was promised to somebody
    /// came from the pool.
    async fn launched(
        &self,
        known: &mut Known,
        browser: BrowserId,
        epoch: Epoch,
        seq: u64,
    ) -> Result<(), Anew> {
        if epoch == Epoch(0) && !known.told.contains(&browser) {
            let launch = || self.pool.launch(known.of, browser, self.stock, seq);
            let mut launched = launch().await?;
            if let Err(Denied::NoRoom { .. }) = launched {
                // The word of the end that made room may still wait to be written.
                self.pool.flush().await?;
                launched = launch().await?;
            }
            match launched {
                Ok(()) => {
                    known.told.insert(browser);
                }
                // It is tried again with its next heartbeat.
                Err(denied) => {
                    tracing::warn!(node = self.name, ?browser, %denied, "a browser is not in the pool");
                }
            }
        }
        Ok(())
    }

    /// Compares what runs with what the pool knows.
    async fn compare(&self, known: &mut Known) -> Result<(), Anew> {
        let listed: Listed = asked(&mut known.caller, &Ask::List).await?;
        if listed.boot != Some(known.of.1.0) {
            return Err(Anew::Disowned);
        }
        let mut has = BTreeMap::new();
        for standing in &listed.browsers {
            let (browser, epoch) = (BrowserId(standing.browser), Epoch(standing.epoch));
            // A word that is not known here is of a newer host; the end is no good guess for it.
            let phase = phase(&standing.phase).unwrap_or(Phase::InUse);
            if phase < Phase::Closing {
                let seq = listed.seq.saturating_sub(1);
                self.launched(known, browser, epoch, seq).await?;
            }
            has.insert(browser, (phase, epoch));
        }
        // Why they ended is known to nobody else, if nobody listened.
        let ended: Vec<Heartbeat> = listed.ended.iter().filter_map(|last| last.read()).collect();
        if !ended.is_empty() {
            self.pool.beats(known.of, &ended);
            self.pool.flush().await?;
        }
        let Ok(reconciled) = self.pool.reconcile(known.of, listed.seq, has).await? else {
            return Err(self.disown(&mut known.caller, known.of.1).await);
        };
        for kill in reconciled.kills {
            let ask = Ask::Close {
                browser: kill.browser.0,
                epoch: kill.epoch.0,
                reason: CloseReason::ConnectionError.as_str().to_owned(),
            };
            match asked::<()>(&mut known.caller, &ask).await {
                // It has ended meanwhile.
                Ok(()) | Err(CallerFault::Refused { .. }) => {}
                Err(fault) => return Err(fault.into()),
            }
        }
        let confirmed = Ask::Confirmed {
            boot: known.of.1.0,
            made: listed.made,
        };
        Ok(asked(&mut known.caller, &confirmed).await?)
    }

    async fn disown(&self, caller: &mut Caller, boot: Boot) -> Anew {
        match asked::<()>(caller, &Ask::Disowned { boot: boot.0 }).await {
            Ok(()) => Anew::Disowned,
            Err(fault) => fault.into(),
        }
    }
}

/// Who the host is, and how long it took to say so.
async fn hello(caller: &mut Caller) -> Result<(Hello, Duration), CallerFault> {
    let asked_at = Instant::now();
    let hello = asked(caller, &Ask::Hello).await?;
    Ok((hello, asked_at.elapsed()))
}

async fn listen(mut watching: Watching, heard: mpsc::Sender<Beats>) {
    while let Ok(beats) = watching.next().await {
        if heard.send(beats).await.is_err() {
            return;
        }
    }
}

/// Looks a pool over until it is dropped, and has hosts end what is to end: every [`REAP_EVERY`], and
/// every second while a host says nothing, for its end is told on time. One for each pool.
pub async fn reap(pool: Arc<dyn Pool>, region: u16, hosts: Arc<Hosts>) {
    let mut ticks = interval(REAP_SOON);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut last: Option<Instant> = None;
    loop {
        ticks.tick().await;
        let early = last.is_some_and(|last| last.elapsed() + REAP_SOON / 2 < REAP_EVERY);
        if early && !hosts.is_one_lost(region) {
            continue;
        }
        last = Some(Instant::now());
        let reaped = match pool.reap().await {
            Ok(reaped) => reaped,
            Err(error) => {
                tracing::warn!(%error, pool = pool.place(), "a pool was not looked over");
                continue;
            }
        };
        for kill in reaped.kills {
            let hosts = Arc::clone(&hosts);
            tokio::spawn(async move {
                let of = (kill.browser, kill.epoch);
                // The host's own deadlines hold where it does not hear.
                let _ = hosts
                    .close(region, kill.node, of, CloseReason::ConnectionError)
                    .await;
            });
        }
    }
}
