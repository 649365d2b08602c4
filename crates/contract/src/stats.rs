//! What a store tells of itself.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::durability::Durability;

/// Bytes on the medium.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MediumUse {
    /// Bytes of the regions that exist.
    pub size: u64,
    /// Most bytes the store may grow to.
    pub capacity: u64,
    /// Bytes in live records and index structures, with their rounding.
    pub live: u64,
    /// Bytes that hold nothing live and cannot be handed out yet.
    pub dead: u64,
    /// Bytes that can be handed out.
    pub free: u64,
}

/// How far recovery has come.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct RecoveryState {
    /// Whether everything is rebuilt.
    pub done: bool,
    /// Share done, 0 to 1.
    pub share: f64,
    /// Keys found so far.
    pub keys: u64,
    /// Things found wrong: entries, records and places in use, be they mended, left where they are, or left out.
    /// What of it is still wrong is told by [`Store::verify`](crate::Store::verify).
    pub corrupt: u64,
    /// Entries among them whose records no scan and no walk shows, since they could not be read or did not fit their entry.
    pub left_out: u64,
    /// From `open` to the first operation that could be served.
    pub ready_after: Duration,
    /// From `open` to the end of recovery; zero until then.
    pub took: Duration,
}

/// A store's own account, cheap enough to take each second.
#[derive(Debug, Clone, Default)]
pub struct Stats {
    /// The engine's name.
    pub engine: &'static str,
    /// What the medium is: `dax`, `shm`, `file`, `sim`, with its particulars.
    pub medium: String,
    /// The durability that is really given.
    pub durability: Durability,
    /// Live keys, by a count that may trail the newest writes; [`Store::len`](crate::Store::len) is exact.
    pub keys: u64,
    /// DRAM of the store's own structures, in bytes, fixed part included.
    pub dram_bytes: u64,
    /// The fixed part of `dram_bytes`: what an empty store takes.
    pub dram_fixed_bytes: u64,
    /// The budget set for `dram_bytes`; 0 for none.
    pub dram_budget_bytes: u64,
    /// Use of the medium.
    pub space: MediumUse,
    /// Cache lines (or pages) flushed since open.
    pub flushes: u64,
    /// Fences (or syncs) executed since open.
    pub fences: u64,
    /// Bytes stored to the medium since open.
    pub bytes_written: u64,
    /// Recovery.
    pub recovery: RecoveryState,
    /// Counters of the engine's own, by name.
    pub engine_counters: BTreeMap<&'static str, u64>,
}
