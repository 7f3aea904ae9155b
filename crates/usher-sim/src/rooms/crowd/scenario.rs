//! What comes upon a room: how many come when, how long they stay, and what the operator does.
//!
//! A scenario is the same at any size: arrivals and seats are told in parts of all visitors, so that
//! the figures of ten thousand can be laid beside those of a million.

use usher_core::admission::{Method, Pacing, Renewal, Settings};

use super::report::Phase;
use crate::rng::Rng;

const MINUTE_MS: u64 = 60_000;
const MINUTES: usize = 120;
const UNLIMITED: u64 = 2_147_483_647;
/// How long a visitor stays on the site on average, ms.
const STAY_MS: f64 = 180_000.0;
/// How long a seat is reserved and held on average when a session is 300 s, in minutes.
const HELD: f64 = 6.7;

/// One of the stories that an estimate has to stand up to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Steady,
    Rate,
    Ramp,
    Flash,
    Session,
    Limits,
    Abandonment,
    Bots,
    Fixed,
    Random,
    Storm,
}

impl Kind {
    const ALL: [Kind; 11] = [
        Kind::Steady,
        Kind::Rate,
        Kind::Ramp,
        Kind::Flash,
        Kind::Session,
        Kind::Limits,
        Kind::Abandonment,
        Kind::Bots,
        Kind::Fixed,
        Kind::Random,
        Kind::Storm,
    ];

    const fn as_str(self) -> &'static str {
        match self {
            Kind::Steady => "steady",
            Kind::Rate => "rate",
            Kind::Ramp => "ramp",
            Kind::Flash => "flash",
            Kind::Session => "session",
            Kind::Limits => "limits",
            Kind::Abandonment => "abandonment",
            Kind::Bots => "bots",
            Kind::Fixed => "fixed",
            Kind::Random => "random",
            Kind::Storm => "storm",
        }
    }

    /// Arrivals of each minute, in those that the room can let in.
    fn weights(self) -> Vec<f64> {
        // The seats are taken, and a line of ten minutes has formed, after ten minutes.
        let begin = |rest: f64| {
            move |minute: usize| {
                if minute < 10 {
                    1.0 + (HELD + 10.0) / 10.0
                } else {
                    rest
                }
            }
        };
        let minutes = 0..MINUTES;
        match self {
            Kind::Ramp => minutes
                .map(|at| 0.4 + 1.2 * at as f64 / MINUTES as f64)
                .collect(),
            Kind::Flash => minutes
                .map(|at| if (20..25).contains(&at) { 12.0 } else { 0.5 })
                .collect(),
            Kind::Abandonment => minutes.map(|_| 2.5).collect(),
            Kind::Bots => minutes.map(begin(1.4)).collect(),
            Kind::Storm => minutes.map(begin(0.9)).collect(),
            _ => minutes.map(begin(1.0)).collect(),
        }
    }

    fn phases(self) -> &'static [Phase] {
        const fn phase(name: &'static str, from: u64, until: u64) -> Phase {
            (name, from * MINUTE_MS, until * MINUTE_MS)
        }
        const STEADY: &[Phase] = &[phase("steady", 30, 100)];
        const RAMP: &[Phase] = &[phase("growing", 60, 105)];
        const FLASH: &[Phase] = &[phase("the rush", 20, 25), phase("after it", 25, 90)];
        const SESSION: &[Phase] = &[
            phase("steady", 30, 50),
            phase("longer: 0-5 min", 60, 65),
            phase("longer: 5-10 min", 65, 70),
            phase("longer: 20-40 min", 80, 100),
        ];
        const LIMITS: &[Phase] = &[
            phase("steady", 20, 28),
            phase("fewer: 0-5 min", 45, 50),
            phase("fewer: 5-10 min", 50, 55),
            phase("more: 0-5 min", 75, 80),
            phase("more: 5-10 min", 80, 85),
        ];
        match self {
            Kind::Ramp => RAMP,
            Kind::Flash => FLASH,
            Kind::Session => SESSION,
            Kind::Limits => LIMITS,
            Kind::Storm => &[],
            _ => STEADY,
        }
    }
}

/// What comes upon a room.
#[derive(Debug, Clone)]
pub struct Scenario {
    kind: Kind,
    visitors: u64,
    weights: Vec<f64>,
    /// Visitors of a minute that weighs 1.
    unit: f64,
    changes: Vec<(u64, Settings)>,
}

impl Scenario {
    /// All of them, with so many visitors.
    #[must_use]
    pub fn all(visitors: u64) -> Vec<Scenario> {
        Kind::ALL
            .iter()
            .map(|kind| Scenario::new(*kind, visitors))
            .collect()
    }

    /// The one of this name, with so many visitors.
    #[must_use]
    pub fn named(name: &str, visitors: u64) -> Option<Scenario> {
        let kind = Kind::ALL.iter().find(|kind| kind.as_str() == name)?;
        Some(Scenario::new(*kind, visitors))
    }

