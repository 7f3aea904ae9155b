//! Of any line of cookies, a room's door knows what to do.

#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| usher_fuzz::room_cookie(input));
