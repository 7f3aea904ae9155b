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

#[cfg(test)]
mod tests {
    use super::*;

    /// `+` up, `-` down, `?` no result; behind it `!` must be healthy, `o` monitoring only.
    fn ballots(text: &str) -> Vec<Ballot> {
        let ballot = |word: &str| Ballot {
            standing: match word.as_bytes()[0] {
                b'+' => Standing::Up { fails: 0 },
                b'-' => Standing::Down { passes: 0 },
                _ => Standing::Pending,
            },
            votes: !word.ends_with('o'),
            decisive: word.ends_with('!'),
        };
        text.split_whitespace().map(ballot).collect()
    }

    #[test]
    fn votes() {
        use EndpointState::{Critical, Healthy, Unknown};
        let cases = [
            ("", Unknown, None),
            ("?", Unknown, None),
            ("+", Healthy, Some(0)),
            ("-", Critical, Some(0)),
            ("+ -", Healthy, Some(0)),
            ("- +", Healthy, Some(1)),
            ("- - +", Critical, Some(0)),
            ("+ - - +", Healthy, Some(0)),
            ("+ +! -", Healthy, Some(0)),
            ("+ + -!", Critical, Some(2)),
            ("+ + ?!", Healthy, Some(0)),
            ("-o", Unknown, None),
            ("-o -o +", Healthy, Some(2)),
            ("+o -", Critical, Some(1)),
            ("? -", Critical, Some(1)),
            ("? ? +", Healthy, Some(2)),
        ];
        for (text, state, because) in cases {
            assert_eq!(vote(&ballots(text)), Outcome { state, because }, "{text}");
        }
    }

    #[test]
    fn what_was_known_before_a_change_has_a_vote() {
        let carried = |up| Ballot {
            standing: Standing::Carried { up },
            votes: true,
            decisive: false,
        };
        assert_eq!(vote(&[carried(true)]).state, EndpointState::Healthy);
        assert_eq!(vote(&[carried(false)]).state, EndpointState::Critical);
    }
}
