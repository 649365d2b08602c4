//! What a memtable remembers for a separator ([`crate::separate`]): what its values were separated to, and which of its entries took the place of another's bytes by
//! `replace`.
//!
//! Invariants
//! 1. `separated` is taken by the flush, one at a time, and put back where that fails: what was separated is not separated again while the memtable lives.
//! 2. An entry is in `moved` before its writer is done (`locks.rs`), so behind a `quiesce` all are there.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use super::{Memtable, Records};
use crate::inner::lock;

/// See the module.
#[derive(Default)]
pub(crate) struct Apart {
    separated: Mutex<Separated>,
    /// Bytes of DRAM of what was separated, whoever has it.
    separated_dram: AtomicU64,
    /// Positions of entries that `replace` wrote.
    moved: Mutex<Vec<u64>>,
    moved_dram: AtomicU64,
}

impl Apart {
    /// What was separated so far, for a flush that gives it back where it fails.
    pub(crate) fn take(&self) -> Separated {
        std::mem::take(&mut lock(&self.separated))
    }

    pub(crate) fn give_back(&self, separated: Separated) {
        *lock(&self.separated) = separated;
    }

    /// Takes note of what `separated` takes now; 0 when it is no more.
    pub(crate) fn note_dram(&self, bytes: u64) {
        self.separated_dram.store(bytes, Ordering::Relaxed);
    }

    /// Takes note of entries that `replace` wrote; by a write under way.
    pub(crate) fn note_moved(&self, places: &[u64]) {
        let mut moved = lock(&self.moved);
        moved.extend_from_slice(places);
        self.moved_dram.store((moved.capacity() * size_of::<u64>()) as u64, Ordering::Relaxed);
    }

    /// The entries that `replace` wrote, which are forgotten with this.
    pub(crate) fn take_moved(&self) -> Vec<u64> {
        self.moved_dram.store(0, Ordering::Relaxed);
        std::mem::take(&mut lock(&self.moved))
    }

    #[inline]
    pub(super) fn dram_bytes(&self) -> u64 {
        self.separated_dram.load(Ordering::Relaxed) + self.moved_dram.load(Ordering::Relaxed)
    }
}

/// What stands in the tables for values of one memtable, in the order of their keys.
#[derive(Default)]
pub(crate) struct Separated {
    /// The position of each entry, and where its bytes end in `bytes`.
    places: Vec<(u64, usize)>,
    bytes: Vec<u8>,
    /// The last key that was looked at: what is to be known of it and of those before it is here.
    pub(crate) last: Option<Vec<u8>>,
    /// There is no key behind `last`.
    pub(crate) is_complete: bool,
}

impl Separated {
    /// Adds what stands for the value of the entry at `at`, whose key is above all before.
    pub(crate) fn add(&mut self, at: u64, stored: &[u8]) {
        self.bytes.extend_from_slice(stored);
        self.places.push((at, self.bytes.len()));
    }

    /// A walk along with one over the memtable's keys from `lower` on.
    pub(crate) fn from(&self, memtable: &Memtable, lower: &[u8]) -> Along<'_> {
        let records = Records(memtable.pool());
        let below = |(at, _): &(u64, usize)| records.entry(*at).is_ok_and(|entry| entry.key() < lower);
        Along { separated: self, next: self.places.partition_point(below) }
    }

    pub(crate) fn dram_bytes(&self) -> u64 {
        (self.places.capacity() * size_of::<(u64, usize)>() + self.bytes.capacity()) as u64
    }
}

/// See [`Separated::from`].
pub(crate) struct Along<'a> {
    separated: &'a Separated,
    next: usize,
}

impl<'a> Along<'a> {
    /// What stands for the value of the entry at `at`, if anything does. Asked for each entry, in the order of the keys.
    #[inline]
    pub(crate) fn stored_of(&mut self, at: u64) -> Option<&'a [u8]> {
        let Separated { places, bytes, .. } = self.separated;
        let (_, end) = *places.get(self.next).filter(|(place, _)| *place == at)?;
        let begin = self.next.checked_sub(1).map_or(0, |before| places[before].1);
        self.next += 1;
        Some(&bytes[begin..end])
    }
}
