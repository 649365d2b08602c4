//! Tests of fluidkv, as one binary.
//!
//! One binary needs one link, and the tests of all files share the cores. Tests that change or
//! measure the whole process are binaries of their own.

mod budgets;
mod churn;
mod commit;
#[path = "../common/mod.rs"]
mod common;
mod compression;
mod conformance;
mod crowds;
mod damage_after_read;
mod damaged_lines;
mod damaged_log;
mod damaged_manifest;
mod damaged_table;
#[path = "../lines/each.rs"]
mod each;
mod expiring_conditions;
mod full;
mod killed_log;
#[path = "../lines/log_end.rs"]
mod log_end;
mod replace;
mod salvage;
mod scrub;
mod separator;
mod sink;
mod stages;
#[path = "../common/toy.rs"]
mod toy;
mod values;
