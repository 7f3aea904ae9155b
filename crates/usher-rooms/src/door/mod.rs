//! The door of a room: what a front asks for each request.
//!
//! [`Door::decide`] takes no lock and waits for nothing. Most requests are settled by it: a seat
//! holder passes by its cookie, a waiting visitor is answered from the bulletin. What changes who may
//! pass is asked of the owner, and [`Door::finish`] waits for that.
//!
//! The order of calls: [`Routes::owner_of`](crate::route::Routes::owner_of) finds the door,
//! [`Door::look`] says what the request is, [`Door::decide`] and perhaps [`Door::finish`] give an
//! [`Outcome`]; when a request that passed is answered, [`Door::answered`] tells which cookie goes
//! along, and [`Door::over`] is told when all of the answer is out. A worker flushes its
//! [`Presence`] once a second.
//!
//! A visitor asks for its own state by [`Door::state`], which is a poll like any other, or is told
//! of it by [`Door::stand`] while a stream is open.

mod foretell;
mod kind;
mod presence;
mod rule;

use std::time::Duration;

use tokio::time::timeout;
use usher_core::admission::door;
use usher_core::admission::{
    Answer, Claims, End, Entry, Estimate, Method, Place, Seat, Shown, Standing, Visitor,
};
use usher_core::id::Id;
use usher_core::request::Request;
use usher_core::rules::condition::Condition;
use usher_core::rules::facts::Facts;
use usher_core::time::Wall;

pub use self::foretell::{Fate, Foretold};
pub use self::kind::{Json, Look};
pub use self::presence::{FLUSH_MS, Presence};
use crate::clock::Clock;
use crate::cookie::{Found, Jar};
use crate::owner::{Bulletin, OnStoreFailure, Pending, Post, Unanswered};
use crate::view::{self, Stage, View, Wait};
pub use usher_core::admission::door::Kind;

/// An owner that has not answered for so long does not answer.
const ANSWER_WITHIN: Duration = Duration::from_secs(2);
/// A cookie from further in the future is not believed, ms.
const FUTURE_MAX_MS: u64 = 1000;
/// A poll may come so much early and still counts, ms: timers of browsers are not exact.
const EARLY_MS: u64 = 1000;

/// What a front knows of a room.
#[derive(Debug)]
pub struct Door {
    /// The room.
    pub room: Id,
    /// Its cookie.
    pub jar: Jar,
    /// Its owner.
    pub post: Post,
    /// Its time.
    pub clock: Clock,
    /// Requests that one of these holds for, however their path is read, are not the room's matter.
    pub bypass: Vec<Condition>,
    /// What happens without an owner.
    pub on_failure: OnStoreFailure,
    /// An endpoint may end a seat.
    pub revocable: bool,
    /// Which programs are answered in JSON, and are visitors then.
    pub json: Json,
    /// Places are told.
    pub show_position: bool,
}

/// What is to be done, or whom to wait for.
#[derive(Debug)]
pub enum Step {
    /// This.
    Now(Told),
    /// What [`Door::finish`] gives.
    Ask(Asking),
}

/// A question that the owner has.
#[derive(Debug)]
pub struct Asking {
    visitor: Visitor,
    claims: Option<Claims>,
    /// Cookies that did not open.
    invalid: u8,
    pending: Pending,
}

/// What becomes of a request, and what was seen of its cookies.
#[derive(Debug)]
pub struct Told {
    /// What becomes of it.
    pub outcome: Outcome,
    /// Cookies that did not open: forged, damaged, of another room or key.
    pub invalid: u8,
    /// No good cookie came.
    pub stranger: bool,
}

/// What becomes of a request.
#[derive(Debug)]
pub enum Outcome {
    /// On to the endpoint; the room has no part in it.
    Bypass(Bypass),
    /// On to the endpoint, by a seat.
    Pass(Pass),
    /// The waiting page, or one that says why there is nothing to wait for.
    Outside(Outside),
}

