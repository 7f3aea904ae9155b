//! Turns the names of endpoints into addresses, in the background.
//!
//! A request must not wait for DNS, so [`run`] asks for every wanted name over and over and writes
//! the answers into [`Addresses`], which any thread reads without a lock. The system's own
//! resolver is used, because operators expect `/etc/hosts`, search domains and `nsswitch` to hold;
//! it tells no TTL, hence the fixed [`REFRESH`]. It also blocks a thread for as long as it likes,
//! so [`Lookup`] bounds how many threads can be stuck in it, whoever asks.

use std::collections::{BTreeSet, HashMap};
use std::io;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use tokio::sync::{Semaphore, mpsc, watch};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{sleep, timeout};
use tracing::debug;

/// Between the answer for a name and the next question for it.
pub const REFRESH: Duration = Duration::from_secs(5);
/// How long one question may take. The system's resolver gives up after 10 s by default.
pub const LOOKUP_TIMEOUT: Duration = Duration::from_secs(10);
/// Questions under way at one time, and so threads that a silent name server can hold.
pub const LOOKUPS_MAX: usize = 8;
/// Failed questions in a row before a name that had an answer counts as unresolvable: one lost
/// datagram must not take an endpoint out of service.
pub const FAILURES_MAX: u32 = 3;
/// Addresses kept of one answer, in the order in which the resolver prefers them.
pub const ADDRESSES_MAX: usize = 16;

/// A name has no address, or nobody could say.
#[derive(Debug, thiserror::Error)]
#[error("look up {host}")]
pub struct LookupError {
    /// The name.
    pub host: String,
    /// What the resolver said.
    #[source]
    pub source: io::Error,
}

type Answer = Pin<Box<dyn Future<Output = io::Result<Vec<IpAddr>>> + Send>>;

/// Asks for addresses, at most [`LOOKUPS_MAX`] names at a time over all clones.
#[derive(Clone)]
pub struct Lookup {
    permits: Arc<Semaphore>,
    ask: Arc<dyn Fn(String) -> Answer + Send + Sync>,
}

impl std::fmt::Debug for Lookup {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Lookup")
            .field("free", &self.permits.available_permits())
            .finish()
    }
}

impl Lookup {
    /// The system's resolver.
    #[must_use]
    pub fn system() -> Lookup {
        Lookup::with(|host| async move {
            // The port does not matter; the call wants one.
            let found = tokio::net::lookup_host((host, 0)).await?;
            Ok(found.map(|address| address.ip()).collect())
        })
    }

    /// Another resolver: `ask` is called with a name, and with no more than [`LOOKUPS_MAX`] at a
    /// time.
    pub fn with<F>(ask: impl Fn(String) -> F + Send + Sync + 'static) -> Lookup
    where
        F: Future<Output = io::Result<Vec<IpAddr>>> + Send + 'static,
    {
        Lookup {
            permits: Arc::new(Semaphore::new(LOOKUPS_MAX)),
            ask: Arc::new(move |host| Box::pin(ask(host))),
        }
    }

    /// The addresses of `host`, each once: at least one and at most [`ADDRESSES_MAX`].
    ///
    /// # Errors
    /// The resolver failed, knows no address, or took longer than [`LOOKUP_TIMEOUT`]. Waiting for
    /// other questions to end is not counted.
    pub async fn addresses(&self, host: &str) -> Result<Arc<[IpAddr]>, LookupError> {
        let answer = self.question(host).await;
        answer.map_err(|source| LookupError {
            host: host.to_owned(),
            source,
        })
    }

    async fn question(&self, host: &str) -> io::Result<Arc<[IpAddr]>> {
        let permits = Arc::clone(&self.permits);
        let permit = permits.acquire_owned().await.map_err(io::Error::other)?;
        let answer = (self.ask)(host.to_owned());
        // A task of its own: a caller that gives up does not free the thread that is blocked, so
        // the permit has to stay with the question and not with the caller.
        let question = tokio::spawn(async move {
            let found = answer.await;
            drop(permit);
            found
        });
        let mut addresses = Vec::new();
        for address in timeout(LOOKUP_TIMEOUT, question)
            .await?
            .map_err(io::Error::other)??
        {
            if addresses.len() < ADDRESSES_MAX && !addresses.contains(&address) {
                addresses.push(address);
            }
        }
        if addresses.is_empty() {
            return Err(io::Error::new(
                io::ErrorKind::NotFound,
                "no address in the answer",
            ));
        }
        Ok(addresses.into())
    }
}

/// What is known of the wanted names. Reading takes no lock.
#[derive(Debug, Default)]
pub struct Addresses {
    table: ArcSwap<HashMap<String, Arc<[IpAddr]>>>,
}

impl Addresses {
    /// What another process knew: good until an answer, or several failures in a row, says else.
    #[must_use]
    pub fn known(table: impl IntoIterator<Item = (String, Vec<IpAddr>)>) -> Addresses {
        let table = table.into_iter();
        let table = table.map(|(host, addresses)| (host, addresses.into()));
        Addresses {
            table: ArcSwap::from_pointee(table.collect()),
        }
    }

