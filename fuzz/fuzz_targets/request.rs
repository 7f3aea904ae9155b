//! Requests keep the laws, whatever a client sends.

#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| usher_fuzz::requests(input));