/// Why a room has no part in a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Bypass {
    /// The room is off.
    Suspended,
    /// A rule of the operator's.
    Rule,
    /// It needs no seat: it asks whether it may ask, or is part of a page while nobody waits.
    Seatless,
    /// Nobody can tell, and the operator has everybody let in then.
    Unanswered,
}

/// A seat's request on its way.
#[derive(Debug)]
pub struct Pass {
    /// Whose seat.
    pub visitor: Visitor,
    /// Admitted by this very request.
    pub admitted: bool,
    /// Its cookie is an old copy of one that was renewed elsewhere.
    pub copy_seen: bool,
    revoked: bool,
    claims: Option<Claims>,
    set_cookie: Option<String>,
    renewal: Option<Pending>,
}

/// Somebody outside.
#[derive(Debug, Clone)]
pub struct Outside {
    /// Where it stands.
    pub stage: Stage,
    /// The place in line, where there is one.
    pub place: Option<Place>,
    /// The cookie that goes along.
    pub set_cookie: Option<String>,
    /// It is kept out for ever, and not told.
    pub decoy: bool,
    /// When its last attempt counted, ms.
    pub last_updated: u64,
    /// What a page shows of the wait.
    pub shown: Option<Shown>,
    /// Why things are not as they were.
    pub reason: Option<view::Reason>,
    /// Until when a called visitor must come, ms.
    pub claim_by: Option<u64>,
}

impl Door {
    /// What `request` is. `websocket`: it opens one.
    #[must_use]
    pub fn look(&self, request: &Request<'_>, websocket: bool) -> Look {
        Look::of(request, websocket, self.json)
    }

    /// What becomes of a request of this `kind`. `facts` are the same request as rules see it;
    /// without them no rule is asked. `fresh` makes the number of a new visitor: 128 bits that
    /// nobody can guess.
    #[must_use]
    pub fn decide(
        &self,
        request: &Request<'_>,
        kind: Kind,
        facts: Option<&Facts<'_>>,
        presence: &mut Presence,
        fresh: impl FnOnce() -> u128,
    ) -> Step {
        let bulletin = self.post.bulletin();
        if bulletin.settings.suspended {
            return Step::Now(Outcome::Bypass(Bypass::Suspended).unseen());
        }
        if facts.is_some_and(|facts| self.rule(facts).is_some()) {
            return Step::Now(Outcome::Bypass(Bypass::Rule).unseen());
        }
        let found = self.jar.open(request.headers);
        self.decide_with(&bulletin, found, kind, presence, fresh)
    }

    /// The first rule that lets it pass.
    fn rule(&self, facts: &Facts<'_>) -> Option<usize> {
        let mut rules = self.bypass.iter();
        rules.position(|rule| rule::lets_pass(rule, facts))
    }

    fn decide_with(
        &self,
        bulletin: &Bulletin,
        found: Found,
        kind: Kind,
        presence: &mut Presence,
        fresh: impl FnOnce() -> u128,
    ) -> Step {
        let (settings, summary) = (&bulletin.settings, &bulletin.summary);
        let Found { claims, invalid } = found;
        let now = self.clock.now();
        let future = claims.is_some_and(|claims| claims.last_check_in > now + FUTURE_MAX_MS);
        let way = match door::decide(settings, summary, claims.as_ref(), kind, now) {
            door::Door::Pass { .. } | door::Door::Wait(_) if future => door::Door::Ask,
            way => way,
        };
        let outside = |stage| Outcome::Outside(Outside::new(stage, now));
        let outcome = match way {
            door::Door::Ask => return self.ask(found, fresh),
            door::Door::Bypass => Outcome::Bypass(Bypass::Seatless),
            door::Door::Pass { renew } => match claims {
                Some(claims) => Outcome::Pass(self.pass(claims, renew)),
                // The core lets nobody pass without.
                None => Outcome::Bypass(Bypass::Seatless),
            },
            door::Door::Wait(place) => match &claims {
                Some(before) => {
                    Outcome::Outside(self.polled(bulletin, before, place, now, presence))
                }
                None => outside(waiting_stage(bulletin)),
            },
            door::Door::WaitOutside => outside(waiting_stage(bulletin)),
            door::Door::Decoy => {
                let mut decoy = Outside::new(waiting_stage(bulletin), now);
                decoy.decoy = true;
                Outcome::Outside(decoy)
            }
            door::Door::Reject => outside(Stage::Rejected),
            door::Door::Full => outside(Stage::Full),
        };
        Step::Now(Told {
            outcome,
            invalid,
            stranger: claims.is_none(),
        })
    }

