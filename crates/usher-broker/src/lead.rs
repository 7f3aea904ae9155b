//! One request, led to its end by a task of its own.
//!
//! Each state of the machine has one question under way at most. When the caller leaves, the task
//! says so to the machine and hears out what was asked, because the answer may bring a browser.

use std::future::pending;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::{Instant, timeout, timeout_at};
use usher_core::lease::SessionId;
use usher_core::lease::acquire::{Event, Order, State};
use usher_core::lease::browser::PICKED_MAX;
use usher_core::lease::close::CloseReason;
use usher_core::lease::line::Class;
use usher_core::lease::refusal::Refusal;
use usher_core::lease::region::{Picked, Wish};

use crate::ask::{Ask, Node, Work};
use crate::broker::{Offer, Shared};
use crate::chance;
use crate::queue::{Stood, Turn};

/// How long a pool is waited for; it refuses by itself before that.
const POOL_MAX: Duration = Duration::from_secs(5);

/// How long a node is waited for that is told to end a browser.
const CLOSE_MAX: Duration = Duration::from_secs(5);

/// What a question brought.
struct Heard {
    event: Event,
    /// Where the browser is.
    region: Option<u16>,
    /// The right to pick, where the line gave it.
    turn: Option<Turn>,
    /// The limit that was reached.
    refusal: Option<Refusal>,
}

impl From<Event> for Heard {
    fn from(event: Event) -> Heard {
        Heard {
            event,
            region: None,
            turn: None,
            refusal: None,
        }
    }
}

pub(crate) struct Lead {
    pub(crate) shared: Arc<Shared>,
    pub(crate) ask: Ask,
    pub(crate) node: Arc<dyn Node>,
    /// Who asked is there as long as this says nothing.
    pub(crate) left: oneshot::Receiver<()>,
    pub(crate) answer: Option<oneshot::Sender<Result<Offer, Refusal>>>,
    pub(crate) session: SessionId,
    pub(crate) region: u16,
    pub(crate) since: Option<Instant>,
    pub(crate) turn: Option<Turn>,
    pub(crate) refusal: Option<Refusal>,
    /// The account has paid, as far as is known.
    pub(crate) charged: bool,
    /// Whether its wish was counted.
    pub(crate) counted: bool,
    /// Its place, once it stands in line.
    pub(crate) stood: Arc<OnceLock<Stood>>,
    /// When it was asked for.
    pub(crate) began: Instant,
}

impl Lead {
    pub(crate) async fn run(mut self) {
        let mut state = State::Admitting;
        let mut question = self.admit();
        let mut gone = false;
        while state != State::Over {
            // The answer that is being written says itself whether its reader has gone.
            let deaf = gone || matches!(state, State::Answering { .. });
            let heard = tokio::select! {
                heard = &mut question => {
                    question = Box::pin(pending());
                    heard
                }
                _ = &mut self.left, if !deaf => {
                    gone = true;
                    Heard::from(Event::Left)
                }
            };
            self.charged |= heard.event == Event::Admitted && !self.ask.paid;
            self.region = heard.region.unwrap_or(self.region);
            self.refusal = heard.refusal.or(self.refusal);
            self.turn = heard.turn.or(self.turn.take());
            let (next, orders) = state.next(heard.event);
            state = next;
            for order in orders {
                if let Some(asked) = self.carry_out(order).await {
                    question = asked;
                }
            }
        }
    }

