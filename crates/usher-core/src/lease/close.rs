//! Why a session ended: in the history, in the close frame, and on the bill.
//!
//! Numbers and texts of the first three are the hosted service's; it tells the others in prose
//! only, so their numbers are ours. Source: browser specification 8.

/// Why a session ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CloseReason {
    /// We cannot tell.
    Unknown,
    /// The client asked for it.
    NormalClosure,
    /// No command for as long as the session may be idle.
    BrowserIdle,
    /// The browser's process died, or ran out of memory.
    ChromiumCrashed,
    /// The relay between broker and node is lost, or the node is.
    ConnectionError,
    /// Maintenance, a drain, an operator.
    SessionEvicted,
}

impl CloseReason {
    /// Every reason, by number.
    pub const ALL: [CloseReason; 6] = [
        CloseReason::Unknown,
        CloseReason::NormalClosure,
        CloseReason::BrowserIdle,
        CloseReason::ChromiumCrashed,
        CloseReason::ConnectionError,
        CloseReason::SessionEvicted,
    ];

    /// Its number on the wire and in tables, 0..=5.
    #[must_use]
    pub const fn number(self) -> u8 {
        match self {
            CloseReason::Unknown => 0,
            CloseReason::NormalClosure => 1,
            CloseReason::BrowserIdle => 2,
            CloseReason::ChromiumCrashed => 3,
            CloseReason::ConnectionError => 4,
            CloseReason::SessionEvicted => 5,
        }
    }

    /// The reason with this number; an unknown one is [`CloseReason::Unknown`].
    #[must_use]
    pub fn of_number(number: u8) -> CloseReason {
        let known = CloseReason::ALL.get(usize::from(number)).copied();
        known.unwrap_or(CloseReason::Unknown)
    }

    /// Its text in the history and in close frames.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            CloseReason::Unknown => "Unknown",
            CloseReason::NormalClosure => "NormalClosure",
            CloseReason::BrowserIdle => "BrowserIdle",
            CloseReason::ChromiumCrashed => "ChromiumCrashed",
            CloseReason::ConnectionError => "ConnectionError",
            CloseReason::SessionEvicted => "SessionEvicted",
        }
    }

    /// The WebSocket close code that open connections get.
    #[must_use]
    pub const fn close_code(self) -> u16 {
        match self {
            CloseReason::NormalClosure | CloseReason::BrowserIdle => 1000,
            CloseReason::SessionEvicted => 1001,
            CloseReason::Unknown | CloseReason::ChromiumCrashed | CloseReason::ConnectionError => {
                1011
            }
        }
    }

    /// Whether the session's time counts against the account: only where the end was its own doing.
    #[must_use]
    pub const fn is_billed(self) -> bool {
        matches!(self, CloseReason::NormalClosure | CloseReason::BrowserIdle)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_names_one_reason() {
        for (number, reason) in (0..).zip(CloseReason::ALL) {
            assert_eq!(reason.number(), number);
            assert_eq!(CloseReason::of_number(number), reason);
        }
        assert_eq!(CloseReason::of_number(6), CloseReason::Unknown);
    }
}
