//! What brokers are asked, and what all requests of one have in common.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwap;
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::oneshot;
use tokio::task::AbortHandle;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep};
use usher_core::id::Id;
use usher_core::lease::browser::{Holder, Phase};
use usher_core::lease::limits::{AccountKind, Limits};
use usher_core::lease::line::Class;
use usher_core::lease::pick::{self, Talk};
use usher_core::lease::refusal::Refusal;
use usher_core::lease::region::Picked;
use usher_core::lease::{SessionId, Stock};
use usher_pool::{Count, News, Pool, PoolError, SessionView};

use crate::ask::{Ask, Node};
use crate::chance;
use crate::lead::Lead;
use crate::queue::{Queue, Standing, Stood};
use crate::tally::Tally;

/// How often it is looked up how many are ready while somebody waits; and every fifth time even if
/// nobody does.
const LOOK_EVERY: Duration = Duration::from_secs(1);
const LOOKS_IDLE: u32 = 5;
/// Looks in a row, at most, while something changes during each: the next second brings another.
const LOOKS_MAX: u32 = 3;

/// How often a session that is not in its account's home is confirmed there.
const CONFIRM_EVERY: Duration = Duration::from_secs(30);

/// A region that a broker may take browsers from. Regions are numbered as they are listed.
#[derive(Clone)]
pub struct Region {
    /// Its pool.
    pub pool: Arc<dyn Pool>,
    /// From clients to a broker of that region. How far its nodes are from there is measured.
    pub client_to_broker: Duration,
}

/// A region in the list of a broker.
#[derive(Clone)]
struct Listed {
    region: Region,
    /// Whether browsers are taken from it.
    open: bool,
    /// Whether its machine cannot run any.
    lacks: bool,
}

/// How a broker works.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settings {
    /// How many browsers of each stock are meant to be ready, which the reserve is a part of.
    /// Default 2.
    pub ready_wanted: u32,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings { ready_wanted: 2 }
    }
}

/// Leads wishes to answers.
pub struct Broker {
    shared: Arc<Shared>,
    tasks: Mutex<Vec<AbortHandle>>,
}

/// A browser that waits for its answer to be written. Whoever drops it gives the browser back.
#[derive(Debug)]
#[must_use]
pub struct Offer {
    /// The browser.
    pub picked: Picked,
    /// Where it is.
    pub region: u16,
    written: oneshot::Sender<()>,
}

impl Offer {
    pub(crate) fn new(picked: Picked, region: u16, written: oneshot::Sender<()>) -> Offer {
        Offer {
            picked,
            region,
            written,
        }
    }

    /// The answer is written: the session is the caller's.
    pub fn written(self) {
        // Whoever leads it waits for nothing else.
        let _ = self.written.send(());
    }
}

pub(crate) struct Shared {
    /// They come and are closed; none ever leaves its place.
    regions: ArcSwap<Vec<Listed>>,
    /// Where the limits of accounts are kept: the first region's pool.
    pub(crate) home: Arc<dyn Pool>,
    pub(crate) queue: Arc<Queue>,
    pub(crate) tally: Tally,
    ready_wanted: AtomicU32,
    /// What is ready in each region, by stock, when it was last looked up.
    ready: Mutex<BTreeMap<(u16, Stock), u32>>,
    /// How often a region said that more are ready.
    told: Mutex<BTreeMap<u16, u64>>,
    /// Sessions that are not in their account's home.
    abroad: Mutex<BTreeMap<SessionId, Abroad>>,
    /// How many are meant to be ready, by region.
    wanted: Mutex<BTreeMap<u16, u32>>,
    /// How many were wished for, by region.
    wished: Mutex<BTreeMap<u16, u64>>,
}

/// A session that is not in its account's home.
#[derive(Clone, Copy)]
struct Abroad {
    region: u16,
    account: Id,
    limits: Limits,
}

impl Broker {
    /// A broker of these regions, the first of which is the home of all accounts; `None` when there
    /// is none. Its tasks run on the runtime that calls this, and end with it.
    #[must_use]
    pub fn new(regions: Vec<Region>, settings: Settings) -> Option<Broker> {
        let home = Arc::clone(&regions.first()?.pool);
        let shared = Arc::new(Shared {
            home,
            queue: Queue::new(),
            tally: Tally::new(usher_core::region::Region::ALL.len()),
            ready_wanted: AtomicU32::new(settings.ready_wanted),
            ready: Mutex::default(),
            told: Mutex::default(),
            abroad: Mutex::default(),
            wanted: Mutex::default(),
            wished: Mutex::default(),
            regions: ArcSwap::default(),
        });
        let tasks = vec![
            tokio::spawn(Arc::clone(&shared).look_again()).abort_handle(),
            tokio::spawn(Arc::clone(&shared).confirm_abroad()).abort_handle(),
        ];
        let broker = Broker {
            shared,
            tasks: Mutex::new(tasks),
        };
        for region in regions {
            broker.add(region);
        }
        Some(broker)
    }

