//! A host: many browsers, lent to brokers that come over a socket.
//!
//! What may be done with a browser is decided by [`usher_core::lease::host`], which this drives: it
//! carries launches, ends and deadlines to the tasks that own the browsers (`keeper`), and
//! what they tell back. Brokers ask over the socket in the host's folder, which is closed to
//! everybody but the host's own user and root.
//!
//! Where every browser stands is told every five seconds, and at once when it changes.

use std::collections::{BTreeMap, VecDeque};
use std::future::Future;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::net::UnixListener;
use tokio::sync::{Semaphore, broadcast, mpsc, oneshot};
use tokio::time::timeout;
use usher_core::lease::browser::Phase;
use usher_core::lease::close::CloseReason;
use usher_core::lease::{Boot, BrowserId, Epoch, SessionId, beat, host as core};
use usher_core::time::Mono;

mod caller;
mod door;
mod keeper;
mod pipe;
mod tally;
pub mod wire;

pub use caller::{Caller, CallerFault, Watching};
pub use keeper::HELD_MAX;

use crate::browser::Launcher;
use crate::page::{PageFault, Screenshot};
use keeper::{Facts, Order, Told, keep};
use tally::Tally;
use wire::{Answer, Ask, Beat, Beats, Hello, Listed, Standing};

/// A browser that nobody took for as long is replaced: its build and its memory grow old.
pub const READY_MAX: Duration = Duration::from_secs(30 * 60);
/// How long the place of a browser that was given away stays empty. Whoever got it is being answered
/// and says its first words, on the cores that the next one would start on.
const REFILL_AFTER: Duration = Duration::from_millis(200);
/// How much longer it stays empty while a page is drawn, which asks more of the cores than words do;
/// most pages are drawn by then.
const REFILL_HELD_MAX: Duration = Duration::from_millis(800);
/// How long the last answers may take to be written when a host ends.
const LAST_WORDS_MAX: Duration = Duration::from_secs(1);
/// How long to wait after a browser that did not start, at most.
const FAILED_PAUSE_MAX: Duration = Duration::from_secs(30);
/// Heartbeats that a slow listener may be behind; it misses some beyond it, and newer ones follow.
const BEATS_MAX: usize = 64;
/// Questions that wait for the host.
const ASKED_MAX: usize = 256;
/// Ends that are told again on each list until a broker has confirmed one: whoever was to hear of
/// them may not have been there.
const ENDED_MAX: usize = 1_024;
/// Sessions have at most this long to be idle.
const KEEP_ALIVE_MAX: Duration = Duration::from_secs(20 * 60);

/// A question of a broker, and where its answer goes.
enum Asked {
    Plain(Ask, oneshot::Sender<Answer>),
    /// May who holds this lease talk to the browser, and where are its orders to be sent?
    Ear(wire::Held, oneshot::Sender<Result<Ear, Answer>>),
}

/// Where a browser hears its orders.
struct Ear {
    orders: mpsc::Sender<Order>,
    /// What its session may reach, as it was told when it was prepared.
    guardrails: serde_json::Value,
}

/// Runs browsers until `stop` or a drain ends it. Everything is done on the calling thread's runtime,
/// which has to be a single-threaded one: browsers die with the thread that started them.
///
/// # Errors
/// The socket cannot be made.
pub async fn run(launcher: Launcher, stop: impl Future<Output = ()>) -> io::Result<()> {
    let socket = launcher.folder().socket();
    match std::fs::remove_file(&socket) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let listener = UnixListener::bind(&socket)?;
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(&socket, std::fs::Permissions::from_mode(0o600))?;
    let (asked, questions) = mpsc::channel(ASKED_MAX);
    let (beats, _) = broadcast::channel(BEATS_MAX);
    let (told, news) = mpsc::unbounded_channel();
    let settings = launcher.settings();
    let agent = Agent {
        tally: Tally::new(launcher.leaked()),
        core: core::Host::new(settings.slots, settings.launches_max),
        launcher: Arc::new(launcher),
        began: Instant::now(),
        boot: None,
        want: 0,
        most: None,
        draining: false,
        kept: BTreeMap::new(),
        ended: VecDeque::new(),
        told,
        beats: beats.clone(),
        failed_pause: Duration::ZERO,
        launch_from: Mono::ZERO,
        held_until: Mono::ZERO,
        beat_at: Mono::ZERO,
        asked_at: Mono::ZERO,
        changed: false,
    };
    let answers = Arc::new(Semaphore::new(door::ANSWERS_MAX as usize));
    let accepting = tokio::spawn(door::accept(listener, asked, beats, answers.clone()));
    agent.run(questions, news, stop).await;
    accepting.abort();
    // Whoever asked for the end is told before it comes.
    let _ = timeout(LAST_WORDS_MAX, answers.acquire_many(door::ANSWERS_MAX)).await;
    let _ = std::fs::remove_file(&socket);
    Ok(())
}

