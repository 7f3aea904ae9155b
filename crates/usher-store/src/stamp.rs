//! Moments of the record: when something was created, changed, or seen.
//!
//! Microseconds, because that is what `created_on` and `modified_on` show; the clocks of
//! `usher-core` are for deciding and are coarser or do not outlive the process.

use std::fmt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use jiff::Timestamp;

/// Microseconds since the Unix epoch, between the years 1 and 9999.
///
/// Shown as RFC 3339 in UTC with six digits of a second: `2026-12-01T10:00:00.000000Z`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Stamp(i64);

impl Stamp {
    /// 0001-01-01T00:00:00Z.
    pub const MIN: Stamp = Stamp(-62_135_596_800_000_000);

    /// The last microsecond of the year 9999, less a day so that it can be shown anywhere.
    pub const MAX: Stamp = Stamp(253_402_207_199_999_999);

    /// `micros` microseconds after 1970-01-01T00:00:00Z; [`Stamp::MIN`] or [`Stamp::MAX`] when
    /// that lies outside them.
    #[must_use]
    pub fn from_micros(micros: i64) -> Stamp {
        Stamp(micros).clamp(Stamp::MIN, Stamp::MAX)
    }

    /// Microseconds since 1970-01-01T00:00:00Z.
    #[must_use]
    pub const fn as_micros(self) -> i64 {
        self.0
    }

    /// What the clock of this machine says.
    #[must_use]
    pub fn now() -> Stamp {
        let micros = |duration: Duration| i64::try_from(duration.as_micros()).unwrap_or(i64::MAX);
        Stamp::from_micros(match SystemTime::now().duration_since(UNIX_EPOCH) {
            Ok(since) => micros(since),
            Err(before) => -micros(before.duration()),
        })
    }

    /// `later` after this moment.
    #[must_use]
    pub fn after(self, later: Duration) -> Stamp {
        let micros = i64::try_from(later.as_micros()).unwrap_or(i64::MAX);
        Stamp::from_micros(self.0.saturating_add(micros))
    }

    /// `earlier` before this moment.
    #[must_use]
    pub fn before(self, earlier: Duration) -> Stamp {
        let micros = i64::try_from(earlier.as_micros()).unwrap_or(i64::MAX);
        Stamp::from_micros(self.0.saturating_sub(micros))
    }

    /// The moment that RFC 3339 text names; digits beyond the microsecond are cut off.
    #[must_use]
    pub fn parse(text: &str) -> Option<Stamp> {
        let moment: Timestamp = text.parse().ok()?;
        let micros = moment.as_microsecond();
        (Stamp::MIN.0..=Stamp::MAX.0)
            .contains(&micros)
            .then_some(Stamp(micros))
    }
}

impl fmt::Display for Stamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let moment = Timestamp::from_microsecond(self.0).map_err(|_| fmt::Error)?;
        write!(f, "{moment:.6}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_is_shown_to_the_microsecond_and_read_back() {
        for (micros, text) in [
            (0, "1970-01-01T00:00:00.000000Z"),
            (1_796_119_200_000_001, "2026-12-01T10:00:00.000001Z"),
            (-1, "1969-12-31T23:59:59.999999Z"),
        ] {
            let stamp = Stamp::from_micros(micros);
            assert_eq!(stamp.to_string(), text);
            assert_eq!(Stamp::parse(text), Some(stamp));
        }
        assert_eq!(
            Stamp::parse("2026-12-01T12:00:00+02:00"),
            Some(Stamp::from_micros(1_796_119_200_000_000))
        );
        for text in ["", "yesterday", "2026-12-01", "2026-13-01T00:00:00Z"] {
            assert_eq!(Stamp::parse(text), None, "{text}");
        }
    }

    #[test]
    fn the_ends_of_time_can_be_shown() {
        for stamp in [
            Stamp::from_micros(i64::MIN),
            Stamp::from_micros(i64::MAX),
            Stamp::MAX.after(Duration::MAX),
            Stamp::MIN.before(Duration::MAX),
        ] {
            assert_eq!(Stamp::parse(&stamp.to_string()), Some(stamp));
        }
    }
}
