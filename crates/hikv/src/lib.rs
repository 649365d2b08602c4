//! HiKV engine (USENIX ATC 2017): a persistent hash index for single keys, and a B+-tree in DRAM
//! for scans.
//!
//! The hash index and the records on the medium are the source of truth. Background threads update
//! the tree after each write, and recovery rebuilds it.
//!
//! The persist order of each operation is in the module docs of `write`, `batch`, `split`, `run`
//! and `recover`. `docs/crash.md` proves each order by case.
//!
//! # Guarantees
//! * Single-key operations and batches are durably linearizable.
//! * A scan sees every write that returned before it began, and is not a snapshot (see `scan`).
//! * Readers acquire no lock, except the key's stripe during a batch.
//! * `close` makes the next open fast. Without it no acknowledged write is lost.
//! * A miss that damage may have caused is an error, not an absent key (see `careful_lookup`).
//!
//! # Modules
//! * `hash`, `entry`, `record`: hashes of keys, index entries, records.
//! * `layout`, `options`: bytes on the medium; options.
//! * `modes`: modes for comparison with the paper (feature `lab`).
//! * `table`, `walk`, `roots`: hash index, walks over it, root words in DRAM.
//! * `probe`, `stripe`: lookups of writers, writer locks.
//! * `split`, `split_tests`: growth by segment splits, and its tests.
//! * `extents`, `unnamed`: checks of the extent table, and of segments that no directory names.
//! * `careful_lookup`: known damage to the index; the check of misses.
//! * `tree_op`, `trees`: changes of the tree; the B+-trees in DRAM.
//! * `sampler`, `adapt`: operation counts and latencies; the number of backend threads.
//! * `backend`: updating queues (the tree's work queues), their threads, and the tree's rebuild.
//! * `run`: the tree's sorted run at close.
//! * `paper_wal` (feature `lab`): the paper's HiKV_wal.
//! * `open_store`, `stats`: shared state of an open store; statistics.
//! * `read`, `write`, `batch`: operations on single keys; batches.
//! * `scan`, `sweep`: walks, removal of expired keys.
//! * `recovery_walk`, `recover`, `verify`: recovery walk, recovery while serving, verification.
//! * [`planted`]: planted faults.
//! * `store`: opening and stop.
#![forbid(unsafe_code)]

mod adapt;
mod backend;
mod batch;
mod careful_lookup;
mod entry;
mod extents;
mod hash;
mod layout;
mod modes;
mod open_store;
mod options;
#[cfg(feature = "lab")]
mod paper_wal;
#[doc(hidden)]
pub mod planted;
mod probe;
mod read;
mod record;
mod recover;
mod recovery_walk;
mod roots;
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
mod unnamed;
mod verify;
mod walk;
mod write;

pub use layout::{ENGINE, FORMAT};
pub use options::{Backends, HiKvOptions, HikvSettings};
pub use stats::HikvStats;
pub use store::HiKv;