/// What is kept of each browser.
struct Kept {
    orders: mpsc::Sender<Order>,
    facts: Arc<Facts>,
    guardrails: serde_json::Value,
    told_to_end: bool,
    launched: Instant,
}

struct Agent {
    core: core::Host,
    tally: Tally,
    launcher: Arc<Launcher>,
    began: Instant,
    boot: Option<Boot>,
    want: u32,
    /// The most that are to be ready or starting.
    most: Option<u32>,
    draining: bool,
    kept: BTreeMap<BrowserId, Kept>,
    /// Browsers that have ended, and when, until that is known.
    ended: VecDeque<(Mono, Beat)>,
    told: mpsc::UnboundedSender<Told>,
    beats: broadcast::Sender<Arc<Beats>>,
    failed_pause: Duration,
    launch_from: Mono,
    /// Until then nothing is launched while a page is drawn.
    held_until: Mono,
    beat_at: Mono,
    /// When it was last asked something.
    asked_at: Mono,
    changed: bool,
}

impl Agent {
    fn now(&self) -> Mono {
        Mono::ZERO.after(self.began.elapsed())
    }

    async fn run(
        mut self,
        mut questions: mpsc::Receiver<Asked>,
        mut news: mpsc::UnboundedReceiver<Told>,
        stop: impl Future<Output = ()>,
    ) {
        tokio::pin!(stop);
        let mut stopped = false;
        loop {
            self.turn();
            if (stopped || self.draining) && self.kept.is_empty() {
                return;
            }
            let due = tokio::time::sleep(self.next().since(self.now()));
            tokio::select! {
                () = &mut stop, if !stopped => {
                    stopped = true;
                    self.draining = true;
                    self.core.end_all(CloseReason::SessionEvicted, self.now());
                }
                Some(told) = news.recv() => self.hear(told),
                Some(asked) = questions.recv() => {
                    self.asked_at = self.now();
                    match asked {
                        Asked::Plain(ask, answer) => self.answer(ask, answer),
                        Asked::Ear(held, answer) => {
                            let _ = answer.send(self.ear(held));
                        }
                    }
                },
                () = due => {}
            }
        }
    }

    /// When there is something to do though nothing happens.
    fn next(&self) -> Mono {
        let mut next = self.beat_at;
        if let Some(timeout) = self.core.poll_timeout() {
            next = next.min(timeout);
        }
        if let Some(from) = self.launches_from().filter(|_| self.is_short()) {
            next = next.min(from);
        }
        if let Some(alone) = self.alone_at().filter(|_| !self.draining) {
            next = next.min(alone);
        }
        next
    }

    /// When nobody has asked anything for too long.
    fn alone_at(&self) -> Option<Mono> {
        let alone_max = self.launcher.settings().alone_max?;
        // A session ends by itself when nobody confirms it.
        (!self.has_session()).then(|| self.asked_at.after(alone_max))
    }

    /// Whether a browser is somebody's.
    fn has_session(&self) -> bool {
        let lent = [Phase::Picked, Phase::InUse];
        lent.into_iter().any(|phase| self.core.in_phase(phase) > 0)
    }

    /// Whether fewer are ready than are wanted.
    fn is_short(&self) -> bool {
        !self.draining && self.on_the_way() < self.want
    }

