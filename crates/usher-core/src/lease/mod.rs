//! Browsers lent out: who may have one, which one it is, and how every lease comes to an end.
//!
//! A browser serves one session and dies, so there is no way back from `picked` to `ready`, and
//! "never given to two" is a matter of one row moving once. All the rest is about what dies in
//! between: client, broker, node, queue or database. Each party keeps what it must to be right
//! alone, and every wait has a deadline that somebody else watches:
//!
//! * the pool ([`region`]) knows which browser belongs to whom and counts its leases ([`Epoch`]),
//! * the node ([`host`]) runs the processes and refuses whoever comes with an older count,
//! * the broker ([`acquire`]) leads one request through admission, picking and hand-over,
//! * the account's home ([`account`]) counts what the account may still have.
//!
//! Rows and machines are plain values here. Stores keep the same rows in tables and are held
//! against [`region::Region`]; the simulator kills everybody at every step.
//!
//! Read [`browser::Lease`] first, then [`region::Region`].

pub mod account;
pub mod acquire;
pub mod beat;
pub mod browser;
pub mod bucket;
pub mod close;
pub mod host;
pub mod limits;
pub mod line;
pub mod migration;
pub mod pick;
pub mod refusal;
pub mod region;
pub mod reserve;
pub mod session;
pub mod warm;
pub mod window;

use std::fmt;

macro_rules! drawn {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub u128);

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{:x}", self.0)
            }
        }
    };
}

drawn! {
    /// One browser process tree with its profile. Drawn at launch, never used again.
    BrowserId
}
drawn! {
    /// One browser lent to one account. Drawn for each pick, never used again.
    SessionId
}
drawn! {
    /// One caller's wish for a browser, the same however often it is repeated.
    RequestId
}

/// A machine that runs browsers; the number that its region's store gave its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub u32);

/// How often a node's agent has been started, counted by the store. What an earlier start said
/// counts for nothing: an agent kills every browser it finds before it asks for its number.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Boot(pub u32);

/// How often a browser has been promised or taken away: the larger number wins. 0 for a browser
/// that was never anybody's.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Epoch(pub u32);

impl Epoch {
    /// The one after it.
    #[must_use]
    pub const fn next(self) -> Epoch {
        Epoch(self.0.saturating_add(1))
    }
}

/// Which build of the browser.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Flavour {
    /// What everybody gets.
    #[default]
    Stable,
    /// The experimental pool.
    Lab,
}

impl Flavour {
    /// Every flavour.
    pub const ALL: [Flavour; 2] = [Flavour::Stable, Flavour::Lab];

    /// Its word in tables and metrics.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Flavour::Stable => "stable",
            Flavour::Lab => "lab",
        }
    }
}

/// A way to run browsers; its number in the configuration.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Backend(pub u8);

/// Browsers of equal stock can stand in for each other.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Stock {
    /// How they are run.
    pub backend: Backend,
    /// What they are.
    pub flavour: Flavour,
}
