//! Chunked bodies keep the laws, whatever a peer sends.

#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| usher_fuzz::chunked(input));
