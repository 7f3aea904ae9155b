//! Bodies survive being written and read.

#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| usher_fuzz::round_trip(input));
