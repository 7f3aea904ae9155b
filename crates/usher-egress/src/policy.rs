//! What one browser may reach, and how much of it.

use std::net::IpAddr;
use std::ops::RangeInclusive;

use ipnet::IpNet;
use serde::Deserialize;

use crate::address::Ranges;
use crate::cause::Cause;
use crate::guardrails::{Guardrails, Pattern, PatternFault};
use crate::target::Target;

/// Connections that one browser may have to the outside at a time.
pub const CONNECTIONS_MAX: usize = 256;

/// Everything that is decided for a browser when it is lent. The default lets it reach whatever is
/// public, on usual ports.
#[derive(Debug, Clone)]
pub struct Policy {
    /// The hosts that the session may reach. Default `None`: all of them.
    pub guardrails: Option<Guardrails>,
    /// Hosts that the operator denies to everybody. Default: none.
    pub denied_hosts: Vec<Pattern>,
    /// Networks denied beside those that always are. They win over `allow_private`. Default: none.
    pub denied: Vec<IpNet>,
    /// Networks that would be denied and are open for this account, though never an address where
    /// a cloud keeps metadata, nor a listener of our own. Default: none.
    pub allow_private: Vec<IpNet>,
    /// Ports.
    pub ports: Ports,
    /// Connections at a time, 1 or more. Default [`CONNECTIONS_MAX`].
    pub connections_max: usize,
    /// Bytes in both directions together over the life of the browser. Default `None`: no limit.
    pub traffic_max: Option<u64>,
}

impl Default for Policy {
    fn default() -> Policy {
        Policy {
            guardrails: None,
            denied_hosts: Vec::new(),
            denied: Vec::new(),
            allow_private: Vec::new(),
            ports: Ports::default(),
            connections_max: CONNECTIONS_MAX,
            traffic_max: None,
        }
    }
}

/// A policy as a broker writes it for a browser host.
///
/// Whoever reads it may be older than whoever wrote it, for hosts outlive the processes in front of
/// them. A word that is not known here may forbid something, so it is a fault.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    allowed_hosts: Option<Vec<String>>,
    #[serde(default)]
    denied_hosts: Vec<String>,
    #[serde(default)]
    denied: Vec<IpNet>,
    #[serde(default)]
    allow_private: Vec<IpNet>,
    connections_max: Option<usize>,
    traffic_max: Option<u64>,
}

