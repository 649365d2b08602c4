//! Shards: per thread slot, the slabs that its records come from.
//!
//! A shard's mutex guards its lists and all slabs that name it as owner. One thread uses one shard.
//! The mutex is therefore uncontended, except for records that another thread frees, which arrive
//! in batches. Lock order: recovery, then shard (never two, except for `verify`, which locks all in
//! ascending order), then space.

use std::collections::VecDeque;

use super::ChunkPosition;

/// Shards for threads. A thread slot uses the shard of its number modulo this.
pub(super) const SHARD_COUNT: usize = 64;
/// The shard of slabs without a thread: those found at open.
pub(super) const ORPHAN_SHARD_INDEX: u16 = SHARD_COUNT as u16;

/// A shard's slabs of one class.
#[derive(Default)]
pub(super) struct ClassSlabs {
    /// The slab that slots come from now (`HELD_FLAG`).
    pub(super) current: Option<ChunkPosition>,
    /// Slabs with free slots (`LISTED_FLAG`). An entry whose slab is no longer listed, or has
    /// another owner, is stale and skipped. The slab listed longest comes first: it has accumulated
    /// the most free slots, so neighbouring slots are allocated together.
    pub(super) partial: VecDeque<ChunkPosition>,
    /// Empty slabs in the list with `KEPT_FLAG`.
    pub(super) kept: u32,
    /// The next record shall come from a new slab, if available: this shard's own slabs are in a
    /// worn segment.
    pub(super) wants_new_slab: bool,
}

#[derive(Default)]
pub(super) struct Shard {
    /// By class; created at first use.
    pub(super) classes: Vec<ClassSlabs>,
}

impl Shard {
    /// Returns the slabs of a class; `classes` is the total number of classes.
    #[inline]
    pub(super) fn class(&mut self, class: u16, classes: usize) -> &mut ClassSlabs {
        if self.classes.is_empty() {
            self.classes.resize_with(classes, ClassSlabs::default);
        }
        &mut self.classes[usize::from(class)]
    }

    pub(super) fn dram_bytes(&self) -> usize {
        let lists: usize = self.classes.iter().map(|class| class.partial.capacity() * size_of::<ChunkPosition>()).sum();
        self.classes.capacity() * size_of::<ClassSlabs>() + lists
    }
}
