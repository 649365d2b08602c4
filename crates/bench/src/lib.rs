//! The bench: workloads, the driver that runs them, and stores of other projects.
//!
//! * `lodestore-bench run` measures and compares stores.
//! * `lodestore-bench evaluate` runs a list of benches and writes a page for each.
//!
//! A run has several rounds. In each round every store is created, loaded, run through the
//! workloads and destroyed in a separate process, with the stores interleaved. Keys and operations
//! are generated before the clock starts, from one seed for every store. If a workload has a
//! minimum duration, a faster store receives more of them. Every returned value is checked to
//! belong to its key.
//!
//! On request each store is then recreated, stopped cleanly or killed, and opened by another
//! process. This applies to engines and peers, as far as the durability of their writes allows. A
//! store that failed is left out of later rounds.
//!
//! Floor 4: the bench drives stores through the contract, and writes to no medium itself.
#![forbid(unsafe_code)]

mod advice;
mod args;
mod peers;
mod plot;
mod preset;
mod report;
mod run;
mod suite;
mod workload;

pub use advice::translate;
pub use args::sweep::Sweep;
pub use args::{Args, Check, Settle};
pub use preset::{Given, Preset};
pub use run::session::run;
pub use suite::{Evaluate, Scale, evaluate};
pub use workload::Workload;
pub use workload::open_loop::Arrivals;
pub use workload::sizes::Size;
