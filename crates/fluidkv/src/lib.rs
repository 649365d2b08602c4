//! FluidKV engine (VLDB 2024): an LSM tree with a write-ahead log per thread.
//!
//! The engine is for data larger than DRAM, many writes, ordered scans and snapshots. Its three
//! stages are the paper's:
//!
//! * **FastStore** (the memtable stage): each thread appends to its own log. One ordered index
//!   covers all logs of a memtable (`memtable.rs`).
//! * **BufferStore** (the runs): a flush turns a frozen memtable into one sorted run per range of
//!   the key space (`flush.rs`).
//! * **StableStore** (the sorted level): one level, partitioned into ranges. A compaction covers
//!   one range (`compact.rs`, `migrate.rs`).
//!
//! A write is one durable append with one fence; a large value has one more. On ordinary files, one
//! sync covers all waiting writers (`commit.rs`). The manifest records which tables, ranges and
//! value segments exist (`publisher.rs`). Recovery finds the logs by their extent kind
//! (`recover.rs`). An engine on top of this one may keep values outside the tables (`separate.rs`).
//! The formats are described in `docs/format/fluidkv.md`.
//!
//! # Guarantees
//! * Single-key operations are durably linearizable. At durability `interval`, a crash leaves a
//!   prefix of the writes.
//! * A batch is one log record: it is applied completely or not at all, also across a crash.
//! * A scan or snapshot shows all keys as of one moment.
//! * Readers acquire no lock (`view.rs`). A lookup waits only while a batch that may hold its key
//!   enters the index.
//! * Puts leave the space reserve free, for deletes, flushes and compactions in a full store
//!   (`reserve.rs`).
//! * With `VerifyReads::On`, each read verifies all checksums that its result depends on.
//! * A store with a damaged manifest or extent table is refused. Salvage reads such a store and
//!   never writes to it.
//!
//! # Modules
//! * `layout`, `entry`, `segment`: root area, log entries, log segments.
//! * `table`: format of sorted tables: builder, reader, filter.
//! * `options`, `sizes`: options; sizes of a store's parts.
//! * `counts`, `gauge`: counters of work; DRAM of tables.
//! * `pace`, `failures`, `background`: backpressure, failed tasks, state of background work.
//! * `key_filter`, `memtable`: DRAM filter of a memtable; memtables with their write-ahead logs.
//! * `manifest`, `tables`: log of tables, ranges, value segments; handles of tables.
//! * `value_log`: value segments.
//! * `separator`: the interface of an engine that keeps values outside the tables.
//! * `dram`, `reserve`: account of DRAM; space reserve.
//! * `locks`, `view`, `publisher`: writer order and stripes, versions, publication of versions.
//! * `shared_log`: the log that all threads share on ordinary files.
//! * `inner`, `budget`: shared state of an open store; application of the DRAM budget.
//! * `cursor`, `output`: merged ordered walks; writing of tables.
//! * `commit`: group commit on ordinary files.
//! * `read`, `write`, `large_values`, `batch`, `scan`: the operations.
//! * `separate`, `replace`: value separation at a flush, for engines on top.
//! * `flush`, `compact`, `expired`: memtable flush, compaction, merges of expired pairs.
//! * `collect`: garbage collection of the value log.
//! * `migrate`, `adapt`: choice of the next flush or compaction; adaptation to the workload.
//! * `recover`: recovery and salvage.
//! * `verify`, `scrub`: verification of the whole store, at once or piecewise.
//! * `running`: an open store with its threads, and its end.
//! * `store`: opening, closing, and the operations of the contract.
//! * `testing` (feature): counters for tests.
#![forbid(unsafe_code)]

mod adapt;
mod background;
mod batch;
mod budget;
mod collect;
mod commit;
mod compact;
mod counts;
mod cursor;
mod dram;
mod entry;
mod expired;
mod failures;
mod flush;
mod gauge;
mod inner;
mod key_filter;
mod large_values;
mod layout;
mod locks;
mod manifest;
mod memtable;
mod migrate;
mod options;
mod output;
mod pace;
mod publisher;
mod read;
mod recover;
mod replace;
mod reserve;
mod running;
mod scan;
mod scrub;
mod segment;
mod separate;
mod separator;
mod shared_log;
mod sizes;
mod store;
mod table;
mod tables;
mod tree;
mod value_log;
mod verify;
mod view;
mod write;

pub use batch::{Conditions, IsMet, IsPresent};
pub use options::{Compression, FluidOptions, FluidkvSettings, VerifyReads};
pub use replace::Replace;
pub use separator::{Separable, Separator};
pub use store::FluidKv;
pub use store::stats::FluidkvStats;

/// The engine's name in options and pool headers.
pub const ENGINE: &str = layout::ENGINE;
/// Version of the engine's format.
pub const FORMAT: u32 = layout::FORMAT;

/// Counters for tests.
#[cfg(feature = "testing")]
pub mod testing {
    /// Returns the number of versions that the calling thread has read in memtables: by scans, and
    /// by lookups that pass newer versions.
    #[must_use]
    pub fn versions_read() -> u64 {
        crate::memtable::visits::count()
    }
}
