//! Tests of hashkv, as one binary.
//!
//! One binary needs one link, and the tests of all files share the cores. Tests that change or
//! measure the whole process are binaries of their own.

mod collection;
#[path = "../common/mod.rs"]
mod common;
mod conformance;
mod damaged_lines;
mod damaged_log;
mod extent_table;
mod groups;
mod killed_log;
mod late;
mod lost;
mod medium;
mod modes;
mod options;
mod published;
mod range_conditions;
mod scrub;
mod verify;
