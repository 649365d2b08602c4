//! Fuzzes an NVHT store that was stopped cleanly.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| lodestore_fuzz::nvht::TARGETS.clean(data));
