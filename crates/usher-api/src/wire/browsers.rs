//! How browsers stand: what the state, the stream of the dashboard and `/readyz` say of them.
//!
//! What clients of the hosted service are told of their own browsers is not here; those words are
//! `usher-broker`'s.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Value, json};
use usher_core::id::Id;
use usher_core::lease::browser::STARTING_MAX;
use usher_core::time::Wall;

/// Since a region drew its last page or gave its last browser away, at most, for it to count as
/// one that works: what is ready is looked at every 60 s, and told of within seconds.
pub const DREW_MAX: Duration = Duration::from_secs(75);

/// The pool of browsers of one region.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BrowserPool {
    /// Its code, as `WEU`.
    pub region: String,
    /// How browsers are run: `sandbox` or `process`.
    pub backend: String,
    /// Whether they may run without a sandbox.
    pub insecure_single_tenant: bool,
    /// Waiting for somebody.
    pub ready: u32,
    /// Promised or given to somebody.
    pub in_use: u32,
    /// On the way to ready.
    pub starting: u32,
    /// On the way out.
    pub closing: u32,
    /// How many are meant to be ready at least, as the file says.
    pub min_ready: u32,
    /// How many are meant to be ready now: what demand asks for, and what those in use leave.
    pub wanted: u32,
    /// How many there may be.
    pub max: u32,
    /// The process that runs them.
    pub host: HostState,
    /// What the host says that an operator should know.
    pub warnings: Vec<String>,
    /// Why the last browser that was started did not work; `None` once one did.
    pub failing: Option<String>,
    /// Who waits.
    pub queue: Queue,
    /// Since a page was drawn here, or a browser given away; `None`: never.
    pub drawn: Option<Duration>,
    /// Who has them, newest first.
    pub sessions: Vec<BrowserSession>,
}

/// The process that runs the browsers of a region.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum HostState {
    /// It was started, or is being looked for; or its first browser is on the way.
    #[default]
    Starting,
    /// It answers.
    Running,
    /// It is not there; why, in one line.
    Missing(String),
}

/// Who waits for a browser.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Queue {
    /// How many.
    pub waiting: usize,
    /// How long the first has waited.
    pub oldest: Duration,
}

/// A browser that somebody has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BrowserSession {
    /// Its name, as clients see it.
    pub id: String,
    /// Whose it is.
    pub account: Id,
    /// What that is called.
    pub account_name: String,
    /// When it began.
    pub started: Wall,
    /// Clients that are connected through this process.
    pub connections: usize,
    /// When it ends unless a command comes.
    pub idle_at: Wall,
}

impl HostState {
    /// The word of the state.
    #[must_use]
    pub const fn as_str(&self) -> &'static str {
        match self {
            HostState::Starting => "starting",
            HostState::Running => "running",
            HostState::Missing(_) => "missing",
        }
    }
}

impl BrowserPool {
    /// Judges what was counted by the host, which was found `there` ago; `None`: there is none.
    /// Browsers of a host that is not there are gone, whatever was last known of them, and one that
    /// came a moment ago has nothing to show yet.
    #[must_use]
    pub fn judged(mut self, there: Option<Duration>) -> BrowserPool {
        if there.is_none() {
            (self.ready, self.in_use, self.starting, self.closing) = (0, 0, 0, 0);
        }
        self.wanted = self.wanted.min(self.max.saturating_sub(self.in_use));
        let is_new = there.is_some_and(|there| there < STARTING_MAX);
        let runs = self.host == HostState::Running && self.failing.is_none();
        if is_new && runs && self.trouble().is_some() {
            self.host = HostState::Starting;
        }
        self
    }