    /// From when on browsers are launched, if that is not now.
    fn launches_from(&self) -> Option<Mono> {
        let draws = || self.kept.values().any(|kept| kept.facts.draws());
        let now = self.now();
        let from = match self.held_until > now && draws() {
            true => self.launch_from.max(self.held_until),
            false => self.launch_from,
        };
        (from > now).then_some(from)
    }

    /// How many are ready or will be.
    fn on_the_way(&self) -> u32 {
        self.core.in_phase(Phase::Starting) + self.core.in_phase(Phase::Ready)
    }

    /// Does what the core's state asks for.
    fn turn(&mut self) {
        let now = self.now();
        self.core.pass(now);
        if self.alone_at().is_some_and(|alone| now >= alone) {
            self.draining = true;
        }
        let mut over = self
            .most
            .map_or(0, |most| self.on_the_way().saturating_sub(most));
        for (id, age) in self.core.idle(now) {
            // The oldest come first.
            if age >= READY_MAX || self.draining || over > 0 {
                over = over.saturating_sub(1);
                self.core.end(id, CloseReason::SessionEvicted, now);
            }
        }
        let ending: Vec<BrowserId> = self.core.ending().map(|(id, _)| id).collect();
        for id in ending {
            if let Some(kept) = self.kept.get_mut(&id)
                && !kept.told_to_end
            {
                // Full of orders it hears none; its channel is tried again at the next turn.
                kept.told_to_end = kept.orders.try_send(Order::Close).is_ok();
                self.changed = true;
            }
        }
        if self.launches_from().is_none() {
            while self.is_short() && self.launch(now) {}
        }
        if self.changed || now >= self.beat_at {
            self.tell_beats();
        }
    }

    fn launch(&mut self, now: Mono) -> bool {
        let mut drawn = [0; 16];
        if let Err(error) = getrandom::fill(&mut drawn) {
            tracing::error!(%error, "no randomness for the name of a browser");
            return false;
        }
        let id = BrowserId(u128::from_ne_bytes(drawn));
        let may = self.core.launch(id, now);
        if may {
            let (orders, facts) = keep(self.launcher.clone(), id, self.told.clone());
            self.kept.insert(
                id,
                Kept {
                    orders,
                    facts,
                    guardrails: serde_json::Value::Null,
                    told_to_end: false,
                    launched: Instant::now(),
                },
            );
            self.changed = true;
        }
        may
    }

    fn hear(&mut self, told: Told) {
        let now = self.now();
        self.changed = true;
        match told {
            Told::Ready(id) => {
                self.failed_pause = Duration::ZERO;
                if let Some(kept) = self.kept.get(&id) {
                    self.tally.started(kept.launched.elapsed());
                }
                self.core.ready(id, now);
            }
            Told::Ends(id, reason) => {
                self.core.end(id, reason, now);
                // It ends already.
                if let Some(kept) = self.kept.get_mut(&id) {
                    kept.told_to_end = true;
                }
            }
            Told::Drew => self.tally.drew(),
            Told::Failed(id, why) => {
                self.tally.failed(&why);
                let pause = (self.failed_pause * 2).max(Duration::from_secs(1));
                self.failed_pause = pause.min(FAILED_PAUSE_MAX);
                self.launch_from = now.after(self.failed_pause);
                self.gone(id, false);
            }
            Told::Gone(id) => self.gone(id, true),
            Told::Prepared(id, session, to) => {
                let answer = if self.core.prepared(id, session, now) {
                    Answer::DONE
                } else {
                    Answer::error("gone", format!("browser {id:?} was ended meanwhile"))
                };
                let _ = to.send(answer);
            }
        }
    }

    /// `worked`: it was ready once.
    fn gone(&mut self, id: BrowserId, worked: bool) {
        let kept = self.kept.remove(&id);
        if let Some(last) = self.core.gone(id) {
            if worked {
                self.tally.ended(last.reason);
            }
            let mut last = Beat::from(last);
            last.last = kept.map(|kept| kept.facts.took());
            self.ended.push_back((self.now(), last.clone()));
            if self.ended.len() > ENDED_MAX {
                self.ended.pop_front();
            }
            self.send(vec![last]);
        }
    }

