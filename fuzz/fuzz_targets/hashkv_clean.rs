//! Fuzzes a HashKV store that was stopped cleanly.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| lodestore_fuzz::hashkv::TARGETS.clean(data));