    /// Takes browsers from another region, too; its place in the list is given back. Has to be called
    /// on the runtime that the broker runs on.
    pub fn add(&self, region: Region) -> u16 {
        let listed = Listed {
            region,
            open: true,
            lacks: false,
        };
        let before = self.shared.regions.rcu(|regions| {
            let mut regions = Vec::clone(regions);
            regions.push(listed.clone());
            regions
        });
        let number = before.len() as u16;
        let listening = Arc::clone(&self.shared).listen(number);
        guard(&self.tasks).push(tokio::spawn(listening).abort_handle());
        number
    }

    /// Whether browsers are taken from a region. Sessions there go on either way.
    pub fn open(&self, region: u16, open: bool) {
        self.change(region, |listed| listed.open = open);
    }

    /// Whether the machine of a region cannot run browsers, as far as is known: nobody stands in line
    /// for what will not come.
    pub fn lacks(&self, region: u16, lacks: bool) {
        self.change(region, |listed| listed.lacks = lacks);
    }

    fn change(&self, region: u16, change: impl Fn(&mut Listed)) {
        self.shared.regions.rcu(|regions| {
            let mut regions = Vec::clone(regions);
            if let Some(listed) = regions.get_mut(usize::from(region)) {
                change(listed);
            }
            regions
        });
    }

    /// How many browsers were wished for since the broker began that were taken from a region, or
    /// would have been if one had been ready.
    #[must_use]
    pub fn wished(&self, region: u16) -> u64 {
        let wished = guard(&self.shared.wished);
        wished.get(&region).copied().unwrap_or(0)
    }

    /// A browser, or why there is none. Whoever drops this while it waits gets none, and pays for
    /// none.
    ///
    /// # Errors
    /// The account's limit, or that all browsers are taken; also where a pool does not answer.
    pub async fn acquire(&self, ask: Ask, node: Arc<dyn Node>) -> Result<Offer, Refusal> {
        self.shared.acquire(ask, node).await.1
    }

    /// The same, and where the caller stood in line if it did.
    pub async fn acquire_in_line(
        &self,
        ask: Ask,
        node: Arc<dyn Node>,
    ) -> (Option<Stood>, Result<Offer, Refusal>) {
        self.shared.acquire(ask, node).await
    }

    /// So many browsers are meant to be ready in a region from now on. Once that is said of one, it is
    /// their sum that counts, and no more [`Settings::ready_wanted`].
    pub fn want(&self, region: u16, ready: u32) {
        let mut wanted = guard(&self.shared.wanted);
        wanted.insert(region, ready);
        let sum = wanted.values().sum();
        self.shared.ready_wanted.store(sum, Ordering::Relaxed);
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// How many sessions live in other regions than the first and are seen to from here, so that
    /// they count for their accounts.
    #[must_use]
    pub fn abroad(&self) -> usize {
        guard(&self.shared.abroad).len()
    }

    /// What it counted.
    #[must_use]
    pub fn tally(&self) -> &Tally {
        &self.shared.tally
    }

    /// Who waits.
    #[must_use]
    pub fn standing(&self) -> Vec<Standing> {
        self.shared.queue.standing()
    }
}

impl Drop for Broker {
    /// Requests that are being led go on to their end.
    fn drop(&mut self) {
        for task in guard(&self.tasks).iter() {
            task.abort();
        }
    }
}

impl Shared {
    /// See [`Broker::acquire_in_line`].
    pub(crate) async fn acquire(
        self: &Arc<Self>,
        ask: Ask,
        node: Arc<dyn Node>,
    ) -> (Option<Stood>, Result<Offer, Refusal>) {
        let stood = Arc::new(OnceLock::new());
        let (answer, told) = oneshot::channel();
        // It lives as long as this waits.
        let (_here, left) = oneshot::channel::<()>();
        let lead = Lead {
            shared: Arc::clone(self),
            ask,
            node,
            left,
            answer: Some(answer),
            session: SessionId(chance::name()),
            region: 0,
            since: None,
            turn: None,
            refusal: None,
            charged: false,
            counted: false,
            stood: Arc::clone(&stood),
            began: Instant::now(),
        };
        tokio::spawn(lead.run());
        let draw = chance::draw();
        let answer = told.await.unwrap_or(Err(Refusal::Capacity { draw }));
        (stood.get().copied(), answer)
    }

