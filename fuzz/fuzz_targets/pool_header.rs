//! Fuzzes the header copies of a pool.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| lodestore_fuzz::media::pool_header(data));
