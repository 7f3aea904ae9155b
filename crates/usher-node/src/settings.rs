//! What belongs to the process and not to the traffic: listeners, certificates, the API's door,
//! the log, how long a stop may take.
//!
//! Plain data. The configuration file is one way to fill it and the command line another; whoever
//! fills it has checked it, so the node takes every value as it stands. Paths are absolute or
//! relative to the working directory of the process by the time they get here.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ipnet::IpNet;
use usher_api::access::{Secret, Token};
use usher_browsers::settings::Kind;
use usher_core::lease::limits::{AccountKind, Limits};
use usher_core::region::Region;
use usher_edge::http;
use usher_edge::tls::KeyPair;
pub use usher_store::Place;

/// Everything that a node needs beside its catalog.
#[derive(Debug, Clone, PartialEq)]
pub struct Process {
    /// Where traffic comes in.
    pub listen: Listen,
    /// Certificates that the HTTPS listeners choose from by the name that the client asks for; the
    /// first one answers clients that ask for none. Default none.
    pub certificates: Vec<KeyPair>,
    /// How the HTTP front treats clients and endpoints: deadlines, limits, trusted proxies.
    pub front: http::Settings,
    /// What the pins of visitors are sealed with, where there are any in cookies.
    pub seal: Seal,
    /// The control API. `None` (the default): no listener, no dashboard, no metrics.
    pub api: Option<Api>,
    /// Where what the API creates is kept. `None` (the default): nothing can be created.
    pub store: Option<Place>,
    /// Whether waiting rooms write down beside the store what they decide, so that a restart forgets
    /// nobody. Default true; without a store nothing is written.
    pub journal: bool,
    /// Whether notifications may be posted to private addresses. Default false.
    pub post_privately: bool,
    /// Browsers for those who ask over a network. Default none.
    pub browsers: Option<Browsers>,
    /// Who may have browsers, and how many; one of them is called `default`.
    pub accounts: Vec<Account>,
    /// One line for each finished request. `None`: none is written. Default: JSON to stdout.
    pub access_log: Option<AccessLog>,
    /// How the process ends.
    pub shutdown: Shutdown,
    /// A file that holds the id of the process that serves. Default none.
    pub pid_file: Option<PathBuf>,
    /// When `ready` is said although some endpoint has no verdict yet. Range 1 ms..=10 min,
    /// default 10 s.
    pub ready_timeout: Duration,
}

impl Process {
    /// Whether anybody could reach it.
    #[must_use]
    pub fn listens(&self) -> bool {
        let binding = self.browsers.as_ref().and_then(|it| it.listen);
        self.listen != Listen::default() || self.api.is_some() || binding.is_some()
    }

    /// The folder that the store is in.
    #[must_use]
    pub fn beside_store(&self) -> Option<PathBuf> {
        let Place::Sqlite(database) = self.store.as_ref()?;
        Some(database.parent().unwrap_or(Path::new(".")).to_owned())
    }

    /// The folder where waiting rooms write; `None` when they keep everything in memory.
    #[must_use]
    pub fn journals(&self) -> Option<PathBuf> {
        let beside = self.beside_store().filter(|_| self.journal)?;
        Some(beside.join("live"))
    }
}

impl Default for Process {
    fn default() -> Process {
        Process {
            listen: Listen::default(),
            certificates: Vec::new(),
            front: http::Settings::default(),
            seal: Seal::default(),
            api: None,
            store: None,
            journal: true,
            post_privately: false,
            browsers: None,
            accounts: vec![Account::new("default")],
            access_log: Some(AccessLog::default()),
            shutdown: Shutdown::default(),
            pid_file: None,
            ready_timeout: Duration::from_secs(10),
        }
    }
}

/// Addresses that accept traffic. Port 0 takes a free port. Default none.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Listen {
    /// HTTP/1.1 and HTTP/2 in the clear.
    pub http: Vec<SocketAddr>,
    /// HTTP/1.1 and HTTP/2 over TLS.
    pub https: Vec<SocketAddr>,
}

