//! Shards: per thread slot, the slabs from which its records come.
//!
//! A shard's mutex guards its lists and all slabs that name it as owner. One thread uses one shard, so the mutex is
//! uncontended but for records that another thread frees, which come in batches.
//! Lock order: recovery, then shard (never two, but for `verify`, which takes all in ascending order), then space.

use std::collections::VecDeque;

use super::Place;

/// Shards for threads. A thread slot uses the one of its number modulo this.
pub(super) const SHARDS: usize = 64;
/// The shard of slabs without a thread: those found at open.
pub(super) const ORPHANS: u16 = SHARDS as u16;

/// What a shard has of one class.
#[derive(Default)]
pub(super) struct ClassSlabs {
    /// The slab that slots come from now (`HELD`).
    pub(super) current: Option<Place>,
    /// Slabs with free slots (`LISTED`). An entry whose slab is not listed any more, or is another's, is stale: dropped when met.
    /// The longest listed comes first: it has gathered the most free slots, so slots near each other are handed out together.
    pub(super) partial: VecDeque<Place>,
    /// Empty slabs in the list that were `KEPT`.
    pub(super) kept: u32,
    /// The next record shall come from a fresh slab, if there is one: this shard's own lie in a segment that is worn.
    pub(super) fresh: bool,
}

/// One shard.
#[derive(Default)]
pub(super) struct Shard {
    /// By class; made at first use.
    pub(super) classes: Vec<ClassSlabs>,
}

impl Shard {
    /// What it has of a class; `classes` is the number of all.
    #[inline]
    pub(super) fn class(&mut self, class: u16, classes: usize) -> &mut ClassSlabs {
        if self.classes.is_empty() {
            self.classes.resize_with(classes, ClassSlabs::default);
        }
        &mut self.classes[usize::from(class)]
    }

    pub(super) fn dram_bytes(&self) -> usize {
        let lists: usize = self.classes.iter().map(|class| class.partial.capacity() * size_of::<Place>()).sum();
        self.classes.capacity() * size_of::<ClassSlabs>() + lists
    }
}
