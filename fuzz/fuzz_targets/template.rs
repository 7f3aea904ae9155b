//! Templates are read or refused with a place, whatever their text is.

#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| usher_fuzz::template(input));
