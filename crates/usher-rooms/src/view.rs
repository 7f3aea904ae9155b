//! What is true of one visitor now.
//!
//! Values only: no text in any language, no HTML, nothing rounded for a reader. Whoever sends
//! something reads it from here.

use usher_core::time::Wall;

/// What is true of one visitor of one room at one moment.
#[derive(Debug, Clone, PartialEq)]
pub struct View<'a> {
    /// Where the visitor stands.
    pub stage: Stage,
    /// How the room picks who enters next.
    pub method: Method,
    /// True while nobody enters by the operator's order.
    pub queue_all: bool,
    /// The moment that this holds for.
    pub now: Wall,
    /// When this visitor's last attempt counted.
    pub last_updated: Wall,
    /// Seconds until the next attempt counts; 0 when it makes no sense to ask again.
    pub refresh_secs: u32,
    /// Present visitors ahead, plus one; `None` where places say nothing (a draw) or are not shown.
    pub position: Option<u64>,
    /// Visitors ahead that are present.
    pub ahead_present: u64,
    /// Visitors ahead that have not been heard of lately and may return.
    pub ahead_away: u64,
    /// How long the wait will be; `None` while nobody can tell.
    pub wait: Option<Wait>,
    /// The moment that the visitor enters at the latest; only where it is a promise.
    pub guaranteed_by: Option<Wall>,
    /// When somebody was last let in from the line.
    pub moved: Option<Wall>,
    /// Until when a called visitor must come; `None` in every stage but [`Stage::Called`].
    pub claim_by: Option<Wall>,
    /// Why things are not as the visitor saw them last.
    pub reason: Option<Reason>,
    /// The event that acts now, from the beginning of its prequeue on.
    pub event: Option<Event>,
    /// The HTML of the challenge; empty for none.
    pub turnstile: &'a str,
    /// True for a visitor that failed the challenge and is never let in.
    pub infinite_queue: bool,
}

/// Where a visitor stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Stage {
    /// Waits for a seat.
    Waiting,
    /// Waits, and nobody is let in: the operator holds everybody.
    Held,
    /// Waits for an event that has not started.
    Prequeue,
    /// May not even wait: the line is full.
    Full,
    /// Turned away; the room takes nobody.
    Rejected,
    /// Cannot be told from others, because no cookie came back.
    CookiesNeeded,
    /// A seat is reserved and waits for the visitor.
    Called,
    /// Inside.
    Active,
}

impl Stage {
    /// Every stage.
    pub const ALL: [Stage; 8] = [
        Stage::Waiting,
        Stage::Held,
        Stage::Prequeue,
        Stage::Full,
        Stage::Rejected,
        Stage::CookiesNeeded,
        Stage::Called,
        Stage::Active,
    ];

    /// The word for programs.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Stage::Waiting => "waiting",
            Stage::Held => "held",
            Stage::Prequeue => "prequeue",
            Stage::Full => "full",
            Stage::Rejected => "rejected",
            Stage::CookiesNeeded => "cookies_needed",
            Stage::Called => "called",
            Stage::Active => "active",
        }
    }
}

/// How a room picks who enters next.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Method {
    /// The longest wait first.
    Fifo,
    /// A fresh draw from all who are present.
    Random,
    /// Everybody at once.
    Passthrough,
    /// Nobody.
    Reject,
}

impl Method {
    /// Every method.
    pub const ALL: [Method; 4] = [
        Method::Fifo,
        Method::Random,
        Method::Passthrough,
        Method::Reject,
    ];

    /// The word of the wire.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Method::Fifo => "fifo",
            Method::Random => "random",
            Method::Passthrough => "passthrough",
            Method::Reject => "reject",
        }
    }
}

/// How long the wait will be, from now on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wait {
    /// Seconds; one visitor in ten waits less.
    pub low_secs: u64,
    /// Seconds; as likely less as more.
    pub mid_secs: u64,
    /// Seconds; one visitor in ten waits longer.
    pub high_secs: u64,
    /// The one number that is shown where only one fits, in minutes, at least 1.
    pub minutes: u64,
    /// Minutes that the quickest 25, 50 and 75 % wait at most; only of a draw.
    pub percentiles: Option<[u64; 3]>,
}

/// Why things are not as the visitor saw them last.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Reason {
    /// The wait grew, because fewer visitors leave.
    SlowerOutflow,
    /// The wait grew, because the operator changed the room.
    SettingsChanged,
    /// The visitor was away for too long; the place was given up.
    PlaceExpired,
}

impl Reason {
    /// The word for programs.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Reason::SlowerOutflow => "slower_outflow",
            Reason::SettingsChanged => "settings_changed",
            Reason::PlaceExpired => "place_expired",
        }
    }
}

/// An event that acts now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Event {
    /// When it starts, or started.
    pub starts: Wall,
    /// When it ends.
    pub ends: Wall,
    /// True when the places are drawn at the start.
    pub shuffle: bool,
}

impl View<'_> {
    /// True while the event has not started.
    #[must_use]
    pub fn prequeueing(&self) -> bool {
        self.event.is_some_and(|event| self.now < event.starts)
    }

    /// True while the visitor is outside.
    #[must_use]
    pub fn outside(&self) -> bool {
        self.stage != Stage::Active
    }
}
