//! What one account has and may still have: the home of its limits.
//!
//! All of it is judged and charged in one step, so that two brokers cannot both spend the last
//! token. Who is refused is charged nothing. A slot is a claim that runs out by itself: whoever dies
//! holding one gives it back by doing nothing.
//!
//! Source: browser specification 9.2, 9.3, 11.4.

use std::collections::BTreeMap;
use std::time::Duration;

use super::SessionId;
use super::bucket::Bucket;
use super::limits::Limits;
use super::refusal::Refusal;
use super::window::Window;
use crate::time::Wall;

/// How long a slot holds before its session is said to live.
pub const SLOT_UNCONFIRMED: Duration = Duration::from_secs(30);
/// How long it holds after each sign of life.
pub const SLOT_CONFIRMED: Duration = Duration::from_secs(90);

const DAY_MS: i64 = 86_400_000;

/// What an account has.
#[derive(Debug, Clone)]
pub struct Account {
    limits: Limits,
    browsers: Bucket,
    minute: Window,
    quick_actions: Bucket,
    /// Sessions, and until when each counts unless it is confirmed.
    slots: BTreeMap<SessionId, Wall>,
    /// Days since 1970, and the milliseconds used on that day.
    used: (i64, u64),
}

/// What an account has, in the parts that a store keeps.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kept {
    /// Tokens for new sessions.
    pub browsers: Bucket,
    /// The last new sessions.
    pub minute: Window,
    /// Tokens for quick actions.
    pub quick_actions: Bucket,
    /// Sessions, and until when each counts unless it is confirmed.
    pub slots: BTreeMap<SessionId, Wall>,
    /// Days since 1970, and the milliseconds used on that day.
    pub used: (i64, u64),
}

impl Account {
    /// The account that [`Account::kept`] told of.
    #[must_use]
    pub fn of_kept(limits: Limits, kept: Kept) -> Account {
        Account {
            limits,
            browsers: kept.browsers,
            minute: kept.minute,
            quick_actions: kept.quick_actions,
            slots: kept.slots,
            used: kept.used,
        }
    }

    /// What it has, as a store keeps it.
    #[must_use]
    pub fn kept(&self) -> Kept {
        Kept {
            browsers: self.browsers,
            minute: self.minute.clone(),
            quick_actions: self.quick_actions,
            slots: self.slots.clone(),
            used: self.used,
        }
    }

    /// An account that has nothing and has used nothing.
    #[must_use]
    pub fn new(limits: Limits, now: Wall) -> Account {
        Account {
            limits,
            browsers: Bucket::full(limits.browsers, now),
            minute: Window::default(),
            quick_actions: Bucket::full(limits.quick_actions, now),
            slots: BTreeMap::new(),
            used: (day(now), 0),
        }
    }

    /// Other limits from now on. What it has it keeps, also above a lowered limit.
    pub fn limit(&mut self, limits: Limits, now: Wall) {
        self.pass(now);
        self.limits = limits;
    }

    /// Lets time pass: slots run out, buckets fill, days begin.
    pub fn pass(&mut self, now: Wall) {
        self.browsers.fill(self.limits.browsers, now);
        self.quick_actions.fill(self.limits.quick_actions, now);
        self.minute.pass(now);
        if self.used.0 != day(now) {
            self.used = (day(now), 0);
        }
        // A clock that went back must not make a claim longer than it ever was.
        let latest = now.after(SLOT_CONFIRMED);
        self.slots.retain(|_, until| {
            *until = (*until).min(latest);
            *until > now
        });
    }

    /// Charges one new session. Repeated for a session that has its slot, it costs nothing.
    ///
    /// # Errors
    /// The first limit that is reached, in the order of the contract: time, sessions, rate.
    pub fn admit(&mut self, session: SessionId, now: Wall) -> Result<(), Refusal> {
        self.pass(now);
        if self.slots.contains_key(&session) {
            return Ok(());
        }
        self.check_day(now)?;
        let limit = self.limits.concurrent;
        if self.slots.len() >= limit as usize {
            return Err(Refusal::Concurrent { limit });
        }
        let wait = self.rate_wait(now);
        if !wait.is_zero() || !self.browsers.take() {
            return Err(Refusal::Rate { wait });
        }
        // Nobody asks for moments that no limit is for.
        if self.limits.browsers_a_minute.is_some() {
            self.minute.grant(now);
        }
        self.slots.insert(session, now.after(SLOT_UNCONFIRMED));
        Ok(())
    }