    fn ask(&self, Found { claims, invalid }: Found, fresh: impl FnOnce() -> u128) -> Step {
        let visitor = match &claims {
            Some(claims) => claims.visitor,
            None => Visitor::from_u128(fresh()),
        };
        match self.post.ask(visitor, claims) {
            Ok(pending) => Step::Ask(Asking {
                visitor,
                claims,
                invalid,
                pending,
            }),
            Err(Unanswered) => Step::Now(Told {
                outcome: self.unanswered(claims),
                invalid,
                stranger: claims.is_none(),
            }),
        }
    }

    /// What the owner says of it, or what becomes of a request that it does not answer.
    pub async fn finish(&self, asking: Asking) -> Told {
        let Asking {
            visitor,
            claims,
            invalid,
            pending,
        } = asking;
        // A future that is dropped here leaves an answer that nobody reads: a seat without a holder
        // ends by itself.
        let outcome = match timeout(ANSWER_WITHIN, pending.answer()).await {
            Ok(Ok(answer)) => self.told(visitor, claims, answer),
            Ok(Err(Unanswered)) | Err(_) => self.unanswered(claims),
        };
        Told {
            outcome,
            invalid,
            stranger: claims.is_none(),
        }
    }

    fn told(&self, visitor: Visitor, claims: Option<Claims>, answer: Answer) -> Outcome {
        let now = self.clock.now();
        let bulletin = self.post.bulletin();
        match answer {
            Answer::Forward(seat) => {
                let admitted = seat.how != Entry::Held;
                let sealed = Claims::seated(visitor, &seat, claims.as_ref(), now);
                Outcome::Pass(Pass {
                    visitor,
                    admitted,
                    copy_seen: seat.copy_seen,
                    revoked: false,
                    claims: Some(sealed),
                    set_cookie: Some(self.seat_cookie(&sealed, &seat, now)),
                    renewal: None,
                })
            }
            Answer::Wait(place) => {
                let before = claims.filter(|claims| claims.standing == Standing::Waiting);
                let mut sealed = Claims::waiting(visitor, &place, before.as_ref(), now);
                let mut outside = Outside::new(waiting_stage(&bulletin), now);
                outside.place = Some(place);
                self.foresee(&bulletin, &mut sealed, &mut outside);
                if place.expired {
                    outside.reason = Some(view::Reason::PlaceExpired);
                }
                outside.set_cookie = Some(self.wait_cookie(&bulletin, &sealed));
                Outcome::Outside(outside)
            }
            Answer::Reject => Outcome::Outside(Outside::new(Stage::Rejected, now)),
            Answer::Full => Outcome::Outside(Outside::new(Stage::Full, now)),
            Answer::Suspended => Outcome::Bypass(Bypass::Suspended),
            // Its bearer is somebody new, who has no ticket yet: the next request asks for one.
            Answer::Ended | Answer::Copied => {
                let mut outside = Outside::new(waiting_stage(&bulletin), now);
                outside.set_cookie = Some(self.jar.clear());
                Outcome::Outside(outside)
            }
            // No answer to this question.
            Answer::Done { .. } => Outcome::Outside(Outside::new(waiting_stage(&bulletin), now)),
        }
    }

