//! How long a visitor will wait, said as an interval, and when there is nothing honest to say.
//!
//! Nobody can bound a wait from above while those inside may stay, so one number is a guess; an
//! interval with a stated coverage is not. The wait is the time until so many seats have come free
//! as there are visitors ahead who will not have given up by then; its spread comes from chance in
//! that number, from how little of the outflow has been seen, and from how the outflow swings.

use super::rates::Flow;

/// Beyond this the line is as good as full, ms: 24 h.
pub(super) const WAIT_MAX_MS: u64 = 86_400_000;
/// Releases to have been seen before anything is said of them.
const SAMPLE_MIN: f64 = 10.0;
/// Of a moment somewhere in a minute, ms².
const MINUTE_VARIANCE: f64 = 60_000.0 * 60_000.0 / 12.0;

/// A wait, ms. Each is at least 0 and at most 1,000 hours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Estimate {
    /// One in ten waits less.
    pub low_ms: u64,
    /// The mean.
    pub mid_ms: u64,
    /// Six in ten wait less: the one number to show; better a bit long than short.
    pub shown_ms: u64,
    /// Nine in ten wait less.
    pub high_ms: u64,
}

impl Estimate {
    /// The number to show, in minutes, at least 1.
    #[must_use]
    pub fn minutes(&self) -> u64 {
        self.shown_ms.div_ceil(60_000).max(1)
    }
}

/// Of a random draw: so long wait the luckiest 25, 50 and 75 % at most, ms.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Percentiles {
    /// 25 %.
    pub quick_ms: u64,
    /// 50 %.
    pub half_ms: u64,
    /// 75 %.
    pub most_ms: u64,
}

/// What a page shows, so that the next page does not jump.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shown {
    /// Minutes, at least 1.
    pub minutes: u32,
    /// The last estimate said that this is too low.
    pub doubted: bool,
}

/// Why a shown wait has grown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    /// Seats come free more slowly than before.
    SlowerOutflow,
    /// The operator changed something.
    SettingsChanged,
}

impl Shown {
    /// What to show after `before`, at the next refresh. It falls freely, and rises only when even
    /// the low end lies above what was shown, twice in a row.
    #[must_use]
    pub fn next(
        before: Option<Shown>,
        estimate: &Estimate,
        settings_changed: bool,
    ) -> (Shown, Option<Reason>) {
        let minutes = u32::try_from(estimate.minutes()).unwrap_or(u32::MAX);
        let fresh = Shown {
            minutes,
            doubted: false,
        };
        let Some(before) = before.filter(|before| minutes > before.minutes) else {
            return (fresh, None);
        };
        let doubted = estimate.low_ms > u64::from(before.minutes) * 60_000;
        if doubted && before.doubted {
            let reason = if settings_changed {
                Reason::SettingsChanged
            } else {
                Reason::SlowerOutflow
            };
            (fresh, Some(reason))
        } else {
            (Shown { doubted, ..before }, None)
        }
    }
}

/// What limits the flow into a room.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Outflow {
    pub(super) flow: Flow,
    /// Admissions in a ms that the rate limit allows.
    pub(super) ceiling: f64,
    /// Seats that are free now.
    pub(super) free: f64,
    /// For so long none comes free for anybody: more are taken than there are, ms.
    pub(super) behind_ms: f64,
    /// How often a waiting visitor asks, ms.
    pub(super) refresh_ms: f64,
}

impl Outflow {
    /// When the rate limit would serve this many, and when the seats would, ms. Infinite when never.
    fn times(&self, people: f64) -> (f64, f64) {
        let per = |people: f64, rate: f64| match people {
            people if people <= 0.0 => 0.0,
            people => people / rate,
        };
        let seats = per(people - self.free, self.flow.releases) + self.behind_ms;
        (per(people, self.ceiling), seats)
    }

    /// When this many will have been served, ms.
    pub(super) fn served_at(&self, people: f64) -> f64 {
        let (by_rate, by_seats) = self.times(people);
        by_rate.max(by_seats).min(1e12)
    }

