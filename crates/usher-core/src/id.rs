//! Identities that survive a restart.
//!
//! An id is derived from what the operator wrote (account, kind, key) and not drawn, so that a
//! declared resource keeps its id on every node and after every restart.

use std::fmt;
use std::hash::Hasher as _;
use std::str::FromStr;

use siphasher::sip128::{Hasher128 as _, SipHasher24};

/// The kinds of things that carry an [`Id`]. The kind is part of what the id is derived from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    /// An account.
    Account,
    /// A DNS zone.
    Zone,
    /// A monitor.
    Monitor,
    /// A monitor group.
    MonitorGroup,
    /// A pool.
    Pool,
    /// A load balancer.
    Balancer,
    /// An endpoint inside one pool.
    Endpoint,
    /// A waiting room.
    Room,
    /// A rule of a waiting room.
    RoomRule,
}

impl Kind {
    /// Every kind.
    pub const ALL: [Kind; 9] = [
        Kind::Account,
        Kind::Zone,
        Kind::Monitor,
        Kind::MonitorGroup,
        Kind::Pool,
        Kind::Balancer,
        Kind::Endpoint,
        Kind::Room,
        Kind::RoomRule,
    ];

    const fn tag(self) -> &'static str {
        match self {
            Kind::Account => "account",
            Kind::Zone => "zone",
            Kind::Monitor => "monitor",
            Kind::MonitorGroup => "monitor-group",
            Kind::Pool => "pool",
            Kind::Balancer => "balancer",
            Kind::Endpoint => "endpoint",
            Kind::Room => "room",
            Kind::RoomRule => "room-rule",
        }
    }
}

/// 128 bits, shown as 32 lowercase hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Id([u8; 16]);

impl Id {
    /// Bytes of an id.
    pub const LEN: usize = 16;

    /// The id with these bytes, which came out of [`Id::to_bytes`].
    #[must_use]
    pub const fn from_bytes(bytes: [u8; Id::LEN]) -> Id {
        Id(bytes)
    }

    /// Its bytes.
    #[must_use]
    pub const fn to_bytes(self) -> [u8; Id::LEN] {
        self.0
    }

    /// The id of the thing of `kind` that `account` calls `key`.
    ///
    /// The same three values give the same id on every node and in every version.
    #[must_use]
    pub fn derive(account: &str, kind: Kind, key: &str) -> Id {
        // A fixed key: this is a name, not a secret. Lengths keep ("a", "bc") apart from ("ab", "c").
        let mut hasher = SipHasher24::new_with_keys(0x7573_6865_722d_6964, 1);
        for part in [account, kind.tag(), key] {
            hasher.write_u64(part.len() as u64);
            hasher.write(part.as_bytes());
        }
        Id(hasher.finish128().as_bytes())
    }

    /// The first 64 bits, for maps and hashes that need a small key.
    #[must_use]
    pub fn short(self) -> u64 {
        let [a, b, c, d, e, f, g, h, ..] = self.0;
        u64::from_be_bytes([a, b, c, d, e, f, g, h])
    }
}

impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The text is not 32 lowercase hexadecimal digits.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("id {0:?} is not 32 lowercase hexadecimal digits")]
pub struct IdFault(pub String);

impl FromStr for Id {
    type Err = IdFault;

    fn from_str(text: &str) -> Result<Id, IdFault> {
        let fault = || IdFault(text.to_owned());
        let digits = text.as_bytes();
        if digits.len() != 32 {
            return Err(fault());
        }
        let nibble = |digit: u8| match digit {
            b'0'..=b'9' => Ok(digit - b'0'),
            b'a'..=b'f' => Ok(digit - b'a' + 10),
            _ => Err(fault()),
        };
        let mut bytes = [0; 16];
        for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
            *byte = nibble(pair[0])? << 4 | nibble(pair[1])?;
        }
        Ok(Id(bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_the_same_in_every_version() {
        let id = Id::derive("default", Kind::Pool, "eu");
        assert_eq!(id, Id::derive("default", Kind::Pool, "eu"));
        assert_eq!(id.to_string().parse(), Ok(id));
    }

    #[test]
    fn parts_do_not_run_into_each_other() {
        let ids =
            [("a", "bc"), ("ab", "c")].map(|(account, key)| Id::derive(account, Kind::Pool, key));
        assert_ne!(ids[0], ids[1]);
        assert_ne!(
            Id::derive("a", Kind::Pool, "b"),
            Id::derive("a", Kind::Monitor, "b")
        );
    }

    #[test]
    fn text_that_is_no_id_is_refused() {
        for text in ["", "0", &"g".repeat(32), &"A".repeat(32), &"0".repeat(33)] {
            assert!(text.parse::<Id>().is_err(), "{text}");
        }
    }
}
