//! HashKV engine (USENIX ATC 2018): an LSM tree with large values separated into hash groups.
//!
//! Keys and small values are in an LSM tree ([`lodestore_fluidkv`]). Large values are in segments
//! of a values file, grouped by the hash of their keys.
//!
//! A write goes to the LSM with its value: the thread's log is both write-ahead log and cache. A
//! memtable flush writes large values to their groups' segments, in whole blocks, and the tables
//! hold pointers (`separator.rs`). GC of a group that is mostly garbage reads only that group
//! (`gc.rs`). The LSM alone determines which bytes are live and which segments are free
//! (`recover.rs`). The formats are in `docs/format/hashkv.md`.
//!
//! # Guarantees
//! * Single-key operations, batches, scans and snapshots have the guarantees of
//!   [`lodestore_fluidkv`]. Durability `interval` is not supported.
//! * A pointer is stored only after its value; at `power` a sync of the values file comes between.
//!   A durable pointer therefore names a durable value.
//! * A segment is reused only if no durable pointer names it and no reader of an older state is
//!   left.
//! * Readers of the values file acquire no lock. Each read verifies the checksum of its record,
//!   which covers the position.
//! * GC replaces a pointer only if it is still the copied one. A collection never resurrects a
//!   deleted or overwritten value.
//!
//! # Modules
//! * `layout`, `options`: bytes of the values file and pointers; options.
//! * `modes` (feature `lab`): the baselines of the paper.
//! * [`planted`]: planted faults.
//! * `gc_rate`, `stats`: rate limit of collections; statistics.
//! * `space`: segments and groups, with their live bytes.
//! * `open_number`: the number that ties the values file to the pool.
//! * `values`, `read`: the values file; reads from LSM entry to value.
//! * `append`: writes of values to groups and to cold storage.
//! * `gc`, `space_management`: group-based GC; space shared with the LSM.
//! * `admission`, `late_separation`: admission of values; separation of values after their flush.
//! * `separator`: the interface for FluidKV's flushes.
//! * `window`, `scan`: batched reads of values; walks and snapshots.
//! * `recover`: opening: values file, LSM, account of live bytes.
//! * `superblock`: writes and rebuilds the superblock of the values file.
//! * `verify`: verification of the LSM and all values.
//! * `running`: an open store with its collector thread, and their end.
//! * `store`: opening, closing, and the operations of the contract.
//! * `fuzz` (feature): parsers for the fuzz targets.
//!
//! # Signals
//! Unless the option `mapped` is off, the first store of a process sets a SIGBUS handler. The
//! file's cached pages are read through a mapping, and the handler turns a failing medium into an
//! error instead of ending the process. Signals outside a mapping are passed to the handler that
//! was set before. A handler that is set later must pass signals that are not its own to this
//! handler.
#![forbid(unsafe_code)]

mod admission;
mod append;
#[cfg(feature = "fuzz")]
pub mod fuzz;
mod gc;
mod gc_rate;
mod late_separation;
mod layout;
#[cfg(feature = "lab")]
mod modes;
mod open_number;
mod options;
#[doc(hidden)]
pub mod planted;
mod read;
mod recover;
mod running;
mod scan;
mod separator;
mod space;
mod space_management;
mod stats;
mod store;
mod superblock;
mod values;
mod verify;
mod window;

#[cfg(feature = "lab")]
pub use modes::Mode;
pub use options::{HashKvOptions, HashkvSettings};
pub use stats::HashkvStats;
pub use store::HashKv;

/// The engine's name in options and pool headers.
pub const ENGINE: &str = layout::ENGINE;
/// Version of the pool's format: the LSM's. The values file has its own version.
pub const FORMAT: u32 = lodestore_fluidkv::FORMAT;
