//! Keyed hashing: what visitors and endpoints are compared by.
//!
//! The key is one for all nodes that serve the same configuration, so that they choose alike, and
//! it is not told to visitors, who could otherwise look for addresses that all come to one endpoint.

use std::hash::Hasher as _;
use std::net::IpAddr;
use std::ops::ControlFlow;

use siphasher::sip::SipHasher24;
use siphasher::sip128::{Hasher128 as _, SipHasher24 as SipHasher24Wide};

use super::COOKIE;
use crate::id::Id;
use crate::request::Headers;

/// The key of every hash that steers.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct HashKey([u64; 2]);

impl HashKey {
    /// From 128 bits that all nodes share.
    #[must_use]
    pub const fn new(bytes: [u8; 16]) -> HashKey {
        let bits = u128::from_le_bytes(bytes);
        HashKey([bits as u64, (bits >> 64) as u64])
    }

    /// H of the load-balancing specification, section 5: SipHash-2-4 of the address and then the
    /// id. An IPv4 address in IPv6 form counts as IPv4.
    #[must_use]
    pub fn of_client(self, client: IpAddr, of: Id) -> u64 {
        self.client(client, &of.to_bytes())
    }

    /// H for load shedding, section 9: the address, the word `shed` and the id of the pool.
    #[must_use]
    pub fn of_shedding(self, client: IpAddr, pool: Id) -> u64 {
        let mut what = [0; 4 + Id::LEN];
        what[..4].copy_from_slice(b"shed");
        what[4..].copy_from_slice(&pool.to_bytes());
        self.client(client, &what)
    }

    fn client(self, client: IpAddr, what: &[u8]) -> u64 {
        let mut hasher = SipHasher24::new_with_keys(self.0[0], self.0[1]);
        match client.to_canonical() {
            IpAddr::V4(ip) => hasher.write(&ip.octets()),
            IpAddr::V6(ip) => hasher.write(&ip.octets()),
        }
        hasher.write(what);
        hasher.finish()
    }
}

impl Default for HashKey {
    /// A key that anybody can read here: for nodes that have been given none.
    fn default() -> HashKey {
        HashKey([0x7573_6865_722d_6b65, 0x7920_6f66_2061_6c6c])
    }
}

impl std::fmt::Debug for HashKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("HashKey")
    }
}

/// By what a visitor with header affinity is known: 128 bits of keyed hash over the headers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PinKey(pub u128);

