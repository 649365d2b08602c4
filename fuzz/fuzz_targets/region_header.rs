//! Fuzzes the header of a further region.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| lodestore_fuzz::media::region_header(data));
