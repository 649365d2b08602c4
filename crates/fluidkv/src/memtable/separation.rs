//! The state that a memtable keeps for a separator (`background/separate.rs`): the stored
//! replacements of its values, and the entries that `replace` wrote in place of others.
//!
//! Invariants
//! 1. One flush at a time removes `separated`, and puts it back if it fails. While the memtable
//!    lives, no value is separated twice.
//! 2. An entry is in `moved` before its writer is done (`tree/sequence.rs`). After a `quiesce`,
//!    `moved` is complete.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use lodestore_contract::threads::lock;

use super::{Memtable, Records};

/// The separator's state of one memtable. See the module.
#[derive(Default)]
pub(crate) struct SeparationState {
    separated: Mutex<Separated>,
    /// DRAM bytes of the separated values, regardless of their holder.
    separated_dram: AtomicU64,
    /// Positions of entries that `replace` wrote.
    moved: Mutex<Vec<u64>>,
    moved_dram: AtomicU64,
}

impl SeparationState {
    /// Removes and returns the values separated so far, for a flush that puts them back if it
    /// fails.
    pub(crate) fn take_separated(&self) -> Separated {
        std::mem::take(&mut lock(&self.separated))
    }

    pub(crate) fn put_back(&self, separated: Separated) {
        *lock(&self.separated) = separated;
    }

    /// Records the DRAM of `separated`; 0 once it is dropped.
    pub(crate) fn note_dram(&self, bytes: u64) {
        self.separated_dram.store(bytes, Ordering::Relaxed);
    }

    /// Records entries that `replace` wrote. Called by a write in progress.
    pub(crate) fn note_moved(&self, positions: &[u64]) {
        let mut moved = lock(&self.moved);
        moved.extend_from_slice(positions);
        self.moved_dram.store((moved.capacity() * size_of::<u64>()) as u64, Ordering::Relaxed);
    }

    /// Returns the entries that `replace` wrote, and forgets them.
    pub(crate) fn take_moved(&self) -> Vec<u64> {
        self.moved_dram.store(0, Ordering::Relaxed);
        std::mem::take(&mut lock(&self.moved))
    }

    #[inline]
    pub(super) fn dram_bytes(&self) -> u64 {
        self.separated_dram.load(Ordering::Relaxed) + self.moved_dram.load(Ordering::Relaxed)
    }
}

/// The stored replacements of values of one memtable, in key order.
#[derive(Default)]
pub(crate) struct Separated {
    /// The position of each entry, and where its bytes end in `bytes`.
    positions: Vec<(u64, usize)>,
    bytes: Vec<u8>,
    /// The last key examined. The results for it and for all keys before it are here.
    pub(crate) last: Option<Vec<u8>>,
    /// No key follows `last`.
    pub(crate) is_complete: bool,
}

impl Separated {
    /// Adds the stored replacement of the value of the entry at `at`. Its key is above all earlier
    /// ones.
    pub(crate) fn add(&mut self, at: u64, stored: &[u8]) {
        self.bytes.extend_from_slice(stored);
        self.positions.push((at, self.bytes.len()));
    }

    /// Returns a walk that runs along with a walk over the memtable's keys from `lower` on.
    pub(crate) fn from(&self, memtable: &Memtable, lower: &[u8]) -> SeparatedCursor<'_> {
        let records = Records(memtable.pool());
        let below = |(at, _): &(u64, usize)| records.entry(*at).is_ok_and(|entry| entry.key() < lower);
        SeparatedCursor { separated: self, next: self.positions.partition_point(below) }
    }

    pub(crate) fn dram_bytes(&self) -> u64 {
        (self.positions.capacity() * size_of::<(u64, usize)>() + self.bytes.capacity()) as u64
    }
}

/// See [`Separated::from`].
pub(crate) struct SeparatedCursor<'a> {
    separated: &'a Separated,
    next: usize,
}

impl<'a> SeparatedCursor<'a> {
    /// Returns the stored replacement of the value of the entry at `at`, if there is one. Called
    /// for each entry, in key order.
    #[inline]
    pub(crate) fn stored_of(&mut self, at: u64) -> Option<&'a [u8]> {
        let Separated { positions, bytes, .. } = self.separated;
        let (_, end) = *positions.get(self.next).filter(|(place, _)| *place == at)?;
        let begin = self.next.checked_sub(1).map_or(0, |before| positions[before].1);
        self.next += 1;
        Some(&bytes[begin..end])
    }
}
