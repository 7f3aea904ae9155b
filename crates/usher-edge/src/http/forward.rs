//! Who the visitor is, and what the endpoint is told about it.
//!
//! Forwarded fields are claims. Those of a trusted proxy are believed and passed on; those of
//! anyone else are dropped and written anew, so that an endpoint behind Usher may believe what it
//! reads. `X-Forwarded-For` is read from the right over trusted hops only: everything further left
//! was written by somebody we do not know.
//!
//! Pure functions over the fields of a request; nothing here allocates.

use std::net::{IpAddr, SocketAddr};

use ipnet::IpNet;
use usher_core::request::Scheme;

/// Longest request id that is taken over from a trusted proxy.
const REQUEST_ID_MAX: usize = 64;

/// Whether `peer` is one of the proxies whose forwarded fields are believed.
#[must_use]
pub fn trusts(proxies: &[IpNet], peer: IpAddr) -> bool {
    proxies.iter().any(|net| net.contains(&peer))
}

/// The visitor behind a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Visitor {
    /// Its address; steering, affinity and rules use this one.
    pub address: IpAddr,
    /// How it reached the first proxy.
    pub scheme: Scheme,
}

impl Visitor {
    /// Reads the visitor from the fields of a request that came from `peer` by `scheme`.
    ///
    /// Unless the peer is `trusted`, one of the `proxies`, the fields are not looked at.
    pub fn read<'a>(
        peer: IpAddr,
        scheme: Scheme,
        trusted: bool,
        proxies: &[IpNet],
        fields: impl Iterator<Item = (&'a [u8], &'a [u8])>,
    ) -> Visitor {
        let mut visitor = Visitor {
            address: peer,
            scheme,
        };
        if !trusted {
            return visitor;
        }
        let mut found = None;
        for (name, value) in fields {
            if name.eq_ignore_ascii_case(b"x-forwarded-for") {
                found = walk(found, value, proxies);
            } else if name.eq_ignore_ascii_case(b"x-forwarded-proto") {
                visitor.scheme = scheme_of(value).unwrap_or(visitor.scheme);
            }
        }
        visitor.address = found.unwrap_or(peer);
        visitor
    }
}

/// The walk from right to left, done from left to right so that several lines need no list: an
/// untrusted entry hides all before it, a trusted one hides none, a malformed one forgets them.
fn walk(mut found: Option<IpAddr>, line: &[u8], proxies: &[IpNet]) -> Option<IpAddr> {
    for entry in line.split(|&byte| byte == b',') {
        found = match address(entry) {
            Some(entry) if trusts(proxies, entry) => found.or(Some(entry)),
            untrusted_or_malformed => untrusted_or_malformed,
        };
    }
    found
}

/// An entry of `X-Forwarded-For`: an address, perhaps with a port, perhaps in brackets or quotes.
fn address(entry: &[u8]) -> Option<IpAddr> {
    let entry = std::str::from_utf8(entry.trim_ascii()).ok()?;
    let entry = entry
        .strip_prefix('"')
        .map_or(Some(entry), |rest| rest.strip_suffix('"'))?;
    let bracketed = || {
        entry
            .strip_prefix('[')?
            .strip_suffix(']')?
            .parse()
            .ok()
            .map(IpAddr::V6)
    };
    let with_port = || entry.parse::<SocketAddr>().ok().map(|socket| socket.ip());
    let found = entry.parse().ok().or_else(with_port).or_else(bracketed)?;
    Some(found.to_canonical())
}

fn scheme_of(value: &[u8]) -> Option<Scheme> {
    let first = value.split(|&byte| byte == b',').next()?.trim_ascii();
    let is = |scheme: &Scheme| first.eq_ignore_ascii_case(scheme.as_str().as_bytes());
    [Scheme::Http, Scheme::Https].into_iter().find(is)
}

/// Whether a field of the request is not passed on, because [`Forwarded::write`] writes it or
/// because `trusted` is false and it claims what only a trusted proxy may claim.
#[must_use]
pub fn is_replaced(name: &[u8], trusted: bool) -> bool {
    // Most fields are neither, and told apart by their first letter.
    match name.first().map(u8::to_ascii_lowercase) {
        Some(b'x') => {
            let is = |other: &[u8]| name.eq_ignore_ascii_case(other);
            let prefix = b"x-forwarded-";
            let claims = || {
                name.get(..prefix.len())
                    .is_some_and(|start| start.eq_ignore_ascii_case(prefix))
            };
            let written = is(b"x-forwarded-for") || is(b"x-request-id");
            written || (!trusted && (claims() || is(b"x-real-ip")))
        }
        Some(b'c') => !trusted && name.eq_ignore_ascii_case(b"cf-connecting-ip"),
        Some(b'f') => !trusted && name.eq_ignore_ascii_case(b"forwarded"),
        Some(b't') => !trusted && name.eq_ignore_ascii_case(b"true-client-ip"),
        _ => false,
    }
}

