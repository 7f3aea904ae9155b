//! The browsers of this node: their hosts, their pools, and who may have them.
//!
//! Browsers belong to a process of their own ([`host()`]), one for each region, which outlives this
//! one and is found again by its socket; `watch` finds or starts it and carries what it says to the
//! region's pool, and `size` says how many are to be ready. `served` is all of that together, behind
//! one `usher_broker::wire::Front`; `keeper` is how the node begins, changes and ends it. What others
//! may ask is [`Browsers`], and `api` is how programs with a token ask.
//!
//! They have threads of their own: bytes between a client and its browser take nothing from the
//! fronts, and a configuration that is being checked takes nothing from them.
//!
//! One process at a time has a pool. One that follows another listens before that, and those who
//! come wait in the listen queue until the process before has let go.

mod api;
pub(crate) mod figures;
mod host;
mod keeper;
mod manner;
mod served;
mod size;
mod watch;

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use tokio::runtime::Handle;
use tokio::sync::watch as latest;
use tokio::time::timeout;
use usher_broker::wire::{Account, Front};
use usher_broker::{Counted, Heard, REFUSALS, Standing};
use usher_browsers::settings::Kind;
use usher_core::id::Id;
use usher_core::lease::SessionId;
use usher_core::region::Region;
use usher_pool::{Count, Figures, SessionView};

pub(crate) use api::Asking;
pub use host::{HostFault, host};
pub(crate) use keeper::{Keeper, Prepared};
pub use manner::Manner;
use served::Served;

/// How long somebody waits for pools that another process has: a hand-over takes less.
const ARRIVAL_MAX: Duration = Duration::from_secs(2);

/// The browsers of this node, as the API and those who watch it see them.
#[derive(Debug, Default)]
pub struct Browsers {
    accounts: ArcSwap<Vec<Arc<Account>>>,
    served: latest::Sender<Stage>,
}

/// Says so to those who listen, if it is new.
fn settle<T: PartialEq>(known: &latest::Sender<T>, now: T) {
    known.send_if_modified(|known| {
        let changed = *known != now;
        *known = now;
        changed
    });
}

/// How far it is.
#[derive(Debug, Clone, Default)]
enum Stage {
    /// None are configured.
    #[default]
    Off,
    /// Another process has them.
    Comes,
    /// They are here.
    Here(Arc<Served>),
}

/// How a region stands.
#[derive(Debug, Clone)]
pub struct RegionStanding {
    /// Which.
    pub region: Region,
    /// How its browsers are run.
    pub backend: Kind,
    /// How many there may be; 0 while it has no host.
    pub slots: u32,
    /// Since its host was found; `None` while there is none.
    pub there: Option<Duration>,
    /// How many are to be ready.
    pub wanted: u32,
    /// How many the file says are to be ready at least.
    pub min_ready: u32,
    /// How many stand where, as of a second ago; dead ones are left out.
    pub counts: Vec<Count>,
    /// How heartbeats fare.
    pub figures: Figures,
    /// Why it has no host, or the pool does not answer.
    pub trouble: Option<String>,
    /// What an operator should know of its host.
    pub warnings: Vec<String>,
    /// Whether its browsers may run without a sandbox.
    pub insecure_single_tenant: bool,
    /// Sessions that live, newest first, 500 at most; of a second ago.
    pub sessions: Vec<SessionView>,
    /// What its host counted.
    pub heard: Option<Heard>,
    /// Since one of its browsers drew a page.
    pub drew: Option<Duration>,
    /// What was counted here.
    pub counted: Counted,
}

/// What is counted for all regions together.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Carried {
    /// Wishes that were refused, in the order of [`REFUSALS`].
    refusals: [u64; REFUSALS.len()],
    /// Bytes to browsers and from them.
    bytes: (u64, u64),
    /// Messages that were left out.
    left_out: u64,
}

impl Browsers {
    /// Whether any are configured.
    #[must_use]
    pub fn are_configured(&self) -> bool {
        !matches!(*self.served.borrow(), Stage::Off)
    }

    /// The accounts, the one called `default` among them.
    #[must_use]
    pub fn accounts(&self) -> Arc<Vec<Arc<Account>>> {
        self.accounts.load_full()
    }

    /// The account with this id.
    #[must_use]
    pub fn account(&self, id: Id) -> Option<Arc<Account>> {
        let accounts = self.accounts.load();
        accounts.iter().find(|account| account.id == id).cloned()
    }

    /// What answers requests for browsers, and the runtime on which it is to be asked; `None` where
    /// none are configured, or another process has kept them for too long.
    pub async fn front(&self) -> Option<(Arc<Front>, Handle)> {
        let mut served = self.served.subscribe();
        let settled = served.wait_for(|stage| !matches!(stage, Stage::Comes));
        let stage = timeout(ARRIVAL_MAX, settled).await.ok()?.ok()?;
        match &*stage {
            Stage::Here(served) => Some((Arc::clone(&served.front), served.runtime.clone())),
            Stage::Off | Stage::Comes => None,
        }
    }

    /// How each region stands, by code. Looked up once a second, so asking costs nothing.
    #[must_use]
    pub fn standing(&self) -> Vec<RegionStanding> {
        let served = self.served();
        served.map_or(Vec::new(), |served| served.standing())
    }

    /// Who waits for a browser.
    #[must_use]
    pub fn waiting(&self) -> Vec<Standing> {
        let served = self.served();
        served.map_or(Vec::new(), |served| served.front.broker().standing())
    }

    /// How many clients are connected to browsers through this process.
    #[must_use]
    pub fn clients(&self) -> usize {
        let served = self.served();
        served.map_or(0, |served| served.front.carried().clients())
    }

    /// How many clients are connected to a session through this process.
    pub(crate) fn clients_of(&self, session: SessionId) -> usize {
        let served = self.served();
        served.map_or(0, |served| served.front.carried().clients_of(session))
    }

    /// What an account is called; its id where it is not in the configuration any more.
    pub(crate) fn name(&self, account: Id) -> String {
        let known = self.account(account);
        known.map_or_else(|| account.to_string(), |known| known.name.clone())
    }

    /// What went through this process, and what was refused here.
    pub(crate) fn carried(&self) -> Carried {
        let carried = self.served().map(|served| Carried {
            refusals: served.front.broker().tally().refusals(),
            bytes: served.front.carried().traffic(),
            left_out: served.front.carried().left_out(),
        });
        carried.unwrap_or_default()
    }

    /// The code of the region that the broker knows by this number.
    pub(crate) fn code(&self, number: u16) -> Option<&'static str> {
        self.served()?.code(number)
    }

    fn served(&self) -> Option<Arc<Served>> {
        match &*self.served.borrow() {
            Stage::Here(served) => Some(Arc::clone(served)),
            Stage::Off | Stage::Comes => None,
        }
    }
}