    /// Charges one quick action, which takes no slot.
    ///
    /// # Errors
    /// The first limit that is reached: time, rate.
    pub fn admit_quick_action(&mut self, now: Wall) -> Result<(), Refusal> {
        self.pass(now);
        self.check_day(now)?;
        if self.quick_actions.take() {
            return Ok(());
        }
        let wait = self.quick_actions.wait(self.limits.quick_actions);
        Err(Refusal::Rate { wait })
    }

    /// A quick action that was admitted got no browser: nothing was bought, nothing is paid.
    pub fn refund_quick_action(&mut self) {
        self.quick_actions.refund(self.limits.quick_actions);
    }

    fn check_day(&self, now: Wall) -> Result<(), Refusal> {
        match self.day_wait(now) {
            Duration::ZERO => Ok(()),
            wait => Err(Refusal::DailyTime { wait }),
        }
    }

    /// How long until there is browser time again: until the next day, once that of this one is used.
    fn day_wait(&self, now: Wall) -> Duration {
        let most = self.limits.a_day.map(|most| most.as_millis());
        if most.is_none_or(|most| u128::from(self.used.1) < most) {
            return Duration::ZERO;
        }
        let midnight = Wall::from_millis((day(now) + 1).saturating_mul(DAY_MS));
        midnight.since(now)
    }

    /// How long until rate and time let another session in; what `limits` tells. After
    /// [`Account::pass`].
    #[must_use]
    pub fn wait(&self, now: Wall) -> Duration {
        self.rate_wait(now).max(self.day_wait(now))
    }

    fn rate_wait(&self, now: Wall) -> Duration {
        let minute = self.limits.browsers_a_minute;
        let minute = minute.map_or(Duration::ZERO, |limit| self.minute.wait(limit, now));
        self.browsers.wait(self.limits.browsers).max(minute)
    }

    /// A session that was admitted got no browser: nothing was bought, nothing is paid.
    pub fn refund(&mut self, session: SessionId) {
        if self.slots.remove(&session).is_some() {
            self.browsers.refund(self.limits.browsers);
            self.minute.refund();
        }
    }

    /// The browser of `failed` never came to be handed over; `next` takes the place that was paid.
    pub fn hand_on(&mut self, failed: SessionId, next: SessionId, now: Wall) {
        if self.slots.remove(&failed).is_some() {
            self.slots.insert(next, now.after(SLOT_UNCONFIRMED));
        }
    }

    /// `session` lives. A slot that has run out meanwhile is there again: the session counts,
    /// whatever the limit is.
    pub fn confirm(&mut self, session: SessionId, now: Wall) {
        self.slots.insert(session, now.after(SLOT_CONFIRMED));
    }

    /// `session` has ended; `billed` is the time that counts.
    pub fn release(&mut self, session: SessionId, billed: Duration, now: Wall) {
        self.slots.remove(&session);
        self.spend(billed, now);
    }

    /// Counts browser time.
    pub fn spend(&mut self, time: Duration, now: Wall) {
        if self.used.0 != day(now) {
            self.used = (day(now), 0);
        }
        let millis = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        self.used.1 = self.used.1.saturating_add(millis);
    }

    /// The sessions that count. After [`Account::pass`].
    pub fn sessions(&self) -> impl ExactSizeIterator<Item = SessionId> + '_ {
        self.slots.keys().copied()
    }

    /// The time that it has used today. After [`Account::pass`].
    #[must_use]
    pub const fn used(&self) -> Duration {
        Duration::from_millis(self.used.1)
    }

    /// What holds for it.
    #[must_use]
    pub const fn limits(&self) -> &Limits {
        &self.limits
    }
}

fn day(now: Wall) -> i64 {
    now.as_millis().div_euclid(DAY_MS)
}

#[cfg(test)]
mod tests {
    use super::super::limits::AccountKind;
    use super::*;

    const fn at(millis: i64) -> Wall {
        Wall::from_millis(millis)
    }

    fn tell(admitted: Result<(), Refusal>) -> (String, u64) {
        admitted.map_or_else(
            |refusal| (refusal.to_string(), refusal.retry_after_secs()),
            |()| ("in".to_owned(), 0),
        )
    }

