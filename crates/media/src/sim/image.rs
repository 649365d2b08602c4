//! How a simulated pool is made, and what a crash leaves of it.

use crate::mutant::Mutant;
use crate::sim::event::Verb;

/// A call site whose flushes or fences are to be lost.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DropSite {
    /// [`Verb::Flush`] or [`Verb::Fence`].
    pub verb: Verb,
    /// Source file, as the compiler names it.
    pub file: String,
    /// Line in it.
    pub line: u32,
}

/// How a simulated pool behaves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SimSpec {
    /// Bytes that persist independently of others: [`LINE`](crate::sim::LINE) for a cache, [`SECTOR`](crate::sim::SECTOR)
    /// for the pages of an ordinary file. A power of two, 16 to 4096.
    pub grain: u32,
    /// Every store is durable at once (caches that persist, or a crash of the process only): then flushes and fences do nothing.
    pub stores_persist: bool,
    /// Record from the start; it can be switched later.
    pub record: bool,
    /// The fault that is planted, if any.
    pub mutant: Option<Mutant>,
    /// The call site whose flushes or fences are lost, if any.
    pub drop_site: Option<DropSite>,
    /// Which fence from the pool's beginning fails, as by [`Recorder::fail_fence`](crate::sim::Recorder::fail_fence); 0: none.
    pub failing_fence: u64,
}

impl Default for SimSpec {
    fn default() -> Self {
        Self {
            grain: crate::sim::LINE,
            stores_persist: false,
            record: true,
            mutant: None,
            drop_site: None,
            failing_fence: 0,
        }
    }
}

/// What a crash left: the bytes of every region, and how the pool opened from it shall behave.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SimImage {
    /// Regions by index.
    pub regions: Vec<Vec<u8>>,
    /// Behaviour of a pool opened from it.
    pub spec: SimSpec,
}
