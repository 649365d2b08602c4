//! The FluidKV engine (FluidKV, VLDB 2024): data larger than DRAM, ordered scans, writes at the speed of a thread's own log.
//!
//! * **FastStore**: each thread appends to its own log; one ordered index over all logs of a memtable (`memtable.rs`).
//! * **BufferStore**: a frozen memtable becomes a sorted run in each range of the key space (`flush.rs`).
//! * **StableStore**: one sorted level by ranges; a compaction takes one range (`compact.rs`, `migrate.rs`).
//!
//! A write is one durable append, one fence; on ordinary files one for all who wait (`commit.rs`). What is where is said by the manifest (`publisher.rs`); what the logs hold is found by their kind
//! (`recover.rs`). Readers take no lock (`view.rs`). An engine that stands on this one may keep values apart from the tables (`separate.rs`). The formats are in `docs/format/fluidkv.md`.
#![forbid(unsafe_code)]

mod adapt;
mod batch;
mod commit;
mod compact;
mod cursor;
mod dram;
mod entry;
mod expired;
mod failures;
mod flush;
mod inner;
mod key_filter;
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
mod scan;
mod scrub;
mod segment;
mod separate;
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
pub use separate::{Separable, Separator};
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
