//! A database of places does no harm, whatever is in the file.

#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| usher_fuzz::places(input));