    /// What is true of the visitor who sends `request`, who asks for nothing else. A page says so
    /// by `page`: it is told when it is called and enters by its next request, so that no seat's
    /// time runs while it announces that. A program is let in by this very request.
    ///
    /// Without a good cookie nobody has a place; `newcomer` takes one then.
    #[must_use]
    pub fn state(
        &self,
        request: &Request<'_>,
        page: bool,
        newcomer: bool,
        presence: &mut Presence,
        fresh: impl FnOnce() -> u128,
    ) -> Step {
        let bulletin = self.post.bulletin();
        let settings = &bulletin.settings;
        if settings.suspended {
            return Step::Now(Outcome::Bypass(Bypass::Suspended).unseen());
        }
        let found = self.jar.open(request.headers);
        let now = self.clock.now();
        let outside = match found.claims {
            Some(claims) if page => self.called(&bulletin, &claims, now),
            Some(_) => None,
            None if newcomer => None,
            None if settings.method == Method::Reject && !settings.queue_all => {
                Some(Outside::new(Stage::Rejected, now))
            }
            None => Some(Outside::new(Stage::CookiesNeeded, now)),
        };
        match outside {
            Some(outside) => Step::Now(Told {
                outcome: Outcome::Outside(outside),
                invalid: found.invalid,
                stranger: found.claims.is_none(),
            }),
            None => self.decide_with(&bulletin, found, Kind::Navigation, presence, fresh),
        }
    }

    /// Whose place a stream tells of, if `request` comes from somebody who waits.
    #[must_use]
    pub fn waiting(&self, request: &Request<'_>) -> Option<Claims> {
        let claims = self.jar.open(request.headers).claims?;
        let bulletin = self.post.bulletin();
        let alive =
            self.clock.now().saturating_sub(claims.last_check_in) < bulletin.settings.hold_ms;
        let waits = claims.standing == Standing::Waiting && alive && !bulletin.settings.suspended;
        waits.then_some(claims)
    }

    /// What is true of a visitor with these claims, whose stream is open. Nothing is asked of the
    /// owner, since a stream can not give a cookie; `counts`: it was heard of now.
    #[must_use]
    pub fn stand(&self, claims: &mut Claims, counts: bool, presence: &mut Presence) -> Outside {
        let bulletin = self.post.bulletin();
        let (settings, summary) = (&bulletin.settings, &bulletin.summary);
        let now = self.clock.now();
        if let Some(called) = self.called(&bulletin, claims, now) {
            return called;
        }
        let stage = match settings.method {
            // Who is let in whenever it comes need not wait.
            _ if settings.suspended => Stage::Called,
            Method::Passthrough if !settings.queue_all => Stage::Called,
            Method::Reject if !settings.queue_all => Stage::Rejected,
            _ => waiting_stage(&bulletin),
        };
        let mut outside = Outside::new(stage, now);
        outside.place = Some(summary.place(claims.ticket));
        if counts {
            presence.note(self.room, &self.post, claims.visitor);
            self.foresee(&bulletin, claims, &mut outside);
            claims.last_check_in = now;
        } else {
            outside.last_updated = claims.last_check_in;
            outside.shown = claims.shown;
        }
        outside
    }

    /// A seat is reserved for a visitor with these claims.
    fn called(&self, bulletin: &Bulletin, claims: &Claims, now: u64) -> Option<Outside> {
        if claims.standing != Standing::Waiting || bulletin.settings.queue_all {
            return None;
        }
        let claim_by = bulletin.summary.called_until(claims.visitor)?;
        let mut outside = Outside::new(Stage::Called, now);
        outside.claim_by = Some(claim_by).filter(|until| *until > now);
        // Too late: only the room can tell.
        outside.claim_by?;
        Some(outside)
    }

    /// No owner answers: seats are good for as long as they were sealed for, and whoever waits keeps
    /// its place by its cookie.
    fn unanswered(&self, claims: Option<Claims>) -> Outcome {
        let now = self.clock.now();
        match claims {
            Some(claims) if claims.standing == Standing::Active && now < claims.lease_until => {
                Outcome::Pass(self.pass(claims, false))
            }
            _ if self.on_failure == OnStoreFailure::Open => Outcome::Bypass(Bypass::Unanswered),
            _ => Outcome::Outside(Outside::new(Stage::Waiting, now)),
        }
    }

