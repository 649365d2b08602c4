//! Tests of the library with all its engines, as one binary.
//!
//! One binary needs one link, and the tests of all files share the cores. Tests that change or
//! measure the whole process are binaries of their own.

mod backup;
mod metrics;
mod options;
mod transaction_ranges;
mod walks;
