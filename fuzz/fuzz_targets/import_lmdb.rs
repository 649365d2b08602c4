//! Fuzzes the reader of LMDB data files. The program has no library:
//! its modules are compiled into this target.
#![no_main]
#![expect(dead_code, reason = "the program uses more of its modules than the target")]

#[path = "../../crates/cli/src/base64.rs"]
mod base64;
#[path = "../../crates/cli/src/format/mod.rs"]
mod format;
#[path = "../../crates/cli/src/lmdb.rs"]
mod lmdb;
#[path = "../src/lmdb.rs"]
mod target;

libfuzzer_sys::fuzz_target!(|data: &[u8]| target::lmdb(data));
