//! Fuzzes the parser of commands.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| lodestore_fuzz::wire::requests(data));
