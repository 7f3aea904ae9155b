//! What the front learns of a visitor from its address and its cookie costs no allocation: counted,
//! since nobody sees it in a review.
//!
//! One test in a file of its own, because the counter sees every thread of the process.

use std::alloc::{GlobalAlloc, Layout, System};
use std::net::IpAddr;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use usher_core::id::Id;
use usher_edge::geo::Places;
use usher_edge::http::affinity_cookie;
use usher_edge::seal::{Keys, Purpose, Scope};

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
fn a_visitor_is_recognised_without_an_allocation() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/places.mmdb");
    let places = Places::load(&path).expect("a database");
    let addresses = [
        "192.0.2.1",
        "192.0.2.200",
        "2001:db8::1",
        "::ffff:127.0.0.2",
        "10.0.0.1",
    ];
    let addresses = addresses.map(|text| text.parse::<IpAddr>().expect("address"));
    let keys = Keys::new(&[Keys::generate(), Keys::generate()]).expect("keys");
    let scope = Scope {
        purpose: Purpose::Pin,
        of: Id::from_bytes([1; 16]),
    };
    let pin = keys.seal(scope, &[0; 57]);
    let line = format!("theme=dark; __cflb=forged; __cflb={pin}; lang=en");

    let before = ALLOCATIONS.load(Ordering::Relaxed);
    let (mut known, mut opened, mut kept) = (0, 0, 0);
    for _ in 0..100 {
        known += addresses
            .iter()
            .filter(|address| places.place(**address).is_some())
            .count();
        let mut values = affinity_cookie::values(std::iter::once(line.as_bytes()));
        opened += usize::from(values.any(|value| keys.open(scope, value).is_some()));
        kept += affinity_cookie::others(line.as_bytes())
            .map(<[u8]>::len)
            .sum::<usize>();
    }
    let allocations = ALLOCATIONS.load(Ordering::Relaxed) - before;
    let len = "theme=dark; lang=en".len();
    assert_eq!((allocations, known, opened, kept), (0, 400, 100, 100 * len));
}
