//! What would be if: one state or weight set by hand, for explanations.

use std::str::FromStr;
use std::time::Duration;

use crate::region::{CountryCode, Region};
use crate::steering::Weight;
use crate::time::Wall;

/// One thing to take for granted.
#[derive(Debug, Clone, PartialEq)]
pub enum Assumption {
    /// `pool NAME=...`
    Pool {
        /// Name of the pool.
        pool: String,
        /// What it is to be.
        state: AssumedPool,
    },
    /// `endpoint POOL/NAME=...`
    Endpoint {
        /// Name of the pool.
        pool: String,
        /// Name of the endpoint.
        endpoint: String,
        /// What it is to be.
        state: AssumedEndpoint,
    },
    /// `weight POOL/NAME=0.2`
    Weight {
        /// Name of the pool.
        pool: String,
        /// Name of the endpoint.
        endpoint: String,
        /// Its weight.
        weight: Weight,
    },
    /// `open POOL/NAME=3` or `connections POOL/NAME=3`
    UnderWay {
        /// Name of the pool.
        pool: String,
        /// Name of the endpoint.
        endpoint: String,
        /// What is counted.
        what: UnderWay,
        /// How many.
        count: u32,
    },
    /// `session POOL/NAME`
    Pinned {
        /// Name of the pool.
        pool: String,
        /// Name of the endpoint that the visitor is pinned to.
        endpoint: String,
    },
    /// `rtt POOL=45ms`
    Latency {
        /// Name of the pool.
        pool: String,
        /// Mean round trip of its probes.
        latency: Duration,
    },
    /// `shed POOL=20`
    Shed {
        /// Name of the pool.
        pool: String,
        /// Percent, 0..=100, of requests without a pin and of those with one.
        percent: f64,
    },
    /// `country=KR`
    Country(CountryCode),
    /// `region=NEAS`
    Region(Region),
    /// `node=SJC`, upper case
    Node(String),
    /// `time=2026-12-01T10:00:00Z`
    Time(Wall),
}

/// What is under way at an endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum UnderWay {
    /// Requests that are not answered completely.
    Requests,
    /// Open connections.
    Connections,
}

/// What a pool may be assumed to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum AssumedPool {
    /// No endpoint works.
    Critical,
    /// Every enabled endpoint works.
    Healthy,
    /// Turned off.
    Disabled,
}

/// What an endpoint may be assumed to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum AssumedEndpoint {
    /// It does not work.
    Down,
    /// It works.
    Up,
    /// It is turned off.
    Disabled,
    /// It has no result yet.
    Pending,
    /// It is turned off and pins to it hold.
    Draining,
}

/// An assumption that cannot be made.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AssumptionFault {
    /// Not one of the known forms.
    #[error(
        "assumption {0:?} is none of \"pool NAME=critical|healthy|disabled\", \"endpoint POOL/NAME=up|down|disabled|draining|pending\", \"weight POOL/NAME=0..1 in steps of 0.01\", \"open POOL/NAME=N\", \"connections POOL/NAME=N\", \"session POOL/NAME\", \"rtt POOL=45ms\", \"shed POOL=0..100\", \"country=KR\", \"region=NEAS\", \"node=SJC\", \"time=2026-12-01T10:00:00Z\""
    )]
    Syntax(String),
    /// There is no such pool.
    #[error("pool {0:?} does not exist")]
    NoPool(String),
    /// There is no such endpoint.
    #[error("pool {pool:?} has no endpoint {endpoint:?}")]
    NoEndpoint {
        /// Name of the pool.
        pool: String,
        /// Name that was looked for.
        endpoint: String,
    },
    /// The weight is no number in 0..=1, or between two steps.
    #[error("weight {0:?} is outside 0..1 or no multiple of 0.01")]
    Weight(String),
    /// The text is not a number of requests or connections.
    #[error("{0:?} is not a number in 0..4294967295")]
    Count(String),
    /// The percentage is no number in 0..=100.
    #[error("percentage {0:?} is outside 0..100")]
    Percent(String),
    /// The text is no time with a unit.
    #[error("round trip {0:?} is not a time such as 45ms or 1.5s")]
    Latency(String),
    /// The text is not a code of two letters.
    #[error("country {0:?} is not a code of two letters")]
    Country(String),
    /// The text is not the code of a region.
    #[error("region {0:?} is none of the 13 region codes (WNAM, ENAM, WEU, ...)")]
    Region(String),
    /// The text is not a moment.
    #[error("time {0:?} is not of the form 2026-12-01T10:00:00Z")]
    Time(String),
}