    /// When it is the turn of a visitor with `ahead` people ahead, itself included, of whom `staying`
    /// will not have given up: the mean, ms, and the variance that is to be expected of it.
    pub(super) fn turn(&self, ahead: f64, staying: f64) -> Option<(f64, f64)> {
        let staying = staying.clamp(1.0, ahead.max(1.0));
        let (by_rate, by_seats) = self.times(staying);
        if !by_rate.is_finite() {
            return None;
        }
        let by_ceiling = by_rate >= by_seats;
        if !by_ceiling && (self.flow.sample < SAMPLE_MIN || !by_seats.is_finite()) {
            return None;
        }
        let mean = by_rate.max(by_seats);
        let given_up = 1.0 - staying / ahead.max(1.0);
        let spread = if by_ceiling {
            given_up / staying
        } else {
            1.0 / staying + 1.0 / self.flow.sample + self.flow.swing
        };
        // Seats come free by the minute where the minute is what limits them.
        let least = if by_ceiling { MINUTE_VARIANCE } else { 0.0 };
        Some((mean, mean * mean * spread + least))
    }

    /// The wait of a visitor with `ahead` people ahead, itself included, of whom `staying` will
    /// not have given up, and `away` more who may come back.
    pub(super) fn estimate(&self, ahead: f64, staying: f64, away: f64) -> Option<Estimate> {
        let (mean, expected) = self.turn(ahead, staying)?;
        let variance = (expected * self.flow.scales.of(mean)).min(mean * mean * 2.0);
        let returning = away * self.flow.returning;
        let staying = staying.clamp(1.0, ahead.max(1.0));
        let longest = self.served_at(staying + returning).max(mean);
        // The page asks at some moment of its refresh.
        let poll = self.refresh_ms;
        let quantile = |mean: f64, normal: f64| wait_quantile(mean, variance, poll, normal);
        Some(Estimate {
            low_ms: whole(quantile(mean, -1.281_6)),
            mid_ms: whole(mean + poll / 2.0),
            shown_ms: whole(quantile(mean, 0.253_3)),
            high_ms: whole(quantile(longest, 1.281_6)),
        })
    }

    /// Of a draw among `people`, as that number grows and shrinks.
    pub(super) fn percentiles(&self, people: f64) -> Option<Percentiles> {
        let flow = &self.flow;
        let by_ceiling = self.ceiling <= flow.releases || self.free >= people;
        let rate = if by_ceiling {
            self.ceiling
        } else {
            self.ceiling.min(flow.releases)
        };
        if rate <= 0.0 || (!by_ceiling && flow.sample < SAMPLE_MIN) {
            return None;
        }
        let mut people = people.max(1.0);
        let mut found = [WAIT_MAX_MS as f64; 3];
        let (mut time, mut exponent, mut next) = (0.0, 0.0, 0);
        // Steps that grow with the time are exact enough at each end of it.
        while time < WAIT_MAX_MS as f64 && next < found.len() {
            let step = (people / rate / 256.0).clamp(1.0, 60_000.0);
            exponent += rate * step / people;
            time += step;
            let change = flow.arrivals - rate - flow.giving_up_any * people;
            people = (people + change * step).max(1.0);
            while next < found.len() && 1.0 - f64::exp(-exponent) >= 0.25 * (next + 1) as f64 {
                found[next] = time;
                next += 1;
            }
        }
        let poll = self.refresh_ms / 2.0;
        let [quick_ms, half_ms, most_ms] = found.map(|at| whole(at + poll));
        Some(Percentiles {
            quick_ms,
            half_ms,
            most_ms,
        })
    }
}

/// The quantile of a turn of this mean and variance and of the poll that follows it, where a normal
/// one has `normal`. A poll is as likely at each moment of a refresh, so the less the turn is in
/// doubt, the shorter are the tails: Cornish and Fisher's correction for that.
fn wait_quantile(mean: f64, variance: f64, poll: f64, normal: f64) -> f64 {
    let of_poll = poll * poll / 12.0;
    let all = variance + of_poll;
    let excess = -1.2 * (of_poll / all).powi(2);
    let normal = normal + (normal.powi(3) - 3.0 * normal) * excess / 24.0;
    gamma_quantile(mean + poll / 2.0, all, normal)
}

/// Wilson and Hilferty's approximation: the quantile of a Gamma distribution of this mean and
/// variance, where a normal one has `normal`.
fn gamma_quantile(mean: f64, variance: f64, normal: f64) -> f64 {
    if mean <= 0.0 || variance <= 0.0 {
        return mean;
    }
    let inverse = variance / (mean * mean) / 9.0;
    let root = (1.0 - inverse + normal * inverse.sqrt()).max(0.0);
    mean * root * root * root
}

