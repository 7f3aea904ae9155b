//! A waiting room under visitors, an operator, crashes and a jumping clock: many small worlds.

use usher_sim::rooms::{RoomWorld, Tally};

#[test]
fn every_seed_keeps_the_invariants() {
    let (from, to) = match std::env::var("ROOM_SEED").map(|seed| seed.parse::<u64>()) {
        Ok(Ok(seed)) => (seed, seed + 1),
        _ => (0, 64),
    };
    let mut all = Tally::default();
    let mut faults = Vec::new();
    for seed in from..to {
        match RoomWorld::run(seed, 30) {
            Ok(tally) => {
                all.admitted += tally.admitted;
                all.called += tally.called;
                all.crashes += tally.crashes;
                all.remembered += tally.remembered;
                all.agreed += tally.agreed;
            }
            Err(fault) => faults.push(fault),
        }
    }
    assert!(
        faults.is_empty(),
        "{} of {}:\n{}",
        faults.len(),
        to - from,
        faults.join("\n")
    );
    if to - from > 1 {
        // The worlds are worth something only if things happen in them.
        assert!(all.admitted > 5_000, "{all:?}");
        assert!(all.called > 1_000, "{all:?}");
        assert!(all.crashes > 10, "{all:?}");
        assert!(all.remembered > 0, "{all:?}");
        assert!(all.agreed > 20_000, "{all:?}");
    }
}
