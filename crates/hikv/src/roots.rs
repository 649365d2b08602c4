//! The root words of an open store, in DRAM.
//!
//! Lookups use these and not the words of the medium: a root word that changes on the medium while
//! the store is open misleads no lookup. An open fills the table with words that it has checked. A
//! doubling of a directory changes a word after its copy on the medium is durable.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::hash::PARTITIONS_MAX;
use crate::layout::Deep;

/// The directory of each partition.
pub(crate) struct Roots([AtomicU64; PARTITIONS_MAX as usize]);

impl Roots {
    pub(crate) fn new() -> Self {
        Self([const { AtomicU64::new(0) }; PARTITIONS_MAX as usize])
    }

    /// Returns the directory of a partition.
    #[inline]
    pub(crate) fn load(&self, partition: usize) -> Deep {
        Deep::unpack(self.0[partition].load(Ordering::Acquire))
    }

    /// Sets the directory of a partition.
    pub(crate) fn store(&self, partition: usize, directory: Deep) {
        self.0[partition].store(directory.to_word(), Ordering::Release);
    }
}
