//! Fuzzes a HashKV store whose process was killed.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| lodestore_fuzz::hashkv::TARGETS.killed(data));
