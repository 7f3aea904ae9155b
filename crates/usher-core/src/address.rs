//! Which addresses lie in the open: what a node may be told to call although a stranger named it.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Whether `ip` is none that only a host or a network of the operator's own has: loopback, private
/// and shared networks, link-local addresses (where clouds keep their metadata), multicast.
#[must_use]
pub fn is_open(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => is_open_v4(ip),
        IpAddr::V6(ip) => match embedded(ip) {
            Some(inner) => is_open_v4(inner),
            None => is_open_v6(ip),
        },
    }
}

fn is_open_v4(ip: Ipv4Addr) -> bool {
    let [first, second, ..] = ip.octets();
    let shared = first == 100 && (64..128).contains(&second);
    let benchmark = first == 198 && (second == 18 || second == 19);
    let this_network = first == 0;
    let reserved = first >= 224;
    let protocol = ip.octets()[..3] == [192, 0, 0];
    !(ip.is_loopback()
        || ip.is_private()
        || ip.is_link_local()
        || shared
        || benchmark
        || this_network
        || protocol
        || reserved)
}

fn is_open_v6(ip: Ipv6Addr) -> bool {
    // Only this eighth of the space is given out; what is special lies outside it.
    ip.segments()[0] & 0xe000 == 0x2000
}

/// The address of the older kind that stands in one of the newer: mapped, compatible, translated
/// (RFC 6052), or that of a 6to4 network.
#[must_use]
pub fn embedded(ip: Ipv6Addr) -> Option<Ipv4Addr> {
    let [.., high, low] = ip.segments();
    let inner = |high: u16, low: u16| {
        let ([a, b], [c, d]) = (high.to_be_bytes(), low.to_be_bytes());
        Ipv4Addr::new(a, b, c, d)
    };
    match ip.segments() {
        [0, 0, 0, 0, 0, 0 | 0xffff, ..] => Some(inner(high, low)),
        [0x64, 0xff9b, 0, 0, 0, 0, ..] => Some(inner(high, low)),
        [0x2002, high, low, ..] => Some(inner(high, low)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_addresses_of_the_internet_are_open() {
        for (text, open) in [
            ("192.0.2.1", true),
            ("1.1.1.1", true),
            ("172.32.0.1", true),
            ("100.128.0.1", true),
            ("2606:4700::1111", true),
            ("64:ff9b::1.1.1.1", true),
            ("2002:101:101::1", true),
            ("127.0.0.1", false),
            ("127.255.0.9", false),
            ("10.0.0.1", false),
            ("172.16.0.1", false),
            ("172.31.255.255", false),
            ("192.168.1.1", false),
            ("169.254.169.254", false),
            ("100.64.0.1", false),
            ("100.127.255.255", false),
            ("0.0.0.0", false),
            ("198.18.0.1", false),
            ("192.0.0.8", false),
            ("224.0.0.1", false),
            ("255.255.255.255", false),
            ("::", false),
            ("::1", false),
            ("::ffff:127.0.0.1", false),
            ("::ffff:10.0.0.1", false),
            ("64:ff9b::10.0.0.1", false),
            ("2002:a00:1::1", false),
            ("fe80::1", false),
            ("fd00::1", false),
            ("fc00::1", false),
            ("ff02::1", false),
        ] {
            assert_eq!(is_open(text.parse().expect("an address")), open, "{text}");
        }
    }
}
