//! Of any line of cookies, ours goes and the others stay.

#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| usher_fuzz::cookies(input));
