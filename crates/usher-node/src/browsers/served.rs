//! All that is needed to give browsers away, put together and taken apart again.

use std::fmt;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwap;
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::task::AbortHandle;
use tokio::time::timeout;
use usher_broker::wire::binding::Binding;
use usher_broker::wire::{Account, Front};
use usher_broker::{Broker, Hosts, Sessions, Settings, Want, reap};
use usher_browsers::host::Caller;
use usher_browsers::settings::Kind;
use usher_core::region::Region;
use usher_pool::sqlite::Sqlite;
use usher_pool::{Clock, Pool, PoolError};

use super::manner::{ALONE_MAX, Manner};
use super::size::{Bounds, Counts, Size};
use super::watch::{Known, Source, Watch, retire};
use super::{RegionStanding, settle};
use crate::settings;

/// For a host to hear that it may end.
const RETIRE_MAX: Duration = Duration::from_secs(1);

/// The pools of a node, each with its region.
pub(super) type Pools = Vec<(Region, Arc<dyn Pool>)>;

/// Opens the pools of these regions; waits for up to `patience` for each that another process has.
pub(super) async fn open(
    folder: &Path,
    regions: impl IntoIterator<Item = Region>,
    patience: Duration,
) -> Result<Pools, PoolError> {
    let mut pools: Pools = Vec::new();
    for region in regions {
        let file = folder.join(format!("{region}.db"));
        let settings = usher_pool::Settings::default();
        match Sqlite::open(&file, settings, Clock::system(), patience).await {
            Ok(pool) => pools.push((region, Arc::new(pool))),
            Err(error) => {
                close(pools).await;
                return Err(error);
            }
        }
    }
    Ok(pools)
}

/// Closes pools that have been asked nothing yet.
pub(super) async fn close(pools: Pools) {
    for (_, pool) in pools {
        let _ = pool.stop().await;
    }
}

/// Browsers that are served.
pub(super) struct Served {
    pub(super) front: Arc<Front>,
    pub(super) binding: Arc<Binding>,
    pub(super) runtime: Handle,
    program: PathBuf,
    own: watch::Receiver<Vec<SocketAddr>>,
    hosts: Arc<Hosts>,
    insecure_single_tenant: AtomicBool,
    /// Those that were left are among them: their sessions go on.
    regions: ArcSwap<Vec<Arc<Here>>>,
    tasks: Mutex<Vec<AbortHandle>>,
}

/// A region that is served.
struct Here {
    region: Region,
    /// Its place in the list of the broker.
    number: u16,
    pool: Arc<dyn Pool>,
    /// `None`: it is left.
    source: watch::Sender<Option<Source>>,
    bounds: watch::Sender<Option<Bounds>>,
    backend: watch::Sender<Kind>,
    want: watch::Receiver<Want>,
    known: Arc<ArcSwap<Known>>,
    counts: Arc<ArcSwap<Counts>>,
}

impl Served {
    /// Serves what is in `pools`. Has to be called on the runtime that it is to run on.
    pub(super) fn begin(
        pools: Pools,
        browsers: &settings::Browsers,
        accounts: Vec<Account>,
        program: &Path,
        own: &watch::Receiver<Vec<SocketAddr>>,
    ) -> Option<Served> {
        let hosts = Arc::new(Hosts::default());
        let of_broker = pools.iter().map(|(_, pool)| listed(pool));
        let broker = Broker::new(of_broker.collect(), Settings::default())?;
        let of_sessions = pools.iter().map(|(_, pool)| Arc::clone(pool));
        let sessions = Sessions::new(of_sessions.collect(), Arc::clone(&hosts));
        let front = Arc::new(Front::new(broker, sessions));
        let served = Served {
            binding: Binding::new(Arc::clone(&front), accounts),
            front,
            runtime: Handle::current(),
            program: program.to_owned(),
            own: own.clone(),
            hosts,
            insecure_single_tenant: AtomicBool::new(browsers.insecure_single_tenant),
            regions: ArcSwap::default(),
            tasks: Mutex::default(),
        };
        for ((region, pool), number) in pools.into_iter().zip(0..) {
            served.attach(region, number, pool, browsers);
        }
        Some(served)
    }

    /// Begins to see to a region that the broker knows by `number`.
    fn attach(
        &self,
        region: Region,
        number: u16,
        pool: Arc<dyn Pool>,
        browsers: &settings::Browsers,
    ) {
        let wanted = browsers.pools.get(&region);
        let source = wanted.map(|it| source(browsers, region, it, &self.program));
        let bounds = wanted.map(bounds);
        let (want, wanting) = watch::channel(Want {
            ready: bounds.map_or(0, |bounds| bounds.min_ready),
            most: None,
        });
        self.front.broker().want(number, want.borrow().ready);
        let here = Arc::new(Here {
            region,
            number,
            source: watch::Sender::new(source),
            bounds: watch::Sender::new(bounds),
            backend: watch::Sender::new(wanted.map(|it| it.backend).unwrap_or_default()),
            want: wanting,
            known: Arc::default(),
            counts: Arc::default(),
            pool,
        });
        let starts = Arc::default();
        let watch = Watch {
            region,
            number,
            pool: Arc::clone(&here.pool),
            front: Arc::clone(&self.front),
            hosts: Arc::clone(&self.hosts),
            want: here.want.clone(),
            starts: Arc::clone(&starts),
            own: self.own.clone(),
            known: Arc::clone(&here.known),
            source: here.source.subscribe(),
        };
        let size = Size {
            number,
            pool: Arc::clone(&here.pool),
            front: Arc::clone(&self.front),
            bounds: here.bounds.subscribe(),
            starts,
            known: Arc::clone(&here.known),
            counts: Arc::clone(&here.counts),
            want,
        };
        let reaping = reap(Arc::clone(&here.pool), number, Arc::clone(&self.hosts));
        let begun = [
            self.runtime.spawn(watch.run()).abort_handle(),
            self.runtime.spawn(size.run()).abort_handle(),
            self.runtime.spawn(reaping).abort_handle(),
        ];
        self.tasks().extend(begun);
        self.regions.rcu(|regions| {
            let mut regions = Vec::clone(regions);
            regions.push(Arc::clone(&here));
            regions
        });
    }

