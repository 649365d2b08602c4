//! Tests of the bench, as one binary.
//!
//! One binary needs one link, and the tests of all files share the cores. Tests that change or
//! measure the whole process are binaries of their own.

#[path = "../common/mod.rs"]
mod common;
mod evaluate;
#[path = "../common/fields.rs"]
mod fields;
mod matrix;
mod measures;
mod phases;
#[path = "../common/place.rs"]
mod place;
mod presets;
mod program;
mod refusals;
mod reopen;
mod repeat;
mod runs;
