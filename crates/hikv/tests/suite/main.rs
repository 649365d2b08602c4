//! Tests of hikv, as one binary.
//!
//! One binary needs one link, and the tests of all files share the cores. Tests that change or
//! measure the whole process are binaries of their own.

mod astray;
mod batches;
#[path = "../common/mod.rs"]
mod common;
mod conformance;
mod damage;
mod damage_while_open;
mod damaged_keys;
mod lines;
mod older_directory;
mod older_records;
mod persist_order;
mod scrub;
mod sink;
mod smoke;
mod sweep;
mod words_while_open;
