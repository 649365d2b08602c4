//! Fuzzes a FluidKV store that was stopped cleanly.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| lodestore_fuzz::fluidkv::TARGETS.clean(data));