    fn new(kind: Kind, visitors: u64) -> Scenario {
        let weights = kind.weights();
        let mut scenario = Scenario {
            kind,
            visitors,
            // Chance is not to make them fewer than they are called.
            unit: visitors as f64 * 1.004 / weights.iter().sum::<f64>(),
            weights,
            changes: Vec::new(),
        };
        scenario.changes = scenario.plan();
        scenario
    }

    /// What it is called.
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.kind.as_str()
    }

    /// How many visitors come, about.
    #[must_use]
    pub fn visitors(&self) -> u64 {
        self.visitors
    }

    pub(super) fn ends(&self) -> u64 {
        MINUTES as u64 * MINUTE_MS
    }

    pub(super) fn phases(&self) -> &'static [Phase] {
        self.kind.phases()
    }

    /// Settings at the beginning.
    pub(super) fn settings(&self) -> Settings {
        let seats = (self.unit * HELD).round() as u64;
        let settings = Settings::new(seats, UNLIMITED);
        match self.kind {
            Kind::Rate => Settings {
                total: seats * 2,
                per_minute: self.unit.round() as u64,
                ..settings
            },
            Kind::Fixed => Settings {
                total: (self.unit * 5.2).round() as u64,
                per_minute: (self.unit * 1.05).round() as u64,
                renewal: Renewal::Never,
                ..settings
            },
            Kind::Random => Settings {
                method: Method::Random,
                ..settings
            },
            _ => settings,
        }
    }

    /// When the operator sets what, in ms since the beginning.
    pub(super) fn changes(&self) -> &[(u64, Settings)] {
        &self.changes
    }

    fn plan(&self) -> Vec<(u64, Settings)> {
        let base = self.settings();
        let part = |part: f64| Settings {
            total: (base.total as f64 * part).round() as u64,
            ..base
        };
        let seats = |total: u64| Settings { total, ..base };
        let rate = |part: f64| Settings {
            per_minute: (self.unit * part).round() as u64,
            ..base
        };
        let method = |method: Method| Settings { method, ..base };
        let plan = match self.kind {
            Kind::Session => vec![(60, base.session(600_000))],
            Kind::Limits => vec![(45, part(0.6)), (75, part(1.4))],
            Kind::Storm => vec![
                (12, part(0.5)),
                (16, part(1.5)),
                (20, method(Method::Random)),
                (28, method(Method::Fifo)),
                (32, rate(0.7)),
                (38, base),
                (
                    41,
                    Settings {
                        queue_all: true,
                        ..base
                    },
                ),
                (43, base),
                (46, seats(1)),
                (48, seats(0)),
                (50, base),
                (55, base.session(60_000)),
                (60, base),
                (
                    64,
                    Settings {
                        renewal: Renewal::Never,
                        ..base
                    },
                ),
                (70, base),
                (74, rate(0.0)),
                (76, rate(1.2)),
                (80, method(Method::Reject)),
                (82, base),
                (
                    86,
                    Settings {
                        suspended: true,
                        ..base
                    },
                ),
                (87, base),
                (90, method(Method::Passthrough)),
                (91, base),
                (
                    100,
                    Settings {
                        method: Method::Random,
                        ..rate(0.8)
                    },
                ),
                (
                    106,
                    Settings {
                        pacing: Pacing::Smooth,
                        ..rate(1.0)
                    },
                ),
                (112, base),
            ],
            _ => Vec::new(),
        };
        let plan = plan.into_iter();
        plan.map(|(minute, settings)| (minute * MINUTE_MS, settings))
            .collect()
    }

    /// Arrivals to be expected in the `span` ms from `now` on.
    pub(super) fn arrivals(&self, now: u64, span: u64) -> f64 {
        let minute = (now / MINUTE_MS) as usize;
        let weight = self.weights.get(minute).copied().unwrap_or(0.0);
        self.unit * weight * span as f64 / MINUTE_MS as f64
    }

    /// How long somebody waits at most, ms.
    pub(super) fn patience(&self, rng: &mut Rng) -> u64 {
        match self.kind {
            // A line as long as this makes three of five give up.
            Kind::Abandonment => rng.exponential(420_000.0) as u64,
            Kind::Storm => rng.exponential(2_400_000.0) as u64,
            _ => u64::MAX,
        }
    }

    /// Somebody looks at one page and is never seen again.
    pub(super) fn flees(&self, rng: &mut Rng) -> bool {
        match self.kind {
            Kind::Bots => rng.percent(30),
            Kind::Storm => rng.percent(5),
            _ => false,
        }
    }

    /// How long somebody stays on the site, ms.
    pub(super) fn stay(&self, rng: &mut Rng) -> u64 {
        rng.exponential(STAY_MS) as u64
    }

    pub(super) fn has_crashes(&self) -> bool {
        self.kind == Kind::Storm
    }

    pub(super) fn has_clock_faults(&self) -> bool {
        self.kind == Kind::Storm
    }
}
