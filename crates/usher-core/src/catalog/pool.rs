//! Pools and the endpoints in them.

use std::net::IpAddr;
use std::time::Duration;

use super::Reference;
use crate::id::Id;
use crate::steering::EndpointSteering;
use crate::time::Wall;

/// A group of endpoints that serve the same thing. Source: load-balancing API, pools.
#[derive(Debug, Clone, PartialEq)]
pub struct Pool {
    /// Identity.
    pub id: Id,
    /// `[A-Za-z0-9_-]+`, unique in the account.
    pub name: String,
    /// Free text.
    pub description: String,
    /// False: no traffic, no probes. Default true.
    pub enabled: bool,
    /// At least one.
    pub endpoints: Vec<Endpoint>,
    /// How an endpoint is chosen inside this pool.
    pub steering: EndpointSteering,
    /// Fewer healthy endpoints than this make the pool critical. Default 1. 0: never critical
    /// while one endpoint is enabled.
    pub endpoints_min: u32,
    /// Who judges the endpoints.
    pub monitoring: Monitoring,
    /// How to speak to the endpoints, where the pool says more than its zone.
    pub tls: EndpointTls,
    /// Degrees: latitude -90..=90 and longitude -180..=180. For proximity steering.
    pub coordinates: Option<(f64, f64)>,
    /// What part of its traffic it passes on to other pools.
    pub shedding: Shedding,
    /// How long the weight of an endpoint that came into service takes to rise to its full value;
    /// hash steering does not look at it. Range 1..=3600 s, default none: at once. Our own.
    pub slow_start: Option<Duration>,
}

/// What part of a pool's traffic goes to other pools, by hand and in an emergency. Source:
/// load-balancing API, `load_shedding`.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Shedding {
    /// Percent of requests without a pin and of new pins. Range 0..=100 in steps of 0.01, default 0.
    pub default_percent: f64,
    /// Which of them. Default random.
    pub default_policy: ShedPolicy,
    /// Percent of visitors with a pin, by hash of the address. Range 0..=100 in steps of 0.01,
    /// default 0.
    pub session_percent: f64,
}

/// Which requests a pool sheds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum ShedPolicy {
    /// Every request by a draw of its own.
    #[default]
    Random,
    /// All requests of some addresses.
    Hash,
}

/// Who judges the endpoints of a pool.
#[derive(Debug, Clone, PartialEq)]
pub enum Monitoring {
    /// Nobody: every endpoint counts as healthy.
    None,
    /// One monitor.
    Monitor(Reference),
    /// A vote of several.
    Group(Reference),
}

/// One server in a pool.
#[derive(Debug, Clone, PartialEq)]
pub struct Endpoint {
    /// Identity: pool, address and port. Survives reordering and renaming.
    pub id: Id,
    /// Unique in the pool; for reports only.
    pub name: String,
    /// Where it is.
    pub address: Address,
    /// Port; `None`: 80, or 443 over TLS.
    pub port: Option<u16>,
    /// False: no new traffic; pins may hold for a while, see [`super::AffinityAttributes::drain`].
    /// Default true.
    pub enabled: bool,
    /// When it was disabled, if that is known. An engine that sees it happen does not need it.
    pub disabled_at: Option<Wall>,
    /// Capacity relative to its siblings. Range 0..=1 in steps of 0.01, default 1.
    pub weight: f64,
    /// Replaces the client's `Host` towards this endpoint, and is the SNI name.
    pub host_header: Option<String>,
}

/// An IP address, or a name that is resolved while running.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Address {
    /// An address.
    Ip(IpAddr),
    /// A hostname, lower case.
    Host(String),
}

impl std::fmt::Display for Address {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Address::Ip(ip) => ip.fmt(f),
            Address::Host(host) => host.fmt(f),
        }
    }
}

/// The `usher` object of a pool: how to speak to its endpoints. `None` leaves it to the zone.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct EndpointTls {
    /// Whether to speak TLS, and whether to check the certificate.
    pub mode: Option<TlsMode>,
    /// PEM file with the authorities to trust instead of the system's.
    pub ca: Option<String>,
    /// PEM file with the certificate to show, and its key.
    pub client_cert: Option<String>,
    /// PEM file with the key of `client_cert`.
    pub client_key: Option<String>,
    /// Name to ask for and to check against, instead of the Host header.
    pub sni: Option<String>,
    /// Whether to speak HTTP/2: over TLS where the endpoint chooses it, in the clear without
    /// asking. Default false: HTTP/1.1. A zone does not say.
    pub http2: bool,
}

/// TLS towards an endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TlsMode {
    /// In the clear.
    Off,
    /// TLS, certificate not checked.
    Full,
    /// TLS, certificate checked.
    Strict,
}
