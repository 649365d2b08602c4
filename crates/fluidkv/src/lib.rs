//! The FluidKV engine (FluidKV, VLDB 2024): data larger than DRAM, ordered scans, and writes at the
//! speed of a per-thread log.
//!
//! * **FastStore** (the memtable stage): each thread appends to its own log. One ordered index
//!   covers all logs of a memtable (`memtable.rs`).
//! * **BufferStore** (the runs): a flush turns a frozen memtable into one sorted run per range of
//!   the key space (`flush.rs`).
//! * **StableStore** (the sorted level): one level, partitioned into ranges. A compaction covers
//!   one range (`compact.rs`, `migrate.rs`).
//!
//! A write is one durable append with one fence. On ordinary files, one sync covers all waiting
//! writers (`commit.rs`). The manifest records which tables, ranges and value segments exist
//! (`publisher.rs`). Recovery finds the logs by their extent kind (`recover.rs`). Readers acquire
//! no lock (`view.rs`). An engine built on this one may keep values outside the tables
//! (`separate.rs`). The formats are described in `docs/format/fluidkv.md`.
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
