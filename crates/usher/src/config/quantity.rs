//! Durations, sizes and addresses as people write them: `30s`, `64KiB`, `0.0.0.0:8080`.
//!
//! These are the words of the process itself. Resources speak the API's words, where a duration is
//! a plain number.

use std::net::{IpAddr, SocketAddr};
use std::ops::RangeInclusive;
use std::time::Duration;

use ipnet::IpNet;
use serde_json::Value;
use usher_api::wire::reader::Cursor;

const UNITS_OF_TIME: [(&str, u64); 5] = [
    ("ms", 1),
    ("s", 1_000),
    ("m", 60_000),
    ("h", 3_600_000),
    ("d", 86_400_000),
];

const UNITS_OF_SIZE: [(&str, u64); 4] = [
    ("B", 1),
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
];

/// A duration such as `30s`, `250ms` or `1h30m`.
pub(super) fn duration(value: &Cursor<'_>, range: RangeInclusive<Duration>) -> Option<Duration> {
    let found = value.value().as_str().and_then(parse_duration);
    let Some(found) = found else {
        let written = value.value();
        value.fault(format_args!(
            "{written} is not a duration such as 250ms, 30s, 5m or 1h"
        ));
        return None;
    };
    if !range.contains(&found) {
        let [found, min, max] = [found, *range.start(), *range.end()].map(show_duration);
        value.fault(format_args!("{found} is outside {min}..{max}"));
        return None;
    }
    Some(found)
}

fn parse_duration(text: &str) -> Option<Duration> {
    let (mut rest, mut millis, mut last) = (text, 0_u64, u64::MAX);
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit())?;
        let number: u64 = rest[..digits].parse().ok()?;
        rest = &rest[digits..];
        let letters = rest
            .find(|c: char| !c.is_ascii_alphabetic())
            .unwrap_or(rest.len());
        let (_, unit) = UNITS_OF_TIME
            .iter()
            .find(|(unit, _)| *unit == &rest[..letters])?;
        // Large units first, each once: 1h30m and not 30m1h.
        if *unit >= last {
            return None;
        }
        last = *unit;
        millis = millis.checked_add(number.checked_mul(*unit)?)?;
        rest = &rest[letters..];
    }
    (last != u64::MAX).then(|| Duration::from_millis(millis))
}

/// The shortest way to write a duration in one unit.
pub(super) fn show_duration(duration: Duration) -> String {
    let millis = duration.as_millis();
    let fits = |unit: &&(&str, u64)| millis > 0 && millis.is_multiple_of(unit.1.into());
    let (name, unit) = UNITS_OF_TIME
        .iter()
        .rev()
        .find(fits)
        .unwrap_or(&("s", 1_000));
    format!("{}{name}", millis / u128::from(*unit))
}

/// A number of bytes: a plain number, or one with a unit such as `64KiB`.
pub(super) fn bytes(value: &Cursor<'_>, range: RangeInclusive<usize>) -> Option<usize> {
    let found = match value.value() {
        Value::Number(number) => number.as_u64(),
        Value::String(text) => parse_bytes(text),
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => None,
    };
    let Some(found) = found else {
        value.fault("must be a size such as 512, 64KiB or 1MiB");
        return None;
    };
    let size = usize::try_from(found).unwrap_or(usize::MAX);
    if !range.contains(&size) {
        let [found, min, max] = [size, *range.start(), *range.end()].map(show_bytes);
        value.fault(format_args!("{found} is outside {min}..{max}"));
        return None;
    }
    Some(size)
}

fn parse_bytes(text: &str) -> Option<u64> {
    let digits = text
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(text.len());
    let number: u64 = text[..digits].parse().ok()?;
    let unit = text[digits..].trim_start();
    let (_, factor) = UNITS_OF_SIZE
        .iter()
        .find(|(name, _)| *name == unit)
        .or_else(|| unit.is_empty().then_some(&UNITS_OF_SIZE[0]))?;
    number.checked_mul(*factor)
}

fn show_bytes(size: usize) -> String {
    let fits = |unit: &&(&str, u64)| size > 0 && (size as u64).is_multiple_of(unit.1);
    match UNITS_OF_SIZE.iter().skip(1).rev().find(fits) {
        Some((name, unit)) => format!("{}{name}", size as u64 / unit),
        None => size.to_string(),
    }
}

/// An address with a port, such as `0.0.0.0:8080` or `[::]:8080`.
pub(super) fn socket(value: &Cursor<'_>) -> Option<SocketAddr> {
    let text = value.text()?;
    let address = text.parse().ok();
    if address.is_none() {
        value.fault(format_args!(
            "{text:?} is not an address with a port, such as 0.0.0.0:8080 or [::]:8080"
        ));
    }
    address
}

/// A network such as `10.0.0.0/8`, or a single address.
pub(super) fn network(value: &Cursor<'_>) -> Option<IpNet> {
    let text = value.text()?;
    let network = text
        .parse()
        .ok()
        .or_else(|| text.parse::<IpAddr>().ok().map(IpNet::from));
    if network.is_none() {
        value.fault(format_args!(
            "{text:?} is not an address or network such as 10.0.0.0/8"
        ));
    }
    network.map(|network| network.trunc())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations() {
        let millis = |text| parse_duration(text).map(|duration| duration.as_millis());
        for (text, expected) in [
            ("250ms", 250),
            ("0s", 0),
            ("30s", 30_000),
            ("5m", 300_000),
            ("1h30m", 5_400_000),
            ("1d", 86_400_000),
            ("1m500ms", 60_500),
        ] {
            assert_eq!(millis(text), Some(expected), "{text}");
        }
        let wrong = [
            "",
            "5",
            "s",
            "5 s",
            "-5s",
            "1.5s",
            "5S",
            "30m1h",
            "5s5s",
            "5sec",
            "5s ",
            "\u{0665}s",
            "99999999999999999999s",
            "18446744073709551615h",
        ];
        for text in wrong {
            assert_eq!(millis(text), None, "{text}");
        }
        for text in ["0s", "1ms", "90s", "90m", "36h", "2d"] {
            assert_eq!(show_duration(parse_duration(text).expect("valid")), text);
        }
    }

    #[test]
    fn sizes() {
        for (text, expected) in [
            ("0", 0),
            ("512", 512),
            ("512B", 512),
            ("64KiB", 65536),
            ("1 MiB", 1 << 20),
        ] {
            assert_eq!(parse_bytes(text), Some(expected), "{text}");
        }
        for text in ["", "KiB", "1.5KiB", "64kb", "64KB", "-1", "99999999999GiB"] {
            assert_eq!(parse_bytes(text), None, "{text}");
        }
        for (size, text) in [
            (0, "0"),
            (100, "100"),
            (1024, "1KiB"),
            (1536, "1536"),
            (1 << 21, "2MiB"),
        ] {
            assert_eq!(show_bytes(size), text);
        }
    }
}