    pub(crate) fn pool(&self, region: u16) -> Arc<dyn Pool> {
        let regions = self.regions.load();
        let there = regions.get(usize::from(region));
        Arc::clone(there.map_or(&self.home, |there| &there.region.pool))
    }

    /// Somebody wishes for a browser, which is or would be of that region.
    pub(crate) fn wish(&self, region: u16) {
        *guard(&self.wished).entry(region).or_default() += 1;
    }

    /// The regions to ask, best first; not those whose nodes cannot be spoken to.
    pub(crate) fn ranked(&self, ask: &Ask, node: &dyn Node) -> Vec<u16> {
        let ready = guard(&self.ready);
        let regions = self.regions.load();
        let regions = regions.iter().zip(0..).filter(|(listed, _)| listed.open);
        let offers: Vec<pick::Offer> = regions
            .filter_map(|(listed, number)| {
                Some(pick::Offer {
                    region: number,
                    client_to_broker: listed.region.client_to_broker,
                    broker_to_node: node.distance(number)?,
                    // Where nothing is known yet, it is asked.
                    ready: ready.get(&(number, ask.stock)).copied().unwrap_or(1),
                })
            })
            .collect();
        let talk = match ask.class {
            Class::Session => Talk::Session,
            Class::QuickAction | Class::Crawl => Talk::QuickAction,
        };
        pick::rank(&offers, talk, ask.only)
    }

    /// Whether a browser for this request may yet come: not where every region that is open to it lacks
    /// what it takes to run one.
    pub(crate) fn may_come(&self, ask: &Ask) -> bool {
        let regions = self.regions.load();
        let mut open = (regions.iter().zip(0..))
            .filter(|(listed, number)| listed.open && ask.only.is_none_or(|only| only == *number))
            .peekable();
        open.peek().is_none() || open.any(|(listed, _)| !listed.lacks)
    }

    /// Whether this request may pick at once.
    pub(crate) async fn may_pick(&self, ask: &Ask) -> bool {
        match self.queue.may_pick(ask, None) {
            Some(may) => may,
            // Only where the last ones are kept for those who have none.
            None => {
                let has = self.has_browser(ask).await;
                self.queue.may_pick(ask, Some(has)).unwrap_or(true)
            }
        }
    }

    /// Whether the account has a browser beside the one that it asks for.
    pub(crate) async fn has_browser(&self, ask: &Ask) -> bool {
        let account = self.home.account(ask.account, ask.limits).await;
        let own = usize::from(ask.class == Class::Session);
        account.is_ok_and(|account| account.sessions.len() + account.others as usize > own)
    }

    /// A session begins.
    pub(crate) fn begun(&self, region: u16, ask: &Ask, session: SessionId) {
        if region > 0 && ask.class == Class::Session {
            let of = Abroad {
                region,
                account: ask.account,
                limits: ask.limits,
            };
            guard(&self.abroad).insert(session, of);
        }
    }

    async fn listen(self: Arc<Self>, region: u16) {
        let mut news = self.pool(region).news();
        if region > 0 {
            self.remember(region).await;
        }
        self.look().await;
        loop {
            match news.recv().await {
                Ok(News::Ready { stock, count }) => {
                    *guard(&self.told).entry(region).or_default() += 1;
                    *guard(&self.ready).entry((region, stock)).or_default() += count;
                    self.queue.became_ready(stock, count);
                }
                Ok(News::Ended(ended)) => {
                    self.tally.ended(region, ended.class, ended.reason);
                    if region > 0 {
                        self.ended_abroad(ended.session, ended.account, ended.billed)
                            .await;
                    }
                }
                Ok(News::Disowned { .. }) => {}
                Err(RecvError::Lagged(_)) => self.look().await,
                Err(RecvError::Closed) => return,
            }
        }
    }

    /// Takes over the sessions abroad that an earlier process began.
    async fn remember(&self, region: u16) {
        let pool = self.pool(region);
        // Confirming asks for no limit.
        let limits = Limits::of(AccountKind::Paygo);
        loop {
            match living(&*pool).await {
                Ok(living) => {
                    let mut abroad = guard(&self.abroad);
                    for holder in living {
                        let of = Abroad {
                            region,
                            account: holder.account,
                            limits,
                        };
                        abroad.entry(holder.session).or_insert(of);
                    }
                    return;
                }
                Err(error) => {
                    tracing::warn!(%error, "the sessions of a pool are not known yet");
                    sleep(LOOK_EVERY).await;
                }
            }
        }
    }

