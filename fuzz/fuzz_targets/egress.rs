//! Hosts and host patterns keep the laws, whatever a page or a session names.

#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| usher_fuzz::egress(input));
