//! Tests of mkvs, as one binary.
//!
//! One binary needs one link, and the tests of all files share the cores. Tests that change or
//! measure the whole process are binaries of their own.

mod apart;
#[path = "../common/mod.rs"]
mod common;
mod competition;
mod conformance;
mod copies;
mod created;
mod damaged;
mod devices;
mod faults;
mod filter;
mod group_counts;
mod host;
mod interrupted;
mod keepers;
mod labels;
mod losses;
mod older_copies;
mod opened;
mod pressure;
mod protocol;
mod replaced;
mod revived;
mod salvaged;
mod several;
mod stuck;
mod surplus;
mod waits;
