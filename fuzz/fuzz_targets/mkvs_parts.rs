//! Fuzzes the values that a matrix of devices has in its stores.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    lodestore_fuzz::mkvs::parts(data);
});
