//! Tests of nvht, as one binary.
//!
//! One binary needs one link, and the tests of all files share the cores. Tests that change or
//! measure the whole process are binaries of their own.

mod batches;
#[path = "../common/mod.rs"]
mod common;
mod conformance;
mod damage;
mod damage_rule;
mod growth;
mod killed;
mod persist_order;
mod properties;
#[path = "../rule/mod.rs"]
mod rule;
mod scrub;
mod sink;
mod uncounted_slots;