    /// Every name that has addresses, with them.
    #[must_use]
    pub fn all(&self) -> Vec<(String, Vec<IpAddr>)> {
        let table = self.table.load();
        let all = table.iter();
        all.map(|(host, addresses)| (host.clone(), addresses.to_vec()))
            .collect()
    }

    /// The addresses of `host` (lower case) in order of preference, or `None` while there are none.
    #[must_use]
    pub fn of(&self, host: &str) -> Option<Arc<[IpAddr]>> {
        self.table.load().get(host).cloned()
    }

    /// Only [`run`] writes, and from one task, so reading and storing need not be one step.
    fn change(&self, change: impl FnOnce(&mut HashMap<String, Arc<[IpAddr]>>)) {
        let mut table = HashMap::clone(&self.table.load());
        change(&mut table);
        self.table.store(Arc::new(table));
    }
}

/// A name got its first answer, or began or ceased to have addresses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Resolution {
    /// The name.
    pub host: String,
    /// Whether [`Addresses`] has addresses for it.
    pub resolvable: bool,
}

/// Keeps `addresses` true for `hosts` until the sender of `hosts` or the receiver of `changes` is
/// gone. `changes` is sent to after `addresses` has the news, and tells every name at least once.
pub async fn run(
    lookup: Lookup,
    mut hosts: watch::Receiver<BTreeSet<String>>,
    addresses: Arc<Addresses>,
    changes: mpsc::Sender<Resolution>,
) {
    let mut names: HashMap<String, Name> = HashMap::new();
    let mut questions = JoinSet::new();
    hosts.mark_changed();
    loop {
        tokio::select! {
            changed = hosts.changed() => {
                if changed.is_err() {
                    return;
                }
                let wanted = hosts.borrow_and_update().clone();
                forget_unwanted(&mut names, &wanted, &addresses);
                for host in wanted {
                    if names.contains_key(&host) {
                        continue;
                    }
                    let question = ask(&mut questions, &lookup, &host, Duration::ZERO);
                    let resolvable = addresses.of(&host).map(|_| true);
                    names.insert(host.clone(), Name::new(question, resolvable));
                    if resolvable.is_some()
                        && changes.send(Resolution { host, resolvable: true }).await.is_err()
                    {
                        return;
                    }
                }
            }
            Some(done) = questions.join_next_with_id() => {
                // An error is a question for a name that is no longer wanted.
                let Ok((id, (host, answer))) = done else { continue };
                // So is an answer under another id: it crossed with the change.
                let Some(name) = names.get_mut(&host).filter(|name| name.question.id() == id) else {
                    continue;
                };
                let before = name.resolvable;
                name.learn(&host, answer, &addresses);
                name.question = ask(&mut questions, &lookup, &host, REFRESH);
                if let (Some(resolvable), true) = (name.resolvable, name.resolvable != before)
                    && changes.send(Resolution { host, resolvable }).await.is_err()
                {
                    return;
                }
            }
        }
    }
}

struct Name {
    question: AbortHandle,
    resolvable: Option<bool>,
    failures: u32,
}

impl Name {
    fn new(question: AbortHandle, resolvable: Option<bool>) -> Name {
        Name {
            question,
            resolvable,
            failures: 0,
        }
    }

    fn learn(&mut self, host: &str, answer: LookupAnswer, addresses: &Addresses) {
        match answer {
            Ok(found) => {
                self.failures = 0;
                self.resolvable = Some(true);
                if addresses.of(host).as_deref() != Some(&*found) {
                    debug!(host, ?found, "addresses changed");
                    addresses.change(|table| {
                        table.insert(host.to_owned(), found);
                    });
                }
            }
            Err(error) => {
                self.failures = self.failures.saturating_add(1);
                debug!(host, failures = self.failures, cause = %error.source, "lookup failed");
                if self.resolvable != Some(true) || self.failures >= FAILURES_MAX {
                    self.resolvable = Some(false);
                    if addresses.of(host).is_some() {
                        addresses.change(|table| {
                            table.remove(host);
                        });
                    }
                }
            }
        }
    }
}

