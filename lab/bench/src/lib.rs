//! Benchmarks of key-value stores: workloads, the driver that runs them, and the reports.
//!
//! * `lodestore-bench run` measures and compares stores.
//! * `lodestore-bench evaluate` runs a list of experiments and writes the rows of each.
//!
//! A run has several rounds. In each round every store is created, loaded, run through the
//! workloads and destroyed in a separate process, with the stores interleaved. If a workload has a
//! minimum duration, a faster store receives more operations.
//!
//! On request each store is then recreated, stopped cleanly or killed, and opened by another
//! process. This applies to engines and peers, as far as the durability of their writes allows.
//!
//! # Guarantees
//! * Keys and operations are generated before the clock starts, from one seed for every store.
//! * Every returned value is checked to belong to its key.
//! * A store that failed is left out of later rounds.
//! * The bench drives stores through the contract, and writes to no medium itself (layer 4).
//!
//! # Modules
//! * `advice`: error texts, with library calls translated into the program's flags.
//! * `workload`: workloads by name, their keys and sizes, and operation streams.
//! * `run`: rounds of cells, the driver in each cell, and observation.
//! * `target`, `store_name`: a store that is measured; names of stores with their options.
//! * `procfs`: counters of processes.
//! * `peers`: maps of the standard library, and stores of other projects.
//! * `report`, `output`: JSON lines, tables, and timelines; a run with all of them. The crate
//!   `lodestore-plots` draws them.
//! * `args`: the command line of `run`, with presets: named sets of arguments, one file per paper.
//! * `suite`: the experiments of `evaluate` and their records.
#![forbid(unsafe_code)]

mod advice;
mod args;
mod output;
mod peers;
mod procfs;
mod report;
mod run;
mod store_name;
mod suite;
mod target;
mod workload;

pub use advice::translate;
pub use args::preset::{Given, Preset};
pub use args::sweep::Sweep;
pub use args::{Args, Check, Settle};
pub use output::run;
pub use suite::{Evaluate, Scale, evaluate};
pub use workload::Workload;
pub use workload::open_loop::Arrivals;
pub use workload::sizes::Size;
