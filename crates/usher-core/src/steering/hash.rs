//! Hash: a visitor's address comes to the same endpoint while that is a candidate.
//!
//! Weighted rendezvous hashing, because it looks at no order and the loss of an endpoint moves only
//! its own visitors. Shares follow the weights over many addresses. Cost: one hash and one logarithm
//! for each candidate.

use std::net::IpAddr;

use super::Weights;
use crate::affinity::HashKey;
use crate::id::Id;

/// The winner among candidates, given as place, shares and identity; those with shares of 0 take no
/// part. Equal scores, which would need equal hashes, go to the lower id.
pub(crate) fn rendezvous(
    key: HashKey,
    client: IpAddr,
    candidates: impl Iterator<Item = (usize, u64, Id)>,
) -> Weights {
    let mut best: Option<(f64, Id, usize)> = None;
    for (place, shares, id) in candidates.filter(|&(_, shares, _)| shares > 0) {
        let score = score(shares, key.of_client(client, id));
        let wins = best.is_none_or(|(highest, holder, _)| {
            score > highest || (score == highest && id < holder)
        });
        if wins {
            best = Some((score, id, place));
        }
    }
    best.map_or_else(Weights::none, |(_, _, place)| Weights::certain(place))
}

/// `-w / ln(u)` with `u = (hash + 0.5) / 2^64`.
fn score(shares: u64, hash: u64) -> f64 {
    const SPAN: f64 = 18_446_744_073_709_551_616.0;
    // Near 1 a floating-point `u` has no digits left, and its logarithm would be 0: there the
    // distance from 1 is what is computed.
    let ln = if hash >> 63 == 0 {
        ((hash as f64 + 0.5) / SPAN).ln()
    } else {
        (-((!hash) as f64 + 0.5) / SPAN).ln_1p()
    };
    -(shares as f64) / ln
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::Kind;

    fn id(name: &str) -> Id {
        Id::derive("default", Kind::Endpoint, name)
    }

    fn winner(client: u32, candidates: &[(&str, u64)]) -> Option<String> {
        let all = candidates.iter().enumerate();
        let all = all.map(|(place, &(name, shares))| (place, shares, id(name)));
        let weights = rendezvous(HashKey::default(), IpAddr::from(client.to_be_bytes()), all);
        weights.draw(0).map(|place| candidates[place].0.to_owned())
    }

    #[test]
    fn shares_follow_weights_and_order_does_not_matter() {
        let all = [("a", 25), ("b", 25), ("c", 50), ("d", 0)];
        let turned = [("d", 0), ("c", 50), ("b", 25), ("a", 25)];
        let mut counts = std::collections::BTreeMap::new();
        for client in 0..40_000 {
            let found = winner(client, &all);
            assert_eq!(found, winner(client, &turned));
            *counts.entry(found.unwrap()).or_insert(0) += 1;
        }
        let near = |name: &str, share: f64| (f64::from(counts[name]) / 40_000.0 - share).abs();
        for (name, share) in [("a", 0.25), ("b", 0.25), ("c", 0.5)] {
            assert!(near(name, share) < 0.01, "{counts:?}");
        }
        assert_eq!(counts.len(), 3);
    }

    #[test]
    fn only_the_visitors_of_what_is_gone_move() {
        let (all, left) = ([("a", 1), ("b", 1), ("c", 2)], [("a", 1), ("c", 2)]);
        for client in 0..5_000 {
            let before = winner(client, &all).unwrap();
            let after = winner(client, &left).unwrap();
            assert!(before == "b" || before == after);
        }
    }

    #[test]
    fn every_hash_has_a_score() {
        let scores = [
            0,
            1,
            1 << 62,
            (1 << 63) - 1,
            1 << 63,
            u64::MAX - 1,
            u64::MAX,
        ]
        .map(|hash| score(100, hash));
        assert!(scores.iter().all(|score| *score > 0.0 && score.is_finite()));
        assert!(scores.is_sorted(), "{scores:?}");
    }

    #[test]
    fn a_mapped_address_counts_as_the_one_in_it() {
        let key = HashKey::default();
        let v4: IpAddr = "198.51.100.7".parse().unwrap();
        let mapped: IpAddr = "::ffff:198.51.100.7".parse().unwrap();
        assert_eq!(key.of_client(v4, id("a")), key.of_client(mapped, id("a")));
        let v6: IpAddr = "2001:db8::7".parse().unwrap();
        assert_ne!(key.of_client(v4, id("a")), key.of_client(v6, id("a")));
    }
}