impl FromStr for Assumption {
    type Err = AssumptionFault;

    fn from_str(text: &str) -> Result<Assumption, AssumptionFault> {
        let syntax = || AssumptionFault::Syntax(text.to_owned());
        let (subject, value) = match text.split_once('=') {
            Some(parts) => parts,
            None if text.starts_with("session ") => (text, ""),
            None => return Err(syntax()),
        };
        let (subject, value) = (subject.trim(), value.trim());
        let (kind, name) = subject
            .split_once(char::is_whitespace)
            .unwrap_or((subject, ""));
        let name = name.trim();
        let member = || {
            let (pool, endpoint) = name.split_once('/').ok_or_else(syntax)?;
            Ok((pool.to_owned(), endpoint.to_owned()))
        };
        match kind {
            "pool" => {
                let state = match value {
                    "critical" => AssumedPool::Critical,
                    "healthy" => AssumedPool::Healthy,
                    "disabled" => AssumedPool::Disabled,
                    _ => return Err(syntax()),
                };
                Ok(Assumption::Pool {
                    pool: name.to_owned(),
                    state,
                })
            }
            "endpoint" => {
                let state = match value {
                    "down" => AssumedEndpoint::Down,
                    "up" => AssumedEndpoint::Up,
                    "disabled" => AssumedEndpoint::Disabled,
                    "pending" => AssumedEndpoint::Pending,
                    "draining" => AssumedEndpoint::Draining,
                    _ => return Err(syntax()),
                };
                let (pool, endpoint) = member()?;
                Ok(Assumption::Endpoint {
                    pool,
                    endpoint,
                    state,
                })
            }
            "weight" => {
                let (pool, endpoint) = member()?;
                // What is outside the range, or is no number, is not what it is taken for either.
                let exact = |&given: &f64| (Weight::from_f64(given).as_f64() - given).abs() < 1e-9;
                let weight = value.parse().ok().filter(exact).map(Weight::from_f64);
                let weight = weight.ok_or_else(|| AssumptionFault::Weight(value.to_owned()))?;
                Ok(Assumption::Weight {
                    pool,
                    endpoint,
                    weight,
                })
            }
            "open" | "connections" => {
                let (pool, endpoint) = member()?;
                let count = value.parse();
                Ok(Assumption::UnderWay {
                    pool,
                    endpoint,
                    what: match kind {
                        "open" => UnderWay::Requests,
                        _ => UnderWay::Connections,
                    },
                    count: count.map_err(|_| AssumptionFault::Count(value.to_owned()))?,
                })
            }
            "session" if value.is_empty() => {
                let (pool, endpoint) = member()?;
                Ok(Assumption::Pinned { pool, endpoint })
            }
            "rtt" => Ok(Assumption::Latency {
                pool: name.to_owned(),
                latency: latency(value)
                    .ok_or_else(|| AssumptionFault::Latency(value.to_owned()))?,
            }),
            "shed" => {
                let percent = value.strip_suffix('%').unwrap_or(value).parse::<f64>().ok();
                let percent = percent.filter(|percent| (0.0..=100.0).contains(percent));
                Ok(Assumption::Shed {
                    pool: name.to_owned(),
                    percent: percent.ok_or_else(|| AssumptionFault::Percent(value.to_owned()))?,
                })
            }
            "country" if name.is_empty() => CountryCode::parse(value)
                .map(Assumption::Country)
                .ok_or_else(|| AssumptionFault::Country(value.to_owned())),
            "region" if name.is_empty() => Region::parse(&value.to_ascii_uppercase())
                .map(Assumption::Region)
                .ok_or_else(|| AssumptionFault::Region(value.to_owned())),
            "node" if name.is_empty() && !value.is_empty() => {
                Ok(Assumption::Node(value.to_ascii_uppercase()))
            }
            "time" if name.is_empty() => Wall::parse(value)
                .map(Assumption::Time)
                .ok_or_else(|| AssumptionFault::Time(value.to_owned())),
            _ => Err(syntax()),
        }
    }
}