/// Nothing but a whole number leaves: `as` takes NaN and what is below 0 to 0.
fn whole(millis: f64) -> u64 {
    millis.min(3_600_000_000.0).round() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outflow() -> Outflow {
        Outflow {
            flow: Flow {
                releases: 0.001,
                sample: 300.0,
                ..Flow::default()
            },
            ceiling: 1.0,
            free: 0.0,
            behind_ms: 0.0,
            refresh_ms: 20_000.0,
        }
    }

    #[test]
    fn an_estimate_is_an_interval_around_people_by_rate() {
        let estimate = outflow().estimate(600.0, 600.0, 0.0).expect("known");
        assert_eq!(estimate.mid_ms, 610_000);
        assert!(
            estimate.low_ms < 580_000 && estimate.low_ms > 500_000,
            "{estimate:?}"
        );
        assert!(
            estimate.high_ms > 640_000 && estimate.high_ms < 720_000,
            "{estimate:?}"
        );
        assert_eq!(estimate.minutes(), 11);
    }

    #[test]
    fn nothing_is_said_where_nothing_is_known() {
        let unknown = |change: fn(&mut Outflow)| {
            let mut outflow = outflow();
            change(&mut outflow);
            outflow.estimate(600.0, 600.0, 0.0)
        };
        assert_eq!(unknown(|outflow| outflow.flow.sample = 9.9), None);
        assert_eq!(unknown(|outflow| outflow.flow.releases = 0.0), None);
        assert_eq!(unknown(|outflow| outflow.ceiling = 0.0), None);
        // The rate limit is known however little was seen.
        let limited = unknown(|outflow| {
            outflow.flow.sample = 0.0;
            outflow.free = 1e6;
            outflow.ceiling = 0.001;
        });
        assert_eq!(limited.map(|estimate| estimate.mid_ms), Some(610_000));
    }

    #[test]
    fn no_float_leaves_its_bounds() {
        for value in [0.0, -1.0, f64::NAN, f64::INFINITY, 1e300, 1e-300] {
            for field in 0..4 {
                let mut outflow = outflow();
                match field {
                    0 => outflow.flow.releases = value,
                    1 => outflow.ceiling = value,
                    2 => outflow.flow.swing = value,
                    _ => outflow.refresh_ms = value,
                }
                for people in [0.0, 1.0, 1e9] {
                    if let Some(estimate) = outflow.estimate(people, people, people) {
                        assert!(estimate.high_ms <= 3_600_000_000);
                    }
                    let _ = outflow.percentiles(people);
                }
            }
        }
    }

    #[test]
    fn a_shown_wait_rises_only_on_two_doubts() {
        let estimate = |minutes: u64| Estimate {
            low_ms: minutes * 60_000 - 1,
            mid_ms: minutes * 60_000,
            shown_ms: minutes * 60_000,
            high_ms: minutes * 60_000,
        };
        let (shown, _) = Shown::next(None, &estimate(10), false);
        assert_eq!(shown.minutes, 10);
        let (shown, reason) = Shown::next(Some(shown), &estimate(11), false);
        assert_eq!((shown.minutes, shown.doubted, reason), (10, true, None));
        let (risen, reason) = Shown::next(Some(shown), &estimate(12), false);
        assert_eq!((risen.minutes, reason), (12, Some(Reason::SlowerOutflow)));
        let (_, reason) = Shown::next(Some(shown), &estimate(12), true);
        assert_eq!(reason, Some(Reason::SettingsChanged));
        let (fallen, reason) = Shown::next(Some(shown), &estimate(3), false);
        assert_eq!((fallen.minutes, reason), (3, None));
    }

    #[test]
    fn a_drain_has_the_known_fractions() {
        let percentiles = outflow().percentiles(1000.0).expect("known");
        // 0.25, 0.5 and 0.75 of the time that a thousand take, and half a refresh.
        for (found, wanted) in [
            (percentiles.quick_ms, 260_000_u64),
            (percentiles.half_ms, 510_000),
            (percentiles.most_ms, 760_000),
        ] {
            assert!(found.abs_diff(wanted) < 10_000, "{percentiles:?}");
        }
    }
}