    /// Does what is ordered; a question is given back.
    async fn carry_out(&mut self, order: Order) -> Option<Work<'static, Heard>> {
        let (account, limits) = (self.ask.account, self.ask.limits);
        let home = Arc::clone(&self.shared.home);
        let has_place = self.ask.class == Class::Session;
        match order {
            Order::Pick { attempt } => return Some(self.pick(attempt)),
            Order::Wait => return Some(self.wait()),
            // Its question is dropped when the next is asked, and its place with it.
            Order::LeaveLine => return Some(Box::pin(pending())),
            Order::Prepare(picked) => return Some(self.prepare(picked)),
            Order::Mark(picked) => return Some(self.mark(picked)),
            Order::Answer(picked) => return Some(self.offer(picked)),
            Order::RefuseLimits => {
                let refusal = self.refusal.unwrap_or_else(capacity);
                self.refuse(refusal);
            }
            Order::RefuseCapacity => self.refuse(capacity()),
            Order::Close(picked) => self.close(picked).await,
            Order::HandOn(picked) => {
                let next = SessionId(chance::name());
                if has_place {
                    heed(home.hand_on(account, limits, picked.session, next).await);
                }
                self.session = next;
            }
            Order::Refund if has_place => {
                heed(home.refund(account, limits, self.session).await);
            }
            // A second time would not be known as one.
            Order::Refund if std::mem::take(&mut self.charged) => {
                heed(home.refund_quick_action(account, limits).await);
            }
            Order::Release if has_place => {
                let session = self.session;
                heed(home.release(account, session, Duration::ZERO).await);
            }
            Order::Refund | Order::Release => {}
        }
        None
    }

    fn refuse(&mut self, refusal: Refusal) {
        if let Some(answer) = self.answer.take() {
            self.shared.tally.refused(&refusal);
            // Nobody there to hear it is no fault.
            let _ = answer.send(Err(refusal));
        }
    }

    fn admit(&self) -> Work<'static, Heard> {
        let (home, ask, session) = (Arc::clone(&self.shared.home), self.ask, self.session);
        Box::pin(async move {
            let admitted = match ask.class {
                _ if ask.paid => Box::pin(async { Ok(Ok(())) }),
                Class::Session => home.admit(ask.account, ask.limits, session),
                Class::QuickAction | Class::Crawl => {
                    home.admit_quick_action(ask.account, ask.limits)
                }
            };
            match timeout(POOL_MAX, admitted).await {
                Ok(Ok(Ok(()))) => Event::Admitted.into(),
                Ok(Ok(Err(refusal))) => Heard {
                    refusal: Some(refusal),
                    ..Event::NotAdmitted.into()
                },
                Ok(Err(_)) | Err(_) => Event::NoAnswer.into(),
            }
        })
    }

    fn pick(&mut self, attempt: u8) -> Work<'static, Heard> {
        let (shared, ask, turn) = (Arc::clone(&self.shared), self.ask, self.turn.take());
        let first = !std::mem::replace(&mut self.counted, true);
        let node = Arc::clone(&self.node);
        let wish = Wish {
            request: ask.request,
            attempt,
            session: self.session,
            account: ask.account,
            stock: ask.stock,
            class: ask.class,
            keep_alive: ask.keep_alive,
        };
        Box::pin(async move {
            let ranked = shared.ranked(&ask, &*node);
            if let Some(&best) = ranked.first().filter(|_| first) {
                shared.wish(best);
            }
            // Whoever was called goes before those who wait; all others go behind them.
            if turn.is_none() && !shared.may_pick(&ask).await {
                return Event::NoneReady.into();
            }
            let told = shared.queue.told(ask.stock);
            let mut unanswered = false;
            for region in ranked {
                let pool = shared.pool(region);
                let picked = pool.pick(wish, chance::draw());
                match timeout(POOL_MAX, picked).await {
                    Ok(Ok(Some(picked))) => {
                        shared.tally.picked(region, true);
                        shared.queue.picked(ask.stock, true, told);
                        return Heard {
                            region: Some(region),
                            ..Event::Picked(picked).into()
                        };
                    }
                    Ok(Ok(None)) => shared.tally.picked(region, false),
                    Ok(Err(_)) | Err(_) => unanswered = true,
                }
            }
            drop(turn);
            if unanswered {
                return Event::NoAnswer.into();
            }
            shared.queue.picked(ask.stock, false, told);
            Event::NoneReady.into()
        })
    }

    fn wait(&mut self) -> Work<'static, Heard> {
        let since = *self.since.get_or_insert_with(Instant::now);
        let (shared, ask) = (Arc::clone(&self.shared), self.ask);
        let stood = Arc::clone(&self.stood);
        Box::pin(async move {
            if !shared.may_come(&ask) {
                return Event::NotCalled.into();
            }
            let has_browser = shared.has_browser(&ask).await;
            let Some(mut stand) = shared.queue.join(&ask, has_browser, since) else {
                return Event::NotCalled.into();
            };
            // Called in vain it stands there again, and what it was told first holds.
            stood.get_or_init(|| stand.stood);
            match timeout_at(stand.until, &mut stand.call).await {
                Ok(Ok(turn)) => Heard {
                    turn: Some(turn),
                    ..Event::Called.into()
                },
                Ok(Err(_)) | Err(_) => Event::NotCalled.into(),
            }
        })
    }

    fn prepare(&self, picked: Picked) -> Work<'static, Heard> {
        let (node, region) = (Arc::clone(&self.node), self.region);
        Box::pin(async move {
            let prepared = timeout(PICKED_MAX, node.prepare(region, picked)).await;
            match prepared.unwrap_or(false) {
                true => Event::Prepared.into(),
                false => Event::NotPrepared.into(),
            }
        })
    }

    fn mark(&self, picked: Picked) -> Work<'static, Heard> {
        let pool = self.shared.pool(self.region);
        Box::pin(async move {
            let marked = pool.acknowledge(picked.browser, picked.epoch);
            match timeout(POOL_MAX, marked).await {
                Ok(Ok(Ok(()))) => Event::Marked.into(),
                Ok(Ok(Err(_))) => Event::NotMarked.into(),
                Ok(Err(_)) | Err(_) => Event::NoAnswer.into(),
            }
        })
    }

    fn offer(&mut self, picked: Picked) -> Work<'static, Heard> {
        let (written, writes) = oneshot::channel();
        self.shared.begun(self.region, &self.ask, picked.session);
        let (waited, took) = (self.since.is_some(), self.began.elapsed());
        self.shared.tally.acquired(self.region, waited, took);
        let offer = Offer::new(picked, self.region, written);
        let answer = self.answer.take();
        let sent = answer.is_some_and(|answer| answer.send(Ok(offer)).is_ok());
        Box::pin(async move {
            match writes.await {
                Ok(()) if sent => Event::Written.into(),
                _ => Event::Left.into(),
            }
        })
    }

    /// Ends the browser, at its node and in the pool; either may not hear of it.
    async fn close(&self, picked: Picked) {
        let (node, region, reason) = (
            Arc::clone(&self.node),
            self.region,
            CloseReason::NormalClosure,
        );
        tokio::spawn(async move {
            let _ = timeout(CLOSE_MAX, node.close(region, picked, reason)).await;
        });
        let pool = self.shared.pool(region);
        let closed = pool.close(picked.browser, picked.epoch, reason).await;
        heed(closed.map(|_| ()));
    }
}

fn capacity() -> Refusal {
    Refusal::Capacity {
        draw: chance::draw(),
    }
}

/// What could not be given back runs out by itself.
fn heed(done: Result<(), usher_pool::PoolError>) {
    if let Err(error) = done {
        tracing::debug!(%error, "what a request had taken was not given back");
    }
}
