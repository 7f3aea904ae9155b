//! Why a probe failed: a closed list, since scripts compare these texts.

use std::fmt;

/// Why a probe failed. Source: load-balancing API, `failure_reason`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum FailureReason {
    /// It did not fail.
    None,
    /// Refused, or closed before it was open.
    TcpConnection,
    /// No TCP connection in time.
    TcpTimeout,
    /// Connected, but no answer in time.
    HttpTimeout,
    /// A status that is not expected.
    CodeMismatch,
    /// The expected text was not in the body.
    BodyMismatch,
    /// The certificate is expired, self-signed, or of an unknown authority.
    TlsUntrusted,
    /// The certificate is for another name.
    TlsNameMismatch,
    /// What came back is not TLS, or not a version that we speak.
    TlsProtocol,
    /// The endpoint does not know the name that was asked for.
    TlsUnrecognizedName,
    /// Any other failure of the handshake.
    TlsHandshake,
    /// No route to the host.
    NoRoute,
    /// No route to the network.
    NetworkUnreachable,
    /// What came back is not HTTP.
    HttpInvalid,
    /// The hostname does not resolve.
    DnsUnknownHost,
    /// The connection was reset.
    ConnectionReset,
    /// The monitor cannot be carried out as it is set.
    MonitorConfig,
    /// The address is one that Usher itself proxies.
    DnsInternal,
    /// None of the above.
    Other,
}

impl FailureReason {
    /// Every reason.
    pub const ALL: [FailureReason; 19] = [
        FailureReason::None,
        FailureReason::TcpConnection,
        FailureReason::TcpTimeout,
        FailureReason::HttpTimeout,
        FailureReason::CodeMismatch,
        FailureReason::BodyMismatch,
        FailureReason::TlsUntrusted,
        FailureReason::TlsNameMismatch,
        FailureReason::TlsProtocol,
        FailureReason::TlsUnrecognizedName,
        FailureReason::TlsHandshake,
        FailureReason::NoRoute,
        FailureReason::NetworkUnreachable,
        FailureReason::HttpInvalid,
        FailureReason::DnsUnknownHost,
        FailureReason::ConnectionReset,
        FailureReason::MonitorConfig,
        FailureReason::DnsInternal,
        FailureReason::Other,
    ];

    /// The text, exactly as the API says it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            FailureReason::None => "No failures",
            FailureReason::TcpConnection => "TCP connection failed",
            FailureReason::TcpTimeout => "TCP timeout",
            FailureReason::HttpTimeout => "HTTP timeout occurred",
            FailureReason::CodeMismatch => "Response code mismatch error",
            FailureReason::BodyMismatch => "Response body mismatch error",
            FailureReason::TlsUntrusted => "TLS untrusted certificate error",
            FailureReason::TlsNameMismatch => "TLS name mismatch error",
            FailureReason::TlsProtocol => "TLS protocol error",
            FailureReason::TlsUnrecognizedName => "TLS unrecognized name error",
            FailureReason::TlsHandshake => "TLS handshake failure",
            FailureReason::NoRoute => "No route to host error",
            FailureReason::NetworkUnreachable => "Network unreachable",
            FailureReason::HttpInvalid => "HTTP invalid response",
            FailureReason::DnsUnknownHost => "DNS unknown host",
            FailureReason::ConnectionReset => "Connection reset by peer",
            FailureReason::MonitorConfig => "Monitor config error",
            FailureReason::DnsInternal => "DNS internal",
            FailureReason::Other => "Other failure",
        }
    }

    /// Whether another attempt may be made at once: only a timeout says nothing about the next one.
    #[must_use]
    pub const fn is_timeout(self) -> bool {
        matches!(self, FailureReason::TcpTimeout | FailureReason::HttpTimeout)
    }
}

impl fmt::Display for FailureReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
