//! What is kept: a document with a name, a place it belongs to, and a history.

use std::fmt;
use std::str::FromStr;

use usher_core::id::Id;

use crate::secret::Secret;
use crate::stamp::Stamp;
use crate::token::Digest;

/// Counts changes of a store, from 1. Every change that writes has one of its own, larger than
/// all before it; 0 is the store in which nothing was ever written.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Revision(pub u64);

impl fmt::Display for Revision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// What a resource is.
///
/// A variant added here needs a new schema version, so that an older build refuses the store by
/// name and does not stumble over a word it does not know.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// An account.
    Account,
    /// A DNS zone.
    Zone,
    /// The settings of a zone; carries the zone's id.
    ZoneSettings,
    /// A monitor.
    Monitor,
    /// A monitor group.
    MonitorGroup,
    /// A pool.
    Pool,
    /// A load balancer, of a zone or of an account.
    Balancer,
    /// A notification policy.
    NotificationPolicy,
    /// A webhook that notifications go to.
    WebhookDestination,
    /// A token of the API.
    Token,
    /// A waiting room.
    Room,
    /// The rules of a waiting room; carries the room's id.
    RoomRules,
}

impl Kind {
    /// Every kind.
    pub const ALL: [Kind; 12] = [
        Kind::Account,
        Kind::Zone,
        Kind::ZoneSettings,
        Kind::Monitor,
        Kind::MonitorGroup,
        Kind::Pool,
        Kind::Balancer,
        Kind::NotificationPolicy,
        Kind::WebhookDestination,
        Kind::Token,
        Kind::Room,
        Kind::RoomRules,
    ];

    /// Its word, in the store and in messages. Never changes.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Kind::Account => "account",
            Kind::Zone => "zone",
            Kind::ZoneSettings => "zone settings",
            Kind::Monitor => "monitor",
            Kind::MonitorGroup => "monitor group",
            Kind::Pool => "pool",
            Kind::Balancer => "load balancer",
            Kind::NotificationPolicy => "notification policy",
            Kind::WebhookDestination => "webhook destination",
            Kind::Token => "token",
            Kind::Room => "waiting room",
            Kind::RoomRules => "waiting room rules",
        }
    }

    /// The kind that [`Kind::name`] calls so.
    #[must_use]
    pub fn parse(name: &str) -> Option<Kind> {
        Kind::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// Its place in [`Kind::ALL`].
    pub(crate) const fn index(self) -> usize {
        self as usize
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// What a resource belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Scope {
    /// Nothing smaller than this store: accounts, tokens.
    Installation,
    /// An account.
    Account(Id),
    /// A zone.
    Zone(Id),
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Scope::Installation => f.write_str("installation"),
            Scope::Account(id) => write!(f, "account/{id}"),
            Scope::Zone(id) => write!(f, "zone/{id}"),
        }
    }
}

/// The text is not what [`Scope`] shows.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("scope {0:?} is neither installation, account/ID nor zone/ID")]
pub struct ScopeFault(pub String);

impl FromStr for Scope {
    type Err = ScopeFault;

    fn from_str(text: &str) -> Result<Scope, ScopeFault> {
        let fault = || ScopeFault(text.to_owned());
        if text == "installation" {
            return Ok(Scope::Installation);
        }
        let (word, id) = text.split_once('/').ok_or_else(fault)?;
        let id = id.parse().map_err(|_| fault())?;
        match word {
            "account" => Ok(Scope::Account(id)),
            "zone" => Ok(Scope::Zone(id)),
            _ => Err(fault()),
        }
    }
}

/// What belongs to a resource and is never shown: not in a document, an audit row or a log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Private {
    /// What a token is recognised by.
    Token {
        /// Of the text that its holder sends.
        digest: Digest,
        /// From then on it opens nothing. `None`: it does not end.
        expires: Option<Stamp>,
    },
    /// What a destination's messages are signed with.
    Secret(Secret),
}

/// One thing that an operator asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Resource {
    /// What it is.
    pub kind: Kind,
    /// Unique among its kind.
    pub id: Id,
    /// What it belongs to.
    pub scope: Scope,
    /// What people call it; whether two may share a name is for the check of a change to say.
    pub name: String,
    /// As it was accepted, byte for byte.
    pub document: String,
    /// What is not shown.
    pub private: Option<Private>,
    /// When it was created.
    pub created_on: Stamp,
    /// When it was changed last.
    pub modified_on: Stamp,
    /// The change that wrote it last.
    pub revision: Revision,
    /// Where it stands in lists.
    pub(crate) turn: Turn,
}

/// The change that created a resource, and its position in it: the order of lists. Two resources
/// created in one microsecond still have one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Turn {
    pub(crate) created: Revision,
    pub(crate) position: u32,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_found_by_their_word_and_stand_where_they_say() {
        for (index, kind) in Kind::ALL.into_iter().enumerate() {
            assert_eq!(Kind::parse(kind.name()), Some(kind));
            assert_eq!(kind.index(), index);
        }
        assert_eq!(Kind::parse("pools"), None);
    }

    #[test]
    fn a_scope_is_read_as_it_is_shown() {
        let id = Id::from_bytes([7; 16]);
        for scope in [Scope::Installation, Scope::Account(id), Scope::Zone(id)] {
            assert_eq!(scope.to_string().parse(), Ok(scope));
        }
        for text in ["", "account", "account/", "pool/00", "installation/"] {
            assert!(text.parse::<Scope>().is_err(), "{text}");
        }
    }
}
