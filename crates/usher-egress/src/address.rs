//! Which addresses a page may reach, whatever it called them.
//!
//! The list is longer than the one for destinations that an operator's own people name
//! ([`usher_core::address::is_open`]): ranges for documentation, for anycast relays and for
//! translation into older addresses lead to nothing that a page needs, and some lead inside.

use std::net::IpAddr;

use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use usher_core::address::{embedded, is_open};

/// Denied unless opened, beside what is not open anyway.
const RANGES_V4: [&str; 15] = [
    "0.0.0.0/8",
    "10.0.0.0/8",
    "100.64.0.0/10",
    "127.0.0.0/8",
    "169.254.0.0/16",
    "172.16.0.0/12",
    "192.0.0.0/24",
    "192.0.2.0/24",
    "192.88.99.0/24",
    "192.168.0.0/16",
    "198.18.0.0/15",
    "198.51.100.0/24",
    "203.0.113.0/24",
    "224.0.0.0/4",
    "240.0.0.0/4",
];

/// `2001::/23` holds Teredo and other protocols of their own; `3fff::/20` is for documentation.
const RANGES_V6: [&str; 14] = [
    "::/96",
    "64:ff9b::/96",
    "64:ff9b:1::/48",
    "100::/64",
    "2001::/23",
    "2001:db8::/32",
    "2002::/16",
    "3fff::/20",
    "5f00::/16",
    "fc00::/7",
    "fe80::/10",
    "fec0::/10",
    "ff00::/8",
    "::1/128",
];

/// Where clouds keep what only the machine itself should know. Nothing opens these.
const METADATA: [&str; 7] = [
    "169.254.169.254",
    "169.254.170.2",
    "100.100.100.200",
    "168.63.129.16",
    "192.0.0.192",
    "fd00:ec2::254",
    "fd20:ce::254",
];

/// Whether a cloud keeps metadata at `ip`, which no page reaches whatever is opened for it.
#[must_use]
pub fn keeps_metadata(ip: IpAddr) -> bool {
    let ip = ip.to_canonical();
    METADATA.iter().any(|kept| kept.parse() == Ok(ip))
}

/// The ranges, read once.
#[derive(Debug)]
pub(crate) struct Ranges {
    v4: Vec<Ipv4Net>,
    v6: Vec<Ipv6Net>,
    metadata: Vec<IpAddr>,
}

impl Ranges {
    pub(crate) fn new() -> Ranges {
        const WRITTEN: &str = "the tables hold ranges and addresses";
        Ranges {
            v4: RANGES_V4.map(|range| range.parse().expect(WRITTEN)).into(),
            v6: RANGES_V6.map(|range| range.parse().expect(WRITTEN)).into(),
            metadata: METADATA.map(|ip| ip.parse().expect(WRITTEN)).into(),
        }
    }

    /// Whether a page may reach `ip` where `denied` is shut as well and `opened` is not.
    ///
    /// An address that stands for an older one is both, and each must pass: to open a network of
    /// translators is not to open what lies behind them.
    pub(crate) fn allow(&self, ip: IpAddr, opened: &[IpNet], denied: &[IpNet]) -> bool {
        let ip = ip.to_canonical();
        let inner = match ip {
            IpAddr::V6(v6) => embedded(v6).map(IpAddr::V4),
            IpAddr::V4(_) => None,
        };
        [Some(ip), inner].into_iter().flatten().all(|face| {
            let holds = |nets: &[IpNet]| nets.iter().any(|net| net.contains(&face));
            !self.metadata.contains(&face)
                && !holds(denied)
                && (holds(opened) || !self.is_shut(face))
        })
    }

    fn is_shut(&self, ip: IpAddr) -> bool {
        let listed = match ip {
            IpAddr::V4(v4) => self.v4.iter().any(|net| net.contains(&v4)),
            IpAddr::V6(v6) => self.v6.iter().any(|net| net.contains(&v6)),
        };
        listed || !is_open(ip)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn allows(ip: &str, opened: &[&str], denied: &[&str]) -> bool {
        let nets = |list: &[&str]| -> Vec<IpNet> {
            list.iter().map(|net| net.parse().expect("a net")).collect()
        };
        let ip = ip.parse().expect("an address");
        Ranges::new().allow(ip, &nets(opened), &nets(denied))
    }

    #[test]
    fn both_ends_of_every_range_are_shut_and_their_neighbours_are_not() {
        for net in RANGES_V4.iter().chain(&RANGES_V6) {
            let net: IpNet = net.parse().expect("a net");
            for ip in [net.network(), net.broadcast()] {
                assert!(!allows(&ip.to_string(), &[], &[]), "{ip} of {net}");
                if let IpAddr::V4(v4) = ip {
                    let mapped = v4.to_ipv6_mapped().to_string();
                    assert!(!allows(&mapped, &[], &[]), "{mapped} of {net}");
                }
            }
        }
        for ip in [
            "1.0.0.0",
            "9.255.255.255",
            "11.0.0.0",
            "100.63.255.255",
            "100.128.0.0",
            "126.255.255.255",
            "128.0.0.0",
            "169.253.255.255",
            "169.255.0.0",
            "172.15.255.255",
            "172.32.0.0",
            "192.0.1.0",
            "192.0.3.0",
            "192.167.255.255",
            "192.169.0.0",
            "198.17.255.255",
            "198.20.0.0",
            "223.255.255.255",
            "::ffff:1.1.1.1",
            "2001:200::",
            "2001:db7:ffff::",
            "2001:db9::",
            "2003::",
            "2606:4700::1111",
            "3fff:1000::",
        ] {
            assert!(allows(ip, &[], &[]), "{ip}");
        }
    }

    #[test]
    fn what_is_opened_is_open_and_never_more_than_that() {
        assert!(allows("10.2.0.1", &["10.2.0.0/16"], &[]));
        assert!(allows("::ffff:10.2.0.1", &["10.2.0.0/16"], &[]));
        assert!(!allows("10.3.0.1", &["10.2.0.0/16"], &[]));
        assert!(!allows("10.2.0.1", &["10.2.0.0/16"], &["10.2.0.0/24"]));
        assert!(!allows("1.1.1.1", &[], &["1.1.1.0/24"]));
        assert!(!allows("::ffff:1.1.1.1", &[], &["1.1.1.0/24"]));
        for ip in METADATA {
            assert!(keeps_metadata(ip.parse().expect("an address")), "{ip}");
            assert!(!allows(ip, &["0.0.0.0/0", "::/0"], &[]), "{ip}");
        }
        for ip in [
            "::ffff:169.254.169.254",
            "64:ff9b::a9fe:a9fe",
            "2002:a9fe:a9fe::1",
            "::a9fe:a9fe",
        ] {
            assert!(!allows(ip, &["0.0.0.0/0", "::/0"], &[]), "{ip}");
        }
        // Translators may be opened, and what lies behind them is judged all the same.
        assert!(allows("64:ff9b::101:101", &["64:ff9b::/96"], &[]));
        assert!(!allows("64:ff9b::a00:1", &["64:ff9b::/96"], &[]));
        assert!(allows(
            "64:ff9b::a00:1",
            &["64:ff9b::/96", "10.0.0.0/8"],
            &[]
        ));
    }

    proptest! {
        #[test]
        fn nothing_that_is_not_open_is_allowed(v4: u32, v6: u128) {
            for ip in [IpAddr::from(v4.to_be_bytes()), IpAddr::from(v6.to_be_bytes())] {
                prop_assert!(is_open(ip) || !Ranges::new().allow(ip, &[], &[]), "{ip}");
            }
        }
    }
}