/// What one item of the configured headers takes of a request.
enum Part<'a> {
    Header(&'a [u8]),
    AllCookies,
    Cookies(&'a str),
}

impl<'a> Part<'a> {
    fn parse(item: &'a str) -> Part<'a> {
        match item.split_once(':') {
            Some((_, names)) => Part::Cookies(names),
            None if item.eq_ignore_ascii_case("cookie") => Part::AllCookies,
            None => Part::Header(item.as_bytes()),
        }
    }
}

/// The key of a request: a hash over the configured items that it carries, in the order of the
/// configuration, each with all its values. `None` when it carries none of them, or with `all` not
/// every one; `cookie:a,b` is carried when one of those cookies is.
///
/// The load balancer is part of it, so that two of them share no pins.
#[must_use]
pub(crate) fn pin_key(
    key: HashKey,
    balancer: Id,
    items: &[String],
    all: bool,
    headers: &dyn Headers,
) -> Option<PinKey> {
    let mut hasher = SipHasher24Wide::new_with_keys(key.0[0], key.0[1]);
    hasher.write(&balancer.to_bytes());
    let mut carried = 0;
    for item in items {
        if hash_item(&mut hasher, item, headers) {
            carried += 1;
        } else if all {
            return None;
        }
    }
    (carried > 0).then(|| PinKey(hasher.finish128().as_u128()))
}

/// Whether the request carries the item.
fn hash_item(hasher: &mut SipHasher24Wide, item: &str, headers: &dyn Headers) -> bool {
    let part = Part::parse(item);
    let (name, mut found) = match part {
        Part::Header(name) => (name, false),
        Part::AllCookies | Part::Cookies(_) => (&b"cookie"[..], false),
    };
    headers.visit(&mut |line, value| {
        if line.eq_ignore_ascii_case(name) {
            match part {
                Part::Header(name) => {
                    piece(hasher, name, value, &mut found);
                }
                Part::AllCookies => each_cookie(value, |name, value| {
                    // Our own cookie says where the visitor went before, not who it is.
                    if name != COOKIE.as_bytes() {
                        piece(hasher, name, value, &mut found);
                    }
                }),
                Part::Cookies(names) => each_cookie(value, |name, value| {
                    let mut wanted = names.split(',').map(|name| name.trim().as_bytes());
                    if wanted.any(|wanted| wanted == name) {
                        piece(hasher, name, value, &mut found);
                    }
                }),
            }
        }
        ControlFlow::Continue(())
    });
    found
}

/// Lengths keep what lies side by side apart.
fn piece(hasher: &mut SipHasher24Wide, name: &[u8], value: &[u8], found: &mut bool) {
    *found = true;
    hasher.write_u64(name.len() as u64);
    name.iter()
        .for_each(|byte| hasher.write_u8(byte.to_ascii_lowercase()));
    hasher.write_u64(value.len() as u64);
    hasher.write(value);
}

fn each_cookie(line: &[u8], mut each: impl FnMut(&[u8], &[u8])) {
    for pair in line.split(|&byte| byte == b';') {
        let pair = pair.trim_ascii();
        let end = pair
            .iter()
            .position(|&byte| byte == b'=')
            .unwrap_or(pair.len());
        let (name, value) = pair.split_at(end);
        if !name.is_empty() {
            each(name, value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::Kind;

    fn key(items: &str, all: bool, headers: &[(&str, &str)]) -> Option<PinKey> {
        let items: Vec<String> = items.split(' ').map(str::to_owned).collect();
        let balancer = Id::derive("default", Kind::Balancer, "shop.example.com");
        let headers: Vec<(&str, &str)> = headers.to_vec();
        pin_key(HashKey::default(), balancer, &items, all, &headers)
    }

    #[test]
    fn one_header_is_enough_unless_all_are_asked_for() {
        let (a, b) = (("X-A", "1"), ("X-B", "2"));
        assert_eq!(key("x-a x-b", false, &[]), None);
        assert_eq!(key("x-a x-b", true, &[a]), None);
        let one = key("x-a x-b", false, &[a]).unwrap();
        let both = key("x-a x-b", true, &[a, b]).unwrap();
        assert_ne!(one, both, "another header makes another visitor");
        assert_eq!(Some(both), key("x-a x-b", false, &[b, ("Accept", "*"), a]));
        assert_ne!(Some(both), key("x-b x-a", false, &[a, b]));
    }

    #[test]
    fn names_have_no_case_and_values_do() {
        let one = key("X-a", false, &[("x-A", "v")]).unwrap();
        assert_eq!(Some(one), key("X-a", false, &[("X-A", "v")]));
        assert_ne!(Some(one), key("X-a", false, &[("X-A", "V")]));
        assert_ne!(Some(one), key("X-a", false, &[("X-A", "v"), ("X-A", "v")]));
        assert_ne!(
            key("a", false, &[("a", "bc"), ("a", "d")]),
            key("a", false, &[("a", "b"), ("a", "cd")])
        );
    }

    #[test]
    fn cookies_can_be_picked() {
        let line = |cookies| [("Cookie", cookies)];
        let picked = |cookies| key("cookie:sid,cart", false, &line(cookies));
        let sid = picked("sid=1").unwrap();
        assert_eq!(picked("theme=dark; sid=1; other=2"), Some(sid));
        assert_eq!(picked("theme=dark"), None);
        assert_ne!(picked("sid=1; cart=2"), Some(sid));
        let all = |cookies| key("cookie", false, &line(cookies));
        assert_ne!(all("a=1; b=2"), all("a=1"));
        assert_eq!(all("a=1; __cflb=x"), all("a=1"));
        assert_eq!(all("__cflb=x"), None);
        assert_eq!(all(" ; ;=1"), None);
    }

    #[test]
    fn a_hundred_values_are_one_key() {
        let many = vec![("x-a", "v"); 100];
        assert!(key("x-a", true, &many).is_some());
        assert_ne!(key("x-a", true, &many), key("x-a", true, &many[1..]));
    }
}
