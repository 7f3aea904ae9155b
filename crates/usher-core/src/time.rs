//! Time as a value that can be written down and replayed.
//!
//! `std::time::Instant` cannot be stored or made up, so the core has its own two clocks and never
//! reads either: the caller says what time it is.

use std::time::Duration;

/// Nanoseconds since some moment of this process. For timeouts and intervals.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Mono(u64);

impl Mono {
    /// The moment that this process counts from.
    pub const ZERO: Mono = Mono(0);

    /// `nanos` nanoseconds after [`Mono::ZERO`].
    #[must_use]
    pub const fn from_nanos(nanos: u64) -> Mono {
        Mono(nanos)
    }

    /// Nanoseconds since [`Mono::ZERO`].
    #[must_use]
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// `later` after this moment; the end of time when that does not fit.
    #[must_use]
    pub fn after(self, later: Duration) -> Mono {
        let nanos = u64::try_from(later.as_nanos()).unwrap_or(u64::MAX);
        Mono(self.0.saturating_add(nanos))
    }

    /// How long ago `earlier` was; zero when it is not in the past.
    #[must_use]
    pub const fn since(self, earlier: Mono) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

/// Milliseconds since the Unix epoch. For what leaves the node or outlives the process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Wall(i64);

impl Wall {
    /// `millis` milliseconds after 1970-01-01T00:00:00Z.
    #[must_use]
    pub const fn from_millis(millis: i64) -> Wall {
        Wall(millis)
    }

    /// Milliseconds since 1970-01-01T00:00:00Z.
    #[must_use]
    pub const fn as_millis(self) -> i64 {
        self.0
    }
}