    fn tell_beats(&mut self) {
        let kept = &self.kept;
        let facts = |id, session: Option<SessionId>| {
            kept.get(&id).map_or((0, Duration::ZERO), |kept| {
                let quiet = session.map_or(Duration::ZERO, |_| kept.facts.quiet());
                (kept.facts.mem_kib(), quiet)
            })
        };
        let beats: Vec<Beat> = self.core.beats(facts).into_iter().map(Beat::from).collect();
        self.send(beats);
        self.changed = false;
        self.beat_at = self.now().after(beat::EVERY);
    }

    fn send(&self, beats: Vec<Beat>) {
        // Without browsers too: that it has none is a sign of life.
        if let Some(boot) = self.boot {
            // Nobody may be listening.
            let _ = self.beats.send(Arc::new(Beats {
                boot: boot.0,
                beats,
            }));
        }
    }

    fn ear(&self, held: wire::Held) -> Result<Ear, Answer> {
        let (browser, epoch, session) = held.parts();
        if !self.core.may_connect(browser, epoch, session) {
            let text = format!(
                "browser {browser:?} is not session {session:?}'s with lease {}",
                epoch.0
            );
            return Err(Answer::error("not_yours", text));
        }
        let kept = self.kept.get(&browser);
        let ear = kept.map(|kept| Ear {
            orders: kept.orders.clone(),
            guardrails: kept.guardrails.clone(),
        });
        ear.ok_or_else(|| {
            Answer::error("unknown", format!("browser {browser:?} does not run here"))
        })
    }

    fn answer(&mut self, ask: Ask, to: oneshot::Sender<Answer>) {
        let now = self.now();
        let answer = match ask {
            Ask::Hello => Answer::of(&self.hello()),
            Ask::Register { boot } => {
                if self.core.wants_registering() {
                    self.core.registered(Boot(boot));
                    self.boot = Some(Boot(boot));
                    Answer::DONE
                } else {
                    Answer::error(
                        "registered",
                        "this start was counted before, or browsers still run",
                    )
                }
            }
            Ask::Disowned { boot } => {
                self.core.disowned(Boot(boot), now);
                if self.boot == Some(Boot(boot)) {
                    self.boot = None;
                    self.ended.clear();
                }
                Answer::DONE
            }
            Ask::Want { ready, most } => {
                self.want = ready.min(self.launcher.settings().slots);
                self.most = most.map(|most| most.max(self.want));
                Answer::DONE
            }
            Ask::Prepare {
                held,
                keep_alive_ms,
                guardrails,
            } => {
                return self.prepare(held, keep_alive_ms, guardrails, to);
            }
            Ask::Close {
                browser,
                epoch,
                reason,
            } => {
                let reason = wire::reason(&reason).unwrap_or(CloseReason::Unknown);
                let closed = self
                    .core
                    .close(BrowserId(browser), Epoch(epoch), reason, now);
                closed.map_or_else(denied, |()| Answer::DONE)
            }
            Ask::List => Answer::of(&self.list(now)),
            Ask::Figures => Answer::of(&self.tally.told(self.launcher.exit().refused())),
            Ask::Confirmed { boot, made } => {
                let made = Mono::from_nanos(made);
                self.core.confirmed(Boot(boot), made);
                if self.boot == Some(Boot(boot)) {
                    self.ended.retain(|(at, _)| *at > made);
                }
                Answer::DONE
            }
            Ask::Own { listeners } => {
                self.launcher.exit().own(listeners);
                Answer::DONE
            }
            Ask::Retire => {
                let ends = !self.has_session();
                self.draining |= ends;
                Answer::of(&ends)
            }
            Ask::Drain => {
                self.draining = true;
                Answer::DONE
            }
            Ask::Quit => {
                self.draining = true;
                self.core.end_all(CloseReason::SessionEvicted, now);
                Answer::DONE
            }
            Ask::Connect { .. } | Ask::Touch { .. } | Ask::Screenshot { .. } | Ask::Watch => {
                Answer::error("internal", "asked in the wrong place")
            }
        };
        let _ = to.send(answer);
    }