    /// Why nobody gets a browser here, for what is not a matter of how many want one. A pool whose
    /// browsers are all taken works.
    #[must_use]
    pub fn trouble(&self) -> Option<String> {
        match &self.host {
            HostState::Missing(why) => return Some(why.clone()),
            HostState::Starting => {
                return Some("no browser is ready yet: the first is starting".to_owned());
            }
            HostState::Running => {}
        }
        let drew = self.drawn.is_some_and(|ago| ago <= DREW_MAX);
        // Somebody has what there may be, or nothing is meant to be ready: then nothing is drawn.
        let full = self.in_use > 0 && self.in_use + self.closing >= self.max;
        let idle = self.wanted == 0;
        if drew || full || (idle && self.failing.is_none()) {
            return None;
        }
        Some(match (&self.failing, self.drawn) {
            (Some(why), _) => format!("browsers do not start: {why}"),
            (None, Some(ago)) => format!("no page was drawn for {} s", ago.as_secs()),
            (None, None) => "no page was drawn yet".to_owned(),
        })
    }

    /// How many sessions each account has, by what it is called.
    #[must_use]
    pub fn by_account(&self) -> BTreeMap<&str, u64> {
        let mut sessions = BTreeMap::new();
        for session in &self.sessions {
            *sessions.entry(session.account_name.as_str()).or_default() += 1;
        }
        sessions
    }

    /// As the state of the node says it.
    #[must_use]
    pub fn told(&self, now: Wall) -> Value {
        let reason = match &self.host {
            HostState::Missing(why) => Some(why),
            HostState::Starting | HostState::Running => None,
        };
        let oldest = self
            .sessions
            .iter()
            .map(|session| now.since(session.started));
        json!({
            "region": self.region,
            "backend": self.backend,
            "insecure_single_tenant": self.insecure_single_tenant,
            "ready": self.ready,
            "in_use": self.in_use,
            "starting": self.starting,
            "closing": self.closing,
            "min_ready": self.min_ready,
            "wanted": self.wanted,
            "max": self.max,
            "host": {"state": self.host.as_str(), "reason": reason, "warnings": self.warnings},
            "trouble": self.trouble(),
            "queue": {"waiting": self.queue.waiting, "oldest_seconds": rounded(self.queue.oldest)},
            "drawn_seconds_ago": self.drawn.map(|ago| ago.as_secs()),
            "sessions": self.by_account(),
            "oldest_session_seconds": oldest.max().map(|age| age.as_secs()),
        })
    }

    /// The sessions, for those who may see them.
    fn sessions_told(&self, now: Wall) -> impl Iterator<Item = Value> {
        self.sessions.iter().map(move |session| {
            json!({
                "id": session.id,
                "region": self.region,
                "account": {"id": session.account.to_string(), "name": session.account_name},
                "age_seconds": now.since(session.started).as_secs(),
                "connections": session.connections,
                "idle_seconds_left": session.idle_at.since(now).as_secs(),
            })
        })
    }
}

/// All regions with their sessions, as the stream of the dashboard says it each second.
#[must_use]
pub fn told(pools: &[BrowserPool], now: Wall) -> Value {
    let stand: Vec<Value> = pools.iter().map(|pool| pool.told(now)).collect();
    let sessions = pools.iter().flat_map(|pool| pool.sessions_told(now));
    let sessions: Vec<Value> = sessions.collect();
    json!({"pools": stand, "sessions": sessions})
}

