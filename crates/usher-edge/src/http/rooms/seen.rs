//! What the log and the figures say of a request that a room was asked about.

use usher_core::id::Id;
use usher_rooms::door::{Bypass, Outcome, Told};
use usher_rooms::view::Stage;

/// What a room made of one request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RoomSeen {
    /// The room.
    pub room: Id,
    /// What it made of it.
    pub word: RoomWord,
    /// Cookies that did not open.
    pub invalid: u8,
    /// The cookie was an old copy.
    pub copy: bool,
}

/// What a room makes of a request, in a word for logs and metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum RoomWord {
    /// It passed by a seat.
    Active,
    /// It was given a seat.
    Admitted,
    /// Its sender waits.
    Queued,
    /// It passed without a seat.
    Bypassed,
    /// It was turned away.
    Rejected,
}

impl RoomWord {
    /// Every word.
    pub const ALL: [RoomWord; 5] = [
        RoomWord::Active,
        RoomWord::Admitted,
        RoomWord::Queued,
        RoomWord::Bypassed,
        RoomWord::Rejected,
    ];

    /// The word.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            RoomWord::Active => "active",
            RoomWord::Admitted => "admitted",
            RoomWord::Queued => "queued",
            RoomWord::Bypassed => "bypassed",
            RoomWord::Rejected => "rejected",
        }
    }
}

impl RoomSeen {
    /// What is said of `told`; nothing of a room that is off.
    pub(crate) fn of(room: Id, told: &Told) -> Option<RoomSeen> {
        let word = match &told.outcome {
            Outcome::Bypass(Bypass::Suspended) => return None,
            Outcome::Bypass(Bypass::Rule | Bypass::Seatless | Bypass::Unanswered) => {
                RoomWord::Bypassed
            }
            Outcome::Pass(pass) if pass.admitted => RoomWord::Admitted,
            Outcome::Pass(_) => RoomWord::Active,
            Outcome::Outside(outside) if outside.stage == Stage::Rejected => RoomWord::Rejected,
            Outcome::Outside(_) => RoomWord::Queued,
        };
        Some(RoomSeen {
            room,
            word,
            invalid: told.invalid,
            copy: false,
        })
    }
}
