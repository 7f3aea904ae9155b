//! The door: what one request needs, told from its cookie, the settings and the room's summary.
//!
//! Most requests need nothing of the room. The order of the questions is that of the specification;
//! what comes before them (the room's own paths, bypass rules, the cookie's seal) is the front's.

use super::settings::{Method, Renewal, Settings};
use super::{Claims, Place, Standing, Summary};

/// What kind of request it is, as far as a room cares.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// A page, or anything that says nothing of what it is.
    Navigation,
    /// A part of a page: `Sec-Fetch-Dest` says so, and names neither a document nor an iframe.
    Subrequest,
    /// HEAD.
    Head,
    /// The browser asks whether it may ask.
    Preflight,
}

/// What to do with a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Door {
    /// To the endpoint, without a seat and uncounted.
    Bypass,
    /// To the endpoint: the seat is good.
    Pass {
        /// A renewal is due: send a [`super::Command::Renew`] beside the request.
        renew: bool,
    },
    /// Only the room can tell: [`super::Command::Ask`], with the cookie's visitor, or with a new
    /// one when there is none.
    Ask,
    /// The waiting page; the cookie is sealed anew and the visitor goes into the next
    /// [`super::Command::CheckIn`].
    Wait(Place),
    /// The waiting page, without a place: a request that takes no ticket.
    WaitOutside,
    /// The waiting page, with a place that is never reached.
    Decoy,
    /// The reject page.
    Reject,
    /// A page that says that the line is full.
    Full,
}

/// What a request at `now` (ms) with these claims needs.
///
/// `claims` are those of the first cookie of this room that could be opened. The summary may be as
/// old as half a second; being old, it only sends visitors to the room who need not have gone.
#[must_use]
pub fn decide(
    settings: &Settings,
    summary: &Summary,
    claims: Option<&Claims>,
    kind: Kind,
    now: u64,
) -> Door {
    if settings.suspended || kind == Kind::Preflight {
        return Door::Bypass;
    }
    match claims {
        Some(claims) => match claims.standing {
            Standing::Active => active(settings, summary, claims, now),
            Standing::Waiting => waiting(settings, summary, claims, now),
            Standing::Decoy => Door::Decoy,
        },
        None => newcomer(settings, summary, kind),
    }
}

fn active(settings: &Settings, summary: &Summary, claims: &Claims, now: u64) -> Door {
    if now >= claims.lease_until {
        return newcomer_again(settings, summary);
    }
    if summary.has_left(claims.visitor) {
        return Door::Ask;
    }
    // A seat of another epoch may be one that the room has forgotten: it has to be told. It is
    // good meanwhile, so nobody waits for that.
    let forgotten = claims.stamp.epoch != summary.stamp.epoch;
    if now < claims.renew_from {
        return Door::Pass { renew: forgotten };
    }
    let Renewal::After { quantum_ms } = settings.renewal else {
        return Door::Pass { renew: forgotten };
    };
    if now < claims.renew_from.saturating_add(quantum_ms) {
        Door::Pass { renew: true }
    } else {
        Door::Ask
    }
}

/// A seat that is over: its holder is new, but has shown that it keeps cookies.
fn newcomer_again(settings: &Settings, summary: &Summary) -> Door {
    newcomer(settings, summary, Kind::Navigation)
}

fn newcomer(settings: &Settings, summary: &Summary, kind: Kind) -> Door {
    if settings.queue_all {
        return match ticketless(settings, kind) {
            true => Door::WaitOutside,
            false if summary.full => Door::Full,
            false => Door::Ask,
        };
    }
    match settings.method {
        Method::Reject => Door::Reject,
        Method::Passthrough => Door::Ask,
        Method::Fifo | Method::Random => {
            if ticketless(settings, kind) {
                if summary.queues() {
                    Door::WaitOutside
                } else {
                    Door::Bypass
                }
            } else if summary.full {
                Door::Full
            } else {
                Door::Ask
            }
        }
    }
}

/// Without a cookie, neither a part of a page nor HEAD makes a visitor: a page that embeds thirty
/// images must not take thirty tickets.
fn ticketless(settings: &Settings, kind: Kind) -> bool {
    match kind {
        Kind::Navigation | Kind::Preflight => false,
        Kind::Subrequest => !settings.subrequests_strict,
        Kind::Head => true,
    }
}

fn waiting(settings: &Settings, summary: &Summary, claims: &Claims, now: u64) -> Door {
    if !settings.queue_all {
        match settings.method {
            Method::Reject => return Door::Reject,
            Method::Passthrough => return Door::Ask,
            Method::Fifo | Method::Random => {}
        }
    }
    let silence = now.saturating_sub(claims.last_check_in);
    let needs_room = claims.stamp.epoch != summary.stamp.epoch
        || claims.stamp.sequence > summary.stamp.sequence
        || silence > settings.present_ms
        || summary.concerns(claims.visitor, claims.ticket);
    if needs_room {
        Door::Ask
    } else {
        Door::Wait(summary.place(claims.ticket))
    }
}
