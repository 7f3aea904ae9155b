//! 256 worlds in every run of the tests. `USHER_SEED=n` replays one, `USHER_SEEDS=n` runs as many,
//! and `USHER_STEPS=n` makes each longer.

use usher_sim::{Figures, World};

fn number(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    Some(
        text.parse()
            .unwrap_or_else(|_| panic!("{variable}={text} is not a number")),
    )
}

#[test]
fn every_seed_keeps_the_invariants() {
    let seeds = match number("USHER_SEED") {
        Some(seed) => seed..=seed,
        None => 1..=number("USHER_SEEDS").unwrap_or(256),
    };
    let steps = number("USHER_STEPS").unwrap_or(1_200);
    let mut all = Figures::default();
    for seed in seeds.clone() {
        let figures = World::new(seed).run(steps);
        all.steps += figures.steps;
        all.probes += figures.probes;
        all.lost += figures.lost;
        all.snapshots += figures.snapshots;
        all.reloads += figures.reloads;
        all.changes += figures.changes;
        all.forwarded += figures.forwarded;
        all.to_fallback += figures.to_fallback;
        all.refused += figures.refused;
        all.kept += figures.kept;
        all.draining += figures.draining;
        all.moved += figures.moved;
        all.across += figures.across;
        all.answered += figures.answered;
    }
    // A run in which nothing happens proves nothing.
    if seeds.count() >= 256 {
        let happened = [
            all.probes,
            all.lost,
            all.snapshots,
            all.reloads,
            all.changes,
            all.forwarded,
            all.to_fallback,
            all.refused,
        ];
        assert!(happened.iter().all(|&count| count > 1_000), "{all:?}");
        let seldom = [all.kept, all.draining, all.moved, all.across, all.answered];
        assert!(seldom.iter().all(|&count| count > 100), "{all:?}");
    }
}

#[test]
fn a_seed_is_one_world() {
    let run = || format!("{:?}", World::new(42).run(500));
    assert_eq!(run(), run());
}
