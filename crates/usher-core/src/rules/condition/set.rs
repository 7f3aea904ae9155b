//! Sets of the operator `in`, sorted once so that a look-up is a binary search.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ops::RangeInclusive;

/// Ranges that neither overlap nor touch, in order.
#[derive(Debug, Clone)]
pub(super) struct Ranges<T>(Box<[(T, T)]>);

impl<T: Copy + Ord> Ranges<T> {
    /// `next` is the value after another, unless that is the last.
    pub(super) fn new(
        ranges: impl IntoIterator<Item = RangeInclusive<T>>,
        next: fn(T) -> Option<T>,
    ) -> Ranges<T> {
        let mut sorted: Vec<(T, T)> = ranges.into_iter().map(RangeInclusive::into_inner).collect();
        sorted.sort_unstable();
        let mut merged: Vec<(T, T)> = Vec::with_capacity(sorted.len());
        for (from, to) in sorted {
            match merged.last_mut() {
                Some(last) if next(last.1).is_none_or(|after| from <= after) => {
                    last.1 = last.1.max(to);
                }
                Some(_) | None => merged.push((from, to)),
            }
        }
        Ranges(merged.into())
    }

    pub(super) fn contains(&self, value: T) -> bool {
        let behind = self.0.partition_point(|&(from, _)| from <= value);
        behind > 0 && value <= self.0[behind - 1].1
    }
}

/// Addresses of both families. An IPv4 address inside of IPv6 counts as IPv4.
#[derive(Debug, Clone)]
pub(super) struct IpSet {
    v4: Ranges<u32>,
    v6: Ranges<u128>,
}

impl IpSet {
    pub(super) fn new(ranges: Vec<IpRange>) -> IpSet {
        let (mut v4, mut v6) = (Vec::new(), Vec::new());
        for range in ranges {
            match range {
                IpRange::V4(from, to) => v4.push(u32::from(from)..=u32::from(to)),
                IpRange::V6(from, to) => v6.push(u128::from(from)..=u128::from(to)),
            }
        }
        IpSet {
            v4: Ranges::new(v4, |last| last.checked_add(1)),
            v6: Ranges::new(v6, |last| last.checked_add(1)),
        }
    }

    /// `address` is canonical.
    pub(super) fn contains(&self, address: IpAddr) -> bool {
        match address {
            IpAddr::V4(address) => self.v4.contains(address.into()),
            IpAddr::V6(address) => self.v6.contains(address.into()),
        }
    }
}

/// From the first to the last address, both included.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum IpRange {
    V4(Ipv4Addr, Ipv4Addr),
    V6(Ipv6Addr, Ipv6Addr),
}

impl IpRange {
    /// An address, `network/bits` or `from..to`; otherwise what is wrong with it.
    pub(super) fn parse(text: &str) -> Result<IpRange, String> {
        if let Some((from, to)) = text.split_once("..") {
            return IpRange::between(address(from)?, address(to)?, text);
        }
        let Some((network, bits)) = text.split_once('/') else {
            let one = address(text)?;
            return IpRange::between(one, one, text);
        };
        let network: IpAddr = address(network)?;
        let max = if network.is_ipv4() { 32 } else { 128 };
        let digits = !bits.is_empty() && bits.bytes().all(|digit| digit.is_ascii_digit());
        let bits = bits.parse().ok().filter(|&bits| digits && bits <= max);
        let Some(bits) = bits else {
            return Err(format!("{text} has no prefix length of 0..{max}"));
        };
        let first = masked(network, bits, bits);
        if first != network {
            return Err(format!(
                "{text} has bits behind its prefix: write {first}/{bits}"
            ));
        }
        IpRange::between(first, filled(first, bits), text)
    }

    fn between(from: IpAddr, to: IpAddr, text: &str) -> Result<IpRange, String> {
        let range = match (from, to) {
            (IpAddr::V4(from), IpAddr::V4(to)) => IpRange::V4(from, to),
            (IpAddr::V6(from), IpAddr::V6(to)) => IpRange::V6(from, to),
            (IpAddr::V4(_), IpAddr::V6(_)) | (IpAddr::V6(_), IpAddr::V4(_)) => {
                return Err(format!("{text} goes from one address family to the other"));
            }
        };
        if from > to {
            return Err(format!("{text} ends before it starts"));
        }
        Ok(range.canonical())
    }

    /// A range that lies inside of the IPv4-mapped block is one of IPv4.
    fn canonical(self) -> IpRange {
        match self {
            IpRange::V6(from, to) => match (from.to_ipv4_mapped(), to.to_ipv4_mapped()) {
                (Some(from), Some(to)) => IpRange::V4(from, to),
                (Some(_) | None, _) => self,
            },
            IpRange::V4(..) => self,
        }
    }
}

/// One address as it is written in an expression.
pub(super) fn address(text: &str) -> Result<IpAddr, String> {
    text.parse()
        .map_err(|_| format!("expected an ip address, found {text}"))
}