type LookupAnswer = Result<Arc<[IpAddr]>, LookupError>;

fn ask(
    questions: &mut JoinSet<(String, LookupAnswer)>,
    lookup: &Lookup,
    host: &str,
    delay: Duration,
) -> AbortHandle {
    let (lookup, host) = (lookup.clone(), host.to_owned());
    questions.spawn(async move {
        sleep(delay).await;
        let answer = lookup.addresses(&host).await;
        (host, answer)
    })
}

fn forget_unwanted(
    names: &mut HashMap<String, Name>,
    wanted: &BTreeSet<String>,
    addresses: &Addresses,
) {
    names.retain(|host, name| {
        let keep = wanted.contains(host);
        if !keep {
            name.question.abort();
        }
        keep
    });
    let unwanted = |host: &String| !wanted.contains(host);
    if addresses.table.load().keys().any(unwanted) {
        addresses.change(|table| table.retain(|host, _| wanted.contains(host)));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use tokio::time::Instant;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_name_is_told_once_and_asked_again_every_refresh() {
        let mut node = node(["a.example.com"], |_| Ok(vec![ip(1)]));
        assert_eq!(node.next().await, ("a.example.com".into(), true));
        assert_eq!(
            node.addresses.of("a.example.com").as_deref(),
            Some(&[ip(1)][..])
        );
        assert_eq!(node.addresses.of("b.example.com"), None);
        let start = Instant::now();
        while node.asked.load(Ordering::Relaxed) < 4 {
            tokio::time::advance(Duration::from_millis(100)).await;
        }
        assert!(start.elapsed() >= REFRESH * 2, "{:?}", start.elapsed());
        assert!(node.changes.try_recv().is_err(), "nothing changed");
    }

    #[tokio::test(start_paused = true)]
    async fn what_was_known_before_holds_until_failures_in_a_row() {
        let known = ["a.example.com", "gone.example.com"];
        let known = known.map(|host| (host.to_owned(), vec![ip(1)]));
        let mut node = node_with(Addresses::known(known), ["a.example.com"], |_| Err(()));
        assert_eq!(node.next().await, ("a.example.com".into(), true));
        let left = [("a.example.com".to_owned(), vec![ip(1)])];
        assert_eq!(
            node.addresses.all(),
            left,
            "what is not wanted is forgotten"
        );
        assert_eq!(node.next().await, ("a.example.com".into(), false));
        assert_eq!(node.asked.load(Ordering::Relaxed), FAILURES_MAX as usize);
        assert_eq!(node.addresses.all(), []);
    }

    #[tokio::test(start_paused = true)]
    async fn the_last_answer_outlives_failures_up_to_the_limit() {
        let mut node = node(["a.example.com"], |question| match question {
            1 | 6.. => Ok(vec![ip(1), ip(2), ip(1)]),
            2 => Err(()),
            3 => Ok(vec![ip(2)]),
            _ => Err(()),
        });
        assert_eq!(node.next().await, ("a.example.com".into(), true));
        assert_eq!(
            node.addresses.of("a.example.com").as_deref(),
            Some(&[ip(1), ip(2)][..])
        );
        // Questions 4, 5 and 6 would have to fail; 6 does not.
        while node.asked.load(Ordering::Relaxed) < 5 {
            tokio::time::advance(Duration::from_millis(100)).await;
        }
        assert_eq!(
            node.addresses.of("a.example.com").as_deref(),
            Some(&[ip(2)][..])
        );
        while node.asked.load(Ordering::Relaxed) < 7 {
            tokio::time::advance(Duration::from_millis(100)).await;
        }
        assert!(node.changes.try_recv().is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn a_name_that_keeps_failing_loses_its_addresses_and_gets_them_back() {
        let mut node = node(["a.example.com"], |question| match question {
            1 | 5.. => Ok(vec![ip(1)]),
            _ => Err(()),
        });
        assert_eq!(node.next().await, ("a.example.com".into(), true));
        assert_eq!(node.next().await, ("a.example.com".into(), false));
        assert_eq!(node.addresses.of("a.example.com"), None);
        assert_eq!(
            node.asked.load(Ordering::Relaxed),
            1 + FAILURES_MAX as usize
        );
        assert_eq!(node.next().await, ("a.example.com".into(), true));
    }

    #[tokio::test(start_paused = true)]
    async fn the_first_failure_of_a_new_name_counts_at_once() {
        for answer in [Err(()), Ok(vec![])] {
            let mut node = node(["a.example.com"], move |_| answer.clone());
            assert_eq!(node.next().await, ("a.example.com".into(), false));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_name_that_is_no_longer_wanted_is_forgotten_and_learned_anew() {
        let mut node = node(["a.example.com", "b.example.com"], |_| Ok(vec![ip(1)]));
        let told = BTreeSet::from([node.next().await.0, node.next().await.0]);
        assert_eq!(told.len(), 2);
        node.hosts.send_replace(set(["b.example.com"]));
        while node.addresses.of("a.example.com").is_some() {
            tokio::task::yield_now().await;
        }
        assert!(node.addresses.of("b.example.com").is_some());
        node.hosts
            .send_replace(set(["a.example.com", "b.example.com"]));
        assert_eq!(node.next().await, ("a.example.com".into(), true));
    }

    #[tokio::test(start_paused = true)]
    async fn questions_that_hang_hold_their_place_after_the_caller_gave_up() {
        let asked = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&asked);
        let lookup = Lookup::with(move |_| {
            count.fetch_add(1, Ordering::Relaxed);
            std::future::pending()
        });
        let mut callers = JoinSet::new();
        for _ in 0..LOOKUPS_MAX * 2 {
            let lookup = lookup.clone();
            callers.spawn(async move {
                timeout(LOOKUP_TIMEOUT * 2, lookup.addresses("a.example.com")).await
            });
        }
        let ends = callers.join_all().await;
        assert_eq!(asked.load(Ordering::Relaxed), LOOKUPS_MAX);
        let timed_out = |error: &LookupError| error.source.kind() == io::ErrorKind::TimedOut;
        assert_eq!(
            ends.iter()
                .filter(|end| matches!(end, Ok(Err(error)) if timed_out(error)))
                .count(),
            LOOKUPS_MAX,
        );
        assert_eq!(ends.iter().filter(|end| end.is_err()).count(), LOOKUPS_MAX);
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_is_cut_at_the_limit() {
        let lookup = Lookup::with(|_| async { Ok((0..100).map(ip).collect()) });
        let found = lookup.addresses("a.example.com").await.expect("an answer");
        assert_eq!(&*found, (0..16).map(ip).collect::<Vec<_>>());
    }

    #[tokio::test]
    async fn the_system_knows_localhost_and_refuses_what_is_no_name() {
        let lookup = Lookup::system();
        let found = lookup
            .addresses("localhost")
            .await
            .expect("localhost is in the hosts file");
        assert!(found.iter().all(IpAddr::is_loopback), "{found:?}");
        // Too long for a label, so no name server is asked.
        let error = lookup
            .addresses(&"a".repeat(64))
            .await
            .expect_err("no such name");
        assert!(error.to_string().starts_with("look up aaaa"));
    }

    struct Node {
        hosts: watch::Sender<BTreeSet<String>>,
        addresses: Arc<Addresses>,
        changes: mpsc::Receiver<Resolution>,
        asked: Arc<AtomicUsize>,
    }

    impl Node {
        async fn next(&mut self) -> (String, bool) {
            let Resolution { host, resolvable } = self.changes.recv().await.expect("running");
            (host, resolvable)
        }
    }

    /// A resolver whose answer to the n-th question (from 1) is `script(n)`.
    fn node<const N: usize>(
        hosts: [&str; N],
        script: impl Fn(usize) -> Result<Vec<IpAddr>, ()> + Send + Sync + 'static,
    ) -> Node {
        node_with(Addresses::default(), hosts, script)
    }

    /// The same where something is known before.
    fn node_with<const N: usize>(
        addresses: Addresses,
        hosts: [&str; N],
        script: impl Fn(usize) -> Result<Vec<IpAddr>, ()> + Send + Sync + 'static,
    ) -> Node {
        let (hosts, wanted) = watch::channel(set(hosts));
        let (sender, changes) = mpsc::channel(8);
        let addresses = Arc::new(addresses);
        let asked = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&asked);
        let lookup = Lookup::with(move |_| {
            let question = count.fetch_add(1, Ordering::Relaxed) + 1;
            let answer = script(question);
            std::future::ready(answer.map_err(|()| io::Error::other("scripted")))
        });
        tokio::spawn(run(lookup, wanted, Arc::clone(&addresses), sender));
        Node {
            hosts,
            addresses,
            changes,
            asked,
        }
    }

    fn set<const N: usize>(hosts: [&str; N]) -> BTreeSet<String> {
        hosts.map(str::to_owned).into()
    }

    fn ip(last: u8) -> IpAddr {
        IpAddr::from([192, 0, 2, last])
    }
}
