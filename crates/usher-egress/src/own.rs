//! Whether an address is one of this machine's own, as the kernel sees it at this moment.
//!
//! A list of interfaces is stale as soon as one changes. Asking whether a socket could be bound to
//! the address is not, costs three system calls, and sends nothing.

use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, UdpSocket};

/// True for an address of this machine, loopback and "any" included.
pub(crate) fn is_own(ip: IpAddr) -> bool {
    let ip = ip.to_canonical();
    if ip.is_loopback() || ip.is_unspecified() {
        return true;
    }
    if !binds(ip) {
        return false;
    }
    // Hosts that take over addresses of others allow to bind any (`ip_nonlocal_bind`). Then only
    // the route can tell: to itself a machine speaks from the address that it speaks to.
    !binds(IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1))) || speaks_from(ip)
}

fn binds(ip: IpAddr) -> bool {
    match UdpSocket::bind((ip, 0)) {
        Ok(_) => true,
        // Without descriptors, say, nobody knows: then it is better to refuse.
        Err(error) => !matches!(
            error.kind(),
            ErrorKind::AddrNotAvailable | ErrorKind::InvalidInput | ErrorKind::Unsupported
        ),
    }
}

fn speaks_from(ip: IpAddr) -> bool {
    let any: IpAddr = match ip {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => std::net::Ipv6Addr::UNSPECIFIED.into(),
    };
    // Port 9: connecting a datagram socket only asks for the route.
    let from = UdpSocket::bind((any, 0)).and_then(|socket| {
        socket.connect((ip, 9))?;
        socket.local_addr()
    });
    from.is_ok_and(|from| from.ip() == ip)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_machine_knows_itself() {
        for ip in [
            "127.0.0.1",
            "127.9.9.9",
            "::1",
            "0.0.0.0",
            "::",
            "::ffff:127.0.0.1",
        ] {
            assert!(is_own(ip.parse().expect("an address")), "{ip}");
        }
        // Asking for a route sends nothing; a machine without any has no other address.
        let route = UdpSocket::bind("0.0.0.0:0").expect("a socket");
        if route.connect("192.0.2.1:9").is_ok() {
            let own = route.local_addr().expect("an address").ip();
            assert!(is_own(own), "{own}");
        }
        // Of a range that no machine has.
        assert!(!is_own("198.51.100.77".parse().expect("an address")));
        assert!(!is_own("2001:db8::77".parse().expect("an address")));
    }
}