    fn pass(&self, claims: Claims, renew: bool) -> Pass {
        // A renewal that finds no owner is tried again by the next request.
        let renewal = renew
            .then(|| self.post.renew(claims.visitor, Some(claims)).ok())
            .flatten();
        Pass {
            visitor: claims.visitor,
            admitted: false,
            copy_seen: false,
            revoked: false,
            claims: Some(claims),
            set_cookie: None,
            renewal,
        }
    }

    /// A poll of a waiting visitor, answered without the room.
    fn polled(
        &self,
        bulletin: &Bulletin,
        before: &Claims,
        place: Place,
        now: u64,
        presence: &mut Presence,
    ) -> Outside {
        let mut outside = Outside::new(waiting_stage(bulletin), now);
        outside.place = Some(place);
        let since = now.saturating_sub(before.last_check_in);
        if since + EARLY_MS < bulletin.settings.refresh_ms {
            // Too soon to count: the same answer as before, and nothing moves.
            outside.last_updated = before.last_check_in;
            outside.shown = before.shown;
            return outside;
        }
        presence.note(self.room, &self.post, before.visitor);
        let mut sealed = Claims::waiting(before.visitor, &place, Some(before), now);
        self.foresee(bulletin, &mut sealed, &mut outside);
        outside.set_cookie = Some(self.wait_cookie(bulletin, &sealed));
        outside
    }

    /// What is shown of the wait: it does not jump from one poll to the next.
    fn foresee(&self, bulletin: &Bulletin, sealed: &mut Claims, outside: &mut Outside) {
        let method = bulletin.settings.method;
        let estimate = bulletin.summary.estimate(sealed.ticket, method);
        let Some(estimate) = estimate else {
            sealed.shown = None;
            return;
        };
        let changed = bulletin.set_at
            > sealed
                .last_check_in
                .saturating_sub(2 * bulletin.settings.refresh_ms);
        let (shown, reason) = Shown::next(sealed.shown, &estimate, changed);
        sealed.shown = Some(shown);
        outside.shown = Some(shown);
        outside.reason = reason.map(|reason| match reason {
            usher_core::admission::Reason::SlowerOutflow => view::Reason::SlowerOutflow,
            usher_core::admission::Reason::SettingsChanged => view::Reason::SettingsChanged,
        });
    }

    fn seat_cookie(&self, sealed: &Claims, seat: &Seat, now: u64) -> String {
        self.jar
            .set(sealed, seat.lease_until.saturating_sub(now).div_ceil(1000))
    }

    fn wait_cookie(&self, bulletin: &Bulletin, sealed: &Claims) -> String {
        self.jar
            .set(sealed, bulletin.settings.hold_ms.div_ceil(1000))
    }

    /// The endpoint has answered: which `Set-Cookie` goes along. `command` is the value of its header
    /// `Cf-Waiting-Room-Command`, which never goes on to the visitor.
    #[must_use]
    pub fn answered(&self, pass: &mut Pass, command: Option<&[u8]>) -> Option<String> {
        let revoked = command.is_some_and(|value| value.trim_ascii() == b"revoke");
        if revoked && self.revocable {
            pass.revoked = true;
            return Some(self.jar.clear());
        }
        if pass.set_cookie.is_some() {
            return pass.set_cookie.take();
        }
        match pass.renewal.as_mut()?.now()? {
            Ok(Answer::Forward(seat)) => {
                let now = self.clock.now();
                pass.copy_seen = seat.copy_seen;
                let sealed = Claims::seated(pass.visitor, &seat, pass.claims.as_ref(), now);
                Some(self.seat_cookie(&sealed, &seat, now))
            }
            // The seat is somebody else's by now.
            Ok(Answer::Ended | Answer::Copied) => Some(self.jar.clear()),
            Ok(_) | Err(Unanswered) => None,
        }
    }

    /// The answer is out, or broke off: a seat that the endpoint has revoked ends now.
    pub fn over(&self, pass: &Pass) {
        if pass.revoked {
            // An owner that does not hear of it lets time end the seat.
            let _ = self.post.end(pass.visitor, End::Revoked);
        }
    }

