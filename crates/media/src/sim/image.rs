//! The behaviour of a simulated pool, and the content that a crash leaves.

use crate::fault::PlantedFault;
use crate::sim::event::Verb;
use crate::sim::file::{FailingCall, VALUES};

/// A call site whose flushes or fences are lost.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DropSite {
    /// [`Verb::Flush`] or [`Verb::Fence`].
    pub verb: Verb,
    /// Source file, as the compiler names it.
    pub file: String,
    /// Line in the file.
    pub line: u32,
}

/// The behaviour of a simulated pool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SimSpec {
    /// Bytes that persist independently of others: [`LINE`](crate::sim::LINE) for a cache,
    /// [`SECTOR`](crate::sim::SECTOR) for the pages of a regular file. A power of two, 16 to 4096.
    pub grain: u32,
    /// Every store is durable at once (caches that persist, or a crash of the process only):
    /// flushes and fences then do nothing.
    pub stores_persist: bool,
    /// Records from the start; can be switched later.
    pub record: bool,
    /// The planted fault, if any.
    pub mutant: Option<PlantedFault>,
    /// The call site whose flushes or fences are lost, if any.
    pub drop_site: Option<DropSite>,
    /// The number of the failing fence from the pool's beginning, as for
    /// [`Recorder::fail_fence`](crate::sim::Recorder::fail_fence); 0: none.
    pub failing_fence: u64,
    /// The failing call to the values file, counted from the pool's beginning, if any.
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

/// The state after a crash: the bytes of every region and of the values file, and the behaviour of
/// a pool opened from it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SimImage {
    /// Regions by index.
    pub regions: Vec<Vec<u8>>,
    /// The values file next to them; empty if it was not created, which an open cannot distinguish.
    pub values: Vec<u8>,
    /// Behaviour of a pool opened from the image.
    pub spec: SimSpec,
}

impl SimImage {
    /// Returns the bytes of a region, or of the values file.
    pub(super) fn bytes(&self, region: u16) -> &[u8] {
        if region == VALUES { &self.values } else { &self.regions[usize::from(region)] }
    }

    /// Like [`Self::bytes`], mutable.
    pub(super) fn bytes_mut(&mut self, region: u16) -> &mut [u8] {
        if region == VALUES { &mut self.values } else { &mut self.regions[usize::from(region)] }
    }
}
