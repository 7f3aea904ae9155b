//! How many browsers a region is to have ready, from what was wished for and how long starts take.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwap;
use tokio::sync::watch;
use tokio::time::{Instant, MissedTickBehavior, interval};
use usher_broker::Want;
use usher_broker::wire::Front;
use usher_core::lease::browser::Phase;
use usher_core::lease::warm::{self, Demand, Sizer, Stand, Starts};
use usher_pool::{Count, Pool, SessionView};

use super::figures::SESSIONS_MAX;
use super::settle;
use super::watch::Known;

/// How often it is looked up how a region stands, and what it is to have.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Wishes that are counted of one look: more of them ask for no more browsers.
const WISHES_MAX: u64 = 10_000;

/// What a pool last said.
#[derive(Debug, Default)]
pub(super) struct Counts {
    pub(super) list: Vec<Count>,
    pub(super) sessions: Vec<SessionView>,
    pub(super) trouble: Option<String>,
}

/// What the operator says of a region.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Bounds {
    pub(super) min_ready: u32,
    /// `None`: as many as there may be.
    pub(super) max_ready: Option<u32>,
}

/// Who sizes one region.
pub(super) struct Size {
    /// The region's place in the list of the broker.
    pub(super) number: u16,
    pub(super) pool: Arc<dyn Pool>,
    pub(super) front: Arc<Front>,
    /// `None`: the region is left.
    pub(super) bounds: watch::Receiver<Option<Bounds>>,
    pub(super) starts: Arc<Mutex<Starts>>,
    pub(super) known: Arc<ArcSwap<Known>>,
    pub(super) counts: Arc<ArcSwap<Counts>>,
    pub(super) want: watch::Sender<Want>,
}

impl Size {
    /// Sizes it until this is dropped.
    pub(super) async fn run(mut self) {
        let mut demand = Demand::new(crate::wall());
        let (mut sizer, mut seen) = (Sizer::default(), 0);
        let mut last = Instant::now();
        let mut ticks = interval(LOOK_EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                _ = ticks.tick() => {}
                Ok(()) = self.bounds.changed() => {}
            }
            let looked = (self.pool.counts().await, self.pool.live(SESSIONS_MAX).await);
            let counts = match looked {
                (Ok(list), Ok(sessions)) => Counts {
                    list,
                    sessions,
                    trouble: None,
                },
                (Err(error), _) | (_, Err(error)) => Counts {
                    list: Vec::new(),
                    sessions: Vec::new(),
                    trouble: Some(error.to_string()),
                },
            };
            let wished = self.front.broker().wished(self.number);
            for _ in 0..(wished - seen).min(WISHES_MAX) {
                demand.picked(crate::wall());
            }
            seen = wished;
            let passed = last.elapsed();
            last = Instant::now();
            if counts.trouble.is_none() {
                let want = self.size(&mut demand, &mut sizer, &counts.list, passed);
                self.front.broker().want(self.number, want.ready);
                settle(&self.want, want);
            }
            self.counts.store(Arc::new(counts));
        }
    }

    fn size(
        &mut self,
        demand: &mut Demand,
        sizer: &mut Sizer,
        counts: &[Count],
        passed: Duration,
    ) -> Want {
        let Some(bounds) = *self.bounds.borrow_and_update() else {
            return Want {
                ready: 0,
                most: Some(0),
            };
        };
        let slots = self.known.load().slots;
        let of = |phase| {
            let counts = counts.iter().filter(|count| count.phase == phase);
            counts.map(|count| count.count).sum::<u32>()
        };
        let (ready, starting) = (of(Phase::Ready), of(Phase::Starting));
        let all: u32 = counts.iter().map(|count| count.count).sum();
        let start = self
            .starts
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .p95();
        let bounds = warm::Bounds {
            ready_min: bounds.min_ready,
            ready_max: bounds.max_ready.unwrap_or(slots),
        };
        let wanted = warm::want(demand.rate(crate::wall()), start, bounds);
        let stand = Stand {
            ready,
            // The host replaces those that are old.
            stale: 0,
            starting,
            free: slots.saturating_sub(all),
            // So it does how many it may begin.
            launches: u32::MAX,
        };
        let retire = sizer.order(wanted, stand, passed).retire;
        Want {
            ready: wanted,
            most: (retire > 0).then(|| ready + starting - retire),
        }
    }
}