    async fn ended_abroad(&self, session: SessionId, account: Id, billed: Duration) {
        // Whoever finds it here first tells.
        if guard(&self.abroad).remove(&session).is_some() {
            let told = self.home.release(account, session, billed);
            if let Err(error) = told.await {
                tracing::warn!(%error, ?session, "the time of a session is not counted");
            }
        }
    }

    /// How many stand where in a region. What became ready while it was looked up may not be among
    /// them, so it is looked up again.
    async fn counts(&self, region: u16, pool: &dyn Pool) -> Option<Vec<Count>> {
        let told = || guard(&self.told).get(&region).copied();
        let mut looks = 1;
        loop {
            let before = told();
            let counts = pool.counts().await.ok()?;
            if looks == LOOKS_MAX || told() == before {
                return Some(counts);
            }
            looks += 1;
        }
    }

    /// Looks up how many there are.
    async fn look(&self) {
        let mut all: BTreeMap<Stock, (u32, usize)> = BTreeMap::new();
        for (listed, number) in self.regions.load_full().iter().zip(0..) {
            // What cannot be looked up now is what was known before.
            let Some(counts) = self.counts(number, &*listed.region.pool).await else {
                continue;
            };
            let mut ready = guard(&self.ready);
            for (_, known) in ready.iter_mut().filter(|((of, _), _)| *of == number) {
                *known = 0;
            }
            for count in counts {
                let (ready_there, size) = all.entry(count.stock).or_default();
                *size += count.count as usize;
                if count.phase == Phase::Ready && listed.open {
                    *ready_there += count.count;
                    *ready.entry((number, count.stock)).or_default() += count.count;
                }
            }
        }
        let wanted = self.ready_wanted.load(Ordering::Relaxed);
        for (stock, (ready, size)) in all {
            self.queue.stands(stock, ready, size, wanted);
        }
    }

    async fn look_again(self: Arc<Self>) {
        let mut ticks = interval(LOOK_EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        for tick in 0_u32.. {
            ticks.tick().await;
            if self.queue.is_waited_for() || tick % LOOKS_IDLE == 0 {
                self.look().await;
            }
        }
    }

    /// Confirms a session that lives. News of an end may have been missed.
    async fn confirm(&self, session: SessionId, of: Abroad) -> Result<(), PoolError> {
        let view = self.pool(of.region).session(session).await?;
        let billed = match view {
            Some(SessionView { ended: None, .. }) => {
                return self.home.confirm(of.account, of.limits, session).await;
            }
            Some(SessionView {
                ended: Some((at, reason)),
                started,
                ..
            }) if reason.is_billed() => at.since(started),
            Some(_) | None => Duration::ZERO,
        };
        self.ended_abroad(session, of.account, billed).await;
        Ok(())
    }

    async fn confirm_abroad(self: Arc<Self>) {
        let mut ticks = interval(CONFIRM_EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            let abroad: Vec<_> = guard(&self.abroad)
                .iter()
                .map(|(&session, &of)| (session, of))
                .collect();
            for (session, of) in abroad {
                if let Err(error) = self.confirm(session, of).await {
                    tracing::debug!(%error, ?session, "a session is not confirmed");
                }
            }
        }
    }
}

/// Who has a session in a pool.
async fn living(pool: &dyn Pool) -> Result<Vec<Holder>, PoolError> {
    let mut living = Vec::new();
    for node in pool.nodes().await? {
        let mut offset = 0;
        loop {
            let page = pool.browsers(node.id, offset).await?;
            let held = page.iter().filter(|browser| browser.phase == Phase::InUse);
            for holder in held.filter_map(|browser| browser.holder) {
                let view = pool.session(holder.session).await?;
                if view.is_some_and(|view| view.class == Class::Session) {
                    living.push(holder);
                }
            }
            let Some(len) = u32::try_from(page.len()).ok().filter(|&len| len > 0) else {
                break;
            };
            offset += len;
        }
    }
    Ok(living)
}

fn guard<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Whatever is inside is whole after each statement.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl std::fmt::Debug for Broker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Broker")
            .field("standing", &self.standing())
            .finish_non_exhaustive()
    }
}

impl std::fmt::Debug for Region {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Region")
            .field("place", &self.pool.place())
            .finish_non_exhaustive()
    }
}
