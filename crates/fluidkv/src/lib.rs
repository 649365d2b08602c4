//! FluidKV engine (PVLDB 2024): an LSM tree with a write-ahead log per thread.
//!
//! The engine is for data larger than DRAM, many writes, ordered scans and snapshots. Its three
//! stages are the paper's:
//!
//! * **FastStore** (the memtable stage): each thread appends to its own log. One ordered index
//!   covers all logs of a memtable (`wal/writer.rs`, `memtable/mod.rs`).
//! * **BufferStore** (the runs): a flush turns a frozen memtable into one sorted run per range of
//!   the key space (`background/flush.rs`).
//! * **StableStore** (the sorted level): one level, partitioned into ranges. A compaction covers
//!   one range (`background/compact.rs`, `background/mod.rs`).
//!
//! A write is one durable append with one fence; a large value has one more. On ordinary files, one
//! sync covers all waiting writers (`tree/group_commit.rs`). The manifest records which tables,
//! ranges and value segments exist (`version/publish.rs`). Recovery finds the logs by their extent
//! kind (`db/recover.rs`). An engine on top of this one may keep values outside the tables
//! (`background/separate.rs`). The formats are described in `docs/format/fluidkv.md`.
//!
//! # Guarantees
//! * Single-key operations are durably linearizable. At durability `interval`, a crash leaves a
//!   prefix of the writes.
//! * A batch is one log record: it is applied completely or not at all, also across a crash.
//! * A scan or snapshot shows all keys as of one moment.
//! * Readers acquire no lock (`version/view.rs`). A lookup waits only while a batch that may hold
//!   its key enters the index.
//! * Puts leave the space reserve free, for deletes, flushes and compactions in a full store
//!   (`space/reserve.rs`).
//! * With `VerifyReads::On`, each read verifies all checksums that its result depends on.
//! * A store with a damaged manifest or extent table is refused. Salvage reads such a store and
//!   never writes to it.
//!
//! # Modules
//! The modules are layers: each imports only modules above it in this list.
//! * `layout`: root area.
//! * `sst`: sorted tables: blocks, builder, index, filter, reader, cursor, verification.
//! * `options`: options of a store.
//! * [`planted`]: planted faults.
//! * `space`: the ledger of space: reserve, sizes, DRAM budget.
//! * `wal`: write-ahead log: entries, batch records, segments, writer, reader, group commit.
//! * `values`: value log, placement of values, interface of an engine that keeps them elsewhere.
//! * `memtable`: index over the positions of log entries, key filter.
//! * `version`: ranges and table handles, the view of readers, manifest, publication, cursors.
//! * `tree`: the parts of an open store; order of writers, batches, commit of groups.
//! * `background`: scheduler, policy, flush, compaction, expiry, GC, throttle, failures.
//! * `db`: open, recovery, salvage, reads, writes, scans, close, statistics, verification.
//! * `embedding`: the interface for an engine built on this one.
//! * `testing` (feature): counters for tests.
#![forbid(unsafe_code)]

mod background;
mod db;
mod layout;
mod memtable;
mod options;
#[doc(hidden)]
pub mod planted;
mod space;
mod sst;
mod tree;
mod values;
mod version;
mod wal;

pub use db::stats::FluidkvStats;
pub use db::store::FluidKv;
pub use options::{Compression, FluidOptions, FluidkvSettings, VerifyReads};

/// The interface for an engine built on this one, which keeps values outside of the tables
/// (HashKV). The methods of [`FluidKv`] for such an engine use these types.
pub mod embedding {
    pub use crate::db::batch::{Conditions, IsMet, IsPresent};
    pub use crate::db::replace::Replace;
    pub use crate::values::separator::{Separable, Separator};
}

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
