//! What the results of one monitor at one target add up to.
//!
//! The first result decides at once: the streak lengths damp changes of a verdict, and where there
//! is none yet there is nothing to damp. A new pool would otherwise wait several intervals for its
//! first request.

/// How many results in a row turn a verdict; at least 1 each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Streaks {
    /// Passes that make it healthy.
    pub up: u32,
    /// Failures that make it unhealthy.
    pub down: u32,
}

impl Streaks {
    /// From a monitor's settings, where 0 acts as 1.
    #[must_use]
    pub fn new(consecutive_up: u32, consecutive_down: u32) -> Streaks {
        Streaks {
            up: consecutive_up.max(1),
            down: consecutive_down.max(1),
        }
    }
}

/// The verdict of one monitor on one target.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum Standing {
    /// Nothing is known yet.
    #[default]
    Pending,
    /// No result since the monitor was changed; what was known before holds until there is one.
    Carried {
        /// Whether it was healthy.
        up: bool,
    },
    /// Healthy.
    Up {
        /// Failures in a row since the last pass; fewer than [`Streaks::down`].
        fails: u32,
    },
    /// Unhealthy.
    Down {
        /// Passes in a row since the last failure; fewer than [`Streaks::up`].
        passes: u32,
    },
}

/// A result that is final: retries have been made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Event {
    /// The probe passed.
    Pass,
    /// The probe failed.
    Fail,
}

/// What a result did to the verdict.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Effect {
    /// Nothing.
    Same,
    /// It is healthy now and was not.
    TurnedUp,
    /// It is unhealthy now and was not.
    TurnedDown,
}

impl Standing {
    /// The standing after `event`.
    #[must_use]
    pub fn next(self, event: Event, streaks: Streaks) -> (Standing, Effect) {
        const UP: Standing = Standing::Up { fails: 0 };
        const DOWN: Standing = Standing::Down { passes: 0 };
        match (self, event) {
            (Standing::Pending, Event::Pass) => (UP, Effect::TurnedUp),
            (Standing::Pending, Event::Fail) => (DOWN, Effect::TurnedDown),
            (Standing::Carried { up: false }, Event::Pass) => (UP, Effect::TurnedUp),
            (Standing::Carried { up: true }, Event::Fail) => (DOWN, Effect::TurnedDown),
            (Standing::Carried { up: true } | Standing::Up { .. }, Event::Pass) => {
                (UP, Effect::Same)
            }
            (Standing::Carried { up: false } | Standing::Down { .. }, Event::Fail) => {
                (DOWN, Effect::Same)
            }
            (Standing::Up { fails }, Event::Fail) => match fails.saturating_add(1) {
                fails if fails < streaks.down => (Standing::Up { fails }, Effect::Same),
                _ => (DOWN, Effect::TurnedDown),
            },
            (Standing::Down { passes }, Event::Pass) => match passes.saturating_add(1) {
                passes if passes < streaks.up => (Standing::Down { passes }, Effect::Same),
                _ => (UP, Effect::TurnedUp),
            },
        }
    }

    /// Whether it says healthy; `None` while it says nothing.
    #[must_use]
    pub const fn verdict(self) -> Option<bool> {
        match self {
            Standing::Pending => None,
            Standing::Carried { up } => Some(up),
            Standing::Up { .. } => Some(true),
            Standing::Down { .. } => Some(false),
        }
    }

    /// The standing for a monitor that was changed: the verdict stays, the streak does not.
    #[must_use]
    pub fn carried(self) -> Standing {
        self.verdict()
            .map_or(Standing::Pending, |up| Standing::Carried { up })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every state with every event, for streaks of 2 up and 3 down. The golden file is the whole
    /// machine on one page: a change of it is a change of behaviour.
    #[test]
    fn the_whole_machine() {
        let streaks = Streaks { up: 2, down: 3 };
        let states = [
            Standing::Pending,
            Standing::Carried { up: true },
            Standing::Carried { up: false },
            Standing::Up { fails: 0 },
            Standing::Up { fails: 1 },
            Standing::Up { fails: 2 },
            Standing::Down { passes: 0 },
            Standing::Down { passes: 1 },
        ];
        let mut table = String::new();
        for state in states {
            for event in [Event::Pass, Event::Fail] {
                let (next, effect) = state.next(event, streaks);
                let line = format!("{state:?} + {event:?} = {next:?}");
                table += &format!("{line:56}{effect:?}\n");
            }
        }
        assert_eq!(
            table,
            include_str!("standing.golden.txt"),
            "found:\n{table}"
        );
    }

    #[test]
    fn streaks_of_0_act_as_1() {
        let streaks = Streaks::new(0, 0);
        let (down, effect) = Standing::Up { fails: 0 }.next(Event::Fail, streaks);
        assert_eq!(
            (down, effect),
            (Standing::Down { passes: 0 }, Effect::TurnedDown)
        );
        assert_eq!(
            down.next(Event::Pass, streaks),
            (Standing::Up { fails: 0 }, Effect::TurnedUp)
        );
    }
}
