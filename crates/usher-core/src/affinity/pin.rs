//! What a pin says, and its form in a cookie.

use std::time::Duration;

use super::PinKey;
use crate::id::Id;
use crate::time::Wall;

/// The tie of one visitor to one endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pin {
    /// The load balancer that made it; no other takes it.
    pub balancer: Id,
    /// The pool through which the endpoint was chosen.
    pub pool: Id,
    /// The endpoint.
    pub endpoint: Id,
    /// When it began to hold: its creation, or for one in a table the last request.
    pub since: Wall,
    /// How long it holds from then on. It is part of the pin because a rule may give one path a
    /// longer time than others, and the visitor keeps that everywhere.
    pub ttl: Duration,
}

impl Pin {
    /// Bytes of [`Pin::encode`].
    pub const LEN: usize = 1 + 3 * Id::LEN + 8 + 4;

    const VERSION: u8 = 1;

    /// When it ends.
    #[must_use]
    pub fn ends(&self) -> Wall {
        self.since.after(self.ttl)
    }

    /// The form in which it leaves the process, to be sealed: a version, the three ids, the moment
    /// in milliseconds and the time in seconds, numbers with the high byte first.
    #[must_use]
    pub fn encode(&self) -> [u8; Pin::LEN] {
        let mut bytes = [0; Pin::LEN];
        let mut rest = &mut bytes[..];
        let mut put = |part: &[u8]| {
            let (head, tail) = std::mem::take(&mut rest).split_at_mut(part.len());
            head.copy_from_slice(part);
            rest = tail;
        };
        put(&[Pin::VERSION]);
        for id in [self.balancer, self.pool, self.endpoint] {
            put(&id.to_bytes());
        }
        put(&self.since.as_millis().to_be_bytes());
        let ttl_secs = u32::try_from(self.ttl.as_secs()).unwrap_or(u32::MAX);
        put(&ttl_secs.to_be_bytes());
        bytes
    }

    /// The pin that `bytes` are the form of; `None` for any other bytes, also those of a version
    /// that is not known here.
    #[must_use]
    pub fn decode(bytes: &[u8]) -> Option<Pin> {
        let bytes: &[u8; Pin::LEN] = bytes.try_into().ok()?;
        let mut rest = &bytes[..];
        if rest.split_off_first() != Some(&Pin::VERSION) {
            return None;
        }
        let mut id = || {
            rest.split_off(..Id::LEN)?
                .try_into()
                .ok()
                .map(Id::from_bytes)
        };
        let (balancer, pool, endpoint) = (id()?, id()?, id()?);
        let since = i64::from_be_bytes(rest.split_off(..8)?.try_into().ok()?);
        let ttl_secs = u32::from_be_bytes(rest.try_into().ok()?);
        Some(Pin {
            balancer,
            pool,
            endpoint,
            since: Wall::from_millis(since),
            ttl: Duration::from_secs(ttl_secs.into()),
        })
    }
}

/// Where pins are found. Asked at most once in a decision, and only where affinity is on.
pub trait Pins {
    /// The pin in the visitor's cookie, opened for this load balancer; `None` without one, and for
    /// one that is forged, truncated or another's.
    fn in_cookie(&self, balancer: Id) -> Option<Pin>;

    /// The pin that the table of this node holds under `key`.
    fn under_key(&self, key: PinKey) -> Option<Pin>;
}

/// Nobody has been here before.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoPins;

impl Pins for NoPins {
    fn in_cookie(&self, _: Id) -> Option<Pin> {
        None
    }

    fn under_key(&self, _: PinKey) -> Option<Pin> {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::Kind;

    fn pin() -> Pin {
        let id = |kind, key| Id::derive("default", kind, key);
        Pin {
            balancer: id(Kind::Balancer, "shop.example.com"),
            pool: id(Kind::Pool, "eu"),
            endpoint: id(Kind::Endpoint, "eu/192.0.2.1:0"),
            since: Wall::from_millis(1_790_000_000_123),
            ttl: Duration::from_secs(82_800),
        }
    }

    #[test]
    fn a_pin_comes_back_as_it_went() {
        for since in [1_790_000_000_123, 0, -1, i64::MIN, i64::MAX] {
            let pin = Pin {
                since: Wall::from_millis(since),
                ..pin()
            };
            assert_eq!(Pin::decode(&pin.encode()), Some(pin));
        }
    }

    #[test]
    fn other_bytes_are_no_pin() {
        let bytes = pin().encode();
        for len in 0..bytes.len() {
            assert_eq!(Pin::decode(&bytes[..len]), None, "{len}");
        }
        assert_eq!(Pin::decode(&[&bytes[..], &[0]].concat()), None);
        let mut other_version = bytes;
        other_version[0] = 2;
        assert_eq!(Pin::decode(&other_version), None);
        assert_eq!(Pin::decode(&[0; 8192]), None);
    }

    #[test]
    fn an_end_is_within_time() {
        let late = Pin {
            since: Wall::from_millis(i64::MAX - 1),
            ..pin()
        };
        assert_eq!(late.ends(), Wall::from_millis(i64::MAX));
    }
}