/// What an endpoint is told about a request.
#[derive(Debug, Clone, Copy)]
pub struct Forwarded<'a> {
    /// Who connected to us.
    pub peer: IpAddr,
    /// Whether it is a trusted proxy.
    pub trusted: bool,
    /// Who is behind it.
    pub visitor: Visitor,
    /// `Host` as the client sent it.
    pub host: &'a [u8],
    /// The request's id.
    pub request_id: &'a RequestId,
}

impl Forwarded<'_> {
    /// Appends the fields in HTTP/1 form. `received` are the fields of the request; their values
    /// must be free of control characters, which both parsers see to.
    pub fn write<'f>(
        &self,
        received: impl Iterator<Item = (&'f [u8], &'f [u8])>,
        out: &mut Vec<u8>,
    ) {
        let [mut proto, mut host, mut address] = [false; 3];
        out.extend_from_slice(b"X-Forwarded-For: ");
        if self.trusted {
            for (name, value) in received {
                if name.eq_ignore_ascii_case(b"x-forwarded-for") && !value.is_empty() {
                    out.extend_from_slice(value);
                    out.extend_from_slice(b", ");
                }
                proto |= name.eq_ignore_ascii_case(b"x-forwarded-proto");
                host |= name.eq_ignore_ascii_case(b"x-forwarded-host");
                address |= name.eq_ignore_ascii_case(b"cf-connecting-ip");
            }
        }
        write_address(self.peer, out);
        out.extend_from_slice(b"\r\n");
        // A trusted proxy's own words were passed on with the other fields.
        if !proto {
            field(
                out,
                b"X-Forwarded-Proto: ",
                self.visitor.scheme.as_str().as_bytes(),
            );
        }
        if !host {
            field(out, b"X-Forwarded-Host: ", self.host);
        }
        if !address {
            out.extend_from_slice(b"CF-Connecting-IP: ");
            write_address(self.visitor.address, out);
            out.extend_from_slice(b"\r\n");
        }
        field(out, b"X-Request-ID: ", self.request_id.as_str().as_bytes());
    }
}

fn field(out: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    out.extend_from_slice(name);
    out.extend_from_slice(value);
    out.extend_from_slice(b"\r\n");
}

/// Appends an address as text.
pub(crate) fn write_address(address: IpAddr, out: &mut Vec<u8>) {
    use std::io::Write as _;
    match address {
        // By hand: the general way is a good part of what a request costs here.
        IpAddr::V4(address) => {
            for (place, octet) in address.octets().into_iter().enumerate() {
                if place > 0 {
                    out.push(b'.');
                }
                out.extend_from_slice(itoa::Buffer::new().format(octet).as_bytes());
            }
        }
        IpAddr::V6(address) => write!(out, "{address}").expect("a Vec takes any bytes"),
    }
}

/// Names one request in the log, at the endpoint and on an error page.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct RequestId {
    bytes: [u8; REQUEST_ID_MAX],
    len: u8,
}

impl RequestId {
    /// 16 hexadecimal digits of `random`.
    #[must_use]
    pub fn new(random: u64) -> RequestId {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        let mut bytes = [0; REQUEST_ID_MAX];
        for (place, byte) in bytes.iter_mut().take(16).enumerate() {
            *byte = DIGITS[(random >> (60 - 4 * place)) as usize & 15];
        }
        RequestId { bytes, len: 16 }
    }

    /// The id that a trusted proxy gave the request, or a new one.
    ///
    /// Taken over: 1..=64 letters, digits, `-`, `_`, `.`, `:` and `=`.
    #[must_use]
    pub fn of<'a>(
        trusted: bool,
        fields: impl Iterator<Item = (&'a [u8], &'a [u8])>,
        random: u64,
    ) -> RequestId {
        let mut id = RequestId::new(random);
        if !trusted {
            return id;
        }
        let plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_.:=".contains(byte);
        let fits =
            |value: &&[u8]| (1..=REQUEST_ID_MAX).contains(&value.len()) && value.iter().all(plain);
        let mut given = fields.filter(|(name, _)| name.eq_ignore_ascii_case(b"x-request-id"));
        if let Some(given) = given.next().map(|(_, value)| value).filter(fits) {
            id.bytes[..given.len()].copy_from_slice(given);
            id.len = given.len() as u8;
        }
        id
    }

    /// As text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        std::str::from_utf8(&self.bytes[..usize::from(self.len)]).expect("only ASCII is stored")
    }
}

