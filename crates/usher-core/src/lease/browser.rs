//! The life of one browser, as the pool knows it.
//!
//! Every edge goes forward. A browser that was promised once never becomes ready again, so giving
//! it to two sessions would take an edge that does not exist. A node's report moves a row only when
//! it speaks of the lease that the row speaks of; an older one is history, and a newer one means
//! that the store has forgotten what it once committed, so that nothing about the browser can be
//! trusted any more.
//!
//! Source: browser specification 11.1, 11.2.

use std::time::Duration;

use super::{Epoch, SessionId};
use crate::id::Id;

/// How long a browser may take to show its canary.
pub const STARTING_MAX: Duration = Duration::from_secs(20);
/// How long a promise waits for the node's word.
pub const PICKED_MAX: Duration = Duration::from_secs(5);
/// The same after the store's clock has jumped, because the promise may be younger than it looks.
pub const PICKED_MAX_AFTER_JUMP: Duration = Duration::from_secs(15);
/// When a teardown is not waited for any longer: everything is killed.
pub const CLOSING_MAX: Duration = Duration::from_secs(30);
/// When a teardown that even that did not end takes the node out of service.
pub const CLOSING_QUARANTINE: Duration = Duration::from_secs(60);
/// How long a dead row is kept for those who ask what happened.
pub const TOMBSTONE: Duration = Duration::from_secs(3600);

/// Who a browser was promised to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Holder {
    /// The session.
    pub session: SessionId,
    /// Its account.
    pub account: Id,
}

/// The states without what they hold, in the order of life.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Phase {
    /// Being launched, or showing its canary.
    Starting,
    /// Warm, a blank page open, nobody's.
    Ready,
    /// Promised to a session; the node is preparing it.
    Picked,
    /// Belongs to a live session.
    InUse,
    /// Being torn down.
    Closing,
    /// Nothing is left of it.
    Dead,
}

impl Phase {
    /// Every phase, in order.
    pub const ALL: [Phase; 6] = [
        Phase::Starting,
        Phase::Ready,
        Phase::Picked,
        Phase::InUse,
        Phase::Closing,
        Phase::Dead,
    ];

    /// Its word in tables, reports and metrics.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Phase::Starting => "starting",
            Phase::Ready => "ready",
            Phase::Picked => "picked",
            Phase::InUse => "in_use",
            Phase::Closing => "closing",
            Phase::Dead => "dead",
        }
    }
}

/// The state of a browser.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum State {
    /// See [`Phase::Starting`].
    Starting,
    /// See [`Phase::Ready`].
    Ready,
    /// See [`Phase::Picked`].
    Picked(Holder),
    /// See [`Phase::InUse`].
    InUse(Holder),
    /// See [`Phase::Closing`]; with whom it last belonged to.
    Closing(Option<Holder>),
    /// See [`Phase::Dead`]; with whom it last belonged to.
    Dead(Option<Holder>),
}

impl State {
    /// The state without what it holds.
    #[must_use]
    pub const fn phase(self) -> Phase {
        match self {
            State::Starting => Phase::Starting,
            State::Ready => Phase::Ready,
            State::Picked(_) => Phase::Picked,
            State::InUse(_) => Phase::InUse,
            State::Closing(_) => Phase::Closing,
            State::Dead(_) => Phase::Dead,
        }
    }

    /// Whose it is, or was.
    #[must_use]
    pub const fn holder(self) -> Option<Holder> {
        match self {
            State::Starting | State::Ready => None,
            State::Picked(holder) | State::InUse(holder) => Some(holder),
            State::Closing(holder) | State::Dead(holder) => holder,
        }
    }

    /// The session that lives in it.
    #[must_use]
    pub const fn live(self) -> Option<Holder> {
        match self {
            State::Picked(holder) | State::InUse(holder) => Some(holder),
            State::Starting | State::Ready | State::Closing(_) | State::Dead(_) => None,
        }
    }
}

