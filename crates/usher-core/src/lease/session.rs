//! The life of one session: when it is idle, when it ends, and why.
//!
//! A session outlives its connections. What keeps it is commands: each starts the idle clock anew
//! when it comes and when it is answered, and while one is under way the clock stands, so that three
//! minutes of script are not shot down. A command holds only as long as its connection lives, or a
//! client that went away would hold a browser for nothing.
//!
//! Source: browser specification 8, clarification 42.

use std::time::Duration;

use super::close::CloseReason;
use crate::time::Mono;

/// The idle time of a session that did not say.
pub const KEEP_ALIVE_DEFAULT: Duration = Duration::from_secs(60);
/// The shortest and the longest idle time.
pub const KEEP_ALIVE: (Duration, Duration) = (Duration::from_secs(10), Duration::from_secs(1_200));
/// The longest that a command under way holds a session.
pub const HOLD_MAX: Duration = Duration::from_secs(1_200);
/// Connections of one session.
pub const CONNECTIONS_MAX: u16 = 16;

/// The idle time for what a client asked for, in milliseconds: inside the range in any case.
#[must_use]
pub fn keep_alive(asked_ms: Option<u64>) -> Duration {
    let (least, most) = KEEP_ALIVE;
    asked_ms.map_or(KEEP_ALIVE_DEFAULT, |millis| {
        Duration::from_millis(millis).clamp(least, most)
    })
}

/// A session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Session {
    /// It takes connections and commands.
    Open {
        /// Connections.
        connections: u16,
        /// Commands without an answer, over all connections.
        unanswered: u32,
        /// Start of the idle clock.
        quiet_since: Mono,
    },
    /// It ends: nothing new is taken, its browser is being torn down.
    Closing(CloseReason),
    /// Nothing is left of it.
    Closed(CloseReason),
}

/// What can happen to a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Event {
    /// Somebody connects.
    Connected,
    /// A connection is gone, and with it so many commands that were never answered.
    Disconnected {
        /// Commands.
        unanswered: u32,
    },
    /// A command came in over a connection.
    Command,
    /// One was answered; or one came and was answered at once, as over HTTP.
    Answered {
        /// Whether it had come in as [`Event::Command`].
        counted: bool,
    },
    /// Time has passed.
    Passed,
    /// It is to end.
    Close(CloseReason),
    /// Its browser is gone and its traces with it.
    Gone,
}

/// What an event did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Effect {
    /// Nothing to be done.
    Nothing,
    /// It is not there (any more) for that.
    Refused,
    /// It has begun to close: close the connections, tear the browser down.
    Closes(CloseReason),
    /// It is over: into the history.
    Ended(CloseReason),
}

impl Session {
    /// A session that was just acquired.
    #[must_use]
    pub const fn new(now: Mono) -> Session {
        Session::Open {
            connections: 0,
            unanswered: 0,
            quiet_since: now,
        }
    }

    /// The session after `event`. The only place where a session changes.
    #[must_use]
    pub fn next(self, event: Event, keep_alive: Duration, now: Mono) -> (Session, Effect) {
        let Session::Open {
            connections,
            unanswered,
            quiet_since,
        } = self
        else {
            return self.next_closing(event);
        };
        let open = |connections, unanswered, quiet_since| {
            let session = Session::Open {
                connections,
                unanswered,
                quiet_since,
            };
            (session, Effect::Nothing)
        };
        match event {
            Event::Connected if connections >= CONNECTIONS_MAX => (self, Effect::Refused),
            Event::Connected => open(connections + 1, unanswered, quiet_since),
            Event::Disconnected { unanswered: lost } => {
                let left = connections.saturating_sub(1);
                // Without connections nothing can be under way, whatever was counted.
                let under_way = match left {
                    0 => 0,
                    _ => unanswered.saturating_sub(lost),
                };
                let anew = left == 0 || lost > 0;
                open(left, under_way, if anew { now } else { quiet_since })
            }
            Event::Command => open(connections, unanswered.saturating_add(1), now),
            Event::Answered { counted } => open(
                connections,
                unanswered.saturating_sub(u32::from(counted)),
                now,
            ),
            Event::Passed if self.deadline(keep_alive).is_some_and(|end| end <= now) => {
                let reason = CloseReason::BrowserIdle;
                (Session::Closing(reason), Effect::Closes(reason))
            }
            Event::Passed => (self, Effect::Nothing),
            Event::Close(reason) => (Session::Closing(reason), Effect::Closes(reason)),
            // Nobody had asked for it.
            Event::Gone => {
                let reason = CloseReason::ChromiumCrashed;
                (Session::Closed(reason), Effect::Ended(reason))
            }
        }
    }

    fn next_closing(self, event: Event) -> (Session, Effect) {
        match (self, event) {
            (Session::Closing(reason), Event::Gone) => {
                (Session::Closed(reason), Effect::Ended(reason))
            }
            (_, Event::Connected | Event::Command) => (self, Effect::Refused),
            _ => (self, Effect::Nothing),
        }
    }