    fn hello(&self) -> Hello {
        let settings = self.launcher.settings();
        Hello {
            version: wire::VERSION,
            backend: settings.kind.as_str().to_owned(),
            slots: settings.slots,
            launches_max: settings.launches_max,
            boot: self.boot.map(|boot| boot.0),
            warnings: self.launcher.warnings(),
            mark: settings.mark.clone(),
        }
    }

    fn list(&mut self, now: Mono) -> Listed {
        let (seq, browsers) = self.core.list();
        let standing = |(id, (phase, epoch)): (BrowserId, (Phase, Epoch))| Standing {
            browser: id.0,
            phase: phase.as_str().to_owned(),
            epoch: epoch.0,
        };
        Listed {
            boot: self.boot.map(|boot| boot.0),
            seq,
            made: now.as_nanos(),
            browsers: browsers.into_iter().map(standing).collect(),
            ended: self.ended.iter().map(|(_, last)| last.clone()).collect(),
        }
    }

    fn prepare(
        &mut self,
        held: wire::Held,
        keep_alive_ms: u64,
        guardrails: Option<serde_json::Value>,
        to: oneshot::Sender<Answer>,
    ) {
        let now = self.now();
        let (browser, epoch, session) = held.parts();
        if let Err(fault) = self.core.prepare(browser, epoch, session, now) {
            let _ = to.send(denied(fault));
            return;
        }
        self.changed = true;
        if self.launch_from <= now {
            self.launch_from = now.after(REFILL_AFTER);
            self.held_until = self.launch_from.after(REFILL_HELD_MAX);
        }
        let Some(kept) = self.kept.get_mut(&browser) else {
            let _ = to.send(Answer::error(
                "unknown",
                format!("browser {browser:?} does not run here"),
            ));
            return;
        };
        let (done, prepared) = oneshot::channel();
        let guardrails = guardrails.filter(|guardrails| !guardrails.is_null());
        kept.guardrails = guardrails.clone().unwrap_or_default();
        let order = Order::Prepare {
            session,
            keep_alive: Duration::from_millis(keep_alive_ms).min(KEEP_ALIVE_MAX),
            guardrails: guardrails
                .map_or_else(|| "{}".to_owned(), |guardrails| guardrails.to_string()),
            done,
        };
        if kept.orders.try_send(order).is_err() {
            let _ = to.send(Answer::error(
                "busy",
                format!("browser {browser:?} hears nothing"),
            ));
            return;
        }
        let told = self.told.clone();
        tokio::spawn(async move {
            match prepared.await {
                Ok(Ok(())) => {
                    let _ = told.send(Told::Prepared(browser, session, to));
                }
                Ok(Err(fault)) => {
                    let _ = told.send(Told::Ends(browser, CloseReason::Unknown));
                    let _ = to.send(Answer::error("guardrails", fault));
                }
                Err(_) => {
                    let _ = to.send(Answer::error(
                        "gone",
                        format!("browser {browser:?} has ended"),
                    ));
                }
            }
        });
    }
}

fn denied(fault: core::Denied) -> Answer {
    let code = match fault {
        core::Denied::Unknown(_) => "unknown",
        core::Denied::Old { .. } => "old",
        core::Denied::NotFree { .. } => "not_free",
    };
    Answer::error(code, fault)
}

/// What becomes of a wish for a picture, on the wire.
fn drawn(result: Result<Vec<u8>, PageFault>) -> (Answer, Option<Vec<u8>>) {
    match result {
        Ok(picture) => (Answer::of(&picture.len()), Some(picture)),
        Err(fault) => (Answer::error(fault.code(), &fault), None),
    }
}

/// An order for a picture, and where it goes.
type Drawn = (Order, oneshot::Receiver<Result<Vec<u8>, PageFault>>);

fn draw(order: Box<Screenshot>) -> Drawn {
    let (done, drawn) = oneshot::channel();
    (Order::Draw { order, done }, drawn)
}
