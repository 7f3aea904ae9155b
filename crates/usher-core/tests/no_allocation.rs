//! A decision allocates nothing: counted, since nobody sees it in a review.
//!
//! One test in a file of its own, because the counter sees every thread of the process.

mod support;

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicU64, Ordering};

use usher_core::affinity::NoPins;
use usher_core::decision::{Decision, PinOutcome};
use usher_core::snapshot::{NoCounts, Snapshot};
use usher_core::steering::PoolSteering;
use usher_core::time::Mono;

struct Counting;

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

// The trait of a global allocator is unsafe to implement; this one only counts and passes on.
#[allow(unsafe_code, reason = "there is no other way to count allocations")]
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller keeps the contract of `alloc`, which is the same here.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: `pointer` came from `alloc` above, which is that of `System`.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[test]
fn a_decision_allocates_nothing() {
    for steering in PoolSteering::ALL {
        let snapshot = Snapshot::presumed(support::catalog(4, 10, 100, steering));
        let hosts = ["lb2.example.com", "nowhere.example.org"];
        let before = ALLOCATIONS.load(Ordering::Relaxed);
        let mut forwarded = 0;
        for draw in 0..1_000u64 {
            for host in hosts {
                let request = support::request(host, draw.wrapping_mul(0x9e37_79b9_7f4a_7c15));
                let decision = snapshot.decide(&request, &NoCounts, &NoPins, Mono::ZERO);
                forwarded += u64::from(matches!(decision, Decision::Forward(_)));
            }
        }
        let allocations = ALLOCATIONS.load(Ordering::Relaxed) - before;
        assert_eq!((allocations, forwarded), (0, 1_000), "{steering:?}");
    }
    // Maps of places, ten rules, and a session that is kept or made.
    let catalog = support::eventful(4, 10, 20);
    let visitor = support::Visitor::new(&catalog, 2);
    let snapshot = Snapshot::presumed(catalog);
    // The first one makes room for what regular expressions remember from then on.
    let _ = snapshot.decide(&visitor.request(0), &NoCounts, &NoPins, Mono::ZERO);
    let before = ALLOCATIONS.load(Ordering::Relaxed);
    let mut outcomes = [0; 2];
    for draw in 0..1_000 {
        let request = visitor.request(draw);
        let kept = snapshot.decide(&request, &NoCounts, &visitor, Mono::ZERO);
        let new = snapshot.decide(&request, &NoCounts, &NoPins, Mono::ZERO);
        for (place, decision) in [kept, new].into_iter().enumerate() {
            if let Decision::Forward(forward) = decision {
                let expected = [PinOutcome::Kept, PinOutcome::New][place];
                outcomes[place] += u64::from(forward.affinity.first.outcome == expected);
            }
        }
    }
    let allocations = ALLOCATIONS.load(Ordering::Relaxed) - before;
    assert_eq!((allocations, outcomes), (0, [1_000; 2]));
}
