//! Verdicts as text: a line for each monitor and endpoint, fields between tabs.
//!
//! A line that this build cannot read is left out: its endpoint is then probed like a new one.

use std::time::Duration;

use usher_core::catalog::MonitorKind;
use usher_core::engine::Known;
use usher_core::health::{FailureReason, Standing};
use usher_core::probe::ProbeResult;

/// The line, without its end.
pub(super) fn write(known: &Known) -> String {
    let standing = match known.standing {
        Standing::Pending => "pending".to_owned(),
        Standing::Carried { up: true } => "carried up".to_owned(),
        Standing::Carried { up: false } => "carried down".to_owned(),
        Standing::Up { fails } => format!("up {fails}"),
        Standing::Down { passes } => format!("down {passes}"),
    };
    let word = |number: Option<String>| number.unwrap_or_else(|| "-".to_owned());
    let micros = |time: Duration| time.as_micros().to_string();
    let last = match known.last {
        None => "none\t-\t-".to_owned(),
        Some(last) => {
            let outcome = if last.passed() {
                "pass"
            } else {
                last.reason().as_str()
            };
            let status = word(last.status().map(|status| status.to_string()));
            format!("{outcome}\t{status}\t{}", word(last.rtt().map(micros)))
        }
    };
    format!(
        "{}\t{}\t{}\t{:016x}\t{standing}\t{}\t{}\t{last}",
        known.endpoint,
        known.monitor,
        known.kind,
        known.probe,
        word(known.due_in.map(micros)),
        known.failure,
    )
}

/// What the line says, if it can be read.
pub(super) fn read(line: &str) -> Option<Known> {
    let mut fields = line.split('\t');
    let mut next = || fields.next();
    let known = Known {
        endpoint: next()?.parse().ok()?,
        monitor: next()?.parse().ok()?,
        kind: {
            let kind = next()?;
            MonitorKind::NAMES.into_iter().find(|name| *name == kind)?
        },
        probe: u64::from_str_radix(next()?, 16).ok()?,
        standing: standing(next()?)?,
        due_in: micros(next()?)?,
        failure: reason(next()?)?,
        last: {
            let (outcome, status, rtt) = (next()?, next()?, micros(next()?)?);
            let status = match status {
                "-" => None,
                number => Some(number.parse().ok()?),
            };
            match outcome {
                "none" => None,
                "pass" => Some(ProbeResult::Pass { status, rtt: rtt? }),
                why => Some(ProbeResult::Fail {
                    reason: reason(why)?,
                    status,
                    rtt,
                }),
            }
        },
    };
    Some(known)
}

fn standing(text: &str) -> Option<Standing> {
    Some(match text.split_once(' ') {
        None if text == "pending" => Standing::Pending,
        Some(("carried", "up")) => Standing::Carried { up: true },
        Some(("carried", "down")) => Standing::Carried { up: false },
        Some(("up", fails)) => Standing::Up {
            fails: fails.parse().ok()?,
        },
        Some(("down", passes)) => Standing::Down {
            passes: passes.parse().ok()?,
        },
        _ => return None,
    })
}

fn reason(text: &str) -> Option<FailureReason> {
    let mut all = FailureReason::ALL.into_iter();
    all.find(|reason| reason.as_str() == text)
}

/// A time, or none; the outer `None` is a text that is neither.
#[expect(clippy::option_option, reason = "both are meant")]
fn micros(text: &str) -> Option<Option<Duration>> {
    match text {
        "-" => Some(None),
        number => number.parse().ok().map(Duration::from_micros).map(Some),
    }
}

#[cfg(test)]
mod tests {
    use usher_core::id::{Id, Kind};

    use super::*;

    fn samples() -> Vec<Known> {
        let standings = [
            Standing::Pending,
            Standing::Carried { up: true },
            Standing::Carried { up: false },
            Standing::Up { fails: 2 },
            Standing::Down { passes: 0 },
        ];
        let known = |standing, last, failure, due_in| Known {
            endpoint: Id::derive("default", Kind::Endpoint, "eu/a"),
            monitor: Id::derive("default", Kind::Monitor, "web"),
            kind: "https",
            probe: 0x00ab,
            standing,
            last,
            failure,
            due_in,
        };
        let pass = ProbeResult::Pass {
            status: Some(204),
            rtt: Duration::from_micros(1500),
        };
        let mut samples = vec![
            known(Standing::Pending, None, FailureReason::None, None),
            known(
                standings[3],
                Some(pass),
                FailureReason::HttpTimeout,
                Some(Duration::ZERO),
            ),
        ];
        for standing in standings {
            for reason in FailureReason::ALL {
                let fail = ProbeResult::Fail {
                    reason,
                    status: None,
                    rtt: None,
                };
                let due = Some(Duration::from_secs(3600));
                samples.push(known(standing, Some(fail), reason, due));
            }
        }
        samples
    }

    #[test]
    fn what_is_written_is_read() {
        for known in samples() {
            let line = write(&known);
            assert_eq!(read(&line), Some(known), "{line}");
            assert!(!line.contains('\n'));
        }
    }

    #[test]
    fn a_line_of_another_version_may_say_more_but_not_less() {
        let line = write(&samples()[1]);
        assert_eq!(read(&format!("{line}\tmore")), Some(samples()[1]));
        let ends = line.match_indices('\t');
        for (end, _) in ends {
            assert_eq!(read(&line[..end]), None);
        }
        assert_eq!(read(""), None);
        assert_eq!(read(&line.replace("up 2", "sideways 2")), None);
    }
}