fn rounded(span: Duration) -> f64 {
    (span.as_secs_f64() * 10.0).round() / 10.0
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn pool() -> BrowserPool {
        BrowserPool {
            region: "WEU".to_owned(),
            backend: "sandbox".to_owned(),
            insecure_single_tenant: false,
            ready: 1,
            in_use: 0,
            starting: 0,
            closing: 0,
            min_ready: 1,
            wanted: 1,
            max: 2,
            host: HostState::Running,
            warnings: Vec::new(),
            failing: None,
            queue: Queue::default(),
            drawn: Some(Duration::from_secs(3)),
            sessions: Vec::new(),
        }
    }

    #[test]
    fn a_pool_works_while_it_draws_or_all_is_taken() {
        assert_eq!(pool().trouble(), None);
        let long_ago = Some(DREW_MAX + Duration::from_secs(1));
        let stale = BrowserPool {
            drawn: long_ago,
            ..pool()
        };
        assert_eq!(
            stale.trouble().as_deref(),
            Some("no page was drawn for 76 s")
        );
        let full = BrowserPool {
            in_use: 2,
            ready: 0,
            ..stale.clone()
        };
        assert_eq!(full.trouble(), None);
        let unwanted = BrowserPool {
            wanted: 0,
            ready: 0,
            drawn: None,
            ..pool()
        };
        assert_eq!(unwanted.trouble(), None);
        let failing = BrowserPool {
            failing: Some("it does not draw".to_owned()),
            ..unwanted
        };
        assert_eq!(
            failing.trouble().as_deref(),
            Some("browsers do not start: it does not draw")
        );
    }

    #[test]
    fn a_host_that_is_not_there_says_what_to_install() {
        let why = "this machine has no bwrap: apt-get install bubblewrap";
        let missing = BrowserPool {
            host: HostState::Missing(why.to_owned()),
            ..pool()
        };
        assert_eq!(missing.trouble().as_deref(), Some(why));
        let told = missing.told(Wall::from_millis(0));
        assert_eq!(told["host"]["state"], "missing");
        assert_eq!(told["host"]["reason"], why);
        assert_eq!(told["trouble"], why);
    }

    #[test]
    fn a_host_that_has_just_come_is_starting_until_its_first_browser_draws() {
        let new = BrowserPool {
            ready: 0,
            drawn: None,
            ..pool()
        };
        let state = |pool: &BrowserPool, secs| {
            let judged = pool.clone().judged(Some(Duration::from_secs(secs)));
            (judged.host.as_str(), judged.trouble().is_some())
        };
        assert_eq!(state(&new, 0), ("starting", true));
        assert_eq!(state(&new, 19), ("starting", true));
        assert_eq!(state(&new, 20), ("running", true));
        assert_eq!(state(&pool(), 0), ("running", false));
        let failing = BrowserPool {
            failing: Some("it does not draw".to_owned()),
            ..new.clone()
        };
        assert_eq!(state(&failing, 0), ("running", true));
        let unwanted = BrowserPool { wanted: 0, ..new };
        assert_eq!(state(&unwanted, 0), ("running", false));
    }

    #[test]
    fn nothing_lives_without_a_host_and_the_goal_is_what_those_in_use_leave() {
        let pool = BrowserPool {
            ready: 1,
            in_use: 1,
            wanted: 2,
            ..pool()
        };
        let there = pool.clone().judged(Some(Duration::from_secs(60)));
        assert_eq!((there.ready, there.in_use, there.wanted), (1, 1, 1));
        assert_eq!(there.told(Wall::from_millis(0))["min_ready"], 1);
        assert_eq!(there.told(Wall::from_millis(0))["wanted"], 1);
        let gone = BrowserPool { max: 0, ..pool };
        let gone = gone.judged(None);
        assert_eq!((gone.ready, gone.in_use, gone.wanted), (0, 0, 0));
    }

    #[test]
    fn sessions_are_counted_by_account_and_told_one_by_one() {
        let session = |id: &str, account: &str, started: i64| BrowserSession {
            id: id.to_owned(),
            account: Id::from_bytes([7; 16]),
            account_name: account.to_owned(),
            started: Wall::from_millis(started),
            connections: 1,
            idle_at: Wall::from_millis(75_000),
        };
        let pools = [BrowserPool {
            in_use: 3,
            sessions: vec![
                session("c", "shop", 60_000),
                session("b", "default", 50_000),
                session("a", "shop", 10_000),
            ],
            ..pool()
        }];
        let told = told(&pools, Wall::from_millis(70_000));
        assert_eq!(
            told["pools"][0]["sessions"],
            json!({"default": 1, "shop": 2})
        );
        assert_eq!(told["pools"][0]["oldest_session_seconds"], 60);
        let first = &told["sessions"][0];
        assert_eq!(
            (&first["id"], &first["region"], &first["account"]["name"]),
            (&json!("c"), &json!("WEU"), &json!("shop"))
        );
        assert_eq!(
            (&first["age_seconds"], &first["idle_seconds_left"]),
            (&json!(10), &json!(5))
        );
    }
}
