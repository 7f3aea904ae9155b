//! Why something did not leave, or did not come back.
//!
//! A browser behind a proxy knows one word for all of it, so the true cause is kept here, with the
//! name that the browser itself would have had for it without a proxy.

/// Why. Each has a stable word for logs and metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Cause {
    /// The browser is nobody's yet.
    Unassigned,
    /// The host is not in the session's guardrails.
    Guardrails,
    /// The operator denies the host.
    Host,
    /// The port is not one that pages may reach.
    Port,
    /// An address of the host lies where pages must not reach.
    Address,
    /// The session used up its traffic.
    Traffic,
    /// As many connections as a browser may have.
    Connections,
    /// No credential of this browser, where one is asked for.
    Credential,
    /// Not a request that a proxy can serve.
    Malformed,
    /// The name has no address.
    Name,
    /// Nobody could say in time whether it has.
    NameTimeout,
    /// Connection refused.
    Refused,
    /// No way to the address.
    Unreachable,
    /// No connection in time.
    ConnectTimeout,
    /// Any other fault of a connection before anything was answered.
    Connect,
    /// The server closed without an answer.
    Empty,
    /// The server's answer cannot be read.
    Answer,
    /// The server ended its answer before its end.
    Cut,
    /// Nothing moved for too long, or it lasted longer than anything may.
    Silent,
}

impl Cause {
    /// Every one.
    pub const ALL: [Cause; 19] = [
        Cause::Unassigned,
        Cause::Guardrails,
        Cause::Host,
        Cause::Port,
        Cause::Address,
        Cause::Traffic,
        Cause::Connections,
        Cause::Credential,
        Cause::Malformed,
        Cause::Name,
        Cause::NameTimeout,
        Cause::Refused,
        Cause::Unreachable,
        Cause::ConnectTimeout,
        Cause::Connect,
        Cause::Empty,
        Cause::Answer,
        Cause::Cut,
        Cause::Silent,
    ];

    /// The stable word.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Cause::Unassigned => "unassigned",
            Cause::Guardrails => "guardrails",
            Cause::Host => "denied-host",
            Cause::Port => "denied-port",
            Cause::Address => "denied-address",
            Cause::Traffic => "traffic",
            Cause::Connections => "connections",
            Cause::Credential => "credential",
            Cause::Malformed => "malformed",
            Cause::Name => "name-not-resolved",
            Cause::NameTimeout => "name-timeout",
            Cause::Refused => "refused",
            Cause::Unreachable => "unreachable",
            Cause::ConnectTimeout => "connect-timeout",
            Cause::Connect => "connect",
            Cause::Empty => "empty-answer",
            Cause::Answer => "answer-malformed",
            Cause::Cut => "answer-cut",
            Cause::Silent => "silent",
        }
    }

    /// The status of the answer that the browser gets.
    #[must_use]
    pub fn status(self) -> u16 {
        match self {
            Cause::Unassigned
            | Cause::Guardrails
            | Cause::Host
            | Cause::Port
            | Cause::Address
            | Cause::Traffic => 403,
            Cause::Connections => 503,
            Cause::Credential => 407,
            Cause::Malformed => 400,
            Cause::NameTimeout | Cause::ConnectTimeout | Cause::Silent => 504,
            Cause::Name
            | Cause::Refused
            | Cause::Unreachable
            | Cause::Connect
            | Cause::Empty
            | Cause::Answer
            | Cause::Cut => 502,
        }
    }

    /// The type of fault in `Proxy-Status` (RFC 9209 2.3).
    #[must_use]
    pub fn proxy_error(self) -> &'static str {
        match self {
            Cause::Unassigned
            | Cause::Guardrails
            | Cause::Host
            | Cause::Port
            | Cause::Traffic
            | Cause::Credential => "http_request_denied",
            Cause::Address => "destination_ip_prohibited",
            Cause::Connections => "connection_limit_reached",
            Cause::Malformed => "http_request_error",
            Cause::Name => "dns_error",
            Cause::NameTimeout => "dns_timeout",
            Cause::Refused => "connection_refused",
            Cause::Unreachable => "destination_ip_unroutable",
            Cause::ConnectTimeout => "connection_timeout",
            Cause::Connect => "destination_unavailable",
            Cause::Empty => "connection_terminated",
            Cause::Answer => "http_protocol_error",
            Cause::Cut => "http_response_incomplete",
            Cause::Silent => "http_response_timeout",
        }
    }

    /// What Chromium calls it when it meets it without a proxy; of what no direct connection can
    /// meet, the next best.
    #[must_use]
    pub fn net_error(self) -> &'static str {
        match self {
            Cause::Unassigned
            | Cause::Guardrails
            | Cause::Host
            | Cause::Port
            | Cause::Address
            | Cause::Traffic => "net::ERR_BLOCKED_BY_ADMINISTRATOR",
            Cause::Connections => "net::ERR_INSUFFICIENT_RESOURCES",
            Cause::Credential => "net::ERR_INVALID_AUTH_CREDENTIALS",
            Cause::Malformed => "net::ERR_INVALID_URL",
            Cause::Name => "net::ERR_NAME_NOT_RESOLVED",
            Cause::NameTimeout => "net::ERR_DNS_TIMED_OUT",
            Cause::Refused => "net::ERR_CONNECTION_REFUSED",
            Cause::Unreachable => "net::ERR_ADDRESS_UNREACHABLE",
            Cause::ConnectTimeout => "net::ERR_CONNECTION_TIMED_OUT",
            Cause::Connect => "net::ERR_CONNECTION_RESET",
            Cause::Empty => "net::ERR_EMPTY_RESPONSE",
            Cause::Answer => "net::ERR_INVALID_HTTP_RESPONSE",
            Cause::Cut => "net::ERR_CONNECTION_CLOSED",
            Cause::Silent => "net::ERR_TIMED_OUT",
        }
    }

    /// Whether it was decided here, and nothing was sent anywhere.
    #[must_use]
    pub fn is_policy(self) -> bool {
        self.status() == 403
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_cause_has_a_word_of_its_own() {
        let words: BTreeSet<_> = Cause::ALL.iter().map(|cause| cause.as_str()).collect();
        assert_eq!(words.len(), Cause::ALL.len());
        for (index, cause) in Cause::ALL.into_iter().enumerate() {
            assert_eq!(cause as usize, index, "the order of counts");
        }
    }
}
