//! HiKV (USENIX ATC 2017): a hash index on the medium for single keys, and a B+-tree in DRAM for
//! scans, which is updated after the write.
//!
//! The hash index and the records are authoritative; the tree is rebuilt from them. Modules:
//!
//! | file | contents |
//! |---|---|
//! | `store` | opening, closing, the contract's operations |
//! | `inner`, `options` | shared state, and its setup |
//! | `layout`, `entry`, `record` | bytes on the medium |
//! | `hash`, `table`, `probe`, `split`, `stripe` | hash index: placing, finding, growing, locking |
//! | `read`, `write`, `batch`, `scan`, `sweep` | the operations |
//! | `copy` | copies of the whole store while it is written |
//! | `careful`, `damage` | known damage to the index, and the check of misses |
//! | `backend`, `trees`, `tree_op`, `adapt`, `sampler` | updates of the tree |
//! | `recover`, `extents`, `collect`, `run`, `verify` | recovery of a store, and its verification |
//! | `wal` | the paper's HiKV_wal, for comparison |
//!
//! The persist order of each operation is in the module docs of `write`, `batch`, `split`, `run`
//! and `recover`. `docs/crash.md` proves each order by case.
//!
//! # Guarantees
//! Single-key operations and batches are durably linearizable. A scan sees every write that
//! returned before it began, and is not a snapshot (see `scan`). `close` makes the next open fast.
//! Without it no acknowledged write is lost.
#![forbid(unsafe_code)]

mod adapt;
mod backend;
mod batch;
mod careful;
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
mod write;

pub use layout::{ENGINE, FORMAT};
pub use options::{Backends, HiKvOptions, HikvSettings};
pub use stats::HikvStats;
pub use store::HiKv;
