//! HiKV (USENIX ATC 2017): a hash index on the medium for single keys, a B+-tree in DRAM for scans,
//! updated behind the writer.
//!
//! The hash index and the records are the truth; the tree is rebuilt from them. Rooms:
//!
//! | file | what it holds |
//! |---|---|
//! | `store` | opening, closing, the contract's operations |
//! | `inner`, `options` | what all of it shares, and how it is set up |
//! | `layout`, `entry`, `record` | bytes on the medium |
//! | `hash`, `table`, `probe`, `split`, `stripe` | hash index: placing, finding, growing, locking |
//! | `read`, `write`, `batch`, `scan`, `sweep` | the operations |
//! | `copy` | copies of the whole store while it is written |
//! | `damage` | what the store knows of damage to its index, and how misses are checked |
//! | `backend`, `trees`, `tree_op`, `rebuild`, `worker`, `adapt`, `sampler` | the tree's updates behind the writer |
//! | `recover`, `extents`, `collect`, `run`, `verify` | from bytes to a whole store, and checking one |
//! | `wal` | the paper's HiKV_wal, for comparison |
//!
//! Persist order of each operation: the heads of `write`, `batch`, `split`, `run` and `recover`; docs/crash.md argues them by case.
//!
//! # What it promises
//! Single-key operations and batches are durably linearizable. A scan sees every write that returned before it began and is not a
//! snapshot (see `scan`). `close` makes the next open quick; without it nothing acknowledged is lost.
#![forbid(unsafe_code)]

mod adapt;
mod backend;
mod batch;
mod collect;
mod copy;
mod damage;
mod entry;
mod extents;
mod hash;
mod inner;
mod layout;
mod options;
mod probe;
mod read;
mod rebuild;
mod record;
mod recover;
mod run;
mod sampler;
mod scan;
mod split;
#[cfg(test)]
mod split_tests;
mod stats;
mod store;
mod stripe;
mod sweep;
mod table;
mod tree_op;
mod trees;
mod verify;
mod wal;
mod worker;
mod write;

pub use layout::{ENGINE, FORMAT};
pub use options::{Backends, HiKvOptions, HikvSettings};
pub use stats::HikvStats;
pub use store::HiKv;
