//! What is true of one visitor now.
//!
//! Values only: no text in any language, no HTML, nothing rounded for a reader. Whoever sends
//! something reads it from here.

pub use usher_core::admission::Method;
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

impl Wait {
    /// Minutes of `low_secs`, rounded up, at least 1.
    #[must_use]
    pub fn minutes_low(&self) -> u64 {
        self.low_secs.div_ceil(60).max(1)
    }

    /// Minutes of `high_secs`, rounded up, never below [`Wait::minutes_low`].
    #[must_use]
    pub fn minutes_high(&self) -> u64 {
        self.high_secs.div_ceil(60).max(self.minutes_low())
    }
}

impl View<'_> {
    /// Minutes that the quickest 25, 50 and 75 % wait at most; `None` unless who enters is drawn.
    #[must_use]
    pub fn percentiles(&self) -> Option<[u64; 3]> {
        let drawn = self.wait.filter(|_| self.method == Method::Random);
        drawn.and_then(|wait| wait.percentiles)
    }

    /// The wait as one number of minutes: of a draw the median; 0 while nobody can tell.
    #[must_use]
    pub fn wait_minutes(&self) -> u64 {
        let median = self.percentiles().map(|percentiles| percentiles[1]);
        median
            .or(self.wait.map(|wait| wait.minutes))
            .unwrap_or_default()
    }

    /// Minutes until the event starts, rounded up; `None` when none is to start.
    #[must_use]
    pub fn minutes_to_start(&self) -> Option<u64> {
        let event = self.event.filter(|_| self.prequeueing())?;
        Some(minutes(event.starts.since(self.now)))
    }

    /// Minutes until the event ends, rounded up; `None` when none acts.
    #[must_use]
    pub fn minutes_to_end(&self) -> Option<u64> {
        let event = self.event.filter(|event| self.now < event.ends)?;
        Some(minutes(event.ends.since(self.now)))
    }

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

fn minutes(duration: std::time::Duration) -> u64 {
    let millis = u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
    millis.div_ceil(60_000)
}

#[cfg(test)]
impl View<'static> {
    /// A visitor in the middle of a line.
    pub(crate) fn in_line() -> View<'static> {
        let now = Wall::from_millis(1_796_119_200_000);
        View {
            stage: Stage::Waiting,
            method: Method::Fifo,
            queue_all: false,
            now,
            last_updated: now,
            refresh_secs: 20,
            position: Some(42),
            ahead_present: 41,
            ahead_away: 3,
            wait: Some(Wait {
                low_secs: 290,
                mid_secs: 400,
                high_secs: 470,
                minutes: 7,
                percentiles: None,
            }),
            guaranteed_by: None,
            moved: None,
            claim_by: None,
            reason: None,
            event: None,
            turnstile: "",
            infinite_queue: false,
        }
    }
}
