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

    /// `later` after this moment; the end of time when that does not fit.
    #[must_use]
    pub fn after(self, later: Duration) -> Wall {
        let millis = i64::try_from(later.as_millis()).unwrap_or(i64::MAX);
        Wall(self.0.saturating_add(millis))
    }

    /// How long ago `earlier` was; zero when it is not in the past.
    #[must_use]
    pub fn since(self, earlier: Wall) -> Duration {
        let millis = self.0.saturating_sub(earlier.0);
        Duration::from_millis(u64::try_from(millis).unwrap_or(0))
    }

    /// The moment that RFC 3339 text in UTC names, such as `2026-12-01T10:00:00Z`; a fraction of a
    /// second is kept to the millisecond.
    #[must_use]
    pub fn parse(text: &str) -> Option<Wall> {
        let (date, rest) = text.split_once(['T', 't'])?;
        let time = rest.strip_suffix(['Z', 'z'])?;
        let number = |digits: &str, len: usize| {
            let valid = digits.len() == len && digits.bytes().all(|byte| byte.is_ascii_digit());
            digits.parse::<i64>().ok().filter(|_| valid)
        };
        let parts = |text: &str, by, lens: [usize; 3]| {
            let mut parts = text.split(by).zip(lens);
            let mut next = || parts.next().and_then(|(part, len)| number(part, len));
            let all = (next()?, next()?, next()?);
            (text.split(by).count() == 3).then_some(all)
        };
        let (year, month, day) = parts(date, '-', [4, 2, 2])?;
        let (time, fraction) = time.split_once('.').unwrap_or((time, "0"));
        let (hour, minute, second) = parts(time, ':', [2, 2, 2])?;
        let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
        let days = match month {
            2 => 28 + i64::from(leap),
            4 | 6 | 9 | 11 => 30,
            1..=12 => 31,
            _ => return None,
        };
        let inside = (1..=days).contains(&day) && hour < 24 && minute < 60 && second < 60;
        let fraction_valid = fraction.bytes().all(|byte| byte.is_ascii_digit());
        if !inside || !fraction_valid || fraction.is_empty() {
            return None;
        }
        let millis = format!("{fraction:0<3.3}").parse::<i64>().ok()?;
        // Days since 1970 by way of years that begin in March, so that a leap day is the last.
        let (year, month) = if month > 2 {
            (year, month - 3)
        } else {
            (year - 1, month + 9)
        };
        let (era, of_era) = (year.div_euclid(400), year.rem_euclid(400));
        let of_year = (153 * month + 2) / 5 + day - 1;
        let days = era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468;
        let seconds = ((days * 24 + hour) * 60 + minute) * 60 + second;
        Some(Wall(seconds * 1000 + millis))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_read() {
        let millis = |text: &str| Wall::parse(text).map(Wall::as_millis);
        for (text, expected) in [
            ("1970-01-01T00:00:00Z", 0),
            ("2000-02-29T12:00:00Z", 951_825_600_000),
            ("2026-12-01T10:00:00Z", 1_796_119_200_000),
            ("2026-12-01T10:00:00.5Z", 1_796_119_200_500),
            ("2026-12-01T10:00:00.123456Z", 1_796_119_200_123),
            ("1969-12-31T23:59:59.999Z", -1),
        ] {
            assert_eq!(millis(text), Some(expected), "{text}");
        }
        for text in [
            "",
            "now",
            "2026-12-01",
            "2026-12-01T10:00:00",
            "2026-12-01T10:00:00+01:00",
            "2026-13-01T10:00:00Z",
            "2026-02-29T10:00:00Z",
            "2026-12-01T24:00:00Z",
            "2026-12-01T10:00Z",
            "26-12-01T10:00:00Z",
            "2026-12-01T10:00:00.Z",
            "2026-12-01T10:00:00.xZ",
            "2026-12-01-01T10:00:00Z",
        ] {
            assert_eq!(millis(text), None, "{text}");
        }
    }
}
