//! Fuzzes the reader of replies.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| lodestore_fuzz::wire::replies(data));