/// Where the keys of sealed pins come from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Seal {
    /// From these secrets: the first one seals, all of them open. Each makes a key by itself; see
    /// `usher_edge::seal`.
    Secrets(Vec<Secret>),
    /// From a file in this folder, which is made with one new key when it is not there.
    Folder(PathBuf),
}

impl Default for Seal {
    fn default() -> Seal {
        Seal::Folder(PathBuf::from("var"))
    }
}

/// The control API: REST, metrics and health of the process on a listener of its own.
#[derive(Debug, Clone, PartialEq)]
pub struct Api {
    /// Where it listens. Port 0 takes a free port.
    pub listen: SocketAddr,
    /// Speaks TLS, with the certificates of the HTTPS listeners. Default false.
    pub tls: bool,
    /// Scheme, host and port under which people and programs reach it, without a slash at the end:
    /// absolute URLs in answers begin so. Default none: the address that it listens on.
    pub public_origin: Option<String>,
    /// Who may call it. Without any, only `/healthz` and `/readyz` answer.
    pub tokens: Vec<Token>,
}

/// Where the access log goes and what more it says.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AccessLog {
    /// Where the lines go. Default stdout.
    pub target: LogTarget,
    /// Whether `path` carries the query string. Default false: it may hold secrets.
    pub query_strings: bool,
}

/// Where lines of a log go.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum LogTarget {
    /// The standard output, written `-`.
    #[default]
    Stdout,
    /// A file that is appended to, and opened again on reload.
    File(PathBuf),
}

/// How the process ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shutdown {
    /// How long requests and sockets may go on after SIGTERM. Range 0..=24 h, default 30 s.
    pub grace: Duration,
    /// How long they may go on after another process has taken over. Range 0..=24 h, default
    /// 10 min: nobody waits for the end of this process then.
    pub handover_grace: Duration,
}

impl Default for Shutdown {
    fn default() -> Shutdown {
        Shutdown {
            grace: Duration::from_secs(30),
            handover_grace: Duration::from_secs(10 * 60),
        }
    }
}

/// Browsers as a service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Browsers {
    /// Where Workers come in. Port 0 takes a free port. Default none.
    pub listen: Option<SocketAddr>,
    /// Says that one tenant owns every session, who is trusted with this machine: without it
    /// [`Kind::Process`] is refused. Default false.
    pub insecure_single_tenant: bool,
    /// The browser's program. Default: where Debian puts it.
    pub chromium: Option<PathBuf>,
    /// Where pools keep their files, and hosts their folders.
    pub folder: PathBuf,
    /// What each region has; at least one.
    pub pools: BTreeMap<Region, BrowserPool>,
}

/// The browsers of one region.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BrowserPool {
    /// How they are run. Default in a sandbox.
    pub backend: Kind,
    /// How many are kept ready at least. Range 0..=1000, default 2, or `max` where that is less.
    pub min_ready: u32,
    /// How many are kept ready at most, not below `min_ready`. Default: as many as there may be.
    pub max_ready: Option<u32>,
    /// How many there may be together, 1..=1000. Default: what cores and memory allow.
    pub max: Option<u32>,
    /// The socket of a host that somebody else has started. Default: one is started here.
    pub socket: Option<PathBuf>,
}

/// Somebody who may have browsers.
#[derive(Debug, Clone, PartialEq)]
pub struct Account {
    /// Unique among all.
    pub name: String,
    /// What it pays for. Default what it uses.
    pub kind: AccountKind,
    /// What its Workers show, at least 16 characters. Default none: it has no binding.
    pub secret: Option<Secret>,
    /// Networks that would be denied and are open for its browsers. Default none.
    pub allow_private: Vec<IpNet>,
    /// How often it is served in a round of the line. Range 1..=1000, default by kind.
    pub weight: u32,
    /// What it may have. Default by kind.
    pub limits: Limits,
}

impl Account {
    /// The defaults.
    #[must_use]
    pub fn new(name: &str) -> Account {
        let kind = AccountKind::Paygo;
        Account {
            name: name.to_owned(),
            kind,
            secret: None,
            allow_private: Vec::new(),
            weight: kind.weight(),
            limits: Limits::of(kind),
        }
    }
}
