//! What would be if: one state or weight set by hand, for explanations.

use std::str::FromStr;

use crate::steering::Weight;

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
}

/// An assumption that cannot be made.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AssumptionFault {
    /// Not one of the known forms.
    #[error(
        "assumption {0:?} is none of \"pool NAME=critical|healthy|disabled\", \"endpoint POOL/NAME=up|down|disabled|pending\", \"weight POOL/NAME=0..1 in steps of 0.01\""
    )]
    Syntax(String),
    /// A form that later parts of Usher will know.
    #[error("assumption {0:?} is not built yet")]
    NotBuilt(String),
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
}

impl FromStr for Assumption {
    type Err = AssumptionFault;

    fn from_str(text: &str) -> Result<Assumption, AssumptionFault> {
        let syntax = || AssumptionFault::Syntax(text.to_owned());
        let (subject, value) = text.split_once('=').ok_or_else(syntax)?;
        let (subject, value) = (subject.trim(), value.trim());
        let (kind, name) = subject
            .split_once(char::is_whitespace)
            .unwrap_or((subject, ""));
        let name = name.trim();
        let not_built = || Err(AssumptionFault::NotBuilt(text.to_owned()));
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
                    "draining" => return not_built(),
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
            "open" | "connections" | "rtt" | "shed" | "session" | "country" | "region" | "node"
            | "time" => not_built(),
            _ => Err(syntax()),
        }
    }
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
}
