//! Browsers lent out in many worlds. `USHER_SEED=n` replays one, `USHER_SEEDS=n` runs a tenth as
//! many: one of these worlds is ten minutes of a whole installation.

use usher_sim::{Lending, Lent};

const WORLDS: u64 = 40;

fn number(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    Some(
        text.parse()
            .unwrap_or_else(|_| panic!("{variable}={text} is not a number")),
    )
}

#[test]
fn every_lease_comes_to_its_end() {
    let seeds = match number("USHER_SEED") {
        Some(seed) => seed..=seed,
        None => 1..=number("USHER_SEEDS").map_or(WORLDS, |seeds| seeds.div_ceil(10)),
    };
    let mut all = Lent::default();
    for seed in seeds.clone() {
        let lent = Lending::new(seed).run();
        all.steps += lent.steps;
        all.launches += lent.launches;
        all.picks += lent.picks;
        all.answers += lent.answers;
        all.refusals += lent.refusals;
        all.waits += lent.waits;
        all.left += lent.left;
        all.unprepared += lent.unprepared;
        all.kills += lent.kills;
        all.lost += lent.lost;
        all.idle += lent.idle;
        all.faults += lent.faults;
        all.amnesias += lent.amnesias;
        all.given_again += lent.given_again;
    }
    // A run in which nothing happens proves nothing.
    if seeds.count() as u64 >= WORLDS {
        let often = [
            all.launches,
            all.picks,
            all.answers,
            all.refusals,
            all.faults,
        ];
        assert!(often.iter().all(|&count| count > 500), "{all:?}");
        let seldom = [
            all.waits,
            all.left,
            all.unprepared,
            all.kills,
            all.lost,
            all.idle,
        ];
        assert!(seldom.iter().all(|&count| count > 20), "{all:?}");
        assert!(all.given_again > 0, "{all:?}");
    }
}

#[test]
fn a_seed_is_one_world() {
    let run = || format!("{:?}", Lending::new(42).run());
    assert_eq!(run(), run());
}
