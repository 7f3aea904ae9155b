//! One page drawn for one request: a browser is taken, the order is carried out next to it, and the
//! browser is gone before the next one comes.
//!
//! The whole order goes to the host in one question, so nobody waits for each message of it from
//! afar. It is led by a task of its own, which lives as long as somebody waits for its outcome: whoever
//! asked may vanish at any moment, and then the host hears that its question was dropped, ends the
//! browser, and the pool is told.
//!
//! A browser or a host that is lost on the way costs the caller time and nothing else: the order is
//! tried once more elsewhere, for the same price. What a page does to itself is not tried again.
//!
//! Source: browser specification 6.1, 6.4, 6.5, 10.

pub(crate) mod cache;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use serde_json::Value;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until, timeout};
use usher_browsers::host::CallerFault;
use usher_browsers::page::Screenshot;
use usher_core::lease::RequestId;
use usher_core::lease::close::CloseReason;
use usher_core::lease::refusal::Refusal;
use usher_core::lease::region::Picked;

use crate::ask::{Ask, Node};
use crate::broker::Shared;
use crate::chance;
use crate::hosts::{Hosts, Prepared, held};

/// Browsers that are tried for one request.
const TRIES: u32 = 2;

/// How long a browser that waits for its order is kept: longer than any order is on its way, and no
/// longer than a browser may be held for a broker that died.
pub(crate) const KEEP_ALIVE: Duration = Duration::from_secs(30);

/// How long a host and a pool are waited for that are told of an end.
const END_MAX: Duration = Duration::from_secs(5);

/// What is wanted.
pub(crate) struct Wanted {
    pub(crate) ask: Ask,
    /// What the page may reach, in the words of the egress proxy.
    pub(crate) policy: Value,
    pub(crate) order: Screenshot,
    /// How long all of it may take.
    pub(crate) ceiling: Duration,
}

/// What became of it.
#[derive(Debug, Clone)]
pub(crate) struct Outcome {
    pub(crate) picture: Result<Bytes, Why>,
    /// How long browsers worked for it.
    pub(crate) used: Duration,
}

/// Why there is no picture.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Why {
    /// There is no browser.
    Refused(Refusal),
    /// The page: a word of [`usher_browsers::page::PageFault::code`], and a text.
    Page { code: String, message: String },
    /// It took longer than it may.
    Ceiling,
    /// Something of ours.
    Ours,
}

impl Why {
    fn page(code: &str, message: impl ToString) -> Why {
        Why::Page {
            code: code.to_owned(),
            message: message.to_string(),
        }
    }

    /// Whether the account pays: for what its page did, not for time that ran out.
    fn is_billed(&self) -> bool {
        match self {
            Why::Page { code, .. } => !code.ends_with("_late"),
            Why::Refused(_) | Why::Ceiling | Why::Ours => false,
        }
    }
}

/// Somebody who waits for an outcome; when the last one is dropped, it is not wanted any more.
#[derive(Debug)]
pub(crate) struct Waiting(watch::Receiver<Option<Arc<Outcome>>>);

impl Waiting {
    /// The outcome, when it is there.
    pub(crate) async fn outcome(&self) -> Arc<Outcome> {
        let mut told = self.0.clone();
        let outcome = told.wait_for(Option::is_some).await;
        let outcome = outcome.ok().and_then(|outcome| outcome.clone());
        outcome.unwrap_or_else(|| {
            Arc::new(Outcome {
                picture: Err(Why::Ours),
                used: Duration::ZERO,
            })
        })
    }

    /// Whether it came to nothing.
    pub(crate) fn has_failed(&self) -> bool {
        let outcome = self.0.borrow();
        outcome
            .as_ref()
            .is_some_and(|outcome| outcome.picture.is_err())
    }
}

/// Has `wanted` drawn.
pub(crate) fn start(shared: Arc<Shared>, hosts: Arc<Hosts>, wanted: Wanted) -> Waiting {
    let (told, waiting) = watch::channel(None);
    let leading = Leading {
        shared,
        hosts,
        wanted,
        held: None,
        used: Duration::ZERO,
        lost: Duration::ZERO,
    };
    tokio::spawn(leading.run(told));
    Waiting(waiting)
}

struct Leading {
    shared: Arc<Shared>,
    hosts: Arc<Hosts>,
    wanted: Wanted,
    /// The browser that works for it, and since when.
    held: Option<(u16, Picked, Instant)>,
    used: Duration,
    /// The part of it that nobody pays.
    lost: Duration,
}

/// What one browser came to.
enum Try {
    Done(Bytes),
    Failed(Why),
    /// It was lost before it was done.
    Lost(Why),
}