/// The network of an address: `v4` or `v6` leading bits are kept, by family.
pub(super) fn masked(address: IpAddr, v4: u32, v6: u32) -> IpAddr {
    match address {
        IpAddr::V4(address) => {
            let mask = u32::MAX.checked_shl(32_u32.saturating_sub(v4)).unwrap_or(0);
            IpAddr::V4((u32::from(address) & mask).into())
        }
        IpAddr::V6(address) => {
            let mask = u128::MAX
                .checked_shl(128_u32.saturating_sub(v6))
                .unwrap_or(0);
            IpAddr::V6((u128::from(address) & mask).into())
        }
    }
}

fn filled(network: IpAddr, bits: u32) -> IpAddr {
    match network {
        IpAddr::V4(network) => {
            let rest = u32::MAX.checked_shr(bits).unwrap_or(0);
            IpAddr::V4((u32::from(network) | rest).into())
        }
        IpAddr::V6(network) => {
            let rest = u128::MAX.checked_shr(bits).unwrap_or(0);
            IpAddr::V6((u128::from(network) | rest).into())
        }
    }
}

/// Strings, sorted.
#[derive(Debug, Clone)]
pub(super) struct TextSet(Box<[Box<[u8]>]>);

impl TextSet {
    pub(super) fn new(texts: Vec<Vec<u8>>) -> TextSet {
        let mut sorted: Vec<Box<[u8]>> = texts.into_iter().map(Vec::into_boxed_slice).collect();
        sorted.sort_unstable();
        sorted.dedup();
        TextSet(sorted.into())
    }

    pub(super) fn contains(&self, text: &[u8]) -> bool {
        self.0.binary_search_by(|held| (**held).cmp(text)).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_merge_and_keep_their_ends() {
        let set = Ranges::new([5..=7, 1..=2, 8..=9, 3..=3, i64::MAX..=i64::MAX], |last| {
            last.checked_add(1)
        });
        assert_eq!(set.0.len(), 3);
        let inside = [1, 2, 3, 5, 7, 8, 9, i64::MAX];
        assert!(inside.into_iter().all(|value| set.contains(value)));
        let outside = [i64::MIN, 0, 4, 10, i64::MAX - 1];
        assert!(!outside.into_iter().any(|value| set.contains(value)));
        let none: Ranges<i64> = Ranges::new([], |last| last.checked_add(1));
        assert!(!none.contains(0));
    }

    #[test]
    fn addresses_networks_and_ranges() {
        let cases: &[(&str, &[&str], &[&str])] = &[
            ("192.0.2.1", &["192.0.2.1"], &["192.0.2.2", "::1"]),
            (
                "192.0.2.0/24",
                &["192.0.2.0", "192.0.2.255"],
                &["192.0.3.0", "192.0.1.255"],
            ),
            ("0.0.0.0/0", &["0.0.0.0", "255.255.255.255"], &["::"]),
            ("0.0.0.0/1", &["127.255.255.255"], &["128.0.0.0"]),
            (
                "2001:db8::/32",
                &["2001:db8::", "2001:db8:ffff::1"],
                &["2001:db9::"],
            ),
            ("::/0", &["::", "ffff::"], &["192.0.2.1"]),
            (
                "192.0.2.9..192.0.2.11",
                &["192.0.2.9", "192.0.2.11"],
                &["192.0.2.8", "192.0.2.12"],
            ),
            ("::ffff:192.0.2.1", &["192.0.2.1"], &["192.0.2.2"]),
        ];
        for &(text, inside, outside) in cases {
            let set = IpSet::new(vec![IpRange::parse(text).unwrap()]);
            let holds = |address: &&str| set.contains(address.parse().unwrap());
            assert!(inside.iter().all(holds), "{text}");
            assert!(!outside.iter().any(holds), "{text}");
        }
    }

    #[test]
    fn what_is_no_range_of_addresses() {
        let cases = [
            ("192.0.2", "expected an ip address, found 192.0.2"),
            ("192.0.2.1/33", "192.0.2.1/33 has no prefix length of 0..32"),
            ("::/129", "::/129 has no prefix length of 0..128"),
            (
                "192.0.2.0/+24",
                "192.0.2.0/+24 has no prefix length of 0..32",
            ),
            ("192.0.2.0/", "192.0.2.0/ has no prefix length of 0..32"),
            (
                "192.0.2.1/24",
                "192.0.2.1/24 has bits behind its prefix: write 192.0.2.0/24",
            ),
            (
                "192.0.2.9..192.0.2.1",
                "192.0.2.9..192.0.2.1 ends before it starts",
            ),
            (
                "::1..192.0.2.1",
                "::1..192.0.2.1 goes from one address family to the other",
            ),
            ("192.0.2.1..", "expected an ip address, found "),
        ];
        for (text, expected) in cases {
            assert_eq!(IpRange::parse(text).unwrap_err(), expected);
        }
    }
}
