//! How several monitors judge one endpoint together.

use super::{EndpointState, Standing};

/// What one monitor of an endpoint brings to the vote.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ballot {
    /// Its verdict.
    pub standing: Standing,
    /// False: it is reported and has no say (`monitoring_only`).
    pub votes: bool,
    /// Its failure alone is enough (`must_be_healthy`).
    pub decisive: bool,
}

/// What the vote says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Outcome {
    /// Healthy, critical, or unknown while nobody with a vote has a result.
    pub state: EndpointState,
    /// The ballot that explains the state, if there is one: the first that agrees with it.
    pub because: Option<usize>,
}

/// Counts the ballots of the enabled members.
///
/// Source: load-balancing specification 6.5. Exactly half is healthy here; it is among regions
/// that half is not enough.
#[must_use]
pub fn vote(ballots: &[Ballot]) -> Outcome {
    let verdict = |ballot: &Ballot| ballot.standing.verdict().filter(|_| ballot.votes);
    let first = |up| {
        ballots
            .iter()
            .position(|ballot| verdict(ballot) == Some(up))
    };
    let decisive = ballots
        .iter()
        .position(|ballot| ballot.decisive && verdict(ballot) == Some(false));
    if decisive.is_some() {
        return Outcome {
            state: EndpointState::Critical,
            because: decisive,
        };
    }
    let cast = ballots.iter().filter_map(verdict);
    let (cast, against) = cast.fold((0, 0), |(cast, against), up| {
        (cast + 1, against + usize::from(!up))
    });
    match cast {
        0 => Outcome {
            state: EndpointState::Unknown,
            because: None,
        },
        _ if against * 2 > cast => Outcome {
            state: EndpointState::Critical,
            because: first(false),
        },
        _ => Outcome {
            state: EndpointState::Healthy,
            because: first(true),
        },
    }
}