/// `45ms`, `1.5s`, `250us`.
fn latency(text: &str) -> Option<Duration> {
    let at = text.find(|byte: char| byte.is_ascii_alphabetic())?;
    let (number, unit) = text.split_at(at);
    let seconds = match unit {
        "us" => 1e-6,
        "ms" => 1e-3,
        "s" => 1.0,
        _ => return None,
    };
    let number = number.trim().parse::<f64>().ok()?;
    Duration::try_from_secs_f64(number * seconds).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_weight_is_taken_as_it_stands_or_not_at_all() {
        for weight in ["0", "0.29", "1", "1.0", "5e-1"] {
            assert!(
                format!("weight eu/a={weight}")
                    .parse::<Assumption>()
                    .is_ok()
            );
        }
        for weight in ["0.205", "1.01", "-0.01", "NaN", "inf", "", "half"] {
            let fault = format!("weight eu/a={weight}").parse::<Assumption>();
            assert_eq!(fault, Err(AssumptionFault::Weight(weight.to_owned())));
        }
    }

    #[test]
    fn every_form_is_read() {
        let reads = |text: &str| text.parse::<Assumption>().unwrap();
        let (pool, endpoint) = ("eu".to_owned(), "a".to_owned());
        assert_eq!(
            reads("open eu/a=3"),
            Assumption::UnderWay {
                pool: pool.clone(),
                endpoint: endpoint.clone(),
                what: UnderWay::Requests,
                count: 3
            }
        );
        assert_eq!(
            reads("session eu/a"),
            Assumption::Pinned {
                pool: pool.clone(),
                endpoint
            }
        );
        assert_eq!(
            reads("rtt eu = 45ms"),
            Assumption::Latency {
                pool: pool.clone(),
                latency: Duration::from_millis(45)
            }
        );
        assert_eq!(
            reads("shed eu=20"),
            Assumption::Shed {
                pool,
                percent: 20.0
            }
        );
        assert_eq!(reads("region=neas"), Assumption::Region(Region::Neas));
        assert_eq!(reads("node=sjc"), Assumption::Node("SJC".to_owned()));
        let time = Assumption::Time(Wall::from_millis(1_796_119_200_000));
        assert_eq!(reads("time=2026-12-01T10:00:00Z"), time);
        assert!(matches!(reads("country=kr"), Assumption::Country(_)));
        assert!(matches!(
            reads("endpoint eu/a=draining"),
            Assumption::Endpoint { .. }
        ));
    }

    #[test]
    fn what_cannot_be_assumed_is_named() {
        let fault = |text: &str| text.parse::<Assumption>().unwrap_err().to_string();
        for (text, expected) in [
            ("open eu/a=-1", "\"-1\" is not a number in 0..4294967295"),
            (
                "rtt eu=45",
                "round trip \"45\" is not a time such as 45ms or 1.5s",
            ),
            (
                "rtt eu=-1ms",
                "round trip \"-1ms\" is not a time such as 45ms or 1.5s",
            ),
            ("shed eu=101", "percentage \"101\" is outside 0..100"),
            (
                "country=KOR",
                "country \"KOR\" is not a code of two letters",
            ),
            (
                "time=now",
                "time \"now\" is not of the form 2026-12-01T10:00:00Z",
            ),
        ] {
            assert_eq!(fault(text), expected);
        }
        for text in [
            "",
            "session",
            "session eu",
            "country KR=KR",
            "weather=fair",
            "node=",
        ] {
            assert!(fault(text).starts_with("assumption "), "{text}");
        }
    }
}
