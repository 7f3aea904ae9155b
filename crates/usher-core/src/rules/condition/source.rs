//! Where values come from: fields of one request, and the elements of its maps and arrays.
//!
//! Nothing is collected. An array is a walk that calls back for each element, so `any()` over
//! headers touches the header lines themselves and stops at the first that fits.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::ops::ControlFlow;

use super::field::Field;
use crate::rules::facts::{Dns, Facts, Front, Http};

/// A map from strings to arrays of strings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Map {
    Headers,
    Args,
    Cookies,
}

impl Map {
    pub(super) const fn of(field: Field) -> Option<Map> {
        match field {
            Field::Headers | Field::HeaderNames | Field::HeaderValues => Some(Map::Headers),
            Field::Args | Field::ArgNames | Field::ArgValues => Some(Map::Args),
            Field::Cookies => Some(Map::Cookies),
            _ => None,
        }
    }

    /// Calls `each` with every pair in order until it breaks. Header names may be in any case.
    fn pairs<'f>(
        self,
        http: &Http<'f>,
        each: &mut dyn FnMut(&'f [u8], &'f [u8]) -> ControlFlow<()>,
    ) {
        match self {
            Map::Headers => http.headers.visit(each),
            Map::Args => {
                let mut rest = http.query().as_bytes();
                while !rest.is_empty() {
                    let (argument, behind) = halves(rest, b'&');
                    rest = behind;
                    let (name, value) = halves(argument, b'=');
                    if !argument.is_empty() && each(name, value).is_break() {
                        return;
                    }
                }
            }
            Map::Cookies => http.headers.visit(&mut |name, line| {
                if !name.eq_ignore_ascii_case(b"cookie") {
                    return ControlFlow::Continue(());
                }
                let mut cookies = line
                    .split(|&byte| byte == b';')
                    .map(<[u8]>::trim_ascii)
                    .filter(|cookie| !cookie.is_empty());
                cookies.try_for_each(|cookie| {
                    let (name, value) = halves(cookie, b'=');
                    each(name, value)
                })
            }),
        }
    }

    /// Whether a name of a pair is the key that an expression asks for.
    fn is(self, name: &[u8], key: &[u8]) -> bool {
        match self {
            // The key has its case, the line's name counts as lower case.
            Map::Headers => {
                name.len() == key.len()
                    && name
                        .iter()
                        .zip(key)
                        .all(|(byte, wanted)| byte.to_ascii_lowercase() == *wanted)
            }
            Map::Args | Map::Cookies => name == key,
        }
    }

    fn name<'f>(self, name: &'f [u8]) -> Cow<'f, [u8]> {
        match self {
            Map::Headers => super::node::lower(Cow::Borrowed(name)),
            Map::Args | Map::Cookies => Cow::Borrowed(name),
        }
    }
}

/// What stands before and behind the first `mark`; nothing behind when there is none.
fn halves(text: &[u8], mark: u8) -> (&[u8], &[u8]) {
    match memchr::memchr(mark, text) {
        Some(len) => (&text[..len], &text[len + 1..]),
        None => (text, b""),
    }
}

/// An array of strings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Each {
    /// All names of a map, one for each pair.
    Names(Map),
    /// All values of a map; `m[*][*]` too.
    Values(Map),
    /// `m["key"]`
    Key(Map, Box<[u8]>),
    /// `m[*][n]`
    Nths(Map, u32),
}

impl Each {
    /// Calls `each` with every element in order until it breaks. False when the array is missing.
    pub(super) fn visit<'f>(
        &self,
        facts: &Facts<'f>,
        each: &mut dyn FnMut(Cow<'f, [u8]>) -> ControlFlow<()>,
    ) -> bool {
        let Front::Http(http) = &facts.front else {
            return false;
        };
        match self {
            Each::Names(map) => map.pairs(http, &mut |name, _| each(map.name(name))),
            Each::Values(map) => map.pairs(http, &mut |_, value| each(Cow::Borrowed(value))),
            Each::Key(map, key) => {
                let mut present = false;
                map.pairs(http, &mut |name, value| {
                    if !map.is(name, key) {
                        return ControlFlow::Continue(());
                    }
                    present = true;
                    each(Cow::Borrowed(value))
                });
                return present;
            }
            Each::Nths(map, nth) => {
                let mut seen: BTreeMap<Cow<'f, [u8]>, u32> = BTreeMap::new();
                map.pairs(http, &mut |name, value| {
                    let before = seen.entry(map.name(name)).or_insert(0);
                    let is_it = *before == *nth;
                    *before += 1;
                    if is_it {
                        each(Cow::Borrowed(value))
                    } else {
                        ControlFlow::Continue(())
                    }
                });
            }
        }
        true
    }
}

