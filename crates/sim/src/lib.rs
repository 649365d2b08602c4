//! Whole-store tests: crash exploration, linearizability, kill -9.
//!
//! * [`explore`] runs scripts of operations on a simulated medium, takes the images that a crash
//!   may leave at each crash point, opens each, and judges its contents ([`oracle`]).
//! * [`mutation`] plants faults and reports which oracle sees each.
//!
//! A seed reproduces every run. A failing image is a file that `explore --replay` opens again.
#![forbid(unsafe_code)]

pub mod allocator;
pub mod concurrent;
pub mod config;
pub mod counts;
pub mod damage;
pub mod explore;
pub mod failure;
pub mod fluidkv;
pub mod hashkv;
pub mod hikv;
pub mod history;
pub mod keyspaces;
pub mod kill9;
pub mod mkvs;
pub mod mutation;
pub mod nvht;
pub mod op;
pub mod oracle;
pub mod panics;
pub mod pool_subject;
pub mod scans;
pub mod script;
pub mod served;
pub mod subject;
pub mod toy;
pub mod transactions;
