//! What a door would do with a request, for those who ask before anybody comes.
//!
//! The same decision as traffic's, from the same bulletin; but where traffic would ask the room's
//! owner, it is read from the bulletin what the owner is about to say. Nobody gets a ticket by it,
//! and nobody is heard of.

use usher_core::admission::door::{self, Kind};
use usher_core::admission::{Claims, Method, Standing};
use usher_core::request::Request;
use usher_core::rules::facts::Facts;

use super::Door;
use crate::owner::Bulletin;

/// What would become of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Foretold {
    /// What.
    pub fate: Fate,
    /// The place in line that it has or would get, where there is one.
    pub position: Option<u64>,
    /// Why, in words.
    pub why: String,
}

/// What would become of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Fate {
    /// On to the endpoint: a rule of the operator's says so.
    Bypassed,
    /// On to the endpoint: the room has no part in it.
    Untouched,
    /// On to the endpoint, by a seat that it has.
    Active,
    /// On to the endpoint, by a seat that it gets.
    Admitted,
    /// The waiting page.
    Queued,
    /// A page that turns it away.
    Rejected,
}

impl Fate {
    /// The word of the access log for it.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Fate::Bypassed => "bypassed",
            Fate::Untouched => "none",
            Fate::Active => "active",
            Fate::Admitted => "admitted",
            Fate::Queued => "queued",
            Fate::Rejected => "rejected",
        }
    }
}

impl Door {
    /// What would become of `request`; `facts` are the same request as rules see it.
    #[must_use]
    pub fn foretell(&self, request: &Request<'_>, facts: &Facts<'_>) -> Foretold {
        let bulletin = self.post.bulletin();
        if bulletin.settings.suspended {
            return told(Fate::Untouched, "it is suspended".to_owned());
        }
        if let Some(place) = self.rule(facts) {
            let why = format!("rule {} (of those enabled) lets it pass", place + 1);
            return told(Fate::Bypassed, why);
        }
        let found = self.jar.open(request.headers);
        let claims = found.claims.as_ref();
        let now = self.clock.now();
        let kind = self.look(request, false).kind;
        let (settings, summary) = (&bulletin.settings, &bulletin.summary);
        let mut foretold = match door::decide(settings, summary, claims, kind, now) {
            door::Door::Bypass if kind == Kind::Preflight => {
                let why = "a browser asks whether it may ask: that needs no seat";
                told(Fate::Untouched, why.to_owned())
            }
            door::Door::Bypass => {
                let why = "it is part of a page and nobody waits: it needs no seat";
                told(Fate::Untouched, why.to_owned())
            }
            door::Door::Pass { .. } => told(Fate::Active, "its cookie holds a seat".to_owned()),
            door::Door::Ask => asked(&bulletin, claims, now),
            door::Door::Wait(place) => Foretold {
                fate: Fate::Queued,
                position: Some(place.position),
                why: "its cookie holds a place in line".to_owned(),
            },
            door::Door::WaitOutside => {
                let why = "without a cookie it takes no place: it is no page that is asked for";
                told(Fate::Queued, why.to_owned())
            }
            door::Door::Decoy => told(Fate::Queued, "it failed a challenge".to_owned()),
            door::Door::Reject => told(Fate::Rejected, "newcomers are turned away".to_owned()),
            door::Door::Full => told(Fate::Queued, "the line is full".to_owned()),
        };
        if found.invalid > 0 && claims.is_none() {
            foretold.why.push_str("; its cookie does not open");
        }
        if settings.method != Method::Fifo || !self.show_position {
            foretold.position = None;
        }
        foretold
    }
}

/// What the owner is about to say.
fn asked(bulletin: &Bulletin, claims: Option<&Claims>, now: u64) -> Foretold {
    let (settings, summary) = (&bulletin.settings, &bulletin.summary);
    let counts = summary.counts;
    let full = format!(
        "{} of {} seats are taken, {} of {} admissions of this minute, and {} wait",
        counts.seated + counts.called + counts.ghosts,
        settings.total,
        counts.window,
        settings.per_minute,
        counts.present + counts.away,
    );
    if let Some(claims) = claims {
        let seat = claims.standing == Standing::Active && now < claims.lease_until;
        if seat {
            return told(
                Fate::Active,
                "its cookie holds a seat that is to be renewed".to_owned(),
            );
        }
        let called = summary.concerns(claims.visitor, claims.ticket);
        if claims.standing == Standing::Waiting && called && !settings.queue_all {
            return told(
                Fate::Admitted,
                "a seat is, or is about to be, reserved for it".to_owned(),
            );
        }
    }
    if settings.queue_all {
        return Foretold {
            fate: Fate::Queued,
            position: Some(counts.present + 1),
            why: "everybody is held: queue_all".to_owned(),
        };
    }
    if settings.method == Method::Passthrough {
        return told(
            Fate::Admitted,
            "everybody is let in: passthrough".to_owned(),
        );
    }
    match summary.queues() {
        true => Foretold {
            fate: Fate::Queued,
            position: Some(counts.present + 1),
            why: full,
        },
        false => told(Fate::Admitted, full),
    }
}

fn told(fate: Fate, why: String) -> Foretold {
    Foretold {
        fate,
        position: None,
        why,
    }
}
