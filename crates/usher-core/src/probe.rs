//! Probes as values: what the edge is told to do, and what it says back.
//!
//! An order is one attempt. Retries are further orders, so that the edge has no rule of its own
//! about when a failure is final.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::catalog::{Address, Endpoint, Monitor, MonitorKind, Pool};
use crate::health::FailureReason;

/// One attempt that was ordered. Never used twice in the life of an engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ProbeId(pub u64);

/// What to do, complete: nothing has to be looked up to carry it out.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Probe {
    /// What to send and what counts as a pass.
    pub kind: MonitorKind,
    /// Where to.
    pub address: Address,
    /// The port to connect to.
    pub port: u16,
    /// Limit for the whole attempt, name lookup and redirects included. Range 1..=10 s.
    pub timeout: Duration,
    /// Value of the `Host` header: the endpoint's own, else the monitor's, else the address.
    /// The monitor's headers still hold their `Host`; this one replaces it.
    pub host: String,
    /// Name to ask for and to check the certificate against. `None`: ask for none, check against
    /// the address.
    pub sni: Option<String>,
    /// PEM file with the authorities to trust instead of the system's.
    pub ca: Option<String>,
    /// PEM files with the certificate to show and its key.
    pub client_cert: Option<(String, String)>,
    /// Value of the `User-Agent` header. Fixed by Usher.
    pub user_agent: String,
}

impl Probe {
    /// What `monitor` has done at `endpoint` of `pool`.
    #[must_use]
    pub fn of(monitor: &Monitor, pool: &Pool, endpoint: &Endpoint) -> Probe {
        let (headers, port_default) = match &monitor.kind {
            MonitorKind::Http(check) => (check.headers.as_slice(), 80),
            MonitorKind::Https { check, .. } => (check.headers.as_slice(), 443),
            MonitorKind::Tcp => (&[][..], 0),
        };
        let own = headers
            .iter()
            .find(|(name, _)| name.eq_ignore_ascii_case("host"))
            .and_then(|(_, values)| values.first());
        let set = endpoint.host_header.as_ref().or(own);
        // A redirect can lead from plain HTTP to TLS.
        let tls_possible = match &monitor.kind {
            MonitorKind::Http(check) => check.follow_redirects,
            MonitorKind::Https { .. } => true,
            MonitorKind::Tcp => false,
        };
        let tls = tls_possible.then_some(&pool.tls);
        Probe {
            kind: monitor.kind.clone(),
            address: endpoint.address.clone(),
            port: monitor.port.or(endpoint.port).unwrap_or(port_default),
            timeout: monitor.timeout,
            host: set.cloned().unwrap_or_else(|| host_of(&endpoint.address)),
            sni: tls.and_then(|tls| {
                tls.sni
                    .clone()
                    .or_else(|| set.map(|host| without_port(host).to_owned()))
            }),
            ca: tls.and_then(|tls| tls.ca.clone()),
            client_cert: tls.and_then(|tls| tls.client_cert.clone().zip(tls.client_key.clone())),
            user_agent: format!(
                "Mozilla/5.0 (compatible; Usher-Health/1.0; pool-id: {:016x})",
                pool.id.short()
            ),
        }
    }
}

fn host_of(address: &Address) -> String {
    match address {
        Address::Ip(std::net::IpAddr::V6(ip)) => format!("[{ip}]"),
        Address::Ip(std::net::IpAddr::V4(_)) | Address::Host(_) => address.to_string(),
    }
}

fn without_port(host: &str) -> &str {
    match host.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((address, _)) => address,
        None => host.split_once(':').map_or(host, |(name, _)| name),
    }
}

/// One attempt to make.
#[derive(Debug, Clone, PartialEq)]
pub struct ProbeOrder {
    /// To be named in the result.
    pub id: ProbeId,
    /// What to do.
    pub probe: Arc<Probe>,
}

/// How an attempt went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProbeResult {
    /// The endpoint did what the monitor asks for.
    Pass {
        /// Status of the HTTP response; `None` for a probe that is not HTTP.
        status: Option<u16>,
        /// From the start of the connection to the first byte of the response, or to the end of the
        /// handshake where there is no response.
        rtt: Duration,
    },
    /// It did not.
    Fail {
        /// Why.
        reason: FailureReason,
        /// Status of the HTTP response, if one came.
        status: Option<u16>,
        /// As for a pass, if it came that far.
        rtt: Option<Duration>,
    },
}

impl ProbeResult {
    /// Whether it passed.
    #[must_use]
    pub const fn passed(&self) -> bool {
        matches!(self, ProbeResult::Pass { .. })
    }

    /// Why it failed, or [`FailureReason::None`].
    #[must_use]
    pub const fn reason(&self) -> FailureReason {
        match self {
            ProbeResult::Pass { .. } => FailureReason::None,
            ProbeResult::Fail { reason, .. } => *reason,
        }
    }

    /// Status of the HTTP response, if there was one.
    #[must_use]
    pub const fn status(&self) -> Option<u16> {
        match self {
            ProbeResult::Pass { status, .. } | ProbeResult::Fail { status, .. } => *status,
        }
    }

    /// Round trip, if it was measured.
    #[must_use]
    pub const fn rtt(&self) -> Option<Duration> {
        match self {
            ProbeResult::Pass { rtt, .. } => Some(*rtt),
            ProbeResult::Fail { rtt, .. } => *rtt,
        }
    }
}

impl fmt::Display for ProbeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "probe {}", self.0)
    }
}
