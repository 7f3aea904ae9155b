//! Responses keep the laws, whatever an endpoint sends.

#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| usher_fuzz::responses(input));
