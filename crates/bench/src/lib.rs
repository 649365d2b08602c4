//! `lodestore bench`: workloads, the driver that runs them, and the peers beside which they run; and `lodestore evaluate`, which runs a list of benches and
//! makes pages of what they find.
//!
//! A run is a number of rounds; in each round every store is created, loaded, put through the workloads
//! and destroyed in a process of its own, the stores taking turns. Keys and operations are generated before
//! the clock starts, by one seed for every store; a faster one is given more of them where a workload is to last. Every value that comes back is checked to belong to its key.
//! Where it is asked for, each store is then made again, left by a clean stop or killed, and opened by another process: engines and peers alike,
//! as far as what they say that a write survives. A store that failed is left out of the rounds behind it.
//!
//! Floor 4: it drives stores through the contract, and writes to no medium itself.
#![forbid(unsafe_code)]

mod args;
mod cell;
mod command;
mod control_group;
mod dist;
mod driver;
mod failure;
mod figures;
mod fresh;
mod keys;
mod measure;
mod outcome;
mod pace;
mod pauses;
mod peers;
mod phase;
mod plot;
mod plot_latency;
mod plot_memory;
mod plot_sweep;
mod preset;
mod process;
mod refusals;
mod reopen;
mod report;
mod row;
mod scratch;
mod session;
mod sizes;
mod stall;
mod store;
mod stream;
mod suite;
mod sweep;
mod tables;
mod target;
mod timeline;
mod watch;
mod workload;

pub use args::{Args, Check, Settle};
pub use pace::Arrivals;
pub use preset::{Given, Preset};
pub use session::run;
pub use sizes::Size;
pub use suite::{Evaluate, Scale, evaluate};
pub use sweep::Sweep;
pub use workload::Workload;
