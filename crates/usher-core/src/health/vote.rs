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
    let down = |ballot: &Ballot| matches!(ballot.standing, Standing::Down { .. });
    let agrees = |with_down: bool| {
        ballots
            .iter()
            .position(|ballot| ballot.votes && ballot.standing.known() && down(ballot) == with_down)
    };
    let decisive = ballots
        .iter()
        .position(|ballot| ballot.votes && ballot.decisive && down(ballot));
    if decisive.is_some() {
        return Outcome {
            state: EndpointState::Critical,
            because: decisive,
        };
    }
    let (mut cast, mut against) = (0, 0);
    for ballot in ballots
        .iter()
        .filter(|ballot| ballot.votes && ballot.standing.known())
    {
        cast += 1;
        against += usize::from(down(ballot));
    }
    match (cast, against) {
        (0, _) => Outcome {
            state: EndpointState::Unknown,
            because: None,
        },
        _ if against * 2 > cast => Outcome {
            state: EndpointState::Critical,
            because: agrees(true),
        },
        _ => Outcome {
            state: EndpointState::Healthy,
            because: agrees(false),
        },
    }
}