/// Why a written policy is none.
#[derive(Debug, thiserror::Error)]
pub enum PolicyFault {
    /// Not JSON, or words that are not known here.
    #[error("a policy cannot be read: {0}")]
    Json(#[from] serde_json::Error),
    /// A host pattern is none.
    #[error(transparent)]
    Pattern(#[from] PatternFault),
}

impl Policy {
    /// Reads a policy that is written as a JSON object: `allowed_hosts` (the guardrails; without
    /// it all hosts, empty none), `denied_hosts`, `denied`, `allow_private` (lists of networks),
    /// `connections_max`, `traffic_max`, each as the field of this type says, and each with its
    /// default where it is left out. An empty text is the default.
    ///
    /// # Errors
    /// It cannot be understood to its last word.
    pub fn read(text: &str) -> Result<Policy, PolicyFault> {
        if text.trim().is_empty() {
            return Ok(Policy::default());
        }
        let written: Written = serde_json::from_str(text)?;
        let patterns = |list: Vec<String>| -> Result<Vec<Pattern>, PatternFault> {
            list.iter().map(|text| Pattern::parse(text)).collect()
        };
        let default = Policy::default();
        Ok(Policy {
            guardrails: written
                .allowed_hosts
                .map(|list| patterns(list).map(Guardrails::of_patterns))
                .transpose()?,
            denied_hosts: patterns(written.denied_hosts)?,
            denied: written.denied,
            allow_private: written.allow_private,
            connections_max: written.connections_max.unwrap_or(default.connections_max),
            traffic_max: written.traffic_max,
            ..default
        })
    }

    /// What can be said before anybody is asked for an address: a name that is denied must not
    /// even reach a name server, for that is a way out too.
    pub(crate) fn judge_name(&self, target: &Target) -> Result<(), Cause> {
        let host = target.host();
        if self
            .guardrails
            .as_ref()
            .is_some_and(|some| !some.allow(host))
        {
            return Err(Cause::Guardrails);
        }
        if self
            .denied_hosts
            .iter()
            .any(|pattern| pattern.matches(host))
        {
            return Err(Cause::Host);
        }
        if !self.ports.allow(target.port()) {
            return Err(Cause::Port);
        }
        Ok(())
    }

    /// Whether an address of the name may be reached.
    pub(crate) fn allows(&self, ranges: &Ranges, ip: IpAddr) -> bool {
        ranges.allow(ip, &self.allow_private, &self.denied)
    }

    /// Whether the account may reach this address of our own.
    pub(crate) fn opens(&self, ip: IpAddr) -> bool {
        let ip = ip.to_canonical();
        self.allow_private.iter().any(|net| net.contains(&ip))
    }
}

/// Ports that pages may reach.
///
/// Default: 80, 443, and from 1024 up but those where databases, clusters, containers and other
/// browsers are served: they take commands from whoever can connect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ports {
    /// Open below 1024.
    pub low: Vec<u16>,
    /// Shut from 1024 up.
    pub shut: Vec<RangeInclusive<u16>>,
}

impl Default for Ports {
    fn default() -> Ports {
        let one = |port: u16| port..=port;
        Ports {
            low: vec![80, 443],
            shut: vec![
                2375..=2376,
                2379..=2380,
                one(3306),
                one(4444),
                one(5432),
                one(5984),
                one(6379),
                one(6443),
                one(8086),
                one(9000),
                one(9200),
                9222..=9229,
                one(10250),
                one(11211),
                one(27017),
            ],
        }
    }
}

impl Ports {
    /// Whether `port` is among them.
    #[must_use]
    pub fn allow(&self, port: u16) -> bool {
        match port {
            ..1024 => self.low.contains(&port),
            1024.. => !self.shut.iter().any(|shut| shut.contains(&port)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_of_services_are_shut() {
        let ports = Ports::default();
        for port in [80, 443, 1024, 8080, 8443, 3000, 9221, 9230, 65535] {
            assert!(ports.allow(port), "{port}");
        }
        for port in [
            0, 1, 22, 25, 81, 445, 1023, 2375, 2376, 2380, 6379, 9222, 9229, 27017,
        ] {
            assert!(!ports.allow(port), "{port}");
        }
    }

    #[test]
    fn a_written_policy_is_understood_to_its_last_word_or_not_at_all() {
        for text in ["", " ", "{}"] {
            let policy = Policy::read(text).expect("the default");
            assert!(policy.guardrails.is_none() && policy.allow_private.is_empty());
            assert_eq!(policy.connections_max, CONNECTIONS_MAX);
        }
        let policy = Policy::read(
            r#"{"allowed_hosts":["*.example.com"],"denied_hosts":["a.example.com"],
                "denied":["192.0.2.0/24"],"allow_private":["127.0.0.0/8","fd00::/8"],
                "connections_max":3,"traffic_max":1000}"#,
        );
        let policy = policy.expect("a policy");
        let judge = |host: &str| policy.judge_name(&Target::new(host, 443).expect("a host"));
        assert_eq!(judge("b.example.com"), Ok(()));
        assert_eq!(judge("a.example.com"), Err(Cause::Host));
        assert_eq!(judge("example.com"), Err(Cause::Guardrails));
        assert!(policy.opens([127, 9, 9, 9].into()) && policy.denied.len() == 1);
        assert_eq!(
            (policy.connections_max, policy.traffic_max),
            (3, Some(1000))
        );
        let none = Policy::read(r#"{"allowed_hosts":[]}"#).expect("a policy");
        assert_eq!(
            none.judge_name(&Target::new("a.b", 443).expect("a host")),
            Err(Cause::Guardrails)
        );
        for text in [
            "null",
            "[]",
            "{",
            r#"{"allowedDomains":[]}"#,
            r#"{"allowed_hosts":["http://a"]}"#,
            r#"{"allow_private":["127.0.0.1/33"]}"#,
            r#"{"traffic_max":-1}"#,
        ] {
            assert!(Policy::read(text).is_err(), "{text}");
        }
    }

    #[test]
    fn the_name_is_judged_before_the_port() {
        let policy = Policy {
            guardrails: Some(Guardrails::new(["example.com", "denied.example"]).expect("two")),
            denied_hosts: vec![Pattern::parse("denied.example").expect("one")],
            ..Policy::default()
        };
        for (authority, judged) in [
            ("example.com:443", Ok(())),
            ("example.com:22", Err(Cause::Port)),
            ("www.example.com:22", Err(Cause::Guardrails)),
            ("denied.example:443", Err(Cause::Host)),
            ("[2001:db8::1]:443", Err(Cause::Guardrails)),
        ] {
            let target = Target::of_authority(authority).expect(authority);
            assert_eq!(policy.judge_name(&target), judged, "{authority}");
        }
    }
}
