//! The bench: workloads, the driver that runs them, and the stores of others.
//!
//! * `lodestore-bench run` measures stores side by side.
//! * `lodestore-bench evaluate` runs a list of benches and writes a page of each.
//!
//! A run is a number of rounds; in each round every store is created, loaded, put through the workloads
//! and destroyed in a process of its own, the stores taking turns. Keys and operations are generated before
//! the clock starts, by one seed for every store; a faster one is given more of them where a workload is to last. Every value that comes back is checked to belong to its key.
//! Where it is asked for, each store is then made again, left by a clean stop or killed, and opened by another process: engines and peers alike,
//! as far as what they say that a write survives. A store that failed is left out of the rounds behind it.
//!
//! Floor 4: it drives stores through the contract, and writes to no medium itself.
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