    /// When it ends if nothing happens; `None` once it does.
    #[must_use]
    pub fn deadline(self, keep_alive: Duration) -> Option<Mono> {
        match self {
            Session::Open {
                unanswered: 0,
                quiet_since,
                ..
            } => Some(quiet_since.after(keep_alive)),
            Session::Open { quiet_since, .. } => Some(quiet_since.after(HOLD_MAX.max(keep_alive))),
            Session::Closing(_) | Session::Closed(_) => None,
        }
    }

    /// How long it has been idle, as its node reports it: a span, because the node's clock is
    /// nobody else's. Zero while a command is under way.
    #[must_use]
    pub fn quiet(self, now: Mono) -> Duration {
        match self {
            Session::Open {
                unanswered: 0,
                quiet_since,
                ..
            } => now.since(quiet_since),
            _ => Duration::ZERO,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEEP: Duration = Duration::from_secs(60);

    fn at(secs: u64) -> Mono {
        Mono::ZERO.after(Duration::from_secs(secs))
    }

    #[test]
    fn idle_times_stay_in_their_range() {
        for (asked, seconds) in [
            (None, 60),
            (Some(0), 10),
            (Some(9_999), 10),
            (Some(600_000), 600),
            (Some(1_200_001), 1_200),
            (Some(u64::MAX), 1_200),
        ] {
            assert_eq!(keep_alive(asked), Duration::from_secs(seconds), "{asked:?}");
        }
    }

    #[test]
    fn commands_keep_a_session_and_silence_ends_it() {
        let told = [
            // acquired at 0 s, never connected: ends at 60 s
            (vec![], 60),
            // connecting alone is no command
            (vec![(50, Event::Connected)], 60),
            (
                vec![
                    (1, Event::Connected),
                    (50, Event::Command),
                    (51, Event::Answered { counted: true }),
                ],
                111,
            ),
            (vec![(30, Event::Answered { counted: false })], 90),
            // a command under way holds for twenty minutes at most
            (vec![(1, Event::Connected), (50, Event::Command)], 1_250),
            // but only while its connection lives
            (
                vec![
                    (1, Event::Connected),
                    (50, Event::Command),
                    (70, Event::Disconnected { unanswered: 1 }),
                ],
                130,
            ),
            (
                vec![
                    (1, Event::Connected),
                    (2, Event::Connected),
                    (50, Event::Command),
                    (55, Event::Disconnected { unanswered: 0 }),
                ],
                1_250,
            ),
            (
                vec![
                    (1, Event::Connected),
                    (2, Event::Connected),
                    (50, Event::Command),
                    (55, Event::Disconnected { unanswered: 1 }),
                ],
                115,
            ),
        ];
        for (events, end) in told {
            let mut session = Session::new(at(0));
            for &(when, event) in &events {
                let effect;
                (session, effect) = session.next(event, KEEP, at(when));
                assert_eq!(effect, Effect::Nothing, "{events:?}");
            }
            assert_eq!(session.deadline(KEEP), Some(at(end)), "{events:?}");
            let (still, effect) = session.next(Event::Passed, KEEP, at(end - 1));
            assert_eq!((still, effect), (session, Effect::Nothing), "{events:?}");
            let (_, effect) = session.next(Event::Passed, KEEP, at(end));
            assert_eq!(
                effect,
                Effect::Closes(CloseReason::BrowserIdle),
                "{events:?}"
            );
        }
    }

    #[test]
    fn the_first_reason_counts_and_the_end_is_told_once() {
        let next = |session: Session, event| session.next(event, KEEP, at(1));
        let evict = Event::Close(CloseReason::SessionEvicted);
        let (session, effect) = next(Session::new(at(0)), evict);
        assert_eq!(effect, Effect::Closes(CloseReason::SessionEvicted));
        let (session, effect) = next(session, Event::Close(CloseReason::NormalClosure));
        assert_eq!(effect, Effect::Nothing);
        assert_eq!(next(session, Event::Connected).1, Effect::Refused);
        assert_eq!(session.deadline(KEEP), None);
        let (session, effect) = next(session, Event::Gone);
        assert_eq!(effect, Effect::Ended(CloseReason::SessionEvicted));
        assert_eq!(next(session, Event::Gone).1, Effect::Nothing);
        assert_eq!(next(session, Event::Command).1, Effect::Refused);
        let (_, effect) = next(Session::new(at(0)), Event::Gone);
        assert_eq!(effect, Effect::Ended(CloseReason::ChromiumCrashed));
    }

    #[test]
    fn connections_are_bounded() {
        let mut session = Session::new(at(0));
        for _ in 0..CONNECTIONS_MAX {
            session = session.next(Event::Connected, KEEP, at(0)).0;
        }
        assert_eq!(
            session.next(Event::Connected, KEEP, at(0)).1,
            Effect::Refused
        );
    }
}
