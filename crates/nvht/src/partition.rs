//! Partitions: the mapping of keys to tables while tables grow.
//!
//! The partition's root on the medium (`layout.rs`) is authoritative. This is its copy for lookups,
//! changed only after the root is durable.
//!
//! Invariants:
//! 1. While `next` is 0 all keys are in `current`. Otherwise keys with fractions below the cursor
//!    are in `next`, all others in `current`.
//! 2. Only the holder of `growing` changes the three words. To begin: cursor 0, then `next`. To
//!    end: `current`, then `next` to 0. In between the cursor only grows.
//! 3. A table is freed after no word names it, durably, and after its readers have ended (epochs).
//!
//! A reader loads `next`, the cursor, `next` again, and then `current` if needed (`table_for`). If
//! `next` was 0, a `current` loaded later is of the same moment or newer. If `next` was nonzero and
//! equal before and after the load of the cursor, the cursor is that table's. A table cannot become
//! `next` twice while the reader's guard keeps its extent. The reader therefore finds the table to
//! which its key belonged at some moment since the read began. A miss counts only if the key still
//! belongs there (`read.rs`).

use std::sync::Mutex;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use lodestore_contract::{Error, Result};
use lodestore_media::{NvPtr, Pool};

use crate::layout::{CURSOR_MAX, LINE_BYTES, LINE_SLOTS, LINES_MAX, Root, Superblock, TableHeader, TableStage};
use crate::stripe::STRIPES;
use crate::table::Table;

/// Maximum share of the longest region for a table's home lines: slots must be able to name records
/// in the rest of the region.
const TABLE_SHARE_DIVISOR: u64 = 2;
/// Bits of a table's word that count its doublings.
const DOUBLINGS_MASK: u64 = 63;

/// A partition, on cache lines of its own.
#[repr(align(128))]
pub(crate) struct Partition {
    current: AtomicU64,
    next: AtomicU64,
    cursor: AtomicU64,
    first_lines: u64,
    probe: u32,
    salt: u64,
    /// Home lines of the longest table.
    lines_max: u64,
    /// Keys per stripe at which its table is due to grow, if all stripes are equal.
    due_keys: AtomicU64,
    load: u64,
    /// Keys when the stripes' counts were last set; below 0 if unknown.
    pub(crate) keys_before: AtomicI64,
    /// Held by the thread that grows the table.
    pub(crate) growing: Mutex<()>,
    /// Number of keys at which the next attempt to grow is due, after an attempt without space.
    pub(crate) retry_at_keys: AtomicU64,
    /// Lines stored that are accounted to the medium's segments.
    pub(crate) lines_accounted: AtomicU64,
}

/// The checked content of a partition's root.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LoadedRoot {
    pub(crate) current: u64,
    pub(crate) next: u64,
    pub(crate) cursor: u64,
    pub(crate) keys: Option<u64>,
}

/// Returns the seed of the checks of a table's lines, from the partition's seed.
#[inline]
fn salt_of(partition_salt: u64, lines: u64) -> u64 {
    partition_salt ^ lines.wrapping_mul(0x9fb2_1c65_1e98_df25)
}

/// Returns a table's word: its position and its doublings.
pub(crate) fn table_word(at: NvPtr, doublings: u32) -> u64 {
    debug_assert!(at.raw() & DOUBLINGS_MASK == 0 && u64::from(doublings) <= DOUBLINGS_MASK);
    at.raw() | u64::from(doublings)
}

/// Returns the extent of the table that a word names.
pub(crate) fn extent_of(word: u64) -> NvPtr {
    NvPtr::from_raw(word & !DOUBLINGS_MASK)
}

/// Returns the number of doublings of the table that a word names.
pub(crate) fn doublings_of(word: u64) -> u32 {
    (word & DOUBLINGS_MASK) as u32
}

impl Partition {
    /// `salt` is the store's ([`Superblock::salt`]).
    pub(crate) fn new(shape: &Superblock, salt: u64, partition: usize, found: LoadedRoot) -> Self {
        let part = Self {
            current: AtomicU64::new(found.current),
            next: AtomicU64::new(found.next),
            cursor: AtomicU64::new(found.cursor),
            first_lines: shape.first_lines(partition),
            probe: shape.probe_lines,
            salt: salt ^ partition as u64,
            lines_max: (shape.region_bytes_max() / TABLE_SHARE_DIVISOR / LINE_BYTES).min(LINES_MAX),
            due_keys: AtomicU64::new(0),
            load: shape.load.into(),
            keys_before: AtomicI64::new(-1),
            growing: Mutex::new(()),
            retry_at_keys: AtomicU64::new(0),
            lines_accounted: AtomicU64::new(0),
        };
        part.update_due_keys();
        part
    }

