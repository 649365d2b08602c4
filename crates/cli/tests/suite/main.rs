//! Tests of the program, as one binary.
//!
//! One binary needs one link, and the tests of all files share the cores. Tests that change or
//! measure the whole process are binaries of their own.

mod backup;
mod choice;
#[path = "../common/mod.rs"]
mod common;
mod convert;
mod damaged_export;
mod import_lmdb;
mod import_rdb;
mod import_rocksdb;
mod keyspaces;
mod kill;
mod messages;
mod mkvs;
mod points;
mod refusals;
mod scans;
mod transfer;
mod upkeep;
