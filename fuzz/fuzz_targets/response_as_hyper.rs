//! Responses that the codec takes mean the same to hyper.

#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| usher_fuzz::responses_as_hyper(input));