    fn update_due_keys(&self) {
        let keys = self.current().lines * LINE_SLOTS as u64 * self.load / 100;
        self.due_keys.store(keys / STRIPES as u64, Ordering::Relaxed);
    }

    /// Returns whether a stripe with this number of keys indicates that the table may be due to
    /// grow; then all keys are counted. In stripes with few keys every key triggers the count,
    /// otherwise every eighth key near the limit.
    #[inline]
    pub(crate) fn may_be_due(&self, keys_of_stripe: i32) -> bool {
        let due = self.due_keys.load(Ordering::Relaxed);
        let before = self.keys_before.load(Ordering::Relaxed).max(0) / STRIPES as i64;
        let keys = u64::try_from(i64::from(keys_of_stripe) + before).unwrap_or(0);
        due < 16 || keys % 8 == 0 && keys * 4 >= due * 3
    }

    #[inline]
    fn table(&self, word: u64) -> Table {
        let lines = self.first_lines << (word & DOUBLINGS_MASK);
        Table { lines_at: extent_of(word).add(LINE_BYTES), lines, probe: self.probe, salt: salt_of(self.salt, lines) }
    }

    /// Returns the table to which keys of this fraction belong.
    #[inline]
    pub(crate) fn table_for(&self, fraction: u32) -> Table {
        loop {
            let next = self.next.load(Ordering::Acquire);
            if next == 0 {
                return self.table(self.current.load(Ordering::Acquire));
            }
            let cursor = self.cursor.load(Ordering::Acquire);
            if self.next.load(Ordering::Acquire) != next {
                continue;
            }
            let word = if u64::from(fraction) < cursor { next } else { self.current.load(Ordering::Acquire) };
            return self.table(word);
        }
    }

    /// Returns the current words: current, next, cursor. Consistent for the holder of `growing`.
    pub(crate) fn words(&self) -> (u64, u64, u64) {
        let load = |word: &AtomicU64| word.load(Ordering::Acquire);
        (load(&self.current), load(&self.next), load(&self.cursor))
    }

    /// Returns the table of the word `current`; keys may have left it already.
    pub(crate) fn current(&self) -> Table {
        self.table(self.current.load(Ordering::Acquire))
    }

    /// Returns the table to which keys are moving, if the table grows.
    pub(crate) fn next(&self) -> Option<Table> {
        Some(self.next.load(Ordering::Acquire)).filter(|word| *word != 0).map(|word| self.table(word))
    }

    /// Returns whether the table is growing.
    #[inline]
    pub(crate) fn is_growing(&self) -> bool {
        self.next.load(Ordering::Acquire) != 0
    }

    /// Returns the cursor: fractions below it are in the next table.
    pub(crate) fn cursor(&self) -> u64 {
        self.cursor.load(Ordering::Acquire)
    }

    pub(crate) fn set_next(&self, word: u64) {
        self.cursor.store(0, Ordering::Release);
        self.next.store(word, Ordering::Release);
    }

    pub(crate) fn set_cursor(&self, cursor: u64) {
        debug_assert!(cursor >= self.cursor.load(Ordering::Relaxed) && cursor <= CURSOR_MAX);
        self.cursor.store(cursor, Ordering::Release);
    }

    pub(crate) fn set_current(&self, word: u64) {
        self.current.store(word, Ordering::Release);
        self.next.store(0, Ordering::Release);
        self.update_due_keys();
    }

    /// Returns the lines of the table after this number of doublings; `None` if they exceed the
    /// maximum.
    pub(crate) fn lines_of(&self, doublings: u32) -> Option<u64> {
        let lines = self.first_lines.checked_shl(doublings)?;
        (lines <= self.lines_max && u64::from(doublings) <= DOUBLINGS_MASK).then_some(lines)
    }

    /// Returns the first table of a partition that is being created, at this extent.
    pub(crate) fn first_table(shape: &Superblock, salt: u64, partition: usize, extent: NvPtr) -> Table {
        let found = LoadedRoot { current: table_word(extent, 0), next: 0, cursor: 0, keys: None };
        Self::new(shape, salt, partition, found).current()
    }

