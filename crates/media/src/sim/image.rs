//! How a simulated pool is made, and what a crash leaves of it.

use crate::mutant::Mutant;
use crate::sim::event::Verb;
use crate::sim::file::{FailingCall, VALUES};

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
    /// The call to the values file that fails, counted from the pool's beginning, if one does.
    pub failing_call: Option<FailingCall>,
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
            failing_call: None,
        }
    }
}

/// What a crash left: the bytes of every region and of the values file, and how the pool opened from it shall behave.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SimImage {
    /// Regions by index.
    pub regions: Vec<Vec<u8>>,
    /// The values file beside them; empty where none was made, which is the same to whoever opens it.
    pub values: Vec<u8>,
    /// Behaviour of a pool opened from it.
    pub spec: SimSpec,
}

impl SimImage {
    /// The bytes of a region, or of the values file.
    pub(super) fn bytes(&self, region: u16) -> &[u8] {
        if region == VALUES { &self.values } else { &self.regions[usize::from(region)] }
    }

    /// The same, to be changed.
    pub(super) fn bytes_mut(&mut self, region: u16) -> &mut [u8] {
        if region == VALUES { &mut self.values } else { &mut self.regions[usize::from(region)] }
    }
}
