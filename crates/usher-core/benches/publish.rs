//! What a change of health costs until it is published, for 1,000 load balancers with 10 pools of
//! 20 endpoints each, and what they take of memory. Goals: 20 ms and 400 MB.

#[path = "../tests/support/mod.rs"]
mod support;
#[path = "../tests/support/timing.rs"]
mod timing;

use std::time::Duration;

use usher_core::engine::{Engine, Input, Output};
use usher_core::health::FailureReason;
use usher_core::probe::{ProbeId, ProbeResult};
use usher_core::steering::PoolSteering;
use usher_core::time::Mono;

/// An engine whose endpoints are all healthy, and the attempts that are under way.
struct Bench {
    engine: Engine,
    now: Mono,
    flying: Vec<ProbeId>,
    published: u64,
}

impl Bench {
    fn drain(&mut self) {
        while let Some(output) = self.engine.poll_output() {
            match output {
                Output::Probe(order) => self.flying.push(order.id),
                Output::Publish(_) => self.published += 1,
                Output::Cancel(_) | Output::Resolve(_) | Output::Event(_) | Output::Ready => {}
            }
        }
    }

    fn answer(&mut self, probe: ProbeId, result: ProbeResult) {
        self.engine
            .handle(Input::Probed { probe, result }, self.now);
        self.drain();
    }
}

fn main() {
    let catalog = support::catalog(1_000, 10, 20, PoolSteering::Random);
    let mut bench = Bench {
        engine: Engine::new(1),
        now: Mono::ZERO,
        flying: Vec::new(),
        published: 0,
    };
    timing::once("publish: a catalog of 200,000 endpoints", || {
        bench.engine.handle(Input::Catalog(catalog), bench.now);
    });
    bench.drain();
    // All first verdicts while time stands still, so that nothing is published in between.
    timing::once("publish: 200,000 first verdicts", || {
        while let Some(probe) = bench.flying.pop() {
            bench.answer(
                probe,
                ProbeResult::Pass {
                    status: Some(200),
                    rtt: Duration::from_millis(1),
                },
            );
        }
    });
    // Every timer until a snapshot goes out: some hundred endpoints fail in between.
    timing::time(
        "publish: the failures of 50 ms among 200,000 endpoints",
        1,
        || {
            let before = bench.published;
            while bench.published == before {
                bench.now = bench
                    .engine
                    .poll_timeout()
                    .expect("probes go on")
                    .max(bench.now);
                bench.engine.handle_timeout(bench.now);
                bench.drain();
                while let Some(probe) = bench.flying.pop() {
                    let reason = FailureReason::TcpConnection;
                    bench.answer(
                        probe,
                        ProbeResult::Fail {
                            reason,
                            status: None,
                            rtt: None,
                        },
                    );
                }
            }
        },
    );
    timing::resident("memory: 200,000 endpoints of 1,000 load balancers");
}