    /// Returns the table of this partition that a word names.
    pub(crate) fn table_of(&self, word: u64) -> Table {
        self.table(word)
    }
}

/// Reads a partition's root and checks it against the headers of its tables.
///
/// # Errors
/// [`Error::Corrupt`].
pub(crate) fn load_root(pool: &Pool, shape: &Superblock, partition: usize) -> Result<LoadedRoot> {
    let root = Root::of(pool, partition);
    let wrong = |what: &str| Error::corrupt(format!("root of partition {partition}"), what);
    let mut found = LoadedRoot {
        current: pool.load_u64(root.current()),
        next: pool.load_u64(root.next()),
        cursor: root
            .unsealed(pool.load_u64(root.cursor()))
            .ok_or_else(|| wrong("the cursor of the growth is damaged"))?,
        keys: root.unsealed(pool.load_u64(root.keys())).and_then(|keys| keys.checked_sub(1)),
    };
    let is_table = |word: u64| {
        let (at, doublings) = (extent_of(word), doublings_of(word));
        let lines = shape.first_lines(partition).checked_shl(doublings).filter(|lines| *lines <= LINES_MAX)?;
        let header = TableHeader { partition: partition as u32, doublings, lines };
        let whole = header.is_stored_at(pool, at)
            && usize::try_from(Table::extent_bytes(lines, shape.probe_lines)).is_ok_and(|len| pool.contains(at, len));
        whole.then_some(doublings)
    };
    let current = is_table(found.current).ok_or_else(|| wrong("the root names no table of this partition"))?;
    if found.cursor > CURSOR_MAX {
        return Err(wrong("the cursor of the growth is after the end of the table"));
    }
    if found.next == found.current {
        // The last step of a growth was interrupted between its stores.
        found.next = 0;
    }
    if found.next == 0 {
        if found.cursor != 0 && found.cursor != CURSOR_MAX {
            return Err(wrong("the root names no table to which the cursor belongs"));
        }
        found.cursor = 0;
    } else if is_table(found.next) != Some(current + 1) {
        return Err(wrong("the larger table of the growth does not belong to this partition"));
    }
    Ok(found)
}

/// Compares a partition's root with the stages of its tables.
///
/// # Errors
/// [`Error::Corrupt`] if a stage shows that the root is older, or was changed.
pub(crate) fn check_stages(pool: &Pool, partition: usize, found: &LoadedRoot) -> Result<()> {
    let wrong = |what: &str| Error::corrupt(format!("root of partition {partition}"), what);
    let stage_of =
        |word| TableStage::load(pool, extent_of(word)).ok_or_else(|| wrong("the growth stage of the table is damaged"));
    let is_growing = found.next != 0;
    let stage_max = if is_growing { TableStage::GROWING } else { TableStage::of_cursor(CURSOR_MAX) };
    let is_older = stage_of(found.current)? > stage_max
        || is_growing && stage_of(found.next)? > TableStage::of_cursor(found.cursor);
    if is_older {
        Err(wrong("the root is older than its table, so values may be older and keys may be missing"))
    } else {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hash::HashKind;

    #[test]
    fn a_key_belongs_to_the_next_table_once_the_cursor_has_passed_it() {
        let shape = Superblock {
            partitions: 1,
            first_slots: 14,
            probe_lines: 4,
            load: 80,
            hash: HashKind::Murmur3,
            seed: 0,
            offset_bits: crate::slot::OFFSET_BITS_MIN,
        };
        let (old, new) = (table_word(NvPtr::new(0, 4096), 0), table_word(NvPtr::new(0, 8192), 1));
        let part = Partition::new(&shape, 7, 0, LoadedRoot { current: old, next: 0, cursor: 0, keys: None });
        let first = part.table_for(5);
        assert_eq!((first.lines_at, first.lines), (NvPtr::new(0, 4096 + 64), shape.first_lines(0)));
        part.set_next(new);
        assert_eq!(part.table_for(0), first);
        part.set_cursor(100);
        let grown = part.table_for(99);
        assert_eq!((grown.lines_at, grown.lines), (NvPtr::new(0, 8192 + 64), 2 * first.lines));
        assert_eq!(part.table_for(100), first);
        part.set_cursor(CURSOR_MAX);
        part.set_current(new);
        assert_eq!((part.table_for(0), part.table_for(u32::MAX), part.is_growing()), (grown, grown, false));
    }
}
