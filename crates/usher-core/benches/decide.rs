//! What a decision costs on the request path. Goals: 300 ns with 10 pools of 100 endpoints, and 1 us
//! with maps of places, ten rules and a session in a cookie (without opening the cookie, which is
//! the front's).

#[path = "../tests/support/mod.rs"]
mod support;
#[path = "../tests/support/timing.rs"]
mod timing;

use std::hint::black_box;

use usher_core::affinity::NoPins;
use usher_core::decision::Decision;
use usher_core::request::Request;
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
    let catalog = support::eventful(100, 10, 20);
    let visitor = support::Visitor::new(&catalog, 42);
    let snapshot = Snapshot::presumed(catalog);
    let mut draw = 1u64;
    let mut decide = |name: &str, pins: &dyn Fn(&Request<'_>) -> Decision| {
        timing::time(name, 2_000, || {
            draw = draw.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
            black_box(pins(black_box(&visitor.request(draw))));
        });
    };
    decide(
        "decide: geo, 10 rules, a session that is kept",
        &|request| snapshot.decide(request, &NoCounts, &visitor, Mono::ZERO),
    );
    decide("decide: geo, 10 rules, a new session", &|request| {
        snapshot.decide(request, &NoCounts, &NoPins, Mono::ZERO)
    });
}