impl std::fmt::Debug for RequestId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Field<'a> = (&'a str, &'a str);

    fn proxies() -> Vec<IpNet> {
        ["10.0.0.0/8", "2001:db8:ffff::/48"]
            .map(|net| net.parse().expect("net"))
            .to_vec()
    }

    fn bytes<'a>(fields: &'a [Field<'a>]) -> impl Iterator<Item = (&'a [u8], &'a [u8])> + Clone {
        fields
            .iter()
            .map(|(name, value)| (name.as_bytes(), value.as_bytes()))
    }

    fn visitor(peer: &str, fields: &[Field<'_>]) -> Visitor {
        let peer = peer.parse().expect("peer");
        let trusted = trusts(&proxies(), peer);
        Visitor::read(peer, Scheme::Http, trusted, &proxies(), bytes(fields))
    }

    fn address_of(peer: &str, lines: &[&str]) -> String {
        let fields: Vec<_> = lines
            .iter()
            .map(|line| ("X-Forwarded-For", *line))
            .collect();
        visitor(peer, &fields).address.to_string()
    }

    #[test]
    fn the_visitor_is_the_right_most_address_that_no_trusted_hop_vouches_for() {
        let rows: &[(&str, &[&str], &str)] = &[
            // Not a trusted proxy: what it says is not looked at.
            ("192.0.2.1", &["198.51.100.7"], "192.0.2.1"),
            ("10.0.0.9", &[], "10.0.0.9"),
            ("10.0.0.9", &["198.51.100.7"], "198.51.100.7"),
            // Invented entries stand left of the one that the proxy wrote.
            (
                "10.0.0.9",
                &["198.51.100.7, 203.0.113.5:4711"],
                "203.0.113.5",
            ),
            ("10.0.0.9", &["198.51.100.7", "203.0.113.5"], "203.0.113.5"),
            (
                "10.0.0.9",
                &["198.51.100.7, 10.1.1.1, 10.2.2.2"],
                "198.51.100.7",
            ),
            (
                "10.0.0.9",
                &["198.51.100.7", "10.1.1.1 ,10.2.2.2"],
                "198.51.100.7",
            ),
            // All trusted: the furthest hop.
            ("10.0.0.9", &["10.1.1.1, 10.2.2.2"], "10.1.1.1"),
            (
                "10.0.0.9",
                &["10.1.1.1, 203.0.113.5, 10.2.2.2"],
                "203.0.113.5",
            ),
            // Ports, brackets, quotes.
            ("10.0.0.9", &["[2001:db8::1]:443"], "2001:db8::1"),
            ("10.0.0.9", &["[2001:db8::1]"], "2001:db8::1"),
            ("10.0.0.9", &["\"[2001:db8::1]:443\""], "2001:db8::1"),
            ("10.0.0.9", &["2001:db8::1"], "2001:db8::1"),
            ("10.0.0.9", &["::ffff:198.51.100.7"], "198.51.100.7"),
            (
                "2001:db8:ffff::1",
                &["198.51.100.7, 2001:db8:ffff::2"],
                "198.51.100.7",
            ),
            // A malformed entry ends the walk at the last hop that was good.
            ("10.0.0.9", &["198.51.100.7, unknown, 10.2.2.2"], "10.2.2.2"),
            ("10.0.0.9", &["198.51.100.7, unknown"], "10.0.0.9"),
            ("10.0.0.9", &["198.51.100.7, "], "10.0.0.9"),
            ("10.0.0.9", &["198.51.100.7,"], "10.0.0.9"),
            ("10.0.0.9", &["203.0.113.5:99999"], "10.0.0.9"),
            ("10.0.0.9", &["[203.0.113.5]"], "10.0.0.9"),
            ("10.0.0.9", &["\"203.0.113.5"], "10.0.0.9"),
            ("10.0.0.9", &["unknown, 203.0.113.5"], "203.0.113.5"),
            ("10.0.0.9", &["198.51.100.7 203.0.113.5"], "10.0.0.9"),
        ];
        for (peer, lines, expected) in rows {
            assert_eq!(address_of(peer, lines), *expected, "{peer} {lines:?}");
        }
    }

    #[test]
    fn only_a_trusted_proxy_says_that_the_visitor_came_by_https() {
        let field = [("x-forwarded-proto", "HTTPS")];
        assert_eq!(visitor("10.0.0.9", &field).scheme, Scheme::Https);
        assert_eq!(visitor("192.0.2.1", &field).scheme, Scheme::Http);
        assert_eq!(
            visitor("10.0.0.9", &[("x-forwarded-proto", "gopher")]).scheme,
            Scheme::Http
        );
        assert_eq!(
            visitor("10.0.0.9", &[("x-forwarded-proto", "https,http")]).scheme,
            Scheme::Https
        );
    }

    fn written(peer: &str, fields: &[Field<'_>]) -> String {
        let visitor = visitor(peer, fields);
        let peer = peer.parse().expect("peer");
        let trusted = trusts(&proxies(), peer);
        let request_id = RequestId::of(trusted, bytes(fields), 0x0123_4567_89ab_cdef);
        let mut out = Vec::new();
        for (name, value) in bytes(fields).filter(|(name, _)| !is_replaced(name, trusted)) {
            field(&mut out, &[name, b": "].concat(), value);
        }
        let forwarded = Forwarded {
            peer,
            trusted,
            visitor,
            host: b"shop.example.com",
            request_id: &request_id,
        };
        forwarded.write(bytes(fields), &mut out);
        String::from_utf8(out).expect("text")
    }

    #[test]
    fn claims_of_a_stranger_are_replaced() {
        let claims = [
            ("X-Forwarded-For", "198.51.100.7"),
            ("x-forwarded-proto", "https"),
            ("X-Forwarded-Host", "evil.example.net"),
            ("X-Forwarded-Port", "443"),
            ("Forwarded", "for=198.51.100.7"),
            ("X-Real-IP", "198.51.100.7"),
            ("True-Client-IP", "198.51.100.7"),
            ("CF-Connecting-IP", "198.51.100.7"),
            ("X-Request-ID", "mine"),
            ("X-Forward", "stays"),
            ("Cookie", "a=b"),
        ];
        assert_eq!(
            written("192.0.2.1", &claims),
            "X-Forward: stays\r\nCookie: a=b\r\nX-Forwarded-For: 192.0.2.1\r\n\
             X-Forwarded-Proto: http\r\nX-Forwarded-Host: shop.example.com\r\n\
             CF-Connecting-IP: 192.0.2.1\r\nX-Request-ID: 0123456789abcdef\r\n"
        );
    }

    #[test]
    fn claims_of_a_trusted_proxy_are_passed_on() {
        let claims = [
            ("X-Forwarded-For", "198.51.100.7"),
            ("X-Forwarded-For", "203.0.113.5:4711"),
            ("X-Forwarded-Proto", "https"),
            ("X-Forwarded-Host", "www.example.com"),
            ("CF-Connecting-IP", "203.0.113.5"),
            ("X-Request-ID", "abc-1"),
        ];
        assert_eq!(
            written("10.0.0.9", &claims),
            "X-Forwarded-Proto: https\r\nX-Forwarded-Host: www.example.com\r\n\
             CF-Connecting-IP: 203.0.113.5\r\n\
             X-Forwarded-For: 198.51.100.7, 203.0.113.5:4711, 10.0.0.9\r\n\
             X-Request-ID: abc-1\r\n"
        );
    }

    #[test]
    fn an_empty_claim_leaves_no_empty_entry() {
        let written = written("10.0.0.9", &[("X-Forwarded-For", "")]);
        assert!(
            written.starts_with("X-Forwarded-For: 10.0.0.9\r\n"),
            "{written}"
        );
    }

    #[test]
    fn what_a_trusted_proxy_leaves_out_is_written() {
        assert_eq!(
            written(
                "10.0.0.9",
                &[("X-Forwarded-For", "2001:db8::1"), ("X-Request-ID", "a b")]
            ),
            "X-Forwarded-For: 2001:db8::1, 10.0.0.9\r\nX-Forwarded-Proto: http\r\n\
             X-Forwarded-Host: shop.example.com\r\nCF-Connecting-IP: 2001:db8::1\r\n\
             X-Request-ID: 0123456789abcdef\r\n"
        );
    }
}