/// The text in `field`; `None` when it is missing.
pub(super) fn text<'f>(field: Field, facts: &Facts<'f>) -> Option<Cow<'f, [u8]>> {
    let plain = |text: &'f str| Some(Cow::Borrowed(text.as_bytes()));
    match field {
        Field::BalancerName => plain(facts.balancer),
        Field::NodeRegion => facts.region.and_then(plain),
        Field::Node => plain(facts.node),
        Field::Country | Field::SourceCountry => facts.country.and_then(plain),
        _ => match &facts.front {
            Front::Http(http) => http_text(field, http),
            Front::Dns(dns) => dns_text(field, dns),
        },
    }
}

fn http_text<'f>(field: Field, http: &Http<'f>) -> Option<Cow<'f, [u8]>> {
    let plain = |text: &'f str| Some(Cow::Borrowed(text.as_bytes()));
    let header = |name| Some(Cow::Borrowed(http.header(name).unwrap_or_default()));
    match field {
        Field::Cookie => Some(cookie(http)),
        Field::Host => plain(http.host),
        Field::Referer => header("referer"),
        Field::UserAgent => header("user-agent"),
        Field::ForwardedFor => header("x-forwarded-for"),
        Field::Method => plain(http.method),
        Field::FullUri => {
            let parts = [http.scheme.as_str(), "://", http.host, http.uri];
            Some(Cow::Owned(parts.concat().into_bytes()))
        }
        Field::Uri => plain(http.uri),
        Field::Path => plain(http.path()),
        Field::Query => plain(http.query()),
        Field::Version => plain(http.version),
        _ => None,
    }
}

/// HTTP/2 may send a cookie a line; together they are one header (RFC 9113, 8.2.3).
fn cookie<'f>(http: &Http<'f>) -> Cow<'f, [u8]> {
    let mut whole: Option<Cow<'f, [u8]>> = None;
    http.headers.visit(&mut |name, value| {
        if name.eq_ignore_ascii_case(b"cookie") {
            match &mut whole {
                Some(before) => {
                    let before = before.to_mut();
                    before.extend_from_slice(b"; ");
                    before.extend_from_slice(value);
                }
                None => whole = Some(Cow::Borrowed(value)),
            }
        }
        ControlFlow::Continue(())
    });
    whole.unwrap_or_default()
}

fn dns_text<'f>(field: Field, dns: &Dns<'f>) -> Option<Cow<'f, [u8]>> {
    match field {
        Field::DnsName => Some(Cow::Borrowed(dns.name.as_bytes())),
        Field::DnsClientAddress => {
            let address = dns.client_subnet?;
            Some(Cow::Owned(address.to_string().into_bytes()))
        }
        _ => None,
    }
}

/// The integer in `field`; `None` when it is missing.
pub(super) fn int(field: Field, facts: &Facts<'_>) -> Option<i64> {
    match (&facts.front, field) {
        (Front::Http(http), Field::TimestampSec) => Some(http.time.as_millis().div_euclid(1000)),
        (Front::Dns(dns), Field::DnsNameLen) => i64::try_from(dns.name.len()).ok(),
        (Front::Dns(dns), Field::DnsType) => Some(i64::from(dns.kind)),
        _ => None,
    }
}

/// The boolean in `field`; `None` when it is missing.
pub(super) fn bool(field: Field, facts: &Facts<'_>) -> Option<bool> {
    match (&facts.front, field) {
        (Front::Http(http), Field::Ssl) => Some(http.scheme == crate::request::Scheme::Https),
        (Front::Dns(dns), Field::DnsUnicast) => Some(dns.unicast),
        (Front::Dns(dns), Field::DnsClientSubnet) => Some(dns.client_subnet.is_some()),
        _ => None,
    }
}

/// The address in `ip.src`, the only field of its kind.
pub(super) fn ip(facts: &Facts<'_>) -> IpAddr {
    facts.client.to_canonical()
}