/// What can happen to a browser.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Event {
    /// Its node says where it stands.
    Reported {
        /// There.
        phase: Phase,
        /// The newest lease that the node has heard of.
        epoch: Epoch,
    },
    /// Somebody takes it.
    Pick(Holder),
    /// The node has prepared it for the lease `epoch`.
    Acknowledged {
        /// Which lease.
        epoch: Epoch,
    },
    /// The holder of `epoch` gives it up.
    Close {
        /// Which lease.
        epoch: Epoch,
    },
    /// It is taken away from whoever has it: a deadline passed, or somebody in charge said so.
    Force,
    /// It is certain that nothing is left of it.
    Gone,
}

/// What an event did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Effect {
    /// Nothing: a repeat, or old news.
    Nothing,
    /// It is in another state.
    Moved,
    /// So it is, and this one's session ended with it.
    Ended(Holder),
    /// It was not the caller's to say.
    Refused,
}

/// What the pool knows of the right to a browser.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Lease {
    /// Where it stands.
    pub state: State,
    /// Counts promises and takings-away.
    pub epoch: Epoch,
}

impl Lease {
    /// The lease of a browser that was just launched.
    pub const NEW: Lease = Lease {
        state: State::Starting,
        epoch: Epoch(0),
    };

    /// The lease after `event`. The only place where a browser changes its state.
    #[must_use]
    pub fn next(self, event: Event) -> (Lease, Effect) {
        let Lease { state, epoch } = self;
        let holder = state.holder();
        let to = |state, epoch| (Lease { state, epoch }, Effect::Moved);
        let end = |to: State, epoch| {
            let effect = state.live().map_or(Effect::Moved, Effect::Ended);
            (Lease { state: to, epoch }, effect)
        };
        match (state, event) {
            (State::Dead(_), Event::Reported { .. } | Event::Force | Event::Gone) => {
                (self, Effect::Nothing)
            }
            (_, Event::Gone) => end(State::Dead(holder), epoch.next()),
            (State::Closing(_), Event::Force) => (self, Effect::Nothing),
            (_, Event::Force) => end(State::Closing(holder), epoch.next()),

            (State::Ready, Event::Pick(holder)) => to(State::Picked(holder), epoch.next()),
            (_, Event::Pick(_)) => (self, Effect::Refused),

            (State::Picked(holder), Event::Acknowledged { epoch: of }) if of == epoch => {
                to(State::InUse(holder), epoch)
            }
            (State::InUse(_), Event::Acknowledged { epoch: of }) if of == epoch => {
                (self, Effect::Nothing)
            }
            (_, Event::Acknowledged { .. }) => (self, Effect::Refused),

            (State::Picked(_) | State::InUse(_), Event::Close { epoch: of }) if of == epoch => {
                end(State::Closing(holder), epoch)
            }
            (State::Closing(Some(_)), Event::Close { epoch: of }) if of == epoch => {
                (self, Effect::Nothing)
            }
            (_, Event::Close { .. }) => (self, Effect::Refused),

            (_, Event::Reported { phase, epoch: of }) if of > epoch => match phase {
                Phase::Dead => end(State::Dead(holder), of),
                _ => end(State::Closing(holder), of.next()),
            },
            (_, Event::Reported { epoch: of, .. }) if of < epoch => (self, Effect::Nothing),
            (_, Event::Reported { phase, .. }) => match (state, phase) {
                (State::Starting, Phase::Ready) => to(State::Ready, epoch),
                (State::Picked(holder), Phase::InUse) => to(State::InUse(holder), epoch),
                (State::Closing(_), Phase::Closing) => (self, Effect::Nothing),
                (_, Phase::Closing) => end(State::Closing(holder), epoch),
                (_, Phase::Dead) => end(State::Dead(holder), epoch),
                _ => (self, Effect::Nothing),
            },
        }
    }

