//! One browser's way out, and what all ways out of a process have in common.

use std::fmt;
use std::future::Future;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use arc_swap::ArcSwap;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinSet;
use tracing::debug;
use usher_edge::resolve::Lookup;

use crate::address::Ranges;
use crate::cause::Cause;
use crate::client::Client;
use crate::dial::Denied;
use crate::meter::{Meter, Usage, Way};
use crate::policy::Policy;
use crate::record::{Record, Refusal};
use crate::target::Target;

/// Questions to name servers under way at one time, over all browsers: each holds a thread.
pub const LOOKUPS_MAX: usize = 256;

/// Connections of a browser to its proxy beyond those that it may have to servers: enough to tell
/// it that it has too many. What comes beyond waits in the kernel.
const SPARE_MAX: usize = 32;
/// Without descriptors or memory, and with nobody whose end could free some, the next browser is
/// looked at so much later.
const SHORT_OF_DESCRIPTORS: Duration = Duration::from_millis(100);

/// How long things may take.
#[derive(Debug, Clone, Copy)]
pub struct Deadlines {
    /// For the addresses of a name. Default 10 s.
    pub name: Duration,
    /// For a connection, over all addresses of the name. Default 30 s.
    pub connect: Duration,
    /// For the rest of a request's head once it began. Default 30 s.
    pub head: Duration,
    /// Without a byte in either direction. Default 10 min, as long as a session may be idle.
    pub idle: Duration,
    /// For anything at all. Default 24 h.
    pub lifetime: Duration,
}

impl Default for Deadlines {
    fn default() -> Deadlines {
        Deadlines {
            name: Duration::from_secs(10),
            connect: Duration::from_secs(30),
            head: Duration::from_secs(30),
            idle: Duration::from_mins(10),
            lifetime: Duration::from_hours(24),
        }
    }
}

type Answer = Pin<Box<dyn Future<Output = io::Result<Vec<IpAddr>>> + Send>>;
type Ask = Arc<dyn Fn(String) -> Answer + Send + Sync>;

/// What all browsers of a process share: nothing that one could learn of another by.
#[derive(Clone)]
pub struct Egress {
    shared: Arc<Shared>,
}

impl fmt::Debug for Egress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Egress").finish_non_exhaustive()
    }
}

pub(crate) struct Shared {
    pub(crate) ranges: Ranges,
    pub(crate) deadlines: Deadlines,
    listeners: ArcSwap<Vec<u16>>,
    counts: [AtomicU64; Cause::ALL.len()],
    ask: Ask,
    questions: Arc<Semaphore>,
}

impl Shared {
    /// Whether we listen on that port ourselves. The address does not matter: what listens on one
    /// of ours can often be reached by another.
    pub(crate) fn listens(&self, port: u16) -> bool {
        self.listeners.load().contains(&port)
    }
}

impl Egress {
    /// Names are looked up by the system.
    #[must_use]
    pub fn new(deadlines: Deadlines) -> Egress {
        Egress::with(deadlines, |host| async move {
            let found = tokio::net::lookup_host((host, 0)).await?;
            Ok(found.map(|address| address.ip()).collect())
        })
    }

    /// Names are looked up by `ask`.
    pub fn with<F>(
        deadlines: Deadlines,
        ask: impl Fn(String) -> F + Send + Sync + 'static,
    ) -> Egress
    where
        F: Future<Output = io::Result<Vec<IpAddr>>> + Send + 'static,
    {
        let shared = Shared {
            ranges: Ranges::new(),
            deadlines,
            listeners: ArcSwap::default(),
            counts: std::array::from_fn(|_| AtomicU64::new(0)),
            ask: Arc::new(move |host| Box::pin(ask(host))),
            questions: Arc::new(Semaphore::new(LOOKUPS_MAX)),
        };
        Egress {
            shared: Arc::new(shared),
        }
    }

    /// Where this installation itself listens for its API, bindings, live views and proxies:
    /// nothing opens these ports of this machine to a page.
    pub fn own_listeners(&self, listeners: impl IntoIterator<Item = SocketAddr>) {
        let ports = listeners.into_iter().map(|listener| listener.port());
        self.shared.listeners.store(Arc::new(ports.collect()));
    }

