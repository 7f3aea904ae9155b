//! Monitors: the rule by which probes judge an endpoint.

use std::time::Duration;

use super::Reference;
use crate::id::Id;

/// How an endpoint is probed. Source: load-balancing API, monitors.
#[derive(Debug, Clone, PartialEq)]
pub struct Monitor {
    /// Identity.
    pub id: Id,
    /// Key in the file.
    pub name: String,
    /// Free text.
    pub description: String,
    /// What a probe does and when it passes.
    pub kind: MonitorKind,
    /// Port to probe when it is not the endpoint's own. `None`: the endpoint's port, or the
    /// protocol's default. Required for [`MonitorKind::Tcp`].
    pub port: Option<u16>,
    /// Between probes from one prober. Range `Draft::interval_min`..=3600 s, default 60 s.
    pub interval: Duration,
    /// Per attempt. Range 1..=10 s, default 5 s.
    pub timeout: Duration,
    /// Extra attempts, made at once and only after a timeout. Range 0..=5, default 2.
    pub retries: u32,
    /// Failed results in a row that make an endpoint unhealthy; 0 acts as 1.
    pub consecutive_down: u32,
    /// Passed results in a row that make it healthy again; 0 acts as 1.
    pub consecutive_up: u32,
}

/// What a probe does. A new type gets a variant here and a file in `usher-edge/src/probe/`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum MonitorKind {
    /// An HTTP request in the clear.
    Http(HttpCheck),
    /// An HTTP request over TLS.
    Https {
        /// The request and what counts as a pass.
        check: HttpCheck,
        /// Whether any certificate will do. Default false.
        allow_insecure: bool,
    },
    /// A TCP handshake; the connection is closed at once.
    Tcp,
}

impl MonitorKind {
    /// The names of all kinds, as the API spells them.
    pub const NAMES: [&'static str; 3] = ["http", "https", "tcp"];

    /// The name, as the API spells it.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            MonitorKind::Http(_) => "http",
            MonitorKind::Https { .. } => "https",
            MonitorKind::Tcp => "tcp",
        }
    }
}

/// The HTTP part of a probe.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct HttpCheck {
    /// Request method. Default `GET`.
    pub method: String,
    /// Path, starting with `/`. Default `/`.
    pub path: String,
    /// Request headers; `User-Agent` cannot be set.
    pub headers: Vec<(String, Vec<String>)>,
    /// Status codes that pass. Default `200`.
    pub expected_codes: CodeSet,
    /// Text to be found in the body without regard to case; empty: not looked at.
    pub expected_body: String,
    /// Whether to follow redirects, at most 10. Default false.
    pub follow_redirects: bool,
}

/// A set of HTTP status codes, written `200`, `2xx`, `200-299` or a comma list of these.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct CodeSet {
    text: String,
    ranges: Vec<(u16, u16)>,
}

/// The text does not describe a set of status codes.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a status code (200), class (2xx) or range (200-299)")]
pub struct CodeSetFault(pub String);

impl CodeSet {
    /// Reads the comma list.
    ///
    /// # Errors
    /// The first part that is none of the three forms, or is outside 100..=599.
    pub fn parse(text: &str) -> Result<CodeSet, CodeSetFault> {
        let ranges = text
            .split(',')
            .map(|part| range(part.trim()))
            .collect::<Result<_, _>>()?;
        Ok(CodeSet {
            text: text.to_owned(),
            ranges,
        })
    }

    /// Whether `code` is in the set.
    #[must_use]
    pub fn contains(&self, code: u16) -> bool {
        self.ranges
            .iter()
            .any(|&(from, to)| (from..=to).contains(&code))
    }

    /// As it was written.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }
}

fn range(part: &str) -> Result<(u16, u16), CodeSetFault> {
    let fault = || CodeSetFault(part.to_owned());
    let code = |text: &str| {
        let digits = text.len() == 3 && text.bytes().all(|byte| byte.is_ascii_digit());
        let code = text
            .parse::<u16>()
            .ok()
            .filter(|code| digits && (100..=599).contains(code));
        code.ok_or_else(fault)
    };
    if let Some((from, to)) = part.split_once('-') {
        let (from, to) = (code(from.trim())?, code(to.trim())?);
        return if from <= to {
            Ok((from, to))
        } else {
            Err(fault())
        };
    }
    match part.as_bytes() {
        [class @ b'1'..=b'5', b'x' | b'X', b'x' | b'X'] => {
            let from = u16::from(class - b'0') * 100;
            Ok((from, from + 99))
        }
        _ => code(part).map(|code| (code, code)),
    }
}

/// Several monitors that judge an endpoint together.
#[derive(Debug, Clone, PartialEq)]
pub struct MonitorGroup {
    /// Identity.
    pub id: Id,
    /// Key in the file.
    pub name: String,
    /// Free text.
    pub description: String,
    /// The monitors; each at most once.
    pub members: Vec<Member>,
}

/// One monitor of a group.
#[derive(Debug, Clone, PartialEq)]
pub struct Member {
    /// The monitor.
    pub monitor: Reference,
    /// False: sends no probes and has no vote.
    pub enabled: bool,
    /// True: probes run and are reported, but have no vote.
    pub monitoring_only: bool,
    /// True: its failure alone makes the endpoint unhealthy.
    pub must_be_healthy: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_sets() {
        let set = CodeSet::parse("200, 3xx,410-412").expect("valid");
        let inside = [200, 300, 399, 410, 411, 412];
        let outside = [199, 201, 299, 400, 409, 413];
        assert!(inside.iter().all(|&code| set.contains(code)));
        assert!(!outside.iter().any(|&code| set.contains(code)));
        assert_eq!(set.as_str(), "200, 3xx,410-412");
    }

    #[test]
    fn what_is_no_code_set() {
        for text in [
            "", "20", "2x", "6xx", "099", "600", "299-200", "200,", "+20", "2000",
        ] {
            assert!(CodeSet::parse(text).is_err(), "{text}");
        }
    }
}
