//! Which failure reason an error stands for.
//!
//! hyper and rustls wrap what happened several times, so the whole chain of causes is searched for
//! the first link that says something definite.

use std::error::Error;
use std::io;

use rustls::{AlertDescription, CertificateError, PeerIncompatible};
use usher_core::health::FailureReason;

/// Why there is no connection.
pub(super) fn of_connect(error: &io::Error) -> FailureReason {
    // What `std` has no kind for: our own limits. They say nothing about the endpoint.
    let exhausted = [
        rustix::io::Errno::MFILE,
        rustix::io::Errno::NFILE,
        rustix::io::Errno::NOBUFS,
    ]
    .map(rustix::io::Errno::raw_os_error);
    if error
        .raw_os_error()
        .is_some_and(|errno| exhausted.contains(&errno))
    {
        return FailureReason::Other;
    }
    of_kind(error.kind()).unwrap_or(FailureReason::TcpConnection)
}

/// Why the TLS handshake did not succeed.
pub(super) fn of_handshake(error: &io::Error) -> FailureReason {
    of_chain(error).unwrap_or(FailureReason::TlsHandshake)
}

/// Why there was no HTTP response, or not all of it. A connection that is closed too early is an
/// invalid response; so is everything that the parser refuses.
pub(super) fn of_exchange(error: &(dyn Error + 'static)) -> FailureReason {
    of_chain(error).unwrap_or(FailureReason::HttpInvalid)
}

fn of_chain(error: &(dyn Error + 'static)) -> Option<FailureReason> {
    let mut link = Some(error);
    while let Some(error) = link {
        if let Some(tls) = error.downcast_ref() {
            return Some(of_tls(tls));
        }
        link = match error.downcast_ref::<io::Error>() {
            Some(io) => match io.get_ref() {
                // `source()` of an io::Error skips the error that it was made from.
                Some(inner) => Some(inner as &(dyn Error + 'static)),
                None => return of_kind(io.kind()),
            },
            None => error.source(),
        };
    }
    None
}

#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "io::ErrorKind is open, and most of it cannot happen here"
)]
fn of_kind(kind: io::ErrorKind) -> Option<FailureReason> {
    Some(match kind {
        io::ErrorKind::ConnectionRefused => FailureReason::TcpConnection,
        io::ErrorKind::TimedOut => FailureReason::TcpTimeout,
        io::ErrorKind::ConnectionReset
        | io::ErrorKind::ConnectionAborted
        | io::ErrorKind::BrokenPipe => FailureReason::ConnectionReset,
        io::ErrorKind::HostUnreachable => FailureReason::NoRoute,
        io::ErrorKind::NetworkUnreachable | io::ErrorKind::NetworkDown => {
            FailureReason::NetworkUnreachable
        }
        _ => return None,
    })
}

#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "rustls::Error is open: what is new is a failed handshake"
)]
fn of_tls(error: &rustls::Error) -> FailureReason {
    match error {
        rustls::Error::InvalidCertificate(
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
        ) => FailureReason::TlsNameMismatch,
        rustls::Error::InvalidCertificate(_) | rustls::Error::NoCertificatesPresented => {
            FailureReason::TlsUntrusted
        }
        rustls::Error::AlertReceived(alert) => of_alert(*alert),
        rustls::Error::InvalidMessage(_)
        | rustls::Error::InappropriateMessage { .. }
        | rustls::Error::InappropriateHandshakeMessage { .. }
        | rustls::Error::PeerMisbehaved(_)
        | rustls::Error::PeerSentOversizedRecord
        | rustls::Error::DecryptError
        | rustls::Error::PeerIncompatible(
            PeerIncompatible::ServerDoesNotSupportTls12Or13
            | PeerIncompatible::ServerTlsVersionIsDisabledByOurConfig,
        ) => FailureReason::TlsProtocol,
        _ => FailureReason::TlsHandshake,
    }
}

#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "every other alert is a refusal of the handshake"
)]
fn of_alert(alert: AlertDescription) -> FailureReason {
    match alert {
        AlertDescription::UnrecognisedName => FailureReason::TlsUnrecognizedName,
        AlertDescription::ProtocolVersion
        | AlertDescription::UnexpectedMessage
        | AlertDescription::DecodeError
        | AlertDescription::DecryptError
        | AlertDescription::BadRecordMac
        | AlertDescription::RecordOverflow
        | AlertDescription::IllegalParameter => FailureReason::TlsProtocol,
        _ => FailureReason::TlsHandshake,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_kernel_says_about_a_connection() {
        use rustix::io::Errno;
        let cases = [
            (Errno::CONNREFUSED, FailureReason::TcpConnection),
            (Errno::TIMEDOUT, FailureReason::TcpTimeout),
            (Errno::CONNRESET, FailureReason::ConnectionReset),
            (Errno::HOSTUNREACH, FailureReason::NoRoute),
            (Errno::NETUNREACH, FailureReason::NetworkUnreachable),
            (Errno::NETDOWN, FailureReason::NetworkUnreachable),
            (Errno::ADDRNOTAVAIL, FailureReason::TcpConnection),
            (Errno::MFILE, FailureReason::Other),
            (Errno::NFILE, FailureReason::Other),
        ];
        for (errno, reason) in cases {
            let error = io::Error::from_raw_os_error(errno.raw_os_error());
            assert_eq!(of_connect(&error), reason, "{error}");
        }
    }
}