    /// The way out of a new browser. Nothing passes before [`Exit::admit`].
    #[must_use]
    pub fn open(&self) -> Exit {
        let (ask, questions) = (
            Arc::clone(&self.shared.ask),
            Arc::clone(&self.shared.questions),
        );
        // A browser has a few questions at a time and all browsers have many, so that one that
        // asks names of a server that never answers does not stop the others.
        let lookup = Lookup::with(move |host| {
            let (ask, questions) = (Arc::clone(&ask), Arc::clone(&questions));
            async move {
                let _question = questions.acquire_owned().await.map_err(io::Error::other)?;
                ask(host).await
            }
        });
        Exit {
            inner: Arc::new(Inner {
                shared: Arc::clone(&self.shared),
                policy: OnceLock::new(),
                places: OnceLock::new(),
                lookup,
                meter: Meter::default(),
                record: Record::default(),
            }),
        }
    }

    /// How often each cause was met, over all browsers so far.
    pub fn counts(&self) -> impl Iterator<Item = (Cause, u64)> {
        let count = |cause: Cause| self.shared.counts[cause as usize].load(Ordering::Relaxed);
        Cause::ALL
            .into_iter()
            .map(move |cause| (cause, count(cause)))
    }
}

/// What a browser shows where its socket alone does not tell who it is: a name and a secret, as
/// `Proxy-Authorization: Basic`.
#[derive(Clone)]
pub struct Credential {
    value: Box<[u8]>,
}

impl Credential {
    /// Of a name without a colon, and a secret.
    #[must_use]
    pub fn new(name: &str, secret: &str) -> Credential {
        let value = STANDARD.encode(format!("{name}:{secret}")).into_bytes();
        Credential {
            value: value.into(),
        }
    }

    /// Whether the value of the field shows it. Takes as long whether it is near or far.
    pub(crate) fn is_shown(&self, field: &[u8]) -> bool {
        let Some((scheme, shown)) = field.split_at_checked(6) else {
            return false;
        };
        let differs = |(a, b): (&u8, &u8)| a ^ b;
        let fold = |all: u8, one: u8| all | one;
        scheme.eq_ignore_ascii_case(b"basic ")
            && shown.len() == self.value.len()
            && shown.iter().zip(&self.value).map(differs).fold(0, fold) == 0
    }
}

impl fmt::Debug for Credential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Credential(...)")
    }
}

/// Where one browser knocks. Which door it is tells which browser.
#[derive(Debug)]
pub enum Door {
    /// A socket that only this browser can reach.
    Socket(UnixListener),
    /// A port: in a network of the browser's own, or, with a credential that it has to show, where
    /// others can reach it too.
    Port(TcpListener, Option<Credential>),
}

/// One browser's way out.
#[derive(Clone)]
pub struct Exit {
    inner: Arc<Inner>,
}

impl fmt::Debug for Exit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Exit")
            .field("policy", &self.inner.policy.get())
            .field("usage", &self.usage())
            .finish_non_exhaustive()
    }
}

pub(crate) struct Inner {
    pub(crate) shared: Arc<Shared>,
    pub(crate) policy: OnceLock<Policy>,
    places: OnceLock<Arc<Semaphore>>,
    pub(crate) lookup: Lookup,
    pub(crate) meter: Meter,
    record: Record,
}

/// The browser has a policy already, and policies do not change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("this browser's policy is set and cannot be changed")]
pub struct Latched;

impl Exit {
    /// Lets the browser out under `policy`, once.
    ///
    /// # Errors
    /// It was let out before.
    pub fn admit(&self, policy: Policy) -> Result<(), Latched> {
        self.inner.policy.set(policy).map_err(|_| Latched)
    }

    /// Serves the browser at `door` until the door cannot be opened any more. Dropped, it cuts
    /// every connection of the browser.
    ///
    /// # Errors
    /// The listener is broken.
    pub async fn serve(&self, door: Door) -> io::Result<()> {
        let mut guests = JoinSet::new();
        loop {
            while guests.try_join_next().is_some() {}
            let room = self.inner.connections_max() + SPARE_MAX;
            if guests.len() >= room {
                guests.join_next().await;
                continue;
            }
            let exit = Arc::clone(&self.inner);
            let accepted = match &door {
                Door::Socket(listener) => listener.accept().await.map(|(stream, _)| {
                    let (reader, writer) = stream.into_split();
                    guests.spawn(Client::new(reader, writer, None).run(exit));
                }),
                Door::Port(listener, credential) => listener.accept().await.map(|(stream, _)| {
                    let _ = stream.set_nodelay(true);
                    let (reader, writer) = stream.into_split();
                    guests.spawn(Client::new(reader, writer, credential.clone()).run(exit));
                }),
            };
            if let Err(error) = accepted {
                match error.kind() {
                    io::ErrorKind::ConnectionAborted | io::ErrorKind::Interrupted => {}
                    // Descriptors or memory are short: they come back when a connection ends.
                    _ if is_shortage(&error) => {
                        debug!(%error, "accept from a browser");
                        tokio::select! {
                            Some(_) = guests.join_next() => {}
                            () = tokio::time::sleep(SHORT_OF_DESCRIPTORS) => {}
                        }
                    }
                    _ => return Err(error),
                }
            }
        }
    }

