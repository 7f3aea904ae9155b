//! What the fuzz targets have in common: the parsers themselves, the laws that their property tests
//! check too, and a second parser.

#[path = "../../crates/usher-edge/src/http/affinity_cookie.rs"]
#[allow(dead_code)]
mod affinity_cookie;
#[path = "../../crates/usher-edge/src/file.rs"]
#[allow(dead_code)]
mod file;
#[path = "../../crates/usher-edge/src/geo/mod.rs"]
#[allow(dead_code)]
mod geo;
#[path = "../../crates/usher-edge/src/http1/mod.rs"]
#[allow(dead_code, unused_imports)] // some of it is for fronts that are not compiled here
mod http1;
#[path = "../../crates/usher-edge/tests/codec/laws.rs"]
mod laws;
#[path = "../../crates/usher-edge/tests/codec/walk.rs"]
mod walk;

mod cdp;
mod egress;
mod room_cookie;
mod rules;
mod second;
mod template;

pub use cdp::cdp;
pub use egress::egress;
pub use room_cookie::room_cookie;
pub use rules::rules;
pub use second::{requests_as_hyper, responses_as_hyper};
pub use template::template;

/// `input` is what a client sends.
pub fn requests(input: &[u8]) {
    laws::of_requests(input, &sizes(input));
}

/// `input` is what an endpoint sends.
pub fn responses(input: &[u8]) {
    laws::of_responses(input, &sizes(input));
}

/// `input` is a chunked body.
pub fn chunked(input: &[u8]) {
    laws::of_chunked(input, &sizes(input));
}

/// `body` is what a body carries.
pub fn round_trip(body: &[u8]) {
    laws::round_trip(body, &[], &sizes(body));
}

/// `line` is the field `Cookie` that a client sends.
pub fn cookies(line: &[u8]) {
    let others = |line: &[u8]| affinity_cookie::others(line).collect::<Vec<_>>().concat();
    let ours = |line: &[u8]| affinity_cookie::values(std::iter::once(line)).count();
    let rest = others(line);
    assert_eq!(ours(&rest), 0);
    assert_eq!(others(&rest), rest);
    assert_eq!(rest == line, ours(line) == 0);
}

/// `file` is what an operator takes for a database.
pub fn places(file: &[u8]) {
    let Ok(places) = geo::Places::parse(file.to_vec()) else {
        return;
    };
    for hash in sizes(file) {
        let byte = hash as u8;
        let _ = places.place([192, 0, 2, byte].into());
        let _ = places.place([0x2001, 0xdb8, 0, 0, 0, 0, 0, u16::from(byte)].into());
    }
    let _ = places.edition();
}

/// Sizes of pieces drawn from the input itself, so that an input stays a plain message and a
/// finding replays.
fn sizes(input: &[u8]) -> Vec<usize> {
    let hash = input.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, &byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    hash.to_le_bytes()
        .map(|byte| usize::from(byte % 40))
        .to_vec()
}