    #[test]
    fn a_free_account_meets_its_limits_in_order() {
        let mut account = Account::new(Limits::of(AccountKind::Free), at(0));
        let mut ask = |session, millis| tell(account.admit(SessionId(session), at(millis)));
        assert_eq!(ask(1, 0), ("in".to_owned(), 0));
        assert_eq!(ask(1, 1), ("in".to_owned(), 0), "a repeat");
        assert_eq!(ask(2, 1), ("Rate limit exceeded".to_owned(), 20));
        assert_eq!(ask(2, 20_000), ("in".to_owned(), 0));
        account.confirm(SessionId(1), at(29_000));
        account.confirm(SessionId(2), at(29_000));
        let mut ask = |session, millis| tell(account.admit(SessionId(session), at(millis)));
        assert_eq!(ask(3, 40_000), ("in".to_owned(), 0));
        let full = "Too many concurrent browsers: limit is 3".to_owned();
        assert_eq!(ask(4, 60_000), (full.clone(), 5));
        account.spend(Duration::from_secs(600), at(60_000));
        let (text, wait) = tell(account.admit(SessionId(4), at(60_000)));
        assert_eq!(text, "Browser time limit exceeded for today");
        assert_eq!(wait, 86_340);
        assert_eq!(account.wait(at(60_000)), Duration::from_secs(86_340));
        let (text, _) = tell(account.admit_quick_action(at(60_000)));
        assert_eq!(text, "Browser time limit exceeded for today");
        assert_eq!(tell(account.admit(SessionId(4), at(DAY_MS))).0, "in");
    }

    #[test]
    fn sixty_a_minute_and_no_more_however_they_come() {
        let mut account = Account::new(Limits::of(AccountKind::Paygo), at(0));
        let mut granted = Vec::new();
        for millis in (0..600_000).step_by(50) {
            let session = SessionId(millis as u128);
            if account.admit(session, at(millis)).is_ok() {
                granted.push(millis);
                account.release(session, Duration::ZERO, at(millis));
            }
        }
        for (index, &first) in granted.iter().enumerate() {
            let within = granted[index..]
                .iter()
                .filter(|&&grant| grant < first + 60_000);
            assert!(within.count() <= 60, "from {first} ms");
        }
        assert!(granted.len() >= 600, "{}", granted.len());
        assert_eq!(granted.iter().filter(|&&grant| grant == 0).count(), 1);
        assert_eq!(granted[4], 200, "a burst of five");
    }

    #[test]
    fn who_is_refused_or_gets_no_browser_pays_nothing() {
        let mut account = Account::new(Limits::of(AccountKind::Paygo), at(0));
        for session in 0..500 {
            account
                .admit(SessionId(session), at(0))
                .expect("was refunded");
            account.refund(SessionId(session));
            account.refund(SessionId(session));
        }
        for session in 0..5 {
            account.admit(SessionId(session), at(0)).expect("burst");
        }
        for _ in 0..1_000 {
            assert!(account.admit(SessionId(9), at(999)).is_err());
        }
        assert!(account.admit(SessionId(9), at(1_000)).is_ok());
    }

    #[test]
    fn quick_actions_have_a_rate_of_their_own_and_no_slot() {
        let mut account = Account::new(Limits::of(AccountKind::Free), at(0));
        account.admit(SessionId(1), at(0)).expect("first");
        account.admit_quick_action(at(0)).expect("first");
        let (text, wait) = tell(account.admit_quick_action(at(1)));
        assert_eq!((text.as_str(), wait), ("Rate limit exceeded", 10));
        account.refund_quick_action();
        account.admit_quick_action(at(1)).expect("paid back");
        account.refund_quick_action();
        account.refund_quick_action();
        account.admit_quick_action(at(1)).expect("paid back");
        account
            .admit_quick_action(at(1))
            .expect_err("no more than it holds");
        assert_eq!(account.sessions().collect::<Vec<_>>(), [SessionId(1)]);
    }

    #[test]
    fn a_slot_that_nobody_confirms_runs_out() {
        let mut account = Account::new(Limits::of(AccountKind::Free), at(0));
        account.admit(SessionId(1), at(0)).expect("first");
        account.hand_on(SessionId(1), SessionId(2), at(1_000));
        account.pass(at(30_999));
        assert_eq!(account.sessions().collect::<Vec<_>>(), [SessionId(2)]);
        account.confirm(SessionId(2), at(30_999));
        account.pass(at(120_998));
        assert_eq!(account.sessions().len(), 1);
        account.pass(at(120_999));
        assert_eq!(account.sessions().len(), 0);
    }
}