    /// Serves one connection that came by no door, until it ends.
    pub(crate) async fn welcome<S>(&self, stream: S)
    where
        S: AsyncRead + AsyncWrite,
    {
        let (reader, writer) = tokio::io::split(stream);
        let client = Client::new(reader, writer, None);
        client.run(Arc::clone(&self.inner)).await;
    }

    /// Why the last request to this host, and port if one is given, did not come about, if one did
    /// not. `host` as a URL has it.
    #[must_use]
    pub fn why(&self, host: &str, port: Option<u16>) -> Option<Refusal> {
        let target = Target::new(host, port.unwrap_or(0))?;
        self.inner.record.last_of(target.host(), port)
    }

    /// What did not come about, from the one with this number on; no more than the last
    /// [`crate::record::REFUSALS_MAX`].
    #[must_use]
    pub fn refusals(&self, since: u64) -> Vec<Refusal> {
        self.inner.record.since(since)
    }

    /// What went through.
    #[must_use]
    pub fn usage(&self) -> Usage {
        let meter = &self.inner.meter;
        let open = self.inner.places.get().map_or(0, |places| {
            self.inner
                .connections_max()
                .saturating_sub(places.available_permits())
        });
        Usage {
            sent: meter.sent.load(Ordering::Relaxed),
            received: meter.received.load(Ordering::Relaxed),
            connections: meter.connections.load(Ordering::Relaxed),
            open: open as u64,
        }
    }
}

/// ENFILE, EMFILE, ENOBUFS and ENOMEM have no kind of their own.
fn is_shortage(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(12 | 23 | 24 | 105))
}

impl Inner {
    fn connections_max(&self) -> usize {
        let policy = self.policy.get();
        policy.map_or(0, |policy| {
            policy.connections_max.clamp(1, Semaphore::MAX_PERMITS)
        })
    }

    /// A place for one more connection.
    pub(crate) fn place(&self) -> Option<OwnedSemaphorePermit> {
        let new = || Arc::new(Semaphore::new(self.connections_max()));
        let places = Arc::clone(self.places.get_or_init(new));
        places.try_acquire_owned().ok()
    }

    pub(crate) fn connected(&self) {
        self.meter.connections.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts bytes before they are passed on.
    pub(crate) fn take(&self, way: Way, count: usize) -> Result<(), Cause> {
        let max = self.policy.get().and_then(|policy| policy.traffic_max);
        self.meter.take(way, count, max)
    }

    pub(crate) fn refuse(&self, target: Option<&Target>, denied: Denied) {
        let Denied { cause, address } = denied;
        self.shared.counts[cause as usize].fetch_add(1, Ordering::Relaxed);
        self.record.add(target, cause, address);
        debug!(cause = cause.as_str(), "egress refused");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_credential_is_shown_whole_or_not_at_all() {
        let credential = Credential::new("browser", "secret");
        let value = format!("Basic {}", STANDARD.encode("browser:secret"));
        assert!(credential.is_shown(value.as_bytes()));
        assert!(credential.is_shown(value.replace("Basic", "bASIC").as_bytes()));
        for wrong in [
            "",
            "Basic",
            "Basic ",
            &value[..value.len() - 1],
            &format!("{value}="),
            &value.replace("Basic", "Bearer"),
        ] {
            assert!(!credential.is_shown(wrong.as_bytes()), "{wrong}");
        }
        assert!(!format!("{credential:?}").contains("c2Vj"));
    }

    #[tokio::test]
    async fn a_policy_is_set_once() {
        let exit = Egress::new(Deadlines::default()).open();
        assert_eq!(exit.admit(Policy::default()), Ok(()));
        assert_eq!(exit.admit(Policy::default()), Err(Latched));
        assert_eq!(exit.usage(), Usage::default());
    }
}
