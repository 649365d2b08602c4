//! Fuzzes extent tables, occupancy and wear, in a whole pool.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| lodestore_fuzz::media::pool(data));