    fn tasks(&self) -> MutexGuard<'_, Vec<AbortHandle>> {
        // It is whole after each statement.
        self.tasks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The regions among `wanted` whose pools are not open yet.
    pub(super) fn lacks(&self, wanted: &settings::Browsers) -> Vec<Region> {
        let regions = self.regions.load();
        let has = |region: &Region| regions.iter().any(|here| here.region == *region);
        let wanted = wanted.pools.keys().copied();
        wanted.filter(|region| !has(region)).collect()
    }

    /// Serves what `browsers` says from now on, with the pools that are new. No session is cut: those of
    /// a region that is left, or whose host is to be another one, go on to their end.
    pub(super) fn change(
        &self,
        browsers: &settings::Browsers,
        accounts: Vec<Account>,
        pools: Pools,
    ) {
        self.binding.accounts(accounts);
        self.insecure_single_tenant
            .store(browsers.insecure_single_tenant, Ordering::Relaxed);
        for here in self.regions.load().iter() {
            let wanted = browsers.pools.get(&here.region);
            if let Some(wanted) = wanted {
                here.backend.send_replace(wanted.backend);
            }
            let source = wanted.map(|it| source(browsers, here.region, it, &self.program));
            self.front.broker().open(here.number, wanted.is_some());
            settle(&here.bounds, wanted.map(bounds));
            settle(&here.source, source);
        }
        let _there = self.runtime.enter();
        for (region, pool) in pools {
            let number = self.front.broker().add(listed(&pool));
            self.front.carried().add(Arc::clone(&pool));
            self.attach(region, number, pool, browsers);
        }
    }

    /// The code of the region that the broker knows by this number.
    pub(super) fn code(&self, number: u16) -> Option<&'static str> {
        let regions = self.regions.load();
        let found = regions.iter().find(|here| here.number == number);
        found.map(|here| here.region.code())
    }

    pub(super) fn standing(&self) -> Vec<RegionStanding> {
        let counted = self.front.broker().tally().counted();
        let standing = |here: &Arc<Here>| {
            let (known, counts) = (here.known.load(), here.counts.load());
            let source = here.source.borrow();
            let left = source.is_none();
            // Once nothing of it is there, it was never here.
            (!left || !counts.list.is_empty()).then(|| RegionStanding {
                region: here.region,
                backend: *here.backend.borrow(),
                slots: known.slots,
                there: known.since.map(|since| since.elapsed()),
                wanted: here.want.borrow().ready,
                min_ready: (*here.bounds.borrow()).map_or(0, |bounds| bounds.min_ready),
                counts: counts.list.clone(),
                figures: here.pool.figures(),
                trouble: known.trouble.clone().or(counts.trouble.clone()),
                warnings: known.warnings.clone(),
                insecure_single_tenant: self.insecure_single_tenant.load(Ordering::Relaxed),
                sessions: counts.sessions.clone(),
                heard: self.hosts.heard(here.number),
                drew: self.hosts.drew(here.number),
                counted: (counted.get(usize::from(here.number)).cloned()).unwrap_or_default(),
            })
        };
        self.regions.load().iter().filter_map(standing).collect()
    }

    /// Stops speaking for the hosts and lets the next process have the pools. Hosts go on, as do
    /// clients that are connected.
    pub(super) async fn let_go(&self) {
        self.tasks().iter().for_each(AbortHandle::abort);
        for here in self.regions.load_full().iter() {
            if let Err(error) = here.pool.stop().await {
                tracing::warn!(%error, "a pool was not closed");
            }
        }
    }

    /// Has hosts of ours end that nobody has a session on.
    pub(super) async fn retire(&self) {
        for here in self.regions.load_full().iter() {
            let source = here.source.borrow().clone();
            let Some(source @ Source::Ours { .. }) = source else {
                continue;
            };
            let asked = timeout(RETIRE_MAX, async {
                let mut caller = Caller::connect(&source.socket()).await?;
                retire(&mut caller).await
            });
            if let Ok(Ok(false)) = asked.await {
                tracing::info!(
                    "the browser host of {} goes on with its sessions for up to {ALONE_MAX:?}",
                    here.region
                );
            }
        }
    }
}

impl fmt::Debug for Served {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Served")
            .field("standing", &self.standing())
            .finish_non_exhaustive()
    }
}

fn source(
    browsers: &settings::Browsers,
    region: Region,
    wanted: &settings::BrowserPool,
    program: &Path,
) -> Source {
    match &wanted.socket {
        Some(socket) => Source::Others(socket.clone()),
        None => Source::Ours {
            program: program.to_owned(),
            folder: browsers.folder.join(region.code()),
            manner: Manner {
                backend: wanted.backend,
                insecure_single_tenant: browsers.insecure_single_tenant,
                max: wanted.max,
                chromium: browsers.chromium.clone(),
                alone_max: Some(ALONE_MAX),
            },
        },
    }
}

fn bounds(wanted: &settings::BrowserPool) -> Bounds {
    Bounds {
        min_ready: wanted.min_ready,
        max_ready: wanted.max_ready,
    }
}

fn listed(pool: &Arc<dyn Pool>) -> usher_broker::Region {
    usher_broker::Region {
        pool: Arc::clone(pool),
        client_to_broker: Duration::ZERO,
    }
}
