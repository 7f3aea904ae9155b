//! Which browser: the nearest pair of broker and browser, and among equals a random one.
//!
//! A session says dozens of messages for each thing it does, so the way from broker to browser
//! counts many times and the way from client to broker once. Among the nearest few the choice is
//! random, which spreads heat over nodes and keeps brokers apart that choose at the same moment.
//!
//! Source: browser specification 11.4.

use std::time::Duration;

use super::BrowserId;
use crate::chance::{Chance, scatter};

/// How many of the nearest are chosen among.
pub const NEAREST: usize = 8;

/// Messages between broker and browser for each of the client's: what a browser is wanted for
/// decides how near it should be to the broker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Talk {
    /// A session: dozens of messages for each operation.
    Session,
    /// One request, one answer.
    QuickAction,
}

impl Talk {
    const fn messages(self) -> u32 {
        match self {
            Talk::Session => 30,
            Talk::QuickAction => 1,
        }
    }
}

/// What a pair costs; smaller is better.
#[must_use]
pub fn score(client_to_broker: Duration, broker_to_node: Duration, talk: Talk) -> Duration {
    let inside = broker_to_node.saturating_mul(talk.messages());
    client_to_broker.saturating_add(inside)
}

/// A round trip, smoothed; what probes between broker and node say every 10 s.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RoundTrip(Option<Duration>);

impl RoundTrip {
    /// Takes a measurement: one part of eight; the first one as it is.
    pub fn heard(&mut self, measured: Duration) {
        self.0 = Some(match self.0 {
            None => measured,
            Some(known) => (known.saturating_mul(7).saturating_add(measured)) / 8,
        });
    }

    /// What is known; zero while nothing is.
    #[must_use]
    pub fn value(self) -> Duration {
        self.0.unwrap_or_default()
    }
}

/// What one region offers to a caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Offer {
    /// The region, as the caller numbers them.
    pub region: u16,
    /// From client to a broker of that region.
    pub client_to_broker: Duration,
    /// From that broker to its nearest node with something ready.
    pub broker_to_node: Duration,
    /// Browsers that are ready.
    pub ready: u32,
}

/// The regions to ask, best first; those with nothing ready come last, because what is known of them
/// may be old. `only` is the one that an account must not leave.
#[must_use]
pub fn rank(offers: &[Offer], talk: Talk, only: Option<u16>) -> Vec<u16> {
    let mut allowed: Vec<&Offer> = offers
        .iter()
        .filter(|offer| only.is_none_or(|only| only == offer.region))
        .collect();
    allowed.sort_by_key(|offer| {
        let score = score(offer.client_to_broker, offer.broker_to_node, talk);
        (offer.ready == 0, score, offer.region)
    });
    allowed.into_iter().map(|offer| offer.region).collect()
}

/// One of the [`NEAREST`] nearest of `ready`, which are browsers with their distance, by `draw`.
/// Which of many equally near are among the nearest is up to the draw too.
#[must_use]
pub fn choose(
    ready: impl IntoIterator<Item = (BrowserId, Duration)>,
    draw: u64,
) -> Option<BrowserId> {
    let mix = |id: BrowserId| scatter(draw ^ scatter(id.0 as u64 ^ (id.0 >> 64) as u64));
    let mut nearest: Vec<(Duration, u64, BrowserId)> = Vec::with_capacity(NEAREST + 1);
    for (id, distance) in ready {
        let key = (distance, mix(id), id);
        if nearest.len() == NEAREST && nearest[NEAREST - 1] <= key {
            continue;
        }
        let at = nearest.partition_point(|known| *known < key);
        nearest.insert(at, key);
        nearest.truncate(NEAREST);
    }
    let at = Chance::new(draw).below(nearest.len() as u64) as usize;
    nearest.get(at).map(|&(_, _, id)| id)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    #[test]
    fn a_session_wants_its_broker_near_the_browser() {
        // The client is near region 1, whose browsers are far from its broker; region 2 is
        // together but far away.
        let offer = |region, client, node, ready| Offer {
            region,
            client_to_broker: ms(client),
            broker_to_node: ms(node),
            ready,
        };
        let offers = [offer(1, 5, 10, 3), offer(2, 80, 1, 3), offer(3, 1, 0, 0)];
        assert_eq!(rank(&offers, Talk::Session, None), [2, 1, 3]);
        assert_eq!(rank(&offers, Talk::QuickAction, None), [1, 2, 3]);
        assert_eq!(rank(&offers, Talk::Session, Some(1)), [1]);
        assert!(rank(&offers, Talk::Session, Some(9)).is_empty());
    }

    #[test]
    fn a_round_trip_follows_its_measurements() {
        let mut way = RoundTrip::default();
        assert_eq!(way.value(), Duration::ZERO);
        way.heard(ms(8));
        way.heard(ms(16));
        assert_eq!(way.value(), ms(9));
        for _ in 0..200 {
            way.heard(ms(80));
        }
        assert!(way.value() > ms(79));
    }

    proptest! {
        #[test]
        fn one_of_the_nearest(distances in proptest::collection::vec(0_u64..20, 0..40), draw: u64) {
            let ready = (0..).map(BrowserId).zip(distances.iter().map(|&far| ms(far)));
            let chosen = choose(ready, draw);
            prop_assert_eq!(chosen.is_none(), distances.is_empty());
            if let Some(BrowserId(chosen)) = chosen {
                let distance = distances[chosen as usize];
                let nearer = distances.iter().filter(|&&other| other < distance).count();
                prop_assert!(nearer < NEAREST);
            }
        }
    }

    #[test]
    fn equals_are_chosen_equally() {
        let mut counts = [0_u32; 20];
        for draw in 0..20_000 {
            let ready = (0..20).map(|id| (BrowserId(id), Duration::ZERO));
            let BrowserId(id) = choose(ready, scatter(draw)).unwrap();
            counts[id as usize] += 1;
        }
        // 1,000 each is expected; six standard deviations are 185.
        assert!(
            counts.iter().all(|count| count.abs_diff(1_000) < 185),
            "{counts:?}"
        );
    }
}
