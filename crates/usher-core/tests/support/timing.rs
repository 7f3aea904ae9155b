//! A stopwatch for benches: the middle of many short rounds, which a busy machine disturbs least.

#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    clippy::print_stdout,
    reason = "a bench reads the clock that the core may not, and prints what it saw"
)]

use std::time::Instant;

const ROUNDS: usize = 101;

/// Prints what `work` costs when it is done once, in milliseconds.
#[allow(dead_code, reason = "not every user of this file asks")]
pub(crate) fn once(name: &str, work: impl FnOnce()) {
    let start = Instant::now();
    work();
    println!("{name}: {:.1} ms", start.elapsed().as_secs_f64() * 1e3);
}

/// Prints how much memory the process has resident, where Linux says so.
#[allow(dead_code, reason = "not every user of this file asks")]
pub(crate) fn resident(name: &str) {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    println!("{name}: {} resident", line.unwrap_or(" ?").trim());
}

/// Prints what one call of `work` costs, in nanoseconds: the fastest round and the median.
pub(crate) fn time(name: &str, calls: u32, mut work: impl FnMut()) {
    let mut rounds: Vec<f64> = (0..ROUNDS)
        .map(|_| {
            let start = Instant::now();
            (0..calls).for_each(|_| work());
            start.elapsed().as_nanos() as f64 / f64::from(calls)
        })
        .collect();
    rounds.sort_by(f64::total_cmp);
    println!(
        "{name}: {:.0} ns at best, {:.0} ns median of {ROUNDS} rounds",
        rounds[0],
        rounds[ROUNDS / 2]
    );
}