    /// How often a waiting visitor asks, ms.
    #[must_use]
    pub fn refresh_ms(&self) -> u64 {
        self.post.bulletin().settings.refresh_ms
    }

    /// A visitor gives up what it has. The `Set-Cookie` that says so, if it had anything.
    #[must_use]
    pub fn leave(&self, request: &Request<'_>) -> Option<String> {
        let claims = self.jar.open(request.headers).claims?;
        // As with a revocation.
        let _ = self.post.end(claims.visitor, End::Left);
        Some(self.jar.clear())
    }

    /// What is true of a visitor outside, for a page or a program.
    #[must_use]
    pub fn view(&self, outside: &Outside) -> View<'static> {
        let bulletin = self.post.bulletin();
        let (settings, summary) = (&bulletin.settings, &bulletin.summary);
        let ticket = outside.place.map(|place| place.ticket);
        let refreshes = outside.stage != Stage::Rejected;
        let wait = ticket.and_then(|ticket| match settings.method {
            Method::Fifo => summary
                .estimate(ticket, settings.method)
                .map(|estimate| wait_of(&estimate, outside.shown)),
            _ => summary.percentiles.map(|percentiles| {
                let minutes = |ms: u64| ms.div_ceil(60_000).max(1);
                Wait {
                    low_secs: percentiles.quick_ms / 1000,
                    mid_secs: percentiles.half_ms / 1000,
                    high_secs: percentiles.most_ms.div_ceil(1000),
                    minutes: minutes(percentiles.half_ms),
                    percentiles: Some([
                        minutes(percentiles.quick_ms),
                        minutes(percentiles.half_ms),
                        minutes(percentiles.most_ms),
                    ]),
                }
            }),
        });
        let place = outside
            .place
            .filter(|_| settings.method == Method::Fifo && self.show_position);
        View {
            stage: outside.stage,
            method: settings.method,
            queue_all: settings.queue_all,
            now: wall(self.clock.now()),
            last_updated: wall(outside.last_updated),
            refresh_secs: if refreshes {
                u32::try_from(settings.refresh_ms.div_ceil(1000)).unwrap_or(u32::MAX)
            } else {
                0
            },
            position: place.map(|place| place.position),
            ahead_present: place.map_or(0, |place| place.position.saturating_sub(1)),
            ahead_away: place.map_or(0, |place| place.ahead_away),
            wait,
            guaranteed_by: ticket
                .and_then(|ticket| summary.guaranteed_by(ticket, settings.method))
                .map(wall),
            moved: bulletin.moved.map(wall),
            claim_by: outside.claim_by.map(wall),
            reason: outside.reason,
            event: None,
            turnstile: "",
            infinite_queue: outside.decoy,
        }
    }
}

impl Outside {
    /// Somebody in this stage at `now`, ms.
    #[must_use]
    pub fn new(stage: Stage, now: u64) -> Outside {
        Outside {
            stage,
            place: None,
            set_cookie: None,
            decoy: false,
            last_updated: now,
            shown: None,
            reason: None,
            claim_by: None,
        }
    }
}

impl Outcome {
    /// Of a request whose cookies nobody looked at.
    fn unseen(self) -> Told {
        Told {
            outcome: self,
            invalid: 0,
            stranger: false,
        }
    }
}

fn waiting_stage(bulletin: &Bulletin) -> Stage {
    if bulletin.settings.queue_all {
        Stage::Held
    } else {
        Stage::Waiting
    }
}

fn wait_of(estimate: &Estimate, shown: Option<Shown>) -> Wait {
    Wait {
        low_secs: estimate.low_ms / 1000,
        mid_secs: estimate.mid_ms / 1000,
        high_secs: estimate.high_ms.div_ceil(1000),
        minutes: shown.map_or(estimate.minutes(), |shown| u64::from(shown.minutes)),
        percentiles: None,
    }
}

fn wall(ms: u64) -> Wall {
    Wall::from_millis(i64::try_from(ms).unwrap_or(i64::MAX))
}
