//! What visitors were told of their wait, beside the wait that it was.
//!
//! Of each visitor two answers are kept until it gets in: the one that came with its ticket, and one
//! of its later polls, drawn so that each is as likely. Visitors who give up never learn how long it
//! would have been; nobody counts them.

use usher_core::admission::{Method, Summary};

use super::START;

/// What one visitor was told.
#[derive(Debug, Clone, Default)]
pub(super) struct Told {
    looks: u64,
    first: Look,
    later: Look,
    /// The earliest moment by which it was promised a seat; 0 when it was promised none.
    by: u64,
    /// It watches what its page shows.
    pub(super) watches: bool,
    /// What its page shows has risen by more than a fifth.
    pub(super) rose: bool,
}

#[derive(Debug, Clone, Copy, Default)]
struct Look {
    /// When, ms; 0 for never.
    at: u64,
    known: bool,
    /// Low end, middle, the number shown, high end; of a draw the three percentiles. Ms.
    says: [u32; 4],
}

impl Told {
    /// A page with this ticket: `draw` says whether it is kept.
    pub(super) fn look(
        &mut self,
        summary: &Summary,
        method: Method,
        ticket: u64,
        now: u64,
        draw: u64,
    ) {
        self.looks += 1;
        let look = if self.looks == 1 {
            &mut self.first
        } else if draw.is_multiple_of(self.looks - 1) {
            &mut self.later
        } else {
            return;
        };
        let whole = |millis: u64| u32::try_from(millis).unwrap_or(u32::MAX);
        let says = match method {
            Method::Random => {
                (summary.percentiles).map(|it| [it.quick_ms, it.half_ms, it.most_ms, 0].map(whole))
            }
            _ => (summary.estimate(ticket, method))
                .map(|it| [it.low_ms, it.mid_ms, it.shown_ms, it.high_ms].map(whole)),
        };
        *look = Look {
            at: now,
            known: says.is_some(),
            says: says.unwrap_or_default(),
        };
        if let Some(by) = summary.guaranteed_by(ticket, method) {
            self.by = if self.by == 0 { by } else { self.by.min(by) };
        }
    }
}

/// A part of a scenario, for which figures are kept apart: its name, and from and until when, ms
/// since the beginning.
pub(super) type Phase = (&'static str, u64, u64);

/// Estimates beside waits.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Report {
    /// By phase.
    pub phases: Vec<Figures>,
    /// Visitors who were promised a latest moment, and got in.
    pub promised: u64,
    /// Of them, later than that.
    pub late: u64,
    /// Visitors who watched what their page shows, and got in.
    pub watched: u64,
    /// Of them, those for whom it rose by more than a fifth.
    pub rose: u64,
}

/// The answers of one phase.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Figures {
    /// What the phase is called.
    pub phase: &'static str,
    from: u64,
    until: u64,
    /// Answers that came with the ticket, and those of a later poll.
    pub first: Answers,
    /// See `first`.
    pub later: Answers,
}

/// Answers that can be judged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answers {
    /// Those that said something.
    pub known: u64,
    /// Those that said that nothing is known.
    pub unknown: u64,
    /// The wait was within the interval.
    pub covered: u64,
    /// It was less than the low end.
    pub below: u64,
    /// It was at most the number to show.
    pub shown: u64,
    /// Of a draw: it was at most the first, second and third percentile.
    pub lucky: [u64; 3],
    /// Hundredths of a percent of the middle beyond the wait, summed.
    bias: i64,
    /// By whole percents between the middle and the wait.
    errors: Vec<u32>,
    waited_ms: u64,
}

impl Default for Answers {
    fn default() -> Answers {
        Answers {
            known: 0,
            unknown: 0,
            covered: 0,
            below: 0,
            shown: 0,
            lucky: [0; 3],
            bias: 0,
            errors: vec![0; 301],
            waited_ms: 0,
        }
    }
}

impl Report {
    pub(super) fn new(phases: &[Phase]) -> Report {
        let phases = phases.iter().map(|(phase, from, until)| Figures {
            phase,
            from: START + from,
            until: START + until,
            first: Answers::default(),
            later: Answers::default(),
        });
        Report {
            phases: phases.collect(),
            ..Report::default()
        }
    }

    /// A visitor who was told this got in.
    pub(super) fn entered(&mut self, told: &Told, now: u64) {
        self.promised += u64::from(told.by > 0);
        self.late += u64::from(told.by > 0 && now > told.by);
        self.watched += u64::from(told.watches);
        self.rose += u64::from(told.rose);
        for phase in &mut self.phases {
            let within = |look: &Look| look.at >= phase.from && look.at < phase.until;
            if within(&told.first) {
                phase.first.judge(&told.first, now);
            }
            if within(&told.later) {
                phase.later.judge(&told.later, now);
            }
        }
    }

    /// Of those who watched their page, the percentage that saw it rise.
    #[must_use]
    pub fn rose_percent(&self) -> f64 {
        percent(self.rose, self.watched)
    }
}

impl Answers {
    fn judge(&mut self, look: &Look, now: u64) {
        if !look.known {
            self.unknown += 1;
            return;
        }
        let waited = now - look.at;
        let [low, mid, shown, high] = look.says.map(u64::from);
        self.known += 1;
        self.waited_ms += waited;
        self.below += u64::from(waited < low);
        self.covered += u64::from((low..=high).contains(&waited));
        self.shown += u64::from(waited <= shown);
        for (count, percentile) in self.lucky.iter_mut().zip([low, mid, shown]) {
            *count += u64::from(waited <= percentile);
        }
        let beyond = (mid as f64 - waited as f64) / (waited.max(1_000) as f64);
        self.bias += (beyond * 10_000.0) as i64;
        let error = ((beyond.abs() * 100.0) as usize).min(self.errors.len() - 1);
        self.errors[error] += 1;
    }

    /// Waits that were within the interval, percent.
    #[must_use]
    pub fn coverage(&self) -> f64 {
        percent(self.covered, self.known)
    }

    /// Waits that were shorter than the low end, percent.
    #[must_use]
    pub fn below_percent(&self) -> f64 {
        percent(self.below, self.known)
    }

    /// Waits that were no longer than the number to show, percent.
    #[must_use]
    pub fn shown_percent(&self) -> f64 {
        percent(self.shown, self.known)
    }

    /// Answers that said something, percent.
    #[must_use]
    pub fn known_percent(&self) -> f64 {
        percent(self.known, self.known + self.unknown)
    }

    /// Of a draw: waits within the first, second and third percentile, percent.
    #[must_use]
    pub fn lucky_percent(&self) -> [f64; 3] {
        self.lucky.map(|count| percent(count, self.known))
    }

    /// How far the middle lies beyond the wait on average, percent of the wait.
    #[must_use]
    pub fn bias_percent(&self) -> f64 {
        self.bias as f64 / 100.0 / self.known.max(1) as f64
    }

    /// Half of the answers were at most so far from the wait, percent of it.
    #[must_use]
    pub fn median_error(&self) -> u64 {
        let mut seen = 0;
        let reached = self.errors.iter().position(|count| {
            seen += u64::from(*count);
            2 * seen >= self.known
        });
        reached.map_or(0, |error| error as u64 + 1)
    }

    /// The mean wait, seconds.
    #[must_use]
    pub fn waited_secs(&self) -> f64 {
        self.waited_ms as f64 / 1_000.0 / self.known.max(1) as f64
    }
}

fn percent(part: u64, of: u64) -> f64 {
    part as f64 * 100.0 / of.max(1) as f64
}
