//! Fuzzes the parts of a HashKV store that its own parsers read.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    lodestore_fuzz::hashkv::parts(data);
});