    /// How long it may stay as it is before somebody must act; `None` where it may stay for ever.
    #[must_use]
    pub const fn stay_max(self, clock_jumped: bool) -> Option<Duration> {
        match self.state {
            State::Starting => Some(STARTING_MAX),
            State::Picked(_) if clock_jumped => Some(PICKED_MAX_AFTER_JUMP),
            State::Picked(_) => Some(PICKED_MAX),
            State::Closing(_) => Some(CLOSING_MAX),
            State::Dead(_) => Some(TOMBSTONE),
            State::Ready | State::InUse(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::Kind;

    fn everything() -> (Vec<Lease>, Vec<Event>) {
        let account = Id::derive("default", Kind::Account, "default");
        let holder = |session| Holder {
            session: SessionId(session),
            account,
        };
        let (first, second) = (holder(1), holder(2));
        let lease = |state, epoch| Lease {
            state,
            epoch: Epoch(epoch),
        };
        let leases = vec![
            Lease::NEW,
            lease(State::Ready, 0),
            lease(State::Picked(first), 1),
            lease(State::InUse(first), 1),
            lease(State::Closing(None), 1),
            lease(State::Closing(Some(first)), 1),
            lease(State::Dead(Some(first)), 1),
        ];
        let mut events = vec![Event::Pick(second), Event::Force, Event::Gone];
        for epoch in (0..3).map(Epoch) {
            events.push(Event::Acknowledged { epoch });
            events.push(Event::Close { epoch });
            events.extend(Phase::ALL.map(|phase| Event::Reported { phase, epoch }));
        }
        (leases, events)
    }

    fn short(lease: Lease) -> String {
        let session = lease.state.holder().map(|holder| holder.session.0);
        let of = session.map_or(String::new(), |session| format!(" of {session}"));
        format!("{}{of} @{}", lease.state.phase().as_str(), lease.epoch.0)
    }

    /// The golden file is the whole machine on one page; what does nothing or is refused is left
    /// out, so that it reads as the list of edges.
    #[test]
    fn the_whole_machine() {
        let mut table = String::new();
        let (leases, events) = everything();
        for lease in leases {
            let near = |event: &&Event| match event {
                Event::Reported { epoch, .. } => *epoch <= lease.epoch.next(),
                _ => true,
            };
            for &event in events.iter().filter(near) {
                let event_text = match event {
                    Event::Reported { phase, epoch } => {
                        format!("node says {} @{}", phase.as_str(), epoch.0)
                    }
                    Event::Pick(holder) => format!("picked for {:?}", holder.session),
                    Event::Acknowledged { epoch } => format!("node has prepared @{}", epoch.0),
                    Event::Close { epoch } => format!("holder of @{} closes", epoch.0),
                    Event::Force => "taken away".to_owned(),
                    Event::Gone => "gone".to_owned(),
                };
                let (next, effect) = lease.next(event);
                let effect = match effect {
                    Effect::Nothing | Effect::Refused => {
                        assert_eq!(next, lease, "{event:?}");
                        continue;
                    }
                    Effect::Moved => "",
                    Effect::Ended(_) => "  session ends",
                };
                let line = format!("{:16} + {event_text:22} = {}", short(lease), short(next));
                table += &format!("{line}{effect}\n");
            }
        }
        assert_eq!(table, include_str!("browser.golden.txt"), "found:\n{table}");
    }

    #[test]
    fn every_edge_goes_forward_and_a_holder_stays() {
        let (leases, events) = everything();
        for lease in leases {
            for &event in &events {
                let (next, effect) = lease.next(event);
                assert!(next.state.phase() >= lease.state.phase(), "{event:?}");
                assert!(next.epoch >= lease.epoch, "{event:?}");
                if let Some(holder) = lease.state.holder() {
                    assert_eq!(next.state.holder(), Some(holder), "{event:?}");
                }
                let became_ready = next.state == State::Ready && lease.state != State::Ready;
                assert!(!became_ready || lease.state == State::Starting, "{event:?}");
                let ended = lease.state.live().is_some() && next.state.live().is_none();
                assert_eq!(ended, matches!(effect, Effect::Ended(_)), "{event:?}");
                // Whatever happened once, happening again changes nothing, but for being gone.
                if matches!(event, Event::Reported { epoch, .. } if epoch == lease.epoch) {
                    assert_eq!(next.next(event).0, next, "{event:?}");
                }
            }
        }
    }
}
