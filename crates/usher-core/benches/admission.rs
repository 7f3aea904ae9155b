//! What a waiting room costs: decisions a second on one core, and memory of a waiting visitor.
//! Goals: 200,000 a second, and 200 bytes.

#![allow(
    clippy::disallowed_methods,
    clippy::print_stdout,
    reason = "a bench reads how large its process is, and prints it"
)]

#[path = "../tests/support/timing.rs"]
mod timing;

use std::hint::black_box;
use usher_core::admission::{Answer, Command, End, Room, Settings, Visitor};

const START: u64 = 1_796_000_000_000;
const WAITING: u64 = 1_000_000;
const SEATS: u64 = 100_000;

fn visitor(number: u64) -> Visitor {
    // Identities are random; a multiplication spreads them as well.
    let half = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    Visitor::from_u128((u128::from(half) << 64) | u128::from(half.rotate_left(17)))
}

/// Resident memory of this process, bytes.
fn resident() -> u64 {
    let pages = std::fs::read_to_string("/proc/self/statm")
        .ok()
        .and_then(|text| text.split_whitespace().nth(1)?.parse::<u64>().ok());
    pages.unwrap_or(0) * 4096
}

fn main() {
    let settings = Settings::new(SEATS, u64::from(u32::MAX));
    let mut room = Room::default();
    let mut effects = Vec::new();
    let mut step = |room: &mut Room, now: u64, command: Command<'_>| -> Answer {
        effects.clear();
        room.step(&settings, now, now, command, &mut effects)
    };
    let ask = |number: u64| Command::Ask {
        visitor: visitor(number),
        claims: None,
    };
    timing::once("admission: 100,000 direct entries", || {
        for number in 0..SEATS {
            step(&mut room, START, ask(number));
        }
    });
    let before = resident();
    timing::once("admission: 1,000,000 arrivals into a line", || {
        for number in SEATS..SEATS + WAITING {
            step(&mut room, START, ask(number));
        }
    });
    println!(
        "admission: {} bytes a waiting visitor",
        (resident() - before) / WAITING
    );
    let everybody: Vec<Visitor> = (SEATS..SEATS + WAITING).map(visitor).collect();
    timing::once("admission: 1,000,000 check-ins in batches of 1,000", || {
        for batch in everybody.chunks(1_000) {
            step(&mut room, START + 20_000, Command::CheckIn(batch));
        }
    });
    timing::once(
        "admission: 50,000 seats end, 50,000 called visitors enter",
        || {
            for number in 0..50_000 {
                step(
                    &mut room,
                    START + 20_000,
                    Command::End {
                        visitor: visitor(number),
                        cause: End::Left,
                    },
                );
                step(&mut room, START + 20_000, ask(SEATS + number));
            }
        },
    );
    let summary_at = START + 20_000;
    timing::time("admission: a summary", 1, || {
        black_box(room.summary(&settings, summary_at));
    });
}