impl Leading {
    async fn run(mut self, told: watch::Sender<Option<Arc<Outcome>>>) {
        let deadline = Instant::now() + self.wanted.ceiling;
        let ended = tokio::select! {
            biased;
            picture = self.tries() => Some(picture),
            // Nobody waits any more.
            () = told.closed() => None,
            () = sleep_until(deadline) => Some(Err(Why::Ceiling)),
        };
        // One that was left alone with its order has to be told.
        self.give_back(true);
        let billed = match &ended {
            Some(Ok(_)) | None => true,
            Some(Err(why)) => why.is_billed(),
        };
        if let Some(picture) = ended {
            let used = self.used;
            // Whoever left meanwhile does not hear it.
            let _ = told.send(Some(Arc::new(Outcome { picture, used })));
        }
        let time = self.used.saturating_sub(self.lost);
        if billed && !time.is_zero() {
            let account = self.wanted.ask.account;
            if let Err(error) = self.shared.home.spend(account, time).await {
                tracing::warn!(%error, "the time of a quick action is not counted");
            }
        }
    }

    async fn tries(&mut self) -> Result<Bytes, Why> {
        let mut last = None;
        for attempt in 0..TRIES {
            let node: Arc<dyn Node> = Arc::new(Prepared {
                hosts: Arc::clone(&self.hosts),
                keep_alive: KEEP_ALIVE,
                policy: self.wanted.policy.clone(),
            });
            let ask = Ask {
                request: RequestId(chance::name()),
                paid: attempt > 0,
                ..self.wanted.ask
            };
            let offer = match self.shared.acquire(ask, node).await.1 {
                Ok(offer) => offer,
                Err(refusal) => return Err(last.unwrap_or(Why::Refused(refusal))),
            };
            let (region, picked) = (offer.region, offer.picked);
            self.held = Some((region, picked, Instant::now()));
            // Whoever holds it from here on is this task.
            offer.written();
            let (why, answered) = match self.draw(region, picked).await {
                (Try::Done(picture), _) => {
                    self.give_back(false);
                    return Ok(picture);
                }
                (Try::Failed(why), _) => {
                    self.give_back(false);
                    return Err(why);
                }
                (Try::Lost(why), answered) => (why, answered),
            };
            tracing::debug!(browser = ?picked.browser, ?why, "a quick action lost its browser");
            let worked = self.give_back(!answered);
            self.lost += worked;
            last = Some(why);
        }
        Err(last.unwrap_or(Why::Ours))
    }

    /// Has one browser do it; whether its host answered.
    async fn draw(&self, region: u16, picked: Picked) -> (Try, bool) {
        let drawn = match self.hosts.call(region, picked.node).await {
            Ok(caller) => {
                let order = self.wanted.order.clone();
                caller.screenshot(held(&picked), order).await
            }
            Err(fault) => Err(fault),
        };
        match drawn {
            Ok(picture) => (Try::Done(picture.into()), true),
            Err(CallerFault::Refused { code, message }) => (refused(code, message), true),
            Err(fault) => {
                tracing::warn!(%fault, browser = ?picked.browser, "a browser host was lost");
                (Try::Lost(Why::Ours), false)
            }
        }
    }

    /// The browser has done its work; how long that was. A host that answered ends it by itself.
    fn give_back(&mut self, tell_host: bool) -> Duration {
        let Some((region, picked, since)) = self.held.take() else {
            return Duration::ZERO;
        };
        let worked = since.elapsed();
        self.used += worked;
        let (pool, hosts) = (self.shared.pool(region), Arc::clone(&self.hosts));
        let reason = CloseReason::NormalClosure;
        tokio::spawn(async move {
            let of = (picked.browser, picked.epoch);
            let host = async {
                if tell_host {
                    // Its own deadlines hold where it does not hear.
                    let closed = hosts.close(region, picked.node, of, reason);
                    let _ = timeout(END_MAX, closed).await;
                }
            };
            let row = async {
                if let Err(error) = pool.close(picked.browser, picked.epoch, reason).await {
                    tracing::debug!(%error, "the end of a quick action is not in the pool");
                }
            };
            tokio::join!(host, row);
        });
        worked
    }
}

/// What a host's refusal means.
fn refused(code: String, message: String) -> Try {
    match code.as_str() {
        // The browser's process is gone.
        "gone" | "browser" => Try::Lost(Why::page("gone", "Page crashed!")),
        "browser_late" | "not_yours" | "unknown" | "malformed" | "internal" => {
            tracing::warn!(code, message, "a browser host did not take an order");
            Try::Lost(Why::Ours)
        }
        _ => Try::Failed(Why::Page { code, message }),
    }
}
