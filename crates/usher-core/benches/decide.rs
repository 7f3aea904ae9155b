//! What a decision costs on the request path. Goal: 300 ns with 10 pools of 100 endpoints.

#[path = "../tests/support/mod.rs"]
mod support;
#[path = "../tests/support/timing.rs"]
mod timing;

use std::hint::black_box;

use usher_core::affinity::NoPins;
use usher_core::snapshot::{NoCounts, Snapshot};
use usher_core::steering::PoolSteering;
use usher_core::time::Mono;

fn main() {
    let cases = [
        ("decide: off, 2 pools of 3", 2, 3, PoolSteering::Off),
        (
            "decide: random, 10 pools of 100",
            10,
            100,
            PoolSteering::Random,
        ),
        (
            "decide: random, 10 pools of 256",
            10,
            256,
            PoolSteering::Random,
        ),
    ];
    for (name, pools, endpoints, steering) in cases {
        let snapshot = Snapshot::presumed(support::catalog(100, pools, endpoints, steering));
        let mut draw = 1u64;
        timing::time(name, 2_000, || {
            draw = draw.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
            let request = support::request(black_box("lb42.example.com"), draw);
            black_box(snapshot.decide(&request, &NoCounts, &NoPins, Mono::ZERO));
        });
    }
}
