//! Expressions keep the laws, whatever their text and the request are.

#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| usher_fuzz::rules(input));
