//! All that is needed to give browsers away, put together and taken apart again.

use std::fmt;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::task::AbortHandle;
use tokio::time::{MissedTickBehavior, interval, timeout};
use usher_broker::wire::binding::Binding;
use usher_broker::wire::{Account, Front};
use usher_broker::{Broker, Hosts, Sessions, Settings, reap};
use usher_browsers::host::Caller;
use usher_browsers::settings::Kind;
use usher_core::region::Region;
use usher_pool::sqlite::Sqlite;
use usher_pool::{Clock, Count, Pool, PoolError};

use super::RegionStanding;
use super::manner::{ALONE_MAX, Manner};
use super::watch::{Known, Source, Watch, retire};
use crate::settings;

/// How often it is looked up how regions stand.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// For a host to hear that it may end.
const RETIRE_MAX: Duration = Duration::from_secs(1);

/// The pools of a node, each with its region.
pub(super) type Pools = Vec<(Region, Arc<dyn Pool>)>;

/// Opens the pools that `browsers` names; waits for up to `patience` for each that another process
/// has.
pub(super) async fn open(
    browsers: &settings::Browsers,
    patience: Duration,
) -> Result<Pools, PoolError> {
    let mut pools: Pools = Vec::new();
    for &region in browsers.pools.keys() {
        let file = browsers.folder.join(format!("{region}.db"));
        let settings = usher_pool::Settings::default();
        match Sqlite::open(&file, settings, Clock::system(), patience).await {
            Ok(pool) => pools.push((region, Arc::new(pool))),
            Err(error) => {
                for (_, pool) in pools {
                    // It has been asked nothing yet.
                    let _ = pool.stop().await;
                }
                return Err(error);
            }
        }
    }
    Ok(pools)
}

/// Browsers that are served.
pub(super) struct Served {
    pub(super) front: Arc<Front>,
    pub(super) binding: Arc<Binding>,
    pub(super) runtime: Handle,
    regions: Vec<Here>,
    tasks: Vec<AbortHandle>,
}

/// A region that is served.
struct Here {
    region: Region,
    backend: Kind,
    pool: Arc<dyn Pool>,
    source: Source,
    known: Arc<ArcSwap<Known>>,
    counts: Arc<ArcSwap<Counts>>,
    ready: watch::Sender<u32>,
}

/// What a pool last said.
#[derive(Debug, Default)]
struct Counts {
    list: Vec<Count>,
    trouble: Option<String>,
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
        let mut regions = Vec::new();
        let mut tasks = Vec::new();
        for ((region, pool), number) in pools.into_iter().zip(0..) {
            let wanted = browsers.pools.get(&region)?;
            let source = source(browsers, region, wanted, program);
            let (ready, wanting) = watch::channel(wanted.min_ready);
            let known = Arc::new(ArcSwap::default());
            let watch = Watch {
                region,
                number,
                pool: Arc::clone(&pool),
                hosts: Arc::clone(&hosts),
                ready: wanting,
                own: own.clone(),
                known: Arc::clone(&known),
                source: source.clone(),
            };
            tasks.push(tokio::spawn(watch.run()).abort_handle());
            let reaping = reap(Arc::clone(&pool), number, Arc::clone(&hosts));
            tasks.push(tokio::spawn(reaping).abort_handle());
            let counts = Arc::new(ArcSwap::default());
            let looking = look(Arc::clone(&pool), Arc::clone(&counts));
            tasks.push(tokio::spawn(looking).abort_handle());
            regions.push(Here {
                region,
                backend: wanted.backend,
                pool,
                source,
                known,
                counts,
                ready,
            });
        }
        let of_broker = regions.iter().map(|here| usher_broker::Region {
            pool: Arc::clone(&here.pool),
            client_to_broker: Duration::ZERO,
            broker_to_node: Duration::ZERO,
        });
        let ready_wanted = regions.iter().map(|here| *here.ready.borrow()).sum();
        let broker = Broker::new(of_broker.collect(), Settings { ready_wanted })?;
        let pools = regions.iter().map(|here| Arc::clone(&here.pool));
        let front = Arc::new(Front::new(broker, Sessions::new(pools.collect(), hosts)));
        Some(Served {
            binding: Binding::new(Arc::clone(&front), accounts),
            front,
            runtime: Handle::current(),
            regions,
            tasks,
        })
    }

    /// Takes in what may change while it serves.
    pub(super) fn change(&self, browsers: &settings::Browsers, accounts: Vec<Account>) {
        self.binding.accounts(accounts);
        for here in &self.regions {
            if let Some(wanted) = browsers.pools.get(&here.region) {
                here.ready.send_replace(wanted.min_ready);
            }
        }
        let wanted = self.regions.iter().map(|here| *here.ready.borrow());
        self.front.broker().want(wanted.sum());
    }

    pub(super) fn standing(&self) -> Vec<RegionStanding> {
        let standing = |here: &Here| {
            let (known, counts) = (here.known.load(), here.counts.load());
            RegionStanding {
                region: here.region,
                backend: here.backend,
                slots: known.slots,
                wanted: *here.ready.borrow(),
                counts: counts.list.clone(),
                figures: here.pool.figures(),
                distance: known.distance,
                trouble: known.trouble.clone().or(counts.trouble.clone()),
                warnings: known.warnings.clone(),
            }
        };
        self.regions.iter().map(standing).collect()
    }

    /// Stops speaking for the hosts and lets the next process have the pools. Hosts go on, as do
    /// clients that are connected.
    pub(super) async fn let_go(&self) {
        self.tasks.iter().for_each(AbortHandle::abort);
        for here in &self.regions {
            if let Err(error) = here.pool.stop().await {
                tracing::warn!(%error, "a pool was not closed");
            }
        }
    }

    /// Has hosts of ours end that nobody has a session on.
    pub(super) async fn retire(&self) {
        for here in &self.regions {
            if let Source::Others(_) = here.source {
                continue;
            }
            let asked = timeout(RETIRE_MAX, async {
                let mut caller = Caller::connect(&here.source.socket()).await?;
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

/// Looks up how a pool stands until it is dropped.
async fn look(pool: Arc<dyn Pool>, counts: Arc<ArcSwap<Counts>>) {
    let mut ticks = interval(LOOK_EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let looked = match pool.counts().await {
            Ok(list) => Counts {
                list,
                trouble: None,
            },
            Err(error) => Counts {
                list: Vec::new(),
                trouble: Some(error.to_string()),
            },
        };
        counts.store(Arc::new(looked));
    }
}
